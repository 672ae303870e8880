"""Checks of Espalier's SSTables by Cassandra, which imports, verifies and dumps them, and answers the same
questions."""
