"""The Python driver's script: python -m proof.drivers.python_driver HOST PORT"""

import datetime
import decimal
import ipaddress
import sys
import time
import uuid

from cassandra import AlreadyExists, ConsistencyLevel, InvalidRequest, ReadFailure, Unavailable
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
from cassandra.policies import FallthroughRetryPolicy, WhiteListRoundRobinPolicy
from cassandra.protocol import SyntaxException
from cassandra.query import UNSET_VALUE, BatchStatement, BatchType, SimpleStatement
from cassandra.util import Date, Duration, OrderedMapSerializedKey, SortedSet, Time

from proof.drivers.checks import Checks

KEYSPACE = "python_script"
REPLICATION = "{'class': 'SimpleStrategy', 'replication_factor': 1}"
COMBINATIONS = [(None, True), (5, False), (5, "lz4"), (4, "lz4"), (4, "snappy"), (3, "lz4"), (3, False)]
LAST = "v{0} {1}".format(*COMBINATIONS[-1])
SCALARS = {
    "a": ("ascii", "plain"), "bi": ("bigint", -(1 << 63)), "bl": ("blob", b"\x00\xff"), "bo": ("boolean", True),
    "da": ("date", Date("2024-02-29")), "de": ("decimal", decimal.Decimal("-12345678901234567890.123")),
    "do": ("double", 2.5), "du": ("duration", Duration(14, 3, 14_400_000_000_000)), "fl": ("float", -0.5),
    "ip4": ("inet", "10.1.2.3"), "ip6": ("inet", "2001:db8::1"), "i": ("int", -(1 << 31)), "si": ("smallint", -32768),
    "te": ("text", "Grüße €𝄞"), "ti": ("time", Time("12:34:56.789012345")), "tn": ("tinyint", -128),
    "ts": ("timestamp", datetime.datetime(2024, 2, 29, 12, 30, 15, 123000)),
    "tu": ("timeuuid", uuid.UUID("50554d6e-29bb-11e5-b345-feff819cdc9f")),
    "uu": ("uuid", uuid.UUID("f47ac10b-58cc-4372-a567-0e02b2c3d479")), "vi": ("varint", -(10 ** 40)),
}
COLLECTIONS = {
    "l": ("list<int>", [3, 1, 2]), "s": ("set<text>", SortedSet(["b", "a"])),
    "m": ("map<text, int>", OrderedMapSerializedKey), "fl_": ("frozen<list<text>>", ["x", "y"]),
    "nested": ("map<int, frozen<list<frozen<set<int>>>>>", None), "tp": ("tuple<int, text>", (7, "seven")),
    "ve": ("vector<float, 3>", [1.5, -2.0, 0.25]),
}


def connect(host: str, port: int, version, compression) -> Cluster:
    profile = ExecutionProfile(load_balancing_policy=WhiteListRoundRobinPolicy([host]),
                               retry_policy=FallthroughRetryPolicy(), request_timeout=30)
    options = {"protocol_version": version} if version else {}
    return Cluster([host], port=port, compression=compression, execution_profiles={EXEC_PROFILE_DEFAULT: profile},
                   connect_timeout=20, **options)


def main() -> None:
    host, port = sys.argv[1], int(sys.argv[2])
    checks = Checks("python driver")
    for version, compression in COMBINATIONS:
        name = f"v{version or 'negotiated'} {compression}"
        with checks.part(name):
            cluster = connect(host, port, version, compression)
            try:
                session = cluster.connect()
                checks.equal(f"{name}: protocol", cluster.protocol_version, version or 5)
                script(checks, name, cluster, session)
            finally:
                cluster.shutdown()
    checks.end()


def script(checks: Checks, name: str, cluster: Cluster, session) -> None:
    session.execute(f"DROP KEYSPACE IF EXISTS {KEYSPACE}")
    session.execute(f"CREATE KEYSPACE {KEYSPACE} WITH replication = {REPLICATION}")
    session.set_keyspace(KEYSPACE)
    for part in (scalars, collections, user_types, statements, conditions, counters, paging, indexes, schema_metadata, schema_events, bad_statements, concurrency):
        with checks.part(f"{name}: {part.__name__}"):
            part(Named(checks, f"{name}: {part.__name__}"), cluster, session)
    if name != LAST:                # the last one's is left for the proof that what is accepted survives
        session.execute(f"DROP KEYSPACE {KEYSPACE}")
        checks.true(f"{name}: keyspace is gone from the metadata", KEYSPACE not in cluster.metadata.keyspaces)


class Named:
    """Checks whose names begin with where they stand."""

    def __init__(self, checks: Checks, prefix: str):
        self.checks = checks
        self.prefix = prefix

    def equal(self, name, got, expected):
        self.checks.equal(f"{self.prefix}: {name}", got, expected)

    def true(self, name, right, detail=""):
        self.checks.true(f"{self.prefix}: {name}", right, detail)

    def raises(self, name, expected, text, action):
        self.checks.raises(f"{self.prefix}: {name}", expected, text, action)


def scalars(checks: Named, cluster, session) -> None:
    columns = ", ".join(f"{name} {kind}" for name, (kind, _) in SCALARS.items())
    session.execute(f"CREATE TABLE scalars (k int PRIMARY KEY, {columns})")
    names = list(SCALARS)
    insert = session.prepare(f"INSERT INTO scalars (k, {', '.join(names)}) VALUES (?, {', '.join('?' * len(names))})")
    session.execute(insert, [1] + [value for _, value in SCALARS.values()])
    session.execute(insert, [2] + [None] * len(names))
    select = session.prepare("SELECT * FROM scalars WHERE k = ?")
    row, empty = session.execute(select, [1]).one(), session.execute(select, [2]).one()
    for name, (kind, value) in SCALARS.items():
        got = getattr(row, name)
        if kind == "inet":
            got, value = ipaddress.ip_address(got), ipaddress.ip_address(value)
        checks.equal(kind, got, value)
        checks.equal(f"{kind} null", getattr(empty, name), None)


def collections(checks: Named, cluster, session) -> None:
    columns = ", ".join(f"{name} {kind}" for name, (kind, _) in COLLECTIONS.items())
    session.execute(f"CREATE TABLE collections (k int PRIMARY KEY, {columns})")
    values = {name: value for name, (_, value) in COLLECTIONS.items()}
    values["m"] = {"one": 1, "two": 2}
    values["nested"] = {5: [SortedSet([1, 2]), SortedSet([])]}
    names = list(values)
    insert = session.prepare(f"INSERT INTO collections (k, {', '.join(names)}) VALUES (?, {', '.join('?' * len(names))})")
    session.execute(insert, [1, *values.values()])
    row = session.execute("SELECT * FROM collections WHERE k = 1").one()
    checks.equal("list", row.l, [3, 1, 2])
    checks.equal("set", row.s, SortedSet(["a", "b"]))
    checks.equal("map", dict(row.m), {"one": 1, "two": 2})
    checks.equal("frozen list", row.fl_, ["x", "y"])
    checks.equal("nested", [list(map(list, v)) for v in row.nested.values()], [[[1, 2], []]])
    checks.equal("tuple", tuple(row.tp), (7, "seven"))
    checks.equal("vector", row.ve, [1.5, -2.0, 0.25])
    session.execute("UPDATE collections SET l = l + [9], s = s - {'a'}, m['three'] = 3 WHERE k = 1")
    session.execute("DELETE m['one'] FROM collections WHERE k = 1")
    row = session.execute("SELECT l, s, m FROM collections WHERE k = 1").one()
    checks.equal("list append", row.l, [3, 1, 2, 9])
    checks.equal("set remove", list(row.s), ["b"])
    checks.equal("map put and delete", dict(row.m), {"two": 2, "three": 3})


def user_types(checks: Named, cluster, session) -> None:
    session.execute("CREATE TYPE address (street text, zip int)")
    session.execute("CREATE TABLE people (name text PRIMARY KEY, home address, homes frozen<list<frozen<address>>>)")

    class Address:
        def __init__(self, street, zip):
            self.street, self.zip = street, zip

        def __eq__(self, other):
            return (self.street, self.zip) == (other.street, other.zip)

    cluster.register_user_type(KEYSPACE, "address", Address)
    insert = session.prepare("INSERT INTO people (name, home, homes) VALUES (?, ?, ?)")
    session.execute(insert, ["ada", Address("Main St", 12345), [Address("A", 1), Address("B", None)]])
    session.execute("UPDATE people SET home.zip = 54321 WHERE name = 'ada'")
    row = session.execute("SELECT * FROM people").one()
    checks.equal("user type", row.home, Address("Main St", 54321))
    checks.equal("list of user types", row.homes, [Address("A", 1), Address("B", None)])
    session.execute("ALTER TYPE address ADD city text")
    checks.equal("altered type in the metadata", cluster.metadata.keyspaces[KEYSPACE].user_types["address"].field_names,
                 ["street", "zip", "city"])


def statements(checks: Named, cluster, session) -> None:
    session.execute("CREATE TABLE wide (p int, c int, s text static, v text, PRIMARY KEY (p, c)) WITH CLUSTERING ORDER BY (c DESC)")
    session.execute("INSERT INTO wide (p, c, s, v) VALUES (%s, %s, %s, %s)", (1, 1, "static", "one"))
    session.execute("INSERT INTO wide (p, c, v) VALUES (%(p)s, %(c)s, %(v)s)", {"p": 1, "c": 2, "v": "two"})
    insert = session.prepare("INSERT INTO wide (p, c, v) VALUES (:p, :c, :v) USING TTL :t")
    session.execute(insert, {"p": 1, "c": 3, "v": "three", "t": 1000})
    if cluster.protocol_version >= 4:
        session.execute(session.prepare("INSERT INTO wide (p, c, s, v) VALUES (?, ?, ?, ?)"), [1, 2, UNSET_VALUE, UNSET_VALUE])
    batch = BatchStatement()
    batch.add(session.prepare("INSERT INTO wide (p, c, v) VALUES (?, ?, ?)"), (1, 4, "four"))
    batch.add(SimpleStatement("DELETE FROM wide WHERE p = 1 AND c = 1"))
    session.execute(batch)
    rows = list(session.execute("SELECT c, s, v FROM wide WHERE p = 1"))
    checks.equal("rows", [tuple(row) for row in rows], [(4, "static", "four"), (3, "static", "three"), (2, "static", "two")])
    ttl = session.execute("SELECT ttl(v) FROM wide WHERE p = 1 AND c = 3").one()[0]
    checks.true("ttl", 900 < ttl <= 1000, str(ttl))
    json = session.execute("SELECT JSON c, v FROM wide WHERE p = 1 LIMIT 1").one()[0]
    checks.equal("json", json, '{"c": 4, "v": "four"}')
    row = session.execute("SELECT c AS x FROM wide WHERE p = 1 AND c > 3").one()
    checks.equal("alias", row._asdict(), {"x": 4})
    if cluster.protocol_version >= 4:
        result = session.execute("SELECT key FROM system.local", custom_payload={"trace": b"1", "empty": b""})
        checks.equal("custom payload is accepted", result.one(), ("local",))
    count = session.execute("SELECT count(*) FROM wide").one()[0]
    checks.equal("count", count, 3)
    trace = session.execute("SELECT * FROM wide", trace=True).get_query_trace(max_wait_sec=10)
    checks.true("trace", trace.duration is not None and len(trace.events) > 0, str(trace))


def conditions(checks: Named, cluster, session) -> None:
    session.execute("CREATE TABLE jobs (q int, n int, owner text, s int static, PRIMARY KEY (q, n))")
    insert = session.prepare("INSERT INTO jobs (q, n, owner) VALUES (?, ?, ?) IF NOT EXISTS")
    checks.equal("applied", session.execute(insert, (1, 1, "ada")).one()._asdict(), {"applied": True})
    checks.true("was applied", session.execute(insert, (1, 2, "eve")).was_applied)
    refused = session.execute(insert, (1, 1, "bob"))
    checks.equal("refused", tuple(refused.one()), (False, 1, 1, None, "ada"))
    checks.true("was not applied", not session.execute(insert, (1, 1, "bob")).was_applied)
    update = session.prepare("UPDATE jobs SET owner = ? WHERE q = 1 AND n = 1 IF owner = ?")
    checks.equal("another owner", tuple(session.execute(update, ("bob", "eve")).one()), (False, "ada"))
    checks.true("the owner", session.execute(update, ("bob", "ada")).was_applied)
    batch = BatchStatement()
    batch.add(update, ("cid", "bob"))
    batch.add(session.prepare("INSERT INTO jobs (q, n, owner) VALUES (1, 3, 'dan') IF NOT EXISTS"))
    checks.true("batch", session.execute(batch).was_applied)
    checks.true("batch again", not session.execute(batch).was_applied)
    serial = SimpleStatement("SELECT n, owner FROM jobs WHERE q = 1", consistency_level=ConsistencyLevel.SERIAL)
    checks.equal("serial read", [tuple(row) for row in session.execute(serial)], [(1, "cid"), (2, "eve"), (3, "dan")])
    checks.true("delete", session.execute("DELETE FROM jobs WHERE q = 1 AND n = 2 IF EXISTS").was_applied)
    checks.true("delete again", not session.execute("DELETE FROM jobs WHERE q = 1 AND n = 2 IF EXISTS").was_applied)


def counters(checks: Named, cluster, session) -> None:
    session.execute("CREATE TABLE hits (page text, day int, n counter, total counter static, PRIMARY KEY (page, day))")
    add = session.prepare("UPDATE hits SET n = n + ? WHERE page = ? AND day = ?")
    futures = [session.execute_async(add, (2, "home", day % 3)) for day in range(60)]
    for future in futures:
        future.result()
    # Of increments of a static counter at the same time, Cassandra loses some.
    total = session.prepare("UPDATE hits SET total = total + ? WHERE page = ?")
    for _ in range(60):
        session.execute(total, (1, "home"))
    rows = session.execute("SELECT day, n, total FROM hits WHERE page = 'home'")
    checks.equal("sums", [tuple(row) for row in rows], [(0, 40, 60), (1, 40, 60), (2, 40, 60)])
    batch = BatchStatement(batch_type=BatchType.COUNTER)
    batch.add(add, (-50, "home", 0))
    batch.add(SimpleStatement("UPDATE hits SET n -= 1 WHERE page = 'home' AND day = 7"))
    session.execute(batch)
    rows = session.execute("SELECT day, n FROM hits WHERE page = 'home'")
    checks.equal("batch", [tuple(row) for row in rows], [(0, -10), (1, 40), (2, 40), (7, -1)])
    checks.raises("insert", InvalidRequest, "INSERT statements are not allowed on counter tables",
                  lambda: session.execute("INSERT INTO hits (page, day, n) VALUES ('home', 1, 1)"))
    session.execute("DELETE FROM hits WHERE page = 'home' AND day = 0")
    checks.equal("delete", session.execute("SELECT count(*) FROM hits").one()[0], 3)


def paging(checks: Named, cluster, session) -> None:
    session.execute("CREATE TABLE pages (p int, c int, PRIMARY KEY (p, c))")
    insert = session.prepare("INSERT INTO pages (p, c) VALUES (?, ?)")
    for p in range(5):
        for c in range(11):
            session.execute(insert, (p, c))
    statement = SimpleStatement("SELECT p, c FROM pages", fetch_size=4)
    result = session.execute(statement)
    checks.equal("first page", len(result.current_rows), 4)
    checks.equal("all rows", sorted(tuple(row) for row in result), [(p, c) for p in range(5) for c in range(11)])
    first = session.execute(statement)
    second = session.execute(statement, paging_state=first.paging_state)
    whole = [tuple(row) for row in session.execute("SELECT p, c FROM pages")]
    checks.equal("resumed page", [tuple(row) for row in second.current_rows], whole[4:8])
    bound = session.prepare("SELECT c FROM pages WHERE p = ? ORDER BY c DESC").bind([3])
    bound.fetch_size = 3
    checks.equal("reversed, prepared", [row.c for row in session.execute(bound)], list(range(10, -1, -1)))


def indexes(checks: Named, cluster, session) -> None:
    session.execute("CREATE TABLE animals (p int, c int, kind text, age int, tags set<text>, place vector<float, 2>, PRIMARY KEY (p, c))")
    for index in ("by_kind ON animals (kind)", "by_tag ON animals (tags)", "by_age ON animals (age) USING 'sai'",
                  "by_place ON animals (place) USING 'sai' WITH OPTIONS = {'similarity_function': 'euclidean'}"):
        session.execute(f"CREATE INDEX {index}")
    insert = session.prepare("INSERT INTO animals (p, c, kind, age, tags, place) VALUES (?, ?, ?, ?, ?, ?)")
    for n in range(40):
        session.execute(insert, (n % 4, n, "fox" if n % 3 else "owl", n, {f"t{n % 5}"}, [float(n), 0.0]))
    session.execute("DELETE FROM animals WHERE p = 3 AND c = 3")
    wait_for_builds(session, "SELECT c FROM animals WHERE kind = 'owl'", "SELECT c FROM animals WHERE tags CONTAINS 't1'")
    by_kind = session.prepare("SELECT c FROM animals WHERE kind = ?")
    by_kind.fetch_size = 5
    result = session.execute(by_kind, ["owl"])
    checks.true("more pages", result.has_more_pages)
    checks.equal("equality, in pages", sorted(row.c for row in result), [n for n in range(0, 40, 3) if n != 3])
    by_tag = session.prepare("SELECT c FROM animals WHERE tags CONTAINS ?")
    checks.equal("values of a set", sorted(row.c for row in session.execute(by_tag, ["t2"])), list(range(2, 40, 5)))
    by_age = session.prepare("SELECT c FROM animals WHERE age >= ? AND age < ?")
    checks.equal("range", sorted(row.c for row in session.execute(by_age, [2, 9])), [2, 4, 5, 6, 7, 8])
    both = session.prepare("SELECT c FROM animals WHERE age < ? AND kind = ? ALLOW FILTERING")
    checks.equal("two columns", sorted(row.c for row in session.execute(both, [10, "owl"])), [0, 6, 9])
    nearest = session.prepare("SELECT c, similarity_euclidean(place, ?) AS score FROM animals ORDER BY place ANN OF ? LIMIT 3")
    rows = list(session.execute(nearest, [[7.25, 0.0], [7.25, 0.0]]))
    checks.equal("nearest vectors", [row.c for row in rows], [7, 8, 6])
    checks.true("similarity", abs(rows[0].score - 1 / (1 + 0.25 ** 2)) < 1e-5, str(rows[0].score))
    described = cluster.metadata.keyspaces[KEYSPACE].tables["animals"]
    checks.equal("metadata", sorted(described.indexes), ["by_age", "by_kind", "by_place", "by_tag"])
    checks.equal("kinds", [described.indexes[name].kind for name in ("by_kind", "by_age")], ["COMPOSITES", "CUSTOM"])
    checks.equal("options", dict(described.indexes["by_place"].index_options),
                 {"class_name": "sai", "similarity_function": "euclidean", "target": "place"})
    checks.equal("export", described.export_as_string().count("INDEX "), 4)
    checks.raises("existing index", InvalidRequest, "Index 'by_kind' already exists",
                  lambda: session.execute("CREATE INDEX by_kind ON animals (age)"))
    session.execute("DROP INDEX by_kind")
    checks.true("dropped", "by_kind" not in cluster.metadata.keyspaces[KEYSPACE].tables["animals"].indexes)
    checks.raises("after DROP INDEX", InvalidRequest, "ALLOW FILTERING", lambda: session.execute(by_kind, ["owl"]))


def wait_for_builds(session, *statements: str) -> None:
    """A read by an index that is still being built is refused; the build of an empty table takes a moment."""
    deadline = time.monotonic() + 30
    for statement in statements:
        while True:
            try:
                session.execute(statement)
                break
            except ReadFailure:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)


def schema_metadata(checks: Named, cluster, session) -> None:
    session.execute("""CREATE TABLE described (a int, b text, c timeuuid, d text static, "E f" int, PRIMARY KEY ((a, b), c))
                       WITH CLUSTERING ORDER BY (c DESC) AND comment = 'it''s described' AND gc_grace_seconds = 1000""")
    table = cluster.metadata.keyspaces[KEYSPACE].tables["described"]
    checks.equal("partition key", [c.name for c in table.partition_key], ["a", "b"])
    checks.equal("clustering", [(c.name, c.is_reversed) for c in table.clustering_key], [("c", True)])
    checks.equal("static", table.columns["d"].is_static, True)
    checks.equal("types", {n: c.cql_type for n, c in table.columns.items()},
                 {"a": "int", "b": "text", "c": "timeuuid", "d": "text", "E f": "int"})
    checks.equal("comment", table.options["comment"], "it's described")
    checks.equal("gc_grace_seconds", table.options["gc_grace_seconds"], 1000)
    session.execute('ALTER TABLE described ADD added list<int>')
    session.execute('ALTER TABLE described DROP "E f"')
    columns = cluster.metadata.keyspaces[KEYSPACE].tables["described"].columns
    checks.equal("altered", sorted(columns), ["a", "added", "b", "c", "d"])
    checks.true("system keyspaces", {"system", "system_schema", "system_virtual_schema"} <= set(cluster.metadata.keyspaces))
    checks.true("export", "CREATE TABLE" in cluster.metadata.keyspaces[KEYSPACE].export_as_string())
    host = cluster.metadata.all_hosts()[0]
    checks.true("host", bool(host.host_id and host.datacenter and host.rack and host.release_version), str(vars(host)))
    checks.true("token map", cluster.metadata.token_map is not None)


def schema_events(checks: Named, cluster, session) -> None:
    other = connect(session.hosts[0].endpoint.address, session.hosts[0].endpoint.port, cluster.protocol_version, False)
    try:
        other.connect().execute(f"CREATE TABLE {KEYSPACE}.announced (k int PRIMARY KEY)")
        deadline = time.monotonic() + 15
        while "announced" not in cluster.metadata.keyspaces[KEYSPACE].tables and time.monotonic() < deadline:
            time.sleep(0.05)
        checks.true("another client's table", "announced" in cluster.metadata.keyspaces[KEYSPACE].tables)
    finally:
        other.shutdown()


def bad_statements(checks: Named, cluster, session) -> None:
    session.execute("CREATE TABLE errors (k int PRIMARY KEY, v int)")
    checks.raises("syntax", SyntaxException, "line 1:0 no viable alternative at input 'SELEC'", lambda: session.execute("SELEC 1"))
    checks.raises("unknown table", InvalidRequest, "table nosuch does not exist", lambda: session.execute("SELECT * FROM nosuch"))
    checks.raises("unknown column", InvalidRequest, "Undefined column name x", lambda: session.execute("SELECT x FROM errors"))
    checks.raises("filtering", InvalidRequest, "ALLOW FILTERING", lambda: session.execute("SELECT * FROM errors WHERE v = 1"))
    checks.raises("existing table", AlreadyExists, "already exists", lambda: session.execute("CREATE TABLE errors (k int PRIMARY KEY)"))
    checks.raises("prepare", InvalidRequest, "nosuch", lambda: session.prepare("SELECT * FROM nosuch WHERE k = ?"))
    statement = SimpleStatement("SELECT * FROM errors WHERE k = 1", consistency_level=ConsistencyLevel.TWO)
    checks.raises("unavailable", Unavailable, "Cannot achieve consistency level TWO", lambda: session.execute(statement))
    checks.equal("the session goes on", session.execute("SELECT * FROM errors").one(), None)


def concurrency(checks: Named, cluster, session) -> None:
    """Many requests in flight on one connection, answers in any order."""
    session.execute("CREATE TABLE many (k int PRIMARY KEY, v text)")
    insert = session.prepare("INSERT INTO many (k, v) VALUES (?, ?)")
    for future in [session.execute_async(insert, (k, f"value {k}")) for k in range(500)]:
        future.result()
    select = session.prepare("SELECT v FROM many WHERE k = ?")
    futures = [session.execute_async(select, (k,)) for k in range(500)]
    checks.equal("500 in flight", [f.result().one().v for f in futures], [f"value {k}" for k in range(500)])


if __name__ == "__main__":
    main()
