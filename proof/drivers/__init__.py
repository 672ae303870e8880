"""What users' own clients do: each driver's script runs against Cassandra (which proves the
script) and against Espalier."""
