//! The results of SELECT, compared with Cassandra's for the same statements on the same data.

use query::{QueryOptions, ResponseBody, Rows};
use serde_json::{Value as Json, json};
use types::{CqlType, collection, hex};

use crate::errors::{code, comparable};
use crate::node::{TestNode, rows_of};

fn fixture() -> Json {
    serde_json::from_str(include_str!("../from_cassandra/select.json")).unwrap()
}

/// The place of the data when it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    Memtables,
    /// One SSTable per table.
    Tables,
    /// Many SSTables and a memtable per table.
    Both,
}

pub fn node(fixture: &Json, stored: Stored) -> TestNode {
    let mut node = TestNode::new();
    let run = |part: &str, flush_every: usize| {
        for (count, statement) in fixture[part].as_array().unwrap().iter().enumerate() {
            node.run(statement.as_str().unwrap());
            if count % flush_every == flush_every - 1 {
                node.processor.engine().flush_all().unwrap();
            }
        }
    };
    run("setup", usize::MAX);
    run("data", if stored == Stored::Both { 7 } else { usize::MAX });
    if stored == Stored::Tables {
        node.processor.engine().flush_all().unwrap();
    }
    node.use_keyspace("ks");
    node
}

/// A type as the recording prints it. In the protocol nothing is frozen.
pub fn shown(ty: &CqlType) -> String {
    match ty {
        CqlType::Udt { definition, .. } => {
            let fields: Vec<String> =
                definition.fields().iter().map(|(name, ty)| format!("{name} {}", shown(ty))).collect();
            format!("{}.{}({})", definition.keyspace, definition.name, fields.join(", "))
        }
        CqlType::Vector { .. } => format!("'{}'", ty.to_marshal_class()),
        CqlType::List { element, .. } => format!("list<{}>", shown(element)),
        CqlType::Set { element, .. } => format!("set<{}>", shown(element)),
        CqlType::Map { key, value, .. } => format!("map<{}, {}>", shown(key), shown(value)),
        CqlType::Tuple(elements) => {
            format!("tuple<{}>", elements.iter().map(shown).collect::<Vec<_>>().join(", "))
        }
        CqlType::Text => "text".into(),
        other => other.to_string(),
    }
}

pub fn rows_in_hex(rows: &Rows) -> Json {
    let mut rest = rows.cells.as_slice();
    let mut cell = || match collection::read_part(&mut rest).unwrap() {
        Some(bytes) => Json::String(hex::to_string(bytes)),
        None => Json::Null,
    };
    let columns = rows.metadata.specs().len();
    Json::Array((0..rows.row_count).map(|_| (0..columns).map(|_| cell()).collect()).collect())
}

fn answer(node: &TestNode, statement: &str) -> Json {
    match node.try_run(statement, &QueryOptions::default()) {
        Ok(response) => {
            let ResponseBody::Rows(rows) = &response.body else { panic!("{statement}: no rows") };
            let names: Vec<&str> = rows.metadata.specs().iter().map(|column| &*column.name).collect();
            let types: Vec<String> = rows.metadata.specs().iter().map(|column| shown(&column.ty)).collect();
            json!({"names": names, "types": types, "rows": rows_in_hex(rows), "warnings": response.warnings})
        }
        Err(error) => json!({"code": code(&error), "message": comparable(&error.message)}),
    }
}

#[test]
fn rows_columns_errors_and_warnings_are_cassandras() {
    let fixture = fixture();
    for stored in [Stored::Memtables, Stored::Tables, Stored::Both] {
        compare(&fixture, stored);
    }
}

fn compare(fixture: &Json, stored: Stored) {
    let node = node(fixture, stored);
    let mut differences = Vec::new();
    for case in fixture["queries"].as_array().unwrap() {
        let statement = case["cql"].as_str().unwrap();
        let got = answer(&node, statement);
        for part in ["code", "message", "names", "types", "rows", "warnings"] {
            let expected = match &case[part] {
                Json::String(message) if part == "message" => json!(comparable(message)),
                Json::Null if part == "warnings" && case["code"].is_null() => json!([]),
                other => other.clone(),
            };
            if expected != got[part] {
                differences.push(format!("{part} of {statement}\n  expected {expected}\n  got      {got}"));
                break;
            }
        }
    }
    assert!(differences.is_empty(), "{stored:?}: {} differ:\n{}", differences.len(), differences.join("\n"));
}

/// All pages of a statement.
fn pages(node: &TestNode, statement: &str, page_size: i32) -> Vec<Json> {
    let mut pages = Vec::new();
    let mut state: Option<Vec<u8>> = None;
    loop {
        let options =
            QueryOptions { page_size: Some(page_size), paging_state: state.as_deref(), ..QueryOptions::default() };
        let rows = rows_of(node.try_run(statement, &options).unwrap());
        pages.push(rows_in_hex(&rows));
        state = rows.paging_state;
        if state.is_none() {
            return pages;
        }
        assert!(pages.len() < 100, "{statement}: no end");
    }
}

#[test]
fn a_paging_state_belongs_to_one_table_and_statement() {
    let node = TestNode::with(&[
        "CREATE TABLE t (k int, c int, v int, PRIMARY KEY (k, c))",
        "CREATE TABLE other (k int, c int, v int, PRIMARY KEY (k, c))",
    ]);
    for row in 0..5 {
        node.run(&format!("INSERT INTO t (k, c, v) VALUES (1, {row}, 1)"));
        node.run(&format!("INSERT INTO other (k, c, v) VALUES (1, {row}, 1)"));
    }
    let page = |node: &TestNode, statement: &str, state: Option<&[u8]>| {
        let options = QueryOptions { page_size: Some(2), paging_state: state, ..QueryOptions::default() };
        node.try_run(statement, &options)
    };
    let state = rows_of(page(&node, "SELECT * FROM t WHERE k = 1", None).unwrap()).paging_state;
    for same in
        ["SELECT * FROM t WHERE k = 1", "SELECT c FROM t WHERE k = 1 LIMIT 4", "SELECT JSON v FROM ks.t WHERE k=1"]
    {
        assert!(page(&node, same, state.as_deref()).is_ok(), "{same}");
    }
    for another in [
        "SELECT * FROM other WHERE k = 1",
        "SELECT * FROM t",
        "SELECT * FROM t WHERE k = 1 AND c > 0",
        "SELECT * FROM t WHERE k = 1 ORDER BY c DESC",
        "SELECT DISTINCT k FROM t WHERE k = 1",
        "SELECT * FROM t WHERE k = 1 GROUP BY c",
    ] {
        let error = page(&node, another, state.as_deref()).expect_err(another);
        let invalid = (query::ErrorKind::Protocol, "Invalid value for the paging state");
        assert_eq!((error.kind, error.message.as_str()), invalid, "{another}");
    }
    node.run("ALTER TABLE t ADD w int");
    assert!(page(&node, "SELECT * FROM t WHERE k = 1", state.as_deref()).is_ok(), "a new column changes nothing");
}

#[test]
fn pages_are_cassandras() {
    let fixture = fixture();
    let node = node(&fixture, Stored::Memtables);
    // Whether an empty page follows a full one does not matter.
    let filled = |pages: &[Json]| pages.iter().filter(|page| **page != json!([])).cloned().collect::<Vec<_>>();
    for case in fixture["paged"].as_array().unwrap() {
        let (statement, page_size) = (case["cql"].as_str().unwrap(), case["page_size"].as_i64().unwrap());
        let got = pages(&node, statement, page_size as i32);
        assert_eq!(filled(&got), filled(case["pages"].as_array().unwrap()), "{statement} by {page_size}");
    }
}

#[test]
fn pages_of_any_size_make_up_the_whole() {
    let fixture = fixture();
    let node = node(&fixture, Stored::Both);
    for case in fixture["queries"].as_array().unwrap() {
        let statement = case["cql"].as_str().unwrap();
        let is_sorted = statement.contains("IN (") && statement.contains("ORDER BY");
        if case["rows"].is_null() || is_sorted {
            continue;
        }
        let whole = case["rows"].as_array().unwrap();
        for page_size in 1..=7 {
            let pages = pages(&node, statement, page_size);
            let all: Vec<&Json> = pages.iter().flat_map(|page| page.as_array().unwrap()).collect();
            assert_eq!(all, whole.iter().collect::<Vec<_>>(), "{statement} by {page_size}");
        }
    }
}

#[test]
fn a_refused_select_still_warns() {
    let node = TestNode::with(&["CREATE TABLE t (p int, c int, v int, PRIMARY KEY (p, c))"]);
    let options = QueryOptions { page_size: Some(2), ..QueryOptions::default() };
    let error =
        node.try_run("SELECT p, c, max(v) FROM t WHERE p IN (1, 2) GROUP BY p, c ORDER BY c", &options).unwrap_err();
    assert!(error.message.starts_with("Cannot page queries"), "{error}");
    assert_eq!(error.warnings, ["Aggregation query used on multiple partition keys (IN restriction)"]);
}

#[test]
fn names_are_resolved_before_restrictions_only_if_all_selected_columns_may_be_static() {
    let node = TestNode::with(&[
        "CREATE TABLE plain (p int PRIMARY KEY, v int)",
        "CREATE TABLE statics (p int, c int, s int static, v int, PRIMARY KEY (p, c))",
    ]);
    let twice = "p cannot be restricted by more than one relation if it includes an Equal";
    assert_eq!(node.failure("SELECT nosuch FROM plain WHERE p = 1 AND p > 1"), twice);
    assert_eq!(node.failure("SELECT s, v, nosuch FROM statics WHERE p = 1 AND p > 1"), twice);
    let undefined = "Undefined column name nosuch in table ks.statics";
    assert_eq!(node.failure("SELECT s, nosuch, v FROM statics WHERE p = 1 AND p > 1"), undefined);
}

#[test]
fn fields_of_a_literal_are_resolved_before_restrictions_one_by_one() {
    let node = TestNode::with(&[
        "CREATE TYPE u (f int, g text)",
        "CREATE TABLE plain (p int PRIMARY KEY, v frozen<u>)",
        "CREATE TABLE statics (p int, c int, s int static, v frozen<u>, PRIMARY KEY (p, c))",
    ]);
    let unknown = "Unknown field 'h' in value of user defined type u";
    let undefined = |table| format!("Undefined column name nosuch in table ks.{table}");
    assert_eq!(node.failure("SELECT mask_replace(v, {f: 1, h: 2}) FROM statics WHERE p = 1 AND p > 1"), unknown);
    assert_eq!(node.failure("SELECT mask_replace(v, {f: 1, h: nosuch}) FROM plain"), unknown);
    assert_eq!(node.failure("SELECT mask_replace(v, {f: nosuch, h: 1}) FROM plain"), undefined("plain"));
    assert_eq!(node.failure("SELECT (u){f: 1, h: 2} FROM plain"), unknown);
    // Cassandra prints a hint before it checks it, which looks up the names in it.
    assert_eq!(node.failure("SELECT (u){h: 1, f: nosuch} FROM plain"), undefined("plain"));
}

#[test]
fn a_group_by_function_is_refused_for_its_columns_first_and_at_execution() {
    let node = TestNode::with(&["CREATE TABLE t (p int, c int, d timestamp, PRIMARY KEY (p, c, d))"]);
    let refused = |grouping: &str| node.failure(&format!("SELECT * FROM t GROUP BY {grouping}"));
    let monotonic = |got| format!("Only monotonic functions are supported in the GROUP BY clause. Got: system.{got} ");
    assert_eq!(refused("p * c"), "GROUP BY functions accept only one clustering column as parameter, got: p,c");
    assert_eq!(refused("p * 2"), "Group by functions are only supported on clustering columns, got p");
    assert_eq!(refused("1 / 0"), "GROUP BY functions must have one clustering column name as parameter");
    assert_eq!(refused("p, c * 2, d"), "Functions are only supported on the last element of the GROUP BY clause");
    assert_eq!(refused("p, c * 2"), monotonic("\"_multiply\" : (int, int(constant)) -> int"));
    assert_eq!(refused("p, abs(c)"), monotonic("abs : (int) -> int"));
    assert_eq!(refused("p, floor(c + 1, 1d)"), monotonic("\"_add\" : (int, int(constant)) -> int"));
    let moving_start = "floor : (timestamp, duration(constant), timestamp) -> timestamp";
    assert_eq!(refused("p, c, floor(d, 1d, d)"), monotonic(moving_start));
    assert_eq!(refused("p, c * 2 LIMIT 0"), "LIMIT must be strictly positive");
    node.run("SELECT * FROM t GROUP BY p, c, to_date(floor(d, 1d))");
}

#[test]
fn columns_in_any_order_have_the_values_that_an_expression_beside_them_uses() {
    let node = TestNode::with(&[
        "CREATE TABLE t (k int, c int, s text static, a text, b int, d text, e blob, m map<text, int>, z set<int>, PRIMARY KEY (k, c))",
        "INSERT INTO t (k, c, s, a, b, d, e, m, z) VALUES (1, 1, 's', 'a', 1, 'd', 0x01, {'x': 1}, {1, 2})",
        "INSERT INTO t (k, c, a, b, d, e) VALUES (1, 2, 'a', 2, '', 0x)",
        "INSERT INTO t (k, c, d) VALUES (1, 3, 'd')",
        "INSERT INTO t (k, c, a, b, d, e) VALUES (2, 1, 'a', 3, 'd', 0x02)",
        "UPDATE t SET b = 4 WHERE k = 2 AND c = 1",
        "DELETE d, m FROM t WHERE k = 2 AND c = 1",
        "UPDATE t USING TTL 1000 SET e = 0x03, z = {3} WHERE k = 2 AND c = 2",
        "INSERT INTO t (k, c, a, b, d, e) VALUES (2, 3, 'a', 3, 'd', 0x02) USING TTL 1000",
        "INSERT INTO t (k, s) VALUES (3, 'only')",
        "ALTER TABLE t ADD (aa text, y text)",
        "INSERT INTO t (k, c, aa, b, y) VALUES (4, 1, 'aa', 5, 'y')",
    ]);
    let check = |columns: &[&str]| {
        for seed in 0..60_usize {
            let list: Vec<&str> = (0..=seed % 5).map(|place| columns[seed * (7 + place) % columns.len()]).collect();
            let list = list.join(", ");
            let plain = node.rows(&format!("SELECT {list} FROM t"));
            let beside = node.rows(&format!("SELECT {list}, to_json(k) FROM t"));
            let beside: Vec<&str> = beside.iter().filter_map(|row| Some(row.rsplit_once(' ')?.0)).collect();
            assert_eq!(plain, beside, "{list}");
        }
        let all = node.rows("SELECT * FROM t");
        assert_eq!(all, node.rows(&format!("SELECT {} FROM t", columns.join(", "))));
    };
    check(&["k", "c", "s", "a", "aa", "b", "d", "e", "m", "y", "z"]);
    node.run("ALTER TABLE t DROP b");
    check(&["k", "c", "s", "a", "aa", "d", "e", "m", "y", "z"]);
}

#[test]
fn the_ttl_of_a_cell_is_an_int_to_functions_and_operators() {
    let node = TestNode::with(&["CREATE TABLE t (k int PRIMARY KEY, v int)"]);
    node.run("INSERT INTO t (k, v) VALUES (1, 1) USING TTL 1000000");
    let rows = node.rows("SELECT ttl(v) + 0 - ttl(v), abs(ttl(v)) / ttl(v), intasblob(ttl(v) - ttl(v)) FROM t");
    assert_eq!(rows, ["0 1 0x00000000"]);
    // A collection has many times. Cassandra 5.0.8 answers the same.
    node.run("CREATE TABLE c (k int PRIMARY KEY, m map<int, int>)");
    node.run("INSERT INTO c (k, m) VALUES (1, {1: 1, 2: 2}) USING TIMESTAMP 100");
    let rows =
        node.rows("SELECT collection_max(writetime(m)), to_json(writetime(m[1..2])), maxwritetime(m) + 1 FROM c");
    assert_eq!(rows, ["100 '[100, 100]' 101"]);
    assert_eq!(
        node.failure("SELECT writetime(m) + 1 FROM c"),
        "the '+' operation is not supported between writetime(m) and 1"
    );
}

/// As in Cassandra 5.0.8, which does not check the columns of such a relation.
#[test]
fn a_relation_that_asks_for_other_values_is_refused_whatever_its_columns_are() {
    let node = TestNode::with(&["CREATE TABLE t (a int, b int, c int, m map<int, int>, PRIMARY KEY (a, b))"]);
    for relation in
        ["b != 0", "(b) != (0)", "(c) != (0)", "(c, a) != (0, 1)", "nosuch != 0", "m[1] != 2", "token(b) != 0"]
    {
        assert_eq!(
            node.failure(&format!("SELECT * FROM t WHERE a = 0 AND {relation}")),
            format!("Unsupported \"!=\" relation: {relation}")
        );
    }
}

#[test]
fn parts_of_a_column_are_the_same_however_many_of_them_are_selected() {
    let node = TestNode::with(&[
        "CREATE TYPE u (a int, b text, c int)",
        "CREATE TABLE t (k int PRIMARY KEY, m map<int, int>, f frozen<map<int, int>>, s set<int>, u u, z frozen<u>)",
        "INSERT INTO t (k, m, f, s, u, z) VALUES (1, {1: 10, 3: 30, 5: 50}, {1: 10, 3: 30}, {2, 4}, {a: 1, c: 3}, {a: 1})",
        "UPDATE t USING TTL 100000 SET m[7] = 70 WHERE k = 1",
        "DELETE m[3] FROM t WHERE k = 1",
        "INSERT INTO t (k) VALUES (2)",
    ]);
    let parts = [
        "m[1]",
        "m[3]",
        "m[7]",
        "m[0]",
        "m[2..7]",
        "m[..1]",
        "m[8..]",
        "m[9..1]",
        "f[1]",
        "f[2]",
        "f[..9]",
        "f[2..9]",
        "s[2]",
        "s[3]",
        "s[3..]",
        "u.a",
        "u.b",
        "u.c",
        "z.a",
        "z.b",
        "z.c",
        "writetime(m[1]) - writetime(m[1])",
        "writetime(m[3])",
        "ttl(m[1])",
        "ttl(m[7]) - ttl(m[7])",
        "writetime(f[1]) - writetime(f[1])",
        "writetime(f[2])",
        "writetime(u.b)",
        "writetime(u.c) - writetime(u.c)",
        "writetime(z.a) - writetime(z.a)",
        "writetime(z.b)",
        "collection_count(ttl(m[1..7]))",
        "collection_count(writetime(m[2..9]))",
        "m",
    ];
    for group in ["", ", count(*)"] {
        let alone = |part: &&str| node.rows(&format!("SELECT {part}{group} FROM t WHERE k = 1")).concat();
        let alone: Vec<String> = parts.iter().map(alone).map(|row| row.trim_end_matches(" 1").to_owned()).collect();
        let all: Vec<&str> = parts.iter().chain(&parts).chain(&parts).copied().collect();
        let together = node.rows(&format!("SELECT {}{group} FROM t WHERE k = 1", all.join(", "))).concat();
        let expected = [alone.clone(), alone.clone(), alone].concat().join(" ");
        assert_eq!(together, expected + if group.is_empty() { "" } else { " 1" });
    }
    let of_nothing = node.rows(&format!("SELECT {} FROM t WHERE k = 2", parts[..21].join(", ")));
    assert_eq!(of_nothing, [["null"; 21].join(" ")]);
}

/// Cassandra 5.0.8 prints the fields in the order of its hash map.
#[test]
fn fields_of_a_user_type_are_printed_in_cassandras_order() {
    let node = TestNode::with(&[
        "CREATE TYPE u (street blob, f3 text, g2 int)",
        "CREATE TABLE t (k int PRIMARY KEY, s set<frozen<u>>)",
    ]);
    let part = "s[{street: 0x00, f3: 'a', g2: 3}..{g2: 4, street: 0xff, f3: 'b'}]";
    let rows = rows_of(node.run(&format!("SELECT maxwritetime({part}) FROM t")));
    let name = "maxwritetime(s[{f3: 'a', g2: 3, street: 0x00}..{f3: 'b', g2: 4, street: 0xff}])";
    assert_eq!(&*rows.metadata.specs()[0].name, name);
}
