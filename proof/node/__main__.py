"""Starts, stops and administers Espalier, and sends it what no client should send.

usage: python -m proof.node
"""

import random
import shutil
import socket
import stat
import struct
import subprocess
import time

from proof import places
from proof.drivers.checks import Checks
from proof.node.containment import containment
from proof.node.damage import damage
from proof.node.in_memory import in_memory
from proof.node.wide import wide_rows
from proof.oracle.espalier import Espalier, environment
from proof.wire import Connection, Error, QueryOptions, Rows
from proof.wire import requests

RESIDENT_MIB_MAX = 60
PIPELINED = 3000
QUERY = "SELECT release_version FROM system.local"
CREATE = "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"


def main() -> None:
    checks = Checks("node")
    for part in (start_and_stop, admin_commands, refusals, configuration, pipelining, hostile_bytes, too_large, damage, containment, wide_rows, in_memory):
        with checks.part(part.__name__):
            part(checks)
    checks.end()


def serves(node) -> bool:
    with Connection(node.host, node.port) as connection:
        return isinstance(connection.query(QUERY), Rows)


def first_answer_seconds(node: Espalier) -> float:
    """Returns the seconds from starting the process to the first answered query."""
    started = time.monotonic()
    node.launch()
    serves(node)
    return time.monotonic() - started


def start_and_stop(checks: Checks) -> None:
    node = Espalier.start()
    with node:
        checks.true("serves", serves(node))
        checks.equal("status on SIGTERM", node.terminate(), 0)
        print(f"first answer {first_answer_seconds(node) * 1000:.0f} ms after start, on a drained directory")
        with Connection(node.host, node.port) as connection:
            for cql in (CREATE, "CREATE TABLE ks.t (k int PRIMARY KEY, v int)", "INSERT INTO ks.t (k, v) VALUES (1, 2)"):
                answer = connection.query(cql)
                checks.true(cql, not isinstance(answer, Error), str(answer))
        checks.equal("status on SIGTERM with data", node.terminate(), 0)
        node.launch()
        checks.equal("after a restart", row(node), b"\0\0\0\2")
        node.kill()
        node.launch()
        checks.equal("after kill -9", row(node), b"\0\0\0\2")
        checks.true("layout is Cassandra's", len(list((node.data / "data" / "ks").glob("t-*"))) == 1, str(list(node.data.rglob("*"))[:40]))
    with Espalier.start() as idle:
        serves(idle)
        resident = resident_mib(idle.process.pid)
        print(f"idle: {resident:.1f} MiB resident")
        checks.true(f"idle memory under {RESIDENT_MIB_MAX} MiB", resident < RESIDENT_MIB_MAX, f"{resident} MiB")


def row(node) -> bytes | None:
    with Connection(node.host, node.port) as connection:
        rows = connection.query("SELECT v FROM ks.t WHERE k = 1").rows
        return rows[0][0] if rows else None


def resident_mib(pid: int) -> float:
    for line in open(f"/proc/{pid}/status"):
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("no VmRSS in /proc")


def admin_commands(checks: Checks) -> None:
    """The same binary controls a running node."""
    with Espalier.start() as node:
        with Connection(node.host, node.port) as connection:
            for cql in (CREATE, "CREATE TABLE ks.t (k int PRIMARY KEY, v int)", "INSERT INTO ks.t (k, v) VALUES (1, 2)"):
                connection.query(cql)
        checks.true("status", str(node.port) in node.steer("status"), node.steer("status"))
        node.flush("ks", "t")
        checks.equal("SSTables after a flush", len(node.sstables("ks", "t")), 1)
        checks.true("file name", node.sstables("ks", "t")[0].name.startswith("da-") and node.sstables("ks", "t")[0].name.endswith("-bti-Data.db"))
        checks.true("tablestats", "t" in node.steer("tablestats", "ks"), node.steer("tablestats", "ks"))
        node.steer("snapshot", "--tag", "kept", "ks")
        kept = list((node.data / "data" / "ks").glob("t-*/snapshots/kept/*-Data.db"))
        checks.equal("snapshot", [file.name for file in kept], [node.sstables("ks", "t")[0].name])
        schema = kept[0].with_name("schema.cql").read_text() if kept else ""
        checks.equal("a snapshot keeps the schema", schema.startswith("CREATE TABLE IF NOT EXISTS ks.t ("), True)
        restoring(checks, node, kept[0].parent)
        for file in node.data.rglob("*"):
            if stat.S_ISSOCK(file.stat().st_mode):
                checks.equal("the socket is its owner's alone", oct(file.stat().st_mode & 0o077), oct(0))
        checks.raises("unknown table", RuntimeError, "nosuch", lambda: node.flush("ks", "nosuch"))
        node.steer("drain")
        with Connection(node.host, node.port) as connection:
            checks.true("writes are refused after drain", isinstance(connection.query("INSERT INTO ks.t (k, v) VALUES (3, 4)"), Error))
            checks.true("reads go on after drain", isinstance(connection.query("SELECT * FROM ks.t"), Rows))


def restoring(checks: Checks, node, snapshot) -> None:
    """Files of a snapshot are copied back after a truncation, as Cassandra's users do: a refresh
    finds them, and every start."""
    def count() -> int:
        with Connection(node.host, node.port) as connection:
            return len(connection.query("SELECT * FROM ks.t").rows)

    with Connection(node.host, node.port) as connection:
        connection.query("TRUNCATE ks.t")
    for file in snapshot.glob("da-*"):
        shutil.copy(file, snapshot.parent.parent)
    checks.equal("nothing before a refresh", count(), 0)
    checks.equal("refresh", node.steer("refresh", "ks", "t"), "1 SSTables imported\n")
    checks.equal("rows after a refresh", count(), 1)
    with Connection(node.host, node.port) as connection:
        connection.query("TRUNCATE ks.t")
    for file in snapshot.glob("da-*"):
        shutil.copy(file, snapshot.parent.parent)
    node.restart()
    checks.equal("rows after a restart", count(), 1)


def serve(*arguments: str, **settings: str) -> subprocess.CompletedProcess:
    """Runs `espalier serve ...`, which is expected to end."""
    return subprocess.run([str(places.espalier_binary()), "serve", *arguments], capture_output=True, text=True, timeout=60,
                          env=environment(**settings))


def refused(checks: Checks, name: str, done: subprocess.CompletedProcess, *words: str) -> None:
    """Checks that the program ends with a non-zero status and one clear line."""
    checks.true(f"{name}: status", done.returncode not in (0, 101) and done.returncode > 0, str(done))
    lines = [line for line in done.stderr.splitlines() if line.startswith(("espalier: ", "error: "))]
    checks.equal(f"{name}: one line", len(lines), 1)
    for word in words:
        checks.true(f"{name} names {word}", lines and word in lines[0], done.stderr[-2000:])


def refusals(checks: Checks) -> None:
    directory = places.run_directory("refusals")
    try:
        with Espalier.start() as node:
            port = str(places.free_ports(1)[0])
            refused(checks, "a second process", serve("--data", str(node.data), "--port", port), str(node.data))
            refused(checks, "a port in use", serve("--data", str(directory / "d"), "--port", str(node.port)), str(node.port))
            (directory / "file").write_text("")
            refused(checks, "no directory", serve("--data", str(directory / "file" / "d"), "--port", port), str(directory / "file"))
            refused(checks, "an unknown option", serve("--nosuch"), "--nosuch")
            checks.true("the first process goes on", serves(node))
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def configuration(checks: Checks) -> None:
    directory = places.run_directory("configuration")
    try:
        file = directory / "espalier.yaml"
        data = ["--data", str(directory / "d"), "--config", str(file)]
        file.write_text("cluster_name: Ours\nnosuch_key: 1\n")
        refused(checks, "an unknown key", serve(*data), "nosuch_key", "2")
        file.write_text("commitlog_sync: sometimes\n")
        refused(checks, "a bad value", serve(*data), "commitlog_sync")
        file.write_text("partitioner: org.apache.cassandra.dht.RandomPartitioner\n")
        refused(checks, "another partitioner", serve(*data), "Murmur3Partitioner")
        file.write_text("")
        refused(checks, "a bad value in the environment", serve(*data, ESPALIER_COMMITLOG_SYNC="sometimes"), "COMMITLOG_SYNC")
        with Espalier.start(cluster_name="Named by the environment") as node, Connection(node.host, node.port) as connection:
            name = connection.query("SELECT cluster_name FROM system.local").rows[0][0]
            checks.equal("the environment wins", name, b"Named by the environment")
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def pipelining(checks: Checks) -> None:
    """Thousands of requests in flight on one connection; every one is answered, on its own stream."""
    with Espalier.start() as node:
        for version in (4, 5):
            with Connection(node.host, node.port, version) as connection:
                body = requests.query(QUERY, QueryOptions(), version)
                sent = {connection.send(requests.QUERY, body) for _ in range(PIPELINED)}
                answers = [connection.receive() for _ in range(PIPELINED)]
                checks.equal(f"v{version}: streams", {stream for stream, _ in answers}, sent)
                checks.true(f"v{version}: answers", all(isinstance(answer, Rows) for _, answer in answers))


def hostile_bytes(checks: Checks) -> None:
    """Random and almost right bytes: protocol errors or a closed connection, and everybody else is served."""
    rng = random.Random(1)
    with Espalier.start() as node:
        with Connection(node.host, node.port) as bystander:
            for number in range(300):
                throw(node, hostile(rng, number % 4))
            answer = bystander.query(QUERY)
            checks.true("a connection that was there all along", isinstance(answer, Rows), str(answer))
        checks.true("a new connection", serves(node))
        checks.equal("the process lives", node.process.poll(), None)
        checks.true("no panic", "panicked" not in node.log_tail(), node.log_tail())


def hostile(rng: random.Random, kind: int) -> bytes:
    if kind == 0:
        return rng.randbytes(rng.randrange(1, 400))
    version = rng.choice((3, 4, 5))
    if kind == 1:           # a good header, a random body
        body = rng.randbytes(rng.randrange(60))
        return struct.pack(">BBhBi", version, rng.choice((0, 1, 2, 4, 8, 255)), 1, rng.choice((1, 5, 7, 9, 10, 11, 13, 15)), len(body)) + body
    startup = requests.string_map({"CQL_VERSION": "3.0.0"})
    frame = struct.pack(">BBhBi", version, 0, 1, requests.STARTUP, len(startup)) + startup
    if kind == 2:           # STARTUP, then random bytes
        return frame + rng.randbytes(rng.randrange(1, 300))
    body = bytearray(requests.query(QUERY, QueryOptions((b"x",), page_size=5), 4))
    body[rng.randrange(len(body))] = rng.randrange(256)
    version4 = struct.pack(">BBhBi", 4, 0, 1, requests.STARTUP, len(startup)) + startup
    return version4 + struct.pack(">BBhBi", 4, 0, 2, requests.QUERY, len(body)) + bytes(body)


def throw(node, data: bytes) -> None:
    with socket.create_connection((node.host, node.port), timeout=10) as thrown:
        try:
            thrown.sendall(data)
            thrown.shutdown(socket.SHUT_WR)
            while thrown.recv(65536):
                pass
        except OSError:
            return          # the server may close the connection


def too_large(checks: Checks) -> None:
    """A body above native_transport_max_frame_size is refused by an error that names the option, and
    the connection stays usable."""
    refusals_by_version = {4: "Request is too big: length {} exceeds maximum allowed length 16777216.",
                           5: "CQL Message of size {} bytes exceeds allowed maximum of 16777216 bytes"}
    with Espalier.start() as node:
        for version, message in refusals_by_version.items():
            with Connection(node.host, node.port, version) as connection:
                body = requests.query("SELECT '" + "x" * (17 << 20) + "'", QueryOptions(), version)
                answer = connection.request(requests.QUERY, body)
                size = len(body) + (9 if version == 4 else 0)       # Cassandra counts the header of a bare envelope
                checks.equal(f"v{version}: refused", getattr(answer, "message", str(answer)[:300]), message.format(size))
                checks.true(f"v{version}: the connection goes on", isinstance(connection.query(QUERY), Rows))


if __name__ == "__main__":
    main()
