"""The processor time of an operation over TLS, beside that of the same operation over plain
connections of the same server."""

import os
import shutil
import ssl
import struct
import tempfile
from dataclasses import dataclass
from pathlib import Path

from bench.harness import servers
from bench.harness.length import Length
from bench.harness.outcome import Outcome, Table, median, spread
from bench.harness.rounds import Progress, System, interleaved
from bench.harness.servers import Cassandra, Espalier
from bench.harness.session import Session
from proof.drivers.tls_script import authority, identity, openssl
from proof.wire import Connection, Error, QueryOptions, requests

KEYSPACE = "bench_tls"
CONNECTIONS = 2
# Requests of a connection that are sent together, and whose answers are then read.
BURST = 64
HEADER = struct.Struct(">BBhBi")


@dataclass(frozen=True)
class Plan:
    rounds: int
    operations: int
    warmup: int


PLANS = {Length.FULL: Plan(5, 200_000, 100_000), Length.SHORT: Plan(5, 50_000, 50_000), Length.SMOKE: Plan(1, 10_000, 5_000)}
SIZES = (100, 1_000, 16_000)


def run(session: Session) -> Outcome:
    plan = PLANS[session.length]
    outcome = Outcome("tls", settings={"connections": CONNECTIONS, "requests together": BURST, "operations": plan.operations,
                                       "rounds": plan.rounds, "cipher suite": "the first that both accept, TLS 1.3"})
    directory = Path(tempfile.mkdtemp(prefix="bench-tls-"))
    try:
        options = certificates(directory)
        context = ssl.create_default_context(cafile=directory / "authority.pem")
        costs = {}
        for kind in (Cassandra, Espalier):
            with kind.start(client_encryption_options=options) as node:
                outcome.settings[node.name] = node.settings
                measure(System(node.name, node, KEYSPACE), context, plan, costs)
    finally:
        shutil.rmtree(directory)
    rows = []
    for (system, what), by_kind in costs.items():
        plain, tls = by_kind["plain"], by_kind["tls"]
        rows.append([system, what, spread(plain), spread(tls), f"{median(tls) / median(plain):.2f}"])
    outcome.tables.append(Table("processor time of the server, µs per operation", ["system", "load", "plain", "TLS", "ratio"], rows))
    return outcome


def certificates(directory: Path) -> str:
    """Makes keys for a server, and returns the option with which it accepts both kinds of connections."""
    authority(directory, "authority")
    identity(directory, "node", "authority")
    store = directory / "node.p12"
    openssl("pkcs12", "-export", "-in", directory / "node.pem", "-inkey", directory / "node.key", "-passout", "pass:secret", "-out", store)
    return f"{{enabled: true, optional: true, keystore: {store}, keystore_password: secret, store_type: PKCS12}}"


def measure(system: System, context: ssl.SSLContext, plan: Plan, costs: dict) -> None:
    node = system.node
    servers.execute(node, f"CREATE KEYSPACE {KEYSPACE} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}",
                    f"CREATE TABLE {KEYSPACE}.kv (key int PRIMARY KEY, value blob)")
    kinds = [System("plain", node, KEYSPACE), System("tls", node, KEYSPACE)]
    for size in SIZES:
        value = os.urandom(size)
        for what, statement in (("writes", f"INSERT INTO {KEYSPACE}.kv (key, value) VALUES (?, ?)"),
                                ("reads", f"SELECT value FROM {KEYSPACE}.kv WHERE key = ?")):
            values = [value] if what == "writes" else []
            progress = Progress(f"tls {node.name}", 2 * plan.rounds)

            def one_run(kind: System, _: int) -> float:
                clients = [Client(node, context if kind.name == "tls" else None, statement, values) for _ in range(CONNECTIONS)]
                drive(clients, plan.warmup // 10)
                before = servers.cpu_seconds(node)
                drive(clients, plan.operations)
                return (servers.cpu_seconds(node) - before) * 1e6 / plan.operations

            drive([Client(node, None, statement, values)], plan.warmup)
            costs[system.name, f"{what} of {size} B"] = interleaved(kinds, plan.rounds, one_run, progress, f"{what} of {size} B")
            progress.end()


class Client:
    """A connection with a prepared statement, whose requests are made once and sent again and again."""

    def __init__(self, node, tls: ssl.SSLContext | None, statement: str, values: list[bytes]):
        self.connection = Connection(node.host, node.port, 4, tls=tls)
        prepared = self.connection.prepare(statement)
        if isinstance(prepared, Error):
            raise RuntimeError(prepared.message)
        frames = []
        for number in range(BURST):
            options = QueryOptions(values=[struct.pack(">i", number), *values])
            self.connection.streams = number
            frames.append(self.connection.frame(requests.EXECUTE, requests.execute(prepared.id, None, options, 4), 0))
        self.burst = b"".join(frames)

    def send(self) -> None:
        self.connection.socket.sendall(self.burst)

    def receive(self) -> None:
        for _ in range(BURST):
            _, _, _, opcode, length = HEADER.unpack(self.connection.take_raw(HEADER.size))
            body = self.connection.take_raw(length)
            if opcode != 0x08:
                raise RuntimeError(f"opcode {opcode}: {body[:200]!r}")


def drive(clients: list[Client], operations: int) -> None:
    for _ in range(max(operations // (BURST * len(clients)), 1)):
        for client in clients:
            client.send()
        for client in clients:
            client.receive()
