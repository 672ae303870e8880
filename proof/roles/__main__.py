"""Who may do what: a table of roles and statements, answered by Cassandra 5.0.8 and by Espalier, cell by cell.

Each role has one permission on one resource, or a few, or is granted another role. Each sends all statements, as text and
prepared, and each answer is compared: its kind, its error's code and text, and the rows of LIST. The audit logs of both nodes are compared entry by entry. Masks
of columns are made, described, and read by roles with and without UNMASK. Unusual names and graphs of roles are tried, and roles that change
while they are connected. Then
permissions change while prepared statements run, drivers log in, and passwords are searched for in all that the node has
written.

usage: python -m proof.roles [--only-espalier]
"""

import argparse
import sys
import time

from cassandra import Unauthorized
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import Cluster, NoHostAvailable

from proof.oracle.cassandra import Cassandra
from proof.oracle.espalier import Espalier
from proof.roles import audit, cases, edges, masking
from proof.wire import Connection, Error, Rows
from proof.wire.connection import LoginRefused

SECRET = "a_secret_that_is_nowhere"
SUPERUSER = ("cassandra", "cassandra")
SHOWN = 20
ROLES_ON = {"authenticator": "PasswordAuthenticator", "authorizer": "CassandraAuthorizer",
            "audit_logging_options": "{enabled: true, logger: FileAuditLogger}", "dynamic_data_masking_enabled": "true"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only-espalier", action="store_true", help="no comparison, only what Espalier does by itself")
    options = parser.parse_args()
    failures = []
    passed = 0
    with Espalier.start(**ROLES_ON) as node:
        ours = table(node)
        our_entries = audit.entries(node, first_connection)
        ours |= edges.answers(node, first_connection) | masking.answers(node, first_connection)
        if not options.only_espalier:
            with Cassandra.start(roles=True) as oracle:
                theirs = table(oracle)
                entries = audit.entries(oracle, first_connection)
                theirs |= edges.answers(oracle, first_connection) | masking.answers(oracle, first_connection)
            same, lines = audit.compare(entries, our_entries)
            passed += same
            failures += lines
            different = {cell for cell in theirs if ours.get(cell) != theirs[cell]}
            passed += len(theirs) - len(different)
            failures += [f"{cell}\n    Cassandra: {theirs[cell]}\n    Espalier:  {ours.get(cell)}" for cell in sorted(different)]
        checks = [changes_hold_at_once, a_driver_logs_in, no_secret_is_written]
        for check in checks:
            try:
                check(node)
                passed += 1
            except AssertionError as failure:
                failures.append(f"{check.__name__}: {failure}")
    print("\n".join(failures[:SHOWN]))
    print(f"{passed} passed, {len(failures)} failed")
    sys.exit(1 if failures else 0)


def table(node) -> dict[tuple[str, str], str]:
    """(grants of the role, statement) -> the answer."""
    answers = {}
    with first_connection(node) as admin:
        for statement in cases.SETUP:
            expect(admin, statement)
        prepared = [admin.prepare(statement) for statement in cases.PREPARED]
        for statement in prepared:
            admin.execute(statement)
        roles = cases.grants()
        for role, statements in roles:
            expect(admin, f"CREATE ROLE {role} WITH LOGIN = true AND PASSWORD = '{role}'")
            for statement in statements:
                expect(admin, statement.format(role=role))
    for role, statements in roles:
        name = "; ".join(statements) or "nothing"
        with Connection(node.host, node.port, 5, login=(role, role)) as client:
            for statement in cases.STATEMENTS:
                sent = statement.replace("{role}", role)
                answers[name, statement] = shown(client.query(sent))
            for statement in cases.PREPARED:
                handle = client.prepare(statement)
                refused = isinstance(handle, Error)
                answers[name, f"prepared {statement}"] = shown(handle if refused else client.execute(handle))
    return answers


def first_connection(node) -> Connection:
    """Cassandra makes its first role some time after it is ready."""
    deadline = time.monotonic() + 30
    while True:
        try:
            return Connection(node.host, node.port, 5, login=SUPERUSER)
        except LoginRefused:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)


def expect(connection: Connection, statement: str) -> None:
    answer = connection.query(statement)
    if isinstance(answer, Error):
        raise RuntimeError(f"{statement}: {answer.message}")


def shown(answer) -> str:
    if isinstance(answer, Error):
        return f"{answer.code:#06x} {answer.message}"
    if isinstance(answer, Rows):
        columns = [column[2] for column in answer.metadata.columns] if answer.metadata.columns else []
        return f"rows {columns} {answer.rows if 'role' in columns or 'name' in columns else ''}"
    return type(answer).__name__


def changes_hold_at_once(node) -> None:
    """A prepared statement is refused from the answer to REVOKE on, and accepted from the answer to GRANT on."""
    with first_connection(node) as admin, Connection(node.host, node.port, 5, login=("role_0", "role_0")) as client:
        statement = client.prepare("INSERT INTO ks.t (k, v) VALUES (9, 9)")
        for number in range(200):
            granted = number % 2 == 0
            expect(admin, "GRANT MODIFY ON ks.t TO role_0" if granted else "REVOKE MODIFY ON ks.t FROM role_0")
            for _ in range(3):
                accepted = not isinstance(client.execute(statement), Error)
                assert accepted == granted, f"change {number}: accepted {accepted}"


def a_driver_logs_in(node) -> None:
    def session(name: str, password: str, version: int) -> Cluster:
        return Cluster([node.host], port=node.port, auth_provider=PlainTextAuthProvider(name, password), protocol_version=version)

    for version in (3, 4, 5):
        with session(*SUPERUSER, version) as cluster:
            assert cluster.connect().execute("LIST ROLES").one() is not None
        with session("reader", "wrong", version) as cluster:
            try:
                cluster.connect()
                raise AssertionError("a wrong password was accepted")
            except NoHostAvailable as refused:
                assert "Provided username reader and/or password are incorrect" in str(refused), refused
    with session("role_0", "role_0", 5) as cluster:
        try:
            cluster.connect().execute("DROP TABLE ks.t")
            raise AssertionError("a statement without permission was executed")
        except Unauthorized:
            pass


def no_secret_is_written(node) -> None:
    """Neither the log, nor traces, nor any file contains a password in clear."""
    with first_connection(node) as admin:
        for statement in (f"CREATE ROLE secret WITH PASSWORD = '{SECRET}' AND LOGIN = true",
                          f"ALTER ROLE secret WITH PASSWORD = '{SECRET}'", f"CREATE ROLE secret WITH PASSWORD = '{SECRET}",
                          f"ALTER USER secret WITH PASSWORD '{SECRET}'"):
            admin.query(statement, tracing=True)
        admin.query(f"SELECT * FROM ks.t; -- {SECRET[:4]}", tracing=True)
    with Connection(node.host, node.port, 5, login=("secret", SECRET)):
        pass
    time.sleep(0.5)
    node.flush()
    for path in node.directory.rglob("*"):
        if path.is_file():
            assert SECRET.encode() not in path.read_bytes(), path.name


if __name__ == "__main__":
    main()
