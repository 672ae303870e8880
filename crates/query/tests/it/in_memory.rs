//! Statements about tables that live in memory. Cassandra does not have such tables; the other texts are its own.

use query::{Answer, Outcome, QueryOptions, Turn, Value, Values};

use crate::node::TestNode;

const IN_MEMORY: &str = "CREATE TABLE t (k int PRIMARY KEY, v text) \
     WITH compaction = {'class': 'MemoryOnlyStrategy', 'size_limit_in_mb': 1} AND caching = ";

#[test]
fn a_table_in_memory_is_described_as_it_was_made() {
    let node = TestNode::with(&[&format!("{IN_MEMORY}{{'keys': 'NONE', 'rows_per_partition': 'NONE'}}")]);
    let options = node
        .rows("SELECT compaction, caching FROM system_schema.tables WHERE keyspace_name = 'ks' AND table_name = 't'");
    assert_eq!(
        options,
        ["{'class': 'org.apache.cassandra.db.compaction.MemoryOnlyStrategy', 'size_limit_in_mb': '1'} \
          {'keys': 'NONE', 'rows_per_partition': 'NONE'}"]
    );
    node.run("DROP TABLE t");
    node.run(&format!("{IN_MEMORY}'NONE'"));
    assert_eq!(
        node.rows(
            "SELECT compaction, caching FROM system_schema.tables WHERE keyspace_name = 'ks' AND table_name = 't'"
        ),
        options
    );
    let described = node.rows("DESCRIBE TABLE t").join("\n").replace("''", "'");
    let option =
        "compaction = {'class': 'org.apache.cassandra.db.compaction.MemoryOnlyStrategy', 'size_limit_in_mb': '1'}";
    assert!(described.contains(option), "{described}");
}

#[test]
fn a_table_is_moved_into_memory_and_out_of_it() {
    let node = TestNode::with(&["CREATE TABLE t (k int PRIMARY KEY, v text)", "INSERT INTO t (k, v) VALUES (1, 'a')"]);
    let tables = "SELECT keyspace_name, table_name, in_memory, size_limit_bytes, refused_writes FROM system_views.in_memory_tables";
    assert!(node.rows(tables).is_empty());
    node.run(
        "ALTER TABLE t WITH compaction = {'class': 'MemoryOnlyStrategy', 'size_limit_in_mb': '2'} AND caching = 'none'",
    );
    assert_eq!(node.rows(tables), ["'ks' 't' true 2097152 0"]);
    node.run("ALTER TABLE t WITH caching = 'NONE'");
    node.run("INSERT INTO t (k, v) VALUES (2, 'b')");
    assert_eq!(node.rows("SELECT * FROM t"), ["1 'a'", "2 'b'"]);
    let used = "SELECT used_bytes FROM system_views.in_memory_tables";
    assert!(node.rows(used)[0].parse::<u64>().unwrap() > 0);
    node.run("ALTER TABLE t WITH compaction = {'class': 'UnifiedCompactionStrategy'}");
    assert!(node.rows(tables).is_empty());
    assert_eq!(node.rows("SELECT * FROM t"), ["1 'a'", "2 'b'"]);
}

#[test]
fn a_pending_write_that_a_full_table_refuses_is_counted_once() {
    let node = TestNode::with(&[&format!("{IN_MEMORY}'NONE'")]);
    let insert = node.processor.prepare("INSERT INTO t (k, v) VALUES (?, ?)", Some("ks")).unwrap();
    let value = [b'v'; 50_000];
    let refusal = (0..100_i32).find_map(|k| {
        let key = k.to_be_bytes();
        let values = [Value::Bytes(&key), Value::Bytes(&value)];
        let options = QueryOptions { values: Values::Positional(&values), ..QueryOptions::default() };
        match node.begin(&insert, &options, Turn::NON_BLOCKING, None) {
            Outcome::Done(Answer::Response(response)) => response.err(),
            Outcome::Pending(pending) => pending.wait().err(),
            Outcome::Done(Answer::Written) | Outcome::MustBlock(_) => panic!("it waits for the log, if for anything"),
        }
    });
    let message = refusal.expect("a table of 1 MB does not take 5 MB").message;
    assert!(message.contains("ks.t"), "{message}");
    assert_eq!(node.rows("SELECT refused_writes FROM system_views.in_memory_tables"), ["1"]);
}

#[test]
fn options_that_make_no_sense_are_refused() {
    let node = TestNode::with(&["CREATE TABLE t (k int PRIMARY KEY)"]);
    let refused = |options: &str, message: &str| {
        assert_eq!(node.failure(&format!("ALTER TABLE t WITH {options}")), message);
    };
    let class = "'class': 'MemoryOnlyStrategy'";
    refused(&format!("compaction = {{{class}}}"), "Missing sub-option 'size_limit_in_mb' for MemoryOnlyStrategy");
    refused(
        &format!("compaction = {{{class}, 'size_limit_in_mb': 'x'}}"),
        "size_limit_in_mb should be an integer, but \"x\" was specified",
    );
    refused(
        &format!("compaction = {{{class}, 'size_limit_in_mb': 0}}"),
        "size_limit_in_mb must be between 1 and 1073741824, but was 0",
    );
    refused(
        &format!("compaction = {{{class}, 'size_limit_in_mb': 1, 'min_threshold': 4}}"),
        "Properties specified [min_threshold] are not understood by MemoryOnlyStrategy",
    );
    // For a table on disk the text is Cassandra's.
    refused("caching = 'NONE'", "Invalid value for property 'caching'. It should be a map.");
}

#[test]
fn a_write_that_a_full_table_has_no_room_for_is_an_invalid_request() {
    let node = TestNode::with(&[&format!("{IN_MEMORY}'NONE'")]);
    let insert = |k: i32, length: usize| format!("INSERT INTO t (k, v) VALUES ({k}, '{}')", "v".repeat(length));
    let refusal = (0..).find_map(|k| node.try_run(&insert(k, 10_000), &QueryOptions::default()).err()).unwrap();
    assert!(refusal.message.starts_with("Table ks.t lives in memory and is full: it takes "), "{}", refusal.message);
    assert_eq!(crate::errors::code(&refusal), "0x2200");
    let counts =
        "SELECT refused_writes, warnings_at_80_percent, warnings_at_95_percent FROM system_views.in_memory_tables";
    assert_eq!(node.rows(counts), ["1 1 1"]);
    node.run("DELETE FROM t WHERE k = 0");
    node.run(&insert(1_000_000, 9_000));
}
