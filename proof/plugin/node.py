"""One Cassandra with the plugin and two keyspaces: the tables of `ours` have our memtables, those of `stock`
Cassandra's. The same statements go to both, and then every read is the same: from memory, after kill -9 and a replay,
after a flush, and after ALTER TABLE.
"""

import re
import subprocess
from random import Random

from proof.oracle.cassandra import Cassandra
from proof.wire import Connection, Error, QueryOptions, Rows
from proof.wire.requests import ONE

KEYSPACES = {"ours": "espalier", "stock": "default"}
NOW = 1_700_000_000_000_000
PAGE_SIZE = 7
TABLES = ("wide", "plain", "counts", "indexed")

SCHEMA = [
    "CREATE TYPE {ks}.pair (a int, b text)",
    "CREATE TABLE {ks}.wide (k int, a int, b text, s text static, sl list<int> static, v int, w text, l list<text>, m map<int, text>, "
    "st set<int>, u pair, f frozen<pair>, PRIMARY KEY (k, a, b)) WITH CLUSTERING ORDER BY (a DESC, b ASC) AND memtable = '{memtable}'",
    "CREATE TABLE {ks}.plain (k text PRIMARY KEY, v blob, n bigint, d decimal) WITH memtable = '{memtable}'",
    "CREATE TABLE {ks}.counts (k int, c int, n counter, s counter static, PRIMARY KEY (k, c)) WITH memtable = '{memtable}'",
    "CREATE TABLE {ks}.indexed (k int, c int, v int, w text, PRIMARY KEY (k, c)) WITH memtable = '{memtable}'",
    "CREATE INDEX indexed_v ON {ks}.indexed (v)",
    "CREATE INDEX indexed_w ON {ks}.indexed (w) USING 'sai'",
    "CREATE MATERIALIZED VIEW {ks}.by_v AS SELECT * FROM {ks}.indexed WHERE v IS NOT NULL AND k IS NOT NULL AND c IS NOT NULL "
    "PRIMARY KEY (v, k, c) WITH memtable = '{memtable}'",
]

# Our memtables do not hold such tables.
NOT_CARRIED = {
    "compact": "CREATE TABLE {ks}.compact (k int, c int, v text, PRIMARY KEY (k, c)) WITH COMPACT STORAGE AND memtable = '{memtable}'",
    "custom": "CREATE TABLE {ks}.custom (k int, c int, v 'org.apache.cassandra.db.marshal.LexicalUUIDType', w text, PRIMARY KEY (k, c)) "
              "WITH memtable = '{memtable}'",
}

READS = [
    "SELECT * FROM {ks}.wide", "SELECT * FROM {ks}.plain", "SELECT * FROM {ks}.counts", "SELECT * FROM {ks}.indexed", "SELECT * FROM {ks}.by_v",
    "SELECT DISTINCT k, s FROM {ks}.wide", "SELECT k, a, b, writetime(v), writetime(m) FROM {ks}.wide",
    "SELECT count(*) FROM {ks}.wide", "SELECT m[1], st, u.a FROM {ks}.wide", "SELECT * FROM {ks}.wide LIMIT 9",
    *[f"SELECT * FROM {{ks}}.wide WHERE k = {k} {rest}" for k in range(4) for rest in
      ("", "ORDER BY a ASC", "AND a = 3", "AND a > 1 AND a <= 4", "AND a >= 1 AND a < 4 ORDER BY a ASC, b DESC", "AND a IN (1, 3, 5) AND b = 'b2'",
       "AND (a, b) > (2, 'b1')", "LIMIT 3", "ORDER BY a ASC LIMIT 3")],
    *[f"SELECT * FROM {{ks}}.plain WHERE k = 'k{k}'" for k in range(6)],
    *[f"SELECT * FROM {{ks}}.counts WHERE k = {k}" for k in range(3)],
    *[f"SELECT * FROM {{ks}}.indexed WHERE v = {v}" for v in range(4)],
    *[f"SELECT * FROM {{ks}}.indexed WHERE w = 'w{w}'" for w in range(4)],
    *[f"SELECT * FROM {{ks}}.by_v WHERE v = {v}" for v in range(4)],
    "SELECT * FROM {ks}.wide WHERE token(k) > -3000000000000000000 AND token(k) <= 4000000000000000000",
    "SELECT * FROM {ks}.wide WHERE a = 2 ALLOW FILTERING",
]


# Columns of the primary key that are renamed, and columns that get the names which are free then.
RENAMED_SCHEMA = [
    "CREATE TABLE {ks}.renamed (k int, a int, b text, v int, PRIMARY KEY (k, a, b)) WITH memtable = '{memtable}'",
    "CREATE TABLE {ks}.reused (k int, c int, v int, PRIMARY KEY (k, c)) WITH memtable = '{memtable}'",
    "INSERT INTO {ks}.renamed (k, a, b, v) VALUES (1, 2, 'three', 4) USING TIMESTAMP 1",
    "INSERT INTO {ks}.reused (k, c, v) VALUES (1, 2, 3) USING TIMESTAMP 1",
]
RENAMES = [
    "ALTER TABLE {ks}.renamed RENAME a TO x",
    "ALTER TABLE {ks}.renamed RENAME b TO a",
    "INSERT INTO {ks}.renamed (k, x, a, v) VALUES (1, 5, 'six', 7) USING TIMESTAMP 2",
    "INSERT INTO {ks}.renamed (k, x, a, v) VALUES (1, 2, 'three', 8) USING TIMESTAMP 2",
    "ALTER TABLE {ks}.reused RENAME c TO d",
    "ALTER TABLE {ks}.reused ADD c int",
    "INSERT INTO {ks}.reused (k, d, v, c) VALUES (1, 4, 5, 6) USING TIMESTAMP 2",
]
RENAMED_READS = [
    "SELECT * FROM {ks}.renamed", "SELECT k, x, a, v FROM {ks}.renamed WHERE k = 1 AND x = 5", "SELECT * FROM {ks}.reused",
    "SELECT * FROM {ks}.reused WHERE k = 1 AND d > 2", "SELECT * FROM {ks}.reused WHERE c = 6 ALLOW FILTERING",
]


class Statements:
    """Random changes with timestamps of their own, so that both keyspaces end with the same cells."""

    def __init__(self, seed: int):
        self.random = Random(seed)
        self.time = NOW

    def one(self) -> str:
        self.time += self.random.choice((0, 1, 1, 1, 5))
        table = self.random.choice((self.wide, self.wide, self.wide, self.plain, self.counts, self.indexed, self.indexed))
        return table()

    def using(self, may_expire: bool = True) -> str:
        expires = may_expire and self.random.random() < 0.15
        return f"USING TIMESTAMP {self.time}" + (f" AND TTL {self.random.choice((90_000, 900_000))}" if expires else "")

    def wide(self) -> str:
        n = self.random.randrange
        row = f"k = {n(4)} AND a = {n(6)} AND b = 'b{n(4)}'"
        text = f"'{'x' * n(30)}{n(9)}'" if n(40) else f"'{'y' * 100_000}'"
        return self.random.choice((
            f"INSERT INTO {{ks}}.wide (k, a, b, v, w) VALUES ({n(4)}, {n(6)}, 'b{n(4)}', {n(9)}, {text}) {self.using()}",
            f"INSERT INTO {{ks}}.wide (k, a, b, s, l, m, st, u, f) VALUES ({n(4)}, {n(6)}, 'b{n(4)}', 's{n(9)}', ['a', 'b'], "
            f"{{{{{n(3)}: 'x', {n(3) + 3}: 'y'}}}}, {{{{{n(3)}, {n(3) + 3}}}}}, {{{{a: {n(9)}, b: 'z'}}}}, {{{{a: {n(9)}}}}}) {self.using()}",
            f"UPDATE {{ks}}.wide {self.using()} SET m[{n(4)}] = 'm{n(9)}', st = st + {{{{{n(9)}}}}}, u.b = 'u{n(9)}' WHERE {row}",
            f"UPDATE {{ks}}.wide {self.using()} SET v = {n(9)} WHERE {row}",
            f"UPDATE {{ks}}.wide {self.using()} SET s = 's{n(9)}', sl = [{n(9)}, {n(9)}] WHERE k = {n(4)}",
            f"DELETE v, m[{n(4)}], u FROM {{ks}}.wide USING TIMESTAMP {self.time} WHERE {row}",
            f"DELETE FROM {{ks}}.wide USING TIMESTAMP {self.time} WHERE {row}",
            f"DELETE FROM {{ks}}.wide USING TIMESTAMP {self.time} WHERE k = {n(4)} AND a = {n(6)}",
            f"DELETE FROM {{ks}}.wide USING TIMESTAMP {self.time} WHERE k = {n(4)} AND a > {n(3)} AND a < {3 + n(3)}",
            f"DELETE s FROM {{ks}}.wide USING TIMESTAMP {self.time} WHERE k = {n(4)}",
            f"DELETE FROM {{ks}}.wide USING TIMESTAMP {self.time - n(40)} WHERE k = {n(4)}"))

    def plain(self) -> str:
        n = self.random.randrange
        return self.random.choice((
            f"INSERT INTO {{ks}}.plain (k, v, n) VALUES ('k{n(6)}', 0x{n(1 << 32):08x}, {n(99)}) {self.using()}",
            f"UPDATE {{ks}}.plain {self.using()} SET d = {n(99)}.{n(9)} WHERE k = 'k{n(6)}'",
            f"DELETE n FROM {{ks}}.plain USING TIMESTAMP {self.time} WHERE k = 'k{n(6)}'",
            f"DELETE FROM {{ks}}.plain USING TIMESTAMP {self.time} WHERE k = 'k{n(6)}'"))

    def counts(self) -> str:
        n = self.random.randrange
        return self.random.choice((
            f"UPDATE {{ks}}.counts SET n = n + {n(9)} WHERE k = {n(3)} AND c = {n(4)}",
            f"UPDATE {{ks}}.counts SET n = n - {n(9)}, s = s + 1 WHERE k = {n(3)} AND c = {n(4)}",
            f"UPDATE {{ks}}.counts SET s = s + {n(9)} WHERE k = {n(3)}"))

    def indexed(self) -> str:
        n = self.random.randrange
        return self.random.choice((
            f"INSERT INTO {{ks}}.indexed (k, c, v, w) VALUES ({n(4)}, {n(5)}, {n(4)}, 'w{n(4)}') {self.using(False)}",
            f"UPDATE {{ks}}.indexed {self.using(False)} SET v = {n(4)} WHERE k = {n(4)} AND c = {n(5)}",
            f"UPDATE {{ks}}.indexed {self.using(False)} SET w = 'w{n(4)}' WHERE k = {n(4)} AND c = {n(5)}",
            f"DELETE v FROM {{ks}}.indexed USING TIMESTAMP {self.time} WHERE k = {n(4)} AND c = {n(5)}",
            f"DELETE FROM {{ks}}.indexed USING TIMESTAMP {self.time} WHERE k = {n(4)} AND c = {n(5)}",
            f"DELETE FROM {{ks}}.indexed USING TIMESTAMP {self.time} WHERE k = {n(4)}"))


class Proof:
    keyspaces = KEYSPACES
    reads = READS

    def __init__(self, node: Cassandra, seed: int):
        self.node = node
        self.statements = Statements(seed)
        self.passed = self.failed = 0

    def check(self, name: str, right: bool, detail: str = "") -> None:
        self.passed, self.failed = self.passed + right, self.failed + (not right)
        if not right:
            print(f"FAIL {name}: {detail[:3000]}", flush=True)

    def both(self, connection: Connection, statement: str) -> None:
        for keyspace, memtable in self.keyspaces.items():
            answer = connection.query(statement.format(ks=keyspace, memtable=memtable))
            if isinstance(answer, Error):
                self.check(statement, False, f"{keyspace}: {answer.message}")

    def write(self, count: int) -> None:
        with Connection(self.node.host, self.node.port) as connection:
            for _ in range(count):
                self.both(connection, self.statements.one())

    def compare(self, when: str) -> None:
        """Checks that every read gives the same rows."""
        with Connection(self.node.host, self.node.port) as connection:
            own = next(keyspace for keyspace in self.keyspaces if keyspace != "stock")
            for read in self.reads:
                stock, ours = (rows(connection, read.format(ks=keyspace)) for keyspace in ("stock", own))
                self.check(f"{when}: {read}", stock == ours, f"\n  Cassandra: {stock}\n  ours:      {ours}")

    def rename_keys(self) -> None:
        """Renames columns. From now on, `compare` reads their tables too."""
        with Connection(self.node.host, self.node.port) as connection:
            for statement in (*RENAMED_SCHEMA, *RENAMES):
                self.both(connection, statement)
        self.reads = [*self.reads, *RENAMED_READS]

    def refusal(self, statement: str, part: str) -> None:
        with Connection(self.node.host, self.node.port) as connection:
            answer = connection.query(statement)
        self.check(statement, isinstance(answer, Error) and part in answer.message, str(answer))


def rows(connection: Connection, read: str, consistency: int = ONE):
    """The rows of a read, page by page; an error's text."""
    found, state = [], None
    while True:
        answer = connection.query(read, QueryOptions(consistency=consistency, page_size=PAGE_SIZE, paging_state=state))
        if not isinstance(answer, Rows):
            return getattr(answer, "message", str(answer))
        found += answer.rows
        state = answer.metadata.paging_state
        if state is None:
            return found


def add_a_custom_type(proof: Proof) -> None:
    """ALTER TABLE adds a column of a type that our memtables do not have. From now on, `compare` reads the rows that
    the table has."""
    with Connection(proof.node.host, proof.node.port) as connection:
        for statement in ("CREATE TABLE {ks}.grown (k int PRIMARY KEY, v int) WITH memtable = '{memtable}'",
                          "INSERT INTO {ks}.grown (k, v) VALUES (1, 2) USING TIMESTAMP 1",
                          "ALTER TABLE {ks}.grown ADD c 'org.apache.cassandra.db.marshal.LexicalUUIDType'",
                          "INSERT INTO {ks}.grown (k, v) VALUES (2, 3) USING TIMESTAMP 1"):
            proof.both(connection, statement)
    proof.reads = [*proof.reads, "SELECT * FROM {ks}.grown", "SELECT k, v FROM {ks}.grown WHERE k = 1"]


def archive_log(node: Cassandra) -> None:
    """Lets Cassandra, from its next start on, archive its log with a program that does nothing."""
    classes = node.directory / "archive"
    classes.mkdir()
    (classes / "commitlog_archiving.properties").write_text("archive_command=/bin/true %path\n")
    node.jvm_flags = (f"-Xbootclasspath/a:{classes}",)


def keep_tables_that_are_not_carried(proof: Proof) -> None:
    """Tables that our memtables do not support have Cassandra's own, and work."""
    node = proof.node
    before = memtables(node)
    with Connection(node.host, node.port) as connection:
        for statement in NOT_CARRIED.values():
            proof.both(connection, statement)
        without = memtables(node)
        proof.check("tables with COMPACT STORAGE or a custom type have Cassandra's memtables", without == before, f"{without - before} of ours")
        connection.query("CREATE TABLE ours.carried (k int PRIMARY KEY) WITH memtable = 'espalier'")
        added = memtables(node) - without
        proof.check("a table of CQL's types beside them has ours", added == 1, f"{added} of ours")
        for k, c, value in ((1, 1, "a"), (1, 2, "b"), (2, 1, "c")):
            proof.both(connection, f"INSERT INTO {{ks}}.compact (k, c, v) VALUES ({k}, {c}, '{value}') USING TIMESTAMP 1")
            proof.both(connection, f"INSERT INTO {{ks}}.custom (k, c, v, w) VALUES ({k}, {c}, 0x{k:032x}, '{value}') USING TIMESTAMP 1")
        for table in NOT_CARRIED:
            stock, ours = (rows(connection, f"SELECT * FROM {keyspace}.{table}") for keyspace in ("stock", "ours"))
            proof.check(f"{table}: rows", len(stock) == 3 and stock == ours, f"\n  Cassandra: {stock}\n  ours:      {ours}")


def memtables(node: Cassandra, class_name: str = "NativeMemtable") -> int:
    """Returns the number of our memtables in a node's heap."""
    histogram = subprocess.run(["jcmd", str(node.process.pid), "GC.class_histogram"], capture_output=True, text=True, check=True).stdout
    found = re.search(rf"(\d+) +\d+ +espalier\.cassandra\.{class_name}\b", histogram)
    return int(found[1]) if found else 0


def prove(jar, seed: int, statements: int) -> tuple[int, int]:
    """Returns how many checks passed and failed."""
    with Cassandra.start(plugin=jar, durable=True) as node:
        proof = Proof(node, seed)
        with Connection(node.host, node.port) as connection:
            for keyspace in KEYSPACES:
                connection.query(f"CREATE KEYSPACE {keyspace} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}")
            for statement in SCHEMA:
                proof.both(connection, statement)
        keep_tables_that_are_not_carried(proof)
        proof.write(statements)
        proof.compare("in memory")
        proof.check("tables have our memtables", memtables(node) >= len(TABLES), f"{memtables(node)} of them")
        node.kill()
        node.launch()
        proof.compare("after kill -9")
        proof.write(statements // 2)
        proof.compare("in memory again")
        for keyspace in KEYSPACES:
            node.flush(keyspace)
        proof.compare("flushed")
        for table in TABLES:
            proof.check(f"flushed tables of {table}", len(node.sstables("ours", table)) > 0)
            node.verify("ours", table)
        proof.write(statements // 2)
        proof.compare("in memory and on disk")
        with Connection(node.host, node.port) as connection:
            proof.both(connection, "ALTER TABLE {ks}.wide DROP v")
            proof.both(connection, "ALTER TABLE {ks}.wide ADD x int")
            proof.both(connection, "UPDATE {ks}.wide USING TIMESTAMP 1900000000000000 SET x = 7 WHERE k = 1 AND a = 1 AND b = 'b1'")
            proof.both(connection, "ALTER TABLE {ks}.wide ADD v int")
            proof.both(connection, "ALTER TYPE {ks}.pair ADD c int")
            proof.both(connection, "UPDATE {ks}.wide USING TIMESTAMP 1900000000000000 SET u = {{a: 1, b: 'n', c: 9}} WHERE k = 1 AND a = 1 AND b = 'b2'")
        proof.rename_keys()
        add_a_custom_type(proof)
        proof.compare("after ALTER TABLE and ALTER TYPE")
        proof.write(statements // 2)
        with Connection(node.host, node.port) as connection:
            connection.query("ALTER TABLE ours.wide WITH memtable = 'default'")
            connection.query("ALTER TABLE ours.plain WITH memtable = 'default'")
        proof.compare("moved out of our memtables")
        proof.write(statements // 4)
        with Connection(node.host, node.port) as connection:
            connection.query("ALTER TABLE ours.wide WITH memtable = 'espalier'")
        proof.write(statements // 4)
        proof.compare("moved back")
        node.command("drain")
        node.end()
        archive_log(node)
        node.launch()
        proof.compare("after a drain")
        for statement in ("CREATE TABLE ours.refused (k int PRIMARY KEY)", "ALTER TABLE ours.plain"):
            proof.refusal(f"{statement} WITH memtable = 'espalier_storage'", "archive_command")
        with Connection(node.host, node.port) as connection:
            proof.both(connection, "TRUNCATE {ks}.wide")
        proof.compare("truncated")
        proof.refusal("CREATE TABLE ours.refused (k int PRIMARY KEY) WITH memtable = 'unknown'", "unknown")
        return proof.passed, proof.failed
