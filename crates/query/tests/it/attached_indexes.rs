//! Storage-attached indexes (`USING 'sai'`). The answers and the texts of errors are Cassandra's.

use blockio::SimulatedDisk;
use query::ProcessorOptions;

use crate::node::TestNode;

const NEEDS_FILTERING: &str = "Cannot execute this query as it might involve data filtering and thus may have \
    unpredictable performance. If you want to execute this query despite the performance unpredictability, use ALLOW \
    FILTERING";
const TABLES: [&str; 2] = [
    "CREATE TYPE ut (a int, b text)",
    "CREATE TABLE t (p int, q int, c int, d int, s text static, v int, w text, x double, y int, n int, z int, b blob, \
     u uuid, bo boolean, i inet, du duration, vec vector<float, 3>, vint vector<int, 3>, tup tuple<int, int>, nu ut, \
     l list<int>, lb list<blob>, st set<text>, m map<text, int>, mb map<int, blob>, fl frozen<list<int>>, \
     fb frozen<list<blob>>, PRIMARY KEY ((p, q), c, d))",
];

fn node() -> TestNode {
    TestNode::with(&TABLES)
}

/// The rows and indexes that Cassandra was asked about.
fn filled() -> TestNode {
    let node = node();
    for target in ["v", "x", "n", "s", "d", "st", "entries(m)", "full(fl)", "u", "bo", "i", "tup"] {
        node.run(&format!("CREATE INDEX ON t ({target}) USING 'sai'"));
    }
    node.run("CREATE INDEX plain_y ON t (y)");
    node.run("CREATE INDEX plain_n ON t (n)");
    for statement in [
        "INSERT INTO t (p, q, c, d, s, v, x, y, n, z, st, m, fl) VALUES (1, 1, 1, 1, 's1', 10, 1.5, 5, 6, 7, {'a', 'B'}, {'k1': 1, 'k2': 2}, [1, 2])",
        "INSERT INTO t (p, q, c, d, v, x, y, n, z, st, m, fl) VALUES (1, 1, 1, 2, 20, 2.5, 5, 6, 7, {'b'}, {'k1': 2}, [1])",
        "INSERT INTO t (p, q, c, d, s, v, x, y, n, z) VALUES (2, 1, 3, 2, 's2', 30, -1.5, 8, 6, 9)",
    ] {
        node.run(statement);
    }
    node
}

#[test]
fn names_of_columns_with_custom_indexes_are_checked_as_in_cassandra() {
    let (node, long) = (node(), "n".repeat(49));
    node.run(&format!("ALTER TABLE t ADD (\"Mixed Case\" int, {long} int)"));
    let characters = "Column 'Mixed Case' contains non-alphanumeric-underscore characters";
    let length = format!("Column '{long}' is longer than the permissible name length of 48 characters");
    for (column, message) in [("\"Mixed Case\"", characters), (&long, length.as_str())] {
        assert_eq!(node.failure(&format!("CREATE INDEX ON t ({column}) USING 'sai'")), message);
        node.run(&format!("CREATE INDEX ON t ({column})"));
    }
}

#[test]
fn a_storage_attached_index_is_checked_as_in_cassandra() {
    let node = node();
    node.run("CREATE INDEX own ON t (v) USING 'sai'");
    let twice = "Cannot create more than one storage-attached index on the same column: v";
    let analysis = "Analysis options are not supported on primary key columns, but found {'ascii': 'true'}";
    for (target, message) in [
        ("t (v) USING 'sai'", "Index t_v_idx is a duplicate of existing index own"),
        ("t (v) USING 'StorageAttachedIndex'", twice),
        ("t (b) USING 'sai'", "Unsupported type: blob"),
        ("t (lb) USING 'sai'", "Unsupported type: blob"),
        ("t (mb) USING 'sai'", "Unsupported type: blob"),
        ("t (entries(mb)) USING 'sai'", "Unsupported type: blob"),
        ("t (du) USING 'sai'", "Secondary indexes are not supported on duration columns"),
        ("t (nu) USING 'sai'", "Cannot create index on non-frozen UDT column nu"),
        ("t (vint) USING 'sai'", "SAI ANN indexes are only allowed on vector columns with float elements"),
        ("t (x) USING 'sai' WITH OPTIONS = {'case_sensitive': 'maybe'}", "CQL type double cannot be analyzed."),
        ("t (full(fl)) USING 'sai' WITH OPTIONS = {'ascii': 'true'}", "CQL type frozen<list<int>> cannot be analyzed."),
        (
            "t (entries(m)) USING 'sai' WITH OPTIONS = {'ascii': 'true'}",
            "CQL type 'org.apache.cassandra.db.marshal.CompositeType(org.apache.cassandra.db.marshal.UTF8Type,org.apache.cassandra.db.marshal.Int32Type)' cannot be analyzed.",
        ),
        ("t (d) USING 'sai' WITH OPTIONS = {'ascii': 'true'}", analysis),
        ("t (w) USING 'sai' WITH OPTIONS = {'ascii': 'x'}", "Illegal value for boolean option 'ascii': x"),
        (
            "t (w) USING 'sai' WITH OPTIONS = {'nonsense': 'true'}",
            "Properties specified [nonsense] are not understood by StorageAttachedIndex",
        ),
        (
            "t (w) USING 'sai' WITH OPTIONS = {'similarity_function': 'cosine'}",
            "CQL type text cannot have vector options",
        ),
        ("t (w) USING 'sai' WITH OPTIONS = {'target': 'w'}", "Cannot specify target as a CUSTOM option"),
        ("t (w) USING 'sai' WITH OPTIONS = {'class_name': 'w'}", "Cannot specify class_name as a CUSTOM option"),
        ("t (w) USING 'sai' WITH nonsense = 1", "Unknown property 'nonsense'"),
    ] {
        assert_eq!(node.failure(&format!("CREATE INDEX ON {target}")), message, "{target}");
    }
    for (target, message) in [
        ("t (v, w)", "A storage-attached index cannot be created over multiple columns: v, w"),
        ("t ()", "Failed to retrieve target column for: "),
    ] {
        let statement = format!("CREATE CUSTOM INDEX ON {target} USING 'sai'");
        assert_eq!(node.failure(&statement), message, "{target}");
    }
    node.run("CREATE INDEX ON t (v)");
    node.run("CREATE INDEX IF NOT EXISTS again ON t (v) USING 'sai'");
    for target in ["p", "q", "c", "s", "w", "keys(m)", "values(m)", "entries(m)", "keys(mb)", "full(fb)", "tup", "l"] {
        node.run(&format!("CREATE INDEX ON t ({target}) USING 'sai'"));
    }
}

#[test]
fn a_storage_attached_index_is_stored_and_described_as_in_cassandra() {
    let disk = SimulatedDisk::new();
    let node = TestNode::on_disk(&disk).with_keyspace();
    TABLES.iter().for_each(|table| drop(node.run(table)));
    node.run("CREATE INDEX one ON t (v) USING 'SAI'");
    node.run("CREATE CUSTOM INDEX two ON t (w) USING 'StorageAttachedIndex' WITH OPTIONS = {'case_sensitive': 'false', 'ascii': 'true'}");
    node.run("INSERT INTO t (p, q, c, d, v, w) VALUES (1, 1, 1, 1, 5, 'a')");
    let described = [
        "'ks' 'index' 'one' 'CREATE CUSTOM INDEX one ON ks.t (v) USING ''SAI'';'",
        "'ks' 'index' 'two' 'CREATE CUSTOM INDEX two ON ks.t (w) USING ''StorageAttachedIndex'' WITH OPTIONS = {''ascii'': ''true'', ''case_sensitive'': ''false''};'",
    ];
    let check = |node: &TestNode| {
        assert_eq!(node.rows("DESCRIBE INDEX one"), described[..1]);
        assert_eq!(node.rows("DESCRIBE INDEX two"), described[1..]);
        let stored = "SELECT index_name, kind, options FROM system_schema.indexes WHERE keyspace_name = 'ks'";
        assert_eq!(
            node.rows(stored),
            [
                "'one' 'CUSTOM' {'class_name': 'SAI', 'target': 'v'}",
                "'two' 'CUSTOM' {'ascii': 'true', 'case_sensitive': 'false', 'class_name': 'StorageAttachedIndex', 'target': 'w'}",
            ]
        );
        assert_eq!(node.rows("SELECT p FROM t WHERE v > 4 AND w = 'a'"), ["1"]);
        assert_eq!(node.rows("SELECT p FROM t WHERE v > 4 AND w = '\u{c1}'"), ["1"]);
    };
    check(&node);
    node.processor.engine().shutdown().unwrap();
    drop(node);
    let mut node = TestNode::on_disk(&disk);
    node.use_keyspace("ks");
    check(&node);
    node.run("DROP INDEX one");
    assert_eq!(node.failure("SELECT p FROM t WHERE v > 4 AND w = 'a'"), NEEDS_FILTERING);
}

#[test]
fn the_default_class_is_that_of_indexes_without_using() {
    let with_default = |default_index_class| {
        let options = ProcessorOptions { default_index_class, ..ProcessorOptions::default() };
        let node = TestNode::with_options(options).with_keyspace();
        TABLES.iter().for_each(|table| drop(node.run(table)));
        node
    };
    let node = with_default(Some("sai".into()));
    node.run("CREATE INDEX one ON t (v)");
    node.run("CREATE INDEX two ON t (w) USING 'legacy_local_table'");
    let stored = "SELECT index_name, kind FROM system_schema.indexes WHERE keyspace_name = 'ks'";
    assert_eq!(node.rows(stored), ["'one' 'CUSTOM'", "'two' 'COMPOSITES'"]);
    assert_eq!(with_default(None).failure("CREATE INDEX ON t (x)"), "Must specify index implementation via USING");
}

#[test]
fn a_select_needs_filtering_where_cassandra_wants_it_with_storage_attached_indexes() {
    let node = filled();
    let in_with_index = "Select on indexed columns and with IN clause for the PRIMARY KEY are not supported";
    let ordered = "ORDER BY with 2ndary indexes is not supported, except for ANN queries.";
    for (restriction, message) in [
        ("v > 10 AND v > 5", "More than one restriction was found for the start bound on v"),
        ("v = 10 AND v > 5", "v cannot be restricted by more than one relation if it includes an Equal"),
        ("v IN (10, 20)", NEEDS_FILTERING),
        ("s > 'a'", NEEDS_FILTERING),
        ("bo > false", NEEDS_FILTERING),
        ("u > 50554d6e-29bb-11e5-b345-feff819cdc9f", NEEDS_FILTERING),
        ("tup > (1, 1)", NEEDS_FILTERING),
        ("fl > [1]", NEEDS_FILTERING),
        ("fl CONTAINS 1", NEEDS_FILTERING),
        ("v = 10 AND y = 5", NEEDS_FILTERING),
        ("v = 10 AND z = 7", NEEDS_FILTERING),
        ("z = 7", NEEDS_FILTERING),
        ("y > 5", NEEDS_FILTERING),
        ("y = 5 AND n = 6", NEEDS_FILTERING),
        ("m['k1'] > 1", "Only EQ relations are supported on map entries"),
        ("m CONTAINS 2", NEEDS_FILTERING),
        ("m CONTAINS KEY 'k1'", NEEDS_FILTERING),
        ("p = 1 AND v > 10", NEEDS_FILTERING),
        ("p IN (1, 2) AND q = 1 AND v > 10", in_with_index),
        ("p IN (1, 2) AND q = 1 AND c = 1 AND v = 10", in_with_index),
        ("c = 1 AND v > 10", NEEDS_FILTERING),
        ("(c, d) > (1, 1) AND v > 1", NEEDS_FILTERING),
        ("v > 10 ORDER BY c", ordered),
        ("p = 1 AND q = 1 AND v > 1 ORDER BY c DESC", ordered),
        ("v = null", "Unsupported null value for column v"),
        ("v > null", "Unsupported null value for column v"),
    ] {
        assert_eq!(node.failure(&format!("SELECT p, q, c, d FROM t WHERE {restriction}")), message, "{restriction}");
    }
    let distinct =
        "SELECT DISTINCT with WHERE clause only supports restriction by partition key and/or static columns.";
    assert_eq!(node.failure("SELECT DISTINCT p, q FROM t WHERE v > 5"), distinct);
}

#[test]
fn a_select_by_storage_attached_indexes_finds_the_rows_that_cassandra_finds() {
    let node = filled();
    let [first, second, other] = ["1 1 1 1", "1 1 1 2", "2 1 3 2"];
    for (restriction, rows) in [
        ("v = 10", &[first][..]),
        ("v > 10", &[other, second]),
        ("v >= 10 AND v < 30", &[first, second]),
        ("v IN (10)", &[first]),
        ("v IN (10, 20) ALLOW FILTERING", &[first, second]),
        ("s = 's1'", &[first, second]),
        ("d = 2", &[other, second]),
        ("d > 1", &[other, second]),
        ("d >= 2 AND v > 10", &[other, second]),
        ("v = 10 AND x = 1.5", &[first]),
        ("v > 5 AND x > 1", &[first, second]),
        ("x < 0", &[other]),
        ("v = 10 AND y = 5 ALLOW FILTERING", &[first]),
        ("v > 10 AND z = 7 ALLOW FILTERING", &[second]),
        ("n = 6", &[other, first, second]),
        ("n > 5", &[other, first, second]),
        ("n > 5 AND v > 1", &[other, first, second]),
        ("st CONTAINS 'b'", &[second]),
        ("st CONTAINS 'b' AND st CONTAINS 'a'", &[]),
        ("st CONTAINS 'B' AND st CONTAINS 'a'", &[first]),
        ("st CONTAINS 'b' AND v > 1", &[second]),
        ("m['k1'] = 2", &[second]),
        ("m['k1'] = 2 AND v = 20", &[second]),
        ("m['k1'] = 1 AND m['k2'] = 2", &[first]),
        ("fl = [1]", &[second]),
        ("p = 1 AND q = 1 AND v > 10", &[second]),
        ("p = 1 AND q = 1 AND c = 1 AND v > 10", &[second]),
        ("p = 1 AND q = 1 AND c > 0 AND v > 10", &[second]),
        ("token(p, q) > 0 AND v > 10", &[other, second]),
        ("p = 1 AND q = 1 AND d = 2", &[second]),
        ("p = 1 AND q = 1 AND c = 1 AND d IN (1, 2) AND v = 10", &[first]),
        ("v > 10 LIMIT 1", &[other]),
        ("v > 10 PER PARTITION LIMIT 1", &[other, second]),
        ("v > 2147483646", &[]),
        ("i > '1.1.1.1'", &[]),
    ] {
        let statement = format!("SELECT p, q, c, d FROM t WHERE {restriction}");
        assert_eq!(node.rows(&statement), rows, "{restriction}");
    }
    assert_eq!(node.rows("SELECT count(*) FROM t WHERE v > 5 GROUP BY p, q"), ["1", "2"]);
    node.run("UPDATE t SET v = 11 WHERE p = 1 AND q = 1 AND c = 1 AND d = 1 IF v = 10");
    assert_eq!(node.rows("SELECT v FROM t WHERE v > 10 AND v < 20"), ["11"]);
    node.run("TRUNCATE t");
    assert!(node.rows("SELECT v FROM t WHERE v > 10").is_empty());
}
