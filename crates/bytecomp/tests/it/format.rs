//! The worked examples of `FORMAT.md`.

use bytecomp::{
    decode_decorated_key, decode_value, decode_value_reversed, encode_decorated_key, encode_value,
    encode_value_reversed,
};
use types::{CqlType, Token, hex};

fn type_named(name: &str) -> CqlType {
    match name {
        "list<int>" => CqlType::list(CqlType::Int).freeze(),
        "list<text>" => CqlType::list(CqlType::Text).freeze(),
        "map<text, int>" => CqlType::map(CqlType::Text, CqlType::Int).freeze(),
        "tuple<int, text>" => CqlType::tuple([CqlType::Int, CqlType::Text]),
        "vector<float, 2>" => CqlType::vector(CqlType::Float, 2),
        native => CqlType::native(native).unwrap_or_else(|| panic!("no type {native}")),
    }
}

fn bytes(cell: &str) -> Vec<u8> {
    hex::parse(&cell.replace(['`', ' '], "")).unwrap_or_else(|| panic!("not hexadecimal: {cell}"))
}

#[test]
fn worked_examples_are_right() {
    let table = include_str!("../../FORMAT.md").split("| type | value | serialized | encoded |").nth(1).unwrap();
    let mut checked = 0;
    for line in table.lines().skip(2) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [name, _, serialized, encoded] = cells[..] else { continue };
        let name = name.trim_matches('`');
        let (value, expected) = (bytes(serialized), bytes(encoded));
        let (mut found, mut decoded) = (Vec::new(), Vec::new());
        if name == "key" {
            encode_decorated_key(Token::of_key(&value), &value, &mut found);
            decoded = decode_decorated_key(&expected).unwrap().1;
        } else if let Some(base) = name.strip_suffix(" DESC") {
            assert!(encode_value_reversed(&type_named(base), &value, &mut found));
            decode_value_reversed(&type_named(base), &mut expected.as_slice(), &mut decoded).unwrap();
        } else {
            assert!(encode_value(&type_named(name), &value, &mut found));
            decode_value(&type_named(name), &mut expected.as_slice(), &mut decoded).unwrap();
        }
        assert_eq!(found, expected, "{line}");
        assert_eq!(decoded, value, "{line}");
        checked += 1;
    }
    assert!(checked >= 30, "only {checked} examples found");
}
