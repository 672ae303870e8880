"""Writes to a table with indexes of every kind, which come and go meanwhile. After a crash each index must
give the rows that a scan shows.

Other tables show which rows have to exist. Here, the rows that an index finds are compared with those of the table.
"""

import struct
import threading
from random import Random

from proof.wire import Connection, ConnectionClosed, Error

TABLE = "CREATE TABLE {}.indexed (p int, c int, a int, t text, s int static, l set<int>, v vector<float, 3>, PRIMARY KEY (p, c))"
INDEXES = {
    "by_a": "CREATE INDEX IF NOT EXISTS by_a ON {}.indexed (a) USING 'sai'",
    "by_t": "CREATE INDEX IF NOT EXISTS by_t ON {}.indexed (t) USING 'sai' WITH OPTIONS = {{'case_sensitive': 'false'}}",
    "by_s": "CREATE INDEX IF NOT EXISTS by_s ON {}.indexed (s)",
    "by_l": "CREATE INDEX IF NOT EXISTS by_l ON {}.indexed (l)",
    "by_v": "CREATE INDEX IF NOT EXISTS by_v ON {}.indexed (v) USING 'sai' WITH OPTIONS = {{'similarity_function': 'euclidean'}}",
}
PARTITIONS, ROWS, VALUES = 6, 12, 5
WORDS = ("Alpha", "alpha", "Beta", "gamma", "GAMMA")
NEAREST = 5

# A row: partition, clustering, a, t, s, l, v. Cells are decoded, or None.
Row = tuple


class IndexedWriter:
    """Changes rows and indexes until the connection breaks."""

    def __init__(self, seed: int, keyspace: str):
        self.rng = Random(f"{seed}/indexed")
        self.keyspace = keyspace
        self.acknowledged = 0
        self.is_refusal_final = True

    def run(self, node, stop: threading.Event) -> None:
        try:
            with Connection(node.host, node.port, 5) as connection:
                while not stop.is_set():
                    ask(connection, self.next_statement())
                    self.acknowledged += 1
        except (ConnectionClosed, OSError):
            return              # killed

    def next_statement(self) -> str:
        rng = self.rng
        roll, table = rng.random(), f"{self.keyspace}.indexed"
        where = f"p = {rng.randrange(PARTITIONS)} AND c = {rng.randrange(ROWS)}"
        if roll < 0.01:
            name = rng.choice(list(INDEXES))
            return rng.choice((f"DROP INDEX IF EXISTS {self.keyspace}.{name}", INDEXES[name].format(self.keyspace)))
        if roll < 0.08:
            return f"UPDATE {table} SET s = {rng.randrange(VALUES)} WHERE p = {rng.randrange(PARTITIONS)}"
        if roll < 0.16:
            return f"DELETE {rng.choice(('', 'a', 't', 'l', 'v'))} FROM {table} WHERE {where}"
        if roll < 0.20:
            first = rng.randrange(ROWS)
            return f"DELETE FROM {table} WHERE p = {rng.randrange(PARTITIONS)} AND c >= {first} AND c < {first + 3}"
        if roll < 0.21:
            return f"DELETE FROM {table} WHERE p = {rng.randrange(PARTITIONS)}"
        if roll < 0.35:
            return f"UPDATE {table} SET l = l {rng.choice('+-')} {{{rng.randrange(VALUES)}}} WHERE {where}"
        given = {"a": str(rng.randrange(VALUES)), "t": f"'{rng.choice(WORDS)}'", "v": str([round(rng.uniform(-1, 1), 3) for _ in range(3)])}
        some = rng.sample(list(given), rng.randint(1, len(given)))
        return f"UPDATE {table} SET {', '.join(f'{column} = {given[column]}' for column in some)} WHERE {where}"

    def check(self, connection: Connection) -> list[str]:
        """Returns what is wrong. All indexes exist again when it returns."""
        for statement in INDEXES.values():
            ask(connection, statement.format(self.keyspace))
        rows = [decoded(cells) for cells in ask(connection, f"SELECT p, c, a, t, s, l, v FROM {self.keyspace}.indexed").rows]
        wrong = []
        for condition, is_due in self.searches():
            found = ask(connection, f"SELECT p, c FROM {self.keyspace}.indexed WHERE {condition}").rows
            wrong += differences(condition, places(found), [row[:2] for row in rows if is_due(row)])
        return wrong + self.check_nearest(connection, rows)

    def searches(self):
        """Conditions that indexes answer, each with a function that says which rows meet it."""
        for value in range(VALUES):
            yield f"a = {value}", lambda row, value=value: row[2] == value
            yield f"a >= {value} AND a < {value + 2}", lambda row, value=value: row[2] is not None and value <= row[2] < value + 2
            yield f"s = {value}", lambda row, value=value: row[4] == value
            yield f"l CONTAINS {value}", lambda row, value=value: value in row[5]
            yield (f"a = {value} AND t = 'ALPHA'", lambda row, value=value: row[2] == value and (row[3] or "").lower() == "alpha")
        for word in WORDS:
            yield f"t = '{word}'", lambda row, word=word: (row[3] or "").lower() == word.lower()

    def check_nearest(self, connection: Connection, rows: list[Row]) -> list[str]:
        wrong, having = [], [row for row in rows if row[6] is not None]
        select = f"SELECT p, c FROM {self.keyspace}.indexed ORDER BY v ANN OF"
        for wanted in ([0.0, 0.0, 0.0], [0.5, -0.5, 1.0], [-1.0, 0.2, 0.1]):
            found = places(ask(connection, f"{select} {wanted} LIMIT 1000").rows)
            wrong += differences(f"ANN OF {wanted}", found, [row[:2] for row in having])
            distance = {row[:2]: sum((x - y) ** 2 for x, y in zip(row[6], wanted)) for row in having}
            first = places(ask(connection, f"{select} {wanted} LIMIT {NEAREST}").rows)
            due, got = sorted(distance.values())[:NEAREST], sorted(distance.get(place, -1.0) for place in first)
            if len(due) != len(got) or any(abs(one - other) > 1e-4 for one, other in zip(due, got)):
                wrong.append(f"ANN OF {wanted} LIMIT {NEAREST}: squared distances {got} instead of {due}")
        return wrong


def ask(connection: Connection, cql: str):
    answer = connection.query(cql)
    if isinstance(answer, Error):
        raise RuntimeError(f"{cql}: {answer.code:#06x} {answer.message}")
    return answer


def places(rows) -> list[tuple[int, int]]:
    return [(number(p), number(c)) for p, c in rows]


def number(cell: bytes | None) -> int | None:
    return None if cell is None else int.from_bytes(cell, "big", signed=True)


def decoded(cells) -> Row:
    p, c, a, t, s, l, v = cells
    elements = {number(l[at + 4:at + 8]) for at in range(4, len(l), 8)} if l else set()
    return (number(p), number(c), number(a), t and t.decode(), number(s), elements, v and struct.unpack(">3f", v))


def differences(condition: str, found: list, due: list) -> list[str]:
    """Returns what an index gave wrongly, twice, or not at all."""
    if sorted(found) == sorted(due):
        return []
    missing, strange = sorted(set(due) - set(found)), sorted(set(found) - set(due))
    return [f"indexed WHERE {condition}: {len(found)} rows instead of {len(due)}, missing {missing[:5]}, not in the scan {strange[:5]}"]
