//! What a prepared statement allocates, counted.

use engine::block_on;
use query::{QueryOptions, Value, Values};

use crate::node::TestNode;

const STATEMENTS: i32 = 50;

/// Allocations of one INSERT of a row whose columns are all bound, on the thread that carries it out. Values are short, so that the
/// widest row is no large one.
fn allocations_of_insert(columns: usize, value: &[u8]) -> u64 {
    let names =
        |separator: &str| (0..columns).map(|column| format!("c{column}{separator}")).collect::<Vec<_>>().join(", ");
    let node = TestNode::with(&[&format!("CREATE TABLE t (k int, r int, {}, PRIMARY KEY (k, r))", names(" text"))]);
    let insert = format!("INSERT INTO t (k, r, {}) VALUES (?, ?{})", names(""), ", ?".repeat(columns));
    let prepared = node.processor.prepare(&insert, Some("ks")).unwrap();
    let write = |row: i32| {
        let (key, row) = (1_i32.to_be_bytes(), row.to_be_bytes());
        let mut values = vec![Value::Bytes(&key), Value::Bytes(&row)];
        values.resize(columns + 2, Value::Bytes(value));
        let options = QueryOptions { values: Values::Positional(&values), ..QueryOptions::default() };
        // Values come as the frame has them: the list of them is not the statement's.
        let counted = allocation_counter::measure(|| {
            drop(block_on(node.processor.execute(&prepared, &node.client, &options)).unwrap())
        });
        counted.count_total
    };
    let mut counts: Vec<u64> = (0..STATEMENTS).map(write).collect();
    assert_eq!(node.rows("SELECT count(*) FROM t"), [STATEMENTS.to_string()]);
    counts.sort_unstable();
    // Buffers and the memtable grow now and then.
    counts[counts.len() / 2]
}

#[test]
fn a_prepared_insert_allocates_no_more_for_more_columns() {
    let [few, many, most] = [10, 100, 1000].map(|columns| allocations_of_insert(columns, b""));
    println!("{few} allocations for 10 columns, {many} for 100, {most} for 1000");
    assert!(many <= few + 1 && most <= few + 1, "{few} for 10 columns, {many} for 100, {most} for 1000");
    let [few, many] = [10, 100].map(|columns| allocations_of_insert(columns, b"thirty characters of text, all"));
    assert!(many <= few + 1, "{few} for 10 columns of 30 bytes, {many} for 100");
}
