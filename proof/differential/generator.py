"""Histories from a seed: a schema, then writes, reads, schema changes, flushes and mistakes in random order."""

from dataclasses import replace
from random import Random

from proof.differential.compact import COMPACT, drop_compact_storage, make_compact
from proof.differential.counters import COUNTING, added_column, counting_write, is_counting, make_counting
from proof.differential.indexes import INDEXED, create_index
from proof.differential.mistakes import spoil
from proof.differential.nearest import SHARE, NearestTable
from proof.differential.reads import read
from proof.differential.repeats import repeats_before_a_range
from proof.differential.schema import (REGULAR_NAMES, Column, Table, create_type, random_table, random_user_types)
from proof.differential.steps import SIMPLE, History, Step
from proof.differential.values import Scalar, UserType, random_type
from proof.differential.views import SHARE as SHARE_OF_VIEWS, views
from proof.differential.writes import Clock, write

CONNECTIONS = [(5, None), (4, None), (5, "lz4"), (4, "lz4"), (4, "snappy"), (3, None)]
SYSTEM_READS = [
    "SELECT table_name, column_name, clustering_order, kind, position, type FROM system_schema.columns WHERE keyspace_name = '{}'",
    "SELECT table_name, column_name, kind, type FROM system_schema.dropped_columns WHERE keyspace_name = '{}'",
    "SELECT type_name, field_names, field_types FROM system_schema.types WHERE keyspace_name = '{}'",
    "SELECT table_name, comment, compaction, compression, flags, gc_grace_seconds, caching FROM system_schema.tables WHERE keyspace_name = '{}'",
    "SELECT * FROM system_schema.keyspaces WHERE keyspace_name = '{}'",
]

# Of these only one replica is ever alive.
REPLICATIONS = ["{'class': 'SimpleStrategy', 'replication_factor': 3}", "{'class': 'NetworkTopologyStrategy', 'datacenter1': 1}",
                "{'class': 'NetworkTopologyStrategy', 'datacenter1': 3}"]
ANY, TWO, THREE, QUORUM, ALL, LOCAL_QUORUM, EACH_QUORUM, LOCAL_ONE = 0, 2, 3, 4, 5, 6, 7, 10
SERIAL, LOCAL_SERIAL = 8, 9
COMMIT_LEVELS = (QUORUM, LOCAL_QUORUM, ALL, LOCAL_ONE)
LEVELS = (ANY, TWO, THREE, QUORUM, QUORUM, ALL, LOCAL_QUORUM, LOCAL_QUORUM, EACH_QUORUM, LOCAL_ONE)

FUTURE = 1_900_000_000      # in 2030, seconds
CONDITIONAL = 0.3           # of the histories have conditional writes
UPKEEP = 0.94               # the rest of the steps are flushes, restarts and changes of the schema
KEYSPACES = 64
CALM_LENGTH = 8             # histories in which schemas and files rarely change are longer by this factor


def keyspace_of(number: int) -> str:
    """Names are reused, since every DDL statement reads what Cassandra's schema keeps of all earlier names."""
    return f"h{number % KEYSPACES}"


def history(seed: int, number: int, steps: int, has_views: bool = False) -> History:
    """The `number`-th history of a seed, of `steps` steps or, where little but reads and writes happens, several times
    as many. With views, it is another one."""
    rng = Random(f"{seed}/{number}")
    version, compression = CONNECTIONS[number % len(CONNECTIONS)] if rng.random() < 0.5 else CONNECTIONS[number % 2]
    keyspace = keyspace_of(number)
    replication = rng.choice(REPLICATIONS) if rng.random() < 0.2 else SIMPLE
    counting = Random(f"{seed}/{number}/counters")
    counting = counting if counting.random() < COUNTING else None
    # Tables of counters have no conditions, and no indexes.
    conditional = counting is None and Random(f"{seed}/{number}/conditions").random() < CONDITIONAL
    indexing = Random(f"{seed}/{number}/indexes")
    packing = Random(f"{seed}/{number}/compact")
    packing = packing if packing.random() < COMPACT and counting is None else None
    # In tables with COMPACT STORAGE Cassandra's indexes of static columns fail (docs/differences.md).
    indexing = indexing if indexing.random() < INDEXED and packing is None and counting is None else None
    viewing = Random(f"{seed}/{number}/views") if has_views else None
    made = Generator(rng, keyspace, version, conditional, indexing, packing, counting, viewing).steps(steps)
    return History(f"seed {seed}, history {number}", keyspace, version, compression, made, replication)


class Generator:
    def __init__(self, rng: Random, keyspace: str, version: int, conditional: bool = False, indexing: Random | None = None,
                 packing: Random | None = None, counting: Random | None = None, viewing: Random | None = None):
        self.rng = rng
        self.packing = packing          # what makes tables with COMPACT STORAGE, in a history with such tables
        self.indexing = indexing        # what makes indexes, in a history with indexes
        self.nearest = NearestTable(indexing, keyspace) if indexing is not None and version >= 4 and indexing.random() < 0.5 else None
        self.conditional = conditional
        self.keyspace = keyspace
        self.version = version
        self.types = random_user_types(rng)
        self.tables = [random_table(rng, keyspace, f"t{n}", self.types) for n in range(rng.choice((1, 1, 2)))]
        for table in self.tables:
            if packing is not None and packing.random() < 0.8:
                make_compact(packing, table, self.types)
            if counting is not None and counting.random() < 0.8:
                make_counting(counting, table)
        self.viewing = viewing          # what makes views, in a history with views
        self.views = views(viewing, self.tables) if viewing is not None else []
        self.clock = Clock(rng)
        self.prepared: list[Step] = []
        self.is_calm = rng.random() < 0.5
        self.alters_much = not self.is_calm and rng.random() < 0.3      # columns come and go, and come again
        # In v5 a statement can bring its own clock, so that expiry can be watched: a clock in the future, for what has
        # expired by the real one may be gone from the disk.
        self.now = FUTURE if version >= 5 and rng.random() < 0.5 else None

    def steps(self, count: int) -> list[Step]:
        count *= CALM_LENGTH if self.is_calm else 1
        steps = [Step("cql", create_type(self.keyspace, kind)) for kind in self.types]
        steps += [Step("cql", table.create()) for table in self.tables]
        # Before there is data: Cassandra fills a view in the background.
        steps += [view.create() for view in self.views]
        if self.indexing is not None:
            # Mostly before there is data: while Cassandra builds an index, its SELECTs fail.
            steps += [self.create_index(table) for table in self.tables for _ in range(self.indexing.choice((1, 2, 2, 3, 4)))]
            steps += self.nearest.create() if self.nearest is not None else []
        while len(steps) < count - len(self.tables):
            step = self.step()
            # Cassandra deletes something else there (docs/differences.md).
            if not ("DELETE" in str(step) and repeats_before_a_range(step)):
                steps.append(step)
        steps += [Step("cql", f"SELECT * FROM {table.full_name}", page_size=5000) for table in self.tables if table.alive]
        return steps + [view.read(self.viewing) for view in self.views]

    def step(self) -> Step:
        if self.nearest is not None and self.indexing.random() < SHARE:
            return self.nearest.step()
        if self.views and self.viewing.random() < SHARE_OF_VIEWS:
            return self.viewing.choice(self.views).read(self.viewing)
        rng = self.rng
        table = rng.choice(self.tables)
        now = self.next_now()
        if self.alters_much and rng.random() < 0.15:
            return self.add_column(table) if rng.random() < 0.55 else self.drop_column(table)
        roll = rng.random()
        if self.is_calm and roll >= UPKEEP and rng.random() < 0.85:
            roll = rng.random() * UPKEEP
        if roll < 0.48:
            return self.at_some_level(self.write(table, now))
        if roll < 0.85:
            return self.remember(self.at_some_level(self.read(table, now)))
        if roll < 0.88 and self.prepared:
            return replace(rng.choice(self.prepared), reuse=True, now=now)
        if roll < UPKEEP:
            return spoil(rng, self.write(table, now, is_plain=True) if rng.random() < 0.4 else self.read(table, now))
        if roll < 0.965:
            return Step(rng.choice(("flush", "flush", "flush", "flush", "flush", "compact", "compact", "restart", "kill")))
        return self.schema_step(table)

    def write(self, table: Table, now: int | None, is_plain: bool = False) -> Step:
        if is_counting(table):
            return replace(counting_write(self.rng, table, self.clock), now=now)
        return write(self.rng, table, self.clock, now, self.conditional and not is_plain)

    def read(self, table: Table, now: int | None) -> Step:
        """The timestamps of conditional writes are those of each server's clock: no read shows them."""
        while True:
            step = read(self.rng, table, now)
            if not (self.conditional and "writetime" in step.cql.lower()):
                return step

    def at_some_level(self, step: Step) -> Step:
        """Sets the consistency level, which is mostly ONE. Cassandra commits a conditional write later if it cannot do
        so at once."""
        if self.rng.random() < 0.05:
            step.consistency = self.rng.choice(COMMIT_LEVELS if self.conditional else LEVELS)
        elif self.conditional and self.rng.random() < 0.05:
            step.consistency = self.rng.choice((SERIAL, LOCAL_SERIAL))
        return step

    def remember(self, step: Step) -> Step:
        """Keeps prepared reads to be executed again, after schema changes too."""
        if step.prepared:
            step.skip_metadata = self.rng.random() < 0.4
            self.prepared.append(step)
        return step

    def next_now(self) -> int | None:
        if self.now is not None and self.rng.random() < 0.1:
            self.now += self.rng.choice((1, 60, 50_000))
        return self.now

    def schema_step(self, table: Table) -> Step:
        rng = self.rng
        roll = rng.random()
        if self.indexing is not None and self.indexing.random() < 0.2:
            return self.create_index(table, has_data=True)
        if self.packing is not None and self.packing.random() < 0.08:
            return drop_compact_storage(self.packing, table)
        if roll < 0.25:
            return self.add_column(table)
        if roll < 0.4:
            return self.drop_column(table)
        if roll < 0.5:
            return Step("cql", f"TRUNCATE {table.full_name}")
        if roll < 0.6:
            return Step("cql", f"ALTER TABLE {table.full_name} WITH {rng.choice(OPTIONS)}")
        if roll < 0.68 and self.types:
            return self.alter_type(rng.choice(self.types))
        if roll < 0.72:
            return self.rename_column(table)
        if roll < 0.9:
            return Step("cql", rng.choice(SYSTEM_READS).format(self.keyspace))
        return Step("cql", rng.choice((f"DESCRIBE TABLE {table.full_name}", f"DESCRIBE KEYSPACE {self.keyspace}",
                                       f"DESCRIBE {table.full_name}")))

    def create_index(self, table: Table, has_data: bool = False) -> Step:
        return create_index(self.indexing, table, self.now is not None, has_data)

    def add_column(self, table: Table) -> Step:
        rng = self.rng
        free = [name for name in REGULAR_NAMES if name not in {c.name for c in table.columns}]
        if not free:
            return Step("flush")
        gone = [name for name in table.dropped if name not in {c.name for c in table.columns}]
        if is_counting(table):
            name = rng.choice(gone if gone and rng.random() < 0.2 else free)
            return added_column(rng, table, name, bool(table.clustering) and rng.random() < 0.2, self.types)
        if rng.random() < 0.7 and gone:
            return self.add_again(table, table.dropped[rng.choice(gone)])
        name = rng.choice(free)
        kind = random_type(rng, self.types)
        static = bool(table.clustering) and rng.random() < 0.2
        dropped = table.dropped.get(name)
        # Another type or kind may be refused: then nothing changes.
        is_known = dropped is None or (dropped.type.name, dropped.kind) == (kind.name, "static" if static else "regular")
        if is_known and not table.compact:
            table.columns.append(Column(name, kind, "static" if static else "regular"))
        return Step("cql", f"ALTER TABLE {table.full_name} ADD {name} {kind.name}{' static' if static else ''}")

    def add_again(self, table: Table, column: Column) -> Step:
        """Uses the recorded type. Cassandra refuses that for user types, which it records as tuples."""
        if not table.compact and not any(kind.type_name in column.type.name for kind in self.types):
            table.columns.append(column)
        static = " static" if column.kind == "static" else ""
        return Step("cql", f"ALTER TABLE {table.full_name} ADD {column.name} {column.type.name}{static}")

    def drop_column(self, table: Table) -> Step:
        """Drops a column at some time of the history, so that some cells are older and some newer.

        The drops of a column have rising times. If an earlier time came after a later one, Cassandra's answer would
        depend on what was flushed or compacted between them. Times are whole milliseconds, because a restart of
        Cassandra forgets the rest. The last static column stays: without one, a compaction of Cassandra removes what
        others have left (docs/differences.md).
        """
        statics = table.of_kind("static")
        droppable = [column for column in table.data_columns if column.kind != "static" or len(statics) > 1]
        droppable = [column for column in droppable if column.name not in table.indexes]
        # Cells of conditional writes are as new as the clock says, and drops have times of the history.
        # Nor can the one value column of a table with COMPACT STORAGE be dropped.
        if not droppable or self.conditional or (table.compact and (table.clustering or len(droppable) == 1)):
            return Step("flush")
        column = self.rng.choice(droppable)
        drop = f"ALTER TABLE {table.full_name} DROP {column.name}"
        if isinstance(column.type, UserType) and column.type.name == column.type.type_name:
            return Step("cql", drop)            # refused
        table.columns.remove(column)
        table.dropped[column.name] = column
        if self.rng.random() < 0.2 or table.dropped_by_clock(column):
            table.drop_times[column.name] = None
            return Step("cql", drop)
        at = max(self.clock.earlier(), table.drop_times.get(column.name, 0))
        if column.type.multi_cell:
            # Of newer cells Cassandra makes cells of other columns (docs/differences.md).
            at = max(at, self.clock.newest)
        table.drop_times[column.name] = at
        return Step("cql", f"{drop} USING TIMESTAMP {at}")

    def rename_column(self, table: Table) -> Step:
        column = self.rng.choice(table.partition_key + table.clustering)
        if column.name in table.indexes:
            return Step("cql", f"ALTER TABLE {table.full_name} RENAME {column.name} TO {column.name}r")    # refused
        old, new = column.name, column.name + "r"
        column.name = new
        table.key_domains[new] = table.key_domains.pop(old)
        return Step("cql", f"ALTER TABLE {table.full_name} RENAME {old} TO {new}")

    def alter_type(self, kind: UserType) -> Step:
        if self.rng.random() < 0.3:
            return self.rename_field(kind)
        name = f"g{len(kind.fields)}"
        added = Scalar(self.rng.choice(("int", "text")))
        kind.fields.append((name, added))
        for table in self.tables:
            table.add_key_values(self.rng)
        return Step("cql", f"ALTER TYPE {self.keyspace}.{kind.type_name} ADD {name} {added.name}")

    def rename_field(self, kind: UserType) -> Step:
        place = self.rng.randrange(len(kind.fields))
        old, field_type = kind.fields[place]
        kind.fields[place] = (f"{old}r", field_type)
        return Step("cql", f"ALTER TYPE {self.keyspace}.{kind.type_name} RENAME {old} TO {old}r")


OPTIONS = ["comment = 'changed'", "gc_grace_seconds = 864001", "bloom_filter_fp_chance = 0.1", "default_time_to_live = 0",
           "compression = {'class': 'LZ4Compressor', 'chunk_length_in_kb': 4}", "compression = {'enabled': false}",
           "caching = {'keys': 'ALL', 'rows_per_partition': '1'}", "speculative_retry = '95p'", "nosuch = 1",
           "compaction = {'class': 'SizeTieredCompactionStrategy'}", "gc_grace_seconds = -1"]
