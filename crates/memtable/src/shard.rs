//! A shard: the trie of a range of tokens, and its one writer.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

use arc_swap::ArcSwap;
use memtrie::{MemoryUse, Trie, Writer};
use model::{PartitionUpdate, RowObserver, Table};

use crate::apply::Applier;
use crate::combine::{Combiner, Gate};
use crate::layout::Layout;
use crate::statistics::{Bounds, SharedBounds};
use crate::{MemtableFull, PutCounts};

pub(crate) struct Shard {
    /// The trie's own writer lock is the shard's lock, and is only taken through `writers`.
    pub trie: Trie,
    /// The newest schema seen, under which rows are merged. Only the thread that writes changes it.
    table: ArcSwap<Table>,
    /// The address of that schema, for the thread that writes: most updates have exactly this schema.
    table_address: AtomicPtr<Table>,
    /// Only the thread that writes changes them.
    bounds: SharedBounds,
    writers: Combiner<PartitionUpdate, Result<i64, MemtableFull>>,
}

impl Gate for Trie {
    type Guard<'g> = Writer<'g>;

    #[inline]
    fn try_acquire(&self) -> Option<Writer<'_>> {
        self.try_writer()
    }

    fn acquire(&self) -> Writer<'_> {
        self.writer()
    }
}

thread_local! {
    /// The buffers of a thread that writes.
    static APPLIER: RefCell<Applier> = RefCell::new(Applier::new());
}

impl Shard {
    pub fn new(table: &Arc<Table>, trie: Trie) -> Shard {
        Shard {
            trie,
            table: ArcSwap::new(table.clone()),
            table_address: AtomicPtr::new(address(table)),
            bounds: SharedBounds::new(Bounds::NONE),
            writers: Combiner::new(),
        }
    }

    /// Applies an update. Returns by how many bytes the trie grew.
    pub fn apply(
        &self,
        layout: &Layout,
        update: &PartitionUpdate,
        observer: Option<&mut dyn RowObserver>,
    ) -> Result<i64, MemtableFull> {
        let apply = |writer: &mut Writer<'_>, update: &PartitionUpdate| self.apply_now(writer, layout, update, None);
        match observer {
            None => self.writers.write(&self.trie, update, apply),
            // Another thread must not call the observer.
            Some(observer) => {
                let here = |writer: &mut Writer<'_>| self.apply_now(writer, layout, update, Some(observer));
                self.writers.write_here(&self.trie, here, apply)
            }
        }
    }

    /// Reads the shard, or changes it outside of `apply`, while no other thread writes.
    pub fn with_writer<T>(&self, layout: &Layout, look: impl FnOnce(&mut Writer<'_>) -> T) -> T {
        self.writers.with(&self.trie, look, |writer, update| self.apply_now(writer, layout, update, None))
    }

    /// Applies an update as the writer. If an observer panics, the trie is as it was before the update or after it, and
    /// the bounds fit the rest.
    fn apply_now(
        &self,
        writer: &mut Writer<'_>,
        layout: &Layout,
        update: &PartitionUpdate,
        observer: Option<&mut dyn RowObserver>,
    ) -> Result<i64, MemtableFull> {
        // The caller's layout may be older, since this may be another thread's update.
        let layout = layout.newest();
        let used = self.trie.memory().used;
        let newer;
        let mut table = update.table();
        if address(table) != self.table_address.load(Ordering::Relaxed) {
            // Rows may have been rewritten under a newer schema before, but none is while this thread writes.
            self.note_newest(table);
            newer = self.table();
            table = &newer;
        }
        let apply = |applier: &mut Applier| applier.apply(writer, table, layout, update, observer);
        let is_new = APPLIER.with(|applier| match applier.try_borrow_mut() {
            Ok(mut applier) => apply(&mut applier),
            // An observer writes to a memtable: the thread's buffers are in use.
            Err(_) => apply(&mut Applier::new()),
        });
        let is_new = is_new.map_err(|_| MemtableFull)?;
        let mut bounds = self.bounds.load();
        bounds.update_count += 1;
        bounds.partition_count += u64::from(is_new);
        bounds.cover_update(update);
        debug_assert!(bounds.update_count > 0, "the update that was just applied is counted");
        debug_assert!(bounds.partition_count <= bounds.update_count, "every partition came with an update of its own");
        self.bounds.store(bounds);
        Ok(self.trie.memory().used as i64 - used as i64)
    }

    pub fn table_altered(&self, layout: &Layout, table: &Arc<Table>) {
        self.with_writer(layout, |_| self.note_newest(table));
    }

    /// Called by the thread that writes.
    fn note_newest(&self, candidate: &Arc<Table>) {
        note_newest(&self.table, candidate);
        debug_assert!(!is_newer(candidate, &self.table.load()), "the table that is known is at least as new");
        self.table_address.store(address(&self.table.load()), Ordering::Relaxed);
    }

    /// The newest schema that anything here may have been written under.
    pub fn table(&self) -> Arc<Table> {
        self.table.load_full()
    }

    pub fn bounds(&self, layout: &Layout) -> Bounds {
        self.with_writer(layout, |_| self.bounds.load())
    }

    pub fn memory(&self) -> MemoryUse {
        self.trie.memory()
    }

    pub fn puts(&self) -> PutCounts {
        self.writers.puts().counts()
    }
}

/// The address of a live table, used for comparison only and never dereferenced.
fn address(table: &Arc<Table>) -> *mut Table {
    Arc::as_ptr(table).cast_mut()
}

/// Keeps the newer of two versions of a table.
pub(crate) fn note_newest(known: &ArcSwap<Table>, candidate: &Arc<Table>) {
    if is_newer(candidate, &known.load()) {
        known.rcu(|known| if is_newer(candidate, known) { candidate.clone() } else { known.clone() });
    }
}

/// Whether `candidate` knows more of the same table's columns, or of their types, than `known`.
pub(crate) fn is_newer(candidate: &Arc<Table>, known: &Arc<Table>) -> bool {
    let age = |table: &Table| {
        let sets = table.column_sets(false).count() + table.column_sets(true).count();
        let last_drop = table.dropped().iter().map(|column| column.dropped_time_micros).max();
        (sets, table.next_column_id(), last_drop, table.type_parts())
    };
    !Arc::ptr_eq(candidate, known) && age(candidate) > age(known)
}

/// The one of the two that knows more.
pub(crate) fn newer_of(one: &Arc<Table>, other: &Arc<Table>) -> Arc<Table> {
    if is_newer(other, one) { other.clone() } else { one.clone() }
}
