"""Statements that are almost right."""

import re
from dataclasses import replace
from random import Random

from proof.differential.steps import Step

TOKEN = re.compile(r"'(?:[^']|'')*'|\"[^\"]*\"|\w+|\s+|.")
BRACES = re.compile(r"\{([^{}]*)\}")
STRAY = ["nosuch", "1", "'x'", "null", ",", ")", "(", "WHERE", "AND", "p0", "k0", "[", "0xzz", "?", "*", "token", "IN"]


def spoil(rng: Random, step: Step) -> Step:
    """The step with one token dropped, doubled, replaced or swapped; often an error, of any kind."""
    if step.kind != "cql":
        return step
    tokens = TOKEN.findall(step.cql)
    places = [at for at, token in enumerate(tokens) if not token.isspace()]
    at = rng.choice(places)
    roll = rng.random()
    if roll < 0.3:
        del tokens[at]
    elif roll < 0.7:
        tokens[at] = rng.choice(STRAY)
    elif roll < 0.85:
        other = rng.choice(places)
        tokens[at], tokens[other] = tokens[other], tokens[at]
    else:
        tokens.insert(at, tokens[at] + " ")
    spoiled = "".join(tokens)
    # Without WHERE or with another name a statement may do far more than it says; keep those that name the same table.
    return step if names_a_key_twice(spoiled) else replace(step, cql=spoiled)


def names_a_key_twice(cql: str) -> bool:
    """Returns whether a map is written with the same key twice. Cassandra keeps one of the two values, which changes at
    each start."""
    keys = [[entry.split(":")[0].strip() for entry in inside.split(",")] for inside in BRACES.findall(cql) if ":" in inside]
    return any(len(set(each)) < len(each) for each in keys)
