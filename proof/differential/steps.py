"""One step of a history: pure data, so that histories can be kept in files, replayed and shrunk."""

import re
from dataclasses import asdict, dataclass, field

from proof.wire import QueryOptions, UNSET
from proof.wire.requests import ONE

SIMPLE = "{'class': 'SimpleStrategy', 'replication_factor': 1}"


@dataclass
class Step:
    """A step of a history. Its kind is "cql", "batch", "flush", "compact", "restart" or "kill". Values are hexadecimal,
    None, or "unset"."""

    kind: str
    cql: str = ""
    values: list = field(default_factory=list)
    prepared: bool = False
    reuse: bool = False                 # execute the earlier prepared statement, without a new PREPARE
    skip_metadata: bool = False
    page_size: int | None = None
    timestamp: int | None = None
    now: int | None = None              # now_in_seconds, sent in v5 only
    consistency: int = ONE
    named: bool = False                 # values go by the names :n0, :n1 ...
    batch_type: int = 0
    items: list = field(default_factory=list)       # of a batch: [cql, values]

    def options(self, version: int) -> QueryOptions:
        values = tuple(decode(v) for v in self.values)
        if self.named:
            values = tuple((f"n{place}", value) for place, value in enumerate(values))
        return QueryOptions(values, self.consistency, page_size=self.page_size, timestamp=self.timestamp,
                            skip_metadata=self.skip_metadata, now_in_seconds=self.now if version >= 5 else None)

    def batch_items(self) -> list[tuple]:
        return [(cql, [decode(v) for v in values]) for cql, values in self.items]

    def to_json(self) -> dict:
        default = asdict(Step(self.kind))
        return {"kind": self.kind} | {k: v for k, v in asdict(self).items() if v != default[k]}

    @staticmethod
    def from_json(item: dict) -> "Step":
        return Step(**item)

    def __str__(self) -> str:
        if self.kind in ("flush", "compact"):
            return f"-- {self.kind} both"
        if self.kind == "restart":
            return "-- restart Espalier"
        if self.kind == "kill":
            return "-- kill -9 Espalier, and start it again"
        if self.kind == "batch":
            lines = [f"--   {cql} {values or ''}" for cql, values in self.items]
            return "\n".join([f"-- BATCH message of type {self.batch_type}{self.notes()}", *lines])
        return self.cql + ";" + self.notes()

    def notes(self) -> str:
        notes = [f"values={self.values}" if self.values else ""]
        notes += [name for name in ("prepared", "reuse", "skip_metadata", "named") if getattr(self, name)]
        if self.consistency != ONE:
            notes.append(f"consistency={self.consistency}")
        for name in ("page_size", "timestamp", "now"):
            if getattr(self, name) is not None:
                notes.append(f"{name}={getattr(self, name)}")
        text = " ".join(note for note in notes if note)
        return f"   -- {text}" if text else ""


def decode(value):
    return UNSET if value == "unset" else None if value is None else bytes.fromhex(value)


@dataclass
class History:
    """Everything sent in one keyspace over one connection per server."""

    name: str
    keyspace: str
    version: int
    compression: str | None
    steps: list[Step]
    replication: str = SIMPLE
    memtable: str = ""                  # of the second server's tables, where it is a Cassandra with our memtables;
                                        # "": its default

    @property
    def file_name(self) -> str:
        return re.sub(r"\W+", "-", self.name)

    def to_json(self) -> dict:
        return {**asdict(self), "steps": [step.to_json() for step in self.steps]}

    @staticmethod
    def from_json(item: dict) -> "History":
        return History(**{**item, "steps": [Step.from_json(step) for step in item["steps"]]})
