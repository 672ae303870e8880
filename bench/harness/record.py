"""The text of a record, and the terminal's table."""

from itertools import count
from pathlib import Path

from bench.harness.outcome import Outcome, Table, number


def free_stem(directory: Path, name: str) -> str:
    """The name if no record has it yet, otherwise the name with the least free number."""
    stems = (name if number == 1 else f"{name}-{number}" for number in count(1))
    return next(stem for stem in stems if not (directory / f"{stem}.txt").exists())


def text(outcome: Outcome, facts: dict[str, str], date: str) -> str:
    lines = [f"{outcome.scenario}, {date}", ""]
    lines += [f"{name:14}{value}" for name, value in facts.items()]
    lines.append(f"{'elapsed':14}{outcome.elapsed_seconds:,.0f} s")
    lines += [""] + [f"{name}: {value}" for name, value in outcome.settings.items()]
    for note in outcome.notes:
        lines += ["", note]
    for table in outcome.tables:
        lines += ["", table.title, *aligned(table)]
    if outcome.bars:
        lines += ["", "Bars", *(bar.line() for bar in outcome.bars)]
    return "\n".join(lines) + "\n"


def aligned(table: Table) -> list[str]:
    rows = [table.columns] + [[cell if isinstance(cell, str) else number(cell) for cell in row] for row in table.rows]
    widths = [max(len(row[place]) for row in rows) for place in range(len(table.columns))]
    numeric = [all(not isinstance(row[place], str) for row in table.rows) for place in range(len(table.columns))]
    return ["  ".join(cell.rjust(width) if right else cell.ljust(width) for cell, width, right in zip(row, widths, numeric)).rstrip()
            for row in rows]
