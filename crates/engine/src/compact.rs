//! Compaction: picks by the table's strategy, merges, and puts the result in the place of the inputs.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::time::{Duration, Instant};

use compaction::{
    CompactionError, CompactionInput, Overlaps, Strategy, TableMetadata, TombstoneCandidate, TombstoneOptions, compact,
    fully_expired, worth_compacting_alone,
};
use model::{PartitionKey, Table, TableId};
use sstable::{SSTableId, SSTableReader};

use crate::compaction_tasks::{ActiveCompaction, CompactionStats, CompactionTasks, Throttle};
use crate::engine::Engine;
use crate::error::EngineError;
use crate::store::{TableStore, View, lock};
use crate::worker::Worker;

/// The longest that a throttled merge sleeps without looking whether it is to stop.
const NAP: Duration = Duration::from_millis(50);

/// The threads that compact in the background, apart from the one that flushes.
pub(crate) struct Compactor {
    requests: Arc<(Mutex<Requests>, Condvar)>,
    workers: Vec<Worker>,
    pub tasks: CompactionTasks,
    throttle: Throttle,
}

#[derive(Default)]
struct Requests {
    tables: VecDeque<TableId>,
    stopped: bool,
}

impl Compactor {
    /// A number of threads that together write so many bytes per second, 0 for no limit.
    pub fn new(threads: usize, bytes_per_second: u64) -> Self {
        Compactor {
            requests: Arc::default(),
            workers: (0..threads).map(|_| Worker::new()).collect(),
            tasks: CompactionTasks::default(),
            throttle: Throttle::new(bytes_per_second),
        }
    }

    /// Starts the threads; they end with the engine.
    pub fn start(&self, engine: &Arc<Engine>) -> Result<(), EngineError> {
        self.workers.iter().try_for_each(|worker| {
            let requests = self.requests.clone();
            worker.start("compactor", engine, move |engine| run(&engine, &requests))
        })
    }

    /// Ends the threads; merges under way stop and leave their inputs.
    pub fn stop(&self) {
        lock(&self.requests.0).stopped = true;
        self.requests.1.notify_all();
        self.workers.iter().for_each(Worker::join);
    }

    fn request(&self, table: TableId) {
        let mut requests = lock(&self.requests.0);
        if !requests.tables.contains(&table) {
            requests.tables.push_back(table);
        }
        self.requests.1.notify_all();
    }

    fn is_stopped(&self) -> bool {
        lock(&self.requests.0).stopped
    }
}

impl Drop for Compactor {
    fn drop(&mut self) {
        self.stop();
    }
}

fn run(engine: &Weak<Engine>, requests: &(Mutex<Requests>, Condvar)) {
    loop {
        let table = {
            let mut waiting = lock(&requests.0);
            loop {
                if waiting.stopped {
                    return;
                }
                if let Some(table) = waiting.tables.pop_front() {
                    break table;
                }
                waiting = requests.1.wait(waiting).unwrap_or_else(std::sync::PoisonError::into_inner);
            }
        };
        let Some(engine) = engine.upgrade() else {
            return;
        };
        let store = engine.stores().into_iter().find(|store| store.table.load().id == table);
        let failure = store.and_then(|store| engine.compact_in_background(&store).err());
        engine.note_compaction_failure(failure);
    }
}

/// What became of the inputs of a merge.
#[derive(PartialEq, Eq)]
enum Merged {
    Replaced,
    Kept,
}

/// The data of a table that is not part of a merge, as it is when asked.
struct Outside<'a> {
    store: &'a TableStore,
    inputs: &'a [Arc<SSTableReader>],
}

impl Overlaps for Outside<'_> {
    fn oldest_timestamp(&self, key: &PartitionKey) -> i64 {
        let view = self.store.view();
        let is_input = |table: &&Arc<SSTableReader>| self.inputs.iter().any(|input| input.is_same(table));
        let others = view.sstables.iter().filter(|table| !is_input(table)).map(Arc::as_ref);
        let memtables = view.generations().map(|generation| generation.memtable.statistics().timestamp_min);
        compaction::oldest_overlapping_timestamp(others, key).min(memtables.min().unwrap_or(i64::MAX))
    }
}

impl Engine {
    /// Merges all SSTables of a table, memtable flushed first, into one. Blocks until it is done.
    pub fn compact(&self, table: &Table) -> Result<(), EngineError> {
        let store = self.store(table)?;
        self.flush_store(&store)?;
        let one_at_a_time = lock(&store.compacting);
        store.check_files()?;
        let view = store.view();
        let inputs = view.sstables.clone();
        if inputs.is_empty() || store.is_dropped() {
            return Ok(());
        }
        let metadata: Vec<TableMetadata> = inputs.iter().map(|table| TableMetadata::of(table)).collect();
        let inputs = match self.drop_expired(&store, &store.table.load_full(), &view, &metadata, false)? {
            true => store.view().sstables.clone(),
            false => inputs,
        };
        if !inputs.is_empty() {
            self.merge(&store, &inputs, Vec::new())?;
        }
        drop(one_at_a_time);
        self.compact_after_flush(&store);
        Ok(())
    }

    /// Lets the compactor look at a table whose SSTables changed.
    pub(crate) fn compact_after_flush(&self, store: &TableStore) {
        if self.options().concurrent_compactors > 0 {
            self.compactor().request(store.table.load().id);
        }
    }

    /// Switches compaction without being asked on or off, for one table until the next start.
    pub fn set_autocompaction(&self, table: &Table, enabled: bool) -> Result<(), EngineError> {
        let store = self.store(table)?;
        store.autocompaction.store(enabled, Ordering::Release);
        if enabled {
            self.compact_after_flush(&store);
        }
        Ok(())
    }

    /// What compaction is doing and has done.
    pub fn compaction_stats(&self) -> CompactionStats {
        let pending = self.stores().iter().map(|store| self.pending_compactions(store)).sum();
        CompactionStats { pending, ..self.compactor().tasks.stats() }
    }

    fn pending_compactions(&self, store: &TableStore) -> usize {
        let table = store.table.load_full();
        let Ok(strategy) = Strategy::from_options(&table.options.compaction) else { return 0 };
        if !is_enabled(store, &table) {
            return 0;
        }
        let metadata: Vec<_> = store.view().sstables.iter().map(|sstable| TableMetadata::of(sstable)).collect();
        strategy.picks(&metadata, self.flush_size_bytes(), self.now_millis() * 1000).len()
    }

    /// Merges what a table's strategy picks until it picks nothing, unless another thread is at it: that one looks again.
    fn compact_in_background(&self, store: &Arc<TableStore>) -> Result<(), EngineError> {
        store.compaction_wanted.store(true, Ordering::SeqCst);
        while store.compaction_wanted.load(Ordering::SeqCst) {
            let Ok(_one_at_a_time) = store.compacting.try_lock() else { return Ok(()) };
            store.compaction_wanted.store(false, Ordering::SeqCst);
            while self.compact_once(store)? == Merged::Replaced {}
        }
        Ok(())
    }

    /// Drops what expired, or carries out the most urgent merge.
    fn compact_once(&self, store: &Arc<TableStore>) -> Result<Merged, EngineError> {
        let table = store.table.load_full();
        let options = &table.options.compaction;
        if !is_enabled(store, &table) || self.is_closing(store) {
            return Ok(Merged::Kept);
        }
        let invalid = |error: compaction::OptionError| EngineError::Startup(error.to_string());
        let strategy = Strategy::from_options(options).map_err(invalid)?;
        let view = store.view();
        let metadata: Vec<TableMetadata> = view.sstables.iter().map(|table| TableMetadata::of(table)).collect();
        if self.drop_expired(store, &table, &view, &metadata, strategy.unsafe_aggressive_expiration())? {
            return Ok(Merged::Replaced);
        }
        let picked = match strategy.next(&metadata, self.flush_size_bytes(), self.next_timestamp_micros()) {
            Some(pick) => pick.tables,
            None => {
                match self.pick_for_tombstones(&table, &view, TombstoneOptions::from_options(options).map_err(invalid)?)
                {
                    Some(alone) => vec![alone],
                    None => return Ok(Merged::Kept),
                }
            }
        };
        let inputs = named(&view, &picked);
        let metadata: Vec<TableMetadata> = inputs.iter().map(|table| TableMetadata::of(table)).collect();
        self.merge(store, &inputs, strategy.output_boundaries(&metadata))
    }

    /// Removes SSTables that hold nothing but what expired and shadows nothing; whether there were any.
    fn drop_expired(
        &self,
        store: &TableStore,
        table: &Arc<Table>,
        view: &View,
        metadata: &[TableMetadata],
        ignore_overlaps: bool,
    ) -> Result<bool, EngineError> {
        let oldest = oldest_in_memory(view);
        let mut expired = fully_expired(metadata, &[], oldest, self.gc_before(table), ignore_overlaps);
        expired.retain(|id| !self.may_replay(&named(view, std::slice::from_ref(id))));
        if expired.is_empty() {
            return Ok(false);
        }
        self.files().replace(store, table, &named(view, &expired), Vec::new())?;
        self.compactor().tasks.expired(expired.len());
        Ok(true)
    }

    fn pick_for_tombstones(&self, table: &Table, view: &View, options: TombstoneOptions) -> Option<SSTableId> {
        let (now, gc_before) = (self.now_seconds(), self.gc_before(table));
        let candidates: Vec<_> =
            view.sstables.iter().map(|sstable| TombstoneCandidate::of(sstable, now, gc_before)).collect();
        worth_compacting_alone(&options, &candidates, oldest_in_memory(view))
    }

    /// Deletions made before this time (seconds) may go.
    fn gc_before(&self, table: &Table) -> u32 {
        self.now_seconds().saturating_sub(table.options.gc_grace_seconds.max(0) as u32)
    }

    /// What a flush typically writes: the part of the memtable space at which flushing begins.
    fn flush_size_bytes(&self) -> u64 {
        let options = self.options();
        (options.memtable_space_bytes as f64 * options.memtable_cleanup_threshold) as u64
    }

    fn is_closing(&self, store: &TableStore) -> bool {
        self.compactor().is_stopped() || store.is_dropped() || store.check_files().is_err()
    }

    /// Whether the log may still hold records of these SSTables. Without a table that covers them the next start would replay
    /// them, and perhaps not the deletions that they were purged by.
    fn may_replay(&self, inputs: &[Arc<SSTableReader>]) -> bool {
        let oldest = self.log().oldest_segment();
        let mut ends = inputs.iter().filter_map(|input| self.files().intervals(input).intervals().last().copied());
        ends.any(|interval| interval.end.segment >= oldest)
    }

    fn merge(
        &self,
        store: &TableStore,
        inputs: &[Arc<SSTableReader>],
        boundaries: Vec<types::Token>,
    ) -> Result<Merged, EngineError> {
        let table = store.table.load_full();
        let task = self.compactor().tasks.begin(ActiveCompaction {
            id: self.files().new_timeuuid(),
            keyspace: table.keyspace.to_string(),
            table: table.name.to_string(),
            target_directory: store.directory.clone(),
            sstables: inputs.len(),
            total_bytes: inputs.iter().map(|input| input.data_length_bytes()).sum(),
            written_bytes: 0,
        });
        let merge = || {
            compact(CompactionInput {
                disk: &self.options().disk,
                dir: &store.directory,
                table: &table,
                tables: inputs,
                overlaps: &Outside { store, inputs },
                now_seconds: self.now_seconds(),
                boundaries,
                column_index_size_bytes: u64::from(self.options().column_index_size_bytes),
                host_id: self.host_id(),
                new_id: &mut || self.files().new_id(),
                progress: &mut |progress| self.pace(store, task.wrote(progress.written_bytes)),
            })
        };
        let compacted = in_background(merge)?;
        match compacted {
            Ok(compacted) if compacted.tables.is_empty() && self.may_replay(inputs) => Ok(Merged::Kept),
            Ok(compacted) => {
                self.files().replace(store, &table, inputs, compacted.tables)?;
                task.complete();
                Ok(Merged::Replaced)
            }
            Err(CompactionError::Stopped) => Ok(Merged::Kept),
            Err(CompactionError::SSTable(error)) => {
                Err(EngineError::from(error)).inspect_err(|error| self.tell_failure(error))
            }
            Err(error) => Err(EngineError::Unsupported(error.to_string())),
        }
    }
    /// Lets a merge that wrote more bytes go on when the throttle allows, or stops it.
    fn pace(&self, store: &TableStore, bytes: u64) -> ControlFlow<()> {
        let mut wait = self.compactor().throttle.take(bytes, Instant::now());
        loop {
            if self.is_closing(store) {
                return ControlFlow::Break(());
            }
            if wait.is_zero() {
                return ControlFlow::Continue(());
            }
            let nap = wait.min(NAP);
            std::thread::sleep(nap);
            wait -= nap;
        }
    }
}

/// Does long work in a thread that gives way to reads, writes and flushes.
fn in_background<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, EngineError> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("merge".into()).spawn_scoped(scope, || {
            blockio::give_way();
            work()
        });
        let thread = thread.map_err(|error| EngineError::Startup(format!("no thread for a merge: {error}")))?;
        Ok(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

/// Whether a table is compacted without being asked.
fn is_enabled(store: &TableStore, table: &Table) -> bool {
    store.autocompaction.load(Ordering::Acquire)
        && table.options.compaction.get("enabled").is_none_or(|enabled| enabled != "false")
}

/// The SSTables of a view with these ids.
fn named(view: &View, ids: &[SSTableId]) -> Vec<Arc<SSTableReader>> {
    view.sstables.iter().filter(|table| ids.contains(&table.descriptor().id)).cloned().collect()
}

/// The least timestamp in a table's memtables, microseconds.
fn oldest_in_memory(view: &View) -> i64 {
    let oldest = view.generations().map(|generation| generation.memtable.statistics().timestamp_min);
    oldest.min().unwrap_or(i64::MAX)
}
