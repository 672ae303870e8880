"""The audit logs of both nodes: every entry, but for its time, its port, the ids of
batches and the passwords' places."""

import difflib
import re
import time
from types import SimpleNamespace

from proof.wire import Connection, Prepared, QueryOptions
from proof.wire.connection import LoginRefused

END = "SELECT * FROM system_auth.end_of_the_audit_log"
ENTRY = re.compile(r"user:(.*?)\|.*?\|type:(.*)$")
# Up to the message of a failure.
PASSWORD = re.compile(r"(?i)(password)\b.*?(?=; |$)")
BATCH = re.compile(r"(?i)(batch(?:id)?:\[?)[0-9a-f-]{36}")
# An id that no statement has.
UNKNOWN = SimpleNamespace(id=bytes(16), metadata_id=bytes(16))
KEYSPACE = "CREATE KEYSPACE {} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}"
# Sent as text, and then prepared and executed, by a role that may read and write au.t and nothing else.
BOTH_WAYS = [
    "SELECT nothing FROM au.t",
    "SELECT * FROM au.nothing",
    "SELECT * FROM nothing.t",
    "SELECT * FROM au.t WHERE v = 1",
    "SELECT * FROM au.t WHERE k = 1",
    "SELECT * FROM au.other WHERE k = 1",
    "SELECT * FROM system.local",
    "SELECT role FROM system_auth.roles",
    "INSERT INTO au.t (k) VALUES (",
    "INSERT INTO au.t (k, v) VALUES (1, 'text')",
    "INSERT INTO au.t (v) VALUES (1)",
    "INSERT INTO au.t (k, v) VALUES (7, 7) IF NOT EXISTS",
    "INSERT INTO au.other (k, v) VALUES (1, 1)",
    "DELETE FROM au.t WHERE k = 4",
    "DELETE FROM au.nothing WHERE k = 4",
    "INSERT INTO au.t JSON '{\"k\": 5, \"nothing\": 5}'",
    "BEGIN BATCH INSERT INTO au.t (k) VALUES (1); INSERT INTO au.t (k) VALUES (2); APPLY BATCH",
    "BEGIN BATCH INSERT INTO au.t (k) VALUES (1); INSERT INTO au.other (k) VALUES (1); APPLY BATCH",
    "BEGIN BATCH INSERT INTO au.t (k) VALUES (1); INSERT INTO au.nothing (k) VALUES (1); APPLY BATCH",
    "USE nothing",
    "USE au",
    "SELECT * FROM t",
    "TRUNCATE t",
    "TRUNCATE au.other",
    "TRUNCATE au.nothing",
    "DESCRIBE TABLE t",
    "DESCRIBE TABLE au.nothing",
    "DESCRIBE KEYSPACES",
    "LIST ROLES",
    "LIST USERS",
    "LIST ALL OF auditee",
    "LIST ALL OF nobody",
    "LIST ALL ON au.nothing",
    "LIST ROLES OF nobody",
    "CREATE ROLE au2",
    "CREATE ROLE auditee",
    "DROP ROLE nobody",
    "DROP ROLE auditee",
    "ALTER ROLE auditee WITH SUPERUSER = true",
    "ALTER ROLE nobody WITH LOGIN = true",
    "ALTER ROLE nobody WITH PASSWORD = 'x'",
    "ALTER ROLE auditee WITH PASSWORD = 'auditee'",
    "ALTER ROLE auditee WITH PASSWORD = 'auditee' AND LOGIN = true",
    "ALTER ROLE auditee WITH PASSWORD = 'auditee' AND SUPERUSER = false",
    "ALTER ROLE auditee WITH HASHED PASSWORD = 'nothing'",
    "ALTER ROLE auditee WITH ACCESS TO DATACENTERS {'nothing'} AND PASSWORD = 'auditee'",
    "ALTER ROLE IF EXISTS nobody WITH PASSWORD = 'x'",
    "ALTER ROLE cassandra WITH PASSWORD = 'cassandra'",
    "ALTER USER auditee WITH PASSWORD 'auditee'",
    "ALTER USER nobody WITH PASSWORD 'x' NOSUPERUSER",
    "CREATE ROLE auditee WITH PASSWORD = 'x'",
    "CREATE ROLE auditee WITH PASSWORD = 'x' AND SUPERUSER = true",
    "CREATE USER auditee WITH PASSWORD 'x'",
    "GRANT SELECT ON au.t TO auditee",
    "GRANT SELECT ON t TO nobody",
    "GRANT nobody TO auditee",
    "REVOKE ALL ON ALL KEYSPACES FROM auditee",
    "ADD IDENTITY 'spiffe://au' TO ROLE 'auditee'",
    "DROP IDENTITY 'spiffe://au'",
    KEYSPACE.format("au3"),
    "ALTER KEYSPACE au WITH durable_writes = true",
    "ALTER KEYSPACE nothing WITH durable_writes = true",
    "DROP KEYSPACE nothing",
    "CREATE TABLE au.t (k int PRIMARY KEY)",
    "CREATE TABLE t4 (k int)",
    "CREATE TABLE t4 (k int PRIMARY KEY)",
    "ALTER TABLE t ADD x int",
    "ALTER TABLE au.nothing ADD x int",
    "DROP TABLE t",
    "DROP TABLE au.nothing",
    "CREATE INDEX named ON t (v)",
    "CREATE INDEX ON au.t (v)",
    "DROP INDEX au.nothing",
    "CREATE TYPE au.ty (a int)",
    "ALTER TYPE au.ty ADD b int",
    "DROP TYPE au.ty",
    "DROP MATERIALIZED VIEW au.nothing",
    "DROP TRIGGER nothing ON au.t",
    "nonsense",
    "",
    "DROP KEYSPACE au3",
    "DROP KEYSPACE au",
]


# Sent as text only: Cassandra's entry of a PREPARE may show a password that cannot be parsed.
AS_TEXT = [
    "ALTER ROLE auditee WITH PASSWORD = auditee",
    "ALTER ROLE auditee WITH PASSWORD = 'auditee' AND",
    "ALTER USER auditee WITH PASSWORD 5",
]


def requests(node, connect) -> None:
    """Requests of all kinds, with mistakes of all kinds, as a role that may read and write one table only."""
    with connect(node) as admin:
        for statement in (KEYSPACE.format("au"), "CREATE TABLE au.t (k int PRIMARY KEY, v int)",
                          "CREATE TABLE au.other (k int PRIMARY KEY, v int)", "CREATE ROLE auditee WITH LOGIN = true AND PASSWORD = 'auditee'",
                          "GRANT SELECT, MODIFY ON au.t TO auditee"):
            admin.query(statement)
        with Connection(node.host, node.port, 5, login=("auditee", "auditee")) as client:
            both_ways(client)
            prepared_ones(client)
            batches(client)
        with Connection(node.host, node.port, 5, login=("auditee", "auditee")) as client:
            what_it_needs_goes(client, admin)
        admin.query("CREATE ROLE au_closed WITH LOGIN = false AND PASSWORD = 'au_closed'")
        for name, password in (("auditee", "auditee"), ("au_closed", "au_closed"), ("au_closed", "wrong"), ("nobody", "x")):
            logged_in(node, name, password, lambda client: None)
        both_ways(admin)


def both_ways(client: Connection) -> None:
    for statement in BOTH_WAYS:
        client.query(statement)
        prepared = client.prepare(statement)
        if isinstance(prepared, Prepared):
            client.execute(prepared)
    for statement in AS_TEXT:
        client.query(statement)


def prepared_ones(client: Connection) -> None:
    write, read = client.prepare("INSERT INTO au.t (k, v) VALUES (?, ?)"), client.prepare("SELECT v FROM au.t WHERE k = ?")
    row, key = QueryOptions(values=[int4(1), int4(2)]), QueryOptions(values=[int4(1)])
    for options in (row, key, QueryOptions(values=[b"wrong", int4(2)]), QueryOptions(values=[None, int4(2)])):
        client.execute(write, options)
    client.execute(read, key)
    client.execute(client.prepare("INSERT INTO au.other (k, v) VALUES (?, ?)"), row)
    client.execute(UNKNOWN, row)
    client.execute(client.prepare("SELECT v FROM au.t WHERE k = ?"), key)
    client.query("SELECT v FROM au.t WHERE k = 1", tracing=True)
    client.query("SELECT v FROM au.t WHERE k = ?", key)
    client.query("SELECT v FROM au.t WHERE k = ?")


def batches(client: Connection) -> None:
    write = client.prepare("INSERT INTO au.t (k, v) VALUES (?, ?)")
    text, two = "INSERT INTO au.t (k, v) VALUES (?, ?)", [int4(3), int4(4)]
    client.batch(0, [(write.id, two), (text, two)])
    client.batch(1, [(text, two), ("DELETE FROM au.t WHERE k = 9", [])])
    client.batch(2, [(text, two)])
    client.batch(0, [])
    plain = ("INSERT INTO au.other (k) VALUES (1)", "INSERT INTO au.t (k) VALUES (1", "SELECT * FROM au.t", "USE au", "DROP TABLE au.t",
             "INSERT INTO au.nothing (k) VALUES (1)", "INSERT INTO au.t (k, v) VALUES (1, 1) IF NOT EXISTS")
    with_values = ((text, [int4(3)]), (write.id, [int4(3)]), (write.id, [b"wrong", int4(2)]), (UNKNOWN.id, two))
    for broken in (*((statement, []) for statement in plain), *with_values):
        client.batch(0, [broken])
        client.batch(0, [(text, two), broken])
        client.batch(0, [broken, (write.id, two), (text, two)])
        client.batch(0, [(write.id, two), broken, ("nonsense", [])])
        client.batch(0, [("SELECT * FROM au.t", []), broken])


def what_it_needs_goes(client: Connection, admin: Connection) -> None:
    """The permissions, the table, and the role itself."""
    write, read = client.prepare("INSERT INTO au.t (k, v) VALUES (1, 1)"), client.prepare("SELECT v FROM au.t WHERE k = 1")
    requests = [lambda: client.execute(write), lambda: client.execute(read), lambda: client.batch(0, [(write.id, [])]),
                lambda: client.query("SELECT * FROM au.t")]
    for change in ("REVOKE MODIFY ON au.t FROM auditee", "GRANT MODIFY ON au.t TO auditee", "DROP TABLE au.t",
                   "CREATE TABLE au.t (k int PRIMARY KEY, v int)", "GRANT SELECT, MODIFY ON au.t TO auditee", "DROP ROLE auditee"):
        admin.query(change)
        for request in requests:
            request()


def logged_in(node, name: str, password: str, then) -> None:
    try:
        with Connection(node.host, node.port, 5, login=(name, password)) as client:
            then(client)
    except LoginRefused:
        pass


def int4(number: int) -> bytes:
    return number.to_bytes(4, "big", signed=True)


def entries(node, connect) -> list[str]:
    """The entries so far. The last one is waited for, because a thread of its own writes them."""
    with connect(node) as admin:
        admin.query(END)
    deadline = time.monotonic() + 10
    while END not in (text := node.audit_log.read_text()):
        if time.monotonic() > deadline:
            raise RuntimeError("the audit log lacks its last entry")
        time.sleep(0.05)
    return parsed(text)


def parsed(log: str) -> list[str]:
    """The entries of a log, without what differs between nodes and times."""
    found = [entry.groups() for entry in map(ENTRY.search, log.splitlines()) if entry]
    # How often a client has to try until Cassandra's first role is there is a matter of time.
    return [BATCH.sub(r"\1", PASSWORD.sub(r"\1", f"{user}|{rest}")) for user, rest in found
            if not (rest.startswith("LOGIN_ERROR") and "username cassandra" in rest)]


def compare(theirs: list[str], ours: list[str]) -> tuple[int, list[str]]:
    """The number of entries that are the same, in order, and the others."""
    matcher = difflib.SequenceMatcher(None, theirs, ours, autojunk=False)
    same, different = 0, []
    for kind, start, end, our_start, our_end in matcher.get_opcodes():
        if kind == "equal":
            same += end - start
        else:
            different.append(f"audit log\n    Cassandra: {theirs[start:end]}\n    Espalier:  {ours[our_start:our_end]}")
    return same, different
