//! The results of Cassandra's own classes for thousands of classes, texts, JSON values, bytes and sums, which this
//! crate must reproduce. `from_cassandra/make` recorded the answers.

use serde_json::Value;
use types::{CqlType, Decimal, Duration, MarshalError, hex};

/// One question and its answer.
struct Record {
    op: String,
    cql_type: String,
    input: String,
    answer: Result<String, String>,
    exception: Option<String>,
}

fn records(op: &str) -> Vec<Record> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let records: Vec<Record> = include_str!("../from_cassandra/5.0.8/texts.jsonl")
        .lines()
        .map(|line| {
            let value: Value = serde_json::from_str(line).expect("a JSON line");
            Record {
                op: text(&value["op"]).expect("op"),
                cql_type: text(&value["type"]).expect("type"),
                input: text(&value["in"]).expect("in"),
                answer: match text(&value["out"]) {
                    Some(answer) => Ok(answer),
                    None => Err(text(&value["error"]).unwrap_or_default()),
                },
                exception: text(&value["exception"]),
            }
        })
        .filter(|record| record.op == op)
        .collect();
    assert!(records.len() > 40, "only {} records of {op}", records.len());
    records
}

impl Record {
    fn cql_type(&self) -> CqlType {
        CqlType::parse_marshal_class(&self.cql_type).expect("a class")
    }

    /// Whether Cassandra gave an answer or a proper error, rather than an internal one.
    fn is_meant(&self) -> bool {
        matches!(self.exception.as_deref(), None | Some("MarshalException" | "InvalidRequestException"))
    }
}

fn check(records: Vec<Record>, ours: impl Fn(&Record) -> Result<String, MarshalError>) {
    let mut wrong = Vec::new();
    for record in records {
        let found = ours(&record).map_err(|error| error.message().to_owned());
        let same = match (&found, &record.answer) {
            // The texts of the JSON parsers differ.
            (Err(found), Err(expected)) if expected.starts_with("Error decoding JSON string: ") => {
                found.starts_with("Error decoding JSON string: ")
            }
            _ if !record.is_meant() => true,
            (found, expected) => found == expected,
        };
        if !same {
            wrong.push(format!("{} {:?}: {found:?}, not {:?}", record.cql_type, record.input, record.answer));
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

fn bytes(record: &Record) -> Vec<u8> {
    hex::parse(&record.input).expect("hexadecimal")
}

#[test]
fn texts_become_the_same_values() {
    check(records("text"), |record| record.cql_type().from_text(&record.input).map(|value| hex::to_string(&value)));
}

#[test]
fn json_becomes_the_same_values() {
    check(records("fromjson"), |record| {
        let json: Value = serde_json::from_str(&record.input).expect("JSON");
        record.cql_type().from_json(&json).map(|value| hex::to_string(&value))
    });
}

#[test]
fn the_same_bytes_are_valid() {
    check(records("validate"), |record| record.cql_type().validate(&bytes(record)).map(|()| "ok".to_owned()));
}

#[test]
fn values_print_as_the_same_literals() {
    check(
        records("literal").into_iter().filter(|record| record.is_meant() && record.answer.is_ok()).collect(),
        |record| Ok(record.cql_type().to_cql_literal(&bytes(record))),
    );
}

#[test]
fn values_print_as_the_same_json() {
    check(records("json"), |record| Ok(record.cql_type().to_json(&bytes(record))));
}

#[test]
fn decimal_arithmetic_gives_the_same_digits() {
    // The crate `query` computes these functions, and compares them with the same records.
    let is_of_query = |record: &Record| matches!(&*record.cql_type, "exp" | "ln" | "log10");
    let records = records("decimal").into_iter().filter(|record| record.answer.is_ok() && !is_of_query(record));
    check(records.collect(), |record| {
        let (a, b) = record.input.split_once(' ').expect("two operands");
        let (a, b): (Decimal, Decimal) = (a.parse().expect("a decimal"), b.parse().expect("a decimal"));
        let result = match record.cql_type.as_str() {
            "add" => a.add(&b),
            "substract" => a.subtract(&b),
            "multiply" => a.multiply(&b),
            "divide" => a.divide(&b),
            "mod" => a.remainder(&b),
            "round" => a.round_half_up(),
            "strip" => Ok(a.strip_trailing_zeros()),
            "plain" => return Ok(a.to_plain_string().expect("few zeros")),
            other => panic!("unknown operation {other}"),
        };
        result.map(|value| value.to_string()).map_err(|error| MarshalError::new(error.to_string()))
    });
}

#[test]
fn durations_move_times_alike() {
    check(records("duration"), |record| {
        let (millis, duration) = record.input.split_once(' ').expect("a time and a duration");
        let millis: i64 = millis.parse().expect("milliseconds");
        let duration: Duration = duration.parse()?;
        let moved = if record.cql_type == "add" { duration.add_to(millis) } else { duration.subtract_from(millis) };
        Ok(moved.to_string())
    });
}

#[test]
fn classes_name_the_same_types() {
    check(records("class"), |record| {
        let cql_type = CqlType::parse_marshal_class(&record.input)?;
        let class = cql_type.to_marshal_class();
        assert_eq!(CqlType::parse_marshal_class(&class)?, cql_type);
        let length = cql_type.fixed_length().map_or("-1".to_owned(), |length| length.to_string());
        let class = class.replace("org.apache.cassandra.db.marshal.", "");
        let name = cql_type.to_string().replace("org.apache.cassandra.db.marshal.", "");
        Ok(format!("{name}|{class}|{}|{length}", cql_type.is_multi_cell()))
    });
}

#[test]
fn tuples_are_made_of_fields_between_colons() {
    let inner = CqlType::tuple([CqlType::Text, CqlType::Int]);
    let ty = CqlType::tuple([CqlType::Int, inner]);
    let value = |text: &str| ty.from_text(text).map(|value| hex::to_string(&value)).map_err(|e| e.message().to_owned());
    // These are Cassandra 5.0.8's answers to these literals.
    assert_eq!(value(""), Ok(String::new()));
    assert_eq!(value("1"), Ok("0000000400000001".into()));
    assert_eq!(value("@"), Ok("ffffffff".into()));
    assert_eq!(value(r"@:b\:1"), Ok("ffffffff0000000d00000001620000000400000001".into()));
    assert_eq!(value(r"@:\@\:1"), Ok("ffffffff0000000cffffffff0000000400000001".into()));
    assert_eq!(value(r"@:\\@\:1"), Ok("ffffffff0000000d00000001400000000400000001".into()));
    assert_eq!(value("a"), Err("Unable to make int from 'a'".into()));
    let too_many = "Invalid tuple literal: too many elements. Type frozen<tuple<int, frozen<tuple<text, int>>>> expects 2 but got 3";
    assert_eq!(value("1:b:"), Err(too_many.into()));
}
