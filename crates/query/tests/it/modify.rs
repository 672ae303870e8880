//! The effects and answers of modifications, compared with those that Cassandra had for the same statements in the same
//! order. Timestamps and the current time are given, so that nothing depends on the clock.

use query::{
    BatchEntry, BatchKind, BatchStatement, Consistency, QueryError, QueryOptions, Response, ResponseBody, Value, Values,
};
use serde_json::{Value as Json, json};
use types::{collection, hex};

use crate::errors::{code, comparable};
use crate::node::TestNode;

fn fixture() -> Json {
    serde_json::from_str(include_str!("../from_cassandra/modify.json")).unwrap()
}

/// A node after the setup statements, except for one that begins with `left_out`.
pub fn node(fixture: &Json) -> TestNode {
    let node = TestNode::new();
    for statement in fixture["setup"].as_array().unwrap() {
        node.run(statement.as_str().unwrap());
    }
    node
}

/// Values in hex; `61*9` is nine times the byte 61.
fn values_of(step: &Json) -> Vec<Option<Vec<u8>>> {
    let value = |value: &Json| match value.as_str() {
        Some("unset") => None,
        Some(text) => Some(match text.split_once('*') {
            Some((byte, count)) => hex::parse(byte).unwrap().repeat(count.parse().unwrap()),
            None => hex::parse(text).unwrap(),
        }),
        None => Some(Vec::new()),
    };
    step["values"].as_array().map(|values| values.iter().map(value).collect()).unwrap_or_default()
}

fn bound<'v>(step: &Json, bytes: &'v [Option<Vec<u8>>]) -> Vec<Value<'v>> {
    let given = step["values"].as_array().map(Vec::as_slice).unwrap_or_default();
    let value = |(json, bytes): (&Json, &'v Option<Vec<u8>>)| match bytes {
        _ if json.is_null() => Value::Null,
        None => Value::Unset,
        Some(bytes) => Value::Bytes(bytes),
    };
    given.iter().zip(bytes).map(value).collect()
}

pub fn run(node: &TestNode, step: &Json) -> Result<Response, QueryError> {
    let bytes = values_of(step);
    let values = bound(step, &bytes);
    let options = QueryOptions {
        consistency: step["consistency"]
            .as_u64()
            .map_or(Consistency::One, |number| Consistency::from_number(number as u16).unwrap()),
        values: Values::Positional(&values),
        serial_consistency: step["serial"]
            .as_u64()
            .map_or(Consistency::Serial, |number| Consistency::from_number(number as u16).unwrap()),
        timestamp: step["timestamp"].as_i64(),
        now_in_seconds: step["now"].as_i64().map(|now| now as i32),
        ..QueryOptions::default()
    };
    if let Some(kind) = step["batch"].as_u64() {
        let kind = [BatchKind::Logged, BatchKind::Unlogged, BatchKind::Counter][kind as usize];
        return run_batch(node, kind, step, &options);
    }
    let statement = step["cql"].as_str().unwrap();
    if step["values"].is_null() {
        return node.try_run(statement, &options);
    }
    let prepared = node.processor.prepare(statement, None)?;
    node.execute(&prepared, &options)
}

fn run_batch(
    node: &TestNode,
    kind: BatchKind,
    step: &Json,
    options: &QueryOptions<'_>,
) -> Result<Response, QueryError> {
    let items = step["items"].as_array().unwrap();
    let bytes: Vec<_> = items.iter().map(values_of).collect();
    let values: Vec<Vec<Value<'_>>> = items.iter().zip(&bytes).map(|(item, bytes)| bound(item, bytes)).collect();
    let entry = |(item, values)| {
        let item: &Json = item;
        let values: &Vec<Value<'_>> = values;
        let statement = BatchStatement::Text(item["cql"].as_str().unwrap());
        BatchEntry { statement, values: Values::Positional(values) }
    };
    let entries: Vec<BatchEntry<'_>> = items.iter().zip(&values).map(entry).collect();
    node.batch(kind, &entries, options)
}

/// The answer in the recording's form.
pub fn recorded(answer: Result<Response, QueryError>) -> Json {
    let response = match answer {
        Ok(response) => response,
        Err(error) => return json!({"code": code(&error), "message": comparable(&error.message)}),
    };
    let mut recorded = serde_json::Map::new();
    if !response.warnings.is_empty() {
        recorded.insert("warnings".into(), json!(response.warnings));
    }
    if let ResponseBody::Rows(rows) = response.body {
        let mut rest = rows.cells.as_slice();
        let mut cell = || collection::read_part(&mut rest).unwrap().map(hex::to_string);
        let row = |_| (0..rows.metadata.specs().len()).map(|_| cell()).collect::<Vec<_>>();
        recorded.insert("rows".into(), json!((0..rows.row_count).map(row).collect::<Vec<_>>()));
    }
    Json::Object(recorded)
}

/// Whether a difference is intended.
pub fn is_ours(step: &Json, got: &Json) -> bool {
    // Cassandra's replica fails to delete a range that ends at null. Here this is an invalid request.
    step["code"] == "0x1500"
        // A request that caused an internal error in Cassandra is invalid here.
        || (step["code"] == "0x0000" && got["code"] == "0x2200")
        // Errors in JSON have the words of another parser.
        || both_say("com.fasterxml.jackson.core", step, got)
}

fn both_say(words: &str, step: &Json, got: &Json) -> bool {
    [step, got].iter().all(|side| side["message"].as_str().is_some_and(|message| message.contains(words)))
}

pub fn flush(node: &TestNode) {
    let engine = node.processor.engine();
    let schema = engine.schema();
    let keyspaces = ["ks", "three"].into_iter().filter_map(|keyspace| schema.keyspace(keyspace));
    for table in keyspaces.flat_map(|keyspace| keyspace.tables.values()) {
        engine.flush(table).unwrap();
    }
}

#[test]
fn modifications_do_what_they_do_in_cassandra() {
    compare(|_, _| {});
}

#[test]
fn modifications_do_so_over_sstables() {
    compare(|node, _| flush(node));
}

#[test]
fn modifications_do_so_over_memtables_and_sstables() {
    compare(|node, step| {
        if step % 3 == 0 {
            flush(node)
        }
    });
}

/// Executes the recorded steps, calls `between` after each, and compares the results.
fn compare(between: impl Fn(&TestNode, usize)) {
    let fixture = fixture();
    let node = node(&fixture);
    let mut count = 0;
    let mut differences = Vec::new();
    for case in fixture["cases"].as_array().unwrap() {
        for step in case["steps"].as_array().unwrap() {
            let got = recorded(run(&node, step));
            count += 1;
            between(&node, count);
            let differs = ["code", "message", "warnings", "rows"].iter().any(|part| step[part] != got[part]);
            if differs && !is_ours(step, &got) {
                let cut = |json: &Json| json.to_string().chars().take(600).collect::<String>();
                differences.push(format!("{}: {}\n   got {}", case["name"], cut(step), cut(&got)));
            }
        }
    }
    assert!(differences.is_empty(), "{} differ:\n{}", differences.len(), differences.join("\n"));
}

#[test]
fn a_document_without_the_key_is_refused_when_carried_out() {
    let node = TestNode::with(&["CREATE TABLE t (p int, c int, v int, PRIMARY KEY (p, c))"]);
    let statement = r#"INSERT INTO t JSON '{"p": 1}' DEFAULT UNSET"#;
    assert!(node.processor.prepare(statement, Some("ks")).is_ok());
    assert_eq!(node.failure(statement), "Invalid unset value for column c");
}
