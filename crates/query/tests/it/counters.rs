//! Tables of counters. The expected rows and texts are what Cassandra 5.0.8 answered to the same statements.

use std::sync::Arc;
use std::thread;

use blockio::SimulatedDisk;
use query::{Prepared, QueryOptions, Value, Values};

use crate::modify::flush;
use crate::node::TestNode;

const TABLE: &str = "CREATE TABLE t (k int, ck int, c counter, d counter, s counter static, PRIMARY KEY (k, ck))";

fn node() -> TestNode {
    TestNode::with(&[TABLE, "CREATE TABLE plain (k int PRIMARY KEY, v int)"])
}

fn prepared(node: &TestNode, statement: &str) -> Arc<Prepared> {
    node.processor.prepare(statement, Some("ks")).unwrap()
}

fn run_all(node: &TestNode, statements: &[&str]) {
    statements.iter().for_each(|statement| drop(node.run(statement)));
}

fn assert_refused(node: &TestNode, cases: &[(&str, &str)]) {
    for (statement, message) in cases {
        assert_eq!(node.failure(statement), *message, "{statement}");
    }
}

#[test]
fn counters_add_up_what_statements_add_to_them() {
    for flushes in [false, true] {
        let node = node();
        let run = |statement: &str| {
            node.run(statement);
            if flushes {
                flush(&node);
            }
        };
        run("UPDATE t SET c = c + 1, c = c + 2 WHERE k = 1 AND ck = 1");
        run("UPDATE t SET c += 4, d -= 2 WHERE k = 1 AND ck = 1");
        run("UPDATE t SET c = c - 10, s = s + 1 WHERE k = 1 AND ck = 1");
        assert_eq!(node.rows("SELECT * FROM t"), ["1 1 1 -3 -2"]);
        let aggregates = "SELECT sum(c), min(c), max(c), avg(c), count(c) FROM t";
        assert_eq!(node.rows(aggregates), ["-3 -3 -3 -3 1"]);
        assert_eq!(node.rows("SELECT c + 1, c + c, ttl(c) FROM t"), ["-2 -6 null"]);
        assert_eq!(node.rows("SELECT cast(c as bigint) FROM t WHERE c = -3 ALLOW FILTERING"), ["-3"]);
        run("UPDATE t SET s = s + 1 WHERE k = 1");
        run("UPDATE t SET c = c + 1 WHERE k IN (1, 2) AND ck IN (1, 2)");
        run("UPDATE t SET c = c + 9223372036854775807 WHERE k = 9 AND ck = 1");
        run("UPDATE t SET c = c + 1 WHERE k = 9 AND ck = 1");
        let rows =
            ["1 1 2 -2 -2", "1 2 2 1 null", "2 1 null 1 null", "2 2 null 1 null", "9 1 null -9223372036854775808 null"];
        assert_eq!(node.rows("SELECT * FROM t"), rows);
        node.run("TRUNCATE t");
        run("UPDATE t SET c = c + 1 WHERE k = 1 AND ck = 1");
        assert_eq!(node.rows("SELECT * FROM t"), ["1 1 null 1 null"]);
    }
}

#[test]
fn prepared_statements_count_and_unset_values_do_not() {
    let node = node();
    let add = prepared(&node, "UPDATE t SET c = c + ?, d = d + 1 WHERE k = 1 AND ck = 1");
    let subtract = prepared(&node, "UPDATE t SET c = c - ? WHERE k = 1 AND ck = 1");
    let execute = |prepared: &Arc<Prepared>, value: Value<'_>| {
        let values = [value];
        let options = QueryOptions { values: Values::Positional(&values), ..QueryOptions::default() };
        node.execute(prepared, &options).map(drop).map_err(|error| error.message)
    };
    execute(&add, Value::Bytes(&5_i64.to_be_bytes())).unwrap();
    execute(&add, Value::Unset).unwrap();
    execute(&subtract, Value::Bytes(&7_i64.to_be_bytes())).unwrap();
    assert_eq!(node.rows("SELECT c, d FROM t"), ["-2 2"]);
    let null = "Invalid null value for counter increment";
    assert_eq!(execute(&add, Value::Null).unwrap_err(), null);
    assert_eq!(execute(&subtract, Value::Null).unwrap_err(), null);
    let overflow =
        "The negation of -9223372036854775808 overflows supported counter precision (signed 8 bytes integer)";
    assert_eq!(execute(&subtract, Value::Bytes(&i64::MIN.to_be_bytes())).unwrap_err(), overflow);
    execute(&add, Value::Bytes(b"")).unwrap_err();
    assert_eq!(node.rows("SELECT c, d FROM t"), ["-2 2"]);
}

#[test]
fn a_deleted_counter_stays_deleted_and_one_of_a_deleted_row_starts_again() {
    for flushes in [false, true] {
        let node = node();
        let run = |statement: &str| {
            node.run(statement);
            if flushes {
                flush(&node);
            }
        };
        let add = "UPDATE t SET c = c + 5, d = d + 1, s = s + 9 WHERE k = 2 AND ck = 1";
        run("UPDATE t SET c = c + 1 WHERE k = 2 AND ck = 1");
        run("DELETE c FROM t WHERE k = 2 AND ck = 1");
        assert_eq!(node.rows("SELECT * FROM t").len(), 0);
        run(add);
        assert_eq!(node.rows("SELECT * FROM t"), ["2 1 9 null 1"]);
        run("DELETE FROM t WHERE k = 2 AND ck = 1");
        assert_eq!(node.rows("SELECT * FROM t"), ["2 null 9 null null"]);
        run(add);
        assert_eq!(node.rows("SELECT * FROM t"), ["2 1 18 5 1"]);
        run("DELETE FROM t WHERE k = 2 AND ck > 0");
        run(add);
        assert_eq!(node.rows("SELECT * FROM t"), ["2 1 27 5 1"]);
        run("DELETE FROM t WHERE k = 2");
        assert_eq!(node.rows("SELECT * FROM t").len(), 0);
        run(add);
        assert_eq!(node.rows("SELECT * FROM t"), ["2 1 9 5 1"]);
        run("DELETE s FROM t WHERE k = 2");
        assert_eq!(node.rows("SELECT * FROM t"), ["2 1 null 5 1"]);
    }
}

#[test]
fn batches_of_counters_add_up_and_others_are_refused() {
    let node = node();
    run_all(
        &node,
        &[
            "BEGIN COUNTER BATCH UPDATE t SET c = c + 1 WHERE k = 3 AND ck = 1; \
             UPDATE t SET c = c + 2, d = d + 1, s += 1 WHERE k = 3 AND ck = 1; \
             UPDATE t SET s += 1 WHERE k = 3; \
             UPDATE t SET c = c + 2 WHERE k = 4 AND ck = 1; APPLY BATCH",
            "BEGIN UNLOGGED BATCH UPDATE t SET c = c + 10 WHERE k = 3 AND ck = 1; \
             UPDATE t SET c = c + 20 WHERE k = 3 AND ck = 1; APPLY BATCH",
            "BEGIN COUNTER BATCH UPDATE t SET c = c + 1 WHERE k = 5 AND ck = 1; \
             DELETE FROM t WHERE k = 5 AND ck = 1; APPLY BATCH",
            "BEGIN COUNTER BATCH UPDATE t SET c = c + 1 WHERE k = 6 AND ck = 1; \
             DELETE c FROM t WHERE k = 6 AND ck = 1; APPLY BATCH",
        ],
    );
    assert_eq!(node.rows("SELECT * FROM t"), ["4 1 null 2 null", "3 1 2 33 1"]);
    let count = "UPDATE t SET c = c + 1 WHERE k = 3 AND ck = 1";
    let batch = |start: &str, other: &str| format!("BEGIN {start} {count}; {other} APPLY BATCH");
    let insert = "INSERT INTO plain (k, v) VALUES (1, 1);";
    let cases = [
        (batch("BATCH", ""), "Cannot include a counter statement in a logged batch"),
        (batch("UNLOGGED BATCH", insert), "Counter and non-counter mutations cannot exist in the same batch"),
        (batch("COUNTER BATCH", insert), "Cannot include non-counter statement in a counter batch"),
        (batch("COUNTER BATCH USING TIMESTAMP 5", ""), "Cannot provide custom timestamp for counter BATCH"),
        (
            batch("UNLOGGED BATCH USING TIMESTAMP 5", ""),
            "Cannot provide custom timestamp for a BATCH containing counters",
        ),
        (
            batch("COUNTER BATCH", "UPDATE t USING TIMESTAMP 5 SET c = c + 1 WHERE k = 3 AND ck = 1;"),
            "Cannot provide custom timestamp for counter updates",
        ),
    ];
    cases.iter().for_each(|(statement, message)| assert_refused(&node, &[(statement, message)]));
    assert_eq!(node.rows("SELECT c FROM t WHERE k = 3"), ["33"]);
}

#[test]
fn tables_of_counters_have_no_other_columns_and_no_time_to_live() {
    let node = node();
    let mix = "Cannot mix counter and non counter columns in the same table";
    let expiry = "Cannot set default_time_to_live on a table with counters";
    let statics = "Static columns are only useful (and thus allowed) if the table has at least one clustering column";
    assert_refused(
        &node,
        &[
            ("CREATE TABLE a (k int PRIMARY KEY, c counter, v int)", mix),
            ("CREATE TABLE a (k int, ck int, c counter, v int static, PRIMARY KEY (k, ck))", mix),
            ("CREATE TABLE a (k int PRIMARY KEY, c counter, v int) WITH default_time_to_live = 5", mix),
            ("CREATE TABLE a (k int PRIMARY KEY, c counter) WITH default_time_to_live = 5", expiry),
            ("CREATE TABLE a (k int, c counter, s counter static, PRIMARY KEY (k))", statics),
            (
                "CREATE TABLE a (k int PRIMARY KEY, l frozen<list<counter>>, c counter)",
                "Counters are not allowed inside collections: frozen<list<counter>>",
            ),
            ("ALTER TABLE t ADD v int", "ks.t: Cannot have a non counter column (\"v\") in a counter table"),
            (
                "ALTER TABLE t ADD (f counter, g int)",
                "ks.t: Cannot have a non counter column (\"g\") in a counter table",
            ),
            (
                "ALTER TABLE plain ADD c counter",
                "ks.plain: Cannot have a counter column (\"c\") in a non counter table",
            ),
            ("ALTER TABLE t WITH default_time_to_live = 10", expiry),
        ],
    );
    node.run("ALTER TABLE t ADD e counter");
    node.run("UPDATE t SET e = e + 3 WHERE k = 1 AND ck = 1");
    assert_eq!(node.rows("SELECT e FROM t"), ["3"]);
    node.run("ALTER TABLE t DROP e");
    assert_refused(
        &node,
        &[
            ("ALTER TABLE t ADD e counter", "Cannot re-add previously dropped counter column e"),
            (
                "ALTER TABLE t ADD e bigint",
                "Cannot add a column 'e' of type bigint, incompatible with previously dropped column 'e' of type counter",
            ),
        ],
    );
}

#[test]
fn counters_cannot_be_set_inserted_or_written_under_conditions() {
    let node = node();
    let set = "Cannot set the value of counter column c (counters can only be incremented/decremented, not set)";
    let null = "Invalid null value for counter increment/decrement";
    let insert = "INSERT statements are not allowed on counter tables, use UPDATE instead";
    let timestamp = "Cannot provide custom timestamp for counter updates";
    let expiry = "Cannot provide custom TTL for counter updates";
    let exists = "Conditional updates are not supported on counter tables";
    let condition = "Conditions on counters are not supported";
    assert_refused(
        &node,
        &[
            ("UPDATE t SET c = 5 WHERE k = 1 AND ck = 1", set),
            ("UPDATE t SET c = c + null WHERE k = 1 AND ck = 1", null),
            ("UPDATE t SET c = null WHERE k = 1 AND ck = 1", null),
            ("UPDATE t SET c = 5 + c WHERE k = 1 AND ck = 1", "Invalid operation (c = 5 - c) for non list column c"),
            ("UPDATE t SET c = c + 1 WHERE k = 1", "Some clustering keys are missing: ck"),
            (
                "UPDATE t SET c = c + 9223372036854775808 WHERE k = 9 AND ck = 1",
                "Unable to make long from '9223372036854775808'",
            ),
            ("DELETE c[1] FROM t WHERE k = 2 AND ck = 1", "Invalid deletion operation for non collection column c"),
            ("DELETE FROM t USING TIMESTAMP 5 WHERE k = 2", timestamp),
            ("UPDATE t USING TIMESTAMP 5 SET c = c + 1 WHERE k = 1 AND ck = 1", timestamp),
            ("UPDATE t USING TTL 0 SET c = c + 1 WHERE k = 1 AND ck = 1", expiry),
            ("UPDATE t USING TTL 5 SET c = c + 1 WHERE k = 1 AND ck = 1", expiry),
            ("INSERT INTO t (k, ck, c) VALUES (1, 1, 1)", insert),
            ("INSERT INTO t JSON '{\"k\": 1, \"ck\": 1, \"c\": 1}'", insert),
            ("UPDATE t SET c = c + 1 WHERE k = 1 AND ck = 1 IF EXISTS", exists),
            ("DELETE FROM t WHERE k = 2 IF EXISTS", exists),
            ("UPDATE t SET c = c + 1 WHERE k = 1 AND ck = 1 IF c = 1", condition),
            ("DELETE c FROM t WHERE k = 2 AND ck = 1 IF c = 1", condition),
            ("UPDATE plain SET v = v + 1 WHERE k = 1", "Invalid operation (v = v + 1) for non counter column v"),
        ],
    );
    assert_eq!(node.rows("SELECT * FROM t").len(), 0);
    // Where no values were requested yet.
    let update = "UPDATE t USING TTL ? SET c = c + ? WHERE k = ? AND ck = ?";
    let batch = "BEGIN COUNTER BATCH UPDATE t USING TIMESTAMP ? SET c = c + ? WHERE k = ? AND ck = ?; APPLY BATCH";
    for (statement, message) in [(update, expiry), (batch, timestamp)] {
        assert_eq!(node.processor.prepare(statement, Some("ks")).unwrap_err().message, message);
    }
}

#[test]
fn functions_of_numbers_take_counters() {
    let node = node();
    node.run("UPDATE t SET c = c - 20, d = d + 100 WHERE k = 1 AND ck = 1");
    assert_eq!(node.rows("SELECT abs(c), round(c), log10(d), log(d), exp(s) FROM t"), ["20 -20 2 4 null"]);
}

#[test]
fn increments_of_many_clients_are_all_counted() {
    const CLIENTS: i64 = 8;
    const EACH: i64 = 200;
    let node = node();
    let one = "UPDATE t SET c = c + 1, s = s + 2 WHERE k = 1 AND ck = 1";
    let batch = "BEGIN COUNTER BATCH UPDATE t SET c = c + 1 WHERE k = 1 AND ck = 1; \
                 UPDATE t SET c = c + 1 WHERE k = 2 AND ck = 1; UPDATE t SET s = s + 2 WHERE k = 1; APPLY BATCH";
    thread::scope(|scope| {
        for client in 0..CLIENTS {
            let node = &node;
            scope.spawn(move || {
                for i in 0..EACH {
                    node.run(if (client + i) % 2 == 0 { one } else { batch });
                    if client == 0 && i % 50 == 0 {
                        flush(node);
                    }
                }
            });
        }
    });
    let all = CLIENTS * EACH;
    let rows = [format!("1 {} {all}", 2 * all), format!("2 null {}", all / 2)];
    assert_eq!(node.rows("SELECT k, s, c FROM t"), rows);
}

#[test]
fn every_acknowledged_increment_survives_a_crash_and_counts_once() {
    let mut disk = SimulatedDisk::new();
    let mut node = TestNode::on_disk(&disk).with_keyspace();
    node.run(TABLE);
    let mut expected = 0;
    for round in 0..5 {
        for i in 0..40 {
            node.run("UPDATE t SET c = c + 3, s = s - 1 WHERE k = 1 AND ck = 1");
            expected += 1;
            if i == 7 * round {
                flush(&node);
            }
        }
        // The node is not stopped before the disk is taken away from it.
        disk = disk.crash_image(round);
        node = TestNode::on_disk(&disk);
        node.use_keyspace("ks");
        assert_eq!(node.rows("SELECT c, s FROM t"), [format!("{} -{expected}", 3 * expected)]);
    }
}

/// A deletion of a counter wins over increments until the deletion of its row hides it, so a replay in another order
/// would lose those that came later. A batch is written under its first partition.
#[test]
fn increments_after_deletions_survive_a_crash_in_a_batch_that_begins_with_another_partition() {
    let disk = SimulatedDisk::new();
    let node = TestNode::on_disk(&disk).with_keyspace();
    node.run(TABLE);
    for k in 0..20 {
        node.run(&format!("UPDATE t SET c = c + 1 WHERE k = {k} AND ck = 0"));
        node.run(&format!("DELETE c FROM t WHERE k = {k} AND ck = 0"));
        node.run(&format!("DELETE FROM t WHERE k = {k} AND ck = 0"));
        node.run(&format!("UPDATE t SET c = c + 10 WHERE k = {k} AND ck = 0"));
        node.run(&format!(
            "BEGIN COUNTER BATCH UPDATE t SET c = c + 1 WHERE k = {} AND ck = 0; \
             UPDATE t SET c = c + 7 WHERE k = {k} AND ck = 0; APPLY BATCH",
            k + 1000,
        ));
    }
    let mut node = TestNode::on_disk(&disk.crash_image(1));
    node.use_keyspace("ks");
    for k in 0..20 {
        assert_eq!(node.rows(&format!("SELECT c FROM t WHERE k = {k}")), ["17"], "of partition {k}");
    }
}

#[test]
fn counters_in_memory_count() {
    let disk = SimulatedDisk::new();
    let node = TestNode::on_disk(&disk).with_keyspace();
    node.run(
        "CREATE TABLE m (k int PRIMARY KEY, c counter) \
         WITH compaction = {'class': 'MemoryOnlyStrategy', 'size_limit_in_mb': 1} AND caching = 'none'",
    );
    for i in 0..100 {
        node.run(&format!("UPDATE m SET c = c + {i} WHERE k = {}", i % 2));
        if i % 30 == 0 {
            flush(&node);
        }
    }
    let rows = ["1 2500", "0 2450"];
    assert_eq!(node.rows("SELECT * FROM m"), rows);
    drop(node);
    let mut node = TestNode::on_disk(&disk);
    node.use_keyspace("ks");
    assert_eq!(node.rows("SELECT * FROM m"), rows);
    node.run("UPDATE m SET c = c + 1 WHERE k = 0");
    assert_eq!(node.rows("SELECT c FROM m WHERE k = 0"), ["2451"]);
}
