"""One HTML file that needs nothing else: tables, bars and plots as inline SVG."""

import html
import math

from bench.harness.outcome import Outcome, Plot, Table, number

COLOURS = ["#c0392b", "#2471a3", "#1e8449", "#b7950b", "#7d3c98", "#2c3e50", "#d35400", "#148f77"]
WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 640, 320, 70, 45, 30, 150
STYLE = """body{font:14px system-ui,sans-serif;margin:2em auto;max-width:1600px;padding:0 1em;color:#222}
table{border-collapse:collapse;margin:1em 0;font-size:12px}td,th{padding:.25em .55em;border-bottom:1px solid #ddd;text-align:right;font-variant-numeric:tabular-nums}
td:first-child,th:first-child,td:nth-child(2),th:nth-child(2){text-align:left}.missed{color:#c0392b}.reached{color:#1e8449}
div{overflow-x:auto}tr>*{white-space:nowrap}ul{list-style:none;padding:0}
svg{margin:.5em;background:#fcfcfc;border:1px solid #eee}dl{display:grid;grid-template-columns:max-content 1fr;gap:.1em 1em}dt{color:#666}dd{margin:0}"""
# A longer title is written smaller.
TITLE_CHARACTERS = 75
# The points of a line with so few of them are marked.
POINTS_MARKED = 20


def page(outcomes: list[Outcome], facts: dict[str, str], date: str) -> str:
    parts = [f"<!doctype html><html lang=en><meta charset=utf-8><title>Espalier beside Cassandra, {date}</title><style>{STYLE}</style>",
             f"<h1>Espalier beside Cassandra</h1><p>{date}</p><dl>"]
    parts += [f"<dt>{html.escape(name)}</dt><dd>{html.escape(value)}</dd>" for name, value in facts.items()]
    parts += ["</dl>", summary(outcomes)]
    for outcome in outcomes:
        parts.append(section(outcome))
    return "\n".join(parts) + "</html>\n"


def summary(outcomes: list[Outcome]) -> str:
    """A line for each scenario: where it is, how many of its bars it reached."""
    rows = "".join(f'<tr><td><a href="#{outcome.scenario}">{html.escape(outcome.scenario)}</a></td>'
                   f"<td class={'missed' if any(not bar.reached for bar in outcome.bars) else 'reached'}>"
                   f"{sum(bar.reached for bar in outcome.bars)} of {len(outcome.bars)}</td><td>{outcome.elapsed_seconds:,.0f}</td></tr>" for outcome in outcomes)
    return f"<table><tr><th>scenario</th><th>bars reached</th><th>seconds</th></tr>{rows}</table>"


def section(outcome: Outcome) -> str:
    parts = [f'<h2 id="{outcome.scenario}">{html.escape(outcome.scenario)}</h2>']
    parts += [f"<p>{html.escape(note)}</p>" for note in outcome.notes]
    parts += [f"<ul>{''.join(f'<li class={reached(bar)}>{html.escape(bar.line())}</li>' for bar in outcome.bars)}</ul>"]
    parts += [html_table(table) for table in outcome.tables] + [svg(plot) for plot in outcome.plots]
    settings = "".join(f"<dt>{html.escape(name)}</dt><dd>{html.escape(str(value))}</dd>" for name, value in outcome.settings.items())
    parts.append(f"<details><summary>Settings</summary><dl>{settings}</dl></details>")
    return "\n".join(parts)


def reached(bar) -> str:
    return "reached" if bar.reached else "missed"


def html_table(table: Table) -> str:
    head = "".join(f"<th>{html.escape(column)}</th>" for column in table.columns)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(cell if isinstance(cell, str) else number(cell))}</td>" for cell in row) + "</tr>"
                   for row in table.rows)
    return f"<h3>{html.escape(table.title)}</h3><div><table><tr>{head}</tr>{body}</table></div>"


class Axis:
    """Maps values to places between `low` and `high` pixels."""

    def __init__(self, values: list[float], logarithmic: bool, low: float, high: float):
        self.logarithmic, self.low, self.high = logarithmic, low, high
        values = [value for value in values if not logarithmic or value > 0] or [1.0]
        self.least = min(values) if logarithmic else min(0.0, *values)
        self.most = max(values)
        if self.most <= self.least:
            self.most = self.least * 10 if logarithmic else self.least + 1

    def place(self, value: float) -> float:
        least, most = self.scaled(self.least), self.scaled(self.most)
        return self.low + (self.scaled(max(value, self.least)) - least) / (most - least) * (self.high - self.low)

    def scaled(self, value: float) -> float:
        return math.log10(value) if self.logarithmic else value

    def ticks(self) -> list[float]:
        if self.logarithmic:
            powers = range(math.floor(math.log10(self.least)), math.ceil(math.log10(self.most)) + 1)
            # Where there are few powers of ten, what lies between them helps.
            steps = (1,) if self.most / self.least >= 1e3 else (1, 2, 5) if self.most / self.least >= 10 else (1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9)
            return [tick for power in powers for step in steps if self.least <= (tick := step * 10.0**power) <= self.most]
        step = 10 ** math.floor(math.log10(self.most - self.least))
        step = step / 5 if (self.most - self.least) / step < 2 else step / 2 if (self.most - self.least) / step < 5 else step
        return [step * place for place in range(math.ceil(self.least / step), math.floor(self.most / step) + 1)]


def drawing(plots: list[Plot]) -> str:
    """One SVG file of several plots, two in a row."""
    rows = -(-len(plots) // 2)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{2 * WIDTH}" height="{rows * HEIGHT}"><rect width="100%" height="100%" fill="#fff"/>']
    for place, plot in enumerate(plots):
        parts.append(svg(plot).replace("<svg ", f'<svg x="{place % 2 * WIDTH}" y="{place // 2 * HEIGHT}" ', 1))
    return "\n".join(parts) + "\n</svg>\n"


def svg(plot: Plot) -> str:
    points = [point for series in plot.series.values() for point in series]
    if not points:
        return ""
    across = Axis([x for x, _ in points], plot.x_logarithmic, LEFT, WIDTH - RIGHT)
    up = Axis([y for _, y in points], plot.y_logarithmic, HEIGHT - BOTTOM, TOP)
    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" font-family="system-ui,sans-serif" font-size="11">',
             text(WIDTH / 2, 18, plot.title, "middle", 13 if len(plot.title) <= TITLE_CHARACTERS else 10), text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, plot.x_label, "middle"),
             text(8, 18, plot.y_label, "start")]
    for tick in across.ticks():
        x = across.place(tick)
        parts += [line(x, TOP, x, HEIGHT - BOTTOM), text(x, HEIGHT - BOTTOM + 15, short(tick), "middle")]
    for tick in up.ticks():
        y = up.place(tick)
        parts += [line(LEFT, y, WIDTH - RIGHT, y), text(LEFT - 5, y + 4, short(tick), "end")]
    for place, (name, series) in enumerate(plot.series.items()):
        colour = COLOURS[place % len(COLOURS)]
        drawn = " ".join(f"{across.place(x):.1f},{up.place(y):.1f}" for x, y in series)
        parts.append(f'<polyline fill="none" stroke="{colour}" stroke-width="1.8" points="{drawn}"/>')
        if len(series) <= POINTS_MARKED:
            parts += [f'<circle cx="{across.place(x):.1f}" cy="{up.place(y):.1f}" r="2.6" fill="{colour}"/>' for x, y in series]
        parts.append(text(WIDTH - RIGHT + 8, TOP + 14 + 16 * place, name, "start", 11, colour))
    return "".join(parts) + "</svg>"


def text(x: float, y: float, words: str, anchor: str, size: int = 11, colour: str = "#222") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{colour}">{html.escape(words)}</text>'


def line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="#e5e5e5"/>'


def short(value: float) -> str:
    for limit, sign in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:g}{sign}"
    return f"{value:g}"
