"""How long a run is. Every scenario says in one place what that means for it."""

import enum


class Length(enum.Enum):
    # A scenario asked for by its name: what records are made of.
    FULL = "full"
    # All scenarios in half an hour.
    SHORT = "short"
    # All scenarios in five minutes: that everything works, and the order of figures.
    SMOKE = "smoke"

    @classmethod
    def of(cls, is_named: bool, quick: bool) -> "Length":
        return (cls.SHORT if quick else cls.FULL) if is_named else (cls.SMOKE if quick else cls.SHORT)
