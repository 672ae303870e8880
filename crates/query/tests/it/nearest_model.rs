//! Random histories of two tables, one with indexes and one without: an order by similarity gives the rows that sorting
//! all rows of the other table gives.

use std::path::Path;

use blockio::{Disk, SimulatedDisk};
use query::QueryOptions;
use testkit::{Random, seeds};

use crate::node::TestNode;

const STEPS: usize = 120;
const TABLES: [&str; 2] = ["indexed", "plain"];
const SIMILARITIES: [&str; 3] = ["cosine", "euclidean", "dot_product"];
/// An expiry that some reads are behind.
const TTL: i32 = 50;
/// The functions and the index add up numbers in different orders. It is relative to scores above 1.
const TOLERANCE: f32 = 1e-5;

struct Test {
    disk: SimulatedDisk,
    node: Option<TestNode>,
    random: Random,
    similarity: &'static str,
    now: i32,
}

fn now_seconds() -> i32 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs() as i32
}

impl Test {
    fn new(seed: u64) -> Test {
        let disk = SimulatedDisk::new();
        let node = TestNode::on_disk(&disk).with_keyspace();
        for table in TABLES {
            node.run(&format!("CREATE TABLE {table} (p int, c int, a int, v vector<float, 3>, PRIMARY KEY (p, c))"));
        }
        let mut random = Random(seed);
        let similarity = SIMILARITIES[random.below(3)];
        let test = Test { disk, node: Some(node), random, similarity, now: now_seconds() };
        let options = format!("WITH OPTIONS = {{'similarity_function': '{similarity}'}}");
        test.node().run(&format!("CREATE INDEX by_v ON indexed (v) USING 'sai' {options}"));
        test.node().run("CREATE INDEX by_a ON indexed (a) USING 'sai'");
        test
    }

    fn node(&self) -> &TestNode {
        self.node.as_ref().unwrap()
    }

    fn run(&self, statement: &str) {
        for table in TABLES {
            let options = QueryOptions { now_in_seconds: Some(self.now), ..QueryOptions::default() };
            let statement = statement.replace('%', table);
            self.node().try_run(&statement, &options).unwrap_or_else(|error| panic!("{statement}: {error:?}"));
        }
    }

    /// A vector of which few others are as far away from a third one. Some are much longer than the others.
    fn vector(&mut self) -> String {
        let length = if self.random.one_in(12) { 1e4 } else { 1.0 };
        let element = |random: &mut Random| (random.below(2000) as f32 - 1000.5) / 512.0 * length;
        let elements: Vec<String> = (0..3).map(|_| element(&mut self.random).to_string()).collect();
        format!("[{}]", elements.join(", "))
    }

    fn write(&mut self) {
        let (p, c, a) = (self.random.below(3), self.random.below(12), self.random.below(3));
        let timestamp = self.random.below(60);
        let using = match self.random.one_in(6) {
            true => format!("USING TIMESTAMP {timestamp} AND TTL {TTL}"),
            false => format!("USING TIMESTAMP {timestamp}"),
        };
        let statement = match self.random.below(10) {
            0 => format!("DELETE FROM % USING TIMESTAMP {timestamp} WHERE p = {p} AND c = {c}"),
            1 => format!("DELETE v FROM % USING TIMESTAMP {timestamp} WHERE p = {p} AND c = {c}"),
            2 => format!("DELETE FROM % USING TIMESTAMP {timestamp} WHERE p = {p} AND c > {c}"),
            3 => format!("UPDATE % {using} SET a = {a} WHERE p = {p} AND c = {c}"),
            _ => {
                let vector = self.vector();
                format!("INSERT INTO % (p, c, a, v) VALUES ({p}, {c}, {a}, {vector}) {using}")
            }
        };
        self.run(&statement);
    }

    /// The rows of a SELECT as their text and their similarity, which is the last column.
    fn found(&self, statement: &str) -> Vec<(String, f32)> {
        let options = QueryOptions { now_in_seconds: Some(self.now), ..QueryOptions::default() };
        let rows = self.node().rows_with(statement, &options);
        let split = |row: String| {
            let (key, score) = row.rsplit_once(' ').unwrap();
            Some((key.to_owned(), score.parse().ok()?))
        };
        rows.into_iter().filter_map(split).collect()
    }

    fn compare(&mut self) {
        let (wanted, limit) = (self.vector(), 1 + self.random.below(12));
        let (p, a) = (self.random.below(3), self.random.below(3));
        let condition = match self.random.below(7) {
            0 => format!("WHERE p = {p}"),
            1 => format!("WHERE a = {a}"),
            2 => format!("WHERE a >= {a} AND p = {p}"),
            3 => format!("WHERE p = {p} AND c > {a}"),
            4 => format!("WHERE token(p) > {}", (self.random.number() as i64) / 4),
            _ => String::new(),
        };
        let selected = format!("SELECT p, c, a, similarity_{}(v, {wanted})", self.similarity);
        let search = format!("{selected} FROM indexed {condition} ORDER BY v ANN OF {wanted} LIMIT {limit}");
        let found = self.found(&search);
        let mut expected = self.found(&format!("{selected} FROM plain {condition} ALLOW FILTERING"));
        expected.sort_by(|(_, one), (_, other)| other.total_cmp(one));
        assert_eq!(found.len(), limit.min(expected.len()), "{search}: {found:?} of {expected:?}");
        for (place, (row, score)) in found.iter().enumerate() {
            let (_, best) = &expected[place];
            assert!((score - best).abs() <= TOLERANCE * best.abs().max(1.0), "{search}: {found:?} of {expected:?}");
            assert!(expected.iter().any(|(known, _)| known == row), "{search}: {row} is not there");
        }
    }

    fn restart(&mut self) {
        let node = self.node.take().unwrap();
        match self.random.below(3) {
            0 => node.processor.engine().shutdown().unwrap(),
            1 => self.disk = self.disk.crash_image(self.random.number()),
            _ => {}
        }
        drop(node);
        if self.random.one_in(3) {
            drop(self.disk.remove_dir_all(Path::new("/node/index")));
        }
        let mut node = TestNode::on_disk(&self.disk);
        node.use_keyspace("ks");
        self.node = Some(node);
    }

    fn step(&mut self) {
        let table = |test: &Test| test.node().processor.schema().table("ks", "indexed").unwrap().clone();
        match self.random.below(40) {
            0 | 1 => self.node().processor.engine().flush(&table(self)).unwrap(),
            2 => self.node().processor.engine().compact(&table(self)).unwrap(),
            3 => self.restart(),
            4 => self.now += 20,
            5 if self.random.one_in(6) => self.run("TRUNCATE %"),
            6..=24 => self.write(),
            _ => self.compare(),
        }
    }
}

#[test]
fn an_order_by_similarity_has_the_rows_of_a_sorted_scan() {
    for seed in seeds(0..10) {
        println!("SEED={seed}");
        let mut test = Test::new(seed);
        (0..STEPS).for_each(|_| test.step());
        (0..30).for_each(|_| test.compare());
    }
}
