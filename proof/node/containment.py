"""A fault of one table or of the schema does not prevent other tables from being served, drained and repaired.

Everything is seen from outside, on the release binary: the directory is damaged under a stopped node, or made
unwritable under a running one.
"""

import hashlib
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from proof import places
from proof.drivers.checks import Checks
from proof.node.damage import accepted, answer, is_read, stop
from proof.oracle.espalier import Espalier, environment
from proof.wire import Connection, Error, Rows

TABLES = ("hurt", "sound")
SCHEMA = ["CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
          *(f"CREATE TABLE ks.{table} (k int PRIMARY KEY, v int)" for table in TABLES)]
FLUSHED = 20            # rows of each table in an SSTable; as many more are in the log
REFUSED_TO_READERS = [
    "INSERT INTO ks.sound (k, v) VALUES (1, 1)", "UPDATE ks.sound SET v = 1 WHERE k = 1", "DELETE FROM ks.sound WHERE k = 1",
    "BEGIN BATCH INSERT INTO ks.sound (k, v) VALUES (1, 1); INSERT INTO ks.sound (k, v) VALUES (2, 1) APPLY BATCH",
    "TRUNCATE ks.sound", "DROP TABLE ks.sound", "ALTER TABLE ks.sound ADD w int", "CREATE TABLE ks.new (k int PRIMARY KEY)",
    "CREATE KEYSPACE new WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}", "DROP KEYSPACE ks",
    "CREATE TYPE ks.new (a int)", "ALTER KEYSPACE ks WITH durable_writes = false",
]


def containment(checks: Checks) -> None:
    for part in (drain_beside_a_stuck_table, repair, read_only, read_only_and_quarantine, schema_lost, dropped_and_made_anew):
        with checks.part(part.__name__):
            part(checks)


@contextmanager
def prepared(**settings: str) -> Iterator[Espalier]:
    """A stopped node, whose tables each have rows in an SSTable and in the log."""
    node = Espalier.start(**settings)
    try:
        with Connection(node.host, node.port) as connection:
            for cql in SCHEMA:
                accepted(connection.query(cql))
            insert(connection, range(FLUSHED))
            node.flush("ks")
            insert(connection, range(FLUSHED, 2 * FLUSHED))
        node.kill()
        yield node
    finally:
        stop(node)


def insert(connection: Connection, keys: range) -> None:
    for table in TABLES:
        for k in keys:
            accepted(connection.query(f"INSERT INTO ks.{table} (k, v) VALUES ({k}, {k})"))


def component(node: Espalier, table: str, name: str, keyspace: str = "ks") -> Path:
    return next((node.data / "data" / keyspace).glob(f"{table}-*/da-*-bti-{name}"))


@contextmanager
def damaged(path: Path) -> Iterator[None]:
    """A context in which the file is cut in its middle."""
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    try:
        yield
    finally:
        path.write_bytes(whole)


def count(node: Espalier, table: str) -> int:
    with Connection(node.host, node.port) as connection:
        return len(accepted(connection.query(f"SELECT k FROM ks.{table}")).rows)


def refusal(node: Espalier, cql: str) -> str:
    with Connection(node.host, node.port) as connection:
        refused = answer(connection, cql)
        return refused.message if isinstance(refused, Error) else f"no error: {refused}"


def state(directory: Path) -> dict[str, tuple]:
    """Returns the checksum, size and time of change of every file and directory below."""
    found = {}
    for path in sorted(directory.rglob("*")):
        if not path.is_socket():
            digest = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
            found[str(path.relative_to(directory))] = (digest, path.stat().st_size, path.stat().st_mtime_ns)
    return found


def failed_start(node: Espalier) -> str:
    command = [str(places.espalier_binary()), "serve", "--data", str(node.data), "--port", str(node.port)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment(**node.environment))
    return done.stderr if done.returncode != 0 else f"it started: {done}"


def drain_beside_a_stuck_table(checks: Checks) -> None:
    """A file is in the place of the table's directory, so it cannot be flushed. The logs of the other tables are
    drained."""
    with prepared(disk_failure_policy="ignore") as node:
        node.launch()
        with Connection(node.host, node.port) as connection:
            insert(connection, range(2 * FLUSHED, 3 * FLUSHED))
        own = component(node, "hurt", "Data.db").parent
        aside = own.with_name("aside")
        shutil.move(own, aside)
        own.write_text("")
        checks.true("a drain with a table that cannot be flushed ends with an error", node.terminate() != 0)
        last = node.log_tail().strip().splitlines()[-1]
        checks.true("it names the table, which keeps its log", "ks.hurt" in last and "commit log" in last, last)
        checks.true("and none of the others", "ks.sound" not in last and "system" not in last, last)
        own.unlink()
        shutil.move(aside, own)
        log = Espalier.tool("log", "describe", "--data", str(node.data))
        checks.true("the log still has what the table lacks", "ks.hurt" in log or own.name.rpartition("-")[2] in log.replace("-", ""), log)
        node.launch()
        checks.equal("nothing of it is lost", count(node, "hurt"), 3 * FLUSHED)
        checks.equal("nor of the other", count(node, "sound"), 3 * FLUSHED)
        checks.equal("the next drain is a whole one", node.terminate(), 0)


def repair(checks: Checks) -> None:
    """An SSTable cannot be opened: the table is quarantined until it is repaired."""
    with prepared() as node:
        statistics = component(node, "hurt", "Statistics.db")
        with damaged(statistics):
            for life in ("first", "second"):
                node.launch()
                checks.equal(f"{life} life: the other is whole", count(node, "sound"), 2 * FLUSHED)
                lines = [line for line in node.steer("status").splitlines() if line.startswith("Quarantined")]
                checks.true(f"{life} life: status lists it with its reason and its log records",
                            len(lines) == 1 and all(part in lines[0] for part in ("ks.hurt", statistics.name, ".records")), str(lines))
                log = node.log_tail()
                checks.true(f"{life} life: so does the log", "table ks.hurt is quarantined" in log and statistics.name in log, log)
                message = refusal(node, "SELECT * FROM ks.hurt")
                checks.true(f"{life} life: its statements say file, place and remedy", all(part in message for part in
                            (statistics.name, "offset", "espalier repair-table ks hurt")), message)
                checks.raises("it is repaired too early", RuntimeError, statistics.name, lambda: node.steer("repair-table", "ks", "hurt"))
                checks.raises("what is served needs no repair", RuntimeError, "not quarantined", lambda: node.steer("repair-table", "ks", "sound"))
                checks.raises("nor what does not exist", RuntimeError, "ks.none", lambda: node.steer("repair-table", "ks", "none"))
                if life == "first":
                    node.kill()
        answered = node.steer("repair-table", "ks", "hurt")
        checks.true("it is repaired once the cause is gone", "ks.hurt is served again" in answered, answered)
        checks.equal("with its rows of SSTable and log", count(node, "hurt"), 2 * FLUSHED)
        checks.raises("once", RuntimeError, "not quarantined", lambda: node.steer("repair-table", "ks", "hurt"))
        checks.true("status lists nothing", "none" in next(line for line in node.steer("status").splitlines() if line.startswith("Quarantined")))
        checks.equal("no records are left aside", list((node.data / "quarantine").iterdir()), [])
        node.kill()
        node.launch()
        checks.equal("after kill -9", count(node, "hurt"), 2 * FLUSHED)
        checks.equal("status on SIGTERM", node.terminate(), 0)


def read_only(checks: Checks) -> None:
    """Reads are served, of SSTables and log; nothing is written."""
    with prepared() as node:
        before = state(node.data)
        node.flags = ("--read-only",)
        for life in ("first", "second"):
            node.launch()
            for table in TABLES:
                checks.equal(f"{life} life: rows of {table}", count(node, table), 2 * FLUSHED)
            for cql in REFUSED_TO_READERS:
                message = refusal(node, cql)
                checks.true(f"{life} life: {cql}", "it was started with --read-only" in message, message)
            checks.equal(f"{life} life: all rows are still there", count(node, "sound"), 2 * FLUSHED)
            if life == "first":
                node.kill()
        checks.equal("status on SIGTERM", node.terminate(), 0)
        after = state(node.data)
        changed = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
        checks.equal("files that differ", changed, [])
        node.flags = ()
        node.launch()
        checks.equal("a start that may write finds all", count(node, "sound"), 2 * FLUSHED)


def read_only_and_quarantine(checks: Checks) -> None:
    """A read-only node does not even write the side file of a quarantined table."""
    with prepared(disk_failure_policy="die") as node, damaged(component(node, "hurt", "Statistics.db")):
        checks.true("with die a start is refused", "Statistics.db" in failed_start(node))
        before = state(node.data)
        node.flags = ("--read-only",)
        node.launch()
        checks.true("a start to read only serves what it can", "quarantined" in refusal(node, "SELECT * FROM ks.hurt"))
        checks.equal("all rows of the other table", count(node, "sound"), 2 * FLUSHED)
        checks.true("the log lists the table", "ks.hurt is quarantined" in node.log_tail(), node.log_tail())
        checks.equal("status on SIGTERM", node.terminate(), 0)
        checks.equal("nothing is written", state(node.data), before)


def schema_lost(checks: Checks) -> None:
    """SSTables of the schema are damaged: the start names the place and the ways out, and both work."""
    with prepared() as node:
        node.launch()
        checks.equal("rows", count(node, "sound"), 2 * FLUSHED)
        checks.equal("status on SIGTERM", node.terminate(), 0)
        data = component(node, "columns", "Data.db", "system_schema")
        partitions = component(node, "columns", "Partitions.db", "system_schema")
        partitions.write_bytes(partitions.read_bytes()[:-20])
        message = failed_start(node)
        parts = (partitions.name, "offset", "--read-only", "sstable salvage")
        checks.true("a start says place and remedy", all(part in message for part in parts), message)
        before = state(node.data)
        node.flags = ("--read-only",)
        node.launch()
        checks.equal("a start to read only finds the rows without their index", count(node, "sound"), 2 * FLUSHED)
        checks.equal("status on SIGTERM of it", node.terminate(), 0)
        checks.equal("nothing is written", state(node.data), before)
        node.flags = ()
        saved = node.directory / "saved"
        Espalier.tool("sstable", "salvage", "--to", str(saved), str(data))
        remove_sstables(data.parent)
        for path in saved.rglob("da-*"):
            shutil.copy(path, data.parent / path.name)
        node.launch()
        checks.equal("a start with what was salvaged finds all", count(node, "sound"), 2 * FLUSHED)
        checks.true("it takes writes", not isinstance(writing(node), Error))
        checks.equal("status on SIGTERM after that", node.terminate(), 0)
        remove_sstables(data.parent)
        node.launch()
        for table in TABLES:
            message = refusal(node, f"SELECT * FROM ks.{table}")
            checks.true(f"without any rows of columns {table} is quarantined by name", "quarantined" in message and "system_schema.columns" in message, message)
        with Connection(node.host, node.port) as connection:
            checks.true("the name is taken", isinstance(answer(connection, "CREATE TABLE ks.hurt (k int PRIMARY KEY)"), Error))
            accepted(connection.query("CREATE TABLE ks.other (k int PRIMARY KEY)"))
            checks.true("new tables are served", is_read(connection, "SELECT * FROM ks.other"))
            accepted(connection.query("DROP TABLE ks.hurt"))
            accepted(connection.query("CREATE TABLE ks.hurt (k int PRIMARY KEY, v int)"))
            checks.equal("a table of the dropped one's name is empty", len(accepted(connection.query("SELECT * FROM ks.hurt")).rows), 0)
        checks.equal("status on SIGTERM with quarantined tables", node.terminate(), 0)


def remove_sstables(directory: Path) -> None:
    for path in directory.glob("da-*"):
        path.unlink()


def writing(node: Espalier):
    with Connection(node.host, node.port) as connection:
        return connection.query("INSERT INTO ks.sound (k, v) VALUES (1, 1)")


def dropped_and_made_anew(checks: Checks) -> None:
    """A quarantined table may be dropped. Every other change of it is refused and has no effect."""
    with prepared() as node:
        statistics = component(node, "hurt", "Statistics.db")
        with damaged(statistics):
            node.launch()
            for cql in ("TRUNCATE ks.hurt", "SELECT count(*) FROM ks.hurt", "INSERT INTO ks.hurt (k, v) VALUES (1, 1)", "DELETE FROM ks.hurt WHERE k = 1",
                        "BEGIN BATCH INSERT INTO ks.sound (k, v) VALUES (1000, 1); INSERT INTO ks.hurt (k, v) VALUES (1000, 1) APPLY BATCH"):
                message = refusal(node, cql)
                checks.true(cql, "quarantined" in message, message)
            checks.equal("no part of the batch was applied", count(node, "sound"), 2 * FLUSHED)
            for verb in (("snapshot", "ks", "hurt"), ("flush", "ks", "hurt"), ("compact", "ks", "hurt"), ("refresh", "ks", "hurt")):
                checks.raises(" ".join(verb), RuntimeError, "quarantined", lambda verb=verb: node.steer(*verb))
            for verb in (("snapshot",), ("flush",), ("compact",), ("tablestats",)):
                node.steer(*verb)
            checks.raises("an export says what it cannot have", RuntimeError, "ks.hurt",
                          lambda: node.steer("export", "--to", str(node.directory / "exported")))
            with Connection(node.host, node.port) as connection:
                accepted(connection.query("ALTER TABLE ks.hurt ADD w int"))
                accepted(connection.query("DROP TABLE ks.hurt"))
            checks.equal("no records are left aside", list((node.data / "quarantine").iterdir()), [])
            node.kill()
            node.launch()
            with Connection(node.host, node.port) as connection:
                accepted(connection.query("CREATE TABLE ks.hurt (k int PRIMARY KEY, v int)"))
                accepted(connection.query("INSERT INTO ks.hurt (k, v) VALUES (1, 1)"))
            checks.equal("the table made anew has its own row", count(node, "hurt"), 1)
            statistics.parent.mkdir(exist_ok=True)
            statistics.touch()
        checks.equal("status on SIGTERM", node.terminate(), 0)
