//! SELECTs of one row in memory: the fast path without a cursor returns the row of a cursor.

use query::{QueryOptions, Value, Values};
use testkit::{Random, seeds};

use crate::node::{TestNode, rows_of};

const STEPS: usize = 150;

/// How often a row was found, how often it was absent, and how often a cursor was needed.
#[derive(Default, Debug)]
struct Seen {
    found: u32,
    absent: u32,
    left: u32,
}

fn options<'v>(values: &'v [Value<'v>], now: i32) -> QueryOptions<'v> {
    QueryOptions { values: Values::Positional(values), now_in_seconds: Some(now), ..QueryOptions::default() }
}

/// Compares both ways for every row.
fn check(node: &TestNode, select: &str, has_clustering: bool, now: i32, seen: &mut Seen) {
    let prepared = node.processor.prepare(select, Some("ks")).unwrap();
    for place in 0..16_i32 {
        let (key, clustering) = ((place / 4).to_be_bytes(), ["", "a", "b", "c"][place as usize % 4]);
        let values = [Value::Bytes(&key), Value::Bytes(clustering.as_bytes())];
        let options = options(&values[..1 + usize::from(has_clustering)], now);
        let expected = rows_of(node.execute(&prepared, &options).unwrap());
        let mut cells = b"before".to_vec();
        match node.find_rows(&prepared, &options, &mut cells) {
            Some(count) => {
                assert_eq!((count, &cells[6..]), (expected.row_count, &expected.cells[..]), "{select}, {place}");
                *(if count == 1 { &mut seen.found } else { &mut seen.absent }) += 1;
            }
            None => seen.left += 1,
        }
        assert!(cells.starts_with(b"before"));
        assert!(cells.len() == 6 || seen.found > 0);
    }
}

fn statement(random: &mut Random, has_clustering: bool) -> String {
    let row = match has_clustering {
        true => format!("k = {} AND c = '{}'", random.below(4), ["", "a", "b", "c"][random.below(4)]),
        false => format!("k = {}", random.below(4)),
    };
    let (key, value) = (random.below(4), random.below(1000));
    let time = 1 + random.below(1000);
    let clustering = ["", "a", "b", "c"][random.below(4)];
    let (name, given) = if has_clustering { (", c", format!(", '{clustering}'")) } else { ("", String::new()) };
    match random.below(24) {
        0..7 => format!("INSERT INTO t (k{name}, v, w) VALUES ({key}{given}, 'v{value}', {value})"),
        7 => format!("INSERT INTO t (k{name}) VALUES ({key}{given})"),
        8..11 => format!("INSERT INTO t (k{name}, w) VALUES ({key}{given}, {value}) USING TIMESTAMP {time}"),
        11..14 => format!("UPDATE t SET v = 'u{value}' WHERE {row}"),
        14 => format!("UPDATE t SET m[{key}] = 'm', w = null WHERE {row}"),
        15 => format!("UPDATE t USING TTL 100 SET w = {value} WHERE {row}"),
        16 => format!("INSERT INTO t (k{name}, v) VALUES ({key}{given}, 'x') USING TTL 100"),
        17 => format!("DELETE v FROM t WHERE {row}"),
        18 => format!("DELETE FROM t WHERE {row}"),
        19 if random.one_in(3) => format!("DELETE FROM t USING TIMESTAMP {time} WHERE k = {key}"),
        20 if has_clustering && random.one_in(3) => format!("DELETE FROM t WHERE k = {key} AND c > '{clustering}'"),
        21 if random.one_in(4) => format!("ALTER TABLE t ADD x{time} int"),
        22 if random.one_in(8) => "ALTER TABLE t DROP w".into(),
        23 if random.one_in(8) => "ALTER TABLE t ADD w int".into(),
        _ => format!("INSERT INTO t (k{name}, v) VALUES ({key}{given}, 'y{value}')"),
    }
}

fn compare(create: &str, selects: &[&str], has_clustering: bool) {
    for seed in seeds(0..12) {
        let mut random = Random(seed);
        let node = TestNode::with(&[create]);
        let mut seen = Seen::default();
        for step in 0..STEPS {
            let statement = statement(&mut random, has_clustering);
            // This fails if the column was dropped, or exists already.
            let _ = node.try_run(&statement, &QueryOptions::default());
            if step == STEPS * 4 / 5 {
                node.processor.engine().flush_all().unwrap();
            }
            let now =
                node.rows("SELECT tounixtimestamp(now()) FROM system.local")[0].parse::<u64>().unwrap_or(0) / 1000;
            let now = i32::try_from(now).unwrap() + if random.one_in(4) { 200 } else { 0 };
            for select in selects {
                check(&node, select, has_clustering, now, &mut seen);
            }
        }
        println!("seed {seed}: {seen:?}");
        assert!(seen.found > 100 && seen.absent > 10 && seen.left > 100, "seed {seed}: {seen:?}");
    }
}

#[test]
fn rows_of_partitions_are_found_as_a_cursor_finds_them() {
    let selects = ["SELECT * FROM t WHERE k = ? AND c = ?", "SELECT v, c, k FROM t WHERE k = ? AND c = ?"];
    compare("CREATE TABLE t (k int, c text, v text, w int, m map<int, text>, PRIMARY KEY (k, c))", &selects, true);
}

#[test]
fn only_rows_are_found_as_a_cursor_finds_them() {
    let selects = ["SELECT * FROM t WHERE k = ?", "SELECT v, k FROM t WHERE k = ?", "SELECT k FROM t WHERE k = ?"];
    compare("CREATE TABLE t (k int PRIMARY KEY, v text, w int)", &selects, false);
}

#[test]
fn rows_of_a_table_in_memory_are_found_as_a_cursor_finds_them() {
    let create = "CREATE TABLE t (k int PRIMARY KEY, v text, w int) WITH caching = 'NONE' AND \
         compaction = {'class': 'MemoryOnlyStrategy', 'size_limit_in_mb': 1}";
    compare(create, &["SELECT v FROM t WHERE k = ?"], false);
}

/// SELECTs that need more than a row, and rows with several sources, use a cursor.
#[test]
fn selects_that_need_more_than_a_row_use_a_cursor() {
    let node = TestNode::with(&[
        "CREATE TABLE t (k int, c int, v text, PRIMARY KEY (k, c))",
        "CREATE TABLE s (k int, c int, v text, s text static, PRIMARY KEY (k, c))",
        "CREATE TABLE d (k int, c varint, v text, PRIMARY KEY (k, c))",
        "INSERT INTO t (k, c, v) VALUES (1, 1, 'a')",
        "INSERT INTO s (k, c, v) VALUES (1, 1, 'a')",
        "INSERT INTO d (k, c, v) VALUES (1, 1, 'a')",
    ]);
    let one = 1_i32.to_be_bytes();
    let values = [Value::Bytes(&one), Value::Bytes(&one)];
    let find = |select: &str, change: &dyn Fn(&mut QueryOptions<'_>)| {
        let prepared = node.processor.prepare(select, Some("ks")).unwrap();
        let mut options = options(&values[..prepared.variables.len()], 1);
        change(&mut options);
        node.find_rows(&prepared, &options, &mut Vec::new())
    };
    let row = "SELECT * FROM t WHERE k = ? AND c = ?";
    assert_eq!(find(row, &|_| {}), Some(1));
    assert_eq!(find(row, &|options| options.page_size = Some(2)), Some(1));
    assert_eq!(find("SELECT v FROM t WHERE k = ? AND c = 2", &|_| {}), Some(0));
    assert_eq!(find(row, &|options| options.page_size = Some(1)), None);
    assert_eq!(find(row, &|options| options.paging_state = Some(b"anything")), None);
    assert_eq!(find(row, &|options| options.consistency = query::Consistency::Any), None);
    assert_eq!(find(row, &|options| options.consistency = query::Consistency::Two), None);
    assert_eq!(find(row, &|options| options.values = Values::Positional(&[Value::Null, Value::Unset])), None);
    for select in [
        "SELECT * FROM t WHERE k = ? AND c = ? LIMIT 1",
        "SELECT count(*) FROM t WHERE k = ? AND c = ?",
        "SELECT JSON v FROM t WHERE k = ? AND c = ?",
        "SELECT v FROM t WHERE k = ?",
        "SELECT v FROM t WHERE k = ? AND c IN (?, 2)",
        "SELECT v FROM t WHERE k = ? AND c >= ?",
        "SELECT v FROM s WHERE k = ? AND c = ?",
        "SELECT v FROM d WHERE k = ? AND c = ?",
        "SELECT DISTINCT k FROM t WHERE k = ?",
    ] {
        assert_eq!(find(select, &|_| {}), None, "{select}");
    }
    node.run("ALTER KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 0}");
    assert_eq!(find(row, &|_| {}), None);
}
