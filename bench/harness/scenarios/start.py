"""From exec to the first answer: with nothing, and with tables and a log to replay."""

import threading
import time

from dataclasses import dataclass

from bench.harness import load
from bench.harness.length import Length
from bench.harness.outcome import Bar, Outcome, Table, median, spread
from bench.harness.rounds import Progress
from bench.harness.scenarios import tables
from bench.harness.servers import Cassandra, Espalier
from bench.harness.session import Session
from proof.wire import Connection, ConnectionClosed, Rows

KEYSPACE = "bench"
QUESTION = "SELECT release_version FROM system.local"
TIMEOUT_SECONDS = 120
POLL_SECONDS = 0.002
VALUE_BYTES = 1000


@dataclass(frozen=True)
class Plan:
    rounds: int
    rows: int


PLANS = {Length.FULL: Plan(5, 500_000), Length.SHORT: Plan(5, 50_000), Length.SMOKE: Plan(1, 5_000)}


def run(session: Session) -> Outcome:
    plan = PLANS[session.length]
    outcome = Outcome("start", settings={
        "first answer": QUESTION, "rounds": plan.rounds,
        "data": f"{2 * plan.rows:,} rows of {VALUE_BYTES} B, half of them flushed, the others in the log; kill -9"})
    times = {}
    for kind in (Cassandra, Espalier):
        progress = Progress(f"start {kind.name}", 2 * plan.rounds + 1)
        with kind.start(sync="batch") as node:
            outcome.settings[node.name] = node.settings
            times[node.name, "empty"] = []
            for _ in range(plan.rounds):
                progress.step("empty")
                times[node.name, "empty"].append(restart(node, QUESTION))
            progress.step("filling")
            tables.make(node, KEYSPACE, {"kv": tables.KEY_VALUE})
            tables.fill(node, KEYSPACE, "kv", plan.rows, VALUE_BYTES)
            node.flush(KEYSPACE, "kv")
            times[node.name, "with data"] = []
            for _ in range(plan.rounds):
                progress.step("with data")
                times[node.name, "with data"].append(start_with_a_log(node, plan.rows))
        progress.end()
    rows_of_table = [[system, state, spread([seconds * 1000 for seconds in all_times])] for (system, state), all_times in times.items()]
    outcome.tables.append(Table("exec to first answer, ms", ["system", "state", "median (least–greatest)"], rows_of_table))
    outcome.bars.append(Bar("exec to first answer, empty, ms", 1000 * median(times["espalier", "empty"]), "<=", 100))
    return outcome


def start_with_a_log(node, rows: int) -> float:
    """Seconds to the first answer after kill -9. Both servers flush the records that they replay, so that a second
    start without new writes replays nothing."""
    tables.fill(node, KEYSPACE, "kv", rows, VALUE_BYTES, first=rows)
    time.sleep(1)
    seconds = restart(node, f"SELECT key FROM {KEYSPACE}.kv LIMIT 1")
    # Everything that was written must be found, flushed or replayed.
    load.run(node, KEYSPACE, tables.uniform("kv", 2 * rows, VALUE_BYTES), seed=8, reads_percent=100, operations=5_000)
    return seconds


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
