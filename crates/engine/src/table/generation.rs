//! A memtable with its part of the log.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering, fence};
use std::sync::{Arc, OnceLock};

use commitlog::{CommitLog, LogPosition};
use memtable::{Memtable, MemtableFull};
use model::{PartitionUpdate, Table};

use super::in_memory::Resident;
use super::indexes::MemtableIndexes;
use super::pool::MemtablePool;

/// A memtable, and the part of the log whose records it holds.
pub(crate) struct Generation {
    pub memtable: Arc<dyn Memtable>,
    /// The resident data to which writes go too, in a table that lives in memory.
    pub resident: Option<Arc<Resident>>,
    /// The memtable's secondary indexes: those that the table had when the memtable was made.
    pub indexes: Option<Box<MemtableIndexes>>,
    pub(super) lower: OnceLock<LogPosition>,
    ends_replay: AtomicBool,
    /// Whether an older generation was full: this generation's SSTable covers the records of both.
    pub(super) takes_over: AtomicBool,
    reported_bytes: AtomicI64,
    flush_requested: AtomicBool,
    pub created_millis: i64,
}

impl Generation {
    pub fn new(
        memtable: Arc<dyn Memtable>,
        resident: Option<Arc<Resident>>,
        indexes: Option<Box<MemtableIndexes>>,
        created_millis: i64,
    ) -> Arc<Self> {
        let (reported_bytes, flush_requested) = (AtomicI64::new(0), AtomicBool::new(false));
        Arc::new(Generation {
            memtable,
            resident,
            indexes,
            lower: OnceLock::new(),
            ends_replay: AtomicBool::new(false),
            takes_over: AtomicBool::new(false),
            reported_bytes,
            flush_requested,
            created_millis,
        })
    }

    /// Whether a flush of this generation was requested.
    pub fn is_flush_requested(&self) -> bool {
        self.flush_requested.load(Ordering::Relaxed)
    }

    /// Requests a flush. Returns whether this is the first request.
    pub fn request_flush(&self) -> bool {
        !self.is_flush_requested() && !self.flush_requested.swap(true, Ordering::Relaxed)
    }

    /// Records that end after this position, up to the next generation's, are in this memtable.
    ///
    /// Unless it was set, it is the end of the log at the time of the first call, which comes after the publication of
    /// the view with this generation. A write that is appended after this position finds the generation there, and no
    /// such write goes to an older generation.
    pub fn lower(&self, log: &CommitLog) -> LogPosition {
        *self.lower.get_or_init(|| {
            // Pairs with the fence of an append, after which the writer reads its generation.
            fence(Ordering::SeqCst);
            log.position()
        })
    }

    /// Marks that the log was replayed, and that it holds all of the table's records up to `lower` that no SSTable has.
    pub fn end_replay(&self) {
        debug_assert!(self.lower.get().is_some(), "the replayed records end at its lower position");
        self.ends_replay.store(true, Ordering::Release);
    }

    /// The start of the part of the log that SSTables cover once this memtable is flushed.
    pub fn covers_from(&self, log: &CommitLog) -> LogPosition {
        if self.ends_replay.load(Ordering::Acquire) { LogPosition::NONE } else { self.lower(log) }
    }

    /// Makes this generation begin where `full` begins, and cover the records of both.
    pub(super) fn take_over(&self, full: &Generation, log: &CommitLog) {
        debug_assert!(!std::ptr::eq(self, full), "another generation takes over");
        let lower = full.lower(log);
        let own = *self.lower.get_or_init(|| lower);
        debug_assert_eq!(own, lower, "both begin at the same place of the log");
        self.takes_over.store(true, Ordering::Release);
    }

    /// Applies an update, also to the resident data, and before to the indexes. Returns the growth of memtable and
    /// indexes in bytes.
    pub fn apply(&self, update: &PartitionUpdate) -> Result<i64, MemtableFull> {
        // A search that begins once the row is visible must find its entries.
        let index_growth_bytes = self.indexes.as_ref().map_or(0, |indexes| indexes.put(update));
        let growth_bytes = self.memtable.apply(update, None)? + index_growth_bytes;
        if let Some(resident) = &self.resident {
            resident.apply(update);
        }
        Ok(growth_bytes)
    }

    /// Prepares the memtable and its indexes for writes under a newer version of the table.
    pub fn table_altered(&self, table: &Arc<Table>) {
        self.memtable.table_altered(table);
        self.indexes.iter().for_each(|indexes| indexes.table_altered(table));
    }

    /// The bytes of the memtable and its indexes.
    pub fn used_bytes(&self) -> u64 {
        self.memtable.memory().used_bytes + self.indexes.as_ref().map_or(0, |indexes| indexes.used_bytes())
    }

    /// Adds the memtable's growth to the pool's account. Returns the bytes that the memtable holds now.
    pub fn account(&self, growth_bytes: i64, pool: &MemtablePool) -> u64 {
        // Rows are often replaced by rows of the same size.
        if growth_bytes == 0 {
            return self.reported_bytes.load(Ordering::Relaxed).max(0) as u64;
        }
        let before = self.reported_bytes.fetch_add(growth_bytes, Ordering::Relaxed);
        pool.add(growth_bytes);
        (before + growth_bytes).max(0) as u64
    }

    /// Removes the memtable from the pool's account.
    pub fn release(&self, pool: &MemtablePool) {
        pool.add(-self.reported_bytes.swap(0, Ordering::Relaxed));
    }
}
