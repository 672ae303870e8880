//! An INSERT that copies its values as they were sent writes the same row as one that writes value by value.

use std::ops::Range;

use protocol::{Body, Header, Opcode, Request, Version};
use query::{QueryOptions, Value, Values};
use testkit::{Random, seeds};
use types::collection;

use crate::node::{TestNode, rows_of};

const STATEMENTS: usize = 60;
const COLUMNS: [&str; 12] = [
    "a text", "b text", "c text", "d ascii", "e text", "f blob", "g text", "h text", "i int", "j text", "k text",
    "l text",
];

/// The bytes of a value; `None` is null or, in half of the statements, unset.
fn value(random: &mut Random, column: &str) -> Option<Vec<u8>> {
    match random.below(60) {
        0 => None,
        1 => Some("ü".as_bytes().to_vec()),
        2 => Some(vec![0xff]),
        3 => Some(vec![b'x'; 128 + random.below(200)]),
        4 => Some(Vec::new()),
        _ if column.ends_with("int") => Some((random.number() as i32).to_be_bytes().to_vec()),
        _ => Some(vec![b'a' + random.below(26) as u8; 1 + random.below(20)]),
    }
}

/// The values in the form of a frame, and the place of each.
fn frame(values: &[Option<Vec<u8>>], absent: i32) -> (Vec<u8>, Vec<Option<Range<usize>>>) {
    let mut bytes = Vec::new();
    let places = values.iter().map(|value| {
        bytes.extend_from_slice(&value.as_ref().map_or(absent, |value| value.len() as i32).to_be_bytes());
        bytes.extend_from_slice(value.as_deref().unwrap_or_default());
        value.as_ref().map(|value| bytes.len() - value.len()..bytes.len())
    });
    let places = places.collect();
    (bytes, places)
}

/// The body of an EXECUTE with these values.
fn execute_body(values: &[u8], count: usize) -> Vec<u8> {
    [&[0, 0, 0, 1, 1][..], &(count as u16).to_be_bytes(), values].concat()
}

/// Its values, as a connection has them.
fn encoded(body: &[u8]) -> Values<'_> {
    let (version, opcode) = (Version::V4, Opcode::Execute);
    let header = Header { version, flags: 0, stream: 1, opcode, body_size: body.len() as u32 };
    match Body::parse(&header, body).unwrap().request {
        Request::Execute { options, .. } => options.values,
        other => panic!("{other:?}"),
    }
}

#[test]
fn values_copied_as_they_were_sent_equal_values_written_one_by_one() {
    for seed in seeds(0..8) {
        let mut random = Random(seed);
        let table = |name: &str| format!("CREATE TABLE {name} (key int PRIMARY KEY, {})", COLUMNS.join(", "));
        let node = TestNode::with(&[&table("sent"), &table("single")]);
        let mut written = 0;
        for _ in 0..STATEMENTS {
            // The columns are mostly in the order of the table, as users of drivers write them.
            let mut columns = COLUMNS.to_vec();
            for _ in 0..random.below(3) {
                columns.swap(random.below(COLUMNS.len()), random.below(COLUMNS.len()));
            }
            columns.truncate(1 + random.below(COLUMNS.len()));
            let mut values = vec![Some((random.below(20) as i32).to_be_bytes().to_vec())];
            values.extend(columns.iter().map(|column| value(&mut random, column)));
            let is_unset = random.one_in(2);
            let (bytes, places) = frame(&values, if is_unset { -2 } else { -1 });
            let absent = if is_unset { Value::Unset } else { Value::Null };
            let values: Vec<_> =
                places.into_iter().map(|place| place.map_or(absent, |place| Value::Bytes(&bytes[place]))).collect();
            let names: Vec<_> = columns.iter().filter_map(|column| column.split(' ').next()).collect();
            let body = execute_body(&bytes, values.len());
            let forms = [("sent", encoded(&body)), ("single", Values::Positional(&values))];
            let [sent, single] = forms.map(|(name, values)| {
                let marks = ", ?".repeat(names.len());
                let insert = format!("INSERT INTO {name} (key, {}) VALUES (?{marks})", names.join(", "));
                let insert = node.processor.prepare(&insert, Some("ks")).unwrap();
                let options = QueryOptions { values, timestamp: Some(1), ..QueryOptions::default() };
                node.execute(&insert, &options).map(drop).map_err(|error| error.to_string())
            });
            assert_eq!(sent, single, "{names:?} {values:?}");
            written += u32::from(sent.is_ok());
            let [sent, single] =
                ["sent", "single"].map(|name| rows_of(node.run(&format!("SELECT * FROM {name}"))).cells);
            assert_eq!(sent, single, "{names:?} {values:?}");
        }
        assert!(written > STATEMENTS as u32 / 4, "{written}");
    }
}

/// Cassandra 5.0.8 stores them in this way.
#[test]
fn sets_and_maps_within_collections_are_sorted_and_those_within_other_types_are_not() {
    let int = |value: i32| value.to_be_bytes().to_vec();
    let list = |elements: &[&[u8]]| collection::list(elements.iter().copied());
    let map = |entries: &[(Vec<u8>, Vec<u8>)]| {
        collection::map(entries.iter().map(|(key, value)| (key.as_slice(), value.as_slice())))
    };
    let (sent, sorted) = (list(&[&int(3), &int(1), &int(1)]), list(&[&int(1), &int(3)]));
    let in_tuple = |value: &[u8]| collection::tuple([Some(value)].into_iter());
    let in_vector = |value: &Vec<u8>| [vec![value.len() as u8], value.clone()].concat();
    let cases = [
        ("frozen<map<frozen<set<int>>, int>>", map(&[(sent.clone(), int(1))]), map(&[(sorted.clone(), int(1))])),
        (
            "frozen<map<int, frozen<set<int>>>>",
            map(&[(int(2), sent.clone()), (int(1), sorted.clone())]),
            map(&[(int(1), sorted.clone()), (int(2), sorted.clone())]),
        ),
        ("frozen<list<frozen<set<int>>>>", list(&[&sent]), list(&[&sorted])),
        ("frozen<list<frozen<list<frozen<set<int>>>>>>", list(&[&list(&[&sent])]), list(&[&list(&[&sorted])])),
        ("frozen<set<frozen<set<int>>>>", list(&[&sent, &sorted]), list(&[&sorted])),
        ("frozen<tuple<frozen<set<int>>>>", in_tuple(&sent), in_tuple(&sent)),
        ("frozen<list<frozen<tuple<frozen<set<int>>>>>>", list(&[&in_tuple(&sent)]), list(&[&in_tuple(&sent)])),
        ("frozen<u>", in_tuple(&sent), in_tuple(&sent)),
        ("vector<frozen<set<int>>, 1>", in_vector(&sent), in_vector(&sent)),
    ];
    let node = TestNode::with(&["CREATE TYPE u (a frozen<set<int>>)"]);
    for (number, (ty, sent, stored)) in cases.iter().enumerate() {
        node.run(&format!("CREATE TABLE t{number} (k {ty}, c {ty}, v {ty}, PRIMARY KEY (k, c))"));
        let values = [Value::Bytes(sent); 3];
        let options = QueryOptions { values: Values::Positional(&values), ..QueryOptions::default() };
        node.try_run(&format!("INSERT INTO t{number} (k, c, v) VALUES (?, ?, ?)"), &options).unwrap();
        let mut expected = Vec::new();
        (0..3).for_each(|_| collection::write_part(Some(stored), &mut expected));
        assert_eq!(rows_of(node.run(&format!("SELECT k, c, v FROM t{number}"))).cells, expected, "{ty}");
        let values = [Value::Bytes(stored); 2];
        let options = QueryOptions { values: Values::Positional(&values), ..QueryOptions::default() };
        let found = node.try_run(&format!("SELECT v FROM t{number} WHERE k = ? AND c = ?"), &options).unwrap();
        assert_eq!(rows_of(found).row_count, 1, "{ty}: found by the value as it is stored");
    }
}

/// The texts are Cassandra's, also for a relation of several columns that has one.
#[test]
fn missing_values_in_tuples_are_refused_by_their_place() {
    let node = TestNode::with(&["CREATE TABLE t (k int, c int, d int, PRIMARY KEY (k, c, d))"]);
    let one = 1_i32.to_be_bytes();
    let null = "Invalid null value in condition for columns: [c]";
    let cases: [(&str, &[Value<'_>], &str); 6] = [
        ("(c) IN ((1), (null))", &[], null),
        ("(c) IN ((?), (?))", &[Value::Bytes(&one), Value::Null], null),
        ("(c) IN ((?), (1))", &[Value::Unset], "Invalid unset value for tuple field number 0"),
        ("(c) = (?)", &[Value::Unset], "Invalid unset value for tuple field number 0"),
        ("(c, d) IN ((1, ?), (1, 2))", &[Value::Null], "Invalid null value in condition for columns: [c, d]"),
        ("c IN (?, 1)", &[Value::Unset], "Invalid unset value for column c"),
    ];
    for (relation, values, expected) in cases {
        let options = QueryOptions { values: Values::Positional(values), ..QueryOptions::default() };
        for rest in ["", " GROUP BY k, c"] {
            let statement = format!("SELECT k FROM t WHERE k = 1 AND {relation}{rest}");
            let refused = node.try_run(&statement, &options).unwrap_err();
            assert_eq!(refused.message, expected, "{statement}");
        }
    }
}
