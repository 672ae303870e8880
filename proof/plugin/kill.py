"""kill -9 of a Cassandra with tables of mode `storage`, again and again: every acknowledged write is there after each start.

Writers with prepared statements write to one table until the node is killed. In a third of the cases the table just stays in the mode, and
Cassandra's own log is removed before the next start. In the others the table moves into the mode, or out of it, and the kill follows soon.

usage: python -m proof.plugin.kill [--cases 200] [--seed 1] [--jar FILE] [--library FILE]
"""

import argparse
import shutil
import struct
import sys
import threading
import time
from pathlib import Path
from random import Random

from proof import places
from proof.oracle.cassandra import Cassandra
from proof.wire import Connection, ConnectionClosed, Error, QueryOptions, Rows

JAR = places.ROOT / "java" / "target" / "espalier-cassandra-0.1.0.jar"
WRITERS = 4
KEYS = 50
# The plugin looks twice a second whether writes may skip Cassandra's log.
SETTLE_SECONDS = 1.2
KINDS = ("stays", "moves in", "moves out", "moves in and out")


class Writer(threading.Thread):
    """Writes rising versions of the rows of its own partition, and remembers what was acknowledged."""

    def __init__(self, node: Cassandra, table: str, number: int):
        super().__init__(daemon=True)
        self.node, self.table, self.number = node, table, number
        self.acknowledged: dict[int, int] = {}
        self.sent: dict[int, int] = {}
        self.refusal: str | None = None

    def run(self) -> None:
        try:
            with Connection(self.node.host, self.node.port) as connection:
                insert = connection.prepare(f"INSERT INTO stored.{self.table} (k, c, v) VALUES (?, ?, ?)")
                if isinstance(insert, Error):
                    self.refusal = insert.message
                    return
                self.write(connection, insert)
        except (ConnectionClosed, OSError):
            pass        # the node was killed

    def write(self, connection: Connection, insert) -> None:
        version = 0
        while True:
            version += 1
            key = version % KEYS
            self.sent[key] = version
            answer = connection.execute(insert, QueryOptions(values=tuple(struct.pack(">i", value) for value in (self.number, key, version))))
            if isinstance(answer, Error):
                self.refusal = answer.message
                return
            self.acknowledged[key] = version

    def lost(self, connection: Connection) -> list[str]:
        answer = connection.query(f"SELECT c, v FROM stored.{self.table} WHERE k = {self.number}")
        if not isinstance(answer, Rows):
            return [f"the table cannot be read: {answer}"]
        found = {struct.unpack(">i", row[0])[0]: struct.unpack(">i", row[1])[0] for row in answer.rows}
        lost = [f"k {self.number}, c {key}: version {found.get(key)} in place of {version}"
                for key, version in self.acknowledged.items() if found.get(key, 0) < version]
        return lost + [f"k {self.number}, c {key}: version {version} was never sent" for key, version in found.items()
                       if version > self.sent.get(key, 0)]


def alter(node: Cassandra, table: str, memtable: str) -> None:
    try:
        with Connection(node.host, node.port) as connection:
            connection.query(f"ALTER TABLE stored.{table} WITH memtable = '{memtable}'")
    except (ConnectionClosed, OSError):
        pass        # the node was killed


def move(node: Cassandra, table: str, kind: str, random: Random) -> None:
    """Moves the table while it is written to, and returns as soon as the node answers, or not even then."""
    changes = {"stays": [], "moves in": ["espalier_storage"], "moves out": ["espalier_left"],
               "moves in and out": ["espalier_storage", "espalier_left", "espalier_storage"]}[kind]

    def run() -> None:
        for memtable in changes:
            alter(node, table, memtable)

    mover = threading.Thread(target=run, daemon=True)
    mover.start()
    mover.join(random.uniform(0.0, 1.0 if random.random() < 0.7 else 4.0))


def one_case(node: Cassandra, number: int, random: Random) -> tuple[int, list[str]]:
    """Returns how many writes were acknowledged, and what was lost of them."""
    kind = KINDS[number % len(KINDS)]
    table = f"t{number}"
    starts_stored = kind in ("stays", "moves out")
    with Connection(node.host, node.port) as connection:
        answer = connection.query(f"CREATE TABLE stored.{table} (k int, c int, v int, PRIMARY KEY (k, c)) "
                                  f"WITH memtable = '{'espalier_storage' if starts_stored else 'default'}'")
        if isinstance(answer, Error):
            return 0, [answer.message]
    time.sleep(SETTLE_SECONDS)
    writers = [Writer(node, table, writer) for writer in range(WRITERS)]
    for writer in writers:
        writer.start()
    end = time.monotonic() + 60
    while not all(writer.acknowledged or writer.refusal for writer in writers) and time.monotonic() < end:
        time.sleep(0.02)
    time.sleep(random.uniform(0.1, 0.8))
    move(node, table, kind, random)
    node.kill()
    for writer in writers:
        writer.join()
    if kind == "stays":
        shutil.rmtree(node.directory / "commitlog", ignore_errors=True)
    node.launch()
    with Connection(node.host, node.port) as connection:
        lost = [problem for writer in writers for problem in writer.lost(connection)]
        if kind != "stays":
            # The table moves on from where the crash left it.
            alter(node, table, random.choice(("espalier_storage", "espalier_left")))
            lost += [f"moved on: {problem}" for writer in writers for problem in writer.lost(connection)]
        if number % 5 == 4:
            connection.query(f"DROP TABLE stored.{table}")
    lost += [f"refused: {writer.refusal}" for writer in writers if writer.refusal]
    return sum(len(writer.acknowledged) and max(writer.acknowledged.values()) for writer in writers), [f"{kind}: {text}" for text in lost]


def prove(jar: Path, seed: int, cases: int, library: Path | None = None) -> tuple[int, int]:
    """Returns how many cases passed and failed."""
    random = Random(seed)
    passed = failed = writes = 0
    with Cassandra.start(plugin=jar, durable=True, library=library) as node:
        with Connection(node.host, node.port) as connection:
            connection.query("CREATE KEYSPACE stored WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
        for number in range(cases):
            acknowledged, lost = one_case(node, number, random)
            writes += acknowledged
            is_right = acknowledged > 0 and not lost
            passed, failed = passed + is_right, failed + (not is_right)
            if not is_right:
                print(f"FAIL case {number}, seed {seed}: {acknowledged} acknowledged; {lost[:10]}", flush=True)
    print(f"{cases} kills, {writes} acknowledged writes", flush=True)
    return passed, failed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jar", type=Path, default=JAR)
    parser.add_argument("--library", type=Path, help="a native library in place of the one in the jar")
    options = parser.parse_args()
    passed, failed = prove(options.jar, options.seed, options.cases, options.library)
    print(f"{passed} passed, {failed} failed", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
