"""The load between two kills: threads that write, and one that changes the schema; each keeps its model.

On Espalier the writers' tables live in memory at first, and then in or out of it as the schema's thread moves them."""

import threading
from collections import OrderedDict
from random import Random

from proof.kill import indexed, steps
from proof.kill.model import GrowingSet, Partition, Schema, Write
from proof.wire import Connection, ConnectionClosed, Error, QueryOptions, requests

KEYSPACE = "killed"
ROWS = 40                   # per partition
IN_FLIGHT_MAX = 8
FIRST_TIMESTAMP = 1_000_000
MOVED = ("rows", "sets", "truncated", "indexed", *steps.TABLES)
IN_MEMORY = "{'class': 'MemoryOnlyStrategy', 'size_limit_in_mb': 64}"
ON_DISK = "{'class': 'UnifiedCompactionStrategy'}"


class ServerRefused(Exception):
    """The server answered a request of this load with an error: a failure of the test."""


def create_schema(connection: Connection, in_memory: bool, has_indexes: bool = False) -> None:
    for statement in (
        f"CREATE KEYSPACE {KEYSPACE} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}",
        f"CREATE TABLE {KEYSPACE}.rows (p int, c int, v text, w text, PRIMARY KEY (p, c))",
        f"CREATE TABLE {KEYSPACE}.sets (p int PRIMARY KEY, items set<int>)",
        f"CREATE TABLE {KEYSPACE}.changing (k int PRIMARY KEY, stays int)",
        f"CREATE TABLE {KEYSPACE}.truncated (k int PRIMARY KEY, v int)",
        *(statement.format(KEYSPACE) for statement in steps.TABLES.values()),
    ):
        expect(connection.query(statement))
    if has_indexes:
        for statement in (indexed.TABLE, *indexed.INDEXES.values()):
            expect(connection.query(statement.format(KEYSPACE)))
    for table in MOVED if in_memory else ():
        move(connection, table, IN_MEMORY)


def move(connection: Connection, table: str, place: str) -> None:
    expect(connection.query(f"ALTER TABLE {KEYSPACE}.{table} WITH compaction = {place}"))


def expect(answer):
    if isinstance(answer, Error):
        raise ServerRefused(f"{answer.code:#06x} {answer.message}")
    return answer


class Writer:
    """Writes rows and set elements of its own, several requests in flight, until the connection breaks."""

    def __init__(self, number: int, seed: int):
        self.number = number
        self.rng = Random(f"{seed}/writer {number}")
        self.rows = Partition(f"partition {number}")
        self.set = GrowingSet(f"set {number}")
        self.clock = FIRST_TIMESTAMP
        self.acknowledged = 0
        # Otherwise a refused write may exist after a restart, as after a failed write of the log.
        self.is_refusal_final = True

    def run(self, node, stop: threading.Event) -> None:
        in_flight: OrderedDict[int, tuple] = OrderedDict()
        try:
            with Connection(node.host, node.port, 5) as connection:
                insert = expect(connection.prepare(f"INSERT INTO {KEYSPACE}.rows (p, c, v, w) VALUES (?, ?, ?, ?)"))
                while not stop.is_set():
                    while len(in_flight) < IN_FLIGHT_MAX:
                        stream, done, undone = self.send(connection, insert)
                        in_flight[stream] = (done, undone)
                    stream, answer = connection.receive()
                    done, undone = in_flight.pop(stream)
                    if isinstance(answer, Error):
                        if self.is_refusal_final:
                            undone()
                        raise ServerRefused(f"{answer.code:#06x} {answer.message}")
                    done()
                    self.acknowledged += 1
        except (ConnectionClosed, OSError):
            return              # killed

    def send(self, connection: Connection, insert) -> tuple:
        """Records one mutation and sends it. Returns its stream, what to do on success, and what to do on refusal."""
        if self.rng.random() < 0.15:
            self.clock += 1
            element = self.clock
            self.set.unanswered.add(element)
            stream = self.query(connection, f"UPDATE {KEYSPACE}.sets SET items = items + {{{element}}} WHERE p = {self.number}")
            return stream, lambda: self.element_done(element), lambda: self.set.unanswered.discard(element)
        self.clock += 1
        at = self.clock
        write = self.next_write(at)
        self.rows.sent(write)
        stream = self.send_write(connection, insert, write)
        return stream, lambda: self.rows.acknowledged(at), lambda: self.rows.refused(at)

    def element_done(self, element: int) -> None:
        self.set.unanswered.discard(element)
        self.set.truth.add(element)

    def next_write(self, at: int) -> Write:
        roll = self.rng.random()
        count = 1 if roll < 0.75 else self.rng.choice((2, 3, 10))
        rows = self.rng.sample(range(ROWS), count)
        if roll < 0.12:
            return Write(at, ((rows[0], None),))
        return Write(at, tuple((row, f"{self.number}/{at}") for row in sorted(rows)))

    def send_write(self, connection: Connection, insert, write: Write) -> int:
        size = self.rng.choice((1, 10, 100, 100, 5000))
        items = []
        for row, value in write.rows:
            if value is None:
                return self.query(connection, f"DELETE FROM {KEYSPACE}.rows USING TIMESTAMP {write.timestamp} WHERE p = {self.number} AND c = {row}")
            items.append([self.number.to_bytes(4, "big"), row.to_bytes(4, "big"), value.encode(), value.encode() * (size // 8 + 1)])
        options = QueryOptions(tuple(items[0]), timestamp=write.timestamp)
        if len(items) == 1:
            return connection.send(requests.EXECUTE, requests.execute(insert.id, insert.metadata_id, options, connection.version))
        body = requests.batch(1, [(insert.id, values) for values in items], options, connection.version)
        return connection.send(requests.BATCH, body)

    def query(self, connection: Connection, cql: str) -> int:
        return connection.send(requests.QUERY, requests.query(cql, QueryOptions(), connection.version))

    def check(self, connection: Connection) -> list[str]:
        answer = expect(connection.query(f"SELECT c, v, w FROM {KEYSPACE}.rows WHERE p = {self.number}"))
        seen = {int.from_bytes(c, "big"): v.decode() for c, v, _ in answer.rows}
        torn = [f"partition {self.number}: row {int.from_bytes(c, 'big')} has v and w of different writes"
                for c, v, w in answer.rows if not w or w.replace(v, b"")]
        items = expect(connection.query(f"SELECT items FROM {KEYSPACE}.sets WHERE p = {self.number}")).rows
        elements = decode_int_set(items[0][0]) if items else set()
        return self.rows.check(seen) + torn + self.set.check(elements)


def decode_int_set(data: bytes | None) -> set[int]:
    """A serialized set<int>: a count, then each element with its length."""
    return {int.from_bytes(data[at + 4:at + 8], "big") for at in range(4, len(data), 8)} if data else set()


class SchemaChanger:
    """CREATE, DROP and TRUNCATE TABLE; ALTER TABLE ADD, DROP and re-ADD of one column, with data between."""

    def __init__(self, seed: int, ddl: bool = True):
        self.rng = Random(f"{seed}/schema")
        self.ddl = ddl
        self.tables = Schema("table")
        self.columns = Schema("column", {"k", "stays"})
        self.values = Partition("changing.comes")           # column `comes` of table changing, hidden or not
        self.dropped_at = 0                                 # cells that are not newer are gone
        self.dropping_at: int | None = None                 # of a DROP without an answer
        self.truncated = Partition("truncated")
        self.truncating = False
        self.clock = FIRST_TIMESTAMP
        self.acknowledged = 0
        self.in_memory = set(MOVED) if ddl else set()

    def run(self, node, stop: threading.Event) -> None:
        try:
            with Connection(node.host, node.port, 5) as connection:
                while not stop.is_set():
                    self.step(connection)
                    self.acknowledged += 1
        except (ConnectionClosed, OSError):
            return

    def step(self, connection: Connection) -> None:
        roll = self.rng.random() if self.ddl else self.rng.uniform(0.36, 1)
        if roll < 0.05:
            place, table = self.rng.choice((IN_MEMORY, ON_DISK)), self.rng.choice(MOVED)
            move(connection, table, place)
            self.in_memory = self.in_memory | {table} if place == IN_MEMORY else self.in_memory - {table}
        elif roll < 0.15:
            self.create_or_drop(connection)
        elif roll < 0.3:
            self.add_or_drop_column(connection)
        elif roll < 0.36:
            self.truncating = True
            expect(connection.query(f"TRUNCATE {KEYSPACE}.truncated"))
            self.truncated.truth.clear()
            self.truncating = False
        elif roll < 0.68 and "comes" in self.columns.truth:
            self.write(connection, self.values, "UPDATE {}.changing USING TIMESTAMP {} SET comes = {} WHERE k = {}")
        else:
            self.write(connection, self.truncated, "UPDATE {}.truncated USING TIMESTAMP {} SET v = {} WHERE k = {}")

    def write(self, connection: Connection, partition: Partition, cql: str) -> None:
        self.clock += 1
        row = self.rng.randrange(ROWS)
        partition.sent(Write(self.clock, ((row, str(self.clock)),)))
        expect(connection.query(cql.format(KEYSPACE, self.clock, self.clock, row)))
        partition.acknowledged(self.clock)

    def create_or_drop(self, connection: Connection) -> None:
        name = f"made{self.rng.randrange(6)}"
        self.tables.unanswered = name
        if name in self.tables.truth:
            expect(connection.query(f"DROP TABLE {KEYSPACE}.{name}"))
        else:
            expect(connection.query(f"CREATE TABLE {KEYSPACE}.{name} (k int PRIMARY KEY, v int)"))
        self.tables.truth ^= {name}
        self.tables.unanswered = None

    def add_or_drop_column(self, connection: Connection) -> None:
        self.columns.unanswered = "comes"
        if "comes" in self.columns.truth:
            self.dropping_at = max(self.dropped_at, self.clock - self.rng.randrange(2 * ROWS))
            expect(connection.query(f"ALTER TABLE {KEYSPACE}.changing DROP comes USING TIMESTAMP {self.dropping_at}"))
            self.column_dropped()
        else:
            expect(connection.query(f"ALTER TABLE {KEYSPACE}.changing ADD comes int"))
        self.columns.truth ^= {"comes"}
        self.columns.unanswered = None

    def column_dropped(self) -> None:
        """A column that is added again shows cells that are newer than the drop."""
        if self.dropping_at is not None:
            self.dropped_at, self.dropping_at = self.dropping_at, None
            self.values.forget_until(self.dropped_at)

    def check(self, connection: Connection) -> list[str]:
        made = expect(connection.query(f"SELECT table_name FROM system_schema.tables WHERE keyspace_name = '{KEYSPACE}'"))
        wrong = self.tables.check({n.decode() for (n,) in made.rows if n.startswith(b"made")})
        for name in self.tables.truth:
            expect(connection.query(f"SELECT * FROM {KEYSPACE}.{name}"))
        columns = expect(connection.query(
            f"SELECT column_name FROM system_schema.columns WHERE keyspace_name = '{KEYSPACE}' AND table_name = 'changing'"))
        wrong += self.columns.check({name.decode() for (name,) in columns.rows})
        if "comes" in self.columns.truth:
            try:
                wrong += self.values.check(self.ints(connection, "SELECT k, comes FROM {}.changing"))
            except ServerRefused as refused:    # it has what was found so far
                wrong.append(f"column comes is in system_schema.columns: {refused}")
        else:
            self.column_dropped()
        self.dropping_at = None
        seen = self.ints(connection, "SELECT k, v FROM {}.truncated")
        if self.truncating and not seen:
            self.truncated, self.truncating = Partition("truncated"), False     # it was carried out, and not answered
        self.truncating = False
        return wrong + self.truncated.check(seen)

    def ints(self, connection: Connection, cql: str) -> dict[int, str]:
        rows = expect(connection.query(cql.format(KEYSPACE))).rows
        return {int.from_bytes(k, "big"): str(int.from_bytes(v, "big")) for k, v in rows if v is not None}
