"""Reads that take long: many at a time, and reads whose clients have gone."""

import socket
import struct

from proof.attack.attacks import attack
from proof.attack.target import Target
from proof.wire import QueryOptions, requests

ALLOWED = r"Rows|Error 0x1001 .*|Error 0x1200 .*|Error 0x1300 .*"


@attack("C1", seconds=20, expected=ALLOWED)
def aggregate_over_a_partition(target: Target) -> list:
    """Looks like a read of one partition, and reads as much as a scan does."""
    return target.together(["SELECT max(v), count(v) FROM attack.tall WHERE p = 1"] * 8)


@attack("C1", seconds=20, expected=ALLOWED)
def prepared_aggregate_over_a_partition(target: Target) -> list:
    return target.pipelined(16, "SELECT max(v), count(v) FROM attack.tall WHERE p = ?", ((1).to_bytes(4, "big"),))


@attack("C1", seconds=20, expected=ALLOWED)
def filtering_a_partition(target: Target) -> list:
    return target.together(["SELECT v FROM attack.tall WHERE p = 1 AND v = -1 ALLOW FILTERING"] * 8)


@attack("C1", seconds=20, expected=ALLOWED)
def grouping_and_sorting(target: Target) -> list:
    return target.together(["SELECT p, c, count(v) FROM attack.tall WHERE p = 1 GROUP BY p, c",
                            "SELECT c, v FROM attack.tall WHERE p IN (1, 2, 3) ORDER BY c DESC",
                            "SELECT DISTINCT p FROM attack.tall", "SELECT JSON * FROM attack.tall WHERE p = 1"])


@attack("H2", seconds=60, expected=ALLOWED)
def pipelined_scans(target: Target) -> list:
    answers = target.pipelined(300, "SELECT count(*) FROM attack.tall")
    threads = target.status("Threads")
    return answers + [f"{threads} threads"] if threads > 150 else answers


@attack("H2", seconds=60, expected=ALLOWED)
def scans_of_many_connections(target: Target) -> list:
    return target.together(["SELECT count(*) FROM attack.tall"] * 60)


@attack("second look", seconds=30, expected=r"Rows")
def scans_of_clients_that_have_gone(target: Target) -> list:
    """Connections that are reset right after their request."""
    body = requests.query("SELECT count(*) FROM attack.tall", QueryOptions(), 5)
    for _ in range(250):
        connection = target.connect()
        for _ in range(4):
            connection.send(requests.QUERY, body)
        connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()
    answers = [target.query("SELECT i FROM attack.t WHERE k = 1")]
    threads = target.status("Threads")
    return answers + [f"{threads} threads"] if threads > 150 else answers
