//! Conditional modifications, compared with what Cassandra answered to the same statements in the same order.

use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use query::{Outcome, QueryOptions, ResponseBody, Turn, Value, Values};
use serde_json::{Value as Json, json};

use crate::modify::{flush, is_ours, node, recorded, run};
use crate::node::TestNode;

fn fixture() -> Json {
    serde_json::from_str(include_str!("../from_cassandra/conditions.json")).unwrap()
}

/// Whether the answer to this step differs from Cassandra's on purpose, with the reason.
fn is_intended(step: &Json) -> bool {
    let text = step["cql"].as_str().unwrap_or_default();
    // No client writes to the keyspaces of the node itself.
    text.starts_with("INSERT INTO system")
        // There is no system_views.
        || text.starts_with("UPDATE system_views")
}

fn compare(between: impl Fn(&TestNode, usize)) {
    let fixture = fixture();
    let node = node(&fixture);
    let mut count = 0;
    let mut differences = Vec::new();
    for case in fixture["cases"].as_array().unwrap() {
        for step in case["steps"].as_array().unwrap() {
            let answer = run(&node, step);
            let columns = match &answer {
                Ok(response) => match &response.body {
                    ResponseBody::Rows(rows) => {
                        let specs = rows.metadata.specs().iter();
                        json!(specs.map(|spec| json!([&*spec.keyspace, &*spec.table, &*spec.name])).collect::<Vec<_>>())
                    }
                    _ => Json::Null,
                },
                Err(_) => Json::Null,
            };
            let mut got = recorded(answer);
            got["columns"] = columns;
            count += 1;
            between(&node, count);
            let differs = ["code", "message", "warnings", "columns", "rows"].iter().any(|part| step[part] != got[part]);
            if differs && !is_ours(step, &got) && !is_intended(step) {
                let cut = |json: &Json| json.to_string().chars().take(500).collect::<String>();
                differences.push(format!("{}: {}\n   got {}", case["name"], cut(step), cut(&got)));
            }
        }
    }
    assert!(differences.is_empty(), "{} of {count} differ:\n{}", differences.len(), differences.join("\n"));
}

#[test]
fn conditional_modifications_do_what_they_do_in_cassandra() {
    compare(|_, _| {});
}

#[test]
fn conditional_modifications_do_so_over_memtables_and_sstables() {
    compare(|node, step| {
        if step % 4 == 0 {
            flush(node)
        }
    });
}

fn is_applied(node: &TestNode, statement: &str) -> bool {
    let rows = node.rows(statement);
    match rows.first().map(|row| row.split(' ').next()) {
        Some(Some("true")) => true,
        Some(Some("false")) => false,
        _ => panic!("{statement}: {rows:?}"),
    }
}

/// Calls `then` on some threads, each with its number, and returns the sum of what they return.
fn on_threads(count: usize, then: impl Fn(usize) -> usize + Sync) -> usize {
    let then = &then;
    thread::scope(|scope| {
        let threads: Vec<_> = (0..count).map(|number| scope.spawn(move || then(number))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    })
}

#[test]
fn of_many_clients_one_gets_a_name() {
    let node = TestNode::with(&["CREATE TABLE names (name text PRIMARY KEY, owner int)"]);
    let got = on_threads(4, |owner| {
        let insert = |name| format!("INSERT INTO names (name, owner) VALUES ('{name}', {owner}) IF NOT EXISTS");
        (0..40).filter(|name| is_applied(&node, &insert(*name))).count()
    });
    assert_eq!(got, 40);
    assert_eq!(node.rows("SELECT name FROM names").len(), 40);
}

/// They queue for one lock, and none is passed over.
#[test]
fn a_thousand_clients_of_one_row_are_each_served() {
    const CLIENTS: usize = 1_000;
    let node = TestNode::with(&["CREATE TABLE t (k int PRIMARY KEY, last int, c int)"]);
    node.run("INSERT INTO t (k, last) VALUES (1, -1)");
    let update = |client| format!("UPDATE t SET last = {client} WHERE k = 1 IF last != {client}");
    assert_eq!(on_threads(CLIENTS, |client| usize::from(is_applied(&node, &update(client)))), CLIENTS);
    let applied = on_threads(CLIENTS, |client| {
        let insert = format!("INSERT INTO t (k, last) VALUES (2, {client}) IF NOT EXISTS");
        usize::from(is_applied(&node, &insert))
    });
    assert_eq!(applied, 1);
}

#[test]
fn a_conditional_write_that_waits_longer_than_the_contention_timeout_fails() {
    let node = TestNode::with(&["CREATE TABLE t (k int PRIMARY KEY, v int)"]);
    let update = node.processor.prepare("UPDATE t SET v = 1 WHERE k = 1 IF v = null", Some("ks")).unwrap();
    let options = QueryOptions::default();
    // A write that is under way holds the lock until it is polled.
    let Outcome::Pending(first) = node.begin(&update, &options, Turn::NON_BLOCKING, None) else { panic!("it waits") };
    let Outcome::Pending(second) = node.begin(&update, &options, Turn::NON_BLOCKING, None) else { panic!("it waits") };
    assert_eq!(second.limit().duration(), Some(Duration::from_millis(1_800)));
    let error = second.limit().error();
    assert_eq!(error.message, "CAS operation timed out: received 0 of 1 required responses after 0 contention retries");
    assert!(format!("{error:?}").contains("write_type: Cas"), "{error:?}");
    // A waiter that gives up leaves the queue.
    drop(second);
    first.wait().unwrap();
    assert!(!is_applied(&node, "UPDATE t SET v = 2 WHERE k = 1 IF v = null"));
    assert_eq!(node.rows("SELECT v FROM t"), ["1"]);
}

#[test]
fn transfers_in_a_partition_lose_and_make_no_money() {
    let node = TestNode::with(&["CREATE TABLE bank (k int, account int, amount int, PRIMARY KEY (k, account))"]);
    for account in 0..3 {
        node.run(&format!("INSERT INTO bank (k, account, amount) VALUES (1, {account}, 100)"));
    }
    let amount = |account: usize| -> i32 {
        node.rows(&format!("SELECT amount FROM bank WHERE k = 1 AND account = {account}"))[0].parse().unwrap()
    };
    let applied = on_threads(3, |number| {
        let transfer = |step: usize| {
            let (from, to) = ((number + step) % 3, (number + step + 1) % 3);
            let (rich, poor) = (amount(from), amount(to));
            let change = |account, before: i32, by: i32| {
                let after = before + by;
                format!("UPDATE bank SET amount = {after} WHERE k = 1 AND account = {account} IF amount = {before}")
            };
            let batch = [change(from, rich, -7), change(to, poor, 7)].join("; ");
            is_applied(&node, &format!("BEGIN BATCH {batch}; APPLY BATCH"))
        };
        (0..40).filter(|step| transfer(*step)).count()
    });
    assert!(applied > 0);
    assert_eq!((0..3).map(amount).sum::<i32>(), 300);
}

#[test]
fn changes_of_list_elements_by_index_are_one_after_the_other() {
    let node = TestNode::with(&["CREATE TABLE t (k int PRIMARY KEY, l list<int>)"]);
    let elements: Vec<String> = (0..100).map(|element| element.to_string()).collect();
    node.run(&format!("INSERT INTO t (k, l) VALUES (1, [{}])", elements.join(", ")));
    on_threads(3, |_| {
        (0..20).for_each(|_| drop(node.run("DELETE l[0] FROM t WHERE k = 1")));
        20
    });
    assert_eq!(node.rows("SELECT l FROM t"), [format!("[{}]", elements[60..].join(", "))]);
}

#[test]
fn a_conditional_write_is_newer_than_what_it_read_unless_that_is_of_another_day() {
    let node = TestNode::with(&["CREATE TABLE t (k int PRIMARY KEY, v int, w int)"]);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros() as i64;
    let hour = 3_600_000_000;
    for (key, ahead, seen) in [(1, hour, "2 null"), (2, 23 * hour, "2 null"), (3, 25 * hour, "1 1")] {
        let timestamp = now + ahead;
        node.run(&format!("INSERT INTO t (k, v, w) VALUES ({key}, 1, 1) USING TIMESTAMP {timestamp}"));
        assert!(is_applied(&node, &format!("UPDATE t SET v = 2, w = null WHERE k = {key} IF v = 1")));
        assert_eq!(node.rows(&format!("SELECT v, w FROM t WHERE k = {key}")), [seen], "{ahead}");
    }
    assert!(is_applied(&node, "DELETE FROM t WHERE k = 1 IF v = 2"));
    assert!(node.rows("SELECT * FROM t WHERE k = 1").is_empty());
    assert!(is_applied(&node, "INSERT INTO t (k, v) VALUES (1, 3) IF NOT EXISTS"));
    assert_eq!(node.rows("SELECT v FROM t WHERE k = 1"), ["3"]);
    // Other writes of the node are not ahead of its clock for that.
    node.run("INSERT INTO t (k, v) VALUES (4, 4)");
    let written: i64 = node.rows("SELECT writetime(v) FROM t WHERE k = 4")[0].parse().unwrap();
    assert!(written < now + hour / 2);
}

/// The static condition does not read the row that is written.
#[test]
fn a_conditional_write_is_newer_than_the_row_that_it_changes() {
    let node = TestNode::with(&["CREATE TABLE t (k int, c int, s int static, v int, PRIMARY KEY (k, c))"]);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros() as i64;
    node.run("INSERT INTO t (k, c, s, v) VALUES (1, 1, 1, 1)");
    node.run(&format!("INSERT INTO t (k, c, v) VALUES (1, 2, 1) USING TIMESTAMP {}", now + 3_600_000_000));
    assert!(is_applied(&node, "UPDATE t SET v = 2 WHERE k = 1 AND c = 2 IF s = 1"));
    assert_eq!(node.rows("SELECT v FROM t WHERE k = 1"), ["1", "2"]);
}

#[test]
fn timestamps_of_conditional_writes_rise_and_deletions_are_older_than_insertions() {
    let node = TestNode::with(&["CREATE TABLE t (k int, c int, v int, l list<int>, PRIMARY KEY (k, c))"]);
    let mut last = 0;
    for step in 0..20 {
        let change = format!("UPDATE t SET v = {step} WHERE k = 1 AND c = 1 IF v != {step}");
        assert!(is_applied(&node, &format!("BEGIN BATCH DELETE FROM t WHERE k = 1 AND c > 0; {change}; APPLY BATCH")));
        let written: i64 = node.rows("SELECT writetime(v) FROM t WHERE k = 1")[0].parse().unwrap();
        assert!(written > last);
        last = written;
    }
    for step in 0..300 {
        assert!(is_applied(&node, &format!("UPDATE t SET l = l + [{step}, {step}] WHERE k = 2 AND c = 1 IF v = null")));
    }
    let list: Vec<String> = (0..300).flat_map(|step| [step.to_string(), step.to_string()]).collect();
    assert_eq!(node.rows("SELECT l FROM t WHERE k = 2"), [format!("[{}]", list.join(", "))]);
}

#[test]
fn a_conditional_write_is_answered_where_it_may_not_wait() {
    let node = TestNode::with(&["CREATE TABLE t (k int PRIMARY KEY, v int)"]);
    let insert = node.processor.prepare("INSERT INTO t (k, v) VALUES (?, 1) IF NOT EXISTS", Some("ks")).unwrap();
    assert_eq!(insert.result_metadata, None);
    let key = 1_i32.to_be_bytes();
    let values = [Value::Bytes(&key)];
    let options = QueryOptions { values: Values::Positional(&values), skip_metadata: true, ..QueryOptions::default() };
    for (place, answer) in [(1, 1), (0, 3), (0, 3)].into_iter().enumerate() {
        if place == 2 {
            flush(&node);
        }
        let Outcome::Pending(pending) = node.begin(&insert, &options, Turn::NON_BLOCKING, None) else {
            panic!("it takes a lock")
        };
        let response = pending.wait().unwrap();
        let ResponseBody::Rows(rows) = response.body else { panic!("no rows") };
        // The answer always has its columns, since no client can know them.
        assert_eq!((rows.form.skip, &rows.form.changed_id), (false, &None));
        let is_applied = rows.cells[4];
        assert_eq!((is_applied, rows.metadata.specs().len()), answer);
    }
}

/// More conditions on one column than are searched for in its value one by one.
#[test]
fn many_conditions_on_the_parts_of_a_column_hold_as_each_does() {
    let node = TestNode::with(&[
        "CREATE TYPE u (a int, b int, c int, d int, e int, f int)",
        "CREATE TABLE t (k int PRIMARY KEY, m map<int, int>, l list<int>, s set<int>, f frozen<map<int, int>>, u u, \
         v int)",
        "INSERT INTO t (k, m, l, s, f, u) \
         VALUES (1, {9: 1, 2: 2, 5: 3}, [7, 8, 9], {4, 6}, {9: 1, 2: 2, 5: 3}, {a: 1, c: 3, f: 6})",
    ]);
    let (holds, fails) = (
        [
            "m[9] = 1 AND m[2] = 2 AND m[5] = 3 AND m[1] = null AND m[2] != 3 AND m[5] IN (1, 3)",
            "m CONTAINS KEY 9 AND m CONTAINS 3 AND m CONTAINS KEY 5 AND m CONTAINS 1 AND m CONTAINS KEY 2",
            "l[0] = 7 AND l[1] = 8 AND l[2] = 9 AND l[3] = null AND l CONTAINS 9 AND l CONTAINS 7 AND l CONTAINS 8",
            "s CONTAINS 4 AND s CONTAINS 6 AND s CONTAINS 4 AND s CONTAINS 6 AND s CONTAINS 4 AND s CONTAINS 6",
            "f[9] = 1 AND f[2] = 2 AND f[5] = 3 AND f[1] = null AND f CONTAINS KEY 9 AND f CONTAINS 3",
            "u.a = 1 AND u.b = null AND u.c = 3 AND u.d = null AND u.e = null AND u.f = 6",
        ],
        ["m[5] = 2", "m CONTAINS KEY 3", "l[2] = 8", "s CONTAINS 5", "f CONTAINS 4", "u.e = 1"],
    );
    for (holds, fails) in holds.iter().zip(fails) {
        assert!(is_applied(&node, &format!("UPDATE t SET v = 1 WHERE k = 1 IF {holds}")), "{holds}");
        let last = format!("{holds} AND {fails}");
        assert!(!is_applied(&node, &format!("UPDATE t SET v = 1 WHERE k = 1 IF {last}")), "{last}");
    }
}

/// The rows are written in descending order. Some are named in two ways, as 2 and 2.00.
#[test]
fn a_batch_with_conditions_on_many_rows_applies_if_all_hold() {
    let node = TestNode::with(&["CREATE TABLE t (k int, c decimal, v int, PRIMARY KEY (k, c))"]);
    let batch = |statement: &dyn Fn(i32) -> String| {
        let statements: Vec<String> = (0..40).rev().map(statement).collect();
        is_applied(&node, &format!("BEGIN BATCH {} APPLY BATCH", statements.join("; ")))
    };
    assert!(batch(&|i| format!("INSERT INTO t (k, c, v) VALUES (1, {i}, {i}) IF NOT EXISTS")));
    assert!(batch(&|i| format!("UPDATE t SET v = {i} WHERE k = 1 AND c = {i}.00 IF v = {i}")));
    let of_two = |i: i32| format!("UPDATE t SET v = 9 WHERE k = 1 AND c = {}.0{} IF v = {}", i / 2, i % 2 * 5, i / 2);
    assert!(!batch(&of_two), "there is no row 19.05");
    assert!(!batch(&|i| format!("UPDATE t SET v = 9 WHERE k = 1 AND c = {i} IF v = {}", i.min(38))));
    let mixed = |one: &str, other: &str| node.failure(&format!("BEGIN BATCH {one}; {other}; APPLY BATCH"));
    let exists = "UPDATE t SET v = 9 WHERE k = 1 AND c = 2 IF EXISTS";
    let reported = mixed("UPDATE t SET v = 9 WHERE k = 1 AND c = 2.00 IF v = 2", exists);
    assert_eq!(reported, "Cannot mix IF conditions and IF EXISTS for the same row");
    let reported = mixed(exists, "INSERT INTO t (k, c, v) VALUES (1, 2.0, 3) IF NOT EXISTS");
    assert_eq!(reported, "Cannot mix IF EXISTS and IF NOT EXISTS conditions for the same row");
    let expected: Vec<String> = (0..40).map(|i| i.to_string()).collect();
    assert_eq!(node.rows("SELECT v FROM t WHERE k = 1"), expected);
}
