"""Overwrites of a table in memory, after the appendix of *DataStax Enterprise 4.0 In-Memory Option*: few partitions, overwritten and read 3:1
in steps co-prime with their number; beside the same table on disk, and Cassandra's with LeveledCompactionStrategy. And a start that loads a table of
1 GiB. Five minutes."""

from bench.harness import load
from bench.harness.outcome import Bar, Outcome, Plot
from bench.harness.rounds import Progress, System, interleaved, percentile, table
from bench.harness.scenarios import tables
from bench.harness.scenarios.start import restart
from bench.harness.servers import Cassandra, Espalier
from proof.wire import Connection

KEYSPACE, LARGE = "bench", "large"
# 1 GB of values for the start.
START_ROWS = 1_000_000
PARTITIONS, STEP = 7_000, 2_411
VALUE_BYTES = 1_000
READS_PERCENT = 25
IN_FLIGHT = 16
# So small that overwrites reach the disk, and the table on disk consists of SSTables.
MEMTABLE_MB = 32
IN_MEMORY = tables.KEY_VALUE + " WITH compaction = {{'class': 'MemoryOnlyStrategy', 'size_limit_in_mb': 256}} " \
                               "AND caching = {{'keys': 'NONE', 'rows_per_partition': 'NONE'}}"
LEVELED = tables.KEY_VALUE + " WITH compaction = {{'class': 'LeveledCompactionStrategy'}}"


def run(quick: bool) -> Outcome:
    partitions, rounds, operations, warmup = (1_000, 3, 20_000, 4) if quick else (PARTITIONS, 5, 100_000, 10)
    workload = {"key_value": {"table": "kv", "value_bytes": VALUE_BYTES, "choice": {"co_prime": {"partitions": partitions, "step": STEP}}}}
    memory = {"memtable_mb": MEMTABLE_MB}
    with Cassandra.start(**memory) as cassandra, Espalier.start(**memory) as in_memory, Espalier.start(**memory) as on_disk:
        systems = [System("cassandra, leveled", cassandra, KEYSPACE), System("espalier, on disk", on_disk, KEYSPACE),
                   System("espalier, in memory", in_memory, KEYSPACE)]
        progress = Progress("inmemory", len(systems) * (1 + 2 * rounds) + 1)
        for system, template in zip(systems, (LEVELED, LEVELED, IN_MEMORY)):
            progress.step(f"{system.name}: filling and warming up")
            tables.make(system.node, KEYSPACE, {"kv": template})
            tables.fill(system.node, KEYSPACE, "kv", partitions, VALUE_BYTES)
            system.node.flush(KEYSPACE, "kv")
            load.run(system.node, KEYSPACE, workload, seed=9, reads_percent=READS_PERCENT, in_flight=IN_FLIGHT, warmup_seconds=warmup, seconds=0.5)

        def overwrite(system: System, round_number: int) -> load.Run:
            return load.run(system.node, KEYSPACE, workload, seed=20 + round_number, reads_percent=READS_PERCENT, in_flight=IN_FLIGHT,
                            operations=operations)

        def read(system: System, round_number: int) -> load.Run:
            # What was overwritten last is in a memtable everywhere.
            system.node.flush(KEYSPACE, "kv")
            return load.run(system.node, KEYSPACE, workload, seed=40 + round_number, reads_percent=100, in_flight=IN_FLIGHT,
                            operations=operations // 4)

        results = {"3 overwrites to 1 read": interleaved(systems, rounds, overwrite, progress, "overwrites"),
                   "reads": interleaved(systems, rounds, read, progress, "reads")}
        progress.step("espalier, in memory: a start with much data")
        loaded_bytes, start_seconds = start_with(in_memory, START_ROWS)
        progress.end()
        outcome = Outcome("inmemory", settings={
            "load": f"{partitions:,} partitions of one {VALUE_BYTES}-byte value in steps of {STEP:,}, {IN_FLIGHT} in flight over 2 connections",
            "rounds": f"{rounds} of {operations:,} operations, interleaved, after {warmup} s of warming up; files are cached by the system",
            "start": f"{loaded_bytes / 2**20:,.0f} MiB in memory, all of it on the disk; kill -9, then exec to the first answer",
            "cassandra": cassandra.settings, "espalier": in_memory.settings})
    return judge(outcome, results, start_seconds)


def start_with(node, rows: int) -> tuple[int, float]:
    """What a table in memory takes, bytes, and how long a start takes that loads it; all rows must be there."""
    tables.make(node, LARGE, {"kv": IN_MEMORY.replace("256", "2048")})
    tables.fill(node, LARGE, "kv", rows, VALUE_BYTES)
    node.flush(LARGE, "kv")
    loaded_bytes = in_memory_bytes(node)
    seconds = restart(node, f"SELECT key FROM {LARGE}.kv LIMIT 1")
    load.run(node, LARGE, tables.uniform("kv", rows, VALUE_BYTES), seed=8, reads_percent=100, operations=5_000)
    return loaded_bytes, seconds


def in_memory_bytes(node) -> int:
    with Connection(node.host, node.port, version=4) as connection:
        answer = connection.query(f"SELECT used_bytes FROM system_views.in_memory_tables WHERE keyspace_name = '{LARGE}' AND table_name = 'kv'")
        return int.from_bytes(answer.rows[0][0], "big")


def judge(outcome: Outcome, results: dict, start_seconds: float) -> Outcome:
    outcome.tables.append(table("Medians (least–greatest)", results))
    reads, overwrites = results["reads"], results["3 overwrites to 1 read"]
    ours = percentile(reads["espalier, in memory"], "p99")
    outcome.bars.append(Bar("p99 of reads in memory ÷ on disk, all cached", ours / percentile(reads["espalier, on disk"], "p99"), "<=", 1 / 1.2))
    outcome.bars.append(Bar("p99 of reads in memory ÷ Cassandra's leveled table", ours / percentile(reads["cassandra, leveled"], "p99"), "<=", 1 / 8))
    runs = overwrites["espalier, in memory"]
    outcome.bars.append(Bar("p50 of the last round of overwrites ÷ of the first", runs[-1].latency("p50") / runs[0].latency("p50"), "<=", 1.1))
    outcome.bars.append(Bar("memory after the last round ÷ after the first", runs[-1].resident_mb / runs[0].resident_mb, "<=", 1.1))
    outcome.bars.append(Bar("exec to first answer with 1 GB in memory, seconds", start_seconds, "<=", 5))
    series = {name: [(place + 1, run.latency("p99")) for place, run in enumerate(runs)] for name, runs in overwrites.items()}
    outcome.plots.append(Plot("p99 while the table is overwritten", "round", "µs", series, y_logarithmic=True))
    return outcome
