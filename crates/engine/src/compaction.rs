//! Compaction: chooses merges by the table's strategy, merges, and replaces the inputs with the result.

mod clean_up;
pub(crate) mod tasks;

use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use blockio::BlockWrites;
use compaction::{
    CompactionError, CompactionInput, OptionError, Overlaps, Strategy, TableMetadata, TombstoneCandidate,
    TombstoneOptions, compact, fully_expired, worth_compacting_alone,
};
use model::{PartitionKey, ReadError, Table, TableId};
use sstable::{Descriptor, SSTableError, SSTableId, SSTableReader};
use types::TokenRanges;

use crate::compaction::tasks::{ActiveCompaction, CompactionStats, CompactionTasks, Throttle};
use crate::error::EngineError;
use crate::lock::lock;
use crate::shared::Shared;
use crate::table::{Generation, TableStore, View};
use crate::worker::Worker;

/// The longest time for which a throttled merge sleeps before it checks whether it must stop.
const NAP: Duration = Duration::from_millis(50);

/// Merges of SSTables, and the threads that run them in the background. Flushes have their own threads.
pub(crate) struct Compaction {
    shared: Arc<Shared>,
    requests: Arc<Queue>,
    workers: Vec<Worker>,
    tasks: CompactionTasks,
    throttle: Throttle,
    /// Tables whose last compaction failed.
    failures: Mutex<HashMap<TableId, EngineError>>,
}

type Queue = (Mutex<Requests>, Condvar);

struct Requests {
    /// Tables to examine. A table is queued once for each thread that can work on it at the same time.
    tables: VecDeque<TableId>,
    /// The next time at which all tables are examined, requested or not, and the interval after that.
    next_check: Instant,
    check_interval: Duration,
    stopped: bool,
}

/// The next task of a thread.
enum Task {
    /// Request an examination of all tables.
    RequestAll,
    Compact(TableId),
}

impl Compaction {
    /// Creates it with the number of threads in the options. They examine every table when they start, and then at
    /// intervals.
    pub fn new(shared: &Arc<Shared>) -> Self {
        let options = shared.options();
        let check_interval = options.compaction_check_interval;
        let requests = Requests { tables: VecDeque::new(), next_check: Instant::now(), check_interval, stopped: false };
        Compaction {
            requests: Arc::new((Mutex::new(requests), Condvar::new())),
            workers: (0..options.concurrent_compactors).map(|_| Worker::new()).collect(),
            tasks: CompactionTasks::default(),
            throttle: Throttle::new(options.compaction_throughput_bytes),
            failures: Mutex::default(),
            shared: Arc::clone(shared),
        }
    }

    /// Starts the threads; they end with the component.
    pub fn start(self: &Arc<Self>) -> Result<(), EngineError> {
        self.workers.iter().try_for_each(|worker| {
            let requests = self.requests.clone();
            worker.start("compactor", self, move |compaction| run(&compaction, &requests))
        })
    }

    /// Ends the threads. Merges in flight stop and leave their inputs.
    pub fn stop(&self) {
        lock(&self.requests.0).stopped = true;
        self.requests.1.notify_all();
        self.workers.iter().for_each(Worker::join);
    }

    /// Makes every thread examine a table. Each begins one merge, as long as the strategy has more.
    fn enqueue(&self, table: TableId) {
        let mut requests = lock(&self.requests.0);
        let waiting = requests.tables.iter().filter(|waiting| **waiting == table).count();
        (waiting..self.workers.len()).for_each(|_| requests.tables.push_back(table));
        self.requests.1.notify_all();
    }

    fn is_stopped(&self) -> bool {
        lock(&self.requests.0).stopped
    }
}

impl Drop for Compaction {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Waits for a task. Returns `None` when the thread must end.
fn next_task((requests, changed): &Queue) -> Option<Task> {
    let mut requests = lock(requests);
    loop {
        if requests.stopped {
            return None;
        }
        let now = Instant::now();
        if requests.next_check <= now {
            requests.next_check = now + requests.check_interval;
            return Some(Task::RequestAll);
        }
        if let Some(table) = requests.tables.pop_front() {
            return Some(Task::Compact(table));
        }
        let wait = requests.next_check - now;
        requests = changed.wait_timeout(requests, wait).unwrap_or_else(PoisonError::into_inner).0;
    }
}

fn run(compaction: &Weak<Compaction>, requests: &Queue) {
    while let Some(task) = next_task(requests) {
        let Some(compaction) = compaction.upgrade() else {
            return;
        };
        match task {
            Task::RequestAll => compaction.request_all(),
            Task::Compact(table) => {
                let store = compaction.shared.stores().into_iter().find(|store| store.table.load().id == table);
                let failure = store.and_then(|store| compaction.compact_in_background(&store).err());
                compaction.note(table, failure);
            }
        }
    }
}

/// The outcome of a merge for its inputs.
#[derive(PartialEq, Eq)]
enum Merged {
    Replaced,
    Kept,
}

/// The next work on a table.
struct Chosen {
    inputs: Vec<Arc<SSTableReader>>,
    /// The tokens at which the output is split. `None` if the inputs are dropped without reading them.
    boundaries: Option<Vec<types::Token>>,
}

/// The data of a table outside of a merge, at the time of the call. The inputs of another merge belong to it until the
/// view has that merge's outputs instead, which happens once the outputs are durable. Either way, it is all data that a
/// crash could restore.
pub(crate) struct Outside<'a> {
    pub shared: &'a Shared,
    pub store: &'a TableStore,
    pub inputs: &'a [Arc<SSTableReader>],
    /// A generation that is a part of the merge.
    pub flushed: Option<&'a Arc<Generation>>,
    /// Whether the log may hold records of the inputs that no SSTable covers (see [`Shared::has_uncovered`]).
    pub has_uncovered: bool,
}

impl Overlaps for Outside<'_> {
    fn oldest_timestamp(&self, key: &PartitionKey) -> i64 {
        if self.has_uncovered {
            // The data may be of any time.
            return i64::MIN;
        }
        let view = self.store.view();
        let is_input = |table: &&Arc<SSTableReader>| self.inputs.iter().any(|input| input.is_same(table));
        let others = view.sstables.iter().filter(|table| !is_input(table)).map(Arc::as_ref);
        let oldest_on_disk = compaction::oldest_overlapping_timestamp(others, key);
        let oldest_of_host = self.shared.oldest_of_host(self.store.table.load().id);
        oldest_on_disk.min(view.oldest_in_memory_but(self.flushed)).min(oldest_of_host)
    }
}

impl Compaction {
    /// Merges all SSTables of a table into one, or into as many as its strategy asks for: unified compaction merges
    /// SSTables that do not overlap separately, and splits its output. Merges in flight stop, and SSTables that are
    /// flushed meanwhile may be merged beside it. Blocks until the merge is complete.
    pub fn compact(&self, store: &TableStore) -> Result<(), EngineError> {
        let one_at_a_time = lock(&store.compacting_all);
        let compacted = self.compact_all(store);
        drop(one_at_a_time);
        // Restarts the merges that were stopped.
        self.request(store);
        compacted
    }

    fn compact_all(&self, store: &TableStore) -> Result<(), EngineError> {
        let stopped = store.merges.stop();
        store.check_files()?;
        if !store.is_served() {
            return Ok(());
        }
        let (table, view) = (store.table.load_full(), store.view());
        let strategy = strategy_of(&table)?;
        let expired = self.expired(&table, &view, &metadata_of(&view.sstables), &HashSet::new(), false);
        self.drop_expired(store, &expired)?;
        let view = store.view();
        let _claim = stopped.claim(ids_of(&view.sstables));
        let mut compacted = Ok(());
        for picked in strategy.picks_of_all(&metadata_of(&view.sstables)) {
            if self.is_closing(store) || store.merges.is_stopping() {
                break;
            }
            let inputs = named(&view, &picked);
            let boundaries = strategy.output_boundaries(&metadata_of(&inputs));
            // The failure of one merge does not prevent the others.
            compacted = compacted.and(self.merge(store, &inputs, boundaries, None).map(|_| ()));
        }
        compacted
    }

    /// Makes the compactor examine a table whose SSTables changed.
    pub fn request(&self, store: &TableStore) {
        if !self.workers.is_empty() {
            self.enqueue(store.table.load().id);
        }
    }

    /// Makes the compactor examine every table that has SSTables. A crash may have left one uncompacted, a full disk
    /// may have space again, and more data expires or becomes purgeable as time passes.
    fn request_all(&self) {
        let has_sstables = |store: &&Arc<TableStore>| !store.borrow_view().sstables.is_empty();
        self.shared.stores().iter().filter(has_sstables).for_each(|store| self.request(store));
    }

    /// Switches automatic compaction of one table on or off, until the next start.
    pub fn set_automatic(&self, store: &TableStore, enabled: bool) {
        store.autocompaction.store(enabled, Ordering::Release);
        if enabled {
            self.request(store);
        }
    }

    /// The figures of running and completed compactions.
    pub fn stats(&self) -> CompactionStats {
        let pending = self.shared.stores().iter().map(|store| self.pending_compactions(store)).sum();
        CompactionStats { pending, ..self.tasks.stats() }
    }

    fn pending_compactions(&self, store: &TableStore) -> usize {
        let table = store.table.load_full();
        let Ok(strategy) = Strategy::from_options(&table.options.compaction) else { return 0 };
        if !is_enabled(store, &table) {
            return 0;
        }
        let view = store.view();
        let (metadata, compacting) = (metadata_of(&view.sstables), left_alone(&view, &store.merges.left_alone()));
        strategy.picks(&metadata, &compacting, store.flush_size.bytes()).len()
    }

    /// Does the most urgent work of a table's strategy, in parallel with other threads. Afterwards the table is queued
    /// again, after the others. If the work fails, the table is examined again when its SSTables change, or when all
    /// tables are examined. A damaged SSTable is excluded from then on.
    fn compact_in_background(&self, store: &Arc<TableStore>) -> Result<(), EngineError> {
        let Some((claim, chosen)) = store.merges.begin(|compacting| self.choose(store, compacting))? else {
            return Ok(());
        };
        let merged = match chosen.boundaries {
            Some(boundaries) => self.merge(store, &chosen.inputs, boundaries, None),
            None => self.drop_expired(store, &chosen.inputs).map(|()| Merged::Replaced),
        };
        let damaged = merged.as_ref().err().and_then(damaged_sstable);
        if let Some(damaged) = &damaged {
            store.merges.leave_alone(damaged.clone());
        }
        // A thread that examines the table before this point finds the inputs claimed.
        drop(claim);
        if damaged.is_some() || matches!(merged, Ok(Merged::Replaced)) {
            self.request(store);
        }
        merged.map(|_| ())
    }

    /// The SSTables to drop, or the most urgent merge, among SSTables that are not being merged.
    fn choose(
        &self,
        store: &TableStore,
        merging: &HashSet<SSTableId>,
    ) -> Result<Option<(Vec<SSTableId>, Chosen)>, EngineError> {
        let table = store.table.load_full();
        if !is_enabled(store, &table) || self.is_closing(store) {
            return Ok(None);
        }
        let strategy = strategy_of(&table)?;
        let view = store.view();
        let compacting = &left_alone(&view, merging);
        let metadata = metadata_of(&view.sstables);
        let ignore_overlaps = strategy.unsafe_aggressive_expiration();
        let expired = self.expired(&table, &view, &metadata, compacting, ignore_overlaps);
        if !expired.is_empty() {
            return Ok(Some((ids_of(&expired), Chosen { inputs: expired, boundaries: None })));
        }
        let picked = match strategy.next(&metadata, compacting, store.flush_size.bytes()) {
            Some(pick) => pick.tables,
            None => {
                let options = TombstoneOptions::from_options(&table.options.compaction).map_err(invalid_option)?;
                match self.pick_for_tombstones(&table, &view, compacting, options) {
                    Some(alone) => vec![alone],
                    None => return Ok(None),
                }
            }
        };
        let inputs = named(&view, &picked);
        let boundaries = strategy.output_boundaries(&metadata_of(&inputs));
        Ok(Some((picked, Chosen { inputs, boundaries: Some(boundaries) })))
    }

    /// SSTables outside of all merges that hold only expired data and shadow nothing.
    fn expired(
        &self,
        table: &Table,
        view: &View,
        metadata: &[TableMetadata],
        compacting: &HashSet<SSTableId>,
        ignore_overlaps: bool,
    ) -> Vec<Arc<SSTableReader>> {
        let (overlapping, candidates): (Vec<_>, Vec<_>) =
            metadata.iter().cloned().partition(|table| compacting.contains(&table.id));
        let oldest = view.oldest_in_memory().min(self.shared.oldest_of_host(table.id));
        let expired = fully_expired(
            &candidates,
            &overlapping,
            oldest,
            compaction::gc_before(&table.options, self.shared.now_seconds()),
            ignore_overlaps,
        );
        if self.shared.has_uncovered(table.id, view) {
            return Vec::new();
        }
        let mut expired = named(view, &expired);
        expired.retain(|sstable| !self.may_replay(std::slice::from_ref(sstable)));
        expired
    }

    /// Removes expired SSTables, if there are any.
    fn drop_expired(&self, store: &TableStore, expired: &[Arc<SSTableReader>]) -> Result<(), EngineError> {
        if !expired.is_empty() {
            self.shared.files().replace(store, &store.table.load_full(), expired, Vec::new())?;
            self.tasks.expired(expired.len());
        }
        Ok(())
    }

    fn pick_for_tombstones(
        &self,
        table: &Table,
        view: &View,
        compacting: &HashSet<SSTableId>,
        options: TombstoneOptions,
    ) -> Option<SSTableId> {
        let now = self.shared.now_seconds();
        let gc_before = compaction::gc_before(&table.options, now);
        let candidates: Vec<_> =
            view.sstables.iter().map(|sstable| TombstoneCandidate::of(sstable, now, gc_before)).collect();
        let oldest = view.oldest_in_memory().min(self.shared.oldest_of_host(table.id));
        worth_compacting_alone(&options, &candidates, compacting, oldest)
    }

    pub fn is_closing(&self, store: &TableStore) -> bool {
        self.is_stopped() || !store.is_served() || store.check_files().is_err()
    }

    /// Whether the log may still hold records of these SSTables. Without a table that covers them, the next start would
    /// replay them, and might not replay the deletions that purged them.
    fn may_replay(&self, inputs: &[Arc<SSTableReader>]) -> bool {
        let oldest = self.shared.log().oldest_segment();
        let mut ends =
            inputs.iter().filter_map(|input| self.shared.files().intervals(input).intervals().last().copied());
        ends.any(|interval| interval.end.segment >= oldest)
    }

    /// Merges SSTables without the partitions outside of `kept`, if that is given, and replaces them.
    fn merge(
        &self,
        store: &TableStore,
        inputs: &[Arc<SSTableReader>],
        boundaries: Vec<types::Token>,
        kept: Option<&TokenRanges>,
    ) -> Result<Merged, EngineError> {
        let table = store.table.load_full();
        let task = self.tasks.begin(ActiveCompaction {
            id: self.shared.files().new_timeuuid(),
            keyspace: table.keyspace.to_string(),
            table: table.name.to_string(),
            target_directory: store.directory.clone(),
            sstables: inputs.len(),
            total_bytes: inputs.iter().map(|input| input.data_length_bytes()).sum(),
            written_bytes: 0,
        });
        let has_uncovered = self.shared.has_uncovered(table.id, &store.view());
        let merge = || {
            compact(CompactionInput {
                disk: &self.shared.options().disk,
                dir: &store.directory,
                table: &table,
                tables: inputs,
                newer: None,
                kept,
                overlaps: &Outside { shared: &self.shared, store, inputs, flushed: None, has_uncovered },
                now_seconds: self.shared.now_seconds(),
                boundaries,
                column_index_size_bytes: u64::from(self.shared.options().column_index_size_bytes),
                past_page_cache: self.shared.sstable_writes() == &BlockWrites::Direct,
                host_id: self.shared.host_id(),
                size_watch: self.shared.size_watch(&table),
                large_rows: self.shared.options().background_rows(),
                new_id: &mut || self.shared.files().new_id(),
                progress: &mut |progress| self.pace(store, task.wrote(progress.written_bytes)),
            })
        };
        let compacted = in_background(merge)?;
        match compacted {
            Ok(compacted) if compacted.tables.is_empty() && self.may_replay(inputs) => Ok(Merged::Kept),
            Ok(compacted) => {
                self.shared.files().replace(store, &table, inputs, compacted.tables)?;
                task.complete();
                Ok(Merged::Replaced)
            }
            Err(CompactionError::Stopped) => Ok(Merged::Kept),
            Err(error) => Err(engine_error(error)).inspect_err(|error| self.shared.report_failure(error)),
        }
    }

    /// Lets a merge continue after further written bytes when the throttle allows it, or stops it.
    fn pace(&self, store: &TableStore, bytes: u64) -> ControlFlow<()> {
        let mut wait = self.throttle.take(bytes, Instant::now());
        loop {
            if self.is_closing(store) || store.merges.is_stopping() {
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

    /// Stores the last failure of a table's compaction, until the table is compacted or has nothing left to compact.
    pub fn note(&self, table: TableId, failure: Option<EngineError>) {
        let mut failures = lock(&self.failures);
        match failure {
            Some(failure) => failures.insert(table, failure),
            None => failures.remove(&table),
        };
    }

    /// The failure of a background compaction whose table was not compacted since.
    pub fn last_failure(&self) -> Option<EngineError> {
        lock(&self.failures).values().next().cloned()
    }
}

/// Runs long work in a thread with a lower priority than reads, writes and flushes.
fn in_background<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, EngineError> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("merge".into()).spawn_scoped(scope, || {
            blockio::lower_priority();
            work()
        });
        let thread = thread.map_err(|error| EngineError::Startup(format!("no thread for a merge: {error}")))?;
        Ok(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

fn strategy_of(table: &Table) -> Result<Strategy, EngineError> {
    Strategy::from_options(&table.options.compaction).map_err(invalid_option)
}

fn invalid_option(error: OptionError) -> EngineError {
    EngineError::Startup(error.to_string())
}

/// The error of a merge that failed for another reason than that it was stopped.
pub(crate) fn engine_error(error: CompactionError) -> EngineError {
    match error {
        CompactionError::SSTable(error) => error.into(),
        error => EngineError::Unsupported(error.to_string()),
    }
}

/// Whether a table is compacted automatically.
pub(crate) fn is_enabled(store: &TableStore, table: &Table) -> bool {
    store.autocompaction.load(Ordering::Acquire)
        && table.options.compaction.get("enabled").is_none_or(|enabled| !enabled.eq_ignore_ascii_case("false"))
}

/// The damaged SSTable that an error names.
fn damaged_sstable(error: &EngineError) -> Option<SSTableId> {
    let file = match error {
        EngineError::Read(error) => match &**error {
            ReadError::Corruption { file, .. } => file,
            _ => return None,
        },
        EngineError::SSTable(error) => match &**error {
            SSTableError::Corruption(corruption) => &corruption.file,
            _ => return None,
        },
        _ => return None,
    };
    Descriptor::of_path(Path::new(file)).map(|descriptor| descriptor.id)
}

fn metadata_of(sstables: &[Arc<SSTableReader>]) -> Vec<TableMetadata> {
    sstables.iter().map(|sstable| TableMetadata::of(sstable)).collect()
}

pub(crate) fn ids_of(sstables: &[Arc<SSTableReader>]) -> Vec<SSTableId> {
    sstables.iter().map(|sstable| sstable.descriptor().id.clone()).collect()
}

/// SSTables that merges exclude, and SSTables in which a read found damage.
pub(crate) fn left_alone(view: &View, merging: &HashSet<SSTableId>) -> HashSet<SSTableId> {
    let damaged = view.sstables.iter().filter(|sstable| sstable.is_damaged());
    merging.iter().cloned().chain(damaged.map(|sstable| sstable.descriptor().id.clone())).collect()
}

/// The SSTables of a view with these ids.
fn named(view: &View, ids: &[SSTableId]) -> Vec<Arc<SSTableReader>> {
    view.sstables.iter().filter(|table| ids.contains(&table.descriptor().id)).cloned().collect()
}
