"""A partition with a static column and two rows as one object: the requests that clients send, and what they do to it.

Each request says its statements and values, when it applies, and what the partition is afterwards. A row
of the object is (v, l); a row that does not exist is (None, ()). Every write has a value of its own, so a
read names the writes it saw.
"""

from dataclasses import dataclass

from proof.linearizability.checker import Facts

TABLE, BULK = "linear.registers", "linear.bulk"
SCHEMA = (
    "CREATE KEYSPACE linear WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
    f"CREATE TABLE {TABLE} (p int, c int, s int static, v int, l list<int>, PRIMARY KEY (p, c))",
    f"CREATE TABLE {BULK} (k int PRIMARY KEY, v blob)",
)
ABSENT = (None, ())
EMPTY = (None, (ABSENT, ABSENT))        # (s, rows)
ROWS = (0, 1)
ROW = "p = ? AND c = ?"


@dataclass(frozen=True)
class Answer:
    """An answer. That to a write says whether it applied, and if not, which values were there. That to a read has only
    rows."""

    applied: bool
    rows: tuple[tuple[tuple[str, object], ...], ...] = ()


def with_row(state, c: int, row):
    s, rows = state
    return s, (row, rows[1]) if c == 0 else (rows[0], row)


@dataclass(frozen=True)
class Request:
    def holds(self, state) -> bool:
        raise NotImplementedError

    def after(self, state):
        raise NotImplementedError

    def parts(self, p: int) -> list[tuple[str, tuple]]:
        """The statements with their values; several are a batch."""
        raise NotImplementedError

    def shows(self, state, rows) -> bool:
        """A refused write shows values of the state."""
        return all(self.is_of(state, dict(row)) for row in rows)

    @property
    def changes_static(self) -> bool:
        return False

    def is_of(self, state, shown: dict) -> bool:
        s, rows = state
        c = shown.get("c", getattr(self, "c", None))
        v, elements = ABSENT if c is None else rows[c]
        # As in Cassandra, a refusal has null for static columns that the request does not change.
        s = s if self.changes_static else None
        return shown.get("s", s) == s and shown.get("v", v) == v and shown.get("l", elements) == elements


@dataclass(frozen=True)
class Set(Request):
    c: int
    value: int
    expected: int | None

    def holds(self, state) -> bool:
        return state[1][self.c][0] == self.expected

    def after(self, state):
        return with_row(state, self.c, (self.value, state[1][self.c][1]))

    def parts(self, p: int):
        return [(f"UPDATE {TABLE} SET v = ? WHERE {ROW} IF v = ?", (self.value, p, self.c, self.expected))]


@dataclass(frozen=True)
class Insert(Request):
    c: int
    value: int

    def holds(self, state) -> bool:
        return state[1][self.c] == ABSENT

    def after(self, state):
        return with_row(state, self.c, (self.value, ()))

    def parts(self, p: int):
        return [(f"INSERT INTO {TABLE} (p, c, v) VALUES (?, ?, ?) IF NOT EXISTS", (p, self.c, self.value))]


@dataclass(frozen=True)
class Delete(Request):
    c: int

    def holds(self, state) -> bool:
        return state[1][self.c] != ABSENT

    def after(self, state):
        return with_row(state, self.c, ABSENT)

    def parts(self, p: int):
        return [(f"DELETE FROM {TABLE} WHERE {ROW} IF EXISTS", (p, self.c))]


@dataclass(frozen=True)
class DeleteValue(Delete):
    expected: int

    def holds(self, state) -> bool:
        return state[1][self.c][0] == self.expected

    def parts(self, p: int):
        return [(f"DELETE FROM {TABLE} WHERE {ROW} IF v = ?", (p, self.c, self.expected))]


@dataclass(frozen=True)
class Append(Set):
    """Appends to the list, if the row has the expected value."""

    def after(self, state):
        v, elements = state[1][self.c]
        return with_row(state, self.c, (v, (*elements, self.value)))

    def parts(self, p: int):
        return [(f"UPDATE {TABLE} SET l = l + ? WHERE {ROW} IF v = ?", ([self.value], p, self.c, self.expected))]


@dataclass(frozen=True)
class SetElement(Set):
    """Replaces the first element of the list, if it is the expected one."""

    def holds(self, state) -> bool:
        return state[1][self.c][1][:1] == (self.expected,)

    def after(self, state):
        v, elements = state[1][self.c]
        return with_row(state, self.c, (v, (self.value, *elements[1:])))

    def parts(self, p: int):
        return [(f"UPDATE {TABLE} SET l[0] = ? WHERE {ROW} IF l[0] = ?", (self.value, p, self.c, self.expected))]


@dataclass(frozen=True)
class Replace(Set):
    """Replaces value and list of a row."""

    def after(self, state):
        return with_row(state, self.c, (self.value, (self.value,)))

    def parts(self, p: int):
        return [(f"UPDATE {TABLE} SET v = ?, l = ? WHERE {ROW} IF v = ?", (self.value, [self.value], p, self.c, self.expected))]


@dataclass(frozen=True)
class SetStatic(Request):
    value: int
    expected: int | None

    def holds(self, state) -> bool:
        return state[0] == self.expected

    def after(self, state):
        return self.value, state[1]

    @property
    def changes_static(self) -> bool:
        return True

    def parts(self, p: int):
        return [(f"UPDATE {TABLE} SET s = ? WHERE p = ? IF s = ?", (self.value, p, self.expected))]


@dataclass(frozen=True)
class Batch(Request):
    """Several requests, each of which sees the state before the batch; all of them apply or none does."""

    requests: tuple[Request, ...]

    def holds(self, state) -> bool:
        return all(request.holds(state) for request in self.requests)

    def after(self, state):
        for request in self.requests:
            state = request.after(state)
        return state

    @property
    def changes_static(self) -> bool:
        return any(request.changes_static for request in self.requests)

    def parts(self, p: int):
        return [part for request in self.requests for part in request.parts(p)]


@dataclass(frozen=True)
class Read(Request):
    """The whole partition."""

    is_serial: bool

    def holds(self, state) -> bool:
        return False

    def after(self, state):
        return state

    def parts(self, p: int):
        return [(f"SELECT c, s, v, l FROM {TABLE} WHERE p = ?", (p,))]

    def shows(self, state, rows) -> bool:
        return [dict(row) for row in rows] == self.expected(*state)

    def expected(self, s, rows) -> list[dict]:
        found = [{"c": c, "s": s, "v": row[0], "l": row[1]} for c, row in enumerate(rows) if row != ABSENT]
        return found or ([{"c": None, "s": s, "v": None, "l": ()}] if s is not None else [])


@dataclass(frozen=True)
class ReadRow(Read):
    c: int

    def parts(self, p: int):
        return [(f"SELECT c, s, v, l FROM {TABLE} WHERE {ROW}", (p, self.c))]

    def expected(self, s, rows) -> list[dict]:
        return [found for found in super().expected(s, rows) if found["c"] == self.c]


def step(state, request: Request, answer: Answer | None):
    """The state after the request, or None if a partition in that state does not give that answer."""
    holds = request.holds(state)
    if answer is None:
        return request.after(state) if holds else state
    if answer.applied:
        return request.after(state) if holds else None
    return state if not holds and request.shows(state, answer.rows) else None


class Values(Facts):
    """The values of the rows and the static value: each is written once."""

    def of(self, state) -> frozenset:
        s, rows = state
        return frozenset((("s", s), *((c, row[0]) for c, row in enumerate(rows))))

    def needed(self, request: Request, answer: Answer) -> list[tuple]:
        """Returns the values that an answer shows, or that a write which applied expected. Null is left out, because it
        may come again."""
        if answer.applied:
            return needed_by(request)
        found = []
        for row in map(dict, answer.rows):
            c = row.get("c", getattr(request, "c", None))
            found += [(c, row["v"])] if c is not None and row.get("v") is not None else []
            found += [("s", row["s"])] if row.get("s") is not None else []
        return found


def needed_by(request: Request) -> list[tuple]:
    if isinstance(request, Batch):
        return [fact for part in request.requests for fact in needed_by(part)]
    expected = getattr(request, "expected", None)
    if expected is None or isinstance(request, SetElement):
        return []
    return [("s" if isinstance(request, SetStatic) else request.c, expected)]
