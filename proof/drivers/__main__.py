"""Runs the drivers' scripts: python -m proof.drivers [--only cassandra|espalier] [--recorded] [CLIENT ...]

A script is called with HOST PORT and prints "N passed, N failed" last. Clients: python, cqlsh, tls, java, go, rust.
The script tls starts nodes of its own, and is not run against Cassandra.

The scripts have the expected answers, so Cassandra is asked only whether these are right. With --recorded, a script
that passed there is not run against Cassandra again until its text or the oracle changes (proof/oracle/record.py).
Against Espalier, it has to pass as many checks as there.
"""

import argparse
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from proof import places, survival
from proof.drivers.builds import go, java, rust
from proof.oracle.cassandra import Cassandra
from proof.oracle.espalier import Espalier
from proof.oracle.record import Record

HERE = Path(__file__).resolve().parent
PYTHON = sys.executable
TOTALS = re.compile(r"^(\d+) passed, (\d+) failed$", re.MULTILINE)
TIMEOUT_SECONDS = 600


CLIENTS = {
    "python": lambda: [PYTHON, "-m", "proof.drivers.python_driver"],
    "cqlsh": lambda: [PYTHON, "-m", "proof.drivers.cqlsh_script"],
    "tls": lambda: [PYTHON, "-m", "proof.drivers.tls_script"],
    "java": java,
    "go": go,
    "rust": rust,
}

# What each script consists of.
SOURCES = {"python": (HERE / "python_driver.py",), "cqlsh": (HERE / "cqlsh_script.py",), "java": (HERE / "java",), "go": (HERE / "go",),
           "rust": (HERE / "rust",)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=["cassandra", "espalier"])
    parser.add_argument("--recorded", action="store_true", help="do not repeat what passed against Cassandra")
    parser.add_argument("clients", nargs="*", default=list(CLIENTS))
    options = parser.parse_args()
    if "go" in options.clients and shutil.which("go") is None:
        print("*** GO IS NOT INSTALLED: the gocql script is NOT run ***", flush=True)
        options.clients.remove("go")
    commands = {client: CLIENTS[client]() for client in options.clients}
    rows = []
    expected: dict[str, int] = {}
    if options.only != "espalier":
        rows += against_cassandra(commands, options.recorded, expected)
    if options.only != "cassandra":
        with Espalier.start() as node:
            ours = [(client, node.name, *script(command, node)) for client, command in commands.items()]
            rows += [*ours, survives(node)]
        rows += [as_many(client, passed, expected[client]) for client, _, passed, *_ in ours if client in expected]
    print()
    for client, server, passed, failed, seconds in rows:
        print(f"{client:13} against {server:10} {passed:5} passed {failed:4} failed {seconds:7.1f} s")
    passed, failed = sum(row[2] for row in rows), sum(row[3] for row in rows)
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


def against_cassandra(commands: dict[str, list[str]], may_be_recorded: bool, expected: dict[str, int]) -> list[tuple]:
    """Runs the scripts that have to be run against Cassandra: rows of the table. Enters in `expected` how
    many checks each script has."""
    records = {client: Record(f"drivers-{client}", (HERE / "checks.py", *SOURCES[client])) for client in commands if client in SOURCES}
    if may_be_recorded:
        expected |= {client: answers["passed"] for client, record in records.items() if (answers := record.answers())}
        for client, passed in expected.items():
            print(f"{client}: {passed} checks passed against Cassandra when they were recorded", flush=True)
    rows = []
    if waiting := [client for client in records if client not in expected]:
        with Cassandra.start() as node:
            rows = [(client, node.name, *script(commands[client], node)) for client in waiting]
    for client, _, passed, failed, _ in rows:
        expected[client] = passed
        if not failed:
            records[client].keep({"passed": passed})
    return rows


def as_many(client: str, passed: int, expected: int) -> tuple[str, str, int, int, float]:
    """A script must not leave out checks for one of the servers: as a row of the table."""
    if passed != expected:
        print(f"{client}: {passed} checks passed against Espalier, and {expected} against Cassandra", flush=True)
    return f"{client}, count", Espalier.name, passed == expected, passed != expected, 0.0


def script(command: list[str], node) -> tuple[int, int, float]:
    """Runs a client's script against a node: (passed, failed, seconds)."""
    started = time.monotonic()
    try:
        done = subprocess.run([*command, node.host, str(node.port)], cwd=places.ROOT, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors="replace", timeout=TIMEOUT_SECONDS)
        output, status = done.stdout, done.returncode
    except subprocess.TimeoutExpired as expired:
        output, status = (expired.stdout or b"").decode(errors="replace") + "\ntimed out", 1
    totals = TOTALS.findall(output)
    passed, failed = map(int, totals[-1]) if totals else (0, 1)
    if status != 0 and failed == 0:
        failed = 1
    if failed:
        print(f"--- {' '.join(command[-2:])} against {node.name}:\n{output[-12000:]}", flush=True)
    return passed, failed, time.monotonic() - started


def survives(node: Espalier) -> tuple[str, str, int, int, float]:
    """What the scripts have left is the same after a flush, a compaction, kill -9 and a
    start: as a row of the table."""
    started = time.monotonic()
    lost = survival.check(node)
    for text in lost:
        print(f"does not survive: {text}", flush=True)
    return "survival", node.name, not lost, len(lost), time.monotonic() - started


if __name__ == "__main__":
    main()
