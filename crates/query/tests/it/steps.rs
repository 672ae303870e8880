//! The cost of statements in relation to their size: the steps of parsing, preparing and executing them, and of
//! applying them to a memtable, counted on this thread. A statement of twice the size may take little more than
//! twice the steps. Each kind of statement that the grammar has is measured.

mod grammar;
mod kinds;

use std::collections::BTreeSet;

use query::{BatchEntry, BatchKind, BatchStatement, ErrorKind, ProcessorOptions, QueryOptions, Values};
use types::steps;

use crate::node::TestNode;

use grammar::{REFUSABLE, Refusable, STATEMENTS, kind_of};
use kinds::KINDS;

/// The steps for four times the size in relation to those for the size: four times, and a factor of two for the
/// logarithm and for the lower cost of a row in one piece. Quadratic cost would be sixteen times the steps.
const GROWTH_MAX: u64 = 8;
/// The steps for twice the size in relation to those for the size. Quadratic cost would be four times the steps.
const DOUBLED_MAX_PERCENT: u64 = 350;
const SIZES: [usize; 3] = [150, 300, 600];

/// A kind of statement.
struct Kind {
    name: &'static str,
    /// Creates the existing content.
    setup: fn(&TestNode, usize),
    /// The statements for one size, which are executed as one request; several statements are an unlogged batch.
    statements: fn(usize) -> Vec<String>,
}

fn node() -> TestNode {
    let options = ProcessorOptions {
        batch_size_fail_threshold_bytes: u64::MAX,
        tombstone_failure_threshold: u64::MAX,
        ..ProcessorOptions::default()
    };
    let node = TestNode::with_options(options).with_keyspace();
    node.run(
        "CREATE TABLE t (k int, c int, v int, s map<int, int> static, m map<int, int>, e set<int>, l list<int>, \
         f frozen<map<int, int>>, PRIMARY KEY (k, c))",
    );
    node
}

fn each(size: usize, statement: impl Fn(usize) -> String) -> Vec<String> {
    (0..size).map(statement).collect()
}

fn joined(size: usize, separator: &str, part: impl Fn(usize) -> String) -> String {
    each(size, part).join(separator)
}

fn run(node: &TestNode, statements: &[String]) {
    if let [only] = statements {
        node.run(only);
        return;
    }
    let entries: Vec<BatchEntry<'_>> = statements
        .iter()
        .map(|statement| BatchEntry { statement: BatchStatement::Text(statement), values: Values::NONE })
        .collect();
    node.batch(BatchKind::Unlogged, &entries, &QueryOptions::default()).unwrap();
}

/// The steps of parsing the texts, and of choosing their types and functions.
fn steps_of_texts(node: &TestNode, texts: &[String]) -> u64 {
    let of_text = |text: &String| {
        let (_, parsing) = cql::parse_counting(text);
        let (_, preparing) = node.processor.prepare_counting(text, Some("ks"));
        parsing + preparing
    };
    texts.iter().map(of_text).sum()
}

fn steps_of(kind: &Kind, size: usize) -> u64 {
    let node = node();
    (kind.setup)(&node, size);
    let statements = (kind.statements)(size);
    let of_texts = steps_of_texts(&node, &statements);
    let before = steps::counted();
    run(&node, &statements);
    of_texts + steps::counted() - before
}

fn steps_of_refusable(kind: &Refusable, size: usize) -> u64 {
    let node = node();
    let text = (kind.statement)(size);
    let of_text = steps_of_texts(&node, std::slice::from_ref(&text));
    let before = steps::counted();
    if let Err(error) = node.try_run(&text, &QueryOptions::default()) {
        assert_ne!(error.kind, ErrorKind::Server, "{}: {error}", kind.name);
    }
    of_text + steps::counted() - before
}

/// Says what is wrong with the steps for [`SIZES`], if they grow too fast.
fn complaint(name: &str, steps: [u64; SIZES.len()]) -> Option<String> {
    let at_least = |count: u64| count.max(2 * SIZES[0] as u64);
    let doubled = |pair: &[u64]| pair[1] * 100 > at_least(pair[0]) * DOUBLED_MAX_PERCENT;
    let is_too_many = steps[2] > at_least(steps[0]) * GROWTH_MAX || steps.windows(2).any(doubled);
    is_too_many.then(|| format!("{name}: {steps:?} steps for {SIZES:?}"))
}

#[test]
fn every_kind_of_statement_costs_at_most_n_log_n_steps() {
    let of_kinds = KINDS.iter().filter_map(|kind| complaint(kind.name, SIZES.map(|size| steps_of(kind, size))));
    let of_refusable =
        REFUSABLE.iter().filter_map(|kind| complaint(kind.name, SIZES.map(|size| steps_of_refusable(kind, size))));
    let too_many: Vec<String> = of_kinds.chain(of_refusable).collect();
    assert!(too_many.is_empty(), "{}", too_many.join("\n"));
}

#[test]
fn every_statement_of_the_grammar_is_measured() {
    let refusable = REFUSABLE.iter().map(|kind| (kind.statement)(SIZES[0]));
    let texts = KINDS.iter().flat_map(|kind| (kind.statements)(SIZES[0])).chain(refusable);
    let measured: BTreeSet<&str> = texts
        .map(|text| kind_of(&cql::parse(&text).unwrap_or_else(|error| panic!("{text}: {error}")).statement))
        .collect();
    assert_eq!(measured, STATEMENTS.iter().copied().collect());
}

#[test]
fn a_change_of_the_schema_costs_nothing_for_other_tables() {
    let steps_beside = |columns: usize| {
        let node = node();
        let columns = joined(columns, ", ", |i| format!("a{i} int"));
        node.run(&format!("CREATE TABLE other (k int PRIMARY KEY, {columns})"));
        let before = steps::counted();
        node.run("CREATE TABLE one (k int PRIMARY KEY, v int)");
        node.run("ALTER TABLE one ADD w int");
        steps::counted() - before
    };
    let [few, many] = [10, 1000].map(steps_beside);
    assert!(few > 10 && many < few * 2, "{few} steps beside a table of 10 columns, {many} beside one of 1000");
}
