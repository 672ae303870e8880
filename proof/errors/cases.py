"""The cases of cql-errors.json: what to send, and what Cassandra answered."""

import json
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from proof.wire import Connection, Error, Prepared, QueryOptions, UNSET
from proof.wire.responses import Response

FIXTURE = Path(__file__).with_name("cql-errors.json")
PAGING_STATE_FLAG, PAGE_SIZE_FLAG, SERIAL_FLAG = 0x08, 0x04, 0x10
CONSISTENCY_QUORUM = 4
PAGE_SIZE = 10

# Messages that list candidates do so in hash order: only what stands before the list is compared.
UNORDERED = ("known type signatures:", "can be matched by following signatures:")


@dataclass
class Case:
    """One request. Without a `code` Cassandra accepted it, with `warnings` (None: not compared)."""

    category: str
    name: str
    statements: list[str]
    send: Callable[[Connection], Response]
    code: int | None = None
    message: str | None = None
    tail: bytes | None = None
    warnings: list[str] | None = None

    def difference(self, answer: Response) -> str | None:
        """None when the answer is Cassandra's, else what differs."""
        if self.code is None:
            if isinstance(answer, Error):
                return f"refused: {answer.code:#06x} {answer.message}"
            if self.warnings is not None and answer.warnings != self.warnings:
                return f"warnings {answer.warnings}, expected {self.warnings}"
            return None
        if not isinstance(answer, Error):
            return f"accepted, expected {self.code:#06x} {self.message}"
        if answer.code != self.code or comparable(answer.message) != comparable(self.message):
            return f"{answer.code:#06x} {answer.message}\n    expected {self.code:#06x} {self.message}"
        if self.tail is not None and answer.tail != self.tail:
            return f"extra fields {answer.tail.hex()}, expected {self.tail.hex()}"
        return None


def comparable(message: str) -> str:
    for marker in UNORDERED:
        message = message.split(marker)[0]
    return message


def load() -> tuple[list[str], list[Case]]:
    """The setup statements (the last one USEs the keyspace) and the cases, in the order they were recorded."""
    fixture = json.loads(FIXTURE.read_text())
    cases = [plain(entry["category"], entry) for entry in fixture["errors"]]
    for entry in fixture["accepted"]:
        cases.append(plain(entry["category"], entry))
    cases += [bound(entry) for entry in fixture["bound"]]
    cases += [plain("warnings", entry) for entry in fixture["warnings"]]
    return fixture["setup"] + [f"USE {fixture['use']}"], cases


def expectation(entry: dict) -> dict:
    return {
        "code": int(entry["code"], 16) if "code" in entry else None,
        "message": entry.get("message"),
        "tail": bytes.fromhex(entry["tail_hex"]) if "tail_hex" in entry else None,
        "warnings": entry.get("warnings", []),
    }


def plain(category: str, entry: dict) -> Case:
    cql = entry["cql"]
    return Case(category, cql, [cql], lambda connection: connection.query(cql), **expectation(entry))


def bound(entry: dict) -> Case:
    send = {"EXECUTE": execute, "PREPARE": prepare, "QUERY": query, "BATCH": batch}[entry["stage"]]
    statements = entry.get("items") or [entry.get("cql") or ""]
    case = Case("bound values", entry["name"], statements, lambda connection: send(connection, entry), **expectation(entry))
    if case.name == "prepare USE":
        case.warnings = None        # Cassandra warns once per process and connection state
    return case


def prepare(connection: Connection, entry: dict) -> Response:
    return connection.prepare(entry["cql"])


def execute(connection: Connection, entry: dict) -> Response:
    if entry["cql"] is None:
        unknown = Prepared(b"\x01" * 16, b"\x01" * 16, [], [], None)
        return connection.execute(unknown)
    prepared = connection.prepare(entry["cql"])
    if not isinstance(prepared, Prepared):
        return prepared
    values = tuple(value(text, entry["name"]) for text in entry["values"])
    return connection.execute(prepared, QueryOptions(values, entry["consistency"]))


def query(connection: Connection, entry: dict) -> Response:
    flags = int(entry.get("flags", "0"), 16)
    return connection.query(entry["cql"], QueryOptions(
        consistency=entry["consistency"],
        page_size=PAGE_SIZE if flags & PAGE_SIZE_FLAG else None,
        paging_state=b"\xde\xad\xbe\xef" if flags & PAGING_STATE_FLAG else None,
        serial_consistency=CONSISTENCY_QUORUM if flags & SERIAL_FLAG else None))


def value(text: str | None, name: str):
    """A recorded value: hex, null, "unset", or "N bytes of 0xBB" for a value that was too long to record."""
    if text is None:
        return None
    if text == "unset":
        return UNSET
    if " bytes of " in text:
        count, byte = text.split(" bytes of ")
        return long_value(int(count), int(byte, 16), name)
    return bytes.fromhex(text)


def long_value(length: int, byte: int, name: str) -> bytes:
    if name.startswith("collection element"):           # one map entry with a long key and the value "x"
        key = b"k" * (length - 4 - 4 - 4 - 1)
        return struct.pack(">ii", 1, len(key)) + key + struct.pack(">i", 1) + b"x"
    if name.startswith("set element"):
        element = b"e" * (length - 4 - 4)
        return struct.pack(">ii", 1, len(element)) + element
    return bytes([byte]) * length


# The values of these batches were too long to record; the sizes follow from the recorded names and warnings.
BATCH_VALUES = {
    "batch 700 KiB logged single partition": [b"a" * 350_000] * 2,
    "batch over fail threshold, two partitions": [b"a" * 40_000] * 2,
    "batch over warn threshold, two partitions": [b"a" * 4_000] * 2,
}


def batch(connection: Connection, entry: dict) -> Response:
    if entry["name"] == "unlogged batch over 10 partitions":
        items = [(f"INSERT INTO vec_err.users (id, name) VALUES ({k}, ?)", [b"x"]) for k in range(12)]
    elif entry["name"] in BATCH_VALUES:
        items = [(text, [data]) for text, data in zip(entry["items"], BATCH_VALUES[entry["name"]])]
    elif entry["name"] == "unknown prepared id in batch":
        items = [(bytes.fromhex(entry["items"][0]), [])]
    else:
        items = [(text, [b"\0\0\0\1"] if "?" in text else []) for text in entry["items"]]
    return connection.batch(entry["batch_type"], items)
