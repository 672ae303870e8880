//! Writing a data directory for a Cassandra node.

use std::path::Path;

use model::Table;
use sstable::{Descriptor, export_table};

use super::Transfers;
use crate::error::EngineError;
use crate::quarantine::Quarantine;
use crate::system::is_system_keyspace;

impl Transfers {
    /// See [`crate::Engine::export`].
    pub fn export(&self, data: &Path) -> Result<usize, EngineError> {
        self.shared.check_writable()?;
        let unfinished = data.with_extension("unfinished");
        let disk = &self.shared.options().disk;
        let schema = self.shared.schema();
        if let Some((keyspace, name, _)) = schema.all_unreadable().next() {
            return Quarantine::unreadable_table(&schema, keyspace, name).map_or(Ok(0), Err);
        }
        if disk.exists(&unfinished)? {
            disk.remove_dir_all(&unfinished)?;
        }
        let users = schema.keyspaces.values().filter(|keyspace| !is_system_keyspace(&keyspace.name));
        // `system_schema` comes last, so that it has every column of the other tables' rows.
        let keyspaces = users.chain(schema.keyspace("system_schema"));
        let mut exported = 0;
        for keyspace in keyspaces {
            for table in keyspace.tables.values() {
                let name = format!("{}-{}", table.name, table.id.0.simple());
                exported += self.export_rows(table, &unfinished.join(&*keyspace.name).join(name))?;
            }
        }
        disk.rename(&unfinished, data)?;
        data.parent().map_or(Ok(()), |parent| disk.sync_dir(parent))?;
        Ok(exported)
    }

    /// Copies a table's SSTables to a directory. The copies are made from links, so flushes and compactions do not have
    /// to wait.
    fn export_rows(&self, table: &Table, target: &Path) -> Result<usize, EngineError> {
        let disk = &self.shared.options().disk;
        disk.create_dir_all(target)?;
        let links = self.link_for_export(table)?;
        let copied = self.copy_tables(&links, target);
        disk.remove_dir_all(&links)?;
        copied
    }

    fn copy_tables(&self, source: &Path, target: &Path) -> Result<usize, EngineError> {
        let disk = &self.shared.options().disk;
        let tables = sstable::list_tables(&**disk, source)?;
        for table in &tables {
            export_table(disk, table, &Descriptor::new(target, table.id.clone()))?.commit()?;
        }
        Ok(tables.len())
    }
}
