"""Secondary indexes beside Cassandra's SAI and its legacy index: searches by value and by range, from memory and from
tables; writes with and without indexes; the size of an index, and what it costs to build. What a search must find
follows from the keys, and is checked."""

from dataclasses import dataclass

from bench.harness import load, servers
from bench.harness.length import Length
from bench.harness.outcome import Bar, Outcome, Table
from bench.harness.rounds import Progress, System, cpu, interleaved, percentile, table, whose
from bench.harness.scenarios import index_files, tables
from bench.harness.servers import Cassandra, Espalier
from bench.harness.session import Session, beside

KEYSPACE = "indexed"
TABLE = "CREATE TABLE {keyspace}.{table} (key bigint PRIMARY KEY, one int, ten int, thousand int, other int, name text)"
SAI, LEGACY, PLAIN = "attached", "legacy", "plain"
ATTACHED_COLUMNS = ("one", "ten", "thousand", "other", "name")
LEGACY_COLUMNS = ("one", "ten", "thousand")
# The tables of the writes, by the number of their indexes.
WRITTEN = {0: (), 1: ("one",), 3: ("one", "thousand", "name")}
CLIENTS = 16
WRITERS = 64
# Tables are flushed only on request.
MEMORY = {"memtable_mb": 3072}
SEARCHES = {"1 row": "one", "10 rows": "ten", "1,000 rows": "thousand", "1 row by text": "name", "a range of 1 row": {"range": 1},
            "a range of 10 rows": {"range": 10}, "a range of 1,000 rows": {"range": 1000}, "AND of two": "both"}
LEGACY_SEARCHES = {"1 row, legacy": "one", "10 rows, legacy": "ten", "1,000 rows, legacy": "thousand"}


@dataclass(frozen=True)
class Plan:
    rows: int
    rounds: int
    seconds: float
    warmup_seconds: float
    # Of each table's writes, in a round.
    written: int


PLANS = {
    Length.FULL: Plan(1 << 20, 3, 2.0, 3.0, 100_000),
    Length.SHORT: Plan(1 << 17, 3, 1.0, 1.5, 30_000),
    Length.SMOKE: Plan(1 << 13, 1, 0.3, 0.2, 5_000),
}


def run(session: Session) -> Outcome:
    plan = PLANS[session.length]
    outcome = Outcome("indexes", settings={
        "table": f"{plan.rows:,} rows with a bigint key, four ints and a text of 16 characters; of each int, 1, 10 or 1,000 rows have one value",
        "searches": f"{CLIENTS} clients over 2 connections, closed loop; key, int and text of each row are read and checked, and that none is missing",
        "rounds": f"{plan.rounds} of {plan.seconds} s, interleaved, after {plan.warmup_seconds} s of warming up for each search",
        "writes": f"{plan.written:,} new rows in a round, {WRITERS} clients; with one index on an int, and with three on two ints and the text"})
    # Cassandra's indexes of memtables are on its heap, and would be flushed early.
    with Cassandra.start(**MEMORY, heap_mb=5120, memtable_cleanup_threshold="0.9") as cassandra, Espalier.start(**MEMORY) as espalier:
        systems = beside(cassandra, espalier, KEYSPACE)
        outcome.settings |= {system.name: system.node.settings for system in systems}
        kinds = len(SEARCHES) + len(LEGACY_SEARCHES)
        progress = Progress("indexes", 2 * (3 + len(WRITTEN) * (1 + plan.rounds) + 2 * kinds * (1 + plan.rounds)))
        for system in systems:
            prepare(system, plan, progress)
        sizes, builds = built(outcome, systems, plan)
        writes = written(systems, plan, progress)
        searches = {}
        for place in ("memory", "tables"):
            if place == "tables":
                for system in systems:
                    for name in (SAI, LEGACY):
                        system.node.flush(KEYSPACE, name)
                    index_files.until_idle(system.node)
            count = ", ".join(f"{system.name} {len(system.node.sstables(KEYSPACE, SAI))}" for system in systems)
            outcome.settings[f"SSTables when searched in {place}"] = count
            searches |= searched(systems, plan, progress, place)
        progress.end()
    return judge(outcome, searches, writes, sizes, builds)


def prepare(system: System, plan: Plan, progress: Progress) -> None:
    """Makes and fills the tables. The one without indexes is flushed."""
    node = system.node
    tables.make(node, KEYSPACE, {name: TABLE for name in (SAI, LEGACY, PLAIN, *map(written_table, WRITTEN))})
    for name, columns, kind in ((SAI, ATTACHED_COLUMNS, " USING 'sai'"), (LEGACY, LEGACY_COLUMNS, " USING 'legacy_local_table'"),
                                *((written_table(count), columns, " USING 'sai'") for count, columns in WRITTEN.items())):
        servers.execute(node, *(f"CREATE INDEX {name}_{column} ON {KEYSPACE}.{name} ({column}){kind}" for column in columns))
    for name in (PLAIN, SAI, LEGACY):
        progress.step(f"{system.name}: filling {name}")
        write(system, name, plan.rows, 0, plan.rows)
    node.flush(KEYSPACE, PLAIN)
    index_files.until_idle(node)


def written_table(count: int) -> str:
    return f"with_{count}"


def write(system: System, name: str, rows: int, first: int, count: int) -> load.Run:
    workload = {"indexed": {"table": name, "rows": rows, "first": first}}
    return load.run(system.node, KEYSPACE, workload, seed=7, in_flight=WRITERS, operations=count, check=1_000)


def built(outcome: Outcome, systems: list[System], plan: Plan) -> tuple[dict, dict]:
    """Builds indexes over the table without any; bytes of each and processor seconds, by column and system."""
    sizes, builds, rows = {}, {}, []
    for column in ("one", "name"):
        sizes[column], builds[column] = {}, {}
        for system in systems:
            name = f"built_{column}"
            before = index_files.sizes(system.node, KEYSPACE, PLAIN)
            cost = index_files.build(system.node, KEYSPACE, name, f"CREATE INDEX {name} ON {KEYSPACE}.{PLAIN} ({column}) USING 'sai'")
            after = index_files.sizes(system.node, KEYSPACE, PLAIN)
            # Files that all indexes of a table share count for each index.
            own, shared = after.own - before.own, after.shared
            sizes[column][system.name], builds[column][system.name] = own + shared, cost.cpu_seconds
            rows.append([column, system.name, cost.cpu_seconds, cost.seconds, own / plan.rows, shared / plan.rows])
    outcome.tables.append(Table("Building an index over a table in SSTables, and its files", [
        "column", "system", "CPU s", "s", "bytes per row of its own", "bytes per row that indexes of the table share"], rows))
    return sizes, builds


def written(systems: list[System], plan: Plan, progress: Progress) -> dict[str, dict[str, list[load.Run]]]:
    results, first = {}, 0
    for count in WRITTEN:
        what, name = f"writes, {count} indexes", written_table(count)
        for system in systems:
            progress.step(f"{what}, warming up, {system.name}")
            write(system, name, plan.rows, 0, plan.written)

        def one(system: System, round_number: int) -> load.Run:
            return write(system, name, plan.rows, plan.written * (1 + round_number), plan.written)
        results[what] = interleaved(systems, plan.rounds, one, progress, what)
    return results


def searched(systems: list[System], plan: Plan, progress: Progress, place: str) -> dict[str, dict[str, list[load.Run]]]:
    results = {}
    for name, searches in ((SAI, SEARCHES), (LEGACY, LEGACY_SEARCHES)):
        for what, search in searches.items():
            workload = {"indexed": {"table": name, "rows": plan.rows, "search": search}}

            def one(system: System, round_number: int, seconds: float = plan.seconds) -> load.Run:
                return load.run(system.node, KEYSPACE, workload, seed=20 + round_number, in_flight=CLIENTS, reads_percent=100, warmup_seconds=0.2,
                                seconds=seconds)
            for system in systems:
                progress.step(f"{what}, {place}, warming up, {system.name}")
                one(system, -1, plan.warmup_seconds)
            results[f"{what}, {place}"] = interleaved(systems, plan.rounds, one, progress, f"{what}, {place}")
    return results


def judge(outcome: Outcome, searches: dict, writes: dict, sizes: dict, builds: dict) -> Outcome:
    outcome.tables.insert(0, table("Medians (least–greatest)", searches | writes))
    rows = []
    for what, by_system in searches.items():
        ours, theirs = by_system["espalier"], by_system["cassandra"]
        cost, p99 = cpu(ours) / cpu(theirs), percentile(ours, "p99") / percentile(theirs, "p99")
        rows.append([what, cost, p99])
        than = f"{whose(by_system)}, {what}"
        outcome.bars.append(Bar(f"CPU per search ÷ {than}", cost, "<=", 0.1))
        if not what.startswith("AND"):
            outcome.bars.append(Bar(f"p99 ÷ {than}", p99, "<=", 0.25))
    without = cpu(writes["writes, 0 indexes"]["espalier"])
    for what, by_system in writes.items():
        ours, theirs = by_system["espalier"], by_system["cassandra"]
        rows.append([what, cpu(ours) / cpu(theirs), percentile(ours, "p99") / percentile(theirs, "p99")])
        limit = {"writes, 1 indexes": 1.6, "writes, 3 indexes": 2.5}.get(what)
        if limit:
            outcome.bars.append(Bar(f"CPU per write ÷ {whose(by_system)}, {what}", cpu(ours) / cpu(theirs), "<=", 0.15))
            outcome.bars.append(Bar(f"CPU per write ÷ our own without indexes, {what}", cpu(ours) / without, "<=", limit))
    for column, kind in (("one", "an int"), ("name", "a text")):
        outcome.bars.append(Bar(f"size of an index on {kind} ÷ SAI's", sizes[column]["espalier"] / sizes[column]["cassandra"], "<=", 1))
        outcome.bars.append(Bar(f"CPU of building an index on {kind} ÷ SAI's", builds[column]["espalier"] / builds[column]["cassandra"], "<=", 0.2))
    outcome.tables.append(Table("Espalier ÷ Cassandra", ["load", "CPU", "p99"], rows))
    return outcome
