"""Requests whose answers are much larger than they are."""

from proof.attack.attacks import attack
from proof.attack.target import Target


@attack("C6", seconds=20, expected=r"Error 0x.*")
def one_blob_many_times(target: Target) -> list:
    """The answer would have 450 times the size of the blob."""
    return [target.query(f"SELECT {','.join(['b'] * 450)} FROM attack.t WHERE k = 1")]
