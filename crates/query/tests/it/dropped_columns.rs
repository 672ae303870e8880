//! Random histories of ADD, DROP and repeated ADD, writes with timestamps, flushes, compactions and crashes, compared
//! with a list of all writes.
//!
//! As in Cassandra, a drop deletes the cells that are not newer than it. Reads never return them, and a flush or
//! compaction removes them from storage. Newer cells are kept, and are visible when the column is added again.

use std::collections::{BTreeMap, BTreeSet};

use blockio::SimulatedDisk;
use testkit::{Random, seeds};

use crate::node::TestNode;

const PARTITIONS: usize = 2;
const ROWS: usize = 2;
const STEPS: usize = 160;
/// The timestamps of writes and drops. They are few, so that equal ones occur.
const TIMESTAMPS: usize = 60;

/// Static columns, simple ones and collections.
const COLUMNS: [(&str, &str); 6] =
    [("a", "int"), ("b", "int"), ("d", "set<int>"), ("e", "set<int>"), ("s", "int static"), ("u", "set<int> static")];

/// A row, or the static row of a partition (no clustering).
type Place = (usize, Option<usize>);

/// The content of one write to a cell or collection.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Said {
    /// A value, or nothing if it was deleted.
    Value(Option<usize>),
    /// An element of a set was added or removed.
    Element(usize, bool),
    /// The content of a set was deleted.
    Cleared,
}

#[derive(Clone, Debug)]
struct Write {
    place: Place,
    column: usize,
    timestamp: i64,
    said: Said,
}

#[derive(Default)]
struct Model {
    shown: BTreeSet<usize>,
    drop_times: BTreeMap<usize, i64>,
    in_memory: Vec<Write>,
    on_disk: Vec<Write>,
    /// The times at which rows were last inserted and deleted.
    inserted: BTreeMap<Place, i64>,
    deleted: BTreeMap<Place, i64>,
}

impl Model {
    fn is_kept(&self, write: &Write) -> bool {
        self.drop_times.get(&write.column).is_none_or(|dropped| write.timestamp > *dropped)
    }

    fn flush(&mut self) {
        let flushed = std::mem::take(&mut self.in_memory);
        let kept: Vec<Write> = flushed.into_iter().filter(|write| self.is_kept(write)).collect();
        self.on_disk.extend(kept);
    }

    fn compact(&mut self) {
        self.flush();
        let stored = std::mem::take(&mut self.on_disk);
        self.on_disk = stored.into_iter().filter(|write| self.is_kept(write)).collect();
    }

    fn writes(&self, place: Place, column: usize) -> impl Iterator<Item = &Write> {
        let deleted = self.deleted.get(&place).copied().unwrap_or(i64::MIN);
        let all = self.in_memory.iter().chain(&self.on_disk);
        all.filter(move |write| {
            write.place == place && write.column == column && write.timestamp > deleted && self.is_kept(write)
        })
    }

    /// The visible value of a column, as a CQL literal.
    fn value(&self, place: Place, column: usize) -> Option<String> {
        if !COLUMNS[column].1.starts_with("set") {
            // Of equal timestamps a deletion wins, or else the greater value.
            let order = |write: &&Write| match write.said {
                Said::Value(value) => (write.timestamp, value.is_none(), value),
                _ => unreachable!("a simple column"),
            };
            let newest = self.writes(place, column).max_by_key(order)?;
            let Said::Value(value) = newest.said else { unreachable!("a simple column") };
            return value.map(|value| value.to_string());
        }
        let cleared = self.writes(place, column).filter(|write| write.said == Said::Cleared);
        let cleared = cleared.map(|write| write.timestamp).max().unwrap_or(i64::MIN);
        let mut elements: BTreeMap<usize, (i64, bool)> = BTreeMap::new();
        for write in self.writes(place, column).filter(|write| write.timestamp > cleared) {
            if let Said::Element(element, is_there) = write.said {
                let said = (write.timestamp, !is_there);
                elements.entry(element).and_modify(|newest| *newest = said.max(*newest)).or_insert(said);
            }
        }
        let there = elements.iter().filter(|(_, (_, removed))| !removed);
        let there: Vec<String> = there.map(|(element, _)| element.to_string()).collect();
        (!there.is_empty()).then(|| format!("{{{}}}", there.join(", ")))
    }

    fn shown_values(&self, place: Place, is_static: bool) -> Vec<Option<String>> {
        let columns = self.shown.iter().filter(|column| COLUMNS[**column].1.ends_with("static") == is_static);
        columns.map(|column| self.value(place, *column)).collect()
    }

    /// All rows: k, c, then the visible static and regular columns.
    fn rows(&self) -> Vec<String> {
        let mut rows = Vec::new();
        for partition in 0..PARTITIONS {
            let statics = self.shown_values((partition, None), true);
            let mut any = false;
            for row in 0..ROWS {
                let place = (partition, Some(row));
                let regulars = self.shown_values(place, false);
                let deleted = self.deleted.get(&place).copied().unwrap_or(i64::MIN);
                let is_inserted = self.inserted.get(&place).is_some_and(|timestamp| *timestamp > deleted);
                if is_inserted || regulars.iter().any(Option::is_some) {
                    any = true;
                    rows.push(row_text(partition, Some(row), &statics, &regulars));
                }
            }
            if !any && statics.iter().any(Option::is_some) {
                let nothing = vec![None; self.shown_values((partition, Some(0)), false).len()];
                rows.push(row_text(partition, None, &statics, &nothing));
            }
        }
        rows.sort();
        rows
    }
}

fn row_text(k: usize, c: Option<usize>, statics: &[Option<String>], regulars: &[Option<String>]) -> String {
    let mut parts = vec![k.to_string(), c.map_or("null".into(), |c| c.to_string())];
    parts.extend(statics.iter().chain(regulars).map(|value| value.clone().unwrap_or("null".into())));
    parts.join(" ")
}

struct History {
    random: Random,
    disk: SimulatedDisk,
    node: TestNode,
    model: Model,
    log: Vec<String>,
}

impl History {
    fn new(seed: u64) -> History {
        let disk = SimulatedDisk::new();
        let node = TestNode::on_disk(&disk).with_keyspace();
        node.run("CREATE TABLE t (k int, c int, PRIMARY KEY (k, c))");
        History { random: Random(seed), disk, node, model: Model::default(), log: Vec::new() }
    }

    fn run(&mut self, statement: &str) {
        self.log.push(statement.to_owned());
        self.node.run(statement);
    }

    fn timestamp(&mut self) -> i64 {
        1 + self.random.below(TIMESTAMPS) as i64
    }

    fn step(&mut self) {
        match self.random.below(20) {
            0..=2 => self.add(),
            3..=4 => self.drop_column(),
            5 => self.insert_or_delete_row(),
            6 => self.flush(),
            7 if self.random.one_in(2) => self.compact(),
            8 if self.random.one_in(2) => self.restart(),
            _ => self.write(),
        }
    }

    fn add(&mut self) {
        let column = self.random.below(COLUMNS.len());
        if self.model.shown.insert(column) {
            let (name, ty) = COLUMNS[column];
            self.run(&format!("ALTER TABLE t ADD {name} {ty}"));
        }
    }

    fn drop_column(&mut self) {
        let column = self.random.below(COLUMNS.len());
        if self.model.shown.remove(&column) {
            let timestamp = self.timestamp();
            self.model.drop_times.insert(column, timestamp);
            self.run(&format!("ALTER TABLE t DROP {} USING TIMESTAMP {timestamp}", COLUMNS[column].0));
        }
    }

    fn insert_or_delete_row(&mut self) {
        let (k, c, timestamp) = (self.random.below(PARTITIONS), self.random.below(ROWS), self.timestamp());
        let (times, statement) = match self.random.one_in(2) {
            true => {
                let insert = format!("INSERT INTO t (k, c) VALUES ({k}, {c}) USING TIMESTAMP {timestamp}");
                (&mut self.model.inserted, insert)
            }
            false => {
                let delete = format!("DELETE FROM t USING TIMESTAMP {timestamp} WHERE k = {k} AND c = {c}");
                (&mut self.model.deleted, delete)
            }
        };
        let newest = times.entry((k, Some(c))).or_insert(timestamp);
        *newest = timestamp.max(*newest);
        self.run(&statement);
    }

    fn write(&mut self) {
        let shown: Vec<usize> = self.model.shown.iter().copied().collect();
        if shown.is_empty() {
            return;
        }
        let column = shown[self.random.below(shown.len())];
        let (name, ty) = COLUMNS[column];
        let k = self.random.below(PARTITIONS);
        let c = (!ty.ends_with("static")).then(|| self.random.below(ROWS));
        let (timestamp, value) = (self.timestamp(), self.random.below(5));
        let mut says = |timestamp, said| {
            self.model.in_memory.push(Write { place: (k, c), column, timestamp, said });
        };
        let assignment = match (ty.starts_with("set"), self.random.below(4)) {
            (false, 0) => {
                says(timestamp, Said::Value(None));
                format!("{name} = null")
            }
            (false, _) => {
                says(timestamp, Said::Value(Some(value)));
                format!("{name} = {value}")
            }
            (true, 0) => {
                // A set is overwritten by a deletion with the timestamp just before that of the new elements.
                says(timestamp - 1, Said::Cleared);
                says(timestamp, Said::Element(value, true));
                format!("{name} = {{{value}}}")
            }
            (true, 1) => {
                says(timestamp, Said::Element(value, false));
                format!("{name} = {name} - {{{value}}}")
            }
            (true, _) => {
                says(timestamp, Said::Element(value, true));
                format!("{name} = {name} + {{{value}}}")
            }
        };
        let row = c.map_or(String::new(), |c| format!(" AND c = {c}"));
        self.run(&format!("UPDATE t USING TIMESTAMP {timestamp} SET {assignment} WHERE k = {k}{row}"));
    }

    fn flush(&mut self) {
        self.log.push("flush".into());
        let engine = self.node.processor.engine();
        engine.flush(engine.schema().table("ks", "t").unwrap()).unwrap();
        self.model.flush();
    }

    fn compact(&mut self) {
        self.log.push("compact".into());
        let engine = self.node.processor.engine();
        engine.compact(engine.schema().table("ks", "t").unwrap()).unwrap();
        self.model.compact();
    }

    /// Cuts the power, or stops the node in an orderly way, which flushes. A start flushes the replayed records.
    fn restart(&mut self) {
        let is_crash = self.random.one_in(2);
        self.log.push(if is_crash { "crash" } else { "stop and start" }.into());
        if !is_crash {
            self.node.processor.engine().shutdown().unwrap();
        }
        self.model.flush();
        self.disk = self.disk.crash_image(self.random.number());
        self.node = TestNode::on_disk(&self.disk);
        self.node.use_keyspace("ks");
    }

    fn check(&self, seed: u64) {
        let statics = self.shown_names(true);
        let names: Vec<&str> = ["k", "c"].into_iter().chain(statics).chain(self.shown_names(false)).collect();
        let expected = self.model.rows();
        let history = || format!("seed {seed}:\n{}", self.log.join(";\n"));
        let mut rows = self.node.rows(&format!("SELECT {} FROM t", names.join(", ")));
        rows.sort();
        assert_eq!(rows, expected, "{}", history());
        let mut rows = self.node.rows("SELECT * FROM t");
        rows.sort();
        assert_eq!(rows, expected, "SELECT *, {}", history());
        assert_eq!(self.node.rows("SELECT count(*) FROM t"), [expected.len().to_string()], "{}", history());
    }

    fn shown_names(&self, is_static: bool) -> Vec<&'static str> {
        let shown = self.model.shown.iter().map(|column| COLUMNS[*column]);
        shown.filter(|(_, ty)| ty.ends_with("static") == is_static).map(|(name, _)| name).collect()
    }
}

#[test]
fn cells_newer_than_a_drop_return_with_the_column() {
    for seed in seeds(0..20) {
        let mut history = History::new(seed);
        for _ in 0..STEPS {
            history.step();
            history.check(seed);
        }
    }
}
