"""Runs the drivers' scripts: python -m proof.drivers [--only cassandra|espalier] [CLIENT ...]

A script is called with HOST PORT and prints "N passed, N failed" last. Clients: python, cqlsh, tls, java, go, rust.
The script tls starts nodes of its own, and is not run against Cassandra.
"""

import argparse
import re
import shutil
import subprocess
import sys
import time

from proof import places, survival
from proof.drivers.builds import go, java, rust
from proof.oracle.cassandra import Cassandra
from proof.oracle.espalier import Espalier

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=["cassandra", "espalier"])
    parser.add_argument("clients", nargs="*", default=list(CLIENTS))
    options = parser.parse_args()
    if "go" in options.clients and shutil.which("go") is None:
        print("*** GO IS NOT INSTALLED: the gocql script is NOT run ***", flush=True)
        options.clients.remove("go")
    commands = {client: CLIENTS[client]() for client in options.clients}
    rows = []
    for name, kind in (("cassandra", Cassandra), ("espalier", Espalier)):
        if options.only in (None, name):
            with kind.start() as node:
                rows += [(client, name, *script(command, node)) for client, command in commands.items()
                         if client != "tls" or isinstance(node, Espalier)]
                if isinstance(node, Espalier):
                    rows.append(survives(node))
    print()
    for client, server, passed, failed, seconds in rows:
        print(f"{client:8} against {server:10} {passed:5} passed {failed:4} failed {seconds:7.1f} s")
    passed, failed = sum(row[2] for row in rows), sum(row[3] for row in rows)
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


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
    """What the scripts have left is the same after a flush, a compaction, kill -9 and a start: as a row of the table."""
    started = time.monotonic()
    lost = survival.check(node)
    for text in lost:
        print(f"does not survive: {text}", flush=True)
    return "survival", node.name, not lost, len(lost), time.monotonic() - started


if __name__ == "__main__":
    main()
