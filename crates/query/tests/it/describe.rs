//! DESCRIBE page by page.

use query::{ErrorKind, ProcessorOptions, QueryOptions, Response, Rows};

use types::steps;

use crate::node::{TestNode, rows_of, texts};

/// Creates tables and types whose names differ in case, so that their order is not the one in which they are stored.
fn fill(node: &TestNode, tables: usize) {
    for name in ["b", "\"B\"", "a"] {
        node.run(&format!("CREATE TYPE ks.{name} (f int)"));
    }
    node.run("CREATE TYPE ks.c (f frozen<b>)");
    for number in 0..tables {
        let name = if number % 3 == 0 { format!("\"T{number}\"") } else { format!("t{number}") };
        node.run(&format!("CREATE TABLE ks.{name} (k int PRIMARY KEY, v int)"));
    }
}

fn page(node: &TestNode, statement: &str, size: i32, state: Option<&[u8]>) -> Rows {
    let options = QueryOptions { page_size: Some(size), paging_state: state, ..QueryOptions::default() };
    let response: Response = node.try_run(statement, &options).unwrap_or_else(|error| panic!("{statement}: {error:?}"));
    rows_of(response)
}

/// The rows of all pages; each page has to have `size` rows but for the last one.
fn paged(node: &TestNode, statement: &str, size: i32) -> Vec<String> {
    let (mut rows, mut state) = (Vec::new(), None);
    loop {
        let page = page(node, statement, size, state.as_deref());
        rows.extend(texts(&page));
        state = page.paging_state;
        if state.is_none() {
            return rows;
        }
        assert_eq!(page.row_count, size as usize, "{statement}");
    }
}

const STATEMENTS: [&str; 12] = [
    "DESCRIBE KEYSPACES",
    "DESCRIBE TABLES",
    "DESCRIBE TYPES",
    "DESCRIBE FUNCTIONS",
    "DESCRIBE SCHEMA",
    "DESCRIBE FULL SCHEMA WITH INTERNALS",
    "DESCRIBE KEYSPACE ks",
    "DESCRIBE ONLY KEYSPACE ks",
    "DESCRIBE KEYSPACE system_views",
    "DESCRIBE ks",
    "DESCRIBE TABLE ks.t1",
    "DESCRIBE TYPE ks.c",
];

#[test]
fn the_pages_of_a_description_together_are_the_whole() {
    let mut node = TestNode::with(&[]);
    fill(&node, 8);
    for keyspace in [None, Some("ks"), Some("system_views")] {
        match keyspace {
            None => node.client = std::sync::Arc::default(),
            Some(name) => node.use_keyspace(name),
        }
        for statement in STATEMENTS {
            let whole = node.rows(statement);
            for size in [1, 2, 3, 7, 100] {
                assert_eq!(paged(&node, statement, size), whole, "{statement} in pages of {size}, in {keyspace:?}");
            }
        }
    }
}

#[test]
fn a_page_costs_little_of_what_the_whole_costs() {
    let node = TestNode::with(&[]);
    fill(&node, 400);
    let counted = |run: &dyn Fn()| {
        let before = steps::counted();
        run();
        steps::counted() - before
    };
    let listed = counted(&|| drop(node.rows("DESCRIBE TABLES")));
    let whole = counted(&|| drop(node.rows("DESCRIBE KEYSPACE ks")));
    let first = counted(&|| drop(page(&node, "DESCRIBE KEYSPACE ks", 10, None)));
    assert!(whole > 5 * listed, "statements cost much more than names: {whole} and {listed} steps");
    assert!(first < whole / 10 + listed, "{first} steps for a page, {whole} for all, {listed} for the names");
}

#[test]
fn elements_are_in_the_order_of_their_names_without_regard_to_case() {
    let node = TestNode::with(&[]);
    fill(&node, 4);
    assert_eq!(
        node.rows("DESCRIBE TABLES"),
        ["'ks' 'table' '\"T0\"'", "'ks' 'table' 't1'", "'ks' 'table' 't2'", "'ks' 'table' '\"T3\"'"]
    );
    assert_eq!(
        node.rows("DESCRIBE TYPES"),
        ["'ks' 'type' 'a'", "'ks' 'type' '\"B\"'", "'ks' 'type' 'b'", "'ks' 'type' 'c'"]
    );
}

#[test]
fn a_page_ends_with_the_element_that_reaches_the_limit_of_bytes() {
    let node =
        TestNode::with_options(ProcessorOptions { page_max_bytes: 1, ..ProcessorOptions::default() }).with_keyspace();
    fill(&node, 3);
    let first = page(&node, "DESCRIBE KEYSPACE ks", 5000, None);
    assert_eq!(first.row_count, 1);
    assert!(first.paging_state.is_some());
    assert_eq!(paged(&node, "DESCRIBE KEYSPACE ks", 1), node.rows("DESCRIBE KEYSPACE ks"));
}

#[test]
fn a_paging_state_belongs_to_one_description_and_one_schema() {
    let mut node = TestNode::with(&[]);
    fill(&node, 4);
    let state = page(&node, "DESCRIBE TABLES", 1, None).paging_state.unwrap();
    let failure = |node: &TestNode, statement: &str, state: &[u8]| {
        let options = QueryOptions { page_size: Some(1), paging_state: Some(state), ..QueryOptions::default() };
        node.try_run(statement, &options).expect_err(statement)
    };
    const INVALID: &str = "Invalid value for the paging state";
    assert_eq!(failure(&node, "DESCRIBE TYPES", &state).message, INVALID);
    for length in 0..state.len() {
        assert_eq!(failure(&node, "DESCRIBE TABLES", &state[..length]).message, INVALID, "{length} bytes");
    }
    let longer = [state.as_slice(), &[0]].concat();
    assert_eq!(failure(&node, "DESCRIBE TABLES", &longer).message, INVALID);

    let far = [&state[..state.len() - 8], &[0xff; 8]].concat();
    let behind = page(&node, "DESCRIBE TABLES", 1, Some(&far));
    assert_eq!((behind.row_count, behind.paging_state), (0, None));

    node.use_keyspace("system");
    assert_eq!(failure(&node, "DESCRIBE TABLES", &state).message, INVALID, "in another keyspace");
    node.use_keyspace("ks");
    node.run("DROP TABLE t1");
    let error = failure(&node, "DESCRIBE TABLES", &state);
    assert_eq!(error.kind, ErrorKind::Invalid);
    assert_eq!(
        error.message,
        "The schema has changed since the previous page of the DESCRIBE statement result. Please retry the DESCRIBE \
         statement."
    );
}
