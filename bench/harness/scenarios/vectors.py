"""Indexes of vectors beside Cassandra's SAI: the cost of a build and of a search for the ten nearest, and how many of
them a search finds, from tables and from memory, and after changes, flushes, merges and a start. The true nearest are
found by comparing all vectors.

The scenario `vectors` has 128 dimensions, and `vectors-wide` has 768. In full length the latter is measured without
Cassandra, whose builds take too long: one of 128 dimensions took 22 minutes on a busy machine."""

from contextlib import ExitStack
from dataclasses import dataclass

from bench.harness import load, servers
from bench.harness.length import Length
from bench.harness.outcome import Bar, Outcome, Table, median
from bench.harness.rounds import Progress, System, cpu, interleaved, percentile, table
from bench.harness.scenarios import index_files, start, tables
from bench.harness.servers import Cassandra, Espalier
from bench.harness.session import Session

KEYSPACE = "vectors"
TABLE = "CREATE TABLE {keyspace}.{table} (key bigint PRIMARY KEY, v vector<float, DIMENSION>)"
CLIENTS = 8
WRITERS = 64
LIMIT = 10
# Cassandra looks further when more rows are asked for. It is compared at the least of these limits with which it finds
# as many as we do.
LIMITS = (10, 20, 40, 80, 160, 320, 640, 1000)
EQUAL_RECALL = 0.005
MEMORY = {"memtable_mb": 2048}


@dataclass(frozen=True)
class Set:
    """A set of vectors."""

    name: str
    rows: int
    dimension: int
    clustered: bool
    # Searches of a table in memory are over this many.
    in_memory: int
    beside_cassandra: bool


@dataclass(frozen=True)
class Plan:
    sets: tuple[Set, ...]
    rounds: int
    seconds: float
    # Searches of which the recall is taken where nothing else is measured.
    checked: int


def plan_of(rows: int, dimension: int, in_memory: int, rounds: int, seconds: float, checked: int, beside_cassandra: bool = True) -> Plan:
    return Plan(tuple(Set(f"{kind}, {dimension} dimensions", rows, dimension, kind == "clustered", in_memory, beside_cassandra)
                      for kind in ("clustered", "uniform")), rounds, seconds, checked)


PLANS = {
    Length.FULL: plan_of(100_000, 128, 10_000, 3, 2.0, 1_000),
    Length.SHORT: plan_of(20_000, 128, 4_000, 3, 1.0, 500),
    Length.SMOKE: plan_of(2_000, 128, 400, 1, 0.3, 100),
}
WIDE_PLANS = {
    Length.FULL: plan_of(100_000, 768, 2_500, 3, 2.0, 1_000, beside_cassandra=False),
    Length.SHORT: plan_of(5_000, 768, 1_000, 3, 1.0, 500),
    Length.SMOKE: plan_of(500, 768, 100, 1, 0.3, 100),
}


def run(session: Session) -> Outcome:
    return measure("vectors", PLANS[session.length])


def run_wide(session: Session) -> Outcome:
    return measure("vectors-wide", WIDE_PLANS[session.length])


def measure(name: str, plan: Plan) -> Outcome:
    outcome = Outcome(name, settings={
        "vectors": "euclidean; in a cube, or in 1,000 clusters; 256 more are searched for",
        "searches": f"SELECT key … ORDER BY v ANN OF ? LIMIT {LIMIT}, {CLIENTS} clients over 2 connections, closed loop; recall is the part of the true "
                    "ten nearest that are among the first ten",
        "equal recall": f"Cassandra is asked for more rows, up to {LIMITS[-1]:,}, until it finds as many of the ten nearest as Espalier",
        "changes": "one row of ten gets another vector, and another one is deleted",
        "rounds": f"{plan.rounds} of {plan.seconds} s, interleaved"})
    results, builds, recalls = {}, [], []
    for vectors in plan.sets:
        with ExitStack() as nodes:
            systems = start_systems(nodes, vectors)
            outcome.settings |= {system.name: system.node.settings for system in systems}
            progress = Progress(f"vectors: {vectors.name}", len(systems) * (3 + 2 * plan.rounds)
                                + plan.rounds * vectors.beside_cassandra + len(SITUATIONS))
            builds += [[vectors.name, system.name, *prepare(system, vectors, progress)] for system in systems]
            results |= searched(systems, vectors, plan, progress)
            recalls += [[vectors.name, *row] for row in changed(systems, vectors, plan, progress)]
            progress.end()
    return judge(outcome, results, builds, recalls)


def start_systems(nodes: ExitStack, vectors: Set) -> list[System]:
    kinds = (Cassandra, Espalier) if vectors.beside_cassandra else (Espalier,)
    return [System(kind.name, nodes.enter_context(kind.start(**MEMORY)), KEYSPACE) for kind in kinds]


def make(node, name: str, dimension: int) -> str:
    return TABLE.replace("DIMENSION", str(dimension)).format(keyspace=KEYSPACE, table=name)


def index_of(name: str) -> str:
    return f"CREATE INDEX {name}_v ON {KEYSPACE}.{name} (v) USING 'sai' WITH OPTIONS = {{'similarity_function': 'euclidean'}}"


def prepare(system: System, vectors: Set, progress: Progress) -> list[float]:
    """Writes the vectors and builds their index: processor seconds, seconds, and bytes per vector.
    A second table stays in memory."""
    node = system.node
    tables.make(node, KEYSPACE, {})
    servers.execute(node, make(node, "built", vectors.dimension), make(node, "fresh", vectors.dimension), index_of("fresh"))
    progress.step(f"{system.name}: filling")
    write(system, "built", vectors, vectors.rows, "all", vectors.rows)
    node.flush(KEYSPACE, "built")
    index_files.until_idle(node)
    progress.step(f"{system.name}: building")
    cost = index_files.build(node, KEYSPACE, "built_v", index_of("built"))
    size = index_files.sizes(node, KEYSPACE, "built")
    progress.step(f"{system.name}: filling in memory")
    written = write(system, "fresh", vectors, vectors.in_memory, "all", vectors.in_memory)
    return [cost.cpu_seconds, cost.seconds, (size.own + size.shared) / vectors.rows, cpu([written])]


def workload(name: str, vectors: Set, rows: int, **more) -> dict:
    return {"vectors": {"table": name, "rows": rows, "dimension": vectors.dimension, "clustered": vectors.clustered, **more}}


def write(system: System, name: str, vectors: Set, rows: int, what: str, count: int) -> load.Run:
    return load.run(system.node, KEYSPACE, workload(name, vectors, rows, writes=what), in_flight=WRITERS, operations=count)


def search(system: System, name: str, vectors: Set, rows: int, limit: int = LIMIT, changes: str = "none", **more) -> load.Run:
    return load.run(system.node, KEYSPACE, workload(name, vectors, rows, limit=limit, changes=changes), in_flight=CLIENTS, reads_percent=100, **more)


def searched(systems: list[System], vectors: Set, plan: Plan, progress: Progress) -> dict[str, dict[str, list[load.Run]]]:
    """Searches with LIMIT 10 in tables and in memory; in tables also with the limit at
    which Cassandra finds as many."""
    results = {}
    for place, name, rows in (("tables", "built", vectors.rows), ("memory", "fresh", vectors.in_memory)):
        def one(system: System, round_number: int) -> load.Run:
            return search(system, name, vectors, rows, seed=20 + round_number, warmup_seconds=0.5, seconds=plan.seconds)
        what = f"{vectors.name}, {place}"
        results[what] = interleaved(systems, plan.rounds, one, progress, what)
        if place == "tables" and vectors.beside_cassandra:
            limit = equal_limit(systems[0], vectors, recall(results[what]["espalier"]), plan)

            def again(system: System, round_number: int) -> load.Run:
                return search(system, name, vectors, rows, limit=limit, seed=20 + round_number, warmup_seconds=0.5, seconds=plan.seconds)
            theirs = interleaved(systems[:1], plan.rounds, again, progress, f"{what}, LIMIT {limit}")
            results[f"{what}, equal recall"] = {f"cassandra, LIMIT {limit}": theirs["cassandra"], "espalier": results[what]["espalier"]}
    return results


def equal_limit(system: System, vectors: Set, wanted: float, plan: Plan) -> int:
    """The least limit with which a system finds as many of the ten nearest as wanted;
    the last one if none is enough."""
    for limit in LIMITS[:-1]:
        if recall([search(system, "built", vectors, vectors.rows, limit=limit, operations=plan.checked)]) >= wanted - EQUAL_RECALL:
            return limit
    return LIMITS[-1]


def recall(runs: list[load.Run]) -> float:
    return median([run.report["recall"] for run in runs])


SITUATIONS = ("changes in memory", "changes flushed", "merged", "started again")


def changed(systems: list[System], vectors: Set, plan: Plan, progress: Progress) -> list[list]:
    """What searches find after changes: rows of a situation, a system and its recall."""
    def change(system: System) -> None:
        write(system, "built", vectors, vectors.rows, "changes", vectors.rows // 5)

    steps = {"changes in memory": change, "changes flushed": lambda system: system.node.flush(KEYSPACE, "built"),
             "merged": lambda system: system.node.compact(KEYSPACE, "built"),
             "started again": lambda system: start.restart(system.node, f"SELECT key FROM {KEYSPACE}.built LIMIT 1")}
    rows = []
    for situation in SITUATIONS:
        progress.step(situation)
        for system in systems:
            steps[situation](system)
            index_files.until_idle(system.node)
            rows.append([situation, system.name, recall([search(system, "built", vectors, vectors.rows, changes="made", operations=plan.checked)])])
    return rows


def judge(outcome: Outcome, results: dict, builds: list, recalls: list) -> Outcome:
    outcome.tables.append(table("Medians (least–greatest)", results))
    outcome.bars += [Bar(f"recall, {what}", recall(by_system["espalier"]), ">=", 0.95) for what, by_system in results.items()]
    beside = {what: (peer, by_system["espalier"]) for what, by_system in results.items()
              for system, peer in by_system.items() if system.startswith("cassandra")}
    outcome.tables.append(Table("Recall, and Espalier ÷ Cassandra", ["load", "Cassandra's recall", "Espalier's recall", "CPU", "p99"], [
        [what, recall(theirs), recall(ours), cpu(ours) / cpu(theirs), percentile(ours, "p99") / percentile(theirs, "p99")]
        for what, (theirs, ours) in beside.items()]))
    outcome.bars += [Bar(f"searches per core-second ÷ Cassandra's, {what}", cpu(theirs) / cpu(ours), ">=", 2)
                     for what, (theirs, ours) in beside.items() if what.endswith("equal recall")]
    outcome.tables.append(Table("Building an index over vectors in SSTables", [
        "vectors", "system", "CPU s", "s", "bytes per vector", "CPU µs per write with an index"], builds))
    outcome.tables.append(Table("Recall after changes", ["vectors", "situation", "system", "recall"], recalls))
    cost = {(vectors, system): seconds for vectors, system, seconds, *_ in builds}
    outcome.bars += [Bar(f"CPU of the build ÷ Cassandra's, {vectors}", cost[vectors, "espalier"] / theirs, "<=", 1)
                     for (vectors, system), theirs in cost.items() if system == "cassandra"]
    outcome.bars += [Bar(f"recall, {vectors}, {situation}", found, ">=", 0.95) for vectors, situation, system, found in recalls if system == "espalier"]
    return outcome
