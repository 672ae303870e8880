"""The commit log of the real binary, on a disk that fails, is full, or is damaged."""
