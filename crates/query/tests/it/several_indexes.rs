//! SELECTs that several indexes answer together.

use query::{ProcessorOptions, QueryOptions};

use crate::node::{TestNode, rows_of};

const ROWS: usize = 3000;

/// A row's values, before and after it is overwritten.
fn values(row: usize) -> [usize; 3] {
    [row % 5, row % 7, row % 11]
}

/// The rows for which a condition holds of their newest values.
fn expected(holds: impl Fn([usize; 3]) -> bool) -> Vec<usize> {
    let newest = |row: usize| if row.is_multiple_of(4) { values(row + 1) } else { values(row) };
    (0..ROWS).filter(|row| !row.is_multiple_of(9) && holds(newest(*row))).collect()
}

fn found(node: &TestNode, condition: &str, page_size: Option<i32>) -> Vec<usize> {
    let (mut rows, mut state) = (Vec::new(), None::<Vec<u8>>);
    loop {
        let options = QueryOptions { page_size, paging_state: state.as_deref(), ..QueryOptions::default() };
        let statement = format!("SELECT p, c FROM t WHERE {condition}");
        let page = rows_of(node.try_run(&statement, &options).unwrap());
        rows.extend(crate::node::texts(&page).iter().map(|row| {
            let (p, c) = row.split_once(' ').unwrap();
            p.parse::<usize>().unwrap() * 10 + c.parse::<usize>().unwrap()
        }));
        state = page.paging_state;
        if state.is_none() {
            rows.sort_unstable();
            return rows;
        }
    }
}

#[test]
fn rows_are_found_that_all_indexes_have_wherever_their_values_are() {
    let node =
        TestNode::with(&["CREATE TABLE t (p int, c int, s int static, x int, y int, z int, PRIMARY KEY (p, c))"]);
    for column in ["x", "y", "z", "c", "s"] {
        node.run(&format!("CREATE INDEX ON t ({column}) USING 'sai'"));
    }
    let table = node.processor.schema().table("ks", "t").unwrap().clone();
    let write = |row: usize, [x, y, z]: [usize; 3], columns: &str| {
        let (p, c) = (row / 10, row % 10);
        match columns {
            "x" => node.run(&format!("UPDATE t SET x = {x} WHERE p = {p} AND c = {c}")),
            "yz" => node.run(&format!("UPDATE t SET y = {y}, z = {z} WHERE p = {p} AND c = {c}")),
            _ => node.run(&format!("INSERT INTO t (p, c, x, y, z, s) VALUES ({p}, {c}, {x}, {y}, {z}, {})", p % 3)),
        };
    };
    // The values of one row are in different sources.
    (0..ROWS).for_each(|row| write(row, values(row), "x"));
    node.processor.engine().flush(&table).unwrap();
    (0..ROWS).for_each(|row| write(row, values(row), "yz"));
    node.processor.engine().flush(&table).unwrap();
    (0..ROWS).step_by(4).for_each(|row| write(row, values(row + 1), ""));
    for row in (0..ROWS).step_by(9) {
        node.run(&format!("DELETE FROM t WHERE p = {} AND c = {}", row / 10, row % 10));
    }
    for page_size in [None, Some(7)] {
        assert_eq!(found(&node, "x = 1 AND y = 2", page_size), expected(|[x, y, _]| x == 1 && y == 2));
        assert_eq!(
            found(&node, "x = 3 AND y = 0 AND z = 4", page_size),
            expected(|[x, y, z]| x == 3 && y == 0 && z == 4)
        );
        assert_eq!(found(&node, "x > 2 AND y < 3", page_size), expected(|[x, y, _]| x > 2 && y < 3));
        assert_eq!(found(&node, "x = 1 AND z >= 9", page_size), expected(|[x, _, z]| x == 1 && z >= 9));
    }
    let in_partitions = |condition: &str, holds: fn(usize) -> bool| {
        let mut rows = expected(|[x, _, _]| x == 1);
        rows.retain(|row| holds(*row));
        assert_eq!(found(&node, condition, None), rows, "{condition}");
    };
    in_partitions("x = 1 AND c = 6", |row| row % 10 == 6);
    // An index of a static column has partitions and not rows. Only overwritten rows have set it.
    in_partitions("x = 1 AND s = 2", |row| row / 10 % 3 == 2);
}

#[test]
fn most_rows_that_one_of_the_indexes_lacks_are_not_read() {
    let node = TestNode::with(&["CREATE TABLE t (p int PRIMARY KEY, x int, y int)"]);
    ["x", "y"].iter().for_each(|column| drop(node.run(&format!("CREATE INDEX ON t ({column}) USING 'sai'"))));
    for row in 0..2000 {
        node.run(&format!("INSERT INTO t (p, x, y) VALUES ({row}, {}, {})", row % 2, row / 2 % 2));
    }
    node.run("INSERT INTO t (p, x, y) VALUES (-1, 7, 8)");
    for row in 0..500 {
        node.run(&format!("UPDATE t SET x = 7 WHERE p = {row}"));
        node.run(&format!("UPDATE t SET y = 8 WHERE p = {}", row + 500));
    }
    assert_eq!(node.rows("SELECT p FROM t WHERE x = 7 AND y = 8"), ["-1"]);
    let count = candidates(&node, "SELECT p FROM t WHERE x = 7 AND y = 8");
    assert!(count < 10, "{count} of 501 rows were read");
}

/// How many rows a statement reads by an index, as its trace says.
fn candidates(node: &TestNode, statement: &str) -> usize {
    let events = node.trace(statement);
    let count = events.iter().find_map(|event| event.strip_suffix(" candidates")?.rsplit(' ').next()?.parse().ok());
    count.unwrap_or_else(|| panic!("no index in {events:?}"))
}

/// The answers are those of Cassandra 5.0.8 with `sai_options.prioritize_over_legacy_index` false and true.
#[test]
fn a_storage_attached_index_that_is_preferred_to_a_plain_one_decides_how_text_is_compared() {
    let without_case = "USING 'sai' WITH OPTIONS = {'case_sensitive': 'false'}";
    for prefers_attached_indexes in [false, true] {
        let options = ProcessorOptions { prefers_attached_indexes, ..ProcessorOptions::default() };
        let mut node = TestNode::with_options(options);
        node.create_keyspace();
        node.run("CREATE TABLE t (k int PRIMARY KEY, v text, w text, x int, y int)");
        ["(v)", "(x)"].iter().for_each(|target| drop(node.run(&format!("CREATE INDEX ON t {target}"))));
        ["(v)", "(w)"].iter().for_each(|target| drop(node.run(&format!("CREATE INDEX ON t {target} {without_case}"))));
        node.run("INSERT INTO t (k, v, w, x, y) VALUES (1, 'a', 'b', 1, 1)");
        node.run("INSERT INTO t (k, v, w, x, y) VALUES (2, 'A', 'B', 1, 1)");
        for (condition, by_default, preferred) in [
            ("v = 'a'", &["1"][..], &["1", "2"][..]),
            ("v = 'A'", &["2"], &["1", "2"]),
            ("w = 'b'", &["1", "2"], &["1", "2"]),
            ("v = 'a' AND w = 'b'", &["1"], &["1", "2"]),
            ("v = 'a' AND w = 'b' ALLOW FILTERING", &["1"], &["1", "2"]),
            ("x = 1 AND w = 'b' ALLOW FILTERING", &["1"], &["1", "2"]),
            ("x = 1 AND y = 1 AND w = 'b' ALLOW FILTERING", &["1"], &["1", "2"]),
            ("k = 1 AND v = 'A'", &[], &["1"]),
            ("x = 1", &["1", "2"], &["1", "2"]),
        ] {
            let expected = if prefers_attached_indexes { preferred } else { by_default };
            let mut rows = node.rows(&format!("SELECT k FROM t WHERE {condition}"));
            rows.sort();
            assert_eq!(rows, expected, "{condition}, preferred: {prefers_attached_indexes}");
        }
        let refused = node.failure("SELECT k FROM t WHERE x = 1 AND w = 'b'");
        assert!(refused.contains("ALLOW FILTERING"), "{refused}");
    }
}
