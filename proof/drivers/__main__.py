"""Runs the drivers' scripts: python -m proof.drivers [--only cassandra|espalier] [CLIENT ...]

A script is called with HOST PORT and prints "N passed, N failed" last. Clients: python, cqlsh, tls, java, go, rust.
The script tls starts nodes of its own, and is not run against Cassandra.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from proof import places, survival
from proof.oracle.cassandra import Cassandra
from proof.oracle.espalier import Espalier

HERE = Path(__file__).resolve().parent
PYTHON = sys.executable
TOTALS = re.compile(r"^(\d+) passed, (\d+) failed$", re.MULTILINE)
TIMEOUT_SECONDS = 600


def java() -> list[str]:
    target = places.CACHE / "java-driver"
    if not (target / "classes" / "DriverScript.class").exists() or newer(HERE / "java", target / "classes" / "DriverScript.class"):
        run("mvn", "--batch-mode", "--quiet", "-f", HERE / "java" / "pom.xml", "dependency:copy-dependencies",
            "-DincludeScope=runtime", f"-DoutputDirectory={target / 'lib'}")
        (target / "classes").mkdir(parents=True, exist_ok=True)
        run("javac", "-nowarn", "-d", target / "classes", "-cp", f"{target / 'lib'}/*", HERE / "java" / "DriverScript.java")
    return ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m", "-cp", f"{target / 'classes'}:{target / 'lib'}/*", "DriverScript"]


def go() -> list[str]:
    binary = places.CACHE / "go-driver" / "script"
    environment = {**os.environ, "GOFLAGS": "-mod=mod -buildvcs=false", "GOTOOLCHAIN": "local"}
    subprocess.run(["go", "build", "-o", str(binary), "."], cwd=HERE / "go", env=environment, check=True)
    return [str(binary)]


def rust() -> list[str]:
    target = places.CACHE / "rust-driver"
    run("cargo", "build", "--quiet", "--locked", "--manifest-path", HERE / "rust" / "Cargo.toml", "--target-dir", target)
    return [str(target / "debug" / "rust-driver-script")]


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


def newer(directory: Path, than: Path) -> bool:
    return any(file.stat().st_mtime > than.stat().st_mtime for file in directory.iterdir() if file.is_file())


def run(*command) -> None:
    subprocess.run([str(word) for word in command], check=True)


if __name__ == "__main__":
    main()
