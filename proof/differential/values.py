"""CQL types and random values of them, each as a literal, as serialized bytes and as JSON.

Domains are small, so that keys meet, and hold the edges of each type.
"""

import ipaddress
import json
import struct
import uuid
from dataclasses import dataclass, field
from random import Random

NO_JSON = object()      # the value has no JSON form that reads back as itself


@dataclass(frozen=True)
class Value:
    literal: str
    data: bytes | None
    json: object = field(default=None, compare=False)


NULL = Value("null", None, None)


class Type:
    """A type by its CQL name; `frozen_name` is how it stands inside another type or a key."""

    multi_cell = False

    def __init__(self, name: str):
        self.name = name

    @property
    def frozen_name(self) -> str:
        return self.name

    def value(self, rng: Random) -> Value:
        raise NotImplementedError


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def varint(number: int) -> bytes:
    return number.to_bytes(max(1, (number + (number < 0)).bit_length() // 8 + 1), "big", signed=True)


def unsigned_vint(number: int) -> bytes:
    """Cassandra's variable-length integer: the count of extra bytes is the count of leading one bits."""
    for extra in range(9):
        if extra == 8:
            return b"\xff" + number.to_bytes(8, "big")
        if number < 1 << (7 * (extra + 1)):
            data = bytearray(number.to_bytes(extra + 1, "big"))
            data[0] |= (0xFF << (8 - extra)) & 0xFF
            return bytes(data)
    raise AssertionError("unreachable")


def signed_vint(number: int) -> bytes:
    return unsigned_vint((number << 1) ^ (number >> 63) if number >= 0 else ((-number - 1) << 1) | 1)


def integer(fmt: str, *numbers: int) -> list[Value]:
    return [Value(str(n), struct.pack(fmt, n), n) for n in numbers]


def floating(fmt: str, *numbers: str) -> list[Value]:
    plain = [Value(n, struct.pack(fmt, float(n)), float(n)) for n in numbers]
    special = [Value(n, struct.pack(fmt, float(n)), NO_JSON) for n in ("NaN", "Infinity", "-Infinity")]
    return plain + special


def strings(*texts: str) -> list[Value]:
    return [Value(quoted(t), t.encode(), t) for t in texts]


def decimals(*texts: str) -> list[Value]:
    values = []
    for text in texts:
        digits, _, exponent = text.partition("E")
        whole, _, fraction = digits.partition(".")
        scale = len(fraction) - int(exponent or 0)
        values.append(Value(text, struct.pack(">i", scale) + varint(int(whole + fraction)), json_number(text)))
    return values


class json_number(str):
    """A number that goes into JSON as it is written."""


def durations(*items: tuple[str, int, int, int]) -> list[Value]:
    return [Value(text, signed_vint(m) + signed_vint(d) + signed_vint(n), text) for text, m, d, n in items]


def uuids(*texts: str) -> list[Value]:
    return [Value(t, uuid.UUID(t).bytes, t) for t in texts]


SCALAR_DOMAINS = {
    "ascii": strings("", "a", "b", "ab", "it's", "~"),
    "bigint": integer(">q", 0, 1, -1, 7, 1 << 62, -(1 << 63), (1 << 63) - 1),
    "blob": [Value("0x" + d.hex(), d, "0x" + d.hex()) for d in (b"", b"\0", b"\xff", b"\x01\x02", b"\0\0\xff")],
    "boolean": [Value("true", b"\1", True), Value("false", b"\0", False)],
    "date": [Value(quoted(t), struct.pack(">I", (1 << 31) + days), t)
             for t, days in (("1970-01-01", 0), ("1970-01-02", 1), ("2024-02-29", 19782), ("1969-12-31", -1), ("9999-12-31", 2932896))],
    "decimal": decimals("0", "1.5", "-1.5", "10", "0.001", "123456789012345678901234567890.5", "-7"),
    "double": floating(">d", "0.0", "1.5", "-2.25", "1.0E10", "3.141592653589793"),
    "duration": durations(("1h30m", 0, 0, 5400 * 10**9), ("2mo", 2, 0, 0), ("-1d", 0, -1, 0), ("1y2mo3d4h", 14, 3, 14400 * 10**9), ("0s", 0, 0, 0)),
    "float": floating(">f", "0.0", "1.5", "-2.25", "100.0"),
    "inet": [Value(quoted(t), ipaddress.ip_address(t).packed, t) for t in ("127.0.0.1", "10.0.0.255", "::1", "2001:db8::ff")],
    "int": integer(">i", 0, 1, 2, 3, -1, 2**31 - 1, -(2**31)),
    "smallint": integer(">h", 0, 1, -1, 32767, -32768),
    "text": strings("", "a", "b", "abc", "Ä€𝄞", "it's", "two words"),
    "time": [Value(quoted(t), struct.pack(">q", n), t) for t, n in
             (("00:00:00.000000000", 0), ("12:34:56.789000000", 45296789000000), ("23:59:59.999999999", 86399999999999))],
    "timestamp": [Value(str(n), struct.pack(">q", n), n) for n in (0, 1, -1, 1700000000123, 4102444800000)],
    "timeuuid": uuids("50554d6e-29bb-11e5-b345-feff819cdc9f", "50554d6f-29bb-11e5-b345-feff819cdc9f", "00000000-0000-1000-8080-808080808080"),
    "tinyint": integer(">b", 0, 1, -1, 127, -128),
    "uuid": uuids("00000000-0000-0000-0000-000000000000", "f47ac10b-58cc-4372-a567-0e02b2c3d479", "50554d6e-29bb-11e5-b345-feff819cdc9f"),
    "varint": [Value(str(n), varint(n), n) for n in (0, 1, -1, 127, 128, -128, -129, 10**30, -(10**30))],
}
NUMERIC = ("bigint", "decimal", "double", "float", "int", "smallint", "tinyint", "varint")


class Scalar(Type):
    def value(self, rng: Random) -> Value:
        return rng.choice(SCALAR_DOMAINS[self.name])


class Collection(Type):
    def __init__(self, name: str, frozen: bool):
        super().__init__(f"frozen<{name}>" if frozen else name)
        self.multi_cell = not frozen
        self.plain = name

    @property
    def frozen_name(self) -> str:
        return f"frozen<{self.plain}>"


def prefixed(data: bytes | None) -> bytes:
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


class List(Collection):
    def __init__(self, element: Type, frozen: bool):
        super().__init__(f"list<{element.frozen_name}>", frozen)
        self.element = element

    def value(self, rng: Random) -> Value:
        return self.of([self.element.value(rng) for _ in range(rng.choice((0, 1, 2, 3)))])

    def of(self, items: list[Value]) -> Value:
        return Value("[" + ", ".join(i.literal for i in items) + "]",
                     struct.pack(">i", len(items)) + b"".join(prefixed(i.data) for i in items),
                     sequence_json(items))


class Set(Collection):
    def __init__(self, element: Type, frozen: bool):
        super().__init__(f"set<{element.frozen_name}>", frozen)
        self.element = element

    def value(self, rng: Random) -> Value:
        return self.of(distinct([self.element.value(rng) for _ in range(rng.choice((0, 1, 2, 3)))]))

    def of(self, items: list[Value]) -> Value:
        return Value("{" + ", ".join(i.literal for i in items) + "}",
                     struct.pack(">i", len(items)) + b"".join(prefixed(i.data) for i in items),
                     sequence_json(items))


class Map(Collection):
    def __init__(self, key: Type, element: Type, frozen: bool):
        super().__init__(f"map<{key.frozen_name}, {element.frozen_name}>", frozen)
        self.key = key
        self.element = element

    def value(self, rng: Random) -> Value:
        keys = distinct([self.key.value(rng) for _ in range(rng.choice((0, 1, 2, 3)))])
        return self.of([(key, self.element.value(rng)) for key in keys])

    def of(self, items: list[tuple[Value, Value]]) -> Value:
        whole = NO_JSON if any(NO_JSON in (k.json, v.json) for k, v in items) else {
            k.json if isinstance(k.json, str) else json_text(k.json): v.json for k, v in items}
        return Value("{" + ", ".join(f"{k.literal}: {v.literal}" for k, v in items) + "}",
                     struct.pack(">i", len(items)) + b"".join(prefixed(k.data) + prefixed(v.data) for k, v in items),
                     whole)


class Tuple(Type):
    def __init__(self, elements: list[Type]):
        super().__init__(f"tuple<{', '.join(e.frozen_name for e in elements)}>")
        self.elements = elements

    @property
    def frozen_name(self) -> str:
        return f"frozen<{self.name}>"

    def value(self, rng: Random) -> Value:
        items = [NULL if rng.random() < 0.1 else element.value(rng) for element in self.elements]
        return Value("(" + ", ".join(i.literal for i in items) + ")", b"".join(prefixed(i.data) for i in items),
                     sequence_json(items))


class UserType(Type):
    """A user type. All uses of the type share `fields`, so that all see an ALTER TYPE."""

    def __init__(self, type_name: str, fields: list[tuple[str, Type]], frozen: bool):
        super().__init__(f"frozen<{type_name}>" if frozen else type_name)
        self.type_name = type_name
        self.fields = fields
        self.multi_cell = not frozen

    @property
    def frozen_name(self) -> str:
        return f"frozen<{self.type_name}>"

    def value(self, rng: Random) -> Value:
        items = [(name, NULL if rng.random() < 0.15 else kind.value(rng)) for name, kind in self.fields]
        whole = NO_JSON if any(v.json is NO_JSON for _, v in items) else {name: v.json for name, v in items}
        return Value("{" + ", ".join(f"{name}: {v.literal}" for name, v in items) + "}",
                     b"".join(prefixed(v.data) for _, v in items), whole)


class Vector(Type):
    FIXED = ("float", "int", "bigint", "double", "boolean", "uuid", "timestamp")

    def __init__(self, element: Scalar, dimension: int):
        super().__init__(f"vector<{element.name}, {dimension}>")
        self.element = element
        self.dimension = dimension

    def value(self, rng: Random) -> Value:
        items = [self.element.value(rng) for _ in range(self.dimension)]
        fixed = self.element.name in self.FIXED
        return Value("[" + ", ".join(i.literal for i in items) + "]",
                     b"".join(i.data if fixed else unsigned_vint(len(i.data)) + i.data for i in items),
                     sequence_json(items))


def distinct(items: list[Value]) -> list[Value]:
    return list({identity(item.data): item for item in items}.values())


def identity(data: bytes | None) -> str:
    """The same for values that are equal though their bytes differ: sets in another order, and fields that are null or
    missing. Some that are not equal have the same, too."""
    for head in (4, 0):
        at, parts = head, []
        while data and at + 4 <= len(data):
            length = struct.unpack_from(">i", data, at)[0]
            parts += [data[at + 4:at + 4 + length]] if length >= 0 else []
            at += 4 + max(length, 0)
        if parts and at == len(data):
            return repr(sorted(map(identity, parts)))
    return repr(data)


def sequence_json(items: list[Value]):
    return NO_JSON if any(i.json is NO_JSON for i in items) else [i.json for i in items]


def json_text(item) -> str:
    """JSON as text; numbers of any size as they are written."""
    if isinstance(item, json_number):
        return str(item)
    if isinstance(item, dict):
        return "{" + ", ".join(f"{json.dumps(k)}: {json_text(v)}" for k, v in item.items()) + "}"
    if isinstance(item, list):
        return "[" + ", ".join(json_text(i) for i in item) + "]"
    return json.dumps(item, ensure_ascii=False)


KEY_SCALARS = [name for name in SCALAR_DOMAINS if name != "duration"]


def random_key_type(rng: Random, types: list[UserType]) -> Type:
    """A type for a primary key column, a set element or a map key."""
    roll = rng.random()
    if roll < 0.5:
        return Scalar(rng.choice(("int", "text", "bigint")))
    if roll < 0.92 or not types:
        return Scalar(rng.choice(KEY_SCALARS))
    if roll < 0.95:
        return Tuple([Scalar(rng.choice(KEY_SCALARS)), Scalar("int")])
    if roll < 0.98:
        element = Scalar(rng.choice(("int", "text")))
        return rng.choice((List, Set))(element if rng.random() < 0.7 else Set(element, True), True)
    chosen = rng.choice(types)
    return UserType(chosen.type_name, chosen.fields, True)


def random_type(rng: Random, types: list[UserType], depth: int = 0) -> Type:
    """A type for a regular or static column, or (depth > 0) for what stands inside one."""
    roll = rng.random()
    frozen = depth > 0 or rng.random() < 0.3
    if roll < (0.45 if depth == 0 else 0.85):
        return Scalar(rng.choice(list(SCALAR_DOMAINS)))
    if roll < 0.6:
        return Map(random_key_type(rng, types), random_type(rng, types, depth + 1), frozen)
    if roll < 0.72:
        return Set(random_key_type(rng, types), frozen)
    if roll < 0.84:
        return List(random_type(rng, types, depth + 1), frozen)
    if roll < 0.9 and types:
        chosen = rng.choice(types)
        return UserType(chosen.type_name, chosen.fields, frozen)
    if roll < 0.95:
        return Tuple([random_type(rng, types, depth + 2) for _ in range(rng.choice((1, 2, 3)))])
    return Vector(Scalar(rng.choice(("float", "float", "int", "text", "double"))), rng.choice((1, 2, 3)))
