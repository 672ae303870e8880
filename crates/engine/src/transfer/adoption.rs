//! Taking over the data directories of a Cassandra node.
//!
//! The schema is adopted last, by one record of the log: until then the written files belong to no table, and a further
//! attempt first removes them. The node gets either all tables of the other node, or none. Roles are written before the
//! schema, and are deleted again if its adoption fails.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use model::{BoxCursor, Keyspace, MergeCursor, Table};
use sstable::{
    BlockCache, CommitLogPosition, Descriptor, SSTableReader, adopt_table, list_foreign_tables, open_big,
    remove_all_tables,
};

use super::Transfers;
use crate::error::EngineError;
use crate::schema::check_options;
use crate::schema_rows::{self, SchemaRows};
use crate::system::{SystemRow, is_system_keyspace, read_rows};

/// Memory for a foreign schema's index pages.
const CACHE_BYTES: u64 = 4 << 20;

/// Unsupported objects of a schema: the table of `system_schema`, and the column with the name.
const NOT_ADOPTED: [(&str, &str); 5] = [
    ("indexes", "index_name"),
    ("views", "view_name"),
    ("functions", "function_name"),
    ("aggregates", "aggregate_name"),
    ("triggers", "trigger_name"),
];

/// A table that was taken over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdoptedTable {
    /// The keyspace.
    pub keyspace: String,
    /// The table.
    pub name: String,
    /// The number of its SSTables.
    pub sstables: usize,
}

impl Transfers {
    /// See [`crate::Engine::adopt`].
    pub fn adopt(&self, sources: &[PathBuf]) -> Result<Vec<AdoptedTable>, EngineError> {
        self.shared.check_writable()?;
        let keyspaces = self.foreign_schema(sources)?;
        let schema = self.shared.schema();
        if let Some(keyspace) = keyspaces.iter().find(|keyspace| schema.keyspace(&keyspace.name).is_some()) {
            return Err(EngineError::Unsupported(format!("keyspace {} is there already", keyspace.name)));
        }
        let tables: Vec<_> = keyspaces.iter().flat_map(|keyspace| keyspace.tables.values().cloned()).collect();
        tables.iter().try_for_each(|table| check_options(table))?;
        let adopted = tables.iter().map(|table| self.adopt_files(table, sources)).collect::<Result<Vec<_>, _>>();
        let mut roles = Vec::new();
        let adopted = adopted.and_then(|adopted| {
            self.adopt_roles(sources, &mut roles)?;
            self.adopt_schema(keyspaces).map(|()| adopted)
        });
        if adopted.is_err() {
            // Best effort: a log that cannot be written takes no deletion either. Roles that stay are those that the
            // next attempt would write.
            let _ = self.remove_roles(&roles);
            // Without the schema the files belong to no table, and the next attempt first removes them.
            for table in tables.iter().filter(|table| self.shared.store(table).is_err()) {
                let _ = self.remove_adopted(table);
            }
        }
        adopted
    }

    fn adopt_schema(&self, keyspaces: Vec<Keyspace>) -> Result<(), EngineError> {
        let add = |_: &_, schema: &mut crate::schema::change::Keyspaces| -> Result<(), EngineError> {
            schema.extend(keyspaces.into_iter().map(|keyspace| (keyspace.name.clone(), Arc::new(keyspace))));
            Ok(())
        };
        self.tables.change(add).map(|_| ())
    }

    fn remove_adopted(&self, table: &Table) -> Result<(), EngineError> {
        let (disk, directory) =
            (&*self.shared.options().disk, self.shared.directory_of(&table.keyspace, &table.name, table.id));
        if disk.exists(&directory)? {
            remove_all_tables(disk, &directory)?;
        }
        Ok(())
    }

    /// Writes the SSTables of a table, which is not in the schema yet, into its directory.
    fn adopt_files(&self, table: &Arc<Table>, sources: &[PathBuf]) -> Result<AdoptedTable, EngineError> {
        self.remove_adopted(table)?;
        let disk = &self.shared.options().disk;
        let target = self.shared.directory_of(&table.keyspace, &table.name, table.id);
        let (host_id, position) = (self.shared.host_id(), self.shared.log().position());
        let position = CommitLogPosition { segment: position.segment, offset: position.offset };
        let mut sstables = 0;
        for directory in self.table_directories(sources, &table.keyspace, &table.name)? {
            if !directory.to_string_lossy().ends_with(&table.id.0.simple().to_string()) {
                // The directory is of a dropped table with the same name.
                continue;
            }
            self.refuse_transactions(&directory)?;
            for source in list_foreign_tables(&**disk, &directory)? {
                disk.create_dir_all(&target)?;
                let target = Descriptor::new(&target, self.shared.files().new_id());
                let adopted = adopt_table(disk, &source, table, &target).map_err(|error| error.of_table(table))?;
                if let Some(mut adopted) = adopted {
                    adopted.belong_to(host_id, position)?;
                    adopted.commit()?;
                }
                sstables += 1;
            }
        }
        Ok(AdoptedTable { keyspace: table.keyspace.to_string(), name: table.name.to_string(), sstables })
    }

    /// Fails if a flush or compaction of Cassandra was interrupted: only Cassandra can tell which of its files count.
    pub(super) fn refuse_transactions(&self, directory: &Path) -> Result<(), EngineError> {
        let entries = self.shared.options().disk.list(directory)?;
        match entries.iter().find(|entry| entry.name.contains("_txn_") && entry.name.ends_with(".log")) {
            None => Ok(()),
            Some(entry) => Err(EngineError::Unsupported(format!(
                "{} is left of an operation that was cut short: start the Cassandra node, run `nodetool drain`, stop it, and try again",
                directory.join(&entry.name).display()
            ))),
        }
    }

    /// The directories of a table: `<keyspace>/<table>-<id>`.
    fn table_directories(&self, data: &[PathBuf], keyspace: &str, table: &str) -> Result<Vec<PathBuf>, EngineError> {
        let disk = &self.shared.options().disk;
        let of_table = |name: &str| name.rsplit_once('-').is_some_and(|(stem, id)| stem == table && id.len() == 32);
        let mut found = Vec::new();
        for directory in data.iter().map(|data| data.join(keyspace)) {
            if disk.exists(&directory)? {
                let entries = disk.list(&directory)?.into_iter();
                let entries = entries.filter(|entry| entry.is_dir && of_table(&entry.name));
                found.extend(entries.map(|entry| directory.join(entry.name)));
            }
        }
        Ok(found)
    }

    /// The user keyspaces of a Cassandra node.
    fn foreign_schema(&self, data: &[PathBuf]) -> Result<Vec<Keyspace>, EngineError> {
        for (table, column) in NOT_ADOPTED {
            let rows = self.foreign_rows(data, "system_schema", table)?;
            let is_refused = |row: &&SystemRow| {
                !is_system_keyspace(&row.text("keyspace_name")) && schema_rows::read_index(row).is_none()
            };
            if let Some(row) = rows.iter().find(is_refused) {
                let (keyspace, name) = (row.text("keyspace_name"), row.text(column));
                let what =
                    format!("{keyspace} has {name} in system_schema.{table}, which is not supported: drop it first");
                return Err(EngineError::Unsupported(what));
            }
        }
        let tables = self.foreign_rows(data, "system_schema", schema_rows::TABLES)?;
        for row in tables.iter().filter(|row| !is_system_keyspace(&row.text("keyspace_name"))) {
            let flags = row.texts("flags");
            if flags.iter().any(|flag| flag == "super") {
                let (keyspace, table) = (row.text("keyspace_name"), row.text("table_name"));
                let what =
                    format!("table {keyspace}.{table} has super columns, which are not supported: drop it first");
                return Err(EngineError::Unsupported(what));
            }
        }
        let rows = SchemaRows {
            keyspaces: {
                let mut keyspaces = self.foreign_rows(data, "system_schema", schema_rows::KEYSPACES)?;
                keyspaces.retain(|row| !is_system_keyspace(&row.text("keyspace_name")));
                keyspaces
            },
            tables,
            columns: self.foreign_rows(data, "system_schema", schema_rows::COLUMNS)?,
            dropped_columns: self.foreign_rows(data, "system_schema", schema_rows::DROPPED_COLUMNS)?,
            column_masks: self.foreign_rows(data, "system_schema", schema_rows::COLUMN_MASKS)?,
            types: self.foreign_rows(data, "system_schema", schema_rows::TYPES)?,
            indexes: self.foreign_rows(data, "system_schema", schema_rows::INDEXES)?,
            layouts: Vec::new(),
            is_foreign: true,
        };
        schema_rows::load(&rows).map_err(|damage| EngineError::Startup(damage.to_string()))
    }

    pub(super) fn foreign_rows(
        &self,
        data: &[PathBuf],
        keyspace: &str,
        name: &str,
    ) -> Result<Vec<SystemRow>, EngineError> {
        let schema = self.shared.schema();
        let table = schema.table(keyspace, name).expect("system tables are part of every schema");
        let disk = &self.shared.options().disk;
        let cache = BlockCache::new(CACHE_BYTES);
        let mut sources: Vec<BoxCursor<'static>> = Vec::new();
        for directory in self.table_directories(data, keyspace, name)? {
            self.refuse_transactions(&directory)?;
            for descriptor in list_foreign_tables(&**disk, &directory)? {
                let sstable = match descriptor.is_big() {
                    true => open_big(&**disk, &descriptor, table)?,
                    false => SSTableReader::open(&**disk, &descriptor, table, &cache)?,
                };
                sources.push(Box::new(sstable.scan()?));
            }
        }
        let merged = MergeCursor::new(table, false, sources);
        Ok(read_rows(Box::new(merged), self.shared.now_seconds())?)
    }
}
