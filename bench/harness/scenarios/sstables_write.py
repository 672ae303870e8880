"""Flush and compaction: megabytes of data, before compression, per second of processor time; sizes of indexes."""

import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from bench.harness import load, servers
from bench.harness.outcome import Bar, Outcome, Table, median, spread
from bench.harness.rounds import Progress, System, interleaved
from bench.harness.scenarios import sstables, tables

CHUNK_BYTES = 16 * 1024
KINDS = ("plain", "lz4")
OPTIONS = {"plain": "'enabled': 'false'", "lz4": "'class': 'LZ4Compressor'"}


# Reads of the merged table, to check it.
CHECKED_READS = 5_000


@dataclass(frozen=True)
class Took:
    """Seconds of a flush or a compaction: processor time of the whole process, and the wall's."""

    cpu: float
    wall: float


def steps(sizes) -> int:
    return len(sizes.flushed_rows) * len(KINDS) * 2 * (sizes.flushes + sizes.compactions)


def measure(outcome: Outcome, systems: list[System], sizes, progress: Progress, scratch: Path) -> None:
    rows, bars, index_sizes = [], [], []
    for size, count in sizes.flushed_rows.items():
        speeds, wall, codec, data_bytes = {}, {}, {}, None
        for kind in KINDS:
            table = f"rows_{size}_{kind}"
            for system in systems:
                servers.execute(system.node, create(table, kind))
            flushed = interleaved(systems, sizes.flushes, lambda system, number, table=table: flush(system, table, count, size, number), progress,
                                  f"flush of {size} B rows, {kind}")
            copies = sstables.hand_over(systems[1], table, scratch)
            if kind == "plain":
                data_bytes = [copy.stat().st_size for copy in copies]
                codec = {"cassandra": systems[0].node.lz4_seconds(copies[0], CHUNK_BYTES), "espalier": lz4_seconds(copies[0])}
            merged = interleaved(systems, sizes.compactions, lambda system, _, copies=copies: compact(system, table, copies[0].parent),  # noqa: B023
                                 progress, f"compaction of {size} B rows, {kind}")
            one = data_bytes[0] / 1e6
            for system in systems:
                # The first of each warms up.
                for what, megabytes, times in (("flush", one, flushed), ("compaction", sum(data_bytes) / 1e6, merged)):
                    speeds[what, kind, system.name] = [megabytes / took.cpu for took in times[system.name][1:]]
                    wall[what, kind, system.name] = [megabytes / took.wall for took in times[system.name][1:]]
                # Everything that was flushed was merged.
                partitions = count + (sizes.flushes - 1) * (count * 3 // 4)
                load.run(system.node, system.keyspace, tables.uniform(table, partitions, size), seed=8, reads_percent=100, operations=CHECKED_READS)
            index_sizes.append([f"{size} B rows, {kind}", *(index_bytes(system, table) for system in systems)])
        one = data_bytes[0] / 1e6
        share = {("flush", name): seconds[0] / one for name, seconds in codec.items()}
        share |= {("compaction", name): sum(seconds) / one for name, seconds in codec.items()}
        for what in ("flush", "compaction"):
            for kind in KINDS:
                for system in systems:
                    speed = speeds[what, kind, system.name]
                    rows.append([what, f"{size} B", kind, system.name, spread(speed), 1e3 / median(speed),
                                 1e3 * share[what, system.name] if kind == "lz4" else 0.0, spread(wall[what, kind, system.name])])
            bars += judge(what, size, speeds, share)
    outcome.tables.append(Table("Flush and compaction, by processor time of the whole process: medians (least–greatest)",
                                ["what", "rows", "chunks", "system", "MB/s", "CPU ms/MB", "of it the codec", "MB/s by the wall"], rows))
    outcome.tables.append(Table("Partitions.db and Rows.db after compaction, bytes", ["table", *(system.name for system in systems)], index_sizes))
    outcome.bars += bars
    outcome.bars += [Bar(f"size of the indexes ÷ Cassandra's, {what}", ours / theirs, "<=", 1) for what, theirs, ours in index_sizes]


def judge(what: str, size: int, speeds: dict, share: dict) -> list[Bar]:
    def cost(kind: str, system: str) -> float:
        return 1 / median(speeds[what, kind, system])

    def outside(system: str) -> float:
        return cost("lz4", system) - share[what, system]

    rows = f"{what} of {size} B rows"
    return [Bar(f"{rows}, uncompressed: MB/s per core ÷ Cassandra's", cost("plain", "cassandra") / cost("plain", "espalier"), ">=", 5),
            Bar(f"{rows}, LZ4: MB/s per core ÷ Cassandra's", cost("lz4", "cassandra") / cost("lz4", "espalier"), ">=", 3),
            Bar(f"{rows}, LZ4: CPU outside the codec ÷ Cassandra's", outside("espalier") / outside("cassandra"), "<=", 1 / 5)]


def create(table: str, kind: str) -> str:
    return (f"CREATE TABLE {sstables.KEYSPACE}.{table} (key blob PRIMARY KEY, value blob) WITH compression = {{{OPTIONS[kind]}}} "
            "AND compaction = {'class': 'UnifiedCompactionStrategy', 'enabled': 'false'}")


def flush(system: System, table: str, count: int, size: int, number: int) -> Took:
    """A flush of `count` rows, a quarter of which the flush before has as well."""
    tables.fill(system.node, system.keyspace, table, count, size, first=number * count * 3 // 4)
    return timed(system, lambda: system.node.flush(system.keyspace, table))


def compact(system: System, table: str, directory: Path) -> Took:
    """A merge of the SSTables of a directory; the table holds nothing else."""
    servers.execute(system.node, f"TRUNCATE {system.keyspace}.{table}")
    system.node.import_tables(system.keyspace, table, directory)
    return timed(system, lambda: system.node.compact(system.keyspace, table))


def timed(system: System, action) -> Took:
    # Work that was begun before is completed.
    time.sleep(0.3)
    before, began = servers.cpu_seconds(system.node), time.monotonic()
    action()
    return Took(servers.cpu_seconds(system.node) - before, time.monotonic() - began)


def lz4_seconds(file: Path) -> tuple[float, float]:
    """As Cassandra's: a thread's processor time for compressing a file in chunks, and for decompressing it."""
    done = subprocess.run([str(load.TARGET / "release" / "load"), "lz4", str(file), str(CHUNK_BYTES)], capture_output=True, text=True, check=True)
    compressing, decompressing = done.stdout.split()
    return int(compressing) / 1e9, int(decompressing) / 1e9


def index_bytes(system: System, table: str) -> int:
    """Partitions.db and Rows.db of all the table's SSTables."""
    files = system.node.sstables(system.keyspace, table)
    return sum(data.with_name(data.name.replace("Data.db", name)).stat().st_size for data in files for name in ("Partitions.db", "Rows.db"))
