"""SSTables beside Cassandra's BTI tables: flush, compaction, reads, and their cost in bytes and memory."""

import shutil
from contextlib import ExitStack
from dataclasses import dataclass

from bench.harness.length import Length
from bench.harness.outcome import Outcome
from bench.harness.rounds import Progress, System
from bench.harness.scenarios import sstables_read, sstables_write, tables
from bench.harness.servers import TWO_THREADS, Cassandra, Espalier
from bench.harness.session import Session, beside
from proof import places

KEYSPACE = "bench"
# Memory for the data between two flushes, so that the node flushes only on request.
MEMTABLE_MB = 4096


@dataclass(frozen=True)
class Sizes:
    """The sizes of the scenario. Rows are given by the bytes of their values."""

    flushed_rows: dict[int, int]
    # Of flushes and compactions the first warms up. As many SSTables are merged as were flushed.
    flushes: int
    compactions: int
    partitions: int
    # Additional tables with the SSTables of these partitions, to measure memory: together more than 10 GB.
    point_copies: int
    wide_rows: int
    read_seconds: float
    read_rounds: int
    # Of reads beside compaction.
    p99_rounds: int
    warmup_seconds: float
    compacting_seconds: float
    cache_mb: int
    # Of Cassandra, for what only reads.
    others: dict[str, dict]


SIZES = {
    Length.FULL: Sizes({100: 200_000, 1000: 50_000}, 6, 6, 10_000_000, 8, 1_000_000, 2.0, 5, 5, 8.0, 5.0, 2048, TWO_THREADS),
    Length.SHORT: Sizes({100: 20_000, 1000: 5_000}, 6, 6, 100_000, 1, 100_000, 0.5, 5, 5, 1.0, 1.0, 512, TWO_THREADS),
    Length.SMOKE: Sizes({100: 10_000}, 2, 2, 50_000, 1, 50_000, 0.3, 1, 1, 0.2, 0.6, 512, {}),
}


def run(session: Session) -> Outcome:
    sizes = SIZES[session.length]
    more = {"file_cache_size": f"{sizes.cache_mb}MiB", "compaction_throughput": "0MiB/s"}
    scratch = places.run_directory("bench-tables")
    try:
        with Cassandra.start(memtable_mb=MEMTABLE_MB, **more) as cassandra, \
                Espalier.start(memtable_mb=MEMTABLE_MB, **more) as espalier:
            systems = beside(cassandra, espalier, KEYSPACE)
            for system in systems:
                tables.make(system.node, KEYSPACE, {})
            outcome = Outcome("tables", settings={
                "flushed and compacted": ", ".join(f"{rows:,} partitions of one row of {size} B" for size, rows in sizes.flushed_rows.items())
                                         + f" a flush; {sizes.flushes} such SSTables are merged, a quarter of each overwritten by the next; LZ4 in 16 KiB",
                "point reads": f"{sizes.partitions:,} partitions in {sstables_read.POINT_TABLES} SSTables, LZ4 in 16 KiB, 64 in flight over 2 connections, "
                               "after as much warming up; every answer checked",
                "large partition": f"{sizes.wide_rows:,} rows of {tables.VALUE_BYTES} B; index and chunks of 16 KiB",
                "files": "what is read is written by Espalier and imported into Cassandra",
                "cassandra": cassandra.settings, "espalier": espalier.settings})
            progress = Progress("tables", sstables_write.steps(sizes) + sstables_read.steps(sizes))
            sstables_write.measure(outcome, systems, sizes, progress, scratch)
            with ExitStack() as started:
                others = [System(name, started.enter_context(Cassandra.start(**more, **few)), KEYSPACE) for name, few in sizes.others.items()]
                for system in others:
                    tables.make(system.node, KEYSPACE, {})
                    outcome.settings[system.name] = system.node.settings
                sstables_read.measure(outcome, systems, others, sizes, progress, scratch)
            progress.end()
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return outcome


def hand_over(system: System, table: str, target) -> list:
    """Copies the table's SSTables into a directory that is named as Cassandra wants it; their Data.db files."""
    copies = target / KEYSPACE / table
    shutil.rmtree(copies, ignore_errors=True)
    copies.mkdir(parents=True)
    for data in system.node.snapshot(KEYSPACE, table):
        for component in data.parent.glob(data.name.replace("-Data.db", "-*")):
            shutil.copy(component, copies / component.name)
    return sorted(copies.glob("*-Data.db"))
