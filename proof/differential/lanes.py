"""Lanes: processes that run histories side by side, each with an Espalier of its own, all with one Cassandra.

Processes and not threads: what a history says and how its answers compare costs about as
much as Cassandra's answers do.
"""

import multiprocessing
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection as Pipe

from proof.differential import traces
from proof.differential.compare import Difference, Outcome, Pair
from proof.differential.generator import history, keyspace_of
from proof.differential.shrink import shrink
from proof.differential.steps import History
from proof.oracle.cassandra import Cassandra

FORK = multiprocessing.get_context("fork")      # Cassandra's pipes are inherited


@dataclass(frozen=True)
class Numbered:
    """The `number`-th history of a seed, not made yet."""

    seed: int
    number: int
    steps: int
    has_views: bool = False
    memtable: str = ""

    @property
    def keyspace(self) -> str:
        return keyspace_of(self.number)

    def make(self) -> History:
        made = history(self.seed, self.number, self.steps, self.has_views)
        if not self.memtable:
            return made
        # What DESCRIBE says has the name of the memtable.
        return replace(made, memtable=self.memtable, steps=[step for step in made.steps if not step.cql.startswith("DESCRIBE")])


@dataclass(frozen=True)
class Failed:
    """A lane ended during a task."""

    trace: str


class Lane:
    """A process that runs histories. One thread at a time may use it. All lanes must start before any thread does."""

    def __init__(self, left: Cassandra, other: Callable[[], AbstractContextManager]):
        """Starts the process. `other` starts the server that is compared with `left`."""
        self.pipe, far = FORK.Pipe()
        self.process = FORK.Process(target=serve, args=(self.pipe, far, left, other))
        self.process.start()
        far.close()

    def run(self, chosen: History | Numbered, stop_at: int) -> Outcome:
        return self.ask("run", chosen, stop_at)

    def shrink(self, found: Difference, seconds: float) -> Difference:
        return self.ask("shrink", found, seconds)

    def check_traces(self) -> list[str]:
        return self.ask("check_traces")

    def ask(self, verb: str, *arguments):
        self.pipe.send((verb, arguments))
        answer = self.pipe.recv()
        if isinstance(answer, Failed):
            raise RuntimeError(f"a lane ended:\n{answer.trace}")
        return answer

    def __enter__(self) -> "Lane":
        return self

    def __exit__(self, *_) -> None:
        self.pipe.close()
        self.process.join()


def serve(near: Pipe, pipe: Pipe, left: Cassandra, other: Callable[[], AbstractContextManager]) -> None:
    """The lane's process: carries out tasks until the other end is closed."""
    near.close()
    with other() as right:
        pair = Pair(left, right)
        while (asked := next_request(pipe)) is not None:
            verb, arguments = asked
            try:
                answer = VERBS[verb](pair, *arguments)
            except BaseException:
                pipe.send(Failed(traceback.format_exc()))
                raise
            pipe.send(answer)


def next_request(pipe: Pipe) -> tuple | None:
    try:
        return pipe.recv()
    except EOFError:
        return None


def run(pair: Pair, chosen: History | Numbered, stop_at: int) -> Outcome:
    return pair.run(chosen.make() if isinstance(chosen, Numbered) else chosen, stop_at)


def check_traces(pair: Pair) -> list[str]:
    return traces.check(pair.nodes)


VERBS = {"run": run, "shrink": shrink, "check_traces": check_traces}
