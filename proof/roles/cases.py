"""The table of the proof: roles, each with one permission or none, and statements.

No statement changes what another one needs: it is refused for its lack of permissions, or else for a name that does not
exist or exists already, or it has no effect. GRANT and REVOKE name one permission each: Cassandra checks several in no
fixed order.
"""

DATA = ["CREATE", "ALTER", "DROP", "SELECT", "MODIFY", "AUTHORIZE", "UNMASK", "SELECT_MASKED"]
ON_TABLE = [permission for permission in DATA if permission != "CREATE"]
ON_ROLES = ["CREATE", "ALTER", "DROP", "AUTHORIZE", "DESCRIBE"]
ON_FUNCTIONS = ["CREATE", "ALTER", "DROP", "AUTHORIZE", "EXECUTE"]
ON_MBEANS = ["SELECT", "MODIFY", "AUTHORIZE", "DESCRIBE", "EXECUTE"]

SETUP = [
    "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
    "CREATE TABLE ks.t (k int PRIMARY KEY, v int)",
    "CREATE TABLE ks.u (k int PRIMARY KEY, v int)",
    "CREATE TYPE ks.ty (a int)",
    "CREATE TABLE ks.i (k int PRIMARY KEY, v int)",
    "CREATE INDEX iv ON ks.i (v)",
    "INSERT INTO ks.t (k, v) VALUES (5, 5)",
    "CREATE ROLE target",
    "CREATE ROLE lord WITH SUPERUSER = true",
    "CREATE ROLE reader",
    "GRANT SELECT ON KEYSPACE ks TO reader",
]


def grants() -> list[tuple[str, list[str]]]:
    """The roles: a name for each, and the statements that give it what it has ({role} stands for the role)."""
    on = [("ALL KEYSPACES", DATA), ("KEYSPACE ks", DATA), ("ALL TABLES IN KEYSPACE ks", DATA), ("ks.t", ON_TABLE),
          ("ks.u", ON_TABLE), ("ALL ROLES", ON_ROLES), ("ROLE target", [p for p in ON_ROLES if p != "CREATE"]),
          ("ALL FUNCTIONS", ON_FUNCTIONS), ("ALL FUNCTIONS IN KEYSPACE ks", ON_FUNCTIONS), ("ALL MBEANS", ON_MBEANS[:2])]
    listed = [[f"GRANT {permission} ON {resource} TO {{role}}"] for resource, permissions in on for permission in permissions]
    listed += [[f"GRANT {permission} ON KEYSPACE {keyspace} TO {{role}}"]
               for keyspace in ("system", "system_auth", "system_schema", "system_traces", "system_views")
               for permission in ("SELECT", "ALTER")]
    listed += [
        [],
        ["GRANT reader TO {role}"],
        ["GRANT lord TO {role}"],
        ["GRANT target TO {role}"],
        ["GRANT ALL ON ALL KEYSPACES TO {role}"],
        ["GRANT ALL ON ALL ROLES TO {role}"],
        ["GRANT ALL ON ks.t TO {role}", "GRANT MODIFY ON ks.u TO {role}"],
        ["GRANT SELECT, MODIFY ON KEYSPACE ks TO {role}", "REVOKE MODIFY ON KEYSPACE ks FROM {role}"],
        ["GRANT AUTHORIZE, SELECT ON ks.t TO {role}", "GRANT AUTHORIZE, DESCRIBE ON ROLE target TO {role}"],
        ["ALTER ROLE {role} WITH SUPERUSER = true"],
    ]
    return [(f"role_{number}", statements) for number, statements in enumerate(listed)]


# Sent as text.
STATEMENTS = [
    "SELECT * FROM ks.t WHERE k = 1",
    "SELECT count(*) FROM ks.t",
    "SELECT * FROM ks.nothing",
    "SELECT key FROM system.local",
    "SELECT peer FROM system.peers_v2",
    "SELECT id FROM system.compaction_history LIMIT 1",
    "SELECT keyspace_name FROM system_schema.keyspaces WHERE keyspace_name = 'ks'",
    "SELECT role FROM system_auth.role_members WHERE role = 'nobody'",
    "SELECT session_id FROM system_traces.sessions LIMIT 1",
    "SELECT keyspace_name FROM system_virtual_schema.keyspaces WHERE keyspace_name = 'system_views'",
    "SELECT table_name FROM system_views.sstable_tasks WHERE keyspace_name = 'none'",
    "SELECT id FROM system_distributed.repair_history WHERE keyspace_name = 'ks' AND columnfamily_name = 't'",
    "INSERT INTO ks.t (k, v) VALUES (1, 1)",
    "UPDATE ks.u SET v = 1 WHERE k = 1",
    "DELETE FROM ks.t WHERE k = 2",
    "BEGIN BATCH INSERT INTO ks.t (k, v) VALUES (1, 1); INSERT INTO ks.u (k, v) VALUES (1, 1); APPLY BATCH",
    "BEGIN UNLOGGED BATCH INSERT INTO ks.u (k, v) VALUES (1, 1); INSERT INTO ks.t (k, v) VALUES (1, 1); APPLY BATCH",
    "DELETE FROM system_auth.role_members WHERE role = 'nobody'",
    "INSERT INTO system_traces.sessions (session_id) VALUES (00000000-0000-0000-0000-000000000000) USING TTL 1",
    "TRUNCATE system_auth.cidr_groups",
    "USE ks",
    "USE nothing",
    "DESCRIBE TYPE ks.ty",
    "CREATE KEYSPACE IF NOT EXISTS ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
    "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
    "ALTER KEYSPACE nothing WITH durable_writes = true",
    "DROP KEYSPACE nothing",
    "DROP KEYSPACE IF EXISTS nothing",
    "DROP KEYSPACE system",
    "DROP KEYSPACE system_auth",
    "CREATE TABLE IF NOT EXISTS ks.t (k int PRIMARY KEY)",
    "CREATE TABLE ks.t (k int PRIMARY KEY)",
    "CREATE TABLE nothing.t (k int PRIMARY KEY)",
    "CREATE TABLE system_auth.t (k int PRIMARY KEY)",
    "ALTER TABLE ks.t DROP nothing",
    "ALTER TABLE ks.u RENAME nothing TO something",
    "ALTER TABLE ks.nothing ADD v int",
    "ALTER TABLE system_auth.roles ADD x int",
    "DROP TABLE ks.nothing",
    "DROP TABLE IF EXISTS ks.nothing",
    "DROP TABLE system.local",
    "CREATE TYPE IF NOT EXISTS ks.ty (a int)",
    "CREATE TYPE ks.ty (a int)",
    "ALTER TYPE ks.nothing ADD b int",
    "DROP TYPE ks.nothing",
    "DROP TYPE IF EXISTS ks.nothing",
    "CREATE ROLE target",
    "CREATE ROLE IF NOT EXISTS target",
    "CREATE ROLE target WITH SUPERUSER = true",
    "CREATE USER target",
    "CREATE ROLE ''",
    "ALTER ROLE nobody WITH LOGIN = true",
    "ALTER ROLE target WITH LOGIN = false",
    "ALTER ROLE lord WITH LOGIN = false",
    "ALTER ROLE target WITH SUPERUSER = false",
    "ALTER ROLE {role} WITH LOGIN = true",
    "ALTER ROLE {role} WITH SUPERUSER = true",
    "ALTER ROLE target",
    "ALTER ROLE target WITH OPTIONS = {'a': 'b'}",
    "ALTER ROLE target WITH ACCESS TO ALL DATACENTERS",
    "ALTER ROLE target WITH ACCESS FROM ALL CIDRS",
    "DROP ROLE nobody",
    "DROP ROLE IF EXISTS nobody",
    "DROP ROLE {role}",
    "GRANT target TO target",
    "GRANT target TO nobody",
    "GRANT nobody TO target",
    "REVOKE target FROM lord",
    "REVOKE target FROM nobody",
    "GRANT SELECT ON ks.t TO nobody",
    "GRANT MODIFY ON KEYSPACE ks TO nobody",
    "GRANT SELECT ON ks.nothing TO target",
    "GRANT SELECT ON ALL KEYSPACES TO nobody",
    "GRANT MODIFY ON KEYSPACE system_auth TO target",
    "GRANT DESCRIBE ON ALL ROLES TO nobody",
    "GRANT ALTER ON ROLE target TO nobody",
    "GRANT EXECUTE ON ALL FUNCTIONS IN KEYSPACE ks TO nobody",
    "GRANT SELECT ON ALL MBEANS TO nobody",
    "REVOKE SELECT ON ks.t FROM nobody",
    "REVOKE MODIFY ON KEYSPACE ks FROM nobody",
    "LIST ROLES",
    "LIST USERS",
    "LIST ROLES OF target",
    "LIST ROLES OF {role} NORECURSIVE",
    "LIST ROLES OF nobody",
    "LIST ALL",
    "LIST ALL OF {role}",
    "LIST SELECT OF reader",
    "LIST ALL ON ks.t OF {role}",
    "LIST ALL ON ks.t OF {role} NORECURSIVE",
    "LIST ALL ON ks.t",
    "LIST ALL ON ks.nothing",
    "LIST ALL ON ROLE nobody",
    "LIST MODIFY OF nobody",
    "SELECT * FROM ks.i WHERE v = 1",
    "SELECT * FROM ks.t WHERE v = 1 ALLOW FILTERING",
    "CREATE INDEX iv ON ks.i (v)",
    "CREATE INDEX IF NOT EXISTS iv ON ks.i (v)",
    "CREATE INDEX ON ks.nothing (v)",
    "CREATE INDEX ON ks.t (nothing)",
    "DROP INDEX ks.nothing",
    "DROP INDEX IF EXISTS ks.nothing",
    "INSERT INTO ks.t (k, v) VALUES (5, 6) IF NOT EXISTS",
    "UPDATE ks.t SET v = 6 WHERE k = 5 IF v = 9",
    "DELETE FROM ks.t WHERE k = 5 IF v = 9",
    "BEGIN BATCH INSERT INTO ks.t (k, v) VALUES (5, 6) IF NOT EXISTS; APPLY BATCH",
    "TRUNCATE ks.nothing",
    "DESCRIBE TABLE ks.t",
    "DESCRIBE INDEX ks.iv",
    "DESCRIBE KEYSPACE nothing",
    "SELECT role FROM system_auth.role_permissions WHERE role = 'nobody'",
    "SELECT identity FROM system_auth.identity_to_role WHERE identity = 'nobody'",
    "SELECT cidr_group FROM system_auth.cidr_groups WHERE cidr_group = 'nobody'",
    "ADD IDENTITY 'spiffe://nobody' TO ROLE 'nobody'",
    "DROP IDENTITY IF EXISTS 'spiffe://nobody'",
]

# Espalier does not have these yet. Who may not use them is refused for that in both, and has to be. Those who may get
# an error for a type or a table that does not exist in Cassandra, so that they change nothing.
NOT_BUILT = [
    "CREATE MATERIALIZED VIEW ks.mv AS SELECT * FROM ks.nothing WHERE k IS NOT NULL AND v IS NOT NULL PRIMARY KEY (v, k)",
    "ALTER MATERIALIZED VIEW ks.nothing WITH comment = 'x'",
    "DROP MATERIALIZED VIEW ks.nothing",
    "CREATE FUNCTION ks.f (a nosuch) CALLED ON NULL INPUT RETURNS int LANGUAGE java AS 'return 1;'",
    "CREATE OR REPLACE FUNCTION ks.f (a nosuch) CALLED ON NULL INPUT RETURNS int LANGUAGE java AS 'return 1;'",
    "DROP FUNCTION ks.nosuch",
    "CREATE AGGREGATE ks.a (nosuch) SFUNC f STYPE int",
    "DROP AGGREGATE ks.nosuch",
    "CREATE TRIGGER nothing ON ks.t USING 'nothing'",
    "DROP TRIGGER nothing ON ks.t",
]

# Sent as prepared statements, which the superuser has executed before.
PREPARED = [
    "SELECT v FROM ks.t WHERE k = 1",
    "SELECT v FROM ks.u",
    "INSERT INTO ks.t (k, v) VALUES (3, 3)",
    "DELETE FROM ks.u WHERE k = 3",
    "BEGIN BATCH UPDATE ks.t SET v = 3 WHERE k = 3; DELETE FROM ks.u WHERE k = 3; APPLY BATCH",
    "SELECT role FROM system_auth.roles WHERE role = 'nobody'",
]
