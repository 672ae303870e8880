//! SELECTs that several indexes answer together.

use blockio::SimulatedDisk;
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

/// A node whose log has room for all writes, so that none are flushed.
fn node_that_keeps_rows_in_memory() -> TestNode {
    let options = ProcessorOptions::default();
    TestNode::with_engine(&SimulatedDisk::new(), "/node", options, |options| {
        options.commitlog.total_space_bytes = 64 << 20;
    })
    .with_keyspace()
}

/// Both indexes have more rows than are read at once. First the first one has fewer rows, then the second one.
#[test]
fn of_two_indexes_with_many_rows_the_one_with_fewer_is_read() {
    const ROWS: usize = 5_000;
    let node = node_that_keeps_rows_in_memory();
    node.run("CREATE TABLE t (p int PRIMARY KEY, x int, y int, z int)");
    for column in ["x", "y", "z"] {
        node.run(&format!("CREATE INDEX of_{column} ON t ({column}) USING 'sai'"));
    }
    for row in 0..ROWS {
        let (half, quarter) = (row % 2, row % 4);
        node.run(&format!("INSERT INTO t (p, x, y, z) VALUES ({row}, {quarter}, {half}, {quarter})"));
    }
    let table = node.processor.schema().table("ks", "t").unwrap().clone();
    node.processor.engine().flush(&table).unwrap();
    assert_eq!(node.processor.engine().table_stats(&table).unwrap().sstable_count, 1, "all rows are in one file");
    for (condition, fewer) in [("x = 0 AND y = 0", "of_x"), ("y = 0 AND z = 0", "of_z")] {
        let statement = format!("SELECT p FROM t WHERE {condition}");
        assert_eq!(node.rows(&statement).len(), ROWS / 4);
        let (events, expected) = (node.trace(&statement), format!("Index {fewer} gave"));
        assert!(events.iter().any(|event| event.starts_with(&expected)), "{condition}: {events:?}");
    }
}

/// While all rows are in one memtable, only those are read that the first two indexes have both.
#[test]
fn rows_in_memory_that_one_of_two_indexes_lacks_are_never_read() {
    let node = node_that_keeps_rows_in_memory();
    node.run("CREATE TABLE t (p int, c int, s int static, x int, y int, z int, PRIMARY KEY (p, c))");
    for column in ["x", "y", "z", "s"] {
        node.run(&format!("CREATE INDEX of_{column} ON t ({column}) USING 'sai'"));
    }
    for row in 0..ROWS {
        let ([x, y, z], p, c) = (values(row), row / 10, row % 10);
        node.run(&format!("INSERT INTO t (p, c, x, y, z, s) VALUES ({p}, {c}, {x}, {y}, {z}, {})", p % 3));
    }
    // Former values have entries as well.
    for row in (0..ROWS).step_by(4) {
        let ([x, y, z], p, c) = (values(row + 1), row / 10, row % 10);
        node.run(&format!("UPDATE t SET x = {x}, y = {y}, z = {z} WHERE p = {p} AND c = {c}"));
    }
    for row in (0..ROWS).step_by(9) {
        node.run(&format!("DELETE FROM t WHERE p = {} AND c = {}", row / 10, row % 10));
    }
    let table = node.processor.schema().table("ks", "t").unwrap().clone();
    assert_eq!(node.processor.engine().table_stats(&table).unwrap().sstable_count, 0, "all rows are in memory");
    for page_size in [None, Some(7)] {
        assert_eq!(found(&node, "x = 1 AND y = 2", page_size), expected(|[x, y, _]| x == 1 && y == 2));
        let of_three = expected(|[x, y, z]| x == 3 && y == 0 && z == 4);
        assert_eq!(found(&node, "x = 3 AND y = 0 AND z = 4", page_size), of_three);
        assert_eq!(
            found(&node, "x = 1 AND y = 2 AND z > 8", page_size),
            expected(|[x, y, z]| x == 1 && y == 2 && z > 8)
        );
        let with_static = |row: &usize| row / 10 % 3 == 2;
        let of_rows: Vec<usize> = expected(|[x, ..]| x == 1).into_iter().filter(with_static).collect();
        assert_eq!(found(&node, "x = 1 AND s = 2", page_size), of_rows);
        let of_one: Vec<usize> =
            expected(|[x, y, _]| x == 1 && y == 2).into_iter().filter(|row| row / 10 == 20).collect();
        assert_eq!(found(&node, "p = 20 AND x = 1 AND y = 2", page_size), of_one);
    }
    assert!(node.rows("SELECT p FROM t WHERE x = 1 AND y = 100").is_empty());
    let both = |row: usize, former: bool| {
        let [x, y, _] = values(if former { row } else { row + usize::from(row.is_multiple_of(4)) });
        (x, y) == (1, 2)
    };
    let entries = (0..ROWS).filter(|row| both(*row, true) || both(*row, false)).count();
    let mixed = (0..ROWS).step_by(4).filter(|row| {
        let (former, newest) = (values(*row), values(row + 1));
        (former[0] == 1 && newest[1] == 2) || (newest[0] == 1 && former[1] == 2)
    });
    assert_eq!(candidates(&node, "SELECT p FROM t WHERE x = 1 AND y = 2"), entries + mixed.count());
    let names_both = |event: &String| event.contains("of_x") && event.contains("of_y");
    assert!(node.trace("SELECT p FROM t WHERE x = 1 AND y = 2").iter().any(names_both));
    node.processor.engine().flush(&table).unwrap();
    assert_eq!(found(&node, "x = 1 AND y = 2", None), expected(|[x, y, _]| x == 1 && y == 2));
    assert!(!node.trace("SELECT p FROM t WHERE x = 1 AND y = 2").iter().any(names_both));
}

/// How many rows a statement reads by an index, as its trace says.
pub fn candidates(node: &TestNode, statement: &str) -> usize {
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
        let node = TestNode::with_options(options).with_keyspace();
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
