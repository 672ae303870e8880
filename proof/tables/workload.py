"""Tables that fill every component: all compressors, row indexes of many blocks, tombstones
of every kind, many columns."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random

from proof.wire import Connection, Error, QueryOptions, requests

KEYSPACE = "tables"
BASE_TIMESTAMP = 1_700_000_000_000_000
IN_FLIGHT_MAX = 200
WORDS = "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron pi rho sigma tau".split()
COMPRESSIONS = {
    "lz4": "{'class': 'LZ4Compressor', 'chunk_length_in_kb': 16}",
    "lz4_small_chunks": "{'class': 'LZ4Compressor', 'chunk_length_in_kb': 4, 'min_compress_ratio': 1.1}",
    "uncompressed": "{'enabled': false}",
    "snappy": "{'class': 'SnappyCompressor'}",
    "deflate": "{'class': 'DeflateCompressor'}",
    "zstd": "{'class': 'ZstdCompressor', 'compression_level': 3}",
}


@dataclass
class Table:
    """A table, the writes that fill it, and what to ask of it."""

    name: str
    create: str
    writes: Callable[["Filler"], None]
    reads: list[str]
    drops: tuple[str, ...] = ()         # columns dropped before the SSTables are handed over
    adds: tuple[str, ...] = ()          # and added again after


class Filler:
    """Sends writes with many in flight; the first refusal is raised."""

    def __init__(self, connection: Connection, rng: Random):
        self.connection = connection
        self.rng = rng

    def each(self, cql: str, rows: Iterable[tuple]) -> None:
        """One prepared write per row; values are serialized, the last is the timestamp."""
        prepared = accepted(self.connection.prepare(cql))
        in_flight = 0
        for *values, timestamp in rows:
            options = QueryOptions(tuple(values), timestamp=timestamp)
            self.connection.send(requests.EXECUTE, requests.execute(prepared.id, prepared.metadata_id, options, self.connection.version))
            in_flight += 1
            if in_flight == IN_FLIGHT_MAX:
                self.drain(in_flight)
                in_flight = 0
        self.drain(in_flight)

    def drain(self, count: int) -> None:
        for _ in range(count):
            accepted(self.connection.receive()[1])

    def one(self, cql: str) -> None:
        accepted(self.connection.query(cql))

    def text(self, length: int) -> bytes:
        return " ".join(self.rng.choices(WORDS, k=length // 4 + 1))[:length].encode()


def accepted(answer):
    if isinstance(answer, Error):
        raise RuntimeError(f"{answer.code:#06x} {answer.message}")
    return answer


def number(value: int) -> bytes:
    return value.to_bytes(4, "big", signed=True)


def key_value(filler: Filler, name: str) -> None:
    filler.each(f"INSERT INTO {KEYSPACE}.{name} (k, v, b) VALUES (?, ?, ?)",
                ((number(k), filler.text(60), filler.rng.randbytes(20_000 if k % 100 == 7 else 24), BASE_TIMESTAMP + k) for k in range(300)))
    filler.each(f"DELETE FROM {KEYSPACE}.{name} WHERE k = ?", ((number(k), BASE_TIMESTAMP + 10_000) for k in range(0, 300, 17)))


def key_value_table(name: str, compression: str) -> Table:
    return Table(name, f"CREATE TABLE {KEYSPACE}.{name} (k int PRIMARY KEY, v text, b blob) WITH compression = {compression}",
                 lambda filler: key_value(filler, name),
                 [f"SELECT * FROM {KEYSPACE}.{name}", f"SELECT k, writetime(v), v FROM {KEYSPACE}.{name} WHERE k IN (1, 7, 17, 299)"])


def fill_wide(filler: Filler) -> None:
    """Partitions of many index blocks, with range tombstones that stay open across them."""
    for p in (1, 2):
        filler.one(f"UPDATE {KEYSPACE}.wide USING TIMESTAMP {BASE_TIMESTAMP} SET s = 'static {p}' WHERE p = {p}")
        for start in range(0, 4000, 500):
            filler.one(f"DELETE FROM {KEYSPACE}.wide USING TIMESTAMP {BASE_TIMESTAMP + start} WHERE p = {p} AND a >= {start} AND a < {start + 300}")
        filler.one(f"DELETE FROM {KEYSPACE}.wide USING TIMESTAMP {BASE_TIMESTAMP + 1} WHERE p = {p} AND a = 4500 AND b > 'b'")
        filler.one(f"DELETE FROM {KEYSPACE}.wide USING TIMESTAMP {BASE_TIMESTAMP + 9000} WHERE p = {p} AND a > 4900")
        filler.each(f"INSERT INTO {KEYSPACE}.wide (p, a, b, v) VALUES (?, ?, ?, ?)",
                    ((number(p), number(a), filler.rng.choice((b"", b"a", b"c")), filler.text(90), BASE_TIMESTAMP + a) for a in range(5000)))
        filler.each(f"DELETE FROM {KEYSPACE}.wide WHERE p = ? AND a = ? AND b = ?",
                    ((number(p), number(a), b"a", BASE_TIMESTAMP + 10_000) for a in range(0, 5000, 37)))


def fill_many(filler: Filler) -> None:
    filler.each(f"INSERT INTO {KEYSPACE}.many (k, v) VALUES (?, ?)", ((number(k), number(k * 3), BASE_TIMESTAMP) for k in range(20_000)))


def fill_dropped(filler: Filler) -> None:
    """Cells older and newer than the drops to come; some rows and static rows hold nothing else."""
    for k in range(200):
        at = BASE_TIMESTAMP + 1000 * k
        where = f"WHERE p = {k % 9} AND c = {k}"
        filler.one(f"UPDATE {KEYSPACE}.dropped USING TIMESTAMP {at} SET v = 'v{k}', m = {{{k}, {k + 1}}} {where}")
        filler.one(f"UPDATE {KEYSPACE}.dropped USING TIMESTAMP {at} SET s = 's{k}' WHERE p = {100 + k}")
        if k % 3 == 0:
            filler.one(f"UPDATE {KEYSPACE}.dropped USING TIMESTAMP {at + 50_000} SET w = {k}, m = m - {{{k}}} {where}")


COLUMNS = [f"c{n:02}" for n in range(70)]


def fill_columns(filler: Filler) -> None:
    for k in range(60):
        chosen = filler.rng.sample(COLUMNS, filler.rng.choice((0, 1, 5, 35, 69, 70)))
        names, values = ", ".join(["k", *chosen]), ", ".join([str(k)] + ["1"] * len(chosen))
        filler.one(f"INSERT INTO {KEYSPACE}.columns ({names}) VALUES ({values}) USING TIMESTAMP {BASE_TIMESTAMP + k}")


def fill_collections(filler: Filler) -> None:
    for k in range(200):
        at = BASE_TIMESTAMP + k
        filler.one(f"INSERT INTO {KEYSPACE}.collections (p, c, m, s, l, u, f) VALUES ({k % 5}, {k}, {{'a': {k}, 'b': 2}}, {{{k}, 1}}, [1, {k}], "
                   f"{{street: 'x', zip: {k}}}, {{1: [1, 2]}}) USING TIMESTAMP {at}")
    for k in range(0, 200, 3):
        at = BASE_TIMESTAMP + 1000 + k
        where = f"WHERE p = {k % 5} AND c = {k}"
        filler.one(f"UPDATE {KEYSPACE}.collections USING TIMESTAMP {at} SET m['z'] = 9, s = s - {{1}}, l = l + [7], u.zip = 5 {where}")
        filler.one(f"DELETE m['a'] FROM {KEYSPACE}.collections USING TIMESTAMP {at + 1} {where}")
    for k in range(0, 200, 7):
        filler.one(f"UPDATE {KEYSPACE}.collections USING TIMESTAMP {BASE_TIMESTAMP + 5000} AND TTL 500000000 SET m = {{'only': 1}}, u = null WHERE p = {k % 5} AND c = {k}")


TYPES = [f"CREATE TYPE {KEYSPACE}.address (street text, zip int)"]

TABLES = [key_value_table(name, compression) for name, compression in COMPRESSIONS.items()] + [
    Table("wide", f"CREATE TABLE {KEYSPACE}.wide (p int, a int, b text, s text static, v text, PRIMARY KEY (p, a, b)) WITH CLUSTERING ORDER BY (a DESC, b ASC)",
          fill_wide,
          [f"SELECT * FROM {KEYSPACE}.wide", f"SELECT * FROM {KEYSPACE}.wide WHERE p = 1 ORDER BY a ASC",
           f"SELECT a, b, v FROM {KEYSPACE}.wide WHERE p = 2 AND a > 2400 AND a <= 2700", f"SELECT a, b FROM {KEYSPACE}.wide WHERE p = 1 AND (a, b) >= (4500, 'a') ORDER BY a ASC LIMIT 20",
           f"SELECT count(*) FROM {KEYSPACE}.wide WHERE p = 2 AND a IN (1, 37, 299, 300, 4500, 4999)"]),
    Table("many", f"CREATE TABLE {KEYSPACE}.many (k int PRIMARY KEY, v int)", fill_many,
          [f"SELECT * FROM {KEYSPACE}.many", f"SELECT * FROM {KEYSPACE}.many WHERE token(k) > 0 LIMIT 100", f"SELECT * FROM {KEYSPACE}.many WHERE k IN (1, 19999, 20000)"]),
    Table("dropped", f"CREATE TABLE {KEYSPACE}.dropped (p int, c int, s text static, v text, m set<int>, w int, PRIMARY KEY (p, c))", fill_dropped,
          [f"SELECT * FROM {KEYSPACE}.dropped", f"SELECT count(*) FROM {KEYSPACE}.dropped", f"SELECT DISTINCT p FROM {KEYSPACE}.dropped"],
          drops=tuple(f"ALTER TABLE {KEYSPACE}.dropped DROP {column} USING TIMESTAMP {BASE_TIMESTAMP + 100_000}" for column in "svm"),
          adds=tuple(f"ALTER TABLE {KEYSPACE}.dropped ADD {column}" for column in ("s text static", "v text", "m set<int>"))),
    Table("columns", f"CREATE TABLE {KEYSPACE}.columns (k int PRIMARY KEY, {', '.join(c + ' int' for c in COLUMNS)})", fill_columns,
          [f"SELECT * FROM {KEYSPACE}.columns"]),
    Table("collections", f"CREATE TABLE {KEYSPACE}.collections (p int, c int, m map<text, int>, s set<int>, l list<int>, u address, f frozen<map<int, list<int>>>, PRIMARY KEY (p, c))",
          fill_collections,
          [f"SELECT * FROM {KEYSPACE}.collections", f"SELECT c, writetime(m), writetime(f) FROM {KEYSPACE}.collections WHERE p = 2 ORDER BY c DESC"]),
]
