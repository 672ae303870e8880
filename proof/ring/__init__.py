"""Three and four nodes of Apache Cassandra on loopback whose tables have our memtables, or are in our engine."""
