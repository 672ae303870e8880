"""Repeated kill -9 under load: every acknowledged write exists, and nothing exists that was never sent."""
