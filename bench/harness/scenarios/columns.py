"""Rows of 10, 50 and 100 columns, plain and as a frozen UDT, after *Impacts of many columns in a Cassandra table*."""

from bench.harness import load, servers
from bench.harness.outcome import Bar, Outcome, Plot
from bench.harness.rounds import Progress, System, cpu, interleaved, table
from bench.harness.scenarios import tables
from bench.harness.servers import Cassandra, Espalier

KEYSPACE = "bench"
# Columns and the characters of each: about the same bytes in a row.
SHAPES = ((10, 150), (50, 30), (100, 15))
ROWS_EACH = 25
# Room for the tables that are read: they must not be flushed.
MEMTABLE_MB = 4096
LOADS = (("reads", 100), ("writes", 0))


def run(quick: bool) -> Outcome:
    partitions, rounds, seconds, warmup = (200, 3, 2, 6) if quick else (1_000, 5, 4, 15)
    memory = {"memtable_mb": MEMTABLE_MB}
    with Cassandra.start(**memory) as cassandra, Espalier.start(**memory) as espalier:
        systems = [System("cassandra", cassandra, KEYSPACE), System("espalier", espalier, KEYSPACE)]
        kinds = [(columns, size, udt) for columns, size in SHAPES for udt in (False, True)]
        progress = Progress("columns", 2 * len(kinds) * (1 + len(LOADS) * rounds))
        for system in systems:
            make(system.node)
            for kind in kinds:
                progress.step(f"{system.name}: filling and warming up {name_of(*kind)}")
                fill(system.node, partitions, kind, warmup)
        results = {}
        for what, reads in LOADS:
            for kind in kinds:
                def one(system: System, round_number: int) -> load.Run:
                    # Reads have tables that nothing writes any more; rows of a run are newer than those of the run before.
                    return load.run(system.node, KEYSPACE, workload(what, partitions, *kind), seed=100 + round_number, reads_percent=reads,
                                    in_flight=64, warmup_seconds=0.5, seconds=seconds)
                results[f"{what}, {name_of(*kind)}"] = interleaved(systems, rounds, one, progress, f"{what}, {name_of(*kind)}")
        progress.end()
        outcome = Outcome("columns", settings={
            "load": f"{partitions:,} partitions, at least {ROWS_EACH} rows each, in the memtable; reads take the newest 20 rows, writes a new row; "
                    "64 in flight over 2 connections, closed loop, consistency ONE",
            "rounds": f"{rounds} of {seconds} s, interleaved, after {warmup} s of warming up each table",
            "cassandra": cassandra.settings, "espalier": espalier.settings})
    return judge(outcome, results)


def name_of(columns: int, _size: int, udt: bool) -> str:
    return f"UDT of {columns}" if udt else f"{columns} columns"


def table_of(what: str, columns: int, udt: bool) -> str:
    return f"{what}_{'udt' if udt else 'plain'}_{columns}"


def make(node) -> None:
    tables.make(node, KEYSPACE, {})
    for columns, _ in SHAPES:
        names = ", ".join(f"c{place} text" for place in range(columns))
        servers.execute(node, f"CREATE TYPE {KEYSPACE}.fields_{columns} ({names})")
        for what, _ in LOADS:
            for udt, body in ((False, names), (True, f"fields frozen<fields_{columns}>")):
                servers.execute(node, f"CREATE TABLE {KEYSPACE}.{table_of(what, columns, udt)} (key bigint, row bigint, {body}, "
                                      "PRIMARY KEY (key, row)) WITH CLUSTERING ORDER BY (row DESC)")


def workload(what: str, partitions: int, columns: int, size: int, udt: bool) -> dict:
    return {"columns": {"table": table_of(what, columns, udt), "columns": columns, "text_bytes": size, "udt": udt, "partitions": partitions}}


def fill(node, partitions: int, kind: tuple, warmup: float) -> None:
    # Partitions are chosen at random: as many again, so that hardly any has fewer than 20 rows.
    load.run(node, KEYSPACE, workload("reads", partitions, *kind), seed=7, in_flight=64, operations=2 * ROWS_EACH * partitions)
    for what, reads in LOADS:
        load.run(node, KEYSPACE, workload(what, partitions, *kind), seed=9, reads_percent=reads, in_flight=64, warmup_seconds=warmup / 2, seconds=0.5)


def judge(outcome: Outcome, results: dict) -> Outcome:
    outcome.tables.append(table("Medians (least–greatest)", results))
    for what, _ in LOADS:
        ours = {name: by_system["espalier"] for name, by_system in results.items()}
        wide, theirs = cpu(ours[f"{what}, 100 columns"]), cpu(results[f"{what}, 100 columns"]["cassandra"])
        outcome.bars.append(Bar(f"CPU per operation at 100 columns ÷ at 10, {what}", wide / cpu(ours[f"{what}, 10 columns"]), "<=", 1.5))
        outcome.bars.append(Bar(f"CPU per operation at 100 columns ÷ UDT of 100, {what}", wide / cpu(ours[f"{what}, UDT of 100"]), "<=", 1.5))
        outcome.bars.append(Bar(f"CPU per operation at 100 columns ÷ Cassandra's, {what}", wide / theirs, "<=", 1 / 8))
        series = {}
        for columns, _ in SHAPES:
            for udt in (False, True):
                for system, runs in results[f"{what}, {name_of(columns, 0, udt)}"].items():
                    series.setdefault(f"{system}, {'UDT' if udt else 'columns'}", []).append((columns, cpu(runs)))
        outcome.plots.append(Plot(f"CPU per operation by columns, {what}", "columns", "µs", series, y_logarithmic=True))
    return outcome
