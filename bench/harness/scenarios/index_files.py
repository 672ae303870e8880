"""The index files of both systems: their sizes, and what building them costs."""

import time
from dataclasses import dataclass
from pathlib import Path

from bench.harness import load, servers
from proof.wire import Connection, Rows

BUILD_TIMEOUT_SECONDS = 3600
POLL_SECONDS = 0.02
# A server is idle if it uses less than this share of a core for this time.
IDLE_CORES, IDLE_SECONDS, IDLE_TIMEOUT_SECONDS = 0.15, 0.6, 30


@dataclass(frozen=True)
class Sizes:
    """Bytes of a table's index files: of single indexes, and of what they share."""

    own: int
    shared: int


@dataclass(frozen=True)
class Cost:
    cpu_seconds: float
    seconds: float


def sizes(node, keyspace: str, table: str) -> Sizes:
    if node.name == "espalier":
        table_ids = {path.parent.name.rpartition("-")[2] for path in node.sstables(keyspace, table)}
        files = [path for path in (node.data / "index").rglob("*.db") if path.parts[-3].replace("-", "") in table_ids]
        return Sizes(total(files), 0)
    files = {path for data in node.sstables(keyspace, table) for path in data.parent.glob(data.name.replace("-Data.db", "-SAI*"))}
    # Per-index components have the index's name between plus signs.
    own = {path for path in files if path.name.count("+") >= 3}
    return Sizes(total(own), total(files - own))


def total(files) -> int:
    return sum(Path(file).stat().st_size for file in files)


def build(node, keyspace: str, index: str, statement: str) -> Cost:
    """Creates an index, and waits until it is built."""
    cpu, started = servers.cpu_seconds(node), time.monotonic()
    servers.execute(node, statement)
    with Connection(node.host, node.port, version=4) as connection:
        while not is_built(connection, keyspace, index):
            if time.monotonic() - started > BUILD_TIMEOUT_SECONDS:
                raise RuntimeError(f"{node.name} did not build {index} within {BUILD_TIMEOUT_SECONDS} s")
            time.sleep(POLL_SECONDS)
    return Cost(servers.cpu_seconds(node) - cpu, time.monotonic() - started)


def is_built(connection: Connection, keyspace: str, index: str) -> bool:
    answer = connection.query(f"SELECT index_name FROM system.\"IndexInfo\" WHERE table_name = '{keyspace}' AND index_name = '{index}'")
    if not isinstance(answer, Rows):
        raise RuntimeError(f"system.IndexInfo: {answer}")
    return bool(answer.rows)


def until_idle(node) -> None:
    """Waits until a node has ended what it does on its own: flushing, merging, building indexes."""
    deadline, quiet_since = time.monotonic() + IDLE_TIMEOUT_SECONDS, time.monotonic()
    while time.monotonic() < deadline and time.monotonic() - quiet_since < IDLE_SECONDS:
        before = load.process_seconds(node.pid)
        time.sleep(0.2)
        if load.process_seconds(node.pid) - before > IDLE_CORES * 0.2:
            quiet_since = time.monotonic()
