//! Merges while the log still holds records of flushed rows that no SSTable covers. The next start replays such a row,
//! so a deletion that shadows it must outlast the merge, although both are inputs, and the deletion is old enough to be
//! purged. The record of the deletion is covered, and is not replayed. Such rows come from full memtables, and from
//! memtables that were flushed while the log was replayed.

use std::sync::Arc;
use std::time::Instant;

use blockio::{Disk, SimulatedDisk};
use engine::{Engine, EngineOptions, MemtableConfiguration, TrieOptions};
use model::{PartitionKey, Table, TableOptions};

use crate::fixture::{create_table, delete_rows, insert, open_with, rows, set_options, small_options};
use crate::gated_disk::{GIVE_UP, GatedDisk};
use crate::quarantine::two_tables;

const ROW: i32 = 5;
const SHADOWED: i64 = 10;
const DELETED: i64 = 20;
/// Rows that are written after the deletion do not protect it from being purged.
const LATER: i64 = 30;

/// Two keys that are neighbours in the order of tokens.
fn keys() -> [i32; 2] {
    let mut keys: Vec<i32> = (0..100).collect();
    keys.sort_by_key(|key| PartitionKey::new(&key.to_be_bytes()).token());
    [keys[0], keys[1]]
}

/// A table with a flushed deletion.
fn create_with_deletion(engine: &Engine) -> Arc<Table> {
    flush_deletion(engine, &create_table(engine))
}

/// Flushes a deletion of a row that the table does not have.
fn flush_deletion(engine: &Engine, table: &Table) -> Arc<Table> {
    // Two SSTables are enough for a merge.
    let compaction = [("class", "UnifiedCompactionStrategy"), ("scaling_parameters", "N")];
    let compaction = compaction.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let table = set_options(engine, table, TableOptions { compaction, ..TableOptions::default() }).unwrap();
    delete_rows(engine, &table, keys()[0], ROW, DELETED);
    engine.flush(&table).unwrap();
    table
}

/// Writes the row that the deletion shadows, and many rows of another partition.
fn write_later(engine: &Engine, table: &Arc<Table>, later_rows: i32) {
    let [shadowed, later] = keys();
    insert(engine, table, shadowed, ROW, "shadowed", SHADOWED);
    (0..later_rows).for_each(|row| insert(engine, table, later, row, &format!("{row:0400}"), LATER));
}

/// Merges the SSTables while the flush of the rest is held. Then the node is killed, and the next start must still hide
/// the row. Returns whether it has replayed the row.
fn merge_and_start_again(engine: &Engine, table: &Arc<Table>, disk: &SimulatedDisk) -> bool {
    let before = rows(engine, table);
    assert!(before.iter().all(|(key, ..)| *key == keys()[1]), "the row is deleted");
    engine.set_autocompaction(table, true).unwrap();
    let began = Instant::now();
    // SSTables that do not overlap stay apart.
    let is_merged = || {
        let stats = engine.compaction_stats();
        stats.completed > 0 && stats.pending == 0 && stats.active.is_empty()
    };
    while !is_merged() {
        assert!(began.elapsed() < GIVE_UP, "they are merged in the background");
        std::thread::sleep(crate::fixture::PAUSE);
    }
    assert_eq!(rows(engine, table), before);
    let engine = open_with(&small_options(&disk.crash_image(1)));
    assert_eq!(rows(&engine, table).len(), before.len(), "the row has returned");
    engine.replay_summary().replayed > before.len() as u64
}

/// A node whose flushes in the background can be held.
fn gated_options(disk: &SimulatedDisk) -> (EngineOptions, GatedDisk) {
    let gated = GatedDisk::new(disk, "-Data.db").only_of("flusher");
    let mut options = small_options(disk);
    options.disk = Arc::new(gated.clone()) as Arc<dyn Disk>;
    options.memtable_flush_writers = 1;
    options.concurrent_compactors = 1;
    (options, gated)
}

/// The SSTable of a full memtable covers nothing: only that of its successor does.
#[test]
fn a_merge_keeps_a_deletion_while_the_successor_of_a_full_memtable_is_not_flushed() {
    let disk = SimulatedDisk::new();
    let (mut options, gated) = gated_options(&disk);
    let limits = TrieOptions { blobs_bytes_max: 64 << 10, ..TrieOptions::default() };
    let configuration = MemtableConfiguration::Trie { shards: None, options: limits };
    options.memtable_configurations = [("default".to_owned(), Ok(configuration))].into();
    let engine = open_with(&options);
    let table = create_with_deletion(&engine);
    engine.set_autocompaction(&table, false).unwrap();
    // The flush of the first full memtable passes.
    gated.close();
    gated.let_go(0);
    write_later(&engine, &table, 200);
    gated.wait_for(2);
    assert!(merge_and_start_again(&engine, &table, &disk), "the log still has the row");
    gated.open_for_all();
}

/// A node whose memtables may use `bytes` bytes before they are flushed, also while the log is replayed.
fn options_with_memory(disk: &SimulatedDisk, bytes: u64) -> (EngineOptions, GatedDisk) {
    let (mut options, gated) = gated_options(disk);
    options.memtable_space_bytes = bytes;
    options.memtable_cleanup_threshold = 0.9;
    (options, gated)
}

/// A start is cut short after its replay has flushed the row. The next one flushes it again, and merges both SSTables
/// with that of the deletion before it has flushed the rest. The threads of a replay may end with a flush of all that
/// they have, which leaves no rest. Then it is done again.
#[test]
fn a_merge_keeps_a_deletion_after_replays_have_flushed_the_row_while_the_rest_is_not_flushed() {
    assert!((0..10).any(|_| is_replayed_after_replays_have_flushed_the_row()), "the log still has the row");
}

fn is_replayed_after_replays_have_flushed_the_row() -> bool {
    const LATER_ROWS: i32 = 600;
    let disk = SimulatedDisk::new();
    let engine = open_with(&small_options(&disk));
    let table = create_with_deletion(&engine);
    write_later(&engine, &table, LATER_ROWS);
    let disk = disk.crash_image(1);
    drop(engine);

    // The first flush of the replay passes, and the second one does not.
    let (mut options, _) = options_with_memory(&disk, 100 << 10);
    let gated = GatedDisk::new(&disk, "-Data.db").only_of("CommitLogReplayer");
    options.disk = Arc::new(gated.clone()) as Arc<dyn Disk>;
    gated.close();
    gated.let_go(0);
    let start = std::thread::spawn(move || open_with(&options));
    gated.wait_for(2);
    let cut_short = disk.crash_image(1);
    gated.open_for_all();
    drop(start.join().unwrap());

    let disk = cut_short;
    let (options, gated) = options_with_memory(&disk, 100 << 10);
    gated.close();
    let engine = open_with(&options);
    assert!(engine.replay_summary().replayed > LATER_ROWS as u64, "no SSTable covers them");
    let table = engine.schema().table("ks", "t").unwrap().clone();
    gated.wait_for(1);
    let is_replayed = merge_and_start_again(&engine, &table, &disk);
    gated.open_for_all();
    is_replayed
}

/// The replay ends with a flush of all that was replayed of the table, so that nothing is left for a flush that covers
/// it. The log keeps the records, because it keeps those of another table.
#[test]
fn a_merge_keeps_a_deletion_after_a_replay_has_flushed_all_of_the_table() {
    let disk = SimulatedDisk::new();
    let (engine, table, other) = two_tables(&small_options(&disk));
    let table = flush_deletion(&engine, &table);
    engine.flush(&other).unwrap();
    let [shadowed, later] = keys();
    insert(&engine, &other, later, ROW, &"o".repeat(20 << 10), LATER);
    insert(&engine, &table, shadowed, ROW, "shadowed", SHADOWED);
    insert(&engine, &table, later, ROW, &"l".repeat(100 << 10), LATER);
    let disk = disk.crash_image(1);
    drop(engine);

    let (options, gated) = options_with_memory(&disk, 100 << 10);
    gated.close();
    let engine = open_with(&options);
    gated.wait_for(1);
    let table = engine.schema().table("ks", "t").unwrap().clone();
    assert!(merge_and_start_again(&engine, &table, &disk), "the log still has the row");
    gated.open_for_all();
}
