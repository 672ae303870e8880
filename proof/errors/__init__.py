"""Error codes, messages, extra fields and warnings against what Cassandra 5.0.8 answered to the same statements."""
