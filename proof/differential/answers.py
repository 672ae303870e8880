"""The parts of two answers that must be equal, and the parts that may differ."""

import re

from proof.wire import Error, Prepared, Rows
from proof.wire.responses import Response

UNORDERED = re.compile(r"(known type signatures:|matched by following signatures:).*", re.DOTALL)  # lists in hash order
# Cassandra names a column of to_json(x) by whichever of its two names was used first for the type since the node
# started.
TO_JSON = re.compile(r"\bsystem\.tojson\(")
FROM_JSON = "0008" + b"fromjson".hex(), "0009" + b"from_json".hex()      # in the tail of a function failure, likewise
# Which NaN a function returns is the processor's and the compiler's affair.
NAN = {bytes.fromhex("ffc00000"): "7fc00000", bytes.fromhex("fff8000000000000"): "7ff8000000000000"}
NANS = {(kind, bytes.fromhex(value)): bytes.fromhex(other) for kind, value, other in (
    ("float", "ffc00000", "7fc00000"), ("double", "fff8000000000000", "7ff8000000000000"),
    (None, "ffc00000", "7fc00000"), (None, "fff8000000000000", "7ff8000000000000"))}      # None: no metadata was sent
OWN_ADDRESS = re.compile(r"/127\.0\.0\.1:\d+")


def comparable(answer: Response) -> dict:
    """Returns what must be equal in two answers. Paging states, ids and unordered lists are different on each
    server."""
    seen = {"kind": type(answer).__name__, "warnings": answer.warnings}
    if isinstance(answer, Error):
        message = OWN_ADDRESS.sub("/address", UNORDERED.sub("", TO_JSON.sub("system.to_json(", answer.message.replace("system.fromjson", "system.from_json"))))
        return seen | {"code": hex(answer.code), "message": message, "tail": answer.tail.hex().replace(*FROM_JSON)}
    if isinstance(answer, Rows):
        return seen | {"columns": named_alike(answer.metadata.columns), "more": answer.metadata.paging_state is not None,
                       "changed": answer.metadata.changed_id is not None, "rows": [shown(signless(row, answer.metadata.columns)) for row in answer.rows]}
    if isinstance(answer, Prepared):
        return seen | {"variables": answer.variables, "partition_key": answer.partition_key, "result": named_alike(answer.result.columns)}
    return seen | {k: v for k, v in vars(answer).items() if k not in ("tracing_id", "warnings")}


def rows_of(answers: list[Response]) -> list[tuple]:
    """Returns the rows of all pages."""
    return [tuple(map(with_named_columns, signless(row, answer.metadata.columns)))
            for answer in answers if isinstance(answer, Rows) for row in answer.rows]


def with_named_columns(value: bytes | None) -> bytes | None:
    """Replaces a function's other name in documents of SELECT JSON, which have the names of the columns."""
    return value and value.replace(b"system.tojson(", b"system.to_json(")


def named_alike(columns: list[tuple] | None) -> list[tuple] | None:
    return columns and [(keyspace, table, TO_JSON.sub("system.to_json(", name), kind) for keyspace, table, name, kind in columns]


def signless(row: tuple, columns: list[tuple] | None) -> tuple:
    """Returns the row with one form of NaN. The sign of a computed NaN depends on the processor, and in Java differs
    from run to run."""
    kinds = [kind for *_, kind in columns] if columns else [None] * len(row)
    return tuple(NANS.get((kind, value), value) for kind, value in zip(kinds, row, strict=True))


def shown(row: tuple) -> tuple:
    """Returns the values as text where they can be read, and in hexadecimal elsewhere."""
    return tuple(None if value is None else NAN.get(value) or text(value) if printable(value) else value.hex() for value in row)


def text(value: bytes) -> str:
    return with_named_columns(value).decode()


def printable(value: bytes) -> bool:
    if len(value) <= 4 or any(byte < 0x20 and byte != 0x0A for byte in value):
        return False
    try:
        return bool(value.decode())
    except UnicodeDecodeError:
        return False
