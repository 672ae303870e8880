"""Random SELECTs over a table, from plain to every clause at once."""

from random import Random

from proof.differential.indexes import indexed_conditions, of_sasi
from proof.differential.schema import Column, Table
from proof.differential.steps import Step
from proof.differential.values import NUMERIC, List, Map, Set, Tuple, UserType, Vector, quoted
from proof.differential.writes import Text, relation, slice_relation

NUMBERS = (*NUMERIC, "counter")
CASTS = {name: (*NUMERIC, "text", "ascii") for name in NUMBERS} | {
    "text": ("ascii", "text"), "ascii": ("text",), "boolean": ("text", "ascii"), "timestamp": ("date", "text"), "date": ("timestamp", "text"),
    "timeuuid": ("timestamp", "date", "text"), "uuid": ("text",), "inet": ("text", "ascii"), "time": ("text",), "duration": ("text",)}
HASHES = ("", ", 'MD5'", ", 'SHA-1'", ", 'SHA-256'", ", 'sha-512'", ", 'SHA3-256'")


def read(rng: Random, table: Table, now: int | None) -> Step:
    text = Text(rng, rng.random() < 0.35)
    cql = select(text, table, now)
    step = Step("cql", cql, text.values, now=now)
    step.prepared = text.bound and rng.random() < 0.7
    step.named = text.named and bool(text.values)
    if rng.random() < 0.5:
        step.page_size = rng.choice((1, 2, 3, 5, 7, 100))
    return step


def select(text: Text, table: Table, now: int | None) -> str:
    rng = text.rng
    json = "JSON " if rng.random() < 0.06 else ""
    distinct = rng.random() < 0.06
    group = None if distinct or rng.random() > 0.08 else group_by(rng, table)
    projection = "*" if rng.random() < 0.4 else selection(text, table, distinct, group is not None, now)
    if distinct:
        projection = ", ".join(c.name for c in table.partition_key + rng.sample(table.of_kind("static"), min(1, len(table.of_kind("static")))))
    where, filtering = conditions(text, table, distinct)
    parts = [f"SELECT {json}{'DISTINCT ' if distinct else ''}{projection} FROM {table.full_name}"]
    if where:
        parts.append("WHERE " + " AND ".join(where))
    if group:
        parts.append("GROUP BY " + group)
    if table.clustering and not distinct and rng.random() < (0.02 if table.indexes else 0.25):
        parts.append("ORDER BY " + order_by(rng, table))
    if rng.random() < 0.08 and table.clustering:
        parts.append(f"PER PARTITION LIMIT {text.number(rng.choice((1, 2, 3)))}")
    if rng.random() < 0.2:
        parts.append(f"LIMIT {text.number(rng.choice((1, 2, 3, 5, 10)))}")
    if filtering or rng.random() < 0.02:
        parts.append("ALLOW FILTERING")
    return " ".join(parts)


def group_by(rng: Random, table: Table) -> str:
    keys = table.partition_key + table.clustering
    return ", ".join(c.name for c in keys[:rng.randrange(1, len(keys) + 1)])


def order_by(rng: Random, table: Table) -> str:
    """Returns an order, mostly one that the table has: the declared one, or its reverse."""
    flip = rng.random() < 0.6
    chosen = table.clustering[:rng.randrange(1, len(table.clustering) + 1)]
    if rng.random() < 0.08:
        return ", ".join(f"{c.name} {rng.choice(('ASC', 'DESC'))}" for c in rng.sample(table.columns, 1))
    return ", ".join(f"{c.name} {'DESC' if c.reversed != flip else 'ASC'}" for c in chosen)


def conditions(text: Text, table: Table, distinct: bool) -> tuple[list[str], bool]:
    """WHERE relations, and whether they want ALLOW FILTERING."""
    rng = text.rng
    if table.indexes and rng.random() < 0.5:
        return indexed_conditions(text, table)
    roll = rng.random()
    if roll < 0.12:
        return [], False
    if roll < 0.2:
        return token_relations(text, table), False
    if roll < 0.3 and not distinct:
        return filters(text, table), rng.random() < 0.93
    where = [relation(text, table, c, 0.2) for c in table.partition_key]
    if distinct or not table.clustering:
        return where, False
    depth = rng.randrange(len(table.clustering) + 1)
    where += [relation(text, table, c, 0.15) for c in table.clustering[:depth]]
    if depth < len(table.clustering) and rng.random() < 0.6:
        where += multi_column_in(text, table) if depth == 0 and rng.random() < 0.15 else slice_relation(text, table, table.clustering[depth:])
    if rng.random() < 0.1:
        return where + filters(text, table), True
    return where, False


def multi_column_in(text: Text, table: Table) -> list[str]:
    rng = text.rng
    rows = ["(" + ", ".join(text.value(table.key_value(rng, c)) for c in table.clustering) + ")" for _ in range(rng.choice((1, 2, 3)))]
    return [f"({', '.join(c.name for c in table.clustering)}) IN ({', '.join(rows)})"]


def token_relations(text: Text, table: Table) -> list[str]:
    rng = text.rng
    names = ", ".join(c.name for c in table.partition_key)
    if rng.random() < 0.5:
        bound = text.number(rng.choice((-(1 << 63), -(1 << 62), 0, 1 << 62, (1 << 63) - 1)), ">q")
    else:
        bound = "token(" + ", ".join(text.value(table.key_value(rng, c)) for c in table.partition_key) + ")"
    relations = [f"token({names}) {rng.choice(('>', '>=', '<', '<=', '='))} {bound}"]
    if rng.random() < 0.4:
        relations.append(f"token({names}) {rng.choice(('<', '<='))} {rng.choice((1 << 61, (1 << 63) - 1))}")
    return relations


def filters(text: Text, table: Table) -> list[str]:
    """Relations on any column, the kind that needs ALLOW FILTERING."""
    rng = text.rng
    return [filter_on(text, table, c) for c in rng.sample(table.columns, min(len(table.columns), rng.choice((1, 1, 2))))]


def filter_on(text: Text, table: Table, column: Column) -> str:
    rng, kind, name = text.rng, column.type, column.name
    if name in table.sasi:
        return of_sasi(text, column)
    if column.kind in ("partition_key", "clustering"):
        return f"{name} {rng.choice(('=', '=', '>', '<=', '<'))} {text.value(table.key_value(rng, column))}"
    if isinstance(kind, (List, Set)) and rng.random() < 0.7:
        return f"{name} CONTAINS {text.value(kind.element.value(rng))}"
    if isinstance(kind, Map) and rng.random() < 0.8:
        roll = rng.random()
        if roll < 0.35:
            return f"{name} CONTAINS KEY {text.value(kind.key.value(rng))}"
        if roll < 0.7:
            return f"{name} CONTAINS {text.value(kind.element.value(rng))}"
        return f"{name}[{text.value(kind.key.value(rng))}] = {text.value(kind.element.value(rng))}"
    if rng.random() < 0.1:
        return f"{name} IN ({', '.join(text.value(kind.value(rng)) for _ in range(2))})"
    return f"{name} {rng.choice(('=', '=', '=', '>', '>=', '<', '<='))} {text.value(kind.value(rng))}"


def selection(text: Text, table: Table, distinct: bool, grouped: bool, now: int | None) -> str:
    rng = text.rng
    chosen = rng.choices(table.columns, k=rng.choice((1, 2, 3, 4)))
    aggregated = rng.random() < (0.7 if grouped else 0.12)
    selectors = []
    for column in chosen:
        selector = aggregate(rng, column) if aggregated and rng.random() < 0.8 else selected(text, table, column, now)
        if rng.random() < 0.08:
            selector += " AS " + rng.choice(("x", "y", '"Z z"'))
        selectors.append(selector)
    if grouped and rng.random() < 0.7:
        selectors[:0] = [c.name for c in table.partition_key]
    if rng.random() < 0.05:
        selectors.append(f"token({', '.join(c.name for c in table.partition_key)})")
    return ", ".join(selectors)


def aggregate(rng: Random, column: Column) -> str:
    if rng.random() < 0.2:
        return "count(*)"
    if column.type.name in NUMBERS and rng.random() < 0.5:
        return f"{rng.choice(('sum', 'avg'))}({column.name})"
    return f"{rng.choice(('count', 'min', 'max'))}({column.name})"


def selected(text: Text, table: Table, column: Column, now: int | None) -> str:
    """A column, or something computed from it."""
    rng, kind, name = text.rng, column.type, column.name
    roll = rng.random()
    if roll < 0.4:
        return name
    if roll < 0.55 and column.kind in ("static", "regular"):
        functions = ["writetime", "maxwritetime"] + (["ttl"] if now is not None else [])
        return f"{rng.choice(functions)}({part(text, column)})"
    if roll < 0.62:
        return f"to_json({name})" if rng.random() < 0.7 else f"toJson({name})"
    if roll < 0.66:
        return masked(text, column)
    return computed(text, table, column)


def part(text: Text, column: Column) -> str:
    """The column, or an element, slice or field of it."""
    rng, kind, name = text.rng, column.type, column.name
    if rng.random() < 0.4:
        return name
    if isinstance(kind, (Map, Set)):
        key = kind.key if isinstance(kind, Map) else kind.element
        return rng.choice((f"{name}[{text.value(key.value(rng))}]", f"{name}[{key.value(rng).literal}..{key.value(rng).literal}]",
                           f"{name}[{key.value(rng).literal}..]"))
    return f"{name}.{rng.choice(kind.fields)[0]}" if isinstance(kind, UserType) else name


def masked(text: Text, column: Column) -> str:
    rng, name = text.rng, column.name
    general = (f"mask_default({name})", f"mask_null({name})", f"mask_hash({name}{rng.choice(HASHES)})",
               f"mask_replace({name}, {text.value(column.type.value(rng))})")
    if column.type.name not in ("text", "ascii") and rng.random() < 0.95:
        return rng.choice(general)
    bounds = f"{rng.choice((0, 1, 2, -1, 'null'))}, {rng.choice((0, 1, 'null'))}"
    padding = rng.choice(("", "", ", '#'", ", '##'", ", 'é'"))
    return rng.choice((*general, f"mask_inner({name}, {bounds}{padding})", f"mask_outer({name}, {bounds}{padding})"))


def computed(text: Text, table: Table, column: Column) -> str:
    rng, kind, name = text.rng, column.type, column.name
    if isinstance(kind, Map):
        return rng.choice((part(text, column), f"map_keys({name})", f"map_values({name})", f"collection_count({name})",
                           f"{name}[..{kind.key.value(rng).literal}]"))
    if isinstance(kind, Set):
        return rng.choice((part(text, column), f"collection_count({name})", f"collection_min({name})", f"collection_max({name})"))
    if isinstance(kind, List):
        extra = (f"collection_sum({name})", f"collection_avg({name})") if kind.element.name in NUMERIC else ()
        return rng.choice((f"collection_count({name})", f"collection_min({name})", f"collection_max({name})", *extra))
    if isinstance(kind, UserType):
        return part(text, column)
    if isinstance(kind, (Tuple, Vector)):
        similarity = rng.choice(("cosine", "euclidean", "dot_product"))
        return f"similarity_{similarity}({name}, {kind.value(rng).literal})" if kind.name.startswith("vector<float") else name
    return scalar_computed(text, table, column)


def scalar_computed(text: Text, table: Table, column: Column) -> str:
    rng, kind, name = text.rng, column.type, column.name
    if kind.name in NUMBERS:
        roll = rng.random()
        if roll < 0.25:
            return f"{name} {rng.choice('+-*/%')} {rng.choice(('1', '2', '7', '-3', '0', '1.5', '1e3'))}"
        if roll < 0.4:
            return f"{name} {rng.choice('+-*/%')} {rng.choice(table.columns).name}"
        if roll < 0.5:
            return f"-{name}"
        if roll < 0.7:
            return f"{rng.choice(('abs', 'round', 'exp', 'log', 'log10'))}({name})" if rng.random() < 0.3 else f"{rng.choice(('abs', 'round'))}({name})"
    if kind.name == "timeuuid" and rng.random() < 0.6:
        return rng.choice((f"to_timestamp({name})", f"to_date({name})", f"to_unix_timestamp({name})", f"toTimestamp({name})", f"floor({name}, 1d)"))
    if kind.name in ("timestamp", "date") and rng.random() < 0.6:
        return rng.choice((f"to_unix_timestamp({name})", f"floor({name}, {rng.choice(('1d', '1mo', '1y', '2w', '3h'))})",
                           f"{name} {rng.choice('+-')} {rng.choice(('1d', '1mo', '1h', '1y2mo3d'))}", f"to_date({name})", f"to_timestamp({name})",
                           f"min_timeuuid({name})", f"maxTimeuuid({name})", f"floor({name}, 1mo, '2020-02-03')"))
    if kind.name == "time" and rng.random() < 0.4:
        return f"floor({name}, {rng.choice(('1h', '90s', '1d'))})"
    if kind.name in ("text", "ascii") and rng.random() < 0.2:
        return f"{name} + {rng.choice((quoted('x'), name))}"
    if kind.name in CASTS and rng.random() < 0.7:
        return f"cast({name} AS {rng.choice(CASTS[kind.name])})"
    if kind.name == "blob" and rng.random() < 0.5:
        return f"blob_as_{rng.choice(('text', 'int', 'bigint', 'uuid', 'boolean'))}({name})"
    return f"{kind.name}_as_blob({name})" if kind.name not in ("blob", "duration") else name
