//! Random histories of two tables, one with indexes and one without: every SELECT by an index has the same answer as
//! the same SELECT of the other table, which reads all rows.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use blockio::{Disk, OpenOptions, SimulatedDisk};
use engine::IndexedValues;
use model::KeyRange;
use query::{ProcessorOptions, QueryOptions, Turn};
use testkit::{Random, seeds};

use crate::node::{TestNode, rows_of, texts};

const STEPS: usize = 150;
/// The tables: with indexes, and without.
const TABLES: [&str; 2] = ["indexed", "plain"];
const COLUMNS: &str = "k1 int, k2 text, c1 int, c2 text, s int static, ss set<int> static, a int, b text, t text, x text, \
     d decimal, o boolean, i inet, y float, z blob, w timestamp, n varint, g uuid, l list<int>, e set<text>, m map<text, int>, f frozen<list<int>>, u frozen<pair>";
const TARGETS: [&str; 25] = [
    "k1",
    "k2",
    "c1",
    "c2",
    "s",
    "ss",
    "a",
    "b",
    "t",
    "x",
    "d",
    "o",
    "i",
    "y",
    "z",
    "w",
    "n",
    "g",
    "u",
    "l",
    "e",
    "keys(m)",
    "values(m)",
    "entries(m)",
    "full(f)",
];
/// The texts of the column whose index ignores case and accents.
const FOLDED: [&str; 6] = ["'Ab'", "'AB'", "'ab'", "'\u{c9}'", "'e'", "'E\u{301}'"];
/// The index of that column.
const FOLDING: &str = "USING 'sai' WITH OPTIONS = {'case_sensitive': 'false', 'normalize': 'true', 'ascii': 'true'}";
/// The texts of the column that is asked by LIKE, without regard to case.
const LIKED: [&str; 5] = ["'Hello world'", "'hello'", "'yellow mellow fellow'", "'Abc'", "'xABCx'"];
/// The index of that column.
const LIKING: &str = "USING 'org.apache.cassandra.index.sasi.SASIIndex' WITH OPTIONS = {'mode': 'CONTAINS', \
    'analyzer_class': 'org.apache.cassandra.index.sasi.analyzer.NonTokenizingAnalyzer', 'case_sensitive': 'false'}";
/// The conditions that are sent to the table with indexes, and to the one without.
const TEXT_CONDITIONS: [[&str; 2]; 8] = [
    ["t = 'aB'", "t IN ('Ab', 'AB', 'ab')"],
    ["t = '\u{e9}'", "t IN ('\u{c9}', 'e', 'E\u{301}')"],
    ["x LIKE '%ELL%'", "x IN ('Hello world', 'hello', 'yellow mellow fellow')"],
    ["x LIKE 'h%'", "x IN ('Hello world', 'hello')"],
    ["x LIKE '%ellow'", "x IN ('yellow mellow fellow', 'none')"],
    ["x LIKE '%low mellow FEL%'", "x IN ('yellow mellow fellow', 'none')"],
    ["x LIKE '%abc%'", "x IN ('Abc', 'xABCx')"],
    ["x LIKE 'HELLO'", "x IN ('hello', 'none')"],
];
/// An expiry that some reads are behind.
const TTL: i32 = 50;

struct Test {
    disk: SimulatedDisk,
    node: Option<TestNode>,
    random: Random,
    /// The targets that have an index.
    indexed: Vec<&'static str>,
    /// The time of the next statement, seconds since the epoch.
    now: i32,
}

fn now_seconds() -> i32 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs() as i32
}

fn node_on(disk: &SimulatedDisk) -> TestNode {
    let options = ProcessorOptions { sasi_indexes_enabled: true, ..ProcessorOptions::default() };
    TestNode::in_directory(disk, "/node", options)
}

impl Test {
    fn new(seed: u64) -> Test {
        let disk = SimulatedDisk::new();
        let node = node_on(&disk).with_keyspace();
        node.run("CREATE TYPE pair (x int, y text)");
        let order = "WITH CLUSTERING ORDER BY (c1 ASC, c2 DESC)";
        for table in TABLES {
            node.run(&format!("CREATE TABLE {table} ({COLUMNS}, PRIMARY KEY ((k1, k2), c1, c2)) {order}"));
        }
        Test { disk, node: Some(node), random: Random(seed), indexed: Vec::new(), now: now_seconds() }
    }

    fn node(&self) -> &TestNode {
        self.node.as_ref().unwrap()
    }

    /// Runs a statement about each table, whose name stands in place of `@`.
    fn run(&self, statement: &str) {
        for table in TABLES {
            let options = QueryOptions { now_in_seconds: Some(self.now), ..QueryOptions::default() };
            let statement = statement.replace('@', table);
            self.node().try_run(&statement, &options).unwrap_or_else(|error| panic!("{statement}: {error:?}"));
        }
    }

    fn number(&mut self, below: usize) -> String {
        self.random.below(below).to_string()
    }

    fn text(&mut self) -> String {
        format!("'{}'", ["", "x", "yy", "z\u{e9}"][self.random.below(4)])
    }

    /// A value of a column, or of an element of it.
    fn value(&mut self, column: &str) -> String {
        match column {
            "k2" => format!("'{}'", ["p", "q"][self.random.below(2)]),
            "c2" | "b" | "e" => self.text(),
            "t" => FOLDED[self.random.below(FOLDED.len())].to_owned(),
            "x" => LIKED[self.random.below(LIKED.len())].to_owned(),
            "d" => ["1", "1.0", "-2.50", "10"][self.random.below(4)].to_owned(),
            "o" => ["true", "false"][self.random.below(2)].to_owned(),
            "i" => ["'10.0.0.1'", "'::ffff:10.0.0.1'", "'::1'"][self.random.below(3)].to_owned(),
            "y" => ["0.0", "-0.0", "1.5", "NaN", "-Infinity"][self.random.below(5)].to_owned(),
            "z" => ["0x", "0x00", "0xff01"][self.random.below(3)].to_owned(),
            "w" => ["0", "-5", "1000"][self.random.below(3)].to_owned(),
            "n" => ["0", "-1", "300", "-300"][self.random.below(4)].to_owned(),
            "g" => format!("0000000{}-0000-{}000-8000-000000000000", self.number(2), 1 + self.random.below(4)),
            "m" => format!("{{{}: {}, {}: {}}}", self.text(), self.number(3), self.text(), self.number(3)),
            "f" => format!("[{}]", ["", "1", "1, 2"][self.random.below(3)]),
            "u" => format!("{{x: {}, y: {}}}", self.number(2), self.text()),
            _ => self.number(3),
        }
    }

    /// A value for a whole column.
    fn whole(&mut self, column: &str) -> String {
        match column {
            "l" => format!("[{}, {}]", self.number(3), self.number(3)),
            "e" => format!("{{{}, {}}}", self.text(), self.text()),
            "ss" => format!("{{{}}}", self.number(3)),
            _ if self.random.one_in(8) => "null".to_owned(),
            _ => self.value(column),
        }
    }

    fn partition(&mut self) -> String {
        format!("k1 = {} AND k2 = {}", self.number(3), self.value("k2"))
    }

    fn row(&mut self) -> String {
        format!("{} AND c1 = {} AND c2 = {}", self.partition(), self.number(4), self.text())
    }

    fn using(&mut self) -> String {
        let ttl = if self.random.one_in(6) { format!(" AND TTL {TTL}") } else { String::new() };
        format!("USING TIMESTAMP {}{ttl}", self.random.below(60))
    }

    fn write(&mut self) {
        let statement = match self.random.below(12) {
            0 => format!("UPDATE @ {} SET s = {} WHERE {}", self.using(), self.whole("s"), self.partition()),
            1 => format!("UPDATE @ {} SET ss = ss + {} WHERE {}", self.using(), self.whole("ss"), self.partition()),
            2 => {
                let (column, value) = [("l", "[1]"), ("e", "{'x'}"), ("m", "{'x': 1, 'yy': 2}")][self.random.below(3)];
                format!("UPDATE @ {} SET {column} = {column} + {value} WHERE {}", self.using(), self.row())
            }
            3 => format!("DELETE m['x'] FROM @ USING TIMESTAMP {} WHERE {}", self.number(60), self.row()),
            4 => format!("DELETE a, l, f FROM @ USING TIMESTAMP {} WHERE {}", self.number(60), self.row()),
            5 => format!("DELETE FROM @ USING TIMESTAMP {} WHERE {}", self.number(60), self.row()),
            6 => {
                let (partition, first) = (self.partition(), self.number(4));
                format!("DELETE FROM @ USING TIMESTAMP {} WHERE {partition} AND c1 >= {first}", self.number(40))
            }
            7 if self.random.one_in(3) => {
                format!("DELETE FROM @ USING TIMESTAMP {} WHERE {}", self.number(30), self.partition())
            }
            _ => {
                let columns: Vec<&str> =
                    ["a", "b", "t", "x", "d", "o", "i", "y", "z", "w", "n", "g", "l", "e", "m", "f", "u"]
                        .into_iter()
                        .filter(|_| self.random.one_in(2))
                        .collect();
                let mut names = "k1, k2, c1, c2".to_owned();
                let mut values =
                    format!("{}, {}, {}, {}", self.number(3), self.value("k2"), self.number(4), self.text());
                for column in columns {
                    names += &format!(", {column}");
                    values += &format!(", {}", self.whole(column));
                }
                format!("INSERT INTO @ ({names}) VALUES ({values}) {}", self.using())
            }
        };
        self.run(&statement);
    }

    /// A condition that the index of a target answers. Ranges are answered if it is storage-attached.
    fn condition(&mut self, target: &str) -> String {
        match target {
            "k1" | "c1" | "s" | "a" | "d" | "i" | "y" | "z" | "w" | "n" | "g" if self.random.one_in(2) => {
                match self.random.below(3) {
                    0 => format!("{target} > {}", self.value(target)),
                    1 => format!("{target} <= {}", self.value(target)),
                    _ => format!("{target} >= {} AND {target} < {}", self.value(target), self.value(target)),
                }
            }
            "t" => TEXT_CONDITIONS[self.random.below(2)][0].to_owned(),
            "x" => TEXT_CONDITIONS[2 + self.random.below(6)][0].to_owned(),
            "ss" => format!("ss CONTAINS {}", self.number(3)),
            "l" => format!("l CONTAINS {}", self.number(3)),
            "e" => format!("e CONTAINS {}", self.text()),
            "keys(m)" => format!("m CONTAINS KEY {}", self.text()),
            "values(m)" => format!("m CONTAINS {}", self.number(3)),
            "entries(m)" => format!("m[{}] = {}", self.text(), self.number(3)),
            "full(f)" => format!("f = {}", self.value("f")),
            column => format!("{column} = {}", self.value(column)),
        }
    }

    /// All pages of a SELECT, or the error of one.
    fn pages(&self, statement: &str, page_size: Option<i32>) -> Result<Vec<String>, String> {
        let (mut rows, mut state) = (Vec::new(), None::<Vec<u8>>);
        loop {
            let now_in_seconds = Some(self.now);
            let options =
                QueryOptions { page_size, paging_state: state.as_deref(), now_in_seconds, ..QueryOptions::default() };
            let answer = self.node().try_run(statement, &options).map_err(|error| error.message)?;
            let page = rows_of(answer);
            rows.extend(texts(&page));
            state = page.paging_state;
            if state.is_none() {
                return Ok(rows);
            }
        }
    }

    fn compare(&mut self) {
        if self.indexed.is_empty() {
            return;
        }
        let target = self.indexed[self.random.below(self.indexed.len())];
        let mut conditions = vec![self.condition(target)];
        let is_of_key = ["k1", "k2", "c1", "c2"].contains(&target);
        match self.random.below(8) {
            0 if !is_of_key => conditions.push(self.partition()),
            1 if !is_of_key => conditions.push(format!("{} AND c1 > {}", self.partition(), self.number(2))),
            2 => conditions.push(format!("token(k1, k2) > {}", (self.random.number() as i64) / 4)),
            3 if target != "a" => conditions.push(format!("a >= {}", self.number(3))),
            4 if target != "c1" => conditions.push(format!("c1 > {}", self.number(3))),
            _ => {}
        }
        let suffix = match self.random.below(5) {
            0 => format!("LIMIT {}", 1 + self.random.below(3)),
            1 => "PER PARTITION LIMIT 2".to_owned(),
            _ => String::new(),
        };
        let (selected, group) = match self.random.below(6) {
            0 => ("count(*)", ""),
            1 => ("k1, k2, count(*)", "GROUP BY k1, k2"),
            2 => ("k1, k2, s, a", ""),
            _ => ("*", ""),
        };
        let suffix = if selected == "count(*)" { String::new() } else { suffix };
        let conditions = conditions.join(" AND ");
        let statement = format!("SELECT {selected} FROM @ WHERE {conditions} {group} {suffix} ALLOW FILTERING");
        let page_size = [None, Some(1), Some(3)][self.random.below(3)];
        let [found, expected] = [0, 1].map(|place| {
            let statement = statement.replace('@', TABLES[place]);
            let folded = |statement: String, [of_index, of_other]: [&str; 2]| match place {
                0 => statement,
                _ => statement.replace(of_index, of_other),
            };
            self.pages(&TEXT_CONDITIONS.into_iter().fold(statement, folded), page_size)
        });
        assert_eq!(found, expected, "{statement} with pages of {page_size:?}");
    }

    fn create_index(&mut self, target: &'static str) {
        if !self.indexed.contains(&target) {
            let class = match target {
                "t" => FOLDING,
                "x" => LIKING,
                // No storage-attached index takes blobs.
                "z" => "",
                _ => ["", "USING 'sai'"][self.random.below(2)],
            };
            self.node().run(&format!("CREATE INDEX ON indexed ({target}) {class}"));
            self.indexed.push(target);
        }
    }

    fn drop_index(&mut self) {
        if self.indexed.is_empty() {
            return;
        }
        let target = self.indexed.swap_remove(self.random.below(self.indexed.len()));
        let schema = self.node().processor.schema();
        let table = schema.table("ks", "indexed").unwrap();
        let is_it = |index: &&model::Index| target_matches(index.target(), target);
        let name = table.indexes().iter().find(is_it).unwrap().name.clone();
        self.node().run(&format!("DROP INDEX {name}"));
    }

    /// Waits until every index is complete: from now on searches use them.
    fn await_indexes(&self) {
        let engine = self.node().processor.engine();
        let schema = engine.schema();
        let table = schema.table("ks", "indexed").unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        let is_complete = |index: &model::Index| {
            let (values, all) = (IndexedValues::One(b""), KeyRange::all());
            let found = engine.index_candidates(table, index, values, &all, Turn::BLOCKING);
            // A damaged file is built again.
            found.is_ok_and(|found| found.is_some())
        };
        while !table.indexes().iter().all(is_complete) {
            assert!(Instant::now() < deadline, "the indexes are not built");
            std::thread::sleep(Duration::from_millis(1));
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
        match self.random.below(3) {
            0 => drop(self.disk.remove_dir_all(Path::new("/node/index"))),
            1 => self.damage_a_file(),
            _ => {}
        }
        let mut node = node_on(&self.disk);
        node.use_keyspace("ks");
        self.node = Some(node);
    }

    /// Changes a byte of an index file.
    fn damage_a_file(&mut self) {
        let files = files_below(&self.disk, Path::new("/node/index"));
        if files.is_empty() {
            return;
        }
        let file = self.disk.open(&files[self.random.below(files.len())], OpenOptions::write()).unwrap();
        let at = self.random.below(file.len().unwrap() as usize) as u64;
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_at(&[byte[0] ^ 0x10], at).unwrap();
        file.sync_data().unwrap();
    }

    fn step(&mut self) {
        let table = |test: &Test| test.node().processor.schema().table("ks", "indexed").unwrap().clone();
        match self.random.below(40) {
            0 | 1 => self.node().processor.engine().flush(&table(self)).unwrap(),
            2 => self.node().processor.engine().compact(&table(self)).unwrap(),
            3 => self.restart(),
            4 => {
                let target = TARGETS[self.random.below(TARGETS.len())];
                self.create_index(target);
            }
            5 if self.random.one_in(3) => self.drop_index(),
            6 => self.await_indexes(),
            7 => self.now += 20,
            8 if self.random.one_in(6) => self.run("TRUNCATE @"),
            9..=22 => self.write(),
            _ => self.compare(),
        }
    }
}

/// Whether a stored target is the one that was written.
fn target_matches(stored: &str, written: &str) -> bool {
    stored == written || stored == format!("values({written})")
}

fn files_below(disk: &SimulatedDisk, directory: &Path) -> Vec<PathBuf> {
    let entries = disk.list(directory).unwrap_or_default();
    let below = |entry: blockio::DirectoryEntry| match entry.is_dir {
        true => files_below(disk, &directory.join(entry.name)),
        false => vec![directory.join(entry.name)],
    };
    entries.into_iter().flat_map(below).collect()
}

#[test]
fn a_select_by_an_index_has_the_answer_of_a_scan() {
    for seed in seeds(0..12) {
        println!("SEED={seed}");
        let mut test = Test::new(seed);
        if seed % 3 == 0 {
            TARGETS.iter().for_each(|target| test.create_index(target));
        }
        (0..STEPS).for_each(|_| test.step());
        TARGETS.iter().for_each(|target| test.create_index(target));
        test.await_indexes();
        (0..60).for_each(|_| test.compare());
    }
}
