"""Roles of an adopted node: they log in with the passwords that they had in Cassandra, and have what they had there.

Passwords have hashes that Cassandra has made, and hashes of other costs, which are jBCrypt's own test vectors. Rows of
system_auth.roles also have what is no hash: as in Cassandra, such a role cannot log in, and the node goes on.
"""

import shutil
import subprocess
from pathlib import Path

from proof import places
from proof.oracle.cassandra import Cassandra
from proof.oracle.espalier import Espalier, environment
from proof.roles.edges import login, shown
from proof.wire import Connection

# Of the password `a`.
VECTORS = ["$2a$06$m0CrhHm10qJ3lXRY.5zDGO3rS2KdeeWLuGmsfGlMfOxih58VYVfxe", "$2a$08$cfcvVd2aQ8CMvoMpP2EBfeodLEkkFJ9umNEfPD18.hUF62qqlC/V.",
           "$2a$10$k87L/MF28Q673VKh8/cPi.SUl7MU/rWuSiIDDFayrKk/1tBsSQu4u", "$2a$12$8NJH3LsPrANStV6XtBakCez0cKHXVxmvxIlcz785vxAIZrihHZpeS"]
# No hashes, by the name of the role. Written directly.
MALFORMED = {"empty": "", "word": "nothing", "short": "$2a$10$k87L/MF28Q673VKh8", "cut": VECTORS[2][:-1], "cost_of_none": "$2a$99" + VECTORS[2][6:],
             "cost_of_words": "$2a$xx" + VECTORS[2][6:], "other_letters": VECTORS[2][:-4] + "é漢", "other_version": "$9a$" + VECTORS[2][4:]}
# Its check would take some ten seconds in Cassandra, and docs/differences.md says that it is refused here.
DEAR = "$2a$17" + VECTORS[2][6:]
SETUP = [
    "CREATE KEYSPACE up WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
    "CREATE TABLE up.t (k int PRIMARY KEY, v int)",
    "CREATE ROLE ada WITH LOGIN = true AND PASSWORD = 'Ada''s password, 漢字'",
    "CREATE ROLE bob WITH LOGIN = true AND PASSWORD = 'bob'",
    "ALTER ROLE bob WITH PASSWORD = 'bob again'",
    "CREATE ROLE no_login WITH PASSWORD = 'no_login'",
    "CREATE ROLE no_password WITH LOGIN = true",
    "CREATE ROLE root WITH LOGIN = true AND SUPERUSER = true AND PASSWORD = 'root'",
    "CREATE ROLE gone WITH LOGIN = true AND PASSWORD = 'gone'",
    "CREATE ROLE readers",
    "GRANT SELECT ON up.t TO readers",
    "GRANT readers TO ada",
    "GRANT MODIFY ON KEYSPACE up TO bob",
    "GRANT SELECT ON up.t TO gone",
    "DROP ROLE gone",
    "ADD IDENTITY 'spiffe://ada' TO ROLE 'ada'",
    *(f"CREATE ROLE vector_{number} WITH LOGIN = true AND HASHED PASSWORD = '{vector}'" for number, vector in enumerate(VECTORS)),
    *(f"INSERT INTO system_auth.roles (role, can_login, is_superuser, salted_hash) VALUES ('{role}', true, false, '{text}')"
      for role, text in {**MALFORMED, "dear": DEAR}.items()),
]
LOGINS = [("ada", "Ada's password, 漢字"), ("ada", "ada"), ("bob", "bob"), ("bob", "bob again"), ("no_login", "no_login"), ("no_login", "x"),
          ("no_password", "x"), ("root", "root"), ("gone", "gone"), ("cassandra", "cassandra"),
          *((f"vector_{number}", password) for number in range(len(VECTORS)) for password in ("a", "b")),
          *((role, password) for role in MALFORMED for password in ("a", "x"))]
SENT = ["SELECT * FROM up.t WHERE k = 2", "INSERT INTO up.t (k, v) VALUES (1, 1)", "CREATE ROLE IF NOT EXISTS another", "LIST ROLES OF ada", "LIST ALL OF ada"]
SENDERS = [("ada", "Ada's password, 漢字"), ("bob", "bob again"), ("root", "root"), ("vector_3", "a")]
READS = ["LIST ROLES", "LIST USERS", "LIST ALL PERMISSIONS", "SELECT identity, role FROM system_auth.identity_to_role",
         "SELECT role, member FROM system_auth.role_members", "SELECT role, resource, permissions FROM system_auth.role_permissions"]


def answers(node, connect) -> dict[tuple[str, str], str]:
    found = {("login", f"{role} with {password}"): login(node, role, password) for role, password in LOGINS}
    for role, password in SENDERS:
        with Connection(node.host, node.port, 5, login=(role, password)) as client:
            found |= {(role, statement): shown(client.query(statement)) for statement in SENT}
    with connect(node) as admin:
        found |= {("cassandra", statement): shown(admin.query(statement)) for statement in READS}
    return found


def prove(check, connect) -> None:
    """Lets Cassandra make roles, adopts them, and compares."""
    copy = places.run_directory("roles")
    subject = Espalier.prepare(authenticator="PasswordAuthenticator", authorizer="CassandraAuthorizer")
    try:
        expected = written_by_cassandra(copy, connect)
        command = [str(places.espalier_binary()), "upgrade-from", "--data", str(subject.data), str(copy)]
        adopted = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment())
        check("upgrade-from with roles", adopted.returncode == 0, adopted.stderr)
        subject.launch()
        got = answers(subject, connect)
        for cell, answer in expected.items():
            check(f"adopted roles: {cell}", got[cell] == answer, f"expected {answer}\ngot {got[cell]}")
        refused = login(subject, "dear", "a")
        check("a hash that is too dear", refused == "Provided username dear and/or password are incorrect", refused)
    finally:
        subject.stop()
        shutil.rmtree(copy)


def written_by_cassandra(copy: Path, connect) -> dict[tuple[str, str], str]:
    with Cassandra.start(roles=True, durable=True) as oracle:
        with connect(oracle) as admin:
            for statement in SETUP:
                answer = shown(admin.query(statement))
                if answer.startswith("0x"):
                    raise RuntimeError(f"{statement[:40]}: {answer}")
        expected = answers(oracle, connect)
        oracle.command("drain")
        oracle.end()
        shutil.copytree(oracle.directory, copy, dirs_exist_ok=True)
    return expected
