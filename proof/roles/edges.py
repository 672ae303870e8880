"""Names and graphs of roles that are unusual, and roles that change while they are connected.

Every statement is sent to both nodes, in the same order, and every answer is compared.
"""

from proof.wire import Connection, Error, Rows
from proof.wire.connection import LoginRefused

LONG = "x" * 3000

# Sent by the superuser.
STATEMENTS = [
    # Names: quoted, empty, with other letters, with what separates parts of resources' names. Cassandra takes no
    # apostrophe in them.
    "CREATE ROLE 'e q'",
    "CREATE ROLE \"e\"\"d\"",
    "CREATE ROLE 'e é漢😀'",
    "CREATE ROLE e_Lower",
    "CREATE ROLE \"e_Upper\"",
    "CREATE ROLE e_upper",
    "CREATE ROLE ''",
    "CREATE ROLE \"\"",
    "CREATE ROLE ' '",
    "CREATE ROLE 'e*'",
    "CREATE ROLE 'e|f'",
    "CREATE ROLE 'e\nf'",
    "CREATE USER 'e user' WITH PASSWORD 'p' NOSUPERUSER",
    "CREATE USER e_user WITH PASSWORD 'p' SUPERUSER",
    f"CREATE ROLE '{LONG}'",
    "CREATE ROLE $$e_dollar$$",
    "CREATE ROLE e_a",
    "CREATE ROLE e_b",
    "CREATE ROLE e_c",
    "CREATE ROLE e_d",
    "ALTER ROLE 'e q' WITH LOGIN = true",
    "ALTER ROLE IF EXISTS 'nobody''s' WITH LOGIN = true",
    "ALTER ROLE 'nobody''s' WITH LOGIN = true",
    "GRANT SELECT ON ks.t TO 'e q'",
    "GRANT SELECT ON ks.t TO \"e\"\"d\"",
    "GRANT SELECT ON ks.t TO 'e é漢😀'",
    "GRANT ALTER ON ROLE 'e q' TO 'e é漢😀'",
    "GRANT ALTER ON ROLE \"e\"\"d\" TO 'e*'",
    "LIST ALL OF 'e q'",
    "LIST ALL OF \"e\"\"d\"",
    "LIST ALL OF 'e é漢😀'",
    "LIST ALL ON ROLE 'e q'",
    "LIST ALL ON ROLE 'nobody''s'",
    "LIST ALL ON ROLE ''",
    "LIST ALL OF ''",
    "LIST ROLES OF 'e q'",
    "LIST ROLES OF ''",
    "LIST ROLES OF 'nobody''s'",
    "DROP ROLE ''",
    "DROP ROLE IF EXISTS ''",
    "ALTER ROLE '' WITH LOGIN = true",
    "ALTER ROLE IF EXISTS '' WITH LOGIN = true",
    "GRANT '' TO e_a",
    "GRANT e_a TO ''",
    "REVOKE '' FROM e_a",
    "GRANT SELECT ON ks.t TO ''",
    "REVOKE SELECT ON ks.t FROM ''",
    "GRANT ALTER ON ROLE '' TO e_a",
    "ADD IDENTITY 'spiffe://x' TO ROLE ''",
    # Cycles, of one, two and three roles, and the same grant again.
    "GRANT e_a TO e_a",
    "GRANT e_a TO e_b",
    "GRANT e_b TO e_a",
    "GRANT e_b TO e_c",
    "GRANT e_c TO e_a",
    "GRANT e_a TO e_c",
    "GRANT e_c TO e_d",
    "GRANT e_d TO e_a",
    "GRANT e_d TO e_b",
    "GRANT e_b TO e_c",
    "REVOKE e_a FROM e_c",
    "REVOKE e_d FROM e_a",
    "LIST ROLES OF e_a",
    "LIST ROLES OF e_d",
    "LIST ROLES OF e_d NORECURSIVE",
    "LIST ROLES OF e_c NORECURSIVE",
    # Permissions through three roles, and what LIST shows of them.
    "GRANT SELECT ON ks.t TO e_a",
    "GRANT MODIFY ON KEYSPACE ks TO e_b",
    "GRANT ALTER ON ALL KEYSPACES TO e_c",
    "LIST ALL OF e_d",
    "LIST ALL OF e_d NORECURSIVE",
    "LIST ALL ON ks.t OF e_d",
    "LIST ALL ON ks.t OF e_d NORECURSIVE",
    "LIST ALL ON KEYSPACE ks OF e_d",
    "LIST ALL ON KEYSPACE ks OF e_d NORECURSIVE",
    "LIST ALL ON ALL KEYSPACES OF e_d",
    "LIST SELECT ON ks.t",
    "LIST SELECT PERMISSION ON ks.t OF e_d",
    "LIST MODIFY PERMISSIONS ON ks.t OF e_d",
    "LIST SELECT, MODIFY ON ks.t OF e_d",
    "LIST CREATE ON ks.t OF e_d",
    # A role in the middle goes: what hangs on it goes too.
    "DROP ROLE e_b",
    "LIST ROLES OF e_d",
    "LIST ALL OF e_d",
    "CREATE ROLE e_b",
    "LIST ROLES OF e_d",
    "LIST ALL OF e_b",
    "LIST ROLES OF e_b",
    # Statements with several permissions, and with none that applies.
    "GRANT SELECT, SELECT ON ks.t TO e_d",
    "GRANT SELECT, MODIFY PERMISSION ON ks.t TO e_d",
    "GRANT CREATE ON ks.t TO e_d",
    "GRANT EXECUTE ON ks.t TO e_d",
    "GRANT DESCRIBE ON ROLE e_a TO e_d",
    "GRANT ALL PERMISSIONS ON ROLE e_a TO e_d",
    "REVOKE ALL ON ROLE e_a FROM e_d",
    "REVOKE SELECT ON ks.t FROM e_d",
    "REVOKE SELECT ON ks.t FROM e_d",
    "REVOKE ALL ON ALL KEYSPACES FROM e_d",
    "LIST ALL OF e_d",
    "GRANT EXECUTE ON FUNCTION system.now() TO e_d",
    "LIST ALL ON FUNCTION ks.nosuch(int)",
    "GRANT SELECT ON MBEAN 'org.apache.cassandra.db:type=StorageService' TO e_d",
    "GRANT SELECT ON MBEANS 'org.apache.cassandra.db:type=*' TO e_d",
    "GRANT ALTER ON MBEAN 'org.apache.cassandra.db:type=StorageService' TO e_d",
    "LIST ALL ON MBEAN 'org.apache.cassandra.db:type=StorageService' OF e_d",
    "LIST ALL OF e_d",
    # Functions: of a keyspace that goes, of none, and of the node.
    "CREATE KEYSPACE e_ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
    "GRANT EXECUTE ON ALL FUNCTIONS TO e_a",
    "GRANT EXECUTE ON ALL FUNCTIONS IN KEYSPACE e_ks TO e_a",
    "GRANT CREATE ON ALL FUNCTIONS IN KEYSPACE e_ks TO e_a",
    "GRANT SELECT ON ALL FUNCTIONS IN KEYSPACE e_ks TO e_a",
    "GRANT ALL ON ALL FUNCTIONS IN KEYSPACE e_ks TO e_c",
    "GRANT EXECUTE ON ALL FUNCTIONS IN KEYSPACE nosuch TO e_a",
    "GRANT EXECUTE ON ALL FUNCTIONS IN KEYSPACE system TO e_a",
    "LIST ALL ON ALL FUNCTIONS OF e_a",
    "LIST ALL ON ALL FUNCTIONS IN KEYSPACE e_ks OF e_a",
    "LIST ALL ON ALL FUNCTIONS IN KEYSPACE e_ks OF e_a NORECURSIVE",
    "LIST EXECUTE OF e_a",
    "DROP KEYSPACE e_ks",
    "LIST ALL OF e_a",
    "LIST ALL OF e_c",
    "LIST ALL ON ALL FUNCTIONS IN KEYSPACE e_ks",
    # Virtual tables and their keyspaces.
    "GRANT SELECT ON system_views.thread_pools TO e_a",
    "GRANT SELECT ON KEYSPACE system_views TO e_a",
    "GRANT SELECT ON system_virtual_schema.tables TO e_a",
    "GRANT MODIFY ON system_views.sstable_tasks TO e_a",
    "GRANT ALTER ON KEYSPACE system_virtual_schema TO e_a",
    "GRANT SELECT ON system_views.nosuch TO e_a",
    "LIST ALL ON system_views.thread_pools OF e_a",
    "REVOKE SELECT ON KEYSPACE system_views FROM e_a",
    "LIST ALL ON KEYSPACE system_views OF e_a",
    "LIST SELECT OF e_a",
    # Options of roles.
    "CREATE ROLE e_x WITH LOGIN = true AND LOGIN = true",
    "CREATE ROLE e_x WITH PASSWORD = 'a' AND HASHED PASSWORD = '$2a$10$JSJEMFm6GeaW9XxT5JIheuEtPvat6i7uKbnTcxX3c1wshIIsGyUtG'",
    "CREATE ROLE e_x WITH PASSWORD = ''",
    "CREATE ROLE e_y WITH PASSWORD = 5",
    "CREATE ROLE e_y WITH HASHED PASSWORD = 'nothing'",
    "CREATE ROLE e_y WITH LOGIN = 'yes'",
    "CREATE ROLE e_y WITH NOSUCH = true",
    "CREATE ROLE e_y WITH OPTIONS = {'a': 'b'}",
    "CREATE ROLE e_y WITH ACCESS TO DATACENTERS {'nosuch'}",
    "CREATE ROLE e_y WITH ACCESS FROM CIDRS {'nosuch'}",
    "CREATE ROLE e_y WITH ACCESS FROM ALL CIDRS",
    "ALTER ROLE e_y WITH ACCESS TO DATACENTERS {'datacenter1'}",
    "CREATE GENERATED PASSWORD ROLE e_z",
    "CREATE ROLE e_z WITH GENERATED PASSWORD",
    "ADD IDENTITY 'spiffe://a' TO ROLE 'e_a'",
    "ADD IDENTITY 'spiffe://a' TO ROLE 'e_b'",
    "ADD IDENTITY IF NOT EXISTS 'spiffe://a' TO ROLE 'e_b'",
    "ADD IDENTITY 'spiffe://b' TO ROLE 'nobody'",
    "ADD IDENTITY '' TO ROLE 'e_b'",
    "DROP IDENTITY 'spiffe://b'",
    "DROP IDENTITY IF EXISTS 'spiffe://b'",
    "DROP IDENTITY ''",
    "DROP IDENTITY 'spiffe://a'",
    "SELECT identity, role FROM system_auth.identity_to_role",
    "SELECT role, member FROM system_auth.role_members WHERE role = 'e_c'",
    "SELECT role, is_superuser, can_login, member_of FROM system_auth.roles WHERE role IN ('e q', 'e_a', 'e_c', 'e_d', 'e*', 'e_user')",
    "LIST ROLES",
    "LIST USERS",
]

# Sent by a role that is connected meanwhile, after each change that the superuser makes.
SENT = [
    "SELECT * FROM ks.t WHERE k = 1",
    "INSERT INTO ks.t (k, v) VALUES (1, 1)",
    "SELECT * FROM ks.u WHERE k = 1",
    "SELECT key FROM system.local",
    "SELECT table_name FROM system_views.sstable_tasks WHERE keyspace_name = 'none'",
    "SELECT keyspace_name FROM system_virtual_schema.keyspaces WHERE keyspace_name = 'system_views'",
    "LIST ROLES OF e_client",
    "LIST ALL OF e_client",
    "ALTER ROLE e_client WITH SUPERUSER = false",
    "CREATE ROLE e_other",
    "GRANT SELECT ON ks.t TO e_a",
    "USE ks",
]
CHANGES = [
    None,
    "GRANT SELECT ON ks.t TO e_client",
    "GRANT MODIFY ON KEYSPACE ks TO e_client",
    "REVOKE SELECT ON ks.t FROM e_client",
    "GRANT SELECT ON system_views.sstable_tasks TO e_client",
    "REVOKE SELECT ON system_views.sstable_tasks FROM e_client",
    "GRANT SELECT ON KEYSPACE system_views TO e_client",
    "GRANT e_reads TO e_client",
    "REVOKE SELECT ON ALL KEYSPACES FROM e_reads",
    "GRANT SELECT ON ALL KEYSPACES TO e_reads",
    "DROP ROLE e_reads",
    "ALTER ROLE e_client WITH SUPERUSER = true",
    "ALTER ROLE e_client WITH SUPERUSER = false",
    "ALTER ROLE e_client WITH LOGIN = false",
    "DROP ROLE e_client",
    "CREATE ROLE e_client WITH LOGIN = true AND PASSWORD = 'another'",
]


def answers(node, connect) -> dict[tuple[str, str], str]:
    """(who, statement) -> the answer."""
    found = {}
    with connect(node) as admin:
        for number, statement in enumerate(STATEMENTS):
            found["edges", f"{number} {statement[:200]}"] = shown(admin.query(statement))
        for statement in ("CREATE ROLE e_reads", "GRANT SELECT ON ALL KEYSPACES TO e_reads",
                          "CREATE ROLE e_client WITH LOGIN = true AND PASSWORD = 'e_client'"):
            found["edges", statement] = shown(admin.query(statement))
        with Connection(node.host, node.port, 5, login=("e_client", "e_client")) as client:
            for number, change in enumerate(CHANGES):
                if change is not None:
                    found["edges", f"{number} {change}"] = shown(admin.query(change))
                for statement in SENT:
                    found[f"connected, after {change}", statement] = shown(client.query(statement))
    for name, password in (("e_client", "e_client"), ("e_client", "another"), ("e_a", ""), ("e q", "x"), ("", "x"), ("e user", "p"), ("e_user", "p")):
        found["login", f"{name} {password}"] = login(node, name, password)
    return found


def login(node, name: str, password: str) -> str:
    try:
        Connection(node.host, node.port, 5, login=(name, password)).close()
        return "accepted"
    except LoginRefused as refused:
        return str(refused)


def shown(answer) -> str:
    if isinstance(answer, Error):
        return f"{answer.code:#06x} {answer.message}"
    if isinstance(answer, Rows):
        columns = [column[2] for column in answer.metadata.columns] if answer.metadata.columns else []
        return f"rows {columns} {sorted(answer.rows)}"
    return type(answer).__name__
