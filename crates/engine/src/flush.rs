//! Flushing memtables to SSTables.

use std::sync::Arc;

use commitlog::PositionInterval;
use model::{KeyRange, ReadRange};
use sstable::SSTableReader;

use crate::engine::Engine;
use crate::error::EngineError;
use crate::store::{Generation, TableStore, lock};

impl Engine {
    /// Writes what the table's memtable holds to an SSTable. Returns once it is durable, and answers whether there was
    /// anything; blocks on the disk. Where the table cannot be flushed and is quarantined for it, the error says
    /// so.
    pub(crate) fn flush_store(&self, store: &Arc<TableStore>) -> Result<bool, EngineError> {
        let flushed = self.try_flush_store(store).map_err(|error| {
            self.tell_failure(&error);
            self.contain(store, error)
        })?;
        self.flush_failures().forget(store.table.load().id);
        Ok(flushed)
    }

    /// Flushes the memtables that were retired before, and nothing that was written since. Blocks on the disk.
    pub(crate) fn flush_frozen(&self, store: &Arc<TableStore>) -> Result<bool, EngineError> {
        let _one_at_a_time = lock(&store.flushing);
        if !store.is_served() {
            return Ok(false);
        }
        let active = store.view().active.clone();
        self.flush_before(store, &active)
    }

    /// As [`flush_store`](Self::flush_store), and the table stays as it is where this fails.
    pub(crate) fn try_flush_store(&self, store: &Arc<TableStore>) -> Result<bool, EngineError> {
        let _one_at_a_time = lock(&store.flushing);
        if !store.is_served() {
            return Ok(false);
        }
        let view = store.view();
        let is_empty = view.active.memtable.is_empty();
        // A flush that failed left its memtable frozen: it goes first, and while that fails no more are frozen.
        let flushed = if is_empty || !view.frozen.is_empty() { self.flush_before(store, &view.active)? } else { false };
        if is_empty {
            return Ok(flushed);
        }
        self.flush_before(store, &self.retire_active(store))
    }

    /// Flushes the generations before `first`, oldest first, so that intervals are marked in order; false if there are
    /// none. Passes a barrier in any case.
    fn flush_before(&self, store: &Arc<TableStore>, first: &Arc<Generation>) -> Result<bool, EngineError> {
        self.groups().barrier().wait();
        let frozen = store.before(first);
        if frozen.is_empty() {
            return Ok(false);
        }
        self.complete_log()?;
        for (generation, next) in &frozen {
            self.flush_generation(store, generation, self.covered_interval(generation, next))?;
        }
        Ok(true)
    }

    /// Makes the log durable as far as it goes, so that a mutation of which a part gets into an SSTable has the others
    /// in the log.
    ///
    /// Fails once the log has: a record may then be on the device that nobody applied, or applied and not on the
    /// device, and an SSTable would split it. Nothing is flushed any more, and the next start replays such a record
    /// whole or not at all.
    fn complete_log(&self) -> Result<(), EngineError> {
        self.log().sync().map_err(|error| self.log_failed(error))
    }

    /// Freezes the active memtable and returns the one in its place. Writes into the frozen one may still be under way
    /// until a barrier is passed: see [`crate::write`].
    pub(crate) fn retire_active(&self, store: &TableStore) -> Arc<Generation> {
        store.retire(self.log(), |table| self.new_generation(table, store.resident()))
    }

    /// The generation that takes over from one that is full.
    ///
    /// An empty memtable is full where the system refuses it address space, or where a single write is too large for
    /// it. Another one of its kind would be as full, so a skip list follows, which reserves nothing: the record is in
    /// the log already and must be applied.
    pub(crate) fn successor(&self, store: &TableStore, full: &Arc<Generation>) -> Arc<Generation> {
        let resident = full.resident.clone();
        let is_refused = full.memtable.is_empty();
        store.successor(full, self.log(), |table| match is_refused {
            true => self.new_skip_list(table, resident),
            false => self.new_generation(table, resident),
        })
    }

    /// The part of the log that a generation's SSTable covers. Where that is nothing (it was full, or nothing was
    /// logged), it still says when it was written: a start that finds a truncation tells by it which SSTables are
    /// older.
    fn covered_interval(&self, generation: &Generation, next: &Generation) -> PositionInterval {
        let (start, end) = (generation.covers_from(self.log()), next.lower(self.log()));
        if start < end {
            return PositionInterval { start, end };
        }
        let now = self.log().position();
        PositionInterval { start: now, end: now }
    }

    fn flush_generation(
        &self,
        store: &Arc<TableStore>,
        generation: &Arc<Generation>,
        interval: PositionInterval,
    ) -> Result<(), EngineError> {
        if !self.flush_with_all(store, generation, interval) {
            let sstable =
                if generation.memtable.is_empty() { None } else { self.write_sstable(store, generation, interval)? };
            sstable.iter().for_each(|sstable| store.flush_size.note(sstable.size_on_disk_bytes()));
            store.replace_generation(generation, &[], sstable);
        }
        store.keep_puts(generation);
        generation.release(self.pool());
        let id = store.table.load().id.0;
        self.log().flushed(id, interval).map_err(|error| self.log_failed(error))
    }

    fn write_sstable(
        &self,
        store: &Arc<TableStore>,
        generation: &Generation,
        interval: PositionInterval,
    ) -> Result<Option<Arc<SSTableReader>>, EngineError> {
        let table = store.table.load_full();
        let statistics = generation.memtable.statistics();
        let mut cursor = generation.memtable.clone().cursor(&table, &ReadRange::all_rows(KeyRange::all()));
        self.files().write(store, &table, &mut cursor, statistics, &[interval])
    }
}
