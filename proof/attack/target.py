"""The node that is attacked: its tables, its memory, and the honest load that attacks are measured against."""

import os
import re
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from proof.oracle.espalier import Espalier
from proof.wire import Connection, ConnectionClosed, Error, QueryOptions, Rows
from proof.wire import requests

MIB = 1 << 20
# The memory that the node may take in addition to its memory after the start with the tables below.
BUDGET_MIB = {
    "memtable_offheap_space": 64,
    "file_cache_size": 32,
    "prepared_statements_cache_size": 10,
    "native_transport_max_request_data_in_flight": 96,
    "statement_memory_limit": 32,
}
# Attackers and the probe come from one address here.
SETTINGS = {name: f"{mib}MiB" for name, mib in BUDGET_MIB.items()} | {
    "native_transport_max_request_data_in_flight_per_ip": "96MiB",
    "page_size_limit": "2MiB",
}
SCHEMA = (
    "CREATE KEYSPACE attack WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
    "CREATE TABLE attack.probe (k int PRIMARY KEY, v int)",
    "CREATE TABLE attack.t (k int PRIMARY KEY, i int, b blob, m map<int, int>, l list<int>)",
    "CREATE TABLE attack.wide (p int, c int, v blob, PRIMARY KEY (p, c))",
    "CREATE TABLE attack.tall (p int, c int, v int, PRIMARY KEY (p, c))",
    "CREATE TABLE attack.cube (a int, b int, c int, v int, PRIMARY KEY ((a, b, c)))",
    "CREATE TABLE attack.n (k int PRIMARY KEY, v varint, d decimal)",
)
WIDE_ROWS, WIDE_VALUE_BYTES = 2000, 4096
TALL_PARTITIONS, TALL_ROWS, TALL_BATCH_ROWS = 3, 50_000, 500
BLOB_BYTES = 1 * MIB
TIMEOUT_SECONDS = 20
UNLOGGED = 1
HONEST_CONNECTIONS, HONEST_PIPELINED = 4, 32


class Target:
    wide_rows, page_bytes = WIDE_ROWS, 2 * MIB

    def __init__(self, node: Espalier):
        self.node = node
        self.host, self.port = node.host, node.port

    @staticmethod
    def start() -> "Target":
        target = Target(Espalier.start(in_memory=True, **SETTINGS))
        for cql in SCHEMA:
            target.must(cql)
        target.fill()
        return target

    def fill(self) -> None:
        with self.connect() as connection:
            blob = connection.prepare("INSERT INTO attack.t (k, i, b) VALUES (1, 1, ?)")
            wide = connection.prepare("INSERT INTO attack.wide (p, c, v) VALUES (1, ?, ?)")
            answers = [connection.execute(blob, QueryOptions((bytes(BLOB_BYTES),)))]
            for c in range(WIDE_ROWS):
                answers.append(connection.execute(wide, QueryOptions((c.to_bytes(4, "big"), bytes(WIDE_VALUE_BYTES)))))
            tall = connection.prepare("INSERT INTO attack.tall (p, c, v) VALUES (?, ?, ?)")
            for p in range(1, 1 + TALL_PARTITIONS):
                for first in range(0, TALL_ROWS, TALL_BATCH_ROWS):
                    rows = [(tall.id, (p.to_bytes(4, "big"), c.to_bytes(4, "big"), c.to_bytes(4, "big")))
                            for c in range(first, first + TALL_BATCH_ROWS)]
                    answers.append(connection.batch(UNLOGGED, rows))
        failed = [answer for answer in answers if isinstance(answer, Error)]
        if failed:
            raise RuntimeError(f"the tables cannot be filled: {failed[0]}")

    def connect(self, version: int = 5) -> Connection:
        connection = Connection(self.host, self.port, version, startup=False)
        connection.socket.settimeout(TIMEOUT_SECONDS)
        connection.startup()
        return connection

    def raw(self) -> socket.socket:
        """A connection without STARTUP."""
        return socket.create_connection((self.host, self.port), TIMEOUT_SECONDS)

    def query(self, cql: str, version: int = 5):
        with self.connect(version) as connection:
            return connection.query(cql)

    def together(self, texts: list[str], options: QueryOptions = QueryOptions()) -> list:
        """The answers to these statements, each on a connection of its own and all at the same time."""
        return self.all_at_once([(requests.QUERY, requests.query(text, options, 5)) for text in texts])

    def prepared_together(self, texts: list[str]) -> list:
        """The answers to PREPARE of these statements, as `together`."""
        return self.all_at_once([(requests.PREPARE, requests.prepare(text, 5)) for text in texts])

    def all_at_once(self, messages: list[tuple[int, bytes]]) -> list:
        def ask(opcode: int, body: bytes):
            with self.connect() as connection:
                return connection.request(opcode, body)
        with ThreadPoolExecutor(len(messages)) as pool:
            return list(pool.map(lambda message: ask(*message), messages))

    def pipelined(self, count: int, cql: str, values: tuple = ()) -> list:
        """The answers to one statement, sent `count` times on one connection before the first answer is read."""
        if values:
            return self.executed_together(cql, [values] * count)
        with self.connect() as connection:
            for _ in range(count):
                connection.send(requests.QUERY, requests.query(cql, QueryOptions(), 5))
            return [connection.receive()[1] for _ in range(count)]

    def executed_together(self, cql: str, all_values: list[tuple]) -> list:
        """The answers to one prepared statement, sent with each of these values before the first answer is read."""
        with self.connect() as connection:
            statement = connection.prepare(cql)
            for values in all_values:
                connection.send(requests.EXECUTE, requests.execute(statement.id, statement.metadata_id, QueryOptions(values), 5))
            return [connection.receive()[1] for _ in all_values]

    def must(self, cql: str):
        answer = self.query(cql)
        if isinstance(answer, Error):
            raise RuntimeError(f"{cql}: {answer}")
        return answer

    def is_alive(self) -> bool:
        return self.node.process.poll() is None

    def serves(self) -> bool:
        try:
            return isinstance(self.query("SELECT i FROM attack.t WHERE k = 1"), Rows)
        except (ConnectionClosed, OSError):
            return False

    # Processor and memory

    def cpu_seconds(self) -> float:
        """The processor time, in seconds, that the node has used since it started."""
        fields = open(f"/proc/{self.node.process.pid}/stat").read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def status(self, name: str) -> int:
        status = open(f"/proc/{self.node.process.pid}/status").read()
        return int(re.search(rf"^{name}:\s+(\d+)", status, re.MULTILINE)[1])

    def status_mib(self, name: str) -> float:
        return self.status(name) / 1024

    def resident_mib(self) -> float:
        return self.status_mib("VmRSS")

    def forget_peak(self) -> None:
        """Resets the kernel's record of the node's largest resident memory."""
        with open(f"/proc/{self.node.process.pid}/clear_refs", "w") as file:
            file.write("5")

    def peak_mib(self) -> float:
        return self.status_mib("VmHWM")

    # Honest load

    def honest_load(self, seconds: float) -> None:
        """Runs a few clients that read pages, read and write rows, and read their answers."""
        end = time.monotonic() + seconds
        clients = [threading.Thread(target=self.honest_client, args=(end,)) for _ in range(HONEST_CONNECTIONS)]
        for client in clients:
            client.start()
        for client in clients:
            client.join()

    def honest_client(self, end: float) -> None:
        with self.connect() as connection:
            bodies = [requests.query(cql, QueryOptions(page_size=100), 5) for cql in (
                "SELECT i FROM attack.t WHERE k = 1", "INSERT INTO attack.t (k, i) VALUES (2, 2)", "SELECT * FROM attack.wide")]
            while time.monotonic() < end:
                for number in range(HONEST_PIPELINED):
                    connection.send(requests.QUERY, bodies[number % len(bodies)])
                for _ in range(HONEST_PIPELINED):
                    connection.receive_message()
