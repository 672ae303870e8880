//! Preparing statements and executing them with values, compared with Cassandra.

use query::{ColumnSpec, KeptForms, QueryError, QueryHandler, QueryOptions, Response, Value, Values};
use serde_json::{Value as Json, json};
use types::hex;

use crate::errors::{code, comparable};
use crate::node::{TestNode, rows_of};
use crate::select::{Stored, node as node_with_data, rows_in_hex, shown};

fn prepare(node: &TestNode, statement: &str) -> Json {
    let columns = |columns: &[ColumnSpec]| -> Json {
        columns.iter().map(|column| json!([*column.name, shown(&column.ty)])).collect()
    };
    match node.processor.prepare(statement, node.client.keyspace.as_deref()) {
        Err(error) => failure(&error),
        Ok(prepared) => {
            let variable =
                |column: &ColumnSpec| json!([*column.keyspace, *column.table, *column.name, shown(&column.ty)]);
            let result = prepared.result_metadata.as_ref().map_or(&[][..], |metadata| metadata.specs());
            json!({
                "variables": prepared.variables.iter().map(variable).collect::<Json>(),
                "key": prepared.partition_key_bind_indexes,
                "metadata_id": hex::to_string(&query::result_id(result)),
                "result": columns(result),
            })
        }
    }
}

fn failure(error: &QueryError) -> Json {
    json!({"code": code(error), "message": comparable(&error.message)})
}

fn execute(node: &TestNode, statement: &str, values: &Json) -> Result<Response, QueryError> {
    let recorded = values.as_array().unwrap();
    let bytes: Vec<Option<Vec<u8>>> = recorded.iter().map(|value| value.as_str().and_then(hex::parse)).collect();
    let values: Vec<Value<'_>> = recorded
        .iter()
        .zip(&bytes)
        .map(|(recorded, bytes)| match bytes {
            Some(bytes) => Value::Bytes(bytes),
            None if recorded == "unset" => Value::Unset,
            None => Value::Null,
        })
        .collect();
    let prepared = node.processor.prepare(statement, node.client.keyspace.as_deref())?;
    let options = QueryOptions { values: Values::Positional(&values), ..QueryOptions::default() };
    node.execute(&prepared, &options)
}

#[test]
fn variables_keys_and_answers_are_cassandras() {
    let fixture: Json = serde_json::from_str(include_str!("../from_cassandra/prepared.json")).unwrap();
    let data = serde_json::from_str(include_str!("../from_cassandra/select.json")).unwrap();
    let node = node_with_data(&data, Stored::Memtables);
    let mut differences = Vec::new();
    for case in fixture["prepared"].as_array().unwrap() {
        let statement = case["cql"].as_str().unwrap();
        let mut check = |what: &str, expected: &Json, got: &Json| {
            if expected != got {
                differences.push(format!("{what} of {statement}\n  expected {expected}\n  got      {got}"));
            }
        };
        let got = prepare(&node, statement);
        for part in ["code", "variables", "key", "metadata_id", "result"] {
            check(part, &case[part], &got[part]);
        }
        check("message", &case["message"].as_str().map_or(Json::Null, |text| json!(comparable(text))), &got["message"]);
        for run in case["runs"].as_array().unwrap_or(&Vec::new()) {
            // Statements that fail internally in Cassandra may succeed here.
            if run["code"] == "0x0000" {
                continue;
            }
            let (part, got) = match execute(&node, statement, &run["values"]) {
                Ok(response) => ("rows", rows_in_hex(&rows_of(response))),
                Err(error) => ("message", json!(error.message)),
            };
            check(&format!("{part} with {}", run["values"]), &run[part], &got);
        }
    }
    assert!(differences.is_empty(), "{} differ:\n{}", differences.len(), differences.join("\n"));
}

#[test]
fn a_schema_change_applies_to_the_keyspace_in_which_it_was_prepared() {
    let no_keyspace = "No keyspace has been specified. USE a keyspace, or explicitly specify keyspace.tablename";
    let mut node = TestNode::with(&[]);
    node.run("CREATE KEYSPACE other WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
    for statement in [
        "CREATE TYPE u (a int)",
        "ALTER TYPE u ADD b int",
        "CREATE TABLE t (k int PRIMARY KEY, v frozen<u>)",
        "ALTER TABLE t ADD w int",
        "DROP TABLE t",
        "DROP TYPE u",
        "DROP TABLE IF EXISTS t",
    ] {
        assert_eq!(node.processor.prepare(statement, None).unwrap_err().message, no_keyspace, "{statement}");
        node.use_keyspace("ks");
        let prepared = node.processor.prepare(statement, Some("ks")).unwrap();
        node.use_keyspace("other");
        let done = node.execute(&prepared, &QueryOptions::default());
        done.unwrap_or_else(|error| panic!("{statement}: {error}"));
        let schema = node.processor.schema();
        let other = schema.keyspace("other").unwrap();
        assert!(other.tables.is_empty() && other.types.is_empty(), "{statement}");
    }
    for statement in ["CREATE TABLE ks.t (k int PRIMARY KEY)", "DROP KEYSPACE other", "DROP TABLE ks.t"] {
        assert!(node.processor.prepare(statement, None).is_ok(), "{statement}");
    }
}

#[test]
fn the_keyspace_of_a_request_must_exist_before_anything_is_checked() {
    let node = TestNode::with(&["CREATE TABLE t (k int PRIMARY KEY)"]);
    let unknown = "Keyspace 'x' does not exist";
    for statement in ["SELECT * FROM t", "SELECT * FROM ks.t", "CREATE TABLE x (k int PRIMARY KEY)", "USE ks", "no CQL"]
    {
        let options = QueryOptions { keyspace: Some("x"), ..QueryOptions::default() };
        assert_eq!(node.try_run(statement, &options).unwrap_err().message, unknown, "{statement}");
        let batch = node.batch(query::BatchKind::Unlogged, &[], &options);
        assert_eq!(batch.unwrap_err().message, unknown);
        let prepared = QueryHandler::prepare(&*node.processor, &node.client, statement, Some("x"), KeptForms::NOTHING);
        assert_eq!(prepared.unwrap_err().message, unknown);
    }
    for known in ["ks", "system", "system_views"] {
        let prepared = QueryHandler::prepare(
            &*node.processor,
            &node.client,
            "SELECT * FROM ks.t",
            Some(known),
            KeptForms::NOTHING,
        );
        assert!(prepared.is_ok());
    }
}
