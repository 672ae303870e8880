"""Connections that do not follow the protocol."""

import struct

from proof.attack.attacks import attack
from proof.attack.target import MIB, Target
from proof.wire import requests

COMING_AND_GOING, AT_A_TIME = 1000, 200
FRAME_BYTES = 15_900_000


@attack("C5", seconds=10, expected=r"Rows")
def connections_come_and_go(target: Target) -> list:
    """Most connections send nothing. A client among them is served all the time."""
    answers = []
    for _ in range(COMING_AND_GOING // AT_A_TIME):
        silent = [target.raw() for _ in range(AT_A_TIME)]
        answers.append(target.query("SELECT i FROM attack.t WHERE k = 1"))
        for connection in silent:
            connection.close()
    return answers


def unfinished(size: int) -> bytes:
    return struct.pack(">BBhBi", 4, 0, 1, requests.QUERY, size) + bytes(size - 1000)


@attack("H3", seconds=30, expected=r"Rows")
def requests_that_never_end(target: Target) -> list:
    """Some requests begin before STARTUP and others after it."""
    frame = unfinished(FRAME_BYTES)
    before = [target.raw() for _ in range(60)]
    after = [target.connect(4) for _ in range(60)]
    for connection in before + [connection.socket for connection in after]:
        connection.setblocking(False)
        try:
            connection.send(frame[:4 * MIB])
        except OSError:
            pass            # the node does not read more of it
    sent = [0] * len(after)
    for _ in range(20):     # as much as the node reads
        for number, connection in enumerate(after):
            try:
                sent[number] += connection.socket.send(frame[sent[number]:sent[number] + MIB])
            except OSError:
                pass
    answers = [target.query("SELECT i FROM attack.t WHERE k = 1")]
    for connection in before:
        connection.close()
    for connection in after:
        connection.close()
    return answers


@attack("H3", seconds=20, expected=r"Rows")
def buffers_that_were_large_once(target: Target) -> list:
    """Many clients send one large request each, and keep their connection."""
    clients = [target.connect() for _ in range(100)]
    answers = [client.query(f"SELECT i FROM attack.t WHERE k = 1 /* {'x' * 400_000} */") for client in clients]
    for client in clients:
        client.close()
    return answers


@attack("register", seconds=10, expected=r"Ready|Error 0x000a .*")
def registering_again_and_again(target: Target) -> list:
    with target.connect() as connection:
        answers = [connection.register("SCHEMA_CHANGE", "STATUS_CHANGE", "TOPOLOGY_CHANGE") for _ in range(500)]
        answers.append(connection.register(*(["SCHEMA_CHANGE"] * 60_000)))
    return answers
