//! The state of a few batches on a disk before a start. It is printed if the start does not find what it has to.
//!
//! A failure that depends on the interleaving of threads may not come back, so its first appearance has to explain it.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use blockio::{Disk, SimulatedDisk};
use commitlog::{FILE_NAME, LogInspector, Walked};
use engine::Engine;
use model::{Mutation, PartitionKey, Table, Unfiltered, UnfilteredCursor};
use sstable::{BlockCache, SSTableReader, list_tables};

use crate::fixture::clustering;

/// The log's records and the SSTables that have these batches, and the names of all files.
pub fn evidence(engine: &Engine, disk: &SimulatedDisk, tables: &[Arc<Table>], batches: &[(i32, i32)]) -> String {
    let mut text = String::new();
    for path in ["/node", "/node/data/ks", "/node/quarantine"] {
        list(disk, Path::new(path), &mut text);
    }
    in_log(engine, disk, batches, &mut text);
    for table in tables {
        in_sstables(disk, table, batches, &mut text);
    }
    text
}

fn list(disk: &SimulatedDisk, directory: &Path, text: &mut String) {
    let names = disk.list(directory).map(|entries| entries.into_iter().map(|entry| entry.name).collect::<Vec<_>>());
    writeln!(text, "{}: {names:?}", directory.display()).unwrap();
}

fn in_log(engine: &Engine, disk: &SimulatedDisk, batches: &[(i32, i32)], text: &mut String) {
    let log = LogInspector::open(disk, &Path::new("/node").join(FILE_NAME)).unwrap();
    writeln!(text, "bookkeeping: {:?}", log.entries().collect::<Vec<_>>()).unwrap();
    for segment in log.segments().map(Result::unwrap) {
        let verdict = &segment.verdict;
        writeln!(text, "segment {}: horizon {}, {verdict:?}", segment.entry.id, segment.horizon_blocks).unwrap();
        let visit = |walked: Walked<'_>| {
            match walked {
                Walked::Record(record) => {
                    let found = batches.iter().filter(|batch| has_batch(engine, record.data, **batch));
                    found.for_each(|batch| writeln!(text, "  {batch:?} ends at {}", record.position).unwrap());
                }
                Walked::Cut(offset) => writeln!(text, "  cut at {offset}").unwrap(),
                Walked::Fault(offset, fault) => writeln!(text, "  {fault:?} at {offset}").unwrap(),
            }
            Ok::<(), ()>(())
        };
        segment.walk(visit).unwrap();
    }
}

/// Whether a record is that of a batch. Tables with other columns than now are passed over.
fn has_batch(engine: &Engine, record: &[u8], (key, row): (i32, i32)) -> bool {
    let Ok((mutation, _)) = Mutation::read_record(record, &engine.schema()) else { return false };
    let row = clustering(row);
    mutation.updates().iter().any(|update| {
        let is_in = update.as_bytes().windows(row.len()).any(|bytes| bytes == row);
        update.key() == &PartitionKey::new(&key.to_be_bytes()) && is_in
    })
}

fn in_sstables(disk: &SimulatedDisk, table: &Arc<Table>, batches: &[(i32, i32)], text: &mut String) {
    let directory = Path::new("/node/data/ks").join(format!("{}-{}", table.name, table.id.0.simple()));
    writeln!(text, "{}: {:?}", table.name, table.options.compaction).unwrap();
    list(disk, &directory, text);
    for descriptor in list_tables(disk, &directory).unwrap_or_default() {
        let sstable = SSTableReader::open(disk, &descriptor, table, &BlockCache::new(1 << 20)).unwrap();
        let stats = &sstable.statistics().stats;
        let mut found = Vec::new();
        let mut cursor = sstable.scan().unwrap();
        while cursor.advance_partition().unwrap() {
            let key = i32::from_be_bytes(cursor.partition().key.bytes().try_into().unwrap());
            while cursor.advance().unwrap() {
                if let Unfiltered::Row(row) = cursor.unfiltered() {
                    found.push((key, i32::from_be_bytes(row.clustering[4..8].try_into().unwrap())));
                }
            }
        }
        found.retain(|batch| batches.contains(batch));
        let (host, intervals) = (stats.originating_host_id, &stats.commit_log_intervals);
        writeln!(text, "  {}: {found:?}, of {host:?}, covers {intervals:?}", descriptor.id).unwrap();
    }
}
