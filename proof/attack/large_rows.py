"""Rows of many megabytes: clients that do not read their answers, and reads that merge
several versions of such rows."""

import threading
import time

from proof.attack.attacks import attack
from proof.attack.target import MIB, Target
from proof.wire import Error, QueryOptions, requests

VALUE_BYTES = 8 * MIB
SSTABLES, ROWS = 3, 2
SILENT_CLIENTS = 80
# A row is larger than the memory of one statement, and each of its values is smaller.
BROAD_COLUMNS, BROAD_VALUE_BYTES, BROAD_CLIENTS = "bcd", 10 * MIB, 50
ALLOWED = r"Rows|Void|Error 0x1001 .*|Error 0x1200 .*"
FILLING = threading.Lock()


def large(target: Target) -> None:
    """Makes a table of large rows, each in several SSTables, once for a node."""
    with FILLING:
        if getattr(target, "has_large", False):
            return
        target.must("CREATE TABLE IF NOT EXISTS attack.large (k int PRIMARY KEY, b blob, c blob, i int)")
        with target.connect() as connection:
            for number in range(SSTABLES):
                column = "bc"[number % 2]
                insert = connection.prepare(f"INSERT INTO attack.large (k, {column}, i) VALUES (?, ?, 1)")
                for k in range(ROWS):
                    answer = connection.execute(insert, QueryOptions((k.to_bytes(4, "big"), bytes(VALUE_BYTES))))
                    if isinstance(answer, Error):
                        raise RuntimeError(f"the large rows cannot be written: {answer}")
                target.node.flush("attack", "large")
        target.has_large = True


@attack("large rows", seconds=30, expected=r"Rows")
def large_answers_that_nobody_reads(target: Target) -> list:
    """Each client sends one small request, whose answer is large."""
    large(target)
    answers = []
    for text in ("SELECT b FROM attack.large WHERE k = 1", "SELECT * FROM attack.large"):
        silent = [target.connect() for _ in range(SILENT_CLIENTS)]
        for connection in silent:
            connection.send(requests.QUERY, requests.query(text, QueryOptions(page_size=100), 5))
        time.sleep(1.5)
        answers.append(target.query("SELECT i FROM attack.t WHERE k = 1"))
        for connection in silent:
            connection.close()
    return answers


@attack("large rows", seconds=20, expected=r"Rows")
def values_of_a_memtable_that_nobody_reads(target: Target) -> list:
    """The same, with rows that are in no SSTable."""
    silent = [target.connect() for _ in range(3 * SILENT_CLIENTS)]
    for connection in silent:
        connection.send(requests.QUERY, requests.query("SELECT b FROM attack.t WHERE k = 1", QueryOptions(), 5))
    time.sleep(1.5)
    answers = [target.query("SELECT i FROM attack.t WHERE k = 1")]
    for connection in silent:
        connection.close()
    return answers


@attack("large rows", seconds=20, expected=ALLOWED)
def versions_of_large_rows(target: Target) -> list:
    """The answers are small, and the rows that are merged for them are large."""
    large(target)
    return target.together(["SELECT i FROM attack.large", "SELECT count(b) FROM attack.large",
                            "SELECT i FROM attack.large WHERE k IN (0, 1)"] * 6)


@attack("large rows", seconds=20, expected=ALLOWED + r"|Error 0x1300 .*")
def texts_of_large_rows(target: Target) -> list:
    large(target)
    return target.together(["SELECT JSON * FROM attack.large", "SELECT max(b) FROM attack.large",
                            "SELECT b, c FROM attack.large WHERE k IN (0, 1)"] * 4)


@attack("large rows", seconds=30, expected=ALLOWED)
def a_value_of_a_row_of_many_megabytes(target: Target) -> list:
    """Statements select one value of a large row, first from a memtable and then from an SSTable.
    Only the last answer is read."""
    columns = ", ".join(f"{name} blob" for name in BROAD_COLUMNS)
    target.must(f"CREATE TABLE IF NOT EXISTS attack.broad_rows (k int PRIMARY KEY, a int, {columns})")
    answers = []
    with target.connect() as connection:
        for name in BROAD_COLUMNS:
            insert = connection.prepare(f"INSERT INTO attack.broad_rows (k, a, {name}) VALUES (1, 7, ?)")
            answers.append(connection.execute(insert, QueryOptions((bytes(BROAD_VALUE_BYTES),))))
    for _ in range(2):
        silent = [target.connect() for _ in range(BROAD_CLIENTS)]
        for connection in silent:
            connection.send(requests.QUERY, requests.query("SELECT b FROM attack.broad_rows WHERE k = 1", QueryOptions(), 5))
        answers.append(target.query("SELECT a FROM attack.broad_rows WHERE k = 1"))
        time.sleep(1.5)
        for connection in silent:
            connection.close()
        answers.append(target.query("SELECT a FROM attack.broad_rows WHERE k = 1"))
        target.node.flush("attack", "broad_rows")
    target.must("DROP TABLE attack.broad_rows")
    return answers
