//! Flushing memtables to SSTables.
//!
//! A table has one flush at a time. It replaces the memtable, waits until no write can be on its way into the old one,
//! makes the log durable, and then writes the SSTable. If it fails, the memtable stays, and the log keeps its records.

mod background;
mod time_limit;
mod with_all;

use std::sync::Arc;

use commitlog::PositionInterval;
use model::{KeyRange, ReadRange, UnfilteredCursor};
use sstable::SSTableReader;

use crate::compaction::Compaction;
use crate::error::EngineError;
use crate::lock::lock;
use crate::quarantine::Quarantine;
use crate::shared::Shared;
use crate::table::{Generation, TableStore};
use crate::worker::Worker;

pub use background::FlushStats;
pub(crate) use background::Queue as FlushQueue;
pub(crate) use background::contained;
use time_limit::{Limited, TimeLimit};

/// The part of the memtables' space that flushed memtables' vectors may take besides, until their graphs are built.
const STAND_IN_SHARE: u64 = 4;

/// Writes memtables to SSTables, when it is asked to and with threads in the background.
pub(crate) struct Flush {
    shared: Arc<Shared>,
    compaction: Arc<Compaction>,
    quarantine: Arc<Quarantine>,
    queue: Arc<FlushQueue>,
    workers: Vec<Worker>,
    /// The time at which a stop gives up the remaining flushes.
    limit: TimeLimit,
}

impl Flush {
    /// Writes the content of the table's memtable to an SSTable. Returns whether there was any, after the SSTable is
    /// durable. Blocks on the disk. If the table cannot be flushed and is quarantined for that reason, the error says
    /// so.
    pub fn flush_store(&self, store: &Arc<TableStore>) -> Result<bool, EngineError> {
        let flushed = self.try_flush_store(store).map_err(|error| {
            if self.gives_up(store) {
                return EngineError::OutOfTime;
            }
            self.shared.report_failure(&error);
            self.quarantine.contain(store, error)
        })?;
        self.quarantine.flush_failures().forget(store.table.load().id);
        Ok(flushed)
    }

    /// Flushes only the memtables that were retired before, without later writes. Blocks on the disk.
    pub fn flush_frozen(&self, store: &Arc<TableStore>) -> Result<bool, EngineError> {
        let _one_at_a_time = lock(&store.flushing);
        if !store.is_served() {
            return Ok(false);
        }
        let active = store.view().active.clone();
        self.flush_before(store, &active)
    }

    /// Like [`flush_store`](Self::flush_store), but does not change the table's state if it fails.
    pub fn try_flush_store(&self, store: &Arc<TableStore>) -> Result<bool, EngineError> {
        let _one_at_a_time = lock(&store.flushing);
        if !store.is_served() {
            return Ok(false);
        }
        let view = store.view();
        let is_empty = view.active.memtable.is_empty();
        if self.gives_up(store) && !(is_empty && view.frozen.is_empty()) {
            return Err(EngineError::OutOfTime);
        }
        // A failed flush left its memtable frozen. That one is flushed first, and while this fails, no others are
        // frozen.
        let flushed = if is_empty || !view.frozen.is_empty() { self.flush_before(store, &view.active)? } else { false };
        if is_empty {
            return Ok(flushed);
        }
        self.flush_before(store, &self.shared.retire_active(store))
    }

    /// Whether the time of a stop is over, and the log has all that the table's memtables hold.
    fn gives_up(&self, store: &TableStore) -> bool {
        self.limit.is_over() && store.is_all_logged()
    }

    /// Flushes the generations before `first`, oldest first, so that intervals are marked in order. Returns false if
    /// there are none. Passes a barrier in any case.
    fn flush_before(&self, store: &Arc<TableStore>, first: &Arc<Generation>) -> Result<bool, EngineError> {
        self.shared.groups().barrier().wait();
        let frozen = store.before(first);
        if frozen.is_empty() {
            return Ok(false);
        }
        // The intervals come first, so that the log is durable up to their ends.
        let intervals = frozen.iter().map(|(generation, next)| self.covered_interval(generation, next));
        let intervals: Vec<_> = intervals.collect();
        self.complete_log()?;
        for ((generation, _), interval) in frozen.iter().zip(intervals) {
            self.flush_generation(store, generation, interval)?;
        }
        Ok(true)
    }

    /// Makes the log durable to its end, so that if a part of a mutation is in an SSTable, the other parts are in the
    /// log. A start relies on it when it takes a log that ends before an SSTable's interval for damaged.
    ///
    /// Fails if the log has failed. Then a record may be on the device without being applied, or be applied without
    /// being on the device, and an SSTable would separate its parts. From then on nothing is flushed, and the next
    /// start replays such a record as a whole or not at all.
    fn complete_log(&self) -> Result<(), EngineError> {
        self.shared.log().sync().map_err(|error| self.shared.log_failed(error))
    }

    /// The part of the log that a generation's SSTable covers. If that is empty (the generation was full, or nothing
    /// was logged), it still says when the SSTable was written: after a truncation, a start needs that to find the
    /// older SSTables.
    fn covered_interval(&self, generation: &Generation, next: &Generation) -> PositionInterval {
        let (start, end) = (generation.covers_from(self.shared.log()), next.lower(self.shared.log()));
        if start < end {
            return PositionInterval { start, end };
        }
        let now = self.shared.log().position();
        PositionInterval { start: now, end: now }
    }

    fn flush_generation(
        &self,
        store: &Arc<TableStore>,
        generation: &Arc<Generation>,
        interval: PositionInterval,
    ) -> Result<(), EngineError> {
        if !self.flush_with_all(store, generation, interval) {
            let sstable =
                if generation.memtable.is_empty() { None } else { self.write_sstable(store, generation, interval)? };
            sstable.iter().for_each(|sstable| store.flush_size.note(sstable.size_on_disk_bytes()));
            if let Some(sstable) = &sstable {
                store.indexes.set(std::slice::from_ref(sstable), store.indexes.stand_ins(&[], Some(generation)));
            }
            store.replace_generation(generation, &[], sstable.clone());
            sstable.iter().for_each(|sstable| self.build_indexes(store, sstable));
        }
        store.keep_puts(generation);
        generation.release(self.shared.pool());
        let id = store.table.load().id.0;
        self.shared.log().flushed(id, interval).map_err(|error| self.shared.log_failed(error))
    }

    /// Builds the indexes of an SSTable that was flushed, so that those of its memtable can be freed. If that fails, it
    /// is tried again in the background. Graphs of vectors take minutes, in which the table's flush could not end: they
    /// are left to the indexer, unless too many memtables' vectors wait for it already.
    fn build_indexes(&self, store: &Arc<TableStore>, sstable: &Arc<SSTableReader>) {
        let table = store.table.load_full();
        if table.indexes().is_empty() {
            return;
        }
        let files = self.shared.files();
        let goes_on = || !self.gives_up(store) && store.is_served() && !store.is_flush_awaited();
        let mut built = files.build_missing_indexes(store, sstable, |key| key.part.similarity().is_none(), goes_on);
        if built.is_ok() && self.has_many_stand_ins() {
            let goes_on = || goes_on() && !files.index_requests().is_stopped();
            built = files.build_missing_indexes(store, sstable, |_| true, goes_on);
        }
        if let Err(error) = built
            && goes_on()
            && !files.index_requests().is_stopped()
        {
            self.shared.report_index_failure(&table, &error);
        }
        files.index_requests().request();
    }

    /// Whether the vectors of flushed memtables that wait for their graphs take more than their share of the memory.
    fn has_many_stand_ins(&self) -> bool {
        let bytes: u64 = self.shared.stores().iter().map(|store| store.indexes.vector_stand_in_bytes()).sum();
        bytes > self.shared.options().memtable_space_bytes / STAND_IN_SHARE
    }

    fn write_sstable(
        &self,
        store: &Arc<TableStore>,
        generation: &Generation,
        interval: PositionInterval,
    ) -> Result<Option<Arc<SSTableReader>>, EngineError> {
        let table = store.table.load_full();
        let statistics = generation.memtable.statistics();
        let mut cursor = generation.memtable.clone().cursor(&table, &ReadRange::all_rows(KeyRange::all()));
        cursor.limit_large_rows(self.shared.options().background_rows());
        let mut options = self.shared.files().memtable_options(&table, statistics, &[interval])?;
        options.size_watch = self.shared.size_watch(&table);
        options.large_rows = self.shared.options().background_rows();
        if store.is_all_logged() {
            let mut cursor = Limited { cursor, limit: &self.limit };
            return self.shared.files().write(store, &table, &mut cursor, options);
        }
        self.shared.files().write(store, &table, &mut cursor, options)
    }
}
