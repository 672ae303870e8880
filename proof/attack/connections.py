"""Connections that do not talk as they should."""

from proof.attack.attacks import attack
from proof.attack.target import Target

COMING_AND_GOING, AT_A_TIME = 1000, 200


@attack("C5", seconds=10, expected=r"Rows")
def connections_come_and_go(target: Target) -> list:
    """Most say nothing; a client among them is served all the time."""
    answers = []
    for _ in range(COMING_AND_GOING // AT_A_TIME):
        silent = [target.raw() for _ in range(AT_A_TIME)]
        answers.append(target.query("SELECT i FROM attack.t WHERE k = 1"))
        for connection in silent:
            connection.close()
    return answers
