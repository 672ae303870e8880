"""Prepared statements."""

from proof.attack.attacks import attack
from proof.attack.target import Target

EXPECTED = r"Prepared|Error 0x2[02]00 .*|Error 0x1001 .*"


@attack("H7", seconds=40, expected=EXPECTED)
def statements_with_much_behind_a_short_text(target: Target) -> list:
    """The cache of prepared statements once counted each of them as 2 KB and twice its text."""
    with target.connect() as connection:
        return [connection.prepare(f"SELECT {'i,' * 3000}i FROM attack.t WHERE k = {number}") for number in range(150)]


@attack("H7", seconds=40, expected=EXPECTED)
def many_prepared_statements(target: Target) -> list:
    with target.connect() as connection:
        return [connection.prepare(f"INSERT INTO attack.t (k, i, b, m, l) VALUES (?, {number}, ?, ?, ?)")
                for number in range(8000)]


@attack("H7", seconds=30, expected=EXPECTED)
def large_prepared_statements_at_once(target: Target) -> list:
    return target.prepared_together([f"SELECT {'i,' * 60_000}i FROM attack.t WHERE k = {number}" for number in range(12)])


@attack("H7", seconds=30, expected=EXPECTED)
def batches_and_terms(target: Target) -> list:
    batch = "BEGIN UNLOGGED BATCH " + "INSERT INTO attack.t (k, i) VALUES (?, ?);" * 500 + " APPLY BATCH"
    with target.connect() as connection:
        return [connection.prepare(f"{batch} -- {number}") for number in range(20)] + [
            connection.prepare(f"SELECT i FROM attack.t WHERE k IN ({','.join(['?'] * 5000)}) LIMIT {number + 1}") for number in range(20)]
