"""What durability costs over CQL: each server with its log off, periodic and in batches, for 1 to 256 clients."""

from contextlib import ExitStack

from bench.harness import load
from bench.harness.outcome import Bar, Outcome, Plot
from bench.harness.rounds import Progress, System, interleaved, latency_plot, percentile, table, throughput
from bench.harness.scenarios import tables
from bench.harness.servers import Cassandra, Espalier

HEAP_MB = 2048
MEMTABLE_MB = 1024


def run(quick: bool) -> Outcome:
    partitions, rounds, seconds, warmup, clients = (50_000, 3, 2, 8, (1, 64)) if quick else (200_000, 5, 4, 20, (1, 8, 64, 256))
    with ExitStack() as stack:
        systems, settings = start(stack)
        progress = Progress("commitlog", len(systems) * (1 + len(clients) * rounds))
        for system in systems:
            progress.step(f"{system.name}: filling and warming up")
            tables.fill(system.node, system.keyspace, "kv", partitions)
            load.run(system.node, system.keyspace, tables.uniform("kv", partitions), seed=9, warmup_seconds=warmup, seconds=0.5)
        results = {}
        for count in clients:
            def one(system: System, round_number: int) -> load.Run:
                return load.run(system.node, system.keyspace, tables.uniform("kv", partitions), seed=20 + round_number, in_flight=count,
                                connections=min(2, count), warmup_seconds=0.5, seconds=seconds)
            results[f"{count} clients"] = interleaved(systems, rounds, one, progress, f"{count} clients")
        progress.end()
    outcome = Outcome("commitlog", settings={
        "load": f"writes over {partitions:,} partitions, {tables.VALUE_BYTES}-byte values, closed loop",
        "rounds": f"{rounds} of {seconds} s, interleaved, after {warmup} s of warming up", **settings})
    return judge(outcome, results)


def start(stack: ExitStack) -> tuple[list[System], dict]:
    """The off log is a keyspace of the periodic node whose writes skip the log."""
    systems, settings = [], {}

    def serve(name: str, node, *, with_off: bool = False) -> None:
        tables.make(node, "durable", {"kv": tables.KEY_VALUE})
        systems.append(System(name, node, "durable"))
        settings[name] = node.settings
        if with_off:
            tables.make(node, "off", {"kv": tables.KEY_VALUE}, durable=False)
            systems.append(System(name.replace("periodic", "off"), node, "off"))

    memory = {"heap_mb": HEAP_MB, "memtable_mb": MEMTABLE_MB}
    serve("cassandra periodic", stack.enter_context(Cassandra.start(**memory)), with_off=True)
    serve("cassandra batch, mmap", stack.enter_context(Cassandra.start(sync="batch", **memory)))
    serve("cassandra batch, direct", stack.enter_context(Cassandra.start(sync="batch", direct_log=True, **memory)))
    serve("espalier periodic", stack.enter_context(Espalier.start(memtable_mb=MEMTABLE_MB)), with_off=True)
    serve("espalier batch", stack.enter_context(Espalier.start(sync="batch", memtable_mb=MEMTABLE_MB)))
    return systems, settings


def judge(outcome: Outcome, results: dict) -> Outcome:
    outcome.tables.append(table("Medians (least–greatest)", results))
    for name, by_system in results.items():
        batch = by_system["espalier batch"]
        theirs = max((by_system["cassandra batch, mmap"], by_system["cassandra batch, direct"]), key=throughput)
        if name.startswith("256"):
            outcome.bars.append(Bar(f"batch ÷ off, {name}", throughput(batch) / throughput(by_system["espalier off"]), ">=", 0.9))
        if name.startswith(("64", "256")):
            client = sorted(run.client_cpu_micros + run.cpu_micros for run in batch)[len(batch) // 2]
            wanted = min(4.0, 0.9 * load.CORES * 1e6 / client / throughput(theirs))
            outcome.bars.append(Bar(f"batch ÷ Cassandra's batch, {name} (both cost {client:.1f} µs/op)", throughput(batch) / throughput(theirs), ">=", wanted))
            outcome.bars.append(Bar(f"batch ÷ Cassandra's periodic, {name}", throughput(batch) / throughput(by_system["cassandra periodic"]), ">=", 2))
        if name.startswith("64"):
            outcome.bars.append(Bar(f"p99 of a durable write ÷ Cassandra's batch, {name}", percentile(batch, "p99") / percentile(theirs, "p99"), "<=", 0.25))
        outcome.plots.append(latency_plot(name, by_system))
    series = {}
    for name, by_system in results.items():
        for system, runs in by_system.items():
            series.setdefault(system, []).append((int(name.split()[0]), throughput(runs)))
    outcome.plots.insert(0, Plot("Writes per second by clients", "clients", "operations/s", series, x_logarithmic=True))
    return outcome
