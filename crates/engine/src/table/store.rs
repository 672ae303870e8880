//! One table's memtables and SSTables, and the changes of its view.
//!
//! A store's view is replaced as a whole, so that a reader of one view sees every write in exactly one place. Memtable
//! generations divide the log exactly: a generation holds the writes whose record ends after its `lower` position and
//! not after the `lower` of the next one. A flush, a truncation and a replay therefore divide the writes at the same
//! position. There is one exception: a full generation has the same `lower` as its successor, and holds some of the
//! successor's records.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use arc_swap::{ArcSwap, ArcSwapOption};
use commitlog::CommitLog;
use memtable::PutCounts;
use model::Table;
use sstable::SSTableReader;

use super::data_epoch::DataEpoch;
use super::flush_size::FlushSize;
use super::generation::Generation;
use super::in_memory::{MemoryLimit, Resident};
use super::indexes::{KnownIndexers, StoreIndexes};
use super::merges::Merges;
use super::view::View;
use crate::error::EngineError;
use crate::lock::lock;

/// A table's states. A request reads one byte.
mod state {
    /// Read and written.
    pub const SERVED: u8 = 0;
    /// Not served until it is repaired or dropped; see [`crate::quarantine`].
    pub const QUARANTINED: u8 = 1;
    /// Never served again.
    pub const DROPPED: u8 = 2;

    const _: () = assert!(SERVED < QUARANTINED && QUARANTINED < DROPPED, "a table is in one state");
}

/// A table's data.
pub(crate) struct TableStore {
    pub directory: PathBuf,
    pub table: ArcSwap<Table>,
    /// The table's incarnation, which never changes.
    pub incarnation: u64,
    /// Whether it is a table of counters, which never changes.
    pub counts: bool,
    /// It changes when rows are added or removed other than by writes.
    pub epoch: DataEpoch,
    pub durable_writes: AtomicBool,
    /// Whether a write since the start may be missing from the log.
    has_unlogged: AtomicBool,
    /// One of [`state`].
    state: AtomicU8,
    /// The reason for the quarantine. It is set before the state.
    quarantine_reason: ArcSwapOption<EngineError>,
    files_distrusted: AtomicBool,
    view: ArcSwap<View>,
    /// The secondary indexes of SSTables.
    pub indexes: StoreIndexes,
    /// The indexers that make the entries for which searches look.
    pub indexers: KnownIndexers,
    /// Counts of contended and uncontended writes at the shards of memtables that were dropped.
    past_puts: Mutex<Vec<PutCounts>>,
    /// Held while the view is replaced.
    change: Mutex<()>,
    /// Held by a flush or a truncation, which run one at a time.
    pub flushing: Mutex<()>,
    /// The drops and truncations that wait for `flushing`.
    waiting_for_flush: AtomicUsize,
    /// The size of its flushes.
    pub flush_size: FlushSize,
    /// Its merges in flight.
    pub merges: Merges,
    /// Held by a compaction or a refresh that a user requested, which run one at a time.
    pub compacting_all: Mutex<()>,
    /// Whether the table is compacted automatically (`disableautocompaction`).
    pub autocompaction: AtomicBool,
    /// Held while files of SSTables that reads use are deleted or linked.
    pub files: Mutex<()>,
    /// The limit of a table in memory.
    pub limit: MemoryLimit,
    /// The resident data to which later generations' writes go too, in a table that lives in memory.
    resident: ArcSwapOption<Resident>,
    /// Held while the resident data is replaced or loaded, and by a truncation. It is taken after `flushing`, and once
    /// `merges` are stopped.
    pub settling: Mutex<()>,
}

impl TableStore {
    pub fn new(
        table: Arc<Table>,
        directory: PathBuf,
        active: Arc<Generation>,
        sstables: Vec<Arc<SSTableReader>>,
    ) -> Self {
        let resident = ArcSwapOption::new(active.resident.clone());
        TableStore {
            directory,
            incarnation: table.incarnation(),
            counts: table.is_counter(),
            epoch: DataEpoch::new(),
            table: ArcSwap::new(table),
            durable_writes: AtomicBool::new(true),
            has_unlogged: AtomicBool::new(false),
            state: AtomicU8::new(state::SERVED),
            quarantine_reason: ArcSwapOption::empty(),
            files_distrusted: AtomicBool::new(false),
            view: ArcSwap::from_pointee(View { active, frozen: Vec::new(), sstables }),
            indexes: StoreIndexes::default(),
            indexers: KnownIndexers::default(),
            past_puts: Mutex::new(Vec::new()),
            change: Mutex::new(()),
            flushing: Mutex::new(()),
            waiting_for_flush: AtomicUsize::new(0),
            flush_size: FlushSize::default(),
            merges: Merges::default(),
            compacting_all: Mutex::new(()),
            autocompaction: AtomicBool::new(true),
            files: Mutex::new(()),
            limit: MemoryLimit::default(),
            resident,
            settling: Mutex::new(()),
        }
    }

    /// Sets whether writes from now on are logged.
    pub fn set_durable_writes(&self, durable: bool) {
        if !durable {
            self.has_unlogged.store(true, Ordering::Release);
        }
        self.durable_writes.store(durable, Ordering::Relaxed);
        debug_assert!(durable || !self.is_all_logged(), "a shutdown flushes what no log holds");
    }

    /// Whether the log has all content of its memtables.
    pub fn is_all_logged(&self) -> bool {
        !self.has_unlogged.load(Ordering::Acquire)
    }

    /// The resident data to which later generations' writes go too.
    pub fn resident(&self) -> Option<Arc<Resident>> {
        self.resident.load_full()
    }

    /// Sets the resident data of later generations. Called with `settling` held. The caller then retires the active
    /// generation.
    pub fn set_resident(&self, resident: Option<Arc<Resident>>) {
        debug_assert!(self.settling.try_lock().is_err(), "the resident data changes with `settling` held");
        self.resident.store(resident);
    }

    /// Whether the table is read and written: neither dropped nor quarantined.
    pub fn is_served(&self) -> bool {
        self.state.load(Ordering::Acquire) == state::SERVED
    }

    /// Takes `flushing` for a drop or a truncation. A flush that only builds indexes by now ends for it.
    pub fn wait_for_flush(&self) -> MutexGuard<'_, ()> {
        self.waiting_for_flush.fetch_add(1, Ordering::Relaxed);
        let no_flush = lock(&self.flushing);
        self.waiting_for_flush.fetch_sub(1, Ordering::Relaxed);
        no_flush
    }

    /// Whether a drop or a truncation waits for the end of a flush.
    pub fn is_flush_awaited(&self) -> bool {
        self.waiting_for_flush.load(Ordering::Relaxed) > 0
    }

    /// Marks the table as dropped: nothing is written to it any more.
    pub fn set_dropped(&self) {
        self.state.store(state::DROPPED, Ordering::Release);
        debug_assert!(!self.is_served() && self.quarantine_reason().is_none(), "a dropped table is in no other state");
    }

    /// Takes the table out of service, unless it was dropped meanwhile. Of several reasons one stays.
    pub fn set_quarantined(&self, reason: &EngineError) {
        self.quarantine_reason.store(Some(Arc::new(reason.clone())));
        self.change_state(state::SERVED, state::QUARANTINED);
        debug_assert!(!self.is_served(), "a request learns the reason");
    }

    /// Reverts a quarantine that failed.
    pub fn end_quarantine(&self) {
        debug_assert!(self.quarantine_reason.load().is_some(), "it was quarantined");
        self.change_state(state::QUARANTINED, state::SERVED);
        self.quarantine_reason.store(None);
    }

    /// Changes the state, unless it is another by now: a drop does not wait for a quarantine, and is for good.
    fn change_state(&self, from: u8, to: u8) {
        debug_assert!(from != to && from != state::DROPPED, "a drop is for good");
        let _ = self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire);
    }

    /// The reason why the table is quarantined, if it is.
    pub fn quarantine_reason(&self) -> Option<Arc<EngineError>> {
        let is_quarantined = self.state.load(Ordering::Acquire) == state::QUARANTINED;
        self.quarantine_reason.load_full().filter(|_| is_quarantined)
    }

    /// The error for a request to a table that is not served.
    #[cold]
    pub fn refusal(&self) -> EngineError {
        let table = self.table.load();
        match self.quarantine_reason() {
            None => EngineError::UnknownTable(table.name.to_string()),
            Some(reason) => EngineError::Quarantined {
                keyspace: table.keyspace.to_string(),
                table: table.name.to_string(),
                reason: reason.to_string(),
            },
        }
    }

    /// Fails if the table is not served.
    pub fn check_served(&self) -> Result<(), EngineError> {
        if self.is_served() { Ok(()) } else { Err(self.refusal()) }
    }

    /// Drops all memtables and SSTables. `active` is an empty generation.
    pub fn forget(&self, active: Arc<Generation>) {
        debug_assert!(active.memtable.is_empty(), "nothing is left of the data");
        self.change_view(|_| View { active, frozen: Vec::new(), sstables: Vec::new() });
        self.epoch.begin();
    }

    /// Marks that the directory may hold other SSTables than the view: a flush or a compaction failed half way, and the
    /// next start decides. Until then nothing is compacted, because a merge could purge deletions that such files need,
    /// and no snapshot is made.
    pub fn distrust_files(&self) {
        self.files_distrusted.store(true, Ordering::Release);
        debug_assert!(self.check_files().is_err(), "nothing is compacted or snapshotted from now on");
    }

    /// Fails if the directory may hold other SSTables than the view.
    pub fn check_files(&self) -> Result<(), EngineError> {
        self.check_served()?;
        if !self.files_distrusted.load(Ordering::Acquire) {
            return Ok(());
        }
        let table = self.table.load();
        let (keyspace, name) = (&table.keyspace, &table.name);
        let why = "a flush or compaction failed half way; restart the node to compact it or take a snapshot";
        Err(EngineError::Unsupported(format!("table {keyspace}.{name}: {why}")))
    }

    /// Counts of contended and uncontended writes at each shard since the start.
    pub fn puts(&self) -> Vec<PutCounts> {
        let past = lock(&self.past_puts).clone();
        let view = self.view();
        view.generations().fold(past, |puts, generation| by_shard(puts, generation.memtable.puts()))
    }

    /// Keeps the counts of a memtable that was taken out of the view.
    pub fn keep_puts(&self, generation: &Generation) {
        let mut past = lock(&self.past_puts);
        *past = by_shard(std::mem::take(&mut *past), generation.memtable.puts());
    }

    /// The bytes of the memtables and their indexes, including those whose flush failed.
    pub fn used_bytes(&self) -> u64 {
        self.view().generations().map(|generation| generation.used_bytes()).sum()
    }

    pub fn view(&self) -> Arc<View> {
        self.view.load_full()
    }

    /// The view, for the length of a write.
    pub fn borrow_view(&self) -> arc_swap::Guard<Arc<View>> {
        self.view.load()
    }

    /// Replaces the view with the result of `change`.
    fn change_view(&self, change: impl FnOnce(&View) -> View) {
        let _one_at_a_time = lock(&self.change);
        let new = change(&self.view.load());
        debug_assert!(new.has_each_once(), "a generation is in a view twice");
        self.view.store(Arc::new(new));
    }

    /// Adopts a newer version of the table. Memtables that are made meanwhile are made for it.
    pub fn alter(&self, table: &Arc<Table>) {
        let _one_at_a_time = lock(&self.change);
        let current = self.table.load_full();
        if Arc::ptr_eq(&current, table) {
            return;
        }
        debug_assert_eq!((current.id, self.incarnation), (table.id, table.incarnation()), "it stays the same table");
        self.table.store(table.clone());
        let view = self.view();
        if *current != **table {
            view.generations().for_each(|generation| generation.table_altered(table));
            self.resident().iter().for_each(|resident| resident.data.table_altered(table));
        }
        let sstables = view.sstables.iter().map(|sstable| under(sstable.clone(), table)).collect();
        self.view.store(Arc::new(View { active: view.active.clone(), frozen: view.frozen.clone(), sstables }));
    }

    /// Freezes the active generation, and makes the result of `next` the active generation, which is returned. It
    /// begins at the end of the log.
    pub fn retire(&self, log: &CommitLog, next: impl FnOnce(&Arc<Table>) -> Arc<Generation>) -> Arc<Generation> {
        let one_at_a_time = lock(&self.change);
        let (view, active) = (self.view(), next(&self.table.load()));
        let frozen = view.generations().cloned().collect();
        self.view.store(Arc::new(View { active: active.clone(), frozen, sstables: view.sstables.clone() }));
        drop(one_at_a_time);
        debug_assert!(self.view().has_each_once(), "a generation is in a view twice");
        let lower = active.lower(log);
        debug_assert!(
            view.active.lower.get().is_none_or(|retired| *retired <= lower),
            "the new generation begins in the log behind the retired one",
        );
        active
    }

    /// The generation that takes the writes for which `full` has no room. `next` makes it, unless there is one already.
    /// From now on it covers all of the log that `full` covered.
    pub fn successor(
        &self,
        full: &Arc<Generation>,
        log: &CommitLog,
        next: impl FnOnce(&Arc<Table>) -> Arc<Generation>,
    ) -> Arc<Generation> {
        let _one_at_a_time = lock(&self.change);
        let view = self.view();
        debug_assert!(view.has(full), "writes into a generation end before it leaves the view");
        let newer = view.generations().take_while(|generation| !Arc::ptr_eq(generation, full)).last();
        if let Some(newer) = newer
            && newer.lower(log) == full.lower(log)
        {
            newer.take_over(full, log);
            return newer.clone();
        }
        let successor = next(&self.table.load());
        successor.take_over(full, log);
        let mut generations = Vec::with_capacity(view.frozen.len() + 2);
        for generation in view.generations() {
            if Arc::ptr_eq(generation, full) {
                generations.push(successor.clone());
            }
            generations.push(generation.clone());
        }
        debug_assert!(
            generations.windows(2).all(|pair| !Arc::ptr_eq(&pair[0], &pair[1])),
            "a generation is in a view twice",
        );
        let active = generations.remove(0);
        self.view.store(Arc::new(View { active, frozen: generations, sstables: view.sstables.clone() }));
        successor
    }

    /// The generations before `first`, oldest first, each with the one after it.
    pub fn before(&self, first: &Arc<Generation>) -> Vec<(Arc<Generation>, Arc<Generation>)> {
        let view = self.view();
        debug_assert!(view.has(first), "the generation is in the view");
        let older: Vec<_> = view.generations().skip_while(|generation| !Arc::ptr_eq(generation, first)).collect();
        let pairs = older.windows(2).rev();
        pairs.map(|pair| (pair[1].clone(), pair[0].clone())).collect()
    }

    /// Removes the generations before `first` and all SSTables at once.
    pub fn truncate(&self, first: &Arc<Generation>) {
        debug_assert!(self.view().has(first), "the generation after the truncation stays");
        self.change_view(|view| {
            let mut kept: Vec<_> = view.generations().cloned().collect();
            kept.truncate(kept.iter().position(|generation| Arc::ptr_eq(generation, first)).map_or(0, |at| at + 1));
            let frozen = kept.split_off(1.min(kept.len()));
            View { active: kept.pop().unwrap_or_else(|| first.clone()), frozen, sstables: Vec::new() }
        });
        self.epoch.begin();
        debug_assert!(
            self.view().generations().last().is_some_and(|oldest| Arc::ptr_eq(oldest, first)),
            "no older generation is left",
        );
    }

    /// Removes a frozen generation, and the SSTables with which it was merged, in favour of the SSTable to which it was
    /// flushed (if it held anything).
    pub fn replace_generation(
        &self,
        flushed: &Arc<Generation>,
        merged: &[Arc<SSTableReader>],
        added: impl IntoIterator<Item = Arc<SSTableReader>>,
    ) {
        debug_assert!(!Arc::ptr_eq(&self.view().active, flushed), "a generation is retired before it is flushed");
        self.change_view(|view| View {
            active: view.active.clone(),
            frozen: view.frozen.iter().filter(|frozen| !Arc::ptr_eq(frozen, flushed)).cloned().collect(),
            sstables: self.current(added).chain(without(&view.sstables, merged)).collect(),
        });
        debug_assert!(!self.view().has(flushed), "its rows are in the SSTable only");
    }

    /// SSTables under the current version of the table.
    fn current(
        &self,
        sstables: impl IntoIterator<Item = Arc<SSTableReader>>,
    ) -> impl Iterator<Item = Arc<SSTableReader>> {
        let table = self.table.load_full();
        sstables.into_iter().map(move |sstable| under(sstable, &table))
    }

    /// Removes SSTables and adds others. If both are given, the added ones hold the rows of the removed ones.
    pub fn replace_sstables(&self, removed: &[Arc<SSTableReader>], added: Vec<Arc<SSTableReader>>) {
        let is_other_data = removed.is_empty() || added.is_empty();
        self.change_view(|view| View {
            active: view.active.clone(),
            frozen: view.frozen.clone(),
            sstables: self.current(added).chain(without(&view.sstables, removed)).collect(),
        });
        if is_other_data {
            self.epoch.begin();
        }
    }
}

/// SSTables without the removed ones.
fn without(
    sstables: &[Arc<SSTableReader>],
    removed: &[Arc<SSTableReader>],
) -> impl Iterator<Item = Arc<SSTableReader>> {
    sstables.iter().filter(|table| !removed.iter().any(|gone| gone.is_same(table))).cloned()
}

/// Adds counts shard by shard. One list may be longer than the other.
fn by_shard(mut sums: Vec<PutCounts>, counts: Vec<PutCounts>) -> Vec<PutCounts> {
    sums.resize(sums.len().max(counts.len()), PutCounts::default());
    sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum = sum.and(count));
    sums
}

/// The SSTable under a version of the table. Reads use the schema's own version: if it is the same, nothing is
/// translated.
fn under(sstable: Arc<SSTableReader>, table: &Arc<Table>) -> Arc<SSTableReader> {
    if Arc::ptr_eq(sstable.table(), table) {
        return sstable;
    }
    sstable.with_table(table).map_or(sstable, Arc::new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use blockio::SimulatedDisk;
    use commitlog::LogOptions;
    use memtable::TrieMemtable;
    use model::{TableBuilder, TableId};
    use types::CqlType;
    use uuid::Uuid;

    fn generation(table: &Arc<Table>) -> Arc<Generation> {
        Generation::new(Arc::new(TrieMemtable::new(table, 1)), None, None, 0)
    }

    fn is_order(store: &TableStore, newest_first: &[&Arc<Generation>]) -> bool {
        let view = store.view();
        let found: Vec<_> = view.generations().collect();
        found.len() == newest_first.len() && found.iter().zip(newest_first).all(|(a, b)| Arc::ptr_eq(a, b))
    }

    #[test]
    fn a_table_that_is_dropped_while_its_quarantine_fails_is_not_served_again() {
        let table = TableBuilder::new("ks", "t", TableId(Uuid::nil())).partition_key("k", CqlType::Int).build();
        let table = Arc::new(table);
        let reason = EngineError::UnknownTable("t".into());
        for drops_first in [true, false] {
            let store = TableStore::new(table.clone(), "/t".into(), generation(&table), Vec::new());
            if drops_first {
                store.set_dropped();
                store.set_quarantined(&reason);
            } else {
                store.set_quarantined(&reason);
                store.set_dropped();
            }
            assert!(store.quarantine_reason().is_none(), "the drop counts");
            store.end_quarantine();
            assert!(!store.is_served());
        }
    }

    #[test]
    fn a_flush_learns_that_a_drop_or_a_truncation_waits_for_it() {
        let table = TableBuilder::new("ks", "t", TableId(Uuid::nil())).partition_key("k", CqlType::Int).build();
        let table = Arc::new(table);
        let store = TableStore::new(table.clone(), "/t".into(), generation(&table), Vec::new());
        let flush = lock(&store.flushing);
        assert!(!store.is_flush_awaited());
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| drop(store.wait_for_flush()));
            while !store.is_flush_awaited() {
                assert!(!waits.is_finished(), "the flush has not ended");
                std::thread::yield_now();
            }
            drop(flush);
        });
        assert!(!store.is_flush_awaited());
    }

    #[test]
    fn generations_divide_the_log_and_full_ones_are_replaced_in_place() {
        let mut options = LogOptions::new("/log");
        options.total_space_bytes = 4 * u64::from(options.segment_size_bytes);
        let (log, _replay) = CommitLog::open(Arc::new(SimulatedDisk::new()), options).unwrap();
        let table = TableBuilder::new("ks", "t", TableId(Uuid::nil())).partition_key("k", CqlType::Int).build();
        let table = Arc::new(table);
        let append = || log.append(&[table.id.0], b"record").unwrap().position;
        let first = generation(&table);
        first.lower(&log);
        let store = TableStore::new(table.clone(), "/t".into(), first.clone(), Vec::new());
        let before = append();
        let second = store.retire(&log, generation);
        let after = append();
        let lowers = [first.lower(&log), second.lower(&log)];
        assert!(lowers[0] < before && before <= lowers[1] && lowers[1] < after);

        let overflow = store.successor(&first, &log, generation);
        assert!(is_order(&store, &[&second, &overflow, &first]), "right behind the full one");
        assert!(Arc::ptr_eq(&store.successor(&first, &log, generation), &overflow), "one takes over");
        assert_eq!([overflow.lower(&log), second.lower(&log)], lowers, "the one after it begins where it did");
        let pairs = store.before(&second);
        assert!(Arc::ptr_eq(&pairs[0].0, &first) && Arc::ptr_eq(&pairs[0].1, &overflow) && pairs.len() == 2);

        let third = store.successor(&second, &log, generation);
        assert_eq!(third.lower(&log), second.lower(&log));
        store.truncate(&second);
        assert!(is_order(&store, &[&third, &second]), "what the truncation is followed by stays");
    }
}
