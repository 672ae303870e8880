//! Import of SSTables from elsewhere: they are verified to the last row, copied, and added to the table's own.

use std::path::Path;
use std::sync::Arc;

use model::Table;
use sstable::{CommitLogPosition, Descriptor, PreparedSSTable, adopt_table, list_foreign_tables};

use super::Transfers;
use crate::error::EngineError;
use crate::files::unread;
use crate::lock::lock;
use crate::table::TableStore;

impl Transfers {
    /// See [`crate::Engine::import`].
    pub fn import(&self, table: &Table, directory: &Path) -> Result<usize, EngineError> {
        self.shared.check_writable()?;
        let store = self.shared.store(table)?;
        store.check_files()?;
        if directory == store.directory {
            let what = format!("{}: what is in a table's own directory is not imported", directory.display());
            return Err(EngineError::Unsupported(format!("{what}: `espalier refresh` takes it over")));
        }
        self.refuse_transactions(directory)?;
        let sources = list_foreign_tables(&*self.shared.options().disk, directory)?;
        let copies = self.copy_verified(&store, &sources)?;
        self.take_over(&store, copies, &[])?;
        self.compaction.request(&store);
        Ok(sources.len())
    }

    /// See [`crate::Engine::refresh`].
    pub fn refresh(&self, table: &Table) -> Result<usize, EngineError> {
        self.shared.check_writable()?;
        let store = self.shared.store(table)?;
        let _one_at_a_time = lock(&store.compacting_all);
        store.check_files()?;
        if !self.shared.options().disk.exists(&store.directory)? {
            return Ok(0);
        }
        self.refuse_transactions(&store.directory)?;
        let sources = self.foreign_sstables(&store)?;
        let copies = self.copy_verified(&store, &sources)?;
        self.take_over(&store, copies, &sources)?;
        self.compaction.request(&store);
        Ok(sources.len())
    }

    /// The SSTables of a table's directory that are not in its view.
    fn foreign_sstables(&self, store: &TableStore) -> Result<Vec<Descriptor>, EngineError> {
        // The output of a flush or a merge is not in the view at once.
        let (_no_flush, _no_replacement) = (lock(&store.flushing), lock(&store.files));
        let mut found = list_foreign_tables(&*self.shared.options().disk, &store.directory)?;
        let view = store.view();
        found.retain(|found| !view.sstables.iter().any(|own| own.descriptor() == found));
        found.iter().find(|found| found.is_big()).map_or(Ok(()), |big| Err(unread(big)))?;
        Ok(found)
    }

    fn copy_verified(&self, store: &TableStore, sources: &[Descriptor]) -> Result<Vec<PreparedSSTable>, EngineError> {
        let (table, disk) = (store.table.load_full(), &self.shared.options().disk);
        disk.create_dir_all(&store.directory)?;
        let mut copies = Vec::with_capacity(sources.len());
        for source in sources {
            let target = Descriptor::new(&store.directory, self.shared.files().new_id());
            copies.extend(adopt_table(disk, source, &table, &target).map_err(|error| error.of_table(&table))?);
        }
        Ok(copies)
    }

    /// Makes the copies the table's own, all or none, and replaces `sources` if these are in the table's directory.
    /// This happens before or after a truncation, never during one.
    fn take_over(
        &self,
        store: &Arc<TableStore>,
        mut copies: Vec<PreparedSSTable>,
        sources: &[Descriptor],
    ) -> Result<(), EngineError> {
        let _no_truncation = lock(&store.flushing);
        if !store.is_served() {
            return Err(EngineError::UnknownTable(store.table.load().name.to_string()));
        }
        let position = self.shared.log().position();
        let position = CommitLogPosition { segment: position.segment, offset: position.offset };
        copies.iter_mut().try_for_each(|copy| copy.belong_to(self.shared.host_id(), position))?;
        let table = store.table.load_full();
        let _no_load = lock(&store.settling);
        let resident = store.resident();
        let publish = |opened| store.replace_sstables(&[], opened);
        let opened = self.shared.files().replace_and(store, &table, sources, copies, Vec::new(), publish)?;
        resident.iter().for_each(|resident| self.residents.load_imported(&table, resident, &opened));
        Ok(())
    }
}
