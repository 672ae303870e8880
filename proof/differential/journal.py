"""The journal of a long run: a line for each history that ended, so that a run continues where it was interrupted.

If a seed had a difference, it runs again from its start, because the fix may change more than the statement that
differed.
"""

import json
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Entry:
    """The result of the `number`-th history of a seed: the statements with the same answers, those whose difference a
    rule explains, and those with another difference."""

    seed: int
    number: int
    equal: int
    explained: dict[str, int]
    different: int

    @property
    def statements(self) -> int:
        return self.equal + sum(self.explained.values()) + self.different


class Journal:
    """A journal. One thread at a time may use it."""

    def __init__(self, file: Path, entries: list[Entry]):
        self.file = file
        self.entries = entries
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(map(line, entries)))

    @classmethod
    def begin(cls, file: Path) -> "Journal":
        return cls(file, [])

    @classmethod
    def resume(cls, file: Path) -> "Journal":
        """Opens the journal with its lines, except for seeds that differed and for an incomplete last line."""
        entries = [Entry(**json.loads(text)) for text in file.read_text().splitlines(keepends=True) if text.endswith("\n")]
        differed = {entry.seed for entry in entries if entry.different}
        return cls(file, [entry for entry in entries if entry.seed not in differed])

    def add(self, entry: Entry) -> None:
        self.entries.append(entry)
        with self.file.open("a") as file:
            file.write(line(entry))

    @property
    def ended(self) -> set[tuple[int, int]]:
        """The seed and number of each history that has ended."""
        return {(entry.seed, entry.number) for entry in self.entries}

    @property
    def statements(self) -> int:
        return sum(entry.statements for entry in self.entries)

    def summary(self) -> list[str]:
        """The text of a run's record: the seeds, the statements, and the explained differences."""
        seeds = sorted({entry.seed for entry in self.entries})
        explained = sum((Counter(entry.explained) for entry in self.entries), Counter())
        different = sum(entry.different for entry in self.entries)
        return [f"seeds {seeds[0]} to {seeds[-1]}: {len(self.entries)} histories, {self.statements} statements; "
                f"{different} differences unexplained, {explained.total()} explained:" if seeds else "no history has ended",
                *(f"{count:8}  {rule}" for rule, count in sorted(explained.items()))]


def line(entry: Entry) -> str:
    return json.dumps(asdict(entry)) + "\n"
