use serde_json::Value;
use types::{Token, hex, murmur3, vint};

fn vectors(name: &str) -> Vec<Value> {
    let all: Value = serde_json::from_str(include_str!("../from_cassandra/5.0.8/primitives.json")).expect("JSON");
    all[name].as_array().expect("a list").clone()
}

fn text<'a>(vector: &'a Value, name: &str) -> &'a str {
    vector[name].as_str().expect("text")
}

#[test]
fn integers_of_varying_length_are_those_of_cassandra() {
    for vector in vectors("vints") {
        let value: i64 = text(&vector, "value").parse().expect("an integer");
        let (mut unsigned, mut signed) = (Vec::new(), Vec::new());
        vint::write_uvint(value as u64, &mut unsigned);
        vint::write_svint(value, &mut signed);
        assert_eq!(hex::to_string(&unsigned), text(&vector, "uvint"), "{value}");
        assert_eq!(hex::to_string(&signed), text(&vector, "svint"), "{value}");
        assert_eq!(vint::read_uvint(&mut unsigned.as_slice()), Some(value as u64));
        assert_eq!(vint::read_svint(&mut signed.as_slice()), Some(value));
    }
}

#[test]
fn hashes_and_tokens_are_those_of_cassandra() {
    for vector in vectors("partition_keys") {
        let key = hex::parse(text(&vector, "key")).expect("hexadecimal");
        let (h1, h2) = murmur3::hash128(&key);
        assert_eq!((h1 as i64).to_string(), text(&vector, "h1"));
        assert_eq!((h2 as i64).to_string(), text(&vector, "h2"));
        assert_eq!(Token::of_key(&key).to_string(), text(&vector, "token"));
        assert_eq!((murmur3::murmur2_64(&key) as i64).to_string(), text(&vector, "murmur2_64"));
    }
}
