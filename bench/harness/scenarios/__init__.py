"""The scenarios by name: each takes whether it is to be quick and returns an Outcome."""

from bench.harness.scenarios import columns, commitlog, commitlog_paper, latency, memory, memtrie, skew, start, throughput, ycsb

SCENARIOS = {
    "throughput": throughput.run,
    "start": start.run,
    "commitlog": commitlog.run,
    "commitlog-paper": commitlog_paper.run,
    "columns": columns.run,
    "skew": skew.run,
    "latency": latency.run,
    "memory": memory.run,
    "memtrie": memtrie.run,
    "ycsb": ycsb.run,
}

# Named by the issues, not built yet: refused by name.
LATER = {name: "this scenario is not built yet" for name in ("tables",)}
