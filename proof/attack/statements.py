"""Statements that are small and would cost much."""

from proof.attack.attacks import attack
from proof.attack.target import Target


@attack("C2", seconds=2, expected=r"Rows|Error 0x2[02]00 .*")
def nested_operators(target: Target) -> list:
    """Each operator once cost as much as twenty of the next one did."""
    return [target.query(f"SELECT i{'+1' * 60} FROM attack.t WHERE k = 1"),
            target.query(f"SELECT {'abs(' * 30}i{')' * 30} FROM attack.t WHERE k = 1")]


@attack("C2", seconds=2, expected=r"Void|Error 0x2[02]00 .*")
def casts_and_operators(target: Target) -> list:
    return [target.query(f"UPDATE attack.t SET i = {'+'.join(['(int)1'] * 60)} WHERE k = 2")]


@attack("C3", seconds=2, expected=r"Error 0x2[02]00 .*")
def deep_expression(target: Target) -> list:
    """Levels and operators that are each within their limit, and together too deep for a stack."""
    x = "1"
    for _ in range(2):
        x = "abs(" + x + ")" + "*1" * 250 + "+1" * 250
    return [target.query(f"INSERT INTO attack.t (k, i) VALUES (2, {x})")]
