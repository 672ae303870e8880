"""Snapshots of a table of mode `storage` while a disk is full or fails: the engine's, or the one on which Cassandra has
the table's directory. Each fails, names the table and the reason, and leaves nothing that `listsnapshots` shows. The
node serves requests, and the next snapshot has all rows.

Both disks are in memory and mounted over FUSE (`proof/volume`). The files of a snapshot are
copied from one to the other.

usage: python -m proof.plugin.snapshots [--jar FILE] [--library FILE]
"""

import argparse
import errno
import shutil
import time
from pathlib import Path
from random import Random

from proof import places
from proof.drivers.checks import Checks
from proof.oracle.cassandra import Cassandra, tool
from proof.plugin.node import rows
from proof.volume import Disk, Mount, in_own_namespace
from proof.wire import Connection, Error

JAR = places.ROOT / "java" / "target" / "espalier-cassandra-0.1.0.jar"
SCHEMA = ("CREATE KEYSPACE stored WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
          "CREATE TABLE stored.kept (k int PRIMARY KEY, v text) WITH memtable = 'espalier_storage'",
          "CREATE TABLE stored.taken_in (k int PRIMARY KEY, v text) WITH memtable = 'default'")
# The texts cannot be compressed away: the table's files are far larger than what is left on a full disk.
ROWS, TEXT_BYTES, LEFT_BYTES = 1000, 500, 100_000
FULL, FAILS, NOT_MADE = "No space left on device", "Input/output error", "Unable to create directory"
RECOVERY_SECONDS = 60


class Snapshots:
    """A node whose engine is on one disk, and the directory that Cassandra has of its table on another."""

    def __init__(self, checks: Checks, node: Cassandra, jmx_port: int, engine: Mount):
        self.checks, self.node, self.jmx_port, self.engine = checks, node, jmx_port, engine
        self.count = 0
        for statement in SCHEMA:
            self.query(statement)
        table, = (node.directory / "data" / "stored").glob("kept-*")
        self.data = Mount(Disk(), table)

    def query(self, cql: str):
        with Connection(self.node.host, self.node.port) as connection:
            return connection.query(cql)

    def write(self) -> None:
        """More rows, which are in the engine's memory and in none of its files."""
        with Connection(self.node.host, self.node.port) as connection:
            for _ in range(ROWS):
                text = Random(self.count).randbytes(TEXT_BYTES // 2).hex()
                answer = connection.query(f"INSERT INTO stored.kept (k, v) VALUES ({self.count}, '{text}')")
                if isinstance(answer, Error):
                    raise RuntimeError(answer.message)
                self.count += 1

    def rows(self, table: str) -> list:
        with Connection(self.node.host, self.node.port) as connection:
            return sorted(rows(connection, f"SELECT k, v FROM stored.{table}"))

    def nodetool(self, *arguments: str):
        return tool("org.apache.cassandra.tools.NodeTool", "-h", "127.0.0.1", "-p", str(self.jmx_port), *arguments)

    def take(self, name: str):
        return self.nodetool("snapshot", "-t", name, "-cf", "kept", "stored")

    def fail(self, name: str, reason: str) -> None:
        done = self.take(name)
        said = done.stdout + done.stderr
        self.checks.true(f"{name}: the snapshot fails", done.returncode != 0, said)
        self.checks.true(f"{name}: the table and the reason are named", f"{name} of stored.kept was not taken" in said and reason in said, said)
        listed = self.nodetool("listsnapshots").stdout
        self.checks.true(f"{name}: it is not listed", "There are no snapshots" in listed, listed)
        self.checks.equal(f"{name}: nothing is left of it", self.files_of_snapshots(), [])
        self.checks.equal(f"{name}: the rows are read", len(self.rows("kept")), self.count)

    def files_of_snapshots(self) -> list[str]:
        return [path for mount in (self.data, self.engine) for path in mount.disk.files() if "snapshots/" in path]


def full_disk_of_cassandra(proof: Snapshots) -> None:
    disk = proof.data.disk
    disk.capacity_bytes = disk.used_bytes() + LEFT_BYTES
    proof.fail("data_full", FULL)
    disk.capacity_bytes = Disk().capacity_bytes


def failing_directory(proof: Snapshots) -> None:
    fault = proof.data.fail("snapshots/", errno.EIO, "create")
    fault.skip = 3
    proof.fail("directory_fails", FAILS)
    proof.checks.true("some files were copied before", fault.met.is_set())
    proof.data.lift(fault)
    fault = proof.data.fail("", errno.EIO, "mkdir")
    proof.fail("no_directory", NOT_MADE)
    proof.data.lift(fault)


def full_disk_of_the_engine(proof: Snapshots) -> None:
    proof.write()
    disk = proof.engine.disk
    disk.capacity_bytes = disk.used_bytes() + LEFT_BYTES
    proof.fail("engine_full", FULL)
    disk.capacity_bytes = Disk().capacity_bytes


def whole(proof: Snapshots) -> None:
    """When there is room again, the node takes writes and a snapshot, and another table takes that in."""
    end = time.monotonic() + RECOVERY_SECONDS
    while isinstance(proof.query("INSERT INTO stored.kept (k, v) VALUES (-1, 'after')"), Error) and time.monotonic() < end:
        time.sleep(0.5)
    proof.count += 1
    done = proof.take("whole")
    proof.checks.true("with room again the snapshot is taken", done.returncode == 0, done.stdout + done.stderr)
    listed = proof.nodetool("listsnapshots").stdout
    proof.checks.true("it is listed", "whole" in listed, listed)
    proof.node.import_tables("stored", "taken_in", proof.data.directory / "snapshots" / "whole")
    kept, taken_in = proof.rows("kept"), proof.rows("taken_in")
    proof.checks.true("it has all rows", len(kept) == proof.count and kept == taken_in, f"{len(kept)} and {len(taken_in)} of {proof.count}")


def prove(checks: Checks, jar: Path, library: Path | None) -> None:
    port, = places.free_ports(1)
    directory = places.run_directory("engine")

    class Node(Cassandra):
        jvm_flags = (f"-Dcassandra.jmx.local.port={port}",)

    with Mount(Disk(), directory) as engine:
        with Node.start(plugin=jar, durable=True, library=library, engine={"directory": directory}) as node:
            proof = Snapshots(checks, node, port, engine)
            try:
                proof.write()
                for part in (full_disk_of_cassandra, failing_directory, full_disk_of_the_engine, whole):
                    with checks.part(part.__name__):
                        part(proof)
            finally:
                node.end()
                proof.data.close()
    shutil.rmtree(directory, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jar", type=lambda file: Path(file).resolve(), default=JAR)
    parser.add_argument("--library", type=lambda file: Path(file).resolve(), help="a native library in place of the one in the jar")
    options = parser.parse_args()
    checks = Checks("snapshots")
    cannot_mount = in_own_namespace("proof.plugin.snapshots")
    if cannot_mount is None:
        prove(checks, options.jar, options.library)
    else:
        checks.skipped("snapshots on full disks", cannot_mount)
    checks.end()


if __name__ == "__main__":
    main()
