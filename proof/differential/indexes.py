"""Secondary indexes of a history's tables, and SELECTs that use them."""

from random import Random

from proof.differential.schema import Column, Table
from proof.differential.steps import Step
from proof.differential.values import List, Map, Set, Type, quoted
from proof.differential.writes import Text

INDEXED = 0.35          # of the histories have indexes
ATTACHED = 0.5          # of the indexes are storage-attached
ANALYSED = 0.8          # of those of text analyse it
SASI = 0.3              # of the indexes of single texts, in tables without static columns
SASI_CLASS = "org.apache.cassandra.index.sasi.SASIIndex"
SASI_OPTIONS = ("", " WITH OPTIONS = {'mode': 'PREFIX'}", " WITH OPTIONS = {'mode': 'CONTAINS'}",
                " WITH OPTIONS = {'mode': 'CONTAINS', 'analyzer_class': "
                "'org.apache.cassandra.index.sasi.analyzer.NonTokenizingAnalyzer', 'case_sensitive': 'false'}")
# Not of inet, because Cassandra misses rows (docs/differences.md).
RANGES = {"tinyint", "smallint", "int", "bigint", "varint", "decimal", "float", "double", "date", "time", "timestamp", "timeuuid"}


def create_index(rng: Random, table: Table, expires: bool, has_data: bool) -> Step:
    """An index that the table does not have yet, mostly.

    Those by which Cassandra misses rows are left out (docs/differences.md): of static columns, of key columns where
    cells expire, and storage-attached ones of tables with data.
    """
    kinds = ("regular",) if expires else ("partition_key", "clustering", "regular")
    columns = [column for column in table.of_kind(*kinds) if column.name not in table.sasi]
    if not columns:
        return Step("cql", f"CREATE INDEX ON {table.full_name} (missing)")
    column = rng.choice(columns)
    if may_have_sasi(column, table) and not has_data and rng.random() < SASI:
        table.indexes[column.name] = [column.name]
        table.sasi.add(column.name)
        return Step("cql", f"CREATE CUSTOM INDEX ON {table.full_name} ({column.name}) USING '{SASI_CLASS}'{rng.choice(SASI_OPTIONS)}")
    target = rng.choice(targets(column))
    is_refused = len(table.partition_key) == 1 and column.kind == "partition_key"
    if not is_refused and "duration" not in column.type.name and not is_cells_of_user_type(column):
        table.indexes.setdefault(column.name, []).append(target)
    # Histories do not search vectors by similarity, and Cassandra has no indexes of blobs.
    attached = rng.random() < ATTACHED and not has_data and not any(word in column.type.name for word in ("vector", "blob", "'"))
    if attached and column.name in table.indexes:
        table.attached.add(column.name)
    using = rng.choice((" USING 'sai'", " USING 'StorageAttachedIndex'")) if attached else ""
    if attached and column.kind == "regular" and is_of_text(column, target) and rng.random() < ANALYSED:
        using += f" WITH OPTIONS = {analysis(rng)}"
    return Step("cql", f"CREATE INDEX {rng.choice(('', 'IF NOT EXISTS '))}ON {table.full_name} ({target}){using}")


def may_have_sasi(column: Column, table: Table) -> bool:
    is_text = column.kind == "regular" and column.type.name in ("text", "ascii")
    return is_text and column.name not in table.indexes and not table.of_kind("static")


def of_sasi(text: Text, column: Column) -> str:
    """A relation that a SASI index answers. By `=` Cassandra misses empty texts (docs/differences.md)."""
    rng = text.rng
    value = column.type.value(rng)
    inner = value.literal[1:-1]
    if not inner or rng.random() < 0.2:
        return f"{column.name} = {text.value(value) if inner else quoted('a')}"
    return f"{column.name} LIKE '{rng.choice(('', '%'))}{inner}{rng.choice(('', '%', '%'))}'"


def is_of_text(column: Column, target: str) -> bool:
    """Returns whether the values of an index are texts."""
    kind = column.type
    if isinstance(kind, (List, Set, Map)):
        if not kind.multi_cell or target.startswith("entries("):
            return False
        kind = kind.key if target.startswith("keys(") else kind.element
    return kind.name in ("text", "ascii")


def analysis(rng: Random) -> str:
    """Options by which an index changes text."""
    given = [f"'{name}': '{value}'" for name, value in (("case_sensitive", "false"), ("normalize", "true"), ("ascii", "true"))
             if rng.random() < 0.6]
    return f"{{{', '.join(given)}}}" if given else "{'case_sensitive': 'true'}"


def altered(rng: Random, kind: Type, literal: str) -> str:
    """A literal of text in another case or without its accent, sometimes: indexes that analyse
    text find the same rows by it."""
    if kind.name not in ("text", "ascii") or not literal.startswith("'") or rng.random() < 0.5:
        return literal
    return rng.choice((literal.upper(), literal.lower(), literal.replace("Ä", "A"), literal.replace("Ä", "A\u0308")))


def targets(column: Column) -> tuple[str, ...]:
    name, kind = column.name, column.type
    if not isinstance(kind, (List, Set, Map)):
        return (name,)
    if not kind.multi_cell:
        return (f"full({name})",)
    return (name, f"keys({name})", f"entries({name})") if isinstance(kind, Map) else (name, f"values({name})")


def is_cells_of_user_type(column: Column) -> bool:
    return column.type.multi_cell and not isinstance(column.type, (List, Set, Map))


def indexed_conditions(text: Text, table: Table) -> tuple[list[str], bool]:
    """WHERE relations of which an index answers one, and whether they want ALLOW FILTERING."""
    rng = text.rng
    column = rng.choice([column for column in table.columns if column.name in table.indexes])
    where = [indexed_relation(text, table, column)]
    roll = rng.random()
    if roll < 0.2 and column not in table.partition_key:
        where += [f"{key.name} = {text.value(table.key_value(rng, key))}" for key in table.partition_key]
        if table.clustering and column not in table.clustering and rng.random() < 0.4:
            first = table.clustering[0]
            where.append(f"{first.name} {rng.choice(('=', '>', '<='))} {text.value(table.key_value(rng, first))}")
    elif roll < 0.4:
        other = rng.choice(table.columns)
        if other is not column and other.name in table.indexes:
            where.append(indexed_relation(text, table, other))
    return where, rng.random() < (0.15 if len(where) == 1 else 0.7)


def indexed_relation(text: Text, table: Table, column: Column) -> str:
    rng, kind, name = text.rng, column.type, column.name
    if name in table.sasi:
        return of_sasi(text, column)
    if name in table.attached and kind.name in RANGES and rng.random() < 0.5:
        value = (lambda: table.key_value(rng, column)) if column.kind != "regular" else (lambda: kind.value(rng))
        lower, upper = f"{name} {rng.choice(('>', '>='))} {text.value(value())}", f"{name} {rng.choice(('<', '<='))} {text.value(value())}"
        return rng.choice((lower, upper, f"{lower} AND {upper}"))
    if column.kind in ("partition_key", "clustering"):
        return f"{name} = {text.value(table.key_value(rng, column))}"
    if not kind.multi_cell or is_cells_of_user_type(column):
        return f"{name} = {altered(rng, kind, text.value(kind.value(rng)))}"
    target = rng.choice(table.indexes[name])
    if target.startswith("keys("):
        return f"{name} CONTAINS KEY {altered(rng, kind.key, text.value(kind.key.value(rng)))}"
    if target.startswith("entries("):
        return f"{name}[{text.value(kind.key.value(rng))}] = {text.value(kind.element.value(rng))}"
    return f"{name} CONTAINS {altered(rng, kind.element, text.value(kind.element.value(rng)))}"
