//! INs of several columns are multiplied: too many combinations are refused before they are built.

use query::{BatchEntry, BatchKind, BatchStatement, QueryOptions, Values};

use crate::node::TestNode;

const REFUSED: &str = "The cartesian product of the IN restrictions produces";

fn node() -> TestNode {
    TestNode::with(&[
        "CREATE TABLE t (a int, b int, c int, d int, e int, v blob, PRIMARY KEY ((a, b), c, d, e))",
        "CREATE TABLE w (a text, b text, v blob, PRIMARY KEY ((a, b)))",
    ])
}

/// `IN (0, 1, ...)`
fn list(count: usize) -> String {
    let values: Vec<String> = (0..count).map(|value| value.to_string()).collect();
    format!("IN ({})", values.join(", "))
}

#[test]
fn products_of_ins_are_refused_before_they_are_made() {
    let node = node();
    let many = list(2_000);
    let pairs: Vec<String> = (0..2_000).map(|value| format!("({value}, 1)")).collect();
    let pairs = format!("IN ({})", pairs.join(", "));
    for condition in [
        format!("a {many} AND b {many} AND c {many} AND d {many} AND e {many}"),
        format!("a = 1 AND b = 1 AND c {many} AND d {many} AND e = 1"),
        format!("a = 1 AND b = 1 AND (c, d) {pairs} AND e {many}"),
    ] {
        for statement in [
            format!("SELECT * FROM t WHERE {condition}"),
            format!("UPDATE t SET v = 0x01 WHERE {condition}"),
            format!("DELETE FROM t WHERE {condition}"),
            format!("BEGIN BATCH DELETE FROM t WHERE {condition}; APPLY BATCH"),
        ] {
            let message = node.failure(&statement);
            assert!(message.starts_with(REFUSED), "{message}");
        }
        let text = format!("DELETE FROM t WHERE {condition}");
        let entries = [BatchEntry { statement: BatchStatement::Text(&text), values: Values::NONE }];
        let error = node.batch(BatchKind::Unlogged, &entries, &QueryOptions::default()).unwrap_err();
        assert!(error.message.starts_with(REFUSED), "{}", error.message);
    }
}

#[test]
fn partitions_and_rows_of_a_write_multiply_too() {
    let node = node();
    let condition = format!("a {0} AND b = 1 AND c {0} AND d = 1 AND e = 1", list(300));
    let message = node.failure(&format!("DELETE FROM t WHERE {condition}"));
    assert_eq!(message, format!("{REFUSED} 90000 values, more than the maximum of 65536"));
}

#[test]
fn products_of_long_values_are_refused_by_their_bytes() {
    let node = node();
    let long: Vec<String> = (0..20).map(|value| format!("'{}{value:02}'", "x".repeat(30_000))).collect();
    let short: Vec<String> = (0..200).map(|value| format!("'{value}'")).collect();
    let condition = format!("a IN ({}) AND b IN ({})", long.join(", "), short.join(", "));
    let message = node.failure(&format!("SELECT * FROM w WHERE {condition}"));
    assert_eq!(message, "The IN restrictions on partition key produce more than 67108864 bytes");
}

#[test]
fn a_value_written_to_many_rows_counts_for_each() {
    let node = node();
    let value = "00".repeat(1 << 20);
    let message = node
        .failure(&format!("UPDATE t SET v = 0x{value} WHERE a = 1 AND b = 1 AND c {} AND d = 1 AND e = 1", list(200)));
    assert_eq!(message, "The rows that the statement writes have more than 134217728 bytes");
}

#[test]
fn one_long_in_and_small_products_are_carried_out() {
    let node = node();
    node.run("INSERT INTO t (a, b, c, d, e, v) VALUES (1, 2, 3, 4, 5, 0x01)");
    let few = list(8);
    let condition = format!("a {few} AND b {few} AND c {few} AND d {few} AND e {few}");
    assert_eq!(node.rows(&format!("SELECT e FROM t WHERE {condition}")), ["5"]);
    let long = list(70_000);
    let select = format!("SELECT e FROM t WHERE a = 1 AND b = 2 AND c = 3 AND d = 4 AND e {long}");
    assert_eq!(node.rows(&select), ["5"]);
    node.run(&format!("DELETE FROM t WHERE a {few} AND b = 2 AND c {few} AND d = 4 AND e = 5"));
    assert_eq!(node.rows("SELECT e FROM t"), Vec::<String>::new());
}
