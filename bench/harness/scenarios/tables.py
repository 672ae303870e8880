"""The tables that scenarios make, the same on every system."""

from bench.harness import load, servers

KEY_VALUE = "CREATE TABLE {keyspace}.{table} (key blob PRIMARY KEY, value blob)"
SKEW = "CREATE TABLE {keyspace}.{table} (key blob, row bigint, value blob, PRIMARY KEY (key, row))"
UNCOMPRESSED = " WITH compression = {{'enabled': 'false'}}"
VALUE_BYTES = 100


def make(node, keyspace: str, tables: dict[str, str], durable: bool = True) -> None:
    """A keyspace and its tables: names and templates."""
    replication = "{'class': 'SimpleStrategy', 'replication_factor': 1}"
    statements = [f"CREATE KEYSPACE {keyspace} WITH replication = {replication} AND durable_writes = {str(durable).lower()}"]
    statements += [template.format(keyspace=keyspace, table=table) for table, template in tables.items()]
    servers.execute(node, *statements)


def with_fields(count: int) -> str:
    """A table of `count` blobs beside the key; of one, `KEY_VALUE`."""
    names = ", ".join(f"field{number} blob" for number in range(count))
    return KEY_VALUE if count == 1 else f"CREATE TABLE {{keyspace}}.{{table}} (key blob PRIMARY KEY, {names})"


def key_value(table: str, choice: dict, value_bytes: int, fields: int) -> dict:
    return {"key_value": {"table": table, "value_bytes": value_bytes, "fields": fields, "choice": choice}}


def uniform(table: str, partitions: int, value_bytes: int = VALUE_BYTES, fields: int = 1) -> dict:
    return key_value(table, {"uniform": {"partitions": partitions}}, value_bytes, fields)


def one_by_one(workload: dict, field: int) -> dict:
    """The same load, in which fields are written by themselves: now this one, after those before it."""
    return {"key_value": {**workload["key_value"], "apart": field}}


def zipfian(table: str, partitions: int, value_bytes: int = VALUE_BYTES, fields: int = 1) -> dict:
    return key_value(table, {"zipfian": {"partitions": partitions}}, value_bytes, fields)


def inserting(table: str, first: int, value_bytes: int = VALUE_BYTES, fields: int = 1) -> dict:
    return key_value(table, {"insert": {"first": first}}, value_bytes, fields)


def fill(node, keyspace: str, table: str, partitions: int, value_bytes: int = VALUE_BYTES, first: int = 0, fields: int = 1) -> load.Run:
    """Writes partitions `first` to `first + partitions` once each."""
    return load.run(node, keyspace, inserting(table, first, value_bytes, fields), seed=7, operations=partitions)
