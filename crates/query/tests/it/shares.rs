//! Limits of what one statement may take of shared resources: the locks of partitions, and threads.

use std::sync::Arc;
use std::thread;
use std::time::Instant;

use blockio::SimulatedDisk;
use protocol::Version;
use query::{
    BatchEntry, BatchKind, BatchStatement, ErrorKind, Lease, MemoryBudget, MustBlock, Outcome, ProcessorOptions,
    QueryError, QueryOptions, Request, Response, Statement, TraceLog, Turn, Value, Values,
};

use crate::node::TestNode;

/// Executes a statement as a connection does: where it may not block.
fn run_on_connection(node: &TestNode, text: &str, values: &[Value<'_>]) -> Result<Response, QueryError> {
    let options = QueryOptions { values: Values::Positional(values), ..QueryOptions::default() };
    match node.begin_statement(Statement::Text(text), &options, Turn::NON_BLOCKING, None) {
        Outcome::Pending(pending) => pending.wait(),
        Outcome::MustBlock(work) => work.run(None),
        Outcome::Done(_) => panic!("{text} does not wait"),
    }
}

/// A traced request, which runs on the blocking pool.
fn begin_traced(node: &TestNode, statement: Statement<'_>) -> Box<MustBlock> {
    let (trace, options) = (Arc::new(TraceLog::begin()), QueryOptions::default());
    let (client, version) = (&node.client, Version::V5);
    let request = Request { statement, client, options: &options, version, trace: Some(&trace) };
    match query::QueryHandler::begin(&node.processor, &request, Turn::NON_BLOCKING, None) {
        Outcome::MustBlock(work) => work,
        _ => panic!("a traced request needs another thread"),
    }
}

fn numbers(range: std::ops::Range<usize>) -> String {
    range.map(|number| number.to_string()).collect::<Vec<_>>().join(", ")
}

/// As one mutation, the increments would be larger than a record of the log may be.
#[test]
fn increments_of_many_partitions_are_counted_in_parts_while_others_count_too() {
    const PARTITIONS: usize = 2_000;
    const ROUNDS: usize = 3;
    let node = TestNode::with(&["CREATE TABLE t (k int PRIMARY KEY, c counter)"]);
    let of_all = format!("UPDATE t SET c = c + 1 WHERE k IN ({})", numbers(0..PARTITIONS));
    thread::scope(|scope| {
        for may_block in [true, false] {
            let (node, of_all) = (&node, &of_all);
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    match may_block {
                        true => drop(node.run(of_all)),
                        false => drop(run_on_connection(node, of_all, &[]).unwrap()),
                    }
                }
            });
        }
        (0..100).for_each(|k| drop(node.run(&format!("UPDATE t SET c = c + 10 WHERE k = {k}"))));
    });
    let rows = node.rows("SELECT c FROM t");
    let count = |expected: usize| rows.iter().filter(|row| **row == expected.to_string()).count();
    assert_eq!((count(2 * ROUNDS + 10), count(2 * ROUNDS)), (100, PARTITIONS - 100));
}

#[test]
fn increments_that_are_counted_in_parts_take_memory_of_their_client() {
    let mut node = TestNode::with(&["CREATE TABLE t (k int PRIMARY KEY, c counter)"]);
    let update = format!("UPDATE t SET c = c + 1 WHERE k IN ({})", numbers(0..2_000));
    let memory = MemoryBudget::new(1 << 20);
    Arc::make_mut(&mut node.client).memory = Some(memory.clone());
    run_on_connection(&node, &update, &[]).unwrap();
    assert_eq!(memory.taken_bytes(), 0);
    let mut other = Lease::new(memory.clone());
    other.grow(900 << 10);
    assert_eq!(run_on_connection(&node, &update, &[]).unwrap_err().kind, ErrorKind::Overloaded);
    assert_eq!(memory.taken_bytes(), other.bytes());
    drop(other);
    assert_eq!(node.rows("SELECT c FROM t WHERE k = 1"), ["1"]);
}

/// The keys of an IN are work, of which a turn has room for 2,500 steps.
#[test]
fn a_write_that_reads_first_goes_to_another_thread_if_its_keys_exceed_its_turn() {
    let options = ProcessorOptions { batch_size_fail_threshold_bytes: 1 << 20, ..ProcessorOptions::default() };
    let node = TestNode::with_options(options).with_keyspace();
    node.run("CREATE TABLE t (k int PRIMARY KEY, c counter)");
    let update = format!("UPDATE t SET c = c + 1 WHERE k IN ({})", numbers(0..3_000));
    run_on_connection(&node, &update, &[]).unwrap();
    let entries = [BatchEntry { statement: BatchStatement::Text(&update), values: Values::NONE }];
    let batch = Statement::Batch { kind: BatchKind::Counter, entries: &entries };
    match node.begin_statement(batch, &QueryOptions::default(), Turn::NON_BLOCKING, None) {
        Outcome::MustBlock(work) => drop(work.run(None).unwrap()),
        _ => panic!("the batch exceeds its turn"),
    }
    assert!(node.rows("SELECT c FROM t").iter().all(|row| row == "2"));
}

/// A client has few threads of the pool at a time, so few of its statements wait for the locks of many partitions.
#[test]
fn a_modification_that_reads_many_partitions_first_goes_to_another_thread() {
    let tables = ["CREATE TABLE c (k int PRIMARY KEY, c counter)", "CREATE TABLE l (k int PRIMARY KEY, l list<int>)"];
    let node = TestNode::with(&tables);
    for update in ["UPDATE c SET c = c + 1 WHERE k IN", "UPDATE l SET l = l - [1] WHERE k IN"] {
        for (partitions, is_moved) in [(128, false), (129, true)] {
            let update = format!("{update} ({})", numbers(0..partitions));
            let begun =
                node.begin_statement(Statement::Text(&update), &QueryOptions::default(), Turn::NON_BLOCKING, None);
            assert_eq!(matches!(begun, Outcome::MustBlock(_)), is_moved, "{partitions} partitions");
            begun.into_response().unwrap();
        }
    }
    assert_eq!(node.rows("SELECT c FROM c WHERE k = 127"), ["2"]);
}

#[test]
fn a_write_of_many_entries_of_indexes_goes_to_another_thread() {
    let node = TestNode::with(&["CREATE TABLE t (k int PRIMARY KEY, s set<int>)"]);
    let is_moved = |(keys, count): (usize, usize)| {
        let update = format!("UPDATE t SET s = {{{}}} WHERE k IN ({})", numbers(0..count), numbers(0..keys));
        let begun = node.begin_statement(Statement::Text(&update), &QueryOptions::default(), Turn::NON_BLOCKING, None);
        let is_moved = matches!(begun, Outcome::MustBlock(_));
        begun.into_response().unwrap();
        is_moved
    };
    assert!(![(1, 4_000), (100, 40)].map(is_moved).contains(&true));
    node.run("CREATE INDEX ON t (values(s))");
    assert_eq!([(1, 1_000), (1, 4_000), (10, 40), (100, 40)].map(is_moved), [false, true, false, true]);
}

#[test]
fn a_batch_of_counters_in_many_partitions_is_counted_in_parts() {
    const PARTITIONS: usize = 300;
    let node = TestNode::with(&["CREATE TABLE t (k int PRIMARY KEY, c counter)"]);
    let statements: Vec<_> = (0..PARTITIONS).map(|k| format!("UPDATE t SET c = c + {k} WHERE k = {k}")).collect();
    let entry = |text| BatchEntry { statement: BatchStatement::Text(text), values: Values::NONE };
    let entries: Vec<_> = statements.iter().map(|statement| entry(statement.as_str())).collect();
    node.batch(BatchKind::Counter, &entries, &QueryOptions::default()).unwrap();
    node.run(&format!("BEGIN COUNTER BATCH {}; APPLY BATCH", statements.join("; ")));
    for k in 0..PARTITIONS {
        assert_eq!(node.rows(&format!("SELECT c FROM t WHERE k = {k}")), [(2 * k).to_string()]);
    }
}

/// The mutation is larger than a record of the log in one case, and has too many partitions in the other.
#[test]
fn lists_of_many_partitions_are_changed_in_parts() {
    for (partitions, value_bytes) in [(40, 5_000), (300, 10)] {
        let node = TestNode::with(&["CREATE TABLE t (k int PRIMARY KEY, l list<int>, v text)"]);
        (0..partitions).for_each(|k| drop(node.run(&format!("INSERT INTO t (k, l) VALUES ({k}, [{k}, 1000, 7])"))));
        let text = "x".repeat(value_bytes);
        let update = format!("UPDATE t SET l = l - [1000], v = ? WHERE k IN ({})", numbers(0..partitions));
        run_on_connection(&node, &update, &[Value::Bytes(text.as_bytes())]).unwrap();
        for k in 0..partitions {
            let row = node.rows(&format!("SELECT l, v FROM t WHERE k = {k}"));
            assert_eq!(row, [format!("[{k}, 7] '{text}'")]);
        }
    }
}

#[test]
fn a_thread_waits_for_the_log_until_the_deadline_of_its_write() {
    let disk = SimulatedDisk::new();
    let node = TestNode::in_directory(&disk, "/node", ProcessorOptions::default()).with_keyspace();
    node.run("CREATE TABLE t (k int PRIMARY KEY)");
    let statements = ["INSERT INTO t (k) VALUES (1)", "INSERT INTO t (k) VALUES (2) IF NOT EXISTS"];
    for (statement, k) in statements.iter().zip(1..) {
        let work = begin_traced(&node, Statement::Text(statement));
        let stall = disk.stall();
        let error = work.run(Some(Instant::now())).unwrap_err();
        assert!(matches!(error.kind, ErrorKind::WriteTimeout { .. }), "{statement}: {error:?}");
        drop(stall);
        // Its record is in the log, so it is finished in the background.
        while node.rows(&format!("SELECT k FROM t WHERE k = {k}")).is_empty() {
            thread::yield_now();
        }
    }
}

#[test]
fn a_batch_that_waited_for_a_thread_is_executed_under_the_schema_of_then() {
    let node = TestNode::with(&["CREATE TABLE t (k int PRIMARY KEY, v int, w int)"]);
    let entry = |text| BatchEntry { statement: BatchStatement::Text(text), values: Values::NONE };
    let entries = [entry("INSERT INTO t (k, v) VALUES (1, 1)"), entry("INSERT INTO t (k, w) VALUES (2, 2)")];
    let begin = || begin_traced(&node, Statement::Batch { kind: BatchKind::Unlogged, entries: &entries });
    let (before, after) = (begin(), begin());
    node.run("ALTER TABLE t ADD x int");
    before.run(None).unwrap();
    assert_eq!(node.rows("SELECT k, v, w, x FROM t"), ["1 1 null null", "2 null 2 null"]);
    node.run("ALTER TABLE t DROP v");
    let error = after.run(None).unwrap_err();
    assert!(matches!(error.kind, ErrorKind::Unprepared { .. }), "{error:?}");
}
