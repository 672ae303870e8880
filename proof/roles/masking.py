"""Dynamic data masking: schemas with masks, and what roles with and without UNMASK and SELECT_MASKED read.

Every statement is sent to both nodes, and every answer is compared: the error, or the columns with their types and the
rows. docs/differences.md names what differs on purpose: Cassandra keeps the rows of dropped masks, so that no statement
here reads them, and it does not accept an apostrophe in a mask's argument.
"""

from collections.abc import Iterator

from proof.wire import Connection, Error, Prepared, QueryOptions, Rows

SETUP = [
    "CREATE KEYSPACE mk WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
    "CREATE KEYSPACE mk2 WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
    "CREATE TYPE mk.pair (a int, b text)",
    # Every part of a row that can be masked.
    "CREATE TABLE mk.t (k int MASKED WITH mask_default(), c text MASKED WITH mask_replace('cc'), s text STATIC MASKED WITH "
    "mask_inner(1, 1), n int MASKED WITH mask_null(), x text MASKED WITH mask_outer(1, 2, '#'), open int, "
    "m map<int, text> MASKED WITH DEFAULT, fs frozen<set<int>> MASKED WITH mask_replace({7, 9}), l list<int> MASKED WITH mask_null(), "
    "u mk.pair MASKED WITH DEFAULT, PRIMARY KEY (k, c))",
    "INSERT INTO mk.t (k, c, s, n, x, open, m, fs, l, u) VALUES (1, 'one', 'static', 11, 'abcdef', 111, {1: 'i', 2: 'ii'}, {1, 2}, "
    "[1, 2], {a: 1, b: 'bb'})",
    "INSERT INTO mk.t (k, c, n, x, open, m, fs, l, u) VALUES (1, 'two', 22, 'ghijkl', 222, {3: 'iii'}, {3}, [3], {a: 2, b: 'cc'})",
    "INSERT INTO mk.t (k, c, open) VALUES (2, 'none', 333)",
    # Each type with its default mask.
    "CREATE TABLE mk.types (k int PRIMARY KEY, a ascii MASKED WITH DEFAULT, bi bigint MASKED WITH DEFAULT, bl blob MASKED WITH DEFAULT, "
    "bo boolean MASKED WITH DEFAULT, da date MASKED WITH DEFAULT, de decimal MASKED WITH DEFAULT, d double MASKED WITH DEFAULT, "
    "du duration MASKED WITH DEFAULT, f float MASKED WITH DEFAULT, i inet MASKED WITH DEFAULT, si smallint MASKED WITH DEFAULT, "
    "t text MASKED WITH DEFAULT, ti time MASKED WITH DEFAULT, ts timestamp MASKED WITH DEFAULT, tu timeuuid MASKED WITH DEFAULT, "
    "ty tinyint MASKED WITH DEFAULT, u uuid MASKED WITH DEFAULT, v varchar MASKED WITH DEFAULT, vi varint MASKED WITH DEFAULT, "
    "l list<int> MASKED WITH DEFAULT, s set<text> MASKED WITH DEFAULT, tup tuple<int, text> MASKED WITH DEFAULT, "
    "vec vector<float, 2> MASKED WITH DEFAULT)",
    "INSERT INTO mk.types (k, a, bi, bl, bo, da, de, d, du, f, i, si, t, ti, ts, tu, ty, u, v, vi, l, s, tup, vec) VALUES (1, 'a', 1, 0x01, "
    "true, '2020-01-01', 1.5, 1.5, 1d, 1.5, '1.2.3.4', 1, 't', '01:02:03', '2020-01-01', 5a1c395e-b41f-11e5-9f22-ba0be0483c18, 1, "
    "5a1c395e-b41f-11e5-9f22-ba0be0483c18, 'v', 1, [1], {'s'}, (1, 'x'), [1, 2])",
    "INSERT INTO mk.types (k) VALUES (2)",
    "CREATE TABLE mk.counts (k int PRIMARY KEY, n counter MASKED WITH DEFAULT)",
    "UPDATE mk.counts SET n = n + 5 WHERE k = 1",
    # Masked keys of several parts, and an order that is reversed.
    "CREATE TABLE mk.keys (a int MASKED WITH mask_replace(0), b text, c int MASKED WITH mask_replace(-1), d text MASKED WITH DEFAULT, v int, "
    "PRIMARY KEY ((a, b), c, d)) WITH CLUSTERING ORDER BY (c DESC, d ASC)",
    "INSERT INTO mk.keys (a, b, c, d, v) VALUES (1, 'b', 1, 'd', 1)",
    "INSERT INTO mk.keys (a, b, c, d, v) VALUES (1, 'b', 2, 'e', 2)",
    "INSERT INTO mk.keys (a, b, c, d, v) VALUES (2, 'b', 3, 'f', 3)",
    "CREATE TABLE mk.open (k int PRIMARY KEY, v text)",
    "INSERT INTO mk.open (k, v) VALUES (1, 'clear')",
    "CREATE TABLE mk.\"Named\" (k int PRIMARY KEY, \"V\" text MASKED WITH mask_outer(1, null))",
    # Masked columns with indexes of both kinds.
    "CREATE TABLE mk.idx (k int, c int, t text MASKED WITH mask_inner(1, 1), n int MASKED WITH DEFAULT, o int, p text MASKED WITH DEFAULT, "
    "e set<text> MASKED WITH DEFAULT, v vector<float, 2> MASKED WITH DEFAULT, PRIMARY KEY (k, c))",
    "CREATE INDEX ON mk.idx (t) USING 'sai'",
    "CREATE INDEX ON mk.idx (n) USING 'sai'",
    "CREATE INDEX ON mk.idx (o) USING 'sai'",
    "CREATE INDEX ON mk.idx (p)",
    "CREATE INDEX ON mk.idx (e) USING 'sai'",
    "CREATE INDEX ON mk.idx (v) USING 'sai'",
    "INSERT INTO mk.idx (k, c, t, n, o, p, e, v) VALUES (1, 1, 'alpha', 1, 10, 'pa', {'x'}, [1, 1])",
    "INSERT INTO mk.idx (k, c, t, n, o, p, e, v) VALUES (1, 2, 'beta', 2, 10, 'pb', {'y', 'x'}, [1, 2])",
    "INSERT INTO mk.idx (k, c, t, n, o, p, e, v) VALUES (1, 3, 'gamma', 3, 20, 'pa', {'z'}, [9, 1])",
    "CREATE TABLE mk.ddl (k int, c int, s text STATIC, v int, t text, a ascii, l list<int>, f frozen<list<int>>, m map<text, int>, "
    "ts timestamp, b blob, u frozen<pair>, PRIMARY KEY (k, c))",
]

ROLES = [
    ("m_clear", ["GRANT SELECT, MODIFY, UNMASK ON KEYSPACE mk TO {role}"]),
    ("m_both", ["GRANT SELECT, MODIFY ON KEYSPACE mk TO {role}", "GRANT UNMASK ON mk.t TO {role}", "GRANT SELECT_MASKED ON KEYSPACE mk TO {role}"]),
    ("m_asks", ["GRANT SELECT, MODIFY, SELECT_MASKED ON KEYSPACE mk TO {role}"]),
    ("m_plain", ["GRANT SELECT, MODIFY ON KEYSPACE mk TO {role}"]),
    ("m_unmask_only", ["GRANT UNMASK ON ALL KEYSPACES TO {role}"]),
    ("m_all", ["GRANT ALL ON KEYSPACE mk TO {role}"]),
    ("m_heir", ["GRANT m_clear TO {role}"]),
    ("m_super", ["ALTER ROLE {role} WITH SUPERUSER = true"]),
]

# Sent by every role, as text and prepared.
READS = [
    "SELECT * FROM mk.t",
    "SELECT * FROM mk.t WHERE k = 1",
    "SELECT * FROM mk.t WHERE k = 1 AND c = 'one'",
    "SELECT * FROM mk.t WHERE token(k) > -9223372036854775808",
    "SELECT open FROM mk.t WHERE k IN (1, 2)",
    "SELECT open FROM mk.t WHERE open = 111 ALLOW FILTERING",
    "SELECT n FROM mk.t WHERE n = 11 ALLOW FILTERING",
    "SELECT open FROM mk.t WHERE n = 11 ALLOW FILTERING",
    "SELECT open FROM mk.t WHERE n = 11 AND x = 'a' AND s = 's' ALLOW FILTERING",
    "SELECT open FROM mk.t WHERE m CONTAINS 'i' ALLOW FILTERING",
    "SELECT open FROM mk.t WHERE m[1] = 'i' ALLOW FILTERING",
    "SELECT open FROM mk.t WHERE k = 1 AND (c) > ('a')",
    "SELECT k, c, s, n, x FROM mk.t LIMIT 2",
    "SELECT x AS y, n FROM mk.t PER PARTITION LIMIT 1",
    "SELECT DISTINCT k FROM mk.t",
    "SELECT DISTINCT k, s FROM mk.t",
    "SELECT JSON * FROM mk.t",
    "SELECT JSON k, x FROM mk.t",
    "SELECT count(*), count(n), count(x) FROM mk.t",
    "SELECT max(x), min(x), max(n), sum(n), avg(n), max(open) FROM mk.t",
    "SELECT max(k), max(c) FROM mk.t",
    "SELECT k, max(open) FROM mk.t GROUP BY k",
    "SELECT k, c, x, max(n) FROM mk.t GROUP BY k, c",
    "SELECT writetime(open) = 0 FROM mk.t",
    "SELECT ttl(x), ttl(n) FROM mk.t",
    "SELECT CAST(n AS text), CAST(k AS bigint) FROM mk.t",
    "SELECT mask_inner(x, 1, 1), mask_hash(x), mask_default(open) FROM mk.t",
    "SELECT n + 1, k + open FROM mk.t",
    "SELECT token(k) FROM mk.t",
    "SELECT m[1], fs, u.a, u.b FROM mk.t",
    "SELECT m[1..2] FROM mk.t",
    "SELECT fs[1], fs[7], fs[7..8] FROM mk.t",
    "SELECT map_keys(m), collection_count(l), to_json(u), to_json(x) FROM mk.t",
    "SELECT (k, c, x) FROM mk.t",
    "SELECT [k, open] FROM mk.t",
    "SELECT {k: x} FROM mk.t",
    "SELECT (text) x, (int) k FROM mk.t",
    "SELECT * FROM mk.t WHERE k = 1 ORDER BY c DESC",
    "SELECT open, c FROM mk.t WHERE k IN (1, 2) ORDER BY c DESC",
    "SELECT open FROM mk.t WHERE k IN (1, 2) ORDER BY c ASC",
    "SELECT * FROM mk.types",
    "SELECT * FROM mk.types WHERE k = 1",
    "SELECT * FROM mk.types WHERE t = 't' ALLOW FILTERING",
    "SELECT * FROM mk.counts",
    "SELECT n FROM mk.counts WHERE k = 1",
    "SELECT * FROM mk.keys",
    "SELECT * FROM mk.keys WHERE a = 1 AND b = 'b'",
    "SELECT v FROM mk.keys WHERE a = 1 AND b = 'b' AND c = 1 AND d = 'd'",
    "SELECT v, c FROM mk.keys WHERE a IN (1, 2) AND b = 'b' ORDER BY c ASC, d DESC",
    "SELECT a, b, count(*) FROM mk.keys GROUP BY a, b",
    "SELECT a, b, c, count(v) FROM mk.keys GROUP BY a, b, c",
    "SELECT v FROM mk.keys WHERE b = 'b' ALLOW FILTERING",
    "SELECT token(a, b) FROM mk.keys WHERE token(a, b) > 0",
    "SELECT token(a, b) FROM mk.keys WHERE (c, d) > (1, 'a') ALLOW FILTERING",
    "SELECT DISTINCT a, b FROM mk.keys",
    "SELECT * FROM mk.idx WHERE t = 'alpha'",
    "SELECT o FROM mk.idx WHERE t = 'alpha' AND k = 1",
    "SELECT t, n FROM mk.idx WHERE o = 10",
    "SELECT t FROM mk.idx WHERE o > 10",
    "SELECT o FROM mk.idx WHERE n > 1",
    "SELECT o FROM mk.idx WHERE n > 1 AND o = 10",
    "SELECT o FROM mk.idx WHERE p = 'pa'",
    "SELECT p FROM mk.idx WHERE o = 10 AND p = 'pa' ALLOW FILTERING",
    "SELECT e FROM mk.idx WHERE e CONTAINS 'x'",
    "SELECT o FROM mk.idx ORDER BY v ANN OF [1, 1] LIMIT 2",
    "SELECT v, o FROM mk.idx WHERE o = 10 ORDER BY v ANN OF [1, 1] LIMIT 2",
    "SELECT similarity_cosine(v, [1, 1]) FROM mk.idx WHERE k = 1",
    "SELECT o, similarity_cosine(v, [1, 1]) FROM mk.idx ORDER BY v ANN OF [1, 1] LIMIT 2",
    "SELECT JSON t, n, e FROM mk.idx WHERE o = 10",
    "SELECT count(t), max(t), min(n), sum(n) FROM mk.idx WHERE o = 10",
    "SELECT k, c, max(t) FROM mk.idx GROUP BY k, c",
    "SELECT k, o, max(n) FROM mk.idx GROUP BY k ALLOW FILTERING",
    "SELECT writetime(t) = writetime(n) FROM mk.idx",
    "SELECT writetime(t) > 0, writetime(e) > [0], ttl(p) FROM mk.idx WHERE o = 20",
    "SELECT maxwritetime(e) > 0, maxwritetime(t) > 0 FROM mk.idx WHERE o = 20",
    "SELECT DISTINCT k FROM mk.idx WHERE k = 1",
    "SELECT t FROM mk.idx PER PARTITION LIMIT 1",
    "SELECT t FROM mk.idx WHERE n = 2 ALLOW FILTERING",
    "SELECT t FROM mk.idx WHERE n IN (1, 2) ALLOW FILTERING",
    "SELECT o FROM mk.idx WHERE k = 1 AND c IN (1, 2) AND t = 'beta'",
    "SELECT mask_replace(t, 'r'), mask_null(n), mask_inner(p, 1, 0) FROM mk.idx WHERE k = 1 AND c = 1",
    "SELECT cast(n AS text), n + o, -n FROM mk.idx WHERE k = 1 AND c = 1",
    "SELECT e['x'], e['x'..'y'] FROM mk.idx",
    "UPDATE mk.idx SET o = 10 WHERE k = 1 AND c = 1 IF t = 'nothing'",
    "SELECT * FROM mk.open",
    "SELECT * FROM mk.open WHERE k = 1",
    "INSERT INTO mk.t (k, c, n, open) VALUES (9, 'nine', 9, 9)",
    "UPDATE mk.t SET n = 10 WHERE k = 9 AND c = 'nine'",
    "DELETE FROM mk.t WHERE k = 9",
    "INSERT INTO mk.t (k, c, n) VALUES (1, 'one', 5) IF NOT EXISTS",
    "UPDATE mk.t SET open = 111 WHERE k = 1 AND c = 'one' IF n = 5",
    "UPDATE mk.t SET open = 111 WHERE k = 1 AND c = 'one' IF n = 11",
    "UPDATE mk.t SET open = 111 WHERE k = 1 AND c = 'one' IF x = 'z' AND s = 'z' AND open = 3",
    "DELETE open FROM mk.t WHERE k = 1 AND c = 'one' IF m[1] = 'z'",
    "BEGIN BATCH INSERT INTO mk.t (k, c, n) VALUES (1, 'one', 5) IF NOT EXISTS; APPLY BATCH",
    "SELECT keyspace_name, table_name, column_name FROM system_schema.column_masks WHERE keyspace_name = 'mk2'",
    "ALTER TABLE mk.t ALTER open DROP MASKED",
    "DESCRIBE TABLE mk.\"Named\"",
]

# Sent by the superuser, in this order.
SCHEMAS = [
    "SELECT * FROM system_schema.column_masks WHERE keyspace_name = 'mk'",
    "DESCRIBE TABLE mk.t",
    "DESCRIBE TABLE mk.keys",
    "DESCRIBE TABLE mk.types",
    "DESCRIBE TABLE mk.counts",
    "DESCRIBE TABLE system_schema.column_masks",
    "CREATE TABLE mk.x1 (k int PRIMARY KEY, v int MASKED WITH mask_null)",
    "CREATE TABLE mk.x1 (k int PRIMARY KEY, v int MASKED WITH nosuch())",
    "CREATE TABLE mk.x1 (k int PRIMARY KEY, v int MASKED WITH mk.nosuch(1, 'a'))",
    "CREATE TABLE mk.x1 (k int PRIMARY KEY, v int MASKED WITH mk2.nosuch())",
    "CREATE TABLE mk.x1 (k int PRIMARY KEY, v int MASKED WITH system.mask_default())",
    "DROP TABLE mk.x1",
    "CREATE TABLE mk.x1 (k int PRIMARY KEY, v int MASKED WITH max())",
    "CREATE TABLE mk.x1 (k int PRIMARY KEY, v int MASKED WITH system.max())",
    "CREATE TABLE mk.x1 (k int PRIMARY KEY, v int MASKED WITH count())",
    "CREATE TABLE mk.x1 (k int PRIMARY KEY, v int MASKED WITH abs())",
    "CREATE TABLE mk.x1 (k int PRIMARY KEY, v int MASKED WITH now())",
    "CREATE TABLE mk.x1 (k int PRIMARY KEY, v int MASKED WITH to_json())",
    "CREATE TABLE mk.x1 (k int PRIMARY KEY, v int MASKED WITH mask_default(1))",
    "CREATE TABLE mk.x1 (k int PRIMARY KEY, v int MASKED WITH mask_null('a', 2))",
    "CREATE TABLE mk.x1 (k int PRIMARY KEY, v int MASKED WITH mask_replace())",
    "CREATE TABLE mk.x1 (k int PRIMARY KEY, v int MASKED WITH mask_replace('a'))",
    "CREATE TABLE mk.x1 (k int PRIMARY KEY, v int MASKED WITH mask_replace(1, 2))",
    "CREATE TABLE mk.x1 (k int PRIMARY KEY, v int MASKED WITH mask_replace(99999999999))",
    "CREATE TABLE mk.x1 (k int PRIMARY KEY, v int MASKED WITH mask_replace(1 + 1))",
    "DESCRIBE TABLE mk.x1",
    "DROP TABLE mk.x1",
    "CREATE TABLE mk.x1 (k int PRIMARY KEY, v int MASKED WITH mask_replace((int) 1))",
    "DROP TABLE mk.x1",
    "CREATE TABLE mk.x1 (k int PRIMARY KEY, v uuid MASKED WITH mask_replace(now()))",
    "DROP TABLE mk.x1",
    "CREATE TABLE mk.x1 (k int PRIMARY KEY, v timeuuid MASKED WITH mask_replace(now()))",
    "DROP TABLE mk.x1",
    "CREATE TABLE mk.x1 (k int PRIMARY KEY, v int MASKED WITH mask_inner(1, 1))",
    "CREATE TABLE mk.x1 (k int PRIMARY KEY, v text MASKED WITH mask_inner())",
    "CREATE TABLE mk.x1 (k int PRIMARY KEY, v text MASKED WITH mask_inner(1))",
    "CREATE TABLE mk.x1 (k int PRIMARY KEY, v text MASKED WITH mask_inner('a', 1))",
    "CREATE TABLE mk.x1 (k int PRIMARY KEY, v text MASKED WITH mask_inner(1, 1, '#', 1))",
    "CREATE TABLE mk.x1 (k int PRIMARY KEY, v text MASKED WITH mask_inner(1, 1, '##'))",
    "SELECT * FROM mk.x1",
    "INSERT INTO mk.x1 (k, v) VALUES (1, 'abc')",
    "SELECT * FROM mk.x1",
    "DROP TABLE mk.x1",
    "CREATE TABLE mk.x1 (k int PRIMARY KEY, v text MASKED WITH mask_hash())",
    "CREATE TABLE mk.x1 (k int PRIMARY KEY, v blob MASKED WITH mask_hash())",
    "DROP TABLE mk.x1",
    "CREATE TABLE mk.x1 (k int PRIMARY KEY, v blob MASKED WITH mask_hash('SHA-512'))",
    "DROP TABLE mk.x1",
    "CREATE TABLE mk.x1 (k int PRIMARY KEY, v blob MASKED WITH mask_hash('nosuch'))",
    "SELECT * FROM mk.x1",
    "DROP TABLE mk.x1",
    "CREATE TABLE mk.x1 (k int PRIMARY KEY, v blob MASKED WITH mask_hash(null))",
    "DROP TABLE mk.x1",
    "CREATE TABLE mk.x1 (k int MASKED WITH DEFAULT PRIMARY KEY, v int)",
    "DESCRIBE TABLE mk.x1",
    "DROP TABLE mk.x1",
    "CREATE TABLE mk.x1 (k int PRIMARY KEY MASKED WITH DEFAULT, v int)",
    "CREATE TABLE mk.x1 (k int PRIMARY KEY, v int STATIC MASKED WITH DEFAULT)",
    "CREATE TABLE mk.x1 (k int PRIMARY KEY, v int MASKED WITH DEFAULT STATIC)",
    "CREATE TABLE mk.x1 (k int PRIMARY KEY, v duration MASKED WITH mask_replace(1d), w tuple<int, text> MASKED WITH mask_replace((1, 'a')))",
    "DESCRIBE TABLE mk.x1",
    "DROP TABLE mk.x1",
    "CREATE TABLE mk.constants (k int PRIMARY KEY, v vector<int, 2> MASKED WITH mask_replace([1, 2]), w frozen<pair> MASKED WITH "
    "mask_replace({a: 1, b: 'it:s@'}), x map<text, frozen<list<int>>> MASKED WITH mask_replace({'a': [1, 2]}), y inet MASKED WITH "
    "mask_replace('1.2.3.4'), z double MASKED WITH mask_replace(NaN), aa boolean MASKED WITH mask_replace(true), ab blob MASKED WITH "
    "mask_replace(0xCAFE), ac timestamp MASKED WITH mask_replace('2020-01-02'), ad text MASKED WITH mask_replace(null), "
    "ae decimal MASKED WITH mask_replace(1.50), af date MASKED WITH mask_replace('2020-01-02'), ag time MASKED WITH mask_replace('01:02:03'), "
    "ah tuple<int, frozen<tuple<text, int>>, frozen<list<int>>, blob, timestamp, date, time, inet, double> MASKED WITH "
    "mask_replace((1, ('a:b', null), [1], 0x01, 0, '2020-01-01', '01:01:01', '::1', 1.5)), ai float MASKED WITH mask_replace(1e30), "
    "aj bigint MASKED WITH mask_replace(7), ak smallint MASKED WITH mask_replace(7), al tinyint MASKED WITH mask_replace(7), "
    "am varint MASKED WITH mask_replace(7), an uuid MASKED WITH mask_replace(00000000-0000-0000-0000-000000000000), "
    "ao ascii MASKED WITH mask_replace('a'), ap duration MASKED WITH mask_replace(1mo2d3h), aq vector<text, 2> MASKED WITH "
    "mask_replace(['a', 'b']), ar tuple<int, int> MASKED WITH mask_replace(null), \"as\" set<text> MASKED WITH mask_replace({'x', 'y'}), "
    "at vector<frozen<pair>, 1> MASKED WITH mask_replace([{a: 1, b: 'x'}]), au decimal MASKED WITH mask_replace(1e20), "
    "av list<frozen<pair>> MASKED WITH DEFAULT, aw decimal MASKED WITH mask_replace(1e-20), ax double MASKED WITH mask_replace(1e30), "
    "ay double MASKED WITH mask_replace(-Infinity))",
    "DESCRIBE TABLE mk.constants",
    "SELECT * FROM system_schema.column_masks WHERE keyspace_name = 'mk' AND table_name = 'constants'",
    "CREATE TABLE mk2.copy LIKE mk.x1",
    "ALTER TABLE mk.ddl ALTER v MASKED WITH mask_default()",
    "DESCRIBE TABLE mk.ddl",
    "ALTER TABLE mk.ddl ALTER v MASKED WITH mask_replace(5)",
    "ALTER TABLE mk.ddl ALTER t MASKED WITH mask_replace('a')",
    "ALTER TABLE mk.ddl ALTER a MASKED WITH mask_replace('b')",
    "ALTER TABLE mk.ddl ALTER a MASKED WITH mask_inner(null, 2, 'x')",
    "ALTER TABLE mk.ddl ALTER k MASKED WITH mask_null()",
    "ALTER TABLE mk.ddl ALTER c MASKED WITH mask_null()",
    "ALTER TABLE mk.ddl ALTER s MASKED WITH mask_null()",
    "ALTER TABLE mk.ddl ALTER l MASKED WITH mask_replace([1])",
    "ALTER TABLE mk.ddl ALTER f MASKED WITH mask_replace([1])",
    "ALTER TABLE mk.ddl ALTER m MASKED WITH mask_replace({})",
    "ALTER TABLE mk.ddl ALTER b MASKED WITH mask_hash('MD5')",
    "ALTER TABLE mk.ddl ALTER u MASKED WITH mask_replace({a: 1})",
    "ALTER TABLE mk.ddl ALTER ts MASKED WITH mask_replace(0)",
    "SELECT * FROM system_schema.column_masks WHERE keyspace_name = 'mk' AND table_name = 'ddl'",
    "DESCRIBE TABLE mk.ddl",
    "ALTER TABLE mk.ddl ALTER nosuch MASKED WITH mask_null()",
    "ALTER TABLE mk.ddl ALTER nosuch DROP MASKED",
    "ALTER TABLE mk.ddl ALTER IF EXISTS nosuch MASKED WITH mask_null()",
    "ALTER TABLE mk.ddl ALTER IF EXISTS nosuch DROP MASKED",
    "ALTER TABLE mk.nosuch ALTER v DROP MASKED",
    "ALTER TABLE IF EXISTS mk.nosuch ALTER v DROP MASKED",
    "ALTER TABLE mk.ddl ALTER v MASKED WITH nosuch()",
    "ALTER TABLE mk.ddl ALTER v MASKED WITH mask_hash()",
    "ALTER TABLE mk.ddl ALTER v MASKED WITH mask_inner(1, 2)",
    "ALTER TABLE mk.ddl ALTER v MASKED WITH mask_replace('a')",
    "ALTER TABLE mk.ddl ALTER k DROP MASKED",
    "ALTER TABLE mk.ddl ALTER v DROP MASKED",
    "ALTER TABLE mk.ddl ALTER v DROP MASKED",
    "ALTER TABLE mk.ddl ALTER IF EXISTS t DROP MASKED",
    "ALTER TABLE mk.ddl DROP a",
    "ALTER TABLE mk.ddl RENAME c TO cc",
    "ALTER TABLE mk.ddl ADD a ascii",
    "ALTER TABLE mk.ddl ADD p text MASKED WITH mask_inner(1, 2), q int MASKED WITH DEFAULT, r int",
    "ALTER TABLE mk.ddl ADD ss int STATIC MASKED WITH mask_replace(1)",
    "ALTER TABLE mk.ddl ADD w int MASKED WITH nosuch()",
    "ALTER TABLE mk.ddl ADD IF NOT EXISTS p int MASKED WITH mask_replace(1)",
    "ALTER TABLE mk.ddl WITH comment = 'kept'",
    "DESCRIBE TABLE mk.ddl",
    "ALTER TABLE system_schema.tables ALTER comment MASKED WITH mask_null()",
    "ALTER TABLE system_auth.roles ALTER salted_hash MASKED WITH mask_null()",
    "CREATE TABLE mk.y1 (k int PRIMARY KEY, v text MASKED WITH mask_inner(1, 1, '##'), w int)",
    "SELECT k, w FROM mk.y1",
    "SELECT k FROM mk.y1 WHERE v = 'a' ALLOW FILTERING",
    "SELECT writetime(v) FROM mk.y1",
    "SELECT v FROM mk.y1 WHERE k = 1",
    "SELECT count(v) FROM mk.y1",
    "INSERT INTO mk.y1 (k, v) VALUES (1, 'a') IF NOT EXISTS",
    "INSERT INTO mk.y1 (k, v) VALUES (1, 'a') IF NOT EXISTS",
    "CREATE TABLE mk.y2 (k int, c int MASKED WITH mask_replace(3), v int MASKED WITH DEFAULT, PRIMARY KEY (k, c)) "
    "WITH CLUSTERING ORDER BY (c DESC)",
    "SELECT * FROM system_schema.column_masks WHERE keyspace_name = 'mk' AND table_name = 'y2'",
    "ALTER TABLE mk.y2 RENAME c TO cc",
    "DESCRIBE TABLE mk.y2",
    "ALTER TABLE mk.y2 ADD v int MASKED WITH nosuch()",
    "ALTER TABLE mk.y2 ADD v int MASKED WITH DEFAULT",
    "ALTER TABLE mk.y2 ADD (a int MASKED WITH DEFAULT, b int)",
    "DESCRIBE TABLE mk.y2",
    "CREATE TABLE mk.y3 (k int PRIMARY KEY, v int MASKED WITH mask_replace(v))",
    "CREATE TABLE mk.y3 (k int PRIMARY KEY, v int MASKED WITH MASK_DEFAULT())",
    "CREATE TABLE mk.y3 (k int PRIMARY KEY, v int MASKED WITH nosuch())",
    "CREATE TABLE IF NOT EXISTS mk.y3 (k int PRIMARY KEY, v int MASKED WITH nosuch())",
    "CREATE TABLE nosuch.y3 (k int PRIMARY KEY, v int MASKED WITH nosuch())",
    "CREATE TABLE mk.y4 (k int PRIMARY KEY, v int MASKED WITH system.nosuch('a', 1))",
    "CREATE TABLE mk.y4 (k int PRIMARY KEY, v int MASKED WITH \"Mask\"(), w nosuch)",
    "CREATE TABLE mk.y4 (k int PRIMARY KEY, v int MASKED WITH nosuch(), w nosuch)",
    "CREATE TABLE mk.y4 (k int, v int MASKED WITH nosuch(), PRIMARY KEY (z))",
    "CREATE TABLE mk.y4 (k int PRIMARY KEY, v int MASKED WITH nosuch()) WITH nonsense = 1",
    "CREATE TABLE mk.y4 (k int PRIMARY KEY, v int MASKED WITH nosuch()) WITH CLUSTERING ORDER BY (q ASC)",
    "CREATE TABLE mk.y4 (k int PRIMARY KEY, bb int MASKED WITH nosuch(), aa int MASKED WITH nosuch())",
    "CREATE TABLE mk.y4 (k int PRIMARY KEY, v frozen<list<int>> MASKED WITH mask_replace([1, null]))",
    "CREATE TABLE mk.y4 (k int PRIMARY KEY, v list<int> MASKED WITH mask_inner(1, 1))",
    "CREATE TABLE mk.y4 (k int PRIMARY KEY, v varchar MASKED WITH mask_inner(1, 1, 1))",
    "CREATE TABLE mk.y4 (k int PRIMARY KEY, v ascii MASKED WITH mask_inner(1, 1.5))",
    "CREATE TABLE mk.y4 (k int PRIMARY KEY, v ascii MASKED WITH mask_replace('é'))",
    "CREATE TABLE mk.y4 (k int PRIMARY KEY, v frozen<pair> MASKED WITH mask_replace({a: 1, z: 2}))",
    "CREATE TABLE mk.y4 (k int PRIMARY KEY, v frozen<pair> MASKED WITH mask_replace({a: 'x'}))",
    "CREATE TABLE mk.y4 (k int PRIMARY KEY, v text MASKED WITH mask_hash('SHA-1'))",
    "CREATE TABLE mk.y4 (k int PRIMARY KEY, v blob MASKED WITH mask_hash(1))",
    "CREATE TABLE mk.y4 (k int PRIMARY KEY, v text MASKED WITH count())",
    "CREATE TABLE mk.y4 (k int PRIMARY KEY, v int MASKED WITH sum())",
    "CREATE TABLE mk.y4 (k int PRIMARY KEY, v vector<float, 2> MASKED WITH similarity_cosine([1, 2]))",
    "CREATE TABLE mk.y4 (k int PRIMARY KEY, v map<int, int> MASKED WITH map_keys())",
    "CREATE TABLE mk.y4 (k int PRIMARY KEY, v blob MASKED WITH int_as_blob())",
    "CREATE TABLE mk.y4 (k int PRIMARY KEY, v int MASKED WITH int_as_blob())",
    "CREATE TABLE mk.y4 (k int PRIMARY KEY, v int MASKED WITH writetime())",
    "CREATE TABLE mk.y4 (k int PRIMARY KEY, v int MASKED WITH uuid())",
    "CREATE TABLE mk.y4 (k int PRIMARY KEY, v int MASKED WITH countRows())",
    "CREATE TABLE mk.y4 (k int PRIMARY KEY, v int MASKED WITH from_json())",
    "DROP KEYSPACE mk2",
    "DESCRIBE KEYSPACE mk",
    "ALTER TYPE mk.pair RENAME b TO bb",
    "ALTER TYPE mk.pair ADD c int",
    "DESCRIBE TABLE mk.t",
    "CREATE TABLE mk.x2 (k int PRIMARY KEY, v mk.pair MASKED WITH mask_replace({a: 1, bb: 'x'}))",
    "DESCRIBE TABLE mk.x2",
    "SELECT column_name, kind, type, clustering_order FROM system_schema.columns WHERE keyspace_name = 'mk' AND table_name = 't'",
    "DROP KEYSPACE mk",
    "SELECT * FROM system_schema.column_masks WHERE keyspace_name = 'mk'",
]


def answers(node, connect) -> dict[tuple[str, str], str]:
    """(who, statement) -> the answer."""
    found = {}
    with connect(node) as admin:
        for statement in SETUP:
            found["setup", statement] = shown(admin.query(statement))
        for role, statements in ROLES:
            admin.query(f"CREATE ROLE {role} WITH LOGIN = true AND PASSWORD = '{role}'")
            for statement in statements:
                found[role, statement] = shown(admin.query(statement.format(role=role)))
        for version in (5, 4):
            for role, _ in ROLES:
                with Connection(node.host, node.port, version, login=(role, role)) as client:
                    for statement in READS:
                        found[f"v{version} {role}", statement] = shown(client.query(statement))
                        if version == 5:
                            prepared = client.prepare(statement)
                            answer = client.execute(prepared) if isinstance(prepared, Prepared) else prepared
                            found[role, f"prepared {statement}"] = shown(answer)
                            if statement.startswith("SELECT"):
                                found[role, f"in pages {statement}"] = str([*pages(client, statement)])
        found["m_both", "UNMASK goes between two pages"] = between_pages(node, admin)
        for number, statement in enumerate(SCHEMAS):
            found["schema", f"{number} {statement}"] = shown(admin.query(statement))
    return found


def pages(client: Connection, statement: str) -> Iterator[str | tuple]:
    """All rows, read in pages of one row, or the error."""
    options = QueryOptions(page_size=1)
    while True:
        answer = client.query(statement, options)
        if not isinstance(answer, Rows):
            yield shown(answer)
            return
        yield from answer.rows
        if answer.metadata.paging_state is None:
            return
        options = options.next_page(answer.metadata.paging_state)


def between_pages(node, admin: Connection) -> str:
    with Connection(node.host, node.port, 5, login=("m_both", "m_both")) as client:
        rows = pages(client, "SELECT k, c, x, n FROM mk.t WHERE k = 1")
        first = next(rows)
        changes = [shown(admin.query("REVOKE UNMASK ON mk.t FROM m_both"))]
        second = next(rows)
        changes.append(shown(admin.query("GRANT UNMASK ON mk.t TO m_both")))
        return f"{first} {second} {[*rows]} {changes}"


def shown(answer) -> str:
    if isinstance(answer, Error):
        return f"{answer.code:#06x} {answer.message}"
    if isinstance(answer, Rows):
        columns = [column[2:] for column in answer.metadata.columns] if answer.metadata.columns else []
        return f"rows {columns} {answer.rows} {answer.warnings}"
    return f"{type(answer).__name__} {answer.warnings}"
