//! No text makes the parser panic or overflow its stack.

use cql::{parse, without_comments};
use testkit::Random;

const PIECES: &[&str] = &[
    "SELECT",
    "JSON",
    "DISTINCT",
    "FROM",
    "WHERE",
    "INSERT INTO",
    "UPDATE",
    "DELETE",
    "BEGIN BATCH",
    "APPLY BATCH",
    "CREATE TABLE",
    "CREATE",
    "ALTER",
    "DROP",
    "GRANT",
    "LIST",
    "DESCRIBE",
    "token",
    "key",
    "a",
    "\"B\"",
    "\"\"",
    "'x'",
    "'",
    "$$",
    "$$y$$",
    "\"",
    "1",
    "-1",
    "1.5",
    "1e",
    "12d",
    "12mo3",
    "0xff",
    "123e4567-e89b",
    "P1Y",
    "-P",
    "-n",
    "é",
    "𝄞",
    "\u{0}",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    "<",
    ">",
    "..",
    ".",
    ",",
    ":",
    ";",
    "?",
    "=",
    "!=",
    "!",
    "+",
    "-",
    "*",
    "/",
    "%",
    "--",
    "//",
    "/*",
    "*/",
    "\n",
    "\r",
    "\t",
    " ",
    "frozen",
    "map",
    "IN",
    "AND",
    "NULL",
    "PRIMARY KEY",
    "WITH",
    "USING",
    "IF",
    "EXISTS",
    "AS",
    "SET",
    "VALUES",
    "expr(",
    "CAST",
    "COUNT",
];

#[test]
fn random_texts_are_parsed_or_refused() {
    let mut random = Random(0x5eed_1234_5678_9abc);
    let mut refused = 0;
    for _ in 0..40_000 {
        let mut text = String::new();
        for _ in 0..random.below(14) {
            text.push_str(PIECES[random.below(PIECES.len())]);
            if random.below(3) > 0 {
                text.push(' ');
            }
        }
        refused += usize::from(parse(&text).is_err());
    }
    assert!(refused > 30_000);
}

#[test]
fn every_beginning_of_a_statement_is_parsed_or_refused() {
    let text = "SELECT a, 'é𝄞''', {f: $$x$$}, m[1..2] FROM ks.\"T\" WHERE (a, b) IN ((1, 2)) AND c = {'a': \
                123e4567-e89b-12d3-a456-426655440000} /* x */ AND d > -1.5e-3 ORDER BY c DESC LIMIT ? -- end\n";
    for end in (0..text.len()).filter(|end| text.is_char_boundary(*end)) {
        let _ = parse(&text[..end]);
        let _ = parse(&text[end..]);
    }
    parse(text).unwrap();
}

#[test]
fn deep_nesting_is_refused() {
    let deep =
        |open: &str, middle: &str, close: &str| format!("{}{middle}{}", open.repeat(100_000), close.repeat(100_000));
    for text in [
        format!("SELECT {} FROM t", deep("(", "1", ")")),
        format!("SELECT {} FROM t", deep("[", "1", "]")),
        format!("SELECT {}a FROM t", "- ".repeat(100_000)),
        format!("SELECT {}a FROM t", "(int) ".repeat(100_000)),
        format!("SELECT {} FROM t", deep("f(", "1", ")")),
        format!("SELECT a FROM t WHERE {}", deep("(", "a = 1", ")")),
        format!("INSERT INTO t (a) VALUES ({})", deep("[", "1", "]")),
        format!("INSERT INTO t (a) VALUES ({})", deep("{1: ", "1", "}")),
        format!("INSERT INTO t (a) VALUES ({}1)", "(int) ".repeat(100_000)),
        format!("INSERT INTO t (a) VALUES ({})", deep("CAST(", "1", " AS int)")),
        format!("CREATE TABLE t (a {})", deep("list<", "int", ">")),
    ] {
        let message = parse(&text).unwrap_err().message;
        assert_eq!(message, "Statement is nested too deeply: more than 256 levels", "{}", &text[..60]);
    }
}

#[test]
fn long_chains_of_operators_are_refused() {
    for text in [
        format!("SELECT a{} FROM t", " + 1".repeat(100_000)),
        format!("SELECT a{} FROM t", " * 1".repeat(100_000)),
        format!("SELECT a{} FROM t", ".a".repeat(100_000)),
        format!("SELECT a FROM t WHERE a = 1{}", " + 1".repeat(100_000)),
        format!("SELECT a FROM t WHERE a = 1{}", " % 1".repeat(100_000)),
    ] {
        let message = parse(&text).unwrap_err().message;
        assert_eq!(message, "Statement is nested too deeply: more than 256 levels");
    }
    assert!(parse(&format!("SELECT a{} FROM t", " + 1".repeat(200))).is_ok());
}

#[test]
fn nesting_and_operators_count_together() {
    let nested = |levels: usize, operators: usize| {
        let mut term = "1".to_owned();
        for _ in 0..levels {
            term = format!("abs({term}){}{}", "*1".repeat(operators), "+1".repeat(operators));
        }
        [format!("SELECT {term} FROM t"), format!("INSERT INTO t (a) VALUES ({term})")]
    };
    for text in nested(2, 120).into_iter().chain(nested(120, 2)).chain(nested(30, 10)) {
        let message = parse(&text).unwrap_err().message;
        assert_eq!(message, "Statement is nested too deeply: more than 256 levels");
    }
    for text in nested(2, 60).into_iter().chain(nested(50, 2)) {
        assert!(parse(&text).is_ok());
    }
}

#[test]
fn operators_beside_each_other_do_not_add_up() {
    let sum = format!("1{}", " + 1".repeat(200));
    for text in [
        format!("SELECT [{}] FROM t", vec![sum.as_str(); 20].join(", ")),
        format!("INSERT INTO t (a) VALUES ([{}])", vec![sum.as_str(); 20].join(", ")),
        format!("SELECT {} FROM t", vec![sum.as_str(); 20].join(", ")),
    ] {
        assert!(parse(&text).is_ok());
    }
}

#[test]
fn statements_of_too_many_tokens_or_selectors_are_refused() {
    let ones = |count: usize| vec!["1"; count].join(",");
    let parse_list = |count: usize| parse(&format!("INSERT INTO t (a) VALUES ([{}])", ones(count)));
    assert!(parse_list(260_000).is_ok());
    assert_eq!(parse_list(270_000).unwrap_err().message, "Statement is too long: more than 524288 tokens");
    let select = |count: usize| parse(&format!("SELECT {} FROM t", ones(count)));
    assert!(select(65_535).is_ok());
    assert_eq!(select(65_536).unwrap_err().message, "SELECT has too many selectors: more than 65535");
    let lists = format!("SELECT {}[1] FROM t", "[i], ".repeat(2_000_000));
    assert_eq!(parse(&lists).unwrap_err().message, "SELECT has too many selectors: more than 65535");
}

/// The most steps for each token: several readings of a text may be tried one after another, but not nested.
const STEPS_PER_TOKEN_MAX: u64 = 6;

#[test]
fn parsing_takes_linear_time() {
    let nested = |open: &str, close: &str, depth: usize| {
        format!("SELECT JSON DISTINCT {}1{} FROM t", open.repeat(depth), close.repeat(depth))
    };
    let kinds = [
        ("(int)", ""),
        ("(a, ", ")"),
        ("(a){(b): ", "}"),
        ("(a)[(b), ", "]"),
        ("f(a)[1].b + (c)(", ")"),
        ("- (int)[", "]"),
        ("a.b.c + f(x, ", ")[1..2]"),
        ("(list<int>){a: ", ", (frozen<map<int, int>>) b: (c) }"),
    ];
    for (open, close) in kinds {
        for depth in [10, 20, 40, 60] {
            for end in ["", " junk (", "'"] {
                let text = nested(open, close, depth) + end;
                let (_, steps) = cql::parse_counting(&text);
                let tokens = depth * (open.len() + close.len()) + 20;
                assert!(steps <= STEPS_PER_TOKEN_MAX * tokens as u64, "{steps} steps for {tokens} tokens of {text}");
            }
        }
    }
}

#[test]
fn a_long_text_that_is_no_statement_takes_no_more_memory_than_a_copy_of_it() {
    const LENGTH: usize = 4_000_000;
    const BYTES_MAX: u64 = LENGTH as u64 + (2 << 20);
    let texts = [
        "'".repeat(LENGTH),
        format!("'{}'", "x".repeat(LENGTH)),
        format!("SELECT {}", "1".repeat(LENGTH)),
        format!("0x{}", "a".repeat(LENGTH)),
        format!("SELECT a FROM t WHERE b = 'é{}' junk junk", "x".repeat(LENGTH)),
        "\"".repeat(LENGTH + 1),
        " ".repeat(LENGTH),
    ];
    for text in texts {
        let before = &text[..20];
        let mut message = String::new();
        let parsing = allocation_counter::measure(|| message = parse(&text).unwrap_err().message);
        assert!(parsing.bytes_max <= BYTES_MAX as _, "{before}: {} bytes for {message:.100}", parsing.bytes_max);
    }
    let marks = "(".repeat(LENGTH);
    let counting = allocation_counter::measure(|| assert_eq!(cql::token_count(&marks), (1 << 19) + 1));
    assert_eq!(counting.bytes_max, 0, "tokens are counted without a list of them");
}

#[test]
fn comments_are_cut_out_of_any_text() {
    for (text, shown) in [
        ("SELECT /* a */ * FROM t -- b\nWHERE k = 'it''s -- c' // d", "SELECT   * FROM t  WHERE k = 'it''s -- c'  "),
        (
            "SELECT $$/* a */$$ FROM \"--t\" WHERE k = 1 - 2 / 3 /* b",
            "SELECT $$/* a */$$ FROM \"--t\" WHERE k = 1 - 2 / 3  ",
        ),
        ("é /* é */ 'é", "é   'é"),
        ("'open /* a */", "'open  "),
        ("", ""),
    ] {
        assert_eq!(without_comments(text), shown);
    }
}
