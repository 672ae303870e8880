"""Espalier's SSTables in Cassandra's hands: imported, verified, dumped, and asked the same questions."""
