"""Rows of 10, 50 and 100 columns, plain and as a frozen UDT, after *Impacts of many columns in a Cassandra table*.
A quarter of an hour, a third of it for filling.

Reads are from memory first, and from tables after a flush. A read takes the newest 20 rows of a partition, every column
listed or `*`; a write makes a new row. Half and half at a fixed rate shows what waiting costs."""

from contextlib import ExitStack
from dataclasses import dataclass

from bench.harness import load, servers
from bench.harness.length import Length
from bench.harness.outcome import Bar, Outcome, Plot, Table, median
from bench.harness.rounds import Progress, System, best, cpu, interleaved, latency_plot, percentile, table, throughput, whose
from bench.harness.scenarios import tables
from bench.harness.servers import TWO_THREADS, Cassandra
from bench.harness.session import Session

KEYSPACE = "columns"
# Columns and the characters of each: about the same bytes in a row.
SHAPES = ((10, 150), (50, 30), (100, 15))
KINDS = [(columns, size, udt) for columns, size in SHAPES for udt in (False, True)]
# The rows that the bars are about.
BARRED = [(10, 150, False), (100, 15, False), (100, 15, True)]
# Our writes are compared with those of Cassandra with these settings, with the better of the two; its reads cost the
# same with both. A Cassandra that is only written to needs less memory.
COMPARED = (100, 15, False)
ONLY_WRITES = {"heap_mb": 3072, "memtable_mb": 1024}
# On average: partitions are written at random, and one in fifty gets fewer than the 20 that a read takes.
ROWS_EACH = 30
PARTITIONS = 10_000
# Room for the tables that are read, and their log: they must not be flushed, which by default the largest is when a
# third of the room is taken. Cassandra has a part of them on its heap.
SPACE = {"memtable_mb": 8192, "memtable_cleanup_threshold": "0.9", "commitlog_total_space": "24GiB"}
HEAP_MB = 8192
CASSANDRA_SHARE = 0.5
READ_LIMITS = {"memory": 1.5, "tables": 2.0}


@dataclass(frozen=True)
class Plan:
    partitions: int
    rounds: int
    seconds: float
    warmup: float
    kinds: list[tuple]
    # Of Cassandra, for writes.
    others: dict[str, dict]


PLANS = {
    Length.FULL: Plan(PARTITIONS, 5, 0.8, 2, KINDS, TWO_THREADS),
    Length.SHORT: Plan(100, 5, 0.3, 1, BARRED, TWO_THREADS),
    Length.SMOKE: Plan(100, 1, 0.3, 0.4, BARRED, {}),
}


class Loads:
    """The loads of this scenario, on both systems."""

    def __init__(self, systems: list[System], partitions: int, rounds: int, seconds: float, progress: Progress):
        self.systems, self.partitions, self.rounds, self.seconds, self.progress = systems, partitions, rounds, seconds, progress
        self.results: dict[str, dict[str, list[load.Run]]] = {}

    def run(self, name: str, kind: tuple, reads_percent: int, listed: bool = True, systems: list[System] | None = None, **more) -> None:
        what = "writes" if reads_percent < 100 else "reads"

        def one(system: System, round_number: int) -> load.Run:
            # The rows of a run are newer than those of the run before. Partitions that are only read are not written
            # any more.
            return load.run(system.node, KEYSPACE, workload(what, self.partitions, kind, listed), seed=100 + len(self.results) * 10 + round_number,
                            reads_percent=reads_percent, **{"in_flight": 64, "warmup_seconds": 0.2, "seconds": self.seconds, **more})
        name = f"{name}, {name_of(kind)}"
        self.results[name] = interleaved(systems or self.systems, self.rounds, one, self.progress, name)

    def reads(self, where: str, kinds: list[tuple]) -> None:
        for kind in kinds:
            self.run(f"reads, {where}", kind, 100)
        # The bar of rows that are copied as a whole is about Espalier alone.
        for kind in BARRED:
            self.run(f"reads of *, {where}", kind, 100, listed=False, systems=self.systems[1:])


def run(session: Session) -> Outcome:
    plan = PLANS[session.length]
    partitions, rounds, kinds = plan.partitions, plan.rounds, plan.kinds
    with session.pair(KEYSPACE, {"heap_mb": HEAP_MB, **SPACE}, SPACE) as systems:
        progress = Progress("columns", 2 * len(kinds) + rounds * (4 * 2 * len(kinds) + 4 * len(BARRED) + len(plan.others)))
        held = []
        for system in systems:
            make(system.node)
            for kind in kinds:
                progress.step(f"{system.name}: filling and warming up {name_of(kind)}")
                rows = fill(system.node, partitions, kind)
                held.append([system.name, name_of(kind), rows, sum(system.node.memtable_bytes(KEYSPACE, table_of("reads", kind))[:2]) / rows])
                warm_up(system.node, partitions, kind, plan.warmup)
        loads = Loads(systems, partitions, rounds, plan.seconds, progress)
        loads.reads("memory", kinds)
        for kind in BARRED:
            loads.run("reads at LOCAL_QUORUM, memory", kind, 100, systems=systems[1:], consistency="LOCAL_QUORUM")
        # Writes reuse segments of the log, as they do in steady operation. In a growing log every segment is written
        # twice.
        for system in systems:
            for kind in kinds:
                for what in ("reads", "writes"):
                    system.node.flush(KEYSPACE, table_of(what, kind))
        others = write_all(loads, plan)
        for kind in BARRED:
            loads.run("writes at LOCAL_QUORUM", kind, 0, systems=systems[1:], consistency="LOCAL_QUORUM")
        rate = steady_rate(loads.results)
        for kind in kinds:
            loads.run("half reads, fixed rate", kind, 50, in_flight=512, rate=rate)
        for row in held:
            system = next(system for system in systems if system.name == row[0])
            kind = next(kind for kind in kinds if name_of(kind) == row[1])
            row.append(disk_bytes(system.node, table_of("reads", kind)) / row[2])
        loads.reads("tables", kinds)
        progress.end()
        outcome = Outcome("columns", settings={
            "load": f"{partitions:,} partitions, {ROWS_EACH} rows each on average; reads take the newest 20 rows, writes a new row; "
                    "64 in flight over 2 connections, closed loop, consistency ONE where nothing else is said",
            "fixed rate": f"{rate:,}/s, open loop: {CASSANDRA_SHARE:.0%} of what Cassandra has processor time for at 100 columns",
            "rounds": f"{rounds} of {plan.seconds} s, interleaved, after {plan.warmup} s of warming up each table",
            **{system.name: system.node.settings for system in systems}, **others})
    return judge(outcome, loads.results, held, rate)


def write_all(loads: Loads, plan: Plan) -> dict[str, dict]:
    """Writes of every kind; the settings of those that are measured with `COMPARED` alone."""
    with ExitStack() as started:
        others = [System(name, started.enter_context(Cassandra.start(**few, **ONLY_WRITES)), KEYSPACE) for name, few in plan.others.items()]
        for system in others:
            make(system.node)
            # The others have been filled.
            warm_up(system.node, plan.partitions, COMPARED, 10 * plan.warmup, ("writes",))
        for kind in plan.kinds:
            loads.run("writes", kind, 0, systems=[*loads.systems, *others] if kind == COMPARED else None)
        return {system.name: system.node.settings for system in others}


def name_of(kind: tuple) -> str:
    columns, _, udt = kind
    return f"UDT of {columns}" if udt else f"{columns} columns"


def table_of(what: str, kind: tuple) -> str:
    columns, _, udt = kind
    return f"{what}_{'udt' if udt else 'plain'}_{columns}"


def make(node) -> None:
    tables.make(node, KEYSPACE, {})
    for columns, _ in SHAPES:
        names = ", ".join(f"c{place} text" for place in range(columns))
        servers.execute(node, f"CREATE TYPE {KEYSPACE}.fields_{columns} ({names})")
        for what in ("reads", "writes"):
            for udt, body in ((False, names), (True, f"fields frozen<fields_{columns}>")):
                servers.execute(node, f"CREATE TABLE {KEYSPACE}.{table_of(what, (columns, 0, udt))} (key bigint, row bigint, {body}, "
                                      "PRIMARY KEY (key, row)) WITH CLUSTERING ORDER BY (row DESC)")


def workload(what: str, partitions: int, kind: tuple, listed: bool = True) -> dict:
    columns, size, udt = kind
    return {"columns": {"table": table_of(what, kind), "columns": columns, "text_bytes": size, "udt": udt, "listed": listed,
                        "partitions": partitions}}


def fill(node, partitions: int, kind: tuple) -> int:
    """The rows written."""
    rows = ROWS_EACH * partitions
    load.run(node, KEYSPACE, workload("reads", partitions, kind), seed=7, in_flight=64, operations=rows)
    return rows


def warm_up(node, partitions: int, kind: tuple, warmup: float, loads: tuple[str, ...] = ("reads", "writes")) -> None:
    for what in loads:
        load.run(node, KEYSPACE, workload(what, partitions, kind), seed=9, reads_percent=100 if what == "reads" else 0, in_flight=64,
                 warmup_seconds=warmup / len(loads), seconds=0.3)


def disk_bytes(node, name: str) -> int:
    return sum(file.stat().st_size for data in node.sstables(KEYSPACE, name) for file in data.parent.glob(data.name.replace("Data.db", "*")))


def steady_rate(results: dict) -> int:
    """Operations per second, half of them reads, that Cassandra has processor time for beside the client."""
    costs = [median([run.cpu_micros + run.client_cpu_micros for run in results[f"{what}, 100 columns"]["cassandra"]])
             for what in ("reads, memory", "writes")]
    micros = sum(costs) / len(costs)
    return max(100, int(CASSANDRA_SHARE * load.CORES * 1e6 / micros) // 100 * 100)


def judge(outcome: Outcome, results: dict, held: list, rate: int) -> Outcome:
    outcome.tables += [table("Medians (least–greatest)", results),
                       Table("Bytes per row", ["system", "row", "rows", "memtable B/row", "disk B/row"], held)]
    ours = {name: by_system["espalier"] for name, by_system in results.items()}

    def bars(what: str, limit: float, beside_cassandra: bool) -> None:
        wide = cpu(ours[f"{what}, 100 columns"])
        outcome.bars.append(Bar(f"CPU per operation at 100 columns ÷ at 10, {what}", wide / cpu(ours[f"{what}, 10 columns"]), "<=", limit))
        outcome.bars.append(Bar(f"CPU per operation at 100 columns ÷ UDT of 100, {what}", wide / cpu(ours[f"{what}, UDT of 100"]), "<=", limit))
        if beside_cassandra:
            by_system = results[f"{what}, 100 columns"]
            outcome.bars.append(Bar(f"CPU per operation at 100 columns ÷ {whose(by_system)}, {what}", wide / cpu(by_system[best(by_system)]), "<=", 1 / 8))
    for where, limit in READ_LIMITS.items():
        bars(f"reads, {where}", limit, True)
        bars(f"reads of *, {where}", limit, False)
    bars("writes", 1.5, True)
    bars("reads at LOCAL_QUORUM, memory", 1.5, False)
    bars("writes at LOCAL_QUORUM", 1.5, False)
    p99 = {kind: percentile(ours[f"half reads, fixed rate, {kind}"], "p99") for kind in ("10 columns", "100 columns", "UDT of 100")}
    for kind in ("10 columns", "UDT of 100"):
        outcome.bars.append(Bar(f"p99 at {rate:,}/s at 100 columns ÷ {kind}", p99["100 columns"] / p99[kind], "<=", 1.25))
    sizes = {(system, kind): sizes for system, kind, _, *sizes in held}
    for place, what in enumerate(("memory", "disk")):
        wide, udt = (sizes["espalier", kind][place] for kind in ("100 columns", "UDT of 100"))
        outcome.bars.append(Bar(f"{what} per row at 100 columns ÷ UDT of 100", wide / udt, "<=", 1.15))
    for what in ("reads, memory", "writes", "reads, tables"):
        outcome.plots += [by_columns(f"CPU per operation, {what}", "µs", results, what, cpu),
                          by_columns(f"throughput, {what}", "operations/s", results, what, throughput)]
    for which in ("p50", "p99"):
        title = f"{which}, half reads, {rate:,}/s"
        outcome.plots.append(by_columns(title, "µs", results, "half reads, fixed rate", lambda runs, which=which: percentile(runs, which)))
    outcome.plots += [latency_plot(name, by_system) for name, by_system in results.items() if name.startswith("half reads")]
    return outcome


def by_columns(title: str, unit: str, results: dict, what: str, figure) -> Plot:
    """The article's plot: a figure over the number of columns, with one line for each system
    and each way to store a row."""
    series: dict[str, list] = {}
    for columns, size, udt in KINDS:
        for system, runs in results.get(f"{what}, {name_of((columns, size, udt))}", {}).items():
            series.setdefault(f"{system}, {'UDT' if udt else 'columns'}", []).append((columns, figure(runs)))
    return Plot(f"{title}, by columns", "columns", unit, series, y_logarithmic=True, recorded=True)
