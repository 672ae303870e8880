//! The allocations of prepared statements.

use blockio::SimulatedDisk;
use query::{Answer, Consistency, Outcome, ProcessorOptions, QueryOptions, ResponseBody, Turn, Value, Values};

use crate::node::TestNode;

const STATEMENTS: i32 = 50;

/// A keyspace without a log. Whether a write waits for the log's writer depends on which of them is quicker, and a
/// write that waits allocates more.
const QUICK: &str = "CREATE KEYSPACE quick WITH durable_writes = false AND replication = \
                     {'class': 'SimpleStrategy', 'replication_factor': 1}";

/// The allocations of one INSERT of a row whose columns are all bound, on the executing thread.
fn allocations_of_insert(columns: usize, value: &[u8]) -> u64 {
    let names =
        |separator: &str| (0..columns).map(|column| format!("c{column}{separator}")).collect::<Vec<_>>().join(", ");
    let node = TestNode::with(&[
        QUICK,
        &format!("CREATE TABLE quick.t (k int, r int, {}, PRIMARY KEY (k, r))", names(" text")),
    ]);
    let insert = format!("INSERT INTO quick.t (k, r, {}) VALUES (?, ?{})", names(""), ", ?".repeat(columns));
    let prepared = node.processor.prepare(&insert, Some("ks")).unwrap();
    let write = |row: i32| {
        let (key, row) = (1_i32.to_be_bytes(), row.to_be_bytes());
        let mut values = vec![Value::Bytes(&key), Value::Bytes(&row)];
        values.resize(columns + 2, Value::Bytes(value));
        let options = QueryOptions { values: Values::Positional(&values), ..QueryOptions::default() };
        // The values are in the form of a frame, so the list of them is not counted for the statement.
        let counted = allocation_counter::measure(|| drop(node.execute(&prepared, &options).unwrap()));
        counted.count_total
    };
    let mut counts: Vec<u64> = (0..STATEMENTS).map(write).collect();
    assert_eq!(node.rows("SELECT count(*) FROM quick.t"), [STATEMENTS.to_string()]);
    counts.sort_unstable();
    // Buffers and the memtable grow from time to time.
    counts[counts.len() / 2]
}

#[test]
fn a_prepared_insert_allocates_no_more_for_more_columns() {
    let [few, many, most] = [10, 100, 700].map(|columns| allocations_of_insert(columns, b""));
    println!("{few} allocations for 10 columns, {many} for 100, {most} for 700");
    assert!(many <= few + 1 && most <= few + 1, "{few} for 10 columns, {many} for 100, {most} for 700");
    let thirty = b"thirty characters of text, all";
    let [few, many, most] = [10, 100, 1000].map(|columns| allocations_of_insert(columns, thirty));
    assert!(many <= few + 1, "{few} for 10 columns of 30 bytes, {many} for 100");
    // The last row is cut into pieces, each of which has many columns.
    println!("{most} allocations for 1000 columns of 30 bytes");
    assert!(most <= few + 1000 / 4, "{few} for 10 columns of 30 bytes, {most} for 1000");
}

/// A write that does not wait allocates only its update, in which the row is built in place. A short key needs no
/// memory of its own.
#[test]
fn a_write_at_once_allocates_once() {
    let node = TestNode::with(&[QUICK, "CREATE TABLE quick.t (k blob PRIMARY KEY, v blob)"]);
    let prepared = node.processor.prepare("INSERT INTO quick.t (k, v) VALUES (?, ?)", None).unwrap();
    let write = |key: i32| {
        let key = key.to_be_bytes();
        let values = [Value::Bytes(&key), Value::Bytes(&[7; 100])];
        let options = QueryOptions { values: Values::Positional(&values), ..QueryOptions::default() };
        let mut out = Vec::with_capacity(64);
        let counted = allocation_counter::measure(|| {
            let outcome = node.begin(&prepared, &options, Turn::NON_BLOCKING, Some(&mut out));
            assert!(matches!(outcome, Outcome::Done(Answer::Written)));
        });
        counted.count_total
    };
    let mut counts: Vec<u64> = (0..STATEMENTS).chain(0..STATEMENTS).map(write).collect();
    counts.sort_unstable();
    assert_eq!(node.rows("SELECT count(*) FROM quick.t"), [STATEMENTS.to_string()]);
    assert_eq!(counts[counts.len() / 2], 1, "{counts:?}");
}

/// The bytes that a SELECT allocates for the first `limit` of `rows` rows of a partition, each of a hundred columns.
fn bytes_of_select(rows: i32, limit: usize) -> u64 {
    let columns = (0..100).map(|column| format!("c{column}")).collect::<Vec<_>>();
    let node = TestNode::with(&[&format!(
        "CREATE TABLE t (k int, r int, {} text, PRIMARY KEY (k, r))",
        columns.join(" text, ")
    )]);
    let marks = ", ?".repeat(columns.len());
    let insert = format!("INSERT INTO t (k, r, {}) VALUES (1, ?{marks})", columns.join(", "));
    let insert = node.processor.prepare(&insert, Some("ks")).unwrap();
    for row in 0..rows {
        let row = row.to_be_bytes();
        let mut values = vec![Value::Bytes(&row)];
        values.resize(columns.len() + 1, Value::Bytes(b"fifteen letters"));
        let options = QueryOptions { values: Values::Positional(&values), ..QueryOptions::default() };
        node.execute(&insert, &options).unwrap();
    }
    let select = format!("SELECT {} FROM t WHERE k = 1 LIMIT {limit}", columns.join(", "));
    let select = node.processor.prepare(&select, Some("ks")).unwrap();
    let options = QueryOptions::default();
    let read = |_| {
        let counted = allocation_counter::measure(|| {
            let answer = node.execute(&select, &options).unwrap();
            assert!(matches!(answer.body, ResponseBody::Rows(rows) if rows.row_count == limit));
        });
        counted.bytes_total
    };
    (0..3).map(read).min().unwrap()
}

#[test]
fn a_select_with_a_limit_copies_no_more_rows_than_that() {
    const ROW_BYTES: u64 = 1_900;
    let [exact, more] = [20, 100].map(|rows| bytes_of_select(rows, 20));
    println!("{exact} bytes allocated where the partition has as many rows, {more} where it has more");
    // The size of a cursor's path through the trie varies a little.
    assert!(more < exact + 2 * ROW_BYTES, "{exact} for as many rows, {more} for more");
    // The rows are copied out of the memtable once and into the answer once, with some reserve for differences.
    assert!(exact < 2 * 20 * ROW_BYTES * 3 / 2, "{exact}");
}

#[test]
fn a_select_of_one_column_allocates_little_of_a_row_in_pieces() {
    const COLUMNS: usize = 1_000;
    const VALUE: &[u8] = &[b'x'; 60];
    let names: Vec<String> = (0..COLUMNS).map(|column| format!("c{column}")).collect();
    let create = format!("CREATE TABLE t (k int PRIMARY KEY, {} text)", names.join(" text, "));
    let node = TestNode::with(&[&create]);
    let insert = format!("INSERT INTO t (k, {}) VALUES (1{})", names.join(", "), ", ?".repeat(COLUMNS));
    let insert = node.processor.prepare(&insert, Some("ks")).unwrap();
    let values = [Value::Bytes(VALUE); COLUMNS];
    let options = QueryOptions { values: Values::Positional(&values), ..QueryOptions::default() };
    node.execute(&insert, &options).unwrap();
    let bytes = |select: &str| {
        let select = node.processor.prepare(select, Some("ks")).unwrap();
        let options = QueryOptions::default();
        let read = || node.execute(&select, &options).unwrap();
        let counted = allocation_counter::measure(|| drop(read()));
        let ResponseBody::Rows(rows) = read().body else { panic!("rows") };
        (counted.bytes_total, rows.row_count, rows.cells.len())
    };
    let (all, _, _) = bytes("SELECT * FROM t");
    let row_bytes = (COLUMNS * (VALUE.len() + 4)) as u64;
    assert!(all > 2 * row_bytes, "{all}");
    let (one, rows, cells) = bytes("SELECT c678 FROM t");
    println!("{one} bytes, of all columns {all}");
    assert_eq!((rows, cells), (1, 4 + VALUE.len()));
    assert!(one < all / 8, "{one} bytes, of all columns {all}");
}

#[test]
fn local_quorum_allocates_what_one_does() {
    let node = TestNode::with(&[QUICK, "CREATE TABLE quick.t (k int PRIMARY KEY, v text)"]);
    let prepare = |text: &str| node.processor.prepare(text, Some("quick")).unwrap();
    let (insert, select) = (prepare("INSERT INTO t (k, v) VALUES (1, ?)"), prepare("SELECT v FROM t WHERE k = 1"));
    let counted = |consistency: Consistency| {
        let options =
            |values| QueryOptions { values: Values::Positional(values), consistency, ..QueryOptions::default() };
        let values = [Value::Bytes(b"some text")];
        let once = |_| {
            let counted = allocation_counter::measure(|| {
                drop(node.execute(&insert, &options(&values)).unwrap());
                drop(node.execute(&select, &options(&[])).unwrap());
            });
            (counted.count_total, counted.bytes_total)
        };
        // Buffers and the memtable grow from time to time.
        (0..50).map(once).min().unwrap()
    };
    assert_eq!(counted(Consistency::LocalQuorum), counted(Consistency::One));
}

/// What makes the entries of an index is made once, a part of the index without the value costs nothing, and a row by
/// itself is read without a cursor.
#[test]
fn a_search_for_one_row_by_an_index_allocates_little() {
    const PARTS: usize = 8;
    let node = TestNode::with_engine(&SimulatedDisk::new(), "/node", ProcessorOptions::default(), |options| {
        options.memtable_shards = PARTS;
    })
    .with_keyspace();
    node.run("CREATE TABLE t (k int PRIMARY KEY, a int, name text)");
    ["a", "name"].iter().for_each(|column| drop(node.run(&format!("CREATE INDEX ON t ({column}) USING 'sai'"))));
    for row in 0..STATEMENTS {
        node.run(&format!("INSERT INTO t (k, a, name) VALUES ({row}, {row}, 'the name {row}')"));
    }
    let select = node.processor.prepare("SELECT k, a FROM t WHERE name = ?", Some("ks")).unwrap();
    let search = |row: i32| {
        let name = format!("the name {row}");
        let values = [Value::Bytes(name.as_bytes())];
        let options = QueryOptions { values: Values::Positional(&values), ..QueryOptions::default() };
        let counted = allocation_counter::measure(|| {
            let answer = node.execute(&select, &options).unwrap();
            assert!(matches!(answer.body, ResponseBody::Rows(rows) if rows.row_count == 1));
        });
        counted.count_total
    };
    let counts: Vec<u64> = (0..STATEMENTS).map(search).collect();
    let least = counts.iter().min().unwrap();
    println!("{least} allocations of a search for one row in {PARTS} parts");
    assert!(*least <= 41, "{counts:?}");
}
