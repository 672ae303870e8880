"""Live Cassandra writes and drains, `espalier upgrade-from` adopts, the answers are the same; `espalier export` writes, Cassandra
starts from it, the answers are the same. With the SSTable formats of a stock 5.0 node (nb), of one without compatibility (oa), and
BTI (da).

usage: python -m proof.upgrade [--formats nb oa da]
"""

import argparse
import shutil
import subprocess
import sys

from proof import places
from proof.oracle.cassandra import Cassandra
from proof.oracle.espalier import Espalier, environment
from proof.wire import Connection, Error

BASE = 1_700_000_000_000_000
SCHEMA = [
    "CREATE KEYSPACE up WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
    "CREATE TYPE up.address (street text, zip int)",
    "CREATE TABLE up.kv (k int PRIMARY KEY, v text, m map<text, int>, u address, f frozen<list<int>>)",
    "CREATE TABLE up.wide (p int, a int, b text, s text static, v text, w int, PRIMARY KEY (p, a, b)) "
    "WITH CLUSTERING ORDER BY (a DESC, b ASC) AND gc_grace_seconds = 777",
    "CREATE TABLE up.plain (k text PRIMARY KEY, v blob) WITH compression = {'enabled': false} AND comment = 'plain'",
    'CREATE TABLE up."Odd_Names" ("Key" int, "select" uuid, "ü" double, PRIMARY KEY ("Key", "select"))',
]
READS = ["SELECT JSON * FROM up.kv", "SELECT JSON * FROM up.wide", "SELECT JSON * FROM up.plain", 'SELECT JSON * FROM up."Odd_Names"',
         "SELECT k, writetime(v), ttl(u) FROM up.kv", "SELECT a, b, writetime(v) FROM up.wide WHERE p = 1 AND a > 90 AND a < 160 ORDER BY a ASC",
         "SELECT a, v FROM up.wide WHERE p = 1 AND a = 137", "SELECT JSON keyspace_name, table_name, id, gc_grace_seconds, comment FROM "
         "system_schema.tables WHERE keyspace_name = 'up'", "SELECT JSON * FROM system_schema.columns WHERE keyspace_name = 'up'",
         "SELECT JSON * FROM system_schema.types WHERE keyspace_name = 'up'"]


def writes():
    for k in range(150):
        yield (f"INSERT INTO up.kv (k, v, m, u, f) VALUES ({k}, 'v{k}', {{'a': {k}, 'b': 2}}, {{street: 's', zip: {k}}}, [1, {k}]) "
               f"USING TIMESTAMP {BASE + k}")
    for k in range(0, 150, 7):
        yield f"DELETE FROM up.kv USING TIMESTAMP {BASE + 1000 + k} WHERE k = {k}"
        yield f"DELETE v, m['a'] FROM up.kv USING TIMESTAMP {BASE + 1000 + k} WHERE k = {k + 1}"
        yield f"UPDATE up.kv USING TIMESTAMP {BASE + 2000 + k} AND TTL 400000000 SET m = {{'only': 1}} WHERE k = {k + 2}"
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
    yield "flush"
    yield f"DELETE FROM up.wide USING TIMESTAMP {BASE + 5000} WHERE p = 2"
    yield "ALTER TABLE up.wide DROP w"
    yield f"INSERT INTO up.wide (p, a, b, v) VALUES (3, 1, 'z', 'not flushed before the drain') USING TIMESTAMP {BASE}"


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


def ask(node) -> dict[str, object]:
    connection = Connection(node.host, node.port)
    answers = {}
    for cql in READS:
        answer = connection.query(cql)
        answers[cql] = answer.rows if hasattr(answer, "rows") else str(answer)
    return answers


def same(proof: Proof, name: str, expected: dict, got: dict) -> None:
    for cql, rows in expected.items():
        proof.check(f"{name}: {cql}", rows == got[cql], f"expected {rows}\ngot {got[cql]}")


def espalier(*arguments) -> subprocess.CompletedProcess:
    command = [str(places.espalier_binary()), *(str(argument) for argument in arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment())


def prove(proof: Proof, sstable_format: str) -> None:
    with Cassandra.start(durable=True, sstable_format=sstable_format) as oracle:
        connection = Connection(oracle.host, oracle.port)
        for cql in [*SCHEMA, *writes()]:
            oracle.flush("up") if cql == "flush" else accepted(connection.query(cql))
        expected = ask(oracle)
        undrained = oracle.directory.with_name(oracle.directory.name + "-undrained")
        shutil.copytree(oracle.directory, undrained)
        oracle.command("drain")
        oracle.end()
        kinds = {name.name.split("-")[0] for name in oracle.directory.glob("data/up/*/*-Data.db")}
        proof.check(f"{sstable_format} was written", kinds == {sstable_format}, str(kinds))
        refused = espalier("upgrade-from", "--data", oracle.directory / "refused", undrained)
        proof.check("an undrained node is refused", refused.returncode != 0 and "nodetool drain" in refused.stderr, refused.stderr)
        shutil.rmtree(undrained)
        subject = Espalier.prepare()
        try:
            adopted = espalier("upgrade-from", "--data", subject.data, oracle.directory)
            proof.check(f"upgrade-from {sstable_format}", adopted.returncode == 0, adopted.stdout + adopted.stderr)
            subject.launch()
            same(proof, f"adopted from {sstable_format}", expected, ask(subject))
            accepted(Connection(subject.host, subject.port).query(
                f"INSERT INTO up.kv (k, v) VALUES (7000, 'written by Espalier') USING TIMESTAMP {BASE}"))
            subject.compact("up")
            expected = ask(subject)
            subject.terminate()
            target = oracle.directory.with_name(oracle.directory.name + "-back")
            exported = espalier("export", "--data", subject.data, "--to", target)
            proof.check("export", exported.returncode == 0, exported.stdout + exported.stderr)
        finally:
            subject.stop()
    with Cassandra.start(durable=True, data=target / "data") as oracle:
        same(proof, f"Cassandra from what was {sstable_format}", expected, ask(oracle))
        for table in ("kv", "wide", "plain", "Odd_Names"):
            try:
                oracle.verify("up", table)
                proof.check(f"verify {table}", True)
            except RuntimeError as failure:
                proof.check(f"verify {table}", False, str(failure))
    shutil.rmtree(target)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--formats", nargs="+", default=["nb", "oa", "da"], choices=["nb", "oa", "da"])
    options = parser.parse_args()
    proof = Proof()
    for sstable_format in options.formats:
        prove(proof, sstable_format)
    print(f"{proof.passed} passed, {proof.failed} failed")
    sys.exit(1 if proof.failed else 0)


if __name__ == "__main__":
    main()
