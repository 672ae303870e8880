"""Who may do what: a table of roles and statements, answered by Cassandra 5.0.8 and by Espalier, cell by cell.

Each role has one permission on one resource, or a few, or is granted another role. Each sends all statements, as text
and prepared, and each answer is compared: its kind, its error's code and text, and the rows of LIST. The audit logs of
both nodes are compared entry by entry. Masks of columns are made, described, and read by roles with and without UNMASK.
Unusual names and graphs of roles are tried, and roles that change while they are connected. The audit log has filters
of all kinds, from the configuration and from the command that changes them. Roles connect to and from their places
only. Then permissions change while prepared statements run, drivers log in, logs of requests meet what is not their
file, the node is killed while roles change, and passwords are searched for in all that the node has written.

With --recorded, Cassandra is not asked again if neither the questions nor the oracle have changed since
(proof/oracle/record.py).

usage: python -m proof.roles [--only-espalier] [--recorded]
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from cassandra import Unauthorized
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import Cluster, NoHostAvailable

from proof import places
from proof.drivers.checks import NOT_PROVED
from proof.oracle.cassandra import Cassandra
from proof.oracle.espalier import SECRETS, Espalier
from proof.oracle.record import Record
from proof.roles import audit, cases, edges, filters, kills, masking, origins
from proof.wire import Connection, Error, QueryOptions, Rows
from proof.wire.connection import LoginRefused

SECRET = SECRETS[0]
SUPERUSER = ("cassandra", "cassandra")
HASH = "$2a$10$JSJEMFm6GeaW9XxT5JIheuEtPvat6i7uKbnTcxX3c1wshIIsGyUtG"
SHOWN = 20
UNAUTHORIZED = 0x2100
# The cells of the table of grants and statements, at least.
CELLS_MIN = 3_000
# Every role with a number that this divides prepares the statements that all roles send as text.
PREPARING_EVERY = 13
ROLES_ON = {"authenticator": "PasswordAuthenticator", "authorizer": "CassandraAuthorizer",
            "audit_logging_options": "{enabled: true, logger: FileAuditLogger, roll_cycle: DAILY}", "dynamic_data_masking_enabled": "true"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only-espalier", action="store_true", help="no comparison, only what Espalier does by itself")
    parser.add_argument("--recorded", action="store_true", help="Cassandra's answers may be those of an earlier run")
    options = parser.parse_args()
    failures = []
    passed = 0
    with Espalier.start(**ROLES_ON) as node:
        ours = table(node)
        if len(ours) < CELLS_MIN:
            failures.append(f"the table has {len(ours)} cells, which are fewer than {CELLS_MIN}")
        audit.requests(node, first_connection)
        our_entries = audit.entries(node, first_connection)
        ours |= others(node)
        node.restart_with("")
        node.restart_with_audit_log({"enabled": "true"})
        if not options.only_espalier:
            theirs, entries = ask_cassandra(options.recorded)
            same, lines = audit.compare(entries, our_entries)
            passed += same
            failures += lines
            different = {cell for cell in theirs if ours.get(cell) != theirs[cell]}
            passed += len(theirs) - len(different)
            failures += [f"{cell}\n    Cassandra: {theirs[cell]}\n    Espalier:  {ours.get(cell)}" for cell in sorted(different)]
        checks = [changes_hold_at_once, a_driver_logs_in, logs_survive_what_happens_to_their_files, logs_report_a_full_disk,
                  logins_are_limited_by_address_and_role, verbs_read_roles_at_once, statements_survive_kills, no_secret_is_written]
        for check in checks:
            try:
                check(node)
                passed += 1
            except AssertionError as failure:
                failures.append(f"{check.__name__}: {failure}")
    print("\n".join(failures[:SHOWN]))
    print(f"{passed} passed, {len(failures)} failed")
    sys.exit(1 if failures else 0)


def ask_cassandra(may_be_recorded: bool) -> tuple[dict[tuple[str, str], str], list[str]]:
    """Cassandra's answers, and the entries of its audit log."""
    # The passwords are in `espalier.py`.
    questions = (Path(__file__).parent, places.ROOT / "proof" / "wire", places.ROOT / "proof" / "oracle" / "espalier.py")
    record = Record("roles", questions, is_large=True)
    kept = record.answers() if may_be_recorded else None
    if kept is not None:
        print("(Cassandra's answers are those of an earlier run)", flush=True)
        return {(name, statement): answer for name, statement, answer in kept["cells"]}, kept["entries"]
    with Cassandra.start(roles=True) as oracle:
        answers = table(oracle)
        audit.requests(oracle, first_connection)
        entries = audit.entries(oracle, first_connection)
        answers |= others(oracle)
    record.keep({"cells": [[*cell, answer] for cell, answer in answers.items()], "entries": entries})
    return answers, entries


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
            # Most of these answers do not depend on the role, so a few roles are enough.
            for statement in cases.STATEMENTS if (role, statements) in roles[::PREPARING_EVERY] + roles[-1:] else []:
                handle = client.prepare(statement.replace("{role}", role))
                refused = isinstance(handle, Error)
                answers[name, f"PREPARE {statement}"] = shown(handle)
                if not refused:
                    answers[name, f"EXECUTE {statement}"] = shown(client.execute(handle))
            for statement in cases.PREPARED:
                handle = client.prepare(statement)
                refused = isinstance(handle, Error)
                answers[name, f"prepared {statement}"] = shown(handle if refused else client.execute(handle))
    return answers


def others(node) -> dict[tuple[str, str], str]:
    answers = not_built(node)
    for part in (edges, masking, filters, origins):
        answers |= part.answers(node, first_connection)
    return answers


def not_built(node) -> dict[tuple[str, str], str]:
    """As `table`, for statements of which only refusals are the same."""
    answers = {}
    for role, statements in cases.grants():
        with Connection(node.host, node.port, 5, login=(role, role)) as client:
            for statement in cases.NOT_BUILT:
                answer = client.query(statement)
                is_refused = isinstance(answer, Error) and answer.code == UNAUTHORIZED
                answers["; ".join(statements) or "nothing", statement] = shown(answer) if is_refused else "not refused"
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


def logs_survive_what_happens_to_their_files(node) -> None:
    """A pipe or a link in the place of a log is refused at once; a log whose directory goes is written in a new one."""
    place = node.directory / "queries"
    place.mkdir()
    current = place / "full_query.log"
    for make in (lambda: os.mkfifo(current), lambda: current.symlink_to("/dev/full"), lambda: current.symlink_to(place / "another")):
        make()
        begun = time.monotonic()
        assert_fails("full_query_logging_options: ", lambda: node.steer("enablefullquerylog", "--path", str(place)))
        assert time.monotonic() - begun < 10, "the verb waited"
        current.unlink()
    assert_fails("control characters", lambda: node.steer("enablefullquerylog", "--path", f"{place}\nforged"))
    node.steer("enablefullquerylog", "--path", str(place))
    with first_connection(node) as admin:
        admin.query("SELECT * FROM ks.t WHERE k = 1001")
        wait_for(lambda: "k = 1001" in current.read_text())
        shutil.rmtree(place)
        admin.query("SELECT * FROM ks.t WHERE k = 1002")
        wait_for(lambda: current.exists() and "k = 1002" in current.read_text())
        # Each statement is entered in one of two files, though the options change under it.
        for number in range(200):
            if number % 20 == 0:
                node.steer("enableauditlog", "--max-queue-weight", str(1_000_000 + number))
            admin.query(f"SELECT * FROM ks.t WHERE k = {5000 + number}")
        wait_for(lambda: all(f"k = {5000 + number}" in node.audit_log.read_text() for number in range(200)))
    lost = re.findall(r"lost entries *: (\d+)", node.steer("status"))
    assert lost == ["0", "0"], lost
    node.steer("disablefullquerylog")


def logs_report_a_full_disk(node) -> None:
    """Requests are served on while the disk of the logs is full, each entry is written or counted as lost, and
    the node's log says why. cargo's tests (`request_logs`) have files that may not grow in place of the disk,
    where disks cannot be mounted."""
    places_of_logs = {"audit log": node.audit_log.parent, "full query log": node.directory / "small"}
    places_of_logs["full query log"].mkdir()
    mounted = []
    try:
        for place in places_of_logs.values():
            done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", place], capture_output=True, text=True)
            if done.returncode != 0:
                print(f"{NOT_PROVED}: roles: a full disk of the logs: {done.stderr.strip()}", flush=True)
                return
            mounted.append(place)
        for blocking in ("true", "false"):
            fill_the_disk_of_logs(node, blocking, places_of_logs)
    finally:
        for place in mounted:
            subprocess.run(["umount", "--lazy", place], check=True)
        node.steer("enableauditlog", "--blocking", "true")


def fill_the_disk_of_logs(node, blocking: str, places_of_logs: dict[str, Path]) -> None:
    def lost() -> list[int]:
        return [int(count) for count in re.findall(r"lost entries *: (\d+)", node.steer("status"))]

    current = [place / name for place, name in zip(places_of_logs.values(), ("audit.log", "full_query.log"))]
    node.steer("enableauditlog", "--blocking", blocking)
    node.steer("enablefullquerylog", "--path", str(places_of_logs["full query log"]), "--blocking", blocking)
    with first_connection(node) as admin:
        before, sent = lost(), 200
        statement = f"SELECT * FROM ks.t WHERE k = 1003 /* {'x' * 1000} */"
        for _ in range(sent):
            answer = admin.query(statement)
            assert isinstance(answer, Rows), answer
        ends = (f"{statement}\n", f"{statement}|values:\n")
        wait_for(lambda: all(now - then + path.read_text().count(end) == sent
                             for now, then, path, end in zip(lost(), before, current, ends)))
        full = [now - then for now, then in zip(lost(), before)]
        assert all(100 < count < sent for count in full), full
        for path in current:
            path.unlink()
        admin.query("SELECT * FROM ks.t WHERE k = 1004")
        wait_for(lambda: all(path.exists() and "k = 1004" in path.read_text() for path in current))
        for path in current:
            path.unlink()
    node.steer("disablefullquerylog")
    # The first report is immediate, and the end of a log reports what is left. Others wait for a minute.
    for log in places_of_logs:
        assert f"of the {log} lost: No space left on device" in (node.directory / "log").read_text(), log


def logins_are_limited_by_address_and_role(node) -> None:
    """Ten failures of a role, or a hundred in all, close an address to it for a while, and nobody else."""
    right = ("role_0", "role_0")

    def login(source: str, name: str, password: str) -> str:
        try:
            Connection(node.host, node.port, 5, login=(name, password), source=source).close()
            return "accepted"
        except LoginRefused as refused:
            return str(refused)

    def refused(name: str) -> str:
        return f"Provided username {name} and/or password are incorrect"

    # A success in between makes all of the role's ten failures possible again.
    for number in range(18):
        if number == 9:
            assert login("127.0.0.2", *right) == "accepted"
        assert login("127.0.0.2", "role_0", f"wrong {number}") == refused("role_0")
    assert login("127.0.0.2", *right) == "accepted"
    for number in range(10):
        assert login("127.0.0.3", "role_0", f"wrong {number}") == refused("role_0")
    assert login("127.0.0.3", *right) == refused("role_0")
    assert login("127.0.0.3", "role_1", "role_1") == "accepted", "another role was refused"
    assert login("127.0.0.4", *right) == "accepted", "another address was refused"
    # Many names from one address.
    for number in range(100):
        assert login("127.0.0.5", f"nobody {number}", "wrong") == refused(f"nobody {number}")
    assert login("127.0.0.5", *right) == refused("role_0")
    assert login("127.0.0.5", *SUPERUSER) == refused(SUPERUSER[0])
    assert login("127.0.0.6", *right) == "accepted"


def verbs_read_roles_at_once(node) -> None:
    """Rows of system_auth that were written directly hold after a verb, and the CIDR verbs answer as nodetool does."""
    with first_connection(node) as admin:
        expect(admin, "CREATE ROLE direct WITH LOGIN = true AND PASSWORD = 'direct'")
        with Connection(node.host, node.port, 5, login=("direct", "direct")) as client:
            for verb in ("invalidatepermissionscache", "invalidaterolescache", "invalidatecredentialscache",
                         "invalidatenetworkpermissionscache", "invalidatejmxpermissionscache"):
                for permissions, accepted in (("{'SELECT'}", True), ("{}", False)):
                    expect(admin, f"UPDATE system_auth.role_permissions SET permissions = {permissions} WHERE role = 'direct' AND resource = 'data/ks'")
                    assert node.steer(verb, "direct") == "", verb
                    assert isinstance(client.query("SELECT * FROM ks.t WHERE k = 1"), Error) != accepted, verb
    assert node.steer("invalidatecidrpermissionscache") == "Invalidated CIDR permissions cache\n"
    assert node.steer("invalidatecidrpermissionscache", "direct") == \
        "Not found role direct in CIDR permissions cache, nothing to invalidate\n"
    stats = node.steer("cidrfilteringstats")
    assert stats.startswith("cidr_filtering_metrics_counts:\nname ") and "CIDR checks latency (ns)" in stats, stats


def statements_survive_kills(node) -> None:
    kills.acknowledged_statements_survive(node, first_connection)


def assert_fails(text: str, action) -> None:
    try:
        action()
    except RuntimeError as failure:
        assert text in str(failure), failure
    else:
        raise AssertionError(f"this succeeded: {text}")


def wait_for(holds) -> None:
    deadline = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.02)


def no_secret_is_written(node) -> None:
    """Neither the log, nor traces, nor any file contains a password in clear, and no log a hash of one."""
    place = node.directory / "queries"
    node.steer("enablefullquerylog", "--path", str(place))
    with first_connection(node) as admin:
        insert = admin.prepare("INSERT INTO system_auth.roles (role, salted_hash) VALUES (?, ?)")
        admin.execute(insert, QueryOptions(values=[b"hashed", HASH.encode()]))
        admin.query(f"INSERT INTO system_auth.roles (role, salted_hash) VALUES ('hashed', '{HASH}')", tracing=True)
        for statement in (f"CREATE ROLE secret WITH PASSWORD = '{SECRET}' AND LOGIN = true",
                          f"ALTER ROLE secret WITH PASSWORD = '{SECRET}'", f"CREATE ROLE secret WITH PASSWORD = '{SECRET}",
                          f"ALTER USER secret WITH PASSWORD '{SECRET}'"):
            admin.query(statement, tracing=True)
        admin.query(f"SELECT * FROM ks.t; -- {SECRET[:4]}", tracing=True)
    with Connection(node.host, node.port, 5, login=("secret", SECRET)):
        pass
    time.sleep(0.5)
    node.flush()
    node.steer("disablefullquerylog")
    for path in node.directory.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert SECRET.encode() not in content, path.name
            is_log = path.name == "log" or path.name.startswith(("audit", "full_query"))
            assert not is_log or (HASH.encode() not in content and HASH.encode().hex().encode() not in content), path.name


if __name__ == "__main__":
    main()
