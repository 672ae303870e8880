"""Uses of writes that read in applications: a queue, a lock with a fencing token, a registry of
names, a bank, and counters.

Each has clients that act beside each other under kill -9. A client whose request got no answer reads, in the node's
next life, whether it took effect. At the end, the rows are exactly what the clients were told.
"""

import itertools
import threading
import time
from collections import Counter
from random import Random

from proof.linearizability.lives import Client, Lives, Unknown

KEYSPACE = "scenarios"
SCHEMA = (
    f"CREATE KEYSPACE {KEYSPACE} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}",
    f"CREATE TABLE {KEYSPACE}.queue (q int, id int, work text, owner text, PRIMARY KEY (q, id))",
    f"CREATE TABLE {KEYSPACE}.locks (name int PRIMARY KEY, holder text, turn int)",
    f"CREATE TABLE {KEYSPACE}.guarded (name int PRIMARY KEY, fence int, writes int)",
    f"CREATE TABLE {KEYSPACE}.names (name text PRIMARY KEY, owner text)",
    f"CREATE TABLE {KEYSPACE}.bank (bank int, account text, balance int, source text, target text, PRIMARY KEY (bank, account))",
    f"CREATE TABLE {KEYSPACE}.counts (part int, client int, own counter, total counter static, PRIMARY KEY (part, client))",
)
CLIENTS = 3
SHOWN = 5


def applied(rows: list[dict]) -> bool:
    return rows[0]["[applied]"]


def differences(found: dict, expected: dict) -> list:
    """Returns (key, found, expected) of the first keys that differ."""
    keys = sorted(key for key in found.keys() | expected.keys() if found.get(key) != expected.get(key))
    return [(key, found.get(key), expected.get(key)) for key in keys[:SHOWN]]


class Actor:
    """One client of a scenario. `doubt` finds out, in the next life, whether the last request took effect."""

    def __init__(self, scenario: "Scenario", number: int, rng: Random):
        self.scenario, self.number, self.rng = scenario, number, rng
        self.doubt = None
        self.names = (f"{number}-{count}" for count in itertools.count())

    def __call__(self, client: Client) -> None:
        if self.doubt is not None:
            self.doubt(client)
            self.doubt = None
        self.scenario.act(self, client)

    def attempt(self, client: Client, parts: list[tuple[str, tuple]], find, done) -> bool:
        """Sends a write that reads. If there is no answer, `find` is asked later. `done` is called
        once if the write took effect."""
        try:
            is_applied = self.scenario.is_applied(client.send(*parts))
        except Unknown:
            self.scenario.counts[f"{self.scenario.name} in doubt"] += 1
            self.doubt = lambda later: self.resolve(later, find, done)
            raise
        if is_applied:
            done()
        self.scenario.counts[f"{self.scenario.name} {'applied' if is_applied else 'refused'}"] += 1
        return is_applied

    def resolve(self, client: Client, find, done) -> None:
        if find(client):
            done()
            self.scenario.counts[f"{self.scenario.name} applied without an answer"] += 1


class Scenario:
    """A scenario. `number` is that of the round and names the partition. `wrong` has what clients saw and must not
    see."""

    name: str

    def __init__(self, number: int):
        self.number = number
        self.mutex = threading.Lock()
        self.wrong: list[str] = []
        self.counts: Counter[str] = Counter()

    def table(self) -> str:
        return f"{KEYSPACE}.{self.name}"

    def fill(self, client: Client) -> None:
        """Prepares the rows before the load."""

    def act(self, actor: Actor, client: Client) -> None:
        raise NotImplementedError

    def is_applied(self, rows: list[dict]) -> bool:
        """Returns whether a write applied, as its answer says."""
        return applied(rows)

    def check(self, client: Client, checks) -> None:
        """Checks the rows after the load and all doubts."""
        raise NotImplementedError

    def require(self, is_right: bool, detail: str) -> None:
        if not is_right:
            self.wrong.append(detail)


class Queue(Scenario):
    """Work is added at the tail with IF NOT EXISTS and taken with IF owner = null. Each piece is taken
    once, in order, without a gap."""

    name = "queue"

    def __init__(self, number: int):
        super().__init__(number)
        self.put: dict[int, str] = {}           # id -> work
        self.taken: dict[int, str] = {}         # id -> owner
        self.head = 0                           # all before it are taken

    def act(self, actor: Actor, client: Client) -> None:
        query = f"SELECT id, owner FROM {self.table()} WHERE q = ? AND id >= ?"
        rows = client.send((query, (self.number, self.head)), is_serial=actor.rng.random() < 0.5)
        free = [row["id"] for row in rows if row["owner"] is None]
        self.head = max(self.head, min(free, default=self.head) - 2)
        token = next(actor.names)
        if free and actor.rng.random() < 0.1 * len(free) + 0.2:
            self.take(actor, client, free[0], token)
        else:
            self.append(actor, client, max((row["id"] for row in rows), default=self.head - 1) + 1, token)

    def take(self, actor: Actor, client: Client, job: int, token: str) -> None:
        statement = f"UPDATE {self.table()} SET owner = ? WHERE q = ? AND id = ? IF owner = null"
        actor.attempt(client, [(statement, (token, self.number, job))], lambda later: self.row(later, job)["owner"] == token,
                      lambda: self.note(self.taken, job, token))

    def append(self, actor: Actor, client: Client, job: int, token: str) -> None:
        statement = f"INSERT INTO {self.table()} (q, id, work) VALUES (?, ?, ?) IF NOT EXISTS"
        actor.attempt(client, [(statement, (self.number, job, token))], lambda later: self.row(later, job)["work"] == token,
                      lambda: self.note(self.put, job, token))

    def row(self, client: Client, job: int) -> dict:
        rows = client.send((f"SELECT work, owner FROM {self.table()} WHERE q = ? AND id = ?", (self.number, job)), is_serial=True)
        return rows[0] if rows else {"work": None, "owner": None}

    def note(self, known: dict[int, str], job: int, token: str) -> None:
        with self.mutex:
            self.require(job not in known, f"{job} was given to {known.get(job)} and to {token}")
            known[job] = token

    def check(self, client: Client, checks) -> None:
        rows = client.send((f"SELECT id, work, owner FROM {self.table()} WHERE q = ?", (self.number,)))
        checks.equal("queue: there is no gap", [row["id"] for row in rows], list(range(len(rows))))
        checks.equal("queue: all work is what was put", differences({row["id"]: row["work"] for row in rows}, self.put), [])
        taken = {row["id"]: row["owner"] for row in rows if row["owner"] is not None}
        checks.equal("queue: each was taken by one", differences(taken, self.taken), [])


class Lock(Scenario):
    """A lock whose token rises with each holder; a guarded row takes the writes of no earlier token."""

    name = "locks"

    def __init__(self, number: int):
        super().__init__(number)
        # (token, from, to): between the answer to taking it and the call of its release
        self.held: list[tuple[int, int, int]] = []
        self.holding: dict[int, tuple[int, int, str]] = {}      # actor -> (token, since, its name as the holder)
        self.writes: list[int] = []                     # tokens

    def fill(self, client: Client) -> None:
        client.send((f"INSERT INTO {self.table()} (name, turn) VALUES (?, 0) IF NOT EXISTS", (self.number,)))
        client.send((f"INSERT INTO {KEYSPACE}.guarded (name, fence, writes) VALUES (?, 0, 0) IF NOT EXISTS", (self.number,)))

    def act(self, actor: Actor, client: Client) -> None:
        if actor.number in self.holding:
            self.guarded_write(actor, client)
            self.release(actor, client)
        else:
            self.acquire(actor, client)

    def acquire(self, actor: Actor, client: Client) -> None:
        row = self.row(client)
        if row["holder"] is not None:
            return
        me, token = next(actor.names), row["turn"] + 1
        statement = f"UPDATE {self.table()} SET holder = ?, turn = ? WHERE name = ? IF holder = null AND turn = ?"
        actor.attempt(client, [(statement, (me, token, self.number, token - 1))], lambda later: self.row(later)["holder"] == me,
                      lambda: self.took(actor, token, me))

    def took(self, actor: Actor, token: int, me: str) -> None:
        with self.mutex:
            self.require(not self.holding, f"{actor.number} has the lock with token {token}, and so have {self.holding}")
            self.holding[actor.number] = token, time.monotonic_ns(), me

    def guarded_write(self, actor: Actor, client: Client) -> None:
        token, *_ = self.holding[actor.number]
        if token in self.writes:
            return
        row = self.guarded(client)
        statement = f"UPDATE {KEYSPACE}.guarded SET fence = ?, writes = ? WHERE name = ? IF fence < ?"
        write = [(statement, (token, row["writes"] + 1, self.number, token))]
        is_applied = actor.attempt(client, write, lambda later: self.guarded(later)["fence"] == token, lambda: self.writes.append(token))
        self.require(is_applied, f"the holder of token {token} may not write; the row was {row}")
        if token > 1 and actor.rng.random() < 0.3:
            late = client.send((statement, (token - 1, 0, self.number, token - 1)))
            self.require(not applied(late), f"a write with the old token {token - 1} was let in by {token}")

    def release(self, actor: Actor, client: Client) -> None:
        with self.mutex:
            token, since, me = self.holding.pop(actor.number)
            self.held.append((token, since, time.monotonic_ns()))
        statement = f"UPDATE {self.table()} SET holder = null WHERE name = ? IF holder = ? AND turn = ?"
        part = (statement, (self.number, me, token))

        def again(later: Client) -> bool:
            return self.row(later)["holder"] != me or applied(later.send(part))

        is_applied = actor.attempt(client, [part], again, lambda: None)
        self.require(is_applied, f"the holder of token {token} could not release")

    def row(self, client: Client) -> dict:
        return client.send((f"SELECT holder, turn FROM {self.table()} WHERE name = ?", (self.number,)), is_serial=True)[0]

    def guarded(self, client: Client) -> dict:
        return client.send((f"SELECT fence, writes FROM {KEYSPACE}.guarded WHERE name = ?", (self.number,)), is_serial=True)[0]

    def check(self, client: Client, checks) -> None:
        now = time.monotonic_ns()
        periods = sorted([*self.held, *((token, since, now) for token, since, _ in self.holding.values())])
        given, last = Counter(token for token, *_ in periods), self.row(client)["turn"]
        checks.equal("lock: each token was given once", differences(given, dict.fromkeys(range(1, last + 1), 1)), [])
        overlaps = [pair for pair in itertools.pairwise(periods) if pair[0][2] > pair[1][1]]
        checks.equal("lock: there was one holder at a time", overlaps[:SHOWN], [])
        checks.equal("lock: the holder is the one that was told so", [self.row(client)["holder"]],
                     [name for *_, name in self.holding.values()] or [None])
        checks.equal("lock: the guarded row has the last write", self.guarded(client),
                     {"fence": max(self.writes, default=0), "writes": len(self.writes)})
        early = [pair for pair in itertools.pairwise(self.writes) if pair[0] >= pair[1]]
        checks.equal("lock: the writes came in the order of the tokens", early[:SHOWN], [])


class Names(Scenario):
    """Names that one owner has at a time: registered with IF NOT EXISTS, passed on and given back with IF owner = ?."""

    name = "names"
    pool = 12

    def __init__(self, number: int):
        super().__init__(number)
        self.owners: dict[str, tuple[int, str]] = {}    # name -> (actor, token), from the answer until it is given back

    def act(self, actor: Actor, client: Client) -> None:
        name, token = f"{self.number}-{actor.rng.randrange(self.pool)}", next(actor.names)
        number, old = self.owners.get(name, (None, None))
        if number != actor.number:
            statement = f"INSERT INTO {self.table()} (name, owner) VALUES (?, ?) IF NOT EXISTS"
            actor.attempt(client, [(statement, (name, token))], lambda later: self.owner(later, name) == token,
                          lambda: self.registered(name, actor, token))
        elif actor.rng.random() < 0.5:
            statement = f"UPDATE {self.table()} SET owner = ? WHERE name = ? IF owner = ?"
            is_applied = actor.attempt(client, [(statement, (token, name, old))], lambda later: self.owner(later, name) == token,
                                       lambda: self.owners.update({name: (actor.number, token)}))
            self.require(is_applied, f"{name} does not belong to {old}, who has it")
        else:
            self.give_back(actor, client, name, old)

    def give_back(self, actor: Actor, client: Client, name: str, old: str) -> None:
        del self.owners[name]
        part = (f"DELETE FROM {self.table()} WHERE name = ? IF owner = ?", (name, old))

        def again(later: Client) -> bool:
            return self.owner(later, name) != old or applied(later.send(part))

        self.require(actor.attempt(client, [part], again, lambda: None), f"{name} does not belong to {old}, who gives it back")

    def registered(self, name: str, actor: Actor, token: str) -> None:
        with self.mutex:
            self.require(name not in self.owners, f"{name} was given to {token}, and belongs to {self.owners.get(name)}")
            self.owners[name] = actor.number, token

    def owner(self, client: Client, name: str) -> str | None:
        rows = client.send((f"SELECT owner FROM {self.table()} WHERE name = ?", (name,)), is_serial=True)
        return rows[0]["owner"] if rows else None

    def check(self, client: Client, checks) -> None:
        names = [f"{self.number}-{at}" for at in range(self.pool)]
        found = {name: owner for name in names if (owner := self.owner(client, name)) is not None}
        told = {name: token for name, (_, token) in self.owners.items()}
        checks.equal("names: each belongs to who was told so", differences(found, told), [])


class Bank(Scenario):
    """Transfers within a partition: a batch changes two balances if they are what was read, and
    adds a row for the transfer."""

    name = "bank"
    accounts = 5
    first_balance = 1000

    def __init__(self, number: int):
        super().__init__(number)
        self.transfers: dict[str, tuple[str, str, int]] = {}

    def fill(self, client: Client) -> None:
        statement = f"INSERT INTO {self.table()} (bank, account, balance) VALUES (?, ?, ?) IF NOT EXISTS"
        for at in range(self.accounts):
            client.send((statement, (self.number, f"a{at}", self.first_balance)))

    def act(self, actor: Actor, client: Client) -> None:
        balances = self.balances(client, actor.rng.random() < 0.5)
        self.require(sum(balances.values()) == self.accounts * self.first_balance, f"a read shows {balances}")
        source, target = actor.rng.sample(sorted(balances), 2)
        amount, name = actor.rng.randint(1, 50), "t" + next(actor.names)
        change = f"UPDATE {self.table()} SET balance = ? WHERE bank = ? AND account = ? IF balance = ?"
        record = f"INSERT INTO {self.table()} (bank, account, balance, source, target) VALUES (?, ?, ?, ?, ?) IF NOT EXISTS"
        parts = [(change, (balances[source] - amount, self.number, source, balances[source])),
                 (change, (balances[target] + amount, self.number, target, balances[target])),
                 (record, (self.number, name, amount, source, target))]
        actor.attempt(client, parts, lambda later: bool(self.transfer(later, name)),
                      lambda: self.transfers.update({name: (source, target, amount)}))

    def balances(self, client: Client, is_serial: bool) -> dict[str, int]:
        rows = client.send((f"SELECT account, balance FROM {self.table()} WHERE bank = ? AND account < 't'", (self.number,)), is_serial=is_serial)
        return {row["account"]: row["balance"] for row in rows}

    def transfer(self, client: Client, name: str) -> list[dict]:
        return client.send((f"SELECT balance FROM {self.table()} WHERE bank = ? AND account = ?", (self.number, name)), is_serial=True)

    def check(self, client: Client, checks) -> None:
        rows = client.send((f"SELECT account, balance, source, target FROM {self.table()} WHERE bank = ? AND account >= 't'", (self.number,)))
        found = {row["account"]: (row["source"], row["target"], row["balance"]) for row in rows}
        checks.equal("bank: the transfers are those that clients were told of", differences(found, self.transfers), [])
        expected = Counter({f"a{at}": self.first_balance for at in range(self.accounts)})
        for source, target, amount in self.transfers.values():
            expected[source] -= amount
            expected[target] += amount
        checks.equal("bank: the balances are the sums of the transfers", self.balances(client, is_serial=False), dict(expected))


class Counts(Scenario):
    """Each client adds to its own counter and, in the same write, to the static total of them
    all: each increment counts once."""

    name = "counts"

    def __init__(self, number: int):
        super().__init__(number)
        self.sums: Counter[int] = Counter()         # client -> the sum of its increments that took effect

    def act(self, actor: Actor, client: Client) -> None:
        before, amount = self.sums[actor.number], actor.rng.choice((-1000, -1, 1, 3, 1 << 40))
        if actor.rng.random() < 0.3:
            own, total = self.read(client)
            self.require(own.get(actor.number, 0) == before, f"{actor.number} added {before}, and a read shows {own}")
            self.require(sum(own.values()) == total, f"a read shows {own} and the total {total}")
        if actor.rng.random() < 0.5:
            statement = f"UPDATE {self.table()} SET own = own + ?, total = total + ? WHERE part = ? AND client = ?"
            parts = [(statement, (amount, amount, self.number, actor.number))]
        else:
            parts = [(f"UPDATE {self.table()} SET own = own - ? WHERE part = ? AND client = ?", (-amount, self.number, actor.number)),
                     (f"UPDATE {self.table()} SET total = total + ? WHERE part = ?", (amount, self.number))]
        actor.attempt(client, parts, lambda later: self.counted(later, actor.number, before, amount),
                      lambda: self.sums.update({actor.number: amount}))

    def is_applied(self, rows: list[dict]) -> bool:
        self.require(not rows, f"an increment was answered with {rows}")
        return True

    def counted(self, client: Client, number: int, before: int, amount: int) -> bool:
        own = self.read(client)[0].get(number, 0)
        self.require(own in (before, before + amount), f"{number} had {before}, added {amount} without an answer, and has {own}")
        return own == before + amount

    def read(self, client: Client) -> tuple[dict[int, int], int]:
        """Returns the count of each client, and the total."""
        rows = client.send((f"SELECT client, own, total FROM {self.table()} WHERE part = ?", (self.number,)))
        return {row["client"]: row["own"] for row in rows}, rows[0]["total"] if rows else 0

    def check(self, client: Client, checks) -> None:
        own, total = self.read(client)
        checks.equal("counts: each client has the sum of its increments", differences(own, self.sums), [])
        checks.equal("counts: the total is the sum of all increments", total, self.sums.total())


SCENARIOS = (Queue, Lock, Names, Bank, Counts)


def run(node, seed: int, number: int, seconds: float, checks, change) -> Counter[str]:
    """Runs all scenarios at once. Returns counts."""
    lives = Lives(node, Random(f"{seed}/scenarios {number}"), change)
    scenarios = [scenario(number) for scenario in SCENARIOS]
    with lives.client() as client:
        for scenario in scenarios:
            scenario.fill(client)
    actors = [Actor(scenario, client, Random(f"{seed}/{number}/{scenario.name}/{client}")) for scenario in scenarios for client in range(CLIENTS)]
    lives.run(actors, seconds)
    name = f"seed {seed}, scenarios {number}"
    checks.equal(f"{name}: faults", lives.faults, [])
    with lives.client() as client:
        for actor in actors:
            if actor.doubt is not None:
                actor.doubt(client)
        for scenario in scenarios:
            with checks.part(f"{name}: {scenario.name}"):
                checks.equal(f"{name}: {scenario.name}: what the clients saw", scenario.wrong[:SHOWN], [])
                scenario.check(client, checks)
    return sum((scenario.counts for scenario in scenarios), Counter({"kills": lives.kills, "lives": len(lives.deaths)}))
