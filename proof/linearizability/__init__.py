"""Conditional writes and reads under kill -9: what concurrent clients saw is explained by
one order of their requests."""
