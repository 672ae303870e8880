//! Long numbers: their cost is bounded, and numbers that are too long are refused with an error that names the limit.

use query::{QueryOptions, Value, Values};

use crate::node::TestNode;

fn node() -> TestNode {
    let node = TestNode::with(&["CREATE TABLE t (k int PRIMARY KEY, v varint, d decimal, l frozen<list<varint>>)"]);
    node.run("INSERT INTO t (k, v, d) VALUES (1, 1, 1)");
    node
}

/// A number with this many digits.
fn digits(count: usize) -> String {
    "7".repeat(count)
}

#[test]
fn literals_of_more_digits_than_are_read_are_refused() {
    let node = node();
    let long = digits(10_000_000);
    for (column, ty, number) in
        [("v", "varint", long.clone()), ("d", "decimal", long.clone()), ("d", "decimal", format!("{long}.5"))]
    {
        let message = node.failure(&format!("INSERT INTO t (k, {column}) VALUES (1, {number})"));
        assert_eq!(message, format!("a {ty} of more than 100000 digits cannot be read from a text"));
    }
    let message = node.failure(&format!("INSERT INTO t JSON '{{\"k\": 1, \"v\": \"{long}\"}}'"));
    assert!(message.contains("varint") || message.contains("too many digits") || message.len() > 10, "{message}");
    let sane = digits(100_000);
    node.run(&format!("INSERT INTO t (k, v, d) VALUES (2, {sane}, {sane})"));
    assert_eq!(node.rows("SELECT v FROM t WHERE k = 2"), [sane]);
}

#[test]
fn stored_numbers_of_any_length_are_read_and_compared_but_not_calculated_with() {
    let node = node();
    let bytes = vec![0x77; 60_000];
    let values = [Value::Bytes(&bytes)];
    let options = QueryOptions { values: Values::Positional(&values), ..QueryOptions::default() };
    node.try_run("INSERT INTO t (k, v) VALUES (3, ?)", &options).unwrap();
    let element = [&1_i32.to_be_bytes()[..], &(bytes.len() as i32).to_be_bytes(), &bytes].concat();
    let values = [Value::Bytes(&element)];
    let options = QueryOptions { values: Values::Positional(&values), ..QueryOptions::default() };
    node.try_run("INSERT INTO t (k, l) VALUES (4, ?)", &options).unwrap();
    assert_eq!(node.run("SELECT v FROM t WHERE k = 3").warnings, Vec::<String>::new());
    assert_eq!(node.rows("SELECT k FROM t WHERE v > 1 ALLOW FILTERING"), ["3"]);
    let refused = "A varint of more than 100000 digits cannot be calculated with or converted";
    for selected in
        ["v + 1", "v * v", "-v", "CAST(v AS text)", "CAST(v AS double)", "abs(v)", "log(v)", "to_json(v)", "sum(v)"]
    {
        assert_eq!(node.failure(&format!("SELECT {selected} FROM t WHERE k = 3")), refused, "{selected}");
    }
    assert_eq!(node.failure("SELECT JSON v FROM t WHERE k = 3"), refused);
    assert_eq!(node.failure("SELECT JSON l FROM t WHERE k = 4"), refused);
}

#[test]
fn results_of_more_digits_than_are_calculated_with_are_refused() {
    let node = node();
    let long = digits(90_000);
    let product = vec![format!("(varint){long}"); 40].join(" * ");
    let refused = "A varint of more than 100000 digits cannot be calculated with or converted";
    assert_eq!(node.failure(&format!("UPDATE t SET v = {product} WHERE k = 1")), refused);
    node.run(&format!("UPDATE t SET v = (varint){} * (varint){} WHERE k = 1", digits(40_000), digits(40_000)));
}

#[test]
fn decimals_of_extreme_scales_are_calculated_with_or_refused_at_once() {
    let node = node();
    node.run("INSERT INTO t (k, d) VALUES (5, 1E-2147483647)");
    node.run("INSERT INTO t (k, d) VALUES (6, 1E2147483647)");
    assert_eq!(node.rows("SELECT exp(d) FROM t WHERE k = 5"), ["1.0000000000000000000000000000000"]);
    assert!(node.failure("SELECT exp(d) FROM t WHERE k = 6").contains("not defined, or too large"));
    for number in [
        "d + 1",
        "d - 1",
        "d * d",
        "d / 3",
        "1 / d",
        "d % 7",
        "7 % d",
        "round(d)",
        "log(d)",
        "log10(d)",
        "abs(d)",
        "-d",
        "CAST(d AS text)",
        "CAST(d AS bigint)",
        "CAST(d AS varint)",
        "CAST(d AS double)",
        "to_json(d)",
        "sum(d)",
        "avg(d)",
    ] {
        for row in [5, 6] {
            // The result may be a value or an error. Neither takes long.
            let _ = node.try_run(&format!("SELECT {number} FROM t WHERE k = {row}"), &QueryOptions::default());
        }
    }
    node.run(&format!("INSERT INTO t (k, d) VALUES (7, {}.5)", digits(2_000)));
    assert_eq!(
        node.failure("SELECT exp(d) FROM t WHERE k = 7"),
        "The exp of a number of more than 1000 digits is not supported"
    );
}
