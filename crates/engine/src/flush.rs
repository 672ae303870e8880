//! Flushing memtables to SSTables.

use std::sync::Arc;

use commitlog::PositionInterval;
use model::{KeyRange, ReadRange};
use sstable::SSTableReader;

use crate::engine::Engine;
use crate::error::EngineError;
use crate::store::{Generation, TableStore, lock};

impl Engine {
    /// Writes what the table's memtable holds to an SSTable. Returns once it is durable; blocks on the disk.
    pub(crate) fn flush_store(&self, store: &Arc<TableStore>) -> Result<(), EngineError> {
        let _one_at_a_time = lock(&store.flushing);
        // A flush that failed left its memtable frozen: it goes first, so that intervals are marked in order.
        let frozen = self.retire_active(store);
        for generation in frozen.iter().rev() {
            let next = self.successor(store, generation);
            self.flush_generation(store, generation, &next)?;
        }
        Ok(())
    }

    /// Freezes the active memtable, if it holds anything, and returns the frozen ones, newest first, once all writes
    /// into them are done.
    pub(crate) fn retire_active(&self, store: &TableStore) -> Vec<Arc<Generation>> {
        if !store.borrow_view().active.memtable.is_empty() {
            // The position is read before the switch: see `store.rs` for what belongs to which generation.
            let next = self.new_generation(&store.table.load(), self.log().position());
            store.switch(next);
        }
        let frozen = store.view().frozen.clone();
        self.groups().barrier().wait();
        frozen
    }

    /// The generation after `full`, making one if `full` is the active one.
    pub(crate) fn successor(&self, store: &TableStore, full: &Arc<Generation>) -> Arc<Generation> {
        loop {
            let view = store.view();
            if !Arc::ptr_eq(&view.active, full) {
                let newer = view.generations().take_while(|generation| !Arc::ptr_eq(generation, full)).last();
                return newer.unwrap_or(&view.active).clone();
            }
            let next = self.new_generation(&store.table.load(), self.log().position());
            store.change_view(|view| {
                let mut changed = crate::store::View {
                    active: view.active.clone(),
                    frozen: view.frozen.clone(),
                    sstables: view.sstables.clone(),
                };
                if Arc::ptr_eq(&view.active, full) {
                    changed.frozen = view.generations().cloned().collect();
                    changed.active = next;
                }
                changed
            });
        }
    }

    fn flush_generation(
        &self,
        store: &Arc<TableStore>,
        generation: &Arc<Generation>,
        next: &Arc<Generation>,
    ) -> Result<(), EngineError> {
        let interval = PositionInterval { start: generation.lower(), end: next.lower() };
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
        self.files().write(&store.directory, &table, &mut cursor, statistics, &[interval])
    }
}
