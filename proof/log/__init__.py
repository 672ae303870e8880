"""What the commit log does, on the real binary, when the disk fails, is full, or is damaged."""
