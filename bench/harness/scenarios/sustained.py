"""Many new partitions, one after another, with flushes and compactions running: the paper's sustained load."""

from dataclasses import dataclass

from bench.harness import load
from bench.harness.length import Length
from bench.harness.outcome import Bar, Outcome, Table, median
from bench.harness.rounds import Progress, System, cpu, interleaved, latency_plot, memory_plot, table, throughput, throughput_plot
from bench.harness.scenarios import tables
from bench.harness.servers import TWO_THREADS, Cassandra, Espalier
from bench.harness.session import Session, beside

KEYSPACE = "bench"
CHECKED_READS = 10_000
READS_TRIED = 10


@dataclass(frozen=True)
class Plan:
    # New partitions of a round of each load, from an empty table on.
    partitions: dict[int, int]
    rounds: int
    # The load must not fit into memory: it is flushed about twenty times in each system, and compacted.
    memtable_mb: int
    # Both settings of Cassandra are tried first, and the run continues with the faster one. Warm-up, and measured time.
    tried: dict[str, dict]
    trial_seconds: tuple[float, float]


# By the share of reads. The mixed load continues after the other one ended, for a shorter time.
PLANS = {
    Length.FULL: Plan({10: 4_000_000, 50: 1_000_000}, 5, 512, TWO_THREADS, (30, 15)),
    Length.SHORT: Plan({10: 200_000, 50: 60_000}, 5, 32, TWO_THREADS, (8, 3)),
    Length.SMOKE: Plan({10: 80_000, 50: 20_000}, 1, 16, {}, (0, 0)),
}


def run(session: Session) -> Outcome:
    plan = PLANS[session.length]
    settings, tries = better_settings(plan)
    with Cassandra.start(memtable_mb=plan.memtable_mb, **settings) as cassandra, Espalier.start(memtable_mb=plan.memtable_mb) as espalier:
        systems = beside(cassandra, espalier, KEYSPACE)
        progress = Progress("sustained", len(plan.partitions) * plan.rounds * 2)
        for system in systems:
            tables.make(system.node, KEYSPACE, {"kv": tables.KEY_VALUE})
        results, written = {}, 0
        for reads_percent, partitions in plan.partitions.items():
            def one(system: System, round_number: int) -> load.Run:
                workload = tables.inserting("kv", first=written + round_number * partitions)
                return load.run(system.node, KEYSPACE, workload, seed=20 + round_number, reads_percent=reads_percent,
                                operations=partitions * 100 // (100 - reads_percent))
            name = f"new partitions {100 - reads_percent}:{reads_percent}"
            results[name] = interleaved(systems, plan.rounds, one, progress, name)
            # A tenth more than are wanted: which operations are reads is drawn.
            written += partitions * plan.rounds * 11 // 10
        for system in systems:
            check_oldest(system, plan)
        progress.end()
        sstables = [[system.name, len(system.node.sstables(KEYSPACE, "kv"))] for system in systems]
        each = ", then ".join(f"{plan.rounds} x {partitions:,} with {reads_percent} % reads" for reads_percent, partitions in plan.partitions.items())
        outcome = Outcome("sustained", settings={
            "load": f"new partitions, from an empty table: {each}; 16-byte keys, {tables.VALUE_BYTES}-byte values, reads skewed to recent ones, "
                    "128 in flight over 2 connections, closed loop, consistency ONE",
            "rounds": "interleaved; the other system goes on with its compactions meanwhile",
            **{system.name: system.node.settings for system in systems}})
    if tries:
        outcome.tables.append(Table(f"Cassandra tried, {READS_TRIED} % reads", ["system", "operations/s", "CPU µs/op"], tries))
    return judge(outcome, results, sstables)


def better_settings(plan: Plan) -> tuple[dict, list[list]]:
    """The better settings of Cassandra, by their throughput of new partitions, and the figures of both. The whole load
    with both would take half as long again."""
    if not plan.tried:
        return {}, []
    choices, tries = {"cassandra": {}, **plan.tried}, []
    for name, settings in choices.items():
        with Cassandra.start(memtable_mb=plan.memtable_mb, **settings) as node:
            tables.make(node, KEYSPACE, {"kv": tables.KEY_VALUE})
            warmup, seconds = plan.trial_seconds
            run = load.run(node, KEYSPACE, tables.inserting("kv", first=0), seed=9, reads_percent=READS_TRIED, warmup_seconds=warmup, seconds=seconds)
            tries.append([name, run.throughput, run.cpu_micros])
    return choices[max(tries, key=lambda tried: tried[1])[0]], tries


def check_oldest(system: System, plan: Plan) -> None:
    """What every run wrote is read back at its end; what the first wrote has been flushed and merged since. Which
    operations were writes was drawn: each worker has nine tenths of its partitions for certain."""
    partitions = next(iter(plan.partitions.values()))
    load.run(system.node, KEYSPACE, tables.uniform("kv", partitions * 9 // 10), seed=8, reads_percent=100, operations=CHECKED_READS)


def judge(outcome: Outcome, results: dict[str, dict[str, list[load.Run]]], sstables: list[list]) -> Outcome:
    outcome.tables.append(table("Medians (least–greatest) of all rounds", results))
    outcome.tables.append(Table("Round by round", ["load", "system", "round", "operations/s", "CPU µs/op", "p99 µs", "written B/op"],
                                [[name, system, str(place + 1), run.throughput, run.cpu_micros, run.latency("p99"), run.written_bytes_per_operation]
                                 for name, by_system in results.items() for system, runs in by_system.items() for place, run in enumerate(runs)]))
    outcome.tables.append(Table("At the end", ["system", "SSTables"], sstables))
    for name, by_system in results.items():
        theirs, ours = by_system["cassandra"], by_system["espalier"]
        client = median([run.client_cpu_micros for run in ours])
        left = 0.9 * load.CORES * 1e6 / (client + cpu(ours))
        outcome.bars += [
            Bar(f"server CPU per operation ÷ Cassandra's, flushes and compactions included, {name}", cpu(ours) / cpu(theirs), "<=", 0.1),
            Bar(f"throughput ÷ Cassandra's, {name} (the client's {client:.1f} µs leave {left:,.0f}/s)", throughput(ours) / throughput(theirs), ">=",
                min(3.0, left / throughput(theirs)))]
        outcome.plots += [throughput_plot(name, by_system), latency_plot(name, by_system), memory_plot(name, by_system)]
    return outcome
