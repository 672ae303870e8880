"""A page of questions: each is asked in CQL and answered a second time from the CSV files alone."""

from collections import Counter, defaultdict
from datetime import datetime

import flights_data as data
from cassandra.query import SimpleStatement


def ask_all(session, files: data.FlightsData) -> tuple[int, int]:
    """(right, wrong) answers, each printed."""
    right = wrong = 0
    partitions = defaultdict(list)
    for flight in sorted(files.flights, key=data.clustering):
        partitions[data.partition(flight)].append(flight)
    for question in QUESTIONS:
        got, expected = question(session, files, partitions)
        correct = got == expected
        right, wrong = right + correct, wrong + (not correct)
        print(f"{'ok   ' if correct else 'WRONG'} {question.__doc__.strip()}  ->  {shortened(got)}", flush=True)
        if not correct:
            print(f"      the files say {shortened(expected)}", flush=True)
    return right, wrong


def shortened(answer) -> str:
    text = str(answer)
    return text if len(text) < 110 else text[:107] + "..."


def rows(session, cql: str, values=()) -> list[tuple]:
    """All rows of all pages, small pages so that paging is seen to work."""
    return [tuple(row) for row in session.execute(SimpleStatement(cql, fetch_size=500), values)]


def clock(time) -> tuple[int, int]:
    return time.hour, time.minute


def busiest(partitions) -> tuple[str, str]:
    return max(partitions, key=lambda key: (len(partitions[key]), key))


def how_many_rows(session, files, partitions):
    """How many rows did each table get?"""
    names = ("flights", "weather", "planes", "airports", "airlines")
    got = {name: session.execute(f"SELECT count(*) FROM nycflights.{name}", timeout=120).one()[0] for name in names}
    return got, {name: len(getattr(files, name)) for name in names}


def a_day_in_order(session, files, partitions):
    """What left the busiest airport on its busiest day, in order?"""
    key = busiest(partitions)
    got = [(*clock(r[0]), r[1], r[2]) for r in rows(session, "SELECT scheduled, carrier, flight FROM nycflights.flights WHERE origin = %s AND day = %s", key)]
    return got, [data.clustering(flight) for flight in partitions[key]]


def the_morning(session, files, partitions):
    """Which of them were due between six and nine?"""
    key = busiest(partitions)
    got = rows(session, "SELECT carrier, flight, dest FROM nycflights.flights WHERE origin = %s AND day = %s AND scheduled >= '06:00:00' AND scheduled < '09:00:00'", key)
    return got, [(f["carrier"], int(f["flight"]), f["dest"]) for f in partitions[key] if (6, 0) <= data.scheduled(f) < (9, 0)]


def the_last_five(session, files, partitions):
    """And the last five, latest first?"""
    key = busiest(partitions)
    got = rows(session, "SELECT carrier, flight FROM nycflights.flights WHERE origin = %s AND day = %s ORDER BY scheduled DESC LIMIT 5", key)
    return got, [(f["carrier"], int(f["flight"])) for f in reversed(partitions[key])][:5]


def delays_of_a_day(session, files, partitions):
    """How late were they: flights with a delay, least, most, sum?"""
    key = busiest(partitions)
    got = rows(session, "SELECT count(dep_delay), min(dep_delay), max(dep_delay), sum(dep_delay) FROM nycflights.flights WHERE origin = %s AND day = %s", key)[0]
    delays = [int(f["dep_delay"]) for f in partitions[key] if f["dep_delay"] is not None]
    return got, (len(delays), min(delays), max(delays), sum(delays))


def flights_of_each_day(session, files, partitions):
    """How many flights left each airport on each day?"""
    got = {(r[0], str(r[1])): r[2] for r in rows(session, "SELECT origin, day, count(*) FROM nycflights.flights GROUP BY origin, day")}
    return got, {key: len(flights) for key, flights in partitions.items()}


def all_airports_of_a_day(session, files, partitions):
    """How many left the three airports together on the first day?"""
    first = data.day(files.flights[0])
    got = rows(session, "SELECT origin FROM nycflights.flights WHERE origin IN ('EWR', 'JFK', 'LGA') AND day = %s", (first,))
    return Counter(r[0] for r in got), Counter(f["origin"] for f in files.flights if data.day(f) == first)


def first_flight_of_each_day(session, files, partitions):
    """What was the first flight of each airport's each day?"""
    got = {(r[0], str(r[1])): (r[2], r[3]) for r in rows(session, "SELECT origin, day, carrier, flight FROM nycflights.flights PER PARTITION LIMIT 1")}
    return got, {key: (flights[0]["carrier"], int(flights[0]["flight"])) for key, flights in partitions.items()}


def distinct_partitions(session, files, partitions):
    """Which airports and days are there, and what are the airports called?"""
    names = {airport["faa"]: airport["name"] for airport in files.airports}
    got = {(r[0], str(r[1]), r[2]) for r in rows(session, "SELECT DISTINCT origin, day, airport FROM nycflights.flights")}
    return got, {(*key, names[key[0]]) for key in partitions}


def miles_by_token(session, files, partitions):
    """How many miles were flown, summed over both halves of the token ring?"""
    halves = [session.execute(f"SELECT sum(distance) FROM nycflights.flights WHERE token(origin, day) {half} 0", timeout=120).one()[0] or 0 for half in ("<=", ">")]
    return sum(halves), sum(int(f["distance"]) for f in files.flights)


def filtering(session, files, partitions):
    """Who flew to Seattle that busy day?"""
    key = busiest(partitions)
    got = rows(session, "SELECT carrier, flight FROM nycflights.flights WHERE origin = %s AND day = %s AND dest = 'SEA' ALLOW FILTERING", key)
    return got, [(f["carrier"], int(f["flight"])) for f in partitions[key] if f["dest"] == "SEA"]


def makers(session, files, partitions):
    """Who built the planes that flew that day?"""
    key = busiest(partitions)
    got = Counter(r[0] for r in rows(session, "SELECT plane.manufacturer FROM nycflights.flights WHERE origin = %s AND day = %s", key))
    return got, Counter(files.planes.get(f["tailnum"], {}).get("manufacturer") for f in partitions[key])


def flown_to_los_angeles(session, files, partitions):
    """Which planes were ever seen flying to Los Angeles?"""
    got = {r[0] for r in rows(session, "SELECT tailnum FROM nycflights.planes WHERE flown_to CONTAINS 'LAX' ALLOW FILTERING")}
    return got, {f["tailnum"] for f in files.flights if f["dest"] == "LAX" and f["tailnum"] in files.planes}


def airports_of_a_plane(session, files, partitions):
    """Where was the plane with the most destinations seen?"""
    seen = defaultdict(set)
    for flight in files.flights:
        if flight["tailnum"] in files.planes:
            seen[flight["tailnum"]].add(flight["dest"])
    tailnum = max(seen, key=lambda t: (len(seen[t]), t))
    got = rows(session, "SELECT flown_to, plane.model FROM nycflights.planes WHERE tailnum = %s", (tailnum,))[0]
    return (list(got[0]), got[1]), (sorted(seen[tailnum]), files.planes[tailnum]["model"])


def weather_of_a_day(session, files, partitions):
    """How warm was it that day, latest hour first, and where was no gust recorded?"""
    key = busiest(partitions)
    got = rows(session, "SELECT time_hour, readings['temp'], readings['wind_gust'] FROM nycflights.weather WHERE origin = %s AND day = %s", key)
    hours = sorted((hour for hour in files.weather if data.partition(hour) == key), key=lambda hour: hour["time_hour"], reverse=True)
    return got, [(datetime.fromisoformat(h["time_hour"].rstrip("Z")), *(None if h[c] is None else float(h[c]) for c in ("temp", "wind_gust"))) for h in hours]


def coldest(session, files, partitions):
    """What was the lowest temperature of all?"""
    got = min(r[0] for r in rows(session, "SELECT readings['temp'] FROM nycflights.weather") if r[0] is not None)
    return got, min(float(hour["temp"]) for hour in files.weather if hour["temp"] is not None)


def as_json(session, files, partitions):
    """What does an airline look like as JSON?"""
    airline = files.airlines[0]
    got = rows(session, "SELECT JSON * FROM nycflights.airlines WHERE carrier = %s", (airline["carrier"],))[0][0]
    return got, f'{{"carrier": "{airline["carrier"]}", "name": "{airline["name"]}"}}'


def positions(session, files, partitions):
    """Where is every airport?"""
    got = {r[0]: tuple(r[1]) for r in rows(session, "SELECT faa, position FROM nycflights.airports")}
    return got, {a["faa"]: (float(a["lat"]), float(a["lon"])) for a in files.airports}


QUESTIONS = [how_many_rows, a_day_in_order, the_morning, the_last_five, delays_of_a_day, flights_of_each_day, all_airports_of_a_day,
             first_flight_of_each_day, distinct_partitions, miles_by_token, filtering, makers, flown_to_los_angeles, airports_of_a_plane,
             weather_of_a_day, coldest, as_json, positions]
