"""Reads that cost much: long partitions, deletions, large pages, and scans whose clients have left."""

import threading
import time

from proof.attack.attacks import attack, describe
from proof.attack.target import Target
from proof.wire import Error, QueryOptions, Rows
from proof.wire import requests

DEEP_ROWS = 30_000
DELETED_ROWS = 20_000
PIPELINED = 500
READERS = 4
SCANS = 50
SETTLING_SECONDS, WATCHED_SECONDS = 2, 1
# A share of a core. The probe and an honest client's connections use some of it, too.
CPU_SHARE_MAX = 0.5
FILLING = threading.Lock()


def deep(target: Target) -> None:
    """Makes the partitions of the reads below, once for a node: one of many rows, and one
    whose last rows are all deleted."""
    with FILLING:
        if getattr(target, "has_deep", False):
            return
        target.must("CREATE TABLE IF NOT EXISTS attack.deep (p int, c int, v int, PRIMARY KEY (p, c))")
        with target.connect() as connection:
            insert = connection.prepare("INSERT INTO attack.deep (p, c, v) VALUES (?, ?, ?)")
            delete = connection.prepare("DELETE FROM attack.deep WHERE p = ? AND c = ?")
            work = [(insert, (1, c, c)) for c in range(DEEP_ROWS)] + [(insert, (2, 0, 0))] + \
                   [(delete, (2, c)) for c in range(1, DELETED_ROWS)]
            for start in range(0, len(work), PIPELINED):
                some = work[start:start + PIPELINED]
                for statement, values in some:
                    options = QueryOptions(tuple(value.to_bytes(4, "big") for value in values))
                    connection.send(requests.EXECUTE, requests.execute(statement.id, statement.metadata_id, options, 5))
                for _ in some:
                    _, answer = connection.receive()
                    if isinstance(answer, Error):
                        raise RuntimeError(f"the partitions cannot be filled: {answer}")
        target.has_deep = True


def repeated(target: Target, cql: str, times: int) -> list:
    """The answers to a statement that several clients send again and again at the same time."""
    answers: list = []

    def read() -> None:
        with target.connect() as connection:
            answers.extend(connection.query(cql) for _ in range(times))

    readers = [threading.Thread(target=read) for _ in range(READERS)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    return answers


@attack("C1", seconds=20, expected=r"Rows")
def aggregates_of_a_long_partition(target: Target) -> list:
    deep(target)
    return repeated(target, "SELECT max(v), count(v) FROM attack.deep WHERE p = 1", 10)


@attack("C1", seconds=20, expected=r"Rows")
def one_row_behind_deleted_ones(target: Target) -> list:
    deep(target)
    return repeated(target, "SELECT v FROM attack.deep WHERE p = 2 ORDER BY c DESC LIMIT 1", 10)


@attack("C6", seconds=20, expected=r"Error 0x1300 The statement would hold more than .*|Error 0x2200 .*")
def many_copies_of_a_value(target: Target) -> list:
    """The same blob many times over: as columns, in one JSON text, in a list, as aggregates."""
    many = ",".join(["b"] * 450)
    return [target.query(f"SELECT {selected} FROM attack.t WHERE k = 1") for selected in (
        many, f"JSON {many}", f"[{many}]", ",".join(["max(b)"] * 450), f"{many}, count(*)")]


@attack("H6", seconds=20, expected=r"a full page|the last page")
def pages_of_many_rows(target: Target) -> list:
    """A page has as many bytes as the node allows, however many rows the client requests; the
    next page continues after it."""
    answers, seen, state = [], 0, None
    with target.connect() as connection:
        while not answers or state:
            page = connection.query("SELECT c, v FROM attack.wide WHERE p = 1", QueryOptions(page_size=1_000_000, paging_state=state))
            if not isinstance(page, Rows):
                return [describe(page)]
            state = page.metadata.paging_state
            seen += len(page.rows)
            size_bytes = sum(len(cell) for row in page.rows for cell in row)
            if size_bytes > 2 * target.page_bytes:
                return [f"a page of {size_bytes} bytes"]
            answers.append("a full page" if state else "the last page")
    return answers if seen == target.wide_rows else [f"{seen} rows"]


@attack("H12", seconds=30, expected=r"ended")
def scans_of_clients_that_left(target: Target) -> list:
    """The scans take seconds together, and no client waits for any of them."""
    deep(target)
    for _ in range(SCANS):
        connection = target.connect()
        for _ in range(20):
            connection.send(requests.QUERY, requests.query("SELECT count(*) FROM attack.deep WHERE v < 0 ALLOW FILTERING", QueryOptions(), 5))
        connection.close()
    time.sleep(SETTLING_SECONDS)
    before = target.cpu_seconds()
    time.sleep(WATCHED_SECONDS)
    share = (target.cpu_seconds() - before) / WATCHED_SECONDS
    return ["ended" if share <= CPU_SHARE_MAX else f"the node still takes {share:.2f} of a core"]
