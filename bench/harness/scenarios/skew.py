"""A share of all operations on one partition, from none to 90 %."""

from bench.harness import load
from bench.harness.outcome import Bar, Outcome, Plot
from bench.harness.rounds import Progress, System, cpu, interleaved, table, throughput
from bench.harness.scenarios import tables
from bench.harness.servers import Cassandra, Espalier

KEYSPACE = "bench"
HOT_ROWS = 10_000
SHARES = (0, 10, 20, 50, 90)


def run(quick: bool) -> Outcome:
    partitions, rounds, seconds, warmup, shares = (50_000, 3, 3, 10, (0, 50)) if quick else (200_000, 5, 6, 30, SHARES)
    with Cassandra.start() as cassandra, Espalier.start() as espalier:
        systems = [System("cassandra", cassandra, KEYSPACE), System("espalier", espalier, KEYSPACE)]
        progress = Progress("skew", 2 + len(shares) * rounds * 2)
        for system in systems:
            progress.step(f"{system.name}: filling and warming up")
            tables.make(system.node, KEYSPACE, {"skew": tables.SKEW})
            load.run(system.node, KEYSPACE, workload(partitions, 50), seed=9, warmup_seconds=warmup, seconds=0.5)
        results = {}
        for share in shares:
            def one(system: System, round_number: int) -> load.Run:
                return load.run(system.node, KEYSPACE, workload(partitions, share), seed=20 + round_number, warmup_seconds=0.5, seconds=seconds)
            results[f"{share} %"] = interleaved(systems, rounds, one, progress, f"{share} %")
        progress.end()
        outcome = Outcome("skew", settings={
            "load": f"writes over {partitions:,} partitions of one row and one partition of {HOT_ROWS:,} rows, "
                    f"{tables.VALUE_BYTES}-byte values, 128 in flight over 2 connections, closed loop",
            "rounds": f"{rounds} of {seconds} s, interleaved, after {warmup} s of warming up",
            "cassandra": cassandra.settings, "espalier": espalier.settings})
    outcome.tables.append(table("Medians (least–greatest), by the share of writes on one partition", results))
    ours = {share: by_system["espalier"] for share, by_system in results.items()}
    outcome.bars.append(Bar("throughput, 50 % on one partition ÷ uniform", throughput(ours["50 %"]) / throughput(ours["0 %"]), ">=", 0.8))
    outcome.bars.append(Bar("CPU per write, 50 % on one partition ÷ uniform", cpu(ours["50 %"]) / cpu(ours["0 %"]), "<=", 1.25))
    names = [system.name for system in systems]
    outcome.plots.append(Plot("Writes per second by the share on one partition", "%", "operations/s", {
        name: [(int(share.split()[0]), throughput(by_system[name])) for share, by_system in results.items()] for name in names}))
    return outcome


def workload(partitions: int, share: int) -> dict:
    return {"skew": {"table": "skew", "value_bytes": tables.VALUE_BYTES, "partitions": partitions, "hot_percent": share, "hot_rows": HOT_ROWS}}
