"""Memory: rows held per GiB of memtable, an idle node, a node with many tables, and what a small memtable flushes."""

import time

from dataclasses import dataclass

from bench.harness import load, servers
from bench.harness.length import Length
from bench.harness.outcome import Bar, Outcome, Table
from bench.harness.rounds import Progress
from bench.harness.scenarios import tables
from bench.harness.servers import Cassandra, Espalier
from bench.harness.session import Session

KEYSPACE = "bench"
# A memtable that has to be flushed again and again, nothing compacted: the paper's table of flushes.
SMALL_MEMTABLE_MB = 64
FLUSHED = tables.KEY_VALUE + " WITH compaction = {{'class': 'UnifiedCompactionStrategy', 'enabled': 'false'}}"


@dataclass(frozen=True)
class Plan:
    rows: int
    # The number of additional tables.
    many: int
    systems: tuple[str, ...]
    # The tables whose flushes are counted.
    flushing: tuple[str, ...]


STARTS = {"cassandra trie": lambda **more: Cassandra.start(**more), "cassandra skiplist": lambda **more: Cassandra.start(memtable="skiplist", **more),
          "espalier": lambda **more: Espalier.start(**more)}
PLANS = {
    Length.FULL: Plan(2_000_000, 1_000, tuple(STARTS), tuple(STARTS)),
    Length.SHORT: Plan(300_000, 50, tuple(STARTS), tuple(STARTS)),
    Length.SMOKE: Plan(50_000, 10, ("cassandra trie", "espalier"), ("espalier",)),
}


def run(session: Session) -> Outcome:
    plan = PLANS[session.length]
    rows, many = plan.rows, plan.many
    outcome = Outcome("memory", settings={
        "rows": f"{rows:,} partitions of one row, 16-byte keys, {tables.VALUE_BYTES}-byte values",
        "memtable": "counted by the memtable itself: on and off heap for Cassandra, blocks and contents in use for Espalier; beside it the growth "
                    "of the process, log buffers included (a Java heap grows by its own rules: not shown)"})
    measured, figures = [], {}
    flushed = []
    progress = Progress("memory", 3 * len(plan.systems) + len(plan.flushing))
    for name in plan.systems:
        with STARTS[name]() as node:
            outcome.settings[name] = node.settings
            progress.step(f"{name}: idle")
            time.sleep(3)
            idle = load.resident_bytes(node.pid)
            progress.step(f"{name}: rows")
            tables.make(node, KEYSPACE, {"kv": tables.KEY_VALUE})
            before = load.resident_bytes(node.pid)
            per_row = bytes_per_row(node, rows)
            if node.name == "espalier":
                measured.append([name, "growth of the process per row, bytes", (load.resident_bytes(node.pid) - before) / rows])
            figures[name] = (idle, per_row)
            measured.append([name, "idle, MiB resident", idle / 2**20])
            measured.append([name, "memtable bytes per row", per_row])
            measured.append([name, "rows per GiB of memtable", 2**30 / per_row])
            progress.step(f"{name}: {many} tables")
            if "skiplist" not in name:
                before = load.resident_bytes(node.pid)
                servers.execute(node, *(tables.KEY_VALUE.format(keyspace=KEYSPACE, table=f"t{place}") for place in range(many)))
                measured.append([name, f"{many} more tables, MiB resident more", (load.resident_bytes(node.pid) - before) / 2**20])
    for name in plan.flushing:
        with STARTS[name](memtable_mb=SMALL_MEMTABLE_MB) as node:
            progress.step(f"{name}: flushes of a memtable of {SMALL_MEMTABLE_MB} MiB")
            flushed.append([name, *flushes(node, 2 * rows)])
    progress.end()
    outcome.tables.append(Table("Memory", ["system", "what", "value"], measured))
    outcome.tables.append(Table(f"Flushes while {2 * rows:,} rows are written, memtables of {SMALL_MEMTABLE_MB} MiB",
                                ["system", "flushes", "rows per flush", "mean size of a flushed table, MiB", "bytes per row on disk"], flushed))
    fewest, theirs = min((per_row, name) for name, (_, per_row) in figures.items() if name != "espalier")
    outcome.bars.append(Bar(f"rows per GiB of memtable ÷ that of the better of Cassandra's ({theirs})", fewest / figures["espalier"][1], ">=", 2.5))
    outcome.bars.append(Bar("resident memory, idle, MiB", figures["espalier"][0] / 2**20, "<=", 60))
    return outcome


def flushes(node, rows: int) -> tuple[int, float, float, float]:
    """How often a table is flushed while it is filled, rows per flush, the flushed tables' mean size
    in MiB, bytes per row on disk."""
    tables.make(node, KEYSPACE, {"kv": FLUSHED})
    tables.fill(node, KEYSPACE, "kv", rows)
    node.flush(KEYSPACE, "kv")
    load.run(node, KEYSPACE, tables.uniform("kv", rows), seed=8, reads_percent=100, operations=5_000)
    data = node.sstables(KEYSPACE, "kv")
    size = sum(file.stat().st_size for file in data[0].parent.iterdir() if file.is_file())
    return len(data), rows / len(data), size / len(data) / 2**20, size / rows


def bytes_per_row(node, rows: int) -> float:
    """The size that the memtable reports with all rows in it. A flush in between is an error."""
    tables.fill(node, KEYSPACE, "kv", rows)
    load.run(node, KEYSPACE, tables.uniform("kv", rows), seed=8, reads_percent=100, operations=10_000)
    on_heap, off_heap, flushes = node.memtable_bytes(KEYSPACE, "kv")
    if flushes:
        raise RuntimeError(f"{node.name} flushed while it was filled")
    return (on_heap + off_heap) / rows
