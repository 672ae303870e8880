//! Limits of what a statement may take: the work of a turn, time, and memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use query::{
    Answer, ErrorKind, FailureReason, Guardrail, Guardrails, Lease, MemoryBudget, MustBlock, Outcome, ProcessorOptions,
    QueryError, QueryOptions, ReadThresholds, Rows, Turn, Value, Values,
};

use crate::node::{TestNode, rows_of};

/// Many more rows than the 2,500 steps of a turn.
const MANY_ROWS: usize = 11_000;
/// The number of rows that one statement writes.
const ROWS_PER_BATCH: usize = 1_000;

/// A node with one partition of `rows` rows.
fn node_with_rows(rows: usize, options: ProcessorOptions) -> TestNode {
    let options = ProcessorOptions { batch_size_fail_threshold_bytes: u64::MAX, ..options };
    let node = TestNode::with_options(options).with_keyspace();
    node.run("CREATE TABLE t (k int, c int, v int, PRIMARY KEY (k, c))");
    let places: Vec<usize> = (0..rows).collect();
    for places in places.chunks(ROWS_PER_BATCH) {
        let inserts: Vec<String> =
            places.iter().map(|place| format!("INSERT INTO t (k, c, v) VALUES (1, {place}, {place})")).collect();
        node.run(&format!("BEGIN UNLOGGED BATCH {} APPLY BATCH", inserts.join("; ")));
    }
    node
}

/// Begins a SELECT on a thread that must not block.
fn begin(node: &TestNode, statement: &str) -> Outcome {
    let prepared = node.processor.prepare(statement, Some("ks")).unwrap();
    node.begin(&prepared, &QueryOptions::default(), Turn::NON_BLOCKING, None)
}

/// The rows of a SELECT that is done in its turn.
fn at_once(node: &TestNode, statement: &str) -> Rows {
    match begin(node, statement) {
        Outcome::Done(Answer::Response(response)) => rows_of(response.unwrap()),
        Outcome::Done(Answer::Written) | Outcome::Pending(_) => panic!("{statement}"),
        Outcome::MustBlock(_) => panic!("{statement} needs more than its turn"),
    }
}

/// A SELECT that needs more than its turn.
fn must_block(node: &TestNode, statement: &str) -> Box<MustBlock> {
    match begin(node, statement) {
        Outcome::MustBlock(work) => work,
        _ => panic!("{statement} is done in its turn"),
    }
}

#[test]
fn a_read_that_exceeds_its_turn_is_executed_where_it_may_block() {
    let node = node_with_rows(MANY_ROWS, ProcessorOptions::default());
    for statement in [
        "SELECT max(v), count(v) FROM t WHERE k = 1",
        "SELECT * FROM t WHERE k = 1 AND v = -1 ALLOW FILTERING",
        "SELECT c FROM t WHERE k = 1 GROUP BY k",
    ] {
        drop(must_block(&node, statement));
    }
    assert_eq!(node.rows("SELECT max(v), count(v) FROM t WHERE k = 1"), [format!("{} {MANY_ROWS}", MANY_ROWS - 1)]);

    let few = at_once(&node, "SELECT * FROM t WHERE k = 1 LIMIT 2000");
    assert_eq!(few.row_count, 2000);
}

#[test]
fn a_statement_that_exceeded_its_turn_uses_up_none_when_it_is_executed_again() {
    let node = node_with_rows(MANY_ROWS, ProcessorOptions::default());
    let prepared = node.processor.prepare("SELECT max(v) FROM t WHERE k = ? AND c < ?", Some("ks")).unwrap();
    let begin = |rows: i32| {
        let (key, end) = (1_i32.to_be_bytes(), rows.to_be_bytes());
        let values = [Value::Bytes(&key), Value::Bytes(&end)];
        let options = QueryOptions { values: Values::Positional(&values), ..QueryOptions::default() };
        let is_large = AtomicBool::new(false);
        let turn = Turn { is_large: Some(&is_large), ..Turn::NON_BLOCKING };
        (node.begin(&prepared, &options, turn, None), is_large.into_inner())
    };
    let run = |outcome: Outcome| match outcome {
        Outcome::MustBlock(work) => drop(work.run(None).unwrap()),
        _ => panic!("it is done in its turn"),
    };
    let (outcome, is_large) = begin(4_000);
    assert!(is_large, "the first attempt uses up a turn");
    run(outcome);
    let (outcome, is_large) = begin(4_000);
    assert!(!is_large, "it is not attempted again");
    run(outcome);
    let (outcome, _) = begin(10);
    run(outcome);
    assert!(matches!(begin(10).0, Outcome::Done(_)), "it was short the last time");
}

#[test]
fn a_small_range_of_an_index_is_sorted_within_a_turn() {
    let node = TestNode::with(&["CREATE TABLE u (k int PRIMARY KEY, v int)", "CREATE INDEX ON u (v) USING 'sai'"]);
    for place in 0..1000 {
        node.run(&format!("INSERT INTO u (k, v) VALUES ({place}, {place})"));
    }
    node.run("UPDATE u SET v = 150 WHERE k = 1");
    assert_eq!(at_once(&node, "SELECT k FROM u WHERE v >= 150 AND v <= 150").row_count, 2);
    assert_eq!(at_once(&node, "SELECT k FROM u WHERE v >= 100 AND v < 200").row_count, 101);
    drop(must_block(&node, "SELECT k FROM u WHERE v >= 100 AND v < 300"));
    assert_eq!(node.rows("SELECT k FROM u WHERE v >= 100 AND v < 300").len(), 201);
}

#[test]
fn deleted_rows_count_as_work() {
    let node = node_with_rows(MANY_ROWS, ProcessorOptions::default());
    let last = "SELECT v FROM t WHERE k = 1 ORDER BY c DESC LIMIT 1";
    assert_eq!(at_once(&node, last).row_count, 1);
    for place in 1..MANY_ROWS {
        node.run(&format!("DELETE FROM t WHERE k = 1 AND c = {place}"));
    }
    drop(must_block(&node, last));
    assert_eq!(node.rows(last), ["0"]);
}

#[test]
fn rows_that_a_range_deletion_shadows_count_as_work() {
    let node = node_with_rows(MANY_ROWS, ProcessorOptions::default());
    // Because of this row the SSTable is not older than the deletion as a whole, so its rows are read one by one.
    node.run("INSERT INTO t (k, c, v) VALUES (1, 0, 0) USING TIMESTAMP 9000000000000000");
    let engine = node.processor.engine();
    engine.flush(engine.schema().table("ks", "t").unwrap()).unwrap();
    node.run("DELETE FROM t WHERE k = 1 AND c > 0");
    let last = "SELECT v FROM t WHERE k = 1 ORDER BY c DESC LIMIT 1";
    drop(must_block(&node, last));
    assert_eq!(node.rows(last), ["0"]);
}

#[test]
fn work_within_a_row_counts() {
    let node = node_with_rows(10, ProcessorOptions::default());
    let sums = ["v + 1"; 5000].join(", ");
    drop(must_block(&node, &format!("SELECT {sums} FROM t WHERE k = 1")));
}

#[test]
fn a_combination_of_ins_counts_as_work() {
    let node = node_with_rows(10, ProcessorOptions::default());
    let values: Vec<String> = (0..MANY_ROWS).map(|place| place.to_string()).collect();
    let statement = format!("SELECT * FROM t WHERE k = 1 AND c IN ({})", values.join(", "));
    drop(must_block(&node, &statement));
    assert_eq!(node.rows(&statement).len(), 10);
}

#[test]
fn a_scan_ends_when_its_client_has_left_or_its_time_is_over() {
    const COUNT: &str = "SELECT count(*) FROM t";
    let node = node_with_rows(1_000, ProcessorOptions::default());
    let (gone, waiting) = (must_block(&node, COUNT), must_block(&node, COUNT));
    gone.cancel_flag().store(true, Ordering::Relaxed);
    let error = gone.run(None).expect_err("nobody waits");
    assert!(matches!(error.kind, ErrorKind::ReadTimeout { .. }), "{error:?}");
    let error = must_block(&node, COUNT).run(Some(Instant::now())).expect_err("it is late");
    assert!(matches!(error.kind, ErrorKind::ReadTimeout { .. }), "{error:?}");
    assert_eq!(rows_of(waiting.run(None).unwrap()).row_count, 1);
}

#[test]
fn reads_of_partitions_and_of_ranges_have_time_limits_of_their_own() {
    let (none, long) = (Duration::ZERO, Duration::from_secs(3600));
    let partition = "SELECT count(*) FROM t WHERE k = 1";
    let range = "SELECT count(*) FROM t";
    for (read_timeout, range_timeout, fails, succeeds) in
        [(none, long, partition, range), (long, none, range, partition)]
    {
        let options = ProcessorOptions { read_timeout, range_timeout, ..ProcessorOptions::default() };
        let node = node_with_rows(1_000, options);
        let error = node.try_run(fails, &QueryOptions::default()).expect_err(fails);
        assert!(matches!(error.kind, ErrorKind::ReadTimeout { .. }), "{error:?}");
        assert_eq!(node.rows(succeeds), ["1000"]);
    }
}

fn blobs(options: ProcessorOptions) -> TestNode {
    let node = TestNode::with_options(options).with_keyspace();
    node.run("CREATE TABLE b (k int, c int, b blob, PRIMARY KEY (k, c))");
    for (key, clustering) in (0..2).flat_map(|key| (0..10).map(move |clustering| (key, clustering))) {
        node.run(&format!("INSERT INTO b (k, c, b) VALUES ({key}, {clustering}, 0x{})", "ab".repeat(1_000)));
    }
    node
}

fn is_read_size_failure(error: &QueryError) -> bool {
    let ErrorKind::ReadFailure { failures, .. } = &error.kind else { return false };
    failures.iter().any(|(_, reason)| *reason == FailureReason::ReadSize)
}

#[test]
fn an_answer_above_the_memory_limit_fails_before_it_is_built() {
    let node = blobs(ProcessorOptions { statement_memory_max_bytes: 15_000, ..ProcessorOptions::default() });
    let many = ["b"; 20].join(", ");
    for statement in [
        format!("SELECT {many} FROM b WHERE k = 0 AND c = 0"),
        format!("SELECT {many} FROM b"),
        format!("SELECT JSON {} FROM b", ["b"; 8].join(", ")),
        "SELECT * FROM b".to_owned(),
        "SELECT k, c, b FROM b WHERE k IN (0, 1) ORDER BY c".to_owned(),
        format!("SELECT {} FROM b", ["max(b)"; 20].join(", ")),
        format!("SELECT {many}, count(*) FROM b WHERE k = 0"),
    ] {
        let error = node.try_run(&statement, &QueryOptions::default()).expect_err(&statement);
        assert!(is_read_size_failure(&error), "{statement}: {error:?}");
        let text = "The statement would hold more than 15000 bytes of rows (see statement_memory_limit)";
        assert_eq!(error.message, text, "{statement}");
    }
    assert_eq!(node.rows("SELECT c FROM b").len(), 20);
    // The memory of one group is freed before the next group.
    assert_eq!(node.rows("SELECT count(*), mask_hash(b) FROM b GROUP BY k, c").len(), 20);
}

#[test]
fn statements_take_their_memory_of_what_their_client_may_hold() {
    let mut node = blobs(ProcessorOptions::default());
    node.run(&format!("INSERT INTO b (k, c, b) VALUES (2, 0, 0x{})", "ab".repeat(100_000)));
    let memory = MemoryBudget::new(1 << 20);
    Arc::make_mut(&mut node.client).memory = Some(memory.clone());
    let read = |copies: usize| {
        let selected = vec!["b"; copies].join(", ");
        node.try_run(&format!("SELECT {selected} FROM b WHERE k = 2"), &QueryOptions::default())
    };
    assert!(read(3).is_ok());
    assert_eq!(memory.taken_bytes(), 0, "it is given back");
    assert_eq!(read(20).unwrap_err().kind, ErrorKind::Overloaded);
    let mut other = Lease::new(memory.clone());
    assert!(other.try_grow(600_000));
    assert_eq!(read(3).unwrap_err().kind, ErrorKind::Overloaded);
    assert_eq!(node.rows("SELECT c FROM b WHERE k = 0").len(), 10, "small statements take nothing");
    drop(other);
    assert!(read(3).is_ok());
    assert_eq!(memory.taken_bytes(), 0);
}

#[test]
fn a_large_value_needs_memory_also_where_its_row_is_looked_up() {
    let mut node = blobs(ProcessorOptions::default());
    node.run("CREATE TABLE large (k int PRIMARY KEY, a blob, b blob)");
    for column in ["a", "b"] {
        node.run(&format!("INSERT INTO large (k, {column}) VALUES (3, 0x{})", "ab".repeat(100_000)));
    }
    let memory = MemoryBudget::new(1 << 20);
    Arc::make_mut(&mut node.client).memory = Some(memory.clone());
    let prepared = node.processor.prepare("SELECT a, b FROM large WHERE k = 3", Some("ks")).unwrap();
    let options = QueryOptions::default();
    assert_eq!(rows_of(node.execute(&prepared, &options).unwrap()).row_count, 1);
    let mut other = Lease::new(memory.clone());
    assert!(other.try_grow(1 << 20));
    assert_eq!(node.find_rows(&prepared, &options, &mut Vec::new()), None);
    assert_eq!(node.execute(&prepared, &options).unwrap_err().kind, ErrorKind::Overloaded);
    drop(other);
    assert_eq!(rows_of(node.execute(&prepared, &options).unwrap()).row_count, 1);
    assert_eq!(memory.taken_bytes(), 0);
}

/// The value of the column `a` is not large, and that of `b` is: larger than a record of the node's log.
fn node_with_large_rows() -> TestNode {
    let node = TestNode::with(&[
        "CREATE KEYSPACE quick WITH durable_writes = false AND replication = \
         {'class': 'SimpleStrategy', 'replication_factor': 1}",
        "CREATE TABLE quick.large (k int PRIMARY KEY, a blob, b blob, c int)",
        "CREATE TABLE quick.first (k int PRIMARY KEY, b blob, c int)",
    ]);
    for (column, bytes) in [("a", 10_000), ("b", 400_000)] {
        node.run(&format!("INSERT INTO quick.large (k, c, {column}) VALUES (3, 7, 0x{})", "ab".repeat(bytes)));
    }
    node.run(&format!("INSERT INTO quick.first (k, b, c) VALUES (3, 0x{}, 7)", "ab".repeat(400_000)));
    node
}

#[test]
fn a_large_row_is_copied_only_where_a_read_may_block_and_only_if_its_value_is_selected() {
    let node = node_with_large_rows();
    must_block(&node, "SELECT b FROM quick.large WHERE k = 3");
    must_block(&node, "SELECT * FROM quick.large WHERE k = 3");
    assert_eq!(at_once(&node, "SELECT a, c FROM quick.large WHERE k = 3").row_count, 1);
    // The large value is in the first piece of its row.
    must_block(&node, "SELECT b FROM quick.first WHERE k = 3");
    assert_eq!(at_once(&node, "SELECT c FROM quick.first WHERE k = 3").row_count, 1);
}

#[test]
fn one_statement_may_exceed_the_limits_for_a_large_row_and_its_answer_while_others_hold_little() {
    let mut node = node_with_large_rows();
    for limit_bytes in [1, 300_000, 900_000, 1_300_000] {
        let memory = MemoryBudget::new(limit_bytes);
        Arc::make_mut(&mut node.client).memory = Some(memory.clone());
        let read = || node.try_run("SELECT b FROM quick.large WHERE k = 3", &QueryOptions::default());
        assert_eq!(rows_of(read().unwrap()).row_count, 1, "{limit_bytes}");
        let mut other = Lease::new(memory.clone());
        other.grow(limit_bytes / 2 + 1);
        assert_eq!(read().unwrap_err().kind, ErrorKind::Overloaded, "{limit_bytes}");
        drop(other);
        assert!(read().is_ok());
        assert_eq!(memory.taken_bytes(), 0);
    }
}

#[test]
fn collections_of_selected_values_have_a_limit() {
    let node = blobs(ProcessorOptions::default());
    node.run(&format!("INSERT INTO b (k, c, b) VALUES (2, 0, 0x{})", "ab".repeat(100_000)));
    let list = format!("SELECT [{}] FROM b WHERE k = 2", ["b"; 1_000].join(", "));
    assert_eq!(node.failure(&list), "The selected value of type frozen<list<blob>> has more than 67108864 bytes");
}

fn all_pages(node: &TestNode, statement: &str, page_size: i32) -> Vec<Rows> {
    let (mut pages, mut state) = (Vec::new(), None::<Vec<u8>>);
    loop {
        let options =
            QueryOptions { page_size: Some(page_size), paging_state: state.as_deref(), ..QueryOptions::default() };
        let rows = rows_of(node.try_run(statement, &options).unwrap());
        state = rows.paging_state.clone();
        pages.push(rows);
        assert!(pages.len() < 100, "{statement} never ends");
        if state.is_none() {
            return pages;
        }
    }
}

#[test]
fn a_page_ends_when_it_reaches_its_size_limit() {
    let node = blobs(ProcessorOptions { page_max_bytes: 2_500, ..ProcessorOptions::default() });
    let whole = blobs(ProcessorOptions::default());
    for statement in [
        "SELECT * FROM b",
        "SELECT * FROM b WHERE k IN (0, 1)",
        "SELECT * FROM b WHERE k = 1 ORDER BY c DESC",
        "SELECT b, c FROM b LIMIT 7",
        "SELECT b, c FROM b PER PARTITION LIMIT 7",
        "SELECT k, c, max(b) FROM b GROUP BY k, c",
        "SELECT JSON * FROM b WHERE k = 0",
    ] {
        let expected = rows_of(whole.run(statement));
        let pages = all_pages(&node, statement, 100);
        let cells: Vec<u8> = pages.iter().flat_map(|page| page.cells.iter().copied()).collect();
        assert_eq!(cells, expected.cells, "{statement}");
        assert!(pages.iter().all(|page| page.row_count <= 3), "{statement}");
        assert_eq!(rows_of(node.run(statement)).row_count, expected.row_count, "{statement}, not paged");
    }
}

#[test]
fn thresholds_of_read_sizes_warn_and_then_fail() {
    let thresholds = |read_thresholds| ProcessorOptions {
        guardrails: Guardrails { read_thresholds, ..Guardrails::default() },
        ..ProcessorOptions::default()
    };
    let guardrail = Guardrail { warn: Some(2_000), fail: Some(3_000) };
    let node = blobs(thresholds(ReadThresholds { coordinator: guardrail, ..ReadThresholds::default() }));
    let warnings = |statement: &str| node.run(statement).warnings;
    assert_eq!(warnings("SELECT b FROM b WHERE k = 0 LIMIT 2"), Vec::<String>::new());
    assert_eq!(
        warnings("SELECT b, c FROM b WHERE k = 0 LIMIT 2"),
        ["Read on table ks.b has exceeded the size warning threshold of 2,000 bytes with token: -3485513579396041028"]
    );
    let error = node.try_run("SELECT b FROM b", &QueryOptions::default()).unwrap_err();
    assert!(is_read_size_failure(&error), "{error:?}");
    let text = "Read on table ks.b has exceeded the size failure threshold of 3,000 bytes with token range: \
                [-9223372036854775808, -9223372036854775808]";
    assert_eq!((error.message.as_str(), error.warnings), (text, vec![text.to_owned()]));

    let node = blobs(thresholds(ReadThresholds { local: guardrail, ..ReadThresholds::default() }));
    assert_eq!(node.run("SELECT c FROM b WHERE k = 0 LIMIT 1").warnings, Vec::<String>::new());
    let warnings = node.run("SELECT b FROM b WHERE k = 0 AND c < 2").warnings;
    assert!(warnings[0].starts_with("1 nodes loaded over 2"), "{warnings:?}");
    let end = "AND c < 2 ALLOW FILTERING (see local_read_size_warn_threshold) with token=-3485513579396041028";
    assert!(warnings[0].ends_with(end), "{warnings:?}");
    let error = node.try_run("SELECT count(*) FROM b", &QueryOptions::default()).unwrap_err();
    assert!(is_read_size_failure(&error), "{error:?}");
    assert!(error.message.ends_with("(see local_read_size_fail_threshold)"), "{error:?}");
}
