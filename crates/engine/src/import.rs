//! SSTables from elsewhere: verified to the last row, copied, and put beside the table's own.

use std::path::Path;
use std::sync::Arc;

use model::Table;
use sstable::{
    CommitLogPosition, Descriptor, SSTableReader, TableCopy, check_key_types, list_big_tables, list_tables, verify,
};

use crate::engine::Engine;
use crate::error::EngineError;
use crate::store::{TableStore, lock};

impl Engine {
    /// Takes over copies of all SSTables of a directory, ours or Cassandra's, and returns how many. Reads find them when
    /// this returns, and every later start. The directory stays as it is. Blocks on the disk.
    ///
    /// One that is damaged, does not fit the table, or is of the format `big` is an error, and nothing is taken over.
    pub fn import(&self, table: &Table, directory: &Path) -> Result<usize, EngineError> {
        let store = self.store(table)?;
        store.check_files()?;
        let table = store.table.load_full();
        let disk = &self.options().disk;
        let sources = list_tables(&**disk, directory)?;
        if let Some(big) = list_big_tables(&**disk, directory)?.first() {
            let text =
                format!("{big} is of the format big: `espalier upgrade-from` takes it, or write it again as BTI first");
            return Err(EngineError::Unsupported(text));
        }
        for source in &sources {
            let checked = check_key_types(&**disk, source, &table);
            checked.and_then(|()| verify(&**disk, source, &table, true)).map_err(|error| error.of_table(&table))?;
        }
        disk.create_dir_all(&store.directory)?;
        let copies = sources
            .iter()
            .map(|source| TableCopy::new(disk, source, &Descriptor::new(&store.directory, self.files().new_id())))
            .collect::<Result<Vec<_>, _>>()?;
        self.take_over(&store, copies)?;
        self.request_compaction(&store);
        Ok(sources.len())
    }

    /// Makes the copies the table's own, before or after a truncation, never while one is under way.
    fn take_over(&self, store: &Arc<TableStore>, copies: Vec<TableCopy>) -> Result<(), EngineError> {
        let _no_truncation = lock(&store.flushing);
        if store.is_dropped() {
            return Err(EngineError::UnknownTable(store.table.load().name.to_string()));
        }
        let position = self.log().position();
        let position = CommitLogPosition { segment: position.segment, offset: position.offset };
        let table = store.table.load_full();
        let mut opened: Vec<Arc<SSTableReader>> = Vec::with_capacity(copies.len());
        let taken = copies.into_iter().try_for_each(|copy| -> Result<(), EngineError> {
            let descriptor = copy.finish(self.host_id(), position)?;
            opened.push(self.files().open(&descriptor, &table)?);
            Ok(())
        });
        if taken.is_err() {
            // What is complete already would be there at the next start.
            let removed: Result<(), EngineError> =
                opened.iter().try_for_each(|sstable| self.files().remove(sstable.descriptor()));
            if removed.is_err() {
                store.distrust_files();
            }
            return taken;
        }
        let _no_load = lock(&store.settling);
        let resident = store.resident();
        let _no_snapshot = lock(&store.files);
        store.replace_sstables(&[], opened.clone());
        resident.iter().for_each(|resident| self.load_imported(&table, resident, &opened));
        Ok(())
    }
}
