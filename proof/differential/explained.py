"""The intended differences from Cassandra, as rules that look at the answers alone. Each rule has a section of the same
name in docs/differences.md, which gives the reason.

Where a rule could also accept a wrong answer of another kind, both servers are asked again in another form (again.py).
"""

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass, replace

from proof.differential.answers import comparable
from proof.differential.months import months_before_1582
from proof.differential.repeats import RANGE_OF_SEVERAL, bound_text
from proof.differential.steps import Step
from proof.wire.responses import Error, Lost, Response, Rows


@dataclass(frozen=True)
class Rule:
    """A rule. Its name is the title of a section in docs/differences.md."""

    name: str
    applies: Callable[[Step, Response, Response], bool]


SERVER_ERROR = 0x0000
SYNTAX_ERROR, UNPREPARED = 0x2000, 0x2500
FAILURES = {SERVER_ERROR, 0x1100, 0x1200, 0x1300, 0x1500}       # and timeouts and failures of reads and writes

OLD_TIMEUUID_CLASS = "'org.apache.cassandra.db.marshal.LegacyTimeUUIDType'"
OLD_TIMEUUID = re.compile(r"'?org\.apache\.cassandra\.db\.marshal\.LegacyTimeUUIDType'?")
DOCUMENTS_IN_ORDER = re.compile(r"SELECT JSON \* .*\bIN\b.* ORDER BY ", re.DOTALL)
BEYOND_16_BITS = re.compile("[\U00010000-\U0010ffff]")
HALF = re.compile(r"(?<=\(\.\.\.)\?|\?(?=\]?\.\.\.\)|\]|'$)")      # where a context is cut
PARSER_FAILURE = re.compile(r"Failed parsing statement: \[.*\] reason: \w+Exception", re.DOTALL)


def internal_error_of_cassandra(step: Step, left: Response, right: Response) -> bool:
    """Cassandra answers with an internal error, and nobody relies on that: any answer that is not a failure of our own
    is right. A second Cassandra may fail with another text, if that depends on the order of a set."""
    return is_failure(left) and (not is_failure(right) or fails_in_java(right)) and not isinstance(right, Lost)


def fails_in_java(answer: Response) -> bool:
    return is_failure(answer) and answer.message.startswith("java.lang.")


def is_failure(answer: Response) -> bool:
    return isinstance(answer, Error) and (answer.code in FAILURES or PARSER_FAILURE.match(answer.message) is not None)


def prepared_again_after_alter(step: Step, left: Response, right: Response) -> bool:
    """After ALTER TABLE we resolve a prepared statement again. With Cassandra the client has to prepare it again."""
    return step.reuse and isinstance(left, Error) and left.code == UNPREPARED and not isinstance(right, Lost)


def refuses_its_own_paging_state(step: Step, left: Response, right: Response) -> bool:
    """Cassandra refuses a paging state with which a page of GROUP BY ended."""
    return (isinstance(left, Error) and left.message == "Invalid value for the paging state" and "GROUP BY" in step.cql
            and not isinstance(right, Lost))


def timeuuid_by_its_old_name(step: Step, left: Response, right: Response) -> bool:
    """A function of a timeuuid has the same answer, but Cassandra may give its type an old name."""
    told = repr(comparable(left))
    return renamed(told) != told and renamed(told) == OLD_TIMEUUID.sub("timeuuid", repr(comparable(right)))


def renamed(told: str) -> str:
    """Replaces the old name of timeuuid in the text of Cassandra's answer."""
    return OLD_TIMEUUID.sub("timeuuid", told.replace(f'"{OLD_TIMEUUID_CLASS}"', "'timeuuid'"))


def cut_within_a_character(step: Step, left: Response, right: Response) -> bool:
    """Cassandra may cut the context of a syntax error within a character beyond 16 bits, and prints "?" for half of
    it."""
    return (isinstance(left, Error) and isinstance(right, Error) and left.code == right.code == SYNTAX_ERROR
            and BEYOND_16_BITS.search(step.cql) is not None and differs_at_cuts(left.message, right.message))


def differs_at_cuts(theirs: str, ours: str) -> bool:
    """Returns whether our text is theirs with a character beyond 16 bits, or with nothing, in place of each "?" at a
    cut."""
    parts = HALF.split(theirs)
    return len(parts) > 1 and re.fullmatch(f"{BEYOND_16_BITS.pattern}?".join(map(re.escape, parts)), ours) is not None


def collection_functions_of_descending_keys(step: Step, left: Response, right: Response) -> bool:
    """Cassandra does not recognize a collection in a clustering column whose order is DESC."""
    return isinstance(left, Error) and not isinstance(right, Error | Lost) and bool(re.match(
        r"Function system\.collection_\w+ requires a .* argument, but found argument \S+ of type frozen<(list|set|map)<", left.message))


def documents_in_order(step: Step, left: Response, right: Response) -> bool:
    """Cassandra sorts the documents of SELECT JSON * as if they were values of the column to order by."""
    if not DOCUMENTS_IN_ORDER.match(step.cql) or not (isinstance(left, Rows) and isinstance(right, Rows)):
        return False
    if comparable(replace(left, rows=[])) != comparable(replace(right, rows=[])) or len(left.rows) != len(right.rows):
        return False
    return "LIMIT" in step.cql or sorted(left.rows) == sorted(right.rows)


def equal_booleans(step: Step, left: Response, right: Response) -> bool:
    """Every byte of a boolean that is not zero means true, so keys may be equal although their bytes differ. Each
    server shows the bytes of one of them."""
    if not isinstance(left, Rows) or not isinstance(right, Rows) or len(left.rows) != len(right.rows) or not left.metadata.columns:
        return False
    if comparable(replace(left, rows=[])) != comparable(replace(right, rows=[])):
        return False
    kinds = [kind for *_, kind in left.metadata.columns]
    cells = [(kind, *pair) for rows in zip(left.rows, right.rows) for kind, *pair in zip(kinds, *rows) if pair[0] != pair[1]]
    return all(kind == "boolean" and all(value and len(value) == 1 and value != b"\0" for value in pair) for kind, *pair in cells)


USER_TYPE = re.compile(r"\w+\.\w+\(")        # in a type as metadata tell it


def equal_keys_of_grown_types(step: Step, left: Response, right: Response) -> bool:
    """Keys of a user type are equal if they differ only in trailing fields that are null or missing. Each server shows
    the bytes of one of them."""
    if not isinstance(left, Rows) or not isinstance(right, Rows) or len(left.rows) != len(right.rows) or not left.metadata.columns:
        return False
    if comparable(replace(left, rows=[])) != comparable(replace(right, rows=[])):
        return False
    kinds = [kind for *_, kind in left.metadata.columns]
    cells = [(kind, *pair) for rows in zip(left.rows, right.rows) for kind, *pair in zip(kinds, *rows) if pair[0] != pair[1]]
    return all(USER_TYPE.search(kind) and one and other and trimmed(one) == trimmed(other) for kind, one, other in cells)


def trimmed(value: bytes) -> bytes:
    """Returns the value without trailing nulls of tuples, at any depth. The bytes may be those of a tuple, of a
    collection, or of neither."""
    for head in (0, 4):
        parts = parts_behind(value, head)
        if parts:
            inner = [None if part is None else trimmed(part) for part in parts]
            while head == 0 and inner and inner[-1] is None:
                inner.pop()
            return value[:head] + b"".join(b"\xff" * 4 if part is None else struct.pack(">i", len(part)) + part for part in inner)
    return value


def parts_behind(value: bytes, at: int) -> list[bytes | None]:
    """Returns the parts of which a value consists from a place on, or nothing if it has no such parts."""
    parts = []
    while at + 4 <= len(value):
        length = struct.unpack_from(">i", value, at)[0]
        if length < -1 or at + 4 + length > len(value):
            return []
        parts.append(None if length == -1 else value[at + 4:at + 4 + length])
        at += 4 + max(length, 0)
    return parts if at == len(value) else []


def differing_columns(left: Rows, right: Rows) -> set[str]:
    """Returns the names of the columns in which rows at the same place differ."""
    names = [name for _, _, name, _ in left.metadata.columns or []]
    return {name for rows in zip(left.rows, right.rows) for name, one, other in zip(names, *rows) if one != other}


PARTS = re.compile(r'("[^"]+"|\w+)\[')


def slices_of_one_column(step: Step, left: Response, right: Response) -> bool:
    """If a statement selects two slices or elements of one column, Cassandra may leave the value of a cell empty."""
    if not isinstance(left, Rows) or not isinstance(right, Rows) or not step.cql.upper().startswith("SELECT"):
        return False
    parts = PARTS.findall(re.split(r"\bFROM\b", step.cql)[0])
    if len(parts) == len(set(parts)) or len(left.rows) != len(right.rows):
        return False
    if comparable(replace(left, rows=[])) != comparable(replace(right, rows=[])):
        return False
    return all(emptied(*pair) for rows in zip(left.rows, right.rows) for pair in zip(*rows) if pair[0] != pair[1])


def emptied(theirs: bytes | None, ours: bytes | None) -> bool:
    """Returns whether their value is ours left empty, or ours without some values of a map or a set."""
    if theirs is None or not ours:
        return False
    parts, whole = parts_of(theirs), parts_of(ours)
    return not theirs or bool(parts) and len(parts) == len(whole) and all(not one or one == other for one, other in zip(parts, whole))


def parts_of(value: bytes) -> list[bytes]:
    """Returns the parts of a serialized collection after its size, or nothing if it is not one."""
    parts, at = [], 4
    while at + 4 <= len(value):
        length = max(struct.unpack_from(">i", value, at)[0], 0)
        parts.append(value[at + 4:at + 4 + length])
        at += 4 + length
    return parts if at == len(value) else []


LOGARITHM = re.compile(r"\b(exp|log|log10)\(", re.IGNORECASE)
FLOAT_BYTES = (4, 8)
NANS = {bytes.fromhex(nan) for nan in ("7fc00000", "ffc00000", "7ff8000000000000", "fff8000000000000")}


def last_bit_of_a_logarithm(step: Step, left: Response, right: Response) -> bool:
    """Java computes exp, log and log10 with the processor's library, and promises a precision of one unit in the last
    place."""
    if not isinstance(left, Rows) or not isinstance(right, Rows) or not LOGARITHM.search(step.cql):
        return False
    if comparable(replace(left, rows=[])) != comparable(replace(right, rows=[])) or len(left.rows) != len(right.rows):
        return False
    return all(one == other or computed and neighbours(one, other) or NANS.issuperset((one, other))
               for rows in zip(left.rows, right.rows) for computed, one, other in zip(logarithms(step, left), *rows))


def logarithms(step: Step, answer: Rows) -> list[bool]:
    """Returns for each column whether it may be a logarithm. Its name tells that; it may be an alias, or be missing."""
    if answer.metadata.columns is None:
        return [True] * max(map(len, answer.rows), default=0)
    return [bool(LOGARITHM.search(name) or re.search(rf'\) AS "?{re.escape(name)}\b', step.cql)) for *_, name, _ in answer.metadata.columns]


def neighbours(one: bytes | None, other: bytes | None) -> bool:
    """Returns whether two floats or doubles are next to each other."""
    if one is None or other is None or len(one) != len(other) or len(one) not in FLOAT_BYTES:
        return False
    return abs(int.from_bytes(one, "big") - int.from_bytes(other, "big")) == 1


UNDEFINED_COLUMN = re.compile(r"Undefined column name (\S+) in table \S+")


def fields_taken_for_columns(step: Step, left: Response, right: Response) -> bool:
    """Where a value of a user type replaces a clustering column whose order is DESC, Cassandra takes the names of its
    fields for columns."""
    if not isinstance(left, Error) or isinstance(right, Error | Lost) or "mask_replace(" not in step.cql.lower():
        return False
    named = UNDEFINED_COLUMN.fullmatch(left.message)
    return named is not None and f"{{{named[1]}: " in step.cql


NO_LIST = re.compile(r"Unexpected receiver type '.+'; only list and vector are expected")
LIST_AS_ARGUMENT = re.compile(r"(?:[-+*/%]|\w\([^()]*)[\s(]*\[|\][\s)]*[-+*/%]")


def lists_as_arguments(step: Step, left: Response, right: Response) -> bool:
    """If several functions have the same name, the error of Cassandra names the type of one of them, which changes at
    each start."""
    if not isinstance(left, Error) or not isinstance(right, Error) or left.code != right.code:
        return False
    said = [cql for cql, _ in step.items] or [step.cql]
    return all(NO_LIST.fullmatch(answer.message) for answer in (left, right)) and any(map(LIST_AS_ARGUMENT.search, said))


WRONG_JSON = re.compile(r"Error decoding JSON value for (.+?): .+", re.DOTALL)
SLOTS = 16          # of the smallest hash map: names that meet in a larger one do so in this


def first_of_wrong_json_values(step: Step, left: Response, right: Response) -> bool:
    """Columns whose names have the same slot in Cassandra's hash map are in the order in which they were entered."""
    wrong = [WRONG_JSON.fullmatch(answer.message) if isinstance(answer, Error) else None for answer in (left, right)]
    return all(wrong) and left.code == right.code and wrong[0][1] != wrong[1][1] and slot(wrong[0][1]) == slot(wrong[1][1])


def slot(name: str) -> int:
    """Returns the slot of a column's name in Java's HashMap. Its hash is computed from its bytes, from the last to the
    first."""
    value = 1
    for byte in reversed(name.encode()):
        value = (31 * value + (byte ^ 0x80) - 0x80) & 0xFFFF_FFFF
    return (value ^ value >> 16) % SLOTS


AMBIGUOUS = re.compile(r"Ambiguous '.' operation with args .+: use type hint to disambiguate, example '\(int\) \?'", re.DOTALL)


def operators_on_descending_keys(step: Step, left: Response, right: Response) -> bool:
    """Cassandra chooses an operator by the types of its operands, and does not recognize that of a clustering column
    whose order is DESC."""
    return isinstance(left, Error) and AMBIGUOUS.fullmatch(left.message) is not None and not isinstance(right, Error | Lost)


RANGE_OF_A_TUPLE = re.compile(r"\w+ *[<>]=? *(?:\(([^()]*)\)|<(\w+)>)")
NO_FIELD = "ffffffff"       # where the length of a null field stands


def tuples_in_ranges(step: Step, left: Response, right: Response) -> bool:
    """Where a range of several columns stands beside a range of a tuple, Cassandra takes the fields of the tuple for
    values of these columns."""
    if not isinstance(left, Error) or not left.message.startswith("Invalid null value in condition for column "):
        return False
    if not isinstance(right, Rows) or not RANGE_OF_SEVERAL.search(step.cql):
        return False
    bounds = RANGE_OF_A_TUPLE.findall(bound_text(step.cql, step.values))
    return any("null" in written.split(", ") or NO_FIELD in bound for written, bound in bounds)


HEXADECIMAL = re.compile(r"\b0x", re.IGNORECASE)


def hexadecimal_tuples(step: Step, left: Response, right: Response) -> bool:
    """A text that is no value of its type is refused when the statement is read, and not later."""
    return (isinstance(right, Error) and right.message.startswith("Not enough bytes to read") and HEXADECIMAL.search(step.cql) is not None
            and not is_failure(left) and not isinstance(left, Lost))


CARRIED_OUT = ("is carried out as UnifiedCompactionStrategy", "compaction sub-options that are stored but have no effect")


def says_how_a_strategy_is_carried_out(step: Step, left: Response, right: Response) -> bool:
    """The answer is the same, with one warning more."""
    rest = [warning for warning in right.warnings if not any(text in warning for text in CARRIED_OUT)]
    return len(rest) < len(right.warnings) and comparable(left) == comparable(replace(right, warnings=rest))


EQUAL_KEYS = "equal boolean keys"
GROWN_KEYS = "equal keys of a type that grew"
FIELDS = "user-type fields and column names"
PREPARED_AFTER_ALTER = "prepared statements after ALTER TABLE"
PAGING_STATE = "paging state of GROUP BY"
INTERNAL_ERRORS = "internal errors of Cassandra"
DOCUMENTS = "JSON * in order"
OPERATORS = "operators on DESC clustering columns"
COLLECTION_FUNCTIONS = "collection functions of descending keys"
RULES: list[Rule] = [
    Rule("error contexts cut within a character", cut_within_a_character),
    Rule(COLLECTION_FUNCTIONS, collection_functions_of_descending_keys),
    Rule(DOCUMENTS, documents_in_order),
    Rule("min and max of a timeuuid", timeuuid_by_its_old_name),
    Rule(PAGING_STATE, refuses_its_own_paging_state),
    Rule("slices of one column", slices_of_one_column),
    Rule(EQUAL_KEYS, equal_booleans),
    Rule(GROWN_KEYS, equal_keys_of_grown_types),
    Rule("last bit of a logarithm", last_bit_of_a_logarithm),
    Rule(FIELDS, fields_taken_for_columns),
    Rule("lists as arguments", lists_as_arguments),
    Rule("the first of wrong JSON values", first_of_wrong_json_values),
    Rule("tuples in ranges of several columns", tuples_in_ranges),
    Rule(OPERATORS, operators_on_descending_keys),
    Rule("hexadecimal tuples", hexadecimal_tuples),
    Rule("months before 1582", months_before_1582),
    Rule("compaction strategies", says_how_a_strategy_is_carried_out),
    Rule(PREPARED_AFTER_ALTER, prepared_again_after_alter),
    Rule(INTERNAL_ERRORS, internal_error_of_cassandra),
]


def suspicions(step: Step, left: list[Response], right: list[Response]) -> list[str]:
    """Returns the rules, each once, that explain all pairs of answers that differ. There are none if a pair has no
    rule.

    If one server gave more answers than the other, the other one must have ended with an error.
    """
    pairs = [(one, other) for one, other in zip(left, right) if one is not other and comparable(one) != comparable(other)]
    if len(left) != len(right) and not (pairs and isinstance(min(left, right, key=len)[-1], Error)):
        return []
    names = [rule_of(step, *pair) for pair in pairs]
    return list(dict.fromkeys(names)) if all(names) else []


def rule_of(step: Step, left: Response, right: Response) -> str | None:
    return next((rule.name for rule in RULES if rule.applies(step, left, right)), None)
