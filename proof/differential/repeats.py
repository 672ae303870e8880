"""Statements in which IN may name a value twice before a range of several columns. Cassandra then reads, and deletes,
other ranges."""

import json
import re
import struct
from dataclasses import replace

from proof.differential.steps import Step

RANGE_OF_SEVERAL = re.compile(r"\(\w+(?:, ?\w+)+\) *[<>]")
ALTERNATIVES = re.compile(r"\bIN \(((?:[^()]|\([^()]*\))*)\)")
ALTERNATIVES_BOUND = re.compile(r"\bIN <(\w+)>")
MARKER = re.compile(r"\?|:n\d+")
BETWEEN = re.compile(r", (?=(?:[^']*'[^']*')*[^']*$)(?![^(]*\))")     # commas outside of texts and parentheses
FROM_JSON = re.compile(r"from_?json\('((?:[^']|'')*)'\)", re.IGNORECASE)
BOUND = re.compile(r"<(\w+)>")


def repeats_before_a_range(step: Step) -> bool:
    return any(repeats(cql, values) for cql, values in step.items or [(step.cql, step.values)])


def repeats(cql: str, values: list) -> bool:
    if not RANGE_OF_SEVERAL.search(cql):
        return False
    bound = bound_text(cql, values)
    lists = [listed.split(", ") for listed in ALTERNATIVES.findall(bound)]
    lists += [elements(value) for value in ALTERNATIVES_BOUND.findall(bound)]
    # What a function gives may be any of the other values.
    return any(len(set(items)) < len(items) or len(items) > 1 and any("(" in item for item in items) for items in lists)


def bound_text(cql: str, values: list) -> str:
    """Returns the statement with <hex> in place of each marker."""
    left = iter(values)
    return MARKER.sub(lambda marker: f"<{next(left, None) if marker[0] == '?' else named(values, marker[0])}>", cql)


def named(values: list, marker: str) -> str | None:
    place = int(marker.removeprefix(":n"))
    return values[place] if place < len(values) else None


def elements(value: str) -> list[str]:
    """Returns the elements of a serialized list, or the value itself if it is not a list."""
    try:
        data, found, at = bytes.fromhex(value), [], 4
        while at < len(data):
            length = max(struct.unpack_from(">i", data, at)[0], 0)
            found.append(data[at + 4:at + 4 + length].hex())
            at += 4 + length
        return found
    except (ValueError, struct.error):
        return [value]


def without_repeats(step: Step) -> Step:
    """Returns the statement with each value once in every IN, as far as the values look the same."""
    bound = ALTERNATIVES.sub(lambda listed: f"IN ({', '.join(once(BETWEEN.split(listed[1])))})", bound_text(step.cql, step.values))
    bound = ALTERNATIVES_BOUND.sub(lambda listed: f"IN <{list_of(once(elements(listed[1])))}>", bound)
    values = [None if value == "None" else value for value in BOUND.findall(bound)]
    return replace(step, cql=BOUND.sub("?", bound), values=values, named=False, reuse=False)


def once(items: list[str]) -> list[str]:
    """Returns the items without those that occurred before."""
    seen: dict[str, str] = {}
    for item in items:
        seen.setdefault(plain(item), item)
    return list(seen.values())


def plain(item: str) -> str:
    """Returns a constant as it is written without from_json()."""
    called = FROM_JSON.fullmatch(item.strip())
    if called is None:
        return item
    try:
        value = json.loads(called[1].replace("''", "'"))
    except ValueError:
        return item
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else json.dumps(value)


def list_of(items: list[str]) -> str:
    """Returns the serialized list of some hexadecimal values."""
    data = [bytes.fromhex(item) for item in items]
    return (struct.pack(">i", len(data)) + b"".join(struct.pack(">i", len(value)) + value for value in data)).hex()
