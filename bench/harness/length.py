"""The length of a run. Every scenario says in one place what the length means for it."""

import enum


class Length(enum.Enum):
    # A scenario that was named. Records have this length.
    FULL = "full"
    # All scenarios in half an hour.
    SHORT = "short"
    # All scenarios in five minutes, to see that everything works, and the order of magnitude of the figures.
    SMOKE = "smoke"

    @classmethod
    def of(cls, is_named: bool, quick: bool) -> "Length":
        return (cls.SHORT if quick else cls.FULL) if is_named else (cls.SMOKE if quick else cls.SHORT)
