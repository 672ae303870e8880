"""Unthrottled load on small partitions: writes, reads from the memtable, half and half, and the paper's inserts with recent reads."""

from contextlib import ExitStack
from dataclasses import dataclass

from bench.harness import echo, instructions, load
from bench.harness.length import Length
from bench.harness.outcome import Bar, Outcome, Table, median
from bench.harness.rounds import Progress, System, best, cpu, interleaved, latency_plot, memory_plot, table, throughput, throughput_plot
from bench.harness.scenarios import tables
from bench.harness.servers import FEW_THREADS, Cassandra
from bench.harness.session import Session

KEYSPACE = "throughput"
# (name, table, share of reads, connections)
LOADS = [("writes", "kv_w", 0, 2), ("memtable reads", "kv_r", 100, 2), ("half and half", "kv_m", 50, 2)]
MANY = [(f"{name}, 64 connections", table_name, reads, 64) for name, table_name, reads, _ in LOADS]
PAPER = [("new partitions 90:10", "kv_n", 10, 2), ("new partitions 50:50", "kv_n", 50, 2)]
NEW_PARTITIONS_EACH = 50_000_000
# The paper's baseline, for its own loads.
SKIPLIST = "cassandra, skip list"
ECHO_ROUNDS, ECHO_SECONDS = 3, 2


@dataclass(frozen=True)
class Plan:
    partitions: int
    rounds: int
    seconds: float
    # With the first load, which warms up what all have in common, and with each other.
    warmups: tuple[float, float]
    loads: list
    # More of Cassandra, and the loads that each is measured with.
    others: dict[str, tuple[dict, list]]
    # Where instructions are counted.
    connections_counted: tuple[int, ...]


def two_threads(loads: list) -> dict:
    return {"cassandra, 2 threads": (FEW_THREADS, loads)}


PLANS = {
    Length.FULL: Plan(1_000_000, 5, 6, (60, 15), LOADS + MANY + PAPER,
                      two_threads(LOADS + MANY) | {SKIPLIST: ({"memtable": "skiplist"}, PAPER)}, (2, 64)),
    Length.SHORT: Plan(100_000, 5, 2, (12, 3), LOADS + MANY, two_threads(LOADS + MANY), (2, 64)),
    Length.SMOKE: Plan(20_000, 2, 1.5, (8, 0.3), LOADS, {}, ()),
}


def run(session: Session) -> Outcome:
    plan = PLANS[session.length]
    with session.pair(KEYSPACE) as systems, ExitStack() as more:
        loads_of = {system.name: plan.loads for system in systems} | {name: loads for name, (_, loads) in plan.others.items()}
        systems = systems + [System(name, more.enter_context(Cassandra.start(**settings)), KEYSPACE)
                             for name, (settings, _) in plan.others.items()]
        progress = Progress("throughput", sum((1 + plan.rounds) * len(loads) + 1 for loads in loads_of.values()))
        for system in systems:
            prepare(system, plan, loads_of[system.name], progress)
        results = {}
        for place, (name, table_name, reads, connections) in enumerate(plan.loads):
            def one(system: System, round_number: int) -> load.Run:
                workload = workload_of(table_name, plan.partitions, 1 + round_number)
                return load.run(system.node, KEYSPACE, workload, seed=10 + round_number, reads_percent=reads, connections=connections,
                                warmup_seconds=0.5, seconds=plan.seconds)
            compared = [system for system in systems if plan.loads[place] in loads_of[system.name]]
            results[name] = interleaved(compared, plan.rounds, one, progress, name)
        progress.end()
        outcome = Outcome("throughput", settings={
            "load": f"{plan.partitions:,} partitions, 16-byte keys, {tables.VALUE_BYTES}-byte values, 128 in flight, closed loop, consistency ONE",
            "rounds": f"{plan.rounds} of {plan.seconds} s, interleaved, after {plan.warmups[0]} s of warming up with the first load and "
                      f"{plan.warmups[1]} s with each other",
            **{system.name: system.node.settings for system in systems}})
    echoes = {name: median([echo.cpu_micros(reads, connections, 128, ECHO_SECONDS) for _ in range(ECHO_ROUNDS)])
              for name, _, reads, connections in plan.loads if connections == 64}
    count_instructions(outcome, plan.connections_counted)
    return judge(outcome, results, echoes)


def workload_of(table_name: str, partitions: int, place: int) -> dict:
    if table_name == "kv_n":
        return tables.inserting(table_name, first=place * NEW_PARTITIONS_EACH)
    return tables.uniform(table_name, partitions)


def prepare(system: System, plan: Plan, loads: list, progress: Progress) -> None:
    progress.step(f"{system.name}: filling")
    tables.make(system.node, KEYSPACE, dict.fromkeys(("kv_w", "kv_r", "kv_m", "kv_n"), tables.KEY_VALUE))
    for name in {table_name for _, table_name, _, _ in loads} - {"kv_n"}:
        tables.fill(system.node, KEYSPACE, name, plan.partitions)
    for place, (name, table_name, reads, connections) in enumerate(loads):
        progress.step(f"{system.name}: warming up with {name}")
        load.run(system.node, KEYSPACE, workload_of(table_name, plan.partitions, 0), seed=9, reads_percent=reads, connections=connections,
                 warmup_seconds=plan.warmups[min(place, 1)], seconds=0.5)


def count_instructions(outcome: Outcome, connections: tuple[int, ...]) -> None:
    if connections and not instructions.is_possible():
        outcome.notes.append("Instructions were not counted: there is no valgrind.")
    elif connections:
        counted = [[name, count] for name, count in instructions.per_operation(connections).items()]
        outcome.tables.append(Table("Espalier's instructions outside of the kernel (callgrind), runtime included", ["load", "per operation"], counted))


def judge(outcome: Outcome, results: dict, echoes: dict[str, float]) -> Outcome:
    outcome.tables.append(table("Medians (least–greatest)", results))
    for name, by_system in results.items():
        theirs_name = best(by_system)
        theirs, ours = by_system[theirs_name], by_system["espalier"]
        what = f"Cassandra's, {name}" + (f" (the better: {theirs_name})" if len(by_system) > 2 else "")
        if name in echoes:
            limit = 0.1 + echoes[name] / cpu(theirs)
            outcome.bars.append(Bar(f"server CPU per operation ÷ {what} (a tenth and the echo's {echoes[name]:.2f} µs)", cpu(ours) / cpu(theirs), "<=", limit))
        elif not name.startswith("new"):
            outcome.bars.append(Bar(f"server CPU per operation ÷ {what}", cpu(ours) / cpu(theirs), "<=", 0.1))
            client = sorted(run.client_cpu_micros for run in ours)[len(ours) // 2]
            left = 0.9 * load.CORES * 1e6 / (client + cpu(ours))
            wanted = min(3.0, left / throughput(theirs))
            outcome.bars.append(Bar(f"throughput ÷ {what} (the client's {client:.1f} µs leave {left:,.0f}/s)",
                                    throughput(ours) / throughput(theirs), ">=", wanted))
        outcome.plots += [throughput_plot(name, by_system), latency_plot(name, by_system), memory_plot(name, by_system)]
    if echoes:
        outcome.tables.append(Table("An echo of the same bytes, 128 in flight", ["load", "CPU µs/op"], [[*pair] for pair in echoes.items()]))
    return outcome
