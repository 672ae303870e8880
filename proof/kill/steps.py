"""Writes that depend on what is there: conditions, counters, and tables with compact storage.

A load sends one step at a time to partitions of its own, so that its model knows what each step finds. After a crash
each partition shows what it held before the unanswered step, or what it holds after it.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from proof.wire import Connection, ConnectionClosed, Error

TABLES = {
    "counts": "CREATE TABLE {}.counts (p int, c int, v counter, PRIMARY KEY (p, c))",
    "registry": "CREATE TABLE {}.registry (p int, c int, v bigint, PRIMARY KEY (p, c))",
    "pairs": "CREATE TABLE {}.pairs (p int, c int, v bigint, PRIMARY KEY (p, c)) WITH COMPACT STORAGE",
}
PARTITIONS = 3              # of a load, in each table
ROWS = 4                    # of a partition
# A counter that was itself deleted. It does not show, and counts again only once its row is deleted.
DELETED = "deleted"

Place = tuple[str, int, int]            # table, partition, row
Values = dict[Place, int | str]


@dataclass(frozen=True)
class Step:
    """One statement: what it changes (None: a row goes), and whether its conditions hold (None: it has none)."""

    cql: str
    changes: dict[Place, int | str | None]
    applies: bool | None = None

    def on(self, before: Values) -> Values:
        after = before | (self.changes if self.applies is not False else {})
        return {place: value for place, value in after.items() if value is not None}


@dataclass
class Progress:
    """The rows that a load has written, and the step whose answer is open."""

    name: str
    truth: Values = field(default_factory=dict)
    unanswered: Step | None = None

    def sent(self, step: Step) -> None:
        self.unanswered = step

    def acknowledged(self) -> None:
        self.truth, self.unanswered = self.unanswered.on(self.truth), None

    def refused(self) -> None:
        self.unanswered = None

    def check(self, seen: Values) -> list[str]:
        """Returns what is wrong. If the rows do not show whether the unanswered step happened, it stays
        unanswered and is to be sent again."""
        step, before = self.unanswered, self.truth
        after = step.on(before) if step else before
        wrong, held, is_open = [], dict(seen), False
        for table, partition in sorted({place[:2] for place in before | after | seen}):
            was, is_now, shows = (only(values, table, partition) for values in (before, after, seen))
            if shows not in (shown(was), shown(is_now)):
                wrong.append(f"{self.name}, {table} {partition}: shows {shows}; acknowledged {was}, unanswered {step}")
                continue
            is_open |= was != is_now and shown(was) == shown(is_now)
            held |= was if shows == shown(was) else is_now
        self.truth, self.unanswered = held, step if is_open and not wrong else None
        return wrong


def only(values: Values, table: str, partition: int) -> Values:
    return {place: value for place, value in values.items() if place[:2] == (table, partition)}


def shown(values: Values) -> Values:
    return {place: value for place, value in values.items() if value != DELETED}


class Stepper:
    """Sends steps until the connection breaks."""

    def __init__(self, number: int, seed: int, keyspace: str):
        self.rng = Random(f"{seed}/stepper {number}")
        self.keyspace = keyspace
        self.partitions = [PARTITIONS * number + i for i in range(PARTITIONS)]
        self.progress = Progress(f"stepper {number}")
        self.clock = 0
        self.acknowledged = 0
        self.is_refusal_final = True

    def run(self, node, stop: threading.Event) -> None:
        try:
            with Connection(node.host, node.port, 5) as connection:
                while not stop.is_set():
                    self.send(connection, self.progress.unanswered or self.next_step())
                    self.acknowledged += 1
        except (ConnectionClosed, OSError):
            return              # killed

    def send(self, connection: Connection, step: Step) -> None:
        self.progress.sent(step)
        answer = connection.query(step.cql)
        if isinstance(answer, Error):
            if self.is_refusal_final:
                self.progress.refused()
            raise RuntimeError(f"{step.cql}: {answer.code:#06x} {answer.message}")
        applied = answer.rows[0][0] == b"\1" if step.applies is not None else None
        if applied != step.applies:
            raise RuntimeError(f"{step.cql}: [applied] is {applied}, and the rows are {self.progress.truth}")
        self.progress.acknowledged()

    def next_step(self) -> Step:
        table = self.rng.choice(list(TABLES))
        place = (table, self.rng.choice(self.partitions), self.rng.randrange(ROWS))
        if self.rng.random() < 0.05:
            return self.delete_partition(place)
        kinds: dict[str, Callable[[Place], Step]] = {"counts": self.count, "registry": self.decide, "pairs": self.write}
        return kinds[table](place)

    def delete_partition(self, place: Place) -> Step:
        table, partition, _ = place
        gone = dict.fromkeys(only(self.progress.truth, table, partition))
        return Step(f"DELETE FROM {self.keyspace}.{table} WHERE p = {partition}", gone)

    def delete_row(self, place: Place, what: str = "") -> Step:
        table, partition, row = place
        cql = f"DELETE {what} FROM {self.keyspace}.{table} WHERE p = {partition} AND c = {row}"
        return Step(cql, {place: DELETED if what else None})

    def count(self, place: Place) -> Step:
        roll, held = self.rng.random(), self.progress.truth.get(place)
        if roll < 0.1 and isinstance(held, int):
            return self.delete_row(place, "v")
        if roll < 0.25:
            return self.delete_row(place)
        rows = [(partition, row) for partition in self.partitions for row in range(ROWS)]
        places = [place] if roll < 0.6 else [("counts", *row) for row in self.rng.sample(rows, self.rng.randint(2, 5))]
        increments = [(place, self.rng.choice((1, 2, 10, 1 << 40))) for place in places]
        statements = [f"UPDATE {self.keyspace}.counts SET v = v + {more} WHERE p = {partition} AND c = {row}"
                      for (_, partition, row), more in increments]
        cql = statements[0] if len(places) == 1 else f"BEGIN COUNTER BATCH {'; '.join(statements)}; APPLY BATCH"
        return Step(cql, {place: self.counted(place, more) for place, more in increments})

    def counted(self, place: Place, more: int) -> int | str:
        held = self.progress.truth.get(place, 0)
        return held if held == DELETED else held + more

    def decide(self, place: Place) -> Step:
        (table, partition, row), held, value = place, self.progress.truth.get(place), self.next_value()
        where = f"WHERE p = {partition} AND c = {row}"
        roll = self.rng.random()
        if roll < 0.3:
            return Step(self.insert(place, value) + " IF NOT EXISTS", {place: value}, held is None)
        if roll < 0.6:
            expected = held if held is not None and self.rng.random() < 0.7 else value
            return Step(f"UPDATE {self.keyspace}.{table} SET v = {value} {where} IF v = {expected}", {place: value}, held == expected)
        if roll < 0.8:
            return Step(f"DELETE FROM {self.keyspace}.{table} {where} IF EXISTS", {place: None}, held is not None)
        other = (table, partition, (row + 1) % ROWS)
        both = "; ".join(self.insert(each, value) + " IF NOT EXISTS" for each in (place, other))
        applies = held is None and other not in self.progress.truth
        return Step(f"BEGIN BATCH {both}; APPLY BATCH", {place: value, other: value}, applies)

    def write(self, place: Place) -> Step:
        if self.rng.random() < 0.25:
            return self.delete_row(place)
        value = self.next_value()
        return Step(self.insert(place, value), {place: value})

    def insert(self, place: Place, value: int) -> str:
        table, partition, row = place
        return f"INSERT INTO {self.keyspace}.{table} (p, c, v) VALUES ({partition}, {row}, {value})"

    def next_value(self) -> int:
        self.clock += 1
        return self.clock

    def check(self, connection: Connection) -> list[str]:
        seen: Values = {}
        for table in TABLES:
            for partition in self.partitions:
                answer = connection.query(f"SELECT c, v FROM {self.keyspace}.{table} WHERE p = {partition}")
                if isinstance(answer, Error):
                    raise RuntimeError(f"{table}: {answer.code:#06x} {answer.message}")
                seen |= {(table, partition, int.from_bytes(c, "big")): int.from_bytes(v, "big") for c, v in answer.rows}
        return self.progress.check(seen)
