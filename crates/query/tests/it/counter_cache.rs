//! The counter cache: increments have the same result with and without it.

use std::path::Path;
use std::thread;

use blockio::SimulatedDisk;
use query::{ProcessorOptions, QueryOptions};
use testkit::Random;

use crate::modify::flush;
use crate::node::TestNode;

const TABLE: &str = "CREATE TABLE t (k int, ck int, c counter, d counter, s counter static, PRIMARY KEY (k, ck))";
const ADD: &str = "UPDATE t SET c = c + 1, s = s + 1 WHERE k = 1 AND ck = 1";

fn node_with_cache(size_bytes: u64) -> TestNode {
    let options = ProcessorOptions::default();
    let disk = SimulatedDisk::new();
    let node = TestNode::with_engine(&disk, "/node", options, |options| options.counter_cache_bytes = size_bytes)
        .with_keyspace();
    node.run(TABLE);
    node
}

fn compact(node: &TestNode) {
    let engine = node.processor.engine();
    engine.compact(engine.schema().table("ks", "t").unwrap()).unwrap();
}

/// A statement with its timestamp, or something else that nodes do.
enum Step {
    Statement(String, i64),
    Flush,
    Compact,
    Alter,
    Forget,
}

fn random_step(random: &mut Random, number: i64) -> Step {
    let (k, ck) = (random.below(3), random.below(3));
    // Clients' clocks differ.
    let timestamp = 1_000_000 + 100 * number - if random.below(6) == 0 { random.below(1_000) as i64 } else { 0 };
    let n = random.below(9) as i64 - 3;
    let statement = match random.below(24) {
        0..8 => format!("UPDATE t SET c = c + {n} WHERE k = {k} AND ck = {ck}"),
        8..11 => format!("UPDATE t SET c = c + {n}, d = d - 1, s = s + 2 WHERE k = {k} AND ck = {ck}"),
        11 => format!("UPDATE t SET s = s - {n} WHERE k = {k}"),
        12 => format!(
            "BEGIN COUNTER BATCH UPDATE t SET c = c + {n} WHERE k = {k} AND ck = 1; \
             UPDATE t SET d = d + 1 WHERE k = 1 AND ck IN (1, 2); UPDATE t SET s = s + 1 WHERE k = {k}; APPLY BATCH"
        ),
        13 => format!(
            "BEGIN COUNTER BATCH UPDATE t SET c = c + 1 WHERE k = {k} AND ck = {ck}; \
             DELETE FROM t WHERE k = {k} AND ck = 2; APPLY BATCH"
        ),
        14 => format!("DELETE FROM t WHERE k = {k} AND ck = {ck}"),
        15 => format!("DELETE FROM t WHERE k = {k} AND ck >= {ck}"),
        16 if random.below(3) == 0 => format!("DELETE FROM t WHERE k = {k}"),
        17 if random.below(3) == 0 => format!("DELETE d FROM t WHERE k = {k} AND ck = {ck}"),
        18 if random.below(3) == 0 => format!("DELETE s FROM t WHERE k = {k}"),
        19 if random.below(4) == 0 => "TRUNCATE t".to_owned(),
        20 if random.below(4) == 0 => return Step::Alter,
        21 => return if random.below(3) == 0 { Step::Compact } else { Step::Forget },
        _ => return Step::Flush,
    };
    Step::Statement(statement, timestamp)
}

#[test]
fn a_history_has_the_same_result_with_and_without_the_cache() {
    for seed in 0..12 {
        let mut random = Random(seed);
        let nodes = [node_with_cache(1 << 20), node_with_cache(0), node_with_cache(2_000)];
        let mut history = Vec::new();
        for number in 0..120 {
            let step = random_step(&mut random, number);
            for node in &nodes {
                match &step {
                    Step::Statement(statement, timestamp) => {
                        let options = QueryOptions { timestamp: Some(*timestamp), ..QueryOptions::default() };
                        node.try_run(statement, &options).unwrap();
                    }
                    Step::Flush => flush(node),
                    Step::Compact => compact(node),
                    Step::Alter => drop(node.run(&format!("ALTER TABLE t ADD e{number} counter"))),
                    Step::Forget => node.processor.engine().forget_counters(),
                }
            }
            if let Step::Statement(statement, timestamp) = step {
                history.push(format!("{timestamp}: {statement}"));
            }
            let rows = nodes.each_ref().map(|node| node.rows("SELECT k, ck, s, c, d FROM t"));
            assert_eq!(rows[0], rows[1], "seed {seed}, {history:#?}");
            assert_eq!(rows[2], rows[1], "seed {seed}, {history:#?}");
        }
        let [with, without, _] = nodes.each_ref().map(|node| node.processor.engine().counter_cache_stats());
        assert!(with.hits > 0 && with.hits < with.requests, "seed {seed}: {with:?}");
        assert_eq!(without.requests, 0);
    }
}

#[test]
fn a_counter_is_read_once_and_then_found_until_it_is_forgotten() {
    let node = node_with_cache(1 << 20);
    let hits = || node.processor.engine().counter_cache_stats().hits;
    node.run(ADD);
    flush(&node);
    node.run(ADD);
    assert_eq!(hits(), 0);
    for count in 1..4 {
        node.run(ADD);
        flush(&node);
        assert_eq!(hits(), 2 * count);
    }
    let stats = node.processor.engine().counter_cache_stats();
    assert_eq!((stats.entries, stats.capacity_bytes), (2, 1 << 20));
    assert!(stats.size_bytes > 0 && stats.size_bytes < 1_000, "{stats:?}");
    node.processor.engine().forget_counters();
    assert_eq!(node.processor.engine().counter_cache_stats().entries, 0);
    node.run(ADD);
    assert_eq!(hits(), 6);
    assert_eq!(node.rows("SELECT c, s FROM t"), ["6 6"]);
}

#[test]
fn counters_are_read_again_after_a_truncation_an_import_and_a_drop() {
    let node = node_with_cache(1 << 20);
    let engine = node.processor.engine();
    let table = || engine.schema().table("ks", "t").unwrap().clone();
    (0..5).for_each(|_| drop(node.run(ADD)));
    let snapshot = engine.snapshot(&table(), "five", "").unwrap();
    node.run("TRUNCATE t");
    (0..3).for_each(|_| drop(node.run(ADD)));
    assert_eq!(node.rows("SELECT c, s FROM t"), ["3 3"]);
    node.run("TRUNCATE t");
    engine.import(&table(), Path::new(&snapshot)).unwrap();
    assert_eq!(node.rows("SELECT c, s FROM t"), ["5 5"]);
    (0..3).for_each(|_| drop(node.run(ADD)));
    assert_eq!(node.rows("SELECT c, s FROM t"), ["8 8"]);
    // The newer total stays, and what is imported after it is older.
    engine.import(&table(), Path::new(&snapshot)).unwrap();
    node.run(ADD);
    assert_eq!(node.rows("SELECT c, s FROM t"), ["9 9"]);
    node.run("DROP TABLE t");
    node.run(TABLE);
    (0..3).for_each(|_| drop(node.run(ADD)));
    assert_eq!(node.rows("SELECT c, s FROM t"), ["3 3"]);
}

/// Writes that find no room in the log read their counters again, and may have changed nothing in the cache.
#[test]
fn increments_that_wait_for_room_in_the_log_count_once() {
    const CLIENTS: usize = 4;
    const EACH: usize = 150;
    let node = node_with_cache(1 << 20);
    node.run("CREATE TABLE plain (k int PRIMARY KEY, v text)");
    let text = "x".repeat(60_000);
    thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (node, text) = (&node, &text);
            scope.spawn(move || {
                for i in 0..EACH {
                    node.run(ADD);
                    if i % 2 == 0 {
                        node.run(&format!("INSERT INTO plain (k, v) VALUES ({client}, '{text}')"));
                    }
                    if i % 40 == 0 && client == 0 {
                        node.run("TRUNCATE plain");
                    }
                }
            });
        }
    });
    let all = CLIENTS * EACH;
    assert_eq!(node.rows("SELECT c, s FROM t"), [format!("{all} {all}")]);
}
