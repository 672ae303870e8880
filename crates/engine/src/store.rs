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

use crate::error::EngineError;
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
    dropped: AtomicBool,
    files_distrusted: AtomicBool,
    view: ArcSwap<View>,
    /// Held while the view is replaced.
    change: Mutex<()>,
    /// Held by a flush or truncation: they take turns.
    pub flushing: Mutex<()>,
    /// Held by a compaction: one at a time.
    pub compacting: Mutex<()>,
    /// Whether SSTables came since a compaction in the background last looked.
    pub compaction_wanted: AtomicBool,
    /// Whether the table is compacted without being asked (`disableautocompaction`).
    pub autocompaction: AtomicBool,
    /// Held while files of SSTables that reads look at are deleted or linked.
    pub files: Mutex<()>,
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
            dropped: AtomicBool::new(false),
            files_distrusted: AtomicBool::new(false),
            view: ArcSwap::from_pointee(View { active, frozen: Vec::new(), sstables }),
            change: Mutex::new(()),
            flushing: Mutex::new(()),
            compacting: Mutex::new(()),
            compaction_wanted: AtomicBool::new(false),
            autocompaction: AtomicBool::new(true),
            files: Mutex::new(()),
        }
    }

    /// Whether the table was dropped: nothing is written to it any more.
    pub fn is_dropped(&self) -> bool {
        self.dropped.load(Ordering::Acquire)
    }

    /// Says so.
    pub fn set_dropped(&self) {
        self.dropped.store(true, Ordering::Release);
    }

    /// Says that the directory may hold other SSTables than the view: a flush or a compaction failed half way, and the next start
    /// decides. Until then nothing is compacted, because a merge could purge deletions that such files need, and no snapshot is made.
    pub fn distrust_files(&self) {
        self.files_distrusted.store(true, Ordering::Release);
    }

    /// Fails if the directory may hold other SSTables than the view.
    pub fn check_files(&self) -> Result<(), EngineError> {
        if !self.files_distrusted.load(Ordering::Acquire) {
            return Ok(());
        }
        let table = self.table.load();
        let (keyspace, name) = (&table.keyspace, &table.name);
        let why = "a flush or compaction failed half way; restart the node to compact it or take a snapshot";
        Err(EngineError::Unsupported(format!("table {keyspace}.{name}: {why}")))
    }

    pub fn view(&self) -> Arc<View> {
        self.view.load_full()
    }

    /// The view, for the length of a write.
    pub fn borrow_view(&self) -> arc_swap::Guard<Arc<View>> {
        self.view.load()
    }

    /// Replaces the view by what `change` makes of it.
    fn change_view(&self, change: impl FnOnce(&View) -> View) {
        let _one_at_a_time = lock(&self.change);
        let new = change(&self.view.load());
        self.view.store(Arc::new(new));
    }

    /// Takes a newer version of the table. Memtables that are made meanwhile are made for it.
    pub fn alter(&self, table: &Arc<Table>) {
        let _one_at_a_time = lock(&self.change);
        let current = self.table.load_full();
        if Arc::ptr_eq(&current, table) {
            return;
        }
        self.table.store(table.clone());
        let view = self.view();
        if *current != **table {
            view.generations().for_each(|generation| generation.memtable.table_altered(table));
        }
        let sstables = view.sstables.iter().map(|sstable| under(sstable.clone(), table)).collect();
        self.view.store(Arc::new(View { active: view.active.clone(), frozen: view.frozen.clone(), sstables }));
    }

    /// Freezes the active generation if it is `expected`, and makes what `next` makes for the table the active one.
    pub fn switch(&self, expected: &Arc<Generation>, next: impl FnOnce(&Arc<Table>) -> Arc<Generation>) {
        let _one_at_a_time = lock(&self.change);
        let view = self.view();
        if Arc::ptr_eq(&view.active, expected) {
            let frozen = view.generations().cloned().collect();
            let active = next(&self.table.load());
            self.view.store(Arc::new(View { active, frozen, sstables: view.sstables.clone() }));
        }
    }

    /// Takes a frozen generation out, in favour of the SSTable it was flushed to (if it held anything).
    pub fn replace_generation(&self, flushed: &Arc<Generation>, sstable: Option<Arc<SSTableReader>>) {
        self.change_view(|view| View {
            active: view.active.clone(),
            frozen: view.frozen.iter().filter(|frozen| !Arc::ptr_eq(frozen, flushed)).cloned().collect(),
            sstables: self.current(sstable).chain(view.sstables.iter().cloned()).collect(),
        });
    }

    /// SSTables as they are read under the current version of the table.
    fn current(
        &self,
        sstables: impl IntoIterator<Item = Arc<SSTableReader>>,
    ) -> impl Iterator<Item = Arc<SSTableReader>> {
        let table = self.table.load_full();
        sstables.into_iter().map(move |sstable| under(sstable, &table))
    }

    /// Takes SSTables out and puts others in.
    pub fn replace_sstables(&self, removed: &[Arc<SSTableReader>], added: Vec<Arc<SSTableReader>>) {
        self.change_view(|view| {
            let kept = view.sstables.iter().filter(|table| !removed.iter().any(|gone| gone.is_same(table)));
            View {
                active: view.active.clone(),
                frozen: view.frozen.clone(),
                sstables: self.current(added).chain(kept.cloned()).collect(),
            }
        });
    }
}

/// The SSTable under a version of the table. Reads come with the schema's own: if it is the same, nothing is translated
/// for each of them.
fn under(sstable: Arc<SSTableReader>, table: &Arc<Table>) -> Arc<SSTableReader> {
    if Arc::ptr_eq(sstable.table(), table) {
        return sstable;
    }
    sstable.with_table(table).map_or(sstable, Arc::new)
}

/// Locks; what these locks guard is replaced by single stores, so that a panic elsewhere leaves it valid.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
