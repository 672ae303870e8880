"""A Cassandra node's directory adopted by Espalier, and one of Espalier's started by Cassandra: same answers."""
