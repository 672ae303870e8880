"""Tables of counters, and what is written to them: increments, batches of them, deletions, and what is refused.

Their timestamps rise. Where an increment is older than a deletion, what is counted depends on when memtables were
flushed, on each server by itself. A counter that was itself deleted stays deleted, whatever is counted in it; if its
row is deleted later, Cassandra lets it count again only where a memtable was flushed between. So a table has deletions
of counters or of rows, not both. Cassandra keeps its counter cache through deletions, so that a counter of a deleted
row may go on from its old total (docs/differences.md). The oracle has no such cache, and counts from 0 again.
"""

from random import Random

from proof.differential.schema import Column, Table
from proof.differential.steps import Step
from proof.differential.values import NULL, SCALAR_DOMAINS, Type, Value, integer, random_type
from proof.differential.writes import Clock, Text, insert, insert_json, relation, rows_relation, update

COUNTING = 0.16         # of the histories have such tables
SMALL = integer(">q", 1, 1, 1, 2, 3, 10, -1, -4, 0)
LOGGED, UNLOGGED, COUNTER = 0, 1, 2


class Counter(Type):
    """A counter's values are those of a bigint."""

    def __init__(self):
        super().__init__("counter")

    def value(self, rng: Random) -> Value:
        return rng.choice(SMALL if rng.random() < 0.8 else SCALAR_DOMAINS["bigint"])


def make_counting(rng: Random, table: Table) -> None:
    """Makes all columns outside of the key counters, static ones too."""
    if not table.data_columns:
        table.columns.append(Column("a", Counter(), "regular"))
    if table.clustering and not table.of_kind("static") and rng.random() < 0.4:
        table.columns.append(Column("s0", Counter(), "static"))
    for column in table.data_columns:
        column.type = Counter()
    table.deletes_counters = rng.random() < 0.3


def is_counting(table: Table) -> bool:
    return any(isinstance(column.type, Counter) for column in [*table.data_columns, *table.dropped.values()])


def added_column(rng: Random, table: Table, name: str, static: bool, types: list) -> Step:
    """A counter, or what is refused: another type, or the name of a counter that was dropped."""
    kind = Counter() if rng.random() < 0.85 else random_type(rng, types)
    if isinstance(kind, Counter) and name not in table.dropped:
        table.columns.append(Column(name, kind, "static" if static else "regular"))
    return Step("cql", f"ALTER TABLE {table.full_name} ADD {name} {kind.name}{' static' if static else ''}")


def counting_write(rng: Random, table: Table, clock: Clock) -> Step:
    """An increment of some counters, a deletion, a batch, or now and then something that is refused."""
    roll = rng.random()
    if roll < 0.15:
        return batch(rng, table, clock)
    text, cql = wrong_write(rng, table, clock) if roll < 0.2 else single_write(rng, table)
    step = Step("cql", cql, text.values, timestamp=clock.rising())
    step.prepared = text.bound and rng.random() < 0.7
    step.named = text.named and bool(text.values)
    return step


def single_write(rng: Random, table: Table, in_batch: bool = False) -> tuple[Text, str]:
    text = Text(rng, rng.random() < 0.4)
    text.named = text.named and not in_batch
    return text, delete(text, table) if rng.random() < 0.15 else increments(text, table)


def increments(text: Text, table: Table) -> str:
    rng = text.rng
    if not table.data_columns:
        return delete(text, table)
    data = rng.sample(table.data_columns, min(len(table.data_columns), rng.choice((1, 1, 1, 2, 3))))
    data += data[:1] if rng.random() < 0.05 else []
    keys = table.partition_key + ([] if all(c.kind == "static" for c in data) else table.clustering)
    changes = ", ".join(increment(text, c) for c in data)       # markers are numbered as they are written
    where = " AND ".join(relation(text, table, c, 0.1) for c in keys)
    return f"UPDATE {table.full_name} SET {changes} WHERE {where}"


def increment(text: Text, column: Column) -> str:
    rng, name = text.rng, column.name
    value = text.unset_or(NULL if rng.random() < 0.02 else column.type.value(rng))
    form = rng.choice(("{0} = {0} + {1}", "{0} = {0} + {1}", "{0} = {0} - {1}", "{0} += {1}", "{0} -= {1}"))
    return form.format(name, value)


def delete(text: Text, table: Table) -> str:
    rng = text.rng
    head = f"DELETE FROM {table.full_name} WHERE "
    relations = [relation(text, table, c, 0.08) for c in table.partition_key]
    if table.deletes_counters and table.data_columns:
        column = rng.choice(table.data_columns)
        keys = [] if column.kind == "static" else table.clustering
        head = f"DELETE {column.name} FROM {table.full_name} WHERE "
        return head + " AND ".join(relations + [relation(text, table, c, 0.08) for c in keys])
    return head + " AND ".join(relations + (rows_relation(text, table) if table.clustering else []))


def batch(rng: Random, table: Table, clock: Clock) -> Step:
    """Returns a batch of the kind for counters or an unlogged one, rarely a logged one, which is refused."""
    writes = [single_write(rng, table, in_batch=True) for _ in range(rng.choice((1, 2, 3, 5)))]
    if rng.random() < 0.05:
        writes.append(wrong_write(rng, table, clock))
    kind = rng.choice((COUNTER,) * 6 + (UNLOGGED,) * 3 + (LOGGED,))
    if rng.random() < 0.5:
        step = Step("batch", batch_type=kind, timestamp=clock.rising())
        step.items = [[cql, text.values] for text, cql in writes]
        return step
    values = [value for text, _ in writes for value in text.values]
    body = "; ".join(cql for _, cql in writes)
    return Step("cql", f"BEGIN {('', 'UNLOGGED ', 'COUNTER ')[kind]}BATCH {body}; APPLY BATCH", values, timestamp=clock.rising())


def wrong_write(rng: Random, table: Table, clock: Clock) -> tuple[Text, str]:
    """Returns a write that tables of counters refuse, or an increment with a timestamp of its own or with
    conditions."""
    text = Text(rng, rng.random() < 0.3)
    text.named = False
    roll = rng.random()
    if roll < 0.35:
        return text, rng.choice((insert, insert_json, update))(text, table, clock)
    cql = increments(text, table)
    if roll < 0.7:
        return text, cql.replace(" SET ", rng.choice((" USING TIMESTAMP 5 SET ", " USING TTL 5 SET ", " USING TTL 0 SET ")), 1)
    return text, cql + rng.choice((" IF EXISTS", f" IF {table.columns[-1].name} = 1"))
