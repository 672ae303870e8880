//! CREATE INDEX, DROP INDEX and SELECT by an index. The texts of errors are Cassandra's.

use blockio::SimulatedDisk;

use crate::node::TestNode;
use crate::several_indexes::candidates;

const TABLES: [&str; 6] = [
    "CREATE TYPE ut (x int, y text)",
    "CREATE TABLE t (k int, c int, s text static, a int, b text, e int, l list<int>, m map<text, int>, \
     fl frozen<list<int>>, u ut, fu frozen<ut>, d duration, ld list<duration>, \"Quoted\" int, PRIMARY KEY (k, c))",
    "CREATE TABLE p (k1 int, k2 int, c1 int, c2 int, c3 frozen<list<int>>, v int, PRIMARY KEY ((k1, k2), c1, c2, c3))",
    "CREATE TABLE simple (k int PRIMARY KEY, v int, w int)",
    "CREATE TABLE cnt (k int PRIMARY KEY, n counter)",
    "CREATE TABLE st (k int, c int, s int static, v int, PRIMARY KEY (k, c))",
];
const NEEDS_FILTERING: &str = "Cannot execute this query as it might involve data filtering and thus may have \
    unpredictable performance. If you want to execute this query despite the performance unpredictability, use ALLOW \
    FILTERING";

fn node() -> TestNode {
    TestNode::with(&TABLES)
}

fn assert_failures(node: &TestNode, cases: &[(&str, &str)]) {
    for (statement, message) in cases {
        assert_eq!(node.failure(statement), *message, "{statement}");
    }
}

#[test]
fn columns_that_cannot_be_indexed_are_refused_with_cassandras_messages() {
    let frozen = "Cannot create values() index on frozen column fl. Frozen collections are immutable and must be fully \
        indexed by using the 'full(fl)' modifier";
    let node = node();
    let cases = [
        ("nosuch (v)", "Table 'nosuch' doesn't exist"),
        ("nokeyspace.t (v)", "Keyspace 'nokeyspace' doesn't exist"),
        ("t (nosuch)", "Undefined column name nosuch in table ks.t"),
        ("t (k)", "Cannot create secondary index on the only partition key column k"),
        ("t (values(a))", "Cannot create values() index on a. Non-collection columns only support simple indexes"),
        ("t (keys(a))", "Cannot create keys() index on a. Non-collection columns only support simple indexes"),
        ("t (full(a))", "full() indexes can only be created on frozen collections"),
        ("t (full(l))", "full() indexes can only be created on frozen collections"),
        ("t (keys(l))", "Cannot create index on keys of column l with non-map type"),
        ("t (entries(l))", "Cannot create index on entries of column l with non-map type"),
        ("t (fl)", frozen),
        ("t (values(fl))", frozen),
        ("t (d)", "Secondary indexes are not supported on duration columns"),
        ("t (ld)", "Secondary indexes are not supported on collections containing durations"),
        ("t (u)", "Cannot create index on non-frozen UDT column u"),
        ("t (a, b)", "Only CUSTOM indexes support multiple columns"),
        ("t ()", "Only CUSTOM indexes can be created without specifying a target column"),
        ("cnt (n)", "Secondary indexes on counter tables aren't supported"),
        ("t (a) WITH OPTIONS = {'x': 'y'}", "Cannot specify options for a non-CUSTOM index"),
        ("t (a) WITH foo = 'y'", "Unknown property 'foo'"),
        ("t (a) USING 'nosuch'", "Unable to find custom indexer class 'nosuch'"),
        ("t (a) USING 'sasi'", "Unable to find custom indexer class 'sasi'"),
        (
            "t (a) USING 'org.apache.cassandra.index.sasi.SASIIndex'",
            "SASI indexes are disabled. Enable in cassandra.yaml to use.",
        ),
        ("t (a) USING 'legacy_local_table' WITH OPTIONS = {'x': 'y'}", "Cannot specify options for a non-CUSTOM index"),
        ("system.local (rack)", "system keyspace is not user-modifiable."),
        ("system_views.settings (value)", "system_views keyspace is not user-modifiable."),
        ("system_auth.roles (is_superuser)", "Cannot ALTER <table system_auth.roles>"),
    ];
    for (target, message) in cases {
        assert_eq!(node.failure(&format!("CREATE INDEX ON {target}")), message, "{target}");
    }
    assert_failures(
        &node,
        &[
            ("CREATE INDEX \"bad-name\" ON t (a)", "Illegal index name bad-name"),
            ("CREATE CUSTOM INDEX ON t (a)", "Unable to find custom indexer class 'legacy_local_table'"),
        ],
    );
    assert!(node.rows("SELECT * FROM system_schema.indexes WHERE keyspace_name = 'ks'").is_empty());
}

#[test]
fn an_index_has_a_name_of_its_own_in_its_keyspace() {
    let node = node();
    node.run("CREATE INDEX other ON t (a)");
    node.run("CREATE INDEX t_a_idx ON t (b)");
    let duplicate = "Index t_a_idx_1 is a duplicate of existing index other";
    assert_failures(
        &node,
        &[
            ("CREATE INDEX ON t (a)", duplicate),
            ("CREATE INDEX second ON t (a)", "Index second is a duplicate of existing index other"),
            ("CREATE INDEX t_a_idx ON simple (v)", "Index 't_a_idx' already exists"),
            ("DROP INDEX nosuch", "Index 'ks.nosuch' doesn't exist'"),
            ("DROP INDEX nokeyspace.other", "Index 'nokeyspace.other' doesn't exist'"),
            ("ALTER TABLE t DROP a", "Cannot drop column a because it has dependent secondary indexes (other)"),
        ],
    );
    for statement in [
        "CREATE INDEX IF NOT EXISTS ON t (a)",
        "CREATE INDEX IF NOT EXISTS other ON simple (v)",
        "DROP INDEX IF EXISTS nosuch",
        "DROP INDEX IF EXISTS nokeyspace.other",
    ] {
        node.run(statement);
    }
    node.run("CREATE INDEX ON t (\"Quoted\")");
    node.run("CREATE INDEX ON t (m)");
    node.run("CREATE INDEX ON t (keys(m)) USING 'legacy_local_table'");
    node.run("CREATE INDEX ON t (full(fl))");
    let stored = "SELECT index_name, kind, options FROM system_schema.indexes WHERE keyspace_name = 'ks'";
    assert_eq!(
        node.rows(stored),
        [
            "'other' 'COMPOSITES' {'target': 'a'}",
            "'t_Quoted_idx' 'COMPOSITES' {'target': '\"Quoted\"'}",
            "'t_a_idx' 'COMPOSITES' {'target': 'b'}",
            "'t_fl_idx' 'COMPOSITES' {'target': 'full(fl)'}",
            "'t_m_idx' 'COMPOSITES' {'target': 'values(m)'}",
            "'t_m_idx_1' 'COMPOSITES' {'target': 'keys(m)'}",
        ]
    );
    node.run("CREATE INDEX ON p (c1)");
    let renamed = "Can't rename column c1 because it has dependent secondary indexes (p_c1_idx)";
    assert_eq!(node.failure("ALTER TABLE p RENAME c1 TO cc1"), renamed);
    node.run("DROP INDEX other");
    node.run("ALTER TABLE t DROP a");
    node.run("DROP TABLE t");
    let left = "SELECT index_name FROM system_schema.indexes WHERE keyspace_name = 'ks'";
    assert_eq!(node.rows(left), ["'p_c1_idx'"]);
}

#[test]
fn an_index_is_described_beside_its_table() {
    let node = node();
    node.run("CREATE INDEX ON simple (v)");
    node.run("CREATE INDEX \"Own\" ON t (keys(m))");
    let own = "'ks' 'index' '\"Own\"' 'CREATE INDEX \"Own\" ON ks.t (keys(m));'";
    assert_eq!(node.rows("DESCRIBE INDEX \"Own\""), [own]);
    let of_simple = "'ks' 'index' 'simple_v_idx' 'CREATE INDEX simple_v_idx ON ks.simple (v);'";
    assert_eq!(node.rows("DESCRIBE simple_v_idx"), [of_simple]);
    assert_eq!(node.rows("DESCRIBE TABLE simple")[1..], [of_simple]);
    assert_eq!(node.rows("DESCRIBE ks.simple")[1..], [of_simple]);
    let keyspace = node.rows("DESCRIBE KEYSPACE ks");
    let place = |row: &str| keyspace.iter().position(|other| other.starts_with(row)).unwrap();
    assert_eq!(place("'ks' 'table' 'simple'") + 1, place("'ks' 'index' 'simple_v_idx'"));
    let missing = "Table for existing index 'nosuch' not found in 'ks'";
    assert_eq!(node.failure("DESCRIBE INDEX nosuch"), missing);
}

/// The rows and indexes that Cassandra was asked about.
fn filled() -> TestNode {
    let node = node();
    for target in [
        "t (a)",
        "t (b)",
        "t (s)",
        "t (l)",
        "t (keys(m))",
        "t (values(m))",
        "t (entries(m))",
        "t (full(fl))",
        "t (fu)",
        "t (c)",
        "t (\"Quoted\")",
        "p (k1)",
        "p (k2)",
        "p (c1)",
        "p (c2)",
        "p (full(c3))",
        "simple (v)",
        "st (s)",
    ] {
        node.run(&format!("CREATE INDEX ON {target}"));
    }
    for statement in [
        "INSERT INTO t (k, c, s, a, b, l, m, fl, fu, \"Quoted\") VALUES (1, 1, 'st', 10, 'x', [1, 2], {'a': 1, 'b': 2}, [1, 2], {x: 1, y: 'q'}, 5)",
        "INSERT INTO t (k, c, s, a, b, l, m, fl, fu, \"Quoted\") VALUES (1, 2, 'st', 10, 'y', [2, 3], {'a': 2, 'c': 2}, [2], {x: 2, y: 'q'}, 6)",
        "INSERT INTO t (k, c, s, a, b, l, m, fl, fu, \"Quoted\") VALUES (2, 1, 'st2', 20, 'x', [1], {'a': 1}, [1], {x: 1, y: 'q'}, 5)",
        "INSERT INTO t (k, c, a, b) VALUES (3, 1, 10, 'x')",
        "INSERT INTO t (k, s) VALUES (4, 'st')",
        "INSERT INTO p (k1, k2, c1, c2, c3, v) VALUES (1, 1, 1, 1, [1], 1)",
        "INSERT INTO p (k1, k2, c1, c2, c3, v) VALUES (1, 2, 1, 2, [1], 2)",
        "INSERT INTO p (k1, k2, c1, c2, c3, v) VALUES (2, 1, 2, 1, [2], 3)",
        "INSERT INTO simple (k, v) VALUES (1, 10)",
        "INSERT INTO simple (k, v) VALUES (2, 10)",
        "INSERT INTO st (k, c, s, v) VALUES (1, 1, 5, 1)",
        "INSERT INTO st (k, s) VALUES (2, 5)",
    ] {
        node.run(statement);
    }
    node
}

#[test]
fn a_select_by_an_index_needs_filtering_where_cassandra_wants_it() {
    let node = filled();
    let in_with_index = "Select on indexed columns and with IN clause for the PRIMARY KEY are not supported";
    let ordered = "ORDER BY with 2ndary indexes is not supported, except for ANN queries.";
    for (restriction, message) in [
        ("a = 10 AND b = 'x'", NEEDS_FILTERING),
        ("a = 10 AND c = 1", NEEDS_FILTERING),
        ("a = 10 AND c > 0", NEEDS_FILTERING),
        ("a = 10 AND k IN (1, 2)", in_with_index),
        ("a = 10 AND k IN (1, 2) ALLOW FILTERING", in_with_index),
        ("a > 5", NEEDS_FILTERING),
        ("a IN (10, 20)", NEEDS_FILTERING),
        ("a = 10 AND a = 20", "a cannot be restricted by more than one relation if it includes an Equal"),
        ("a = null", "Unsupported null value for column a"),
        ("a = 10 ORDER BY c", ordered),
        ("a = 10 AND k = 1 ORDER BY c DESC", ordered),
        ("s = 'st' AND c = 1", NEEDS_FILTERING),
        ("s = 'st' AND a = 10", NEEDS_FILTERING),
        ("l CONTAINS 1 AND l CONTAINS 2", NEEDS_FILTERING),
        ("m CONTAINS KEY 'a' AND m CONTAINS 1", NEEDS_FILTERING),
        ("fl CONTAINS 1", NEEDS_FILTERING),
        ("c > 1", NEEDS_FILTERING),
        ("c IN (1, 2)", NEEDS_FILTERING),
    ] {
        assert_eq!(node.failure(&format!("SELECT k, c FROM t WHERE {restriction}")), message, "{restriction}");
    }
    let contains = "Clustering columns can only be restricted with CONTAINS with a secondary index or filtering";
    for (restriction, message) in [
        ("k1 > 1", NEEDS_FILTERING),
        ("k1 = 1 AND c1 = 1", NEEDS_FILTERING),
        ("k1 IN (1, 2)", NEEDS_FILTERING),
        ("c2 = 1 AND c1 = 1", NEEDS_FILTERING),
        ("c1 = 1 AND v = 1", NEEDS_FILTERING),
        ("c3 CONTAINS 1", contains),
        ("(c1, c2) = (1, 1)", NEEDS_FILTERING),
        ("k1 = 1 AND k2 IN (1, 2) AND c2 = 1", in_with_index),
    ] {
        assert_eq!(node.failure(&format!("SELECT * FROM p WHERE {restriction}")), message, "{restriction}");
    }
    assert_failures(
        &node,
        &[
            ("SELECT * FROM simple WHERE v = 10 AND w = 1", NEEDS_FILTERING),
            (
                "SELECT * FROM simple WHERE expr(simple_v_idx, '10')",
                "Only CUSTOM indexes may be used in custom index expressions, simple_v_idx is not valid",
            ),
            ("UPDATE simple SET w = 1 WHERE v = 10", "Some partition key parts are missing: k"),
            ("DELETE FROM t WHERE k = 1 AND a = 10", "Non PRIMARY KEY columns found in where clause: a "),
        ],
    );
}

#[test]
fn values_of_a_type_that_gets_a_field_are_found() {
    let node = TestNode::with(&[
        "CREATE TYPE ut (x int)",
        "CREATE TABLE t (k int, c frozen<ut>, u frozen<ut>, v int, PRIMARY KEY (k, c))",
        "CREATE INDEX ON t (u)",
        "CREATE INDEX ON t (v)",
        "INSERT INTO t (k, c, u, v) VALUES (1, {x: 1}, {x: 1}, 1)",
        "ALTER TYPE ut ADD y int",
        "INSERT INTO t (k, c, u, v) VALUES (2, {x: 2, y: 5}, {x: 1, y: 7}, 1)",
    ]);
    let check = || {
        assert_eq!(node.rows("SELECT k FROM t WHERE v = 1"), ["1", "2"]);
        assert_eq!(node.rows("SELECT k FROM t WHERE u = {x: 1}"), ["1"]);
        assert_eq!(node.rows("SELECT k FROM t WHERE u = {x: 1, y: 7}"), ["2"]);
    };
    check();
    node.processor.engine().flush_all().unwrap();
    check();
}

#[test]
fn an_indexed_vector_is_not_restricted() {
    let node = TestNode::with(&["CREATE TABLE v (k int PRIMARY KEY, v vector<float, 2>)", "CREATE INDEX ON v (v)"]);
    for filtering in ["", " ALLOW FILTERING"] {
        let select = format!("SELECT k FROM v WHERE v = [1, 2]{filtering}");
        assert_eq!(node.failure(&select), "Vector indexes only support ANN queries");
    }
}

#[test]
fn a_select_by_an_index_finds_the_rows_that_cassandra_finds() {
    let node = filled();
    for (restriction, rows) in [
        ("a = 10", &["1 1", "1 2", "3 1"][..]),
        ("a = 10 AND b = 'x' ALLOW FILTERING", &["1 1", "3 1"]),
        ("a = 10 AND k = 1", &["1 1", "1 2"]),
        ("a = 10 AND k = 1 AND c = 1", &["1 1"]),
        ("a = 10 AND k = 1 AND c > 1", &["1 2"]),
        ("a = 10 AND k = 1 AND c IN (1, 2)", &["1 1", "1 2"]),
        ("a = 10 AND k IN (1)", &["1 1", "1 2"]),
        ("a = 10 AND token(k) > 0", &["3 1"]),
        ("a IN (10)", &["1 1", "1 2", "3 1"]),
        ("a = 10 LIMIT 2", &["1 1", "1 2"]),
        ("a = 10 PER PARTITION LIMIT 1", &["1 1", "3 1"]),
        ("s = 'st'", &["1 1", "1 2", "4 null"]),
        ("s = 'st' AND a = 10 ALLOW FILTERING", &["1 1", "1 2"]),
        ("k = 1 AND s = 'st'", &["1 1", "1 2"]),
        ("l CONTAINS 1", &["1 1", "2 1"]),
        ("l CONTAINS 1 AND l CONTAINS 2 ALLOW FILTERING", &["1 1"]),
        ("m CONTAINS KEY 'a'", &["1 1", "1 2", "2 1"]),
        ("m CONTAINS 2", &["1 1", "1 2"]),
        ("m['a'] = 1", &["1 1", "2 1"]),
        ("m CONTAINS KEY 'a' AND m CONTAINS 1 ALLOW FILTERING", &["1 1", "2 1"]),
        ("fl = [1]", &["2 1"]),
        ("fu = {x: 1, y: 'q'}", &["1 1", "2 1"]),
        ("\"Quoted\" = 5", &["1 1", "2 1"]),
        ("c = 1", &["1 1", "2 1", "3 1"]),
        ("b = ''", &[]),
    ] {
        assert_eq!(node.rows(&format!("SELECT k, c FROM t WHERE {restriction}")), rows, "{restriction}");
    }
    for (restriction, rows) in [
        ("k1 = 1", &["2", "1"][..]),
        ("k2 = 1", &["3", "1"]),
        ("k1 = 1 AND k2 = 1", &["1"]),
        ("c1 = 1", &["2", "1"]),
        ("c2 = 1", &["3", "1"]),
        ("c3 = [1]", &["2", "1"]),
        ("k1 = 1 AND k2 = 1 AND c2 = 1", &["1"]),
        ("(c1) = (1)", &["2", "1"]),
        ("token(k1, k2) > 0 AND c2 = 1", &["3", "1"]),
    ] {
        assert_eq!(node.rows(&format!("SELECT v FROM p WHERE {restriction}")), rows, "{restriction}");
    }
    for (statement, rows) in [
        ("SELECT k, count(*) FROM t WHERE a = 10 GROUP BY k", &["1 2", "3 1"][..]),
        ("SELECT count(*) FROM t WHERE a = 10", &["3"]),
        ("SELECT DISTINCT k, s FROM t WHERE s = 'st'", &["1 'st'", "4 'st'"]),
        ("SELECT s FROM t WHERE s = 'st'", &["'st'", "'st'", "'st'"]),
        ("SELECT s FROM t WHERE a = 10", &["'st'", "'st'", "null"]),
        ("SELECT * FROM st WHERE s = 5", &["1 1 5 1", "2 null 5 null"]),
        ("SELECT k FROM simple WHERE v = 10", &["1", "2"]),
    ] {
        assert_eq!(node.rows(statement), rows, "{statement}");
    }
}

#[test]
fn indexes_are_the_same_after_a_restart() {
    let disk = SimulatedDisk::new();
    let node = TestNode::on_disk(&disk).with_keyspace();
    TABLES.iter().for_each(|table| drop(node.run(table)));
    node.run("INSERT INTO simple (k, v) VALUES (1, 10)");
    node.run("CREATE INDEX ON simple (v)");
    node.run("INSERT INTO simple (k, v) VALUES (2, 10)");
    node.run("ALTER TABLE simple ADD x int");
    assert_eq!(node.rows("SELECT k FROM simple WHERE v = 10"), ["1", "2"]);
    node.processor.engine().shutdown().unwrap();
    drop(node);
    let mut node = TestNode::on_disk(&disk);
    node.use_keyspace("ks");
    assert_eq!(node.rows("SELECT k FROM simple WHERE v = 10"), ["1", "2"]);
    node.run("TRUNCATE simple");
    assert!(node.rows("SELECT k FROM simple WHERE v = 10").is_empty());
    node.run("DROP INDEX simple_v_idx");
    assert_eq!(node.failure("SELECT k FROM simple WHERE v = 10"), NEEDS_FILTERING);
}

/// A page of few rows needs few places of a large partition, and more of them only if their rows have other values now.
#[test]
fn a_small_page_of_a_large_partition_reads_few_candidates() {
    let node = TestNode::with(&["CREATE TABLE t (p int, c int, v int, PRIMARY KEY (p, c))", "CREATE INDEX ON t (v)"]);
    for row in 0..700 {
        node.run(&format!("INSERT INTO t (p, c, v) VALUES (1, {row}, 7)"));
    }
    let first = "SELECT c FROM t WHERE v = 7 LIMIT 1";
    assert_eq!(node.rows(first), ["0"]);
    assert_eq!(candidates(&node, first), 2, "the one, and the one behind it");
    assert_eq!(candidates(&node, "SELECT c FROM t WHERE v = 7 LIMIT 5"), 6);
    assert_eq!(node.rows("SELECT count(*) FROM t WHERE v = 7 GROUP BY p LIMIT 1"), ["700"]);
    for row in 0..400 {
        node.run(&format!("UPDATE t SET v = 8 WHERE p = 1 AND c = {row}"));
    }
    assert_eq!(node.rows(first), ["400"]);
    let every: Vec<String> = (400..700).map(|row| row.to_string()).collect();
    assert_eq!(node.rows("SELECT c FROM t WHERE v = 7"), every);
    assert_eq!(node.rows("SELECT c FROM t WHERE v = 7 LIMIT 299"), every[..299]);
}
