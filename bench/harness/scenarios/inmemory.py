"""Overwrites of a table in memory, after the appendix of *DataStax Enterprise 4.0 In-Memory Option*: few partitions,
overwritten and read 3:1 in steps co-prime with their number; beside the same table on disk, and Cassandra's with
LeveledCompactionStrategy. A start that loads a table of 1 GiB. And fifty million overwrites in process, from the
first to the last. Ten minutes.

p99 is compared with Cassandra's at a rate that both hold: at full load with so few requests in
flight, the client determines it."""

import shutil
from dataclasses import dataclass

from bench.harness import in_process, load
from bench.harness.length import Length
from bench.harness.outcome import Bar, Outcome, Plot, Table, median
from bench.harness.rounds import Progress, System, cpu, interleaved, percentile, table
from bench.harness.scenarios import tables
from bench.harness.scenarios.start import restart
from bench.harness.servers import Cassandra, Espalier
from bench.harness.session import Session
from proof import places
from proof.wire import Connection

KEYSPACE, LARGE = "bench", "large"
# 1 GB of values for the start.
START_ROWS = 1_000_000
STEP = 2_411
VALUE_BYTES = 1_000
READS_PERCENT = 25
IN_FLIGHT = 16
IN_FLIGHT_MAX = 512
# Of the processor time that Cassandra's reads and their client need at full load.
CASSANDRA_SHARE = 0.7
# This is so small that overwrites reach the disk, and the table on disk consists of SSTables.
MEMTABLE_MB = 32
IN_MEMORY = tables.KEY_VALUE + " WITH compaction = {{'class': 'MemoryOnlyStrategy', 'size_limit_in_mb': 256}} " \
                               "AND caching = {{'keys': 'NONE', 'rows_per_partition': 'NONE'}}"
LEVELED = tables.KEY_VALUE + " WITH compaction = {{'class': 'LeveledCompactionStrategy'}}"


@dataclass(frozen=True)
class Plan:
    partitions: int
    rounds: int
    operations: int
    warmup: float
    steady_seconds: float
    # In process.
    overwrites: int


PLANS = {
    Length.FULL: Plan(7_000, 5, 200_000, 10, 5, 50_000_000),
    Length.SHORT: Plan(1_000, 3, 20_000, 4, 1, 1_000_000),
    Length.SMOKE: Plan(1_000, 1, 10_000, 2, 1, 1_000_000),
}


def run(session: Session) -> Outcome:
    plan = PLANS[session.length]
    partitions, rounds, operations, warmup = plan.partitions, plan.rounds, plan.operations, plan.warmup
    workload = {"key_value": {"table": "kv", "value_bytes": VALUE_BYTES, "choice": {"co_prime": {"partitions": partitions, "step": STEP}}}}
    memory = {"memtable_mb": MEMTABLE_MB}
    constant = overwritten(plan.overwrites)
    with Cassandra.start(**memory) as cassandra, Espalier.start(**memory) as in_memory, Espalier.start(**memory) as on_disk:
        systems = [System("cassandra, leveled", cassandra, KEYSPACE), System("espalier, on disk", on_disk, KEYSPACE),
                   System("espalier, in memory", in_memory, KEYSPACE)]
        progress = Progress("inmemory", len(systems) * (1 + 3 * rounds) + 1)
        for system, template in zip(systems, (LEVELED, LEVELED, IN_MEMORY)):
            progress.step(f"{system.name}: filling and warming up")
            tables.make(system.node, KEYSPACE, {"kv": template})
            tables.fill(system.node, KEYSPACE, "kv", partitions, VALUE_BYTES)
            system.node.flush(KEYSPACE, "kv")
            load.run(system.node, KEYSPACE, workload, seed=9, reads_percent=READS_PERCENT, in_flight=IN_FLIGHT, warmup_seconds=warmup, seconds=0.5)

        def overwrite(system: System, round_number: int) -> load.Run:
            return load.run(system.node, KEYSPACE, workload, seed=20 + round_number, reads_percent=READS_PERCENT, in_flight=IN_FLIGHT,
                            operations=operations)

        def read(system: System, round_number: int, **more) -> load.Run:
            # What was overwritten last is in a memtable everywhere.
            system.node.flush(KEYSPACE, "kv")
            return load.run(system.node, KEYSPACE, workload, seed=40 + round_number, reads_percent=100,
                            **{"in_flight": IN_FLIGHT, "operations": operations // 4, **more})

        results = {"3 overwrites to 1 read": interleaved(systems, rounds, overwrite, progress, "overwrites"),
                   "reads": interleaved(systems, rounds, read, progress, "reads")}
        rate = steady_rate(results["reads"]["cassandra, leveled"])

        def read_steadily(system: System, round_number: int) -> load.Run:
            return read(system, round_number, rate=rate, in_flight=IN_FLIGHT_MAX, warmup_seconds=1, operations=None, seconds=plan.steady_seconds)

        results[f"reads at {rate:,}/s"] = steady = interleaved(systems, rounds, read_steadily, progress, f"reads at {rate:,}/s")
        progress.step("espalier, in memory: a start with much data")
        loaded_bytes, start_seconds = start_with(in_memory, START_ROWS)
        progress.end()
        outcome = Outcome("inmemory", settings={
            "load": f"{partitions:,} partitions of one {VALUE_BYTES}-byte value in steps of {STEP:,}, {IN_FLIGHT} in flight over 2 connections",
            "rounds": f"{rounds} of {operations:,} operations, interleaved, after {warmup} s of warming up; files are cached by the system",
            "rate": f"{rate:,}/s, open loop: {CASSANDRA_SHARE:.0%} of what Cassandra and the client have processor time for",
            "start": f"{loaded_bytes / 2**20:,.0f} MiB in memory, all of it on the disk; kill -9, then exec to the first answer",
            "cassandra": cassandra.settings, "espalier": in_memory.settings})
    return judge(outcome, results, steady, start_seconds, constant)


def overwritten(count: int) -> list[dict]:
    """By how much each figure's last quarter exceeds its first, over a number of overwrites in process."""
    directory = places.run_directory("bench-overwrites")
    try:
        said = in_process.figures([in_process.binary("inmemory"), "overwrites", count, directory])
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return [line for line in said if "figure" in line]


def steady_rate(runs: list[load.Run]) -> int:
    """The reads per second for which Cassandra and its client need this share of the cores."""
    micros = cpu(runs) + median([run.client_cpu_micros for run in runs])
    return max(100, int(CASSANDRA_SHARE * load.CORES * 1e6 / micros) // 100 * 100)


def start_with(node, rows: int) -> tuple[int, float]:
    """The bytes of a table in memory, and the time of a start that loads it. All rows must be there."""
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


def judge(outcome: Outcome, results: dict, steady: dict, start_seconds: float, constant: list[dict]) -> Outcome:
    outcome.tables.append(table("Medians (least–greatest)", results))
    outcome.tables.append(Table("Overwrites in process, the last quarter beside the first", ["figure", "last ÷ first"],
                                [[line["figure"], line["last_to_first"]] for line in constant]))
    reads = results["reads"]

    def ratio(by_system: dict, other: str) -> float:
        return percentile(by_system["espalier, in memory"], "p99") / percentile(by_system[other], "p99")

    outcome.bars.append(Bar("p99 of reads in memory ÷ on disk, all cached", ratio(reads, "espalier, on disk"), "<=", 1 / 1.2))
    outcome.bars.append(Bar("p99 of reads at a rate, in memory ÷ Cassandra's leveled table", ratio(steady, "cassandra, leveled"), "<=", 1 / 8))
    outcome.bars += [Bar(f"{line['figure']} of overwrites in process, last ÷ first", line["last_to_first"], "<=", line["wanted"]) for line in constant]
    overwrites = results["3 overwrites to 1 read"]
    runs = overwrites["espalier, in memory"]
    outcome.bars.append(Bar("memory after the last round ÷ after the first", runs[-1].resident_mb / runs[0].resident_mb, "<=", 1.1))
    outcome.bars.append(Bar("exec to first answer with 1 GB in memory, seconds", start_seconds, "<=", 5))
    series = {name: [(place + 1, run.latency("p99")) for place, run in enumerate(runs)] for name, runs in overwrites.items()}
    outcome.plots.append(Plot("p99 while the table is overwritten", "round", "µs", series, y_logarithmic=True))
    return outcome
