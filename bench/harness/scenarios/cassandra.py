"""Apache Cassandra with its own memtables, with ours, and with our engine: nodes that differ in nothing else.

The best of Cassandra's own memtables and allocation types is found first. It then runs beside both modes of the plugin.
Each size of the heap is a scenario of its own, because one takes half an hour; the first of them also measures what a
buffered row takes, and durable writes.
"""

import re
import subprocess
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from bench.harness import load, thread_times
from bench.harness.length import Length
from bench.harness.outcome import Bar, Outcome, Table, median
from bench.harness.rounds import Progress, System, cpu, interleaved, latency_plot, percentile, table, throughput, throughput_plot
from bench.harness.scenarios import tables
from bench.harness.servers import Cassandra
from bench.harness.session import Session
from proof import places
from proof.oracle import cassandra as oracle
from proof.plugin.kill import JAR, SETTLE_SECONDS

KEYSPACE = "bench"
STOCK, MEMTABLE, STORAGE, DISCARDING = "cassandra", "mode memtable", "mode storage", "discarding"
# The memtable of the tables on each system.
WITH = {STOCK: "", MEMTABLE: " WITH memtable = 'espalier'", STORAGE: " WITH memtable = 'espalier_storage'",
        DISCARDING: " WITH memtable = 'discarding'"}
ALLOCATIONS = ("heap_buffers", "offheap_buffers", "offheap_objects")
# As Cassandra has it by default, on the heap and outside.
MEMTABLE_SHARE_OF_HEAP = 4
RATE_SHARE = 0.7
RATE_READS_PERCENT = 10
DURABLE_CLIENTS = 64
HEAP_MB = 1024
HEAP_PER_ROW = places.ROOT / "proof" / "plugin" / "java"
CLASSES = 12
HEAP_PER_ROW_ROWS = 200_000
# A quarter of it is the memory of memtables. Rows of three memtables are in it at once, about 1,100 bytes each.
HEAP_PER_ROW_HEAP_MB = 4096
# Kinds of threads that are listed for each node.
THREADS_SHOWN = 10
GIB = 2**30


@dataclass(frozen=True)
class Plan:
    # Warm-up and measured time of each of Cassandra's memtables.
    trial_seconds: tuple[float, float]
    warmup: float
    rounds: int
    # New partitions of a round of the sustained load.
    partitions: int
    # Partitions that are read from memory, and reads of a round, there and from tables.
    in_memory: int
    reads: int
    rate_seconds: float
    durable_writes: int


PLANS = {
    Length.FULL: Plan((30, 10), 60, 5, 600_000, 50_000, 200_000, 15, 60_000),
    Length.SHORT: Plan((10, 4), 30, 5, 150_000, 30_000, 60_000, 6, 15_000),
    Length.SMOKE: Plan((0, 0), 3, 1, 20_000, 5_000, 5_000, 2, 2_000),
}


def run(session: Session) -> Outcome:
    outcome = with_heap("cassandra", HEAP_MB, session)
    if session.length is not Length.SMOKE:
        memory_of_rows(outcome)
    durable(PLANS[session.length], outcome)
    return outcome


def run_with_2_gib(session: Session) -> Outcome:
    return with_heap("cassandra-2gib", 2048, session)


def run_with_4_gib(session: Session) -> Outcome:
    return with_heap("cassandra-4gib", 4096, session)


def with_heap(name: str, heap_mb: int, session: Session) -> Outcome:
    """Measures the three systems with one size of heap."""
    if not JAR.exists():
        raise RuntimeError("the plugin is not built: make plugin")
    plan = PLANS[session.length]
    outcome = Outcome(name, settings={
        "load": f"new partitions from an empty table, {plan.partitions:,} in a round: 16-byte keys, {tables.VALUE_BYTES}-byte values, 128 in flight over "
                f"2 connections, closed loop, consistency ONE; flushes, compactions and collections included. Reads are uniform, of {plan.in_memory:,} "
                "partitions that were not flushed, and of all partitions of the sustained load",
        "memory": f"memtables have 1/{MEMTABLE_SHARE_OF_HEAP} of the heap, on the heap and outside, as by default; the engine has as much outside",
        "rate": f"{RATE_SHARE:.0%} of the stock memtable's throughput under the sustained load, {RATE_READS_PERCENT} % reads, open loop",
        "rounds": f"{plan.rounds}, interleaved, after {plan.warmup} s of warming up"})
    stock = best_stock(heap_mb, plan, outcome)
    kinds = {STOCK: stock, MEMTABLE: {"plugin": JAR}, STORAGE: {"plugin": JAR}}
    with ExitStack() as nodes:
        systems = [System(name, nodes.enter_context(start(heap_mb, **settings)), KEYSPACE) for name, settings in kinds.items()]
        progress = Progress(f"cassandra, {heap_mb} MiB", len(systems) * (1 + 4 * plan.rounds))
        for system in systems:
            progress.step(f"{system.name}: warming up")
            prepare(system, plan)
        results = measure(systems, heap_mb, plan, progress, outcome)
        progress.end()
        outcome.settings[f"{STOCK}, {heap_mb} MiB (the others differ in the memtable of their tables)"] = systems[0].node.settings
    judge(outcome, results, heap_mb)
    return outcome


def run_floor(session: Session) -> Outcome:
    """The cost of a write to a memtable that keeps nothing (DiscardingMemtable.java), beside the others: no
    memtable can save this cost."""
    plan = PLANS[session.length]
    outcome = Outcome("cassandra-floor", settings={
        "load": f"new partitions as in `cassandra`, {plan.partitions:,} in a round; a memtable that keeps nothing beside the stock trie and ours",
        "rounds": f"{plan.rounds}, interleaved, after {plan.warmup} s of warming up with the same writes to another table"})
    with tempfile.TemporaryDirectory() as directory, ExitStack() as nodes:
        compile_java(Path(directory))
        kinds = {STOCK: {}, MEMTABLE: {"plugin": JAR}, STORAGE: {"plugin": JAR}, DISCARDING: {"discarding": Path(directory) / "classes"}}
        systems = [System(name, nodes.enter_context(start(HEAP_MB, **settings)), KEYSPACE) for name, settings in kinds.items()]
        progress = Progress("cassandra, floor", len(systems) * (1 + plan.rounds))
        for system in systems:
            progress.step(f"{system.name}: warming up")
            tables.make(system.node, KEYSPACE, {name: tables.KEY_VALUE + WITH[system.name] for name in ("kv", "warm")})
            time.sleep(SETTLE_SECONDS)
            load.run(system.node, KEYSPACE, tables.inserting("warm", first=0), seed=9, warmup_seconds=plan.warmup, seconds=0.5,
                     **reading_back(system))
        before = times_of_threads(systems)
        writes = interleaved(systems, plan.rounds, lambda system, number: load.run(
            system.node, KEYSPACE, tables.inserting("kv", first=number * plan.partitions), seed=20 + number, operations=plan.partitions,
            **reading_back(system)), progress, "sustained writes")
        outcome.tables.append(threads_of_writes(systems, before, plan.rounds * plan.partitions, "sustained writes"))
        progress.end()
        outcome.settings[f"{STOCK} (the others differ in the memtable of their tables)"] = systems[0].node.settings
    outcome.tables.append(table(f"Medians (least–greatest), {HEAP_MB} MiB of heap", {"writes": writes}))
    ratios = [[name, cpu(writes[name]) / cpu(writes[STOCK])] for name in writes]
    outcome.tables.append(Table("CPU of a write ÷ the stock trie's", ["system", "ratio"], ratios))
    return outcome


def reading_back(system: System) -> dict[str, int]:
    """How many rows are read back after a load, where that is not as usual: a memtable that keeps nothing has none."""
    return {"check": 0} if system.name == DISCARDING else {}


def start(heap_mb: int, **settings) -> Cassandra:
    return Cassandra.start(heap_mb=heap_mb, memtable_mb=heap_mb // MEMTABLE_SHARE_OF_HEAP, **settings)


def best_stock(heap_mb: int, plan: Plan, outcome: Outcome) -> dict:
    """The settings of Cassandra's memtables with the greatest throughput of new partitions."""
    warmup, seconds = plan.trial_seconds
    if not seconds:
        return {"memtable": "trie"}
    tries = []
    for memtable in ("skiplist", "trie"):
        for allocation in ALLOCATIONS:
            with start(heap_mb, memtable=memtable, allocation=allocation) as node:
                tables.make(node, KEYSPACE, {"kv": tables.KEY_VALUE})
                tried = load.run(node, KEYSPACE, tables.inserting("kv", first=0), seed=9, warmup_seconds=warmup, seconds=seconds)
            tries.append([memtable, allocation, tried.throughput, tried.cpu_micros, tried.gc_seconds * 1e3, tried.latency("p999")])
    outcome.tables.append(Table(f"Cassandra's memtables, {heap_mb} MiB of heap",
                                ["memtable", "allocation", "operations/s", "CPU µs/op", "GC ms", "p99.9 µs"], tries))
    memtable, allocation, *_ = max(tries, key=lambda tried: tried[2])
    return {"memtable": memtable, "allocation": allocation}


def prepare(system: System, plan: Plan) -> None:
    template = tables.KEY_VALUE + WITH[system.name]
    tables.make(system.node, KEYSPACE, {name: template for name in ("kv", "near", "warm")})
    # Writes of a table in the engine skip Cassandra's log soon after the table was made.
    time.sleep(SETTLE_SECONDS)
    tables.fill(system.node, KEYSPACE, "warm", plan.in_memory)
    load.run(system.node, KEYSPACE, tables.uniform("warm", plan.in_memory), seed=9, reads_percent=50, warmup_seconds=plan.warmup, seconds=0.5)
    system.node.command("flush", KEYSPACE, "warm")
    tables.fill(system.node, KEYSPACE, "near", plan.in_memory)


def measure(systems: list[System], heap_mb: int, plan: Plan, progress: Progress, outcome: Outcome) -> dict[str, dict[str, list[load.Run]]]:
    def reads(name: str, partitions: int):
        return lambda system, number: load.run(system.node, KEYSPACE, tables.uniform(name, partitions), seed=30 + number, reads_percent=100,
                                               operations=plan.reads)

    def writes(system: System, number: int) -> load.Run:
        return load.run(system.node, KEYSPACE, tables.inserting("kv", first=number * plan.partitions), seed=20 + number, operations=plan.partitions)

    heap, results = f"{heap_mb} MiB of heap", {}
    results["reads"] = interleaved(systems, plan.rounds, reads("near", plan.in_memory), progress, f"reads from memory, {heap}")
    before = times_of_threads(systems)
    results["writes"] = interleaved(systems, plan.rounds, writes, progress, f"sustained writes, {heap}")
    outcome.tables.append(threads_of_writes(systems, before, plan.rounds * plan.partitions, f"sustained writes, {heap}"))
    all_partitions = plan.rounds * plan.partitions
    results["reads from tables"] = interleaved(systems, plan.rounds, reads("kv", all_partitions), progress, f"reads from tables, {heap}")
    rate = int(RATE_SHARE * throughput(results["writes"][STOCK]))

    def at_rate(system: System, number: int) -> load.Run:
        return load.run(system.node, KEYSPACE, tables.uniform("kv", all_partitions), seed=40 + number, reads_percent=RATE_READS_PERCENT, in_flight=512,
                        rate=rate, warmup_seconds=1, seconds=plan.rate_seconds)

    results["at a rate"] = interleaved(systems, plan.rounds, at_rate, progress, f"{rate:,}/s, {heap}")
    return results


def times_of_threads(systems: list[System]) -> dict[str, dict[str, float]]:
    return {system.name: thread_times.seconds_by_kind(system.node.pid) for system in systems}


def threads_of_writes(systems: list[System], before: dict[str, dict[str, float]], writes: int, what: str) -> Table:
    """Which threads of each node took the processor time of its writes."""
    rows = []
    for system in systems:
        used = thread_times.between(before[system.name], thread_times.seconds_by_kind(system.node.pid))
        rows += [[system.name, kind, 1e6 * seconds / writes] for kind, seconds in list(used.items())[:THREADS_SHOWN]]
    return Table(f"CPU of threads, {what}", ["system", "threads", "µs of a write"], rows)


def judge(outcome: Outcome, results: dict[str, dict[str, list[load.Run]]], heap_mb: int) -> None:
    heap = f"{heap_mb} MiB of heap"
    outcome.tables.append(table(f"Medians (least–greatest), {heap}", results))
    writes, rated = results["writes"], results["at a rate"]

    def bar(what: str, system: str, ratio: float, limit: float) -> None:
        outcome.bars.append(Bar(f"{what} ÷ the best stock memtable's, {system}, {heap}", ratio, "<=", limit))

    def cpu_ratio(name: str, system: str) -> float:
        return cpu(results[name][system]) / cpu(results[name][STOCK])

    for system, collecting, writing in ((MEMTABLE, 0.3, 0.95), (STORAGE, 0.2, 0.6)):
        bar("GC pauses per sustained write", system, gc(writes[system]) / max(gc(writes[STOCK]), 1e-12), collecting)
        bar("CPU per sustained write", system, cpu_ratio("writes", system), writing)
        bar("p99.9 at the rate", system, percentile(rated[system], "p999") / percentile(rated[STOCK], "p999"), 0.5)
    bar("CPU per read from memory", MEMTABLE, cpu_ratio("reads", MEMTABLE), 1.1)
    bar("CPU per read from tables", STORAGE, cpu_ratio("reads from tables", STORAGE), 0.8)
    outcome.plots += [throughput_plot(f"sustained writes, {heap}", writes), latency_plot(f"at the rate, {heap}", rated)]


def gc(runs: list[load.Run]) -> float:
    """Seconds of pauses for each operation, of all rounds together: a round may have none."""
    return sum(run.gc_seconds for run in runs) / sum(run.report["operations"] for run in runs)


def durable(plan: Plan, outcome: Outcome) -> None:
    """Durable writes of the engine, beside those of Cassandra and beside writes that its
    periodic log does not wait for."""
    kinds = {"batch": (STOCK, {"sync": "batch"}), "periodic": (STOCK, {"sync": "periodic"}), STORAGE: (STORAGE, {"sync": "batch", "plugin": JAR})}
    with ExitStack() as nodes:
        systems = [System(name, nodes.enter_context(start(HEAP_MB, **settings)), KEYSPACE) for name, (_, settings) in kinds.items()]
        for system in systems:
            tables.make(system.node, KEYSPACE, {"kv": tables.KEY_VALUE + WITH[kinds[system.name][0]]})
            time.sleep(SETTLE_SECONDS)
            load.run(system.node, KEYSPACE, tables.uniform("kv", plan.in_memory), seed=9, in_flight=DURABLE_CLIENTS, warmup_seconds=plan.warmup, seconds=0.5)
        progress = Progress("cassandra, durable", len(systems) * plan.rounds)
        before = times_of_threads(systems)
        results = interleaved(systems, plan.rounds, lambda system, number: load.run(
            system.node, KEYSPACE, tables.uniform("kv", plan.in_memory), seed=50 + number, in_flight=DURABLE_CLIENTS,
            operations=plan.durable_writes), progress, "durable writes")
        outcome.tables.append(threads_of_writes(systems, before, plan.rounds * plan.durable_writes, "durable writes"))
        progress.end()
    outcome.tables.append(table(f"Durable writes of {DURABLE_CLIENTS} clients, {HEAP_MB} MiB of heap", {"writes": results}))
    ours = throughput(results[STORAGE])
    outcome.bars += [Bar("durable writes of 64 clients, mode storage ÷ Cassandra's batch", ours / throughput(results["batch"]), ">=", 2.0),
                     Bar("durable writes of 64 clients, mode storage ÷ Cassandra's periodic", ours / throughput(results["periodic"]), ">=", 0.9)]


def memory_of_rows(outcome: Outcome) -> None:
    """Bytes of a buffered row, on the heap and outside of it, after full collections (HeapPerRow.java)."""
    rows, classes = [], {1: [], 100: []}
    with tempfile.TemporaryDirectory() as directory:
        compile_java(Path(directory))
        for allocation in ("heap_buffers", "offheap_objects"):
            for of_a_partition in classes:
                printed = heap_per_row(Path(directory), allocation, of_a_partition)
                rows += [[allocation, *row] for row in bytes_of_rows(printed, of_a_partition)]
                classes[of_a_partition] += [(f"{allocation}, {memtable}", name, taken) for memtable, name, taken in bytes_of_classes(printed)]
    outcome.tables.append(Table(f"Bytes of a row of five columns, {HEAP_PER_ROW_ROWS:,} rows",
                                ["allocation", "memtable", "rows of a partition", "heap", "outside", "together"], rows))
    outcome.tables += [table_of_classes(of_a_partition, found) for of_a_partition, found in classes.items()]
    for of_a_partition in (1, 100):
        of_this = [row for row in rows if row[2] == of_a_partition]
        ours = next(row for row in of_this if row[1] == "ours")
        stock = min(row[5] for row in of_this if row[1] != "ours")
        outcome.bars += [Bar(f"heap of a buffered row, mode memtable, {of_a_partition} in a partition, bytes", ours[3], "<=", 16),
                         Bar(f"rows of a GiB ÷ the best stock memtable's, {of_a_partition} in a partition ({GIB / ours[5]:,.0f} rows)",
                             stock / ours[5], ">=", 3)]


def compile_java(directory: Path) -> None:
    subprocess.run(["javac", "-nowarn", "-d", directory / "classes", "-cp", f"{JAR}:{places.CASSANDRA / 'lib'}/*",
                    *sorted(HEAP_PER_ROW.glob("espalier/*/*.java"))], check=True)


def heap_per_row(directory: Path, allocation: str, of_a_partition: int) -> str:
    """The output of HeapPerRow.java."""
    oracle.write_configuration(directory, *places.free_ports(3), False)
    configuration = directory / "cassandra.yaml"
    configuration.write_text(configuration.read_text().replace("memtable_allocation_type: offheap_objects", f"memtable_allocation_type: {allocation}"))
    command = ["java", *oracle.java_flags(HEAP_PER_ROW_HEAP_MB, [JAR, directory / "classes"]), f"-Dcassandra.config=file://{configuration}", f"-Dcassandra.storagedir={directory}",
               f"-Dlogback.configurationFile=file://{oracle.HERE}/logback.xml", "espalier.proof.HeapPerRow", str(HEAP_PER_ROW_ROWS), str(of_a_partition)]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=600).stdout


def bytes_of_rows(printed: str, of_a_partition: int) -> list[list]:
    """The memtable, the rows of a partition, and the bytes of a row: on the heap, outside, together."""
    found = re.findall(r"^(skip list|trie|ours), .*?: (-?[\d.]+) bytes of heap for each row, ([\d.]+) outside", printed, re.MULTILINE)
    return [[memtable, of_a_partition, float(heap), float(outside), float(heap) + float(outside)] for memtable, heap, outside in found]


def bytes_of_classes(printed: str) -> list[tuple[str, str, float]]:
    """A memtable, a class of objects, and the bytes of them on the heap for each row."""
    found = re.findall(r"^  (skip list|trie|ours), (\S+): ([\d.]+) bytes of a row$", printed, re.MULTILINE)
    return [(memtable, name, float(taken)) for memtable, name, taken in found]


def table_of_classes(of_a_partition: int, found: list[tuple[str, str, float]]) -> Table:
    """The classes that take most, each with its bytes in every kind of memtable."""
    kinds = list(dict.fromkeys(kind for kind, _, _ in found))
    taken = {(kind, name): size for kind, name, size in found}
    largest: dict[str, float] = {}
    for _, name, size in found:
        largest[name] = max(size, largest.get(name, 0.0))
    names = sorted(largest, key=lambda name: -largest[name])[:CLASSES]
    rows = [[name, *(taken.get((kind, name), 0.0) for kind in kinds)] for name in names]
    return Table(f"Bytes of heap of a row by class, partitions of {of_a_partition}", ["class", *kinds], rows)
