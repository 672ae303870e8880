//! A shard: the trie of a range of tokens, and its one writer.

use std::sync::Arc;

use arc_swap::{ArcSwap, Cache};
use memtrie::{MemoryUse, Trie, TrieOptions};
use model::{PartitionUpdate, RowObserver, Table};

use crate::apply::Applier;
use crate::combine::Combiner;
use crate::layout::Layout;
use crate::statistics::Bounds;
use crate::{MemtableFull, PutCounts};

pub(crate) struct Shard {
    pub trie: Trie,
    /// The newest schema seen: rows are merged under it.
    table: Arc<ArcSwap<Table>>,
    writer: Combiner<Writing, PartitionUpdate, Result<i64, MemtableFull>>,
}

/// What the writer of the shard has for itself.
struct Writing {
    applier: Applier,
    bounds: Bounds,
    /// The shard's table, without counting its owners for every update.
    table: Cache<Arc<ArcSwap<Table>>, Arc<Table>>,
}

impl Shard {
    pub fn new(table: &Arc<Table>, options: TrieOptions) -> Shard {
        let table = Arc::new(ArcSwap::new(table.clone()));
        let writing = Writing { applier: Applier::new(), bounds: Bounds::NONE, table: Cache::new(table.clone()) };
        Shard { trie: Trie::new(options), table, writer: Combiner::new(writing) }
    }

    /// Applies an update; returns by how many bytes the trie grew.
    pub fn apply(
        &self,
        layout: &Layout,
        update: &PartitionUpdate,
        observer: Option<&mut dyn RowObserver>,
    ) -> Result<i64, MemtableFull> {
        let apply = |writing: &mut Writing, update: &PartitionUpdate| self.apply_now(writing, layout, update, None);
        match observer {
            None => self.writer.write(update, apply),
            // An observer may not be called by other threads.
            Some(observer) => {
                self.writer.write_here(|writing| self.apply_now(writing, layout, update, Some(observer)), apply)
            }
        }
    }

    /// A panic of an observer leaves the trie as it was before the update or after it, and the bounds of the rest.
    fn apply_now(
        &self,
        writing: &mut Writing,
        layout: &Layout,
        update: &PartitionUpdate,
        observer: Option<&mut dyn RowObserver>,
    ) -> Result<i64, MemtableFull> {
        let Writing { applier, bounds, table } = writing;
        let used = self.trie.memory().used;
        let mut writer = self.trie.writer();
        // Under the trie's lock: rows that are there may have been rewritten under a newer schema, but none is from here on.
        if is_newer(update.table(), table.load()) {
            self.table_altered(update.table());
        }
        let is_new = applier.apply(&mut writer, table.load(), layout, update, observer).map_err(|_| MemtableFull)?;
        drop(writer);
        bounds.update_count += 1;
        bounds.partition_count += u64::from(is_new);
        bounds.cover_update(update);
        Ok(self.trie.memory().used as i64 - used as i64)
    }

    pub fn table_altered(&self, table: &Arc<Table>) {
        note_newest(&self.table, table);
    }

    /// The newest schema that anything here may have been written under.
    pub fn table(&self) -> Arc<Table> {
        self.table.load_full()
    }

    pub fn bounds(&self, layout: &Layout) -> Bounds {
        self.writer.with(|writing| writing.bounds, |writing, update| self.apply_now(writing, layout, update, None))
    }

    pub fn memory(&self) -> MemoryUse {
        self.trie.memory()
    }

    pub fn puts(&self) -> PutCounts {
        self.writer.puts().counts()
    }
}

/// Keeps the newer of two versions of a table.
pub(crate) fn note_newest(known: &ArcSwap<Table>, candidate: &Arc<Table>) {
    if is_newer(candidate, &known.load()) {
        known.rcu(|known| if is_newer(candidate, known) { candidate.clone() } else { known.clone() });
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

/// That of the two which knows more.
pub(crate) fn newer_of(one: &Arc<Table>, other: &Arc<Table>) -> Arc<Table> {
    if is_newer(other, one) { other.clone() } else { one.clone() }
}
