"""kill -9 of a Cassandra with tables of mode `storage`, again and again: every acknowledged
write is there after each start.

Writers with prepared statements write to one table until the node is killed. In a fifth of the cases the table just
stays in the mode, and Cassandra's own log is removed before the next start. In another fifth the table is truncated:
what was written before is gone once the statement was answered, and until then it is there or in a snapshot. In the
others the table moves into the mode, or out of it. The kill follows soon. The engine has little memory and the rows are
large, so that it flushes all the time. Three of four kills without TRUNCATE wait a moment for a file that a flush or a
merge is writing, because most of them would miss it.

usage: python -m proof.plugin.kill [--cases 200] [--seed 1] [--jar FILE] [--library FILE]
"""

import argparse
import os
import shutil
import signal
import struct
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from random import Random

from proof import places
from proof.oracle.cassandra import Cassandra
from proof.wire import Connection, ConnectionClosed, Error, QueryOptions, Rows

JAR = places.ROOT / "java" / "target" / "espalier-cassandra-0.1.0.jar"
WRITERS = 4
KEYS = 50               # of each writer; all of them take three times the engine's memory for memtables
PAD_BYTES = 16 << 10
ENGINE = {"memtable_space": "1MiB"}
MERGED_BYTES_MIN = 3 << 19      # a memtable makes a smaller one
# The plugin looks twice a second whether writes may skip Cassandra's log.
SETTLE_SECONDS = 1.2
FLUSH_SECONDS_MAX = 0.5     # a table that has left the engine has no flushes
# The part of the kills that meet a file which is being written, if there are many.
MET_PART_MIN, MANY_CASES = 1 / 4, 40
REPORTED_EVERY = 10         # kills
KINDS = ("stays", "moves in", "moves out", "truncated", "moves in and out")
DROPPED_EVERY = 7


def pad(version: int) -> bytes:
    """Returns bytes that a row has beside its version. They show whether both are of one write, and cannot be
    compressed."""
    return Random(version).randbytes(PAD_BYTES)


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
                insert = connection.prepare(f"INSERT INTO stored.{self.table} (k, c, v, pad) VALUES (?, ?, ?, ?)")
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
            numbers = [struct.pack(">i", value) for value in (self.number, key, version)]
            answer = connection.execute(insert, QueryOptions(values=(*numbers, pad(version))))
            if isinstance(answer, Error):
                self.refusal = answer.message
                return
            self.acknowledged[key] = version

    def lost(self, connection: Connection, before: dict[int, int]) -> list[str]:
        """Returns the rows that are not as acknowledged. Versions of `before`, and older ones, may be missing."""
        answer = connection.query(f"SELECT c, v, pad FROM stored.{self.table} WHERE k = {self.number}")
        if not isinstance(answer, Rows):
            return [f"the table cannot be read: {answer}"]
        found = {struct.unpack(">i", row[0])[0]: struct.unpack(">i", row[1])[0] for row in answer.rows}
        lost = [f"k {self.number}, c {key}: version {found.get(key)} in place of {version}"
                for key, version in self.acknowledged.items() if version > before.get(key, 0) and found.get(key, 0) < version]
        lost += [f"k {self.number}: version {struct.unpack('>i', row[1])[0]} has the pad of another" for row in answer.rows
                 if row[2] != pad(struct.unpack(">i", row[1])[0])]
        return lost + [f"k {self.number}, c {key}: version {version} was never sent" for key, version in found.items()
                       if version > self.sent.get(key, 0)]

    def returned(self, connection: Connection, truncated: dict[int, int]) -> list[str]:
        """Rows of these versions, or of older ones."""
        answer = connection.query(f"SELECT c, v FROM stored.{self.table} WHERE k = {self.number}")
        found = [[struct.unpack(">i", number)[0] for number in row] for row in answer.rows]
        return [f"k {self.number}, c {key}: version {version} is back after TRUNCATE" for key, version in found if version <= truncated.get(key, 0)]


class Truncation(threading.Thread):
    """TRUNCATE of the table while it is written to."""

    def __init__(self, node: Cassandra, table: str, writers: list[Writer]):
        super().__init__(daemon=True)
        self.node, self.table, self.writers = node, table, writers
        # What each writer knew to be written before the statement, and what it had sent before the answer; None until
        # then.
        self.before: list[dict[int, int]] | None = None
        self.sent: list[dict[int, int]] | None = None
        self.refusal: str | None = None

    def run(self) -> None:
        try:
            with Connection(self.node.host, self.node.port) as connection:
                self.before = [dict(writer.acknowledged) for writer in self.writers]
                answer = connection.query(f"TRUNCATE stored.{self.table}")
                if isinstance(answer, Error):
                    self.refusal = answer.message
                else:
                    self.sent = [dict(writer.sent) for writer in self.writers]
        except (ConnectionClosed, OSError):
            pass        # the node was killed

    def problems(self, connection: Connection) -> list[str]:
        """Returns the rows that the table lacks, or has again."""
        if self.refusal:
            return [f"refused: {self.refusal}"]
        if self.sent is not None:
            return [problem for writer, before, sent in zip(self.writers, self.before, self.sent)
                    for problem in (*writer.lost(connection, sent), *writer.returned(connection, before))]
        if self.has_snapshot():
            return [problem for writer in self.writers for problem in writer.lost(connection, writer.sent)]
        return [problem for writer in self.writers for problem in writer.lost(connection, {})]

    def has_snapshot(self) -> bool:
        """Returns whether there is a snapshot, which is complete when it has a manifest."""
        return any((self.node.directory / "data" / "stored").glob(f"{self.table}-*/snapshots/truncated-*/manifest.json"))


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


def truncate(node: Cassandra, table: str, writers: list[Writer], random: Random) -> Truncation:
    """Truncates the table, and returns after a while, if the node has answered or not."""
    truncation = Truncation(node, table, writers)
    truncation.start()
    truncation.join(random.uniform(0.0, 0.6 if random.random() < 0.6 else 3.0))
    return truncation


def await_flush(node: Cassandra, table: str) -> None:
    """Returns as soon as the engine writes an SSTable of the table, or after a while without one."""
    end = time.monotonic() + FLUSH_SECONDS_MAX
    directories: list[Path] = []
    while time.monotonic() < end:
        directories = directories or list((node.directory / "espalier" / "data").glob(f"t*/{table}-*"))
        if any(unfinished(directory) for directory in directories):
            return
        time.sleep(0.001)


def unfinished(directory: Path) -> list[str]:
    """The Data.db files of SSTables that are being written: the last file of each is missing."""
    try:
        names = set(os.listdir(directory))
    except FileNotFoundError:       # the table has left the engine
        return []
    return [name for name in names if name.endswith("-Data.db") and name.replace("Data.db", "TOC.txt") not in names]


@dataclass
class Case:
    """The result of a kill."""
    acknowledged: int
    lost: list[str]
    files: Counter      # of the engine at the kill


def files_of_the_engine(node: Cassandra, table: str) -> Counter:
    """The number of SSTables of a table that are whole, of those that are larger than any memtable, and of
    those that are being written."""
    files: Counter = Counter()
    for directory in (node.directory / "espalier" / "data").glob(f"t*/{table}-*"):
        left = unfinished(directory)
        whole = [file for file in directory.glob("*-Data.db") if file.name not in left]
        merged = [file for file in whole if file.stat().st_size > MERGED_BYTES_MIN]
        files.update(whole=len(whole), merged=len(merged), unfinished=len(left))
    return files


def one_case(node: Cassandra, number: int, random: Random) -> Case:
    kind = KINDS[number % len(KINDS)]
    table = f"t{number}"
    starts_stored = kind in ("stays", "moves out", "truncated")
    with Connection(node.host, node.port) as connection:
        answer = connection.query(f"CREATE TABLE stored.{table} (k int, c int, v int, pad blob, PRIMARY KEY (k, c)) "
                                  f"WITH memtable = '{'espalier_storage' if starts_stored else 'default'}'")
        if isinstance(answer, Error):
            return Case(0, [answer.message], Counter())
    time.sleep(SETTLE_SECONDS)
    writers = [Writer(node, table, writer) for writer in range(WRITERS)]
    for writer in writers:
        writer.start()
    end = time.monotonic() + 60
    while not all(writer.acknowledged or writer.refusal for writer in writers) and time.monotonic() < end:
        time.sleep(0.02)
    time.sleep(random.uniform(0.1, 0.8))
    truncation = truncate(node, table, writers, random) if kind == "truncated" else None
    if truncation is None:
        move(node, table, kind, random)
    if truncation is None and random.random() < 0.75:
        await_flush(node, table)
        time.sleep(random.uniform(0.0, 0.004))
    node.kill()
    for thread in (*writers, *([truncation] if truncation else [])):
        thread.join()
    files = files_of_the_engine(node, table)
    if kind == "stays":
        shutil.rmtree(node.directory / "commitlog", ignore_errors=True)
    node.launch()
    with Connection(node.host, node.port) as connection:
        lost = truncation.problems(connection) if truncation else problems(writers, connection)
        if kind.startswith("moves"):
            # The table moves on from where the crash left it.
            alter(node, table, random.choice(("espalier_storage", "espalier_left")))
            lost += [f"moved on: {problem}" for problem in problems(writers, connection)]
        if number % DROPPED_EVERY == DROPPED_EVERY - 1:
            connection.query(f"DROP TABLE stored.{table}")
    lost += [f"refused: {writer.refusal}" for writer in writers if writer.refusal]
    acknowledged = sum(len(writer.acknowledged) and max(writer.acknowledged.values()) for writer in writers)
    return Case(acknowledged, [f"{kind}: {text}" for text in lost], files)


def problems(writers: list[Writer], connection: Connection) -> list[str]:
    return [problem for writer in writers for problem in writer.lost(connection, {})]


def prove(jar: Path, seed: int, cases: int, library: Path | None = None) -> tuple[int, int]:
    """Returns how many cases passed and failed."""
    random = Random(seed)
    passed = failed = writes = kills_while_writing = 0
    files: Counter = Counter()
    with Cassandra.start(plugin=jar, durable=True, library=library, engine=ENGINE, auto_snapshot=True) as node:
        with Connection(node.host, node.port) as connection:
            connection.query("CREATE KEYSPACE stored WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
        for number in range(cases):
            case = one_case(node, number, random)
            writes += case.acknowledged
            files += case.files
            kills_while_writing += case.files["unfinished"] > 0
            is_right = case.acknowledged > 0 and not case.lost
            passed, failed = passed + is_right, failed + (not is_right)
            if not is_right:
                print(f"FAIL case {number}, seed {seed}: {case.acknowledged} acknowledged; {case.lost[:10]}", flush=True)
            if (number + 1) % REPORTED_EVERY == 0:
                print(f"{number + 1} kills, {writes} acknowledged writes, {failed} failed", flush=True)
    print(f"{cases} kills, {writes} acknowledged writes; the kills met {files['whole']} SSTables of the engine, of which {files['merged']} "
          f"were merged, and {files['unfinished']} that a flush or a merge was writing, at {kills_while_writing} of the kills", flush=True)
    if cases and not files["whole"]:
        print("FAIL no kill met an SSTable of the engine", flush=True)
        failed += 1
    if cases >= MANY_CASES and kills_while_writing < cases * MET_PART_MIN:
        print("FAIL few kills met an SSTable that was being written", flush=True)
        failed += 1
    return passed, failed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jar", type=Path, default=JAR)
    parser.add_argument("--library", type=Path, help="a native library in place of the one in the jar")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))     # the node ends too
    passed, failed = prove(options.jar, options.seed, options.cases, options.library)
    print(f"{passed} passed, {failed} failed", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
