//! Builds secondary indexes in the background: those of tables that had data when the index was created, and those of
//! SSTables whose index files are missing or damaged.
//!
//! A table's indexes are completed in steps, and a crash may happen after each: memtables without an index are flushed,
//! then missing files of SSTables are built, and then `system."IndexInfo"` records that the index is built.

use std::sync::Arc;
use std::time::Duration;

use model::{IndexKey, Mutation, Table};
use sstable::SSTableReader;

use crate::error::EngineError;
use crate::flush::Flush;
use crate::hooks::IndexBuildNotice;
use crate::read;
use crate::schema_rows;
use crate::shared::Shared;
use crate::table::TableStore;
use crate::table::indexes::MemtableIndexes;
use crate::worker::Worker;
use crate::write::Writes;

/// The interval at which tables with indexes are examined without a request. Failed builds are retried then.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// Builds indexes in its own thread.
pub(crate) struct Indexing {
    shared: Arc<Shared>,
    flush: Arc<Flush>,
    writes: Arc<Writes>,
    worker: Worker,
}

impl Indexing {
    pub fn new(shared: &Arc<Shared>, flush: &Arc<Flush>, writes: &Arc<Writes>) -> Indexing {
        let (shared, flush, writes) = (Arc::clone(shared), Arc::clone(flush), Arc::clone(writes));
        Indexing { shared, flush, writes, worker: Worker::new() }
    }

    /// Starts the thread, which first examines all tables. It ends with the component.
    pub fn start(self: &Arc<Self>) -> Result<(), EngineError> {
        if self.shared.options().read_only {
            return Ok(());
        }
        self.shared.files().index_requests().request();
        let shared = Arc::clone(&self.shared);
        self.worker.start("indexer", self, move |indexing| {
            blockio::lower_priority();
            while shared.files().index_requests().wait(CHECK_INTERVAL) {
                let Some(indexing) = indexing.upgrade() else { return };
                let is_settled = indexing.examine_all();
                drop(indexing);
                if !is_settled {
                    shared.files().index_requests().rest(CHECK_INTERVAL);
                }
            }
        })
    }

    /// Ends the thread. Its current work is done after the next start.
    pub fn stop(&self) {
        self.shared.files().index_requests().stop();
        self.worker.join();
    }

    /// Completes the indexes of all tables. Returns false if one of them has to wait for the next time.
    fn examine_all(&self) -> bool {
        let mut are_complete = true;
        let stores = self.shared.stores();
        for store in stores.iter().filter(|store| store.is_served() && !store.table.load().indexes().is_empty()) {
            let table = store.table.load_full();
            let built = self.build_missing(store, &table);
            let is_current = !self.is_stopped(store) && Arc::ptr_eq(&table, &store.table.load());
            if let Err(error) = built
                && is_current
            {
                self.shared.report_index_failure(&table, &error);
                are_complete = false;
            }
        }
        are_complete
    }

    fn is_stopped(&self, store: &TableStore) -> bool {
        self.shared.files().index_requests().is_stopped() || !store.is_served()
    }

    /// Builds the missing parts of a table's indexes. Blocks on the disk.
    fn build_missing(&self, store: &Arc<TableStore>, table: &Arc<Table>) -> Result<(), EngineError> {
        let keys: Vec<IndexKey> = table.indexes().iter().filter_map(|index| table.index_key(index)).collect();
        let has = |indexes: &MemtableIndexes| keys.iter().all(|key| indexes.get(*key).is_some());
        let view = store.view();
        if !view.generations().all(|generation| generation.indexes.as_deref().is_some_and(has)) {
            // The active generation was retired when the index was created.
            self.flush.flush_frozen(store)?;
        }
        drop(view);
        self.build_missing_files(store, table, &keys)?;
        self.shared.files().clean_indexes(table, || store.view().sstables.clone())?;
        self.note_built(store, table)
    }

    /// Builds the missing index files of all SSTables of a table. If that fails for one, the others are built.
    fn build_missing_files(&self, store: &TableStore, table: &Table, keys: &[IndexKey]) -> Result<(), EngineError> {
        let view = store.view();
        let is_incomplete = |sstable: &&Arc<SSTableReader>| {
            !sstable.is_damaged() && !keys.iter().all(|key| store.indexes.has_own(sstable, *key))
        };
        let incomplete: Vec<&Arc<SSTableReader>> = view.sstables.iter().filter(is_incomplete).collect();
        let mut failure = None;
        for (place, sstable) in incomplete.iter().enumerate() {
            let is_there = || store.borrow_view().sstables.iter().any(|other| other.is_same(sstable));
            if is_incomplete(sstable) && is_there() {
                self.shared.report_index_build(&IndexBuildNotice::SSTable {
                    keyspace: table.keyspace.to_string(),
                    table: table.name.to_string(),
                    sstable: sstable.descriptor().id.to_string(),
                    data_bytes: sstable.data_length_bytes(),
                    remaining: incomplete.len() - place,
                });
                let built =
                    self.shared.files().build_missing_indexes(store, sstable, |_| true, || !self.is_stopped(store));
                failure = failure.or(built.err());
            }
        }
        failure.map_or(Ok(()), Err)
    }

    /// Records in `system."IndexInfo"` which indexes are built.
    fn note_built(&self, store: &TableStore, table: &Table) -> Result<(), EngineError> {
        let noted = read::system_rows(&self.shared, "system", schema_rows::BUILT_INDEXES)?;
        for index in table.indexes() {
            let is_noted = noted.iter().any(|row| {
                row.get("table_name") == Some(table.keyspace.as_bytes())
                    && row.get("index_name") == Some(index.name.as_bytes())
            });
            let is_complete = table.index_key(index).is_some_and(|key| read::is_complete(store, key));
            if !is_noted && is_complete {
                let (schema, timestamp) = (self.shared.schema(), self.shared.next_timestamp_micros());
                let note = schema_rows::note_built(&schema, &table.keyspace, &index.name, timestamp);
                self.writes.system(&Mutation::new(vec![note]))?;
                let (keyspace, index) = (table.keyspace.to_string(), index.name.to_string());
                self.shared.report_index_build(&IndexBuildNotice::Complete { keyspace, index });
            }
        }
        Ok(())
    }
}

impl Drop for Indexing {
    fn drop(&mut self) {
        self.stop();
    }
}
