//! The SSTables of a table: which of them a read uses, where they come from, and what compaction does to them.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use blockio::{Disk, Fault, SimulatedDisk};
use engine::{Engine, EngineError, Turn, block_on};
use model::{
    ClusteringBound, DeletionTime, KeyRange, Mutation, PartitionKey, PartitionUpdateBuilder, ReadRange, Side, Slice,
    Slices, Table, TableOptions, Unfiltered, UnfilteredCursor,
};
use testkit::TemporaryDirectory;

use crate::fixture::{
    clustering, create_table, delete_partition, insert, insert_expired, open, open_with, rows, set_options,
    small_options,
};
use crate::gated_disk::GIVE_UP;

/// Only row `row` of partition `key`.
fn one_row(table: &Table, key: i32, row: i32) -> ReadRange {
    let slices = Slices::new(vec![Slice::prefix(&clustering(row))], table.comparator());
    ReadRange { keys: KeyRange::Single(PartitionKey::new(&key.to_be_bytes())), slices, reversed: false }
}

/// The rows that a read finds, and the timestamps of their cells.
fn read(engine: &Engine, table: &Arc<Table>, range: &ReadRange) -> Vec<(Vec<u8>, i64)> {
    let mut cursor = engine.read(table, range).unwrap();
    let mut found = Vec::new();
    while cursor.advance_partition().unwrap() {
        while cursor.advance().unwrap() {
            if let Unfiltered::Row(row) = cursor.unfiltered() {
                found.push((row.clustering.to_vec(), row.row.liveness().timestamp));
            }
        }
    }
    found
}

#[test]
fn a_point_read_finds_the_rows_of_a_scan_after_writes_in_any_order() {
    // Tries every order of four flushes with these timestamps, deletions among them. Ending the search early must make
    // no difference.
    let mut orders = Vec::new();
    for a in 0..4 {
        for b in (0..4).filter(|b| *b != a) {
            for c in (0..4).filter(|c| *c != a && *c != b) {
                orders.push([a, b, c, 6 - a - b - c]);
            }
        }
    }
    for order in orders {
        let disk = SimulatedDisk::new();
        let engine = open_with(&small_options(&disk));
        let table = create_table(&engine);
        for step in order {
            match step {
                0 => insert(&engine, &table, 1, 1, "old", 10),
                1 => insert(&engine, &table, 1, 1, "new", 30),
                2 => delete_partition(&engine, &table, 1, 20),
                _ => insert(&engine, &table, 1, 2, "other", 20),
            }
            engine.flush(&table).unwrap();
        }
        insert(&engine, &table, 2, 1, "memtable", 5);
        assert_eq!(engine.table_stats(&table).unwrap().sstable_count, 4);
        assert_eq!(read(&engine, &table, &one_row(&table, 1, 1)), [(clustering(1), 30)], "{order:?}");
        assert_eq!(read(&engine, &table, &one_row(&table, 1, 2)), [], "{order:?}");
        assert_eq!(read(&engine, &table, &one_row(&table, 2, 1)), [(clustering(1), 5)], "{order:?}");
    }
}

/// The bytes of Data.db that a read of one partition, or of all, reads, and the live rows that it finds. The memtables
/// are empty.
fn data_bytes_of(disk: &SimulatedDisk, key: Option<i32>, now_seconds: u32) -> (u64, usize) {
    let engine = Engine::open(small_options(&disk.crash_image(0))).unwrap();
    let table = engine.schema().table("ks", "t").unwrap().clone();
    let keys = key.map_or(KeyRange::all(), |key| KeyRange::Single(PartitionKey::new(&key.to_be_bytes())));
    let mut cursor = engine.read_at(&table, &ReadRange::all_rows(keys), now_seconds, Turn::BLOCKING).unwrap();
    let mut live = 0;
    while cursor.advance_partition().unwrap() {
        while cursor.advance().unwrap() {
            let is_live =
                |unfiltered| matches!(unfiltered, Unfiltered::Row(row) if row.row.is_live(&table, now_seconds));
            live += usize::from(is_live(cursor.unfiltered()));
        }
    }
    (engine.table_stats(&table).unwrap().data_bytes_read, live)
}

#[test]
fn a_fully_expired_sstable_is_read_only_if_it_shadows_something() {
    const GRACE: i32 = 1000;
    let disk = SimulatedDisk::new();
    let engine = open_with(&small_options(&disk));
    let table = create_table(&engine);
    let options = TableOptions { gc_grace_seconds: GRACE, ..TableOptions::default() };
    let table = set_options(&engine, &table, options).unwrap();
    // Expires at 100.
    insert_expired(&engine, &table, 1, 1, 50);
    insert_expired(&engine, &table, 2, 1, 50);
    engine.flush(&table).unwrap();
    let expired = [99, 101, 1100, 1101].map(|now| data_bytes_of(&disk, Some(1), now));
    assert!(expired[..3].iter().all(|(bytes, _)| *bytes > 0), "{expired:?}");
    assert_eq!(expired.map(|(_, live)| live), [1, 0, 0, 0]);
    assert_eq!(expired[3], (0, 0), "nothing is read once the grace is over");
    assert_eq!(data_bytes_of(&disk, None, 1101), (0, 0), "nor by a scan");

    // Newer data needs no older deletions: only the new SSTable is read.
    insert(&engine, &table, 1, 2, "newer", 60);
    engine.flush(&table).unwrap();
    let (newer, live) = data_bytes_of(&disk, Some(1), 1101);
    assert!(newer > 0 && newer < data_bytes_of(&disk, Some(1), 1100).0 && live == 1);
    assert_eq!(data_bytes_of(&disk, Some(2), 1101), (0, 0), "the newer one is not of this partition");

    // Older data is shadowed, in an SSTable and in memory.
    insert(&engine, &table, 2, 1, "shadowed", 40);
    let mut cursor = engine.read_at(&table, &one_row(&table, 2, 1), 1101, Turn::BLOCKING).unwrap();
    assert!(cursor.advance_partition().unwrap() && cursor.advance().unwrap());
    assert!(matches!(cursor.unfiltered(), Unfiltered::Row(row) if !row.row.is_live(&table, 1101)));
    engine.flush(&table).unwrap();
    let (bytes, live) = data_bytes_of(&disk, Some(2), 1101);
    assert!(bytes > 0 && live == 0);
    assert_eq!(data_bytes_of(&disk, None, 1101).1, 1);
}

#[test]
fn imported_sstables_are_visible_at_once_and_after_a_restart_until_a_truncation() {
    let (from, to) = (TemporaryDirectory::create(), TemporaryDirectory::create());
    let source = open(&from);
    let table = create_table(&source);
    insert(&source, &table, 1, 1, "one", 10);
    insert(&source, &table, 2, 1, "two", 10);
    source.flush(&table).unwrap();
    let snapshot = source.snapshot(&table, "s", "").unwrap();

    let engine = open(&to);
    let table = create_table(&engine);
    insert(&engine, &table, 3, 1, "three", 10);
    assert_eq!(engine.import(&table, &snapshot).unwrap(), 1);
    assert_eq!(rows(&engine, &table).len(), 3);
    // The imported SSTable has our host id and an empty interval of our log.
    let (disk, directory) = (&*engine.options().disk, to.0.join("data/ks").join(format!("t-{}", table.id.0.simple())));
    let [imported] = &sstable::list_tables(disk, &directory).unwrap()[..] else { panic!("nothing was flushed") };
    let stats = sstable::read_statistics(disk, imported).unwrap().stats;
    let [(start, end)] = stats.commit_log_intervals[..] else { panic!("{:?}", stats.commit_log_intervals) };
    assert_eq!((stats.originating_host_id, start), (Some(engine.host_id()), end));
    assert!(start.segment > 0 && start.offset > 0, "{start:?}");
    drop(engine);
    let engine = open(&to);
    let table = engine.schema().table("ks", "t").unwrap().clone();
    assert_eq!(rows(&engine, &table).len(), 3);
    engine.truncate(&table).unwrap();
    drop(engine);
    let engine = open(&to);
    assert_eq!(rows(&engine, &table), []);
    // An SSTable that is imported after the truncation stays.
    engine.import(&table, &snapshot).unwrap();
    drop(engine);
    let engine = open(&to);
    assert_eq!(rows(&engine, &table).len(), 2);
}

#[test]
fn blocks_leave_the_cache_with_their_sstables() {
    let disk = SimulatedDisk::new();
    let engine = open_with(&small_options(&disk));
    let table = create_table(&engine);
    let empty = engine.cache_bytes();
    // Three SSTables, read through the cache.
    let write = |timestamp| {
        for round in 0..3 {
            (0..200).for_each(|key| insert(&engine, &table, key, round, &"v".repeat(500), timestamp));
            engine.flush(&table).unwrap();
        }
        assert_eq!(rows(&engine, &table).len(), 600);
        engine.cache_bytes() - empty
    };
    let full = write(1);
    // The size of the system tables' SSTables may change.
    let is_gone = || engine.cache_bytes() < empty + full / 4;
    assert!(!is_gone());
    engine.compact(&table).unwrap();
    assert!(is_gone(), "{} bytes of {full} after a compaction", engine.cache_bytes());
    assert_eq!(rows(&engine, &table).len(), 600);
    assert!(!is_gone());
    engine.truncate(&table).unwrap();
    assert!(is_gone(), "{} bytes of {full} after a truncation", engine.cache_bytes());
    assert!(write(2) > full / 2);
    let dropped = engine.change_schema::<_, EngineError>(|_, keyspaces| {
        Arc::make_mut(keyspaces.get_mut("ks").unwrap()).tables.remove("t");
        Ok(())
    });
    dropped.unwrap();
    assert!(is_gone(), "{} bytes of {full} after a drop", engine.cache_bytes());
}

#[test]
fn a_damaged_table_is_not_imported() {
    let (from, to) = (TemporaryDirectory::create(), TemporaryDirectory::create());
    let source = open(&from);
    let table = create_table(&source);
    insert(&source, &table, 1, 1, "one", 10);
    source.flush(&table).unwrap();
    let snapshot = source.snapshot(&table, "s", "").unwrap();
    let engine = open(&to);
    let target = create_table(&engine);
    for entry in std::fs::read_dir(&snapshot).unwrap() {
        let path = entry.unwrap().path();
        if path.to_string_lossy().ends_with("-Data.db") {
            let mut bytes = std::fs::read(&path).unwrap();
            bytes[3] ^= 1;
            std::fs::remove_file(&path).unwrap();
            std::fs::write(&path, bytes).unwrap();
        }
    }
    assert!(engine.import(&target, &snapshot).unwrap_err().to_string().contains("Data.db"));
    assert_eq!(engine.table_stats(&target).unwrap().sstable_count, 0);
}

#[test]
fn incomplete_sstables_and_a_tables_own_sstables_are_not_imported() {
    let (from, to) = (TemporaryDirectory::create(), TemporaryDirectory::create());
    let source = open(&from);
    let table = create_table(&source);
    insert(&source, &table, 1, 1, "one", 10);
    source.flush(&table).unwrap();
    let snapshot = source.snapshot(&table, "s", "").unwrap();
    let own = snapshot.parent().and_then(std::path::Path::parent).unwrap();
    assert!(source.import(&table, own).unwrap_err().to_string().contains("own directory"));
    assert_eq!(source.table_stats(&table).unwrap().sstable_count, 1);

    let engine = open(&to);
    let target = create_table(&engine);
    let unfinished = snapshot.join("da_txn_compaction_0c35a4f0-0000-11ef-8000-000000000000.log");
    std::fs::write(&unfinished, "").unwrap();
    assert!(engine.import(&target, &snapshot).unwrap_err().to_string().contains("_txn_compaction_"));
    std::fs::remove_file(&unfinished).unwrap();
    let toc = std::fs::read_dir(&snapshot).unwrap().map(|entry| entry.unwrap().path());
    let toc = toc.into_iter().find(|path| path.to_string_lossy().ends_with("-TOC.txt")).unwrap();
    std::fs::remove_file(toc).unwrap();
    assert!(engine.import(&target, &snapshot).unwrap_err().to_string().contains("TOC.txt"));
    assert_eq!(engine.table_stats(&target).unwrap().sstable_count, 0);
}

#[test]
fn a_refresh_loads_sstables_from_a_tables_own_directory() {
    for damages in [false, true] {
        let disk = SimulatedDisk::new();
        let engine = open_with(&small_options(&disk));
        let table = create_table(&engine);
        insert(&engine, &table, 1, 1, "restored", 10);
        insert(&engine, &table, 2, 1, "restored", 10);
        let snapshot = engine.snapshot(&table, "s", "").unwrap();
        engine.truncate(&table).unwrap();
        insert(&engine, &table, 3, 1, "flushed", 10);
        engine.flush(&table).unwrap();
        insert(&engine, &table, 4, 1, "in memory", 10);
        let own = snapshot.parent().and_then(Path::parent).unwrap();
        let files = disk.list(&snapshot).unwrap().into_iter().filter(|entry| entry.name.starts_with("da-"));
        files.for_each(|file| disk.hard_link(&snapshot.join(&file.name), &own.join(&file.name)).unwrap());
        let count = || (rows(&engine, &table).len(), sstable::list_tables(&disk, own).unwrap().len());
        assert_eq!(count(), (2, 2), "nobody looked");
        if damages {
            let restored = sstable::list_tables(&disk, &snapshot).unwrap().remove(0);
            disk.flip_bit(&restored.path(sstable::Component::Data), 3, 1).unwrap();
            assert!(engine.refresh(&table).unwrap_err().to_string().contains("Data.db"));
            assert_eq!(count(), (2, 2));
            continue;
        }
        assert_eq!(engine.refresh(&table).unwrap(), 1);
        assert_eq!(count(), (4, 2), "in the place of what was there");
        assert_eq!(engine.refresh(&table).unwrap(), 0);
        engine.compact(&table).unwrap();
        assert_eq!(count().0, 4);
        let again = open_with(&small_options(&disk.crash_image(1)));
        assert_eq!(rows(&again, &table).len(), 4);
        engine.truncate(&table).unwrap();
        assert_eq!(count(), (0, 0));
    }
}

#[test]
fn tables_in_which_all_expired_are_dropped_unread() {
    let disk = SimulatedDisk::new();
    let engine = open_with(&small_options(&disk));
    let table = create_table(&engine);
    // The partition was deleted in 1970, long before gc_grace_seconds, and the table contains nothing else.
    delete_partition(&engine, &table, 1, 10);
    engine.flush(&table).unwrap();
    let late = 2_000_000_000_000_000;
    insert(&engine, &table, 2, 1, "alive", late);
    engine.flush(&table).unwrap();
    engine.compact(&table).unwrap();
    let stats = engine.compaction_stats();
    assert_eq!((stats.expired_sstables, stats.completed), (0, 1), "the log would bring its records back");
    // Writes fill segments of the log until the segment with the deletion is free.
    for round in 0..400 {
        insert(&engine, &table, 3, round % 7, &"v".repeat(9000), late + i64::from(round));
    }
    engine.flush_all().unwrap();
    delete_partition(&engine, &table, 1, 10);
    engine.flush(&table).unwrap();
    for round in 0..400 {
        insert(&engine, &table, 3, round % 7, &"v".repeat(9000), late + 1000 + i64::from(round));
    }
    engine.flush_all().unwrap();
    engine.compact(&table).unwrap();
    assert_eq!(engine.compaction_stats().expired_sstables, 2, "neither overlaps what is alive");
    assert_eq!(rows(&engine, &table).len(), 8);
}

#[test]
fn an_sstable_with_enough_old_tombstones_is_compacted_alone() {
    let disk = SimulatedDisk::new();
    let mut options = small_options(&disk);
    options.concurrent_compactors = 1;
    let engine = open_with(&options);
    let table = create_table(&engine);
    let compaction = [("class", "UnifiedCompactionStrategy"), ("tombstone_compaction_interval", "0")];
    let compaction = compaction.map(|(name, value)| (name.to_string(), value.to_string()));
    let options = TableOptions { compaction: compaction.into(), ..TableOptions::default() };
    let table = set_options(&engine, &table, options).unwrap();
    insert(&engine, &table, 0, 1, "stays", 10);
    // These were deleted in 1970, long before gc_grace_seconds.
    (1..12).for_each(|key| delete_partition(&engine, &table, key, 10));
    engine.flush(&table).unwrap();
    let began = std::time::Instant::now();
    while engine.compaction_stats().completed == 0 {
        assert!(began.elapsed() < GIVE_UP);
        std::thread::sleep(crate::fixture::PAUSE);
    }
    let stats = engine.table_stats(&table).unwrap();
    assert_eq!((stats.sstable_count, stats.sstable_partition_count), (1, 1));
    assert_eq!(rows(&engine, &table), [(0, 1, "stays".into())]);
}

#[test]
fn a_snapshot_lists_its_files_and_contains_the_schema() {
    let directory = TemporaryDirectory::create();
    let engine = open(&directory);
    let table = create_table(&engine);
    for row in 0..2 {
        insert(&engine, &table, 1, row, "value", 10);
        engine.flush(&table).unwrap();
    }
    let snapshot = engine.snapshot(&table, "s", "CREATE TABLE ks.t ();").unwrap();
    let read = |name: &str| std::fs::read_to_string(snapshot.join(name)).unwrap();
    assert_eq!(read("schema.cql"), "CREATE TABLE ks.t ();");
    let sstables = sstable::list_tables(&*engine.options().disk, &snapshot).unwrap();
    let files: Vec<String> = sstables.iter().map(|table| format!("\"{}-Data.db\"", table.name())).collect();
    let manifest = read("manifest.json");
    assert!(manifest.starts_with(&format!("{{\"files\": [{}], \"created_at\": \"20", files.join(", "))), "{manifest}");
    assert!(manifest.ends_with("Z\", \"expires_at\": null}\n"), "{manifest}");
    let again = engine.snapshot(&table, "s", "").unwrap_err().to_string();
    assert!(again.contains("Snapshot s already exists."), "{again}");
    assert_eq!(read("manifest.json"), manifest);
    let names = ["s", "t", "u"].map(str::to_owned);
    let next = engine.snapshot_as_first_of(&table, names, "", None).unwrap();
    assert_eq!(next, snapshot.with_file_name("t"));
}

#[test]
fn snapshots_are_listed_expire_and_are_cleared() {
    let directory = TemporaryDirectory::create();
    let engine = open(&directory);
    let table = create_table(&engine);
    insert(&engine, &table, 1, 1, "value", 10);
    engine.snapshot(&table, "kept", "").unwrap();
    let take = |name: &str, lifetime: Duration| {
        engine.snapshot_as_first_of(&table, [name.to_owned()], "", Some(lifetime)).unwrap()
    };
    let expired = take("expired", Duration::ZERO);
    take("young", Duration::from_secs(3600));
    take("eternal", Duration::MAX);
    let names = || engine.snapshots().unwrap().into_iter().map(|snapshot| snapshot.name).collect::<Vec<_>>();
    assert_eq!(names(), ["eternal", "expired", "kept", "young"]);
    let all = engine.snapshots().unwrap();
    assert!(all.iter().all(|snapshot| (&*snapshot.keyspace, &*snapshot.table) == ("ks", "t")));
    assert!(all.iter().all(|snapshot| snapshot.size_bytes > 1000 && snapshot.created_at.is_some()));
    assert!(all[2].expires_at.is_none() && all[3].expires_at > all[3].created_at);
    assert_eq!(engine.clear_expired_snapshots().unwrap(), 1);
    assert!(!expired.exists());
    assert_eq!(engine.clear_expired_snapshots().unwrap(), 0);
    assert_eq!(engine.clear_snapshots(&["other".to_owned()], None).unwrap(), 0);
    assert_eq!(engine.clear_snapshots(&[], Some("kept")).unwrap(), 1);
    assert_eq!(names(), ["eternal", "young"]);
    assert_eq!(engine.clear_snapshots(&["ks".to_owned()], None).unwrap(), 2);
    assert_eq!(engine.snapshots().unwrap(), []);
    assert_eq!(std::fs::read_dir(expired.parent().unwrap()).unwrap().count(), 0);
}

#[test]
fn a_disk_that_fills_during_a_compaction_stops_it_and_keeps_the_inputs() {
    let names = |disk: &SimulatedDisk, table: &Table| {
        let dir = format!("/node/data/ks/t-{}", table.id.0.simple());
        let mut names: Vec<String> =
            blockio::Disk::list(disk, dir.as_ref()).unwrap().into_iter().map(|entry| entry.name).collect();
        names.sort();
        names
    };
    // The disk is full at each operation in turn, until a compaction succeeds.
    for after in 0.. {
        let disk = SimulatedDisk::new();
        let engine = open_with(&small_options(&disk));
        let table = create_table(&engine);
        for row in 0..3 {
            (0..2).for_each(|key| insert(&engine, &table, key, row, "value", 10 + i64::from(row)));
            engine.flush(&table).unwrap();
        }
        let before = names(&disk, &table);
        disk.inject(Fault::Full, after);
        let compacted = engine.compact(&table);
        assert_eq!(rows(&engine, &table).len(), 6);
        match compacted {
            Err(_) if names(&disk, &table) == before => engine.compact(&table).unwrap(),
            // It failed after the replacement was decided, so the next start completes it.
            Err(_) => {
                let again = Engine::open(small_options(&disk.crash_image(after))).unwrap();
                let table = again.schema().table("ks", "t").unwrap().clone();
                assert_eq!(again.table_stats(&table).unwrap().sstable_count, 1, "full after {after} operations");
                assert_eq!(rows(&again, &table).len(), 6);
                continue;
            }
            Ok(()) if after > 60 => break,
            Ok(()) => {}
        }
        assert_eq!(engine.table_stats(&table).unwrap().sstable_count, 1);
        assert_eq!(rows(&engine, &table).len(), 6);
    }
}

#[test]
fn a_range_deletion_with_a_negative_timestamp_is_stored_across_blocks_of_the_row_index() {
    let disk = SimulatedDisk::new();
    let mut options = small_options(&disk);
    options.column_index_size_bytes = 256;
    let engine = open_with(&options);
    let table = create_table(&engine);
    let value = "value".repeat(9);
    for row in 0..100 {
        insert(&engine, &table, 1, row, &value, if row < 10 { -9 } else { 10 });
        insert(&engine, &table, 2, row, &value, 10);
    }
    let mut update = PartitionUpdateBuilder::new(table.clone(), PartitionKey::new(&1_i32.to_be_bytes()));
    update.delete_range(
        Slice {
            start: ClusteringBound::new(clustering(5), Side::Before),
            end: ClusteringBound::new(clustering(90), Side::After),
        },
        DeletionTime::new(-5, u32::MAX - 5),
    );
    block_on(engine.write(&Mutation::new(vec![update.build()]))).unwrap();
    let expected = rows(&engine, &table);
    assert_eq!(expected.len(), 195);
    engine.flush(&table).unwrap();
    insert(&engine, &table, 1, 200, &value, 10);
    engine.flush(&table).unwrap();
    engine.compact(&table).unwrap();
    assert_eq!(rows(&engine, &table).len(), 196);
    engine.shutdown().unwrap();
    drop(engine);
    let engine = open_with(&options);
    assert_eq!(rows(&engine, &table).len(), 196);
}
