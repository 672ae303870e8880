//! The memory that prepared statements report, compared with the memory that they take.

use crate::node::TestNode;

const COUNT: usize = 300;

fn many(part: &str) -> String {
    vec![part; COUNT].join(",")
}

fn numbered(part: impl Fn(usize) -> String) -> String {
    (0..COUNT).map(part).collect::<Vec<_>>().join(",")
}

fn statements() -> Vec<String> {
    let insert = "INSERT INTO t (k, i) VALUES (?, 1);";
    vec![
        "SELECT * FROM t WHERE k = ?".into(),
        "INSERT INTO t (k, i, s, m, l) VALUES (?, ?, ?, ?, ?)".into(),
        "UPDATE t USING TTL ? SET i = ?, s = ? WHERE k = ?".into(),
        "DELETE FROM t WHERE k = 1".into(),
        "SELECT * FROM broad".into(),
        "SELECT * FROM broad WHERE k IN ?".into(),
        "SELECT JSON * FROM broad".into(),
        format!("SELECT {} FROM t WHERE k = 1", many("i")),
        format!("SELECT {} FROM t WHERE k = 1", many("i AS a")),
        format!("SELECT {} FROM t WHERE k = 1", many("abs(i)")),
        format!("SELECT {} FROM t WHERE k = 1", many("i + 1")),
        format!("SELECT {} FROM t WHERE k = 1", many("[i]")),
        format!("SELECT {} FROM t WHERE k = 1", many("(i, s)")),
        format!("SELECT {} FROM t WHERE k = 1", many("m[1]")),
        format!("SELECT {} FROM t WHERE k = 1", many("(bigint)1")),
        format!("SELECT {} FROM t WHERE k = 1", many("writetime(i)")),
        format!("SELECT {} FROM t WHERE k = 1", many("max(i)")),
        format!("SELECT [{}] FROM t WHERE k = 1", many("i")),
        format!("SELECT i{} FROM t WHERE k = 1", "+1".repeat(200)),
        format!("SELECT i FROM t WHERE k IN ({})", many("1")),
        format!("SELECT i FROM t WHERE k IN ({})", many("?")),
        "SELECT i FROM t WHERE k = 1 AND i > 1 ALLOW FILTERING".into(),
        format!("SELECT i FROM c WHERE k = 1 AND (a, b) IN ({})", many("(1, 2)")),
        format!("SELECT i FROM c WHERE k = 1 AND (a, b) IN ({})", many("(?, ?)")),
        format!("INSERT INTO t (k, l) VALUES (1, [{}])", many("1")),
        format!("INSERT INTO t (k, l) VALUES (1, [{}])", many("abs(1)")),
        format!("INSERT INTO t (k, m) VALUES (1, {{{}}})", numbered(|key| format!("{key}: {key}"))),
        format!("INSERT INTO t (k, s) VALUES (1, '{}')", "x".repeat(10_000)),
        format!("INSERT INTO broad (k, {}) VALUES (1, {})", numbered(|column| format!("c{column}")), many("?")),
        format!("UPDATE broad SET {} WHERE k = 1", numbered(|column| format!("c{column} = ?"))),
        format!("UPDATE t SET {} WHERE k = 1", numbered(|key| format!("m[{key}] = ?"))),
        format!("DELETE {} FROM t WHERE k = 1", numbered(|key| format!("m[{key}]"))),
        format!("BEGIN BATCH {} APPLY BATCH", insert.repeat(COUNT)),
        format!("CREATE TABLE other (k int PRIMARY KEY, {})", numbered(|column| format!("c{column} int"))),
        format!(
            "CREATE TABLE other (k int PRIMARY KEY, {})",
            numbered(|column| format!("c{column} map<int, frozen<list<int>>>"))
        ),
        format!("CREATE TYPE other ({})", numbered(|field| format!("f{field} text"))),
    ]
}

#[test]
fn a_prepared_statement_takes_what_it_says_and_not_much_less() {
    let columns = numbered(|column| format!("c{column} text"));
    let node = TestNode::with(&[
        "CREATE TABLE t (k int PRIMARY KEY, i int, s text, m map<int, int>, l list<int>)",
        "CREATE TABLE c (k int, a int, b int, i int, PRIMARY KEY (k, a, b))",
        &format!("CREATE TABLE broad (k int PRIMARY KEY, {columns})"),
    ]);
    let mut wrong = Vec::new();
    for text in statements() {
        let mut kept = None;
        let prepare = || node.processor.prepare(&text, Some("ks")).unwrap_or_else(|error| panic!("{text}: {error}"));
        drop(prepare());
        let counted = allocation_counter::measure(|| kept = Some(prepare()));
        let (takes, says) = (counted.bytes_current, kept.unwrap().size_bytes() as i64);
        let peak = counted.bytes_max;
        println!(
            "{takes:>9} of {says:>9} ({:.2}), {peak:>9} at most: {}",
            takes as f64 / says as f64,
            &text[..text.len().min(60)]
        );
        // Constants become one value, far smaller than their text.
        let is_folded = ["[1,1", "{0: 0", "(1, 2)"].iter().any(|constants| text.contains(constants));
        if takes > says || (says > 6 * takes && !is_folded) {
            wrong.push(format!("takes {takes}, says {says}: {}", &text[..text.len().min(60)]));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
