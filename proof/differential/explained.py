"""Differences from Cassandra that are meant. Each rule here is a row of docs/differences.md with its reason."""

from collections.abc import Callable
from dataclasses import dataclass

from proof.differential.steps import Step
from proof.wire.responses import Error, Response


@dataclass(frozen=True)
class Rule:
    """`name` is the row's first column in docs/differences.md."""

    name: str
    applies: Callable[[Step, Response, Response], bool]


SERVER_ERROR = 0x0000
FAILURES = {SERVER_ERROR, 0x1100, 0x1200, 0x1300, 0x1500}       # and timeouts and failures of reads and writes


def cassandra_fails_inside(step: Step, left: Response, right: Response) -> bool:
    """A stack trace in Cassandra's log is no contract: any answer that is not a failure of our own will do."""
    broken = isinstance(left, Error) and left.code in FAILURES
    return broken and not (isinstance(right, Error) and right.code in FAILURES)


RULES: list[Rule] = [
    Rule("Cassandra fails inside", cassandra_fails_inside),
]


def explanation(step: Step, left: Response, right: Response) -> str | None:
    """The rule that explains why Cassandra answered `left` and Espalier `right`, or None."""
    for rule in RULES:
        if rule.applies(step, left, right):
            return rule.name
    return None
