"""Reads of SSTables: points, slices, reads past deletions and beside compaction; bytes read, and memory."""

import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

from bench.harness import load, machine, servers
from bench.harness.outcome import Bar, Outcome, Table, median
from bench.harness.rounds import Progress, System, best, cpu, interleaved, percentile, table, whose
from bench.harness.scenarios import sstables, sstables_write, tables
from bench.harness.servers import Espalier

POINT_TABLES = 4
ROWS_OF_SLICE = 20
# "next live row" reads a partition in which one row of this many is live: 99.7 % are deleted, each gap by one range.
LIVE_EVERY = 333
COMPACTION_OFF = "compaction = {{'class': 'UnifiedCompactionStrategy', 'enabled': 'false'}}"
POINTS = tables.KEY_VALUE + " WITH " + COMPACTION_OFF
WIDE = tables.SKEW + " WITH " + COMPACTION_OFF
FINE = WIDE + " AND compression = {{'class': 'LZ4Compressor', 'chunk_length_in_kb': '4'}}"
READS = ("point reads", "one row", "slice forward", "slice reversed", "next row", "next live row")
# Of what a closed loop reaches: an open loop beside compaction needs room.
P99_LOAD = 0.25
SMALL_CACHE_MB = 16
# The niceness and the scheduler slice of a thread of our compaction.
BUSY_NICENESS, BUSY_SLICE_NANOS = 10, 100_000_000


def steps(sizes) -> int:
    return (2 + len(sizes.others)) * len(READS) * sizes.read_rounds + 2 * (3 * sizes.p99_rounds) + 3


def measure(outcome: Outcome, systems: list[System], others: list[System], sizes, progress: Progress, scratch: Path) -> None:
    """`others`: of Cassandra, measured where nothing but reads runs."""
    progress.step("writing what is read")
    write(systems, others, sizes, scratch)
    compared = [*systems, *others]
    results = {}
    for what in READS:
        work = workload(what, sizes)
        for system in compared:
            load.run(system.node, system.keyspace, work, seed=11, reads_percent=100, in_flight=64, seconds=sizes.warmup_seconds)
        def one(system: System, number: int, work=work) -> load.Run:
            return load.run(system.node, system.keyspace, work, seed=100 + number, reads_percent=100, in_flight=64, warmup_seconds=0.2,
                            seconds=sizes.read_seconds)
        results[what] = interleaved(compared, sizes.read_rounds, one, progress, what)
    results |= beside_compaction(systems, sizes, progress, min(load.throughput for runs in results["point reads"].values() for load in runs))
    outcome.tables += [table("Reads of SSTables, medians (least–greatest)", results), by_the_wall(results)]
    outcome.notes.append(WALL_NOTE)
    judge(outcome, results)
    index_of_wide(outcome, systems, scratch)
    memory(outcome, systems[1], sizes, progress, scratch)
    bytes_read(outcome, sizes, progress)


def workload(what: str, sizes) -> dict:
    if what == "point reads":
        return tables.uniform("points", sizes.partitions)
    of = {"rows": sizes.wide_rows, "value_bytes": tables.VALUE_BYTES}
    return {"partition": {
        "one row": {"table": "wide", "limit": 0, **of},
        "slice forward": {"table": "wide", "limit": ROWS_OF_SLICE, **of},
        "slice reversed": {"table": "wide", "limit": ROWS_OF_SLICE, "reversed": True, **of},
        "next row": {"table": "wide", "limit": 1, **of},
        "next live row": {"table": "holes", "limit": 1, "live_every": LIVE_EVERY, **of},
    }[what]}


def write(systems: list[System], others: list[System], sizes, scratch: Path) -> None:
    """Espalier writes; Cassandra imports the same SSTables."""
    theirs, ours = systems
    for system in [*systems, *others]:
        for name, template in (("points", POINTS), ("wide", WIDE), ("holes", WIDE)):
            servers.execute(system.node, template.format(keyspace=sstables.KEYSPACE, table=name))
    each = sizes.partitions // POINT_TABLES
    for number in range(POINT_TABLES):
        tables.fill(ours.node, ours.keyspace, "points", each, first=number * each)
        ours.node.flush(ours.keyspace, "points")
    for name in ("wide", "holes"):
        fill_partition(ours.node, name, sizes.wide_rows)
    ours.node.flush(ours.keyspace, "wide")
    delete_between(ours.node, "holes", sizes.wide_rows)
    ours.node.compact(ours.keyspace, "holes")
    for name in ("points", "wide", "holes"):
        copies = sstables.hand_over(ours, name, scratch)
        for system in [theirs, *others]:
            system.node.import_tables(system.keyspace, name, copies[0].parent)
        if len(copies) != (POINT_TABLES if name == "points" else 1):
            raise RuntimeError(f"{name} has {len(copies)} SSTables")


def fill_partition(node, name: str, rows: int) -> None:
    of = {"table": name, "rows": rows, "value_bytes": tables.VALUE_BYTES}
    load.run(node, sstables.KEYSPACE, {"partition": of}, seed=7, operations=rows, check=1000)


def delete_between(node, name: str, rows: int) -> None:
    """Deletes all rows but every `LIVE_EVERY`th, a range for each gap. The partition is the generator's first."""
    key = "0x" + bytes(16).hex()
    statements = [f"DELETE FROM {sstables.KEYSPACE}.{name} WHERE key = {key} AND row > {live} AND row < {live + LIVE_EVERY}"
                  for live in range(0, rows, LIVE_EVERY)]
    servers.execute(node, *statements)


def beside_compaction(systems: list[System], sizes, progress: Progress, throughput: float) -> dict:
    """Point reads in an open loop at one rate for all: alone, while another process computes (what a busy machine costs
    by itself), and while another table is compacted again and again."""
    results = {}
    for what in ("reads alone", "reads beside a busy process", "reads beside compaction"):
        def one(system: System, number: int, what=what) -> load.Run:
            with BusyProcess(what == "reads beside a busy process"), Compactions(system, what == "reads beside compaction"):
                return load.run(system.node, system.keyspace, tables.uniform("points", sizes.partitions), seed=200 + number, reads_percent=100,
                                in_flight=64, rate=P99_LOAD * throughput, warmup_seconds=0.3, seconds=sizes.compacting_seconds)
        results[what] = interleaved(systems, sizes.p99_rounds, one, progress, what)
    return results


class BusyProcess:
    """A process that computes while the context is entered, on the servers' cores and with the niceness of a merge."""

    # sched_setattr(2), with the structure's first version: policy SCHED_OTHER, niceness, slice.
    PROGRAM = f"""
import ctypes, os, platform, struct
number = {{"x86_64": 314, "aarch64": 274}}.get(platform.machine())
os.nice({BUSY_NICENESS})
if number:
    ctypes.CDLL(None).syscall(number, 0, struct.pack("=IIQiIQQQ", 48, 0, 0, os.nice(0), 0, {BUSY_SLICE_NANOS}, 0, 0), 0)
while True:
    pass
"""

    def __init__(self, wanted: bool):
        self.wanted, self.process = wanted, None

    def __enter__(self) -> None:
        if self.wanted:
            self.process = subprocess.Popen([sys.executable, "-c", self.PROGRAM])
            machine.pin(self.process.pid, machine.cores_apart()[0])

    def __exit__(self, *_) -> None:
        if self.process:
            self.process.kill()
            self.process.wait()


class Compactions:
    """Compacts a table repeatedly while the context is entered."""

    def __init__(self, system: System, wanted: bool):
        self.system, self.wanted, self.ended, self.failure = system, wanted, threading.Event(), None
        self.thread = threading.Thread(target=self.work)

    def work(self) -> None:
        try:
            while not self.ended.is_set():
                self.system.node.compact(self.system.keyspace, "rows_100_lz4")
                # Cassandra executes one command at a time. Those of the load come in between.
                time.sleep(0.02)
        except RuntimeError as failure:
            self.failure = failure

    def __enter__(self) -> None:
        if self.wanted:
            self.thread.start()

    def __exit__(self, *_) -> None:
        self.ended.set()
        if self.wanted:
            self.thread.join()
        if self.failure:
            raise self.failure


WALL_NOTE = ("Reads are judged by the server's processor time. In a closed loop with 64 in flight p50 follows from what an operation costs all the cores together; "
             "where client and servers share them, the client's cost is in it, the same on both sides, and the ratio cannot fall below the client's share.")


def by_the_wall(results: dict) -> Table:
    rows = []
    for what, by_system in results.items():
        ours, theirs = by_system["espalier"], by_system[best(by_system)]
        client = median([run.client_cpu_micros for run in ours])
        rows.append([what, cpu(ours) / cpu(theirs), percentile(ours, "p50") / percentile(theirs, "p50"),
                     client / (client + cpu(theirs)) if not ours[0].load.get("rate") else float("nan")])
    return Table("Espalier ÷ the better Cassandra: processor time of the server, and p50 by the wall, beside the least that the client's cost leaves it",
                 ["reads", "CPU per operation", "p50", "client ÷ (client + Cassandra)"], rows)


def judge(outcome: Outcome, results: dict) -> None:
    def ratio(what: str) -> float:
        return cpu(results[what]["espalier"]) / cpu(results[what][best(results[what])])

    ours = {what: runs["espalier"] for what, runs in results.items()}
    outcome.bars += [
        Bar(f"point reads per core ÷ {whose(results['point reads'])}", 1 / ratio("point reads"), ">=", 5),
        Bar(f"slice of 20 rows, forward: CPU ÷ {whose(results['slice forward'])}", ratio("slice forward"), "<=", 1 / 5),
        Bar(f"slice of 20 rows, reversed: CPU ÷ {whose(results['slice reversed'])}", ratio("slice reversed"), "<=", 1 / 5),
        Bar("slice of 20 rows: CPU reversed ÷ forward", cpu(ours["slice reversed"]) / cpu(ours["slice forward"]), "<=", 1.2),
        Bar("next live row, 99.7 % deleted ÷ none deleted, CPU", cpu(ours["next live row"]) / cpu(ours["next row"]), "<=", 1.5),
        Bar("p99 of reads beside compaction ÷ alone", percentile(ours["reads beside compaction"], "p99") / percentile(ours["reads alone"], "p99"),
            "<=", 1.5)]


def index_of_wide(outcome: Outcome, systems: list[System], scratch: Path) -> None:
    """Both merge the same SSTable."""
    for system in systems:
        system.node.compact(system.keyspace, "wide")
    theirs, ours = (sstables_write.index_bytes(system, "wide") for system in systems)
    outcome.bars.append(Bar("size of the indexes ÷ Cassandra's, large partition", ours / theirs, "<=", 1))


def memory(outcome: Outcome, system: System, sizes, progress: Progress, scratch: Path) -> None:
    """The memory of a node that only reads, besides its cache, Bloom filters and chunk offsets."""
    progress.step("memory for reading")
    node = system.node
    tables_read = ["points", *copies_of_points(system, sizes.point_copies, scratch)]
    node.environment["ESPALIER_FILE_CACHE_SIZE"] = f"{SMALL_CACHE_MB}MiB"
    node.restart()
    for name in tables_read:
        load.run(node, system.keyspace, tables.uniform(name, sizes.partitions), seed=12, reads_percent=100, in_flight=64, seconds=sizes.read_seconds * 3)
    resident = load.resident_bytes(node.pid)
    cached = next(int(line.split(":")[1]) for line in node.steer("status").splitlines() if line.startswith("Chunk Cache"))
    names = ("Bloom filter off heap memory used", "Compression metadata off heap memory used", "Space used (live)")
    filters, offsets, on_disk = (sum(node.figure(name, system.keyspace, table) for table in tables_read) for name in names)
    rest = resident - cached - filters - offsets
    rows = [["SSTables read, MB", on_disk / 1e6], ["resident, MiB", resident / 2**20], [f"cache of {SMALL_CACHE_MB} MiB, MiB", cached / 2**20],
            ["Bloom filters, MiB", filters / 2**20], ["chunk offsets and checksums, MiB", offsets / 2**20], ["all else, MiB", rest / 2**20]]
    outcome.tables.append(Table("Memory of a node that reads", ["what", "value"], rows))
    outcome.bars.append(Bar(f"memory for reading {on_disk / 1e9:.2g} GB beside caches, filters and offsets, MiB", rest / 2**20, "<=", 64))


def copies_of_points(system: System, count: int, scratch: Path) -> list[str]:
    """Makes `count` further tables with copies of the same SSTables, and returns their names."""
    if count == 0:
        return []
    directory = sstables.hand_over(system, "points", scratch)[0].parent
    names = [f"points_{number}" for number in range(count)]
    for name in names:
        servers.execute(system.node, POINTS.format(keyspace=system.keyspace, table=name))
        system.node.import_tables(system.keyspace, name, directory)
    shutil.rmtree(directory)
    return names


def bytes_read(outcome: Outcome, sizes, progress: Progress) -> None:
    """This has a node of its own, because the size of index blocks is a setting of the node."""
    progress.step("bytes read for a row")
    with Espalier.start(column_index_size="1KiB") as node:
        tables.make(node, sstables.KEYSPACE, {"fine": FINE})
        fill_partition(node, "fine", sizes.wide_rows)
        node.flush(sstables.KEYSPACE, "fine")
        node.environment["ESPALIER_FILE_CACHE_SIZE"] = "1MiB"
        node.restart()
        results = {}
        for what, limit, backward in (("one row", 0, False), ("slice of 20", 20, False), ("slice of 20, reversed", 20, True)):
            work = {"partition": {"table": "fine", "rows": sizes.wide_rows, "value_bytes": tables.VALUE_BYTES, "limit": limit, "reversed": backward}}
            # Pages of indexes come into the cache first.
            load.run(node, sstables.KEYSPACE, work, seed=13, reads_percent=100, in_flight=4, operations=1000)
            before = node.figure("Data read", sstables.KEYSPACE, "fine")
            done = load.run(node, sstables.KEYSPACE, work, seed=14, reads_percent=100, in_flight=4, operations=4000)
            results[what] = (node.figure("Data read", sstables.KEYSPACE, "fine") - before) / done.report["operations"]
    outcome.tables.append(Table("Bytes read from Data.db, index of 1 KiB, chunks of 4 KiB, cache of 1 MiB", ["what", "bytes"],
                                [[what, value] for what, value in results.items()]))
    outcome.bars.append(Bar("bytes read from Data.db for one row", results["one row"], "<=", 9 * 1024))
