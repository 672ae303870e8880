"""A table that lives in memory, as its operator sees it: refused where it cannot fit, warned of,
full, and the same after kill -9."""

from proof.drivers.checks import Checks
from proof.oracle.espalier import Espalier
from proof.wire import Connection, Error

CREATE = "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"
VALUE = "v" * 10_000
STATUS = "SELECT used_bytes, size_limit_bytes, refused_writes, in_memory FROM system_views.in_memory_tables"


def in_memory(checks: Checks) -> None:
    with Espalier.start(max_memory_to_lock_mb="8", commitlog_sync="batch") as node:
        with Connection(node.host, node.port) as connection:
            connection.query(CREATE)
            refusal = connection.query(table("larger", 9))
            checks.true("larger than max_memory_to_lock", "max_memory_to_lock of 8 MB" in getattr(refusal, "message", ""), str(refusal))
            checks.true("one that fits", not isinstance(connection.query(table("t", 1)), Error))
            written, refusal = fill(connection)
            checks.true("a full table says so", refusal.message.startswith("Table ks.t lives in memory and is full"), refusal.message)
            checks.true("it is nearly full", written > 90, f"{written} rows of {len(VALUE)} bytes")
            used, limit, refused, complete = (int.from_bytes(value, "big") for value in connection.query(STATUS).rows[0])
            checks.equal("limit, refused writes, whether it is in memory", (limit, refused, complete), (1 << 20, 1, 1))
            checks.true("used", limit * 9 // 10 < used <= limit, f"{used} of {limit}")
        status = node.steer("inmemorystatus").splitlines()
        checks.equal("inmemorystatus", status[-1].split(), ["ks", "t", *size(used), "1.00", "MiB", f"{used * 100 // limit}%", "95%", "1", "memory"])
        stats = figures(node.steer("tablestats", "ks", "t"))
        checks.equal("tablestats: limit and refused writes", (stats["In-memory size limit"], stats["In-memory refused writes"]), (limit, 1))
        checks.equal("tablestats: warnings", [stats[f"In-memory warnings at {percent}%"] for percent in (80, 95)], [1, 1])
        checks.true("tablestats: what the data take", stats["AllMemtablesOffHeapDataSize"] >= stats["AllMemtablesLiveDataSize"] >= used, str(stats))
        log = (node.directory / "log").read_text()
        for percent in (80, 95):
            checks.equal(f"warnings at {percent}%", log.count(f"table ks.t lives in memory and takes {percent}%"), 1)
        node.kill()
        node.launch()
        with Connection(node.host, node.port) as connection:
            checks.equal("rows after kill -9", len(connection.query("SELECT k FROM ks.t").rows), written)
            checks.true("it is as full as before", isinstance(connection.query(insert(written)), Error))
            connection.query("DELETE FROM ks.t WHERE k = 0")
            checks.true("what was deleted is free", not isinstance(connection.query(insert(written)), Error))


def table(name: str, size_limit_mb: int) -> str:
    return (f"CREATE TABLE ks.{name} (k int PRIMARY KEY, v text) WITH compaction = {{'class': 'MemoryOnlyStrategy', "
            f"'size_limit_in_mb': {size_limit_mb}}} AND caching = 'NONE'")


def insert(key: int) -> str:
    return f"INSERT INTO ks.t (k, v) VALUES ({key}, '{VALUE}')"


def fill(connection: Connection) -> tuple[int, Error]:
    """Returns the number of rows that there was room for, and the error that refused the next one."""
    for key in range(1000):
        answer = connection.query(insert(key))
        if isinstance(answer, Error):
            return key, answer
    raise RuntimeError("a table of 1 MB takes 10 MB")


def size(count: int) -> list[str]:
    """Returns a size as the command prints it."""
    return [f"{count / 1024:.2f}", "KiB"] if count < 1 << 20 else [f"{count / 2**20:.2f}", "MiB"]


def figures(tablestats: str) -> dict[str, int]:
    lines = (line.strip().rpartition(": ") for line in tablestats.splitlines())
    return {name: int(value) for name, _, value in lines if value.isdigit()}
