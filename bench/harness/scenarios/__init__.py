"""The scenarios by name: each takes whether it is to be quick and returns an Outcome."""

from bench.harness.scenarios import (columns, commitlog, commitlog_paper, inmemory, inmemory_exhausted, latency, memory, memtrie, skew, sstables,
                                     start, sustained, throughput, ycsb)

SCENARIOS = {
    "throughput": throughput.run,
    "sustained": sustained.run,
    "start": start.run,
    "commitlog": commitlog.run,
    "commitlog-paper": commitlog_paper.run,
    "columns": columns.run,
    "skew": skew.run,
    "latency": latency.run,
    "memory": memory.run,
    "memtrie": memtrie.run,
    "tables": sstables.run,
    "ycsb": ycsb.run,
    "inmemory": inmemory.run,
    "inmemory-exhausted": inmemory_exhausted.run,
}
