"""The tables and figures of *Optimized Durable Commitlog for Apache Cassandra Using CAPI-Flash*, as far as one
disk allows: its settings also move log and data between devices, which is left out. Records are the paper's, 10
fields of 100 B, unless varied.

Table I: every kind of log. Table II: windows of grouped writes. Figure 5: length of a field. Figure 6: number of
fields; and without flushes. Figure 7: shares of reads, of partitions chosen by Zipf's law."""

from contextlib import ExitStack
from dataclasses import dataclass

from bench.harness import load
from bench.harness.length import Length
from bench.harness.outcome import Bar, Outcome, Plot, Table, median, spread
from bench.harness.rounds import Progress, System, interleaved, throughput
from bench.harness.scenarios import commitlog, tables
from bench.harness.servers import Cassandra, Espalier
from bench.harness.session import Session

# Bytes of records in a table: they stay in memory.
TABLE_BYTES = 12 << 20
HEAP_MB, MEMTABLE_MB = 1024, 512
CLIENTS = 64
# The paper's twelve settings combine kinds of log with the devices of log and data. Rows are named by the kind, because
# settings that differ only in devices are the same here.
SETTINGS = [
    ["no log", "cassandra off, espalier off", "yes"],
    ["Cassandra's log, synced by the clock", "cassandra periodic (both kinds of segment files), espalier periodic", "yes"],
    ["Cassandra's log, synced for each batch", "cassandra batch (both kinds), with windows cassandra group and espalier group: Table II", "yes"],
    ["the paper's log, past the page cache, durable when acknowledged", "espalier batch; espalier each, every write by itself", "yes, on this disk and not on a flash card of its own"],
    ["each of these with the log on another device than the data", "none", "no: there is one disk"],
    ["each of these with the data on a slower or a faster device", "none", "no: there is one disk; data stay in memtables here but for the table Without flushes"],
]
COLUMNS = ["setting", "system", "operations/s", "CPU µs/op", "p50 µs", "p99 µs"]


@dataclass
class Plan:
    # Of the tables, and of a figure's points.
    rounds: int
    figure_rounds: int
    seconds: float
    warmup_seconds: float
    windows_ms: tuple[int, ...]
    lengths: tuple[int, ...]
    counts: tuple[int, ...]
    reads_percent: tuple[int, ...]
    # Where a server is started for every point.
    kinds_started: tuple


PLANS = {
    Length.FULL: Plan(5, 2, 1, 4, (1, 2, 5, 10, 20), (10, 100, 500, 1000), (1, 10, 20, 50), (0, 20, 50, 80, 95), (Cassandra, Espalier)),
    Length.SHORT: Plan(1, 1, 0.5, 1, (2, 10), (10, 500), (1, 20), (0, 50, 95), (Espalier,)),
}
# It is not among the five minutes' scenarios.
PLANS[Length.SMOKE] = PLANS[Length.SHORT]


@dataclass
class Shape:
    """A table's records."""

    fields: int
    value_bytes: int

    @property
    def table(self) -> str:
        return f"f{self.fields}x{self.value_bytes}"

    @property
    def partitions(self) -> int:
        return max(1000, TABLE_BYTES // (self.fields * self.value_bytes + 50))

    def made(self) -> dict[str, str]:
        return {self.table: tables.with_fields(self.fields)}


PAPER = Shape(10, 100)


def run(session: Session) -> Outcome:
    plan = PLANS[session.length]
    outcome = Outcome("commitlog-paper", settings={
        "load": f"{CLIENTS} clients, closed loop; records of {PAPER.fields} × {PAPER.value_bytes} B unless varied",
        "rounds": f"{plan.rounds} (figures {plan.figure_rounds}) of {plan.seconds} s, interleaved"})
    outcome.tables.append(Table("Table I, settings S1 to S12 by what they vary", ["the paper's settings", "rows here", "measured"], SETTINGS))
    with ExitStack() as stack:
        systems, settings = commitlog.start(stack, Length.FULL if session.length is Length.FULL else Length.SHORT)
        outcome.settings |= settings
        table_1(outcome, systems, plan)
        compared = [system for system in systems if system.name in ("cassandra batch, direct", "cassandra off", "espalier batch", "espalier off")]
        figure(outcome, compared, plan, "Figure 5, length of a field", "bytes",
               [(length, Shape(10, length), 0) for length in plan.lengths])
        figure(outcome, compared, plan, "Figure 6, number of fields", "fields", [(count, Shape(count, 100), 0) for count in plan.counts])
        figure(outcome, compared, plan, "Figure 7, reads among writes (Zipf's law)", "% reads", [(share, PAPER, share) for share in plan.reads_percent])
    table_2(outcome, plan)
    without_flushes(outcome, plan)
    return outcome


def measure(system: System, shape: Shape, plan: Plan, seed: int, reads_percent: int = 0, zipf: bool = False) -> load.Run:
    choose = tables.zipfian if zipf else tables.uniform
    return load.run(system.node, system.keyspace, choose(shape.table, shape.partitions, shape.value_bytes, shape.fields), seed=seed,
                    in_flight=CLIENTS, reads_percent=reads_percent, check=commitlog.CHECKED, warmup_seconds=0.2, seconds=plan.seconds)


def prepare(system: System, shape: Shape, plan: Plan) -> None:
    """Fills the table, and warms the server up."""
    for template in shape.made().values():
        tables.servers.execute(system.node, template.replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS").format(
            keyspace=system.keyspace, table=shape.table))
    tables.fill(system.node, system.keyspace, shape.table, shape.partitions, shape.value_bytes, fields=shape.fields)


def rows(setting: str, results: dict[str, list[load.Run]]) -> list[list]:
    return [[setting, system, spread([run.throughput for run in runs]), spread([run.cpu_micros for run in runs]),
             median([run.latency("p50") for run in runs]), median([run.latency("p99") for run in runs])] for system, runs in results.items()]


def table_1(outcome: Outcome, systems: list[System], plan: Plan) -> None:
    progress = Progress("commitlog-paper, Table I", len(systems) * (1 + plan.rounds))
    for system in systems:
        progress.step(f"{system.name}: filling and warming up")
        prepare(system, PAPER, plan)
        load.run(system.node, system.keyspace, tables.uniform(PAPER.table, PAPER.partitions, PAPER.value_bytes, PAPER.fields), seed=9,
                 warmup_seconds=plan.warmup_seconds, seconds=0.2)
    results = interleaved(systems, plan.rounds, lambda system, n: measure(system, PAPER, plan, 20 + n), progress, "Table I")
    progress.end()
    best = {side: max(throughput(runs) for name, runs in results.items() if name == f"{side} off") for side in ("cassandra", "espalier")}
    outcome.tables.append(Table("Table I, kinds of log on one disk", [*COLUMNS, "÷ its off", "÷ Cassandra's off"], [
        [*row, throughput(results[row[1]]) / best[row[1].split()[0]], throughput(results[row[1]]) / best["cassandra"]]
        for row in rows("writes", results)]))
    outcome.bars.append(Bar("durable ÷ not, ours (the paper's: 0.86)", throughput(results["espalier batch"]) / best["espalier"], ">=", 0.86))


def figure(outcome: Outcome, systems: list[System], plan: Plan, title: str, label: str, points: list[tuple[int, Shape, int]]) -> None:
    """`points`: x, the records, and the share of reads in percent."""
    progress = Progress(f"commitlog-paper, {title}", len(points) * len(systems) * (1 + plan.figure_rounds))
    shown, series = [], {system.name: [] for system in systems}
    for x, shape, reads_percent in points:
        for system in systems:
            progress.step(f"{label} {x}: filling {system.name}")
            prepare(system, shape, plan)
        zipf = "Zipf" in title
        results = interleaved(systems, plan.figure_rounds, lambda system, n: measure(system, shape, plan, 40 + n, reads_percent, zipf), progress, f"{label} {x}")
        shown += rows(f"{x} {label}", results)
        for name, runs in results.items():
            series[name].append((x, throughput(runs)))
        for system in systems if shape != PAPER else []:
            tables.servers.execute(system.node, f"TRUNCATE {system.keyspace}.{shape.table}")
    progress.end()
    outcome.tables.append(Table(title, COLUMNS, shown))
    outcome.plots.append(Plot(title, label, "operations/s", series, recorded=True))


def table_2(outcome: Outcome, plan: Plan) -> None:
    """One server at a time: a window is set at the start."""
    windows = [(f"{milliseconds}ms", kind) for milliseconds in plan.windows_ms for kind in plan.kinds_started]
    progress, shown, series = Progress("commitlog-paper, Table II", len(windows)), [], {}
    for window, kind in windows:
        progress.step(f"{kind.name}, {window}")
        more = {"group_window": window, "heap_mb": HEAP_MB} if kind is Cassandra else {"commitlog_sync_group_window": window}
        with kind.start(sync="group", memtable_mb=MEMTABLE_MB, **more) as node:
            system = System(f"{kind.name} group", node, "durable")
            tables.make(node, "durable", PAPER.made())
            prepare(system, PAPER, plan)
            runs = [measure(system, PAPER, plan, 60 + n) for n in range(1 + plan.rounds)][1:]
        shown += rows(window, {system.name: runs})
        series.setdefault(system.name, []).append((int(window[:-2]), throughput(runs)))
    progress.end()
    outcome.tables.append(Table("Table II, windows of grouped writes", COLUMNS, shown))
    outcome.plots.append(Plot("Table II, windows of grouped writes", "ms", "operations/s", series, recorded=True))


def without_flushes(outcome: Outcome, plan: Plan) -> None:
    """New records all the time, into memtables that are flushed repeatedly, and into
    memtables that are never flushed."""
    progress, shown = Progress("commitlog-paper, without flushes", 2 * len(plan.kinds_started)), []
    for kind in plan.kinds_started:
        for what, memtable_mb in (("flushing", 32), ("no flush", 2048)):
            progress.step(f"{kind.name}, {what}")
            more = {"heap_mb": 2048} if kind is Cassandra else {}
            with kind.start(sync="batch", memtable_mb=memtable_mb, **more) as node:
                tables.make(node, "durable", PAPER.made())
                runs = [load.run(node, "durable", tables.inserting(PAPER.table, n << 32, PAPER.value_bytes, PAPER.fields), seed=70 + n,
                                 in_flight=CLIENTS, warmup_seconds=plan.warmup_seconds / 2, seconds=plan.seconds) for n in range(plan.rounds)]
                shown += rows(what, {f"{kind.name} batch": runs})
    progress.end()
    outcome.tables.append(Table("Without flushes", COLUMNS, shown))
