//! Index files that something else took the place of, and damaged ones.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use testkit::TemporaryDirectory;

use crate::admin::control;
use crate::node::Node;

/// How long a build may take on a busy machine.
const BUILD_TIME: Duration = Duration::from_secs(60);

/// The files in a directory and below it.
fn files_below(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect()
}

/// The index files of the node, once this many are built.
fn built_files(data: &Path, count: usize) -> Vec<PathBuf> {
    let deadline = Instant::now() + BUILD_TIME;
    loop {
        let mut files = files_below(&data.join("index"));
        files.retain(|file| file.extension().is_some_and(|extension| extension == "db"));
        if files.len() == count {
            return files;
        }
        assert!(Instant::now() < deadline, "{} index files are built: {files:?}", files.len());
        sleep(Duration::from_millis(20));
    }
}

/// The only index file of the node, once it is built.
fn built_file(data: &Path) -> PathBuf {
    built_files(data, 1).remove(0)
}

#[test]
fn other_files_with_the_names_of_index_files_are_replaced() {
    let directory = TemporaryDirectory::create();
    let data = directory.join("data");
    let node = Node::start(&data);
    node.query("CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
    node.query("CREATE TABLE k.t (a int PRIMARY KEY, v int)");
    node.query("CREATE INDEX ON k.t (v)");
    node.query("INSERT INTO k.t (a, v) VALUES (1, 2)");
    node.signal("TERM");
    node.end();
    let node = Node::start(&data);
    node.query("SELECT * FROM k.t WHERE v = 2");
    let index = built_file(&data);
    node.signal("TERM");
    node.end();
    let of_sstable = index.parent().unwrap().to_path_buf();
    let of_table = of_sstable.parent().unwrap().to_path_buf();
    let obstacles: [(&str, &dyn Fn()); 4] = [
        ("a directory in place of the file", &|| {
            fs::remove_file(&index).unwrap();
            fs::create_dir(&index).unwrap();
        }),
        ("a file in place of the SSTable's directory", &|| {
            fs::remove_dir_all(&of_sstable).unwrap();
            fs::write(&of_sstable, "").unwrap();
        }),
        ("a file in place of the directory of all", &|| {
            fs::remove_dir_all(data.join("index")).unwrap();
            fs::write(data.join("index"), "").unwrap();
        }),
        ("a stray file", &|| fs::write(of_table.join("stray"), "").unwrap()),
    ];
    for (what, make) in obstacles {
        make();
        let node = Node::start(&data);
        node.query("SELECT * FROM k.t WHERE v = 2");
        assert_eq!(built_file(&data), index, "{what}");
        node.query("SELECT * FROM k.t WHERE v = 2");
        node.signal("TERM");
        let (status, log) = node.end();
        assert_eq!(status, Some(0), "{what}: {log}");
        assert!(!log.contains("the disk failed"), "{what}: {log}");
    }
}

#[test]
fn pages_that_are_damaged_in_the_middle_of_a_search_hide_no_row_and_fail_no_statement() {
    const ROWS: u32 = 2000;
    let directory = TemporaryDirectory::create();
    let data = directory.join("data");
    let node = Node::start(&data);
    node.query("CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
    node.query("CREATE TABLE k.t (a int, b int, v int, w int, PRIMARY KEY (a, b))");
    for column in ["v", "w"] {
        node.query(&format!("CREATE INDEX ON k.t ({column}) USING 'sai'"));
    }
    for a in 0..ROWS / 100 {
        let inserts = (0..100).map(|b| format!("INSERT INTO k.t (a, b, v, w) VALUES ({a}, {b}, 2, 3);"));
        node.query(&format!("BEGIN UNLOGGED BATCH {} APPLY BATCH", inserts.collect::<String>()));
    }
    node.signal("TERM");
    node.end();
    let node = Node::start(&data);
    let indexes = built_files(&data, 2);
    node.signal("TERM");
    node.end();
    // One statement uses both indexes, and meets the second damage when it begins anew because of the first.
    for index in indexes {
        let mut bytes = fs::read(&index).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(&index, &bytes).unwrap();
    }
    let node = Node::start(&data);
    for filter in ["v = 2 AND w = 3", "v = 2", "w = 3"] {
        assert_eq!(node.row_count(&format!("SELECT * FROM k.t WHERE {filter}")), ROWS, "{filter}");
    }
    node.signal("TERM");
    let (status, log) = node.end();
    assert_eq!(status, Some(0), "{log}");
}

/// Starts a node whose table `k.t` has one SSTable, and stops it again. Returns the Data.db.
fn stopped_with_sstable(data: &Path) -> PathBuf {
    let node = Node::start(data);
    node.query("CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
    node.query("CREATE TABLE k.t (a int PRIMARY KEY, v int)");
    (0..100).for_each(|a| node.query(&format!("INSERT INTO k.t (a, v) VALUES ({a}, 2)")));
    control(data, &["flush", "k", "t"]);
    node.query("CREATE INDEX by_v ON k.t (v)");
    built_file(data);
    node.signal("TERM");
    node.end();
    let mut files = files_below(&data.join("k"));
    files.extend(files_below(&data.join("data/k")));
    files.into_iter().find(|file| file.to_string_lossy().ends_with("Data.db")).unwrap()
}

#[test]
fn the_status_and_the_log_say_which_indexes_are_being_built() {
    let directory = TemporaryDirectory::create();
    let data = directory.join("data");
    let rows = stopped_with_sstable(&data);
    fs::remove_dir_all(data.join("index")).unwrap();
    let mut bytes = fs::read(&rows).unwrap();
    let sound = bytes.clone();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&rows, &bytes).unwrap();
    // The index cannot be built from damaged rows.
    let node = Node::start(&data);
    let status = control(&data, &["status"]);
    assert!(status.contains("Index being built        : k.by_v: 0 of 1 SSTables\n"), "{status}");
    node.signal("TERM");
    node.end();
    fs::write(&rows, &sound).unwrap();
    let node = Node::start(&data);
    built_file(&data);
    // The file has its name a moment before the index is complete.
    let deadline = Instant::now() + BUILD_TIME;
    while control(&data, &["status"]).contains("Index being built") {
        assert!(Instant::now() < deadline, "the index is not complete");
        sleep(Duration::from_millis(20));
    }
    let started = node.started.clone();
    node.signal("TERM");
    let (_, log) = node.end();
    assert!(format!("{started}{log}").contains("building the indexes of SSTable"), "{started}{log}");
}
