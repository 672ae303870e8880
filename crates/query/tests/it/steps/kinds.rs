//! Statements of any size that are carried out, and what has to exist before.

use super::{Kind, each, joined, run};
use crate::node::TestNode;

fn nothing(_: &TestNode, _: usize) {}

fn one(statement: String) -> Vec<String> {
    vec![statement]
}

/// Rows 0 to `size` of partition 1.
fn fill_rows(node: &TestNode, size: usize) {
    run(node, &each(size, |i| format!("INSERT INTO t (k, c, v) VALUES (1, {i}, {i})")));
}

/// Fills row (1, 1) with collections of `size` elements.
fn fill_collections(node: &TestNode, size: usize) {
    let entries = joined(size, ", ", |i| format!("{i}: {i}"));
    let elements = joined(size, ", ", |i| i.to_string());
    node.run(&format!(
        "INSERT INTO t (k, c, m, e, l, f) VALUES (1, 1, {{{entries}}}, {{{elements}}}, [{elements}], {{{entries}}})"
    ));
}

/// Creates a table `w` of `size` columns, half of them lists.
fn make_wide(node: &TestNode, size: usize) {
    let columns = joined(size, ", ", |i| format!("a{i} {}", if i % 2 == 0 { "int" } else { "list<int>" }));
    node.run(&format!("CREATE TABLE w (k int PRIMARY KEY, {columns})"));
    let names = joined(size / 2, ", ", |i| format!("a{}", 2 * i + 1));
    let values = joined(size / 2, ", ", |_| "[1]".into());
    node.run(&format!("INSERT INTO w (k, {names}) VALUES (1, {values})"));
}

/// Creates a type `u` of `size` fields, and a table that uses it.
fn make_type(node: &TestNode, size: usize) {
    node.run(&format!("CREATE TYPE u ({})", joined(size, ", ", |i| format!("f{i} int"))));
    node.run("CREATE TABLE x (k int PRIMARY KEY, u u, f frozen<u>)");
    let fields = joined(size, ", ", |i| format!("f{i}: {i}"));
    node.run(&format!("INSERT INTO x (k, u, f) VALUES (1, {{{fields}}}, {{{fields}}})"));
}

/// Creates tables beside each other.
fn make_tables(node: &TestNode, size: usize) {
    each(size, |i| format!("CREATE TABLE t{i} (k int PRIMARY KEY)")).iter().for_each(|table| drop(node.run(table)));
}

/// A table of `size` clustering columns, each of which has an order.
fn make_keyed(size: usize) -> String {
    let columns = joined(size, ", ", |i| format!("c{i} int"));
    let names = joined(size, ", ", |i| format!("c{i}"));
    let order = joined(size, ", ", |i| format!("c{i} DESC"));
    format!("CREATE TABLE keyed (k int, {columns}, PRIMARY KEY (k, {names})) WITH CLUSTERING ORDER BY ({order})")
}

/// Rows 0 to `size` of partition 1, of which all but the first are deleted again.
fn fill_and_delete_rows(node: &TestNode, size: usize) {
    fill_rows(node, size);
    run(node, &each(size - 1, |i| format!("DELETE FROM t WHERE k = 1 AND c = {}", i + 1)));
}

/// Creates a table `n` of counters, with `size` rows in partition 1.
fn make_counters(node: &TestNode, size: usize) {
    node.run("CREATE TABLE n (k int, c int, v counter, w counter, PRIMARY KEY (k, c))");
    node.run(&counter_batch(size, |i| format!("UPDATE n SET v = v + 1 WHERE k = 1 AND c = {i}")));
}

fn counter_batch(size: usize, statement: impl Fn(usize) -> String) -> String {
    format!("BEGIN COUNTER BATCH {} APPLY BATCH", joined(size, "; ", statement))
}

pub(super) const KINDS: &[Kind] = &[
    Kind {
        name: "element writes to one row",
        setup: nothing,
        statements: |size| each(size, |i| format!("UPDATE t SET m[{i}] = {i} WHERE k = 1 AND c = 1")),
    },
    Kind {
        name: "element writes to one row that has as many",
        setup: fill_collections,
        statements: |size| each(size, |i| format!("UPDATE t SET m[{i}] = 0 WHERE k = 1 AND c = 1")),
    },
    Kind {
        name: "element writes to one static row",
        setup: nothing,
        statements: |size| each(size, |i| format!("UPDATE t SET s[{i}] = {i} WHERE k = 1")),
    },
    Kind {
        name: "appends to one list",
        setup: nothing,
        statements: |size| each(size, |i| format!("UPDATE t SET l = l + [{i}] WHERE k = 1 AND c = 1")),
    },
    Kind {
        name: "writes of the same cell",
        setup: nothing,
        statements: |size| each(size, |i| format!("UPDATE t SET v = {i} WHERE k = 1 AND c = 1")),
    },
    Kind {
        name: "rows of a partition",
        setup: nothing,
        statements: |size| each(size, |i| format!("INSERT INTO t (k, c, v) VALUES (1, {}, {i})", size - i)),
    },
    Kind {
        name: "partitions",
        setup: nothing,
        statements: |size| each(size, |i| format!("INSERT INTO t (k, c, v) VALUES ({i}, 1, 1)")),
    },
    Kind {
        name: "deletions of rows",
        setup: fill_rows,
        statements: |size| each(size, |i| format!("DELETE FROM t WHERE k = 1 AND c = {i}")),
    },
    Kind {
        name: "deletions of ranges within each other",
        setup: fill_rows,
        statements: |size| {
            each(size, |i| {
                format!("DELETE FROM t USING TIMESTAMP {i} WHERE k = 1 AND c > {i} AND c < {}", 2 * size - i)
            })
        },
    },
    Kind {
        name: "deletions of ranges beside each other, and rows",
        setup: fill_rows,
        statements: |size| {
            each(size, |i| match i % 2 {
                0 => format!("DELETE FROM t WHERE k = 1 AND c > {i} AND c < {}", i + 2),
                _ => format!("INSERT INTO t (k, c, v) VALUES (1, {i}, 7)"),
            })
        },
    },
    Kind {
        name: "deletions of partitions",
        setup: fill_rows,
        statements: |size| each(size, |i| format!("DELETE FROM t WHERE k = {}", i % 7)),
    },
    Kind {
        name: "IN over clusterings",
        setup: fill_rows,
        statements: |size| {
            one(format!("DELETE FROM t WHERE k = 1 AND c IN ({})", joined(size, ", ", |i| i.to_string())))
        },
    },
    Kind {
        name: "IN over partitions",
        setup: nothing,
        statements: |size| {
            one(format!("UPDATE t SET v = 1 WHERE k IN ({}) AND c = 1", joined(size, ", ", |i| i.to_string())))
        },
    },
    Kind {
        name: "entries added",
        setup: fill_collections,
        statements: |size| {
            let entries = joined(size, ", ", |i| format!("{}: 0", 2 * i));
            one(format!("UPDATE t SET m = m + {{{entries}}} WHERE k = 1 AND c = 1"))
        },
    },
    Kind {
        name: "elements removed from a set",
        setup: fill_collections,
        statements: |size| {
            one(format!("UPDATE t SET e = e - {{{}}} WHERE k = 1 AND c = 1", joined(size, ", ", |i| i.to_string())))
        },
    },
    Kind {
        name: "values removed from a list",
        setup: fill_collections,
        statements: |size| {
            let values = joined(size / 2, ", ", |i| (2 * i).to_string());
            one(format!("UPDATE t SET l = l - [{values}] WHERE k = 1 AND c = 1"))
        },
    },
    Kind {
        name: "values removed from a list one by one",
        setup: fill_collections,
        statements: |size| {
            one(format!("UPDATE t SET {} WHERE k = 1 AND c = 1", joined(size, ", ", |i| format!("l = l - [{i}]"))))
        },
    },
    Kind {
        name: "values appended to a list one by one",
        setup: fill_collections,
        statements: |size| {
            one(format!("UPDATE t SET {} WHERE k = 1 AND c = 1", joined(size, ", ", |i| format!("l = l + [{i}]"))))
        },
    },
    Kind {
        name: "values prepended and changed by their places",
        setup: fill_collections,
        statements: |size| {
            let change = |i| if i % 2 == 0 { format!("l = [{i}] + l") } else { format!("l[{i}] = 0") };
            one(format!("UPDATE t SET {} WHERE k = 1 AND c = 1", joined(size, ", ", change)))
        },
    },
    Kind {
        name: "elements deleted by their places",
        setup: fill_collections,
        statements: |size| {
            one(format!(
                "DELETE {} FROM t WHERE k = 1 AND c = 1",
                joined(size, ", ", |i| format!("l[{}]", size - 1 - i))
            ))
        },
    },
    Kind {
        name: "keys deleted",
        setup: fill_collections,
        statements: |size| {
            one(format!("DELETE {} FROM t WHERE k = 1 AND c = 1", joined(size, ", ", |i| format!("m[{i}]"))))
        },
    },
    Kind {
        name: "elements selected",
        setup: fill_collections,
        statements: |size| {
            let parts = |i| match i % 3 {
                0 => format!("m[{i}]"),
                1 => format!("f[{i}]"),
                _ => format!("e[{i}..{i}]"),
            };
            one(format!("SELECT {} FROM t WHERE k = 1", joined(size, ", ", parts)))
        },
    },
    Kind {
        name: "elements selected of a group",
        setup: fill_collections,
        statements: |size| {
            one(format!("SELECT count(*), {} FROM t WHERE k = 1", joined(size, ", ", |i| format!("m[{i}]"))))
        },
    },
    Kind {
        name: "times of elements selected",
        setup: fill_collections,
        statements: |size| {
            let parts = |i| if i % 2 == 0 { format!("writetime(m[{i}])") } else { format!("ttl(f[{i}])") };
            one(format!("SELECT {} FROM t WHERE k = 1", joined(size, ", ", parts)))
        },
    },
    Kind {
        name: "rows filtered by IN",
        setup: fill_rows,
        statements: |size| {
            let values = joined(size, ", ", |i| (2 * i).to_string());
            one(format!("SELECT c FROM t WHERE k = 1 AND v IN ({values}) ALLOW FILTERING"))
        },
    },
    Kind {
        name: "entries and keys filtered by",
        setup: fill_collections,
        statements: |size| {
            let condition = |i| match i % 4 {
                0 => format!("m[{i}] = {i}"),
                1 => format!("m CONTAINS KEY {i}"),
                2 => format!("m CONTAINS {i}"),
                _ => format!("l CONTAINS {i} AND e CONTAINS {i} AND f CONTAINS KEY {i}"),
            };
            one(format!("SELECT c FROM t WHERE k = 1 AND {} ALLOW FILTERING", joined(size, " AND ", condition)))
        },
    },
    Kind {
        name: "rows selected by IN and ranges",
        setup: fill_rows,
        statements: |size| {
            one(format!("SELECT c FROM t WHERE k = 1 AND c IN ({})", joined(size, ", ", |i| i.to_string())))
        },
    },
    Kind {
        name: "a table of many columns",
        setup: nothing,
        statements: |size| {
            one(format!("CREATE TABLE w (k int PRIMARY KEY, {})", joined(size, ", ", |i| format!("a{i} int"))))
        },
    },
    Kind {
        name: "columns written from the last to the first",
        setup: make_wide,
        statements: |size| {
            let names = joined(size / 2, ", ", |i| format!("a{}", 2 * (size / 2 - 1 - i)));
            one(format!("INSERT INTO w (k, {names}) VALUES (1, {})", joined(size / 2, ", ", |i| i.to_string())))
        },
    },
    Kind {
        name: "columns written of a document",
        setup: make_wide,
        statements: |size| {
            let values = joined(size / 2, ", ", |i| format!("\"a{}\": {i}", 2 * i));
            one(format!("INSERT INTO w JSON '{{\"k\": 1, {values}}}'"))
        },
    },
    Kind {
        name: "lists of many columns changed by their places",
        setup: make_wide,
        statements: |size| {
            let changes = joined(size / 2, ", ", |i| format!("a{}[0] = 2", 2 * i + 1));
            one(format!("UPDATE w SET {changes} WHERE k = 1"))
        },
    },
    Kind { name: "all columns selected", setup: make_wide, statements: |_| one("SELECT * FROM w".into()) },
    Kind {
        name: "columns dropped and added",
        setup: make_wide,
        statements: |size| one(format!("ALTER TABLE w DROP ({})", joined(size / 2, ", ", |i| format!("a{}", 2 * i)))),
    },
    Kind {
        name: "columns dropped",
        setup: |node, size| {
            make_wide(node, size);
            node.run(&format!("ALTER TABLE w DROP ({})", joined(size / 2, ", ", |i| format!("a{}", 2 * i))));
        },
        statements: |size| {
            one(format!("ALTER TABLE w DROP ({})", joined(size / 2, ", ", |i| format!("a{}", 2 * i + 1))))
        },
    },
    Kind {
        name: "dropped columns added again",
        setup: |node, size| {
            make_wide(node, size);
            node.run(&format!("ALTER TABLE w DROP ({})", joined(size / 2, ", ", |i| format!("a{}", 2 * i))));
        },
        statements: |size| {
            one(format!("ALTER TABLE w ADD ({})", joined(size / 2, ", ", |i| format!("a{} int", 2 * i))))
        },
    },
    Kind { name: "a column added to many", setup: make_wide, statements: |_| one("ALTER TABLE w ADD b int".into()) },
    Kind { name: "a table of many key columns", setup: nothing, statements: |size| one(make_keyed(size)) },
    Kind {
        name: "key columns renamed",
        setup: |node, size| {
            node.run(&make_keyed(size));
        },
        statements: |size| {
            one(format!("ALTER TABLE keyed RENAME {}", joined(size, " AND ", |i| format!("c{i} TO d{i}"))))
        },
    },
    Kind { name: "a table dropped", setup: make_wide, statements: |_| one("DROP TABLE w".into()) },
    Kind { name: "a keyspace dropped", setup: make_wide, statements: |_| one("DROP KEYSPACE ks".into()) },
    Kind { name: "rows truncated", setup: fill_rows, statements: |_| one("TRUNCATE t".into()) },
    Kind { name: "a table described", setup: make_wide, statements: |_| one("DESCRIBE TABLE w WITH INTERNALS".into()) },
    Kind { name: "tables described", setup: make_tables, statements: |_| one("DESCRIBE SCHEMA".into()) },
    Kind { name: "tables listed", setup: make_tables, statements: |_| one("DESCRIBE TABLES".into()) },
    Kind {
        name: "a table created beside many",
        setup: make_tables,
        statements: |_| one("CREATE TABLE a (k int PRIMARY KEY)".into()),
    },
    Kind {
        name: "a batch of statements in one text",
        setup: nothing,
        statements: |size| {
            let insert = |i| format!("INSERT INTO t (k, c, v) VALUES (1, {i}, {i});");
            one(format!("BEGIN UNLOGGED BATCH {} APPLY BATCH", joined(size, " ", insert)))
        },
    },
    Kind { name: "a keyspace used beside many tables", setup: make_tables, statements: |_| one("USE ks".into()) },
    Kind {
        name: "a type dropped",
        setup: |node, size| {
            node.run(&format!("CREATE TYPE u ({})", joined(size, ", ", |i| format!("f{i} int"))));
        },
        statements: |_| one("DROP TYPE u".into()),
    },
    Kind {
        name: "a type of many fields",
        setup: nothing,
        statements: |size| one(format!("CREATE TYPE u ({})", joined(size, ", ", |i| format!("f{i} int")))),
    },
    Kind {
        name: "fields renamed",
        setup: make_type,
        statements: |size| one(format!("ALTER TYPE u RENAME {}", joined(size, " AND ", |i| format!("f{i} TO g{i}")))),
    },
    Kind {
        name: "fields written and selected",
        setup: make_type,
        statements: |size| {
            let changes = joined(size, ", ", |i| format!("u.f{i} = 0"));
            vec![format!("UPDATE x SET {changes} WHERE k = 1")]
        },
    },
    Kind {
        name: "fields selected",
        setup: make_type,
        statements: |size| {
            let parts = |i| match i % 3 {
                0 => format!("u.f{i}"),
                1 => format!("f.f{i}"),
                _ => format!("writetime(u.f{i})"),
            };
            one(format!("SELECT {} FROM x", joined(size, ", ", parts)))
        },
    },
    Kind {
        name: "rows written if they do not exist",
        setup: fill_rows,
        statements: |size| each(size, |i| format!("INSERT INTO t (k, c, v) VALUES (1, {}, 0) IF NOT EXISTS", size + i)),
    },
    Kind {
        name: "rows changed on conditions of each other",
        setup: fill_rows,
        statements: |size| {
            each(size, |i| match i % 2 {
                0 => format!("UPDATE t SET v = 7 WHERE k = 1 AND c = {i} IF v = {i}"),
                _ => format!("DELETE FROM t WHERE k = 1 AND c = {i}"),
            })
        },
    },
    Kind {
        name: "one row changed on conditions of its elements",
        setup: fill_collections,
        statements: |size| {
            let conditions = joined(size, " AND ", |i| match i % 3 {
                0 => format!("m[{i}] = {i}"),
                1 => format!("l[{i}] = {i}"),
                _ => format!("f[{i}] = {i}"),
            });
            one(format!("UPDATE t SET v = 1 WHERE k = 1 AND c = 1 IF {conditions}"))
        },
    },
    Kind {
        name: "one row changed on a condition of many values",
        setup: fill_rows,
        statements: |size| {
            let values = joined(size, ", ", |i| (i + 1).to_string());
            one(format!("UPDATE t SET v = 1 WHERE k = 1 AND c = 1 IF v IN ({values})"))
        },
    },
    Kind {
        name: "counters of rows",
        setup: make_counters,
        statements: |size| one(counter_batch(size, |i| format!("UPDATE n SET v = v + 1 WHERE k = 1 AND c = {i}"))),
    },
    Kind {
        name: "additions to one counter",
        setup: make_counters,
        statements: |size| {
            one(counter_batch(size, |_| "UPDATE n SET v = v + 1, w = w - 1 WHERE k = 1 AND c = 0".into()))
        },
    },
    Kind {
        name: "counters of partitions",
        setup: make_counters,
        statements: |size| one(counter_batch(size, |i| format!("UPDATE n SET v = v + 1 WHERE k = {i} AND c = 1"))),
    },
    Kind {
        name: "the last row before many deleted ones",
        setup: fill_and_delete_rows,
        statements: |_| one("SELECT c FROM t WHERE k = 1 ORDER BY c DESC LIMIT 1".into()),
    },
    Kind {
        name: "groups of rows",
        setup: fill_rows,
        statements: |_| one("SELECT k, c, max(v), count(*) FROM t WHERE k = 1 GROUP BY k, c".into()),
    },
    Kind {
        name: "rows as documents, sorted across partitions",
        setup: fill_rows,
        statements: |size| {
            let keys = joined(size, ", ", |i| i.to_string());
            one(format!("SELECT JSON c, v FROM t WHERE k IN ({keys}) ORDER BY c DESC"))
        },
    },
    Kind {
        name: "rows selected and deleted by tuples",
        setup: fill_rows,
        statements: |size| {
            let tuples = joined(size, ", ", |i| format!("({i})"));
            vec![
                format!("DELETE FROM t WHERE k = 1 AND (c) IN ({tuples})"),
                format!("UPDATE t SET v = 3 WHERE k = 1 AND (c) IN ({tuples})"),
            ]
        },
    },
    Kind {
        name: "a frozen collection of frozen collections",
        setup: |node, _| {
            node.run("CREATE TABLE z (k int PRIMARY KEY, v frozen<map<frozen<set<int>>, frozen<list<int>>>>)");
        },
        statements: |size| {
            let entries = joined(size, ", ", |i| format!("{{{}, {i}}}: [{i}, 1]", size - i + 1000));
            one(format!("INSERT INTO z (k, v) VALUES (1, {{{entries}}})"))
        },
    },
    Kind {
        name: "a keyspace of many tables dropped",
        setup: |node, size| {
            (0..size / 10).for_each(|i| _ = node.run(&format!("CREATE TABLE d{i} (k int PRIMARY KEY)")))
        },
        statements: |_| one("DROP KEYSPACE ks".into()),
    },
];
