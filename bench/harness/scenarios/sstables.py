"""SSTables: flush and compaction, reads, what they cost in bytes and memory, beside Cassandra's BTI tables."""

import shutil
from dataclasses import dataclass

from bench.harness.length import Length
from bench.harness.outcome import Outcome
from bench.harness.rounds import Progress, System
from bench.harness.scenarios import sstables_read, sstables_write, tables
from bench.harness.servers import Cassandra, Espalier
from bench.harness.session import Session, beside
from proof import places

KEYSPACE = "bench"
# Room for what is written between two flushes: nothing is flushed unasked.
MEMTABLE_MB = 4096


@dataclass(frozen=True)
class Sizes:
    """How much of everything. Rows by the bytes of their values."""

    flushed_rows: dict[int, int]
    # As many SSTables are merged.
    flushes: int
    compactions: int
    partitions: int
    # Tables more with the SSTables of these partitions, to measure memory: together more than 10 GB.
    point_copies: int
    wide_rows: int
    read_seconds: float
    read_rounds: int
    # Of reads beside compaction.
    p99_rounds: int
    warmup_seconds: float
    compacting_seconds: float
    cache_mb: int


SIZES = {
    Length.FULL: Sizes({100: 200_000, 1000: 50_000}, 4, 5, 10_000_000, 8, 1_000_000, 2.0, 3, 2, 8.0, 8.0, 2048),
    Length.SHORT: Sizes({100: 30_000, 1000: 8_000}, 3, 5, 100_000, 1, 100_000, 0.7, 5, 2, 1.0, 1.5, 512),
    Length.SMOKE: Sizes({100: 10_000, 1000: 3_000}, 2, 2, 50_000, 1, 50_000, 0.4, 1, 1, 0.4, 0.8, 512),
}


def run(session: Session) -> Outcome:
    sizes = SIZES[session.length]
    more = {"file_cache_size": f"{sizes.cache_mb}MiB", "compaction_throughput": "0MiB/s"}
    scratch = places.run_directory("bench-tables")
    try:
        with Cassandra.start(memtable_mb=MEMTABLE_MB, file_cache_enabled="true", **more) as cassandra, \
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
            sstables_read.measure(outcome, systems, sizes, progress, scratch)
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
