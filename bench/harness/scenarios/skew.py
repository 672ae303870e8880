"""A share of all operations on one partition, from none to 90 %: over CQL, and memtables in process."""

from dataclasses import dataclass

from bench.harness import in_process, load
from bench.harness.length import Length
from bench.harness.outcome import Bar, Outcome, Plot, Table
from bench.harness.rounds import Progress, System, cpu, interleaved, table, throughput
from bench.harness.scenarios import tables
from bench.harness.session import Session

KEYSPACE = "skew"
HOT_ROWS = 10_000
IN_FLIGHT = 128
KINDS = {"writes": 0, "half and half": 50}
SHARES = (0, 10, 20, 50, 90)
# Of the memtables in process: fewer writers would not meet often enough.
WRITERS = 8


@dataclass(frozen=True)
class Plan:
    partitions: int
    rounds: int
    seconds: float
    warmup: float
    shares: tuple[int, ...]
    memtable_rounds: int


PLANS = {
    Length.FULL: Plan(200_000, 5, 6, 30, SHARES, 20),
    Length.SHORT: Plan(50_000, 5, 1.5, 10, (0, 50), 10),
    Length.SMOKE: Plan(20_000, 1, 0.8, 8, (0, 50), 5),
}


def run(session: Session) -> Outcome:
    plan = PLANS[session.length]
    outcome = Outcome("skew", settings={
        "load": f"over {plan.partitions:,} partitions of one row and one partition of {HOT_ROWS:,} rows, all written before, "
                f"{tables.VALUE_BYTES}-byte values, {IN_FLIGHT} in flight over 2 connections, closed loop",
        "rounds": f"{plan.rounds} of {plan.seconds} s, interleaved, after {plan.warmup} s of warming up",
        "memtables in process": f"{WRITERS} writers, {plan.memtable_rounds} rounds (bench-skew)"})
    memtables = in_process.figures([in_process.binary("skew"), plan.memtable_rounds, WRITERS])
    with session.pair(KEYSPACE) as systems:
        outcome.settings |= {system.name: system.node.settings for system in systems}
        progress = Progress("skew", 2 + len(KINDS) * len(plan.shares) * plan.rounds * 2)
        for system in systems:
            progress.step(f"{system.name}: filling and warming up")
            tables.make(system.node, KEYSPACE, {"skew": tables.SKEW})
            # Some keys are written twice, because every worker's share is rounded up.
            load.run(system.node, KEYSPACE, workload(plan.partitions, 0, fill=True), seed=7, in_flight=IN_FLIGHT,
                     operations=plan.partitions + HOT_ROWS + 2 * IN_FLIGHT)
            load.run(system.node, KEYSPACE, workload(plan.partitions, 50), seed=9, reads_percent=25, in_flight=IN_FLIGHT,
                     warmup_seconds=session.warmup(plan.warmup), seconds=0.5)
        results = {}
        for kind, reads_percent in KINDS.items():
            for share in plan.shares:
                def one(system: System, round_number: int) -> load.Run:
                    return load.run(system.node, KEYSPACE, workload(plan.partitions, share), seed=20 + round_number, in_flight=IN_FLIGHT,
                                    reads_percent=reads_percent, warmup_seconds=0.5, seconds=plan.seconds)
                results[kind, share] = interleaved(systems, plan.rounds, one, progress, f"{kind}, {share} %")
        progress.end()
    return judge(outcome, results, memtables)


def judge(outcome: Outcome, results: dict, memtables: list[dict]) -> Outcome:
    titles = {f"{kind}, {share} %": by_system for (kind, share), by_system in results.items()}
    outcome.tables.append(table("Medians (least–greatest), by the share of operations on one partition", titles))
    outcome.tables.append(Table(f"Memtables in process, {WRITERS} writers, half of the updates on one partition ÷ all over the partitions",
                                ["memtable", "CPU per update", "throughput"],
                                [[line["memtable"], line["cpu_ratio"], line["throughput_ratio"]] for line in memtables]))
    for kind in KINDS:
        uniform, skewed = (results[kind, share]["espalier"] for share in (0, 50))
        outcome.bars.append(Bar(f"throughput, 50 % on one partition ÷ uniform, {kind}", throughput(skewed) / throughput(uniform), ">=", 0.8))
        outcome.bars.append(Bar(f"CPU per operation, 50 % on one partition ÷ uniform, {kind}", cpu(skewed) / cpu(uniform), "<=", 1.25))
        outcome.plots.append(Plot(f"{kind}: operations per second by the share on one partition", "%", "operations/s", {
            system: [(share, throughput(results[kind, share][system])) for of, share in results if of == kind] for system in results[kind, 0]}))
    trie = next(line for line in memtables if line["memtable"] == "trie")
    outcome.bars.append(Bar(f"trie memtable, {WRITERS} writers, CPU per update, 50 % on one partition ÷ uniform", trie["cpu_ratio"], "<=", 1.25))
    outcome.bars.append(Bar(f"trie memtable, {WRITERS} writers, throughput, 50 % on one partition ÷ uniform", trie["throughput_ratio"], ">=", 0.8))
    return outcome


def workload(partitions: int, share: int, fill: bool = False) -> dict:
    return {"skew": {"table": "skew", "value_bytes": tables.VALUE_BYTES, "partitions": partitions, "hot_percent": share, "hot_rows": HOT_ROWS,
                     "fill": fill}}
