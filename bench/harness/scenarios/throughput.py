"""Unthrottled load on small partitions: writes, reads from the memtable, half and half, and the paper's inserts with recent reads."""

from contextlib import ExitStack

from bench.harness import echo, instructions, load
from bench.harness.outcome import Bar, Outcome, Table, median
from bench.harness.rounds import Progress, System, cpu, interleaved, latency_plot, memory_plot, table, throughput, throughput_plot
from bench.harness.scenarios import tables
from bench.harness.servers import Cassandra, Espalier

KEYSPACE = "bench"
# (name, table, share of reads, connections)
LOADS = [("writes", "kv_w", 0, 2), ("memtable reads", "kv_r", 100, 2), ("half and half", "kv_m", 50, 2)]
MANY = [(f"{name}, 64 connections", table_name, reads, 64) for name, table_name, reads, _ in LOADS]
PAPER = [("new partitions 90:10", "kv_n", 10, 2), ("new partitions 50:50", "kv_n", 50, 2)]
NEW_PARTITIONS_EACH = 50_000_000


SKIPLIST = "cassandra, skip list"


def run(quick: bool) -> Outcome:
    # The first load warms up what all have in common.
    partitions, rounds, seconds, warmups = (100_000, 3, 4, (15, 10)) if quick else (1_000_000, 5, 6, (60, 15))
    loads = LOADS if quick else LOADS + MANY + PAPER
    with Cassandra.start() as cassandra, Espalier.start() as espalier, ExitStack() as more:
        systems = [System("cassandra", cassandra, KEYSPACE), System("espalier", espalier, KEYSPACE)]
        # The paper's baseline, for its own loads.
        skiplist = [] if quick else [System(SKIPLIST, more.enter_context(Cassandra.start(memtable="skiplist")), KEYSPACE)]
        progress = Progress("throughput", (len(loads) * 2 + len(PAPER) * len(skiplist)) * rounds + 2 * (1 + len(loads)) + 3 * len(skiplist))
        for system in systems:
            prepare(system, partitions, loads, warmups, progress)
        for system in skiplist:
            prepare(system, partitions, PAPER, warmups, progress)
        results = {}
        for name, table_name, reads, connections in loads:
            def one(system: System, round_number: int) -> load.Run:
                workload = workload_of(table_name, partitions, 1 + round_number)
                return load.run(system.node, KEYSPACE, workload, seed=10 + round_number, reads_percent=reads, connections=connections,
                                warmup_seconds=0.5, seconds=seconds)
            compared = systems + skiplist if table_name == "kv_n" else systems
            results[name] = interleaved(compared, rounds, one, progress, name)
        progress.end()
        outcome = Outcome("throughput", settings={
            "load": f"{partitions:,} partitions, 16-byte keys, {tables.VALUE_BYTES}-byte values, 128 in flight, closed loop, consistency ONE",
            "rounds": f"{rounds} of {seconds} s, interleaved, after {warmups[0]} s of warming up with the first load and {warmups[1]} s with each other",
            "cassandra": cassandra.settings, "espalier": espalier.settings, **{system.name: system.node.settings for system in skiplist}})
    echoes = {name: median([echo.cpu_micros(reads, connections, 128, seconds) for _ in range(rounds)])
              for name, _, reads, connections in loads if connections == 64}
    if instructions.is_possible():
        counted = [[name, count] for name, count in instructions.per_operation().items()]
        outcome.tables.append(Table("Espalier's instructions outside of the kernel (callgrind), runtime included", ["load", "per operation"], counted))
    else:
        outcome.notes.append("Instructions were not counted: there is no valgrind.")
    return judge(outcome, results, echoes)


def workload_of(table_name: str, partitions: int, place: int) -> dict:
    if table_name == "kv_n":
        return tables.inserting(table_name, first=place * NEW_PARTITIONS_EACH)
    return tables.uniform(table_name, partitions)


def prepare(system: System, partitions: int, loads: list, warmups: tuple[int, int], progress: Progress) -> None:
    progress.step(f"{system.name}: filling")
    tables.make(system.node, KEYSPACE, dict.fromkeys(("kv_w", "kv_r", "kv_m", "kv_n"), tables.KEY_VALUE))
    for name in {table_name for _, table_name, _, _ in loads} - {"kv_n"}:
        tables.fill(system.node, KEYSPACE, name, partitions)
    for place, (name, table_name, reads, connections) in enumerate(loads):
        progress.step(f"{system.name}: warming up with {name}")
        load.run(system.node, KEYSPACE, workload_of(table_name, partitions, 0), seed=9, reads_percent=reads, connections=connections,
                 warmup_seconds=warmups[min(place, 1)], seconds=0.5)


def judge(outcome: Outcome, results: dict, echoes: dict[str, float]) -> Outcome:
    outcome.tables.append(table("Medians (least–greatest)", results))
    for name, by_system in results.items():
        theirs, ours = by_system["cassandra"], by_system["espalier"]
        if not name.startswith("new") and "64" not in name:
            outcome.bars.append(Bar(f"server CPU per operation ÷ Cassandra's, {name}", cpu(ours) / cpu(theirs), "<=", 0.1))
            client = sorted(run.client_cpu_micros for run in ours)[len(ours) // 2]
            left = 0.9 * load.CORES * 1e6 / (client + cpu(ours))
            wanted = min(3.0, left / throughput(theirs))
            outcome.bars.append(Bar(f"throughput ÷ Cassandra's, {name} (the client's {client:.1f} µs leave {left:,.0f}/s)",
                                    throughput(ours) / throughput(theirs), ">=", wanted))
        elif name in echoes:
            limit = 0.1 + echoes[name] / cpu(theirs)
            outcome.bars.append(Bar(f"server CPU per operation ÷ Cassandra's, {name} (a tenth and the echo's {echoes[name]:.2f} µs)",
                                    cpu(ours) / cpu(theirs), "<=", limit))
        outcome.plots += [throughput_plot(name, by_system), latency_plot(name, by_system), memory_plot(name, by_system)]
    if echoes:
        outcome.tables.append(Table("An echo of the same bytes, 128 in flight", ["load", "CPU µs/op"], [[*pair] for pair in echoes.items()]))
    return outcome
