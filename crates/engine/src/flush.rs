//! Flushing memtables to SSTables.

use std::sync::Arc;

use commitlog::{LogPosition, PositionInterval};
use model::{KeyRange, ReadRange};
use sstable::SSTableReader;

use crate::engine::Engine;
use crate::error::EngineError;
use crate::store::{Generation, TableStore, lock};

impl Engine {
    /// Writes what the table's memtable holds to an SSTable. Returns once it is durable; blocks on the disk.
    pub(crate) fn flush_store(&self, store: &Arc<TableStore>) -> Result<(), EngineError> {
        let _one_at_a_time = lock(&store.flushing);
        if store.is_dropped() {
            return Ok(());
        }
        if !store.borrow_view().active.memtable.is_empty() {
            self.retire_active(store);
        }
        // A flush that failed left its memtable frozen: it goes first, so that intervals are marked in order.
        let frozen = store.view().frozen.clone();
        self.groups().barrier().wait();
        if frozen.is_empty() {
            return Ok(());
        }
        self.complete_log()?;
        for generation in frozen.iter().rev() {
            let next = self.successor(store, generation);
            let interval = covered_interval(generation.lower(), next.lower());
            self.flush_generation(store, generation, interval)?;
        }
        Ok(())
    }

    /// Makes the log durable as far as it goes, so that a mutation of which a part gets into an SSTable has the others in the log.
    ///
    /// Fails once the log has: a record may then be on the device that nobody applied, or applied and not on the device, and
    /// an SSTable would split it. Nothing is flushed any more, and the next start replays such a record whole or not at all.
    fn complete_log(&self) -> Result<(), EngineError> {
        self.log().sync().map_err(|error| self.log_failed(error))
    }

    /// Freezes the active memtable. Writes into it may still be under way: see [`crate::groups`].
    pub(crate) fn retire_active(&self, store: &TableStore) {
        let active = store.view().active.clone();
        // The position is read before the switch: see `store.rs` for what belongs to which generation.
        store.switch(&active, |table| self.new_generation(table, self.log().position()));
    }

    /// The generation after `full`, making one if `full` is the active one.
    pub(crate) fn successor(&self, store: &TableStore, full: &Arc<Generation>) -> Arc<Generation> {
        store.switch(full, |table| self.new_generation(table, self.log().position()));
        let view = store.view();
        let newer = view.generations().take_while(|generation| !Arc::ptr_eq(generation, full)).last();
        newer.unwrap_or(&view.active).clone()
    }

    fn flush_generation(
        &self,
        store: &Arc<TableStore>,
        generation: &Arc<Generation>,
        interval: PositionInterval,
    ) -> Result<(), EngineError> {
        let sstable =
            if generation.memtable.is_empty() { None } else { self.write_sstable(store, generation, interval)? };
        store.replace_generation(generation, sstable);
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

/// The part of the log that a generation's SSTable covers. If nothing was logged meanwhile it names the last position all the
/// same, though no record: a start that finds a truncation tells by it which SSTables are older.
fn covered_interval(lower: LogPosition, upper: LogPosition) -> PositionInterval {
    let start = if lower < upper { lower } else { LogPosition { offset: upper.offset - 1, ..upper } };
    PositionInterval { start, end: upper }
}
