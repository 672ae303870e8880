//! SELECTs of a few rows in the cache of SSTables: the fast path without a cursor returns the rows of a cursor.

use query::{ProcessorOptions, QueryOptions, Value, Values};
use testkit::{Random, seeds};

use crate::node::{TestNode, rows_of};

const PARTITIONS: usize = 5;
const NUMBERS: usize = 60;
const NAMES: [&str; 4] = ["", "a", "b", "c"];

/// How often rows were found, how often there were none, and how often a cursor was needed.
#[derive(Default, Debug)]
struct Seen {
    found: u32,
    several: u32,
    absent: u32,
    left: u32,
}

/// Clauses that restrict the rows, and the number of markers in each: numbers first, then names.
const CLAUSES: [(&str, usize, usize); 12] = [
    ("", 0, 0),
    ("AND a >= ?", 1, 0),
    ("AND a > ?", 1, 0),
    ("AND a <= ?", 1, 0),
    ("AND a < ?", 1, 0),
    ("AND a >= ? AND a < ?", 2, 0),
    ("AND a > ? AND a <= ?", 2, 0),
    ("AND a = ?", 1, 0),
    ("AND a = ? AND b >= ?", 1, 1),
    ("AND a = ? AND b < ?", 1, 1),
    ("AND a = ? AND b > ? AND b <= ?", 1, 2),
    ("AND a = ? AND b = ?", 1, 1),
];

fn select(random: &mut Random) -> (String, usize, usize) {
    let (clause, numbers, names) = CLAUSES[random.below(CLAUSES.len())];
    let columns = ["*", "a, v", "w, k, b", "w, v"][random.below(4)];
    let order = ["", "ORDER BY a ASC", "ORDER BY a DESC"][random.below(3)];
    let limit = ["", "LIMIT 1", "LIMIT 7", "PER PARTITION LIMIT 3 LIMIT 9", "LIMIT 500"][random.below(5)];
    let order = if order.contains("DESC") != random.one_in(2) { order } else { "" };
    (format!("SELECT {columns} FROM t WHERE k = ? {clause} {order} {limit}"), numbers, names)
}

/// Compares both ways.
fn check(node: &TestNode, random: &mut Random, seen: &mut Seen) {
    let (text, number_count, name_count) = select(random);
    // Some orders are neither those of the table nor its reverse.
    let Ok(prepared) = node.processor.prepare(&text, Some("ks")) else { return };
    let key = (random.below(PARTITIONS + 1) as i32).to_be_bytes();
    let mut numbers: Vec<[u8; 4]> = (0..number_count).map(|_| (random.below(NUMBERS) as i32).to_be_bytes()).collect();
    if !random.one_in(8) {
        numbers.sort_unstable();
    }
    let mut values = vec![Value::Bytes(&key)];
    values.extend(numbers.iter().map(|number| Value::Bytes(number)));
    values.extend((0..name_count).map(|_| Value::Bytes(NAMES[random.below(NAMES.len())].as_bytes())));
    if random.one_in(50) {
        *values.last_mut().unwrap() = Value::Null;
    }
    let options = QueryOptions {
        values: Values::Positional(&values),
        page_size: [None, Some(1), Some(4), Some(5000)][random.below(4)],
        now_in_seconds: Some(if random.one_in(4) { 4_000_000_000_u32 as i32 } else { 1_000 }),
        ..QueryOptions::default()
    };
    let find = |cells: &mut Vec<u8>| node.find_rows(&prepared, &options, cells);
    let mut cells = b"before".to_vec();
    // Blocks that are not in the cache yet are there after the first read.
    let at_first = random.one_in(2).then(|| find(&mut cells)).flatten();
    let Ok(response) = node.execute(&prepared, &options) else {
        assert_eq!((at_first, find(&mut cells)), (None, None), "{text} {values:?}");
        return;
    };
    assert!(response.warnings.is_empty());
    let expected = rows_of(response);
    let (found, is_found) = match at_first {
        Some(count) => (Some(count), true),
        None => {
            assert_eq!(cells, b"before");
            let found = find(&mut cells);
            (found, found.is_some())
        }
    };
    let Some(count) = found.filter(|_| is_found) else {
        assert_eq!(cells, b"before");
        seen.left += 1;
        return;
    };
    assert_eq!(expected.paging_state, None, "{text} {values:?} {:?}", options.page_size);
    assert_eq!((count, &cells[6..]), (expected.row_count, &expected.cells[..]), "{text} {values:?}");
    seen.found += u32::from(count > 0);
    seen.several += u32::from(count > 1);
    seen.absent += u32::from(count == 0);
}

/// Writes mostly whole rows, and otherwise a part of one, one that expires, or a deletion of any kind.
fn write(node: &TestNode, random: &mut Random, key: usize, is_plain: bool) {
    let (number, name, value) = (random.below(NUMBERS), NAMES[random.below(NAMES.len())], random.below(1000));
    let text = "x".repeat(if random.one_in(20) { 3_000 } else { random.below(400) });
    let row = format!("k = {key} AND a = {number} AND b = '{name}'");
    let statement = match if is_plain { 99 } else { random.below(40) } {
        0 => format!("DELETE FROM t WHERE k = {key}"),
        1 => format!("DELETE FROM t WHERE k = {key} AND a > {number}"),
        2 => format!("DELETE FROM t WHERE k = {key} AND a = {number}"),
        3 => format!("DELETE FROM t WHERE {row}"),
        4 => format!("DELETE v FROM t WHERE {row}"),
        5 => format!("UPDATE t USING TTL 100 SET v = 't{text}' WHERE {row}"),
        6 => format!("UPDATE t SET v = 'u{text}' WHERE {row}"),
        7 => format!("INSERT INTO t (k, a, b) VALUES ({key}, {number}, '{name}')"),
        8 => format!("INSERT INTO t (k, a, b, w) VALUES ({key}, {number}, '{name}', {value}) USING TIMESTAMP {value}"),
        9 if random.one_in(4) => format!("ALTER TABLE t ADD x{value} int"),
        _ => format!("INSERT INTO t (k, a, b, v, w) VALUES ({key}, {number}, '{name}', 'v{text}', {value})"),
    };
    let _ = node.try_run(&statement, &QueryOptions::default());
}

fn compare(order: &str, seeds: std::ops::Range<u64>) {
    let create = format!(
        "CREATE TABLE t (k int, a int, b text, v text, w int, PRIMARY KEY (k, a, b)) WITH CLUSTERING ORDER BY ({order}) AND \
         compression = {{'class': 'LZ4Compressor', 'chunk_length_in_kb': '4'}}"
    );
    for seed in seeds {
        let mut random = Random(seed);
        let node = TestNode::with(&[&create]);
        let mut seen = Seen::default();
        // Partitions of every kind must have been found: with and without a row index, and in one or several SSTables.
        for round in 0..4 {
            for key in 0..PARTITIONS {
                let is_written = round == 0 || random.one_in(4);
                let count = if is_written { [3, 12, 150, 400][random.below(4)] } else { 0 };
                (0..count).for_each(|_| write(&node, &mut random, key, key % 2 == 0 && round == 0));
            }
            (0..20).for_each(|_| check(&node, &mut random, &mut seen));
            node.processor.engine().flush_all().unwrap();
            (0..250).for_each(|_| check(&node, &mut random, &mut seen));
        }
        println!("seed {seed}: {seen:?}");
        assert!(seen.found > 60 && seen.several > 30 && seen.absent > 10 && seen.left > 60, "seed {seed}: {seen:?}");
    }
}

#[test]
fn rows_in_ascending_order_are_found_as_a_cursor_finds_them() {
    compare("a ASC, b ASC", seeds(0..6));
}

#[test]
fn rows_in_descending_order_are_found_as_a_cursor_finds_them() {
    compare("a DESC, b ASC", seeds(0..6));
}

/// A SELECT that needs more than a slice uses a cursor.
#[test]
fn selects_that_need_more_than_a_slice_use_a_cursor() {
    let node = TestNode::with(&[
        "CREATE TABLE t (k int, c int, v text, PRIMARY KEY (k, c))",
        "CREATE TABLE s (k int, c int, v text, s text static, PRIMARY KEY (k, c))",
    ]);
    for row in 0..300 {
        node.run(&format!("INSERT INTO t (k, c, v) VALUES (1, {row}, 'a')"));
        node.run(&format!("INSERT INTO s (k, c, v) VALUES (1, {row}, 'a')"));
    }
    let (one, many) = (1_i32.to_be_bytes(), 299_i32.to_be_bytes());
    let values = [Value::Bytes(&one), Value::Bytes(&one), Value::Bytes(&many)];
    let find = |select: &str, change: &dyn Fn(&mut QueryOptions<'_>)| {
        let prepared = node.processor.prepare(select, Some("ks")).unwrap();
        let mut options =
            QueryOptions { values: Values::Positional(&values[..prepared.variables.len()]), ..QueryOptions::default() };
        change(&mut options);
        let long_way = node.execute(&prepared, &options).map(|_| ());
        long_way.ok().and_then(|()| node.find_rows(&prepared, &options, &mut Vec::new()))
    };
    let slice = "SELECT * FROM t WHERE k = ? AND c >= ? LIMIT 20";
    assert_eq!(find(slice, &|_| {}), Some(20), "everything is in a memtable");
    node.processor.engine().flush_all().unwrap();
    assert_eq!(find(slice, &|_| {}), Some(20));
    assert_eq!(find(slice, &|options| options.page_size = Some(20)), Some(20));
    assert_eq!(find(slice, &|options| options.page_size = Some(19)), None, "another page follows");
    assert_eq!(find(slice, &|options| options.consistency = query::Consistency::Two), None);
    assert_eq!(find("SELECT * FROM t WHERE k = ? AND c > ? AND c < ? LIMIT 1000", &|_| {}), None, "too many");
    for select in [
        "SELECT count(*) FROM t WHERE k = ? AND c >= ?",
        "SELECT DISTINCT k FROM t WHERE k = ?",
        "SELECT JSON v FROM t WHERE k = ? AND c >= ? LIMIT 2",
        "SELECT v FROM t WHERE k IN (?, 2) AND c >= ? LIMIT 2",
        "SELECT v FROM t WHERE k = ? AND c IN (?, 2)",
        "SELECT v FROM t WHERE k = ? AND (c) >= (?) LIMIT 2",
        "SELECT v FROM t WHERE k = ? AND v = 'a' LIMIT 2 ALLOW FILTERING",
        "SELECT v FROM t WHERE token(k) = token(?) AND c > ? LIMIT 2 ALLOW FILTERING",
        "SELECT v FROM s WHERE k = ? AND c >= ? LIMIT 2",
    ] {
        assert_eq!(find(select, &|_| {}), None, "{select}");
    }
    node.run("INSERT INTO t (k, c, v) VALUES (1, 0, 'b')");
    assert_eq!(find(slice, &|_| {}), Some(20), "a memtable has something of the partition");
}

#[test]
fn deleted_ranges_are_skipped_up_to_the_warning_threshold() {
    let node =
        TestNode::with_options(ProcessorOptions { tombstone_warn_threshold: 6, ..Default::default() }).with_keyspace();
    node.run("CREATE TABLE t (k int, c int, v text, PRIMARY KEY (k, c))");
    let value = "x".repeat(200);
    (0..400).for_each(|row| drop(node.run(&format!("INSERT INTO t (k, c, v) VALUES (1, {row}, '{value}')"))));
    for start in [10, 100, 200, 300] {
        node.run(&format!("DELETE FROM t WHERE k = 1 AND c >= {start} AND c < {}", start + 80));
    }
    node.processor.engine().flush_all().unwrap();
    for (clause, is_found) in [
        ("c > 9 LIMIT 1", true),
        ("c > 50 LIMIT 1", true),
        ("c < 360 ORDER BY c DESC LIMIT 1", true),
        ("c > 50 AND c < 60 LIMIT 9", true),
        ("c > 5 AND c <= 280 LIMIT 100", true),
        ("c > 5 AND c < 390 LIMIT 100", false),
        ("c > 5 AND c < 390 ORDER BY c DESC LIMIT 100", false),
    ] {
        let select = format!("SELECT c, v FROM t WHERE k = 1 AND {clause}");
        let prepared = node.processor.prepare(&select, Some("ks")).unwrap();
        let options = QueryOptions::default();
        let response = node.execute(&prepared, &options).unwrap();
        assert_eq!(response.warnings.is_empty(), is_found, "{clause}: {:?}", response.warnings);
        let expected = rows_of(response);
        let mut cells = Vec::new();
        let found = node.find_rows(&prepared, &options, &mut cells);
        assert_eq!(found, is_found.then_some(expected.row_count), "{clause}");
        assert!(!is_found || cells == expected.cells, "{clause}");
    }
}
