"""cqlsh's script: python -m proof.drivers.cqlsh_script HOST PORT. Runs the cqlsh program as a user would."""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from proof.drivers.checks import Checks

CQLSH = Path(sys.executable).with_name("cqlsh")
SCHEMA = """
CREATE KEYSPACE cqlsh_script WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1};
USE cqlsh_script;
CREATE TYPE address (street text, zip int);
CREATE TABLE people (name text, born int, home frozen<address>, tags set<text>, marks map<text, int>, notes list<text>,
    photo blob, height decimal, id uuid, seen timestamp, PRIMARY KEY (name, born)) WITH CLUSTERING ORDER BY (born DESC)
    AND comment = 'who lives here';
INSERT INTO people (name, born, home, tags, marks, notes, photo, height, id, seen) VALUES ('Ada', 1815,
    {street: 'Main St', zip: 12345}, {'first', 'poet''s daughter'}, {'maths': 1}, ['a', 'b'], 0x00ff, 1.65,
    f47ac10b-58cc-4372-a567-0e02b2c3d479, '2024-02-29 12:30:15.123+0000');
INSERT INTO people (name, born, height) VALUES ('Grace, "Amazing"', 1906, 1.7);
CREATE TABLE numbers (p int, c int, v double, PRIMARY KEY (p, c));
"""


class Cqlsh:
    def __init__(self, host: str, port: str, home: Path):
        self.command = [str(CQLSH), host, port, "--no-color", "--connect-timeout=20", "--request-timeout=60"]
        self.environment = {**os.environ, "HOME": str(home), "PYTHONWARNINGS": "ignore"}

    def run(self, text: str, *arguments: str) -> subprocess.CompletedProcess:
        text = text.rstrip()
        if text and not text.endswith(";"):
            text += ";"
        return subprocess.run([*self.command, *arguments], input=text + "\n", env=self.environment, capture_output=True,
                              text=True, timeout=180, cwd=self.environment["HOME"])


def main() -> None:
    checks = Checks("cqlsh")
    with tempfile.TemporaryDirectory() as home:
        cqlsh = Cqlsh(sys.argv[1], sys.argv[2], Path(home))
        clean(cqlsh)
        for part in (schema, describe, output, conditions, counters, paging, indexes, tracing, copy, errors, versions):
            with checks.part(part.__name__):
                part(checks, cqlsh)
        clean(cqlsh)
    checks.end()


def clean(cqlsh: Cqlsh) -> None:
    cqlsh.run("DROP KEYSPACE IF EXISTS cqlsh_script; DROP KEYSPACE IF EXISTS cqlsh_again;")


def says(checks: Checks, name: str, done: subprocess.CompletedProcess, *expected: str) -> None:
    everything = done.stdout + done.stderr
    for text in expected:
        checks.true(f"{name}: {text}", text in everything, everything[-3000:])


def silent(checks: Checks, name: str, done: subprocess.CompletedProcess) -> None:
    noise = [line for line in done.stderr.splitlines() if line.strip() and not line.startswith(("WARNING: cqlsh was built", "All features"))]
    checks.equal(f"{name}: nothing on standard error", noise, [])
    checks.equal(f"{name}: status", done.returncode, 0)


def schema(checks: Checks, cqlsh: Cqlsh) -> None:
    silent(checks, "schema", cqlsh.run(SCHEMA))


def describe(checks: Checks, cqlsh: Cqlsh) -> None:
    says(checks, "keyspaces", cqlsh.run("DESCRIBE KEYSPACES"), "cqlsh_script", "system_schema", "system_virtual_schema")
    says(checks, "tables", cqlsh.run("DESC TABLES", "-k", "cqlsh_script"), "numbers", "people")
    says(checks, "types", cqlsh.run("DESCRIBE TYPES", "-k", "cqlsh_script"), "address")
    says(checks, "type", cqlsh.run("DESCRIBE TYPE address", "-k", "cqlsh_script"), "CREATE TYPE cqlsh_script.address (", "street text,")
    says(checks, "table", cqlsh.run("DESCRIBE TABLE cqlsh_script.people"), "CREATE TABLE cqlsh_script.people (", "home frozen<address>",
         "PRIMARY KEY (name, born)", "CLUSTERING ORDER BY (born DESC)", "comment = 'who lives here'", "UnifiedCompactionStrategy", "LZ4Compressor")
    says(checks, "cluster", cqlsh.run("DESCRIBE CLUSTER"), "Cluster: Test Cluster", "Partitioner: Murmur3Partitioner")
    says(checks, "system", cqlsh.run("DESCRIBE TABLE system.local"), "CREATE TABLE system.local (")
    says(checks, "full schema", cqlsh.run("DESCRIBE FULL SCHEMA"), "CREATE KEYSPACE system_schema", "CREATE KEYSPACE cqlsh_script")
    described = cqlsh.run("DESCRIBE KEYSPACE cqlsh_script")
    silent(checks, "describe keyspace", described)
    again = without_warning(described.stdout).replace("cqlsh_script", "cqlsh_again")
    silent(checks, "what DESCRIBE prints creates the same again", cqlsh.run(again))
    checks.equal("described again", without_warning(cqlsh.run("DESCRIBE KEYSPACE cqlsh_again").stdout), again)


def without_warning(text: str) -> str:
    """cqlsh 6.2.2 says on standard output that it was built against 5.0.0."""
    return "".join(line + "\n" for line in text.splitlines() if not line.startswith("WARNING: cqlsh was built against"))


def output(checks: Checks, cqlsh: Cqlsh) -> None:
    done = cqlsh.run("SELECT * FROM cqlsh_script.people WHERE name = 'Ada'")
    silent(checks, "select", done)
    says(checks, "select", done, "{street: 'Main St', zip: 12345}", "{'first', 'poet''s daughter'}", "{'maths': 1}", "['a', 'b']", "0x00ff",
         "f47ac10b-58cc-4372-a567-0e02b2c3d479", "2024-02-29 12:30:15.123000+0000", "(1 rows)")
    says(checks, "expand", cqlsh.run("EXPAND ON; SELECT name, born FROM cqlsh_script.people WHERE name = 'Ada'"), "@ Row 1", "1815")
    says(checks, "json", cqlsh.run("SELECT JSON name, born FROM cqlsh_script.people WHERE name = 'Ada'"), '{"name": "Ada", "born": 1815}')
    says(checks, "consistency", cqlsh.run("CONSISTENCY QUORUM; SELECT name FROM cqlsh_script.people WHERE name = 'Ada'"),
         "Consistency level set to QUORUM.", "Ada")
    says(checks, "execute", cqlsh.run("", "-e", "SELECT release_version FROM system.local"), "5.0.")


def conditions(checks: Checks, cqlsh: Cqlsh) -> None:
    insert = "INSERT INTO cqlsh_script.jobs (n, owner) VALUES (1, '{}') IF NOT EXISTS;"
    done = cqlsh.run("CREATE TABLE cqlsh_script.jobs (n int PRIMARY KEY, owner text);" + insert.format("ada") + insert.format("bob"))
    silent(checks, "conditions", done)
    says(checks, "not exists", done, " [applied]\n-----------\n      True", " [applied] | n | owner\n-----------+---+-------\n     False | 1 |   ada")
    done = cqlsh.run("UPDATE cqlsh_script.jobs SET owner = 'bob' WHERE n = 1 IF owner = 'eve'; SERIAL CONSISTENCY LOCAL_SERIAL;"
                     "CONSISTENCY SERIAL; SELECT owner FROM cqlsh_script.jobs WHERE n = 1; DROP TABLE cqlsh_script.jobs;")
    says(checks, "condition", done, " [applied] | owner\n-----------+-------\n     False |   ada", "Serial consistency level set to LOCAL_SERIAL.", "(1 rows)")


def counters(checks: Checks, cqlsh: Cqlsh) -> None:
    done = cqlsh.run("CREATE TABLE cqlsh_script.hits (page text PRIMARY KEY, n counter);"
                     "UPDATE cqlsh_script.hits SET n = n + 5 WHERE page = 'home'; UPDATE cqlsh_script.hits SET n -= 7 WHERE page = 'home';"
                     "BEGIN COUNTER BATCH UPDATE cqlsh_script.hits SET n += 40 WHERE page = 'home'; APPLY BATCH;"
                     "SELECT * FROM cqlsh_script.hits; DROP TABLE cqlsh_script.hits;")
    silent(checks, "counters", done)
    says(checks, "sum", done, " home | 38")


def paging(checks: Checks, cqlsh: Cqlsh) -> None:
    inserts = "".join(f"INSERT INTO cqlsh_script.numbers (p, c, v) VALUES ({n % 7}, {n}, {n}.5);\n" for n in range(250))
    silent(checks, "inserts", cqlsh.run(inserts))
    says(checks, "whole table in pages of 100", cqlsh.run("SELECT * FROM cqlsh_script.numbers"), "(250 rows)")
    says(checks, "pages of 10", cqlsh.run("PAGING 10; SELECT * FROM cqlsh_script.numbers"), "Page size: 10", "(250 rows)")
    says(checks, "no paging", cqlsh.run("PAGING OFF; SELECT count(*) FROM cqlsh_script.numbers"), "250")


def indexes(checks: Checks, cqlsh: Cqlsh) -> None:
    silent(checks, "create indexes", cqlsh.run(
        "CREATE TABLE cqlsh_script.animals (n int PRIMARY KEY, kind text, age int, place vector<float, 2>);"
        "CREATE INDEX by_kind ON cqlsh_script.animals (kind); CREATE INDEX by_age ON cqlsh_script.animals (age) USING 'sai';"
        "CREATE INDEX by_place ON cqlsh_script.animals (place) USING 'sai' WITH OPTIONS = {'similarity_function': 'euclidean'};"))
    silent(checks, "fill indexed table", cqlsh.run("".join(
        f"INSERT INTO cqlsh_script.animals (n, kind, age, place) VALUES ({n}, '{'owl' if n % 2 else 'fox'}', {n}, [{n}, 0]);" for n in range(9))))
    done = cqlsh.run("SELECT count(*) FROM cqlsh_script.animals WHERE kind = 'owl'; SELECT n FROM cqlsh_script.animals WHERE age > 7;"
                     "SELECT n, kind FROM cqlsh_script.animals ORDER BY place ANN OF [4.9, 0] LIMIT 1;")
    silent(checks, "read by index", done)
    says(checks, "read by index", done, " count\n-------\n     4", " n\n---\n 8\n\n(1 rows)", " n | kind\n---+------\n 5 |  owl\n\n(1 rows)")
    says(checks, "describe index", cqlsh.run("DESCRIBE INDEX cqlsh_script.by_age; DESCRIBE INDEX cqlsh_script.by_kind"),
         "CREATE CUSTOM INDEX by_age ON cqlsh_script.animals (age) USING 'sai';", "CREATE INDEX by_kind ON cqlsh_script.animals (kind);")
    done = cqlsh.run("DROP INDEX cqlsh_script.by_kind; SELECT n FROM cqlsh_script.animals WHERE kind = 'owl'; DROP TABLE cqlsh_script.animals;")
    says(checks, "dropped index", done, "ALLOW FILTERING")


def tracing(checks: Checks, cqlsh: Cqlsh) -> None:
    done = cqlsh.run("TRACING ON; SELECT * FROM cqlsh_script.people WHERE name = 'Ada'; TRACING OFF; SELECT count(*) FROM cqlsh_script.people;")
    says(checks, "tracing", done, "TRACING set to ON", "Tracing session:", "Request complete", "TRACING set to OFF", "(1 rows)")


def copy(checks: Checks, cqlsh: Cqlsh) -> None:
    done = cqlsh.run("COPY cqlsh_script.people TO 'people.csv' WITH HEADER = true; COPY cqlsh_script.numbers TO 'numbers.csv';")
    says(checks, "copy to", done, "2 rows exported", "250 rows exported")
    numbers = (Path(cqlsh.environment["HOME"]) / "numbers.csv").read_text().split()
    checks.equal("rows in the file", sorted(numbers), sorted(f"{n % 7},{n},{n}.5" for n in range(250)))
    before = cqlsh.run("SELECT * FROM cqlsh_script.people; SELECT * FROM cqlsh_script.numbers").stdout
    done = cqlsh.run("TRUNCATE cqlsh_script.people; TRUNCATE cqlsh_script.numbers; SELECT * FROM cqlsh_script.people;"
                     "COPY cqlsh_script.people FROM 'people.csv' WITH HEADER = true; COPY cqlsh_script.numbers FROM 'numbers.csv';")
    says(checks, "copy from", done, "(0 rows)", "2 rows imported", "250 rows imported")
    checks.equal("the same rows again", cqlsh.run("SELECT * FROM cqlsh_script.people; SELECT * FROM cqlsh_script.numbers").stdout, before)


def errors(checks: Checks, cqlsh: Cqlsh) -> None:
    done = cqlsh.run("SELEC 1;\nSELECT * FROM cqlsh_script.nosuch;\nSELECT name FROM cqlsh_script.people WHERE name = 'Ada';")
    says(checks, "errors", done, "SyntaxException: line 1:0 no viable alternative at input 'SELEC' ([SELEC]...)",
         'InvalidRequest: Error from server: code=2200 [Invalid query] message="table nosuch does not exist"', "Ada")
    checks.equal("status after errors", done.returncode, 2)
    says(checks, "existing", cqlsh.run("CREATE TYPE cqlsh_script.address (a int)"),
         "A user type with name 'address' already exists")


def versions(checks: Checks, cqlsh: Cqlsh) -> None:
    done = cqlsh.run("SHOW VERSION; SHOW HOST")
    checks.true("show version", bool(re.search(r"\[cqlsh 6\.2\.2 \| Cassandra 5\.0\.\d+ \| CQL spec 3\.4\.7 \| Native protocol v5\]", done.stdout)), done.stdout)
    says(checks, "show host", done, "Connected to Test Cluster at")
    says(checks, "protocol v4", cqlsh.run("SELECT name FROM cqlsh_script.people WHERE name = 'Ada'", "--protocol-version=4"), "Ada")


if __name__ == "__main__":
    main()
