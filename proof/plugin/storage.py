"""Mode `storage` of the plugin: the tables of `stored` are in our engine inside Cassandra, those of `stock` in
Cassandra's own memtables and SSTables. The same statements go to both, and then every read is the same: written, after
kill -9 without Cassandra's log, after a restart, altered, moved out of the mode and back, and truncated.

Cassandra's settings for storage and snapshots are those of the configuration file that it ships with.
"""

import re
import shutil
import struct
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from proof import places
from proof.oracle.cassandra import Cassandra, tool
from proof.plugin.node import KEYSPACES as MEMTABLE_KEYSPACES, READS as ALL_READS, SCHEMA as ALL_SCHEMA
from proof.plugin.node import Proof, add_a_custom_type, archive_log, memtables, rows
from proof.wire import Connection, Error, QueryOptions

KEYSPACES = {"stored": "espalier_storage", "stock": MEMTABLE_KEYSPACES["stock"]}
# Indexes and views are refused in this mode.
SCHEMA = [statement for statement in ALL_SCHEMA if "INDEX" not in statement and "VIEW" not in statement]
READS = [read for read in ALL_READS if "by_v" not in read and ".indexed WHERE" not in read]
TABLES = ("wide", "plain", "counts", "indexed")
STREAMED = ("wide", "plain")
BATCHES = ("BEGIN BATCH", "BEGIN UNLOGGED BATCH")
INSERT = "INSERT INTO {ks}.indexed (k, c, v, w) VALUES (1, 1, 1, 'w1') USING TIMESTAMP 1"
COPIED = "(k int, c int, u pair, f frozen<pair>, l list<frozen<pair>>, v text, PRIMARY KEY (k, c)) WITH memtable = "
COPIED_ROW = ("INSERT INTO stored.copied (k, c, u, f, l, v) VALUES ({k}, {c}, {{a: {c}, b: 'u'}}, {{a: {k}, b: 'f', c: 3}}, [{{b: 'l'}}], 'v{k}') "
              "USING TIMESTAMP 1")
# As Cassandra's cassandra.yaml has them; the oracle's has other ones.
AS_SHIPPED = {"uuid_sstable_identifiers_enabled": "false"}
# Each range of tokens goes to SSTables of its own.
SHARDS = "{'class': 'UnifiedCompactionStrategy', 'base_shard_count': '4', 'min_sstable_size': '0B'}"
# The plugin looks twice a second whether writes may skip Cassandra's log.
SETTLE_SECONDS = 3
# It looks once a second whether the engine may purge tombstones.
NOTED_SECONDS = 2.5
# The number of files of one size that the engine merges, and of attempts to see that, for machines under load.
FILES_MERGED, ATTEMPTS = 4, 4
JMX_PORT = "cassandra.jmx.local.port"


class StorageProof(Proof):
    keyspaces = KEYSPACES
    reads = READS

    def alter(self, connection: Connection, statement: str) -> None:
        answer = connection.query(statement)
        self.check(statement, not isinstance(answer, Error), str(answer))

    def crash(self, keeps_log: bool = True, meanwhile=lambda: None) -> None:
        """kill -9 and a start; without Cassandra's log if only our engine is to have the rows."""
        self.node.kill()
        meanwhile()
        if not keeps_log:
            shutil.rmtree(self.node.directory / "commitlog", ignore_errors=True)
        self.node.launch()

    def takes_no_writes(self, connection: Connection, reason: str) -> None:
        answer = connection.query(INSERT.format(ks="stored"))
        # Cassandra tells its client only that the write failed.
        self.check(f"a write to a table with {reason} is refused", isinstance(answer, Error), str(answer))
        log = (self.node.directory / "log").read_text(errors="replace")
        self.check(f"the log names {reason}", f"{reason} are not supported in mode 'storage'" in log)

    def takes_writes(self, connection: Connection, when: str) -> None:
        answer = connection.query(INSERT.format(ks="stored"))
        self.check(f"{when} it is taken", not isinstance(answer, Error), str(answer))
        connection.query(INSERT.format(ks="stock"))

    def kept(self, table: str) -> list:
        """The directories of the engine that have files of a table."""
        return list((self.node.directory / "espalier" / "data").glob(f"t*/{table}-*"))


def prove(jar, seed: int, statements: int, library=None) -> tuple[int, int]:
    """Returns how many checks passed and failed."""
    with Cassandra.start(plugin=jar, durable=True, library=library, sstable_format="nb", auto_snapshot=True, settings=AS_SHIPPED) as node:
        proof = StorageProof(node, seed)
        with Connection(node.host, node.port) as connection:
            for keyspace in KEYSPACES:
                connection.query(f"CREATE KEYSPACE {keyspace} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}")
            for statement in SCHEMA:
                proof.both(connection, statement)
        write_and_crash(proof, statements)
        alter_tables(proof, statements)
        refuse(proof)
        replay_log(proof)
        move(proof, statements)
        snapshot_and_truncate(proof)
        stream(proof, statements)
        drop(proof)
        return proof.passed, proof.failed


def write_and_crash(proof: StorageProof, statements: int) -> None:
    time.sleep(SETTLE_SECONDS)
    proof.write(statements)
    proof.compare("written")
    proof.node.flush("stored")
    proof.compare("after a flush that does nothing")
    for table in TABLES:
        proof.check(f"Cassandra has no SSTables of {table}", proof.node.sstables("stored", table) == [])
    # What `stock` has only in Cassandra's log goes to its SSTables first.
    proof.node.flush("stock")
    proof.crash(keeps_log=False)
    proof.compare("after kill -9 and without Cassandra's log")
    proof.write(statements // 2)
    proof.compare("written again")
    proof.node.command("drain")
    proof.node.end()
    refuse_starts(proof)
    proof.node.properties["cassandra.size_recorder_interval"] = "1"
    proof.node.properties[JMX_PORT] = str(places.free_ports(1)[0])
    proof.node.launch()
    proof.compare("after a drain and starts that were refused")
    for name in ("size_estimates", "table_estimates"):
        wait_until(lambda: all(estimated(proof, name, "wide")), 60)
        proof.check(f"system.{name} has the engine's partitions", all(estimated(proof, name, "wide")), str(estimated(proof, name, "wide")))
    for table in TABLES:
        proof.check(f"the engine has SSTables of {table}", has_files(proof, table), str(proof.kept(table)))


def alter_tables(proof: StorageProof, statements: int) -> None:
    with Connection(proof.node.host, proof.node.port) as connection:
        # Only the engine's log has its row.
        proof.alter(connection, "CREATE TABLE stored.damaged (k int PRIMARY KEY, v int) WITH memtable = 'espalier_storage'")
        proof.alter(connection, "INSERT INTO stored.damaged (k, v) VALUES (1, 2)")
        proof.node.command("take_snapshot", "stored", "damaged", "before")
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
    write_batches(proof)
    proof.crash()
    proof.compare("altered and killed")
    read_batches(proof)


def write_batches(proof: StorageProof) -> None:
    """Each is a mutation of a table of the engine and one of Cassandra's beside it, in one keyspace,
    and of a table in another one."""
    with Connection(proof.node.host, proof.node.port) as connection:
        proof.alter(connection, "CREATE TABLE stored.beside (k text PRIMARY KEY, n bigint) WITH memtable = 'default'")
        for number, begin in enumerate(BATCHES):
            parts = [f"INSERT INTO {table} (k, n) VALUES ('batch{number}', {number}); " for table in ("stored.plain", "stored.beside", "stock.plain")]
            answer = connection.query(f"{begin} USING TIMESTAMP 1900000000000000 {''.join(parts)} APPLY BATCH")
            proof.check(f"{begin} is taken", not isinstance(answer, Error), str(answer))


def read_batches(proof: StorageProof) -> None:
    with Connection(proof.node.host, proof.node.port) as connection:
        for number, begin in enumerate(BATCHES):
            found = [rows(connection, f"SELECT n FROM {table} WHERE k = 'batch{number}'") for table in ("stored.plain", "stored.beside", "stock.plain")]
            proof.check(f"after kill -9 all of {begin} is there", found == [[(struct.pack(">q", number),)]] * 3, str(found))
        proof.alter(connection, "DROP TABLE stored.beside")


def refuse(proof: StorageProof) -> None:
    with Connection(proof.node.host, proof.node.port) as connection:
        connection.query("CREATE INDEX refused ON stored.indexed (v)")
        # A start has no gossip either while it replays writes from before an index.
        nodetool(proof, "disablegossip")
        proof.takes_no_writes(connection, "secondary indexes")
        nodetool(proof, "enablegossip")
        answer = connection.query("SELECT * FROM stored.indexed WHERE v = 1")
        proof.check("a read by an index is refused", isinstance(answer, Error), str(answer))
        connection.query("DROP INDEX stored.refused")
        proof.takes_writes(connection, "without the index")
        before = memtables(proof.node, "StoredMemtable")
        proof.alter(connection, "CREATE MATERIALIZED VIEW stored.refused AS SELECT * FROM stored.indexed WHERE v IS NOT NULL AND k IS NOT NULL "
                                "AND c IS NOT NULL PRIMARY KEY (v, k, c) WITH memtable = 'espalier_storage'")
        proof.check("a view is not in the engine", memtables(proof.node, "StoredMemtable") == before)
        proof.takes_no_writes(connection, "materialized views")
        proof.alter(connection, "DROP MATERIALIZED VIEW stored.refused")
        proof.takes_writes(connection, "without the view")
        proof.alter(connection, "ALTER TABLE stored.indexed WITH cdc = true")
        proof.takes_no_writes(connection, "CDC")
        proof.alter(connection, "ALTER TABLE stored.indexed WITH cdc = false")
        proof.takes_writes(connection, "without CDC")
        keep_out(proof, connection)
    proof.compare("with a refused index, view and CDC")
    for statement in ("CREATE TABLE stored.refused (k int PRIMARY KEY)", "ALTER TABLE stored.wide"):
        for name, part in (("elsewhere", "one engine"), ("relative", "absolute path")):
            proof.refusal(f"{statement} WITH memtable = 'espalier_{name}'", part)


def replay_log(proof: StorageProof) -> None:
    """A start replays a write that was taken before there was an index, and one that was refused after it."""
    with Connection(proof.node.host, proof.node.port) as connection:
        # From a move out until the next start, writes are in Cassandra's log too.
        proof.alter(connection, "CREATE TABLE stored.leaving (k int PRIMARY KEY) WITH memtable = 'espalier_storage'")
        proof.alter(connection, "ALTER TABLE stored.leaving WITH memtable = 'default'")
        proof.both(connection, "INSERT INTO {ks}.indexed (k, c, v, w) VALUES (1, 2, 1, 'before') USING TIMESTAMP 1")
        proof.alter(connection, "CREATE INDEX refused ON stored.indexed (v)")
        proof.takes_no_writes(connection, "secondary indexes")
        answer = connection.query("INSERT INTO stored.grown (k, c) VALUES (1, 0x00000000000000000000000000000001)")
        proof.check("a value of a custom type is refused", isinstance(answer, Error), str(answer))
    configure_directory_around(proof.node)
    proof.crash(meanwhile=lambda: invert_files(proof, "damaged"))
    with Connection(proof.node.host, proof.node.port) as connection:
        proof.refusal("CREATE TABLE stored.refused (k int PRIMARY KEY) WITH memtable = 'espalier_around'", "a directory of Cassandra's")
        proof.alter(connection, "DROP INDEX stored.refused")
        proof.takes_writes(connection, "after a start")
        proof.alter(connection, "DROP TABLE stored.leaving")
        proof.both(connection, "ALTER TABLE {ks}.grown DROP c")
        proof.both(connection, "INSERT INTO {ks}.grown (k, v) VALUES (3, 4) USING TIMESTAMP 1")
    proof.compare("after a start with refused writes in Cassandra's log")
    move_damaged(proof)
    empty_log(proof)


def invert_files(proof: StorageProof, table: str) -> None:
    """Damages the engine's files of a table. The second time they are right again."""
    for directory in proof.kept(table):
        for path in directory.glob("*-Partitions.db"):
            path.write_bytes(bytes(byte ^ 255 for byte in path.read_bytes()))


def move_damaged(proof: StorageProof) -> None:
    """A table that the engine cannot read is not empty: a move out of the mode keeps its files."""
    with Connection(proof.node.host, proof.node.port) as connection:
        answer = connection.query("SELECT * FROM stored.damaged")
        proof.check("a table with a damaged file is not read", isinstance(answer, Error), str(answer))
        proof.alter(connection, "ALTER TABLE stored.damaged WITH memtable = 'espalier_left'")
        time.sleep(SETTLE_SECONDS)
        answer = connection.query("SELECT * FROM stored.damaged")
        proof.check("nor while it moves out", isinstance(answer, Error), str(answer))
        proof.check("its files stay", has_files(proof, "damaged"))
    proof.crash(meanwhile=lambda: invert_files(proof, "damaged"))
    with Connection(proof.node.host, proof.node.port) as connection:
        found = rows(connection, "SELECT v FROM stored.damaged")
        proof.check("its rows are there once the file is right", found == [(struct.pack(">i", 2),)], str(found))
        wait_until(lambda: not has_files(proof, "damaged"), 60)
        proof.check("and then it moves out", not has_files(proof, "damaged"))
        proof.alter(connection, "DROP TABLE stored.damaged")


def empty_log(proof: StorageProof) -> None:
    """While a table moves in, writes to all tables of the mode are in Cassandra's log too. Once it is skipped again,
    their files are removed, and tombstones of the rows are purged. The next start must not bring the rows back."""
    with Connection(proof.node.host, proof.node.port) as connection:
        time.sleep(SETTLE_SECONDS)
        proof.alter(connection, "CREATE TABLE stored.purged (k int PRIMARY KEY, v int) WITH gc_grace_seconds = 0 AND memtable = 'espalier_storage'")
        proof.alter(connection, "CREATE TABLE stored.coming (k int PRIMARY KEY, v int) WITH gc_grace_seconds = 0 AND memtable = 'default'")
        prepared = connection.prepare("INSERT INTO stored.coming (k, v) VALUES (1, 1)")
        # The last file is empty until it is needed. The one before it takes the writes.
        wait_until(lambda: len(segments(proof.node)) > 1)
        logged = set(segments(proof.node)[:-1])
        written = write_while_moving(proof, connection)
        wait_until(lambda: not logged.intersection(segments(proof.node)))
        left = logged.intersection(segments(proof.node))
        proof.check("the files of Cassandra's log are removed once it is skipped", bool(logged) and not left, f"{left} of {logged}")
        # A statement from before the move goes to the log, also if the table then takes no writes.
        proof.alter(connection, "ALTER TABLE stored.coming WITH cdc = true")
        answer = connection.execute(prepared, QueryOptions())
        proof.check("a prepared write is refused", isinstance(answer, Error), str(answer))
        proof.alter(connection, "ALTER TABLE stored.coming WITH cdc = false")
        # Until the engine knows that Cassandra has no rows of the table, it purges nothing.
        time.sleep(NOTED_SECONDS)
        counts = [1]
        while counts[-1] > 0 and len(counts) <= ATTEMPTS:
            delete_and_merge(proof, connection, {"purged": written, "coming": 1}, f"merged{len(counts)}")
            counts.append(partition_count(proof, "purged"))
        proof.check("tombstones are purged then", counts[-1] == 0, str(counts))


def write_while_moving(proof: StorageProof, connection: Connection) -> int:
    """Writes rows with the keys from 1 on while a table moves into the mode. Returns the last key."""
    with ThreadPoolExecutor(1) as executor:
        moved = executor.submit(proof.alter, connection, "ALTER TABLE stored.coming WITH memtable = 'espalier_storage'")
        with Connection(proof.node.host, proof.node.port) as writing:
            number = 0
            while not moved.done():
                number += 1
                writing.query(f"INSERT INTO stored.purged (k, v) VALUES ({number}, 1)")
        moved.result()
    return number


def delete_and_merge(proof: StorageProof, connection: Connection, tables: dict[str, int], name: str) -> None:
    """Deletes rows of tables without a time of grace, which have these last keys, and lets the engine merge the
    tombstones. Another row stays: a merge without a result would wait until the engine's log has none of the
    records."""
    for number in range(FILES_MERGED):
        for table, last in tables.items():
            for key in range(1, last + 1):
                connection.query(f"DELETE FROM stored.{table} WHERE k = {key}")
            proof.alter(connection, f"INSERT INTO stored.{table} (k, v) VALUES (0, 2)")
        # A tombstone is purged in a later second.
        time.sleep(1.1)
        for table in tables:
            proof.node.command("take_snapshot", "stored", table, f"{name}-{number}")
    time.sleep(1)


def partition_count(proof: StorageProof, table: str) -> int:
    """The number of partitions of a table without SSTables of Cassandra's, of which it counts one less. Those that have
    only a tombstone count too."""
    statistics = nodetool(proof, "tablestats", f"stored.{table}")
    return int(re.search(r"Number of partitions \(estimate\): (\d+)", statistics).group(1))


def segments(node: Cassandra) -> list[str]:
    """The files of Cassandra's log, the oldest first."""
    return sorted(path.name for path in (node.directory / "commitlog").glob("CommitLog-*.log"))


def configure_directory_around(node: Cassandra) -> None:
    """From its next start on, the node has a configuration of memtables whose directory has Cassandra's in it."""
    configuration = node.directory / "cassandra.yaml"
    text, following = configuration.read_text(), "    espalier_relative:\n"
    added = f"    espalier_around:\n      class_name: EspalierMemtable\n      parameters:\n        mode: storage\n        directory: {node.directory}\n"
    assert following in text, "the plugin's configurations have other names"
    configuration.write_text(text.replace(following, added + following))


def keep_out(proof: StorageProof, connection: Connection) -> None:
    """A new table with CDC, and one with a view that would move in, stay with Cassandra and take writes."""
    before = memtables(proof.node, "StoredMemtable")
    proof.alter(connection, "CREATE TABLE stored.captured (k int PRIMARY KEY, v int) WITH cdc = true AND memtable = 'espalier_storage'")
    proof.alter(connection, "CREATE TABLE stored.viewed (k int PRIMARY KEY, v int) WITH memtable = 'default'")
    proof.alter(connection, "CREATE MATERIALIZED VIEW stored.by_value AS SELECT * FROM stored.viewed WHERE v IS NOT NULL AND k IS NOT NULL "
                            "PRIMARY KEY (v, k) WITH memtable = 'default'")
    proof.alter(connection, "ALTER TABLE stored.viewed WITH memtable = 'espalier_storage'")
    for table in ("captured", "viewed"):
        proof.alter(connection, f"INSERT INTO stored.{table} (k, v) VALUES (1, 2)")
        found = rows(connection, f"SELECT k, v FROM stored.{table}")
        proof.check(f"{table}: its rows", found == [(struct.pack(">i", 1), struct.pack(">i", 2))], str(found))
    proof.check("neither is in the engine", memtables(proof.node, "StoredMemtable") == before)
    # Otherwise Cassandra's log would stay in use after the next start.
    for dropped in ("MATERIALIZED VIEW stored.by_value", "TABLE stored.viewed", "TABLE stored.captured"):
        proof.alter(connection, f"DROP {dropped}")


def refuse_starts(proof: StorageProof) -> None:
    """A node does not start with a configuration under which rows would not be read, or be in no archive."""
    node = proof.node
    configuration = node.directory / "cassandra.yaml"
    right = configuration.read_text()
    configuration.write_text(right.replace(f"directory: {node.directory / 'espalier'}\n", "directory: relative\n"))
    refuse_start(proof, "absolute path")
    configuration.write_text(right)
    archive_log(node)
    refuse_start(proof, "archive_command")
    node.jvm_flags = ()


def refuse_start(proof: StorageProof, part: str) -> None:
    log = proof.node.directory / "log"
    before = log.stat().st_size
    try:
        proof.node.launch()
        proof.check(f"a start is refused: {part}", False, "it started")
        proof.node.end()
    except RuntimeError as ended:
        proof.node.process.wait()
        said = log.read_bytes()[before:].decode(errors="replace")
        proof.check(f"a start is refused: {part}", "EspalierMemtable: " in said and part in said, str(ended))


def move(proof: StorageProof, statements: int) -> None:
    node = proof.node
    with Connection(node.host, node.port) as connection:
        proof.alter(connection, "ALTER TABLE stored.wide WITH memtable = 'espalier_left'")
        proof.alter(connection, "ALTER TABLE stored.plain WITH memtable = 'default'")
    proof.compare("moved out")
    proof.write(statements // 4)
    node.flush("stored")
    proof.check("Cassandra has SSTables of what was moved out", len(node.sstables("stored", "wide")) > 0)
    wait_until(lambda: not has_files(proof, "wide") and not has_files(proof, "plain"))
    proof.check("the engine has no files of it", not has_files(proof, "wide") and not has_files(proof, "plain"))
    proof.crash()
    proof.compare("moved out and killed")
    with Connection(node.host, node.port) as connection:
        for table in ("purged", "coming"):
            found = rows(connection, f"SELECT k FROM stored.{table}")
            proof.check(f"deleted rows of {table} do not come back from Cassandra's log", found == [(struct.pack(">i", 0),)], str(found))
    with Connection(node.host, node.port) as connection:
        for table in ("wide", "plain"):
            proof.alter(connection, f"ALTER TABLE stored.{table} WITH memtable = 'espalier_storage'")
    proof.write(statements // 4)
    proof.compare("moved back")
    proof.crash()
    proof.compare("moved back and killed")


def snapshot_and_truncate(proof: StorageProof) -> None:
    take_snapshots(proof)
    fail_to_truncate(proof)
    with Connection(proof.node.host, proof.node.port) as connection:
        proof.check("the engine has files of a table", has_files(proof, "wide"))
        answer = connection.query("TRUNCATE stored.wide")
        # Cassandra discards the memtable some time later. A start in between would bring the rows back.
        proof.check("once TRUNCATE is answered the engine has none", not has_files(proof, "wide"), str(proof.kept("wide")))
        proof.check("TRUNCATE is carried out", not isinstance(answer, Error), str(answer))
        connection.query("TRUNCATE stock.wide")
        proof.compare("truncated")
        proof.both(connection, "TRUNCATE {ks}.plain")
    proof.compare("both truncated")
    proof.check("TRUNCATE leaves a snapshot", bool(files_of_snapshot(proof, "wide", "truncated-*")))


def fail_to_truncate(proof: StorageProof) -> None:
    """A TRUNCATE whose flush fails leaves the rows, and so does the next start: there is no snapshot of them."""
    node = proof.node
    directory, = (node.directory / "data" / "stored").glob("wide-*")
    away = directory.with_suffix(".away")
    directory.rename(away)
    directory.touch()       # no file can be made in it
    with Connection(node.host, node.port) as connection:
        answer = connection.query("TRUNCATE stored.wide")
        proof.check("a TRUNCATE that cannot be flushed fails", isinstance(answer, Error), str(answer))
        directory.unlink()
        away.rename(directory)
        proof.both(connection, "INSERT INTO {ks}.wide (k, a, b, w) VALUES (2, 2, 'b1', 'during') USING TIMESTAMP 1900000000000001")
        proof.compare("after a TRUNCATE that failed")
        answer = connection.query("TRUNCATE stored.wide")
        proof.check("another TRUNCATE before the next start fails", isinstance(answer, Error), str(answer))
    reason = "stored.wide is not truncated: rows of it could not be flushed earlier"
    # A client may have its answer before the log has the reason.
    wait_until(lambda: reason in (node.directory / "log").read_text(errors="replace"))
    proof.check("the log says why", reason in (node.directory / "log").read_text(errors="replace"))
    proof.compare("after another TRUNCATE that failed")
    proof.check("neither left a snapshot", not files_of_snapshot(proof, "wide", "truncated-*"))
    proof.crash()
    proof.compare("after TRUNCATE that failed and kill -9")
    # Only now are there files of what the engine had in memory.
    node.command("take_snapshot", "stored", "wide", "before")


def take_snapshots(proof: StorageProof) -> None:
    """Cassandra has the files of a snapshot among its own: it removes them, and another table takes them in."""
    node = proof.node
    with Connection(node.host, node.port) as connection:
        proof.alter(connection, f"CREATE TABLE stored.copied {COPIED} 'espalier_storage'")
        proof.alter(connection, f"CREATE TABLE stored.restored {COPIED} 'default'")
        for k in range(3):
            for c in range(3):
                proof.alter(connection, COPIED_ROW.format(k=k, c=c))
        proof.alter(connection, "DELETE FROM stored.copied USING TIMESTAMP 2 WHERE k = 1 AND c = 1")
        for when in ("a snapshot", "a snapshot under a name that was cleared"):
            node.command("take_snapshot", "stored", "copied", "taken")
            proof.check(f"{when} has the table's files", bool(files_of_snapshot(proof, "copied", "taken")))
            if when == "a snapshot":
                nodetool(proof, "clearsnapshot", "-t", "taken", "stored")
                proof.check("a cleared snapshot has no files", not files_of_snapshot(proof, "copied", "*"))
        directory, = {path.parent for path in files_of_snapshot(proof, "copied", "taken")}
        node.import_tables("stored", "restored", directory)
        written, restored = (rows(connection, f"SELECT * FROM stored.{table}") for table in ("copied", "restored"))
        proof.check("a snapshot that is imported has the rows", len(written) == 8 and written == restored, f"{restored} in place of {written}")
        left = list((node.directory / "espalier").glob("data/t*/*/snapshots/*"))
        proof.check("the engine has no snapshots of its own", not left, str(left))
        for table in ("copied", "restored"):
            proof.alter(connection, f"DROP TABLE stored.{table}")


def files_of_snapshot(proof: StorageProof, table: str, name: str) -> list[Path]:
    return list((proof.node.directory / "data" / "stored").glob(f"{table}-*/snapshots/{name}/*-Data.db"))


def nodetool(proof: StorageProof, *arguments: str) -> str:
    """The command's output."""
    done = tool("org.apache.cassandra.tools.NodeTool", "-h", "127.0.0.1", "-p", proof.node.properties[JMX_PORT], *arguments)
    proof.check(f"nodetool {' '.join(arguments)}", done.returncode == 0, done.stdout + done.stderr)
    return done.stdout


def stream(proof: StorageProof, statements: int) -> None:
    """Cassandra writes SSTables to stream rows or to validate them. Nobody else reads those, also not after a start."""
    node = proof.node
    proof.write(statements // 4)
    with Connection(node.host, node.port) as connection:
        proof.alter(connection, f"ALTER TABLE stored.plain WITH compaction = {SHARDS}")
    files = write_ranges(proof)
    proof.check("the rows of a table are written to several files", len(files) > len(STREAMED), str(files))
    # The plugin looks once a second whether they can go.
    time.sleep(SETTLE_SECONDS)
    proof.check("files stay while they are streamed", bool(files) and all(path.exists() for path in files), str(files))
    proof.check("they are no SSTables of their tables", not live(proof))
    node.command("release_ranges")
    wait_until(lambda: not any(path.parent.glob("*.db") for path in files))
    directories = {path.parent for path in files}
    left = [str(path) for directory in directories for path in directory.iterdir() if path.is_file()]
    proof.check("afterwards they are removed", not left, str(left))
    write_ranges(proof)
    with Connection(node.host, node.port) as connection:
        for table in STREAMED:
            proof.both(connection, f"TRUNCATE {{ks}}.{table}")
        proof.both(connection, "INSERT INTO {ks}.wide (k, a, b, w) VALUES (1, 1, 'b1', 'after') USING TIMESTAMP 1")
    proof.crash()
    proof.compare("truncated and killed during a stream")
    proof.check("a start removes the files of a stream", not live(proof))


def write_ranges(proof: StorageProof) -> list[Path]:
    """Has Cassandra write the rows of two tables to files as for a stream, and hold them open."""
    for table in STREAMED:
        names = proof.node.command("write_ranges", "stored", table).split("\t")
    return [Path(name) for name in names if name]


def live(proof: StorageProof) -> list[Path]:
    return [path for table in STREAMED for path in proof.node.sstables("stored", table)]


def drop(proof: StorageProof) -> None:
    with Connection(proof.node.host, proof.node.port) as connection:
        proof.alter(connection, "DROP TABLE stored.counts")
    wait_until(lambda: not has_files(proof, "counts"))
    proof.check("a dropped table has no files", not has_files(proof, "counts"))
    proof.check("DROP TABLE leaves a snapshot", bool(files_of_snapshot(proof, "counts", "dropped-*")))


def estimated(proof: StorageProof, name: str, table: str) -> tuple[int, int]:
    """The sums of the numbers of partitions and of their mean sizes. Cassandra's recorder writes zeros, which last
    until the plugin's next run."""
    with Connection(proof.node.host, proof.node.port) as connection:
        found = rows(connection, f"SELECT partitions_count, mean_partition_size FROM system.{name} WHERE keyspace_name = 'stored' "
                                 f"AND table_name = '{table}' ALLOW FILTERING")
    numbers = [[struct.unpack(">q", number)[0] for number in row] for row in found]
    return sum(row[0] for row in numbers), sum(row[1] for row in numbers)


def has_files(proof: StorageProof, table: str) -> bool:
    return any(any(path.glob("*-Data.db")) for path in proof.kept(table))


def wait_until(holds, seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not holds() and time.monotonic() < end:
        time.sleep(0.1)

