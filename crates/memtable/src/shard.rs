//! A shard: the trie of a range of tokens, and its one writer.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use memtrie::{MemoryUse, Trie, TrieOptions};
use model::{PartitionUpdate, RowObserver, Table};

use crate::MemtableFull;
use crate::apply::Applier;
use crate::layout::Layout;
use crate::statistics::Bounds;

pub(crate) struct Shard {
    pub trie: Trie,
    writer: Mutex<Writing>,
}

/// What the writer of the shard has for itself.
struct Writing {
    /// The newest schema seen: rows are merged under it.
    table: Arc<Table>,
    applier: Applier,
    bounds: Bounds,
}

impl Shard {
    pub fn new(table: &Arc<Table>, options: TrieOptions) -> Shard {
        let writing = Writing { table: table.clone(), applier: Applier::new(), bounds: Bounds::NONE };
        Shard { trie: Trie::new(options), writer: Mutex::new(writing) }
    }

    pub fn apply(
        &self,
        layout: &Layout,
        update: &PartitionUpdate,
        observer: Option<&mut dyn RowObserver>,
    ) -> Result<(), MemtableFull> {
        let mut writing = self.lock();
        let Writing { table, applier, bounds } = &mut *writing;
        if is_newer(update.table(), table) {
            *table = update.table().clone();
        }
        let is_new =
            applier.apply(&mut self.trie.writer(), table, layout, update, observer).map_err(|_| MemtableFull)?;
        bounds.update_count += 1;
        bounds.partition_count += u64::from(is_new);
        bounds.cover_update(update);
        Ok(())
    }

    pub fn table_altered(&self, table: &Arc<Table>) {
        let mut writing = self.lock();
        if is_newer(table, &writing.table) {
            writing.table = table.clone();
        }
    }

    /// The newest schema that anything here may have been written under.
    pub fn table(&self) -> Arc<Table> {
        self.lock().table.clone()
    }

    pub fn bounds(&self) -> Bounds {
        self.lock().bounds
    }

    pub fn memory(&self) -> MemoryUse {
        self.trie.memory()
    }

    /// A panic of an observer leaves the trie as it was before the update or after it, and the bounds of the rest.
    fn lock(&self) -> MutexGuard<'_, Writing> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether `candidate` knows more of the same table's columns than `known`.
pub(crate) fn is_newer(candidate: &Arc<Table>, known: &Arc<Table>) -> bool {
    let age = |table: &Table| {
        let sets = table.column_sets(false).all().len() + table.column_sets(true).all().len();
        (sets, table.next_column_id(), table.dropped().iter().map(|column| column.dropped_time_micros).max())
    };
    !Arc::ptr_eq(candidate, known) && age(candidate) > age(known)
}
