//! SSTables from elsewhere: verified to the last row, copied, and put beside the table's own.

use std::path::Path;
use std::sync::Arc;

use model::Table;
use sstable::{CommitLogPosition, Descriptor, PreparedSSTable, adopt_table, list_foreign_tables};

use crate::engine::Engine;
use crate::error::EngineError;
use crate::store::{TableStore, lock};

impl Engine {
    /// Takes over copies of all SSTables of a directory, ours or Cassandra's (those of the format `big` are written again as BTI),
    /// and returns how many there are. Reads find them when this returns, and every later start. The directory stays as it is.
    /// Blocks on the disk.
    ///
    /// One that is damaged or does not fit the table is an error, and nothing is taken over; nor is part of them after a crash.
    pub fn import(&self, table: &Table, directory: &Path) -> Result<usize, EngineError> {
        let store = self.store(table)?;
        store.check_files()?;
        if directory == store.directory {
            let what = format!("{}: what is in a table's own directory is not imported", directory.display());
            return Err(EngineError::Unsupported(format!("{what}: put the SSTables into one of their own")));
        }
        self.refuse_transactions(directory)?;
        let table = store.table.load_full();
        let disk = &self.options().disk;
        let sources = list_foreign_tables(&**disk, directory)?;
        disk.create_dir_all(&store.directory)?;
        let mut copies = Vec::with_capacity(sources.len());
        for source in &sources {
            let target = Descriptor::new(&store.directory, self.files().new_id());
            copies.extend(adopt_table(disk, source, &table, &target).map_err(|error| error.of_table(&table))?);
        }
        self.take_over(&store, copies)?;
        self.request_compaction(&store);
        Ok(sources.len())
    }

    /// Makes the copies the table's own, all or none, before or after a truncation, never while one is under way.
    fn take_over(&self, store: &Arc<TableStore>, mut copies: Vec<PreparedSSTable>) -> Result<(), EngineError> {
        let _no_truncation = lock(&store.flushing);
        if store.is_dropped() {
            return Err(EngineError::UnknownTable(store.table.load().name.to_string()));
        }
        let position = self.log().position();
        let position = CommitLogPosition { segment: position.segment, offset: position.offset };
        copies.iter_mut().try_for_each(|copy| copy.belong_to(self.host_id(), position))?;
        let table = store.table.load_full();
        let _no_load = lock(&store.settling);
        let resident = store.resident();
        let opened = self.files().replace(store, &table, &[], copies)?;
        resident.iter().for_each(|resident| self.load_imported(&table, resident, &opened));
        Ok(())
    }
}
