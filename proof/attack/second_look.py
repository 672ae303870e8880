"""Attacks of the known classes that a stranger tried: each is like one of the list, with another statement.

Most end with an error that names a limit, or with a request to come back later; some are simply carried out. What
matters is that the honest client is served meanwhile, and that memory stays under its bound.
"""

import random
import struct
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from proof.attack.attacks import attack
from proof.attack.reads import deep
from proof.attack.target import Target
from proof.wire import Error, QueryOptions, requests

ANSWER = r"Rows|Void|SchemaChange|Prepared"
REFUSAL = r"Error 0x(1001|1100|1200|1300|1400|2200|2000) .*"
ANY = rf"{ANSWER}|{REFUSAL}"
UNLOGGED = 1
PATIENCE_SECONDS = 40


def int4(number: int) -> bytes:
    return struct.pack(">i", number)


def pipelined(target: Target, cql: str, count: int, clients: int, options: QueryOptions = QueryOptions()) -> list:
    """The answers to a statement that each client sends `count` times before it reads the first answer."""
    body = requests.query(cql, options, 5)

    def ask(_) -> list:
        with target.connect() as connection:
            connection.socket.settimeout(PATIENCE_SECONDS)
            for _ in range(count):
                connection.send(requests.QUERY, body)
            return [connection.receive()[1] for _ in range(count)]
    return of_all(ask, clients)


def of_all(ask: Callable[[int], list], clients: int) -> list:
    with ThreadPoolExecutor(clients) as pool:
        return [answer for answers in pool.map(ask, range(clients)) for answer in answers]


def numbered(count: int, part: Callable[[int], str]) -> str:
    return ",".join(map(part, range(count)))


# Schema

@attack("H9", seconds=10, expected=ANY)
def options_of_many_entries(target: Target) -> list:
    texts = [f"CREATE TABLE IF NOT EXISTS attack.commented (k int PRIMARY KEY) WITH comment = '{'c' * 9_000_000}'"]
    for option in ("extensions", "compaction", "compression", "caching"):
        entries = numbered(60_000, lambda number: f"'e{number}': '{number}'")
        texts.append(f"CREATE TABLE IF NOT EXISTS attack.optioned (k int PRIMARY KEY) WITH {option} = {{{entries}}}")
    entries = numbered(60_000, lambda number: f"'dc{number}': 1")
    texts.append(f"CREATE KEYSPACE replicated WITH replication = {{'class': 'NetworkTopologyStrategy', {entries}}}")
    texts.append(f"CREATE TYPE attack.fielded ({numbered(30_000, lambda number: f'f{number} int')})")
    return target.together(texts)


@attack("H9", seconds=20, expected=ANY)
def schema_that_is_read_again_and_again(target: Target) -> list:
    """A table of many columns, whose description and schema rows are large."""
    columns = numbered(3000, lambda number: f"column_number_{number} int")
    answers = [target.query(f"CREATE TABLE IF NOT EXISTS attack.described (k int PRIMARY KEY, {columns})")]
    answers += pipelined(target, "DESCRIBE FULL SCHEMA", 8, 3)
    answers += pipelined(target, "SELECT * FROM system_schema.columns", 10, 3)
    return answers + [target.query("DROP TABLE attack.described")]


@attack("H9", seconds=20, expected=ANY)
def tables_that_come_and_go(target: Target) -> list:
    """Each drop and each truncation leaves a snapshot, and tells all clients that registered for it."""
    listeners = [target.connect() for _ in range(60)]
    for listener in listeners:
        listener.register("SCHEMA_CHANGE", "STATUS_CHANGE", "TOPOLOGY_CHANGE")
    answers = []
    with target.connect() as connection:
        for _ in range(30):
            answers.append(connection.query("CREATE TABLE IF NOT EXISTS attack.going (k int PRIMARY KEY, v blob)"))
            answers.append(connection.query(f"INSERT INTO attack.going (k, v) VALUES (1, 0x{'ab' * 1000})"))
            answers.append(connection.query("TRUNCATE attack.going"))
            answers.append(connection.query("DROP TABLE attack.going"))
    for listener in listeners:
        listener.close()
    return answers


# Writes

@attack("H4", seconds=20, expected=ANY)
def documents_of_many_values(target: Target) -> list:
    """JSON in the text of a statement, and as a value."""
    ones = numbered(400_000, lambda _: "1")
    documents = ['{"k": 5, "l": [' + ones + "]}", "{" + numbered(200_000, lambda number: f'"c{number}": 1') + "}",
                 '{"k": 5, "l": ' + "[" * 100_000 + "]" * 100_000 + "}", '{"k": 5, "m": {' + numbered(100_000, lambda n: f'"{n}": 1') + "}}"]
    answers = target.together([f"INSERT INTO attack.t JSON '{document}'" for document in documents])

    def ask(number: int) -> list:
        with target.connect() as connection:
            connection.socket.settimeout(PATIENCE_SECONDS)
            insert = connection.prepare("INSERT INTO attack.t JSON ?")
            return [connection.execute(insert, QueryOptions((documents[number].encode(),)))]
    return answers + of_all(ask, len(documents))


@attack("H8", seconds=20, expected=ANY)
def batches_of_many_statements(target: Target) -> list:
    text = "BEGIN UNLOGGED BATCH " + "".join(f"INSERT INTO attack.t (k,i) VALUES ({number},1);" for number in range(10_000)) + " APPLY BATCH"

    def ask(_) -> list:
        with target.connect() as connection:
            connection.socket.settimeout(PATIENCE_SECONDS)
            insert = connection.prepare("INSERT INTO attack.t (k, i) VALUES (?, ?)")
            return [connection.batch(UNLOGGED, [(insert.id, (int4(number), int4(number))) for number in range(60_000)])]
    return target.together([text] * 3) + of_all(ask, 3)


@attack("H5", seconds=20, expected=ANY)
def many_tuples_in_an_in(target: Target) -> list:
    tuples = numbered(15_000, lambda number: f"({number},{number})")
    answers = [target.query("CREATE TABLE IF NOT EXISTS attack.pairs (a int, b int, c int, v int, PRIMARY KEY (a, b, c))")]
    return answers + target.together([f"{begin} WHERE a = 1 AND (b, c) IN ({tuples})" for begin in (
        "DELETE FROM attack.pairs", "UPDATE attack.pairs SET v = 1", "SELECT * FROM attack.pairs")])


@attack("H1", seconds=20, expected=r"Rows")
def large_writes_whose_answers_nobody_reads(target: Target) -> list:
    silent = [target.connect() for _ in range(6)]
    for connection in silent:
        connection.socket.settimeout(1)
        try:
            insert = connection.prepare("INSERT INTO attack.t (k, b) VALUES (77, ?)")
            body = requests.execute(insert.id, insert.metadata_id, QueryOptions((bytes(3_000_000),)), 5)
            for _ in range(20):
                connection.send(requests.EXECUTE, body)
        except OSError:
            pass            # the node no longer reads from this client
    time.sleep(1)
    answers = [target.query("SELECT i FROM attack.t WHERE k = 1")]
    for connection in silent:
        connection.close()
    return answers


@attack("C1", seconds=30, expected=ANY)
def many_range_deletions(target: Target) -> list:
    answers = []
    with target.connect() as connection:
        connection.socket.settimeout(PATIENCE_SECONDS)
        delete = connection.prepare("DELETE FROM attack.tall WHERE p = 60 AND c > ? AND c < ?")
        for first in range(0, 10_000, 500):
            for number in range(first, first + 500):
                values = (int4(number * 10), int4(number * 10 + 5))
                connection.send(requests.EXECUTE, requests.execute(delete.id, delete.metadata_id, QueryOptions(values), 5))
            answers += [connection.receive()[1] for _ in range(500)]
    for order in ("", "ORDER BY c DESC "):
        answers += pipelined(target, f"SELECT * FROM attack.tall WHERE p = 60 {order}LIMIT 1", 10, 3)
    return answers


# Reads

@attack("C1", seconds=30, expected=ANY)
def texts_that_are_just_not_long(target: Target) -> list:
    """Their sizes are from a few hundred bytes to 32 KB. They are sent without a pause."""
    answers = []
    for text in (f"SELECT {','.join(['i'] * 15_000)} FROM attack.t WHERE k = 1", f"SELECT i FROM attack.t WHERE k IN ({','.join(['1'] * 15_000)})",
                 f"SELECT {','.join(['i' + '+1' * 10] * 300)} FROM attack.t WHERE k = 1", f"SELECT {','.join(['i' + '+1' * 10] * 15)} FROM attack.t WHERE k = 1"):
        answers += pipelined(target, text, 20, 4)
    return answers


@attack("C1", seconds=30, expected=ANY)
def requests_that_each_take_a_turn(target: Target) -> list:
    """Each request needs nearly as much time as a thread that serves connections may spend on one request, or a little
    more."""
    deep(target)
    answers = []
    for cql in ("SELECT max(v) FROM attack.deep WHERE p = 1 AND c < 9000", "SELECT max(v) FROM attack.deep WHERE p = 1 AND c < 11000"):
        answers += pipelined(target, cql, 60, 4)
    return answers


@attack("H11", seconds=30, expected=ANY)
def calculations_with_many_large_numbers(target: Target) -> list:
    with target.connect() as connection:
        connection.socket.settimeout(PATIENCE_SECONDS)
        answers = [connection.query("CREATE TABLE IF NOT EXISTS attack.numbers (p int, c int, v varint, d decimal, PRIMARY KEY (p, c))")]
        insert = connection.prepare("INSERT INTO attack.numbers (p, c, v, d) VALUES (1, ?, ?, ?)")
        for number in range(30):
            scale = int4(random.Random(number).randrange(-90_000, 90_000))
            values = (int4(number), b"\x07" * 40_000, scale + b"\x07" * 40_000)
            answers.append(connection.execute(insert, QueryOptions(values)))
        for selected in ("sum(v)", "avg(d)", "max(d)", "sum(v*v)", "sum(d*d)"):
            answers.append(connection.query(f"SELECT {selected} FROM attack.numbers WHERE p = 1"))
    return answers


@attack("C6", seconds=20, expected=ANY)
def large_answers_of_small_rows(target: Target) -> list:
    return pipelined(target, f"SELECT {','.join(['c,v'] * 2000)} FROM attack.tall WHERE p = 1", 3, 4) + \
        pipelined(target, f"SELECT {','.join(['CAST(v AS text)'] * 500)} FROM attack.tall WHERE p = 1", 3, 3) + \
        pipelined(target, "SELECT * FROM attack.wide", 3, 4, QueryOptions(page_size=None))


@attack("C6", seconds=20, expected=ANY)
def functions_of_large_values(target: Target) -> list:
    many = ",".join(["blobastext(textasblob(blobastext(b)))"] * 20)
    return target.together([f"SELECT {many} FROM attack.t WHERE k = 1", f"SELECT {','.join(['tojson(b)'] * 10)} FROM attack.t WHERE k = 1"] * 2)


@attack("C1", seconds=30, expected=ANY)
def groups_and_sorted_rows(target: Target) -> list:
    texts = ["SELECT p, c, count(*), max(v), avg(v) FROM attack.tall GROUP BY p, c", "SELECT DISTINCT p FROM attack.tall",
             "SELECT * FROM attack.tall WHERE p IN (1, 2, 3, 4, 5) ORDER BY c", "SELECT * FROM attack.tall PER PARTITION LIMIT 1",
             "SELECT * FROM attack.tall WHERE token(p) > -9223372036854775808 LIMIT 100000",
             f"SELECT p, c, {','.join(['max(v)'] * 500)} FROM attack.tall GROUP BY p, c LIMIT 500",
             f"SELECT * FROM attack.tall WHERE v IN ({numbered(10_000, lambda number: str(-number - 1))}) ALLOW FILTERING"]
    return target.together(texts, QueryOptions(page_size=None))


@attack("H1", seconds=30, expected=r"Void|Error 0x1001 .*")
def writes_of_large_values(target: Target) -> list:
    """Several clients write to one partition and to several, and wait for their answers."""
    target.must("CREATE TABLE IF NOT EXISTS attack.blobs (k int PRIMARY KEY, b blob)")

    def ask(client: int) -> list:
        with target.connect() as connection:
            connection.socket.settimeout(PATIENCE_SECONDS)
            insert = connection.prepare("INSERT INTO attack.blobs (k, b) VALUES (?, ?)")
            keys = [100 + client] * 3 + [100] * 3
            return [connection.execute(insert, QueryOptions((int4(key), bytes(10_000_000)))) for key in keys]
    answers = of_all(ask, 4)
    target.must("TRUNCATE attack.blobs")
    return answers


@attack("H2", seconds=30, expected=ANY)
def traced_requests(target: Target) -> list:
    tracing = 2
    body = requests.query("SELECT i FROM attack.t WHERE k = 1", QueryOptions(), 5)

    def ask(_) -> list:
        with target.connect() as connection:
            connection.socket.settimeout(PATIENCE_SECONDS)
            for _ in range(300):
                connection.send(requests.QUERY, body, flags=tracing)
            return [connection.receive()[1] for _ in range(300)]
    return of_all(ask, 4)


@attack("H7", seconds=30, expected=ANY)
def many_values_and_markers(target: Target) -> list:
    markers = ",".join(["?"] * 65_535)
    options = QueryOptions(tuple(map(int4, range(65_535))))
    body = requests.query(f"SELECT i FROM attack.t WHERE k IN ({markers})", options, 5)
    wrong = requests.query("SELECT i FROM attack.t WHERE k = ?", options, 5)

    def ask(_) -> list:
        with target.connect() as connection:
            connection.socket.settimeout(PATIENCE_SECONDS)
            answers = [connection.request(requests.QUERY, body), connection.request(requests.QUERY, wrong)]
            find = connection.prepare("SELECT * FROM attack.t WHERE k IN ?")
            if isinstance(find, Error):
                return [*answers, find]
            keys = int4(50_000) + b"".join(int4(4) + int4(2_000_000 + number) for number in range(50_000))
            return [*answers, *(connection.execute(find, QueryOptions((keys,))) for _ in range(5))]
    return of_all(ask, 3)


@attack("H3", seconds=20, expected=r"Rows")
def requests_that_arrive_byte_by_byte(target: Target) -> list:
    clients = [target.connect(4) for _ in range(200)]
    begin = struct.pack(">BBhBi", 4, 0, 1, requests.QUERY, 10_000_000)
    for client in clients:
        client.socket.send(begin + b"x" * 100)
    stop = threading.Event()

    def drip() -> None:
        while not stop.is_set():
            for client in clients:
                try:
                    client.socket.send(b"x" * 1000)
                except OSError:
                    pass        # it was closed
            stop.wait(0.1)
    thread = threading.Thread(target=drip)
    thread.start()
    time.sleep(1)
    answers = [target.query("SELECT i FROM attack.t WHERE k = 1")]
    stop.set()
    thread.join()
    for client in clients:
        client.close()
    return answers
