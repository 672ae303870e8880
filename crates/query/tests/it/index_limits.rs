//! Guardrails of storage-attached indexes, and the virtual tables that show indexes. Texts are Cassandra's.

use std::time::{Duration, Instant};

use query::{Guardrail, Guardrails, ProcessorOptions};

use crate::node::TestNode;

fn node(guardrails: Guardrails) -> TestNode {
    TestNode::with_options(ProcessorOptions { guardrails, ..ProcessorOptions::default() }).with_keyspace()
}

#[test]
fn written_terms_warn_and_then_fail() {
    let limit = |warn, fail| Guardrail { warn: Some(warn), fail: Some(fail) };
    let node = node(Guardrails {
        sai_string_term_size: limit(20, 30),
        sai_frozen_term_size: limit(40, 50),
        ..Guardrails::default()
    });
    node.run("CREATE TABLE t (p text, q text, c text, s text static, w text, x text, a text, f frozen<list<text>>, l list<text>, m map<text, text>, PRIMARY KEY ((p, q), c))");
    for target in ["p", "c", "s", "w", "full(f)", "l", "entries(m)"] {
        node.run(&format!("CREATE INDEX ON t ({target}) USING 'sai'"));
    }
    node.run("CREATE INDEX ON t (a) USING 'sai' WITH OPTIONS = {'ascii': 'true'}");
    node.run("CREATE INDEX ON t (x)");
    let text = |length: usize| "x".repeat(length);
    let row = "WHERE p = '1' AND q = '1' AND c = '1'";
    for (statement, column, kind, size) in [
        (format!("UPDATE t SET w = '{}' {row}", text(21)), "w", "string", 21),
        (format!("INSERT INTO t (p, q, c, x) VALUES ('{}', '1', '1', '')", text(21)), "p", "string", 21),
        (format!("INSERT INTO t (p, q, c, x) VALUES ('1', '1', '{}', '')", text(21)), "c", "string", 21),
        (format!("DELETE FROM t WHERE p = '1' AND q = '1' AND c = '{}'", text(21)), "c", "string", 21),
        (format!("INSERT INTO t (p, q, s) VALUES ('1', '1', '{}')", text(21)), "s", "string", 21),
        (format!("UPDATE t SET f = ['{}'] {row}", text(33)), "f", "frozen", 41),
        (format!("UPDATE t SET l = l + ['{}'] {row}", text(21)), "l", "string", 21),
        (format!("UPDATE t SET m['ab'] = '{}' {row}", text(13)), "m", "string", 21),
        (format!("UPDATE t SET a = '{}' {row}", "\u{fb03}".repeat(7)), "a", "string", 21),
        (format!("INSERT INTO t (p, q, c, w) VALUES ('1', '1', '9', '{}') IF NOT EXISTS", text(21)), "w", "string", 21),
    ] {
        let threshold = if kind == "frozen" { 40 } else { 20 };
        let warning = format!(
            "Guardrail sai_{kind}_term_size violated: Value of column '{column}' has size {size}, this exceeds the warning threshold of {threshold}."
        );
        assert_eq!(node.run(&statement).warnings, [warning], "{statement}");
    }
    for statement in [
        format!("UPDATE t SET w = '{}' {row}", text(20)),
        format!("UPDATE t SET x = '{}' {row}", text(40)),
        format!("UPDATE t SET a = '{}' {row}", "\u{e9}".repeat(20)),
        format!("DELETE FROM t WHERE p = '{}' AND q = '1'", text(21)),
    ] {
        assert_eq!(node.run(&statement).warnings, Vec::<String>::new(), "{statement}");
    }
    let long = text(31);
    let failure = "Guardrail sai_string_term_size violated: Value of column 'w' has size 31, this exceeds the failure threshold of 30.";
    for statement in [
        format!("UPDATE t SET w = '{long}' {row}"),
        format!("BEGIN BATCH UPDATE t SET x = 'a' {row}; UPDATE t SET w = '{long}' {row}; APPLY BATCH"),
        format!("UPDATE t SET w = '{long}' {row} IF x = '{}'", text(40)),
    ] {
        assert_eq!(node.failure(&statement), failure, "{statement}");
    }
}

/// An entry has the whole key. The log of the node takes records of 128 KiB, and mutations that add four times as much.
#[test]
fn a_write_whose_entries_have_many_times_its_size_is_refused() {
    let options = ProcessorOptions { batch_size_fail_threshold_bytes: 1 << 20, ..ProcessorOptions::default() };
    let node = TestNode::with_options(options).with_keyspace();
    node.run("CREATE TABLE t (k text PRIMARY KEY, s set<int>)");
    node.run("CREATE INDEX ON t (values(s))");
    let insert = |key: &str, count: usize| {
        let numbers: Vec<_> = (0..count).map(|number| number.to_string()).collect();
        format!("INSERT INTO t (k, s) VALUES ('{key}', {{{}}})", numbers.join(", "))
    };
    let long = |letter: &str| letter.repeat(20_000);
    let too_many = insert(&long("a"), 1_000);
    let batch_of_too_many = format!("BEGIN BATCH {too_many}; {}; APPLY BATCH", insert("b", 1));
    for statement in [&too_many, &batch_of_too_many, &format!("{too_many} IF NOT EXISTS")] {
        let refused = node.failure(statement);
        assert!(
            refused.starts_with("Rejected an oversized mutation (") && refused.contains("/524288) for"),
            "{refused}"
        );
        assert!(node.rows("SELECT k FROM t").is_empty());
    }
    // A value that is there often has one entry.
    node.run("CREATE TABLE m (k text PRIMARY KEY, m map<int, int>)");
    node.run("CREATE INDEX ON m (values(m))");
    let pairs: Vec<_> = (0..5_000).map(|key| format!("{key}: {}", key % 10)).collect();
    node.run(&format!("INSERT INTO m (k, m) VALUES ('{}', {{{}}})", "k".repeat(2_000), pairs.join(", ")));
    node.run(&insert("k", 4_000));
    for kind in ["", "UNLOGGED "] {
        let inserts: Vec<_> = ["a", "b", "c"].iter().map(|key| insert(&long(key), 20)).collect();
        node.run(&format!("BEGIN {kind}BATCH {}; APPLY BATCH", inserts.join("; ")));
    }
    assert_eq!(node.rows("SELECT k FROM t WHERE s CONTAINS 3999"), ["'k'"]);
    assert_eq!(node.rows("SELECT k FROM t WHERE s CONTAINS 19").len(), 4);
}

#[test]
fn a_select_by_the_files_of_many_sstables_warns_and_then_fails() {
    let sai_sstable_indexes_per_query = Guardrail { warn: Some(1), fail: Some(2) };
    let node = node(Guardrails { sai_sstable_indexes_per_query, ..Guardrails::default() });
    node.run("CREATE TABLE t (k int PRIMARY KEY, v int, w int)");
    node.run("CREATE INDEX ON t (v) USING 'sai'");
    node.run("CREATE INDEX ON t (w)");
    let flush_another = |key: i32| {
        node.run(&format!("INSERT INTO t (k, v, w) VALUES ({key}, 1, 1)"));
        node.processor.engine().flush_all().unwrap();
    };
    let by_index = "SELECT k FROM t WHERE v = 1";
    flush_another(1);
    assert_eq!(node.run(by_index).warnings, Vec::<String>::new());
    flush_another(2);
    assert_eq!(
        node.run(by_index).warnings,
        [
            "1 nodes referenced more than allowed number of indexes without restrictions on partition key, maximum on a node being 2 indexes, and issued warnings for query SELECT v FROM ks.t WHERE v = 1 ALLOW FILTERING (see sai_sstable_indexes_per_query_warn_threshold) with token range: (-9223372036854775808, -9223372036854775808]"
        ]
    );
    for other in ["SELECT k FROM t WHERE k = 1 AND v = 1", "SELECT k FROM t WHERE w = 1"] {
        assert_eq!(node.run(other).warnings, Vec::<String>::new(), "{other}");
    }
    flush_another(3);
    assert!(node.failure(by_index).contains("1 failures: READ_TOO_MANY_INDEXES from"));
    assert_eq!(node.rows("SELECT k FROM t WHERE k = 1 AND v = 1"), ["1"]);
}

#[test]
fn virtual_tables_show_storage_attached_indexes_and_their_files() {
    let node = node(Guardrails::default());
    node.run("CREATE TABLE t (k int PRIMARY KEY, v int, w text)");
    node.run("CREATE INDEX one ON t (v) USING 'sai'");
    node.run("CREATE INDEX two ON t (w) USING 'sai' WITH OPTIONS = {'case_sensitive': 'false'}");
    node.run("CREATE INDEX plain ON t (v)");
    let one = "'ks' 'one' 'NoOpAnalyzer' 'v' False True False 't'";
    let two = "'ks' 'two' 'NonTokenizingAnalyzer{caseSensitive=false, normalized=false, ascii=false}' 'w' False True True 't'";
    let shown = node.rows("SELECT * FROM system_views.sai_column_indexes");
    assert_eq!(shown.iter().map(|row| row.to_lowercase()).collect::<Vec<_>>(), [one, two].map(str::to_lowercase));
    (0..3).for_each(|k| drop(node.run(&format!("INSERT INTO t (k, v, w) VALUES ({k}, 1, 'a')"))));
    assert!(node.rows("SELECT * FROM system_views.sai_sstable_indexes").is_empty());
    node.processor.engine().flush_all().unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    let files = "SELECT index_name, column_name, cell_count, start_token, end_token, format_version, table_name FROM system_views.sai_sstable_indexes";
    while node.rows(files).len() < 2 {
        assert!(Instant::now() < deadline, "the files are not built");
        std::thread::sleep(Duration::from_millis(1));
    }
    let tokens = "'-4069959284402364209' '-3248873570005575792'";
    assert_eq!(node.rows(files), [format!("'one' 'v' 3 {tokens} 'aa' 't'"), format!("'two' 'w' 3 {tokens} 'aa' 't'")]);
    let segments = "SELECT index_name, segment_row_id_offset, cell_count FROM system_views.sai_sstable_index_segments";
    assert_eq!(node.rows(segments), ["'one' 0 3", "'two' 0 3"]);
    let sizes = node.rows("SELECT per_column_disk_size FROM system_views.sai_sstable_indexes");
    assert!(sizes.iter().all(|size| size.parse::<u64>().unwrap() > 4096), "{sizes:?}");
}
