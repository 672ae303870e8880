//! Indexes of text that is analysed: storage-attached ones and SASI. Every statement has the answer that Cassandra
//! gave.

use query::{ProcessorOptions, QueryOptions};
use serde_json::{Value as Json, json};

use crate::node::{TestNode, rows_of, texts};

/// Runs the statements of a part of the fixture, and compares rows, errors and warnings. The rows are read from
/// memtables, or from SSTables with `flushed`.
fn compare(part: &str, flushed: bool) {
    let fixture: Json = serde_json::from_str(include_str!("../from_cassandra/text-indexes.json")).unwrap();
    let options = ProcessorOptions { sasi_indexes_enabled: true, ..ProcessorOptions::default() };
    let node = TestNode::with_options(options).with_keyspace();
    let (mut differences, mut was_select) = (Vec::new(), false);
    for step in fixture[part].as_array().unwrap() {
        let statement = step["cql"].as_str().unwrap();
        let is_select = statement.starts_with("SELECT");
        if flushed && is_select && !was_select {
            node.processor.engine().flush_all().unwrap();
        }
        was_select = is_select;
        let got = match node.try_run(statement, &QueryOptions::default()) {
            Err(error) => json!({"cql": statement, "error": error.message}),
            Ok(response) => {
                let mut got = json!({"cql": statement});
                if !response.warnings.is_empty() {
                    got["warnings"] = json!(response.warnings);
                }
                if is_select {
                    got["rows"] = json!(texts(&rows_of(response)));
                }
                got
            }
        };
        if got != *step {
            differences.push(format!("expected {step}\n     got {got}"));
        }
    }
    assert!(
        differences.is_empty(),
        "flushed: {flushed}, {} differences:\n{}",
        differences.len(),
        differences.join("\n")
    );
}

#[test]
fn storage_attached_indexes_analyse_text_as_in_cassandra() {
    [false, true].into_iter().for_each(|flushed| compare("analysis", flushed));
}

#[test]
fn sasi_indexes_answer_as_in_cassandra() {
    [false, true].into_iter().for_each(|flushed| compare("sasi", flushed));
}
