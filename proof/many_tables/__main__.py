"""Ten thousand tables on the default configuration: created, written, read, and read again after a kill and a start,
and after a stop, which has 10 s.

Then a node that may open 1024 files serves a client while a thousand connections come and go, and flushes its tables.

usage: python -m proof.many_tables [--tables COUNT]
"""

import argparse
import socket
import time

from proof.drivers.checks import Checks
from proof.oracle.espalier import Espalier
from proof.wire import Connection, Error, QueryOptions, Rows, requests

TABLES = 10_000
PIPELINED = 100
CONNECTIONS, AT_A_TIME = 1000, 250
FILES_MAX = 1024
FEW_TABLES = 20
STOP_SECONDS_MAX = 10


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tables", type=int, default=TABLES)
    tables = parser.parse_args().tables
    checks = Checks("many tables")
    with checks.part(f"{tables} tables"):
        written_tables(checks, tables)
    with checks.part(f"connections with {FILES_MAX} files"):
        connections_with_few_files(checks)
    checks.end()


def written_tables(checks: Checks, tables: int) -> None:
    with Espalier.start() as node:
        create_keyspace(node)
        step(checks, node, "create", [f"CREATE TABLE many.t{number} (k int PRIMARY KEY, v int)" for number in range(tables)])
        step(checks, node, "write", [f"INSERT INTO many.t{number} (k, v) VALUES (1, {number})" for number in range(tables)])
        read_all(checks, node, "read", tables)
        node.kill()
        started = time.monotonic()
        node.launch()
        print(f"start after the kill: {time.monotonic() - started:.1f} s, {resident_mib(node):.0f} MiB", flush=True)
        read_all(checks, node, "read after the start", tables)
        step(checks, node, "write again", [f"INSERT INTO many.t{number} (k, v) VALUES (1, {number})" for number in range(tables)])
        started = time.monotonic()
        checks.equal("status on SIGTERM", node.terminate(), 0)
        stop_seconds = time.monotonic() - started
        print(f"stop: {stop_seconds:.1f} s", flush=True)
        checks.true("seconds until the stop", stop_seconds < STOP_SECONDS_MAX, f"{stop_seconds:.1f}")
        started = time.monotonic()
        node.launch()
        print(f"start after the stop: {time.monotonic() - started:.1f} s, {resident_mib(node):.0f} MiB", flush=True)
        read_all(checks, node, "read after the stop", tables)


def create_keyspace(node: Espalier) -> None:
    with Connection(node.host, node.port) as connection:
        connection.query("CREATE KEYSPACE many WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")


def read_all(checks: Checks, node: Espalier, name: str, tables: int) -> None:
    rows = step(checks, node, name, [f"SELECT v FROM many.t{number} WHERE k = 1" for number in range(tables)])
    wrong = [number for number, answer in enumerate(rows)
             if not isinstance(answer, Rows) or [list(row) for row in answer.rows] != [[number.to_bytes(4, "big")]]]
    checks.equal(f"{name}: tables with another row", wrong[:5], [])


def step(checks: Checks, node: Espalier, name: str, statements: list[str]) -> list:
    """The answers to these statements, some of which are under way at the same time."""
    started, answers = time.monotonic(), []
    with Connection(node.host, node.port) as connection:
        connection.socket.settimeout(120)
        for first in range(0, len(statements), PIPELINED):
            some = statements[first:first + PIPELINED]
            streams = [connection.send(requests.QUERY, requests.query(text, QueryOptions(), 5)) for text in some]
            received = dict(connection.receive() for _ in some)
            answers += [received[stream] for stream in streams]
    errors = [answer.message for answer in answers if isinstance(answer, Error)]
    checks.equal(f"{name}: errors", errors[:3], [])
    print(f"{name}: {len(statements)} statements in {time.monotonic() - started:.1f} s, {resident_mib(node):.0f} MiB", flush=True)
    return answers


def resident_mib(node: Espalier) -> float:
    lines = open(f"/proc/{node.process.pid}/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def connections_with_few_files(checks: Checks) -> None:
    node = Espalier.prepare()
    node.under = ("prlimit", f"--nofile={FILES_MAX}:{FILES_MAX}")
    node.launch()
    with node, Connection(node.host, node.port) as client:
        create_keyspace(node)
        for number in range(FEW_TABLES):
            client.query(f"CREATE TABLE many.t{number} (k int PRIMARY KEY, v int)")
        answers, silent = [], []
        for round_number in range(2 * CONNECTIONS // AT_A_TIME):
            silent += connect_many(node)
            for number in range(FEW_TABLES):
                answers.append(client.query(f"INSERT INTO many.t{number} (k, v) VALUES ({round_number}, 1)"))
            node.flush("many")
            if len(silent) >= CONNECTIONS:
                for connection in silent:
                    connection.close()
                silent = []
        failed = [answer.message for answer in answers if isinstance(answer, Error)]
        checks.equal("writes beside connections that come and go: errors", failed[:3], [])
        checks.true("writes beside connections that come and go: answers", len(answers) > 0, "none")
        for connection in silent:
            connection.close()
        checks.equal("rows", len(client.query("SELECT * FROM many.t0").rows), 2 * CONNECTIONS // AT_A_TIME)
        checks.equal("status on SIGTERM", node.terminate(), 0)


def connect_many(node: Espalier) -> list[socket.socket]:
    """Opens as many connections as the node takes. The node closes those beyond its limit."""
    return [socket.create_connection((node.host, node.port), 5) for _ in range(AT_A_TIME)]


if __name__ == "__main__":
    main()
