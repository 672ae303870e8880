"""Many writers and little memory: no write waits for memory that nobody frees.

In both modes 64 writers write small and large values to two tables, many times the size of the memory for memtables.
Every write is acknowledged within its own timeout, memtables are flushed meanwhile, and every row is read back. Then
the same with much memory, but little room in each shard of a memtable.
"""

import struct
import threading
import time
from pathlib import Path
from random import Random

from proof.oracle.cassandra import Cassandra, set_lines
from proof.wire import Connection, Error, QueryOptions, Rows

WRITERS = 64
ROWS = 12               # of each partition; a writer has a partition in each table
MIB = 1 << 20
POOL_MIB = 16
# A write in Cassandra's messaging form may be half a segment of the log, 16 MiB.
LARGEST = 8 * MIB
SIZES = (10, 200, 2_000, 20_000, 60_000)
LARGE_SIZES = (1 * MIB, 2 * MIB, 4 * MIB, LARGEST)
PAGE_SIZE = 3
READERS = 4
TABLE = "(k int, c int, n int, w text, v blob, PRIMARY KEY (k, c)) WITH memtable = "
SETTINGS = {
    "memtable_offheap_space": f"{POOL_MIB}MiB", "concurrent_writes": "64", "native_transport_max_threads": "64",
}
# Each with its writes, and the part of them that is large. The engine has a sixteenth of the memory, and its log is
# synced before a write is acknowledged.
MODES = {"memtable": ("espalier", 20, 100), "storage": ("espalier_storage", 14, 200)}

# A memtable has as many shards as there are processors. Half of a shard has room for the writes that are under way at
# once.
SMALL_SHARDS = ("-Despalier.shard_bytes=4194304", "-XX:ActiveProcessorCount=2")
STEPS_OF_SMALL_SHARDS = 30
NEVER = 1 << 30


def value(writer: int, row: int, step: int, size: int) -> bytes:
    """Bytes that no other write has."""
    return (struct.pack(">iii", writer, row, step) + Random(step).randbytes(1000) * (size // 1000 + 1))[:max(size, 12)]


class Writer(threading.Thread):
    """Writes to its own partitions, and knows what each row has to be."""

    def __init__(self, node: Cassandra, tables: tuple[str, ...], number: int, steps: int, large_one_in: int,
                 seed: int):
        super().__init__(daemon=True)
        self.node, self.tables, self.number, self.steps = node, tables, number, steps
        self.large_one_in = large_one_in
        self.random = Random(f"{seed} {tables} {number}")
        self.expected: dict[tuple[str, int], bytes] = {}
        self.byte_count = 0
        self.refusals: list[str] = []

    def run(self) -> None:
        try:
            with Connection(self.node.host, self.node.port) as connection:
                for step in range(self.steps):
                    for table in self.tables:
                        self.write(connection, table, step)
        except Exception as broken:     # the test fails with it
            self.refusals.append(f"{type(broken).__name__}: {broken}")

    def write(self, connection: Connection, table: str, step: int) -> None:
        is_large = self.random.randrange(self.large_one_in) == 0
        size = self.random.choice(LARGE_SIZES if is_large else SIZES)
        row = self.random.randrange(ROWS)
        written = value(self.number, row, step, size)
        refusal = insert(connection, table, self.number, row, written)
        if refusal:
            self.refusals.append(f"writer {self.number}, {table}, {size} bytes: {refusal}")
        self.expected[table, row] = written
        self.byte_count += size

    def wrong(self, connection: Connection) -> list[str]:
        """Returns the rows that the partitions have and should not have, or the other way round."""
        problems = []
        for table in self.tables:
            found = dict(read(connection, f"SELECT c, v FROM {table} WHERE k = {self.number}"))
            expected = {row: written for (of, row), written in self.expected.items() if of == table}
            if found != expected:
                sizes = [{row: len(written) for row, written in rows.items()} for rows in (expected, found)]
                problems.append(f"{table}, k {self.number}: rows of {sizes[1]} bytes in place of {sizes[0]}")
        return problems


def insert(connection: Connection, table: str, key: int, row: int, written: bytes) -> str | None:
    """Returns why the write was not acknowledged."""
    if table not in connection.prepared:
        connection.prepared[table] = connection.prepare(f"INSERT INTO {table} (k, c, n, w, v) VALUES (?, ?, ?, ?, ?)")
    numbers = [struct.pack(">i", number) for number in (key, row, len(written))]
    values = (*numbers, f"w{len(written) % 7}".encode(), written)
    answer = connection.execute(connection.prepared[table], QueryOptions(values=values))
    return answer.message if isinstance(answer, Error) else None


def read(connection: Connection, statement: str) -> list[tuple[int, bytes]]:
    found, state = [], None
    while True:
        answer = connection.query(statement, QueryOptions(page_size=PAGE_SIZE, paging_state=state))
        if not isinstance(answer, Rows):
            raise RuntimeError(f"{statement}: {answer}")
        found += [(struct.unpack(">i", row)[0], written) for row, written in answer.rows]
        state = answer.metadata.paging_state
        if state is None:
            return found


class Proof:
    def __init__(self, node: Cassandra, seed: int):
        self.node, self.seed = node, seed
        self.passed = self.failed = 0

    def check(self, name: str, right: bool, detail: object = "") -> None:
        self.passed, self.failed = self.passed + right, self.failed + (not right)
        if not right:
            print(f"FAIL {name}: {str(detail)[:3000]}", flush=True)

    def require(self, statement: str) -> None:
        with Connection(self.node.host, self.node.port) as connection:
            answer = connection.query(statement)
        if isinstance(answer, Error):
            raise RuntimeError(f"{statement}: {answer.message}")

    def one_large_write(self, mode: str, table: str) -> None:
        """Writes one large value, and nothing else has to be flushed, so that nothing else would wake a write that
        waits for memory."""
        self.node.flush("pressed")
        with Connection(self.node.host, self.node.port) as connection:
            refusal = insert(connection, table, -1, 0, value(-1, 0, 0, LARGEST))
        self.check(f"{mode}: a write of half the memory, alone", refusal is None, refusal)

    def many_writes(self, mode: str, tables: tuple[str, ...], steps: int, large_one_in: int) -> None:
        began = time.monotonic()
        writers = [Writer(self.node, tables, number, steps, large_one_in, self.seed) for number in range(WRITERS)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        refusals = [refusal for writer in writers for refusal in writer.refusals]
        written_mib = sum(writer.byte_count for writer in writers) / MIB
        print(f"{mode}: {WRITERS} writers, {written_mib:.0f} MiB, {time.monotonic() - began:.1f} s", flush=True)
        self.check(f"{mode}: every write is acknowledged", not refusals, f"{len(refusals)}: {refusals[:5]}")
        self.check(f"{mode}: more is written than there is memory", written_mib > 3 * POOL_MIB, f"{written_mib} MiB")
        problems: list[str] = []
        threads = [threading.Thread(target=self.read_back, args=(writers[first::READERS], problems))
                   for first in range(READERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.check(f"{mode}: every row is read", not problems, f"{len(problems)}: {problems[:5]}")

    def read_back(self, writers: list[Writer], problems: list[str]) -> None:
        try:
            with Connection(self.node.host, self.node.port) as connection:
                for writer in writers:
                    problems += writer.wrong(connection)
        except Exception as broken:     # the test fails with it
            problems.append(f"{type(broken).__name__}: {broken}")

    def files(self, mode: str, table: str) -> list[Path]:
        """Returns the files that were flushed although nobody asked for it."""
        if mode == "memtable":
            return self.node.sstables(*table.split("."))
        name = table.split(".")[1]
        return list((self.node.directory / "espalier" / "data").glob(f"t*/{name}-*/*-Data.db"))


def prove(jar: Path, seed: int, library: Path | None = None) -> tuple[int, int]:
    """Returns how many checks passed and failed."""
    with Cassandra.start(plugin=jar, library=library, settings=SETTINGS, engine={"memtable_space": "1MiB"}) as node:
        proof = Proof(node, seed)
        proof.require("CREATE KEYSPACE pressed WITH replication = "
                      "{'class': 'SimpleStrategy', 'replication_factor': 1}")
        for mode, (memtable, steps, large_one_in) in MODES.items():
            tables = tuple(f"pressed.{mode}_{number}" for number in (1, 2))
            for table in tables:
                proof.require(f"CREATE TABLE {table} {TABLE} '{memtable}'")
            if mode == "memtable":
                proof.require(f"CREATE INDEX by_w ON {tables[1]} (w)")
                proof.require(f"CREATE INDEX by_n ON {tables[1]} (n) USING 'sai'")
            proof.one_large_write(mode, tables[0])
            proof.many_writes(mode, tables, steps, large_one_in)
            for table in tables:
                proof.check(f"{mode}: {table} was flushed", len(proof.files(mode, table)) > 0)
        fill_small_shards(proof)
        return proof.passed, proof.failed


def fill_small_shards(proof: Proof) -> None:
    """The pool of memory has room for all rows. A shard has none, so its memtable has to
    be flushed before it is full."""
    node = proof.node
    node.command("drain")
    node.end()
    set_lines(node.directory / "cassandra.yaml", {"memtable_offheap_space": "512MiB"})
    node.jvm_flags = SMALL_SHARDS
    node.launch()
    tables = ("pressed.small_1", "pressed.small_2")
    for table in tables:
        proof.require(f"CREATE TABLE {table} {TABLE} 'espalier'")
    proof.many_writes("small shards", tables, STEPS_OF_SMALL_SHARDS, NEVER)
    for table in tables:
        proof.check(f"small shards: {table} was flushed", len(node.sstables(*table.split("."))) > 0)
