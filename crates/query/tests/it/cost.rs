//! The cost of preparing statements: stack by their depth, steps by their length.

use std::thread;

use query::{ErrorKind, QueryOptions};
use testkit::Random;

use crate::node::TestNode;

/// The stack that must be enough for statements, bytes: half the stack of the threads that serve connections.
const STACK_BYTES: usize = 1 << 20;

/// The deepest tree that the parser builds.
const DEPTH_MAX: usize = 256;

const TABLES: [&str; 2] = [
    "CREATE TABLE t (k int PRIMARY KEY, i int, d decimal, v varint, s text, m map<int, int>, l frozen<list<int>>)",
    "CREATE TABLE c (p int, a int, b int, PRIMARY KEY (p, a, b))",
];

/// Expressions at the limit of depth: one for each way to nest, and some that combine them.
fn deep_expressions() -> Vec<String> {
    let nested = |open: &str, middle: &str, close: &str, levels: usize| {
        format!("{}{middle}{}", open.repeat(levels), close.repeat(levels))
    };
    let depth = DEPTH_MAX - 2;
    let mut deep = vec![
        nested("(", "1", ")", depth),
        nested("[", "1", "]", depth),
        nested("{", "1", "}", depth),
        nested("{1: ", "1", "}", depth),
        nested("{f: ", "1", "}", depth),
        nested("(int)", "1", "", depth),
        nested("(varint)", "v", "", depth),
        nested("- ", "i", "", depth),
        nested("abs(", "i", ")", depth),
        nested("abs(", "1", ")", depth),
        nested("max(", "i", ")", depth),
        nested("to_json(", "i", ")", depth),
        nested("CAST(", "i", " AS int)", depth),
        nested("CAST(", "1", " AS int)", depth),
        nested("(list<int>)[", "1", "]", depth / 2),
        nested("abs(-", "i", ")", depth),
        nested("1 + (", "1", ")", depth / 2),
        nested("[- ", "1", "]", depth / 2),
        format!("'a'{}", " + 'b'".repeat(depth)),
    ];
    for operator in [" + ", " - ", " * ", " / ", " % "] {
        deep.push(format!("i{}", format!("{operator}1").repeat(depth)));
        deep.push(format!("1{}", format!("{operator}(int)1").repeat(depth)));
    }
    deep.push(format!("m{}", "[1]".repeat(depth)));
    deep.push(format!("m{}", ".f".repeat(depth)));
    let mut mixed = "'1'".to_owned();
    for _ in 0..4 {
        mixed = format!("abs({mixed}){}{}", "*1".repeat(30), "+1".repeat(30));
    }
    deep.push(mixed);
    deep
}

/// The statements that can contain an expression.
fn statements(expression: &str) -> [String; 7] {
    [
        format!("SELECT {expression} FROM t"),
        format!("SELECT k FROM t GROUP BY {expression}"),
        format!("INSERT INTO t (k, i, l) VALUES (1, {expression}, {expression})"),
        format!("UPDATE t SET v = {expression}, m[{expression}] = {expression} WHERE k = 1"),
        format!("SELECT k FROM t WHERE k IN ({expression}) AND m[{expression}] = {expression} ALLOW FILTERING"),
        format!("DELETE FROM c WHERE p = 1 AND (a, b) IN (({expression}, {expression}))"),
        format!("UPDATE t SET i = 1 WHERE k = 1 IF i = {expression}"),
    ]
}

#[test]
fn the_deepest_statements_take_half_the_stack_of_a_thread() {
    let run = || {
        let node = TestNode::with(&TABLES);
        node.run("INSERT INTO t (k, i, d, v, s, m) VALUES (1, 1, 1, 1, '1', {1: 1})");
        let mut carried_out = 0;
        for expression in deep_expressions() {
            for text in statements(&expression) {
                let parsed = cql::parse(&text).map(|parsed| (parsed.clone(), format!("{parsed:?}")));
                drop(parsed);
                match node.try_run(&text, &QueryOptions::default()) {
                    Ok(_) => carried_out += 1,
                    Err(error) => assert_ne!(error.kind, ErrorKind::Server, "{text}: {error}"),
                }
            }
        }
        assert!(carried_out > 20, "{carried_out} statements were carried out");
    };
    thread::Builder::new().stack_size(STACK_BYTES).spawn(run).unwrap().join().unwrap();
}

/// Types stay within their limit if each is a field of the next, and if the innermost one is altered.
fn deepen_types(node: &TestNode) {
    let refused = "types may be nested 64 deep, and this one is 65 deep";
    node.run("CREATE TYPE u0 (a int)");
    for level in 1..=62 {
        node.run(&format!("CREATE TYPE u{level} (a frozen<u{}>)", level - 1));
    }
    assert_eq!(node.failure("CREATE TABLE deep (k int PRIMARY KEY, l frozen<list<u62>>)"), refused);
    node.run("CREATE TABLE deep (k int PRIMARY KEY, l frozen<u62>)");
    let grown = node.failure("ALTER TYPE u0 ADD b frozen<list<int>>");
    assert_eq!(grown, format!("type ks.u62 cannot be stored: {refused}"));
    node.run("ALTER TYPE u0 ADD b int");
    assert_eq!(node.failure("ALTER TABLE deep ADD c frozen<list<u62>>"), refused);
}

#[test]
fn values_that_double_at_every_level_are_refused() {
    let node = TestNode::with(&TABLES);
    node.run("INSERT INTO t (k, s) VALUES (1, 'a')");
    let nested = format!("{}s{}", "to_json(".repeat(60), ")".repeat(60));
    let message = node.failure(&format!("SELECT {nested} FROM t"));
    assert_eq!(message, "the result of system.to_json has more than 67108864 bytes");
}

#[test]
fn relations_and_types_nest_as_deep_as_they_may() {
    let run = || {
        let node = TestNode::with(&TABLES);
        let levels = DEPTH_MAX - 2;
        let nested =
            |open: &str, middle: &str, close: &str| format!("{}{middle}{}", open.repeat(levels), close.repeat(levels));
        node.run(&format!("SELECT k FROM t WHERE {}", nested("(", "k = 1", ")")));
        for (open, close) in [("frozen<list<", ">>"), ("list<", ">"), ("tuple<int, ", ">"), ("map<int, ", ">")] {
            let levels = if open.starts_with("frozen") { levels / 2 } else { levels };
            let ty = format!("{}int{}", open.repeat(levels), close.repeat(levels));
            assert!(cql::parse(&format!("CREATE TYPE u (a {ty})")).is_ok());
            for text in [
                format!("CREATE TABLE x (k int PRIMARY KEY, a {ty})"),
                format!("CREATE TYPE u (a {ty})"),
                format!("SELECT ({ty})1 FROM t"),
                format!("INSERT INTO t (k, i) VALUES (1, ({ty})1)"),
            ] {
                assert!(node.try_run(&text, &QueryOptions::default()).is_err(), "{text}");
            }
        }
        deepen_types(&node);
    };
    thread::Builder::new().stack_size(STACK_BYTES).spawn(run).unwrap().join().unwrap();
}

/// Choosing types and functions takes at most this many steps per byte: an operator is chosen among 87 functions, for
/// each of about twelve possible types.
const STEPS_PER_BYTE_MAX: u64 = 400;

fn steps(node: &TestNode, text: &str) -> u64 {
    let (_, steps) = node.processor.prepare_counting(text, Some("ks"));
    steps
}

fn check_steps(node: &TestNode, expression: &str) {
    for text in statements(expression) {
        let steps = steps(node, &text);
        assert!(steps <= STEPS_PER_BYTE_MAX * text.len() as u64, "{steps} steps for {} bytes: {text}", text.len());
    }
}

#[test]
fn deep_expressions_are_resolved_in_linear_time() {
    let node = TestNode::with(&TABLES);
    deep_expressions().iter().for_each(|expression| check_steps(&node, expression));
}

#[test]
fn twice_the_operators_take_twice_the_steps() {
    let node = TestNode::with(&TABLES);
    let of_operators = |one: &str, count: usize| {
        let expression = format!("i{}", one.repeat(count));
        steps(&node, &format!("SELECT {expression} FROM t"))
    };
    for one in [" + 1", " * i", " + (int)1", " - 1.5"] {
        let (few, many) = (of_operators(one, 100), of_operators(one, 200));
        assert!(few > 100 && many < few * 5 / 2, "{one}: {few} steps, then {many}");
    }
}

/// A random expression of about this many parts.
fn random_expression(random: &mut Random, parts: usize) -> String {
    const LEAVES: [&str; 12] = ["i", "1", "1.5", "'a'", "v", "d", "s", "null", "(int)1", "m", "l", "99999999999"];
    if parts <= 1 {
        return LEAVES[random.below(LEAVES.len())].to_owned();
    }
    let part = |random: &mut Random| {
        let size = 1 + random.below(parts - 1);
        random_expression(random, size)
    };
    match random.below(12) {
        0..=3 => {
            let operator = ["+", "-", "*", "/", "%"][random.below(5)];
            let (left, right) = (part(random), random_expression(random, parts / 2));
            format!("{left} {operator} {right}")
        }
        4 => format!("abs({})", part(random)),
        5 => format!("CAST({} AS {})", part(random), ["int", "text", "varint"][random.below(3)]),
        6 => format!("[{}, {}]", part(random), random_expression(random, parts / 2)),
        7 => format!("{{{}: {}}}", part(random), random_expression(random, parts / 2)),
        8 => format!("({}, {})", part(random), random_expression(random, parts / 2)),
        9 => format!("(list<int>)[{}]", part(random)),
        10 => format!("{}({})", ["to_json", "max", "from_json", "round", "mask_null"][random.below(5)], part(random)),
        _ => format!("- {}", part(random)),
    }
}

#[test]
fn random_expressions_are_resolved_in_linear_time() {
    let node = TestNode::with(&TABLES);
    for seed in testkit::seeds(0..60) {
        let mut random = Random(seed);
        for parts in [5, 20, 60] {
            check_steps(&node, &random_expression(&mut random, parts));
        }
    }
}
