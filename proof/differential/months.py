"""Months before 1582. Cassandra adds them by Java's old calendar, which is Julian there. Ours is always Gregorian."""

import re
from dataclasses import replace

from proof.differential.answers import comparable
from proof.differential.steps import Step
from proof.wire.responses import Response, Rows

MILLIS_PER_DAY = 86_400_000
GREGORIAN_SINCE = -141_427                  # 15 October 1582, in days since 1970
EPOCH_OF_DATES = 1 << 31
APART_MAX = 4                               # days, of one time plus a duration of some months, by both calendars
SUM_OF_TIMES = re.compile(r"\S.* [-+] \S.*", re.DOTALL)
FLOOR = re.compile(r"floor\([^(),]+, *(\w+), *('[^']*'|-?\d+)\)", re.IGNORECASE)
MONTHS = re.compile(r"(?:(\d+)y)?(?:(\d+)mo)?", re.IGNORECASE)
DAY = re.compile(r"'(-?\d{4,})-(\d\d)-(\d\d)'")


def months_before_1582(step: Step, left: Response, right: Response) -> bool:
    """The rows are the same, apart from sums of old times, which differ as the calendars do, and floors from an old
    start, which are right here."""
    if not isinstance(left, Rows) or not isinstance(right, Rows) or len(left.rows) != len(right.rows) or not left.metadata.columns:
        return False
    if comparable(replace(left, rows=[])) != comparable(replace(right, rows=[])):
        return False
    kinds = [(name, kind) for _, _, name, kind in left.metadata.columns]
    cells = [(*cell, *pair) for rows in zip(left.rows, right.rows) for cell, *pair in zip(kinds, *rows) if pair[0] != pair[1]]
    return bool(cells) and all(is_old(step.cql, *cell) for cell in cells)


def is_old(cql: str, name: str, kind: str, theirs: bytes | None, ours: bytes | None) -> bool:
    if kind not in ("date", "timestamp") or theirs is None or ours is None or len(theirs) != len(ours):
        return False
    if floors := FLOOR.findall(cql):
        return name.startswith("system.floor(") and any(is_old_floor(length, start, kind, millis(kind, ours)) for length, start in floors)
    return SUM_OF_TIMES.fullmatch(name) is not None and is_old_sum(kind, millis(kind, theirs), millis(kind, ours))


def is_old_sum(kind: str, theirs: int, ours: int) -> bool:
    """Returns whether two sums are some whole days apart. One of them may have passed the last possible time and
    continued at the first one."""
    span = 1 << 64 if kind == "timestamp" else (1 << 32) * MILLIS_PER_DAY
    apart = (theirs - ours + span // 2) % span - span // 2
    return min(theirs, ours) < GREGORIAN_SINCE * MILLIS_PER_DAY and apart % MILLIS_PER_DAY == 0 and abs(apart) <= APART_MAX * MILLIS_PER_DAY


def is_old_floor(length: str, start: str, kind: str, ours: int) -> bool:
    """Returns whether our time is a whole number of months after a start before 1582, to the day."""
    begun, months = time_of(start, kind), months_of(length)
    if begun is None or not months or begun >= GREGORIAN_SINCE * MILLIS_PER_DAY:
        return False
    (month, day), (our_month, our_day) = (month_and_day(time // MILLIS_PER_DAY) for time in (begun, ours))
    same_time = (ours - begun) % MILLIS_PER_DAY == 0
    return same_time and (our_month - month) % months == 0 and (our_day == day or 28 <= our_day < day)


def months_of(length: str) -> int | None:
    found = MONTHS.fullmatch(length)
    return found and int(found[1] or 0) * 12 + int(found[2] or 0)


def time_of(start: str, kind: str) -> int | None:
    """Returns a constant of a date or a timestamp in milliseconds since 1970."""
    if day := DAY.fullmatch(start):
        return days_of(*map(int, day.groups())) * MILLIS_PER_DAY
    if start.startswith("'"):
        return None
    return int(start) if kind == "timestamp" else (int(start) - EPOCH_OF_DATES) * MILLIS_PER_DAY


def millis(kind: str, value: bytes) -> int:
    if kind == "timestamp":
        return int.from_bytes(value, "big", signed=True)
    return (int.from_bytes(value, "big") - EPOCH_OF_DATES) * MILLIS_PER_DAY


def days_of(year: int, month: int, day: int) -> int:
    """Returns the days since 1970. `datetime` has neither the year 0 nor the year 10,000."""
    year -= month <= 2
    of_year = (153 * ((month - 3) % 12) + 2) // 5 + day - 1
    return year * 365 + year // 4 - year // 100 + year // 400 + of_year - 719_468


def month_and_day(days: int) -> tuple[int, int]:
    """Returns the number of a day's month, counted from the year 0, and the number of the day in the month."""
    era, of_era = divmod(days + 719_468, 146_097)
    year = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    month = (5 * of_year + 2) // 153
    return (era * 400 + year) * 12 + month + 2, of_year - (153 * month + 2) // 5 + 1
