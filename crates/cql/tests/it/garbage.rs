//! No text makes the parser panic or overflow its stack.

use cql::parse;

/// xorshift: the same texts in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }
}

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
        assert_eq!(message, "Statement is nested too deeply: more than 96 levels", "{}", &text[..60]);
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
        assert_eq!(message, "Too many operators in one expression: more than 256");
    }
    assert!(parse(&format!("SELECT a{} FROM t", " + 1".repeat(200))).is_ok());
}
