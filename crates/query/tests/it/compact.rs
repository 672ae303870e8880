//! Tables with COMPACT STORAGE, compared with what Cassandra answered to the same statements in the same order.

use blockio::SimulatedDisk;
use query::{ProcessorOptions, QueryOptions, ResponseBody};
use serde_json::{Value as Json, json};

use crate::modify::{flush, recorded, run};
use crate::node::TestNode;

fn options() -> ProcessorOptions {
    ProcessorOptions {
        drop_compact_storage_enabled: true,
        dynamic_data_masking_enabled: true,
        ..ProcessorOptions::default()
    }
}

fn node(statements: &[&str]) -> TestNode {
    let node = TestNode::with_options(options()).with_keyspace();
    statements.iter().for_each(|statement| drop(node.run(statement)));
    node
}

/// Whether the answer to this step differs from Cassandra's on purpose, with the reason.
fn is_intended(step: &Json, got: &Json) -> bool {
    let message = step["message"].as_str().unwrap_or_default();
    // Cassandra fails inside; here the request is invalid.
    (step["code"] == "0x0000" && got["code"] == "0x2200")
        // Errors in JSON have the words of another parser.
        || message.contains("com.fasterxml.jackson.core")
}

fn compare(between: impl Fn(&TestNode, usize)) {
    let fixture: Json = serde_json::from_str(include_str!("../from_cassandra/compact.json")).unwrap();
    let (mut count, mut differences) = (0, Vec::new());
    for part in fixture["parts"].as_array().unwrap() {
        let node = node(&[]);
        for step in part.as_array().unwrap() {
            let answer = run(&node, step);
            let columns = match &answer {
                Ok(response) => match &response.body {
                    ResponseBody::Rows(rows) => {
                        json!(rows.metadata.specs().iter().map(|spec| &*spec.name).collect::<Vec<_>>())
                    }
                    _ => Json::Null,
                },
                Err(_) => Json::Null,
            };
            let mut got = recorded(answer);
            got["columns"] = columns;
            count += 1;
            between(&node, count);
            let differs = ["code", "message", "warnings", "columns", "rows"].iter().any(|part| step[part] != got[part]);
            if differs && !is_intended(step, &got) {
                let cut = |json: &Json| json.to_string().chars().take(600).collect::<String>();
                differences.push(format!("{}\n   got {}", cut(step), cut(&got)));
            }
        }
    }
    assert!(differences.is_empty(), "{} of {count} differ:\n{}", differences.len(), differences.join("\n"));
}

#[test]
fn tables_with_compact_storage_answer_as_in_cassandra() {
    compare(|_, _| {});
}

#[test]
fn tables_with_compact_storage_answer_the_same_from_sstables() {
    compare(|node, count| {
        if count % 3 == 0 {
            flush(node);
        }
    });
}

#[test]
fn all_forms_survive_a_restart() {
    let disk = SimulatedDisk::new();
    let node = TestNode::in_directory(&disk, "/node", options()).with_keyspace();
    for statement in [
        "CREATE TABLE sc (k int PRIMARY KEY, a int, b text) WITH COMPACT STORAGE",
        "CREATE TABLE d0 (k int, c int, PRIMARY KEY (k, c)) WITH COMPACT STORAGE",
        "CREATE TABLE d2 (k int, c1 int, c2 text, v int, PRIMARY KEY (k, c1, c2)) WITH COMPACT STORAGE",
        "INSERT INTO sc (k, a) VALUES (1, 2)",
        "INSERT INTO d0 (k, c) VALUES (1, 2)",
        "INSERT INTO d2 (k, c1, v) VALUES (1, 2, 3)",
        "INSERT INTO d2 (k, c1, c2, v) VALUES (1, 2, '', 4)",
    ] {
        node.run(statement);
    }
    let flags = "SELECT flags FROM system_schema.tables WHERE keyspace_name = 'ks'";
    let expected = ["{'dense'}", "{'compound', 'dense'}", "{}"];
    assert_eq!(node.rows(flags), expected);
    drop(node);
    let mut node = TestNode::in_directory(&disk, "/node", options());
    node.use_keyspace("ks");
    assert_eq!(node.rows(flags), expected);
    assert_eq!(node.rows("SELECT * FROM sc"), ["1 2 null"]);
    assert_eq!(node.rows("SELECT * FROM d0"), ["1 2"]);
    assert_eq!(node.rows("SELECT * FROM d2"), ["1 2 null 3", "1 2 '' 4"]);
    node.run("ALTER TABLE sc DROP COMPACT STORAGE");
    drop(node);
    let mut node = TestNode::in_directory(&disk, "/node", options());
    node.use_keyspace("ks");
    assert_eq!(node.rows("SELECT * FROM sc"), ["1 null 2 null null"]);
}

#[test]
fn all_forms_live_in_memory() {
    let disk = SimulatedDisk::new();
    let node = TestNode::in_directory(&disk, "/node", options()).with_keyspace();
    let memory = "WITH COMPACT STORAGE AND caching = 'none' \
                  AND compaction = {'class': 'MemoryOnlyStrategy', 'size_limit_in_mb': 1}";
    for columns in [
        "sc (k int PRIMARY KEY, a int, b text)",
        "d0 (k int, c int, PRIMARY KEY (k, c))",
        "d2 (k int, c1 int, c2 text, v int, PRIMARY KEY (k, c1, c2))",
        "n (k int, c int, n counter, PRIMARY KEY (k, c))",
    ] {
        node.run(&format!("CREATE TABLE {columns} {memory}"));
    }
    for round in 0..4 {
        node.run(&format!("INSERT INTO sc (k, a, b) VALUES (1, {round}, 'b')"));
        node.run(&format!("INSERT INTO d0 (k, c) VALUES (1, {round})"));
        node.run(&format!("INSERT INTO d2 (k, c1, v) VALUES (1, {round}, 3)"));
        node.run("UPDATE n SET n = n + 5 WHERE k = 1 AND c = 1");
        match round {
            1 => flush(&node),
            2 => [
                "DELETE b FROM sc WHERE k = 1",
                "DELETE FROM d0 WHERE k = 1 AND c = 0",
                "DELETE FROM d2 WHERE k = 1 AND c1 < 2",
            ]
            .iter()
            .for_each(|statement| drop(node.run(statement))),
            _ => {}
        }
    }
    let expect = |node: &TestNode| {
        assert_eq!(node.rows("SELECT * FROM sc"), ["1 3 'b'"]);
        assert_eq!(node.rows("SELECT * FROM d0"), ["1 1", "1 2", "1 3"]);
        assert_eq!(node.rows("SELECT * FROM d2"), ["1 2 null 3", "1 3 null 3"]);
        assert_eq!(node.rows("SELECT * FROM n"), ["1 1 20"]);
    };
    expect(&node);
    drop(node);
    let mut node = TestNode::in_directory(&disk, "/node", options());
    node.use_keyspace("ks");
    expect(&node);
    node.run("UPDATE n SET n = n + 5 WHERE k = 1 AND c = 1");
    assert_eq!(node.rows("SELECT n FROM n"), ["25"]);
}

#[test]
fn counters_count_in_rows_without_the_last_clustering_columns() {
    let table = "CREATE TABLE t (k int, c1 int, c2 int, n counter, PRIMARY KEY (k, c1, c2)) WITH COMPACT STORAGE";
    let node = node(&[table]);
    for flushes in [false, true] {
        node.run("UPDATE t SET n = n + 1 WHERE k = 1 AND c1 = 1");
        node.run("UPDATE t SET n = n + 3 WHERE k = 1 AND c1 = 1 AND c2 = 1");
        if flushes {
            flush(&node);
        }
    }
    assert_eq!(node.rows("SELECT * FROM t"), ["1 1 null 2", "1 1 1 6"]);
}

#[test]
fn a_row_exists_as_long_as_it_has_a_value() {
    let node = node(&["CREATE TABLE t (k int, c int, v int, PRIMARY KEY (k, c)) WITH COMPACT STORAGE"]);
    let at = |now: i32| QueryOptions { now_in_seconds: Some(now), ..QueryOptions::default() };
    node.try_run("INSERT INTO t (k, c, v) VALUES (1, 1, 1) USING TTL 10", &at(1000)).unwrap();
    assert_eq!(node.rows_with("SELECT k, c FROM t", &at(1009)), ["1 1"]);
    assert_eq!(node.rows_with("SELECT k, c FROM t", &at(1010)), [""; 0]);
    assert_eq!(node.rows_with("SELECT DISTINCT k FROM t", &at(1010)), [""; 0]);
}

#[test]
fn a_deleted_row_loses_its_value_and_can_exist_without_one_later() {
    let table = "CREATE TABLE t (k int, c int, v int, PRIMARY KEY (k, c)) WITH COMPACT STORAGE";
    let node = node(&[table, "CREATE TABLE e (k int, c text, PRIMARY KEY (k, c)) WITH COMPACT STORAGE"]);
    node.run("INSERT INTO t (k, c, v) VALUES (1, 1, 1)");
    node.run("DELETE FROM t USING TIMESTAMP 9000000000000000 WHERE k = 1 AND c = 1");
    assert_eq!(node.rows("SELECT * FROM t"), [""; 0]);
    node.run("ALTER TABLE t DROP COMPACT STORAGE");
    node.run("INSERT INTO t (k, c, v) VALUES (1, 1, 2)");
    assert_eq!(node.rows("SELECT * FROM t"), ["1 1 null"], "only the value was deleted");
    for statement in ["INSERT INTO e (k, c) VALUES (1, '')", "DELETE FROM e WHERE k = 1 AND c = ''"] {
        assert_eq!(node.failure(statement), "Invalid empty or null value for column c");
    }
    node.run("DELETE FROM e WHERE k = 1 AND c >= ''");
}

#[test]
fn an_index_finds_rows_of_a_table_without_clustering_columns() {
    let node = node(&["CREATE TABLE t (k int PRIMARY KEY, a int, b text) WITH COMPACT STORAGE"]);
    for k in 0..6 {
        node.run(&format!("INSERT INTO t (k, a, b) VALUES ({k}, {}, 'x')", k % 2));
    }
    flush(&node);
    // Cassandra fails on rows that were there before the index, and finds nothing when the key is given too.
    node.run("CREATE INDEX ON t (a)");
    node.run("INSERT INTO t (k, a, b) VALUES (7, 1, 'y')");
    node.run("DELETE a FROM t WHERE k = 3");
    assert_eq!(node.rows("SELECT k, b FROM t WHERE a = 1"), ["5 'x'", "1 'x'", "7 'y'"]);
    assert_eq!(node.rows("SELECT k, b FROM t WHERE a = 1 AND k = 7"), ["7 'y'"]);
    assert_eq!(node.rows("SELECT k FROM t WHERE a = 1 AND b = 'y' ALLOW FILTERING"), ["7"]);
}

#[test]
fn pages_continue_after_rows_with_null_in_their_clustering() {
    let table = "CREATE TABLE t (k int, c1 int, c2 int, v int, PRIMARY KEY (k, c1, c2)) WITH COMPACT STORAGE \
                 AND CLUSTERING ORDER BY (c1 ASC, c2 DESC)";
    let node = node(&[table]);
    for c1 in 0..4 {
        node.run(&format!("INSERT INTO t (k, c1, v) VALUES (1, {c1}, 0)"));
        (0..3).for_each(|c2| drop(node.run(&format!("INSERT INTO t (k, c1, c2, v) VALUES (1, {c1}, {c2}, 1)"))));
    }
    for statement in ["SELECT * FROM t", "SELECT * FROM t WHERE k = 1 ORDER BY c1 DESC"] {
        let all = node.rows(statement);
        assert_eq!(all.len(), 16);
        for page_size in 1..6 {
            assert_eq!(paged(&node, statement, page_size), all, "{statement} in pages of {page_size}");
        }
    }
}

fn paged(node: &TestNode, statement: &str, page_size: i32) -> Vec<String> {
    let (mut rows, mut state) = (Vec::new(), None::<Vec<u8>>);
    loop {
        let options =
            QueryOptions { page_size: Some(page_size), paging_state: state.as_deref(), ..QueryOptions::default() };
        let ResponseBody::Rows(page) = node.try_run(statement, &options).unwrap().body else { panic!("no rows") };
        rows.extend(crate::node::texts(&page));
        match page.paging_state {
            Some(next) => state = Some(next),
            None => return rows,
        }
    }
}

#[test]
fn dropping_compact_storage_and_creating_such_tables_can_be_forbidden() {
    let flags = query::Flags { compact_tables_enabled: false, ..query::Flags::default() };
    let guardrails = query::Guardrails { flags, ..query::Guardrails::default() };
    let table = "CREATE TABLE t (k int PRIMARY KEY, a int) WITH COMPACT STORAGE";
    let refused = "Guardrail compact_tables violated: Creation of new COMPACT STORAGE tables is not allowed";
    let node = TestNode::with_options(ProcessorOptions { guardrails, ..ProcessorOptions::default() }).with_keyspace();
    assert_eq!(node.failure(table), refused);
    let node = TestNode::with(&[table]);
    let refused = "DROP COMPACT STORAGE is disabled. Enable in cassandra.yaml to use.";
    assert_eq!(node.failure("ALTER TABLE t DROP COMPACT STORAGE"), refused);
}
