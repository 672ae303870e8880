"""The rows that a node may show after a crash, per table, if it keeps its promise of durability.

Every acknowledged mutation is there; one that was sent and not acknowledged is there whole or not at all; nothing that
was never sent is. A check returns what is wrong, as lines. What it read is the state from which the next round starts.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Write:
    """One mutation: new values (None: deleted) of rows of one partition, all with one timestamp."""

    timestamp: int
    rows: tuple[tuple[int, str | None], ...]


@dataclass
class Partition:
    """Rows of one partition, written by one thread with rising timestamps."""

    name: str
    truth: dict[int, tuple[int, str | None]] = field(default_factory=dict)     # row -> (timestamp, value)
    unanswered: dict[int, Write] = field(default_factory=dict)                 # by timestamp

    def sent(self, write: Write) -> None:
        self.unanswered[write.timestamp] = write

    def acknowledged(self, timestamp: int) -> None:
        write = self.unanswered.pop(timestamp)
        for row, value in write.rows:
            if row not in self.truth or self.truth[row][0] < timestamp:
                self.truth[row] = (timestamp, value)

    def refused(self, timestamp: int) -> None:
        """The server said that the write did not happen."""
        self.unanswered.pop(timestamp, None)

    def forget_until(self, timestamp: int) -> None:
        """Removes the writes that were acknowledged up to that time, because their column was dropped."""
        self.truth = {row: version for row, version in self.truth.items() if version[0] > timestamp}

    def check(self, seen: dict[int, str]) -> list[str]:
        wrong = []
        found: dict[int, tuple[int, str | None]] = {}
        for row in self.rows(seen):
            possible = self.possible(row)
            matching = [version for version in possible if version[1] == seen.get(row)]
            if not matching:
                wrong.append(f"{self.name} row {row}: shows {seen.get(row)!r}; acknowledged {self.truth.get(row)}, "
                             f"unanswered {sorted(set(possible) - {self.truth.get(row)})}")
            else:
                found[row] = matching[-1]
        for write in self.unanswered.values():
            wrong += self.torn(write, found)
        self.truth = {row: version for row, version in found.items()}
        self.unanswered.clear()
        return wrong

    def rows(self, seen: dict[int, str]) -> set[int]:
        return set(seen) | set(self.truth) | {row for write in self.unanswered.values() for row, _ in write.rows}

    def possible(self, row: int) -> list[tuple[int, str | None]]:
        """Every version of a row that a read may return: the acknowledged one, or a newer unanswered one."""
        base = self.truth.get(row, (0, None))
        newer = [(write.timestamp, value) for write in self.unanswered.values() for written, value in write.rows
                 if written == row and write.timestamp > base[0]]
        return [base, *sorted(newer)]

    def torn(self, write: Write, found: dict[int, tuple[int, str | None]]) -> list[str]:
        """An unanswered write of several rows shows in all of them (or is overwritten there), or in none."""
        versions = [found.get(row, (0, None)) for row, _ in write.rows]
        shows = [version == (write.timestamp, value) and value is not None
                 for version, (_, value) in zip(versions, write.rows)]
        hidden = [version[0] < write.timestamp and value is not None for version, (_, value) in zip(versions, write.rows)]
        if any(shows) and any(hidden):
            return [f"{self.name}: the write at {write.timestamp} is torn: {list(zip(write.rows, versions))}"]
        return []


@dataclass
class GrowingSet:
    """Elements added to one collection, each by a mutation of its own; never removed."""

    name: str
    truth: set[int] = field(default_factory=set)
    unanswered: set[int] = field(default_factory=set)

    def check(self, seen: set[int]) -> list[str]:
        lost, invented = self.truth - seen, seen - self.truth - self.unanswered
        self.truth, self.unanswered = set(seen), set()
        wrong = [f"{self.name}: {len(lost)} acknowledged elements are lost: {sorted(lost)[:10]}"] if lost else []
        return wrong + ([f"{self.name}: elements never sent: {sorted(invented)[:10]}"] if invented else [])


@dataclass
class Schema:
    """Names of tables or columns that DDL creates and drops."""

    name: str
    truth: set[str] = field(default_factory=set)
    unanswered: str | None = None               # the one name of which it is not known whether it exists

    def check(self, seen: set[str]) -> list[str]:
        wrong = []
        for name in (self.truth ^ seen) - {self.unanswered}:
            wrong.append(f"{self.name} {name}: {'is lost' if name in self.truth else 'is back, or was never made'}")
        self.truth, self.unanswered = set(seen), None
        return wrong
