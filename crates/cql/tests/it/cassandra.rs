//! Statements and answers recorded from Cassandra (see `tests/from_cassandra`).

use cql::parse;
use serde_json::Value;

/// Messages about the value of a known or unknown option. These are found when the statement is executed, not by the
/// parser.
const LATER_CHECKS: [&str; 4] =
    ["Unknown property ", "Invalid integer value ", "Invalid value for property ", "Invalid boolean value "];

fn rows(json: &str) -> Vec<(String, Option<String>)> {
    let rows: Vec<Value> = serde_json::from_str(json).unwrap();
    let text = |value: &Value| value.as_str().map(str::to_string);
    rows.iter().map(|row| (text(&row["cql"]).unwrap(), text(&row["syntax_error"]))).collect()
}

fn check(rows: &[(String, Option<String>)]) {
    let mut wrong = Vec::new();
    for (cql, expected) in rows {
        let found = parse(cql).err().map(|error| error.message);
        if found != *expected {
            wrong.push(format!("{cql}\n  Cassandra: {expected:?}\n  here:      {found:?}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {} differ:\n{}", wrong.len(), rows.len(), wrong.join("\n"));
}

#[test]
fn statements_fail_with_cassandras_message_or_parse() {
    let mut rows = rows(include_str!("../from_cassandra/5.0.8/statements.json"));
    let mut later = 0;
    for (_, expected) in &mut rows {
        if expected.as_ref().is_some_and(|message| LATER_CHECKS.iter().any(|check| message.starts_with(check))) {
            *expected = None;
            later += 1;
        }
    }
    check(&rows);
    assert!(later < 15, "{later} statements are left to later checks");
    assert!(rows.iter().filter(|(_, expected)| expected.is_some()).count() > 75);
}

#[test]
fn damaged_statements_fail_with_cassandras_message_or_parse() {
    let rows = rows(include_str!("../from_cassandra/5.0.8/mutations.json"));
    check(&rows);
    assert!(rows.iter().filter(|(_, expected)| expected.is_some()).count() > 800);
}

#[test]
fn schemas_as_described_by_cassandra_parse() {
    for schema in [
        include_str!("../from_cassandra/5.0.8/system.cql"),
        include_str!("../from_cassandra/5.0.8/system_auth.cql"),
        include_str!("../from_cassandra/5.0.8/system_distributed.cql"),
        include_str!("../from_cassandra/5.0.8/system_schema.cql"),
        include_str!("../from_cassandra/5.0.8/system_traces.cql"),
        include_str!("../from_cassandra/5.0.8/varied-schema.cql"),
    ] {
        let statements: Vec<&str> = schema.split(";\n").filter(|s| !s.trim().is_empty()).collect();
        assert!(statements.len() > 1);
        for statement in statements {
            if let Err(error) = parse(statement) {
                panic!("{error}: {statement}");
            }
        }
    }
}
