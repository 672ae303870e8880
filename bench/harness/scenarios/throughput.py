"""Unthrottled load on small partitions: writes, reads from the memtable, half and half, and the
paper's inserts with recent reads."""

from contextlib import ExitStack
from dataclasses import dataclass

from bench.harness import echo, instructions, load
from bench.harness.length import Length
from bench.harness.outcome import Bar, Outcome, Table, median
from bench.harness.rounds import Progress, System, best, cpu, interleaved, latency_plot, memory_plot, table, throughput, throughput_plot, whose
from bench.harness.scenarios import tables
from bench.harness.servers import TWO_THREADS, Cassandra
from bench.harness.session import Session

KEYSPACE = "throughput"
# (name, table, share of reads, connections)
LOADS = [("writes", "kv_w", 0, 2), ("memtable reads", "kv_r", 100, 2), ("half and half", "kv_m", 50, 2)]
MANY = [(f"{name}, 64 connections", table_name, reads, 64) for name, table_name, reads, _ in LOADS]
PAPER = [("new partitions 90:10", "new_90", 10, 2), ("new partitions 50:50", "new_50", 50, 2)]
NEW = ("new_90", "new_50")
NEW_PARTITIONS_EACH = 50_000_000
ECHO_ROUNDS, ECHO_SECONDS = 3, 2


@dataclass(frozen=True)
class Phase:
    """Loads that are measured on the same servers: the pair, and further Cassandras, by name and settings. The latter
    end with the phase, because many machines have too little memory for a third Cassandra."""

    loads: list
    others: dict[str, dict]


@dataclass(frozen=True)
class Plan:
    partitions: int
    rounds: int
    seconds: float
    # The warm-up with the first load, which warms up the code that all loads share, and with each other load.
    warmups: tuple[float, float]
    phases: tuple[Phase, ...]
    # Where instructions are counted.
    connections_counted: tuple[int, ...]

    @property
    def loads(self) -> list:
        return [each for phase in self.phases for each in phase.loads]


# The paper's baseline, for its own loads.
SKIP_LIST = {"cassandra, skip list": {"memtable": "skiplist"}}
PLANS = {
    Length.FULL: Plan(1_000_000, 5, 6, (60, 15), (Phase(LOADS + MANY, TWO_THREADS), Phase(PAPER, SKIP_LIST)), (2, 64)),
    Length.SHORT: Plan(100_000, 5, 1, (10, 2), (Phase(LOADS + MANY, TWO_THREADS),), (64,)),
    Length.SMOKE: Plan(20_000, 1, 1, (3, 0.3), (Phase(LOADS, {}),), ()),
}


def run(session: Session) -> Outcome:
    plan = PLANS[session.length]
    steps = sum((2 + len(phase.others)) * (1 + plan.rounds) * len(phase.loads) for phase in plan.phases)
    progress = Progress("throughput", steps)
    results, settings = {}, {}
    with session.pair(KEYSPACE) as pair:
        for system in pair:
            make(system)
        for phase in plan.phases:
            results |= measure(phase, plan, pair, settings, progress)
    progress.end()
    outcome = Outcome("throughput", settings={
        "load": f"{plan.partitions:,} partitions, 16-byte keys, {tables.VALUE_BYTES}-byte values, 128 in flight, closed loop, consistency ONE",
        "rounds": f"{plan.rounds} of {plan.seconds} s, interleaved, after {plan.warmups[0]} s of warming up with the first load and "
                  f"{plan.warmups[1]} s with each other", **settings})
    echoes = {name: median([echo.cpu_micros(reads, connections, 128, ECHO_SECONDS) for _ in range(ECHO_ROUNDS)])
              for name, _, reads, connections in plan.loads if connections == 64}
    count_instructions(outcome, plan.connections_counted)
    return judge(outcome, results, echoes)


def measure(phase: Phase, plan: Plan, pair: list[System], settings: dict, progress: Progress) -> dict[str, dict]:
    """The runs by load and system; adds to the `settings` of systems."""
    is_first, results = not settings, {}
    with ExitStack() as started:
        others = [System(name, started.enter_context(Cassandra.start(**more)), KEYSPACE) for name, more in phase.others.items()]
        for system in others:
            make(system)
        systems = [*pair, *others]
        settings |= {system.name: system.node.settings for system in systems}
        for system in systems:
            warm_up(system, plan, phase.loads, progress, is_cold=is_first or system in others)
        for name, table_name, reads, connections in phase.loads:
            def one(system: System, round_number: int) -> load.Run:
                workload = workload_of(table_name, plan.partitions, 1 + round_number)
                return load.run(system.node, KEYSPACE, workload, seed=10 + round_number, reads_percent=reads, connections=connections,
                                warmup_seconds=0.5, seconds=plan.seconds)
            results[name] = interleaved(systems, plan.rounds, one, progress, name)
    return results


def make(system: System) -> None:
    tables.make(system.node, KEYSPACE, dict.fromkeys(("kv_w", "kv_r", "kv_m", *NEW), tables.KEY_VALUE))


def warm_up(system: System, plan: Plan, loads: list, progress: Progress, is_cold: bool) -> None:
    """Fills what the loads need, and runs each."""
    for name in {table_name for _, table_name, _, _ in loads}.difference(NEW):
        tables.fill(system.node, KEYSPACE, name, plan.partitions)
    for place, (name, table_name, reads, connections) in enumerate(loads):
        progress.step(f"{system.name}: warming up with {name}")
        load.run(system.node, KEYSPACE, workload_of(table_name, plan.partitions, 0), seed=9, reads_percent=reads, connections=connections,
                 warmup_seconds=plan.warmups[0 if is_cold and place == 0 else 1], seconds=0.5)


def workload_of(table_name: str, partitions: int, place: int) -> dict:
    if table_name in NEW:
        return tables.inserting(table_name, first=place * NEW_PARTITIONS_EACH)
    return tables.uniform(table_name, partitions)


def count_instructions(outcome: Outcome, connections: tuple[int, ...]) -> None:
    if connections and not instructions.is_possible():
        outcome.notes.append("Instructions were not counted: there is no valgrind.")
    elif connections:
        counted = [[name, count] for name, count in instructions.per_operation(connections).items()]
        outcome.tables.append(Table("Espalier's instructions outside of the kernel (callgrind), runtime included", ["load", "per operation"], counted))


def judge(outcome: Outcome, results: dict, echoes: dict[str, float]) -> Outcome:
    outcome.tables.append(table("Medians (least–greatest)", results))
    for name, by_system in results.items():
        theirs, ours = by_system[best(by_system)], by_system["espalier"]
        what = f"{whose(by_system)}, {name}"
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
