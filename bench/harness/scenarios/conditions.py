"""INSERT … IF NOT EXISTS with durable writes: rows of their own for every client, one partition for all,
and one row that all insert."""

from contextlib import ExitStack
from dataclasses import dataclass

from bench.harness import load
from bench.harness.length import Length
from bench.harness.outcome import Bar, Outcome, Table, median
from bench.harness.rounds import Progress, System, best, cpu, interleaved, latency_plot, percentile, table, throughput, whose
from bench.harness.scenarios import tables
from bench.harness.servers import FEW_THREADS, Cassandra, Espalier
from bench.harness.session import Session

KEYSPACE = "conditional"
CLIENTS = 64
HEAP_MB = 1024
MEMTABLE_MB = 512
# Partitions that a run may write: runs do not meet.
PARTITIONS_OF_A_RUN = 1 << 24
CHECKED = 1_000
OWN, PARTITION, ROW = "rows of their own", "one partition", "one row"
MEETINGS = {OWN: "nothing", PARTITION: "partition", ROW: "row"}


@dataclass(frozen=True)
class Plan:
    rounds: int
    seconds: float
    settling_seconds: float
    # Of each load.
    warmup_seconds: float
    with_few_threads: bool


PLANS = {
    Length.FULL: Plan(5, 4, 0.5, 12, True),
    Length.SHORT: Plan(5, 0.8, 0.2, 3, True),
    Length.SMOKE: Plan(1, 0.5, 0.2, 0.7, False),
}


def run(session: Session) -> Outcome:
    plan = PLANS[session.length]
    outcome = Outcome("conditions", settings={
        "load": f"INSERT … IF NOT EXISTS of {tables.VALUE_BYTES} B, {CLIENTS} clients over 2 connections, closed loop; one operation in eight inserts "
                "a row again and is refused, and of the one row all but the first are",
        "rounds": f"{plan.rounds} of {plan.seconds} s, interleaved, after {plan.warmup_seconds} s of warming up for each load"})
    results = {}
    with ExitStack() as stack:
        systems = start(stack, plan)
        outcome.settings |= {system.name: system.node.settings for system in systems}
        progress = Progress("conditions", len(systems) + len(MEETINGS) * plan.rounds * len(systems))
        for system in systems:
            progress.step(f"{system.name}: warming up")
            for meeting in MEETINGS:
                one_run(system, meeting, 0, plan.warmup_seconds, 0.3)
        for meeting in MEETINGS:
            def one(system: System, round_number: int) -> load.Run:
                return one_run(system, meeting, 1 + round_number, plan.settling_seconds, plan.seconds)
            results[meeting] = interleaved(systems, plan.rounds, one, progress, meeting)
        progress.end()
    return judge(outcome, results)


def start(stack: ExitStack, plan: Plan) -> list[System]:
    memory = {"heap_mb": HEAP_MB, "memtable_mb": MEMTABLE_MB}
    nodes = {"cassandra batch": stack.enter_context(Cassandra.start(sync="batch", **memory))}
    if plan.with_few_threads:
        nodes["cassandra batch, 2 threads"] = stack.enter_context(Cassandra.start(sync="batch", **memory, **FEW_THREADS))
    nodes["espalier batch"] = stack.enter_context(Espalier.start(sync="batch", memtable_mb=MEMTABLE_MB))
    for node in nodes.values():
        tables.make(node, KEYSPACE, {"rows": tables.SKEW})
    return [System(name, node, KEYSPACE) for name, node in nodes.items()]


def one_run(system: System, meeting: str, number: int, warmup_seconds: float, seconds: float) -> load.Run:
    place = list(MEETINGS).index(meeting) + len(MEETINGS) * number
    workload = {"conditions": {"table": "rows", "first": place * PARTITIONS_OF_A_RUN, "meeting": MEETINGS[meeting]}}
    return load.run(system.node, KEYSPACE, workload, seed=20 + number, in_flight=CLIENTS, check=CHECKED, warmup_seconds=warmup_seconds,
                    seconds=seconds)


def judge(outcome: Outcome, results: dict[str, dict[str, list[load.Run]]]) -> Outcome:
    outcome.tables.append(table("Medians (least–greatest)", results))
    rows = []
    for meeting, by_system in results.items():
        ours, theirs = by_system["espalier batch"], by_system[best(by_system)]
        more, less = throughput(ours) / throughput(theirs), cpu(ours) / cpu(theirs)
        p99 = percentile(ours, "p99") / percentile(theirs, "p99")
        rows.append([meeting, more, less, p99, timeouts(theirs), timeouts(ours)])
        than = f"{whose(by_system)}, {meeting}"
        outcome.bars.append(Bar(f"operations/s ÷ {than}", more, ">=", 5 if meeting == OWN else 10))
        if meeting == OWN:
            outcome.bars.append(Bar(f"CPU per operation ÷ {than}", less, "<=", 0.1))
        else:
            outcome.bars.append(Bar(f"timeouts, {meeting}", timeouts(ours), "<=", 0))
        outcome.plots.append(latency_plot(meeting, by_system))
    outcome.tables.append(Table("Espalier ÷ the better Cassandra, and timeouts in all rounds", [
        "load", "operations/s", "CPU", "p99", "Cassandra's timeouts", "Espalier's"], rows))
    outcome.tables.append(Table("Median number of timeouts in a round, by system", ["load", "system", "timeouts"], [
        [meeting, system, median([run.report["timeouts"] for run in runs])] for meeting, by_system in results.items()
        for system, runs in by_system.items()]))
    return outcome


def timeouts(runs: list[load.Run]) -> int:
    return sum(run.report["timeouts"] for run in runs)
