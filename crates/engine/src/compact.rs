//! Compaction: picks by the table's strategy, merges, and puts the result in the place of the inputs.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::{Arc, Condvar, Mutex, Weak};

use compaction::{CompactionError, CompactionInput, Overlaps, Strategy, TableMetadata, compact};
use model::{PartitionKey, Table, TableId};
use sstable::SSTableReader;

use crate::engine::Engine;
use crate::error::EngineError;
use crate::store::{TableStore, lock};
use crate::worker::Worker;

/// The thread that compacts in the background, apart from the one that flushes.
pub(crate) struct Compactor {
    requests: Arc<(Mutex<Requests>, Condvar)>,
    worker: Worker,
}

#[derive(Default)]
struct Requests {
    tables: VecDeque<TableId>,
    stopped: bool,
}

impl Compactor {
    pub fn new() -> Self {
        Compactor { requests: Arc::default(), worker: Worker::new() }
    }

    /// Starts the thread; it ends with the engine.
    pub fn start(&self, engine: &Arc<Engine>) -> Result<(), EngineError> {
        let requests = self.requests.clone();
        self.worker.start("compactor", engine, move |engine| run(&engine, &requests))
    }

    /// Ends the thread; a merge under way stops and leaves its inputs.
    pub fn stop(&self) {
        lock(&self.requests.0).stopped = true;
        self.requests.1.notify_all();
        self.worker.join();
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
        let failure = store.and_then(|store| engine.compact_by_strategy(&store).err());
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
        let is_input = |table: &&Arc<SSTableReader>| self.inputs.iter().any(|input| Arc::ptr_eq(input, table));
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
        let _one_at_a_time = lock(&store.compacting);
        let inputs = store.view().sstables.clone();
        if inputs.is_empty() || store.is_dropped() {
            return Ok(());
        }
        store.check_files()?;
        self.merge(&store, &inputs, Vec::new()).map(|_| ())
    }

    /// Lets the compactor look at a table whose SSTables changed.
    pub(crate) fn compact_after_flush(&self, store: &TableStore) {
        if self.options().concurrent_compactors > 0 {
            self.compactor().request(store.table.load().id);
        }
    }

    /// Merges what the table's strategy picks until it picks nothing.
    fn compact_by_strategy(&self, store: &Arc<TableStore>) -> Result<(), EngineError> {
        loop {
            let _one_at_a_time = lock(&store.compacting);
            let table = store.table.load_full();
            let options = &table.options.compaction;
            if options.get("enabled").is_some_and(|enabled| enabled == "false") || self.is_closing(store) {
                return Ok(());
            }
            let strategy = Strategy::from_options(options).map_err(|error| EngineError::Startup(error.to_string()))?;
            let sstables = store.view().sstables.clone();
            let metadata: Vec<TableMetadata> = sstables.iter().map(|table| TableMetadata::of(table)).collect();
            let Some(pick) = strategy.next(&metadata, self.flush_size_bytes(), self.next_timestamp_micros()) else {
                return Ok(());
            };
            let is_picked = |table: &&Arc<SSTableReader>| pick.tables.contains(&table.descriptor().id);
            let inputs: Vec<_> = sstables.iter().filter(is_picked).cloned().collect();
            let metadata: Vec<TableMetadata> = inputs.iter().map(|table| TableMetadata::of(table)).collect();
            if self.merge(store, &inputs, strategy.output_boundaries(&metadata))? == Merged::Kept {
                return Ok(());
            }
        }
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
        let overlaps = Outside { store, inputs };
        let compacted = compact(CompactionInput {
            disk: &self.options().disk,
            dir: &store.directory,
            table: &table,
            tables: inputs,
            overlaps: &overlaps,
            now_seconds: self.now_seconds(),
            boundaries,
            column_index_size_bytes: u64::from(self.options().column_index_size_bytes),
            host_id: self.host_id(),
            new_id: &mut || self.files().new_id(),
            progress: &mut |_| match self.is_closing(store) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            },
        });
        match compacted {
            Ok(compacted) if compacted.tables.is_empty() && self.may_replay(inputs) => Ok(Merged::Kept),
            Ok(compacted) => {
                self.files().replace(store, &table, inputs, compacted.tables)?;
                Ok(Merged::Replaced)
            }
            Err(CompactionError::Stopped) => Ok(Merged::Kept),
            Err(CompactionError::SSTable(error)) => Err(error.into()),
            Err(error) => Err(EngineError::Unsupported(error.to_string())),
        }
    }
}
