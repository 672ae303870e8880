"""Conditional writes while the device holds the record of the one that they follow."""

import struct
import time
from random import Random

from proof.drivers.checks import Checks
from proof.log.nodes import node_on, query
from proof.volume import Disk, Fault
from proof.wire import Connection, Error, QueryOptions, requests

SCHEMA = ("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
          "CREATE TABLE ks.t (k int PRIMARY KEY, a int, b blob)",
          "INSERT INTO ks.t (k) VALUES (0)")
SETTINGS = {"commitlog_segment_size": "1MiB", "commitlog_total_space": "8MiB", "cas_contention_timeout": "60s"}
# The most bytes that the log's thread writes for a few records. It also writes zeros ahead of its records, in larger
# writes.
RECORD_BYTES_MAX = 16 << 10
# More bytes than a record may have with these settings.
TOO_LARGE = "0x" + "ab" * 700_000
HELD_SECONDS = 1
WAIT_SECONDS = 30
CUTS = 3
FIRST = "UPDATE ks.t SET a = 1 WHERE k = 0 IF a = null"


class FirstRecord(Fault):
    """Delays the next write of a record to the log, and does not delay those after it."""

    def hits(self, operation: str, path: str, body: bytes) -> bool:
        is_record = operation == "write" and self.part in path and struct.unpack_from("<I", body, 16)[0] <= RECORD_BYTES_MAX
        return is_record and not self.met.is_set()


def followed_decisions(checks: Checks) -> None:
    """No client has an answer that follows from a write which a power cut may undo, and no write
    outlives the one it follows."""
    writes = {"a write that follows": "UPDATE ks.t SET b = 0x01 WHERE k = 0 IF a = 1",
              "a refusal": "UPDATE ks.t SET b = 0x01 WHERE k = 0 IF a = 2",
              "an error": f"UPDATE ks.t SET b = {TOO_LARGE} WHERE k = 0 IF a = 1"}
    for sync in ("batch", "each"):
        for name, second in writes.items():
            followed_decision(checks, f"{sync}: {name}", sync, second)


def followed_decision(checks: Checks, name: str, sync: str, second: str) -> None:
    disk = Disk()
    with node_on(disk, commitlog_sync=sync, **SETTINGS) as (node, mount):
        for cql in SCHEMA:
            answer = query(node, cql)
            if isinstance(answer, Error):
                raise RuntimeError(f"{cql}: {answer}")
        held = mount.add(FirstRecord("commitlog.log", ("write",), None))
        with Connection(node.host, node.port) as first, Connection(node.host, node.port) as follower:
            send(first, FIRST)
            checks.true(f"{name}: the device holds the first record", held.met.wait(WAIT_SECONDS))
            send(follower, second)
            time.sleep(HELD_SECONDS)
            checks.true(f"{name} is not answered before the first record is durable", not has_answer(follower))
            checks.true(f"{name}: nor is the first one", not has_answer(first))
            mount.cut_power()
            mount.lift(held)
    outcomes = set()
    for seed in range(CUTS):
        with node_on(disk.after_power_cut(Random(seed)), commitlog_sync=sync, **SETTINGS) as (node, _):
            a, b = query(node, "SELECT a, b FROM ks.t WHERE k = 0").rows[0]
            outcomes.add((a is not None, b is not None))
    checks.true(f"{name}: it never outlives the first one", (False, True) not in outcomes, str(outcomes))


def send(connection: Connection, cql: str) -> None:
    connection.send(requests.QUERY, requests.query(cql, QueryOptions(), connection.version))


def has_answer(connection: Connection) -> bool:
    connection.socket.settimeout(0.2)
    try:
        connection.receive()
    except TimeoutError:
        return False
    return True
