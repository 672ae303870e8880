"""Differences from Cassandra that are meant. Each rule here is a row of docs/differences.md with its reason."""

from collections.abc import Callable
from dataclasses import dataclass

from proof.differential.steps import Step
from proof.wire.responses import Error, Lost, Prepared, Response, Rows


@dataclass(frozen=True)
class Rule:
    """`name` is the row's first column in docs/differences.md."""

    name: str
    applies: Callable[[Step, Response, Response], bool]


SERVER_ERROR = 0x0000
UNPREPARED = 0x2500
FAILURES = {SERVER_ERROR, 0x1100, 0x1200, 0x1300, 0x1500}       # and timeouts and failures of reads and writes


def cassandra_fails_inside(step: Step, left: Response, right: Response) -> bool:
    """A stack trace in Cassandra's log is no contract: any answer that is not a failure of our own will do."""
    broken = isinstance(left, Error) and left.code in FAILURES
    return broken and not (isinstance(right, Error) and right.code in FAILURES)


def prepared_statements_live_on(step: Step, left: Response, right: Response) -> bool:
    """After ALTER TABLE the statement is resolved anew by us, and has to be prepared again by the client there."""
    return step.reuse and isinstance(left, Error) and left.code == UNPREPARED and not isinstance(right, Lost)


def refuses_its_own_paging_state(step: Step, left: Response, right: Response) -> bool:
    """Some pages of GROUP BY end with a paging state that Cassandra then does not read."""
    return isinstance(left, Error) and left.message == "Invalid value for the paging state" and isinstance(right, Rows)


def timeuuid_by_its_old_name(step: Step, left: Response, right: Response) -> bool:
    """min and max of a timeuuid: the same rows, but for the type's name."""
    def columns(answer: Response) -> str:
        metadata = answer.result if isinstance(answer, Prepared) else getattr(answer, "metadata", None)
        return repr(metadata and metadata.columns).replace("\"'org.apache.cassandra.db.marshal.LegacyTimeUUIDType'\"", "'timeuuid'")

    return (type(left) is type(right) and "LegacyTimeUUIDType" in repr(left) and columns(left) == columns(right)
            and getattr(left, "rows", None) == getattr(right, "rows", None) and left.warnings == right.warnings)


RULES: list[Rule] = [
    Rule("min and max of a timeuuid", timeuuid_by_its_old_name),
    Rule("Cassandra refuses its own paging state", refuses_its_own_paging_state),
    Rule("prepared statements live on", prepared_statements_live_on),
    Rule("Cassandra fails inside", cassandra_fails_inside),
]


def explanation(step: Step, left: Response, right: Response) -> str | None:
    """The rule that explains why Cassandra answered `left` and Espalier `right`, or None."""
    for rule in RULES:
        if rule.applies(step, left, right):
            return rule.name
    return None
