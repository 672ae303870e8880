//! Applying a mutation: each update goes to the memtable generation of its log position.
//!
//! A write applies its mutation as a member of a write group, so that a flush of the generation waits for it. A logged
//! mutation can always be applied: another memtable replaces a full one.

use std::sync::Arc;

use commitlog::{CommitLog, LogPosition};
use memtable::MemtableFull;
use model::PartitionUpdate;

use super::Writes;
use super::order::Write;
use crate::table::in_memory::merges_are_behind;
use crate::table::{Generation, TableStore, View};

/// The number of updates of a batch that are prefetched together from memtables before they are applied, and the number
/// below which a prefetch does not pay.
const PREFETCHED_UPDATES: usize = 64;
const PREFETCHED_UPDATES_MIN: usize = 8;

impl Write<'_> {
    /// Applies the mutation to the memtables. `logged` is the end of its record; `None` if it is not in the log.
    pub fn apply(self, logged: Option<LogPosition>) {
        let (updates, stores) = (self.mutation.updates(), self.stores);
        debug_assert_eq!(stores.len(), updates.len(), "each update has its table's store");
        for (index, (store, update)) in stores.iter().zip(updates).enumerate() {
            if index % PREFETCHED_UPDATES == 0 && updates.len() - index >= PREFETCHED_UPDATES_MIN {
                prefetch(stores[index..].iter().zip(&updates[index..]).take(PREFETCHED_UPDATES));
            }
            self.writes.apply(store, update, logged);
            if store.counts {
                self.writes.counters.note(store, update);
            }
        }
    }
}

impl Writes {
    /// Applies an update to the memtable of its log position, or to the memtable that replaced it, if it is full.
    #[inline]
    fn apply(&self, store: &TableStore, update: &PartitionUpdate, logged: Option<LogPosition>) {
        let view = store.borrow_view();
        let generation = generation_of(&view, self.shared.log(), logged);
        if let Ok(growth_bytes) = generation.apply(update) {
            return self.account(store, generation, growth_bytes);
        }
        let mut full = Arc::clone(generation);
        drop(view);
        loop {
            let generation = self.shared.successor(store, &full);
            self.flush.request(store);
            match generation.apply(update) {
                Ok(growth_bytes) => return self.account(store, &generation, growth_bytes),
                Err(MemtableFull) => full = generation,
            }
        }
    }

    /// Counts the memory of an update.
    fn account(&self, store: &TableStore, generation: &Generation, growth_bytes: i64) {
        let bytes = generation.account(growth_bytes, self.shared.pool());
        if let Some(resident) = &generation.resident {
            let notices = self.shared.options().in_memory_notices.as_ref();
            store.limit.note_use(&store.table, resident.data.used_bytes(), notices);
            let is_due = resident.needs_flush(bytes, self.shared.options().in_memory_flush_bytes_min);
            if is_due
                && !generation.is_flush_requested()
                && !merges_are_behind(&store.borrow_view())
                && generation.request_flush()
            {
                self.flush.request(store);
            }
        }
    }
}

/// Prefetches the memory that updates of these stores will read first in memtables.
pub(super) fn prefetch<'w>(updates: impl Iterator<Item = (&'w Arc<TableStore>, &'w PartitionUpdate)>) {
    let updates: Vec<_> = updates.map(|(store, update)| (store, update.key())).collect();
    for same in updates.chunk_by(|(one, _), (next, _)| Arc::ptr_eq(one, next)) {
        let keys: Vec<_> = same.iter().map(|(_, key)| *key).collect();
        same[0].0.borrow_view().active.memtable.prefetch(&keys);
    }
}

/// A record belongs to the newest generation whose part of the log contains it. Unlogged mutations belong to the active
/// generation.
fn generation_of<'v>(view: &'v View, log: &CommitLog, logged: Option<LogPosition>) -> &'v Arc<Generation> {
    let Some(end) = logged else { return &view.active };
    view.generations().find(|generation| generation.lower(log) < end).unwrap_or(&view.active)
}
