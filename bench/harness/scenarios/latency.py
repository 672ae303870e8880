"""Latency at a fixed rate that both can hold: the one at which Cassandra uses 70 % of its
cores. Open loop, intended starts."""

from contextlib import ExitStack
from dataclasses import dataclass

from bench.harness import load
from bench.harness.length import Length
from bench.harness.outcome import Bar, Outcome, Table, median, spread
from bench.harness.rounds import Progress, System, interleaved, latency_plot, percentile, table
from bench.harness.scenarios import tables
from bench.harness.servers import TWO_THREADS, Cassandra
from bench.harness.session import Session

KEYSPACE = "latency"
IN_FLIGHT_MAX = 512
CASSANDRA_SHARE = 0.7
# At a rate that a server does not hold, the queue of operations grows without end.
HELD_P50_MICROS = 10_000
KINDS = {"reads": "read_latency", "writes": "write_latency"}


@dataclass(frozen=True)
class Plan:
    reads_percent: tuple[int, ...]
    partitions: int
    rounds: int
    seconds: float
    warmup: float
    # Of the runs at full load that the rate follows from.
    rate_rounds: int
    rate_seconds: float
    # Of Cassandra: two threads may hold more than its 128.
    others: dict[str, dict]


PLANS = {
    Length.FULL: Plan((10, 50), 500_000, 5, 15, 40, 3, 4, TWO_THREADS),
    Length.SHORT: Plan((10, 50), 50_000, 5, 2.5, 12, 3, 1.5, TWO_THREADS),
    Length.SMOKE: Plan((50,), 20_000, 1, 1, 10, 1, 0.5, {}),
}


def run(session: Session) -> Outcome:
    plan = PLANS[session.length]
    with session.pair(KEYSPACE) as systems, ExitStack() as more:
        systems = systems + [System(name, more.enter_context(Cassandra.start(**settings)), KEYSPACE) for name, settings in plan.others.items()]
        progress = Progress("latency", len(systems) + len(plan.reads_percent) * (1 + plan.rounds * len(systems)))
        for system in systems:
            progress.step(f"{system.name}: filling and warming up")
            tables.make(system.node, KEYSPACE, {"kv": tables.KEY_VALUE})
            tables.fill(system.node, KEYSPACE, "kv", plan.partitions)
            load.run(system.node, KEYSPACE, tables.uniform("kv", plan.partitions), seed=9, reads_percent=50,
                     warmup_seconds=session.warmup(plan.warmup), seconds=0.5)
        results, rates = {}, {}
        for reads in plan.reads_percent:
            progress.step(f"{reads} % reads: the rate")
            rates[reads] = {system.name: held_rate(system, plan, reads, steady_rate(system, plan, reads))
                            for system in systems if system.name.startswith("cassandra")}
            rate = max(rates[reads].values())

            def one(system: System, round_number: int) -> load.Run:
                return load.run(system.node, KEYSPACE, tables.uniform("kv", plan.partitions), seed=20 + round_number, reads_percent=reads,
                                in_flight=IN_FLIGHT_MAX, rate=rate, warmup_seconds=1, seconds=plan.seconds)
            results[f"{reads} % reads at {rate:,}/s"] = interleaved(systems, plan.rounds, one, progress, f"{reads} % reads at {rate:,}/s")
        progress.end()
        outcome = Outcome("latency", settings={
            "load": f"{plan.partitions:,} partitions, {tables.VALUE_BYTES}-byte values, open loop, at most {IN_FLIGHT_MAX} in flight over 2 connections; "
                    "an operation counts by its intended start, however late it ends",
            "rates": f"where Cassandra's CPU per operation fills {CASSANDRA_SHARE:.0%} of the cores the client leaves, by the median of {plan.rate_rounds} runs "
                     f"of {plan.rate_seconds} s at full load, less a tenth until it holds it, the greater of what its settings reach: {rates}",
            "rounds": f"{plan.rounds} of {plan.seconds} s, interleaved, after {plan.warmup} s of warming up",
            **{system.name: system.node.settings for system in systems}})
    outcome.tables += [table("Medians (least–greatest)", results), by_kind(results), cores_used(results)]
    for name, by_system in results.items():
        for which in ("p99", "p999"):
            ours, theirs = (min(percentile(runs, which) for system, runs in by_system.items() if system.startswith(prefix))
                            for prefix in ("espalier", "cassandra"))
            what = "Cassandra's" if len(by_system) == 2 else "the better Cassandra's"
            outcome.bars.append(Bar(f"{which} ÷ {what}, {name}", ours / theirs, "<=", 0.2))
        outcome.plots.append(latency_plot(name, by_system))
    return outcome


def steady_rate(system: System, plan: Plan, reads: int) -> int:
    """From runs at full load: client and server share the cores, so both costs count."""
    def one(seed: int) -> float:
        full = load.run(system.node, KEYSPACE, tables.uniform("kv", plan.partitions), seed=seed, reads_percent=reads, warmup_seconds=0.5,
                        seconds=plan.rate_seconds)
        rate = CASSANDRA_SHARE * load.CORES * 1e6 / (full.cpu_micros + full.client_cpu_micros)
        return min(rate, CASSANDRA_SHARE * full.throughput)
    return int(median([one(11 + number) for number in range(plan.rate_rounds)])) // 100 * 100


def held_rate(system: System, plan: Plan, reads: int, rate: int) -> int:
    """The rate, or a lower one if it is not held: at full load more requests are served at
    a time, and each costs less."""
    run = load.run(system.node, KEYSPACE, tables.uniform("kv", plan.partitions), seed=19, reads_percent=reads, in_flight=IN_FLIGHT_MAX, rate=rate,
                   warmup_seconds=1, seconds=plan.rate_seconds)
    less = rate * 9 // 10 // 100 * 100
    return rate if run.latency("p50") <= HELD_P50_MICROS or less == 0 else held_rate(system, plan, reads, less)


def by_kind(results: dict) -> Table:
    rows = [[name, system, kind, *(median([run.latency(which, histogram) for run in runs]) for which in ("p50", "p90", "p99", "p999"))]
            for name, by_system in results.items() for system, runs in by_system.items() for kind, histogram in KINDS.items()]
    return Table("Reads and writes apart, medians", ["load", "system", "kind", "p50 µs", "p90 µs", "p99 µs", "p99.9 µs"], rows)


def cores_used(results: dict) -> Table:
    rows = [[name, system, spread([run.server_cores for run in runs]), spread([run.client_cores for run in runs])]
            for name, by_system in results.items() for system, runs in by_system.items()]
    return Table(f"Cores used at the rate, of {load.CORES}", ["load", "system", "server", "client"], rows)
