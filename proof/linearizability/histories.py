"""Histories of requests of several clients to few partitions."""

import itertools
import pickle
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from random import Random

from proof import places
from proof.linearizability import checker
from proof.linearizability.checker import Operation
from proof.linearizability.lives import Client, Lives
from proof.linearizability.partition import (ABSENT, BULK, EMPTY, ROWS, Answer, Append, Batch, Delete, DeleteValue, Insert, Read, ReadRow,
                                             Replace, Request, Set, SetElement, SetStatic, Values, step, with_row)

CLIENTS = 8
PARTITIONS = 3
STALE = 0.2                 # the share of conditions about an older value
BULK_ROWS, BULK_BYTES = 300, 50_000
BURST, BURSTS = 4, 0.2      # so many requests at once, and the share of that


@dataclass
class Sent:
    partition: int
    life: int
    call: int
    request: Request
    returned: int | None = None
    answer: Answer | None = None


class Recorder:
    """One client: it chooses requests by what it and others saw last, and writes down calls, returns and answers."""

    def __init__(self, number: int, rng: Random, partitions: list[int], latest: dict):
        self.number, self.rng, self.partitions = number, rng, partitions
        self.latest = latest                            # partition -> a state that was seen or is thought to be
        self.values = itertools.count(number * 10_000_000 + partitions[0] * 10_000)
        self.sent: list[Sent] = []

    def __call__(self, client: Client) -> None:
        """Sends a request, or several at once, and receives the answers."""
        p = self.rng.choice(self.partitions)
        at_once = []
        for _ in range(BURST if self.rng.random() < BURSTS else 1):
            request = self.choose(self.latest[p])
            sent = Sent(p, client.life, time.monotonic_ns(), request)
            self.sent.append(sent)
            at_once.append((sent, client.begin(*request.parts(p), is_serial=isinstance(request, Read) and request.is_serial)))
        for sent, future in at_once:
            rows = client.receive(future)
            sent.returned, sent.answer = time.monotonic_ns(), answer_of(rows)
            self.learn(p, sent.request, sent.answer)

    def learn(self, p: int, request: Request, answer: Answer) -> None:
        """Guesses the state of the partition; a wrong guess makes a condition fail."""
        s, rows = self.latest[p]
        if answer.applied:
            self.latest[p] = request.after((s, rows))
            return
        found = [dict(row) for row in answer.rows]
        if type(request) is Read:
            rows = (ABSENT, ABSENT)
        for shown in found:
            if request.changes_static or isinstance(request, Read):
                s = shown.get("s", s)
            c = shown.get("c", getattr(request, "c", None))
            if c is not None:
                s, rows = with_row((s, rows), c, (shown.get("v", rows[c][0]), shown.get("l", rows[c][1])))
        if not found and (c := getattr(request, "c", None)) is not None:
            s, rows = with_row((s, rows), c, ABSENT)
        self.latest[p] = s, rows

    def choose(self, state) -> Request:
        s, rows = state
        c = self.rng.choice(ROWS)
        v, elements = rows[c]
        value = next(self.values)
        if self.rng.random() < STALE and v is not None:
            v = self.rng.choice((v - 1, v + 1, 0))
        kind = self.rng.random()
        if kind < 0.08:
            return Read(self.rng.random() < 0.5)
        if kind < 0.16:
            return ReadRow(self.rng.random() < 0.5, c)
        if kind < 0.22:
            return SetStatic(value, s)
        if v is None or kind < 0.28:
            return self.rng.choice((Insert(c, value), Insert(c, value), Set(c, value, None)))
        if kind < 0.32:
            return Delete(c)
        if kind < 0.36:
            return DeleteValue(c, v)
        if kind < 0.46:
            return Append(c, value, v)
        if kind < 0.53 and elements:
            return SetElement(c, value, elements[0])
        if kind < 0.57:
            return Replace(c, value, v)
        if kind < 0.75:
            return self.batch(c, v, value, rows[1 - c][0], s)
        return Set(c, value, v)

    def batch(self, c: int, v: int, value: int, other: int | None, s: int | None) -> Batch:
        first = self.rng.choice((Set(c, value, v), DeleteValue(c, v), Append(c, value, v)))
        if other is None:
            second = Insert(1 - c, next(self.values))
        else:
            second = self.rng.choice((Set(1 - c, next(self.values), other), DeleteValue(1 - c, other)))
        third = (SetStatic(next(self.values), s),) if self.rng.random() < 0.3 else ()
        return Batch((first, second, *third))


class Bulk:
    """Fills the log and the memory with plain writes to another table."""

    def __init__(self, rng: Random):
        self.rng = rng

    def __call__(self, client: Client) -> None:
        rows = [(self.rng.randrange(BULK_ROWS), self.rng.randbytes(BULK_BYTES)) for _ in range(BURST)]
        answers = [client.begin((f"INSERT INTO {BULK} (k, v) VALUES (?, ?)", row)) for row in rows]
        for answer in answers:
            client.receive(answer)


def answer_of(rows: list[dict]) -> Answer:
    applied = bool(rows) and rows[0].get("[applied]", False)
    shown = ({name: tuple(value or ()) if name == "l" else value for name, value in row.items() if name in ("c", "s", "v", "l")}
             for row in rows)
    return Answer(applied, () if applied else tuple(tuple(sorted(row.items())) for row in shown))


def operations(recorders: list[Recorder], p: int, deaths: list[int]) -> list[Operation]:
    """The history of a partition. Requests without an answer end with their process; reads among them say nothing."""
    def end(sent: Sent) -> int:
        return deaths[sent.life] if sent.answer is None else sent.returned

    return [Operation(recorder.number, sent.call, end(sent), sent.request, sent.answer)
            for recorder in recorders for sent in recorder.sent
            if sent.partition == p and not (sent.answer is None and isinstance(sent.request, Read))]


def run(node, seed: int, number: int, seconds: float, checks, change) -> Counter[str]:
    """One round: the load, the lives, and the check of each partition. Returns counts."""
    rng = Random(f"{seed}/history {number}")
    partitions = [number * PARTITIONS + at for at in range(PARTITIONS)]
    latest = dict.fromkeys(partitions, EMPTY)
    recorders = [Recorder(client, Random(f"{seed}/{number}/{client}"), partitions, latest) for client in range(CLIENTS)]
    lives = Lives(node, rng, change)
    others = [Bulk(Random(f"{seed}/{number}/bulk"))] if number % 2 else []
    lives.run([*recorders, *others], seconds)
    last = Recorder(CLIENTS, rng, partitions, latest)
    with lives.client() as client:
        for p, is_serial in itertools.product(partitions, (True, False)):
            request = Read(is_serial)
            sent = Sent(p, client.life, time.monotonic_ns(), request)
            sent.answer = answer_of(client.send(*request.parts(p), is_serial=is_serial))
            sent.returned = time.monotonic_ns()
            last.sent.append(sent)
    name = f"seed {seed}, history {number}"
    checks.equal(f"{name}: faults", lives.faults, [])
    counts = Counter({"kills": lives.kills, "lives": len(lives.deaths)})
    for p in partitions:
        history = operations([*recorders, last], p, lives.deaths)
        for operation in history:
            counts[outcome(operation)] += 1
        failure = checker.check(history, EMPTY, step, Values())
        if failure is not None:
            failure.reason += f" ({kept(history, f'{seed}-{p}')})"
        checks.true(f"{name}: partition {p} is linearizable", failure is None, str(failure))
    return counts


def outcome(operation: Operation) -> str:
    name = type(operation.request).__name__
    if operation.answer is None:
        return "unknown"
    if isinstance(operation.request, Read):
        return f"{name} answered"
    return f"{name} applied" if operation.answer.applied else f"{name} refused"


# What each run has to see, so that its histories are worth something.
OUTCOMES = ("unknown", *(f"{kind.__name__} {what}" for kind in (Set, Insert, Delete, DeleteValue, Append, SetElement, Replace, SetStatic, Batch)
                         for what in ("applied", "refused")), "Read answered", "ReadRow answered")


def kept(history: list[Operation], name: str) -> Path:
    path = places.CACHE / "differences" / f"linearizability-{name}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pickle.dumps(history))
    return path
