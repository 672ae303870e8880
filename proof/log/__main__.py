"""The commit log of the real binary where the disk fails, fills up, stalls, is damaged, or is a block device, and where
the kernel forbids io_uring.

Faults are those of a disk in memory that is mounted over FUSE (`proof/volume`); where nothing can be mounted those
parts are skipped, and say so, here and at the end of `make test`.

usage: python -m proof.log
"""

import errno
import json
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from random import Random

from proof import places
from proof.drivers.checks import Checks
from proof.log.decisions import followed_decisions
from proof.log.nodes import node_on, query
from proof.node.__main__ import refused, serve
from proof.oracle.espalier import Espalier
from proof.volume import Disk, Mount, in_own_namespace
from proof.wire import Connection, ConnectionClosed, Error, Rows

LOG = "commitlog/commitlog.log"
# Errors name files without their directories.
LOG_NAME = "commitlog.log"
SCHEMA = ("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
          "CREATE TABLE ks.t (k int PRIMARY KEY, v text)")
WRITE_TIMEOUT = 0x1100
BLOCK_BYTES = 4096
DIE_STATUS = 100
WAIT_SECONDS = 30
CLIENTS, WRITES_OF_A_CLIENT = 16, 60
# Pairs of short writes.
SHORT_WRITES = 40


def main() -> None:
    checks = Checks("log")
    cannot_mount = in_own_namespace("proof.log")
    parts = [salvage, one_log_one_node, block_device, no_io_uring]
    mounted = [failed_writes, short_writes, failed_syncs, no_direct_writes, full_disk, full_log, flush_writers, clients_wait_for_replay,
               followed_decisions]
    if cannot_mount is None:
        parts += mounted
    else:
        checks.skipped(", ".join(part.__name__ for part in mounted), cannot_mount)
    for part in parts:
        with checks.part(part.__name__):
            part(checks)
    checks.end()


def make_table(node) -> None:
    for cql in SCHEMA:
        answer = query(node, cql)
        if isinstance(answer, Error):
            raise RuntimeError(f"{cql}: {answer}")


def insert(node, k: int, v: str = "v"):
    return query(node, f"INSERT INTO ks.t (k, v) VALUES ({k}, '{v}')")


def keys(node) -> set[int]:
    answer = query(node, "SELECT k FROM ks.t")
    return {int.from_bytes(row[0], "big") for row in answer.rows} if isinstance(answer, Rows) else {-1}


def eventually(condition) -> bool:
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return False


def status(node, name: str) -> str:
    lines = dict(line.split(":", 1) for line in node.steer("status").splitlines() if ":" in line)
    return {key.strip(): value.strip() for key, value in lines.items()}[name]


def failed_writes(checks: Checks) -> None:
    """A write of the log fails: nothing is acknowledged after it, though the disk is well
    again; then what the policy says."""
    for policy in ("stop_commit", "ignore", "stop", "die"):
        disk = Disk()
        with node_on(disk, commitlog_sync="batch", commit_failure_policy=policy) as (node, mount):
            make_table(node)
            insert(node, 1)
            bystander = Connection(node.host, node.port)
            fault = mount.fail(LOG, errno.EIO)
            try:
                refusals = [insert(node, 2)]
            except (ConnectionClosed, OSError):
                refusals = []
            checks.true(f"{policy}: the fault was met", fault.met.is_set())
            mount.lift(fault)
            if policy == "die":
                checks.equal("die: status", node.process.wait(WAIT_SECONDS), DIE_STATUS)
            elif policy == "stop":
                checks.true("stop: the client is disconnected", eventually(lambda: is_closed(bystander)))
                checks.true("stop: no connection is accepted", eventually(lambda: not node.answers()))
                checks.equal("stop: the process lives", node.process.poll(), None)
            else:
                refusals += [insert(node, 3), query(node, "CREATE TABLE ks.other (k int PRIMARY KEY)")]
                checks.equal(f"{policy}: reads go on", keys(node), {1})
                checks.equal(f"{policy}: refusals", [type(refusal) for refusal in refusals], [Error] * 3)
            for refusal in refusals:
                checks.true(f"{policy}: the error gives the reason", isinstance(refusal, Error) and LOG_NAME in refusal.message, str(refusal))
            if policy != "die":
                checks.true(f"{policy}: the reason is in the metrics", LOG in status(node, "CommitLog.Closed"), node.steer("status"))
            checks.true(f"{policy}: the reason is logged once", node.log_tail().count("the commit log failed, and no write") == 1, node.log_tail())
        comes_back(checks, policy, disk)


def is_closed(connection: Connection) -> bool:
    try:
        connection.query("SELECT key FROM system.local")
        return False
    except (ConnectionClosed, OSError):
        return True


def comes_back(checks: Checks, name: str, disk: Disk) -> None:
    """After a restart, acknowledged writes exist, and refused ones exist whole or not at all."""
    with node_on(disk, commitlog_sync="batch") as (node, _):
        seen = keys(node)
        checks.true(f"{name}: acknowledged writes are there after a restart", {1} <= seen <= {1, 2}, str(seen))
        checks.true(f"{name}: writes go on after a restart", not isinstance(insert(node, 9), Error))


def short_writes(checks: Checks) -> None:
    """The disk cuts writes of the log short, two in a row: the kernel continues the first by itself, and its
    second then leaves bytes out (`RingQueue::settle` in blockio). What was acknowledged is there after a
    power cut, and the log is sound."""
    for sync in ("batch", "each"):
        disk = Disk()
        with node_on(disk, short_writes=True, commitlog_sync=sync) as (node, mount):
            make_table(node)
            faults = [mount.fail_in_half(LOG, None, skip) for skip in range(0, 3 * SHORT_WRITES, 3) for _ in range(2)]
            written = write_at_once(node)
            checks.true(f"{sync}, short writes: all were met", all(fault.met.is_set() for fault in faults))
            checks.equal(f"{sync}, short writes: no write is refused", len(written), CLIENTS * WRITES_OF_A_CLIENT)
            with mount.lock:
                left = disk.after_power_cut(Random(1))
        with node_on(left, commitlog_sync=sync) as (node, _):
            checks.equal(f"{sync}, short writes: rows are there after a power cut", keys(node), written)


def write_at_once(node) -> set[int]:
    """Several clients write rows of some kB at the same time, so that frames of several sizes are in flight.
    Returns the acknowledged rows."""
    written: list[int] = []

    def write(first: int) -> None:
        with Connection(node.host, node.port) as connection:
            for k in range(first, CLIENTS * WRITES_OF_A_CLIENT, CLIENTS):
                value = "v" * (1000 + k * 997 % 9000)
                if not isinstance(connection.query(f"INSERT INTO ks.t (k, v) VALUES ({k}, '{value}')"), Error):
                    written.append(k)
    threads = [threading.Thread(target=write, args=(first,)) for first in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return set(written)


def failed_syncs(checks: Checks) -> None:
    """In the mode `periodic` the log acknowledges writes before their sync. After a sync has
    failed, it acknowledges none."""
    disk = Disk()
    with node_on(disk, commitlog_sync="periodic", commitlog_sync_period="50ms", commit_failure_policy="stop_commit") as (node, mount):
        make_table(node)
        insert(node, 1)
        fault = mount.fail(LOG, errno.EIO, "fsync")
        insert(node, 2)
        checks.true("the sync was met", fault.met.wait(WAIT_SECONDS))
        mount.lift(fault)
        checks.true("a failed sync is sticky", eventually(lambda: isinstance(insert(node, 3), Error)))
        refusal = insert(node, 4)
        checks.true("and told", isinstance(refusal, Error) and LOG_NAME in refusal.message, str(refusal))
        checks.true("reads go on", {1} <= keys(node))


def no_direct_writes(checks: Checks) -> None:
    """A file system without O_DIRECT: the log and SSTables go through the page cache and are synced
    there, which is said once of each."""
    disk = Disk()
    disk.refuses_direct = True
    with node_on(disk, commitlog_sync="batch") as (node, mount):
        make_table(node)
        for k in range(1, 300):
            insert(node, k)
        log = (node.directory / "log").read_text(errors="replace")
        line = "the commit log is written through the page cache: O_DIRECT is refused here"
        checks.equal("the page cache: it is said once", log.count(line), 1)
        checks.equal("the page cache: of SSTables too", log.count("SSTables are written through the page cache: O_DIRECT is refused here"), 1)
        checks.true("the page cache: nothing else is claimed", "written past the page cache" not in log, log[-4000:])
        checks.equal("the page cache: rows are there", keys(node), set(range(1, 300)))
        with mount.lock:
            left = disk.after_power_cut(Random(1))
    with node_on(left, commitlog_sync="batch") as (node, _):
        checks.equal("the page cache: what was acknowledged is there after a power cut", keys(node), set(range(1, 300)))


def write_until_refused(node, most: int) -> tuple[set[int], Error | None]:
    """Writes rows of 10 kB, from 0 on: those that were taken, and the refusal that ended it, if
    one came before `most` rows."""
    written: set[int] = set()
    for k in range(most):
        answer = insert(node, k, "x" * 10_000)
        if isinstance(answer, Error):
            return written, answer
        written.add(k)
    return written, None


def full_disk(checks: Checks) -> None:
    """Writes are refused while the log cannot grow, and taken again when it can."""
    disk = Disk()
    with node_on(disk, commitlog_sync="batch", commitlog_segment_size="1MiB", commitlog_total_space="64MiB") as (node, _):
        make_table(node)
        disk.capacity_bytes = disk.used_bytes() + (256 << 10)
        written, refusal = write_until_refused(node, 400)
        checks.true("a full disk refuses", refusal is not None and LOG_NAME in refusal.message and "grow" in refusal.message, str(refusal))
        checks.equal("reads go on", keys(node), written)
        checks.equal("it is not closed for good", status(node, "CommitLog.Closed"), "no")
        disk.capacity_bytes = 1 << 40
        checks.true("writes go on", not isinstance(insert(node, 1000), Error))


def full_log(checks: Checks) -> None:
    """All segments hold unflushed records, and flushes stall: writers wait, time out with Cassandra's
    error, and continue afterwards."""
    disk = Disk()
    with node_on(disk, commitlog_sync="batch", commitlog_segment_size="1MiB", commitlog_total_space="4MiB", write_request_timeout="500ms") \
            as (node, mount):
        make_table(node)
        node.flush()
        fault = mount.stall("-Data.db", "write", "create", "fsync")
        written, late = write_until_refused(node, 1000)
        checks.equal("a writer without room times out", getattr(late, "code", None), WRITE_TIMEOUT)
        checks.true("the log keeps to its space", int(status(node, "CommitLog.TotalCommitLogSize")) <= 4 << 20, node.steer("status"))
        checks.true("a flush is under way", int(status(node, "MemtableFlushWriter.ActiveTasks")) >= 1, node.steer("status"))
        checks.true("reads go on", written <= keys(node) <= written | {len(written)})
        waiting: list = []
        writer = threading.Thread(target=lambda: waiting.append(insert_with_patience(node, 2000)))
        writer.start()
        time.sleep(0.2)
        mount.lift(fault)
        writer.join(WAIT_SECONDS)
        checks.true("a waiting write continues when flushes do", waiting and not isinstance(waiting[0], Error), str(waiting))
        for k in range(3000, 3600):
            answer = insert_with_patience(node, k, "x" * 10_000)
            if isinstance(answer, Error):
                checks.true("more than the log holds is taken", False, str(answer))
                break
        checks.true("flushes were counted", int(status(node, "MemtableFlushWriter.CompletedTasks")) >= 2, node.steer("status"))
        checks.equal("no flush failed", status(node, "MemtableFlushWriter.LastFailure"), "none")


def flush_writers(checks: Checks) -> None:
    """As many tables are flushed at a time as `memtable_flush_writers` says; the others
    are in the queue, and counted."""
    for writers, expected in ((1, ("1", "2")), (2, ("2", "1")), (4, ("3", "0"))):
        with node_on(Disk(), commitlog_sync="batch", commitlog_segment_size="1MiB", commitlog_total_space="4MiB",
                     write_request_timeout="300ms", memtable_flush_writers=str(writers)) as (node, mount):
            make_table(node)
            for name in ("u", "w"):
                query(node, f"CREATE TABLE ks.{name} (k int PRIMARY KEY, v text)")
            node.flush()
            fault = mount.stall("-Data.db")
            late = (query(node, f"INSERT INTO ks.{name} (k, v) VALUES ({k}, '{'x' * 10_000}')") for k in range(300) for name in "tuw")
            next(answer for answer in late if isinstance(answer, Error))
            tasks = ("MemtableFlushWriter.ActiveTasks", "MemtableFlushWriter.PendingTasks")
            checks.true(f"{writers} flush writers", eventually(lambda: tuple(status(node, name) for name in tasks) == expected),
                        node.steer("status"))
            mount.lift(fault)
            checks.true(f"{writers} flush writers: all is flushed", eventually(lambda: status(node, tasks[0]) == status(node, tasks[1]) == "0"))


def insert_with_patience(node, k: int, v: str = "v"):
    """A client that tries again after a timeout."""
    answer = None
    for _ in range(20):
        answer = insert(node, k, v)
        if getattr(answer, "code", None) != WRITE_TIMEOUT:
            break
    return answer


def salvage(checks: Checks) -> None:
    """A flipped byte under a killed node's log: the start names it and the remedy; with the flag it
    continues without that record."""
    node = Espalier.start(commitlog_sync="batch")
    with node:
        make_table(node)
        for k in range(20):
            insert(node, k, f"value-{k}")
        node.kill()
        path = node.data / LOG
        at = path.read_bytes().find(b"value-7")
        block = at // 4096 * 4096
        with open(path, "r+b") as log:
            log.seek(at)
            log.write(b"w")
        found = subprocess.run([str(places.espalier_binary()), "log", "verify", "--data", str(node.data)], capture_output=True, text=True)
        checks.true("espalier log verify names it", found.returncode == 1 and f"at offset {block}: expected" in found.stdout, str(found))
        words = (str(path), f"offset {block}", "expected", "got", "--commitlog-salvage")
        port = str(node.port)
        refused(checks, "a damaged log", serve("--data", str(node.data), "--port", port), *words)
        node.flags = ("--commitlog-salvage",)
        node.launch()
        checks.equal("salvage loses the one row", keys(node), set(range(20)) - {7})
        checks.equal("and keeps a copy", len(list((node.data / "commitlog").glob("commitlog.damaged-*"))), 1)
        log = node.log_tail()
        checks.true("and reports the gap", "the commit log had a gap" in log and f"offset {block}" in log, log)
        insert(node, 7, "again")
        node.flags = ()
        node.restart()
        checks.equal("then all is sound", keys(node), set(range(20)))


def one_log_one_node(checks: Checks) -> None:
    """Two data directories with one commit log directory, at the same time and one after the other."""
    with Espalier.start(commitlog_sync="batch") as node:
        other = places.run_directory("other")
        try:
            done = serve("--data", str(other), "--port", str(places.free_ports(1)[0]),
                         ESPALIER_COMMITLOG_DIRECTORY=str(node.data / "commitlog"))
            refused(checks, "a second node on one log", done, str(node.data / "commitlog"), "is in use by another process", str(node.process.pid))
            make_table(node)
            insert(node, 1)
            node.kill()
            done = serve("--data", str(other), "--port", str(places.free_ports(1)[0]),
                         ESPALIER_COMMITLOG_DIRECTORY=str(node.data / "commitlog"))
            refused(checks, "another node on the log of one that was killed", done, str(node.data / LOG), "it belongs to host")
            node.launch()
            checks.equal("its own node takes it", keys(node), {1})
        finally:
            shutil.rmtree(other, ignore_errors=True)


def block_device(checks: Checks) -> None:
    """The log on a block device: a loop device over a file."""
    directory = places.run_directory("device")
    image = directory / "image"
    with open(image, "wb") as file:
        file.write(bytes(16 << 20))
    made = subprocess.run(["losetup", "--find", "--show", str(image)], capture_output=True, text=True) if shutil.which("losetup") else None
    if made is None or made.returncode != 0:
        checks.skipped("block_device", made.stderr.strip() if made else "no losetup")
        shutil.rmtree(directory, ignore_errors=True)
        return
    device = made.stdout.strip()
    try:
        on_device(checks, device)
    finally:
        subprocess.run(["losetup", "--detach", device], check=False)
        shutil.rmtree(directory, ignore_errors=True)


def on_device(checks: Checks, device: str) -> None:
    settings = {"commitlog_device": device, "commitlog_segment_size": "1MiB"}
    for sync in ("batch", "each"):
        with Espalier.start(commitlog_sync=sync, **settings) as node:
            checks.true(f"{sync}: past the page cache", "the commit log is written past the page cache" in node.log_tail(), node.log_tail())
            make_table(node)
            for k in range(300):
                insert(node, k)
            other = places.run_directory("other")
            environment = {f"ESPALIER_{key.upper()}": value for key, value in settings.items()}
            refused(checks, f"{sync}: a second node on the device",
                    serve("--data", str(other), "--port", str(places.free_ports(1)[0]), **environment), device, "is in use by another process")
            node.kill()
            # No process has the device open now, and yet it has an owner.
            refused(checks, f"{sync}: another node on the device of one that was killed",
                    serve("--data", str(other), "--port", str(places.free_ports(1)[0]), **environment), device, "it belongs to host")
            shutil.rmtree(other, ignore_errors=True)
            described = described_log(device)
            checks.equal(f"{sync}: the log is on the device", (described["path"], described["segments_in_use"] >= 1), (device, True))
            node.launch()
            checks.equal(f"{sync}: rows are there after kill -9", keys(node), set(range(300)))
            checks.true(f"{sync}: and no file in the directory", not (node.data / LOG).exists())
        # The next node is another one. It uses the device only if the first blocks of the device are zeros.
        with open(device, "r+b") as blank:
            blank.write(bytes(8192))


def no_io_uring(checks: Checks) -> None:
    """A kernel may refuse io_uring, as in most containers. Then frames are written one at a time by plain calls, the
    log says so, and acknowledged writes are there after kill -9."""
    for sync in ("batch", "each"):
        node = Espalier.prepare(commitlog_sync=sync)
        node.under = (sys.executable, str(Path(__file__).with_name("without_io_uring.py")))
        node.launch()
        with node:
            log = node.log_tail()
            words = "the commit log is written one frame at a time: io_uring is refused here: Operation not permitted"
            if "through the page cache: " in log:
                checks.skipped(f"no_io_uring in {sync}", "no O_DIRECT here, and a queue of the kernel's is for it alone")
            else:
                checks.equal(f"{sync}, no io_uring: it is said once", log.count(words), 1)
            checks.true(f"{sync}, no io_uring: nothing else is claimed", "by io_uring" not in log, log)
            make_table(node)
            threads = [threading.Thread(target=lambda first=first: [insert(node, k) for k in range(first, 200, 4)]) for first in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            node.kill()
            node.launch()
            checks.equal(f"{sync}, no io_uring: rows are there after kill -9", keys(node), set(range(200)))


def clients_wait_for_replay(checks: Checks) -> None:
    """The log's segments cannot be read: the node accepts no client until they can, and then has all data."""
    disk = Disk()
    with node_on(disk, commitlog_sync="batch") as (node, _):
        make_table(node)
        for k in range(300):
            insert(node, k)
        first_segment = (2 + described_log(str(node.data / LOG))["segments"]) * BLOCK_BYTES
        node.kill()
    directory = places.run_directory("espalier")
    with Mount(disk, directory / "data") as mount:
        # After the first block of the first segment, which a start reads before it replays the log.
        fault = mount.stall(LOG, "read", behind=first_segment + BLOCK_BYTES)
        node = Espalier(directory, places.free_ports(1)[0], {"ESPALIER_COMMITLOG_SYNC": "batch"}, False)
        starting = threading.Thread(target=node.launch)
        starting.start()
        try:
            checks.true("the replay has begun", fault.met.wait(WAIT_SECONDS))
            deadline = time.monotonic() + 0.5
            while time.monotonic() < deadline and not node.answers():
                time.sleep(0.02)
            checks.true("no connection is accepted before it ends", not node.answers())
            mount.lift(fault)
            starting.join(WAIT_SECONDS)
            checks.equal("then all is there", keys(node), set(range(300)))
        finally:
            mount.release()
            node.kill()
            starting.join()
    shutil.rmtree(directory, ignore_errors=True)


def described_log(path: str) -> dict:
    done = subprocess.run([str(places.espalier_binary()), "log", "describe", "--json", "--file", path], capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[0])


if __name__ == "__main__":
    main()
