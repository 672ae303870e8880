"""What durability costs: the log alone beside the raw device, then over CQL, each server with its log off, periodic, in groups, in batches
and (ours) each write by itself, for 1 to 256 clients."""

import json
import shutil
import subprocess
from contextlib import ExitStack

from bench.harness import load
from bench.harness.outcome import Bar, Outcome, Plot, Table, median, spread
from bench.harness.rounds import Progress, System, interleaved, latency_plot, percentile, table, throughput
from bench.harness.scenarios import tables
from bench.harness.servers import Cassandra, Espalier
from proof import places

TARGET = places.CACHE / "bench-process"
TIMEOUT_SECONDS = 900
HEAP_MB = 2048
MEMTABLE_MB = 1024


def run(quick: bool) -> Outcome:
    partitions, rounds, seconds, warmup, clients = (50_000, 3, 2, 8, (1, 64)) if quick else (200_000, 5, 4, 20, (1, 8, 64, 256))
    alone = in_process(quick)
    with ExitStack() as stack:
        systems, settings = start(stack, quick)
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
    judge_alone(outcome, alone)
    return judge(outcome, results)


def in_process(quick: bool) -> dict[tuple[str, str], list[float]]:
    """The log in process: figures by row and name."""
    rounds, seconds = (3, 0.3) if quick else (5, 1.0)
    subprocess.run(["cargo", "build", "--release", "--quiet", "-p", "bench", "--bin", "bench-commitlog", "--target-dir", str(TARGET)],
                   cwd=places.ROOT, check=True)
    progress, figures = Progress("commitlog", rounds), {}
    for _ in range(rounds):
        progress.step("the log in process")
        directory = places.run_directory("bench-commitlog")
        done = subprocess.run([str(TARGET / "release" / "bench-commitlog"), str(directory), str(seconds)], capture_output=True, text=True,
                              timeout=TIMEOUT_SECONDS)
        shutil.rmtree(directory, ignore_errors=True)
        if done.returncode != 0:
            raise RuntimeError(f"bench-commitlog: {done.stderr.strip()}")
        for line in done.stdout.splitlines():
            figure = json.loads(line)
            figures.setdefault((figure["row"], figure["figure"]), []).append(figure["value"])
    progress.end()
    return figures


def judge_alone(outcome: Outcome, figures: dict[tuple[str, str], list[float]]) -> None:
    outcome.tables.append(Table("The log in process; medians (least–greatest)", ["row", "figure", "median"],
                                [[row, figure, spread(values)] for (row, figure), values in figures.items()]))

    def value(row: str, figure: str) -> float:
        return median(figures[row, figure])

    raw = min(value("raw, pwritev2 of 4096 B", "p50 µs"), value("raw, ring of 1, 4096 B", "p50 µs"))
    large = min(value("raw, pwritev2 of 65536 B", "p50 µs"), value("raw, ring of 1, 65536 B", "p50 µs"))
    woken = value("waking a thread", "p50 µs")
    outcome.bars.append(Bar(f"durable append of 1 writer less two wake-ups ({woken:.0f} µs each) ÷ the raw write ({raw:.0f} µs), p50",
                            (value("batch, 1 writer of 1024 B", "p50 µs") - 2 * woken) / raw, "<=", 1.2))
    for outstanding in (64, 1024):
        batch, off = (f"{mode}, {outstanding} outstanding of 1 KB" for mode in ("batch", "off"))
        outcome.bars.append(Bar(f"CPU of batch above off, {outstanding} outstanding, µs/op", value(batch, "CPU µs/op") - value(off, "CPU µs/op"), "<=", 1))
        # The raw latency of 64 KiB stands for that of the batch's size, which makes the bar of 1,024 outstanding harder than it need be.
        limit = min(value(off, "operations/s"), outstanding / (1.5 * large / 1e6))
        outcome.bars.append(Bar(f"writes/s of batch ÷ what the device allows, {outstanding} outstanding", value(batch, "operations/s") / limit, ">=", 0.9))
    outcome.bars.append(Bar("replay of the log alone, M mutations/s", value("replay of 100 B, the log alone", "operations/s") / 1e6, ">=", 1))


def start(stack: ExitStack, quick: bool) -> tuple[list[System], dict]:
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
    serve("espalier each", stack.enter_context(Espalier.start(sync="each", memtable_mb=MEMTABLE_MB)))
    if not quick:
        serve("cassandra periodic, direct", stack.enter_context(Cassandra.start(direct_log=True, **memory)))
        serve("cassandra group, mmap", stack.enter_context(Cassandra.start(sync="group", **memory)))
        serve("espalier group", stack.enter_context(Espalier.start(sync="group", memtable_mb=MEMTABLE_MB)))
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
