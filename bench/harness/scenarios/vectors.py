"""Indexes of vectors beside Cassandra's SAI: what building costs, what a search for the ten nearest costs, and how many of them it finds, from
tables and from memory; and what it finds after changes, flushes, merges and a start. The true nearest are found by comparing all vectors."""

from dataclasses import dataclass

from bench.harness import load, servers
from bench.harness.length import Length
from bench.harness.outcome import Bar, Outcome, Table, median
from bench.harness.rounds import Progress, System, cpu, interleaved, percentile, table
from bench.harness.scenarios import index_files, start, tables
from bench.harness.servers import Cassandra, Espalier
from bench.harness.session import Session, beside

KEYSPACE = "vectors"
TABLE = "CREATE TABLE {keyspace}.{table} (key bigint PRIMARY KEY, v vector<float, DIMENSION>)"
CLIENTS = 8
WRITERS = 64
LIMIT = 10
# Cassandra looks further when more rows are asked for. It is compared at the least of these limits with which it finds as many as we do.
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


@dataclass(frozen=True)
class Plan:
    sets: tuple[Set, ...]
    rounds: int
    seconds: float
    # Searches of which the recall is taken where nothing else is measured.
    checked: int


def plan_of(rows: int, wide_rows: int, in_memory: int, rounds: int, seconds: float, checked: int) -> Plan:
    return Plan((Set("clustered, 128 dimensions", rows, 128, True, in_memory), Set("uniform, 128 dimensions", rows, 128, False, in_memory),
                 Set("clustered, 768 dimensions", wide_rows, 768, True, in_memory // 4),
                 Set("uniform, 768 dimensions", wide_rows, 768, False, in_memory // 4)), rounds, seconds, checked)


PLANS = {
    Length.FULL: plan_of(100_000, 100_000, 10_000, 3, 2.0, 1_000),
    Length.SHORT: plan_of(20_000, 5_000, 4_000, 3, 1.0, 500),
    Length.SMOKE: plan_of(2_000, 500, 400, 1, 0.3, 100),
}


def run(session: Session) -> Outcome:
    plan = PLANS[session.length]
    outcome = Outcome("vectors", settings={
        "vectors": "euclidean; in a cube, or in 1,000 clusters; 256 more are searched for",
        "searches": f"SELECT key … ORDER BY v ANN OF ? LIMIT {LIMIT}, {CLIENTS} clients over 2 connections, closed loop; recall is the part of the true "
                    "ten nearest that are among the first ten",
        "equal recall": f"Cassandra is asked for more rows, up to {LIMITS[-1]:,}, until it finds as many of the ten nearest as Espalier",
        "changes": "one row of ten gets another vector, and another one is deleted",
        "rounds": f"{plan.rounds} of {plan.seconds} s, interleaved"})
    results, builds, recalls = {}, [], []
    for vectors in plan.sets:
        with Cassandra.start(**MEMORY) as cassandra, Espalier.start(**MEMORY) as espalier:
            systems = beside(cassandra, espalier, KEYSPACE)
            outcome.settings |= {system.name: system.node.settings for system in systems}
            progress = Progress(f"vectors: {vectors.name}", 2 * (3 + 2 * plan.rounds) + plan.rounds + len(SITUATIONS))
            builds += [[vectors.name, system.name, *prepare(system, vectors, progress)] for system in systems]
            results |= searched(systems, vectors, plan, progress)
            recalls += [[vectors.name, *row] for row in changed(systems, vectors, plan, progress)]
            progress.end()
    return judge(outcome, results, builds, recalls)


def make(node, name: str, dimension: int) -> str:
    return TABLE.replace("DIMENSION", str(dimension)).format(keyspace=KEYSPACE, table=name)


def index_of(name: str) -> str:
    return f"CREATE INDEX {name}_v ON {KEYSPACE}.{name} (v) USING 'sai' WITH OPTIONS = {{'similarity_function': 'euclidean'}}"


def prepare(system: System, vectors: Set, progress: Progress) -> list[float]:
    """Writes the vectors and builds their index: processor seconds, seconds, and bytes per vector. A second table stays in memory."""
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
    """Searches with LIMIT 10 in tables and in memory; in tables also with the limit at which Cassandra finds as many."""
    results = {}
    for place, name, rows in (("tables", "built", vectors.rows), ("memory", "fresh", vectors.in_memory)):
        def one(system: System, round_number: int) -> load.Run:
            return search(system, name, vectors, rows, seed=20 + round_number, warmup_seconds=0.5, seconds=plan.seconds)
        what = f"{vectors.name}, {place}"
        results[what] = interleaved(systems, plan.rounds, one, progress, what)
        if place == "tables":
            limit = equal_limit(systems[0], vectors, recall(results[what]["espalier"]), plan)

            def again(system: System, round_number: int) -> load.Run:
                return search(system, name, vectors, rows, limit=limit, seed=20 + round_number, warmup_seconds=0.5, seconds=plan.seconds)
            theirs = interleaved(systems[:1], plan.rounds, again, progress, f"{what}, LIMIT {limit}")
            results[f"{what}, equal recall"] = {f"cassandra, LIMIT {limit}": theirs["cassandra"], "espalier": results[what]["espalier"]}
    return results


def equal_limit(system: System, vectors: Set, wanted: float, plan: Plan) -> int:
    """The least limit with which a system finds as many of the ten nearest as wanted; the last one if none is enough."""
    for limit in LIMITS[:-1]:
        if recall([search(system, "built", vectors, vectors.rows, limit=limit, operations=plan.checked)]) >= wanted - EQUAL_RECALL:
            return limit
    return LIMITS[-1]


def recall(runs: list[load.Run]) -> float:
    return median([run.report["recall"] for run in runs])


SITUATIONS = ("changes in memory", "changes flushed", "merged", "started again")


def changed(systems: list[System], vectors: Set, plan: Plan, progress: Progress) -> list[list]:
    """What searches find after changes: rows of a situation and the recall of each system."""
    def change(system: System) -> None:
        write(system, "built", vectors, vectors.rows, "changes", vectors.rows // 5)

    steps = {"changes in memory": change, "changes flushed": lambda system: system.node.flush(KEYSPACE, "built"),
             "merged": lambda system: system.node.compact(KEYSPACE, "built"),
             "started again": lambda system: start.restart(system.node, f"SELECT key FROM {KEYSPACE}.built LIMIT 1")}
    rows = []
    for situation in SITUATIONS:
        progress.step(situation)
        found = {}
        for system in systems:
            steps[situation](system)
            index_files.until_idle(system.node)
            found[system.name] = recall([search(system, "built", vectors, vectors.rows, changes="made", operations=plan.checked)])
        rows.append([situation, found["cassandra"], found["espalier"]])
    return rows


def judge(outcome: Outcome, results: dict, builds: list, recalls: list) -> Outcome:
    outcome.tables.append(table("Medians (least–greatest)", results))
    rows = []
    for what, by_system in results.items():
        ours = by_system["espalier"]
        theirs = next(runs for system, runs in by_system.items() if system.startswith("cassandra"))
        cost = cpu(ours) / cpu(theirs)
        rows.append([what, recall(theirs), recall(ours), cost, percentile(ours, "p99") / percentile(theirs, "p99")])
        outcome.bars.append(Bar(f"recall, {what}", recall(ours), ">=", 0.95))
        if what.endswith("equal recall"):
            outcome.bars.append(Bar(f"searches per core-second ÷ Cassandra's, {what}", 1 / cost, ">=", 2))
    outcome.tables.append(Table("Recall, and Espalier ÷ Cassandra", ["load", "Cassandra's recall", "Espalier's recall", "CPU", "p99"], rows))
    outcome.tables.append(Table("Building an index over vectors in SSTables", [
        "vectors", "system", "CPU s", "s", "bytes per vector", "CPU µs per write with an index"], builds))
    outcome.tables.append(Table("Recall after changes", ["vectors", "situation", "Cassandra", "Espalier"], recalls))
    for theirs, ours in zip(builds[::2], builds[1::2]):
        outcome.bars.append(Bar(f"CPU of the build ÷ Cassandra's, {ours[0]}", ours[2] / theirs[2], "<=", 1))
    outcome.bars += [Bar(f"recall, {name}, {situation}", ours, ">=", 0.95) for name, situation, _, ours in recalls]
    return outcome
