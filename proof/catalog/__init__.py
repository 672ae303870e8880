"""System tables, schema tables and DESCRIBE against Cassandra's own."""
