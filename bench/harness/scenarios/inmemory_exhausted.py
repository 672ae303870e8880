"""The page-cache-exhausted test of *DataStax Enterprise 4.0 In-Memory Option*: point reads of a table in memory beside the same table on disk, in
many SSTables, on a node whose memory a control group limits so far that neither it nor the page cache holds more than a small part. Two minutes."""

from contextlib import ExitStack

from bench.harness import load
from bench.harness.control_group import ControlGroup, forget_pages
from bench.harness.outcome import Bar, Outcome
from bench.harness.rounds import Progress, System, interleaved, latency_plot, percentile, table
from bench.harness.scenarios import tables
from bench.harness.servers import Espalier

KEYSPACE = "bench"
VALUE_BYTES = 1_000
# Every row is in as many SSTables as it was written times.
TIMES_WRITTEN = 3
# Reads one after the other: what waits for others would be seen, not what waits for the disk.
IN_FLIGHT = 2
MEMTABLE_MB = 32
# Of the node on disk: little more than its memtables, log and indexes take.
LIMIT_MB, FILE_CACHE_MB = 128, 16
IN_MEMORY = tables.KEY_VALUE + " WITH compaction = {{'class': 'MemoryOnlyStrategy', 'size_limit_in_mb': 1024}}"
ON_DISK = tables.KEY_VALUE + " WITH compaction = {{'class': 'UnifiedCompactionStrategy', 'enabled': 'false'}}"


def run(quick: bool) -> Outcome:
    rows, rounds, operations = (100_000, 3, 10_000) if quick else (300_000, 5, 40_000)
    memory = {"memtable_mb": MEMTABLE_MB}
    with ExitStack() as open_things:
        group = open_things.enter_context(ControlGroup(LIMIT_MB))
        in_memory = open_things.enter_context(Espalier.start(**memory))
        on_disk = open_things.enter_context(Espalier.start(**memory, file_cache_size=f"{FILE_CACHE_MB}MiB"))
        group.add(on_disk.pid)
        systems = [System("in memory", in_memory, KEYSPACE), System("on disk", on_disk, KEYSPACE)]
        progress = Progress("inmemory-exhausted", len(systems) * (TIMES_WRITTEN + rounds) + 1)
        for system, template in zip(systems, (IN_MEMORY, ON_DISK)):
            tables.make(system.node, KEYSPACE, {"kv": template})
            for time_written in range(TIMES_WRITTEN):
                progress.step(f"filling, {time_written + 1}, {system.name}")
                tables.fill(system.node, KEYSPACE, "kv", rows, VALUE_BYTES)
            system.node.flush(KEYSPACE, "kv")
        files = on_disk.sstables(KEYSPACE, "kv")
        on_disk_bytes = sum(file.stat().st_size for file in files)
        forget_pages([file for data in files for file in data.parent.glob(data.name.replace("Data.db", "*"))])

        def read(system: System, round_number: int) -> load.Run:
            return load.run(system.node, KEYSPACE, tables.uniform("kv", rows, VALUE_BYTES), seed=60 + round_number, reads_percent=100,
                            in_flight=IN_FLIGHT, operations=operations)

        results = interleaved(systems, rounds, read, progress, "reads")
        progress.end()
        outcome = Outcome("inmemory-exhausted", settings={
            "load": f"reads of {rows:,} partitions of one {VALUE_BYTES}-byte value, evenly, {IN_FLIGHT} in flight",
            "rounds": f"{rounds} of {operations:,} reads, interleaved",
            "on disk": f"{on_disk_bytes / 2**20:,.0f} MiB in {len(files)} SSTables, each row in {TIMES_WRITTEN} of them; a control group leaves the "
                       f"node {LIMIT_MB} MiB, pages of files included",
            "espalier": in_memory.settings, "espalier, on disk": on_disk.settings})
    outcome.tables.append(table("Medians (least–greatest)", {"point reads": results}))
    outcome.plots.append(latency_plot("Point reads, the page cache exhausted", results))
    ratio = percentile(results["in memory"], "p99") / percentile(results["on disk"], "p99")
    outcome.bars.append(Bar("p99 of reads in memory ÷ on disk, many tables, page cache exhausted", ratio, "<=", 1 / 10))
    return outcome
