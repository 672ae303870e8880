"""Bodies of request messages."""

import struct
from dataclasses import dataclass, replace

STARTUP, OPTIONS, QUERY, PREPARE, EXECUTE, REGISTER, BATCH = 0x01, 0x05, 0x07, 0x09, 0x0A, 0x0B, 0x0D
AUTH_RESPONSE = 0x0F
ONE, QUORUM, ALL, LOCAL_ONE, SERIAL = 0x01, 0x04, 0x05, 0x0A, 0x08

VALUES, SKIP_METADATA, PAGE_SIZE, PAGING_STATE = 0x01, 0x02, 0x04, 0x08
SERIAL_CONSISTENCY, TIMESTAMP, NAMED, KEYSPACE, NOW_IN_SECONDS = 0x10, 0x20, 0x40, 0x80, 0x100


class Unset:
    """The value that leaves a column as it is (protocol v4 and later)."""

    def __repr__(self) -> str:
        return "unset"


UNSET = Unset()


@dataclass(frozen=True)
class QueryOptions:
    """What accompanies a QUERY or EXECUTE. `values` are serialized values, None or UNSET, or pairs (name, value)."""

    values: tuple = ()
    consistency: int = ONE
    page_size: int | None = None
    paging_state: bytes | None = None
    timestamp: int | None = None
    skip_metadata: bool = False
    keyspace: str | None = None
    now_in_seconds: int | None = None
    force_values_flag: bool = False
    serial_consistency: int | None = None

    def next_page(self, paging_state: bytes) -> "QueryOptions":
        return replace(self, paging_state=paging_state)

    def encode(self, version: int) -> bytes:
        named = bool(self.values) and isinstance(self.values[0], tuple)
        flags = ((VALUES if self.values or self.force_values_flag else 0) | (NAMED if named else 0)
                 | (SKIP_METADATA if self.skip_metadata else 0) | (PAGE_SIZE if self.page_size is not None else 0)
                 | (PAGING_STATE if self.paging_state is not None else 0)
                 | (SERIAL_CONSISTENCY if self.serial_consistency is not None else 0)
                 | (TIMESTAMP if self.timestamp is not None else 0) | (KEYSPACE if self.keyspace else 0)
                 | (NOW_IN_SECONDS if self.now_in_seconds is not None else 0))
        parts = [struct.pack(">HI" if version >= 5 else ">HB", self.consistency, flags)]
        if flags & VALUES:
            parts.append(struct.pack(">H", len(self.values)))
            for item in self.values:
                parts += [short_string(item[0]), value(item[1])] if named else [value(item)]
        if self.page_size is not None:
            parts.append(struct.pack(">i", self.page_size))
        if self.paging_state is not None:
            parts.append(value(self.paging_state))
        if self.serial_consistency is not None:
            parts.append(struct.pack(">H", self.serial_consistency))
        if self.timestamp is not None:
            parts.append(struct.pack(">q", self.timestamp))
        if self.keyspace:
            parts.append(short_string(self.keyspace))
        if self.now_in_seconds is not None:
            parts.append(struct.pack(">i", self.now_in_seconds))
        return b"".join(parts)


def short_bytes(data: bytes) -> bytes:
    return struct.pack(">H", len(data)) + data


def short_string(text: str) -> bytes:
    return short_bytes(text.encode())


def long_string(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">i", len(data)) + data


def value(item) -> bytes:
    if item is None:
        return b"\xff\xff\xff\xff"
    if item is UNSET:
        return b"\xff\xff\xff\xfe"
    return struct.pack(">i", len(item)) + item


def string_map(items: dict[str, str]) -> bytes:
    return struct.pack(">H", len(items)) + b"".join(short_string(k) + short_string(v) for k, v in items.items())


def query(cql: str, options: QueryOptions, version: int) -> bytes:
    return long_string(cql) + options.encode(version)


def prepare(cql: str, version: int, keyspace: str | None = None) -> bytes:
    body = long_string(cql)
    if version >= 5:
        body += struct.pack(">I", 1 if keyspace else 0) + (short_string(keyspace) if keyspace else b"")
    return body


def execute(prepared_id: bytes, metadata_id: bytes | None, options: QueryOptions, version: int) -> bytes:
    head = short_bytes(prepared_id) + (short_bytes(metadata_id or b"") if version >= 5 else b"")
    return head + options.encode(version)


def batch(kind: int, items: list[tuple], options: QueryOptions, version: int) -> bytes:
    """`items` are (CQL text or prepared id, values). Of the options consistency, timestamp, keyspace and now count."""
    parts = [struct.pack(">BH", kind, len(items))]
    for statement, values in items:
        parts.append(b"\0" + long_string(statement) if isinstance(statement, str) else b"\1" + short_bytes(statement))
        parts.append(struct.pack(">H", len(values)))
        parts += [value(item) for item in values]
    bare = replace(options, values=(), page_size=None, paging_state=None, skip_metadata=False, force_values_flag=False)
    return b"".join(parts) + bare.encode(version)


def register(*events: str) -> bytes:
    return struct.pack(">H", len(events)) + b"".join(short_string(event) for event in events)
