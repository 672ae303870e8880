//! Tables that live in memory (`MemoryOnlyStrategy`).
//!
//! Such a table has all parts of other tables: its writes are logged and go to a memtable, which is flushed to
//! SSTables. In addition, all its data is resident in memory: every write is applied there too before it is
//! acknowledged, and reads use the resident data only. The parts that keep the durability promise do not know about
//! resident data; see `docs/decisions/0018-in-memory-tables.md`.
//!
//! A generation knows the resident data to which its writes go. Resident data is *complete* once it holds all data of
//! the view. Before that, and after it missed a write, reads work as for other tables.

mod limit;

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use compaction::MemoryOnlyOptions;
use memtable::ResidentTable;
use model::{PartitionUpdate, Table};

use super::{TableStore, View};

pub(crate) use limit::{MemoryLimit, Reservations, reserve, reserve_now};

const LOADING: u8 = 0;
const COMPLETE: u8 = 1;
const FAILED: u8 = 2;

/// The data of a table in memory.
pub(crate) struct Resident {
    pub data: ResidentTable,
    state: AtomicU8,
}

impl Resident {
    pub fn new(table: &Arc<Table>, parts: usize, expected_bytes: u64) -> Arc<Resident> {
        let data = ResidentTable::new(table, parts, expected_bytes);
        Arc::new(Resident { data, state: AtomicU8::new(LOADING) })
    }

    /// Whether it holds all data of the table, so that reads need nothing else.
    pub fn is_complete(&self) -> bool {
        self.state.load(Ordering::Acquire) == COMPLETE
    }

    /// Marks the data as complete, unless it has failed.
    pub fn set_complete(&self) {
        let _ = self.state.compare_exchange(LOADING, COMPLETE, Ordering::AcqRel, Ordering::Acquire);
        debug_assert!(!self.is_loading(), "no state leads back to it");
    }

    /// Applies an update that is in a memtable or in an SSTable. Without room for the update, the data is no longer
    /// complete.
    pub fn apply(&self, update: &PartitionUpdate) {
        if !self.is_failed() && self.data.apply(update).is_err() {
            self.set_failed();
        }
    }

    /// Whether the changes have enough bytes for a flush, so that the disk never holds much more than the data. A table
    /// that is much smaller than a memtable is flushed no more often than others, and its SSTables need no merges for
    /// that.
    pub fn needs_flush(&self, changed_bytes: u64, least_bytes: u64) -> bool {
        changed_bytes >= compaction::flush_bytes(self.data.used_bytes(), least_bytes) && !self.is_failed()
    }

    /// Marks the data as incomplete for good and frees it, since no read will use it.
    pub fn set_failed(&self) {
        self.state.store(FAILED, Ordering::Release);
        self.data.clear();
        debug_assert!(!self.is_complete(), "a read that begins later does not miss what was freed");
    }

    /// Whether the data missed a write and was freed.
    pub fn is_failed(&self) -> bool {
        self.state.load(Ordering::Acquire) == FAILED
    }

    pub fn is_loading(&self) -> bool {
        self.state.load(Ordering::Acquire) == LOADING
    }
}

/// Statistics of a table in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InMemoryStats {
    /// The limit of its memory in bytes (`size_limit_in_mb`).
    pub limit_bytes: u64,
    /// The bytes of its data with their structure.
    pub used_bytes: u64,
    /// The bytes that were taken from the system for it.
    pub committed_bytes: u64,
    /// Writes that were refused for lack of room, since the start.
    pub refused_writes: u64,
    /// How often its memory reached 80 % and 95 % of the limit since the start. It is counted again after the memory
    /// was well below.
    pub warnings: [u64; 2],
    /// The percentage that it has reached; 0 if it is below both.
    pub warned_percent: u64,
    /// Whether all of it is in memory. Otherwise reads use the disk.
    pub is_complete: bool,
}

/// The figures of a table, if it lives in memory.
pub(crate) fn in_memory_stats(store: &TableStore) -> Option<InMemoryStats> {
    let (resident, limit_bytes) = (store.resident()?, store.limit.get()?);
    Some(InMemoryStats {
        limit_bytes,
        used_bytes: resident.data.used_bytes(),
        committed_bytes: resident.data.memory().committed_bytes,
        refused_writes: store.limit.refused_writes(),
        warnings: store.limit.warnings(),
        warned_percent: store.limit.warned_percent(),
        is_complete: resident.is_complete(),
    })
}

/// The bytes of memtables and SSTables.
pub(crate) fn held_bytes(view: &View) -> u64 {
    let memtables: u64 = view.generations().map(|generation| generation.memtable.memory().used_bytes).sum();
    memtables + view.sstables.iter().map(|sstable| sstable.data_length_bytes()).sum::<u64>()
}

/// Whether the table's SSTables are merged more slowly than it is flushed. In that case changes wait in memory until
/// the log, the pool or the flush period requires their flush.
pub(crate) fn merges_are_behind(view: &View) -> bool {
    compaction::is_merge_overdue(view.sstables.iter().map(|sstable| sstable.data_length_bytes()))
}

/// The table's options about memory.
pub(crate) fn memory_only(table: &Table) -> Option<MemoryOnlyOptions> {
    MemoryOnlyOptions::of_table(&table.options.compaction).ok().flatten()
}
