"""Requests whose answers are much larger than they are, and clients that do not read them."""

import time

from proof.attack.attacks import attack
from proof.attack.target import Target
from proof.wire import QueryOptions, requests


@attack("C6", seconds=20, expected=r"Error 0x.*")
def one_blob_many_times(target: Target) -> list:
    """The answer would have 450 times the size of the blob."""
    return [target.query(f"SELECT {','.join(['b'] * 450)} FROM attack.t WHERE k = 1")]


@attack("H6", seconds=20, expected=r"Rows|Error 0x1001 .*")
def pages_of_large_rows(target: Target) -> list:
    """Eight clients request all of the rows at once."""
    return target.together(["SELECT * FROM attack.wide"] * 8, QueryOptions(page_size=1_000_000))


@attack("H1", seconds=30, expected=r"Rows")
def answers_that_nobody_reads(target: Target) -> list:
    """The answers are those of scans, of reads of one partition, and of requests that are answered at once."""
    silent = [target.connect() for _ in range(6)]
    texts = ("SELECT * FROM attack.wide LIMIT 200", "SELECT * FROM attack.wide WHERE p = 1 LIMIT 200",
             "SELECT b FROM attack.t WHERE k = 1")
    for number, connection in enumerate(silent):
        body = requests.query(texts[number % len(texts)], QueryOptions(page_size=200), 5)
        connection.socket.settimeout(1)
        try:
            for _ in range(100):
                connection.send(requests.QUERY, body)
        except OSError:
            pass            # the node no longer reads from this client
    time.sleep(2)
    answers = [target.query("SELECT i FROM attack.t WHERE k = 1")]
    for connection in silent:
        connection.close()
    return answers
