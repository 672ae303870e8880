"""A run of the harness: its length, and the servers that the shortest scenarios share."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from bench.harness.length import Length
from bench.harness.rounds import System
from bench.harness.servers import Cassandra, Espalier

# The warm-up of a load on servers that were warmed up with another load.
LATER_WARMUP_SECONDS = 1


class Session:
    def __init__(self, length: Length):
        self.length = length
        self.shared: list[System] = []
        self.is_warm = False
        self.stack = ExitStack()

    @contextmanager
    def pair(self, keyspace: str, cassandra: dict | None = None, espalier: dict | None = None) -> Iterator[list[System]]:
        """Cassandra and Espalier with these settings, for one scenario. In a smoke run the scenarios share a
        pair with default settings, and only the first of them warms it up, since starting Cassandra takes
        longer than the measurement."""
        if self.length is not Length.SMOKE:
            with Cassandra.start(**cassandra or {}) as theirs, Espalier.start(**espalier or {}) as ours:
                yield beside(theirs, ours, keyspace)
            return
        try:
            if not self.shared:
                self.shared = [self.stack.enter_context(kind.start()) for kind in (Cassandra, Espalier)]
            yield beside(*self.shared, keyspace)
            self.is_warm = True
        except BaseException:
            # The next scenario is not to meet servers that may have failed.
            self.close()
            raise

    def warmup(self, seconds: float) -> float:
        """The time to warm up a pair of servers that would need this time when they have just started."""
        return min(seconds, LATER_WARMUP_SECONDS) if self.is_warm else seconds

    def close(self) -> None:
        self.stack.close()
        self.shared, self.is_warm = [], False


def beside(cassandra: Cassandra, espalier: Espalier, keyspace: str) -> list[System]:
    return [System("cassandra", cassandra, keyspace), System("espalier", espalier, keyspace)]
