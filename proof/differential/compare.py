"""Sends a history to two servers and finds the first step they answer differently."""

import re
import time
from dataclasses import dataclass, replace
from functools import partial

from proof import survival
from proof.differential.again import explanation
from proof.differential.answers import comparable
from proof.differential.steps import History, Step
from proof.oracle.espalier import Espalier
from proof.wire import Connection, ConnectionClosed, Error, Prepared, QueryOptions, Rows
from proof.wire import requests
from proof.wire.responses import Lost, Message, Response

CREATE = "CREATE KEYSPACE {} WITH replication = {}"
PAGES_MAX = 300
INDEX = re.compile(r"\s*CREATE\s+(CUSTOM\s+)?INDEX\b", re.IGNORECASE)
TABLE = re.compile(r"\s*CREATE\s+TABLE\s+(?:IF\s+NOT\s+EXISTS\s+)?([\w.\"]+)", re.IGNORECASE)
BUILD_SECONDS_MAX = 10


@dataclass
class Difference:
    """Step `index` of a history was answered by `left` (Cassandra) and `right` (Espalier)."""

    history: History
    index: int
    left: str
    right: str
    diverged: bool              # only one of them carried the statement out

    @property
    def signature(self) -> str:
        """The texts of both answers without names and numbers. It is equal for differences that look alike."""
        words = (self.history.steps[self.index].kind + self.left + self.right).replace("'", " ").split()
        return " ".join(w for w in words if w.isalpha())[:160]

    def __str__(self) -> str:
        step = self.history.steps[self.index]
        return (f"{self.history.name} (v{self.history.version}, compression {self.history.compression}), step {self.index}:\n"
                f"  {step}\n  cassandra: {self.left}\n  espalier:  {self.right}")


@dataclass
class Outcome:
    """The number of steps that were answered alike, the number of differences that each rule explains, and the other
    differences."""

    equal: int
    explained: dict[str, int]
    differences: list[Difference]


class Pair:
    """Cassandra and Espalier, driven in step."""

    def __init__(self, left, right):
        self.nodes = (left, right)

    def run(self, history: History, stop_at: int = 1) -> Outcome:
        """Runs a history on fresh keyspaces. Ends after `stop_at` differences, or one after which the states differ."""
        connections = []
        try:
            for node in self.nodes:
                connection = Connection(node.host, node.port, history.version, history.compression)
                connections.append(connection)
                connection.query(f"DROP KEYSPACE IF EXISTS {history.keyspace}")
                require(connection.query(CREATE.format(history.keyspace, history.replication)))
                require(connection.query(f"USE {history.keyspace}"))
            outcome = self.run_steps(history, connections, stop_at)
        finally:
            for connection in connections:
                connection.close()
        outcome.differences.extend(self.what_does_not_survive(history))
        self.forget(history.keyspace)
        return outcome

    def what_does_not_survive(self, history: History) -> list[Difference]:
        """Returns what differs in Espalier's data after a flush, a compaction, kill -9 and a start."""
        node = self.nodes[1]
        if not isinstance(node, Espalier) or not history.steps:
            return []
        lost = survival.check(node, lambda keyspace: keyspace == history.keyspace)
        return [Difference(history, len(history.steps) - 1, "what is accepted survives", text, False) for text in lost]

    def forget(self, keyspace: str) -> None:
        """Drops a keyspace: DDL takes Cassandra the longer the more tables it has, and Espalier starts again often."""
        for node in self.nodes:
            with Connection(node.host, node.port) as connection:
                connection.query(f"DROP KEYSPACE {keyspace}")

    def run_steps(self, history: History, connections: list[Connection], stop_at: int) -> Outcome:
        outcome = Outcome(0, {}, [])
        for index, step in enumerate(history.steps):
            if step.kind in ("flush", "compact", "restart", "kill"):
                self.maintain(history, step, connections)
                continue
            left, right = exchange(connections, step)
            if not isinstance(self.nodes[1], Espalier):
                settle(connections[1], history, step, right[-1])
            difference = compare(left, right)
            if difference is None:
                outcome.equal += 1
                continue
            diverged = isinstance(left[-1], Error) != isinstance(right[-1], Error) or isinstance(right[-1], Lost)
            diverged = diverged and not step.cql.lstrip().upper().startswith("SELECT")
            rule = explanation(partial(exchange, connections), step, left, right)
            if rule is not None:
                outcome.explained[rule] = outcome.explained.get(rule, 0) + 1
                if diverged:
                    break           # from here on the two hold different rows
                continue
            outcome.differences.append(Difference(history, index, *difference, diverged))
            if diverged or isinstance(right[-1], Lost) or len(outcome.differences) >= stop_at:
                break
        return outcome

    def maintain(self, history: History, step: Step, connections: list[Connection]) -> None:
        """Carries out a step that is not a statement: it flushes or compacts both servers, or ends Espalier, with or
        without kill -9, and starts it again."""
        if step.kind in ("restart", "kill"):
            right = self.nodes[1]
            if isinstance(right, Espalier):
                connections[1].close()
                if step.kind == "kill":
                    right.kill()
                    right.launch()
                else:
                    right.restart()
                connections[1] = Connection(right.host, right.port, history.version, history.compression)
                require(connections[1].query(f"USE {history.keyspace}"))
                connections[0].prepared.clear()         # both prepare anew
            return
        for node in self.nodes:
            node.flush(history.keyspace)
            if step.kind == "compact":
                compact(node, history.keyspace)


def compact(node, *keyspace_and_table: str) -> None:
    """Compacts. Cassandra may fail because of a dropped collection, and then has changed nothing
    (docs/differences.md)."""
    try:
        node.compact(*keyspace_and_table)
    except RuntimeError as failure:
        if isinstance(node, Espalier) or "NullPointerException" not in str(failure):
            raise


def settle(connection: Connection, history: History, step: Step, answer: Response) -> None:
    """Does what a second Cassandra needs after a step: it moves a new table to the history's memtables, and waits until
    a new index is built."""
    table = TABLE.match(step.cql)
    if table and history.memtable and not isinstance(answer, Error):
        require(connection.query(f"ALTER TABLE {table[1]} WITH memtable = '{history.memtable}'"))
    elif INDEX.match(step.cql):
        await_indexes(connection, history.keyspace)


def await_indexes(connection: Connection, keyspace: str) -> None:
    """Cassandra builds an index in the background, and refuses to read by it until then. With its files
    on a disk, that takes a while."""
    end = time.monotonic() + BUILD_SECONDS_MAX
    indexes = connection.query(f"SELECT index_name FROM system_schema.indexes WHERE keyspace_name = '{keyspace}'")
    built = f"SELECT index_name FROM system.\"IndexInfo\" WHERE table_name = '{keyspace}'"
    while not set(indexes.rows) <= set(connection.query(built).rows) and time.monotonic() < end:
        time.sleep(0.02)


def require(answer: Response) -> None:
    if isinstance(answer, Error):
        raise RuntimeError(f"the history cannot begin: {answer.message}")


def exchange(connections: list[Connection], step: Step) -> tuple[list, list]:
    """Sends a step to both servers and returns all answers of each: to PREPARE, and each page."""
    if any(step.cql not in connection.prepared for connection in connections):
        for connection in connections:
            connection.prepared.pop(step.cql, None)         # what one could not prepare both prepare anew
    conversations = [exchange_with_one(connection, step) for connection in connections]
    answers: tuple[list, list] = ([], [])
    pending = [next(conversation, None) for conversation in conversations]
    # Both requests are on their way before either answer is awaited.
    while any(pending):
        for side, answer in receive(connections, [side for side, waits in enumerate(pending) if waits]):
            answers[side].append(answer)
            try:
                pending[side] = None if isinstance(answer, Lost) else conversations[side].send(answer)
            except StopIteration:
                pending[side] = None
            except (ConnectionClosed, OSError) as failure:
                answers[side].append(lost(failure))
                pending[side] = None
    return answers


def receive(connections: list[Connection], sides: list[int]) -> list[tuple[int, Response]]:
    """Returns the next answer of each of these sides. Equal bytes are decoded once, and give the same object."""
    messages: dict[Message, Response] = {}
    answers = []
    for side in sides:
        try:
            message = connections[side].receive_message()[1]
            if message not in messages:
                messages[message] = message.decode()
            answers.append((side, messages[message]))
        except (ConnectionClosed, OSError, ValueError) as failure:
            answers.append((side, lost(failure)))
    return answers


def lost(failure: Exception) -> Lost:
    return Lost(f"{type(failure).__name__}: {failure}")


def exchange_with_one(connection: Connection, step: Step):
    """Sends the requests of a step on one connection. This generator yields after each request and is resumed with the
    answer."""
    version = connection.version
    if step.kind == "batch":
        body = requests.batch(step.batch_type, step.batch_items(), step.options(version), version)
        connection.send(requests.BATCH, body)
        yield True
        return
    options = step.options(version)
    prepared = None
    if step.prepared:
        prepared = connection.prepared.get(step.cql) if step.reuse else None
        if prepared is None:
            connection.send(requests.PREPARE, requests.prepare(step.cql, version))
            prepared = yield True
            if not isinstance(prepared, Prepared):
                return
            connection.prepared[step.cql] = prepared
    for _ in range(PAGES_MAX):
        send_query(connection, step.cql, prepared, options)
        answer = yield True
        if isinstance(answer, Rows) and answer.metadata.changed_id is not None:
            prepared = connection.prepared[step.cql] = replace(prepared, metadata_id=answer.metadata.changed_id)
        if not isinstance(answer, Rows) or answer.metadata.paging_state is None:
            return
        options = options.next_page(answer.metadata.paging_state)


def send_query(connection: Connection, cql: str, prepared: Prepared | None, options: QueryOptions) -> None:
    if prepared is None:
        connection.send(requests.QUERY, requests.query(cql, options, connection.version))
    else:
        body = requests.execute(prepared.id, prepared.metadata_id, options, connection.version)
        connection.send(requests.EXECUTE, body)


def compare(left: list, right: list) -> tuple[str, str] | None:
    """Returns None if both servers gave the same answers, or else the first answer of each that differs."""
    for number, (one, other) in enumerate(zip(left, right)):
        if one is other:
            continue
        seen = comparable(one), comparable(other)
        if seen[0] != seen[1]:
            return described(number, left, seen[0], seen[1]), described(number, right, seen[1], seen[0])
    if len(left) != len(right):
        return f"{len(left)} answers (pages)", f"{len(right)} answers (pages)"
    return None


def described(number: int, answers: list, own, other) -> str:
    """Returns the parts of `own` that differ from `other`, or all of it if it is short."""
    page = f"answer {number + 1}: " if len(answers) > 1 else ""
    if isinstance(own, dict) and isinstance(other, dict) and own.get("kind") == other.get("kind"):
        own = {k: v for k, v in own.items() if v != other.get(k)}
        if isinstance(own.get("rows"), list) and len(own["rows"]) > 12:
            rows = other.get("rows", [])
            own["rows"] = [f"{len(own['rows'])} rows, of them only here:"] + [row for row in own["rows"] if row not in rows][:12]
    return page + repr(own)
