//! The least and greatest timestamps and TTLs, for cells, rows, ranges and partitions. Accepted data reads the same
//! from the memtable; after a flush, a merge, a crash and a replay; and from an export. It equals the content of a list
//! of all writes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use blockio::SimulatedDisk;
use query::{ErrorKind, ProcessorOptions, QueryOptions};
use testkit::Random;

use crate::node::TestNode;

const TABLE: &str = "CREATE TABLE t (p int, c int, s text static, v text, PRIMARY KEY (p, c))";
/// The second in which everything is written. It is in 2090, so that no merge finds anything expired.
const WRITTEN_AT: i64 = 3_786_912_000;
const SECONDS_TO_EXPIRE: i64 = 100;
const TTL_MAX: i64 = 630_720_000;
const PARTITIONS: usize = 3;
const ROWS: usize = 4;

/// The properties that decide between two versions of a cell, in this order: time, whether it can expire, whether it is
/// deleted, when it expires, value.
type Version = (i64, bool, bool, i64, String);

/// All writes, without regard to how a database stores them.
#[derive(Default)]
struct Model {
    cells: BTreeMap<(usize, Option<usize>), Version>,
    /// For each row: time, whether it expires, and when.
    inserted: BTreeMap<(usize, usize), (i64, bool, i64)>,
    /// Deletions as time, partition and rows. `None` means the whole partition with its static row.
    deleted: Vec<(i64, usize, Option<std::ops::Range<usize>>)>,
}

impl Model {
    fn write(&mut self, place: (usize, Option<usize>), version: Version) {
        let current = self.cells.entry(place).or_insert_with(|| version.clone());
        *current = version.max(current.clone());
    }

    fn is_deleted(&self, (partition, row): (usize, Option<usize>), time: i64) -> bool {
        let covers = |rows: &Option<std::ops::Range<usize>>| match (rows, row) {
            (None, _) => true,
            (Some(rows), Some(row)) => rows.contains(&row),
            (Some(_), None) => false,
        };
        self.deleted.iter().any(|(deleted, key, rows)| *key == partition && covers(rows) && time <= *deleted)
    }

    fn value(&self, place: (usize, Option<usize>), now: i64) -> Option<&str> {
        let (time, _, is_tombstone, ends, value) = self.cells.get(&place)?;
        (!is_tombstone && *ends > now && !self.is_deleted(place, *time)).then_some(value)
    }

    fn rows(&self, now: i64) -> BTreeSet<String> {
        let text = |value: Option<&str>| value.map_or("null".to_owned(), |value| format!("'{value}'"));
        let mut rows = BTreeSet::new();
        for partition in 0..PARTITIONS {
            let shared = self.value((partition, None), now);
            let mut is_empty = true;
            for row in 0..ROWS {
                let value = self.value((partition, Some(row)), now);
                let inserted = self.inserted.get(&(partition, row));
                let is_inserted = inserted
                    .is_some_and(|(time, _, ends)| *ends > now && !self.is_deleted((partition, Some(row)), *time));
                if value.is_some() || is_inserted {
                    is_empty = false;
                    rows.insert(format!("{partition} {row} {} {}", text(shared), text(value)));
                }
            }
            if is_empty && shared.is_some() {
                rows.insert(format!("{partition} null {} null", text(shared)));
            }
        }
        rows
    }
}

fn some_timestamp(random: &mut Random) -> i64 {
    let times = [i64::MIN + 1, i64::MIN + 2, -1_000, -1, 0, 1, 10, 10, 11, 1 << 40, 1 << 60, i64::MAX - 1, i64::MAX];
    times[random.below(times.len())]
}

fn at(now: i64) -> QueryOptions<'static> {
    QueryOptions { now_in_seconds: Some(now as u32 as i32), ..QueryOptions::default() }
}

/// Executes one statement on the node and adds it to the model.
fn write(node: &TestNode, model: &mut Model, random: &mut Random) {
    let (time, p, c) = (some_timestamp(random), random.below(PARTITIONS), random.below(ROWS));
    let value = ["", "a", "b", "c"][random.below(4)].to_owned();
    let ttl = [0, 0, 1, SECONDS_TO_EXPIRE, TTL_MAX][random.below(5)];
    // The last second that a cell can have is in 2106.
    let ends = if ttl == 0 { i64::MAX } else { (WRITTEN_AT + ttl).min(i64::from(u32::MAX) - 1) };
    let live: Version = (time, ttl > 0, false, ends, value.clone());
    let tombstone: Version = (time, true, true, WRITTEN_AT, String::new());
    let using = format!("USING TIMESTAMP {time} AND TTL {ttl}");
    let place = (p, Some(c));
    let statement = match random.below(8) {
        0 => {
            model.write(place, live);
            let inserted = (time, ttl > 0, ends);
            let current = model.inserted.entry((p, c)).or_insert(inserted);
            *current = inserted.max(*current);
            format!("INSERT INTO t (p, c, v) VALUES ({p}, {c}, '{value}') {using}")
        }
        1 => {
            model.write(place, live);
            format!("UPDATE t {using} SET v = '{value}' WHERE p = {p} AND c = {c}")
        }
        2 => {
            model.write((p, None), live);
            format!("UPDATE t {using} SET s = '{value}' WHERE p = {p}")
        }
        3 => {
            model.write(place, tombstone);
            format!("DELETE v FROM t USING TIMESTAMP {time} WHERE p = {p} AND c = {c}")
        }
        4 => {
            model.write((p, None), tombstone);
            format!("DELETE s FROM t USING TIMESTAMP {time} WHERE p = {p}")
        }
        5 => {
            model.deleted.push((time, p, Some(c..c + 1)));
            format!("DELETE FROM t USING TIMESTAMP {time} WHERE p = {p} AND c = {c}")
        }
        6 => {
            model.deleted.push((time, p, Some(c..ROWS)));
            format!("DELETE FROM t USING TIMESTAMP {time} WHERE p = {p} AND c >= {c}")
        }
        _ if time < 0 => {
            let refused = format!("DELETE FROM t USING TIMESTAMP {time} WHERE p = {p}");
            assert_eq!(node.try_run(&refused, &at(0)).unwrap_err().kind, ErrorKind::Invalid, "{refused}");
            return;
        }
        _ => {
            model.deleted.push((time, p, None));
            format!("DELETE FROM t USING TIMESTAMP {time} WHERE p = {p}")
        }
    };
    node.try_run(&statement, &at(WRITTEN_AT)).unwrap_or_else(|error| panic!("{statement}: {error}"));
}

fn check(node: &TestNode, model: &Model, when: &str) {
    for now in [WRITTEN_AT, WRITTEN_AT + 1, WRITTEN_AT + SECONDS_TO_EXPIRE] {
        let found: BTreeSet<String> = node.rows_with("SELECT p, c, s, v FROM t", &at(now)).into_iter().collect();
        assert_eq!(found, model.rows(now), "{when}, at {now}");
    }
}

fn of_keyspace(mut node: TestNode) -> TestNode {
    node.use_keyspace("ks");
    node
}

#[test]
fn timestamps_at_their_edges_survive_flush_merge_replay_and_export() {
    for seed in testkit::seeds(0..6) {
        let (mut disk, mut random, mut model) = (SimulatedDisk::new(), Random(seed), Model::default());
        let mut node = TestNode::on_disk(&disk).with_keyspace();
        node.run(TABLE);
        for step in 0..60 {
            write(&node, &mut model, &mut random);
            let engine = node.processor.engine();
            let table = engine.schema().table("ks", "t").unwrap().clone();
            let what = match random.below(12) {
                0 => engine.flush(&table).map(|()| "flushed").unwrap(),
                1 => engine.compact(&table).map(|_| "merged").unwrap(),
                2 => {
                    disk = disk.crash_image(0);
                    node = of_keyspace(TestNode::on_disk(&disk));
                    "replayed"
                }
                _ => "written",
            };
            check(&node, &model, &format!("seed {seed}, step {step}, {what}"));
        }
        let (engine, copy) = (node.processor.engine(), Path::new("/export"));
        engine.export(copy).unwrap();
        let adopting = of_keyspace(TestNode::in_directory(&disk, "/other", ProcessorOptions::default()));
        adopting.processor.engine().adopt(&[copy.to_path_buf()]).unwrap();
        check(&adopting, &model, &format!("seed {seed}, exported"));
    }
}

#[test]
fn timestamps_that_cannot_be_stored_are_refused_and_the_table_still_flushes() {
    let node = TestNode::with(&[TABLE]);
    for time in [-1, i64::MIN + 1] {
        let refused = node.failure(&format!("DELETE FROM t USING TIMESTAMP {time} WHERE p = 1"));
        assert!(refused.contains("negative timestamp"), "{refused}");
        let batch = format!("BEGIN BATCH USING TIMESTAMP {time} DELETE FROM t WHERE p = 1; APPLY BATCH");
        assert_eq!(node.failure(&batch), refused);
    }
    let options = QueryOptions { timestamp: Some(-7), ..QueryOptions::default() };
    let refused = node.try_run("DELETE FROM t WHERE p = 1", &options).unwrap_err().message;
    assert!(refused.contains("(-7)"), "{refused}");
    for limit in
        ["INSERT INTO t (p, c, v) VALUES (1, 1, 'a')", "UPDATE t USING TIMESTAMP @ SET v = 'a' WHERE p = 1 AND c = 1"]
    {
        let statement = if limit.contains('@') {
            limit.replace('@', &i64::MIN.to_string())
        } else {
            format!("{limit} USING TIMESTAMP {}", i64::MIN)
        };
        assert!(node.failure(&statement).starts_with("Out of bound timestamp"), "{statement}");
    }
    node.run("INSERT INTO t (p, c, v) VALUES (1, 1, 'a') USING TIMESTAMP -1");
    node.processor.engine().flush_all().unwrap();
    assert_eq!(node.rows("SELECT v, writetime(v) FROM t"), ["'a' -1"]);
}
