//! Dynamic data masking: columns that readers without UNMASK see a mask of.

use std::sync::Arc;
use std::time::Duration;

use blockio::SimulatedDisk;
use query::{
    AccessOptions, AuthOptions, Authentication, Authenticator, CidrChecks, ClientState, ErrorKind, ProcessorOptions,
    QueryOptions,
};

use crate::node::{TestNode, rows_of, texts};

const DISABLED: &str = "Cannot mask columns because dynamic data masking is not enabled. You can enable it with the \
                        dynamic_data_masking_enabled property on cassandra.yaml";

/// A node whose clients have roles, with the keyspace `ks`.
struct MaskingNode {
    node: TestNode,
}

fn options(enabled: bool) -> ProcessorOptions {
    let auth = AuthOptions {
        authenticator: Authenticator::Password,
        permissions: true,
        credentials_validity: Duration::from_secs(2),
        credentials_max: 9,
        access: AccessOptions { data_centers: false, cidrs: CidrChecks::Off, cidrs_of_superusers: false },
    };
    ProcessorOptions { auth, dynamic_data_masking_enabled: enabled, ..ProcessorOptions::default() }
}

const TABLE: &str = "CREATE TABLE ks.t (k int MASKED WITH mask_default(), c text MASKED WITH mask_replace('cc'), \
    s text STATIC MASKED WITH mask_inner(1, 1), n int MASKED WITH mask_null(), x text MASKED WITH mask_outer(1, 2, '#'), \
    open int, m map<int, text> MASKED WITH DEFAULT, PRIMARY KEY (k, c))";

impl MaskingNode {
    /// A node with masked columns, two rows, and a role of SELECT and MODIFY, which is the client.
    fn new() -> MaskingNode {
        let mut node = MaskingNode::on_disk(&SimulatedDisk::new(), true);
        node.run("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
        node.run(TABLE);
        node.run(
            "INSERT INTO ks.t (k, c, s, n, x, open, m) VALUES (1, 'one', 'static', 11, 'abcdef', 111, {1: 'i', 2: 'ii'})",
        );
        node.run("INSERT INTO ks.t (k, c, open) VALUES (1, 'two', 222)");
        node.run("CREATE ROLE plain WITH PASSWORD = 'plain' AND LOGIN = true");
        node.run("GRANT SELECT ON KEYSPACE ks TO plain");
        node.run("GRANT MODIFY ON KEYSPACE ks TO plain");
        node.client("plain");
        node
    }

    fn on_disk(disk: &SimulatedDisk, enabled: bool) -> MaskingNode {
        let mut node = MaskingNode { node: TestNode::in_directory(disk, "/node", options(enabled)) };
        node.node.processor.start_roles().unwrap();
        node.client("cassandra");
        node
    }

    fn client(&mut self, name: &str) {
        let login = self.node.processor.log_in(format!("\0{name}\0{name}").as_bytes(), None, None).unwrap();
        let client = ClientState { user: Some(login.user), user_id: login.user_id, ..ClientState::default() };
        self.node.client = Arc::new(client);
    }

    fn run(&self, statement: &str) {
        self.node.run(statement);
    }

    /// Executes a statement as the superuser; the client stays.
    fn as_superuser(&mut self, statement: &str) {
        let client = self.node.client.clone();
        self.client("cassandra");
        self.run(statement);
        self.node.client = client;
    }

    fn rows(&self, statement: &str) -> Vec<String> {
        self.node.rows(statement)
    }

    fn failure(&self, statement: &str) -> String {
        self.node.failure(statement)
    }

    /// The definitions of the columns in DESCRIBE.
    fn described(&self, table: &str) -> String {
        let text = self.rows(&format!("DESCRIBE TABLE {table}")).join("");
        let start = text.find("(\n").unwrap();
        text[start + 2..text.find("\n) WITH").unwrap()].to_owned()
    }
}

#[test]
fn readers_without_unmask_see_masks_and_superusers_see_values() {
    let mut node = MaskingNode::new();
    let masked = ["0 'cc' 's****c' {} null 111 '#bcd##'", "0 'cc' 's****c' {} null 222 null"];
    assert_eq!(node.rows("SELECT * FROM ks.t"), masked);
    let clear = ["1 'one' 'static' {1: 'i', 2: 'ii'} 11 111 'abcdef'", "1 'two' 'static' null null 222 null"];
    node.as_superuser("GRANT UNMASK ON ks.t TO plain");
    assert_eq!(node.rows("SELECT * FROM ks.t"), clear);
    node.as_superuser("REVOKE UNMASK ON ks.t FROM plain");
    assert_eq!(node.rows("SELECT * FROM ks.t"), masked);
    node.client("cassandra");
    assert_eq!(node.rows("SELECT * FROM ks.t"), clear);
}

#[test]
fn functions_of_a_masked_column_get_its_mask() {
    let node = MaskingNode::new();
    let cases = [
        ("SELECT JSON k, x FROM ks.t LIMIT 1", &["'{\"k\": 0, \"x\": \"#bcd##\"}'"][..]),
        ("SELECT count(n), max(x), max(open), max(k) FROM ks.t", &["0 '#bcd##' 222 0"]),
        ("SELECT k + open, n + 1, CAST(k AS text) FROM ks.t LIMIT 1", &["111 null '0'"]),
        ("SELECT m[1], m[1..2], (k, c) FROM ks.t LIMIT 1", &["null null (0, 'cc')"]),
        ("SELECT k, c, max(open) FROM ks.t GROUP BY k, c", &["0 'cc' 111", "0 'cc' 222"]),
        ("SELECT DISTINCT k, s FROM ks.t", &["0 's****c'"]),
        ("SELECT mask_inner(x, 1, 1), x AS y FROM ks.t LIMIT 1", &["'#****#' '#bcd##'"]),
        ("SELECT open FROM ks.t", &["111", "222"]),
        ("SELECT ttl(x), open FROM ks.t LIMIT 1", &["null 111"]),
    ];
    for (statement, rows) in cases {
        assert_eq!(node.rows(statement), rows, "{statement}");
    }
}

#[test]
fn conditions_on_masked_columns_need_a_permission_of_their_own() {
    let mut node = MaskingNode::new();
    let refused = |columns: &str| {
        format!(
            "User plain has no UNMASK nor SELECT_MASKED permission on table ks.t, cannot query masked columns [{columns}]"
        )
    };
    let cases = [
        ("SELECT open FROM ks.t WHERE k = 1", "k"),
        ("SELECT open FROM ks.t WHERE k = 1 AND c = 'one'", "c, k"),
        ("SELECT open FROM ks.t WHERE token(k) > 0", "k"),
        ("SELECT open FROM ks.t WHERE m CONTAINS 'i' ALLOW FILTERING", "m"),
        ("SELECT open FROM ks.t WHERE n = 11 AND x = 'a' AND s = 's' ALLOW FILTERING", "s, x, n"),
    ];
    for (statement, columns) in cases {
        let error = node.node.try_run(statement, &QueryOptions::default()).unwrap_err();
        assert_eq!((error.message, error.kind), (refused(columns), ErrorKind::Unauthorized), "{statement}");
    }
    assert_eq!(node.rows("SELECT open FROM ks.t WHERE open = 111 ALLOW FILTERING"), ["111"]);
    node.as_superuser("GRANT SELECT_MASKED ON ks.t TO plain");
    assert_eq!(node.rows("SELECT k, n, open FROM ks.t WHERE k = 1 AND n = 11 ALLOW FILTERING"), ["0 null 111"]);
    // Rows are sorted by their values.
    assert_eq!(node.rows("SELECT c, open FROM ks.t WHERE k IN (1, 2) ORDER BY c DESC"), ["'cc' 222", "'cc' 111"]);
}

#[test]
fn a_prepared_statement_is_masked_for_each_client_by_itself() {
    let mut node = MaskingNode::new();
    node.as_superuser("GRANT SELECT_MASKED ON ks.t TO plain");
    let prepared = node.node.processor.prepare("SELECT x FROM ks.t WHERE k = 1 AND c = 'one'", None).unwrap();
    let read = |node: &MaskingNode| {
        let mut cells = Vec::new();
        assert_eq!(node.node.find_rows(&prepared, &QueryOptions::default(), &mut cells), None, "not looked up");
        texts(&rows_of(node.node.execute(&prepared, &QueryOptions::default()).unwrap()))
    };
    assert_eq!(read(&node), ["'#bcd##'"]);
    node.as_superuser("GRANT UNMASK ON KEYSPACE ks TO plain");
    assert_eq!(read(&node), ["'abcdef'"]);
    node.as_superuser("REVOKE UNMASK ON KEYSPACE ks FROM plain");
    assert_eq!(read(&node), ["'#bcd##'"]);
    // The mask of a column changes the plan.
    node.as_superuser("ALTER TABLE ks.t ALTER x MASKED WITH mask_replace('new')");
    assert_eq!(read(&node), ["'new'"]);
}

#[test]
fn writes_and_conditions_of_writes_see_values() {
    let node = MaskingNode::new();
    assert_eq!(node.rows("UPDATE ks.t SET open = 1 WHERE k = 1 AND c = 'one' IF n = 5"), ["false 11"]);
    assert_eq!(node.rows("UPDATE ks.t SET open = 1 WHERE k = 1 AND c = 'one' IF n = 11"), ["true"]);
}

#[test]
fn masks_are_described_and_survive_a_restart() {
    let disk = SimulatedDisk::new();
    let statement = "CREATE TABLE ks.d (k int, c int MASKED WITH mask_replace(3), s text STATIC MASKED WITH DEFAULT, \
        a ascii MASKED WITH mask_inner(null, 2, 'x'), b blob MASKED WITH mask_hash('MD5'), q text MASKED WITH \
        mask_replace('it''s'), l list<int> MASKED WITH mask_replace([1]), u frozen<pair> MASKED WITH mask_replace({a: 1}), \
        PRIMARY KEY (k, c)) WITH CLUSTERING ORDER BY (c DESC)";
    let columns = "    k int,\n    c int MASKED WITH system.mask_replace(3),\n    \
        s text static MASKED WITH system.mask_default(),\n    a ascii MASKED WITH system.mask_inner(null, 2, 'x'),\n    \
        b blob MASKED WITH system.mask_hash('MD5'),\n    q text MASKED WITH system.mask_replace('it''s'),\n    \
        u frozen<pair> MASKED WITH system.mask_replace({a: 1, b: null}),\n    \
        l list<int> MASKED WITH system.mask_replace([1]),\n    PRIMARY KEY (k, c)";
    // A text is shown as a literal.
    let shown = columns.replace('\'', "''");
    let stored = "SELECT column_name, function_keyspace, function_name, function_argument_types, \
        function_argument_values, function_argument_nulls FROM system_schema.column_masks WHERE keyspace_name = 'ks'";
    let rows = {
        let node = MaskingNode::on_disk(&disk, true);
        node.run("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
        node.run("CREATE TYPE ks.pair (a int, b text)");
        node.run(statement);
        assert_eq!(node.described("ks.d"), shown);
        let rows = node.rows(stored);
        assert_eq!(rows[0], "'a' 'system' 'mask_inner' ['int', 'int', 'text'] ['', '2', 'x'] [true, false, false]");
        assert!(rows.contains(&"'u' 'system' 'mask_replace' ['frozen<pair>'] ['1:@'] [false]".to_owned()), "{rows:?}");
        assert!(rows.contains(&"'s' 'system' 'mask_default' [] [] []".to_owned()), "{rows:?}");
        rows
    };
    let node = MaskingNode::on_disk(&disk, true);
    assert_eq!(node.described("ks.d"), shown);
    assert_eq!(node.rows(stored), rows);
}

#[test]
fn masks_follow_renamed_columns_and_go_with_dropped_ones() {
    let mut node = MaskingNode::new();
    node.client("cassandra");
    let masked = "SELECT column_name FROM system_schema.column_masks WHERE keyspace_name = 'ks'";
    node.run("ALTER TABLE ks.t RENAME c TO cc");
    node.run("ALTER TABLE ks.t DROP x");
    node.run("ALTER TABLE ks.t ADD x text");
    assert_eq!(node.rows(masked), ["'cc'", "'k'", "'m'", "'n'", "'s'"]);
    node.run("ALTER TABLE ks.t ALTER n DROP MASKED");
    node.run("ALTER TABLE ks.t ALTER n DROP MASKED");
    node.run("ALTER TABLE ks.t ALTER open MASKED WITH DEFAULT");
    node.run("ALTER TABLE ks.t ADD added text MASKED WITH mask_inner(1, 2)");
    assert_eq!(node.rows(masked), ["'added'", "'cc'", "'k'", "'m'", "'open'", "'s'"]);
    node.run("CREATE TABLE ks.other (k int PRIMARY KEY, v int MASKED WITH DEFAULT)");
    node.run("DROP TABLE ks.t");
    assert_eq!(node.rows(masked), ["'v'"]);
    node.run("DROP KEYSPACE ks");
    assert!(node.rows(masked).is_empty());
}

#[test]
fn functions_that_cannot_mask_a_column_are_refused() {
    let mut node = MaskingNode::new();
    node.client("cassandra");
    let hash = "Masking function mask_hash() return type is blob. This is different to the type of the masked column v of \
                type text. Masking functions can only be attached to table columns if they return the same data type as \
                the masked column.";
    let cases = [
        (
            "int",
            "nosuch()",
            "Unable to find masking function for v, no declared function matches the signature nosuch()",
        ),
        (
            "int",
            "ks.f(1, 'a')",
            "Unable to find masking function for v, no declared function matches the signature ks.f(1, 'a')",
        ),
        ("int", "max()", "Aggregate function max() cannot be used for masking table columns"),
        ("int", "abs()", "Not-masking function abs() cannot be used for masking table columns"),
        ("text", "mask_hash()", hash),
        ("int", "mask_default(1)", "Invalid number of arguments for function system.mask_default(any)"),
        (
            "int",
            "mask_replace('a')",
            "Type error: 'a' cannot be passed as argument 1 of function system.mask_replace of type int",
        ),
        ("int", "mask_replace(99999999999)", "Unable to make int from '99999999999'"),
        (
            "int",
            "mask_inner(1, 1)",
            "Function system.mask_inner requires an argument of type [text|varchar|ascii], but found argument \
             org.apache.cassandra.db.marshal.Int32Type of type int",
        ),
        ("frozen<list<int>>", "mask_replace([1, null])", "null is not supported inside collections"),
    ];
    for (ty, mask, message) in cases {
        assert_eq!(node.failure(&format!("CREATE TABLE ks.x (k int PRIMARY KEY, v {ty} MASKED WITH {mask})")), message);
        assert_eq!(node.failure(&format!("ALTER TABLE ks.t ADD v {ty} MASKED WITH {mask}")), message);
    }
    let missing = "Column with name 'nosuch' doesn't exist on table 't'";
    assert_eq!(node.failure("ALTER TABLE ks.t ALTER nosuch DROP MASKED"), missing);
    node.run("ALTER TABLE ks.t ALTER IF EXISTS nosuch DROP MASKED");
}

#[test]
fn a_mask_that_cannot_be_applied_fails_the_selection_of_its_column() {
    let mut node = MaskingNode::new();
    node.client("cassandra");
    node.run("CREATE TABLE ks.x (k int PRIMARY KEY, v text MASKED WITH mask_inner(1, 1, '##'))");
    let wrong =
        "The padding argument for function system.mask_inner should be single-character, but '##' has 2 characters.";
    assert_eq!(node.failure("SELECT * FROM ks.x"), wrong);
    assert_eq!(node.failure("SELECT writetime(v) FROM ks.x"), wrong);
    assert!(node.rows("SELECT k FROM ks.x").is_empty());
}

#[test]
fn without_masking_no_column_is_masked_and_masks_that_exist_hide_nothing() {
    let disk = SimulatedDisk::new();
    {
        let node = MaskingNode::on_disk(&disk, true);
        node.run("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
        node.run("CREATE TABLE ks.t (k int PRIMARY KEY, v int MASKED WITH DEFAULT)");
        node.run("INSERT INTO ks.t (k, v) VALUES (1, 5)");
        node.run("CREATE ROLE plain WITH PASSWORD = 'plain' AND LOGIN = true");
        node.run("GRANT SELECT ON KEYSPACE ks TO plain");
    }
    let mut node = MaskingNode::on_disk(&disk, false);
    assert_eq!(node.failure("CREATE TABLE ks.u (k int PRIMARY KEY, v int MASKED WITH nosuch())"), DISABLED);
    assert_eq!(node.failure("ALTER TABLE ks.t ADD w int MASKED WITH DEFAULT"), DISABLED);
    assert_eq!(node.failure("ALTER TABLE ks.nosuch ALTER w MASKED WITH DEFAULT"), DISABLED);
    node.client("plain");
    assert_eq!(node.rows("SELECT k, v FROM ks.t"), ["1 5"]);
    assert!(node.failure("SELECT k FROM ks.t WHERE v = 5 ALLOW FILTERING").contains("cannot query masked columns [v]"));
    node.client("cassandra");
    node.run("ALTER TABLE ks.t ALTER v DROP MASKED");
}

#[test]
fn without_authentication_all_clients_see_unmasked_values() {
    let options = ProcessorOptions { dynamic_data_masking_enabled: true, ..ProcessorOptions::default() };
    let node = TestNode::with_options(options).with_keyspace();
    node.run("CREATE TABLE t (k int PRIMARY KEY, v int MASKED WITH DEFAULT)");
    node.run("INSERT INTO t (k, v) VALUES (1, 5)");
    assert_eq!(node.rows("SELECT v FROM t WHERE k = 1 AND v = 5 ALLOW FILTERING"), ["5"]);
}
