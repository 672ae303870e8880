"""Creates one varied schema in Cassandra and in Espalier and compares what both say about it and about themselves.

usage: python -m proof.catalog [--self]
"""

import argparse
from dataclasses import replace
from pathlib import Path

from proof.differential.explained import CARRIED_OUT
from proof.drivers.checks import Checks
from proof.errors.unsupported import unsupported_feature
from proof.oracle.cassandra import Cassandra
from proof.oracle.espalier import Espalier
from proof.wire import Connection, Error, QueryOptions, Rows, SchemaChange

SCHEMA = Path(__file__).with_name("schema.cql")
KEYSPACES = ("vec_sch", "vec_sch2", "Vec_Mixed")
SYSTEM_TABLES = [
    "system.local", "system.peers", "system.peers_v2",
    *(f"system_schema.{name}" for name in ("keyspaces", "tables", "columns", "types", "functions", "aggregates", "indexes", "views",
                                           "triggers", "dropped_columns", "column_masks")),
    *(f"system_virtual_schema.{name}" for name in ("keyspaces", "tables", "columns")),
    *(f"system_auth.{name}" for name in ("roles", "role_members", "role_permissions")),
    "system_traces.sessions", "system_traces.events",
]
VIEWS = ["sstable_tasks", "thread_pools", "cidr_filtering_metrics_counts", "cidr_filtering_metrics_latencies",
         "sai_column_indexes", "sai_sstable_indexes", "sai_sstable_index_segments"]
BY_KEYSPACE = [name for name in SYSTEM_TABLES if name.startswith("system_schema.")]
OWN = {"id", "dropped_time"}          # each server's own values
# Rows of docs/differences.md: a system table that only Espalier has.
ONLY_ESPALIERS = {b"table_layouts"}
SAME_EVERYWHERE = ("key", "bootstrapped", "cluster_name", "cql_version", "data_center", "rack", "native_protocol_version", "partitioner",
                   "release_version", "broadcast_address", "listen_address", "rpc_address")
DESCRIBE = ["DESCRIBE KEYSPACES", "DESCRIBE TABLES", "DESCRIBE TYPES", "DESCRIBE CLUSTER", "DESCRIBE KEYSPACE vec_sch", "DESCRIBE KEYSPACE vec_sch2",
            'DESCRIBE KEYSPACE "Vec_Mixed"', "DESCRIBE ONLY KEYSPACE vec_sch", "DESCRIBE TABLE vec_sch.composite", 'DESCRIBE TABLE vec_sch."MixedCase"',
            "DESCRIBE vec_sch.alltypes", "DESCRIBE TYPE vec_sch.address", 'DESCRIBE TYPE vec_sch."CamelType"', "DESCRIBE KEYSPACE system_traces",
            "DESCRIBE TABLE system.local", "DESCRIBE TABLE system.peers_v2", "DESCRIBE TABLE system_schema.columns", "DESC TABLE vec_sch.opts_stcs"]


class Catalog:
    def __init__(self, checks: Checks, oracle: Connection, subject: Connection):
        self.checks = checks
        self.oracle = oracle
        self.subject = subject

    def both(self, cql: str) -> tuple:
        return self.oracle.query(cql), self.subject.query(cql)

    def same_rows(self, name: str, cql: str) -> None:
        expected, got = self.both(cql)
        if not isinstance(got, Rows) or not isinstance(expected, Rows):
            self.checks.true(name, type(got) is type(expected), f"{got}, expected {expected}")
            return
        self.checks.equal(f"{name}: columns", got.metadata.columns, expected.metadata.columns)
        missing = [readable(row) for row in expected.rows if row not in got.rows]
        invented = [readable(row) for row in got.rows if row not in expected.rows]
        self.checks.true(f"{name}: rows", not missing and not invented, f"missing {missing[:5]}, not Cassandra's {invented[:5]}")
        if not missing and not invented:
            self.checks.equal(f"{name}: order", got.rows, expected.rows)


def readable(row: tuple) -> tuple:
    return tuple(value if value is None else value.decode(errors="backslashreplace") for value in row)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--self", action="store_true")
    options = parser.parse_args()
    checks = Checks("catalog")
    with Cassandra.start() as left, (Cassandra if options.self else Espalier).start() as right:
        with Connection(left.host, left.port) as oracle, Connection(right.host, right.port) as subject:
            catalog = Catalog(checks, oracle, subject)
            for part in (system_tables, create, rows_of_the_schema, describe, columns_of_system_tables, local, versions, paging, not_modifiable):
                with checks.part(part.__name__):
                    part(catalog)
    checks.end()


def create(catalog: Catalog) -> None:
    for cql in filter(None, (line.rstrip().rstrip(";") for line in SCHEMA.read_text().splitlines())):
        if unsupported_feature("", [cql]) is None:
            expected, got = catalog.both(cql)
            got = replace(got, warnings=[warning for warning in got.warnings if not any(text in warning for text in CARRIED_OUT)])
            catalog.checks.equal(cql, got, expected)


def system_tables(catalog: Catalog) -> None:
    for table in SYSTEM_TABLES:
        expected, got = catalog.both(f"SELECT * FROM {table}")
        columns = got.metadata.columns if isinstance(got, Rows) else got
        catalog.checks.equal(f"columns of {table}", columns, expected.metadata.columns)


def names_of(connection: Connection, table: str) -> list[str]:
    return [column[2] for column in connection.query(f"SELECT * FROM {table}").metadata.columns]


def rows_of_the_schema(catalog: Catalog) -> None:
    for table in BY_KEYSPACE:
        columns = ", ".join(name for name in names_of(catalog.oracle, table) if name not in OWN)
        for keyspace in KEYSPACES:
            catalog.same_rows(f"{table} of {keyspace}", f"SELECT {columns} FROM {table} WHERE keyspace_name = '{keyspace}'")
    for view in VIEWS:
        for table in ("tables", "columns"):
            catalog.same_rows(f"{table} of {view}", f"SELECT * FROM system_virtual_schema.{table} WHERE keyspace_name = 'system_views' AND table_name = '{view}'")
        catalog.same_rows(f"DESCRIBE {view}", f"DESCRIBE TABLE system_views.{view}")
    catalog.same_rows("system keyspaces", "SELECT * FROM system_schema.keyspaces")


def describe(catalog: Catalog) -> None:
    for cql in DESCRIBE:
        if cql in ("DESCRIBE TABLES", "DESCRIBE TYPES"):
            continue
        catalog.same_rows(cql, cql)
    for connection in (catalog.oracle, catalog.subject):
        connection.query("USE vec_sch")
    for cql in ("DESCRIBE TABLES", "DESCRIBE TYPES", "DESCRIBE TABLE simple", "DESCRIBE address", "DESCRIBE KEYSPACE", "DESCRIBE FUNCTIONS"):
        catalog.same_rows(f"in vec_sch: {cql}", cql)


def columns_of_system_tables(catalog: Catalog) -> None:
    """Every system table that is there is defined as Cassandra defines it."""
    for keyspace in ("system", "system_schema", "system_auth", "system_traces", "system_distributed"):
        cql = f"SELECT table_name, column_name, clustering_order, kind, position, type FROM system_schema.columns WHERE keyspace_name = '{keyspace}'"
        expected, got = (sorted(answer.rows, key=str) for answer in catalog.both(cql))
        tables = {row[0] for row in got} - ONLY_ESPALIERS
        for table in sorted(tables):
            catalog.checks.equal(f"columns of {keyspace}.{table.decode()}", [r for r in got if r[0] == table], [r for r in expected if r[0] == table])


def local(catalog: Catalog) -> None:
    catalog.same_rows("system.local", f"SELECT {', '.join(SAME_EVERYWHERE)} FROM system.local WHERE key = 'local'")
    catalog.same_rows("system.peers", "SELECT * FROM system.peers")
    for connection in (catalog.oracle, catalog.subject):
        row = connection.query("SELECT host_id, schema_version, tokens, rpc_port, gossip_generation FROM system.local").rows[0]
        catalog.checks.true("system.local is complete", all(row), str(row))


def versions(catalog: Catalog) -> None:
    """Every schema change changes schema_version."""
    seen = set()
    changes = ["CREATE TABLE vec_sch.versioned (k int PRIMARY KEY)", "ALTER TABLE vec_sch.versioned ADD v int", "DROP TABLE vec_sch.versioned"]
    for cql in [None, *changes]:
        if cql is not None:
            catalog.checks.true(cql, isinstance(catalog.subject.query(cql), SchemaChange))
        seen.add(catalog.subject.query("SELECT schema_version FROM system.local").rows[0][0])
    # Dropping the created objects restores the first schema, and therefore its version.
    catalog.checks.true("versions", len(seen) >= len(changes), str(seen))


def paging(catalog: Catalog) -> None:
    cql = "SELECT * FROM system_schema.columns"
    whole = catalog.subject.query(cql).rows
    paged, state = [], None
    while True:
        answer = catalog.subject.query(cql, QueryOptions(page_size=17, paging_state=state))
        paged += answer.rows
        state = answer.metadata.paging_state
        if state is None:
            break
    catalog.checks.equal("system_schema.columns in pages of 17", paged, whole)


def not_modifiable(catalog: Catalog) -> None:
    for cql in ("ALTER TABLE system.local ADD x int", "DROP TABLE system.local", "CREATE TABLE system.t (k int PRIMARY KEY)", "DROP KEYSPACE system",
                "CREATE KEYSPACE system WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}", "DROP KEYSPACE system_schema",
                "ALTER KEYSPACE system WITH durable_writes = false"):
        expected, got = catalog.both(cql)
        catalog.checks.equal(cql, got, expected)
    answer = catalog.subject.query("INSERT INTO system_schema.tables (keyspace_name, table_name) VALUES ('x', 'y')")
    catalog.checks.true("writes into system_schema are refused", isinstance(answer, Error), str(answer))


if __name__ == "__main__":
    main()
