"""Differences from Cassandra that are meant. Each rule here is a row of docs/differences.md with its reason."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from proof.differential.answers import comparable
from proof.differential.repeats import RANGE_OF_SEVERAL, repeats_before_a_range
from proof.differential.steps import Step
from proof.wire.responses import Error, Lost, Prepared, Response, Rows


@dataclass(frozen=True)
class Rule:
    """`name` is the row's first column in docs/differences.md."""

    name: str
    applies: Callable[[Step, Response, Response], bool]


SERVER_ERROR = 0x0000
SYNTAX_ERROR, UNPREPARED = 0x2000, 0x2500
FAILURES = {SERVER_ERROR, 0x1100, 0x1200, 0x1300, 0x1500}       # and timeouts and failures of reads and writes

OLD_TIMEUUID_CLASS = "'org.apache.cassandra.db.marshal.LegacyTimeUUIDType'"
OLD_TIMEUUID = re.compile(r"'?org\.apache\.cassandra\.db\.marshal\.LegacyTimeUUIDType'?")
DOCUMENTS_IN_ORDER = re.compile(r"SELECT JSON \* .*\bIN\b.* ORDER BY ", re.DOTALL)
HALVED = re.compile("[?\U00010000-\U0010ffff]")
PARSER_FAILURE = re.compile(r"Failed parsing statement: \[.*\] reason: \w+Exception", re.DOTALL)


def cassandra_fails_inside(step: Step, left: Response, right: Response) -> bool:
    """A stack trace in Cassandra's log is no contract: any answer that is not a failure of our own will do."""
    broken = isinstance(left, Error) and (left.code in FAILURES or PARSER_FAILURE.match(left.message) is not None)
    return broken and not (isinstance(right, Error) and right.code in FAILURES)


def prepared_statements_live_on(step: Step, left: Response, right: Response) -> bool:
    """After ALTER TABLE the statement is resolved anew by us, and has to be prepared again by the client there."""
    return step.reuse and isinstance(left, Error) and left.code == UNPREPARED and not isinstance(right, Lost)


def refuses_its_own_paging_state(step: Step, left: Response, right: Response) -> bool:
    """Some pages of GROUP BY end with a paging state that Cassandra then does not read."""
    return isinstance(left, Error) and left.message == "Invalid value for the paging state" and not isinstance(right, Lost)


def timeuuid_by_its_old_name(step: Step, left: Response, right: Response) -> bool:
    """What a function makes of a timeuuid's own type: the same answer, but for the type's name."""
    told = repr(comparable(left))
    return renamed(told) != told and renamed(told) == OLD_TIMEUUID.sub("timeuuid", repr(comparable(right)))


def renamed(told: str) -> str:
    """What Cassandra told, with the timeuuid's own name."""
    return OLD_TIMEUUID.sub("timeuuid", told.replace(f'"{OLD_TIMEUUID_CLASS}"', "'timeuuid'"))


def half_a_character(step: Step, left: Response, right: Response) -> bool:
    """Cassandra cuts the context of a syntax error between the two halves of a character beyond 16 bits and prints "?"."""
    return (isinstance(left, Error) and isinstance(right, Error) and left.code == right.code == SYNTAX_ERROR
            and not step.cql.isascii() and "?" in left.message and HALVED.sub("", left.message) == HALVED.sub("", right.message))


def collection_functions_of_descending_keys(step: Step, left: Response, right: Response) -> bool:
    """Cassandra does not recognise a collection in a clustering column that is ordered DESC."""
    return isinstance(left, Error) and bool(re.match(
        r"Function system\.collection_\w+ requires a .* argument, but found argument \S+ of type frozen<(list|set|map)<", left.message))


def documents_in_order(step: Step, left: Response, right: Response) -> bool:
    """Cassandra sorts the documents of SELECT JSON * as if they were values of the column to order by."""
    if not DOCUMENTS_IN_ORDER.match(step.cql) or not (isinstance(left, Rows) and isinstance(right, Rows)):
        return False
    if left.metadata.columns != right.metadata.columns or len(left.rows) != len(right.rows):
        return False
    return "LIMIT" in step.cql or sorted(left.rows) == sorted(right.rows)


def pages(step: Step, left: list[Response], right: list[Response]) -> str | None:
    """The rule by which the same rows in the same order are cut into pages at other places; the last page may be empty."""
    name = PAGES if "GROUP BY" in step.cql else PAGES_BEHIND_NOTHING if " IN ()" in step.cql else None
    return name if name and are_the_same_rows(left, right) else None


def are_the_same_rows(left: list[Response], right: list[Response]) -> bool:
    """On pages of whatever size. They may be timeuuids, too."""
    answers = [[answer for answer in side if not isinstance(answer, Prepared)] for side in (left, right)]
    if not all(isinstance(answer, Rows) for side in answers for answer in side):
        return False
    seen = [[comparable(answer) for answer in side] for side in answers]
    rows = [[row for answer in side for row in answer["rows"]] for side in seen]
    theirs, ours = ([answer["columns"] for answer in side][:1] for side in seen)
    return rows[0] == rows[1] and (theirs == ours or renamed(repr(theirs)) == repr(ours))


PARTS = re.compile(r'("[^"]+"|\w+)\[')


def slices_of_one_column(step: Step, left: Response, right: Response) -> bool:
    """Of two slices or elements of one column Cassandra may take a cell for one that is not asked for, and leave its value empty."""
    if not isinstance(left, Rows) or not isinstance(right, Rows) or not step.cql.upper().startswith("SELECT"):
        return False
    parts = PARTS.findall(re.split(r"\bFROM\b", step.cql)[0])
    if len(parts) == len(set(parts)) or left.metadata.columns != right.metadata.columns or len(left.rows) != len(right.rows):
        return False
    cells = [pair for rows in zip(left.rows, right.rows) for pair in zip(*rows) if pair[0] != pair[1]]
    return all(None not in pair and len(pair[0]) < len(pair[1]) for pair in cells)


LOGARITHM = re.compile(r"\b(exp|log|log10)\(", re.IGNORECASE)
FLOAT_BYTES = (4, 8)
NANS = {bytes.fromhex(nan) for nan in ("7fc00000", "ffc00000", "7ff8000000000000", "fff8000000000000")}


def last_bit_of_a_logarithm(step: Step, left: Response, right: Response) -> bool:
    """Java's exp, log and log10 are what the processor's library gives; its own promise is one unit in the last place."""
    if not isinstance(left, Rows) or not isinstance(right, Rows) or not LOGARITHM.search(step.cql):
        return False
    if comparable(replace(left, rows=[])) != comparable(replace(right, rows=[])) or len(left.rows) != len(right.rows):
        return False
    return all(one == other or neighbours(one, other) or NANS.issuperset((one, other))
               for rows in zip(left.rows, right.rows) for one, other in zip(*rows))


def neighbours(one: bytes | None, other: bytes | None) -> bool:
    """Whether two floats or doubles are next to each other."""
    if one is None or other is None or len(one) != len(other) or len(one) not in FLOAT_BYTES:
        return False
    return abs(int.from_bytes(one, "big") - int.from_bytes(other, "big")) == 1


UNDEFINED_COLUMN = re.compile(r"Undefined column name (\S+) in table \S+")


def fields_taken_for_columns(step: Step, left: Response, right: Response) -> bool:
    """Cassandra looks for columns of the names of a user type's fields, where one is a mask's replacement."""
    if not isinstance(left, Error) or isinstance(right, Error | Lost) or "mask_replace(" not in step.cql.lower():
        return False
    named = UNDEFINED_COLUMN.fullmatch(left.message)
    return named is not None and f"{{{named[1]}: " in step.cql


NO_LIST = re.compile(r"Unexpected receiver type '.+'; only list and vector are expected")
LIST_AS_ARGUMENT = re.compile(r"(?:[-+*/%]|\w\([^()]*)[\s(]*\[|\][\s)]*[-+*/%]")


def lists_as_arguments(step: Step, left: Response, right: Response) -> bool:
    """Of the functions of one name Cassandra tells the type of one: which that is changes from start to start."""
    if not isinstance(left, Error) or not isinstance(right, Error) or left.code != right.code:
        return False
    said = [cql for cql, _ in step.items] or [step.cql]
    return all(NO_LIST.fullmatch(answer.message) for answer in (left, right)) and any(map(LIST_AS_ARGUMENT.search, said))


WRONG_JSON = re.compile(r"Error decoding JSON value for (\S+): .+", re.DOTALL)


def first_of_wrong_json_values(step: Step, left: Response, right: Response) -> bool:
    """Where columns' names fall into one slot of Cassandra's hash map, their order is that in which they came to be there."""
    wrong = [WRONG_JSON.fullmatch(answer.message) if isinstance(answer, Error) else None for answer in (left, right)]
    return all(wrong) and left.code == right.code and wrong[0][1] != wrong[1][1]


AMBIGUOUS = re.compile(r"Ambiguous '.' operation with args .+: use type hint to disambiguate, example '\(int\) \?'", re.DOTALL)


def operators_beside_descending_keys(step: Step, left: Response, right: Response) -> bool:
    """Cassandra does not recognise the type of a clustering column that is ordered DESC, by which it chooses an operator."""
    return isinstance(left, Error) and AMBIGUOUS.fullmatch(left.message) is not None and not isinstance(right, Error | Lost)


RANGE_OF_A_TUPLE = re.compile(r"\w+ *[<>]=? *(?:\(|\?|:)")


def tuples_in_ranges(step: Step, left: Response, right: Response) -> bool:
    """Beside a range of several columns Cassandra takes the fields of a tuple, which bounds the first of them, for values of the columns."""
    return (isinstance(left, Error) and left.message.startswith("Invalid null value in condition for column ") and isinstance(right, Rows)
            and RANGE_OF_SEVERAL.search(step.cql) is not None and RANGE_OF_A_TUPLE.search(step.cql) is not None)


def values_twice_before_a_range(step: Step, left: Response, right: Response) -> bool:
    """Where IN names a value twice before a range of several columns, Cassandra reads other ranges."""
    return (isinstance(left, Rows) and isinstance(right, Rows) and repeats_before_a_range(step)
            and comparable(left)["columns"] == comparable(right)["columns"])


FLOOR_FROM_ANOTHER_START = re.compile(r"floor\([^(),]+, *\d+(?:y|mo)\w*, *(?!'2020-02-03')", re.IGNORECASE)


SUM_OF_TIMES = re.compile(r"SELECT .*\w [+-] \w.* FROM ", re.DOTALL)
GREGORIAN_SINCE = -12_219_292_800_000


def months_before_1582(step: Step, left: Response, right: Response) -> bool:
    """Months are added, and counted from a start that is spoiled, by Java's old calendar: Julian before 1582."""
    if not isinstance(left, Rows) or not isinstance(right, Rows):
        return False
    if comparable(replace(left, rows=[])) != comparable(replace(right, rows=[])) or len(left.rows) != len(right.rows):
        return False
    cells = [pair for rows in zip(left.rows, right.rows) for pair in zip(*rows) if pair[0] != pair[1]]
    return FLOOR_FROM_ANOTHER_START.search(step.cql) is not None or SUM_OF_TIMES.match(step.cql) is not None and all(map(is_old, cells))


def is_old(pair: tuple[bytes | None, bytes | None]) -> bool:
    return all(value is not None and len(value) == 8 for value in pair) and min(
        int.from_bytes(value, "big", signed=True) for value in pair) < GREGORIAN_SINCE


def keys_of_deleted_elements(step: Step, left: Response, right: Response) -> bool:
    """A deleted element of a map still has its key for CONTAINS KEY there, where its row is read for other reasons."""
    if not isinstance(left, Rows) or not isinstance(right, Rows) or "CONTAINS KEY" not in step.cql:
        return False
    rest = iter(left.rows)
    alike = comparable(replace(left, rows=[])) == comparable(replace(right, rows=[]))       # but for the rows
    return alike and len(left.rows) > len(right.rows) and all(row in rest for row in right.rows)


HEXADECIMAL = re.compile(r"\b0x", re.IGNORECASE)


def hexadecimal_tuples(step: Step, left: Response, right: Response) -> bool:
    """What is not a value of the type is refused by us where the statement is read."""
    return isinstance(right, Error) and right.message.startswith("Not enough bytes to read") and HEXADECIMAL.search(step.cql) is not None


CARRIED_OUT = ("is carried out as UnifiedCompactionStrategy", "compaction sub-options that are stored but have no effect")


def says_how_a_strategy_is_carried_out(step: Step, left: Response, right: Response) -> bool:
    """The same answer, with one warning more."""
    more = [warning for warning in right.warnings if not any(text in warning for text in CARRIED_OUT)]
    return type(left) is type(right) and len(more) < len(right.warnings) and more == list(left.warnings)


PAGES = "pages of GROUP BY"
PAGES_BEHIND_NOTHING = "pages behind IN ()"
PAGES_OF_A_FILTER = "pages of a filter"      # found by asking again (compare.py)
RULES: list[Rule] = [
    Rule("half a character", half_a_character),
    Rule("collection functions of descending keys", collection_functions_of_descending_keys),
    Rule("JSON * in order", documents_in_order),
    Rule("min and max of a timeuuid", timeuuid_by_its_old_name),
    Rule("Cassandra refuses its own paging state", refuses_its_own_paging_state),
    Rule("slices of one column", slices_of_one_column),
    Rule("last bit of a logarithm", last_bit_of_a_logarithm),
    Rule("fields taken for columns", fields_taken_for_columns),
    Rule("lists as arguments", lists_as_arguments),
    Rule("the first of wrong JSON values", first_of_wrong_json_values),
    Rule("tuples in ranges of several columns", tuples_in_ranges),
    Rule("operators beside descending keys", operators_beside_descending_keys),
    Rule("values twice before a range", values_twice_before_a_range),
    Rule("hexadecimal tuples", hexadecimal_tuples),
    Rule("keys of deleted elements", keys_of_deleted_elements),
    Rule("months before 1582", months_before_1582),
    Rule("compaction strategies", says_how_a_strategy_is_carried_out),
    Rule("prepared statements live on", prepared_statements_live_on),
    Rule("Cassandra fails inside", cassandra_fails_inside),
]


def explanation(step: Step, left: list[Response], right: list[Response]) -> str | None:
    """The rule that explains why Cassandra answered `left` and Espalier `right` (all answers to the step), or None."""
    for rule in RULES:
        if rule.applies(step, left[-1], right[-1]):
            return rule.name
    return pages(step, left, right)
