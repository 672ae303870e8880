//! The errors of statements, compared with Cassandra's.

use query::{
    BatchEntry, BatchKind, BatchStatement, Consistency, ErrorKind, ProcessorOptions, QueryError, QueryOptions,
    Response, Value, Values,
};
use serde_json::Value as Json;
use types::hex;

use crate::node::TestNode;

/// Features that this server does not have. Statements that mention them are not compared.
const NOT_DONE: [&str; 18] = [
    "IF EXISTS; INSERT",
    "MATERIALIZED VIEW",
    " mv",
    "FUNCTION",
    "AGGREGATE",
    "plus1",
    "boom",
    "INDEX",
    "indexed",
    "TRIGGER",
    "ROLE",
    "USER ",
    "GRANT",
    "PERMISSIONS",
    "system_views",
    "nosuch.",
    "mvbase",
    "name.first",
];

fn fixture() -> Json {
    serde_json::from_str(include_str!("../from_cassandra/cql-errors.json")).unwrap()
}

/// The protocol's code for an error.
pub fn code(error: &QueryError) -> &'static str {
    match error.kind {
        ErrorKind::Server => "0x0000",
        ErrorKind::Protocol => "0x000A",
        ErrorKind::Unavailable { .. } => "0x1000",
        ErrorKind::FunctionFailure { .. } => "0x1400",
        ErrorKind::Syntax => "0x2000",
        ErrorKind::Unauthorized => "0x2100",
        ErrorKind::Invalid => "0x2200",
        ErrorKind::Config => "0x2300",
        ErrorKind::AlreadyExists { .. } => "0x2400",
        _ => "another one",
    }
}

fn node(fixture: &Json) -> TestNode {
    // The recorded node allowed it.
    let options = ProcessorOptions { drop_compact_storage_enabled: true, ..ProcessorOptions::default() };
    let mut node = TestNode::with_options(options);
    for statement in fixture["setup"].as_array().unwrap() {
        let statement = statement.as_str().unwrap();
        if is_done(statement) {
            node.run(statement);
        }
    }
    node.use_keyspace("vec_err");
    node
}

fn is_done(statement: &str) -> bool {
    !NOT_DONE.iter().any(|not_done| statement.contains(not_done))
}

/// Candidate functions are listed in an arbitrary order.
pub fn comparable(message: &str) -> &str {
    message.split("known type signatures: ").next().unwrap_or(message)
}

/// The difference between the outcome and the recording, if there is one.
fn difference(case: &Json, outcome: Result<Response, QueryError>) -> Option<String> {
    let expected = (case["code"].as_str().unwrap_or("accepted"), case["message"].as_str().unwrap_or_default());
    let (code, message) = match outcome {
        Ok(_) => ("accepted", String::new()),
        Err(error) => (code(&error), error.message),
    };
    let same = code == expected.0 && comparable(&message) == comparable(expected.1);
    (!same).then(|| format!("\n   expected {} {}\n   got      {code} {message}", expected.0, expected.1))
}

fn report(differences: Vec<String>) {
    assert!(differences.is_empty(), "{} differ:\n{}", differences.len(), differences.join("\n"));
}

#[test]
fn statements_fail_as_in_cassandra() {
    let fixture = fixture();
    let node = node(&fixture);
    let mut differences = Vec::new();
    for case in fixture["errors"].as_array().unwrap() {
        let statement = case["cql"].as_str().unwrap();
        let outcome = node.try_run(statement, &QueryOptions::default());
        if is_done(statement)
            && let Some(difference) = difference(case, outcome)
        {
            differences.push(format!("[{}] {statement}{difference}", case["category"]));
        }
    }
    report(differences);
}

#[test]
fn suspicious_statements_that_cassandra_accepts_are_accepted() {
    let fixture = fixture();
    let node = node(&fixture);
    let mut differences = Vec::new();
    for case in fixture["accepted"].as_array().unwrap() {
        let statement = case["cql"].as_str().unwrap();
        // This covers tables that the recording dropped in between, and conditional writes.
        let not_here = statement.starts_with("CREATE") || statement.contains("IF NOT EXISTS");
        if is_done(statement)
            && !not_here
            && let Err(error) = node.try_run(statement, &QueryOptions::default())
        {
            differences.push(format!("{statement}: {error}"));
        }
    }
    report(differences);
}

/// A recorded value: hex, `n bytes of 0xNN`, null or unset.
fn bytes_of(value: &Json) -> Option<Vec<u8>> {
    let text = value.as_str()?;
    match text.split_once(" bytes of 0x") {
        Some((count, byte)) => Some(hex::parse(byte).unwrap().repeat(count.parse().unwrap())),
        None => hex::parse(text),
    }
}

fn run_bound(node: &TestNode, case: &Json) -> Result<Response, QueryError> {
    let none = Vec::new();
    let recorded = case["values"].as_array().unwrap_or(&none);
    let bytes: Vec<Option<Vec<u8>>> = recorded.iter().map(bytes_of).collect();
    let values: Vec<Value<'_>> = recorded
        .iter()
        .zip(&bytes)
        .map(|(recorded, bytes)| match bytes {
            Some(bytes) => Value::Bytes(bytes),
            None if recorded == "unset" => Value::Unset,
            None => Value::Null,
        })
        .collect();
    let number = case["consistency"].as_u64().unwrap_or(1) as u16;
    let flags = case["flags"].as_str().map_or(0, |flags| u32::from_str_radix(&flags[2..], 16).unwrap());
    let options = QueryOptions {
        values: Values::Positional(&values),
        consistency: Consistency::from_number(number).map_err(|error| QueryError::protocol(error.message))?,
        page_size: (flags & 0x04 != 0).then_some(100),
        paging_state: (flags & 0x08 != 0).then_some(&[1, 2, 3]),
        ..QueryOptions::default()
    };
    let statement = case["cql"].as_str().unwrap_or_default();
    match case["stage"].as_str().unwrap() {
        "QUERY" => node.try_run(statement, &options),
        "BATCH" => run_batch(node, case, &options),
        stage => {
            let prepared = node.processor.prepare(statement, node.client.keyspace.as_deref())?;
            if stage == "PREPARE" {
                return Ok(Response { body: query::ResponseBody::Void, warnings: Vec::new() });
            }
            node.execute(&prepared, &options)
        }
    }
}

fn run_batch(node: &TestNode, case: &Json, options: &QueryOptions<'_>) -> Result<Response, QueryError> {
    let kind = match case["batch_type"].as_u64().unwrap() {
        0 => BatchKind::Logged,
        1 => BatchKind::Unlogged,
        _ => BatchKind::Counter,
    };
    let entry = |item: &'static str| BatchEntry { statement: BatchStatement::Text(item), values: Values::NONE };
    let items = case["items"].as_array().unwrap().iter();
    let entries: Vec<BatchEntry<'_>> = items.map(|item| entry(item.as_str().unwrap().to_owned().leak())).collect();
    node.batch(kind, &entries, options)
}

/// Cases about the protocol's bytes, which do not reach this crate, and about features that this server does not have.
const NOT_HERE: [&str; 12] = [
    "mutation too large (17 MiB value)",
    "lwt with non-serial serial consistency",
    "unknown prepared id",
    "unknown prepared id in batch",
    "invalid batch type",
    "values count mismatch",
    "udt too long",
    "alltypes.l = 00000001ffffffff",
    "lwt with client timestamp flag",
    "json unset",
    // For this case the recording has only the length.
    "collection element over 65535 bytes (map key)",
    "set element over 65535 bytes",
];

#[test]
fn bound_values_fail_as_in_cassandra() {
    let fixture = fixture();
    let node = node(&fixture);
    let mut differences = Vec::new();
    for case in fixture["bound"].as_array().unwrap() {
        let name = case["name"].as_str().unwrap();
        let markers_in_batch = case["items"].to_string().contains('?');
        let not_done = !is_done(&case["cql"].to_string()) || !is_done(&case["items"].to_string());
        if NOT_HERE.contains(&name) || markers_in_batch || not_done {
            continue;
        }
        if let Some(difference) = difference(case, run_bound(&node, case)) {
            differences.push(format!("{name}: {}{difference}", case["cql"]));
        }
    }
    report(differences);
}
