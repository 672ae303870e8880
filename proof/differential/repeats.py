"""Statements in which IN may name a value twice before a range of several columns: there Cassandra reads, and deletes, other ranges."""

import re
import struct

from proof.differential.steps import Step

RANGE_OF_SEVERAL = re.compile(r"\(\w+(?:, ?\w+)+\) *[<>]")
ALTERNATIVES = re.compile(r"\bIN \(((?:[^()]|\([^()]*\))*)\)")
ALTERNATIVES_BOUND = re.compile(r"\bIN <(\w+)>")
MARKER = re.compile(r"\?|:n\d+")


def repeats_before_a_range(step: Step) -> bool:
    return any(repeats(cql, values) for cql, values in step.items or [(step.cql, step.values)])


def repeats(cql: str, values: list) -> bool:
    if not RANGE_OF_SEVERAL.search(cql):
        return False
    left = iter(values)
    bound = MARKER.sub(lambda marker: f"<{next(left, None) if marker[0] == '?' else named(values, marker[0])}>", cql)
    lists = [listed.split(", ") for listed in ALTERNATIVES.findall(bound)]
    lists += [elements(value) for value in ALTERNATIVES_BOUND.findall(bound)]
    # What a function gives may be any of the other values.
    return any(len(set(items)) < len(items) or len(items) > 1 and any("(" in item for item in items) for items in lists)


def named(values: list, marker: str) -> str | None:
    place = int(marker.removeprefix(":n"))
    return values[place] if place < len(values) else None


def elements(value: str) -> list[str]:
    """Of a serialized list; the list itself where it is none."""
    try:
        data, found, at = bytes.fromhex(value), [], 4
        while at < len(data):
            length = max(struct.unpack_from(">i", data, at)[0], 0)
            found.append(data[at + 4:at + 4 + length].hex())
            at += 4 + length
        return found
    except (ValueError, struct.error):
        return [value]
