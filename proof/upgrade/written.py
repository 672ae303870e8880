"""The data that Cassandra writes before it is upgraded: tables with everything in them, tables that random histories
leave behind, and the answers to all reads of them.

They are the same in every run, so they are kept for some hours in `.cache/oracle`: the drained node, a copy from before
the drain, and the answers.
"""

import pickle
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from random import Random

from proof import places
from proof.differential.compare import exchange
from proof.differential.generator import Generator
from proof.differential.reads import read
from proof.differential.steps import SIMPLE, Step
from proof.oracle.cassandra import Cassandra
from proof.oracle.record import Record
from proof.tables.layouts import laid_out
from proof.wire import Connection, Error

PROOF = places.ROOT / "proof"
KEPT = places.CACHE / "oracle"
# Values of the random histories live for a day at least, and deletions are purged after nine days.
KEPT_SECONDS = 12 * 3600
HISTORY_STEPS = 150
READS_PER_TABLE = 25
BASE = 1_700_000_000_000_000
COMPACT = ("fixed", "pairs", "keys", "triples", "tallies")       # tables with COMPACT STORAGE
SCHEMA = [
    "CREATE KEYSPACE up WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
    "CREATE TYPE up.address (street text, zip int)",
    "CREATE TABLE up.kv (k int PRIMARY KEY, v text, m map<text, int>, u address, f frozen<list<int>>)",
    "CREATE TABLE up.wide (p int, a int, b text, s text static, v text, w int, PRIMARY KEY (p, a, b)) "
    "WITH CLUSTERING ORDER BY (a DESC, b ASC) AND gc_grace_seconds = 777777",
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
    """Returns whether there is such a table: a history may begin with one that is refused."""
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


@dataclass
class Written:
    """A drained node of Cassandra, a copy from before the drain, and what Cassandra answered."""

    directory: Path
    undrained: Path
    expected: dict[str, object]
    histories: list[History]

    @classmethod
    def by_cassandra(cls, sstable_format: str, seed: int, count: int, may_be_recorded: bool) -> "Written":
        """The directories are the caller's, which removes them."""
        kept = kept_directory(sstable_format, seed, count)
        if not (may_be_recorded and kept.exists() and time.time() - kept.stat().st_mtime < KEPT_SECONDS):
            write(kept, sstable_format, seed, count)
        place = places.run_directory("cassandra")
        shutil.copytree(kept, place, dirs_exist_ok=True)
        expected, histories = pickle.loads((place / "answers").read_bytes())
        return cls(place / "drained", place / "undrained", expected, histories)


def kept_directory(sstable_format: str, seed: int, count: int) -> Path:
    sources = (Path(__file__), PROOF / "tables" / "layouts.py", PROOF / "differential", PROOF / "wire")
    return KEPT / f"upgrade-{sstable_format}-{seed}-{count}-{Record('upgrade', sources).digest()[:16]}"


def write(kept: Path, sstable_format: str, seed: int, count: int) -> None:
    """Lets Cassandra write everything, and keeps it."""
    with Cassandra.start(durable=True, sstable_format=sstable_format, sasi=True) as oracle:
        connection = Connection(oracle.host, oracle.port)
        for cql in [*SCHEMA, *writes()]:
            oracle.flush("up") if cql == "flush" else accepted(connection.query(cql))
        histories = [History(oracle, seed, number) for number in range(count)]
        expected = ask(oracle)
        place = places.run_directory("written")
        shutil.copytree(oracle.directory, place / "undrained")
        oracle.command("drain")
        oracle.end()
        shutil.copytree(oracle.directory, place / "drained")
    (place / "answers").write_bytes(pickle.dumps((expected, histories)))
    KEPT.mkdir(parents=True, exist_ok=True)
    for old in KEPT.glob(f"upgrade-{sstable_format}-*"):
        shutil.rmtree(old)
    place.rename(kept)
