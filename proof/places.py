"""The places where the proof keeps things. Nothing is written outside `.cache/` and `target/`, except for what servers
keep in memory."""

import os
import random
import shutil
import socket
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache"
VENV = CACHE / "venv"
CASSANDRA_VERSION = "5.0.8"
CASSANDRA = CACHE / "cassandra" / CASSANDRA_VERSION
RUN = CACHE / "run"
MEMORY = Path("/dev/shm")
# The most bytes that the servers of a long run write. Containers often have much less room there.
MEMORY_BYTES = 4 << 30


def espalier_binary() -> Path:
    """The server under test: $ESPALIER_BIN, or the release build."""
    return Path(os.environ.get("ESPALIER_BIN", ROOT / "target" / "release" / "espalier"))


def free_ports(count: int, hosts: Sequence[str] = ("127.0.0.1",)) -> list[int]:
    """Ports that are free at all of these addresses. Systems give higher ones to the connections of clients, so none
    takes a port before its server listens, or while that is down."""
    found: list[int] = []
    for port in random.sample(range(10_000, 32_000), 1000):
        if all(is_free(host, port) for host in hosts):
            found.append(port)
        if len(found) == count:
            return found
    raise RuntimeError("there are no free ports")


def is_free(host: str, port: int) -> bool:
    with socket.socket() as held:
        try:
            held.bind((host, port))
        except OSError:
            return False
        return True


def run_directory(name: str, in_memory: bool = False) -> Path:
    """A fresh directory for one server's life; on a file system in memory, if that is asked
    for and there is one with room."""
    if in_memory and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free >= MEMORY_BYTES:
        return Path(tempfile.mkdtemp(prefix=name + "-", dir=MEMORY))
    RUN.mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix=name + "-", dir=RUN))
