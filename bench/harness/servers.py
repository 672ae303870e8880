"""The servers under load: Cassandra at its best, and Espalier with the same memory."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

from proof import places
from proof.oracle import cassandra as oracle
from proof.oracle.espalier import Espalier as ProvedEspalier, environment
from proof.wire import Connection, Error

HERE = Path(__file__).resolve().parent
CLASSES = places.CACHE / "bench-cassandra"
HEAP_MB = 4096
MEMTABLE_MB = 2048

# jvm17-server.options as Cassandra ships it, without -ea.
G1_FLAGS = ["-XX:+UseG1GC", "-XX:+ParallelRefProcEnabled", "-XX:MaxTenuringThreshold=2", "-XX:G1HeapRegionSize=16m",
            "-XX:+UnlockExperimentalVMOptions", "-XX:G1NewSizePercent=50", "-XX:G1RSetUpdatingPauseTimePercent=5",
            "-XX:MaxGCPauseMillis=300", "-XX:InitiatingHeapOccupancyPercent=70", "-XX:+PerfDisableSharedMem"]
SERIAL_FLAGS = {"-XX:+UseSerialGC", "-Xss1m"}


def compile_java() -> None:
    """The programs in java/, against Cassandra's jars."""
    sources = sorted((HERE / "java").glob("*.java"))

    def is_current(source: Path) -> bool:
        target = CLASSES / f"{source.stem}.class"
        return target.exists() and target.stat().st_mtime >= source.stat().st_mtime

    if not all(map(is_current, sources)):
        CLASSES.mkdir(parents=True, exist_ok=True)
        subprocess.run(["javac", "-nowarn", "-d", str(CLASSES), "-cp", f"{places.CASSANDRA / 'lib'}/*", *map(str, sources)], check=True)


def configure(directory: Path, memtable_mb: int = MEMTABLE_MB) -> None:
    """A configuration for programs that use parts of Cassandra without a node; memtables do
    not flush before they are full."""
    oracle.write_configuration(directory, *places.free_ports(3), False)
    adjust(directory / "cassandra.yaml", "trie", False, memtable_mb, {"memtable_cleanup_threshold": "0.9"})


def execute(node, *statements: str) -> None:
    """Runs statements one after another; raises at the first error."""
    with Connection(node.host, node.port, version=4, login=node.superuser) as connection:
        for statement in statements:
            answer = connection.query(statement)
            if isinstance(answer, Error):
                raise RuntimeError(f"{node.name} refused {statement}: {answer}")


# Keys of the oracle's configuration that a benchmark leaves as Cassandra has them: 128 threads for requests, 32 for
# reads and for writes, and a counter cache.
ONE_CLIENT_AT_A_TIME = ("native_transport_max_threads:", "concurrent_reads:", "concurrent_writes:", "compressed_read_ahead_buffer_size:",
                          "counter_cache_size:")


# On two cores, two threads that serve requests cost less than 128 under some loads. The better setting is used for
# Cassandra.
FEW_THREADS = {"native_transport_max_threads": "2"}
TWO_THREADS = {"cassandra, 2 threads": FEW_THREADS}


DISCARDING = "    discarding:\n      class_name: espalier.proof.DiscardingMemtable\n"    # a configuration of memtables


class Cassandra(oracle.Cassandra):
    """Cassandra 5.0.8: trie memtable, BTI tables, offheap_objects, unified compaction,
    G1, all tiers of the compiler."""

    login = None
    superuser = None

    @classmethod
    def start(cls, sync: str = "periodic", memtable: str = "trie", direct_log: bool = False, heap_mb: int = HEAP_MB,
              memtable_mb: int = MEMTABLE_MB, group_window: str = "10ms", allocation: str = "offheap_objects",
              plugin: Path | None = None, discarding: Path | None = None, **settings: str) -> "Cassandra":
        """`settings`: more keys of cassandra.yaml. `plugin`: the jar of our memtables and of our engine, whose
        log is synced as Cassandra's.
        `discarding`: the classes of memtables that keep nothing."""
        # Cassandra's default is off. With it, a block that is read again need not be decompressed again.
        settings = {"file_cache_enabled": "true", **settings}
        compile_java()
        directory = places.run_directory("bench-cassandra")
        native, storage, ssl = places.free_ports(3)
        oracle.write_configuration(directory, native, storage, ssl, False, durable=sync == "batch")
        adjust(directory / "cassandra.yaml", memtable, direct_log, memtable_mb, settings)
        if sync == "group":
            in_groups(directory / "cassandra.yaml", group_window)
        replace_in(directory / "cassandra.yaml", "memtable_allocation_type: offheap_objects", f"memtable_allocation_type: {allocation}")
        if plugin is not None:
            oracle.add_plugin(directory, memtable)
            replace_in(directory / "cassandra.yaml", " commitlog_sync: batch\n",
                       f" commitlog_sync: {sync}\n        memtable_space: {memtable_mb}MiB\n")
        if discarding is not None:
            replace_in(directory / "cassandra.yaml", "    default:\n", DISCARDING + "    default:\n")
        properties = {
            "cassandra.config": f"file://{directory}/cassandra.yaml",
            "logback.configurationFile": f"file://{oracle.HERE}/logback.xml",
            "cassandra.storagedir": str(directory), "cassandra.logdir": str(directory),
            "cassandra.skip_wait_for_gossip_to_settle": "0", "cassandra.ring_delay_ms": "10",
            "cassandra-foreground": "yes", "cassandra.superuser_setup_delay_ms": "0",
            "cassandra.unsafesystem": "false", "cassandra.disable_tcactive_openssl": "true",
        }
        node = cls(directory, native, heap_mb, False, properties, plugin=plugin or discarding)
        node.settings = {"commitlog_sync": sync, "memtable": memtable, "memtable_allocation_type": allocation,
                         "memtable_offheap_space": f"{memtable_mb}MiB", "commitlog_disk_access_mode": "direct" if direct_log else "legacy (mmap)",
                         "heap": f"{heap_mb} MiB", "java": " ".join(G1_FLAGS), "sstable": "bti", "compaction": "UnifiedCompactionStrategy",
                         "native_transport_max_threads": 128, "concurrent_writes": 32, **settings}
        node.launch()
        return node

    def launch(self) -> None:
        flags = [flag for flag in oracle.java_flags(self.heap_mb, [self.plugin] if self.plugin else [])
                 if flag not in SERIAL_FLAGS and not flag.startswith("-Xms")]
        flags[flags.index("-cp") + 1] += f":{CLASSES}"
        command = ["java", f"-Xms{self.heap_mb}m", *G1_FLAGS, *flags, *(f"-D{name}={value}" for name, value in self.properties.items())]
        with open(self.directory / "log", "ab") as log:
            self.process = subprocess.Popen(command + ["BenchNode"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                            stderr=log, cwd=self.directory, start_new_session=True)
        watchdog = threading.Timer(oracle.READY_TIMEOUT_SECONDS, self.process.kill)
        watchdog.start()
        try:
            self.expect_ok("start")
        finally:
            watchdog.cancel()

    @property
    def pid(self) -> int:
        return self.process.pid

    def memtable_bytes(self, keyspace: str, table: str) -> tuple[int, int, int]:
        """Bytes on and off heap of the current memtable, and how often the table's memtable was switched."""
        on_heap, off_heap, switches = self.command("memtable", keyspace, table).split("\t")
        return int(on_heap), int(off_heap), int(switches)

    def gc_seconds(self) -> float:
        return int(self.command("gc")) / 1000

    def import_tables(self, keyspace: str, table: str, directory: Path) -> None:
        """Copies every SSTable in `directory` into the table, unverified."""
        self.command("import", keyspace, table, str(directory))

    def lz4_seconds(self, file: Path, chunk_length: int) -> tuple[float, float]:
        """A thread's processor time for compressing a file in chunks, and for decompressing it."""
        compressing, decompressing = self.command("lz4", str(file), str(chunk_length)).split("\t")
        return int(compressing) / 1e9, int(decompressing) / 1e9


def replace_in(path: Path, old: str, new: str) -> None:
    path.write_text(path.read_text().replace(old, new))


def in_groups(path: Path, window: str) -> None:
    lines = [line for line in path.read_text().splitlines() if not line.startswith("commitlog_sync")]
    path.write_text("\n".join([*lines, "commitlog_sync: group", f"commitlog_sync_group_window: {window}", ""]))


def adjust(path: Path, memtable: str, direct_log: bool, memtable_mb: int, settings: dict[str, str]) -> None:
    text = path.read_text()
    text = text.replace("inherits: trie", f"inherits: {memtable}")
    text += f"memtable_offheap_space: {memtable_mb}MiB\nmemtable_heap_space: {memtable_mb}MiB\n"
    lines = [line for line in text.splitlines() if not line.startswith(ONE_CLIENT_AT_A_TIME)]
    text = "\n".join([*lines, ""])
    text += "".join(f"{key}: {value}\n" for key, value in settings.items())
    if direct_log:
        text = text.replace("commitlog_disk_access_mode: legacy", "commitlog_disk_access_mode: direct")
    path.write_text(text)


class Espalier(ProvedEspalier):
    """The binary under test."""

    login = None            # the role of clients: a name and a password
    superuser = None        # the role of those who make tables

    @classmethod
    def start(cls, sync: str = "periodic", memtable_mb: int = MEMTABLE_MB, **settings: str) -> "Espalier":
        settings = {"commitlog_sync": sync, "memtable_offheap_space": f"{memtable_mb}MiB", **settings}
        node = super().start(**settings)
        node.settings = settings
        return node

    @property
    def pid(self) -> int:
        return self.process.pid

    def gc_seconds(self) -> float:
        return 0.0

    def memtable_bytes(self, keyspace: str, table: str) -> tuple[int, int, int]:
        """As Cassandra's: nothing on a heap, the memtable's bytes, and how many SSTables there are."""
        return 0, self.figure("Memtable data size", keyspace, table), len(self.sstables(keyspace, table))

    def compact(self, *keyspace_and_table: str) -> None:
        """Uses the node's socket, as for Cassandra its pipe: starting a process would take processor time from
        the server under measurement."""
        keyspace, *tables = keyspace_and_table or (None,)
        with socket.socket(socket.AF_UNIX) as admin:
            directory = os.open(self.data, os.O_RDONLY)
            try:
                admin.connect(f"/proc/self/fd/{directory}/espalier.sock")
            finally:
                os.close(directory)
            admin.sendall(json.dumps({"verb": "compact", "keyspace": keyspace, "tables": tables}).encode() + b"\n")
            answer = json.loads(b"".join(iter(lambda: admin.recv(65536), b"")))
        if "ok" not in answer:
            raise RuntimeError(f"compact {' '.join(keyspace_and_table)}: {answer}")

    def import_tables(self, keyspace: str, table: str, directory: Path) -> None:
        """As Cassandra's."""
        command = [str(places.espalier_binary()), "sstable", "import", "--data", str(self.data), keyspace, table, str(directory)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment())
        if done.returncode != 0:
            raise RuntimeError(f"espalier sstable import: {done.stderr.strip()}")

    def figure(self, name: str, keyspace: str, table: str) -> int:
        """A number of `tablestats`."""
        found = re.search(rf"{re.escape(name)}: (\d+)", self.steer("tablestats", keyspace, table))
        if found is None:
            raise RuntimeError(f"tablestats says nothing of {name}")
        return int(found.group(1))

    def stop(self) -> None:
        """A node that has ended already, or does not end, must not keep the others from being stopped."""
        if self.process.poll() is None:
            try:
                self.terminate()
            except RuntimeError as stuck:
                print(f"espalier: {stuck}", file=sys.stderr)
        if not self.keep:
            shutil.rmtree(self.directory, ignore_errors=True)


def cpu_seconds(node) -> float:
    """Processor time of a node's process so far, all threads, to the nanosecond."""
    # As clock_getcpuclockid(3) makes the clock of another process.
    return time.clock_gettime(~node.pid << 3 | 2)


def binary_is_there() -> bool:
    return os.access(places.espalier_binary(), os.X_OK)
