//! Damaged texts, classes and bytes are refused or accepted, but never trusted without a check, and never cause a
//! panic.

use serde_json::Value;
use testkit::{Random, seed};
use types::{CqlType, MarshalClass, hex};

struct Garbage(Random);

impl Garbage {
    /// `SEED=n` repeats a run.
    fn new() -> Garbage {
        Garbage(Random(seed(5008)))
    }

    fn below(&mut self, n: usize) -> usize {
        self.0.below(n)
    }

    /// The text with one character dropped, doubled or replaced.
    fn damage(&mut self, text: &str) -> String {
        const REPLACEMENTS: [char; 16] =
            ['0', '9', '-', '+', ':', '.', 'T', 'Z', ' ', 'e', '%', '[', '(', 'µ', '\u{1f600}', '\0'];
        let mut chars: Vec<char> = text.chars().collect();
        let at = self.below(chars.len() + 1);
        match self.below(3) {
            0 if at < chars.len() => {
                chars.remove(at);
            }
            1 if at < chars.len() => chars[at] = REPLACEMENTS[self.below(16)],
            _ => chars.insert(at, REPLACEMENTS[self.below(16)]),
        }
        chars.into_iter().collect()
    }
}

fn records() -> impl Iterator<Item = (String, String, String)> {
    include_str!("../from_cassandra/5.0.8/texts.jsonl").lines().map(|line| {
        let value: Value = serde_json::from_str(line).expect("a JSON line");
        let text = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
        (text("op"), text("type"), text("in"))
    })
}

/// An accepted value is valid, and can be printed.
fn use_value(cql_type: &CqlType, value: &[u8]) {
    let literal = cql_type.to_cql_literal(value);
    assert!(!literal.is_empty() || *cql_type == CqlType::Duration, "{cql_type}: {value:x?}");
    let json = cql_type.to_json(value);
    assert!(serde_json::from_str::<Value>(&json).is_ok(), "{cql_type}: {json}");
}

#[test]
fn damaged_texts_never_panic() {
    let mut random = Garbage::new();
    for (op, class, input) in records().filter(|(op, ..)| matches!(op.as_str(), "text" | "fromjson")) {
        let cql_type = CqlType::parse_marshal_class(&class).expect("a class");
        for _ in 0..4 {
            let damaged = random.damage(&input);
            let value = if op == "text" {
                cql_type.from_text(&damaged)
            } else {
                let Ok(json) = serde_json::from_str(&damaged) else { continue };
                cql_type.from_json(&json)
            };
            if let Ok(value) = value {
                use_value(&cql_type, &value);
            }
        }
    }
}

#[test]
fn damaged_bytes_never_panic() {
    let mut random = Garbage::new();
    for (_, class, input) in records().filter(|(op, ..)| op == "literal") {
        let cql_type = CqlType::parse_marshal_class(&class).expect("a class");
        let mut value = hex::parse(&input).expect("hexadecimal");
        if value.is_empty() {
            continue;
        }
        let at = random.below(value.len());
        value[at] ^= 1 << random.below(8);
        value.truncate(value.len() - random.below(2));
        let _ = cql_type.validate(&value);
        use_value(&cql_type, &value);
    }
}

#[test]
fn damaged_classes_never_panic() {
    let mut random = Garbage::new();
    for (_, class, _) in records().filter(|(op, ..)| op == "class") {
        for _ in 0..50 {
            let damaged = random.damage(&class);
            if let Ok(parsed) = MarshalClass::parse(&damaged) {
                assert_eq!(MarshalClass::parse(&parsed.name()), Ok(parsed), "{damaged}");
            }
        }
    }
}

/// A value read back from its JSON prints as the same JSON.
#[test]
fn json_of_values_reads_back() {
    let mut read = 0;
    for (_, class, input) in records().filter(|(op, ..)| op == "json") {
        let cql_type = CqlType::parse_marshal_class(&class).expect("a class");
        let json = cql_type.to_json(&hex::parse(&input).expect("hexadecimal"));
        let parsed: Value = serde_json::from_str(&json).expect("JSON");
        // Numbers with a point are read as doubles, as in Cassandra, so decimals lose digits.
        let lossy = cql_type.any(&|part| *part == CqlType::Decimal);
        if let (false, Ok(again)) = (lossy, cql_type.from_json(&parsed)) {
            assert_eq!(cql_type.to_json(&again), json, "{cql_type}: {input}");
            read += 1;
        }
    }
    assert!(read > 2000, "only {read}");
}
