"""The proof of a ring: nodes are killed, repaired, added and removed under load, and no acknowledged write is lost.

Each step leaves a ring of three nodes with equal replicas. Besides the load there are two keyspaces with the same
statements of all kinds. The tables of one have our memtables (or are in our engine), those of the other Cassandra's
own: every read of both is the same.
"""

import time
from collections.abc import Callable
from pathlib import Path

from proof.plugin import node as one_node, storage as one_stored
from proof.plugin.node import Statements
from proof.ring.load import Load
from proof.ring.nodes import Node, Ring, differences, is_soon, nodetool, rows, wait_until
from proof.wire import Connection, Error, QueryOptions
from proof.wire.requests import ALL, QUORUM

REPLICATION = "{'class': 'SimpleStrategy', 'replication_factor': 3}"
TABLE = "(k int, c int, v int, pad text, PRIMARY KEY (k, c))"
LOAD_SECONDS = 4
READ_FAILURE = f"{0x1300:#x} "
SETTLE_SECONDS = 60


class Check:
    """The ring, its load and its tables, and how many checks passed."""

    def __init__(self, ring: Ring, seed: int, statements: int):
        self.ring = ring
        self.statement_count = statements
        self.statements = Statements(seed)
        self.passed = self.failed = 0
        self.next_node = 0
        self.next_partition = 900_000
        is_stored = ring.plugin.mode == "storage"
        self.keyspaces = {"ours": ring.plugin.memtable, "stock": "default"}
        # Indexes and views are refused in mode `storage`.
        self.schema = one_stored.SCHEMA if is_stored else one_node.SCHEMA
        self.reads = one_stored.READS if is_stored else one_node.READS
        self.compared = ["wide", "plain", "counts", "indexed", *([] if is_stored else ["by_v"])]
        self.create()
        self.load = Load(ring, "loaded.t")

    def create(self) -> None:
        for keyspace in ("loaded", "rolled", *self.keyspaces):
            self.ring.require(f"CREATE KEYSPACE {keyspace} WITH replication = {REPLICATION}")
        self.ring.require(f"CREATE TABLE loaded.t {TABLE} WITH memtable = '{self.ring.plugin.memtable}'")
        for statement in self.schema:
            for keyspace, memtable in self.keyspaces.items():
                self.ring.require(statement.format(ks=keyspace, memtable=memtable))
        self.ring.await_all_live()

    def check(self, name: str, right: bool, detail: object = "") -> None:
        self.passed, self.failed = self.passed + right, self.failed + (not right)
        print(f"{'ok' if right else 'FAIL'} {name}{'' if right else f': {str(detail)[:3000]}'}", flush=True)

    def write_statements(self) -> None:
        """The same statements to both keyspaces, by one node after another."""
        nodes = [node for node in self.ring.nodes if node.is_running]
        for _ in range(self.statement_count):
            statement = self.statements.one()
            node = nodes[self.next_node % len(nodes)]
            self.next_node += 1
            for keyspace in self.keyspaces:
                answer = node.query(statement.format(ks=keyspace))
                if isinstance(answer, Error):
                    self.check(statement, False, f"{keyspace}: {answer.message}")

    def compare(self, when: str) -> None:
        """No acknowledged write is lost, and both keyspaces give the same answers."""
        lost = self.load.verify()
        self.check(f"{when}: {self.load.acknowledged_count} acknowledged writes", not lost, lost[:5])
        unequal = []
        for number, read in enumerate(self.reads):
            node = self.load.coordinators[number % len(self.load.coordinators)]
            # After a start an index cannot be read until the nodes know that it is built.
            is_soon(lambda: isinstance(read_all(node, read.format(ks="stock")), list), SETTLE_SECONDS)
            is_soon(lambda: isinstance(read_all(node, read.format(ks="ours")), list), SETTLE_SECONDS)
            ours, stock = (read_all(node, read.format(ks=keyspace)) for keyspace in self.keyspaces)
            if ours != stock or not isinstance(stock, list):
                unequal.append(f"{read}: Cassandra {stock}, ours {ours}")
        self.check(f"{when}: {len(self.reads)} reads of both keyspaces", not unequal, f"{len(unequal)}: {unequal[:1]}")

    def compare_replicas(self, when: str) -> None:
        found = list(lasting_differences(self.ring, "loaded", "t").values())
        for table in self.compared:
            ours = lasting_differences(self.ring, "ours", table)
            # A partition that Cassandra's own memtables do not keep equal either is no fault of ours.
            cassandras = differences(self.ring, "stock", table) if ours else {}
            if ours.keys() & cassandras.keys():
                shared = [cassandras[key][:300] for key in ours if key in cassandras]
                print(f"the replicas of stock.{table} differ too: {shared}", flush=True)
            found += [difference for key, difference in ours.items() if key not in cassandras]
        self.check(f"{when}: the replicas of every partition are equal", not found, f"{len(found)}: {found[:3]}")

    def is_different(self) -> bool:
        return bool(differences(self.ring, "loaded", "t"))

    def repair(self, node: Node, kind: str = "full") -> None:
        for keyspace in ("loaded", *self.keyspaces):
            if kind != "sequential":
                node.command("repair", keyspace, kind)
                continue
            # Each node validates a snapshot.
            done = nodetool(node.jmx_port, "repair", "--full", "--sequential", keyspace)
            self.check(f"nodetool repair --sequential {keyspace}", done.returncode == 0, done.stdout + done.stderr)


def lasting_differences(ring: Ring, keyspace: str, table: str) -> dict[str, str]:
    """A third replica has a write some time after it was acknowledged, a view some time after its table, and a file of
    hints is no longer listed while it is delivered."""
    is_soon(lambda: not differences(ring, keyspace, table), SETTLE_SECONDS)
    return differences(ring, keyspace, table)


def read_all(node: Node, statement: str, consistency: int = QUORUM):
    """The rows of a read; an error's text."""
    with Connection(node.host, node.port) as connection:
        return one_node.rows(connection, statement, consistency)


def kills(check: Check) -> None:
    """kill -9 and restart of each node in turn, under load that also uses the killed node; then of all at once."""
    ring, load = check.ring, check.load
    for node in list(ring.nodes):
        load.run_for(LOAD_SECONDS)
        ring.kill(node)
        load.run_for(LOAD_SECONDS)
        ring.start_again(node)
        load.run_for(LOAD_SECONDS)
        check.compare(f"{node.host} was killed and started")
    load.run_for(LOAD_SECONDS)
    for node in ring.nodes:
        node.kill()
    load.pause()
    ring.start_again(*ring.nodes)
    check.compare("all nodes were killed and started")
    # A killed coordinator leaves no hints for writes that it had not sent to a third node yet.
    ring.await_hints()
    check.repair(ring.nodes[0])
    check.compare_replicas("all nodes were killed, then repaired")


def write_without(check: Check, node: Node) -> None:
    """Kills a node, writes by way of the others, and starts it again."""
    ring, load = check.ring, check.load
    ring.kill(node)
    load.use(ring.others(node))
    load.run_for(LOAD_SECONDS)
    check.write_statements()
    load.pause()
    ring.start_again(node)


def hints(check: Check) -> None:
    """Writes that were made while a node was away come to it by hints."""
    ring, load, node = check.ring, check.load, check.ring.nodes[2]
    load.pause()
    write_without(check, node)
    ring.await_hints()
    check.compare_replicas("hints were delivered")
    load.use(ring.nodes)
    check.compare("hints were delivered")


def repairs(check: Check) -> None:
    """A full repair gives a node what was written while it was away, without hints. Incremental and sequential ones do
    so too."""
    ring, load, node = check.ring, check.load, check.ring.nodes[1]
    load.pause()
    for other in ring.others(node):
        other.command("handoff", "off")
    write_without(check, node)
    for other in ring.others(node):
        other.command("handoff", "on")
    check.check("a node that was away lacks rows before the repair", check.is_different())
    check.repair(ring.nodes[0])
    check.compare_replicas("full repair")
    load.use(ring.nodes)
    check.compare("full repair")
    for kind in ("incremental", "full", "incremental", "sequential"):
        repair_of_local_rows(check, kind)
    left = [str(path) for other in ring.nodes for path in other.directory.glob("**/snapshots/*-*-*/*-Data.db")]
    check.check("no repair leaves a snapshot", not left, left[:5])


def repair_of_local_rows(check: Check, kind: str) -> None:
    """Each node has a row that only it has, and one of them a deletion."""
    ring = check.ring
    check.next_partition += 1
    partition = check.next_partition
    ring.require(f"INSERT INTO loaded.t (k, c, v) VALUES ({partition}, 0, 0)")
    for node in ring.nodes:
        row = f"{partition}, {node.number}, {node.number}, 'of one node'"
        node.command("local", f"INSERT INTO loaded.t (k, c, v, pad) VALUES ({row})")
    ring.nodes[0].command("local", f"DELETE FROM loaded.t WHERE k = {partition} AND c = 0")
    check.check(f"rows of one node are seen before the {kind} repair", check.is_different())
    check.repair(ring.nodes[1], kind)
    check.compare_replicas(f"{kind} repair of rows that one node had")
    found = ring.nodes[2].dump("loaded", "t")[str(partition)][1]
    has_all = sum("of one node" in line for line in found) == 3
    check.check(f"a node has the rows of the others after the {kind} repair", has_all, found)


def schema(check: Check) -> None:
    """Tables are made, altered and dropped under load, by every node."""
    ring, load = check.ring, check.load
    load.errors.clear()
    load.run_for(1)
    memtable = ring.plugin.memtable
    for node in ring.nodes:
        for statement in ("ALTER TABLE loaded.t ADD more int",
                          f"CREATE TABLE loaded.other {TABLE} WITH memtable = '{memtable}'",
                          "INSERT INTO loaded.other (k, c, v) VALUES (1, 1, 1)",
                          "ALTER TABLE loaded.other WITH memtable = 'default'",
                          "INSERT INTO loaded.other (k, c, v) VALUES (1, 2, 2)",
                          f"ALTER TABLE loaded.other WITH memtable = '{memtable}'",
                          "UPDATE loaded.t SET more = 1 WHERE k = 800000 AND c = 1"):
            answer = node.query(statement)
            check.check(f"{node.host}: {statement}", not isinstance(answer, Error), answer)
            ring.await_all_live()
        found = rows(node.query("SELECT v FROM loaded.other WHERE k = 1"))
        check.check(f"{node.host}: rows of a table that moved", found == [(b"\0\0\0\1",), (b"\0\0\0\2",)], found)
        for statement in ("ALTER TABLE loaded.t DROP more", "DROP TABLE loaded.other"):
            answer = node.query(statement)
            check.check(f"{node.host}: {statement}", not isinstance(answer, Error), answer)
            ring.await_all_live()
    load.run_for(1)
    load.pause()
    # A read fails in Cassandra itself when it asks for a column that a replica does not have yet.
    failed = [error for error in load.errors if READ_FAILURE not in error]
    check.check("no write failed while the schema changed", not failed, failed[:5])
    ring.await_hints()
    check.compare("the schema changed")
    check.compare_replicas("the schema changed")


def rolling(check: Check) -> None:
    """Tables say `memtable = 'fast'`, and every node in turn maps it to our memtables, and then back."""
    ring = check.ring
    check.load.pause()
    ring.require(f"CREATE TABLE rolled.t {TABLE} WITH memtable = 'fast'")
    ring.await_all_live()
    load = Load(ring, "rolled.t")
    load.run_for(LOAD_SECONDS)
    # From the engine the way out is by `espalier_left`, with which Cassandra flushes what the engine has.
    back = ["espalier_left", "trie"] if ring.plugin.mode == "storage" else ["trie"]
    try:
        for configuration in (ring.plugin.memtable, *back):
            for node in list(ring.nodes):
                roll(check, load, node, configuration)
            load.pause()
            ring.await_hints()
            found = lasting_differences(ring, "rolled", "t")
            check.check(f"'fast' is {configuration}: the replicas are equal", not found, list(found.values())[:3])
            lost = load.verify()
            check.check(f"'fast' is {configuration}: {load.acknowledged_count} acknowledged writes", not lost, lost[:5])
            load.resume()
        load.pause()
        check.check("no request at QUORUM failed", not load.errors, f"{len(load.errors)}: {load.errors[:5]}")
    finally:
        load.end()
    ring.require("DROP TABLE rolled.t")


def roll(check: Check, load: Load, node: Node, configuration: str) -> None:
    """Drains a node, changes its configuration, and restarts it. The clients have gone to the other nodes before, as
    drivers do."""
    ring = check.ring
    load.use(ring.others(node))
    node.command("drain")
    node.end()
    node.set_fast(configuration)
    ring.start_again(node)
    if configuration in ("espalier_left", "trie"):
        wait_until(lambda: not kept(node, "rolled", "t"), "the engine has nothing of a table that left it")
    load.use(ring.nodes)
    load.run_for(1)


def kept(node: Node, keyspace: str, table: str) -> list[Path]:
    """Returns the files that our engine still has of a table."""
    found = rows(node.query(f"SELECT id FROM system_schema.tables WHERE keyspace_name = '{keyspace}' "
                            f"AND table_name = '{table}'", QueryOptions()))
    return list((node.directory / "espalier").glob(f"data/t{found[0][0].hex()}_*/{table}-*/*-Data.db"))


def membership(check: Check) -> None:
    """A fourth node joins under load, and another one leaves."""
    ring, load = check.ring, check.load
    load.use(ring.nodes)
    load.run_for(1)
    joined = ring.add(bootstraps=True)
    load.use(ring.nodes)
    load.run_for(LOAD_SECONDS)
    check.compare("a fourth node has joined")
    check.write_statements()
    load.pause()
    ring.await_hints()
    check.compare_replicas("a fourth node has joined")
    check.check("the fourth node has rows of its own", len(joined.dump("loaded", "t")) > 0)
    clean_up(check)
    load.run_for(1)
    leaving = ring.nodes[1]
    load.use(ring.others(leaving))
    ring.leave(leaving)
    load.run_for(LOAD_SECONDS)
    check.compare("a node was decommissioned")
    load.pause()
    ring.await_hints()
    check.compare_replicas("a node was decommissioned")


def clean_up(check: Check) -> None:
    """A join alone removes nothing. `nodetool cleanup` removes what a node no longer has to have."""
    ring = check.ring
    tables = [("loaded", "t"), ("ours", "wide"), ("ours", "plain"), ("ours", "counts")]
    before = {node.host: rows_of_others(node, "loaded", "t") for node in ring.nodes}
    check.check("old nodes still have rows of others before the cleanup", sum(map(bool, before.values())) >= 2, before)
    for node in ring.nodes:
        node.flush("loaded")
        node.flush("ours")
        for keyspace in ("loaded", "ours"):
            done = nodetool(node.jmx_port, "cleanup", keyspace)
            check.check(f"{node.host}: nodetool cleanup {keyspace}", done.returncode == 0, done.stdout + done.stderr)
    for node in ring.nodes:
        left = [(table, *rows_of_others(node, keyspace, table)) for keyspace, table in tables]
        check.check(f"{node.host} has no rows of others after the cleanup", all(len(found) == 1 for found in left), left)
    check.compare("cleanup")
    check.compare_replicas("cleanup")
    statement = "SELECT k, c, v FROM loaded.t"
    for node in ring.nodes:
        at_quorum, at_all = read_all(node, statement), read_all(node, statement, ALL)
        is_same = isinstance(at_all, list) and at_all == at_quorum
        check.check(f"{node.host}: all replicas have the {len(at_quorum)} rows", is_same, (at_quorum[:3], at_all[:3]))


def rows_of_others(node: Node, keyspace: str, table: str) -> list[str]:
    """The keys of the partitions that a node itself has, and of which it is no replica."""
    return [key for key, (replicas, _) in node.dump(keyspace, table).items() if node.host not in replicas.split(",")]


def snapshot_and_truncate(check: Check) -> None:
    """Another table takes in the snapshot of each node, and has its rows. TRUNCATE removes the rows for good."""
    ring, load = check.ring, check.load
    load.pause()
    ring.await_hints()
    # A column that `t` once had is in its files.
    for statement in (f"CREATE TABLE loaded.taken {TABLE}", "ALTER TABLE loaded.taken ADD more int",
                      "ALTER TABLE loaded.taken DROP more"):
        ring.require(statement)
    ring.await_all_live()
    for node in ring.nodes:
        node.command("take_snapshot", "loaded", "t", "taken")
        directories = {path.parent for path in node.directory.glob("**/snapshots/taken/*-Data.db")}
        for directory in directories:
            node.import_tables("loaded", "taken", directory)
        taken, there = node.dump("loaded", "taken"), node.dump("loaded", "t")
        check.check(f"{node.host}: the snapshot has the node's {len(there)} partitions",
                    bool(there) and taken == there, f"{len(taken)} of {len(there)} in {directories}")
    ring.require("DROP TABLE loaded.taken")
    # For a repair, Cassandra writes what the engine has to SSTables. They must not come back.
    ring.nodes[0].command("repair", "loaded", "full")
    ring.require("TRUNCATE loaded.t")
    for node in ring.nodes:
        check.check(f"{node.host} has no rows after TRUNCATE", node.dump("loaded", "t") == {})
        is_soon(lambda: not files_of_cassandra(node), SETTLE_SECONDS)
        left = [str(path) for path in files_of_cassandra(node)]
        check.check(f"{node.host} has no SSTables after TRUNCATE", not left, left)
    load.truncated()
    load.run_for(1)
    load.pause()
    ring.nodes[0].kill()
    ring.start_again(ring.nodes[0])
    check.compare("truncated, then killed")
    ring.await_hints()
    check.compare_replicas("truncated, then killed")


def files_of_cassandra(node: Node) -> list[Path]:
    return list(node.directory.glob("data/loaded/t-*/*-Data.db"))


STEPS: dict[str, Callable[[Check], None]] = {
    "kills": kills, "hints": hints, "repairs": repairs, "schema": schema, "rolling": rolling, "membership": membership,
    "snapshot": snapshot_and_truncate,
}


def prove(ring: Ring, seed: int, statements: int, steps: list[str]) -> tuple[int, int]:
    """Returns how many checks passed and failed."""
    started = time.monotonic()
    for number in range(3):
        ring.add()
    print(f"{time.monotonic() - started:.0f} s: three nodes", flush=True)
    check = Check(ring, seed, statements)
    check.write_statements()
    check.load.run_for(LOAD_SECONDS)
    check.compare("loaded")
    check.load.pause()
    check.compare_replicas("loaded")
    for step in steps:
        print(f"{time.monotonic() - started:.0f} s: {step}", flush=True)
        STEPS[step](check)
    check.load.end()
    print(f"{time.monotonic() - started:.0f} s, {check.load.acknowledged_count} acknowledged writes", flush=True)
    return check.passed, check.failed
