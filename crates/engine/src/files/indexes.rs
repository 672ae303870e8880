//! The index files of SSTables: opening, building and deleting them. They are in `index/<table id>/<SSTable id>`,
//! beside the data directory, and can be built again from their SSTables at any time.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use index::{IndexBuilder, Indexer, Origin, file_name};
use model::{IndexKey, KeyRange, ReadRange, Table, TableId, UnfilteredCursor};
use sstable::{Descriptor, ReadMode, SSTableError, SSTableId, SSTableReader};

use super::{TableFiles, open_cursor};
use crate::error::EngineError;
use crate::lock::lock;
use crate::table::TableStore;
use crate::table::indexes::{SSTableIndex, SSTableIndexes, WatchedFile, indexers_of};

/// Whether indexes should be examined, and whether the building of indexes has ended. Thread-safe.
#[derive(Default)]
pub(crate) struct IndexRequests {
    state: Mutex<RequestState>,
    changed: Condvar,
}

#[derive(Default)]
struct RequestState {
    is_requested: bool,
    is_stopped: bool,
}

impl IndexRequests {
    /// Requests that the tables with indexes are examined soon.
    pub fn request(&self) {
        lock(&self.state).is_requested = true;
        self.changed.notify_all();
    }

    /// Ends the building of indexes.
    pub fn stop(&self) {
        lock(&self.state).is_stopped = true;
        self.changed.notify_all();
    }

    pub fn is_stopped(&self) -> bool {
        lock(&self.state).is_stopped
    }

    /// Waits for this time, even if something is requested, unless the building of indexes ends.
    pub fn rest(&self, time: Duration) {
        let state = lock(&self.state);
        drop(self.changed.wait_timeout_while(state, time, |state| !state.is_stopped));
    }

    /// Waits for a request, at most for this time. Returns false if the building of indexes ends.
    pub fn wait(&self, time: Duration) -> bool {
        let state = lock(&self.state);
        let is_idle = |state: &mut RequestState| !state.is_requested && !state.is_stopped;
        let waited = self.changed.wait_timeout_while(state, time, is_idle);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.is_requested = false;
        !state.is_stopped
    }
}

impl TableFiles {
    /// The requests to examine indexes.
    pub fn index_requests(&self) -> &IndexRequests {
        &self.index_requests
    }

    fn table_indexes(&self, table: TableId) -> PathBuf {
        self.index_directory.join(table.0.simple().to_string())
    }

    fn sstable_indexes(&self, table: TableId, sstable: &SSTableId) -> PathBuf {
        self.table_indexes(table).join(sstable.as_str())
    }

    /// Opens the index files that an SSTable has. Damaged files are left out, and rebuilt later.
    pub fn open_indexes(&self, table: &Table, sstable: &SSTableReader) -> SSTableIndexes {
        let keys = table.indexes().iter().filter_map(|index| table.index_key(index));
        keys.filter_map(|key| Some(SSTableIndex::own(key, self.open_index(table, sstable, key).ok()?))).collect()
    }

    fn open_index(
        &self,
        table: &Table,
        sstable: &SSTableReader,
        key: IndexKey,
    ) -> Result<Arc<WatchedFile>, SSTableError> {
        let path = self.sstable_indexes(table.id, &sstable.descriptor().id).join(file_name(key));
        WatchedFile::open(&*self.disk, &path, key, (&origin_of(sstable), sstable.number()), &self.cache)
    }

    /// Builds those `wanted` indexes of an SSTable of the view that have no sound files, unless another thread is doing
    /// so. Stops soon if `goes_on` returns false. Blocks on the disk.
    pub fn build_missing_indexes(
        &self,
        store: &TableStore,
        sstable: &Arc<SSTableReader>,
        wanted: impl Fn(IndexKey) -> bool,
        goes_on: impl FnMut() -> bool,
    ) -> Result<(), EngineError> {
        let Some(_permit) = store.indexes.permit_build(sstable) else { return Ok(()) };
        // This version of the table is not older than the SSTable's content.
        let table = &store.table.load_full();
        let is_missing = |key| wanted(key) && !store.indexes.has_own(sstable, key);
        let built = self.build_indexes(table, sstable, is_missing, goes_on);
        let added = built.map(|built| store.indexes.add(sstable, &built));
        if store.borrow_view().sstables.iter().any(|other| other.is_same(sstable)) {
            return added;
        }
        // A merge replaced the SSTable meanwhile, and may have deleted the files that were being written.
        self.forget_indexes(store, table, &[sstable.descriptor().clone()]);
        Ok(())
    }

    /// Builds the files of those indexes of an SSTable that are missing, with a scan, and opens them.
    fn build_indexes(
        &self,
        table: &Arc<Table>,
        sstable: &Arc<SSTableReader>,
        is_missing: impl Fn(IndexKey) -> bool,
        goes_on: impl FnMut() -> bool,
    ) -> Result<Vec<SSTableIndex>, EngineError> {
        let mut indexers = indexers_of(table);
        indexers.retain(|indexer| is_missing(indexer.key()));
        if indexers.is_empty() {
            return Ok(Vec::new());
        }
        let directory = self.sstable_indexes(table.id, &sstable.descriptor().id);
        self.make_index_directory(table.id, &directory)?;
        for indexer in &indexers {
            // An existing file is replaced.
            let _ = self.disk.remove_dir_all(&directory.join(file_name(indexer.key())));
        }
        let mut builder = IndexBuilder::create(&self.disk, &directory, &indexers, goes_on)?;
        let all = ReadRange::all_rows(KeyRange::all());
        let mut cursor = open_cursor(sstable, table, &all, ReadMode::Sequential)?;
        cursor.limit_large_rows(self.background_rows.clone());
        builder.scan(&mut cursor)?;
        builder.finish(&origin_of(sstable))?;
        self.disk.sync_dir(&directory)?;
        let open =
            |indexer: &Indexer| Ok(SSTableIndex::own(indexer.key(), self.open_index(table, sstable, indexer.key())?));
        indexers.iter().map(open).collect()
    }

    /// Creates the directory of an SSTable's index files. A file in the place of it, or of a directory above, is not
    /// ours and is deleted.
    fn make_index_directory(&self, table: TableId, directory: &Path) -> Result<(), EngineError> {
        if self.disk.create_dir_all(directory).is_ok() {
            return Ok(());
        }
        for path in [&self.index_directory, &self.table_indexes(table), directory] {
            // This fails for a directory.
            let _ = self.disk.remove_file(path);
        }
        Ok(self.disk.create_dir_all(directory)?)
    }

    /// Forgets the indexes of SSTables that left the view, deletes their files, and requests the indexes of new
    /// SSTables. Files that cannot be deleted are left to the next start.
    pub fn forget_indexes(&self, store: &TableStore, table: &Table, gone: &[Descriptor]) {
        if table.indexes().is_empty() {
            return;
        }
        store.indexes.forget(gone.iter().map(|sstable| &sstable.id));
        for sstable in gone {
            // There may be no files, and remaining ones do no harm.
            let _ = self.disk.remove_dir_all(&self.sstable_indexes(table.id, &sstable.id));
        }
        self.index_requests.request();
    }

    /// Deletes the index files of a table.
    pub fn remove_all_indexes(&self, table: TableId) -> Result<(), EngineError> {
        let directory = self.table_indexes(table);
        if self.disk.exists(&directory)? {
            self.disk.remove_dir_all(&directory)?;
        }
        Ok(())
    }

    /// Deletes the files of indexes that the table does not have, and those of SSTables that are not in the view.
    /// `sstables` returns those in the view, and is called after the directory is listed.
    pub fn clean_indexes(
        &self,
        table: &Table,
        sstables: impl FnOnce() -> Vec<Arc<SSTableReader>>,
    ) -> Result<(), EngineError> {
        let directory = self.table_indexes(table.id);
        if !self.disk.exists(&directory)? {
            return Ok(());
        }
        let names: Vec<String> =
            table.indexes().iter().filter_map(|index| table.index_key(index)).map(file_name).collect();
        let found = self.disk.list(&directory)?;
        let sstables = sstables();
        for found in found {
            let path = directory.join(&found.name);
            if !found.is_dir {
                self.disk.remove_file(&path)?;
                continue;
            }
            if !sstables.iter().any(|sstable| sstable.descriptor().id.as_str() == found.name) {
                self.disk.remove_dir_all(&path)?;
                continue;
            }
            let gone = self.disk.list(&path)?.into_iter().filter(|file| {
                // A file that is being written has another suffix.
                file.name.ends_with(".db") && !names.contains(&file.name)
            });
            gone.into_iter().try_for_each(|file| self.disk.remove_file(&path.join(file.name)))?;
        }
        Ok(())
    }
}

fn origin_of(sstable: &SSTableReader) -> Origin {
    Origin { sstable: sstable.descriptor().id.clone(), data_bytes: sstable.data_length_bytes() }
}
