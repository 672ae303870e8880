"""The form of an attack, and the list of all attacks.

An attack is a function that takes a `Target`, sends what no client should, and returns the answers. Beside it stand the
row of the list of faults that it proves, the seconds in which it must be answered, and what each answer must look like.
To add one, write such a function in the module of its kind (or a new one that `__main__` imports):

    @attack("C2", seconds=2, expected=r"Rows|Error 0x2200 .*")
    def nested_operators(target):
        return [target.query("SELECT i+1+1 FROM attack.t WHERE k = 1")]
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from proof.attack.target import Target
from proof.wire import Error

ATTACKS: list["Attack"] = []


@dataclass(frozen=True)
class Attack:
    row: str                # of the list of faults: C1, H3
    name: str
    seconds: float          # the time in which all of its answers must have come
    expected: str           # a regular expression that each answer, described, must match as a whole
    run: Callable[[Target], list]


def attack(row: str, seconds: float, expected: str):
    """Adds the function to the list."""
    def add(run: Callable[[Target], list]) -> Callable[[Target], list]:
        ATTACKS.append(Attack(row, run.__name__, seconds, expected, run))
        return run
    return add


def is_expected(attack: Attack, answer) -> bool:
    return re.fullmatch(attack.expected, describe(answer), re.DOTALL) is not None


def describe(answer) -> str:
    """An answer in one line: its type, and of errors code and message."""
    if isinstance(answer, Error):
        return f"Error 0x{answer.code:04x} {answer.message}"
    return answer if isinstance(answer, str) else type(answer).__name__
