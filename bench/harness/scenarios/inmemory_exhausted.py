"""The page-cache-exhausted test of *DataStax Enterprise 4.0 In-Memory Option*: point reads of a table in memory beside
the same table on disk, in many SSTables, on a node whose memory a control group limits so far that neither it nor the
page cache holds more than a small part. Four minutes.

One table is overwritten whole: a read ends at the newest SSTable that has the row. The other's fields were written one
by one: a read meets as many SSTables as the row has fields."""

from contextlib import ExitStack

from bench.harness import load
from bench.harness.control_group import ControlGroup, forget_pages
from bench.harness.length import Length
from bench.harness.outcome import Bar, Outcome
from bench.harness.rounds import Progress, System, interleaved, latency_plot, percentile, table
from bench.harness.scenarios import tables
from bench.harness.servers import Espalier
from bench.harness.session import Session

KEYSPACE = "bench"
VALUE_BYTES = 1_000
# Every row is in as many SSTables as it was written times.
TIMES_WRITTEN = 3
FIELDS = 8
# Reads are sent one after the other, so that waits for the disk are measured, and not waits for other reads.
IN_FLIGHT = 2
MEMTABLE_MB = 32
# Of the node on disk: little more than its memtables, log and indexes take.
LIMIT_MB, FILE_CACHE_MB = 192, 16
IN_MEMORY = " WITH compaction = {{'class': 'MemoryOnlyStrategy', 'size_limit_in_mb': 1024}}"
ON_DISK = " WITH compaction = {{'class': 'UnifiedCompactionStrategy', 'enabled': 'false'}}"


PLANS = {Length.FULL: (300_000, 5, 40_000), Length.SHORT: (100_000, 3, 10_000), Length.SMOKE: (100_000, 1, 5_000)}


def run(session: Session) -> Outcome:
    rows, rounds, operations = PLANS[session.length]
    memory = {"memtable_mb": MEMTABLE_MB}
    loads = {"overwritten whole": tables.uniform("whole", rows, VALUE_BYTES),
             "field by field": tables.one_by_one(tables.uniform("fields", rows, VALUE_BYTES // FIELDS, FIELDS), FIELDS - 1)}
    with ExitStack() as open_things:
        group = open_things.enter_context(ControlGroup(LIMIT_MB))
        in_memory = open_things.enter_context(Espalier.start(**memory))
        on_disk = open_things.enter_context(Espalier.start(**memory, file_cache_size=f"{FILE_CACHE_MB}MiB"))
        group.add(on_disk.pid)
        systems = [System("in memory", in_memory, KEYSPACE), System("on disk", on_disk, KEYSPACE)]
        progress = Progress("inmemory-exhausted", len(systems) * (TIMES_WRITTEN + FIELDS + len(loads) * rounds))
        for system, options in zip(systems, (IN_MEMORY, ON_DISK)):
            tables.make(system.node, KEYSPACE, {"whole": tables.KEY_VALUE + options, "fields": tables.with_fields(FIELDS) + options})
            for time_written in range(TIMES_WRITTEN):
                progress.step(f"filling, {time_written + 1}, {system.name}")
                tables.fill(system.node, KEYSPACE, "whole", rows, VALUE_BYTES)
            for field in range(FIELDS):
                progress.step(f"filling, field {field}, {system.name}")
                fill = tables.one_by_one(tables.inserting("fields", 0, VALUE_BYTES // FIELDS, FIELDS), field)
                load.run(system.node, KEYSPACE, fill, seed=7 + field, operations=rows)
            system.node.flush(KEYSPACE)
        files = {name: on_disk.sstables(KEYSPACE, name) for name in ("whole", "fields")}
        sizes = {name: sum(file.stat().st_size for file in found) for name, found in files.items()}
        forget_pages([file for found in files.values() for data in found for file in data.parent.glob(data.name.replace("Data.db", "*"))])
        results = {}
        for name, workload in loads.items():
            def read(system: System, round_number: int) -> load.Run:
                return load.run(system.node, KEYSPACE, workload, seed=60 + round_number, reads_percent=100, in_flight=IN_FLIGHT,
                                operations=operations)
            results[f"point reads, {name}"] = interleaved(systems, rounds, read, progress, name)
        progress.end()
        outcome = Outcome("inmemory-exhausted", settings={
            "load": f"reads of {rows:,} partitions of {VALUE_BYTES} bytes, evenly, {IN_FLIGHT} in flight",
            "rounds": f"{rounds} of {operations:,} reads, interleaved",
            "on disk": f"overwritten whole: {sizes['whole'] / 2**20:,.0f} MiB in {len(files['whole'])} SSTables, each row in {TIMES_WRITTEN} of them; "
                       f"field by field: {sizes['fields'] / 2**20:,.0f} MiB in {len(files['fields'])} SSTables, each row in {FIELDS} of them; "
                       f"a control group leaves the node {LIMIT_MB} MiB, pages of files included",
            "espalier": in_memory.settings, "espalier, on disk": on_disk.settings})
    outcome.tables.append(table("Medians (least–greatest)", results))
    outcome.plots += [latency_plot(f"{name}, the page cache exhausted", by_system) for name, by_system in results.items()]
    many = results["point reads, field by field"]
    ratio = percentile(many["in memory"], "p99") / percentile(many["on disk"], "p99")
    outcome.bars.append(Bar("p99 of reads in memory ÷ on disk, many tables, page cache exhausted", ratio, "<=", 1 / 10))
    return outcome
