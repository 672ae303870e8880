"""Tables with COMPACT STORAGE, and what becomes of them without it."""

from random import Random

from proof.differential.schema import Column, Table, key_domain
from proof.differential.steps import Step
from proof.differential.values import Scalar, UserType, random_type

COMPACT = 0.15          # of the histories have such tables


def make_compact(rng: Random, table: Table, types: list[UserType]) -> None:
    """Removes static columns and cells of collections. If the table has clustering columns, at most one column remains
    outside of the key."""
    data = [column for column in table.data_columns if column.kind == "regular"]
    if table.clustering:
        data = data[:rng.choice((0, 1, 1, 1))]
    elif not data:
        data = [Column("a", Scalar("int"), "regular")]
    for column in data:
        while column.type.multi_cell:
            column.type = random_type(rng, types)
    table.columns = table.partition_key + table.clustering + data
    table.compact = True
    if not table.clustering:
        names = {column.name for column in table.columns}
        value = next(name for name in ("value", "value1") if name not in names)
        table.hidden = [Column("column1", Scalar("text"), "clustering"), Column(value, Scalar("blob"), "regular")]


def drop_compact_storage(rng: Random, table: Table) -> Step:
    """Drops COMPACT STORAGE. Statements may then name the columns that were hidden, except for one of the empty type,
    which no history names."""
    step = Step("cql", f"ALTER TABLE {table.full_name} DROP COMPACT STORAGE")
    if not table.compact:
        return step         # refused
    if table.hidden:
        clustering, value = table.hidden
        for column in [*table.data_columns, *table.dropped.values()]:
            column.kind = "static"
        table.columns = [*table.partition_key, clustering, *table.data_columns, value]
        table.key_domains[clustering.name] = key_domain(rng, clustering)
    table.compact, table.hidden = False, []
    return step


def leaves_out(rng: Random, table: Table, keys: list[Column]) -> list[Column]:
    """Returns the columns of the key that a written row names. In a table with COMPACT STORAGE it may leave out the
    last clustering columns: they are null."""
    if not table.compact or len(table.clustering) < 2 or rng.random() > 0.25:
        return keys
    count = len(table.partition_key) + rng.randrange(1, len(table.clustering))
    return keys[:count]
