"""The instructions that the server itself executes for an operation, from the request's bytes to the answer's. The
figure is the same on every machine, however busy. Counted by valgrind's callgrind, where there is one; it runs the
server some fifty times slower.

    python -m bench.harness.instructions [--roles] [FUNCTIONS]

prints it for each load and, if asked, where it goes (over two connections). With --roles also on a node where clients
log in and statements need permissions, and the ratio of the two.
"""

import argparse
import itertools
import re
import shutil
import subprocess

from bench.harness import load
from bench.harness.scenarios import tables
from bench.harness.servers import Espalier, execute
from proof.wire import Connection

KEYSPACE = "counted"
PARTITIONS = 10_000
# Two runs, of which one is twice as long: their difference has no connecting, preparing and checking in it.
OPERATIONS = 6_000
READS_PERCENT = {"writes": 0, "memtable reads": 100, "half and half": 50}
TOOL = ("valgrind", "--tool=callgrind", "--instr-atstart=no", "--separate-threads=no", "--quiet")


class Counted(Espalier):
    """A node whose instructions can be counted."""

    def launch(self) -> None:
        self.under = (*TOOL, f"--callgrind-out-file={self.directory / 'callgrind.out'}")
        super().launch()

    def control(self, *options: str) -> None:
        subprocess.run(["callgrind_control", *options, str(self.pid)], check=True, capture_output=True, timeout=60)

    def count(self, reads_percent: int, operations: int, connections: int) -> int:
        """Instructions during a load."""
        known = set(self.directory.glob("callgrind.out.*"))
        self.control("--instr=on")
        load.run(self, KEYSPACE, tables.uniform("kv", PARTITIONS), seed=5, reads_percent=reads_percent, operations=operations,
                 connections=connections, check=1)
        self.control("--dump=load")
        self.control("--instr=off")
        (self.dump,) = set(self.directory.glob("callgrind.out.*")) - known
        return int(re.findall(r"^totals: (\d+)", self.dump.read_text(), re.MULTILINE)[-1])


class WithRoles(Counted):
    """A node whose clients have an ordinary role with permissions on the keyspace."""

    superuser = ("cassandra", "cassandra")

    @classmethod
    def start(cls, **settings: str) -> "WithRoles":
        # A password is hashed once: a hash takes as much as thousands of operations.
        return super().start(authenticator="PasswordAuthenticator", authorizer="CassandraAuthorizer", credentials_validity="1h", **settings)

    def let_in(self) -> None:
        """Makes clients log in as an ordinary role from now on."""
        execute(self, "CREATE ROLE counted WITH LOGIN = true AND PASSWORD = 'counted'",
                *(f"GRANT {permission} ON KEYSPACE {KEYSPACE} TO counted" for permission in ("SELECT", "MODIFY")))
        self.login = ("counted", "counted")
        Connection(self.host, self.port, 4, login=self.login).close()


def is_possible() -> bool:
    return bool(shutil.which("valgrind") and shutil.which("callgrind_control"))


def per_operation(connections: tuple[int, ...] = (2,), functions: int = 0, kind: type[Counted] = Counted) -> dict[str, float]:
    """Instructions per operation of each load, over a number of connections. Prints the
    `functions` with most instructions."""
    counted = {}
    with kind.start(memtable_mb=256) as node:
        tables.make(node, KEYSPACE, {"kv": tables.KEY_VALUE})
        if isinstance(node, WithRoles):
            node.let_in()
        tables.fill(node, KEYSPACE, "kv", PARTITIONS)
        for many, (load_name, reads_percent) in itertools.product(connections, READS_PERCENT.items()):
            name = f"{load_name}, {many} connections"
            short = node.count(reads_percent, OPERATIONS, many)
            counted[name] = (node.count(reads_percent, 2 * OPERATIONS, many) - short) / OPERATIONS
            if functions:
                print(name, *annotated(node.dump, 2 * OPERATIONS)[:functions], sep="\n", flush=True)
    return counted


def annotated(dump, operations: int) -> list[str]:
    """The instructions of each function for an operation, without those of the functions that it calls, most first.
    (The percentages that callgrind_annotate prints are of the difference to the dump before.)"""
    done = subprocess.run(["callgrind_annotate", "--threshold=100", "--auto=no", str(dump)], check=True, capture_output=True, text=True)
    found = re.findall(r"^ *([\d,]+) \([^)]*\) +(?! *PROGRAM)(.*)$", done.stdout, re.MULTILINE)
    return [f"{int(count.replace(',', '')) / operations:8.0f}  {function[:150]}" for count, function in found]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--roles", action="store_true", help="also with roles")
    parser.add_argument("functions", nargs="?", type=int, default=0, help="how many functions are shown")
    options = parser.parse_args()
    plain = per_operation((2,), options.functions)
    for load_name, count in plain.items():
        print(f"{load_name:32}{count:10,.0f} instructions per operation", flush=True)
    if options.roles:
        for load_name, count in per_operation((2,), options.functions, WithRoles).items():
            ratio = 100 * (count / plain[load_name] - 1)
            print(f"{load_name + ', roles':32}{count:10,.0f} instructions per operation, {ratio:+.2f} %", flush=True)


if __name__ == "__main__":
    main()
