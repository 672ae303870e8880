"""The lives of a node under load: it is ended again and again, and each client has one connection for each life.

A request that got no answer was sent to the process of one life. It took effect before that process was dead, or never.
"""

import threading
import time
from collections.abc import Callable
from contextlib import contextmanager
from random import Random

from cassandra import ConsistencyLevel, InvalidRequest
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, ResponseFuture, Session
from cassandra.policies import ConstantReconnectionPolicy, FallthroughRetryPolicy, WhiteListRoundRobinPolicy
from cassandra.protocol import SyntaxException
from cassandra.query import BatchStatement, BatchType, dict_factory

from proof.oracle.espalier import Espalier

SHORTEST_SECONDS, LONGEST_SECONDS = 1.0, 3.0
TERMINATED, FLUSHED, COMPACTED, FLUSHED_AT_ITS_END = 0.3, 0.4, 0.2, 0.4         # shares of the lives
NEVER_SECONDS = 3600 * 24


class Unknown(Exception):
    """A request got no answer, or one that does not say whether it took effect."""


class Client:
    """One connection of the Python driver, to the process of one life."""

    def __init__(self, lives: "Lives", version: int):
        self.lives = lives
        self.life = lives.current
        profile = ExecutionProfile(load_balancing_policy=WhiteListRoundRobinPolicy([lives.node.host]), row_factory=dict_factory,
                                   retry_policy=FallthroughRetryPolicy(), request_timeout=60)
        # The driver must not connect again by itself: the requests of a connection belong to one process.
        self.cluster = Cluster([lives.node.host], port=lives.node.port, protocol_version=version, connect_timeout=20,
                               execution_profiles={EXEC_PROFILE_DEFAULT: profile}, idle_heartbeat_interval=0,
                               reconnection_policy=ConstantReconnectionPolicy(NEVER_SECONDS), schema_metadata_enabled=False,
                               token_metadata_enabled=False, monitor_reporting_enabled=False)
        self.session: Session | None = None
        self.prepared: dict = {}
        self.is_broken = False

    def __enter__(self) -> "Client":
        try:
            self.session = self.cluster.connect()
        except Exception as failure:
            self.cluster.shutdown()
            raise Unknown(f"not connected: {failure}") from failure
        return self

    def __exit__(self, *_) -> None:
        self.cluster.shutdown()

    @property
    def is_alive(self) -> bool:
        return not self.is_broken and self.life == self.lives.current

    def send(self, *parts: tuple[str, tuple], is_serial: bool = False) -> list[dict]:
        """The rows of the answer to one statement with its values, or to several as a batch."""
        return self.receive(self.begin(*parts, is_serial=is_serial))

    def begin(self, *parts: tuple[str, tuple], is_serial: bool = False) -> ResponseFuture:
        with self.unknown():
            statements = [self.statement(cql).bind(values) for cql, values in parts]
            if len(statements) == 1:
                statement = statements[0]
            else:
                statement = BatchStatement(BatchType.UNLOGGED)
                for part in statements:
                    statement.add(part)
            if is_serial:
                statement.consistency_level = ConsistencyLevel.SERIAL
            if not self.is_alive:
                raise Unknown("the life has ended")
            return self.session.execute_async(statement)

    def receive(self, answer: ResponseFuture) -> list[dict]:
        with self.unknown():
            return list(answer.result())

    @contextmanager
    def unknown(self):
        """An error that does not say that the request is at fault ends the client."""
        try:
            yield
        except (InvalidRequest, SyntaxException):
            raise
        except Exception as failure:        # a timeout, a broken connection, a node that is ending
            self.is_broken = True
            raise Unknown(f"{type(failure).__name__}: {failure}") from failure

    def statement(self, cql: str):
        if cql not in self.prepared:
            self.prepared[cql] = self.session.prepare(cql)
        return self.prepared[cql]


class Lives:
    """Runs clients beside each other while a node is ended and started again. `deaths` has
    the moment of each life's end."""

    def __init__(self, node: Espalier, rng: Random, change: Callable[[], None]):
        self.node = node
        self.rng = rng
        self.change = change            # is called before each start
        self.changed = threading.Condition()
        self.current: int | None = 0    # None: between two lives
        self.stopped = False
        self.deaths: list[int] = []
        self.kills = 0
        self.unknown: dict[str, int] = {}
        self.faults: list[str] = []

    def run(self, works: list[Callable[[Client], None]], seconds: float) -> None:
        """Calls each work with one client after another, and ends the node at random moments. It is
        ended and started at the end too."""
        threads = [threading.Thread(target=self.serve, args=(work, 4 + number % 2)) for number, work in enumerate(works)]
        for thread in threads:
            thread.start()
        until = time.monotonic() + seconds
        while time.monotonic() < until and not self.faults:
            time.sleep(self.rng.uniform(SHORTEST_SECONDS, LONGEST_SECONDS) / 2)
            for share, command in ((FLUSHED, self.node.flush), (COMPACTED, self.node.compact)):
                if self.rng.random() < share:
                    command()
            time.sleep(self.rng.uniform(SHORTEST_SECONDS, LONGEST_SECONDS) / 2)
            self.end_life(is_last=time.monotonic() >= until)
        with self.changed:
            self.stopped = True
            self.changed.notify_all()
        for thread in threads:
            thread.join()

    def end_life(self, is_last: bool) -> None:
        flusher = threading.Thread(target=self.flush)
        if self.rng.random() < FLUSHED_AT_ITS_END:
            flusher.start()
            time.sleep(self.rng.uniform(0, 0.2))
        if self.rng.random() < TERMINATED and not is_last:
            status = self.node.terminate()
            if status != 0:
                self.faults.append(f"the node ended with status {status} on SIGTERM")
        else:
            self.node.kill()
            self.kills += 1
        with self.changed:
            self.deaths.append(time.monotonic_ns())
            self.current = None
            self.stopped = self.stopped or is_last
        if flusher.ident is not None:
            flusher.join()
        self.change()
        self.node.launch()
        with self.changed:
            self.current = len(self.deaths)
            self.changed.notify_all()

    def flush(self) -> None:
        try:
            self.node.flush()
        except (RuntimeError, OSError):
            return          # the node was ended under it

    def serve(self, work: Callable[[Client], None], version: int) -> None:
        """Calls `work` until the last life has ended."""
        while self.wait():
            try:
                with Client(self, version) as client:
                    while client.is_alive and not self.stopped:
                        work(client)
            except Unknown as failure:
                kind = str(failure).partition(":")[0]
                self.unknown[kind] = self.unknown.get(kind, 0) + 1
            except Exception as failure:            # a finding
                self.faults.append(f"{type(failure).__name__}: {failure}")
                return

    def wait(self) -> bool:
        """Waits for a life. False: there will be none."""
        with self.changed:
            self.changed.wait_for(lambda: self.stopped or self.current is not None)
            return not self.stopped

    def client(self) -> Client:
        """A client for what comes after the load."""
        return Client(self, 5)
