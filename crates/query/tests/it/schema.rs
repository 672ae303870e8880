//! Changing the schema. What is expected was asked of Cassandra 5.0.8.

use query::{ChangeType, ResponseBody};

use crate::node::TestNode;

#[test]
fn a_change_that_changes_nothing_answers_nothing() {
    let node = TestNode::with(&["CREATE TABLE t (k int, c int, v text, PRIMARY KEY (k, c))", "CREATE TYPE u (a int)"]);
    for statement in [
        "ALTER TABLE t WITH comment = ''",
        "ALTER TABLE t ADD IF NOT EXISTS v int",
        "ALTER TABLE t DROP IF EXISTS nosuch",
        "ALTER TABLE IF EXISTS nosuch ADD x int",
        "ALTER TYPE u RENAME IF EXISTS x TO y",
        "ALTER KEYSPACE ks WITH durable_writes = true",
        "CREATE TABLE IF NOT EXISTS t (k int PRIMARY KEY)",
        "DROP TYPE IF EXISTS nosuch",
    ] {
        assert_eq!(node.run(statement).body, ResponseBody::Void, "{statement}");
    }
    let ResponseBody::SchemaChange(change) = node.run("ALTER TABLE t WITH comment = 'x'").body else {
        panic!("the table was changed")
    };
    assert_eq!((change.change, change.name.as_deref()), (ChangeType::Updated, Some("t")));
    assert_eq!(node.failure("ALTER TABLE t RENAME IF EXISTS x TO y"), "Undefined column name x in table ks.t");
}

#[test]
fn a_dropped_column_comes_back_as_what_it_was_only() {
    let node = TestNode::with(&[
        "CREATE TYPE u (a int)",
        "CREATE TABLE t (k int, c int, a int, l list<int>, s text static, f frozen<u>, PRIMARY KEY (k, c))",
        "INSERT INTO t (k, c, a) VALUES (1, 1, 5) USING TIMESTAMP 10",
        "ALTER TABLE t DROP a USING TIMESTAMP 20",
        "ALTER TABLE t DROP l",
        "ALTER TABLE t DROP s",
        "ALTER TABLE t DROP f",
    ]);
    let refused = |column: &str, ty: &str, was: &str| {
        assert_eq!(
            node.failure(&format!("ALTER TABLE t ADD {column} {ty}")),
            format!(
                "Cannot add a column '{column}' of type {ty}, incompatible with previously dropped column '{column}' of type {was}"
            )
        );
    };
    refused("a", "text", "int");
    refused("a", "blob", "int");
    refused("l", "set<int>", "list<int>");
    refused("l", "frozen<list<int>>", "list<int>");
    refused("f", "frozen<u>", "frozen<tuple<int>>");
    assert_eq!(
        node.failure("ALTER TABLE t ADD s text"),
        "Cannot re-add previously dropped column 's' of kind REGULAR, incompatible with previous kind STATIC"
    );
    // A user type was recorded as a tuple, and comes back as that, or as the bytes it is stored in.
    node.run("ALTER TABLE t ADD f blob");
    node.run("ALTER TABLE t ADD a int");
    assert_eq!(node.rows("SELECT a FROM t"), ["null"], "what was written before the drop stays gone");
    node.run("UPDATE t USING TIMESTAMP 21 SET a = 6 WHERE k = 1 AND c = 1");
    assert_eq!(node.rows("SELECT a FROM t"), ["6"]);
}
