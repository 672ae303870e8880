//! Tables of mode `storage`: what Cassandra serialized is read back from the engine, from memory and from SSTables,
//! after a restart and a crash.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jni::{Choice, PluginMemtable, Store};
use uuid::Uuid;

use crate::vectors::{ALL_KEYS, Vector, content, vectors};

/// A directory that is removed at the end of a test.
pub(crate) struct Directory(PathBuf);

impl Directory {
    pub(crate) fn new() -> Directory {
        Directory(std::env::temp_dir().join(format!("espalier-jni-{}", Uuid::new_v4())))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes(), text.as_bytes()].concat()
}

/// Opens the engine. An engine that was dropped keeps the directory in use until what it had begun has ended.
pub(crate) fn open(directory: &Path) -> Arc<Store> {
    open_with_cache(directory, 64 << 20)
}

fn open_with_cache(directory: &Path, cache_bytes: i64) -> Arc<Store> {
    let sizes = [64 << 20, cache_bytes].map(i64::to_be_bytes).concat();
    let request = [text(directory.to_str().unwrap()), text("batch"), vec![0; 8], sizes];
    for _ in 0..3_000 {
        match Store::open(&request.concat()) {
            Err(error) if error.contains("is in use") => std::thread::sleep(Duration::from_millis(10)),
            opened => return Arc::new(opened.unwrap()),
        }
    }
    panic!("{directory:?} stays in use");
}

fn table(store: &Arc<Store>, vector: &Vector, choice: Choice) -> Option<PluginMemtable> {
    PluginMemtable::open_stored(store, vector.table, choice).unwrap()
}

/// The id of a vector's table.
fn id(vector: &Vector) -> [u8; 16] {
    *vector.table.first_chunk().unwrap()
}

fn assert_content(memtable: &PluginMemtable, vector: &Vector, when: &str) {
    for room in [1 << 16, 100] {
        let pages = memtable.read(0, vector.request).unwrap().expect("the partition exists");
        assert_eq!(content(pages, room), vector.page, "{when}");
    }
    let (count, _) = memtable.count_keys(0, &ALL_KEYS).unwrap();
    assert_eq!(count, 1, "{when}: partitions");
}

#[test]
fn what_cassandra_serialized_is_kept_by_the_engine() {
    let mut done = std::collections::HashSet::new();
    for (index, vector) in vectors().iter().enumerate() {
        if index > 12 && !done.insert(vector.table) {
            continue;
        }
        let directory = Directory::new();
        let store = open(directory.path());
        let memtable = table(&store, vector, Choice::ExistingOrFirst).unwrap();
        assert_eq!(memtable.usage().unwrap().partition_count, 0);
        memtable.put(vector.update).unwrap();
        assert_content(&memtable, vector, &format!("vector {index} in memory"));
        drop((memtable, store));
        let store = open(directory.path());
        let memtable = table(&store, vector, Choice::ExistingOrFirst).unwrap();
        assert_content(&memtable, vector, &format!("vector {index} replayed"));
        store.engine().flush_all().unwrap();
        assert_content(&memtable, vector, &format!("vector {index} flushed"));
        store.close(Duration::from_secs(10)).unwrap();
        drop((memtable, store));
        let store = open(directory.path());
        let memtable = table(&store, vector, Choice::Existing).unwrap();
        assert_content(&memtable, vector, &format!("vector {index} after a restart"));
        assert!(memtable.usage().unwrap().partition_count > 0);
    }
}

#[test]
fn tables_are_read_without_memory_for_pages() {
    let vectors = vectors();
    for cache_bytes in [0, 1, -1] {
        let directory = Directory::new();
        let store = open_with_cache(directory.path(), cache_bytes);
        let memtable = table(&store, &vectors[0], Choice::ExistingOrFirst).unwrap();
        memtable.put(vectors[0].update).unwrap();
        store.engine().flush_all().unwrap();
        for _ in 0..2 {
            assert_content(&memtable, &vectors[0], &format!("{cache_bytes} bytes"));
        }
    }
}

/// A description whose gc_grace_seconds, after the keyspace's and the table's name, are 0.
fn without_grace(description: &[u8]) -> Vec<u8> {
    let mut at = 16;
    for _ in 0..2 {
        at += 4 + u32::from_be_bytes(*description[at..].first_chunk().unwrap()) as usize;
    }
    let mut description = description.to_vec();
    description[at..at + 4].fill(0);
    description
}

/// A description in its parts: what is before the count of columns, the columns (kind, name, class), and the rest.
struct Parts {
    head: Vec<u8>,
    columns: Vec<(u8, Vec<u8>, Vec<u8>)>,
    rest: Vec<u8>,
}

fn take<'a>(bytes: &mut &'a [u8], length: usize) -> &'a [u8] {
    let (taken, rest) = bytes.split_at(length);
    *bytes = rest;
    taken
}

fn take_number(bytes: &mut &[u8]) -> usize {
    u32::from_be_bytes(take(bytes, 4).try_into().unwrap()) as usize
}

fn take_text(bytes: &mut &[u8]) -> Vec<u8> {
    let length = take_number(bytes);
    take(bytes, length).to_vec()
}

impl Parts {
    fn of(description: &[u8]) -> Parts {
        let mut rest = &description[16..];
        let _keyspace_and_name = [take_text(&mut rest), take_text(&mut rest)];
        let _numbers = take(&mut rest, 4 + 8);
        for _ in 0..2 {
            let count = 2 * take_number(&mut rest);
            (0..count).for_each(|_| drop(take_text(&mut rest)));
        }
        let head = description[..description.len() - rest.len()].to_vec();
        let count = take_number(&mut rest);
        let column = |rest: &mut &[u8]| (take(rest, 1)[0], take_text(rest), take_text(rest));
        let columns = (0..count).map(|_| column(&mut rest)).collect();
        Parts { head, columns, rest: rest.to_vec() }
    }

    fn description(&self) -> Vec<u8> {
        let mut description = self.head.clone();
        description.extend((self.columns.len() as u32).to_be_bytes());
        for (kind, name, class) in &self.columns {
            description.push(*kind);
            for text in [name, class] {
                description.extend((text.len() as u32).to_be_bytes());
                description.extend(text);
            }
        }
        [description, self.rest.clone()].concat()
    }

    fn key_count(&self) -> usize {
        self.columns.iter().filter(|(kind, ..)| *kind < 2).count()
    }
}

/// A description in which each column of the primary key has the name of the next one.
fn with_rotated_keys(description: &[u8]) -> Vec<u8> {
    let mut parts = Parts::of(description);
    assert_eq!(parts.description(), description);
    let count = parts.key_count();
    let names: Vec<_> = parts.columns[..count].iter().map(|(_, name, _)| name.clone()).collect();
    (0..count).for_each(|key| parts.columns[key].1 = names[(key + 1) % count].clone());
    parts.description()
}

fn assert_reads(memtable: &PluginMemtable, version: usize, vector: &Vector, when: &str) {
    let pages = memtable.read(version, vector.request).unwrap().expect("the partition exists");
    assert_eq!(content(pages, 1 << 16), vector.page, "{when}");
}

#[test]
fn rows_stay_as_they_are_when_columns_of_the_primary_key_get_each_others_names() {
    let mut tables = std::collections::HashSet::new();
    for (index, vector) in vectors().iter().enumerate() {
        if Parts::of(vector.table).key_count() < 2 || (index > 12 && !tables.insert(vector.table)) {
            continue;
        }
        let renamed = with_rotated_keys(vector.table);
        let memtable = PluginMemtable::open(vector.table, &0i64.to_be_bytes(), 0).unwrap();
        memtable.put(vector.update).unwrap();
        let version = memtable.alter(&renamed).unwrap();
        assert_reads(&memtable, version, vector, &format!("vector {index} in a memtable"));
        memtable.put(vector.update).unwrap();
        assert_reads(&memtable, version, vector, &format!("vector {index} in a memtable, written twice"));
        let directory = Directory::new();
        let store = open(directory.path());
        let memtable = table(&store, vector, Choice::ExistingOrFirst).unwrap();
        memtable.put(vector.update).unwrap();
        let version = memtable.alter(&renamed).unwrap();
        assert_reads(&memtable, version, vector, &format!("vector {index} in the engine"));
        store.engine().flush_all().unwrap();
        drop((memtable, store));
        let store = open(directory.path());
        let memtable = PluginMemtable::open_stored(&store, &renamed, Choice::ExistingOrFirst).unwrap().unwrap();
        assert_reads(&memtable, 0, vector, &format!("vector {index} after a restart"));
    }
}

#[test]
fn a_column_with_the_old_name_of_a_key_column_is_kept_over_a_restart() {
    for vector in vectors().iter().filter(|vector| Parts::of(vector.table).key_count() > 1).step_by(9) {
        let mut parts = Parts::of(vector.table);
        let clustering = parts.key_count() - 1;
        let old = std::mem::replace(&mut parts.columns[clustering].1, b"renamed".to_vec());
        let renamed = parts.description();
        parts.columns.push((3, old, b"org.apache.cassandra.db.marshal.Int32Type".to_vec()));
        let directory = Directory::new();
        let store = open(directory.path());
        let memtable = table(&store, vector, Choice::ExistingOrFirst).unwrap();
        memtable.put(vector.update).unwrap();
        let version = memtable.alter(&renamed).unwrap();
        assert_reads(&memtable, version, vector, "renamed");
        memtable.alter(&parts.description()).unwrap();
        memtable.put(vector.update).unwrap();
        assert_reads(&memtable, version, vector, "with a column of the old name");
        drop((memtable, store));
        let store = open(directory.path());
        let memtable = PluginMemtable::open_stored(&store, &parts.description(), Choice::Existing).unwrap().unwrap();
        memtable.put(vector.update).unwrap();
        assert!(memtable.read(0, vector.request).unwrap().is_some());
    }
}

/// Merges the SSTables of the only table.
fn compact(store: &Store) {
    let schema = store.engine().schema();
    let tables = schema.keyspaces.iter().filter(|(name, _)| name.starts_with('t') && name.contains('_'));
    let [table] = tables.flat_map(|(_, keyspace)| keyspace.tables.values()).collect::<Vec<_>>()[..] else {
        panic!("the store has one table")
    };
    store.engine().compact(table).unwrap();
}

#[test]
fn no_tombstone_is_purged_until_it_is_known_that_cassandra_has_no_older_rows() {
    let mut purged_count = 0;
    for vector in vectors().iter().step_by(4) {
        let description = without_grace(vector.table);
        let directory = Directory::new();
        let store = open(directory.path());
        let memtable = PluginMemtable::open_stored(&store, &description, Choice::ExistingOrFirst).unwrap().unwrap();
        let merged = || {
            memtable.put(vector.update).unwrap();
            store.engine().flush_all().unwrap();
            compact(&store);
            memtable.read(0, vector.request).unwrap().map(|pages| content(pages, 1 << 16))
        };
        merged();
        // A merge turns expired cells into tombstones, but keeps those.
        let kept = merged();
        memtable.set_oldest_of_cassandra(i64::MIN).unwrap();
        assert_eq!(merged(), kept, "Cassandra has rows of any time");
        memtable.set_oldest_of_cassandra(i64::MAX).unwrap();
        purged_count += usize::from(merged() != kept);
    }
    assert!(purged_count > 0, "some of the vectors have tombstones");
}

#[test]
fn a_truncated_table_begins_empty_and_the_old_generation_is_gone_once_it_was_discarded() {
    let directory = Directory::new();
    let store = open(directory.path());
    let vectors = vectors();
    let vector = &vectors[0];
    assert!(table(&store, vector, Choice::Existing).is_none() && !store.keeps(id(vector)));
    let old = table(&store, vector, Choice::ExistingOrFirst).unwrap();
    old.put(vector.update).unwrap();
    let new = table(&store, vector, Choice::Next).unwrap();
    assert_content(&old, vector, "while it is truncated");
    assert!(new.read(0, vector.request).unwrap().is_none());
    old.discard().unwrap();
    drop((old, new, store));
    let store = open(directory.path());
    let memtable = table(&store, vector, Choice::ExistingOrFirst).unwrap();
    assert!(memtable.read(0, vector.request).unwrap().is_none());
    assert_eq!(store.listing().lines().count(), 1, "{}", store.listing());
    memtable.put(vector.update).unwrap();
    memtable.discard().unwrap();
    assert!(memtable.put(vector.update).is_err() && memtable.read(0, vector.request).is_err());
    memtable.discard().unwrap();
    assert!(!store.keeps(id(vector)));
}

/// Three vectors of one table with different partitions.
fn of_one_table(vectors: &[Vector]) -> Vec<&Vector> {
    let of_table = |table| {
        let mut tokens = std::collections::HashSet::new();
        let of_table = vectors.iter().filter(|vector| vector.table == table && vector.request[0] == 0);
        of_table.filter(|vector| tokens.insert(token_of(vector))).take(3).collect::<Vec<_>>()
    };
    vectors.iter().map(|vector| of_table(vector.table)).find(|found| found.len() == 3).unwrap()
}

#[test]
fn a_truncation_that_did_not_end_leaves_the_rows_from_before_and_after_it_in_one_generation() {
    let vectors = vectors();
    let vectors = of_one_table(&vectors);
    for choice in [Choice::ExistingOrFirst, Choice::Existing] {
        let directory = Directory::new();
        let store = open(directory.path());
        for (vector, choice) in vectors.iter().zip([Choice::ExistingOrFirst, Choice::Next, Choice::Next]) {
            let memtable = table(&store, vector, choice).unwrap();
            memtable.put(vector.update).unwrap();
            assert_eq!(memtable.count_keys(0, &ALL_KEYS).unwrap().0, 1);
        }
        store.engine().snapshot(&newest(&store), "merged", "").unwrap();
        drop(store);
        for when in ["after the crash", "after another one"] {
            let store = open(directory.path());
            let memtable = table(&store, vectors[0], choice).unwrap();
            for vector in &vectors {
                assert_reads(&memtable, 0, vector, when);
            }
            assert_eq!(memtable.count_keys(0, &ALL_KEYS).unwrap().0, 3, "{when}");
            assert_eq!(store.listing().lines().count(), 1, "{when}: {}", store.listing());
            assert_eq!(store.engine().snapshots().unwrap(), [], "{when}");
        }
    }
}

/// The table of the newest generation.
fn newest(store: &Store) -> Arc<model::Table> {
    let schema = store.engine().schema();
    let mut keyspaces = schema.keyspaces.iter().filter(|(name, _)| name.starts_with('t') && name.contains('_'));
    keyspaces.next_back().unwrap().1.tables.values().next().unwrap().clone()
}

#[test]
fn a_dropped_table_is_removed_and_a_directory_has_one_engine() {
    let directory = Directory::new();
    let store = open(directory.path());
    let vectors = vectors();
    let memtable = table(&store, &vectors[0], Choice::ExistingOrFirst).unwrap();
    memtable.put(vectors[0].update).unwrap();
    let request = [text(directory.path().to_str().unwrap()), text("batch"), vec![0; 24]].concat();
    assert!(Store::open(&request).is_err(), "the directory is locked");
    assert!(Store::open(&request[..request.len() - 1]).is_err());
    let unknown = [text("/nowhere"), text("sometimes"), vec![0; 24]].concat();
    assert!(Store::open(&unknown).err().unwrap().contains("unknown commitlog_sync 'sometimes'"));
    store.remove_all(id(&vectors[0])).unwrap();
    assert!(!store.keeps(id(&vectors[0])) && memtable.put(vectors[0].update).is_err());
}

/// The request of a clean-up that keeps these ranges.
fn ranges(ranges: &[(i64, i64)]) -> Vec<u8> {
    let mut request = (ranges.len() as u32).to_be_bytes().to_vec();
    ranges.iter().for_each(|(start, end)| request.extend([start.to_be_bytes(), end.to_be_bytes()].concat()));
    request
}

/// The token of the partition that a vector reads, behind the kind of its request.
fn token_of(vector: &Vector) -> i64 {
    i64::from_be_bytes(*vector.request[1..].first_chunk().unwrap())
}

#[test]
fn a_clean_up_keeps_what_its_ranges_have_and_a_damaged_request_removes_nothing() {
    let vectors = vectors();
    let vector = &vectors[0];
    let token = token_of(vector);
    let directory = Directory::new();
    let store = open(directory.path());
    let memtable = table(&store, vector, Choice::ExistingOrFirst).unwrap();
    memtable.put(vector.update).unwrap();
    for kept in [&[(token - 1, token)][..], &[(token, token)], &[(5, 6), (token + 1, token)]] {
        assert_eq!(memtable.clean_up(&ranges(kept)), Ok(true));
        assert_content(&memtable, vector, "kept");
    }
    let request = ranges(&[(token, token + 1), (token + 5, token - 1)]);
    for length in 0..request.len() {
        memtable.clean_up(&request[..length]).unwrap_err();
    }
    memtable.clean_up(&[&request[..], &[0]].concat()).unwrap_err();
    memtable.clean_up(&[0xff; 20]).unwrap_err();
    assert_content(&memtable, vector, "damaged requests");
    // It has no other partition, and the log still has its records.
    assert_eq!(memtable.clean_up(&request), Ok(false));
    assert_content(&memtable, vector, "in the log");
    memtable.discard().unwrap();
    memtable.clean_up(&request).unwrap_err();
}
