"""Requests that break the protocol itself, and what the session may and may not do before USE."""

import re
import struct

from proof.wire import Connection, ConnectionClosed, Error, QueryOptions, SetKeyspace
from proof.wire import requests, responses

PROTOCOL_ERROR, INVALID = 0x000A, 0x2200
NO_KEYSPACE = "No keyspace has been specified. USE a keyspace, or explicitly specify keyspace.tablename"
UNSUPPORTED = "Invalid or unsupported protocol version ({}); supported versions are (3/v3, 4/v4, 5/v5, 6/v6-beta)"


def run(node) -> list[tuple]:
    """[(category, key, difference or None, None)]"""
    results = []
    for name, check in CHECKS.items():
        try:
            difference = check(node)
        except (ConnectionClosed, ValueError, OSError, struct.error) as failure:
            difference = f"{type(failure).__name__}: {failure}"
        if difference is None:
            difference = still_serves(node)
        results.append(("protocol", f"protocol: {name}", difference, None))
    return results


def still_serves(node) -> str | None:
    """No fault on one connection may take the server down."""
    with Connection(node.host, node.port, 5) as other:
        answer = other.query("SELECT key FROM system.local")
    return None if isinstance(answer, responses.Rows) else f"another connection was answered {answer}"


def error_is(answer, code: int, message: str) -> str | None:
    if isinstance(answer, Error) and (answer.code, answer.message) == (code, message):
        return None
    return f"{answer}, expected {code:#06x} {message}"


def raw(node, version: int, opcode: int, body: bytes, flags: int = 0) -> tuple[int, int, responses.Response]:
    """Sends one legacy frame on a fresh connection: (version byte, stream, answer)."""
    with Connection(node.host, node.port, 4, startup=False) as connection:
        connection.send_bytes(struct.pack(">BBhBi", version, flags, 1, opcode, len(body)) + body)
        return receive_raw(connection)


def receive_raw(connection: Connection) -> tuple[int, int, responses.Response]:
    version = connection.take_raw(1)[0]
    if version & 0x7F < 3:                                   # the old header has a one-byte stream id
        _, stream, opcode, length = struct.unpack(">BbBi", connection.take_raw(7))
    else:
        _, stream, opcode, length = struct.unpack(">BhBi", connection.take_raw(8))
    return version, stream, responses.decode(opcode, 0, connection.take_raw(length), 4)


def startup_with(options: dict[str, str], message: str):
    return lambda node: error_is(raw(node, 4, requests.STARTUP, requests.string_map(options))[2], PROTOCOL_ERROR, message)


def options_with_version(version: int, message: str, answer_version: int):
    def check(node) -> str | None:
        if version < 3:
            frame = struct.pack(">BBbBi", version, 0, 1, requests.OPTIONS, 0)
        else:
            frame = struct.pack(">BBhBi", version, 0, 1, requests.OPTIONS, 0)
        with Connection(node.host, node.port, 4, startup=False) as connection:
            connection.send_bytes(frame)
            got, _, answer = receive_raw(connection)
        if got != answer_version:
            return f"answer has version byte {got:#x}, expected {answer_version:#x}: {answer}"
        return error_is(answer, PROTOCOL_ERROR, message)
    return check


def on_connection(opcode: int, body: bytes, code: int, message: str, version: int = 4):
    def check(node) -> str | None:
        with Connection(node.host, node.port, version) as connection:
            return error_is(connection.request(opcode, body), code, message)
    return check


def without_keyspace(cql: str, message: str = NO_KEYSPACE):
    return on_connection(requests.QUERY, requests.query(cql, QueryOptions(), 4), INVALID, message)


def query_before_startup(node) -> str | None:
    body = requests.query("SELECT key FROM system.local", QueryOptions(), 4)
    return error_is(raw(node, 4, requests.QUERY, body)[2], PROTOCOL_ERROR,
                    "Unexpected message QUERY, expecting STARTUP or OPTIONS")


def supported_options(node) -> str | None:
    _, _, answer = raw(node, 4, requests.OPTIONS, b"")
    expected = {"PROTOCOL_VERSIONS": ["3/v3", "4/v4", "5/v5", "6/v6-beta"], "COMPRESSION": ["snappy", "lz4"],
                "CQL_VERSION": ["3.4.7"]}
    return None if getattr(answer, "options", None) == expected else f"{answer}, expected {expected}"


def version_changes(node) -> str | None:
    with Connection(node.host, node.port, 4) as connection:
        connection.version = 5
        answer = connection.query("SELECT key FROM system.local")
    return error_is(answer, PROTOCOL_ERROR,
                    "Invalid message version. Got 5/v5 but previous messages on this connection had version 4/v4")


def snappy_in_v5(node) -> str | None:
    body = requests.string_map({"CQL_VERSION": "3.0.0", "COMPRESSION": "snappy"})
    return error_is(raw(node, 5, requests.STARTUP, body)[2], PROTOCOL_ERROR,
                    "Snappy compression is not supported in protocol V5")


def corrupt_segment(node) -> str | None:
    """A segment with a wrong payload CRC is answered with a protocol error and the connection ends."""
    connection = Connection(node.host, node.port, 5)
    frame = bytearray(connection.frame(requests.QUERY, requests.query("SELECT key FROM system.local", QueryOptions(), 5), 0))
    frame[-1] ^= 0x55
    connection.send_bytes(bytes(frame))
    _, answer = connection.receive()
    if not (isinstance(answer, Error) and answer.code == PROTOCOL_ERROR
            and "unrecoverable CRC mismatch detected in frame body" in answer.message):
        return f"answered {answer}"
    try:
        connection.query("SELECT key FROM system.local")
    except (ConnectionClosed, OSError):
        return None
    return "the connection goes on after a wrong CRC"


def prepared_schema_changes(node) -> str | None:
    """They are of the keyspace in which they were prepared."""
    keyspaces = ("prepared_here", "executed_there")
    with Connection(node.host, node.port, 5) as connection:
        for keyspace in keyspaces:
            connection.query(f"CREATE KEYSPACE {keyspace} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}")
        try:
            for cql in ("CREATE TYPE u (a int)", "CREATE TABLE t (k int PRIMARY KEY, v frozen<u>)", "ALTER TABLE t ADD w int",
                        "ALTER TYPE u ADD b int", "DROP TABLE t", "DROP TYPE u"):
                connection.query(f"USE {keyspaces[0]}")
                prepared = connection.prepare(cql)
                connection.query(f"USE {keyspaces[1]}")
                answer = connection.execute(prepared) if isinstance(prepared, responses.Prepared) else prepared
                if not isinstance(answer, responses.SchemaChange) or answer.names[0] != keyspaces[0]:
                    return f"{cql} was answered {answer}"
        finally:
            for keyspace in keyspaces:
                connection.query(f"DROP KEYSPACE {keyspace}")
    return None


def unknown_keyspace(node) -> str | None:
    """The keyspace that a request of v5 names is looked up before anything else."""
    options = QueryOptions(keyspace="nosuch")
    with Connection(node.host, node.port, 5) as connection:
        asked = ("SELECT key FROM local", "SELECT key FROM system.local", "CREATE TABLE t (k int PRIMARY KEY)", "USE system", "no CQL")
        answers = [connection.query(cql, options) for cql in asked] + [connection.prepare(cql, "nosuch") for cql in asked]
        answers.append(connection.batch(0, [("INSERT INTO t (k) VALUES (1)", ())], options))
    return next(filter(None, (error_is(answer, INVALID, "Keyspace 'nosuch' does not exist") for answer in answers)), None)


def use_keyspace(node) -> str | None:
    with Connection(node.host, node.port, 5) as connection:
        answer = connection.query("USE system")
    return None if isinstance(answer, SetKeyspace) and answer.keyspace == "system" else f"{answer}"


def oversized_mutation(node) -> str | None:
    """Small in the request, large as a mutation: each element of a list has a cell with a key of its own. The
    two count its bytes otherwise."""
    with Connection(node.host, node.port, 5) as connection:
        for cql in SETUP_OF_LISTS:
            connection.query(cql)
        insert = connection.prepare("INSERT INTO err_oversized.lists (k, l) VALUES (?, ?)")
        elements = struct.pack(">i", LIST_LENGTH) + struct.pack(">ib", 1, 7) * LIST_LENGTH
        answer = connection.execute(insert, QueryOptions((struct.pack(">i", 9), elements)))
        told = re.fullmatch(OVERSIZED, getattr(answer, "message", ""))
        right = told is not None and answer.code == INVALID and int(told[1]) > int(told[2])
        rows = connection.query("SELECT k FROM err_oversized.lists").rows
        connection.query("DROP KEYSPACE err_oversized")
    return None if right and not rows else f"{answer}, expected {INVALID:#06x} {OVERSIZED}; rows {rows}"


SETUP_OF_LISTS = ("CREATE KEYSPACE err_oversized WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
                  "CREATE TABLE err_oversized.lists (k int PRIMARY KEY, l list<tinyint>)")
LIST_LENGTH = 1_000_000
OVERSIZED = r"Rejected an oversized mutation \((\d+)/(16777216)\) for keyspace: err_oversized\. Top keys are: lists\.9"
QUERY_ONE_MARKER = requests.query("SELECT * FROM system.local WHERE key = ?", QueryOptions(force_values_flag=True), 4)
TRUNCATED_QUERY = struct.pack(">i", 1000) + b"SELECT"

CHECKS = {
    "QUERY before STARTUP": query_before_startup,
    "STARTUP without CQL_VERSION": startup_with({}, "Missing value CQL_VERSION in STARTUP message"),
    "STARTUP CQL_VERSION=x": startup_with({"CQL_VERSION": "x"}, "Invalid version value: x"),
    "STARTUP CQL_VERSION=2.0.0": startup_with(
        {"CQL_VERSION": "2.0.0"},
        "CQL version 2.0.0 is not supported by the binary protocol (supported version are >= 3.0.0)"),
    "STARTUP COMPRESSION=gzip": startup_with({"CQL_VERSION": "3.0.0", "COMPRESSION": "gzip"},
                                             "Unknown compression algorithm: gzip"),
    "second STARTUP": on_connection(requests.STARTUP, requests.string_map({"CQL_VERSION": "3.0.0"}), PROTOCOL_ERROR,
                                    "Unexpected message STARTUP, the connection is already initialized"),
    "OPTIONS": supported_options,
    "OPTIONS v1": options_with_version(1, UNSUPPORTED.format(1), 0x81),
    "OPTIONS v2": options_with_version(2, UNSUPPORTED.format(2), 0x82),
    "OPTIONS v6": options_with_version(6, "Beta version of the protocol used (6/v6-beta), but USE_BETA flag is unset", 0x86),
    "OPTIONS v7": options_with_version(7, UNSUPPORTED.format(7), 0x85),
    "OPTIONS v66": options_with_version(66, UNSUPPORTED.format(66), 0x85),
    "OPTIONS v127": options_with_version(127, UNSUPPORTED.format(127), 0x85),
    "unknown opcode": on_connection(0x7F, b"", PROTOCOL_ERROR, "Unknown opcode 127"),
    "response opcode": on_connection(responses.RESULT, struct.pack(">i", 1), PROTOCOL_ERROR,
                                     "Wrong protocol direction (expected RESPONSE, got REQUEST) for opcode 8 (RESULT)"),
    "REGISTER unknown event": on_connection(requests.REGISTER, requests.register("NOSUCH_EVENT"), PROTOCOL_ERROR,
                                            "Invalid value 'NOSUCH_EVENT' for Type"),
    "QUERY with truncated body": on_connection(requests.QUERY, TRUNCATED_QUERY, PROTOCOL_ERROR,
                                               "Not enough bytes to read an UTF8 serialized string preceded by its 4 bytes length"),
    "QUERY with no values for a marker": on_connection(requests.QUERY, QUERY_ONE_MARKER, INVALID,
                                                       "Invalid amount of bind variables"),
    "no keyspace: SELECT": without_keyspace("SELECT * FROM users"),
    "no keyspace: CREATE TABLE": without_keyspace("CREATE TABLE t (k int PRIMARY KEY)"),
    "no keyspace: CREATE TYPE": without_keyspace("CREATE TYPE t (a int)"),
    "no keyspace: TRUNCATE": without_keyspace("TRUNCATE users"),
    "no keyspace: DESCRIBE TABLE": without_keyspace("DESCRIBE TABLE users", "No keyspace specified and no current keyspace"),
    "no keyspace: PREPARE": on_connection(requests.PREPARE, requests.prepare("SELECT * FROM users", 4), INVALID, NO_KEYSPACE),
    "version changes": version_changes,
    "snappy in v5": snappy_in_v5,
    "wrong CRC": corrupt_segment,
    "USE": use_keyspace,
    "no keyspace: PREPARE of CREATE TABLE": on_connection(
        requests.PREPARE, requests.prepare("CREATE TABLE t (k int PRIMARY KEY)", 4), INVALID, NO_KEYSPACE),
    "no keyspace: PREPARE of DROP TYPE": on_connection(
        requests.PREPARE, requests.prepare("DROP TYPE IF EXISTS t", 4), INVALID, NO_KEYSPACE),
    "prepared changes of the schema": prepared_schema_changes,
    "an unknown keyspace of a request": unknown_keyspace,
    "an oversized mutation": oversized_mutation,
}
