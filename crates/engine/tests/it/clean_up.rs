//! Clean-ups: the partitions outside of a node's tokens go from the SSTables, and nothing else does.

use std::path::PathBuf;
use std::sync::Arc;

use blockio::{Fault, SimulatedDisk};
use engine::{Engine, block_on};
use model::{KeyRange, PartitionKey, ReadRange, Table, UnfilteredCursor};
use sstable::list_tables;
use testkit::Choices;
use types::{Token, TokenRanges};

use crate::fixture::{
    create_table, delete_partition, disk_with_table, empty_row, expired_insertion, insert, insertion, memory_only,
    open_with, partition_deletion, row_deletion, rows, set_options, small_options,
};

const KEYS: i32 = 24;
/// A write of this time or later is not shadowed by those of the past.
const LATER: i64 = 1000;

fn token(key: i32) -> Token {
    PartitionKey::new(&key.to_be_bytes()).token()
}

/// The keys from 0, in the order of their tokens.
fn keys_by_token() -> Vec<i32> {
    let mut keys: Vec<i32> = (0..KEYS).collect();
    keys.sort_by_key(|key| token(*key));
    keys
}

/// The tokens of the first keys, by token, up to `count`.
fn first_keys(count: usize) -> TokenRanges {
    TokenRanges::new([(Token::MINIMUM, token(keys_by_token()[count - 1]))])
}

fn names(disk: &SimulatedDisk, table: &Table) -> Vec<String> {
    let directory = PathBuf::from(format!("/node/data/ks/t-{}", table.id.0.simple()));
    list_tables(disk, &directory).unwrap().iter().map(ToString::to_string).collect()
}

/// The keys of all partitions, those with nothing but deletions too.
fn keys(engine: &Engine, table: &Arc<Table>) -> Vec<i32> {
    let mut cursor = engine.read(table, &ReadRange::all_rows(KeyRange::all())).unwrap();
    let mut keys = Vec::new();
    while cursor.advance_partition().unwrap() {
        keys.push(i32::from_be_bytes(cursor.partition().key.bytes().try_into().unwrap()));
    }
    keys
}

fn reopen(disk: &SimulatedDisk) -> (Arc<Engine>, Arc<Table>) {
    let engine = open_with(&small_options(disk));
    let table = engine.schema().table("ks", "t").unwrap().clone();
    (engine, table)
}

fn write_at_random(engine: &Engine, table: &Arc<Table>, choices: &mut Choices) {
    for timestamp in 1..120 {
        let (key, row) = (choices.below(KEYS as u64) as i32, choices.below(4) as i32);
        let mutation = match choices.below(10) {
            0 => partition_deletion(table, key, timestamp),
            1 => row_deletion(table, key, row, timestamp),
            2 => expired_insertion(table, key, row, timestamp),
            _ => insertion(table, key, row, &format!("value {timestamp}"), timestamp),
        };
        block_on(engine.write(&mutation)).unwrap();
        if choices.one_in(15) {
            engine.flush(table).unwrap();
        }
    }
}

#[test]
fn a_clean_up_removes_the_partitions_outside_of_the_ranges_and_nothing_else() {
    for seed in 0..60 {
        let choices = &mut Choices(seed);
        let disk = disk_with_table();
        let (engine, table) = reopen(&disk);
        write_at_random(&engine, &table, choices);
        let bound = |choices: &mut Choices| token(choices.below(KEYS as u64) as i32);
        let ranges: Vec<_> = (0..1 + seed % 3).map(|_| (bound(choices), bound(choices))).collect();
        let kept = TokenRanges::new(ranges);
        let is_kept = |key: i32| kept.contains(token(key));
        let expected: Vec<_> = rows(&engine, &table).into_iter().filter(|(key, ..)| is_kept(*key)).collect();
        let is_clean = engine.clean_up(&table, &kept).unwrap();
        assert!(is_clean || expected.is_empty(), "seed {seed}: nothing has to wait for the log");
        let found: Vec<_> = rows(&engine, &table).into_iter().filter(|(key, ..)| is_clean || is_kept(*key)).collect();
        assert_eq!(found, expected, "seed {seed}");
        assert!(!is_clean || keys(&engine, &table).into_iter().all(is_kept), "seed {seed}: no deletion stays either");
        let (engine, table) = reopen(&disk.crash_image(seed));
        assert!(!is_clean || rows(&engine, &table) == expected, "seed {seed}: after a crash");
    }
}

#[test]
fn sstables_without_partitions_outside_are_not_touched() {
    let disk = SimulatedDisk::new();
    let engine = open_with(&small_options(&disk));
    let table = create_table(&engine);
    let keys = keys_by_token();
    for (first, second) in [(0, 3), (1, 9), (2, 4)] {
        insert(&engine, &table, keys[first], 0, "first", 10);
        insert(&engine, &table, keys[second], 0, "second", 10);
        engine.flush(&table).unwrap();
    }
    let before = names(&disk, &table);
    assert!(engine.clean_up(&table, &first_keys(6)).unwrap());
    let after = names(&disk, &table);
    assert_eq!(rows(&engine, &table).len(), 5);
    assert_eq!((after.len(), after.iter().filter(|name| before.contains(name)).count()), (3, 2));
    for ranges in [first_keys(6), TokenRanges::new([(Token(0), Token(0))])] {
        assert!(engine.clean_up(&table, &ranges).unwrap());
        assert_eq!(names(&disk, &table), after, "nothing is left to do");
    }
}

#[test]
fn a_row_that_the_log_still_has_does_not_come_back_after_its_deletion_was_cleaned_up() {
    for inside in [0, 1] {
        let disk = SimulatedDisk::new();
        let engine = open_with(&small_options(&disk));
        let table = create_table(&engine);
        let keys = keys_by_token();
        insert(&engine, &table, keys[9], 0, "of another node", 10);
        engine.flush(&table).unwrap();
        // The SSTable with the deletion has nothing to keep in one case, and in the other one nothing else to remove.
        delete_partition(&engine, &table, keys[9], 20);
        if inside == 0 {
            engine.flush(&table).unwrap();
        }
        insert(&engine, &table, keys[0], 0, "of this node", LATER);
        assert!(engine.clean_up(&table, &first_keys(6)).unwrap());
        for seed in 0..4 {
            let (engine, table) = reopen(&disk.crash_image(seed));
            assert_eq!(rows(&engine, &table), [(keys[0], 0, "of this node".into())]);
        }
    }
}

#[test]
fn an_sstable_of_others_alone_stays_as_long_as_the_log_needs_it() {
    let disk = SimulatedDisk::new();
    let engine = open_with(&small_options(&disk));
    let table = create_table(&engine);
    let keys = keys_by_token();
    insert(&engine, &table, keys[9], 0, "of another node", 10);
    assert!(!engine.clean_up(&table, &first_keys(6)).unwrap());
    assert_eq!(rows(&engine, &table).len(), 1);
    insert(&engine, &table, keys[0], 0, "of this node", 10);
    assert!(engine.clean_up(&table, &first_keys(6)).unwrap());
    assert_eq!(rows(&engine, &table), [(keys[0], 0, "of this node".into())]);
}

#[test]
fn an_sstable_of_which_a_merge_leaves_nothing_does_not_keep_those_of_others() {
    let disk = SimulatedDisk::new();
    let engine = open_with(&small_options(&disk));
    let table = create_table(&engine);
    let keys = keys_by_token();
    insert(&engine, &table, keys[9], 0, "of another node", 10);
    engine.flush(&table).unwrap();
    insert(&engine, &table, keys[0], 0, "of this node", 10);
    engine.flush(&table).unwrap();
    // A row without liveness and cells makes the smallest SSTable.
    block_on(engine.write(&empty_row(&table, keys[1], 0))).unwrap();
    engine.flush(&table).unwrap();
    assert_eq!(names(&disk, &table).len(), 3);
    assert!(engine.clean_up(&table, &first_keys(6)).unwrap());
    assert_eq!(rows(&engine, &table), [(keys[0], 0, "of this node".into())]);
}

/// Three SSTables with rows of this node and of others, and what this node keeps of them.
fn prepared() -> (SimulatedDisk, Vec<(i32, i32, String)>) {
    let disk = disk_with_table();
    let (engine, table) = reopen(&disk);
    for (row, keys) in keys_by_token()[..9].chunks(3).enumerate() {
        for key in keys.iter().chain(&keys_by_token()[..9]) {
            insert(&engine, &table, *key, row as i32, "value", 10);
        }
        engine.flush(&table).unwrap();
    }
    let kept = rows(&engine, &table).into_iter().filter(|(key, ..)| first_keys(6).contains(token(*key))).collect();
    (disk.crash_image(0), kept)
}

#[test]
fn a_fault_or_a_crash_in_the_middle_loses_no_row_and_the_rest_is_cleaned_up_later() {
    let (prepared, kept) = prepared();
    let is_kept = |key: i32| first_keys(6).contains(token(key));
    for fault in [Fault::Fail, Fault::PowerCut] {
        let (mut step, mut interrupted) = (0, 0);
        loop {
            let disk = prepared.crash_image(step);
            let (engine, table) = reopen(&disk);
            let all = rows(&engine, &table);
            disk.inject_into("/node/data/ks/", fault, step);
            let cleaned = engine.clean_up(&table, &first_keys(6));
            let image = disk.crash_image(step);
            drop(engine);
            let (engine, table) = reopen(&image);
            let found = rows(&engine, &table);
            let kept_of: Vec<_> = found.iter().filter(|(key, ..)| is_kept(*key)).cloned().collect();
            assert_eq!(kept_of, kept, "{fault:?} {step}");
            assert!(found.iter().all(|row| all.contains(row)), "{fault:?} {step}");
            assert!(engine.clean_up(&table, &first_keys(6)).unwrap(), "{fault:?} {step}");
            assert_eq!(rows(&engine, &table), kept, "{fault:?} {step}");
            if matches!(cleaned, Ok(true)) && interrupted > 0 {
                break;
            }
            interrupted += usize::from(cleaned.is_err());
            step += 1;
        }
        assert!(interrupted > 20, "{fault:?}: {interrupted}");
    }
}

#[test]
fn a_table_that_lives_in_memory_is_not_cleaned_up() {
    let disk = SimulatedDisk::new();
    let engine = open_with(&small_options(&disk));
    let table = create_table(&engine);
    insert(&engine, &table, keys_by_token()[9], 0, "value", 10);
    let table = set_options(&engine, &table, memory_only(64)).unwrap();
    engine.clean_up(&table, &first_keys(6)).unwrap_err();
    assert_eq!(rows(&engine, &table).len(), 1);
}
