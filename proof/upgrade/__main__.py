"""Live Cassandra writes and drains, `espalier upgrade-from` adopts, the answers are the same; we write, count and compact, `espalier
export` makes a directory, Cassandra starts from it, the answers are the same and it counts on. With the SSTable formats of a
stock 5.0 node (nb), of one without compatibility (oa), and BTI (da); tables with everything in them, and those that random
histories leave behind. Of Cassandra's files `espalier sstable` verifies all, dumps what sstabledump does, and imports those of
the tables that we can make. Tables have indexes too: plain ones, SAI with changed text, SASI, and one of vectors.

usage: python -m proof.upgrade [--formats nb oa da] [--seed 1] [--histories 8]
"""

import argparse
import shutil
import subprocess
import sys
import time
from pathlib import Path
from random import Random

from proof import places
from proof.differential.again import may_be_pages
from proof.differential.compare import compare, exchange
from proof.differential.explained import FAILS_INSIDE, suspicions
from proof.differential.generator import Generator
from proof.differential.reads import read
from proof.differential.steps import SIMPLE, Step
from proof.oracle.cassandra import Cassandra
from proof.oracle.espalier import Espalier, environment
from proof.tables.dumps import dump_difference
from proof.tables.layouts import laid_out
from proof.wire import Connection, Error

HISTORY_STEPS = 150
READS_PER_TABLE = 25
BASE = 1_700_000_000_000_000
COMPACT = ("fixed", "pairs", "keys", "triples", "tallies")       # tables with COMPACT STORAGE
SCHEMA = [
    "CREATE KEYSPACE up WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
    "CREATE TYPE up.address (street text, zip int)",
    "CREATE TABLE up.kv (k int PRIMARY KEY, v text, m map<text, int>, u address, f frozen<list<int>>)",
    "CREATE TABLE up.wide (p int, a int, b text, s text static, v text, w int, PRIMARY KEY (p, a, b)) "
    "WITH CLUSTERING ORDER BY (a DESC, b ASC) AND gc_grace_seconds = 777",
    "CREATE TABLE up.plain (k text PRIMARY KEY, v blob) WITH compression = {'enabled': false} AND comment = 'plain'",
    "CREATE TABLE up.counts (p int, c int, s counter static, n counter, m counter, PRIMARY KEY (p, c))",
    "CREATE TABLE up.masked (k int PRIMARY KEY, v text MASKED WITH mask_inner(1, 1, '#'), w int MASKED WITH mask_replace(7), "
    "l list<int> MASKED WITH DEFAULT, u frozen<address> MASKED WITH mask_replace({street: null, zip: 1}))",
    "CREATE TABLE up.fixed (k int PRIMARY KEY, a int, b text) WITH COMPACT STORAGE",
    "CREATE TABLE up.pairs (k int, c int, v text, PRIMARY KEY (k, c)) WITH COMPACT STORAGE AND CLUSTERING ORDER BY (c DESC)",
    "CREATE TABLE up.keys (k int, a int, b text, PRIMARY KEY (k, a, b)) WITH COMPACT STORAGE",
    "CREATE TABLE up.triples (k int, a int, b text, v int, PRIMARY KEY (k, a, b)) WITH COMPACT STORAGE",
    "CREATE TABLE up.tallies (k int PRIMARY KEY, n counter) WITH COMPACT STORAGE",
    "CREATE TABLE up.texts (k int, c int, w text, x text, n int, v vector<float, 2>, PRIMARY KEY (k, c))",
    "CREATE INDEX texts_w ON up.texts (w) USING 'sai' WITH OPTIONS = {'case_sensitive': 'false', 'normalize': 'true', 'ascii': 'true'}",
    "CREATE CUSTOM INDEX texts_x ON up.texts (x) USING 'org.apache.cassandra.index.sasi.SASIIndex' WITH OPTIONS = {'mode': 'CONTAINS'}",
    "CREATE INDEX texts_n ON up.texts (n)",
    "CREATE INDEX texts_v ON up.texts (v) USING 'sai' WITH OPTIONS = {'similarity_function': 'euclidean'}",
    'CREATE TABLE up."Odd_Names" ("Key" int, "select" uuid, "ü" double, PRIMARY KEY ("Key", "select"))',
]
READS = [*(f"SELECT * FROM up.{table}" for table in COMPACT),
         "SELECT a FROM up.fixed WHERE k = 8", "SELECT * FROM up.triples WHERE k = 1 AND a < 20", "SELECT DISTINCT k FROM up.fixed",
         "SELECT keyspace_name, table_name, flags FROM system_schema.tables WHERE keyspace_name = 'up'",
         "SELECT p, c, s, n, m FROM up.counts", "SELECT n, m FROM up.counts WHERE p = 2 AND c = 5", "SELECT JSON * FROM up.kv", "SELECT JSON * FROM up.wide", "SELECT JSON * FROM up.plain", 'SELECT JSON * FROM up."Odd_Names"',
         "SELECT k, writetime(v), ttl(u) FROM up.kv", "SELECT a, b, writetime(v) FROM up.wide WHERE p = 1 AND a > 90 AND a < 160 ORDER BY a ASC",
         "SELECT a, v FROM up.wide WHERE p = 1 AND a = 137", "SELECT JSON keyspace_name, table_name, id, gc_grace_seconds, comment FROM "
         "system_schema.tables WHERE keyspace_name = 'up'", "SELECT JSON * FROM system_schema.columns WHERE keyspace_name = 'up'",
         "SELECT JSON * FROM system_schema.types WHERE keyspace_name = 'up'", "SELECT JSON * FROM up.masked", "SELECT JSON * FROM "
         "system_schema.column_masks WHERE keyspace_name = 'up'", *(f"SELECT k, c, w, x, n FROM up.texts WHERE {condition}" for condition in (
             "w = 'apfel 3'", "w = 'ÄPFEL 4' AND n = 4 ALLOW FILTERING", "n = 5", "x LIKE '%ord 1%'", "x LIKE 'Word 2%'", "x LIKE '%7'")),
         "SELECT k, c FROM up.texts ORDER BY v ANN OF [3.1, 0.2] LIMIT 5",
         "SELECT table_name, index_name, kind, options FROM system_schema.indexes WHERE keyspace_name = 'up'"]
INDEX_SECONDS = 60       # for Cassandra to build the indexes of what it starts from
READ_FAILURE = 0x1300


def writes():
    for k in range(150):
        yield (f"INSERT INTO up.kv (k, v, m, u, f) VALUES ({k}, 'v{k}', {{'a': {k}, 'b': 2}}, {{street: 's', zip: {k}}}, [1, {k}]) "
               f"USING TIMESTAMP {BASE + k}")
    for k in range(0, 150, 7):
        yield f"DELETE FROM up.kv USING TIMESTAMP {BASE + 1000 + k} WHERE k = {k}"
        yield f"DELETE v, m['a'] FROM up.kv USING TIMESTAMP {BASE + 1000 + k} WHERE k = {k + 1}"
        yield f"UPDATE up.kv USING TIMESTAMP {BASE + 2000 + k} AND TTL 300000000 SET m = {{'only': 1}} WHERE k = {k + 2}"
    yield "flush"
    for p in (1, 2):
        yield f"UPDATE up.wide USING TIMESTAMP {BASE} SET s = 'static {p}' WHERE p = {p}"
        for a in range(400):
            yield f"INSERT INTO up.wide (p, a, b, v, w) VALUES ({p}, {a}, 'b', '{'x' * 100}{a}', {a}) USING TIMESTAMP {BASE + a}"
        for a in range(0, 400, 50):
            yield f"DELETE FROM up.wide USING TIMESTAMP {BASE + 1000} WHERE p = {p} AND a >= {a} AND a < {a + 20}"
    for k in range(40):
        yield f"INSERT INTO up.plain (k, v) VALUES ('{k}', 0x{'ab' * (k * 37)}) USING TIMESTAMP {BASE}"
        yield (f'INSERT INTO up."Odd_Names" ("Key", "select", "ü") VALUES ({k % 3}, 00000000-0000-4000-8000-{k:012}, {k}.5) '
               f"USING TIMESTAMP {BASE}")
        yield f"INSERT INTO up.masked (k, v, w, l) VALUES ({k}, 'value {k}', {k}, [{k}]) USING TIMESTAMP {BASE}"
    for n in range(60):
        yield (f"INSERT INTO up.texts (k, c, w, x, n, v) VALUES ({n % 7}, {n}, '{('Äpfel', 'APFEL', 'äpfel')[n % 3]} {n % 6}', 'Word {n}', {n % 9}, "
               f"[{n}, {n % 2}]) USING TIMESTAMP {BASE}")
    yield from counts(range(60))
    yield from compact(range(60))
    yield "flush"
    yield from compact(range(50, 70))
    for n in range(0, 60, 5):
        yield f"UPDATE up.texts USING TIMESTAMP {BASE + 1} SET w = 'Birne', x = 'Word {n + 1}00' WHERE k = {n % 7} AND c = {n}"
        yield f"DELETE FROM up.texts USING TIMESTAMP {BASE + 1} WHERE k = {(n + 1) % 7} AND c = {n + 1}"
    yield "DELETE FROM up.fixed WHERE k = 9"
    yield "DELETE FROM up.triples WHERE k = 1 AND a = 30"
    yield from counts(range(0, 60, 2))
    yield "DELETE n FROM up.counts WHERE p = 2 AND c = 7"
    yield "DELETE FROM up.counts WHERE p = 4 AND c = 9"
    yield "DELETE FROM up.counts WHERE p = 3"
    yield "flush"
    yield from counts(range(0, 60, 3))
    yield f"DELETE FROM up.wide USING TIMESTAMP {BASE + 5000} WHERE p = 2"
    yield "ALTER TABLE up.wide DROP w"
    yield f"INSERT INTO up.wide (p, a, b, v) VALUES (3, 1, 'z', 'not flushed before the drain') USING TIMESTAMP {BASE}"


def counts(numbers):
    """Increments and decrements; each flush has its own version of a node's shard."""
    for c in numbers:
        yield f"UPDATE up.counts SET n = n + {c + 1}, m = m - {c} WHERE p = {c % 5} AND c = {c}"
        yield f"UPDATE up.counts SET s = s + 1 WHERE p = {c % 5}"


def compact(numbers):
    """Rows of tables with COMPACT STORAGE, some with null in their clustering."""
    for n in numbers:
        yield f"INSERT INTO up.fixed (k, a, b) VALUES ({n}, {n}, 'b{n}') USING TIMESTAMP {BASE + n}"
        yield f"DELETE b FROM up.fixed USING TIMESTAMP {BASE + 1000 + n} WHERE k = {n // 2}"
        yield f"INSERT INTO up.pairs (k, c, v) VALUES ({n % 3}, {n}, '{'v' * n}') USING TIMESTAMP {BASE + n}"
        yield f"INSERT INTO up.keys (k, a, b) VALUES ({n % 3}, {n}, 'b') USING TIMESTAMP {BASE + n}"
        yield f"INSERT INTO up.keys (k, a) VALUES ({n % 3}, {n}) USING TIMESTAMP {BASE + n}"
        yield f"INSERT INTO up.triples (k, a, v) VALUES ({n % 3}, {n}, {n}) USING TIMESTAMP {BASE + n}"
        yield f"INSERT INTO up.triples (k, a, b, v) VALUES ({n % 3}, {n}, 'b', {n}) USING TIMESTAMP {BASE + n}"
        yield f"UPDATE up.tallies SET n = n + {n} WHERE k = {n % 4}"


class Proof:
    def __init__(self):
        self.passed = 0
        self.failed = 0

    def check(self, name: str, right: bool, detail: str = "") -> None:
        self.passed, self.failed = self.passed + right, self.failed + (not right)
        if not right:
            print(f"FAIL {name}: {detail[:2000]}", flush=True)


def accepted(answer):
    if isinstance(answer, Error):
        raise RuntimeError(f"{answer.code:#06x} {answer.message}")
    return answer


class History:
    """A keyspace that a random history left on Cassandra, what to ask of it, and what Cassandra answered."""

    def __init__(self, oracle: Cassandra, seed: int, number: int):
        rng = Random(f"{seed}/upgrade {number}")
        generator = Generator(rng, f"h{number}", 5, packing=rng if number % 2 else None)
        self.keyspace = generator.keyspace
        with Connection(oracle.host, oracle.port) as connection:
            accepted(connection.query(f"CREATE KEYSPACE {self.keyspace} WITH replication = {SIMPLE}"))
            accepted(connection.query(f"USE {self.keyspace}"))
            for step in generator.steps(HISTORY_STEPS):
                if step.kind == "flush":
                    oracle.flush(self.keyspace)
                elif step.kind in ("cql", "batch") and not step.cql.startswith(("SELECT", "DESCRIBE")):
                    exchange([connection], step)
                if step.cql.startswith("CREATE TABLE"):
                    # Of a table that was refused it is refused as well.
                    name = step.cql.split()[2]
                    connection.query(laid_out(name, number + int(name[-1])))
            tables = [table for table in generator.tables if table.alive and names(connection, table.full_name)]
        self.tables = [table.name for table in tables]
        self.reads = [Step("cql", f"SELECT * FROM {table.full_name}", page_size=5000, now=generator.now) for table in tables]
        self.reads += [read(rng, table, generator.now) for table in tables for _ in range(READS_PER_TABLE)]
        self.expected = self.ask(oracle)

    def ask(self, node) -> list[list]:
        with Connection(node.host, node.port) as connection:
            accepted(connection.query(f"USE {self.keyspace}"))
            return [exchange([connection], step)[0] for step in self.reads]


def names(connection: Connection, table: str) -> bool:
    """Whether there is such a table: a history may begin with one that is refused."""
    return not isinstance(connection.query(f"SELECT * FROM {table} LIMIT 1"), Error)


def ask(node) -> dict[str, object]:
    connection = Connection(node.host, node.port)
    answers = {}
    for cql in READS:
        answer = when_built(connection, cql)
        answers[cql] = answer.rows if hasattr(answer, "rows") else str(answer)
    return answers


def when_built(connection: Connection, cql: str):
    """The answer to a SELECT, which fails in Cassandra while an index is built."""
    deadline = time.monotonic() + INDEX_SECONDS
    while True:
        answer = connection.query(cql)
        if not (isinstance(answer, Error) and answer.code == READ_FAILURE) or time.monotonic() > deadline:
            return answer
        time.sleep(0.2)


def same(proof: Proof, name: str, expected: dict, histories: list[History], node) -> None:
    """`node` answers as Cassandra did."""
    got = ask(node)
    for cql, rows in expected.items():
        proof.check(f"{name}: {cql}", rows == got[cql], f"expected {rows}\ngot {got[cql]}")
    for history in histories:
        for step, left, right in zip(history.reads, history.expected, history.ask(node)):
            difference = compare(left, right)
            # Cassandra may fail internally on its own tables, when it reads cells that are newer than the drop of their column.
            fails_inside = difference and isinstance(node, Cassandra) and suspicions(step, right, left) == [FAILS_INSIDE]
            same = difference is None or fails_inside or suspicions(step, left, right) or may_be_pages(step, left, right)
            proof.check(f"{name}, {history.keyspace}: {step}", bool(same), str(difference))


def espalier(*arguments) -> subprocess.CompletedProcess:
    command = [str(places.espalier_binary()), *(str(argument) for argument in arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment())


def prove(proof: Proof, sstable_format: str, seed: int, count: int) -> None:
    with Cassandra.start(durable=True, sstable_format=sstable_format, sasi=True) as oracle:
        connection = Connection(oracle.host, oracle.port)
        for cql in [*SCHEMA, *writes()]:
            oracle.flush("up") if cql == "flush" else accepted(connection.query(cql))
        histories = [History(oracle, seed, number) for number in range(count)]
        expected = ask(oracle)
        undrained = oracle.directory.with_name(oracle.directory.name + "-undrained")
        shutil.copytree(oracle.directory, undrained)
        oracle.command("drain")
        oracle.end()
        kinds = {name.name.split("-")[0] for name in oracle.directory.glob("data/[uh]*/*/*-Data.db")}
        proof.check(f"{sstable_format} was written", kinds == {sstable_format}, str(kinds))
        look_into(proof, oracle.directory, sstable_format)
        import_all(proof, oracle.directory, sstable_format, expected)
        subject = Espalier.prepare(dynamic_data_masking_enabled="true", sasi_indexes_enabled="true")
        try:
            refuse(proof, subject, oracle, undrained)
            adopted = espalier("upgrade-from", "--data", subject.data, oracle.directory)
            proof.check(f"upgrade-from {sstable_format}", adopted.returncode == 0, adopted.stdout + adopted.stderr)
            again = espalier("upgrade-from", "--data", subject.data, oracle.directory)
            proof.check("a keyspace that is there is not adopted again", "is there already" in again.stderr, again.stderr)
            subject.launch()
            same(proof, f"adopted from {sstable_format}", expected, histories, subject)
            accepted(Connection(subject.host, subject.port).query(
                f"INSERT INTO up.kv (k, v) VALUES (7000, 'written by Espalier') USING TIMESTAMP {BASE}"))
            count_on(proof, "we count on", subject)
            for keyspace in ("up", *(history.keyspace for history in histories)):
                subject.compact(keyspace)
            count_on(proof, "we count on after a compaction", subject)
            expected = ask(subject)
            same(proof, "compacted", expected, histories, subject)
            target = oracle.directory.with_name(oracle.directory.name + "-back")
            if sstable_format != "da":          # of a stopped node; else of the running one
                subject.terminate()
            exported = espalier("export", "--data", subject.data, "--to", target)
            proof.check("export", exported.returncode == 0, exported.stdout + exported.stderr)
        finally:
            subject.stop()
    with Cassandra.start(durable=True, data=target / "data", sasi=True) as oracle:
        same(proof, f"Cassandra from what was {sstable_format}", expected, histories, oracle)
        count_on(proof, "Cassandra counts on", oracle)
        tables = [("up", table) for table in ("kv", "wide", "plain", "counts", "texts", "Odd_Names", *COMPACT)]
        tables += [(history.keyspace, table) for history in histories for table in history.tables]
        for keyspace, table in tables:
            try:
                oracle.verify(keyspace, table)
                proof.check(f"verify {keyspace}.{table}", True)
            except RuntimeError as failure:
                proof.check(f"verify {keyspace}.{table}", False, str(failure))
    shutil.rmtree(target)


def look_into(proof: Proof, directory: Path, sstable_format: str) -> None:
    """Our tools on Cassandra's files, of a table of every kind."""
    for table in directory.glob("data/[uh]*/*-*"):
        if not any(table.glob("*-Data.db")):
            continue
        verified = espalier("sstable", "verify", "--extended", table)
        proof.check(f"sstable verify {sstable_format} {table.name}", verified.returncode == 0, verified.stdout + verified.stderr)
    for name in ("kv", "wide"):
        for data in sorted(directory.glob(f"data/up/{name}-*/*-Data.db"))[:1]:
            difference = dump_difference(data)
            proof.check(f"sstable dump {data.name}", difference is None, str(difference))


def counts_in(cql: str) -> bool:
    """Whether it is about a table of counters."""
    return "up.counts" in cql or "up.tallies" in cql


def import_all(proof: Proof, directory: Path, sstable_format: str, expected: dict) -> None:
    """A node of ours with the same schema takes over Cassandra's SSTables, of two tables while it runs, of the others while it does not."""
    with Espalier.start(dynamic_data_masking_enabled="true", sasi_indexes_enabled="true") as node:
        with Connection(node.host, node.port) as connection:
            for cql in [*(cql for cql in SCHEMA if not counts_in(cql)), "ALTER TABLE up.wide DROP w"]:
                accepted(connection.query(cql))
        for number, table in enumerate(("kv", "wide", "masked", "plain", "Odd_Names", "fixed", "pairs", "keys", "triples", "texts")):
            if number == 2:
                node.terminate()
            source = next(directory.glob(f"data/up/{table}-*"))
            imported = espalier("sstable", "import", "--data", node.data, "up", table, source)
            count = len(list(source.glob("*-Data.db")))
            proof.check(f"import of {table} as {sstable_format}", imported.stdout == f"{count} SSTables imported\n", imported.stdout + imported.stderr)
        node.launch()
        got = ask(node)
        for cql, rows in expected.items():
            if not counts_in(cql) and "system_schema" not in cql:
                proof.check(f"imported as {sstable_format}: {cql}", rows == got[cql], f"expected {rows}\ngot {got[cql]}")


def count_on(proof: Proof, name: str, node) -> None:
    """Adds to counters that were not deleted: each has what it had before and what was added, all others have what they had."""
    numbers = [c for c in range(0, 60, 4) if c % 5 != 3]
    with Connection(node.host, node.port) as connection:
        expected = totals(connection)
        for cql in counts(numbers):
            accepted(connection.query(cql))
        for c in numbers:
            for column, amount in ((("s", c % 5, None), 1), (("n", c % 5, c), c + 1), (("m", c % 5, c), -c)):
                expected[column] += amount
        got = totals(connection)
    proof.check(name, got == expected, f"expected {expected}\ngot {got}")


def totals(connection: Connection) -> dict[tuple, int | None]:
    """The counters of `up.counts` by column, partition and row."""
    found = {}
    for p, c, *counters in accepted(connection.query("SELECT p, c, s, n, m FROM up.counts")).rows:
        p, c, s, n, m = (value and int.from_bytes(value, "big", signed=True) for value in (p, c, *counters))
        found |= {("s", p, None): s, ("n", p, c): n, ("m", p, c): m}
    return found


def refuse(proof: Proof, subject: Espalier, oracle: Cassandra, undrained: Path) -> None:
    """What is not adopted leaves nothing behind: the adoption that follows, into the same node, finds it empty."""
    refused = espalier("upgrade-from", "--data", subject.data, undrained)
    proof.check("an undrained node is refused", refused.returncode != 0 and "nodetool drain" in refused.stderr, refused.stderr)
    shutil.rmtree(undrained)
    table = next(oracle.directory.glob("data/up/wide-*"))
    unfinished = table / "nb_txn_compaction_0c35a4f0-0000-11ef-8000-000000000000.log"
    unfinished.write_text("")
    refused = espalier("upgrade-from", "--data", subject.data, oracle.directory)
    proof.check("a compaction cut short is refused", refused.returncode != 0 and unfinished.name in refused.stderr, refused.stderr)
    unfinished.unlink()
    data = next(table.glob("*-Data.db"))
    content = bytearray(data.read_bytes())
    content[len(content) // 2] ^= 0xFF
    shutil.move(data, data.with_suffix(".kept"))
    data.write_bytes(content)
    refused = espalier("upgrade-from", "--data", subject.data, oracle.directory)
    proof.check("a damaged table is refused", refused.returncode != 0 and data.name in refused.stderr, refused.stderr)
    shutil.move(data.with_suffix(".kept"), data)
    left = [str(path) for path in subject.data.glob("data/[uh]*/*/*")]
    proof.check("what was refused is removed", not left, str(left))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--formats", nargs="+", default=["nb", "oa", "da"], choices=["nb", "oa", "da"])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--histories", type=int, default=8)
    options = parser.parse_args()
    proof = Proof()
    for sstable_format in options.formats:
        prove(proof, sstable_format, options.seed, options.histories)
    print(f"{proof.passed} passed, {proof.failed} failed")
    sys.exit(1 if proof.failed else 0)


if __name__ == "__main__":
    main()
