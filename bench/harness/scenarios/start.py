"""From exec to the first answer: with nothing, and with tables and a log to replay."""

import threading
import time

from bench.harness import load
from bench.harness.outcome import Bar, Outcome, Table, median, spread
from bench.harness.rounds import Progress
from bench.harness.scenarios import tables
from bench.harness.servers import Cassandra, Espalier
from proof.wire import Connection, ConnectionClosed, Rows

KEYSPACE = "bench"
QUESTION = "SELECT release_version FROM system.local"
TIMEOUT_SECONDS = 120
POLL_SECONDS = 0.002


def run(quick: bool) -> Outcome:
    rounds, rows, value_bytes = (3, 50_000, 1000) if quick else (5, 500_000, 1000)
    outcome = Outcome("start", settings={"first answer": QUESTION, "rounds": rounds,
                                         "data": f"{2 * rows:,} rows of {value_bytes} B, half of them flushed, the others in the log; kill -9"})
    times = {}
    for kind in (Cassandra, Espalier):
        progress = Progress(f"start {kind.name}", rounds + 2)
        with kind.start(sync="batch") as node:
            outcome.settings[node.name] = node.settings
            times[node.name, "empty"] = []
            for _ in range(rounds):
                progress.step("empty")
                times[node.name, "empty"].append(restart(node, QUESTION))
            progress.step("filling")
            tables.make(node, KEYSPACE, {"kv": tables.KEY_VALUE})
            tables.fill(node, KEYSPACE, "kv", rows, value_bytes)
            node.flush(KEYSPACE, "kv")
            tables.fill(node, KEYSPACE, "kv", rows, value_bytes, first=rows)
            time.sleep(1)
            progress.step("with data")
            times[node.name, "with data"] = [restart(node, f"SELECT key FROM {KEYSPACE}.kv LIMIT 1") for _ in range(rounds)]
            check(node, rows, value_bytes)
        progress.end()
    rows_of_table = [[system, state, spread([seconds * 1000 for seconds in all_times])] for (system, state), all_times in times.items()]
    outcome.tables.append(Table("exec to first answer, ms", ["system", "state", "median (least–greatest)"], rows_of_table))
    outcome.bars.append(Bar("exec to first answer, empty, ms", 1000 * median(times["espalier", "empty"]), "<=", 100))
    return outcome


def check(node, rows: int, value_bytes: int) -> None:
    """Reads of anything that was written, flushed or replayed, must find it."""
    load.run(node, KEYSPACE, tables.uniform("kv", 2 * rows, value_bytes), seed=8, reads_percent=100, operations=5_000)


def restart(node, question: str) -> float:
    """Kills the node, starts it on the same directory; seconds from exec to the answer."""
    node.kill()
    started = time.monotonic()
    launcher = threading.Thread(target=node.launch)
    launcher.start()
    seconds = first_answer(node, question, started)
    launcher.join()
    return seconds


def first_answer(node, question: str, started: float) -> float:
    answer = None
    while time.monotonic() - started < TIMEOUT_SECONDS:
        try:
            with Connection(node.host, node.port, version=4) as connection:
                answer = connection.query(question)
                if isinstance(answer, Rows):
                    return time.monotonic() - started
        except (OSError, ConnectionClosed):
            time.sleep(POLL_SECONDS)
    raise RuntimeError(f"{node.name} gave no rows within {TIMEOUT_SECONDS} s; last: {answer}")
