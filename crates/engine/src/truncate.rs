//! Truncation: a table loses everything that was written before, for good.
//!
//! The order: writes into the old memtable end; the position up to which the table is truncated becomes durable in an
//! SSTable of `system.local`; only then are files deleted. A start that finds the position deletes what a crash left. The
//! position does not go through the log, which would tell a start of the truncation after the records it concerns.

use std::sync::Arc;

use commitlog::{LogPosition, PositionInterval};
use model::{Table, TableId};
use sstable::SSTableReader;
use types::collection;
use uuid::Uuid;

use crate::engine::Engine;
use crate::error::EngineError;
use crate::store::{TableStore, lock};

impl Engine {
    /// Deletes all rows of a table. Blocks on the disk. Reads that are under way may still see old rows.
    pub fn truncate(&self, table: &Table) -> Result<(), EngineError> {
        let store = self.store(table)?;
        let _no_flush = lock(&store.flushing);
        let _no_compaction = lock(&store.compacting);
        // Even an empty memtable is retired: what is logged behind the position must not be dropped with it.
        self.retire_active(&store);
        let view = store.view();
        self.groups().barrier().wait();
        let position = view.active.lower();
        self.note_truncation(table.id, position)?;
        let sstables = store.view().sstables.clone();
        store.replace_sstables(&sstables, Vec::new());
        for generation in &view.frozen {
            store.replace_generation(generation, None);
            generation.release(self.pool());
        }
        self.forget_log(table.id, position)?;
        let _no_snapshot = lock(&store.files);
        sstables.iter().try_for_each(|sstable| self.files().remove(sstable.descriptor()))
    }

    /// Tells the log that nothing of the table's records up to `position` is needed.
    pub(crate) fn forget_log(&self, table: TableId, position: LogPosition) -> Result<(), EngineError> {
        let interval = PositionInterval { start: LogPosition::NONE, end: position };
        self.log().flushed(table.0, interval).map_err(|error| self.log_failed(error))
    }

    /// As Cassandra keeps it in `truncated_at`: i64 segment, i32 offset, i64 milliseconds.
    fn note_truncation(&self, table: TableId, position: LogPosition) -> Result<(), EngineError> {
        let mut value = Vec::with_capacity(20);
        value.extend_from_slice(&position.segment.to_be_bytes());
        value.extend_from_slice(&position.offset.to_be_bytes());
        value.extend_from_slice(&self.now_millis().to_be_bytes());
        let mut entries = self.truncation_entries()?;
        entries.retain(|(id, _)| *id != table);
        entries.push((table, value));
        entries.sort_by(|(left, _), (right, _)| types::CqlType::Uuid.compare(left.0.as_bytes(), right.0.as_bytes()));
        let map = collection::map(entries.iter().map(|(id, value)| (&id.0.as_bytes()[..], value.as_slice())));
        self.flush_local(&[("truncated_at", Some(map))])
    }

    fn truncation_entries(&self) -> Result<Vec<(TableId, Vec<u8>)>, EngineError> {
        let row = self.local_row()?;
        let value = row.as_ref().and_then(|row| row.get("truncated_at")).unwrap_or_default();
        let parts = collection::entries(value).into_iter().flat_map(|parts| parts.entries()).flatten();
        Ok(parts.filter_map(|(key, value)| Some((TableId(Uuid::from_slice(key).ok()?), value.to_vec()))).collect())
    }

    /// Up to where tables were truncated.
    pub(crate) fn truncations(&self) -> Result<Vec<(TableId, LogPosition)>, EngineError> {
        let position = |value: &[u8]| {
            let (segment, rest) = value.split_first_chunk::<8>()?;
            let (offset, _) = rest.split_first_chunk::<4>()?;
            Some(LogPosition { segment: i64::from_be_bytes(*segment), offset: i32::from_be_bytes(*offset) })
        };
        let entries = self.truncation_entries()?;
        Ok(entries.iter().filter_map(|(id, value)| Some((*id, position(value)?))).collect())
    }

    /// Deletes SSTables whose truncation became durable but was not finished.
    pub(crate) fn remove_truncated(&self) -> Result<(), EngineError> {
        let stores = self.stores();
        for (id, position) in self.truncations()? {
            let store = stores.iter().find(|store| store.table.load().id == id);
            store.map_or(Ok(()), |store| self.remove_covered(store, position))?;
        }
        Ok(())
    }

    fn remove_covered(&self, store: &Arc<TableStore>, position: LogPosition) -> Result<(), EngineError> {
        let mut gone = store.view().sstables.clone();
        gone.retain(|sstable| self.written_up_to(sstable).is_some_and(|end| end <= position));
        store.replace_sstables(&gone, Vec::new());
        gone.iter().try_for_each(|sstable| self.files().remove(sstable.descriptor()))
    }

    /// The position of our log at which an SSTable's rows were written. What a start flushed after replay covers no
    /// interval of the log any more, and yet has its place in it.
    fn written_up_to(&self, sstable: &SSTableReader) -> Option<LogPosition> {
        let stats = &sstable.statistics().stats;
        let own = stats.originating_host_id == Some(self.log().host_id());
        let ends =
            stats.commit_log_intervals.iter().map(|(_, end)| LogPosition { segment: end.segment, offset: end.offset });
        ends.max().filter(|_| own)
    }
}
