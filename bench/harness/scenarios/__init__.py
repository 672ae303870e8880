"""The scenarios by name: each takes a Session and returns an Outcome."""

from bench.harness.scenarios import (cassandra, columns, commitlog, commitlog_paper, conditions, counters, indexes, inmemory, inmemory_exhausted,
                                     latency, memory, memtrie, skew, sstables, start, sustained, throughput, tls, vectors, ycsb)

# The scenarios that share servers come first.
SCENARIOS = {
    "throughput": throughput.run,
    "latency": latency.run,
    "skew": skew.run,
    "columns": columns.run,
    "ycsb": ycsb.run,
    "sustained": sustained.run,
    "start": start.run,
    "memory": memory.run,
    "commitlog": commitlog.run,
    "memtrie": memtrie.run,
    "tables": sstables.run,
    "commitlog-paper": commitlog_paper.run,
    "inmemory": inmemory.run,
    "inmemory-exhausted": inmemory_exhausted.run,
    "tls": tls.run,
    "conditions": conditions.run,
    "counters": counters.run,
    "indexes": indexes.run,
    "vectors": vectors.run,
    "vectors-wide": vectors.run_wide,
    "cassandra": cassandra.run,
    "cassandra-2gib": cassandra.run_with_2_gib,
    "cassandra-4gib": cassandra.run_with_4_gib,
    "cassandra-floor": cassandra.run_floor,
}
# In a smoke run these share servers, which end with the last of them.
SHARING = ("throughput", "latency", "skew", "columns", "ycsb")
# The scenarios that run when none is named.
ONLY_BY_NAME = ("commitlog-paper", "inmemory", "inmemory-exhausted", "tls", "conditions", "counters", "indexes", "vectors", "vectors-wide",
                "cassandra", "cassandra-2gib", "cassandra-4gib", "cassandra-floor")
BY_DEFAULT = [name for name in SCENARIOS if name not in ONLY_BY_NAME]
# The programs of `bench/src/bin` that a scenario runs.
PROGRAMS = {"skew": ["skew"], "commitlog": ["commitlog"], "memtrie": ["memtrie", "memtable"], "inmemory": ["inmemory"]}
