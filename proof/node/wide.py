"""Rows of a thousand and of ten thousand columns, and large collections: written whole, sparsely and column by column,
read from memory, from tables, and after a restart that replays the log."""

import struct

from proof.drivers.checks import Checks
from proof.oracle.espalier import Espalier
from proof.wire import Connection, Error, QueryOptions

CREATE = "CREATE KEYSPACE wide WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"
ELEMENTS = 20_000


def wide_rows(checks: Checks) -> None:
    with Espalier.start(commitlog_sync="batch") as node:
        with Connection(node.host, node.port) as connection:
            done(connection, CREATE)
            for columns in (1_000, 10_000):
                write(connection, columns)
            fill_collections(connection)
            check(checks, connection, "memory")
        node.kill()
        node.launch()
        with Connection(node.host, node.port) as connection:
            check(checks, connection, "replayed")
        node.flush("wide")
        with Connection(node.host, node.port) as connection:
            check(checks, connection, "tables")
            done(connection, "UPDATE wide.t10000 SET c77 = 'later' WHERE k = 1")
            done(connection, "DELETE c78 FROM wide.t10000 WHERE k = 1")
            answer = connection.query("SELECT c76, c77, c78 FROM wide.t10000 WHERE k = 1")
            checks.equal("10000: memory over tables", [list(row) for row in answer.rows], [[b"value 76", b"later", None]])


def done(connection: Connection, cql: str, options: QueryOptions = QueryOptions()) -> None:
    answer = connection.query(cql, options)
    if isinstance(answer, Error):
        raise RuntimeError(f"{cql[:200]}: {answer}")


def write(connection: Connection, columns: int) -> None:
    names = [f"c{place}" for place in range(columns)]
    done(connection, f"CREATE TABLE wide.t{columns} (k int PRIMARY KEY, {', '.join(f'{name} text' for name in names)})")
    insert = connection.prepare(f"INSERT INTO wide.t{columns} (k, {', '.join(names)}) VALUES (?{', ?' * columns})")
    values = [struct.pack(">i", 1), *(f"value {place}".encode() for place in range(columns))]
    answer = connection.execute(insert, QueryOptions(values=tuple(values)))
    if isinstance(answer, Error):
        raise RuntimeError(str(answer))
    # Sparse rows: three columns each.
    for key in range(2, 12):
        done(connection, f"INSERT INTO wide.t{columns} (k, c1, c500, c{columns - 1}) VALUES ({key}, 'a', 'b', 'c')")
    for place in range(0, columns, columns // 10):
        done(connection, f"UPDATE wide.t{columns} SET c{place} = 'updated' WHERE k = 1")


def fill_collections(connection: Connection) -> None:
    done(connection, "CREATE TABLE wide.many (k int, c int, l list<int>, s set<int>, m map<int, text>, PRIMARY KEY (k, c))")
    step = 2_000
    for start in range(0, ELEMENTS, step):
        numbers = range(start, start + step)
        listed = ", ".join(str(number) for number in numbers)
        mapped = ", ".join(f"{number}: 'v'" for number in numbers)
        done(connection, f"UPDATE wide.many SET l = l + [{listed}], s = s + {{{listed}}}, m = m + {{{mapped}}} WHERE k = 1 AND c = 1")
    done(connection, "UPDATE wide.many SET m[7] = 'seven' WHERE k = 1 AND c = 1")
    done(connection, "DELETE m[8], s[9] FROM wide.many WHERE k = 1 AND c = 1")
    done(connection, f"UPDATE wide.many SET l = l + [{ELEMENTS}] WHERE k = 1 AND c = 1")


def numbers_of(value: bytes) -> list[int]:
    count = struct.unpack_from(">i", value)[0]
    return [struct.unpack_from(">i", value, 8 + 8 * place)[0] for place in range(count)]


def check(checks: Checks, connection: Connection, where: str) -> None:
    for columns in (1_000, 10_000):
        expected = {f"c{place}": b"updated" if place % (columns // 10) == 0 else f"value {place}".encode() for place in range(columns)}
        answer = connection.query(f"SELECT * FROM wide.t{columns} WHERE k = 1")
        names = [name for _, _, name, _ in answer.metadata.columns]
        found = dict(zip(names[1:], answer.rows[0][1:]))
        checks.true(f"{columns} columns, {where}: *", found == expected, str([name for name in expected if found.get(name) != expected[name]][:10]))
        wanted = [f"c{columns - 1}", "c0", f"c{columns // 2 + 1}"]
        answer = connection.query(f"SELECT {', '.join(wanted)} FROM wide.t{columns} WHERE k = 1")
        checks.equal(f"{columns} columns, {where}: three of them", [list(row) for row in answer.rows], [[expected[name] for name in wanted]])
        answer = connection.query(f"SELECT * FROM wide.t{columns} WHERE k = 5")
        found = {name: value for name, value in zip(names[1:], answer.rows[0][1:]) if value is not None}
        checks.equal(f"{columns} columns, {where}: sparse", found, {"c1": b"a", "c500": b"b", f"c{columns - 1}": b"c"})
    [(elements, sets, entries)] = connection.query("SELECT l, s, m FROM wide.many WHERE k = 1 AND c = 1").rows
    checks.true(f"list, {where}", numbers_of(elements) == list(range(ELEMENTS + 1)), str(len(elements)))
    checks.true(f"set, {where}", numbers_of(sets) == [n for n in range(ELEMENTS) if n != 9], str(len(sets)))
    checks.equal(f"map, {where}: entries", struct.unpack_from(">i", entries)[0], ELEMENTS - 1)
    checks.true(f"map, {where}: the one updated", struct.pack(">ii", 4, 7) + struct.pack(">i", 5) + b"seven" in entries)
