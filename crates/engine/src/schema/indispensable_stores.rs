//! Opening the [indispensable](crate::quarantine::is_indispensable) tables.
//!
//! A read-only start serves what is left of them: it reads every SSTable of such a table and, if one is damaged, serves
//! its sound rows from a copy in memory.

use std::sync::Arc;

use model::{Table, UnfilteredCursor};
use sstable::{Descriptor, SSTableReader, list_tables, missing_tocs, salvage};

use super::Tables;
use crate::error::EngineError;
use crate::table::TableStore;

impl Tables {
    /// Opens the SSTables of an indispensable table.
    pub(super) fn open_indispensable(&self, table: &Arc<Table>) -> Result<Arc<TableStore>, EngineError> {
        if !self.shared.options().read_only {
            return self.open_files(table);
        }
        let (disk, directory) = (&*self.shared.options().disk, self.table_directory(table));
        let mut sstables = Vec::new();
        if disk.exists(&directory)? {
            for damage in missing_tocs(disk, &directory)? {
                self.shared.note_fault(format!("left out: {}", damage.of_table(table)));
            }
            let found = list_tables(disk, &directory)?;
            sstables.extend(found.iter().rev().filter_map(|descriptor| self.open_sound(descriptor, table)));
        }
        Ok(self.new_store(table, sstables))
    }

    /// The SSTable, or a copy of its sound rows; `None` if there are none.
    fn open_sound(&self, descriptor: &Descriptor, table: &Arc<Table>) -> Option<Arc<SSTableReader>> {
        let opened = self.shared.files().open(descriptor, table).and_then(|sstable| {
            read_through(&sstable)?;
            Ok(sstable)
        });
        let error = match opened {
            Ok(sstable) => return Some(sstable),
            Err(error) => error,
        };
        let saved = self.save_sound(descriptor, table);
        let what = if saved.is_some() { "only the sound rows are served" } else { "left out" };
        self.shared.note_fault(format!("{what}: {error}"));
        saved
    }

    fn save_sound(&self, descriptor: &Descriptor, table: &Arc<Table>) -> Option<Arc<SSTableReader>> {
        let target = Descriptor::new(&descriptor.dir, self.shared.files().new_id());
        let salvaged = salvage(&self.shared.options().disk, descriptor, table, &target).ok()?;
        self.shared.files().open(&salvaged.table?, table).ok()
    }
}

fn read_through(sstable: &SSTableReader) -> Result<(), EngineError> {
    let mut cursor = sstable.scan()?;
    while cursor.advance_partition()? {
        while cursor.advance()? {}
    }
    Ok(())
}
