"""The memtable plugin inside Apache Cassandra: the same as Cassandra's own memtable, read,
flushed, replayed and indexed."""
