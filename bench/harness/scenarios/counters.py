"""Increments of counters, with durable writes and with a periodic log; and of counters that are in SSTables
alone, with and without our cache."""

from contextlib import ExitStack
from dataclasses import dataclass

from bench.harness import load
from bench.harness.length import Length
from bench.harness.outcome import Bar, Outcome, Table
from bench.harness.rounds import Progress, System, best, cpu, interleaved, latency_plot, percentile, table, throughput, whose
from bench.harness.scenarios import tables
from bench.harness.servers import FEW_THREADS, Cassandra, Espalier
from bench.harness.session import Session

KEYSPACE = "counting"
TABLE = "CREATE TABLE {keyspace}.{table} (key blob PRIMARY KEY, c counter)"
CLIENTS = 64
HEAP_MB = 1024
MEMTABLE_MB = 512
SYNCS = ("batch", "periodic")
NO_CACHE = "espalier periodic, no counter cache"


@dataclass(frozen=True)
class Plan:
    partitions: int
    rounds: int
    seconds: float
    settling_seconds: float
    warmup_seconds: float
    with_few_threads: bool


PLANS = {
    Length.FULL: Plan(100_000, 5, 4, 0.5, 15, True),
    Length.SHORT: Plan(20_000, 5, 0.8, 0.2, 4, True),
    Length.SMOKE: Plan(5_000, 1, 0.5, 0.2, 0.7, False),
}


def run(session: Session) -> Outcome:
    plan = PLANS[session.length]
    outcome = Outcome("counters", settings={
        "load": f"UPDATE … SET c = c + ? over {plan.partitions:,} partitions, {CLIENTS} clients over 2 connections, closed loop; sums are checked",
        "rounds": f"{plan.rounds} of {plan.seconds} s, interleaved, after {plan.warmup_seconds} s of warming up",
        "from SSTables": "the same with a periodic log, each round after a flush; each counter is met about once"})
    workload = {"counters": {"table": "counters", "partitions": plan.partitions}}
    results, flushed = {}, {}
    with ExitStack() as stack:
        systems = start(stack, plan)
        outcome.settings |= {system.name: system.node.settings for system in systems}
        periodic = [system for system in systems if "periodic" in system.name]
        others = [system for system in systems if system.name != NO_CACHE]
        progress = Progress("counters", len(systems) + plan.rounds * (len(others) + len(periodic)))
        for system in systems:
            progress.step(f"{system.name}: warming up")
            load.run(system.node, KEYSPACE, workload, seed=9, in_flight=CLIENTS, warmup_seconds=plan.warmup_seconds, seconds=0.3)

        def one(system: System, round_number: int) -> load.Run:
            return load.run(system.node, KEYSPACE, workload, seed=20 + round_number, in_flight=CLIENTS, warmup_seconds=plan.settling_seconds,
                            seconds=plan.seconds)

        def of_tables(system: System, round_number: int) -> load.Run:
            system.node.flush(KEYSPACE, "counters")
            return load.run(system.node, KEYSPACE, workload, seed=40 + round_number, in_flight=CLIENTS, operations=plan.partitions)
        for sync in SYNCS:
            results[f"commitlog_sync: {sync}"] = interleaved([system for system in others if sync in system.name], plan.rounds, one, progress, sync)
        flushed["from SSTables"] = interleaved(periodic, plan.rounds, of_tables, progress, "from SSTables")
        progress.end()
    return judge(outcome, results, flushed)


def start(stack: ExitStack, plan: Plan) -> list[System]:
    nodes = {}
    for sync in SYNCS:
        memory = {"heap_mb": HEAP_MB, "memtable_mb": MEMTABLE_MB}
        nodes[f"cassandra {sync}"] = stack.enter_context(Cassandra.start(sync=sync, **memory))
        if plan.with_few_threads:
            nodes[f"cassandra {sync}, 2 threads"] = stack.enter_context(Cassandra.start(sync=sync, **memory, **FEW_THREADS))
        nodes[f"espalier {sync}"] = stack.enter_context(Espalier.start(sync=sync, memtable_mb=MEMTABLE_MB))
    nodes[NO_CACHE] = stack.enter_context(Espalier.start(sync="periodic", memtable_mb=MEMTABLE_MB, counter_cache_size="0MiB"))
    for node in nodes.values():
        tables.make(node, KEYSPACE, {"counters": TABLE})
    return [System(name, node, KEYSPACE) for name, node in nodes.items()]


def judge(outcome: Outcome, results: dict[str, dict[str, list[load.Run]]], flushed: dict[str, dict[str, list[load.Run]]]) -> Outcome:
    outcome.tables.append(table("Medians (least–greatest)", results | flushed))
    rows = []
    for what, by_system in results.items():
        ours, theirs = by_system[next(name for name in by_system if name.startswith("espalier"))], by_system[best(by_system)]
        more, less = throughput(ours) / throughput(theirs), cpu(ours) / cpu(theirs)
        rows.append([what, more, less, percentile(ours, "p99") / percentile(theirs, "p99")])
        outcome.bars.append(Bar(f"operations/s ÷ {whose(by_system)}, {what}", more, ">=", 4))
        outcome.bars.append(Bar(f"CPU per operation ÷ {whose(by_system)}, {what}", less, "<=", 0.15))
        outcome.plots.append(latency_plot(what, by_system))
    outcome.tables.append(Table("Espalier ÷ the better Cassandra", ["load", "operations/s", "CPU", "p99"], rows))
    return outcome
