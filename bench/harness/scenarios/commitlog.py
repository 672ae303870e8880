"""The cost of durability: the log alone beside the raw device, then over CQL, each server with its log off, periodic,
in groups, in batches and (ours) each write by itself, Cassandra with both kinds of segments, for 1 to 256 clients and
records of 100 B, 1 KB and 4 KB; and how soon a log is replayed."""

import re
import shutil
from contextlib import ExitStack
from dataclasses import dataclass

from bench.harness import in_process, load
from bench.harness.length import Length
from bench.harness.outcome import Bar, Outcome, Plot, Table, median, number, spread
from bench.harness.rounds import Progress, System, best, interleaved, latency_plot, percentile, table, throughput
from bench.harness.scenarios import start as starting
from bench.harness.scenarios import tables
from bench.harness.servers import Cassandra, Espalier
from bench.harness.session import Session
from proof import places

# Seven of Cassandra run side by side.
HEAP_MB = 1024
MEMTABLE_MB = 512
GIB = 1 << 30


@dataclass
class Record:
    """The content of a write. The issue's orientation had 80 B, the paper 10 fields of 100 B."""

    name: str
    table: str
    fields: int
    value_bytes: int
    partitions: int

    def load(self) -> dict:
        return tables.uniform(self.table, self.partitions, self.value_bytes, self.fields)


RECORDS = [Record("100 B", "kv", 1, 100, 100_000), Record("1 KB", "fields10", 10, 100, 30_000), Record("4 KB", "large", 1, 4096, 8_000)]
JUDGED = "100 B"


@dataclass
class Plan:
    # Record, clients, rounds.
    points: list[tuple[Record, int, int]]
    seconds: float
    settling_seconds: float
    warmup_seconds: float
    alone_rounds: int
    alone_seconds: float
    replayed_bytes: int

    @property
    def records(self) -> list[Record]:
        return list({record.name: record for record, _, _ in self.points}.values())


SMALL = RECORDS[0]
FEW, FEWEST = (Record("100 B", "kv", 1, 100, partitions) for partitions in (20_000, 5_000))
PLANS = {
    # Runs with a bar have more rounds.
    Length.FULL: Plan([(SMALL, 64, 5), (SMALL, 256, 5), (SMALL, 1, 2), (SMALL, 8, 2), (RECORDS[1], 64, 2), (RECORDS[2], 64, 2)],
                      0.8, 0.2, 6, 5, 0.4, GIB),
    Length.SHORT: Plan([(FEW, 64, 5)], 0.7, 0.2, 1.5, 1, 0.15, 32 << 20),
    Length.SMOKE: Plan([(FEWEST, 64, 1)], 0.5, 0.2, 0.7, 1, 0.05, 16 << 20),
}
# Cassandra's kinds of log, each with whether segments are written directly, and ours.
KINDS = {
    Length.FULL: ([(sync, direct) for sync in ("periodic", "group", "batch") for direct in (False, True)], ("periodic", "group", "batch", "each")),
    Length.SHORT: ([("periodic", False), ("group", False), ("batch", True)], ("periodic", "group", "batch", "each")),
    Length.SMOKE: ([("periodic", False), ("batch", True)], ("periodic", "batch")),
}
# The number of partitions of each run that are read back. It is small, since there are hundreds of runs.
CHECKED = 1_000


def run(session: Session) -> Outcome:
    plan = PLANS[session.length]
    alone = figures_alone(plan)
    replayed = ready_after_crash(plan)
    with ExitStack() as stack:
        systems, settings = start(stack, session.length)
        progress = Progress("commitlog", len(systems) * (1 + sum(rounds for _, _, rounds in plan.points)))
        for system in systems:
            progress.step(f"{system.name}: filling and warming up")
            for record in plan.records:
                tables.fill(system.node, system.keyspace, record.table, record.partitions, record.value_bytes, fields=record.fields)
                load.run(system.node, system.keyspace, record.load(), seed=9, warmup_seconds=plan.warmup_seconds / len(plan.records), seconds=0.3)
        results = {}
        for record, count, rounds in plan.points:
            def one(system: System, round_number: int) -> load.Run:
                return load.run(system.node, system.keyspace, record.load(), seed=20 + round_number, in_flight=count, check=CHECKED,
                                connections=min(2, count), warmup_seconds=plan.settling_seconds, seconds=plan.seconds)
            what = f"{record.name}, {count} clients"
            results[what] = interleaved(systems, rounds, one, progress, what)
        progress.end()
    outcome = Outcome("commitlog", settings={
        "load": "writes, closed loop; " + "; ".join(f"{record.name}: {record.fields} × {record.value_bytes} B over {record.partitions:,} partitions"
                                                    for record in plan.records),
        "rounds": f"of {plan.seconds} s, interleaved, after {plan.warmup_seconds} s of warming up: " +
                  ", ".join(f"{record.name} with {count} clients {rounds}" for record, count, rounds in plan.points), **settings})
    judge_alone(outcome, alone)
    judge_replay(outcome, replayed)
    return judge(outcome, results)


def figures_alone(plan: Plan) -> dict[tuple[str, str], list[float]]:
    """The log in process: figures by row and name."""
    progress, figures = Progress("commitlog", plan.alone_rounds), {}
    for _ in range(plan.alone_rounds):
        progress.step("the log in process")
        directory = places.run_directory("bench-commitlog")
        try:
            said = in_process.figures([in_process.binary("commitlog"), directory, plan.alone_seconds])
        finally:
            shutil.rmtree(directory, ignore_errors=True)
        for figure in said:
            figures.setdefault((figure["row"], figure["figure"]), []).append(figure["value"])
    progress.end()
    return figures


def judge_alone(outcome: Outcome, figures: dict[tuple[str, str], list[float]]) -> None:
    outcome.tables.append(Table("The log in process; medians (least–greatest)", ["row", "figure", "median"],
                                [[row, figure, spread(values)] for (row, figure), values in figures.items()]))

    def value(row: str, figure: str) -> float:
        return median(figures[row, figure])

    def raw(size_bytes: int) -> float:
        """The device itself, by the better of both system calls, p50."""
        return min(value(f"raw, {way}{size_bytes} B", "p50 µs") for way in ("pwritev2 of ", "ring of 1, "))

    woken = value("waking a thread", "p50 µs")
    for size in (100, 1024):        # one block with its header; 4 KB take two
        outcome.bars.append(Bar(f"durable append of 1 writer of {size} B less two wake-ups ({woken:.0f} µs each) ÷ the raw write ({raw(4096):.0f} µs), p50",
                                (value(f"batch, 1 writer of {size} B", "p50 µs") - 2 * woken) / raw(4096), "<=", 1.2))
        outcome.bars.append(Bar(f"durable append of {size} B by a writer that writes it itself, as a connection does ÷ the raw write ({raw(4096):.0f} µs), p50",
                                value(f"batch, 1 writer of {size} B itself", "p50 µs") / raw(4096), "<=", 1.2))
    for outstanding, batch_bytes in ((64, 64 << 10), (1024, 1 << 20)):
        off = f"off, {outstanding} outstanding of 1 KB"
        limit = min(value(off, "operations/s"), outstanding / (1.5 * raw(batch_bytes) / 1e6))
        # Waiting as a connection of the server does, and as tasks that have a waker each.
        for row, waiters in ((f"batch, {outstanding} outstanding of 1 KB, one waiter", "one waiter"),
                             (f"batch, {outstanding} outstanding of 1 KB", "each with its waker")):
            what = f"{outstanding} outstanding, {waiters}"
            outcome.bars.append(Bar(f"CPU of batch above off, {what}, µs/op", value(row, "CPU µs/op") - value(off, "CPU µs/op"), "<=", 1))
            outcome.bars.append(Bar(f"writes/s of batch ÷ what the device allows ({number(limit)}/s), {what}",
                                    value(row, "operations/s") / limit, ">=", 0.9))


@dataclass
class Replayed:
    """A start after kill -9."""

    written_bytes: int
    # From exec to the first rows.
    seconds: float
    # As the start says itself: read, checked and in memtables.
    mutations: int
    replay_seconds: float

    @property
    def rate(self) -> float:
        return self.mutations / self.replay_seconds


def ready_after_crash(plan: Plan) -> Replayed:
    """Nothing is flushed before the kill."""
    progress = Progress("commitlog", 2)
    with Espalier.start(memtable_mb=4096, memtable_cleanup_threshold="1.0", commitlog_total_space="4096MiB") as node:
        progress.step("filling a log")
        tables.make(node, "bench", {"kv": tables.KEY_VALUE})
        first = 0
        while written_bytes(node) < plan.replayed_bytes:
            tables.fill(node, "bench", "kv", 100_000, first=first)
            first += 100_000
        written = written_bytes(node)
        progress.step("replaying it")
        seconds = starting.restart(node, "SELECT key FROM bench.kv LIMIT 1")
        mutations, millis = replay_line(node)
        load.run(node, "bench", tables.uniform("kv", first), seed=8, reads_percent=100, operations=5_000)
    progress.end()
    return Replayed(written, seconds, mutations, max(1, millis) / 1000)


def replay_line(node: Espalier) -> tuple[int, int]:
    """Mutations, and milliseconds, of the last start that replayed any."""
    lines = [line for line in node.log_tail().splitlines() if "the commit log was replayed" in line]
    fields = dict(re.findall(r"(mutations|millis)=(\d+)", lines[-1]))
    return int(fields["mutations"]), int(fields["millis"])


def written_bytes(node: Espalier) -> int:
    lines = (line.split(":", 1) for line in node.steer("status").splitlines())
    return next(int(value) for name, value in lines if name.strip() == "CommitLog.WrittenBytes")


def judge_replay(outcome: Outcome, replayed: Replayed) -> None:
    """A small log has no bar: most of the time is that of the start itself."""
    outcome.tables.append(Table("From exec to the first rows after kill -9, and of that the replay as the start's line says",
                                ["system", "log MiB", "s", "mutations", "replay s", "M mutations/s"],
                                [["espalier", replayed.written_bytes / 2**20, replayed.seconds, replayed.mutations, replayed.replay_seconds,
                                  replayed.rate / 1e6]]))
    if replayed.written_bytes >= GIB:
        outcome.bars.append(Bar("1 GiB of log ready for queries, s", replayed.seconds * GIB / replayed.written_bytes, "<=", 3))
        outcome.bars.append(Bar("replay of 100 B as a start does it, M mutations/s", replayed.rate / 1e6, ">=", 1))


def start(stack: ExitStack, length: Length) -> tuple[list[System], dict]:
    """Without a log, a keyspace of the periodic node is used, whose writes skip the log."""
    systems, settings = [], {}
    made = {"kv": tables.KEY_VALUE, "fields10": tables.with_fields(10), "large": tables.KEY_VALUE}

    def serve(name: str, node, off: str | None = None) -> None:
        tables.make(node, "durable", made)
        systems.append(System(name, node, "durable"))
        settings[name] = node.settings
        if off:
            tables.make(node, "off", made, durable=False)
            systems.append(System(off, node, "off"))

    memory = {"heap_mb": HEAP_MB, "memtable_mb": MEMTABLE_MB}
    theirs, ours = KINDS[length]
    for sync, direct in theirs:
        node = stack.enter_context(Cassandra.start(sync=sync, direct_log=direct, **memory))
        serve(f"cassandra {sync}, {'direct' if direct else 'mmap'}", node, "cassandra off" if (sync, direct) == ("periodic", False) else None)
    for sync in ours:
        node = stack.enter_context(Espalier.start(sync=sync, memtable_mb=MEMTABLE_MB))
        serve(f"espalier {sync}", node, "espalier off" if sync == "periodic" else None)
    return systems, settings


def judge(outcome: Outcome, results: dict) -> Outcome:
    outcome.tables.append(table("Medians (least–greatest)", results))
    ratios = []
    for name, by_system in results.items():
        # Cassandra's better kind of segments.
        batch, theirs, periodic = (by_system[system] for system in (
            "espalier batch", best(by_system, "cassandra batch"), best(by_system, "cassandra periodic")))
        of_off = throughput(batch) / throughput(by_system["espalier off"])
        of_batch, of_periodic = throughput(batch) / throughput(theirs), throughput(batch) / throughput(periodic)
        of_p99 = percentile(batch, "p99") / percentile(theirs, "p99")
        client = sorted(run.client_cpu_micros + run.cpu_micros for run in batch)[len(batch) // 2]
        left = 0.9 * load.CORES * 1e6 / client / throughput(theirs)
        ratios.append([name, "batch", of_off, of_batch, left, of_periodic, of_p99])
        if name.startswith(JUDGED):
            bars(outcome, name, of_off, of_batch, min(4.0, left), of_periodic, of_p99, client)
        outcome.plots.append(latency_plot(name, by_system))
    outcome.tables.append(Table("Ratios of Espalier's batch", ["load", "system", "÷ off", "÷ Cassandra's batch", "90 % of what the client leaves",
                                                               "÷ Cassandra's periodic", "p99 ÷ Cassandra's batch"], ratios))
    for record in {name.split(",")[0] for name in results}:
        series = {}
        for name, by_system in results.items():
            if name.startswith(f"{record},"):
                for system, runs in by_system.items():
                    series.setdefault(system, []).append((int(name.split()[-2]), throughput(runs)))
        outcome.plots.insert(0, Plot(f"Writes of {record} per second by clients", "clients", "operations/s", series, x_logarithmic=True))
    return outcome


def bars(outcome: Outcome, name: str, of_off: float, of_batch: float, wanted: float, of_periodic: float, of_p99: float, cost: float) -> None:
    clients = int(name.split()[-2])
    if clients == 256:
        outcome.bars.append(Bar(f"batch ÷ off, {name}", of_off, ">=", 0.9))
    if clients in (64, 256):
        outcome.bars.append(Bar(f"batch ÷ Cassandra's batch, {name} (client and server cost {cost:.1f} µs/op)", of_batch, ">=", wanted))
        outcome.bars.append(Bar(f"batch ÷ Cassandra's periodic, {name}", of_periodic, ">=", 2))
    if clients == 64:
        outcome.bars.append(Bar(f"p99 of a durable write ÷ Cassandra's batch, {name}", of_p99, "<=", 0.25))
