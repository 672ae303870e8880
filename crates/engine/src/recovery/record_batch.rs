//! Batches of log records, which are read, looked up and applied together.

use std::cell::Cell;
use std::sync::Arc;

use commitlog::{IntervalSet, LogPosition};
use model::{PartitionUpdate, ReadUpdates, Table, TableId};

use super::ReplaySummary;
use super::covered::Covered;
use crate::error::EngineError;
use crate::quarantine::Quarantine;
use crate::shared::{Catalog, Shared};

/// The number of records that are looked up in memtables together before they are applied.
const RECORDS_TOGETHER: usize = 64;
/// A batch ends earlier when its records reach this size, bytes.
const BATCH_BYTES_MAX: usize = 64 << 10;

/// The properties of a table that matter when its records are read.
#[derive(Clone, Copy)]
struct Known<'s> {
    id: TableId,
    table: Option<&'s Arc<Table>>,
    in_tables: Option<&'s IntervalSet>,
    /// Whether its records are skipped, and set aside later.
    is_quarantined: bool,
}

impl<'s> Known<'s> {
    fn new(id: TableId, catalog: &'s Catalog, in_tables: &'s Covered) -> Known<'s> {
        let is_quarantined = catalog.any_store(id).is_some_and(|store| store.quarantine_reason().is_some());
        let table = catalog.schema().table_by_id(id);
        if table.is_none() {
            in_tables.note_unknown(id);
        }
        Known { id, table, in_tables: in_tables.of_table(id), is_quarantined }
    }
}

/// Records that are applied together.
#[derive(Default)]
pub(crate) struct RecordBatch {
    /// The records, contiguous. In their source they are scattered, and each would cost a cache miss.
    bytes: Vec<u8>,
    /// The end of each record in `bytes`, and its position in the log.
    ends: Vec<(usize, LogPosition)>,
    updates: ReadUpdates,
}

impl RecordBatch {
    /// Takes the next records. Returns false when `records` ends; this batch may then hold the last of them.
    pub fn gather<'r>(&mut self, records: &mut impl Iterator<Item = (&'r [u8], LogPosition)>) -> bool {
        self.bytes.clear();
        self.ends.clear();
        while self.ends.len() < RECORDS_TOGETHER && self.bytes.len() < BATCH_BYTES_MAX {
            let Some((record, position)) = records.next() else { return false };
            self.bytes.extend_from_slice(record);
            self.ends.push((self.bytes.len(), position));
        }
        true
    }

    /// The updates that were read.
    pub fn updates(&self) -> &[PartitionUpdate] {
        self.updates.updates()
    }

    /// Reads the updates that no SSTable covers. If one cannot be read, its table is quarantined; if the log is
    /// salvaged, the record is left out instead.
    pub fn read(
        &mut self,
        shared: &Shared,
        quarantine: &Quarantine,
        in_tables: &Covered,
    ) -> Result<ReplaySummary, EngineError> {
        let catalog = shared.catalog();
        let (unknown, covered) = (Cell::new(0), Cell::new(0));
        let mut unreadable = 0;
        // The next update is usually of the same table.
        let last = Cell::new(None);
        self.updates.clear();
        let (mut start, mut index) = (0, 0);
        while let Some((end, position)) = self.ends.get(index) {
            // Covered updates are not decoded: the table of that id may have had other columns then.
            let to_replay = |id| {
                let known = last.get().filter(|known: &Known<'_>| known.id == id);
                let known = known.unwrap_or_else(|| Known::new(id, &catalog, in_tables));
                last.set(Some(known));
                let is_covered = known.in_tables.is_some_and(|set| set.contains(*position));
                unknown.update(|count| count + u64::from(known.table.is_none()));
                covered.update(|count| count + u64::from(known.table.is_some() && is_covered));
                known.table.filter(|_| !is_covered && !known.is_quarantined)
            };
            let record = self.bytes.get(start..*end).unwrap_or_default();
            if let Err(error) = self.updates.read_record(record, to_replay) {
                let what = EngineError::Startup(format!("commit log record ending at {position}: {error}"));
                // The last table that was asked for is the one whose update cannot be read.
                let culprit = last.take().filter(|known| !known.is_quarantined).map(|known| known.id.0);
                match culprit {
                    _ if shared.options().commitlog.salvage => unreadable += 1,
                    // The record is read again without that table; updates that are read twice change nothing.
                    Some(id) if quarantine.quarantine_unreadable(id, &what) => continue,
                    _ => return Err(what),
                }
            }
            (start, index) = (*end, index + 1);
        }
        let replayed = self.updates.updates().len() as u64;
        Ok(ReplaySummary { replayed, covered: covered.get(), of_dropped_tables: unknown.get(), unreadable })
    }
}
