"""The audit logs of both nodes: every entry, but for its time, its port, the ids of batches and the passwords' places."""

import difflib
import re
import time

from proof.wire import Connection, Prepared, QueryOptions

END = "SELECT * FROM system_auth.end_of_the_audit_log"
ENTRY = re.compile(r"user:(.*?)\|.*?\|type:(.*)$")
PASSWORD = re.compile(r"(?i)(password)\b.*")
BATCH = re.compile(r"(?i)(batch(?:id)?:\[?)[0-9a-f-]{36}")


def requests(node, connect) -> None:
    """Requests of all kinds, with mistakes of all kinds, as a role that may read and write one table only."""
    with connect(node) as admin:
        for statement in ("CREATE KEYSPACE au WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
                          "CREATE TABLE au.t (k int PRIMARY KEY, v int)", "CREATE TABLE au.other (k int PRIMARY KEY, v int)",
                          "CREATE ROLE auditee WITH LOGIN = true AND PASSWORD = 'auditee'", "GRANT SELECT, MODIFY ON au.t TO auditee"):
            admin.query(statement)
        with Connection(node.host, node.port, 5, login=("auditee", "auditee")) as client:
            write, read = client.prepare("INSERT INTO au.t (k, v) VALUES (?, ?)"), client.prepare("SELECT v FROM au.t WHERE k = ?")
            refused = client.prepare("INSERT INTO au.other (k, v) VALUES (?, ?)")
            for statement in ("INSERT INTO au.t (k) VALUES (?", "SELECT nothing FROM au.t", "SELECT * FROM au.nothing", "USE nothing"):
                client.prepare(statement)
                client.query(statement)
            row, key = QueryOptions(values=[int4(1), int4(2)]), QueryOptions(values=[int4(1)])
            client.execute(write, row)
            client.execute(write, key)
            client.execute(write, QueryOptions(values=[b"wrong", int4(2)]))
            client.execute(read, key)
            if isinstance(refused, Prepared):
                client.execute(refused, row)
            text, two = "INSERT INTO au.t (k, v) VALUES (?, ?)", [int4(3), int4(4)]
            client.batch(0, [(write.id, two), (text, two)])
            client.batch(1, [(text, two), ("DELETE FROM au.t WHERE k = 9", [])])
            client.batch(0, [])
            client.batch(0, [(text, two), ("INSERT INTO au.other (k) VALUES (1)", [])])
            client.batch(0, [(text, two), ("INSERT INTO au.t (k) VALUES (1", [])])
            client.batch(0, [(text, two), ("SELECT * FROM au.t", [])])
            client.batch(0, [(text, [int4(3)])])
            client.batch(0, [(write.id, [b"wrong", int4(2)])])
            for statement in ("USE au", "SELECT * FROM t", "INSERT INTO t (k, v) VALUES (7, 7) IF NOT EXISTS", "TRUNCATE t", "DROP TABLE t",
                              "BEGIN BATCH INSERT INTO t (k) VALUES (1); INSERT INTO other (k) VALUES (1); APPLY BATCH", "LIST ROLES",
                              "DESCRIBE TABLE t", "SELECT key FROM system.local", "SELECT * FROM system_auth.roles",
                              "ALTER ROLE auditee WITH PASSWORD = 'another'", "CREATE ROLE au2", "GRANT SELECT ON t TO auditee"):
                client.query(statement)
            client.query("SELECT v FROM au.t WHERE k = 1", tracing=True)
            client.execute(read, key)
            client.batch(0, [(write.id, two), ("INSERT INTO t (k) VALUES (5)", [])])
            admin.query("DROP TABLE au.t")
            client.execute(read, key)
            client.batch(0, [(write.id, two)])
            admin.query("DROP ROLE auditee")
            client.query("SELECT * FROM t")


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
    found = [entry.groups() for entry in map(ENTRY.search, text.splitlines()) if entry]
    # How often a client has to try until Cassandra's first role is there is a matter of time.
    return [BATCH.sub(r"\1", PASSWORD.sub(r"\1", f"{user}|{rest}")) for user, rest in found if not rest.startswith("LOGIN_ERROR")]


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
