//! Tables of the node itself that nothing works without: those of the schema, and the row of the node.
//!
//! They cannot be quarantined. If one is damaged, a start is refused with the place of the damage and what can be done
//! about it. A start to read only serves what is left: it reads every SSTable of such a table, and puts the sound rows
//! of a damaged one in its place, in memory only.

use std::sync::Arc;

use model::{Table, UnfilteredCursor};
use sstable::{Descriptor, SSTableReader, list_tables, missing_tocs, salvage};

use crate::disk_failure::DiskFailureKind;
use crate::engine::Engine;
use crate::error::EngineError;
use crate::schema::schema_rows::LAYOUTS;
use crate::table::TableStore;

/// Whether a start needs the rows of the table.
pub(crate) fn is_indispensable(table: &Table) -> bool {
    match &*table.keyspace {
        "system_schema" => true,
        "system" => [LAYOUTS, "local"].contains(&&*table.name),
        _ => false,
    }
}

/// The error of a start that cannot read what it needs.
pub(crate) fn refusal(error: EngineError) -> EngineError {
    if DiskFailureKind::of(&error).is_none() {
        return error;
    }
    EngineError::Startup(format!(
        "{error}; the node does not start without it. `espalier serve --read-only` serves what can be read. \
         To go on, put the file back as it was, or replace its SSTable by what \
         `espalier sstable salvage --to DIRECTORY FILE` saves of it: tables whose rows of the schema are lost are \
         quarantined then"
    ))
}

impl Engine {
    /// Opens the SSTables of an indispensable table.
    pub(crate) fn open_indispensable(&self, table: &Arc<Table>) -> Result<Arc<TableStore>, EngineError> {
        if !self.options().read_only {
            return self.open_files(table);
        }
        let (disk, directory) = (&*self.options().disk, self.table_directory(table));
        let mut sstables = Vec::new();
        if disk.exists(&directory)? {
            for damage in missing_tocs(disk, &directory)? {
                self.note_fault(format!("left out: {}", damage.of_table(table)));
            }
            let found = list_tables(disk, &directory)?;
            sstables.extend(found.iter().rev().filter_map(|descriptor| self.open_sound(descriptor, table)));
        }
        Ok(self.new_store(table, sstables))
    }

    /// The SSTable, or what is sound of it; `None` if that is nothing.
    fn open_sound(&self, descriptor: &Descriptor, table: &Arc<Table>) -> Option<Arc<SSTableReader>> {
        let opened = self.files().open(descriptor, table).and_then(|sstable| {
            read_through(&sstable)?;
            Ok(sstable)
        });
        let error = match opened {
            Ok(sstable) => return Some(sstable),
            Err(error) => error,
        };
        let saved = self.save_sound(descriptor, table);
        let what = if saved.is_some() { "only the sound rows are served" } else { "left out" };
        self.note_fault(format!("{what}: {error}"));
        saved
    }

    fn save_sound(&self, descriptor: &Descriptor, table: &Arc<Table>) -> Option<Arc<SSTableReader>> {
        let target = Descriptor::new(&descriptor.dir, self.files().new_id());
        let salvaged = salvage(&self.options().disk, descriptor, table, &target).ok()?;
        self.files().open(&salvaged.table?, table).ok()
    }
}

fn read_through(sstable: &SSTableReader) -> Result<(), EngineError> {
    let mut cursor = sstable.scan()?;
    while cursor.advance_partition()? {
        while cursor.advance()? {}
    }
    Ok(())
}
