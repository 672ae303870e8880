"""The result of a scenario: tables, bars, plots."""

import statistics
from dataclasses import dataclass, field


@dataclass
class Bar:
    """A figure with the limit that was set for it. `wanted` is "<=" or ">=" with `limit`."""

    name: str
    value: float
    wanted: str
    limit: float

    @property
    def reached(self) -> bool:
        return self.value <= self.limit if self.wanted == "<=" else self.value >= self.limit

    def line(self) -> str:
        return f"{'reached' if self.reached else 'MISSED '}  {self.name}: {self.value:.3g} (wanted {self.wanted} {self.limit:.3g})"


@dataclass
class Plot:
    """Lines over one x axis; `series` maps a name to its (x, y) points."""

    title: str
    x_label: str
    y_label: str
    series: dict[str, list]
    x_logarithmic: bool = False
    y_logarithmic: bool = False
    # Whether it is part of the record, drawn beside the text.
    recorded: bool = False


@dataclass
class Table:
    title: str
    columns: list[str]
    rows: list[list]


@dataclass
class Outcome:
    scenario: str
    settings: dict = field(default_factory=dict)
    tables: list[Table] = field(default_factory=list)
    bars: list[Bar] = field(default_factory=list)
    plots: list[Plot] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    elapsed_seconds: float = 0.0


def median(values) -> float:
    return statistics.median(values)


def spread(values) -> str:
    """The median with the least and the greatest."""
    values = sorted(values)
    return f"{number(statistics.median(values))} ({number(values[0])}–{number(values[-1])})"


def number(value: float) -> str:
    """The number with three significant digits."""
    if value != value:
        return "–"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
