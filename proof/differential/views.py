"""Materialized views of a history's tables, and reads of them.

Cassandra makes a view's changes from the rows before and after a write, which it reads and gets from a memtable.
"""

from random import Random

from proof.differential.counters import is_counting
from proof.differential.schema import Column, Table
from proof.differential.steps import Step

SHARE = 0.08        # of the steps read a view
BY_A_VALUE = 0.7    # of the views are ordered by a column outside of the table's key


class View:
    """A view of a table. Mostly a value that changes is in its key."""

    def __init__(self, rng: Random, table: Table):
        self.table = table
        self.name = f"{table.full_name}_view"
        self.key = key(rng, table)

    def create(self) -> Step:
        # In the partition key of a view is what may be empty, so it has a second column where there is one.
        partition, clustering = self.key[:2], self.key[2:]
        parts = ", ".join([f"({', '.join(column.name for column in partition)})", *(column.name for column in clustering)])
        conditions = " AND ".join(f"{column.name} IS NOT NULL" for column in self.key)
        # A static column cannot be in a view.
        has_static = bool(self.table.of_kind("static"))
        columns = ", ".join(column.name for column in self.table.columns if column.kind != "static") if has_static else "*"
        return Step("cql", f"CREATE MATERIALIZED VIEW {self.name} AS SELECT {columns} FROM {self.table.full_name} WHERE {conditions} PRIMARY KEY ({parts})")

    def read(self, rng: Random) -> Step:
        return Step("cql", f"SELECT * FROM {self.name}", page_size=rng.choice((None, 2, 5000)))


def key(rng: Random, table: Table) -> list[Column]:
    """A view has all columns of the table's key, and at most one more."""
    columns = table.partition_key + table.clustering
    rng.shuffle(columns)
    values = [column for column in table.of_kind("regular") if can_be_in_a_key(column)]
    return [rng.choice(values), *columns] if values and rng.random() < BY_A_VALUE else columns


def can_be_in_a_key(column: Column) -> bool:
    return not column.type.multi_cell and "duration" not in column.type.name


def views(rng: Random, tables: list[Table]) -> list[View]:
    """Returns views of the tables that can have one."""
    return [View(rng, table) for table in tables if not table.compact and not is_counting(table)]
