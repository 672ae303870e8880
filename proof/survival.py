"""After a flush, a compaction, kill -9 and a start, a node has all data that it had before.

    lost = survival.check(node)         # what differs, in words; [] if nothing does
"""

import time
from collections.abc import Callable

from proof.wire import Connection, Error, QueryOptions, Rows
from proof.wire.requests import ONE

SCHEMA = ("keyspaces", "tables", "columns", "dropped_columns", "types")
PAGE_SIZE = 5_000
SHOWN_MAX = 3           # rows of a difference

Contents = dict[str, list[tuple] | str]


def check(node, is_checked: Callable[[str], bool] = lambda keyspace: True) -> list[str]:
    """Flushes, compacts, kills and starts an Espalier, and compares the keyspaces of its users before and after."""
    now = int(time.time())          # values that expire in the meantime are there both times or neither time
    before = contents(node, now, is_checked)
    node.flush()
    node.compact()
    node.kill()
    node.launch()
    return differences(before, contents(node, now, is_checked))


def contents(node, now: int, is_checked: Callable[[str], bool]) -> Contents:
    """The rows of the schema and of every table, and the statements that make the schema."""
    with Connection(node.host, node.port, 5) as connection:
        def rows(cql: str) -> list[tuple] | str:
            return read(connection, cql, now)

        names = [row[0].decode() for row in rows("SELECT keyspace_name FROM system_schema.keyspaces")]
        keyspaces = [name for name in names if not is_system(name) and is_checked(name)]
        held: Contents = {}
        for keyspace in keyspaces:
            for table in SCHEMA:
                cql = f"SELECT * FROM system_schema.{table} WHERE keyspace_name = '{keyspace}'"
                held[cql] = rows(cql)
            held[f"DESCRIBE {keyspace}"] = rows(f"DESCRIBE KEYSPACE {quoted(keyspace)}")
            for (table,) in rows(f"SELECT table_name FROM system_schema.tables WHERE keyspace_name = '{keyspace}'"):
                cql = f"SELECT * FROM {quoted(keyspace)}.{quoted(table.decode())}"
                held[cql] = rows(cql)
    return held


def read(connection: Connection, cql: str, now: int) -> list[tuple] | str:
    """Returns all rows of a statement, or the error with which it was refused."""
    options = QueryOptions(consistency=ONE, page_size=PAGE_SIZE, now_in_seconds=now)
    found = []
    while True:
        answer = connection.query(cql, options)
        if isinstance(answer, Error):
            return answer.message
        if not isinstance(answer, Rows):
            raise ValueError(f"{cql} was answered with {answer}")
        found += answer.rows
        if answer.metadata.paging_state is None:
            return found
        options = options.next_page(answer.metadata.paging_state)


def differences(before: Contents, after: Contents) -> list[str]:
    return [f"{asked}: {difference(before.get(asked, []), after.get(asked, []))}"
            for asked in before | after if before.get(asked) != after.get(asked)]


def difference(before: list[tuple] | str, after: list[tuple] | str) -> str:
    if isinstance(before, str) or isinstance(after, str):
        return f"{str(before)[:300]}, then {str(after)[:300]}"
    gone = [row for row in before if row not in after]
    new = [row for row in after if row not in before]
    order = "" if gone or new else ", in another order"
    return f"{len(before)} rows, then {len(after)}{order}; gone {gone[:SHOWN_MAX]}, new {new[:SHOWN_MAX]}"


def is_system(keyspace: str) -> bool:
    return keyspace == "system" or keyspace.startswith("system_")


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
