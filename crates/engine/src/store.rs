//! One table's memtables and SSTables.
//!
//! A store's view is replaced as a whole: a reader takes one and sees every write in exactly one place. Memtable
//! generations divide the log: a generation holds the writes whose record ends after its `lower` position and not
//! after the `lower` of the next one.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use commitlog::LogPosition;
use memtable::Memtable;
use model::Table;
use sstable::SSTableReader;

use crate::pool::MemtablePool;

/// A memtable and the part of the log it stands for.
pub(crate) struct Generation {
    pub memtable: Arc<dyn Memtable>,
    lower: Mutex<LogPosition>,
    reported_bytes: AtomicI64,
    pub created_millis: i64,
}

impl Generation {
    pub fn new(memtable: Arc<dyn Memtable>, lower: LogPosition, created_millis: i64) -> Arc<Self> {
        Arc::new(Generation { memtable, lower: Mutex::new(lower), reported_bytes: AtomicI64::new(0), created_millis })
    }

    /// Records that end after this position, up to the next generation's, are in this memtable.
    pub fn lower(&self) -> LogPosition {
        *lock(&self.lower)
    }

    /// Takes over the records from `position` on, which the generation before had no room for.
    pub fn extend_down_to(&self, position: LogPosition) {
        let mut lower = lock(&self.lower);
        *lower = (*lower).min(position);
    }

    /// Tells the pool how the memtable's memory changed.
    pub fn account(&self, pool: &MemtablePool) {
        let used = self.memtable.memory().used_bytes as i64;
        let reported = self.reported_bytes.swap(used, Ordering::Relaxed);
        pool.add(used - reported);
    }

    /// Tells the pool that the memtable is gone.
    pub fn release(&self, pool: &MemtablePool) {
        pool.add(-self.reported_bytes.swap(0, Ordering::Relaxed));
    }
}

/// What a table consists of at one time.
pub(crate) struct View {
    pub active: Arc<Generation>,
    /// Memtables being flushed, newest first.
    pub frozen: Vec<Arc<Generation>>,
    /// Newest first.
    pub sstables: Vec<Arc<SSTableReader>>,
}

impl View {
    /// The generations, newest first.
    pub fn generations(&self) -> impl Iterator<Item = &Arc<Generation>> {
        std::iter::once(&self.active).chain(&self.frozen)
    }
}

/// A table's data.
pub(crate) struct TableStore {
    pub directory: PathBuf,
    pub table: ArcSwap<Table>,
    pub durable_writes: AtomicBool,
    pub is_dropped: AtomicBool,
    view: ArcSwap<View>,
    /// Held while the view is replaced.
    change: Mutex<()>,
    /// Held by a flush or truncation: they take turns.
    pub flushing: Mutex<()>,
    /// Held by a compaction: one at a time.
    pub compacting: Mutex<()>,
}

impl TableStore {
    pub fn new(
        table: Arc<Table>,
        directory: PathBuf,
        active: Arc<Generation>,
        sstables: Vec<Arc<SSTableReader>>,
    ) -> Self {
        TableStore {
            directory,
            table: ArcSwap::new(table),
            durable_writes: AtomicBool::new(true),
            is_dropped: AtomicBool::new(false),
            view: ArcSwap::from_pointee(View { active, frozen: Vec::new(), sstables }),
            change: Mutex::new(()),
            flushing: Mutex::new(()),
            compacting: Mutex::new(()),
        }
    }

    pub fn view(&self) -> Arc<View> {
        self.view.load_full()
    }

    /// The view, for the length of a write.
    pub fn borrow_view(&self) -> arc_swap::Guard<Arc<View>> {
        self.view.load()
    }

    /// Replaces the view by what `change` makes of it.
    pub fn change_view(&self, change: impl FnOnce(&View) -> View) {
        let _one_at_a_time = lock(&self.change);
        let new = change(&self.view.load());
        self.view.store(Arc::new(new));
    }

    /// Makes `next` the active generation and freezes the one that was, which is returned.
    pub fn switch(&self, next: Arc<Generation>) -> Arc<Generation> {
        let mut previous = None;
        self.change_view(|view| {
            previous = Some(view.active.clone());
            View { active: next, frozen: view.generations().cloned().collect(), sstables: view.sstables.clone() }
        });
        previous.expect("change_view calls its argument")
    }

    /// Takes a frozen generation out, in favour of the SSTable it was flushed to (if it held anything).
    pub fn replace_generation(&self, flushed: &Arc<Generation>, sstable: Option<Arc<SSTableReader>>) {
        self.change_view(|view| View {
            active: view.active.clone(),
            frozen: view.frozen.iter().filter(|frozen| !Arc::ptr_eq(frozen, flushed)).cloned().collect(),
            sstables: sstable.into_iter().chain(view.sstables.iter().cloned()).collect(),
        });
    }

    /// Takes SSTables out and puts others in.
    pub fn replace_sstables(&self, removed: &[Arc<SSTableReader>], added: Vec<Arc<SSTableReader>>) {
        self.change_view(|view| {
            let kept = view.sstables.iter().filter(|table| !removed.iter().any(|gone| Arc::ptr_eq(gone, table)));
            View {
                active: view.active.clone(),
                frozen: view.frozen.clone(),
                sstables: added.into_iter().chain(kept.cloned()).collect(),
            }
        });
    }
}

/// Locks; what these locks guard is replaced by single stores, so that a panic elsewhere leaves it valid.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
