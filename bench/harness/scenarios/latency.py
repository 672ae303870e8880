"""Latency at a fixed rate that both can hold: the one at which Cassandra uses 70 % of its cores. Open loop, intended starts."""

from bench.harness import load
from bench.harness.outcome import Bar, Outcome
from bench.harness.rounds import Progress, System, interleaved, latency_plot, percentile, table
from bench.harness.scenarios import tables
from bench.harness.servers import Cassandra, Espalier

KEYSPACE = "bench"
READS_PERCENT = (10, 50)
IN_FLIGHT_MAX = 512
CASSANDRA_SHARE = 0.7


def run(quick: bool) -> Outcome:
    partitions, rounds, seconds, warmup = (50_000, 3, 4, 15) if quick else (500_000, 5, 15, 40)
    with Cassandra.start() as cassandra, Espalier.start() as espalier:
        systems = [System("cassandra", cassandra, KEYSPACE), System("espalier", espalier, KEYSPACE)]
        progress = Progress("latency", 4 + len(READS_PERCENT) * rounds * 2)
        for system in systems:
            progress.step(f"{system.name}: filling and warming up")
            tables.make(system.node, KEYSPACE, {"kv": tables.KEY_VALUE})
            tables.fill(system.node, KEYSPACE, "kv", partitions)
            load.run(system.node, KEYSPACE, tables.uniform("kv", partitions), seed=9, reads_percent=50, warmup_seconds=warmup, seconds=0.5)
        results, rates = {}, {}
        for reads in READS_PERCENT:
            progress.step(f"{reads} % reads: the rate")
            rate = rates[reads] = steady_rate(cassandra, partitions, reads)

            def one(system: System, round_number: int) -> load.Run:
                return load.run(system.node, KEYSPACE, tables.uniform("kv", partitions), seed=20 + round_number, reads_percent=reads,
                                in_flight=IN_FLIGHT_MAX, rate=rate, warmup_seconds=1, seconds=seconds)
            results[f"{reads} % reads at {rate:,}/s"] = interleaved(systems, rounds, one, progress, f"{reads} % reads at {rate:,}/s")
        progress.end()
        outcome = Outcome("latency", settings={
            "load": f"{partitions:,} partitions, {tables.VALUE_BYTES}-byte values, open loop, at most {IN_FLIGHT_MAX} in flight over 2 connections",
            "rates": f"where Cassandra's CPU per operation fills {CASSANDRA_SHARE:.0%} of the cores the client leaves: {rates}",
            "rounds": f"{rounds} of {seconds} s, interleaved, after {warmup} s of warming up",
            "cassandra": cassandra.settings, "espalier": espalier.settings})
    outcome.tables.append(table("Medians (least–greatest)", results))
    for name, by_system in results.items():
        for which in ("p99", "p999"):
            ratio = percentile(by_system["espalier"], which) / percentile(by_system["cassandra"], which)
            outcome.bars.append(Bar(f"{which} ÷ Cassandra's, {name}", ratio, "<=", 0.2))
        outcome.plots.append(latency_plot(name, by_system))
    return outcome


def steady_rate(cassandra, partitions: int, reads: int) -> int:
    """From a run at full load: client and server share the cores, so both costs count."""
    full = load.run(cassandra, KEYSPACE, tables.uniform("kv", partitions), seed=11, reads_percent=reads, warmup_seconds=1, seconds=4)
    rate = CASSANDRA_SHARE * load.CORES * 1e6 / (full.cpu_micros + full.client_cpu_micros)
    return int(min(rate, CASSANDRA_SHARE * full.throughput) // 100 * 100)
