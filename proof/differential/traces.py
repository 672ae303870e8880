"""Traced requests: the same session in system_traces, and no event that Cassandra does
not write for the same request."""

import time
import uuid
from collections import Counter

from proof.wire import Connection, Prepared, QueryOptions, requests
from proof.wire.connection import TRACING_FLAG

WAIT_SECONDS = 10
KEYSPACE = "traced"
SETUP = [
    f"DROP KEYSPACE IF EXISTS {KEYSPACE}",
    f"CREATE KEYSPACE {KEYSPACE} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}",
    # With a memtable that has a log.
    f"CREATE TABLE {KEYSPACE}.t (p int, c text, v list<int>, PRIMARY KEY (p, c)) WITH memtable = 'trie'",
]
QUERIES = [
    f"INSERT INTO {KEYSPACE}.t (p, c, v) VALUES (1, 'it''s', [1, 2])",
    f"UPDATE {KEYSPACE}.t SET v = [3] WHERE p IN (1, 2) AND c = 'b'",
    f"DELETE FROM {KEYSPACE}.t WHERE p = 1 AND c = 'b'",
    f"SELECT * FROM {KEYSPACE}.t WHERE p = 1",
    f"SELECT * FROM {KEYSPACE}.t WHERE p IN (1, 3)",
    f"SELECT count(*) FROM {KEYSPACE}.t",
    f"SELECT * FROM {KEYSPACE}.nosuch",
    f"USE {KEYSPACE}",
]
PREPARED = [
    (f"INSERT INTO {KEYSPACE}.t (p, c, v) VALUES (?, ?, ?)", (b"\0\0\0\4", b"it's", None)),
    (f"SELECT v FROM {KEYSPACE}.t WHERE p = ? AND c = ?", (b"\0\0\0\4", b"it's")),
]


def check(nodes) -> list[str]:
    """Returns what differs between the traces of Cassandra and Espalier."""
    theirs, ours = (traces(node) for node in nodes)
    return [f"the trace of {request}: {why}" for request in theirs if (why := difference(theirs[request], ours[request]))]


def difference(theirs: tuple, ours: tuple) -> str | None:
    if theirs[0] != ours[0]:
        return f"Cassandra's session is {theirs[0]}, Espalier's {ours[0]}"
    strange = list((Counter(ours[1]) - Counter(theirs[1])).elements())      # there, partitions are read side by side
    if strange:
        return f"Cassandra has not {strange} among {theirs[1]}"
    return "no events" if theirs[1] and not ours[1] else None


def traces(node) -> dict[str, tuple]:
    """Returns for each request what its session says, and its events in order."""
    found = {}
    with Connection(node.host, node.port) as connection:
        for cql in SETUP:
            connection.query(cql)
        for cql in QUERIES:
            found[cql] = read(connection, connection.query(cql, tracing=True))
        for cql, values in PREPARED:
            body = requests.prepare(cql, connection.version)
            answer = connection.request(requests.PREPARE, body, TRACING_FLAG)
            found["PREPARE " + cql] = (read(connection, answer)[0], [])      # Cassandra stores statements, we do not
            if isinstance(answer, Prepared):
                body = requests.execute(answer.id, answer.metadata_id, QueryOptions(values, page_size=100), connection.version)
                found["EXECUTE " + cql] = read(connection, connection.request(requests.EXECUTE, body, TRACING_FLAG))
        items = [(QUERIES[0], []), (QUERIES[2], [])]
        body = requests.batch(0, items, QueryOptions(), connection.version)
        found["BATCH"] = read(connection, connection.request(requests.BATCH, body, TRACING_FLAG))
        connection.query(f"DROP KEYSPACE {KEYSPACE}")
    return found


def read(connection: Connection, answer) -> tuple[tuple, list[str]]:
    """Returns the session of a traced request (client, command, parameters, request) and its activities, once the
    session is complete."""
    session = uuid.UUID(bytes=answer.tracing_id)
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        asked = f"SELECT duration, client, command, parameters, request FROM system_traces.sessions WHERE session_id = {session}"
        rows = connection.query(asked).rows
        if rows and rows[0][0] is not None:
            events = connection.query(f"SELECT activity FROM system_traces.events WHERE session_id = {session}").rows
            return rows[0][1:], [activity.decode() for activity, in events]
        time.sleep(0.02)
    return (), []
