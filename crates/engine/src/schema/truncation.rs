//! Truncation: a table loses everything that was written before, for good.
//!
//! The order is as follows. Writes that follow from reads are refused until the old rows are gone, and then read again
//! ([`crate::table::ReadEpoch`]). A new memtable begins at a position of the log, at which the table is truncated.
//! Writes into the old memtables end. The position becomes durable in `system.local`, as a record of the log. Only then
//! are memtables and files deleted. A start reads the positions from the log before it replays (`recovery.rs`), and
//! deletes the leftovers of a crash. So memory, replay and SSTables lose the same writes: those whose records end at
//! the position or before it. After the files are deleted, the truncation is recorded as finished: SSTables that are
//! restored from a snapshot after that are kept.

use std::sync::Arc;

use commitlog::LogPosition;
use model::{Mutation, PartitionUpdate, Table, TableId};
use sstable::{CommitLogPosition, Descriptor, SSTableReader, link_table};
use types::collection;
use uuid::Uuid;

use crate::compaction::Compaction;
use crate::error::EngineError;
use crate::files::descriptors_of;
use crate::flush::Flush;
use crate::lock::lock;
use crate::quarantine::Quarantine;
use crate::read;
use crate::residents::Residents;
use crate::shared::Shared;
use crate::system::SystemWrite;
use crate::table::TableStore;
use crate::write::{Durability, Writes};

/// The content of `truncated_at` for a table.
#[derive(Clone, Copy)]
struct Truncation {
    /// Records up to this position are deleted.
    position: LogPosition,
    /// The time of the truncation, milliseconds since the epoch.
    millis: i64,
    /// Whether the SSTables are deleted.
    is_finished: bool,
}

impl Truncation {
    fn encode(self) -> Vec<u8> {
        let mut value = Vec::with_capacity(21);
        value.extend_from_slice(&self.position.segment.to_be_bytes());
        value.extend_from_slice(&self.position.offset.to_be_bytes());
        value.extend_from_slice(&self.millis.to_be_bytes());
        value.extend(self.is_finished.then_some(1));
        value
    }

    fn decode(value: &[u8]) -> Option<Truncation> {
        let (segment, rest) = value.split_first_chunk::<8>()?;
        let (offset, rest) = rest.split_first_chunk::<4>()?;
        let (millis, rest) = rest.split_first_chunk::<8>()?;
        let position = LogPosition { segment: i64::from_be_bytes(*segment), offset: i32::from_be_bytes(*offset) };
        Some(Truncation { position, millis: i64::from_be_bytes(*millis), is_finished: rest == [1] })
    }
}

/// Truncates tables.
pub(crate) struct Truncations {
    shared: Arc<Shared>,
    compaction: Arc<Compaction>,
    quarantine: Arc<Quarantine>,
    flush: Arc<Flush>,
    residents: Arc<Residents>,
    writes: Arc<Writes>,
}

impl Truncations {
    pub fn new(
        shared: &Arc<Shared>,
        compaction: &Arc<Compaction>,
        quarantine: &Arc<Quarantine>,
        flush: &Arc<Flush>,
        residents: &Arc<Residents>,
        writes: &Arc<Writes>,
    ) -> Truncations {
        Truncations {
            shared: Arc::clone(shared),
            compaction: Arc::clone(compaction),
            quarantine: Arc::clone(quarantine),
            flush: Arc::clone(flush),
            residents: Arc::clone(residents),
            writes: Arc::clone(writes),
        }
    }

    /// See [`crate::Engine::truncate`].
    pub fn truncate(&self, table: &Table) -> Result<(), EngineError> {
        self.shared.check_writable()?;
        let store = self.shared.store(table)?;
        // Each attempt lets flushes run first, which make room in the log.
        self.flush.retry_while_full(|| {
            let truncated = self.try_truncate(&store);
            // After a failure, all resident data must be loaded again, and the stopped merges continue.
            self.residents.settle(&store);
            self.compaction.request(&store);
            truncated
        })
    }

    /// Returns false if the log had no room, in which case nothing has happened.
    fn try_truncate(&self, store: &Arc<TableStore>) -> Result<bool, EngineError> {
        let _no_flush = store.wait_for_flush();
        let _no_compaction = store.merges.stop();
        let id = store.table.load().id;
        store.check_served()?;
        // A quarantine that failed may have left some; their rows must not come back.
        self.quarantine.side_files().remove(id)?;
        let _no_load = lock(&store.settling);
        self.take_in(store)?;
        self.residents.renew(store);
        // A write that follows from what the truncation deletes must not enter the log after it.
        let closed = store.epoch.close();
        self.shared.groups().barrier().wait();
        // Even an empty memtable is retired, because records after the position must not be dropped with it.
        let first = self.shared.retire_active(store);
        self.shared.groups().barrier().wait();
        let position = first.lower(self.shared.log());
        let truncation = Truncation { position, millis: self.shared.now_millis(), is_finished: false };
        let note = self.note_of_truncation(id, truncation, self.shared.next_timestamp_micros());
        if !self.writes.try_blocking(&Mutation::from(note), Durability::OnDevice)? {
            return Ok(false);
        }
        let (generations, sstables) = (store.before(&first), store.view().sstables.clone());
        store.truncate(&first);
        drop(closed);
        self.quarantine.flush_failures().forget(id);
        self.compaction.note(id, None);
        first.resident.iter().for_each(|resident| resident.set_complete());
        for (generation, _) in &generations {
            store.keep_puts(generation);
            generation.release(self.shared.pool());
        }
        self.shared.forget_log(id, position)?;
        let _no_snapshot = lock(&store.files);
        // The next start removes the remaining files. A later truncation must not be recorded as finished before that.
        self.remove_files(store, &sstables).inspect_err(|_| store.distrust_files())?;
        // The directory may hold SSTables that only the next start knows of.
        if store.check_files().is_ok() {
            // If this fails, the next start checks again.
            let _ = self.writes.try_blocking(&Mutation::from(self.finished(id, truncation)), Durability::Configured);
        }
        Ok(true)
    }

    /// Makes SSTables that were put into the table's directory by hand the node's own, because a start that finishes a
    /// truncation decides by their position in the log which of them are deleted.
    fn take_in(&self, store: &Arc<TableStore>) -> Result<(), EngineError> {
        let mut foreign = store.view().sstables.clone();
        foreign.retain(|sstable| self.written_up_to(sstable).is_none());
        if foreign.is_empty() {
            return Ok(());
        }
        let position = self.shared.log().position();
        let position = CommitLogPosition { segment: position.segment, offset: position.offset };
        let mut own = Vec::with_capacity(foreign.len());
        for sstable in &foreign {
            let target = Descriptor::new(&store.directory, self.shared.files().new_id());
            let mut linked = link_table(&self.shared.options().disk, sstable.descriptor(), &target)?;
            linked.belong_to(self.shared.host_id(), position)?;
            own.push(linked);
        }
        self.shared.files().replace(store, &store.table.load_full(), &foreign, own).map(|_| ())
    }

    /// The write that records a truncation in `truncated_at` as Cassandra does: i64 segment, i32 offset, i64
    /// milliseconds. Ours has another byte after the SSTables are deleted.
    pub fn record(&self, table: TableId, position: LogPosition, timestamp: i64) -> PartitionUpdate {
        self.note_of_truncation(
            table,
            Truncation { position, millis: self.shared.now_millis(), is_finished: false },
            timestamp,
        )
    }

    fn finished(&self, table: TableId, truncation: Truncation) -> PartitionUpdate {
        let finished = Truncation { is_finished: true, ..truncation };
        self.note_of_truncation(table, finished, self.shared.next_timestamp_micros())
    }

    fn note_of_truncation(&self, table: TableId, truncation: Truncation, timestamp: i64) -> PartitionUpdate {
        let value = truncation.encode();
        let mut write = SystemWrite::new(&self.shared.find_table("system", "local"), b"local", timestamp);
        write.entry("truncated_at", table.0.as_bytes(), Some(&value));
        write.build()
    }

    /// Removes the truncations of tables that are gone. Called when the log contains nothing from before the start.
    pub fn forget_gone(&self) -> Result<(), EngineError> {
        let schema = self.shared.schema();
        let mut gone = self.entries()?;
        gone.retain(|(id, _)| schema.table_by_id(*id).is_none());
        if gone.is_empty() {
            return Ok(());
        }
        let mut updates = Vec::with_capacity(gone.len());
        for (id, _) in gone {
            let local = self.shared.find_table("system", "local");
            let mut write = SystemWrite::new(&local, b"local", self.shared.next_timestamp_micros());
            write.entry("truncated_at", id.0.as_bytes(), None);
            updates.push(write.build());
        }
        self.writes.system(&Mutation::new(updates))
    }

    fn entries(&self) -> Result<Vec<(TableId, Truncation)>, EngineError> {
        let row = read::local_row(&self.shared)?;
        let value = row.as_ref().and_then(|row| row.get("truncated_at")).unwrap_or_default();
        let parts = collection::entries(value).into_iter().flat_map(|parts| parts.entries()).flatten();
        let entry =
            |(key, value): (&[u8], &[u8])| Some((TableId(Uuid::from_slice(key).ok()?), Truncation::decode(value)?));
        Ok(parts.filter_map(entry).collect())
    }

    /// The positions at which tables were truncated.
    pub fn positions(&self) -> Result<Vec<(TableId, LogPosition)>, EngineError> {
        Ok(self.entries()?.into_iter().map(|(id, truncation)| (id, truncation.position)).collect())
    }

    /// The last truncation of each table: its position in the log, and its time in milliseconds since the epoch.
    pub fn last(&self) -> Result<Vec<(TableId, LogPosition, i64)>, EngineError> {
        let entries = self.entries()?.into_iter();
        Ok(entries.map(|(id, truncation)| (id, truncation.position, truncation.millis)).collect())
    }

    fn unfinished(&self) -> Result<Vec<(TableId, Truncation)>, EngineError> {
        let mut unfinished = self.entries()?;
        unfinished.retain(|(_, truncation)| !truncation.is_finished);
        Ok(unfinished)
    }

    /// Removes the SSTables of truncations that became durable but were not finished, and deletes their files. If that
    /// fails, the truncation stays unfinished.
    pub fn remove_truncated(&self) -> Result<(), EngineError> {
        let stores = self.shared.stores();
        for (id, truncation) in self.unfinished()? {
            let store = stores.iter().find(|store| store.table.load().id == id);
            store.iter().for_each(|store| self.remove_covered(store, truncation.position));
        }
        Ok(())
    }

    /// Finishes an unfinished truncation of a store that is not in the catalog yet.
    pub fn finish_of(&self, store: &Arc<TableStore>) -> Result<(), EngineError> {
        let id = store.table.load().id;
        let unfinished = self.unfinished()?.into_iter().find(|(unfinished, _)| *unfinished == id);
        let Some((_, truncation)) = unfinished else { return Ok(()) };
        self.remove_covered(store, truncation.position);
        match store.check_files() {
            Ok(()) => self.writes.system(&Mutation::new(vec![self.finished(id, truncation)])),
            Err(_) => Ok(()),
        }
    }

    /// Records the finished truncations of tables that are served or gone. Called once records may be appended.
    ///
    /// The SSTables of a quarantined table may not have been examined. Its truncation is finished when it is repaired.
    pub fn finish_all(&self) -> Result<(), EngineError> {
        let stores = self.shared.stores();
        let is_finished = |id: TableId| {
            let store = stores.iter().find(|store| store.table.load().id == id);
            store.is_none_or(|store| store.check_files().is_ok())
        };
        let mut finished = self.unfinished()?;
        finished.retain(|(id, _)| is_finished(*id));
        if finished.is_empty() {
            return Ok(());
        }
        let notes = finished.into_iter().map(|(id, truncation)| self.finished(id, truncation));
        self.writes.system(&Mutation::new(notes.collect()))
    }

    fn remove_covered(&self, store: &Arc<TableStore>, position: LogPosition) {
        let mut gone = store.view().sstables.clone();
        gone.retain(|sstable| self.written_up_to(sstable).is_some_and(|end| end <= position));
        store.replace_sstables(&gone, Vec::new());
        if let Err(error) = self.remove_files(store, &gone) {
            self.shared.report_failure(&error);
            store.distrust_files();
        }
    }

    fn remove_files(&self, store: &TableStore, sstables: &[Arc<SSTableReader>]) -> Result<(), EngineError> {
        let gone = descriptors_of(sstables);
        self.shared.files().forget_indexes(store, &store.table.load(), &gone);
        self.shared.files().remove(&store.directory, &gone)
    }

    /// The position in our log at which an SSTable's rows were written. An SSTable that a start flushed after a replay
    /// covers no interval of the log any more, but still has a position in it.
    pub fn written_up_to(&self, sstable: &SSTableReader) -> Option<LogPosition> {
        let stats = &sstable.statistics().stats;
        let own = stats.originating_host_id == Some(self.shared.log().host_id());
        let ends =
            stats.commit_log_intervals.iter().map(|(_, end)| LogPosition { segment: end.segment, offset: end.offset });
        ends.max().filter(|_| own)
    }
}
