"""Random writes: INSERT, INSERT JSON, UPDATE, DELETE and batches of them."""

import struct
from random import Random

from proof.differential.compact import leaves_out
from proof.differential.schema import BASE_TIMESTAMP, Column, Table
from proof.differential.steps import Step
from proof.differential.values import (NO_JSON, NULL, List, Map, Scalar, Set, UserType, Value, json_text, quoted)


class Text:
    """A statement being written: literals in place, or markers with their values."""

    def __init__(self, rng: Random, bound: bool):
        self.rng = rng
        self.bound = bound
        self.named = bound and rng.random() < 0.1
        self.values: list[str | None] = []
        self.conditional = False

    def value(self, value: Value) -> str:
        """The value as it stands in the statement: its literal, a function that gives it, or a marker."""
        if not self.bound or self.rng.random() < 0.1:
            as_json = value.json is not NO_JSON and value is not NULL and self.rng.random() < 0.04
            return f"{self.rng.choice(('from_json', 'fromJson'))}({quoted(json_text(value.json))})" if as_json else value.literal
        return self.marker(None if value.data is None else value.data.hex())

    def number(self, number: int, fmt: str = ">i") -> str:
        """A number of the statement itself, such as a limit."""
        if not self.bound or self.rng.random() < 0.6:
            return str(number)
        return self.marker(struct.pack(fmt, number).hex())

    def marker(self, value: str | None) -> str:
        self.values.append(value)
        return f":n{len(self.values) - 1}" if self.named else "?"

    def unset_or(self, value: Value) -> str:
        if self.bound and self.rng.random() < 0.05:
            return self.marker("unset")
        return self.value(value)


class Clock:
    """Timestamps of a history, whole milliseconds: rising, or few and so often equal."""

    def __init__(self, rng: Random):
        self.rng = rng
        self.ties = rng.random() < 0.35
        self.last = BASE_TIMESTAMP
        self.newest = BASE_TIMESTAMP

    def next(self) -> int:
        if self.ties:
            self.last = BASE_TIMESTAMP + 1000 * self.rng.randrange(12)
        else:
            self.last += 1000 * self.rng.choice((1, 1, 1, 10, -3))
        self.newest = max(self.newest, self.last)
        return self.last

    def rising(self) -> int:
        """Returns a timestamp that is later than all before it."""
        self.newest += 1000
        return self.newest

    def earlier(self) -> int:
        """The time of a write, often of one of the last."""
        written = (self.newest - BASE_TIMESTAMP) // 1000
        back = self.rng.choice((0, self.rng.randrange(12), self.rng.randrange(written + 1)))
        return BASE_TIMESTAMP + 1000 * max(written - back, 0)


def write(rng: Random, table: Table, clock: Clock, now: int | None, conditional: bool = False) -> Step:
    """One INSERT, UPDATE, DELETE or BATCH; `conditional`: often with an IF."""
    if conditional and rng.random() < 0.5:
        return conditional_write(rng, table, clock, now)
    if rng.random() < 0.1:
        return batch(rng, table, clock, now)
    text, cql = single_write(rng, table, clock)
    return finish(rng, text, cql, now, clock)


def finish(rng: Random, text: Text, cql: str, now: int | None, clock: Clock) -> Step:
    step = Step("cql", cql, text.values, now=now)
    step.prepared = text.bound and rng.random() < 0.7
    step.named = text.named and bool(text.values)
    step.timestamp = clock.next()       # counts where the statement has none of its own
    return step


def single_write(rng: Random, table: Table, clock: Clock, in_batch: bool = False) -> tuple[Text, str]:
    text = Text(rng, rng.random() < 0.4)
    text.named = text.named and not in_batch
    roll = rng.random()
    if roll < 0.45:
        return text, insert(text, table, clock)
    if roll < 0.5 and not in_batch:
        return text, insert_json(text, table, clock)
    if roll < 0.77:
        return text, update(text, table, clock)
    return text, delete(text, table, clock)


def using(text: Text, clock: Clock, ttl_allowed: bool = True) -> str:
    """Returns a USING clause or nothing: often with a TIMESTAMP, sometimes with a TTL that does not expire during a
    run, unless the clock is that of the statement."""
    timed, living = text.rng.random() < (0.01 if text.conditional else 0.7), ttl_allowed and text.rng.random() < 0.12
    parts = []
    for part in text.rng.sample(("TIMESTAMP", "TTL"), 2):
        if part == "TIMESTAMP" and timed:
            parts.append(f"TIMESTAMP {text.number(clock.next(), '>q')}")
        if part == "TTL" and living:
            seconds = 100_000 + text.rng.randrange(90_000_000) if text.rng.random() < 0.9 else 0
            parts.append(f"TTL {text.number(seconds)}")
    return f" USING {' AND '.join(parts)}" if parts else ""


def maybe_null(rng: Random, column: Column) -> Value:
    return NULL if rng.random() < 0.08 else column.type.value(rng)


def insert(text: Text, table: Table, clock: Clock) -> str:
    rng = text.rng
    data = rng.sample(table.data_columns, rng.randrange(len(table.data_columns) + 1))
    only_static = table.clustering and data and all(c.kind == "static" for c in data) and rng.random() < 0.7
    keys = leaves_out(rng, table, table.partition_key + ([] if only_static else table.clustering))
    chosen = keys + data
    if rng.random() < 0.3:
        rng.shuffle(chosen)
    values = [text.value(table.key_value(rng, c)) if c in keys else text.unset_or(maybe_null(rng, c)) for c in chosen]
    return f"INSERT INTO {table.full_name} ({', '.join(c.name for c in chosen)}) VALUES ({', '.join(values)}){not_exists(text)}{using(text, clock)}"


def insert_json(text: Text, table: Table, clock: Clock) -> str:
    rng = text.rng
    chosen = table.partition_key + table.clustering + rng.sample(table.data_columns, rng.randrange(len(table.data_columns) + 1))
    document = {}
    for column in chosen:
        key = column.kind in ("partition_key", "clustering")
        value = table.key_value(rng, column) if key else maybe_null(rng, column)
        if value.json is not NO_JSON:
            document[column.name] = value.json
    literal = text.marker(json_text(document).encode().hex()) if text.bound else quoted(json_text(document))
    default = rng.choice(("", "", " DEFAULT NULL", " DEFAULT UNSET"))
    return f"INSERT INTO {table.full_name} JSON {literal}{default}{not_exists(text)}{using(text, clock)}"


def not_exists(text: Text) -> str:
    return " IF NOT EXISTS" if text.conditional else ""


def conditional_write(rng: Random, table: Table, clock: Clock, now: int | None) -> Step:
    """A conditional INSERT, UPDATE or DELETE, or a batch with some. Most name one row, since IN is refused."""
    if rng.random() < 0.2:
        return conditional_batch(rng, table, clock, now)
    text, cql = conditional_statement(rng, table, clock)
    step = finish(rng, text, cql, now, clock)
    step.timestamp = step.timestamp if rng.random() < 0.2 else None
    return step


def conditional_batch(rng: Random, table: Table, clock: Clock, now: int | None) -> Step:
    writes = [conditional_statement(rng, table, clock, in_batch=True) if rng.random() < 0.7 else
              single_write(rng, table, clock, in_batch=True) for _ in range(rng.choice((1, 2, 2, 3)))]
    if rng.random() < 0.5:
        step = Step("batch", now=now, batch_type=rng.choice((0, 1)))
        step.items = [[cql, text.values] for text, cql in writes]
        return step
    body = "; ".join(cql for _, cql in writes)
    return Step("cql", f"BEGIN {rng.choice(('', 'UNLOGGED '))}BATCH {body}; APPLY BATCH",
                [value for text, _ in writes for value in text.values], now=now)


def conditional_statement(rng: Random, table: Table, clock: Clock, in_batch: bool = False) -> tuple[Text, str]:
    text = Text(rng, rng.random() < 0.4)
    text.named = text.named and not in_batch
    text.conditional = True
    roll = rng.random()
    if roll < 0.35:
        return text, insert(text, table, clock)
    if roll < 0.4 and not in_batch:
        return text, insert_json(text, table, clock)
    change = update if roll < 0.8 and table.data_columns else delete
    cql = change(text, table, clock)
    return text, cql if cql.startswith("INSERT") else cql + conditions(text, table)


def conditions(text: Text, table: Table) -> str:
    rng = text.rng
    if rng.random() < 0.25 or not table.data_columns:
        return " IF EXISTS"
    columns = [rng.choice(table.data_columns) for _ in range(rng.choice((1, 1, 1, 2, 3)))]
    return " IF " + " AND ".join(condition(text, column, len(columns) == 1) for column in columns)


def condition(text: Text, column: Column, alone: bool) -> str:
    """A condition on a column, or on an element or a field of it; `alone`: values that cannot
    be ordered are compared too.

    Of several conditions Cassandra looks at one after the other in the order of a hash map, and fails at such a value
    only if those before it hold.
    """
    rng, kind, name = text.rng, column.type, column.name
    roll = rng.random()
    if isinstance(kind, List) and roll < 0.5:
        if roll < 0.2:
            return f"{name} CONTAINS {text.value(kind.element.value(rng))}"
        return compared(text, f"{name}[{rng.choice((0, 0, 1, 5, -1) if alone else (0, 1, 5))}]", kind.element, alone)
    if isinstance(kind, Set) and roll < 0.3:
        return f"{name} CONTAINS {text.value(kind.element.value(rng))}"
    if isinstance(kind, Map) and roll < 0.6:
        if roll < 0.15:
            return f"{name} CONTAINS {text.value(kind.element.value(rng))}"
        if roll < 0.3:
            return f"{name} CONTAINS KEY {text.value(kind.key.value(rng))}"
        return compared(text, f"{name}[{text.value(kind.key.value(rng))}]", kind.element, alone)
    if isinstance(kind, UserType) and roll < 0.5:
        field, field_type = rng.choice(kind.fields)
        return compared(text, f"{name}.{field}", field_type, alone)
    return compared(text, name, kind, alone)


def compared(text: Text, what: str, kind, alone: bool) -> str:
    rng = text.rng
    orders = alone or isinstance(kind, Scalar)
    operator = rng.choice(("=", "=", "!=", "!=", "IN") + (("<", "<=", ">", ">=") if orders else ()))
    values = [NULL if rng.random() < 0.25 else kind.value(rng) for _ in range(rng.choice((0, 1, 2, 3)))]
    if operator == "IN":
        return f"{what} IN ({', '.join(text.value(value) for value in values)})"
    return f"{what} {operator} {text.value(NULL if rng.random() < 0.2 and (alone or operator in ('=', '!=')) else kind.value(rng))}"


def relation(text: Text, table: Table, column: Column, several: float = 0.15) -> str:
    rng = text.rng
    if rng.random() < (several / 4 if text.conditional else several):
        chosen = [table.key_value(rng, column) for _ in range(rng.choice((0, 1, 2, 2, 3)))]
        if text.bound and rng.random() < 0.3:
            return f"{column.name} IN {text.marker(List(column.type, True).of(chosen).data.hex())}"
        values = [text.value(value) for value in chosen]
        return f"{column.name} IN ({', '.join(values)})"
    return f"{column.name} = {text.value(table.key_value(rng, column))}"


def update(text: Text, table: Table, clock: Clock) -> str:
    rng = text.rng
    if not table.data_columns:
        return insert(text, table, clock)
    data = rng.sample(table.data_columns, min(len(table.data_columns), rng.choice((1, 1, 2, 3))))
    only_static = all(c.kind == "static" for c in data)
    head = f"UPDATE {table.full_name}{using(text, clock)} SET {', '.join(assignment(text, c) for c in data)}"
    keys = leaves_out(rng, table, table.partition_key + ([] if only_static else table.clustering))
    return f"{head} WHERE {' AND '.join(relation(text, table, c, 0.08) for c in keys)}"


def assignment(text: Text, column: Column) -> str:
    rng, kind, name = text.rng, column.type, column.name
    if not kind.multi_cell or rng.random() < 0.3:
        return f"{name} = {text.unset_or(maybe_null(rng, column))}"
    if isinstance(kind, List):
        roll = rng.random()
        if roll < 0.25:
            return f"{name}[{rng.choice((0, 0, 1, 2, -1))}] = {text.value(kind.element.value(rng))}"
        if roll < 0.5:
            return f"{name} = {text.value(kind.value(rng))} + {name}"
        return f"{name} = {name} {rng.choice('++-')} {text.value(kind.value(rng))}"
    if isinstance(kind, Set):
        return f"{name} = {name} {rng.choice('++-')} {text.value(kind.value(rng))}"
    if isinstance(kind, Map):
        roll = rng.random()
        if roll < 0.4:
            value = NULL if rng.random() < 0.2 else kind.element.value(rng)
            return f"{name}[{text.value(kind.key.value(rng))}] = {text.value(value)}"
        if roll < 0.6:
            return f"{name} = {name} - {text.value(Set(kind.key, False).value(rng))}"
        return f"{name} = {name} + {text.value(kind.value(rng))}"
    if isinstance(kind, UserType):
        field, field_type = rng.choice(kind.fields)
        return f"{name}.{field} = {text.value(NULL if rng.random() < 0.2 else field_type.value(rng))}"
    return f"{name} = {text.value(maybe_null(rng, column))}"


def delete(text: Text, table: Table, clock: Clock) -> str:
    rng = text.rng
    roll = rng.random()
    targets = ""
    clustering = table.clustering
    if roll < 0.35 and table.data_columns:
        chosen = rng.sample(table.data_columns, min(len(table.data_columns), rng.choice((1, 1, 2))))
        targets = " " + ", ".join(target(text, c) for c in chosen)
        clustering = [] if all(c.kind == "static" for c in chosen) else table.clustering
    head = f"DELETE{targets} FROM {table.full_name}{using(text, clock, ttl_allowed=False)} WHERE "
    relations = [relation(text, table, c, 0.08) for c in table.partition_key]
    if targets or not clustering:
        return head + " AND ".join(relations + [relation(text, table, c, 0.08) for c in clustering])
    return head + " AND ".join(relations + rows_relation(text, table))


def target(text: Text, column: Column) -> str:
    rng, kind = text.rng, column.type
    if kind.multi_cell and rng.random() < 0.6:
        if isinstance(kind, List):
            return f"{column.name}[{rng.choice((0, 0, 1))}]"
        if isinstance(kind, Map):
            return f"{column.name}[{text.value(kind.key.value(rng))}]"
        if isinstance(kind, Set):
            return f"{column.name}[{text.value(kind.element.value(rng))}]"
        if isinstance(kind, UserType):
            return f"{column.name}.{rng.choice(kind.fields)[0]}"
    return column.name


def rows_relation(text: Text, table: Table) -> list[str]:
    """Returns the relation that says which rows of a partition are meant: all, one, a prefix, a range, a range of
    several columns."""
    rng = text.rng
    depth = rng.randrange(len(table.clustering) + 1)
    if rng.random() < (0.9 if text.conditional else 0.4):
        depth = len(table.clustering)
    relations = [relation(text, table, c, 0.06) for c in table.clustering[:depth]]
    if depth == len(table.clustering) or rng.random() < 0.25:
        return relations
    return relations + slice_relation(text, table, table.clustering[depth:])


def slice_relation(text: Text, table: Table, columns: list[Column]) -> list[str]:
    rng = text.rng
    if len(columns) > 1 and rng.random() < 0.4:
        chosen = columns[:rng.randrange(2, len(columns) + 1)]
        names = ", ".join(c.name for c in chosen)
        lower = ", ".join(text.value(table.key_value(rng, c)) for c in chosen)
        bounds = [f"({names}) {rng.choice(('>', '>='))} ({lower})"]
        if rng.random() < 0.5:
            shorter = chosen[:rng.randrange(1, len(chosen) + 1)]
            upper = ", ".join(text.value(table.key_value(rng, c)) for c in shorter)
            bounds.append(f"({', '.join(c.name for c in shorter)}) {rng.choice(('<', '<='))} ({upper})")
        rng.shuffle(bounds)
        return bounds[:rng.choice((1, 2))]
    column = columns[0]
    bounds = [f"{column.name} {rng.choice(('>', '>='))} {text.value(table.key_value(rng, column))}"]
    if rng.random() < 0.6:
        bounds.append(f"{column.name} {rng.choice(('<', '<='))} {text.value(table.key_value(rng, column))}")
    return bounds if rng.random() < 0.8 else bounds[-1:]


def batch(rng: Random, table: Table, clock: Clock, now: int | None) -> Step:
    """A batch as CQL text, or as a BATCH message."""
    writes = [single_write(rng, table, clock, in_batch=True) for _ in range(rng.choice((1, 2, 3, 5)))]
    if rng.random() < 0.5:
        step = Step("batch", now=now, batch_type=rng.choice((0, 1)), timestamp=clock.next())
        step.items = [[cql, text.values] for text, cql in writes]
        return step
    values = [value for text, _ in writes for value in text.values]
    shared = f" USING TIMESTAMP {clock.next()}" if rng.random() < 0.3 else ""
    body = "; ".join(cql for _, cql in writes)
    step = Step("cql", f"BEGIN {rng.choice(('', 'UNLOGGED '))}BATCH{shared} {body}; APPLY BATCH", values, now=now)
    if not shared:
        step.timestamp = clock.next()
    return step
