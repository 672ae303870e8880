"""Many clients at one place: one row, one counter, the schema and those who listen to it."""

import random
import socket
import struct
import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from proof.attack.attacks import attack, describe
from proof.attack.target import Target
from proof.wire import ConnectionClosed, Error, QueryOptions, Rows, requests

CLIENTS, PIPELINED = 200, 10
LISTENERS, CHANGES = 400, 25
PAGES_OF_ONE = 40
UNREAD_WRITES = 1000
MANY_COUNTERS, PIPELINED_MANY = 30_000, 20
SOME_KEYS, LOCKED_KEYS, PIPELINED_SOME = 1_000, 128, 500
CONDITION_MS_MAX = 500
ALLOWED = r"Rows|Void|Error 0x(1001|1100|1700|1200) .*"


def crowd(target: Target, cql: str) -> list:
    """Returns the answers to a statement that each of many clients sends several times before
    any of them reads an answer."""
    clients = [target.connect() for _ in range(CLIENTS)]
    body = requests.query(cql, QueryOptions(), 5)
    for client in clients:
        for _ in range(PIPELINED):
            client.send(requests.QUERY, body)

    def receive(client) -> list:
        with client:
            return [client.receive()[1] for _ in range(PIPELINED)]
    with ThreadPoolExecutor(16) as pool:
        return [answer for answers in pool.map(receive, clients) for answer in answers]


@attack("hot key", seconds=30, expected=ALLOWED)
def conditions_on_one_row(target: Target) -> list:
    """All clients wait for one lock, each for at most cas_contention_timeout."""
    target.must("CREATE TABLE IF NOT EXISTS attack.hot (k int PRIMARY KEY, v int, b blob)")
    target.must("INSERT INTO attack.hot (k, v) VALUES (1, 0)")
    return crowd(target, "UPDATE attack.hot SET v = 1 WHERE k = 1 IF v >= 0")


@attack("hot key", seconds=30, expected=ALLOWED)
def conditions_on_a_large_row(target: Target) -> list:
    """Each condition reads the row, and the answer has the row's value where the condition does not hold."""
    target.must("CREATE TABLE IF NOT EXISTS attack.hot (k int PRIMARY KEY, v int, b blob)")
    with target.connect() as connection:
        insert = connection.prepare("INSERT INTO attack.hot (k, v, b) VALUES (2, 0, ?)")
        connection.execute(insert, QueryOptions((bytes(1 << 20),)))
    return crowd(target, "UPDATE attack.hot SET v = 1 WHERE k = 2 IF v = 5 AND b != 0x00")


@attack("hot key", seconds=30, expected=ALLOWED)
def increments_of_one_counter(target: Target) -> list:
    target.must("CREATE TABLE IF NOT EXISTS attack.counted (k int PRIMARY KEY, c counter)")
    return crowd(target, "UPDATE attack.counted SET c = c + 1 WHERE k = 1")


def beside_conditions(target: Target, update: str, all_values: list[tuple]) -> list:
    """Updates that one client sends before it reads an answer, one for each tuple of values. Returns the answers to
    another client's conditional writes meanwhile."""
    target.must("CREATE TABLE IF NOT EXISTS attack.counted (k int PRIMARY KEY, c counter)")
    target.must("CREATE TABLE IF NOT EXISTS attack.hot (k int PRIMARY KEY, v int, b blob)")
    with ThreadPoolExecutor(1) as pool:
        updating = pool.submit(target.executed_together, update, all_values)
        answers, longest_ms = [], 0.0
        with target.connect() as connection:
            while not updating.done():
                began = time.monotonic()
                answers.append(connection.query(f"INSERT INTO attack.hot (k, v) VALUES ({len(answers)}, 0) IF NOT EXISTS"))
                longest_ms = max(longest_ms, 1000 * (time.monotonic() - began))
    print(f"    {len(answers)} conditional writes, {longest_ms:.0f} ms at most, beside {describe(updating.result()[-1])}", flush=True)
    return answers if longest_ms <= CONDITION_MS_MAX else [*answers, f"a conditional write took {longest_ms:.0f} ms"]


def ints(numbers: Iterable[int]) -> bytes:
    """A list<int>."""
    cells = [struct.pack(">ii", 4, number) for number in numbers]
    return struct.pack(">i", len(cells)) + b"".join(cells)


@attack("many keys", seconds=60, expected="Rows")
def increments_of_many_counters_beside_conditions(target: Target) -> list:
    """Statements that need the locks of most partitions."""
    keys = (ints(range(MANY_COUNTERS)),)
    return beside_conditions(target, "UPDATE attack.counted SET c = c + 1 WHERE k IN ?", [keys] * PIPELINED_MANY)


@attack("many keys", seconds=60, expected="Rows")
def hundreds_of_statements_of_a_thousand_keys(target: Target) -> list:
    """Each statement is small enough to run in one turn of its thread. When the device answers, all of them continue at
    the same time."""
    keys = [(ints(range(SOME_KEYS)),)] * PIPELINED_SOME
    updates = ("counted SET c = c + 1", "t SET l = l - [1]", "t SET i = 1")
    return [answer for update in updates for answer in beside_conditions(target, f"UPDATE attack.{update} WHERE k IN ?", keys)]


@attack("many keys", seconds=60, expected="Rows")
def hundreds_of_statements_that_hold_many_locks(target: Target) -> list:
    """Each statement has as many keys as one may lock together. The keys differ each time, so that
    statements wait for one another."""
    rng = random.Random(LOCKED_KEYS)
    keys = [(ints(rng.sample(range(1 << 20), LOCKED_KEYS)),) for _ in range(PIPELINED_SOME)]
    return beside_conditions(target, "UPDATE attack.counted SET c = c + 1 WHERE k IN ?", keys)


@attack("hot key", seconds=20, expected=r"Rows|Void|SchemaChange|Error 0x1001 .*")
def writes_of_a_client_that_reads_no_answers(target: Target) -> list:
    """Other clients write the same rows, and change the schema, which waits for all writes in flight."""
    target.must("CREATE TABLE IF NOT EXISTS attack.unread (k int PRIMARY KEY, v int, b blob)")
    target.must("CREATE TABLE IF NOT EXISTS attack.counted (k int PRIMARY KEY, c counter)")
    target.must(f"INSERT INTO attack.unread (k, v, b) VALUES (1, 0, 0x{'ab' * 200_000})")
    writes = ["UPDATE attack.unread SET v = 5 WHERE k = 1 IF EXISTS", "UPDATE attack.counted SET c = c + 1 WHERE k = 1",
              "UPDATE attack.unread SET v = 5 WHERE k = 1"]
    answers = []
    for write in writes:
        with target.connect() as unread, target.connect() as other:
            def send() -> None:
                try:
                    for _ in range(UNREAD_WRITES):
                        unread.send(requests.QUERY, requests.query("SELECT * FROM attack.unread WHERE k = 1", QueryOptions(), 5))
                        unread.send(requests.QUERY, requests.query(write, QueryOptions(), 5))
                except (OSError, ConnectionClosed):
                    pass            # the node stops reading, and the client closes its connection
            sender = threading.Thread(target=send, daemon=True)
            sender.start()
            time.sleep(1)
            answers += [other.query(write) for _ in range(3)]
            answers += [other.query("CREATE TABLE attack.dropped (k int PRIMARY KEY)"), other.query("DROP TABLE attack.dropped")]
            unread.socket.shutdown(socket.SHUT_RDWR)
            sender.join()
    return answers


@attack("register", seconds=30, expected=r"SchemaChange")
def listeners_that_do_not_read(target: Target) -> list:
    """The node sends each change of the schema to all listeners."""
    listeners = [target.connect() for _ in range(LISTENERS)]
    for listener in listeners:
        listener.register("SCHEMA_CHANGE", "STATUS_CHANGE", "TOPOLOGY_CHANGE")
    answers = []
    with target.connect() as connection:
        for number in range(CHANGES):
            answers.append(connection.query(f"CREATE TYPE attack.told_{number} (f int)"))
            answers.append(connection.query(f"DROP TYPE attack.told_{number}"))
    for listener in listeners:
        listener.close()
    return answers


@attack("paging", seconds=30, expected=r"Rows|Error 0x(2200|000a) .*")
def descriptions_by_forged_pages(target: Target) -> list:
    """The paging states have wrong positions, hashes and versions, or are from before a change of the schema."""
    answers = []
    with target.connect() as connection:
        first = connection.query("DESCRIBE SCHEMA", QueryOptions(page_size=1))
        if not isinstance(first, Rows) or not first.metadata.paging_state:
            return [f"the first page is {describe(first)}"]
        state = first.metadata.paging_state
        forged = [state[:cut] for cut in range(len(state))]
        forged += [state[:-8] + struct.pack(">Q", place) for place in (0, 1, 1 << 31, 1 << 63, (1 << 64) - 1)]
        forged += [state[:at] + bytes([state[at] ^ 0x41]) + state[at + 1:] for at in range(len(state))]
        forged += [state + bytes(100_000), bytes(len(state))]
        for one in forged:
            answers.append(connection.query("DESCRIBE SCHEMA", QueryOptions(page_size=1, paging_state=one)))
            answers.append(connection.query("SELECT * FROM attack.tall", QueryOptions(page_size=1, paging_state=one)))
        for number in range(PAGES_OF_ONE):
            page = connection.query("DESCRIBE SCHEMA", QueryOptions(page_size=1, paging_state=state))
            answers.append(page)
            if isinstance(page, Error) or not page.metadata.paging_state:
                break
            state = page.metadata.paging_state
            if number == PAGES_OF_ONE // 2:
                target.must("CREATE TYPE IF NOT EXISTS attack.between (f int)")
        target.must("DROP TYPE IF EXISTS attack.between")
    return answers


@attack("overload", seconds=30, expected=r"Rows|Error 0x1001 .*|Error 0x1200 .*")
def clients_that_prefer_errors(target: Target) -> list:
    """Requests over the limits with THROW_ON_OVERLOAD are answered with an error and not held back."""
    def ask(_) -> list:
        with target.connect() as connection:
            body = requests.query("SELECT * FROM attack.wide LIMIT 400", QueryOptions(page_size=400), 5)
            for _ in range(40):
                connection.send(requests.QUERY, body)
            return [connection.receive()[1] for _ in range(40)]
    with ThreadPoolExecutor(8) as pool:
        return [answer for answers in pool.map(ask, range(8)) for answer in answers]


@attack("C4", seconds=30, expected=r"SchemaChange|Void|Error 0x2200 .*")
def a_table_that_is_altered_again_and_again(target: Target) -> list:
    """Each change of the columns was once stored with all sets of columns before it. Rows of
    each set are written and read."""
    columns = ",".join(f"column_{number} int" for number in range(1500))
    target.must(f"CREATE TABLE IF NOT EXISTS attack.altered (k int PRIMARY KEY, {columns})")
    answers = []
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            target.query("SELECT k, column_7 FROM attack.altered")
            time.sleep(0.01)
    reader = threading.Thread(target=read)
    reader.start()
    try:
        with target.connect() as connection:
            for number in range(30):
                answers.append(connection.query(f"ALTER TABLE attack.altered ADD added_{number} int"))
                answers.append(connection.query(f"INSERT INTO attack.altered (k, column_7, added_{number}) VALUES ({number}, 1, 2)"))
            answers.append(connection.query("DROP TABLE attack.altered"))
    finally:
        stop.set()
        reader.join()
    return answers
