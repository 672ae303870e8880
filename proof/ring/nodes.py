"""Nodes of a ring: Cassandra on 127.0.0.1, 127.0.0.2 and so on, with the plugin, and all with the same ports."""

import os
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from proof import places
from proof.oracle import cassandra
from proof.oracle.cassandra import HERE as ORACLE, Cassandra
from proof.wire import Connection, Error, QueryOptions, Rows
from proof.wire.requests import QUORUM
from proof.wire.responses import Response

HEAP_MB = 1024
NODES_MAX = 4
RING_DELAY_MILLIS = 5000
# What is waited for takes seconds, but another run may have all processors for some time.
PATIENCE_SECONDS = 600
SCHEMA_SECONDS = 60
JOIN_ATTEMPTS = 5
# The configuration of a node's memtables: `fast` is the one that a rolling change maps to another one.
MEMTABLES = """\
    espalier:
      class_name: EspalierMemtable
      parameters:
        mode: memtable
    fast:
      inherits: trie
"""
STORAGE = """\
    espalier_storage:
      class_name: EspalierMemtable
      parameters:
        mode: storage
        directory: @DIRECTORY@/espalier
        commitlog_sync: batch
    espalier_left:
      class_name: EspalierMemtable
      parameters:
        mode: memtable
        directory: @DIRECTORY@/espalier
        commitlog_sync: batch
"""


@dataclass(frozen=True)
class Ports:
    native: int
    storage: int
    ssl: int


@dataclass(frozen=True)
class Plugin:
    jar: Path
    library: Path | None        # a native library in place of the one in the jar
    mode: str                   # "memtable" or "storage"

    @property
    def memtable(self) -> str:
        """The configuration that tables name to be in this mode."""
        return {"memtable": "espalier", "storage": "espalier_storage"}[self.mode]


class Node(Cassandra):
    """One node of a ring, at its own address."""

    def __init__(self, number: int, ports: Ports, jmx_port: int, plugin: Plugin, bootstraps: bool):
        self.number = number
        self.host = f"127.0.0.{number}"
        self.jmx_port = jmx_port
        directory = places.run_directory(f"ring-{number}")
        write_configuration(directory, self.host, ports, plugin.mode, bootstraps)
        properties = {
            "cassandra.config": f"file://{directory}/cassandra.yaml",
            "logback.configurationFile": f"file://{ORACLE}/logback.xml",
            "cassandra.storagedir": str(directory),
            "cassandra.logdir": str(directory),
            "cassandra.ring_delay_ms": str(RING_DELAY_MILLIS),
            # How long a node that joins waits at most for the schema.
            "cassandra.schema_delay_ms": str(SCHEMA_SECONDS * 1000),
            "cassandra-foreground": "yes",                              # else it closes standard error
            "cassandra.superuser_setup_delay_ms": "0",
            "cassandra.disable_tcactive_openssl": "true",
            "cassandra.jmx.local.port": str(self.jmx_port),
        }
        super().__init__(directory, ports.native, HEAP_MB, keep=False, properties=properties, plugin=plugin.jar,
                         library=plugin.library)
        self.jvm_flags = ("-XX:MaxDirectMemorySize=256m",)

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def set_fast(self, configuration: str) -> None:
        """Maps `fast` to another configuration of memtables, from the next start on."""
        path = self.directory / "cassandra.yaml"
        changed, count = re.subn(r"(    fast:\n      inherits: )\w+", rf"\g<1>{configuration}", path.read_text())
        if count != 1:
            raise RuntimeError(f"{path} has no configuration 'fast'")
        path.write_text(changed)

    def query(self, statement: str, options: QueryOptions = QueryOptions(consistency=QUORUM)) -> Response:
        with Connection(self.host, self.port) as connection:
            return connection.query(statement, options)

    def dump(self, keyspace: str, table: str) -> dict[str, tuple[str, list[str]]]:
        """Returns the rows that this node itself has: the addresses of the replicas and the lines of each partition."""
        path = self.directory / "dump"
        self.command("dump", keyspace, table, str(path))
        partitions: dict[str, tuple[str, list[str]]] = {}
        for line in path.read_text().splitlines():
            key, replicas, content = line.split("\t", 2)
            partitions.setdefault(key, (replicas, []))[1].append(content)
        path.unlink()
        return partitions


def write_configuration(directory: Path, host: str, ports: Ports, mode: str, bootstraps: bool) -> None:
    """The oracle's configuration, made that of a node among others."""
    cassandra.write_configuration(directory, ports.native, ports.storage, ports.ssl, views_and_functions=True,
                                  durable=True)
    path = directory / "cassandra.yaml"
    seeds = ",".join(f"127.0.0.{number}:{ports.storage}" for number in (1, 2, 3))
    memtables = MEMTABLES + (STORAGE.replace("@DIRECTORY@", str(directory)) if mode == "storage" else "")
    text = path.read_text()
    for old, new in {
        "num_tokens: 1\ninitial_token: 0\n": "num_tokens: 4\n",
        f"127.0.0.1:{ports.storage}": seeds,
        "listen_address: 127.0.0.1": f"listen_address: {host}",
        "rpc_address: 127.0.0.1": f"rpc_address: {host}",
        "auto_bootstrap: false": f"auto_bootstrap: {str(bootstraps).lower()}",
        "    default:\n": memtables + "    default:\n",
        # One client waits for other nodes, so that others can be served.
        "native_transport_max_threads: 2": "native_transport_max_threads: 16",
        "concurrent_reads: 2": "concurrent_reads: 8",
        "concurrent_writes: 2": "concurrent_writes: 8",
        # A hint is written when this time has passed without an answer.
        "\nwrite_request_timeout: 20000ms": "\nwrite_request_timeout: 5000ms",
    }.items():
        if text.count(old) != 1:
            raise RuntimeError(f"the oracle's configuration has {text.count(old)} times {old!r}")
        text = text.replace(old, new)
    path.write_text(text + "memtable_offheap_space: 512MiB\nhints_flush_period: 1000ms\n")


def join(node: Node) -> None:
    """Starts a node that is new. On a machine that is busy it may take the others for dead when it asks for their
    schema, and then does not ask again: it ends, and is started again."""
    for attempt in range(1, JOIN_ATTEMPTS + 1):
        try:
            return node.launch()
        except RuntimeError as failure:
            if attempt == JOIN_ATTEMPTS or "schema readiness" not in str(failure):
                raise
            print(f"{node.host} did not get the schema, start {attempt}", flush=True)


class Ring:
    """Nodes that run. They end, and their directories are removed, at the end of the `with` block."""

    def __init__(self, plugin: Plugin):
        self.plugin = plugin
        hosts = [f"127.0.0.{number}" for number in range(1, NODES_MAX + 1)]
        native, storage, ssl, *self.jmx_ports = places.free_ports(3 + NODES_MAX, hosts)
        self.ports = Ports(native, storage, ssl)
        self.nodes: list[Node] = []
        self.is_kept = False

    def add(self, bootstraps: bool = False) -> Node:
        """Starts the next node, which joins the others."""
        number = max((node.number for node in self.nodes), default=0) + 1
        node = Node(number, self.ports, self.jmx_ports[number - 1], self.plugin, bootstraps)
        self.nodes.append(node)
        join(node)
        self.await_all_live()
        return node

    def others(self, *left_out: Node) -> list[Node]:
        return [node for node in self.nodes if node not in left_out]

    def await_all_live(self) -> None:
        """Waits until every running node sees exactly the running nodes, and all have the same schema."""
        running = [node for node in self.nodes if node.is_running]
        expected = {node.host for node in running}
        for node in running:
            wait_until(lambda: set(node.command("live").split(",")) == expected, f"{node.host} sees {expected}")
        wait_until(lambda: len({node.command("schema") for node in running}) == 1, "all nodes have the same schema")

    def kill(self, *nodes: Node) -> None:
        """kill -9. Returns when the others have noticed."""
        for node in nodes:
            node.kill()
        self.await_all_live()

    def start_again(self, *nodes: Node) -> None:
        """Starts nodes side by side, and returns when all see them."""
        threads = [threading.Thread(target=node.launch) for node in nodes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if not all(node.is_running for node in nodes):
            raise RuntimeError("a node did not start again")
        self.await_all_live()

    def await_hints(self) -> None:
        """Waits until no node has hints for another one."""
        for node in self.nodes:
            wait_until(lambda: node.command("hints") == "0", f"{node.host} has delivered its hints")

    def leave(self, node: Node) -> None:
        """Takes a node out of the ring for good: its data go to the others first."""
        node.command("decommission")
        self.nodes.remove(node)
        node.stop()
        self.await_all_live()

    def require(self, statement: str) -> Response:
        """The answer of the first running node, which may not be an error."""
        node = next(node for node in self.nodes if node.is_running)
        answer = node.query(statement)
        if isinstance(answer, Error):
            raise RuntimeError(f"{statement}: {answer.message}")
        return answer

    def __enter__(self) -> "Ring":
        return self

    def __exit__(self, *_) -> None:
        for node in self.nodes:
            node.keep = self.is_kept
            if node.process is not None:
                node.stop()
            elif not self.is_kept:
                shutil.rmtree(node.directory, ignore_errors=True)
        if self.is_kept:
            print("kept:", *(node.directory for node in self.nodes), flush=True)


def wait_until(holds: Callable[[], bool], what: str) -> None:
    if not is_soon(holds, PATIENCE_SECONDS):
        raise RuntimeError(f"not within {PATIENCE_SECONDS} seconds: {what}")


def is_soon(holds: Callable[[], bool], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(1)
    return True


def differences(ring: Ring, keyspace: str, table: str) -> dict[str, str]:
    """Row by row, what the replicas of each partition have differently. Each node is asked for its own data only."""
    dumps = {node.host: node.dump(keyspace, table) for node in ring.nodes}
    found: dict[str, str] = {}
    for key in sorted({key for dump in dumps.values() for key in dump}):
        replicas = {dump[key][0] for dump in dumps.values() if key in dump}
        if len(replicas) != 1:
            found[key] = f"{table} {key}: nodes disagree about the replicas: {replicas}"
            continue
        contents = {host: dumps[host].get(key, ("", []))[1] for host in replicas.pop().split(",")}
        first = next(iter(contents))
        for host, lines in contents.items():
            missing, more = set(contents[first]) - set(lines), set(lines) - set(contents[first])
            if missing or more or len(lines) != len(contents[first]):
                found[key] = (f"{table} {key}: only {first} has {sorted(missing)[:3]}, "
                              f"only {host} has {sorted(more)[:3]}")
    return found


def nodetool(port: int, *arguments: str) -> subprocess.CompletedProcess:
    return cassandra.tool("org.apache.cassandra.tools.NodeTool", "-h", "127.0.0.1", "-p", str(port), *arguments)


def rows(answer: Response) -> list[tuple]:
    if not isinstance(answer, Rows):
        raise RuntimeError(f"{answer}")
    return answer.rows
