//! Random histories of two tables without clustering, one with indexes and one without: rows that are looked up where
//! the index of an SSTable says are those that a scan of the other table finds, whatever other sources have of them.

use std::time::{Duration, Instant};

use engine::IndexedValues;
use model::KeyRange;
use query::{QueryOptions, Turn};
use testkit::{Random, seeds};

use crate::node::{TestNode, rows_of, texts};

const TABLES: [&str; 2] = ["indexed", "plain"];
const KEYS: usize = 120;
const STEPS: usize = 400;

struct Test {
    node: TestNode,
    random: Random,
}

impl Test {
    fn new(seed: u64) -> Test {
        let node = TestNode::new().with_keyspace();
        for table in TABLES {
            node.run(&format!("CREATE TABLE {table} (k int PRIMARY KEY, a int, b text)"));
        }
        ["a", "b"].iter().for_each(|column| drop(node.run(&format!("CREATE INDEX ON indexed ({column}) USING 'sai'"))));
        Test { node, random: Random(seed) }
    }

    fn write(&mut self) {
        let (key, a, b) = (self.random.below(KEYS), self.random.below(5), self.random.below(9));
        let statement = match self.random.below(10) {
            0 => format!("DELETE FROM @ WHERE k = {key}"),
            1 => format!("DELETE a FROM @ WHERE k = {key}"),
            2 => format!("UPDATE @ SET b = 'text {b}' WHERE k = {key}"),
            _ => format!("INSERT INTO @ (k, a, b) VALUES ({key}, {a}, 'text {b}')"),
        };
        TABLES.iter().for_each(|table| drop(self.node.run(&statement.replace('@', table))));
    }

    fn pages(&self, statement: &str, page_size: Option<i32>) -> Vec<String> {
        let (mut rows, mut state) = (Vec::new(), None::<Vec<u8>>);
        loop {
            let options = QueryOptions { page_size, paging_state: state.as_deref(), ..QueryOptions::default() };
            let page = rows_of(self.node.try_run(statement, &options).unwrap());
            rows.extend(texts(&page));
            state = page.paging_state;
            if state.is_none() {
                return rows;
            }
        }
    }

    fn compare(&mut self) {
        let (a, b) = (self.random.below(5), self.random.below(9));
        let condition = match self.random.below(4) {
            0 => format!("a = {a}"),
            1 => format!("b = 'text {b}'"),
            2 => format!("a >= {a}"),
            _ => format!("a = {a} AND b = 'text {b}'"),
        };
        let page_size = [None, Some(1), Some(7)][self.random.below(3)];
        let [found, expected] = TABLES
            .map(|table| self.pages(&format!("SELECT * FROM {table} WHERE {condition} ALLOW FILTERING"), page_size));
        assert_eq!(found, expected, "{condition} with pages of {page_size:?}");
    }

    fn await_indexes(&self) {
        let engine = self.node.processor.engine();
        let schema = engine.schema();
        let table = schema.table("ks", "indexed").unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        let is_complete = |index: &model::Index| {
            let (values, all) = (IndexedValues::One(b""), KeyRange::all());
            let found = engine.index_candidates(table, index, values, &all, Turn::BLOCKING);
            found.is_ok_and(|found| found.is_some())
        };
        while !table.indexes().iter().all(is_complete) {
            assert!(Instant::now() < deadline, "the indexes are not built");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn step(&mut self) {
        let table = self.node.processor.schema().table("ks", "indexed").unwrap().clone();
        match self.random.below(60) {
            0..=2 => self.node.processor.engine().flush(&table).unwrap(),
            3 => self.node.processor.engine().compact(&table).unwrap(),
            4 => self.await_indexes(),
            5..=39 => self.write(),
            _ => self.compare(),
        }
    }
}

#[test]
fn rows_that_an_index_leads_to_are_those_of_a_scan() {
    for seed in seeds(0..10) {
        println!("SEED={seed}");
        let mut test = Test::new(seed);
        (0..STEPS).for_each(|_| test.step());
        test.await_indexes();
        (0..40).for_each(|_| test.compare());
    }
}
