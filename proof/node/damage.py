"""SSTables of a node are damaged, and its disk refuses writes. The node does what `disk_failure_policy`
says, and serves everything else."""

import shutil
import subprocess
import time
from pathlib import Path

from proof import places
from proof.drivers.checks import Checks
from proof.oracle.espalier import Espalier, environment
from proof.wire import Connection, ConnectionClosed, Error, Rows

SCHEMA = ["CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
          "CREATE TABLE ks.damaged (k int PRIMARY KEY, v blob)", "CREATE TABLE ks.sound (k int PRIMARY KEY, v int)",
          "INSERT INTO ks.sound (k, v) VALUES (1, 2)"]
PARTITIONS = 40         # of 5,000 bytes that do not compress: a dozen chunks
DIED = 100


def damage(checks: Checks) -> None:
    for policy in ("stop", "stop_paranoid", "die", "best_effort", "ignore"):
        flipped_bit(checks, policy)
        damaged_at_start(checks, policy)
        disk_refuses(checks, policy)


def filled(policy: str) -> Espalier:
    """A stopped node with two tables on disk."""
    node = Espalier.start(disk_failure_policy=policy)
    with Connection(node.host, node.port) as connection:
        for cql in SCHEMA:
            accepted(connection.query(cql))
        for k in range(PARTITIONS):
            value = "".join(f"{(k * 7919 + at * 104729) * 2654435761 % 2**32:08x}" for at in range(1250))
            accepted(connection.query(f"INSERT INTO ks.damaged (k, v) VALUES ({k}, 0x{value})"))
    node.flush("ks")
    node.terminate()
    return node


def accepted(answer):
    if isinstance(answer, Error):
        raise RuntimeError(answer.message)
    return answer


def component(node: Espalier, name: str) -> Path:
    return next((node.data / "data" / "ks").glob(f"damaged-*/da-*-bti-{name}"))


def answer(connection: Connection, cql: str):
    """The answer; None where the connection ended."""
    try:
        return connection.query(cql)
    except (ConnectionClosed, OSError):
        return None


def is_read(connection: Connection, cql: str) -> bool:
    return isinstance(answer(connection, cql), Rows)


def flipped_bit(checks: Checks, policy: str) -> None:
    """One chunk of Data.db is damaged while the node is down."""
    node = filled(policy)
    try:
        data = component(node, "Data.db")
        content = bytearray(data.read_bytes())
        content[len(content) // 2] ^= 1
        data.write_bytes(content)
        node.launch()
        with Connection(node.host, node.port) as connection:
            answers = [answer(connection, f"SELECT v FROM ks.damaged WHERE k = {k}") for k in range(PARTITIONS)]
            refused = [one for one in answers if isinstance(one, Error)]
            if policy in ("stop", "best_effort", "ignore"):
                checks.true(f"{policy}: a partition or more of the chunk", 1 <= len(refused) <= 5, str(len(refused)))
                checks.equal(f"{policy}: the others are read", sum(isinstance(one, Rows) for one in answers), PARTITIONS - len(refused))
                checks.true(f"{policy}: the error names the file", all(data.name in one.message for one in refused), str(refused))
                checks.true(f"{policy}: a scan is refused", isinstance(answer(connection, "SELECT * FROM ks.damaged"), Error))
                checks.true(f"{policy}: other tables", is_read(connection, "SELECT * FROM ks.sound"))
                accepted(connection.query("INSERT INTO ks.damaged (k, v) VALUES (1000, 0x01)"))
                checks.true(f"{policy}: what is written", is_read(connection, "SELECT v FROM ks.damaged WHERE k = 1000"))
            else:
                checks.true(f"{policy}: no wrong answer", all(one is None or isinstance(one, Rows) or data.name in one.message for one in answers))
        ended(checks, policy, node, data.name)
    finally:
        stop(node)


def ended(checks: Checks, policy: str, node: Espalier, name: str) -> None:
    """Checks that clients are served and that the process lives, or not, as the policy says."""
    if policy == "die":
        checks.equal("die: status", node.process.wait(20), DIED)
    elif policy == "stop_paranoid":
        checks.true("stop_paranoid: clients are disconnected", gone(node))
        checks.equal("stop_paranoid: the process lives", node.process.poll(), None)
    else:
        checks.true(f"{policy}: clients are served", node.answers())
    checks.true(f"{policy}: the log names the file", name in node.log_tail(), node.log_tail())


def gone(node: Espalier) -> bool:
    deadline = time.monotonic() + 20
    while node.answers():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def damaged_at_start(checks: Checks, policy: str) -> None:
    """A component without which an SSTable cannot be opened ends early."""
    node = filled(policy)
    try:
        statistics = component(node, "Statistics.db")
        whole = statistics.read_bytes()
        statistics.write_bytes(whole[: len(whole) // 2])
        if policy in ("stop_paranoid", "die"):
            command = [str(places.espalier_binary()), "serve", "--data", str(node.data), "--port", str(node.port)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment(**node.environment))
            checks.true(f"{policy}: the start is refused", done.returncode != 0 and statistics.name in done.stderr, str(done))
        else:
            node.launch()
            with Connection(node.host, node.port) as connection:
                refused = [answer(connection, cql) for cql in ("SELECT * FROM ks.damaged", "SELECT v FROM ks.damaged WHERE k = 1", "TRUNCATE ks.damaged")]
                checks.true(f"{policy}: its table says why", all(isinstance(one, Error) and statistics.name in one.message for one in refused), str(refused))
                checks.true(f"{policy}: other tables are served", is_read(connection, "SELECT * FROM ks.sound"))
                written = answer(connection, "INSERT INTO ks.damaged (k, v) VALUES (1000, 0x01)")
                checks.true(f"{policy}: it takes no writes", isinstance(written, Error) and "quarantined" in written.message, str(written))
            node.flush("ks")
            checks.true(f"{policy}: status lists it", "ks.damaged: " in node.steer("status"), "no line of it")
            checks.raises(f"{policy}: it is not compacted", RuntimeError, statistics.name, lambda: node.compact("ks", "damaged"))
            node.terminate()
        statistics.write_bytes(whole)
        node.launch()
        with Connection(node.host, node.port) as connection:
            rows = accepted(connection.query("SELECT k FROM ks.damaged")).rows
            checks.equal(f"{policy}: all is there once it is repaired", len(rows), PARTITIONS)
    finally:
        stop(node)


def disk_refuses(checks: Checks, policy: str) -> None:
    """A flush cannot write: where the table's directory was is a file."""
    node = filled(policy)
    try:
        node.launch()
        with Connection(node.host, node.port) as connection:
            accepted(connection.query("INSERT INTO ks.damaged (k, v) VALUES (1000, 0x01)"))
            directory = component(node, "Data.db").parent
            aside = directory.with_name("aside")
            shutil.move(directory, aside)
            directory.write_text("")
            # A process that ends may have no time to answer with the reason.
            why = "" if policy == "die" else directory.name
            checks.raises(f"{policy}: the flush is refused", RuntimeError, why, lambda: node.flush("ks", "damaged"))
            if policy == "die":
                checks.equal("die: status where the disk refuses", node.process.wait(20), DIED)
            elif policy in ("stop", "stop_paranoid"):
                checks.true(f"{policy}: clients are disconnected", gone(node))
                checks.equal(f"{policy}: the process lives", node.process.poll(), None)
            else:
                checks.true(f"{policy}: reads go on", is_read(connection, "SELECT * FROM ks.damaged"))
        directory.unlink()
        shutil.move(aside, directory)
        checks.true(f"{policy}: the log names the directory", directory.name in node.log_tail(), node.log_tail())
        node.kill()
        node.launch()
        with Connection(node.host, node.port) as connection:
            checks.equal(f"{policy}: nothing is lost", len(accepted(connection.query("SELECT k FROM ks.damaged")).rows), PARTITIONS + 1)
    finally:
        stop(node)


def stop(node: Espalier) -> None:
    """Stops the node, whatever its state."""
    if node.process is not None and node.process.poll() is None:
        node.kill()
    shutil.rmtree(node.directory, ignore_errors=True)
