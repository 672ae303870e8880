"""Differences from Cassandra that are meant. Each rule here is a row of docs/differences.md with its reason."""

from collections.abc import Callable
from dataclasses import dataclass

from proof.differential.steps import Step
from proof.wire.responses import Response


@dataclass(frozen=True)
class Rule:
    """`name` is the row's first column in docs/differences.md."""

    name: str
    applies: Callable[[Step, Response, Response], bool]


RULES: list[Rule] = []


def explanation(step: Step, left: Response, right: Response) -> str | None:
    """The rule that explains why Cassandra answered `left` and Espalier `right`, or None."""
    for rule in RULES:
        if rule.applies(step, left, right):
            return rule.name
    return None
