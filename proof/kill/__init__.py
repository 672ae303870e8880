"""kill -9 under load, again and again: what was acknowledged is there, nothing is there that was never sent."""
