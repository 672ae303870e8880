"""The scenarios by name: each takes whether it is to be quick and returns an Outcome."""

from bench.harness.scenarios import start, throughput

SCENARIOS = {
    "throughput": throughput.run,
    "start": start.run,
}

# Named by the issues, not built yet: refused by name.
LATER = {name: "this scenario is not built yet"
         for name in ("memtrie", "commitlog", "tables", "columns", "memory", "latency", "skew", "ycsb")}
