"""Clients that write and read at QUORUM all the time, and know what every row may be.

Each writer has partitions of its own and sends rising timestamps, so a row is what was last acknowledged, or something
that was sent after that. Everything else is an error: a lost write, or one that came back.
"""

import struct
import threading
import time
from random import Random

from proof.ring.nodes import Node, Ring
from proof.wire import Connection, ConnectionClosed, Error, QueryOptions, Rows
from proof.wire.requests import QUORUM

WRITERS = 4
PARTITIONS = 50         # of each writer
ROWS = 4                # of each partition
PADDING = b"x" * 200
PAUSE_SECONDS = 0.005   # between two requests, so that the nodes have most of the processors' time
ABSENT = None
UNPREPARED = 0x2500
# The answers to requests that may have been carried out or not: Unavailable, Overloaded, bootstrapping, timeouts and
# failures of replicas.
UNCERTAIN = {0x1000, 0x1001, 0x1002, 0x1100, 0x1200, 0x1300, 0x1500}


class Unprepared(Exception):
    """The table was altered, so a driver would prepare its statements again."""


def integer(value: int) -> bytes:
    return struct.pack(">i", value)


class Writer(threading.Thread):
    def __init__(self, load: "Load", number: int):
        super().__init__(daemon=True)
        self.load = load
        self.number = number
        self.random = Random(f"{load.table} {number}")
        self.version = 0
        self.time = 0
        # For each row: what was last acknowledged, then all that was sent after it.
        self.possible: dict[tuple[int, int], list[int | None]] = {}
        self.acknowledged_count = 0
        self.coordinator: Node | None = None
        self.is_idle = False

    def run(self) -> None:
        while not self.load.is_ended:
            if self.load.is_paused:
                self.is_idle = True
                time.sleep(0.02)
                continue
            self.is_idle = False
            self.coordinator = self.random.choice(self.load.coordinators)
            try:
                with Connection(self.coordinator.host, self.coordinator.port) as connection:
                    self.work(connection)
            except Unprepared:
                pass
            except (ConnectionClosed, OSError) as broken:
                self.note(f"connection: {broken}")
                time.sleep(0.1)
        self.is_idle = True

    def work(self, connection: Connection) -> None:
        table = self.load.table
        texts = (f"INSERT INTO {table} (k, c, v, pad) VALUES (?, ?, ?, ?)",
                 f"DELETE FROM {table} WHERE k = ? AND c = ?", f"SELECT c, v FROM {table} WHERE k = ?")
        prepared = [connection.prepare(text) for text in texts]
        for answer in prepared:
            if isinstance(answer, Error):
                self.fail(answer)
                return
        insert, delete, select = prepared
        for number in range(200):       # then another coordinator
            if self.load.is_ended or self.load.is_paused or self.coordinator not in self.load.coordinators:
                return
            if number % 5 == 4:
                self.read(connection, select)
            else:
                self.write(connection, insert, delete)
            time.sleep(PAUSE_SECONDS)

    def write(self, connection: Connection, insert, delete) -> None:
        self.version += 1
        self.time = max(self.time + 1, time.time_ns() // 1000)
        row = self.number * PARTITIONS + self.random.randrange(PARTITIONS), self.random.randrange(ROWS)
        deletes = self.random.random() < 0.15
        outcome = ABSENT if deletes else self.version
        values = (integer(row[0]), integer(row[1])) + (() if deletes else (integer(self.version), PADDING))
        self.possible.setdefault(row, [ABSENT]).append(outcome)
        answer = connection.execute(delete if deletes else insert,
                                    QueryOptions(values=values, consistency=QUORUM, timestamp=self.time))
        if isinstance(answer, Error):
            self.fail(answer)
            return
        self.possible[row] = [outcome]
        self.acknowledged_count += 1

    def read(self, connection: Connection, select) -> None:
        partition = self.number * PARTITIONS + self.random.randrange(PARTITIONS)
        answer = connection.execute(select, QueryOptions(values=(integer(partition),), consistency=QUORUM))
        if not isinstance(answer, Rows):
            self.fail(answer)
            return
        self.load.wrong += self.wrong(partition, answer.rows)

    def wrong(self, partition: int, rows: list[tuple]) -> list[str]:
        """Returns what a partition has and may not have, or lacks and has to have."""
        found = {struct.unpack(">i", row[0])[0]: struct.unpack(">i", row[1])[0] for row in rows}
        possible = {row: self.possible.get((partition, row), [ABSENT]) for row in range(ROWS)}
        return [f"{self.load.table} k {partition} c {row}: {found.get(row)}, not one of {possible[row]}"
                for row in range(ROWS) if found.get(row) not in possible[row]]

    def note(self, error: str) -> None:
        # A node that was taken from the coordinators may be gone before its last writer has noticed that.
        if self.coordinator in self.load.coordinators:
            self.load.errors.append(f"{self.coordinator.host}: {error}")

    def fail(self, answer) -> None:
        if answer.code == UNPREPARED:
            raise Unprepared
        self.note(f"{answer.code:#x} {answer.message}")
        if answer.code not in UNCERTAIN:
            self.load.wrong.append(f"{self.coordinator.host}: {answer.code:#x} {answer.message}")
        time.sleep(0.05)


class Load:
    """Writers on one table, paused at first. `errors` are requests that failed, `wrong` what may not be."""

    def __init__(self, ring: Ring, table: str):
        self.ring = ring
        self.table = table
        self.coordinators = list(ring.nodes)
        self.is_paused = True
        self.is_ended = False
        self.errors: list[str] = []
        self.wrong: list[str] = []
        self.writers = [Writer(self, number) for number in range(WRITERS)]
        for writer in self.writers:
            writer.start()

    @property
    def acknowledged_count(self) -> int:
        return sum(writer.acknowledged_count for writer in self.writers)

    def use(self, coordinators: list[Node]) -> None:
        """Sends requests to these nodes only. Returns when no request is under way at another one."""
        self.coordinators = list(coordinators)
        while not self.is_paused and any(writer.coordinator not in self.coordinators for writer in self.writers):
            time.sleep(0.02)

    def resume(self) -> None:
        self.is_paused = False

    def pause(self) -> None:
        """Returns when no request is under way."""
        self.is_paused = True
        while not all(writer.is_idle for writer in self.writers):
            time.sleep(0.02)

    def run_for(self, seconds: float, writes: int = 100) -> None:
        """Lets the writers work, until they have written something."""
        before, end = self.acknowledged_count, time.monotonic() + 600
        self.resume()
        time.sleep(seconds)
        while self.acknowledged_count < before + writes:
            if time.monotonic() > end:
                raise RuntimeError(f"no {writes} writes within 600 seconds: {self.errors[-3:]}")
            time.sleep(0.05)

    def verify(self) -> list[str]:
        """Reads every partition at QUORUM, by its key and in a scan, with the writers paused. Returns what is wrong."""
        was_paused = self.is_paused
        self.pause()
        node = self.coordinators[0]
        problems = []
        with Connection(node.host, node.port) as connection:
            scanned = self.scan(connection)
            for writer in self.writers:
                for partition in range(writer.number * PARTITIONS, (writer.number + 1) * PARTITIONS):
                    answer = connection.query(f"SELECT c, v FROM {self.table} WHERE k = {partition}",
                                              QueryOptions(consistency=QUORUM))
                    if not isinstance(answer, Rows):
                        problems.append(f"k {partition}: {answer}")
                        continue
                    # A write whose outcome is not known may be seen by one of the two reads alone.
                    problems += writer.wrong(partition, answer.rows)
                    problems += [f"scan: {problem}" for problem in writer.wrong(partition, scanned.get(partition, []))]
        self.is_paused = was_paused
        return problems + self.wrong

    def scan(self, connection: Connection) -> dict[int, list[tuple]]:
        found: dict[int, list[tuple]] = {}
        state = None
        while True:
            answer = connection.query(f"SELECT k, c, v FROM {self.table}",
                                      QueryOptions(consistency=QUORUM, page_size=97, paging_state=state))
            if not isinstance(answer, Rows):
                raise RuntimeError(f"scan of {self.table}: {answer}")
            for key, *row in answer.rows:
                found.setdefault(struct.unpack(">i", key)[0], []).append(tuple(row))
            state = answer.metadata.paging_state
            if state is None:
                return found

    def truncated(self) -> None:
        """Notes that the table was truncated while the writers were paused."""
        for writer in self.writers:
            writer.possible.clear()

    def end(self) -> None:
        self.is_ended = True
        for writer in self.writers:
            writer.join(120)
