"""Random tables, and what a history has done to them so far."""

from dataclasses import dataclass, field
from random import Random

from proof.differential.values import NULL, Set, Type, UserType, Value, random_key_type, random_type

REGULAR_NAMES = ["a", "b", "c", "d", "e", "f", '"Mixed Case"', "value", "type", "x1", "ttl_", '"select"']
BASE_TIMESTAMP = 1_700_000_000_000_000


@dataclass
class Column:
    name: str
    type: Type
    kind: str                   # partition_key, clustering, static, regular
    reversed: bool = False


@dataclass
class Table:
    keyspace: str
    name: str
    columns: list[Column]
    key_domains: dict[str, list[Value]]         # few values per key column, so that rows meet
    dropped: dict[str, Column] = field(default_factory=dict)
    drop_times: dict[str, int | None] = field(default_factory=dict)     # by name; None: by the server's clock
    alive: bool = True
    indexes: dict[str, list[str]] = field(default_factory=dict)        # the targets of each indexed column
    attached: set[str] = field(default_factory=set)        # the columns with storage-attached indexes
    sasi: set[str] = field(default_factory=set)            # the columns with SASI indexes, which have no others
    compact: bool = False                       # WITH COMPACT STORAGE
    deletes_counters: bool = False              # its counters are deleted themselves, and not its rows
    hidden: list[Column] = field(default_factory=list)                  # what statements can name without it

    @property
    def full_name(self) -> str:
        return f"{self.keyspace}.{self.name}"

    def of_kind(self, *kinds: str) -> list[Column]:
        return [column for column in self.columns if column.kind in kinds]

    @property
    def partition_key(self) -> list[Column]:
        return self.of_kind("partition_key")

    @property
    def clustering(self) -> list[Column]:
        return self.of_kind("clustering")

    @property
    def data_columns(self) -> list[Column]:
        return self.of_kind("static", "regular")

    def dropped_by_clock(self, column: Column) -> bool:
        return self.drop_times.get(column.name, 0) is None

    def key_value(self, rng: Random, column: Column) -> Value:
        return rng.choice(self.key_domains[column.name])

    def add_key_values(self, rng: Random) -> None:
        """Adds keys with the new field of a user type that has grown, beside the keys without it."""
        for column in self.clustering:
            if isinstance(column.type, UserType):
                self.key_domains[column.name] += [column.type.value(rng) for _ in range(2)]

    def create(self) -> str:
        lines = [f"{c.name} {c.type.name}{' static' if c.kind == 'static' else ''}" for c in self.columns]
        key = ", ".join(c.name for c in self.partition_key)
        parts = [f"({key})"] + [c.name for c in self.clustering]
        order = ", ".join(f"{c.name} {'DESC' if c.reversed else 'ASC'}" for c in self.clustering)
        options = ["COMPACT STORAGE"] if self.compact else []
        options += [f"CLUSTERING ORDER BY ({order})"] if any(c.reversed for c in self.clustering) else []
        options = f" WITH {' AND '.join(options)}" if options else ""
        return f"CREATE TABLE {self.full_name} ({', '.join(lines)}, PRIMARY KEY ({', '.join(parts)})){options}"


def random_user_types(rng: Random) -> list[UserType]:
    types: list[UserType] = []
    for number in range(rng.choice((0, 1, 1, 2))):
        names = rng.sample(["f1", "f2", "f3", "street", "zip"], rng.choice((1, 2, 3)))
        types.append(UserType(f"u{number}", [(name, random_type(rng, types, 1)) for name in names], True))
    return types


def create_type(keyspace: str, kind: UserType) -> str:
    return f"CREATE TYPE {keyspace}.{kind.type_name} ({', '.join(f'{n} {t.frozen_name}' for n, t in kind.fields)})"


def random_table(rng: Random, keyspace: str, name: str, types: list[UserType]) -> Table:
    columns = [Column(f"p{n}", random_key_type(rng, types), "partition_key") for n in range(rng.choice((1, 1, 1, 2, 3)))]
    clustering = rng.choice((0, 1, 1, 2, 2, 3))
    columns += [clustering_column(rng, f"k{n}", types) for n in range(clustering)]
    if clustering and rng.random() < 0.5:
        columns += [Column(f"s{n}", random_type(rng, types), "static") for n in range(rng.choice((1, 2)))]
    names = rng.sample(REGULAR_NAMES, rng.choice((0, 1, 2, 3, 4, 6)) if rng.random() < 0.95 else 10)
    columns += [Column(name, random_type(rng, types), "regular") for name in names]
    domains = {column.name: key_domain(rng, column) for column in columns if column.kind in ("partition_key", "clustering")}
    return Table(keyspace, name, columns, domains)


def clustering_column(rng: Random, name: str, types: list[UserType]) -> Column:
    """Returns a clustering column that is no set in descending order. Cassandra would store a bound one as it was sent,
    not sorted (docs/differences.md)."""
    kind, reversed_order = random_key_type(rng, types), rng.random() < 0.35
    return Column(name, kind, "clustering", reversed_order and not isinstance(kind, Set))


def key_domain(rng: Random, column: Column) -> list[Value]:
    wanted = 3 if column.kind == "partition_key" else 6
    values = {value.data: value for value in (column.type.value(rng) for _ in range(wanted * 3)) if value is not NULL}
    # An empty value is no valid single partition key; keep it where it is one.
    kept = [value for value in values.values() if column.kind != "partition_key" or value.data]
    return kept[:wanted] or [column.type.value(rng)]
