"""Many new partitions, one after another, with flushes and compactions running: the paper's sustained load."""

from bench.harness import load
from bench.harness.outcome import Bar, Outcome, Table, median
from bench.harness.rounds import Progress, System, cpu, interleaved, latency_plot, memory_plot, table, throughput, throughput_plot
from bench.harness.scenarios import tables
from bench.harness.servers import Cassandra, Espalier

KEYSPACE = "bench"
# The load is to be flushed and compacted, not to fit.
MEMTABLE_MB = 512
READS_PERCENT = 10


def run(quick: bool) -> Outcome:
    partitions, rounds = (500_000, 2) if quick else (4_000_000, 5)
    # Twenty or so flushes each, as the full run has.
    memtable_mb = 32 if quick else MEMTABLE_MB
    with Cassandra.start(memtable_mb=memtable_mb) as cassandra, Espalier.start(memtable_mb=memtable_mb) as espalier:
        systems = [System("cassandra", cassandra, KEYSPACE), System("espalier", espalier, KEYSPACE)]
        progress = Progress("sustained", rounds * 2)
        for system in systems:
            tables.make(system.node, KEYSPACE, {"kv": tables.KEY_VALUE})

        def one(system: System, round_number: int) -> load.Run:
            workload = tables.inserting("kv", first=round_number * partitions)
            return load.run(system.node, KEYSPACE, workload, seed=20 + round_number, reads_percent=READS_PERCENT,
                            operations=partitions * 100 // (100 - READS_PERCENT))

        results = interleaved(systems, rounds, one, progress, "new partitions 90:10")
        progress.end()
        sstables = [[system.name, len(system.node.sstables(KEYSPACE, "kv"))] for system in systems]
        outcome = Outcome("sustained", settings={
            "load": f"{rounds} x {partitions:,} new partitions, 16-byte keys, {tables.VALUE_BYTES}-byte values, {READS_PERCENT} % reads skewed to "
                    "recent ones, 128 in flight over 2 connections, closed loop, consistency ONE, from an empty table",
            "rounds": "interleaved; the other system goes on with its compactions meanwhile",
            "cassandra": cassandra.settings, "espalier": espalier.settings})
    return judge(outcome, results, sstables)


def judge(outcome: Outcome, results: dict[str, list[load.Run]], sstables: list[list]) -> Outcome:
    outcome.tables.append(table("Medians (least–greatest) of all rounds", {"new partitions 90:10": results}))
    outcome.tables.append(Table("Round by round", ["system", "round", "operations/s", "CPU µs/op", "p99 µs", "written B/op"],
                                [[system, str(place + 1), run.throughput, run.cpu_micros, run.latency("p99"), run.written_bytes_per_operation]
                                 for system, runs in results.items() for place, run in enumerate(runs)]))
    outcome.tables.append(Table("At the end", ["system", "SSTables"], sstables))
    theirs, ours = results["cassandra"], results["espalier"]
    client = median([run.client_cpu_micros for run in ours])
    left = 0.9 * load.CORES * 1e6 / (client + cpu(ours))
    outcome.bars += [
        Bar("server CPU per operation ÷ Cassandra's, flushes and compactions included", cpu(ours) / cpu(theirs), "<=", 0.1),
        Bar(f"throughput ÷ Cassandra's (the client's {client:.1f} µs leave {left:,.0f}/s)", throughput(ours) / throughput(theirs), ">=",
            min(3.0, left / throughput(theirs)))]
    outcome.plots += [throughput_plot("new partitions 90:10", results), latency_plot("new partitions 90:10", results),
                      memory_plot("new partitions 90:10", results)]
    return outcome
