//! Dropping tables: the removal of a table's data after the schema lost the table.
//!
//! The log record that removes a table from the schema also records it as dropped, in `system.table_layouts`. Then its
//! writes end, its memtables are dropped, its SSTables are deleted, and finally the entry is deleted. A start that
//! finds the entry continues where a crash or a failing disk stopped. Snapshots stay. A drop is also a truncation, so
//! that the old records are not replayed into a table that is created again with the same id.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use model::{Mutation, Schema, TableId};
use sstable::remove_all_tables;

use super::Tables;
use crate::error::EngineError;
use crate::lock::lock;
use crate::read;
use crate::schema_rows;
use crate::table::TableStore;

impl Tables {
    /// Ends the writes, flushes and compactions of a dropped table, and drops its memtables. Reads in progress
    /// continue.
    pub(super) fn drop_store(&self, store: &Arc<TableStore>) -> Result<(), EngineError> {
        store.set_dropped();
        let _no_flush = store.wait_for_flush();
        let _no_compaction = store.merges.stop();
        let _no_snapshot = lock(&store.files);
        self.shared.groups().barrier().wait();
        store.view().generations().for_each(|generation| generation.release(self.shared.pool()));
        self.quarantine.flush_failures().forget(store.table.load().id);
        self.compaction.note(store.table.load().id, None);
        self.drops_unfinished.store(true, Ordering::Relaxed);
        self.shared.forget_log(store.table.load().id, self.shared.log().position())
    }

    /// Marks the files of unreadable tables that `new` lacks for deletion, with those of other dropped tables. Returns
    /// whether there are any.
    pub(super) fn note_dropped_unreadable(&self, old: &Schema, new: &Schema) -> bool {
        let is_gone = |(keyspace, name, _): (&Arc<str>, &Arc<str>, _)| new.unreadable(keyspace, name).is_none();
        let any = old.all_unreadable().any(is_gone);
        if any {
            self.drops_unfinished.store(true, Ordering::Relaxed);
        }
        any
    }

    /// Deletes the files of tables that were dropped.
    pub(crate) fn finish_drops(&self) -> Result<(), EngineError> {
        if !self.drops_unfinished.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        let layouts = read::system_rows(&self.shared, "system", schema_rows::LAYOUTS)?;
        let mut result = Ok(());
        for (id, keyspace, name) in schema_rows::dropped_tables(&layouts) {
            result = result.and(self.finish_drop(id, &self.shared.directory_of(&keyspace, &name, id)));
        }
        // Failed deletions are retried before the next schema change, and at the next start.
        result.inspect_err(|_| self.drops_unfinished.store(true, Ordering::Relaxed))
    }

    fn finish_drop(&self, id: TableId, directory: &Path) -> Result<(), EngineError> {
        self.remove_directory(directory)?;
        self.shared.files().remove_all_indexes(id)?;
        {
            let _no_part_aside = lock(self.quarantine.moving());
            self.quarantine.side_files().remove(id)?;
        }
        let timestamp = self.shared.next_timestamp_micros();
        let forgotten = schema_rows::forget_layout(&self.shared.schema(), id, timestamp);
        let truncated = self.truncations.record(id, self.shared.log().position(), timestamp);
        // This is not synced, because everything that depends on it comes later in the log.
        self.writes.system(&Mutation::new(vec![forgotten, truncated]))
    }

    /// Deletes a table's SSTables, and its directory unless it contains anything else.
    fn remove_directory(&self, directory: &Path) -> Result<(), EngineError> {
        let disk = &*self.shared.options().disk;
        if !disk.exists(directory)? {
            return Ok(());
        }
        remove_all_tables(disk, directory)?;
        if disk.list(directory)?.is_empty() {
            disk.remove_dir_all(directory)?;
            directory.parent().map_or(Ok(()), |parent| disk.sync_dir(parent))?;
        }
        Ok(())
    }
}
