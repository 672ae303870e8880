//! Compaction: picks by the table's strategy, merges, and puts the result in the place of the inputs.

use std::collections::{HashSet, VecDeque};
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

use crate::compaction_tasks::{ActiveCompaction, CompactionStats, CompactionTasks, Throttle};
use crate::engine::Engine;
use crate::error::EngineError;
use crate::store::{Generation, TableStore, View, lock};
use crate::worker::Worker;

/// The longest that a throttled merge sleeps without looking whether it is to stop.
const NAP: Duration = Duration::from_millis(50);

/// The threads that compact in the background, apart from the one that flushes.
pub(crate) struct Compactor {
    requests: Arc<Queue>,
    workers: Vec<Worker>,
    pub tasks: CompactionTasks,
    throttle: Throttle,
}

type Queue = (Mutex<Requests>, Condvar);

struct Requests {
    /// Tables to look at, each as often as there are threads that can work on it side by side.
    tables: VecDeque<TableId>,
    /// When all tables are to be looked at, asked or not, and how long after that again.
    look_at: Instant,
    look_every: Duration,
    stopped: bool,
}

/// What a thread does next.
enum Task {
    /// Ask for all tables.
    LookAtAll,
    Compact(TableId),
}

impl Compactor {
    /// A number of threads that together write so many bytes per second, 0 for no limit, and look at every table as
    /// soon as they start and then each `look_every`.
    pub fn new(threads: usize, bytes_per_second: u64, look_every: Duration) -> Self {
        let requests = Requests { tables: VecDeque::new(), look_at: Instant::now(), look_every, stopped: false };
        Compactor {
            requests: Arc::new((Mutex::new(requests), Condvar::new())),
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

    /// Has every thread look at a table: each begins one merge, as long as there are any.
    fn request(&self, table: TableId) {
        let mut requests = lock(&self.requests.0);
        let waiting = requests.tables.iter().filter(|waiting| **waiting == table).count();
        (waiting..self.workers.len()).for_each(|_| requests.tables.push_back(table));
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

/// Waits for something to do; none when it is time to end.
fn next_task((requests, changed): &Queue) -> Option<Task> {
    let mut requests = lock(requests);
    loop {
        if requests.stopped {
            return None;
        }
        let now = Instant::now();
        if requests.look_at <= now {
            requests.look_at = now + requests.look_every;
            return Some(Task::LookAtAll);
        }
        if let Some(table) = requests.tables.pop_front() {
            return Some(Task::Compact(table));
        }
        let wait = requests.look_at - now;
        requests = changed.wait_timeout(requests, wait).unwrap_or_else(PoisonError::into_inner).0;
    }
}

fn run(engine: &Weak<Engine>, requests: &Queue) {
    while let Some(task) = next_task(requests) {
        let Some(engine) = engine.upgrade() else {
            return;
        };
        match task {
            Task::LookAtAll => engine.request_all_compactions(),
            Task::Compact(table) => {
                let store = engine.stores().into_iter().find(|store| store.table.load().id == table);
                let failure = store.and_then(|store| engine.compact_in_background(&store).err());
                engine.note_compaction(table, failure);
            }
        }
    }
}

/// What became of the inputs of a merge.
#[derive(PartialEq, Eq)]
enum Merged {
    Replaced,
    Kept,
}

/// What is done next to a table.
struct Chosen {
    inputs: Vec<Arc<SSTableReader>>,
    /// Where the output is split; none if the inputs are to be dropped unread.
    boundaries: Option<Vec<types::Token>>,
}

/// The data of a table that is not part of a merge, as it is when asked. The inputs of another merge are until the view
/// has its outputs in their place, which it has once they are durable: either way it is all that a crash could bring
/// back.
pub(crate) struct Outside<'a> {
    pub store: &'a TableStore,
    pub inputs: &'a [Arc<SSTableReader>],
    /// A generation that is part of it.
    pub flushed: Option<&'a Arc<Generation>>,
    /// The log may hold records of the inputs that no SSTable covers (see [`Engine::has_uncovered`]).
    pub has_uncovered: bool,
}

impl Overlaps for Outside<'_> {
    fn oldest_timestamp(&self, key: &PartitionKey) -> i64 {
        if self.has_uncovered {
            // Of any time.
            return i64::MIN;
        }
        let view = self.store.view();
        let is_input = |table: &&Arc<SSTableReader>| self.inputs.iter().any(|input| input.is_same(table));
        let others = view.sstables.iter().filter(|table| !is_input(table)).map(Arc::as_ref);
        compaction::oldest_overlapping_timestamp(others, key).min(view.oldest_in_memory_but(self.flushed))
    }
}

impl Engine {
    /// Merges all SSTables of a table, memtable flushed first, into one, or as many as its strategy asks for: unified
    /// compaction merges those apart that do not overlap, and splits what it writes. Merges under way stop; what is
    /// flushed meanwhile may be merged beside it. Blocks until it is done.
    pub fn compact(&self, table: &Table) -> Result<(), EngineError> {
        let store = self.store(table)?;
        self.flush_store(&store)?;
        let one_at_a_time = lock(&store.compacting_all);
        let compacted = self.compact_all(&store);
        drop(one_at_a_time);
        // Merges that were stopped go on.
        self.request_compaction(&store);
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
            // One that fails does not keep the others from being merged.
            compacted = compacted.and(self.merge(store, &inputs, boundaries).map(|_| ()));
        }
        compacted
    }

    /// Lets the compactor look at a table whose SSTables changed.
    pub(crate) fn request_compaction(&self, store: &TableStore) {
        if self.options().concurrent_compactors > 0 {
            self.compactor().request(store.table.load().id);
        }
    }

    /// Lets the compactor look at every table that has SSTables: one may have been left so by a crash, a disk was full
    /// and is not any more, and as time passes more is expired or may be purged.
    fn request_all_compactions(&self) {
        let has_sstables = |store: &&Arc<TableStore>| !store.borrow_view().sstables.is_empty();
        self.stores().iter().filter(has_sstables).for_each(|store| self.request_compaction(store));
    }

    /// Switches compaction without being asked on or off, for one table until the next start.
    pub fn set_autocompaction(&self, table: &Table, enabled: bool) -> Result<(), EngineError> {
        let store = self.store(table)?;
        store.autocompaction.store(enabled, Ordering::Release);
        if enabled {
            self.request_compaction(&store);
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
        let view = store.view();
        let (metadata, compacting) = (metadata_of(&view.sstables), left_alone(&view, &store.merges.left_alone()));
        strategy.picks(&metadata, &compacting, store.flush_size.bytes()).len()
    }

    /// Carries out what a table's strategy finds most urgent beside what other threads are at. After it the table is
    /// looked at again, behind the others; if it fails, when the table's SSTables change, or all tables are looked
    /// at. One that turns out damaged is left alone from then on.
    fn compact_in_background(&self, store: &Arc<TableStore>) -> Result<(), EngineError> {
        let Some((claim, chosen)) = store.merges.begin(|compacting| self.choose(store, compacting))? else {
            return Ok(());
        };
        let merged = match chosen.boundaries {
            Some(boundaries) => self.merge(store, &chosen.inputs, boundaries),
            None => self.drop_expired(store, &chosen.inputs).map(|()| Merged::Replaced),
        };
        let damaged = merged.as_ref().err().and_then(damaged_sstable);
        if let Some(damaged) = &damaged {
            store.merges.leave_alone(damaged.clone());
        }
        // Whoever looks at the table before this finds its inputs taken.
        drop(claim);
        if damaged.is_some() || matches!(merged, Ok(Merged::Replaced)) {
            self.request_compaction(store);
        }
        merged.map(|_| ())
    }

    /// What to drop, or the most urgent merge, among SSTables that are not being merged.
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

    /// SSTables outside of all merges that hold nothing but what expired and shadows nothing.
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
        let oldest = view.oldest_in_memory();
        let expired = fully_expired(
            &candidates,
            &overlapping,
            oldest,
            compaction::gc_before(&table.options, self.now_seconds()),
            ignore_overlaps,
        );
        if self.has_uncovered(table.id, view) {
            return Vec::new();
        }
        let mut expired = named(view, &expired);
        expired.retain(|sstable| !self.may_replay(std::slice::from_ref(sstable)));
        expired
    }

    /// Removes expired SSTables, if there are any.
    fn drop_expired(&self, store: &TableStore, expired: &[Arc<SSTableReader>]) -> Result<(), EngineError> {
        if !expired.is_empty() {
            self.files().replace(store, &store.table.load_full(), expired, Vec::new())?;
            self.compactor().tasks.expired(expired.len());
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
        let now = self.now_seconds();
        let gc_before = compaction::gc_before(&table.options, now);
        let candidates: Vec<_> =
            view.sstables.iter().map(|sstable| TombstoneCandidate::of(sstable, now, gc_before)).collect();
        worth_compacting_alone(&options, &candidates, compacting, view.oldest_in_memory())
    }

    pub(crate) fn is_closing(&self, store: &TableStore) -> bool {
        self.compactor().is_stopped() || !store.is_served() || store.check_files().is_err()
    }

    /// Whether SSTables of the table may hold rows whose records the log still has, and which no SSTable covers: those
    /// of full memtables, and those flushed during a replay. The next start replays such rows, so that the
    /// deletions that shadow them have to stay, whatever they were merged with. Asked before a merge begins: what
    /// is written later is not among its inputs.
    pub(crate) fn has_uncovered(&self, table: model::TableId, view: &View) -> bool {
        view.has_uncovered() || self.log().replayed_tables().contains(&table.0)
    }

    /// Whether the log may still hold records of these SSTables. Without a table that covers them the next start would
    /// replay them, and perhaps not the deletions that they were purged by.
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
        let has_uncovered = self.has_uncovered(table.id, &store.view());
        let merge = || {
            compact(CompactionInput {
                disk: &self.options().disk,
                dir: &store.directory,
                table: &table,
                tables: inputs,
                newer: None,
                overlaps: &Outside { store, inputs, flushed: None, has_uncovered },
                now_seconds: self.now_seconds(),
                boundaries,
                column_index_size_bytes: u64::from(self.options().column_index_size_bytes),
                past_page_cache: self.sstable_writes() == &BlockWrites::Direct,
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
            Err(error) => Err(engine_error(error)).inspect_err(|error| self.tell_failure(error)),
        }
    }

    /// Lets a merge that wrote more bytes go on when the throttle allows, or stops it.
    fn pace(&self, store: &TableStore, bytes: u64) -> ControlFlow<()> {
        let mut wait = self.compactor().throttle.take(bytes, Instant::now());
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

fn strategy_of(table: &Table) -> Result<Strategy, EngineError> {
    Strategy::from_options(&table.options.compaction).map_err(invalid_option)
}

fn invalid_option(error: OptionError) -> EngineError {
    EngineError::Startup(error.to_string())
}

/// Why a merge did not come to its end, other than that it was stopped.
pub(crate) fn engine_error(error: CompactionError) -> EngineError {
    match error {
        CompactionError::SSTable(error) => error.into(),
        error => EngineError::Unsupported(error.to_string()),
    }
}

/// Whether a table is compacted without being asked.
pub(crate) fn is_enabled(store: &TableStore, table: &Table) -> bool {
    store.autocompaction.load(Ordering::Acquire)
        && table.options.compaction.get("enabled").is_none_or(|enabled| !enabled.eq_ignore_ascii_case("false"))
}

/// The SSTable that an error is about, if it is one of damage.
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

/// Those that merges leave alone, and those in which a read met damage.
pub(crate) fn left_alone(view: &View, merging: &HashSet<SSTableId>) -> HashSet<SSTableId> {
    let damaged = view.sstables.iter().filter(|sstable| sstable.is_damaged());
    merging.iter().cloned().chain(damaged.map(|sstable| sstable.descriptor().id.clone())).collect()
}

/// The SSTables of a view with these ids.
fn named(view: &View, ids: &[SSTableId]) -> Vec<Arc<SSTableReader>> {
    view.sstables.iter().filter(|table| ids.contains(&table.descriptor().id)).cloned().collect()
}
