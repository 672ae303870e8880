//! An INSERT whose values are known as they were sent writes what it writes of values one by one.

use std::ops::Range;

use engine::block_on;
use query::{QueryOptions, Value, Values};
use testkit::{Random, seeds};

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

/// The values as a frame has them, and where each is.
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

#[test]
fn values_written_as_they_were_sent_are_those_that_are_written_one_by_one() {
    for seed in seeds(0..8) {
        let mut random = Random(seed);
        let table = |name: &str| format!("CREATE TABLE {name} (key int PRIMARY KEY, {})", COLUMNS.join(", "));
        let node = TestNode::with(&[&table("sent"), &table("single")]);
        let mut written = 0;
        for _ in 0..STATEMENTS {
            // Mostly in the order of the table, as drivers' users write them.
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
            let [sent, single] = [("sent", &bytes[..]), ("single", &[][..])].map(|(name, value_bytes)| {
                let marks = ", ?".repeat(names.len());
                let insert = format!("INSERT INTO {name} (key, {}) VALUES (?{marks})", names.join(", "));
                let insert = node.processor.prepare(&insert, Some("ks")).unwrap();
                let values = Values::Positional(&values);
                let options = QueryOptions { values, value_bytes, timestamp: Some(1), ..QueryOptions::default() };
                block_on(node.processor.execute(&insert, &node.client, &options))
                    .map(drop)
                    .map_err(|error| error.to_string())
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

/// Bytes that are not those of the values, as of another frame, are not taken for them.
#[test]
fn values_are_not_looked_for_in_bytes_that_they_are_not_in() {
    let node = TestNode::with(&["CREATE TABLE t (key int PRIMARY KEY, a text, b text)"]);
    let insert = node.processor.prepare("INSERT INTO t (key, a, b) VALUES (?, ?, ?)", Some("ks")).unwrap();
    let other = b"\0\0\0\x04\0\0\0\x01\0\0\0\x01x\0\0\0\x01y".to_vec();
    let key = 1_i32.to_be_bytes();
    let values = [Value::Bytes(&key), Value::Bytes(b"1"), Value::Bytes(b"2")];
    let options = QueryOptions { values: Values::Positional(&values), value_bytes: &other, ..QueryOptions::default() };
    block_on(node.processor.execute(&insert, &node.client, &options)).unwrap();
    assert_eq!(node.rows("SELECT a, b FROM t"), ["'1' '2'"]);
}
