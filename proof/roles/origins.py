"""Where roles connect to and from: `CassandraNetworkAuthorizer`, and `CassandraCIDRAuthorizer` in both modes.

Both nodes start with the same groups of addresses and the same configuration. Statements about places are compared, and
what the tables have after them; then roles log in and send statements, as text and prepared, from several addresses,
while their places change, they lose LOGIN, and they are dropped and made again.
"""

import re

from proof.roles.edges import shown
from proof.wire import Connection, Error
from proof.wire.connection import LoginRefused

SETUP = [
    "CREATE KEYSPACE IF NOT EXISTS o_ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
    "CREATE TABLE o_ks.t (k int PRIMARY KEY, v int)",
    *(f"INSERT INTO system_auth.cidr_groups (cidr_group, cidrs) VALUES ('{group}', {{{blocks}}})" for group, blocks in [
        ("home", "('127.0.0.0', 24)"), ("two", "('127.0.0.2', 32), ('192.0.2.0', 24)"), ("lab", "('127.0.1.0', 24)"),
        ("ten", "('10.0.0.0', 8)"), ("six", "('2001:db8::', 32)"), ("Odd name", "('127.0.2.0', 24), ('::1', 128)")]),
]
PARAMETERS = ("network_authorizer: CassandraNetworkAuthorizer\n"
              "cidr_authorizer: {{class_name: CassandraCIDRAuthorizer, parameters: {{cidr_authorizer_mode: {mode}, "
              "cidr_checks_for_superusers: {superusers}}}}}\n")
# The mode, whether superusers are checked, and the roles that stay connected while their places change.
MODES = [("ENFORCE", "false", ("o_a", "o_c", "o_super")), ("ENFORCE", "true", ("o_super",)), ("MONITOR", "false", ("o_c",))]
STATEMENTS = [
    "CREATE ROLE o_a WITH LOGIN = true AND PASSWORD = 'o_a' AND ACCESS TO DATACENTERS {'datacenter1'}",
    "CREATE ROLE o_b WITH LOGIN = true AND PASSWORD = 'o_b' AND ACCESS TO ALL DATACENTERS AND ACCESS FROM ALL CIDRS",
    "CREATE ROLE o_c WITH LOGIN = true AND PASSWORD = 'o_c' AND ACCESS FROM CIDRS {'home'}",
    "CREATE ROLE o_d WITH LOGIN = true AND PASSWORD = 'o_d' AND ACCESS FROM CIDRS {'two', 'lab'} AND ACCESS TO ALL DATACENTERS",
    "CREATE ROLE o_e WITH ACCESS FROM CIDRS {'Odd name'}",
    "CREATE ROLE o_super WITH LOGIN = true AND SUPERUSER = true AND PASSWORD = 'o_super' AND ACCESS FROM CIDRS {'ten'}",
    "CREATE ROLE o_x WITH ACCESS TO DATACENTERS {'nosuch'}",
    "CREATE ROLE o_x WITH ACCESS TO DATACENTERS {'datacenter1', 'nosuch'}",
    "CREATE ROLE o_x WITH ACCESS TO DATACENTERS {''}",
    "CREATE ROLE o_x WITH ACCESS TO DATACENTERS {}",
    "CREATE ROLE o_x WITH ACCESS TO DATACENTERS {1}",
    "CREATE ROLE o_x WITH ACCESS FROM CIDRS {'nosuch'}",
    "CREATE ROLE o_x WITH ACCESS FROM CIDRS {'home', 'nosuch'}",
    "CREATE ROLE o_x WITH ACCESS FROM CIDRS {'HOME'}",
    "CREATE ROLE o_x WITH ACCESS FROM CIDRS {''}",
    "CREATE ROLE o_x WITH ACCESS FROM CIDRS {}",
    "CREATE ROLE o_x WITH ACCESS FROM CIDRS {'127.0.0.0/24'}",
    "CREATE ROLE o_x WITH ACCESS FROM CIDRS {'home'} AND ACCESS FROM CIDRS {'ten'}",
    "CREATE ROLE o_x WITH ACCESS FROM CIDRS {'home'} AND ACCESS FROM ALL CIDRS",
    "CREATE ROLE o_x WITH ACCESS TO ALL DATACENTERS AND ACCESS TO DATACENTERS {'datacenter1'}",
    "CREATE ROLE o_x WITH ACCESS TO DATACENTERS {'datacenter1'} AND ACCESS TO ALL DATACENTERS",
    "CREATE ROLE o_x WITH ACCESS FROM ALL CIDRS AND ACCESS FROM CIDRS {'home'}",
    "CREATE ROLE o_w WITH ACCESS FROM ALL CIDRS AND ACCESS FROM ALL CIDRS",
    "CREATE ROLE o_v WITH ACCESS TO DATACENTERS {'datacenter1'} AND ACCESS TO DATACENTERS {'datacenter1'}",
    "CREATE ROLE o_x WITH ACCESS TO CIDRS {'home'}",
    "CREATE ROLE o_x WITH ACCESS FROM DATACENTERS {'datacenter1'}",
    "CREATE ROLE o_x WITH ACCESS TO ALL CIDRS",
    "CREATE USER o_y WITH PASSWORD 'o_y' ACCESS FROM ALL CIDRS",
    "CREATE ROLE IF NOT EXISTS o_c WITH ACCESS FROM CIDRS {'nosuch'}",
    "CREATE ROLE IF NOT EXISTS o_c WITH ACCESS FROM ALL CIDRS",
    "ALTER ROLE o_nobody WITH ACCESS FROM CIDRS {'home'}",
    "ALTER ROLE IF EXISTS o_nobody WITH ACCESS FROM CIDRS {'home'}",
    "ALTER ROLE IF EXISTS o_nobody WITH ACCESS FROM CIDRS {'nosuch'}",
    "ALTER ROLE o_a WITH ACCESS TO DATACENTERS {'nosuch'}",
    "ALTER ROLE o_e WITH ACCESS FROM CIDRS {'six'} AND LOGIN = false",
    "ALTER ROLE o_e WITH ACCESS TO DATACENTERS {'datacenter1'}",
]
READS = [
    "LIST ROLES",
    "LIST ROLES OF o_d",
    "LIST USERS",
    "SELECT role, dcs FROM system_auth.network_permissions",
    "SELECT role, cidr_groups FROM system_auth.cidr_permissions",
    "SELECT cidr_group, cidrs FROM system_auth.cidr_groups",
]
# By roles that are no superusers.
OTHERS = [
    "ALTER ROLE o_a WITH ACCESS FROM ALL CIDRS",
    "ALTER ROLE o_a WITH ACCESS TO ALL DATACENTERS",
    "ALTER ROLE o_b WITH ACCESS FROM CIDRS {'home'}",
    "ALTER ROLE o_b WITH ACCESS TO DATACENTERS {'datacenter1'}",
    "CREATE ROLE o_z WITH ACCESS FROM CIDRS {'home'}",
    "DROP ROLE IF EXISTS o_z",
    "SELECT role FROM system_auth.cidr_permissions",
    "INSERT INTO system_auth.cidr_groups (cidr_group, cidrs) VALUES ('mine', {('127.0.0.0', 8)})",
]
ROLES = ("o_a", "o_b", "o_c", "o_d", "o_super")
SOURCES = ("127.0.0.1", "127.0.0.2", "127.0.1.9", "127.0.2.9", "127.0.9.9")
# Each is followed by requests of the role, which is connected.
CHANGES = [
    "ALTER ROLE {role} WITH ACCESS FROM CIDRS {{'lab'}}",
    "ALTER ROLE {role} WITH ACCESS FROM CIDRS {{'two', 'Odd name'}}",
    "ALTER ROLE {role} WITH ACCESS FROM ALL CIDRS",
    "INSERT INTO system_auth.network_permissions (role, dcs) VALUES ('roles/{role}', {{'dc2'}})",
    "ALTER ROLE {role} WITH ACCESS TO DATACENTERS {{'datacenter1'}}",
    "ALTER ROLE {role} WITH LOGIN = false",
    "ALTER ROLE {role} WITH LOGIN = true",
    "ALTER ROLE {role} WITH ACCESS FROM CIDRS {{'home'}}",
    "DROP ROLE {role}",
    "CREATE ROLE {role} WITH LOGIN = true AND PASSWORD = '{role}' AND ACCESS FROM CIDRS {{'two'}}",
    "GRANT SELECT ON o_ks.t TO {role}",
]
CONNECTED_FROM = SOURCES[:3]
SENT = ["SELECT * FROM o_ks.t WHERE k = 1", "LIST ROLES OF {role}", "SELECT * FROM nothing.t"]
READ = SENT[0]
# Cassandra shows the groups in the order of their hashes.
GROUPS = re.compile(r"(?<=Available CIDR Groups are: \[)[^]]*")


def answers(node, connect) -> dict[tuple[str, str], str]:
    """(mode and who, statement) -> the answer. The node is started again for each mode."""
    with connect(node) as admin:
        for statement in SETUP:
            expect(admin, statement)
    found = {}
    for mode, superusers, connected in MODES:
        node.restart_with(PARAMETERS.format(mode=mode, superusers=superusers))
        name = f"{mode}, superusers {superusers}"
        with connect(node) as admin:
            for role in (*ROLES, "o_e", "o_v", "o_w", "o_x", "o_y", "o_z"):
                expect(admin, f"DROP ROLE IF EXISTS {role}")
            found |= {(name, f"{number} {statement}"): shown(admin.query(statement)) for number, statement in enumerate(STATEMENTS + READS)}
            for role in ROLES:
                expect(admin, f"GRANT SELECT ON o_ks.t TO {role}")
            found |= of_clients(node, admin, name, connected)
    return {cell: GROUPS.sub(lambda names: ", ".join(sorted(names[0].split(", "))), answer) for cell, answer in found.items()}


def of_clients(node, admin: Connection, mode: str, connected: tuple[str, ...]) -> dict[tuple[str, str], str]:
    found = {}
    for role in ROLES:
        clients = {}
        for source in SOURCES:
            try:
                clients[source] = Connection(node.host, node.port, 5, login=(role, role), source=source)
                found[mode, f"{role} logs in from {source}"] = "accepted"
            except LoginRefused as refused:
                found[mode, f"{role} logs in from {source}"] = str(refused)
            if source in clients and not (role in connected and source in CONNECTED_FROM):
                clients.pop(source).close()
        handles = {source: client.prepare(READ) for source, client in clients.items()}
        if role == "o_a" and "127.0.0.1" in clients:
            found |= {(f"{mode}, {role}", statement): shown(clients["127.0.0.1"].query(statement)) for statement in OTHERS}
        for change in (None, *CHANGES) if role in connected else ():
            if change is not None:
                expect(admin, change.format(role=role))
                if change.startswith("INSERT"):
                    node.read_places()
            for source, client in clients.items():
                sent = {statement: client.query(statement.format(role=role)) for statement in SENT}
                handle = handles[source]
                sent["prepared"] = handle if isinstance(handle, Error) else client.execute(handle)
                sent["PREPARE"] = client.prepare(READ)
                found |= {(f"{mode}, {role} from {source} after {change}", what): shown(answer) for what, answer in sent.items()}
            if change is not None and "LOGIN" in change:
                found[mode, f"{role} logs in after {change}"] = login(node, role)
        for client in clients.values():
            client.close()
    return found


def login(node, role: str) -> str:
    try:
        Connection(node.host, node.port, 5, login=(role, role), source="127.0.0.2").close()
        return "accepted"
    except LoginRefused as refused:
        return str(refused)


def expect(connection: Connection, statement: str) -> None:
    answer = connection.query(statement)
    if isinstance(answer, Error):
        raise RuntimeError(f"{statement}: {answer.message}")
