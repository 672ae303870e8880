"""Response messages decoded into plain values that compare with ==."""

import struct
from dataclasses import dataclass, field

ERROR, READY, AUTHENTICATE, SUPPORTED, RESULT, EVENT = 0x00, 0x02, 0x03, 0x06, 0x08, 0x0C
TRACING_FLAG, PAYLOAD_FLAG, WARNING_FLAG = 0x02, 0x04, 0x08
ALREADY_EXISTS, UNPREPARED = 0x2400, 0x2500

SIMPLE_TYPES = {
    0x01: "ascii", 0x02: "bigint", 0x03: "blob", 0x04: "boolean", 0x05: "counter", 0x06: "decimal", 0x07: "double",
    0x08: "float", 0x09: "int", 0x0B: "timestamp", 0x0C: "uuid", 0x0D: "text", 0x0E: "varint", 0x0F: "timeuuid",
    0x10: "inet", 0x11: "date", 0x12: "time", 0x13: "smallint", 0x14: "tinyint", 0x15: "duration",
}


@dataclass
class Response:
    """Any answer. `warnings` stand beside the payload in v4 and later."""

    warnings: list[str] = field(default_factory=list, kw_only=True)
    tracing_id: bytes | None = field(default=None, kw_only=True)


@dataclass
class Error(Response):
    code: int
    message: str
    tail: bytes         # the extra fields of some codes, as sent


@dataclass
class Void(Response):
    pass


@dataclass
class Ready(Response):
    pass


@dataclass
class Supported(Response):
    options: dict[str, list[str]]


@dataclass
class Other(Response):
    opcode: int
    body: bytes


@dataclass
class Lost(Response):
    """No answer: the connection broke or spoke nonsense."""

    reason: str


@dataclass
class SetKeyspace(Response):
    keyspace: str


@dataclass
class SchemaChange(Response):
    change: str
    target: str
    names: tuple


@dataclass
class Event(Response):
    kind: str
    details: tuple


@dataclass
class Metadata:
    columns: list[tuple] | None         # (keyspace, table, name, type); None when the server left them out
    paging_state: bytes | None = None
    changed_id: bytes | None = None     # v5: the new result metadata id
    count: int = 0


@dataclass
class Rows(Response):
    metadata: Metadata
    rows: list[tuple]


@dataclass
class Prepared(Response):
    id: bytes
    metadata_id: bytes | None
    variables: list[tuple]
    partition_key: list[int]
    result: Metadata


class Reader:
    """Walks over the bytes of one message."""

    def __init__(self, data: bytes):
        self.data = data
        self.at = 0

    def take(self, count: int) -> bytes:
        if self.at + count > len(self.data):
            raise ValueError(f"message of {len(self.data)} bytes ends inside a field at {self.at}+{count}")
        self.at += count
        return self.data[self.at - count:self.at]

    def rest(self) -> bytes:
        return self.take(len(self.data) - self.at)

    def byte(self) -> int:
        return self.take(1)[0]

    def short(self) -> int:
        return struct.unpack(">H", self.take(2))[0]

    def int(self) -> int:
        return struct.unpack(">i", self.take(4))[0]

    def short_bytes(self) -> bytes:
        return self.take(self.short())

    def string(self) -> str:
        return self.short_bytes().decode()

    def string_list(self) -> list[str]:
        return [self.string() for _ in range(self.short())]

    def value(self) -> bytes | None:
        length = self.int()
        return None if length < 0 else self.take(length)

    def inet(self) -> tuple:
        return self.take(self.byte()), self.int()

    def type(self) -> str:
        kind = self.short()
        if kind in SIMPLE_TYPES:
            return SIMPLE_TYPES[kind]
        if kind == 0x00:
            return f"'{self.string()}'"
        if kind == 0x20:
            return f"list<{self.type()}>"
        if kind == 0x21:
            return f"map<{self.type()}, {self.type()}>"
        if kind == 0x22:
            return f"set<{self.type()}>"
        if kind == 0x30:
            keyspace, name = self.string(), self.string()
            fields = [f"{self.string()} {self.type()}" for _ in range(self.short())]
            return f"{keyspace}.{name}({', '.join(fields)})"
        if kind == 0x31:
            return f"tuple<{', '.join(self.type() for _ in range(self.short()))}>"
        raise ValueError(f"unknown type option {kind:#x}")


@dataclass(frozen=True)
class Message:
    """An answer as it came, without its stream and not compressed."""

    opcode: int
    flags: int
    body: bytes
    version: int

    def decode(self) -> Response:
        return decode(self.opcode, self.flags, self.body, self.version)


def decode(opcode: int, flags: int, body: bytes, version: int) -> Response:
    reader = Reader(body)
    tracing_id = reader.take(16) if flags & TRACING_FLAG else None
    warnings = reader.string_list() if flags & WARNING_FLAG else []
    if flags & PAYLOAD_FLAG:
        for _ in range(reader.short()):
            reader.string(), reader.value()
    response = _message(opcode, reader, version)
    response.warnings, response.tracing_id = warnings, tracing_id
    return response


def _message(opcode: int, reader: Reader, version: int) -> Response:
    if opcode == ERROR:
        return Error(reader.int(), reader.string(), reader.rest())
    if opcode == RESULT:
        return _result(reader, version)
    if opcode == READY:
        return Ready()
    if opcode == SUPPORTED:
        return Supported({reader.string(): reader.string_list() for _ in range(reader.short())})
    if opcode == EVENT:
        return _event(reader)
    return Other(opcode, reader.rest())


def _event(reader: Reader) -> Event:
    kind = reader.string()
    if kind == "SCHEMA_CHANGE":
        change = _schema_change(reader)
        return Event(kind, (change.change, change.target, change.names))
    return Event(kind, (reader.string(), reader.inet()))


def _schema_change(reader: Reader) -> SchemaChange:
    change, target = reader.string(), reader.string()
    names = [reader.string()]
    if target != "KEYSPACE":
        names.append(reader.string())
    if target in ("FUNCTION", "AGGREGATE"):
        names.append(tuple(reader.string_list()))
    return SchemaChange(change, target, tuple(names))


def _result(reader: Reader, version: int) -> Response:
    kind = reader.int()
    if kind == 1:
        return Void()
    if kind == 2:
        metadata = _metadata(reader)
        rows = [tuple(reader.value() for _ in range(metadata.count)) for _ in range(reader.int())]
        if reader.at != len(reader.data):
            raise ValueError(f"{len(reader.data) - reader.at} bytes follow the last row")
        return Rows(metadata, rows)
    if kind == 3:
        return SetKeyspace(reader.string())
    if kind == 4:
        return _prepared(reader, version)
    if kind == 5:
        return _schema_change(reader)
    raise ValueError(f"unknown kind of result {kind}")


def _metadata(reader: Reader) -> Metadata:
    flags, count = reader.int(), reader.int()
    metadata = Metadata(None, count=count)
    if flags & 0x02:
        metadata.paging_state = reader.value()
    if flags & 0x08:
        metadata.changed_id = reader.short_bytes()
    if not flags & 0x04:
        metadata.columns = _columns(reader, flags, count)
    return metadata


def _columns(reader: Reader, flags: int, count: int) -> list[tuple]:
    shared = (reader.string(), reader.string()) if flags & 0x01 else None
    columns = []
    for _ in range(count):
        keyspace, table = shared or (reader.string(), reader.string())
        columns.append((keyspace, table, reader.string(), reader.type()))
    return columns


def _prepared(reader: Reader, version: int) -> Prepared:
    prepared_id = reader.short_bytes()
    metadata_id = reader.short_bytes() if version >= 5 else None
    flags, count = reader.int(), reader.int()
    partition_key = [reader.short() for _ in range(reader.int())] if version >= 4 else []
    variables = _columns(reader, flags, count)
    return Prepared(prepared_id, metadata_id, variables, partition_key, _metadata(reader))
