//! Modifications that the recordings of Cassandra do not cover.

use query::{BatchEntry, BatchKind, BatchStatement, ErrorKind, ProcessorOptions, QueryOptions, Value, Values};

use crate::node::TestNode;

const TABLE: &str = "CREATE TABLE t (k int, c int, v int, w text, l list<int>, PRIMARY KEY (k, c))";

#[test]
fn later_statements_win_without_timestamps() {
    let node = TestNode::with(&[TABLE]);
    for round in 0..200 {
        // The values change their order every round, so a tie, which the greater value wins, would be noticed.
        let (first, second) = if round % 2 == 0 { (5, 4) } else { (4, 5) };
        node.run(&format!("INSERT INTO t (k, c, v) VALUES (1, 1, {first})"));
        node.run(&format!("UPDATE t SET v = {second} WHERE k = 1 AND c = 1"));
        assert_eq!(node.rows("SELECT v FROM t WHERE k = 1"), [second.to_string()], "round {round}");
    }
}

#[test]
fn values_may_be_sent_by_name() {
    let node = TestNode::with(&[TABLE]);
    let prepared = node.processor.prepare("INSERT INTO t (k, c, v) VALUES (:k, :c, :v)", Some("ks")).unwrap();
    let (one, two) = (1i32.to_be_bytes(), 2i32.to_be_bytes());
    let values = [("v", Value::Bytes(&two)), ("k", Value::Bytes(&one)), ("c", Value::Bytes(&one))];
    let options = QueryOptions { values: Values::Named(&values), ..QueryOptions::default() };
    node.execute(&prepared, &options).unwrap();
    assert_eq!(node.rows("SELECT k, c, v FROM t"), ["1 1 2"]);
}

#[test]
fn a_prepared_statement_serves_many_executions() {
    let node = TestNode::with(&[TABLE]);
    let prepared = node.processor.prepare("INSERT INTO t (k, c, v, w) VALUES (?, ?, ?, ?)", Some("ks")).unwrap();
    for row in 0..50i32 {
        let (key, value) = (1i32.to_be_bytes(), row.to_be_bytes());
        let text = if row % 3 == 0 { Value::Unset } else { Value::Bytes(b"x") };
        let values = [Value::Bytes(&key), Value::Bytes(&value), Value::Bytes(&value), text];
        let options = QueryOptions { values: Values::Positional(&values), ..QueryOptions::default() };
        node.execute(&prepared, &options).unwrap();
    }
    let rows = node.rows("SELECT c, v, w FROM t WHERE k = 1");
    assert_eq!(rows.len(), 50);
    assert_eq!(rows[3..5], ["3 3 null", "4 4 'x'"]);
}

#[test]
fn writes_larger_than_the_log_accepts_are_refused_as_a_whole() {
    let node = TestNode::with(&[TABLE]);
    let large = "x".repeat(100 << 10);
    let insert = |k: i32| format!("INSERT INTO ks.t (k, c, w) VALUES ({k}, 1, '{large}')");
    let statement = format!("BEGIN UNLOGGED BATCH {}; {}; {}; APPLY BATCH", insert(1), insert(1), insert(1));
    node.run(&statement);
    let update = "INSERT INTO t (k, c, w) VALUES (7, 1, ?)";
    let (small, huge) = ([b'x'; 10], vec![b'x'; 200 << 10]);
    let run = |value: &[u8]| {
        let values = [Value::Bytes(value)];
        let options = QueryOptions { values: Values::Positional(&values), ..QueryOptions::default() };
        node.try_run(update, &options)
    };
    run(&small).unwrap();
    let error = run(&huge).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Invalid);
    let reported = error.message.strip_prefix("Rejected an oversized mutation (").unwrap();
    assert!(reported.ends_with("/131072) for keyspace: ks. Top keys are: t.7"), "{reported}");
    assert_eq!(node.rows("SELECT w FROM t WHERE k = 7"), ["'xxxxxxxxxx'"]);
}

#[test]
fn batches_larger_than_a_record_of_the_log_are_written() {
    let options = ProcessorOptions { batch_size_fail_threshold_bytes: 1 << 20, ..ProcessorOptions::default() };
    let node = TestNode::with_options(options).with_keyspace();
    node.run(TABLE);
    let text = "x".repeat(50 << 10);
    for (kind, first) in [("", 0), ("UNLOGGED ", 10)] {
        let insert = |k| format!("INSERT INTO t (k, c, w) VALUES ({k}, 1, '{text}'); ");
        let inserts: String = (first..first + 4).map(insert).collect();
        node.run(&format!("BEGIN {kind}BATCH {inserts}APPLY BATCH"));
    }
    assert_eq!(node.rows("SELECT k, c FROM t").len(), 8);
    assert_eq!(node.rows("SELECT id FROM system.batches").len(), 0);
}

/// As in Cassandra, whose limit is for all changes of a partition: nothing of the batch is written.
#[test]
fn a_batch_with_a_part_that_is_larger_than_a_record_is_refused_whole() {
    let options = ProcessorOptions { batch_size_fail_threshold_bytes: 1 << 20, ..ProcessorOptions::default() };
    let node = TestNode::with_options(options).with_keyspace();
    node.run("CREATE TABLE pairs (a text, b int, d blob, c int, v text, PRIMARY KEY ((a, b, d), c))");
    let insert = |b: i32, c: i32, length: usize| {
        let text = "x".repeat(length << 10);
        format!("INSERT INTO pairs (a, b, d, c, v) VALUES ('k:a', {b}, 0x00ff, {c}, '{text}'); ")
    };
    for kind in ["", "UNLOGGED "] {
        for parts in [
            [insert(1, 1, 1), insert(2, 1, 150), insert(3, 1, 1)],
            [insert(1, 1, 1), insert(2, 1, 80), insert(2, 2, 80)],
        ] {
            let refused = node.failure(&format!("BEGIN {kind}BATCH {}APPLY BATCH", parts.concat()));
            let reported = refused.strip_prefix("Rejected an oversized mutation (").unwrap();
            assert!(reported.ends_with("/131072) for keyspace: ks. Top keys are: pairs.k\\:a:2:00ff"), "{reported}");
            assert!(node.rows("SELECT * FROM pairs").is_empty());
        }
    }
}

#[test]
fn a_batch_with_a_failing_statement_writes_nothing() {
    let node = TestNode::with(&[TABLE]);
    let entry = |text| BatchEntry { statement: BatchStatement::Text(text), values: Values::NONE };
    let batch =
        [entry("INSERT INTO t (k, c, v) VALUES (1, 1, 1)"), entry("UPDATE t SET l[0] = 1 WHERE k = 2 AND c = 1")];
    let error = node.batch(BatchKind::Logged, &batch, &QueryOptions::default()).unwrap_err();
    assert_eq!(error.message, "Attempted to set an element on a list which is null");
    assert!(node.rows("SELECT * FROM t").is_empty());
}

#[test]
fn tables_of_the_node_itself_are_not_written_to() {
    let node = TestNode::with(&[]);
    for (statement, keyspace) in [
        ("INSERT INTO system.local (key) VALUES ('local')", "system"),
        ("DELETE FROM system_schema.tables WHERE keyspace_name = 'ks'", "system_schema"),
        ("TRUNCATE system_schema.tables", "system_schema"),
        ("BEGIN BATCH UPDATE system.local SET cluster_name = 'x' WHERE key = 'local'; APPLY BATCH", "system"),
    ] {
        let error = node.try_run(statement, &QueryOptions::default()).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Unauthorized, "{statement}");
        assert_eq!(error.message, format!("{keyspace} keyspace is not user-modifiable."));
    }
}

#[test]
fn truncation_deletes_rows_of_every_age_and_keeps_a_snapshot() {
    let node = TestNode::with(&[TABLE]);
    let engine = node.processor.engine().clone();
    node.run("INSERT INTO t (k, c, v) VALUES (1, 1, 1)");
    engine.flush(engine.schema().table("ks", "t").unwrap()).unwrap();
    node.run("INSERT INTO t (k, c, v) VALUES (2, 1, 1)");
    node.run("TRUNCATE t");
    assert!(node.rows("SELECT * FROM t").is_empty());
    // This write is older than the truncated rows, and comes after the truncation.
    node.run("INSERT INTO t (k, c, v) VALUES (3, 1, 1) USING TIMESTAMP 1");
    assert_eq!(node.rows("SELECT k FROM t"), ["3"]);
    assert_eq!(snapshots(&node), 1);
}

#[test]
fn a_table_may_do_without_snapshots() {
    let node = TestNode::with(&["CREATE TABLE t (k int PRIMARY KEY) WITH allow_auto_snapshot = false"]);
    node.run("INSERT INTO t (k) VALUES (1)");
    node.run("TRUNCATE t");
    assert_eq!(snapshots(&node), 0);
}

/// The number of snapshots of the tables of `ks` that are named after a truncation.
fn snapshots(node: &TestNode) -> usize {
    let options = node.processor.engine().options().clone();
    let keyspace = options.directory.join("data").join("ks");
    let entries = |directory: &std::path::Path| options.disk.list(directory).unwrap_or_default();
    let tables = entries(&keyspace);
    let all = tables.iter().flat_map(|table| entries(&keyspace.join(&table.name).join("snapshots")));
    all.filter(|snapshot| snapshot.name.starts_with("truncated-")).count()
}

#[test]
fn an_element_set_twice_in_one_statement_is_set_to_what_reconciliation_keeps() {
    let node = TestNode::with(&["CREATE TABLE m (k int PRIMARY KEY, m map<int, int>, l list<int>)"]);
    node.run("UPDATE m SET m[1] = 5, m[2] = 7, m[1] = 3 WHERE k = 1");
    assert_eq!(node.rows("SELECT m FROM m"), ["{1: 5, 2: 7}"]);
    node.run("UPDATE m SET l = l + [1, 2], l[1] = 9 WHERE k = 1");
    assert_eq!(node.rows("SELECT l FROM m"), ["[1, 9]"]);
}
