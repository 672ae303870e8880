//! Taking over the data directory of a Cassandra node, and writing one.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use model::{BoxCursor, Keyspace, MergeCursor, Schema, Table};
use sstable::{
    BlockCache, CommitLogPosition, Descriptor, SSTableReader, TableCopy, check_key_types, list_big_tables, list_tables,
    open_big, rewrite_big,
};

use crate::engine::Engine;
use crate::error::EngineError;
use crate::schema_rows::{self, SchemaRows};
use crate::store::lock;
use crate::system::{SystemRow, is_system_keyspace, read_rows};

/// Memory for a foreign schema's index pages.
const CACHE_BYTES: u64 = 4 << 20;

/// What a schema may have that we do not: the table of `system_schema`, and the column with the name.
const NOT_ADOPTED: [(&str, &str); 5] = [
    ("indexes", "index_name"),
    ("views", "view_name"),
    ("functions", "function_name"),
    ("aggregates", "aggregate_name"),
    ("triggers", "trigger_name"),
];

/// The directories of a table in a data directory: `<keyspace>/<table>-<id>`, without or with dashes in the id.
fn table_directories(engine: &Engine, data: &Path, keyspace: &str, table: &str) -> Result<Vec<PathBuf>, EngineError> {
    let disk = &engine.options().disk;
    let directory = data.join(keyspace);
    if !disk.exists(&directory)? {
        return Ok(Vec::new());
    }
    let of_table = |name: &str| name.rsplit_once('-').is_some_and(|(stem, id)| stem == table && id.len() == 32);
    let entries = disk.list(&directory)?.into_iter().filter(|entry| entry.is_dir && of_table(&entry.name));
    Ok(entries.map(|entry| directory.join(entry.name)).collect())
}

impl Engine {
    /// The user keyspaces of the stopped Cassandra node whose data directory (with its `system_schema`) this is.
    ///
    /// Fails where it has something that we do not: an index, a view, a function, a trigger, compact storage.
    pub fn foreign_schema(&self, data: &Path) -> Result<Vec<Keyspace>, EngineError> {
        for (table, column) in NOT_ADOPTED {
            let rows = self.foreign_rows(data, table)?;
            if let Some(row) = rows.iter().find(|row| !is_system_keyspace(&row.text("keyspace_name"))) {
                let (keyspace, name) = (row.text("keyspace_name"), row.text(column));
                let what =
                    format!("{keyspace} has {name} in system_schema.{table}, which is not supported: drop it first");
                return Err(EngineError::Unsupported(what));
            }
        }
        let tables = self.foreign_rows(data, schema_rows::TABLES)?;
        for row in tables.iter().filter(|row| !is_system_keyspace(&row.text("keyspace_name"))) {
            let flags = row.texts("flags");
            if !flags.iter().any(|flag| flag == "compound")
                || flags.iter().any(|flag| flag == "dense" || flag == "super")
            {
                let (keyspace, table) = (row.text("keyspace_name"), row.text("table_name"));
                let what =
                    format!("table {keyspace}.{table} has COMPACT STORAGE, which is not supported: drop it first");
                return Err(EngineError::Unsupported(what));
            }
        }
        let rows = SchemaRows {
            keyspaces: {
                let mut keyspaces = self.foreign_rows(data, schema_rows::KEYSPACES)?;
                keyspaces.retain(|row| !is_system_keyspace(&row.text("keyspace_name")));
                keyspaces
            },
            tables,
            columns: self.foreign_rows(data, schema_rows::COLUMNS)?,
            dropped_columns: self.foreign_rows(data, schema_rows::DROPPED_COLUMNS)?,
            types: self.foreign_rows(data, schema_rows::TYPES)?,
            layouts: Vec::new(),
            is_foreign: true,
        };
        schema_rows::load(&rows).map_err(|damage| EngineError::Startup(damage.to_string()))
    }

    fn foreign_rows(&self, data: &Path, name: &str) -> Result<Vec<SystemRow>, EngineError> {
        let schema = self.schema();
        let table = schema.table("system_schema", name).expect("system tables are part of every schema");
        let disk = &self.options().disk;
        let cache = BlockCache::new(CACHE_BYTES);
        let mut sources: Vec<BoxCursor<'static>> = Vec::new();
        for directory in table_directories(self, data, "system_schema", name)? {
            for descriptor in list_tables(&**disk, &directory)? {
                sources.push(Box::new(SSTableReader::open(&**disk, &descriptor, table, &cache)?.scan()?));
            }
            for descriptor in list_big_tables(&**disk, &directory)? {
                sources.push(Box::new(open_big(&**disk, &descriptor, table)?.scan()?));
            }
        }
        let merged = MergeCursor::new(table.clone(), false, sources);
        Ok(read_rows(Box::new(merged), self.now_seconds())?)
    }

    /// Creates keyspaces with the ids of their tables. One that is there already is an error.
    pub fn adopt_schema(&self, keyspaces: Vec<Keyspace>) -> Result<Arc<Schema>, EngineError> {
        let (_, schema) = self.change_schema(|old, new| -> Result<(), EngineError> {
            for keyspace in keyspaces {
                if old.keyspace(&keyspace.name).is_some() {
                    return Err(EngineError::Unsupported(format!("keyspace {} is there already", keyspace.name)));
                }
                new.insert(keyspace.name.clone(), Arc::new(keyspace));
            }
            Ok(())
        })?;
        Ok(schema)
    }

    /// Takes over the SSTables that a table has in a Cassandra node's data directory, and returns how many: BTI ones as they
    /// are, `big` ones written again. The directory stays as it is.
    pub fn adopt_table(&self, table: &Arc<Table>, data: &Path) -> Result<usize, EngineError> {
        let mut adopted = 0;
        for directory in table_directories(self, data, &table.keyspace, &table.name)? {
            if !directory.to_string_lossy().ends_with(&table.id.0.simple().to_string()) {
                // Of a table that was dropped and made anew.
                continue;
            }
            adopted += self.import(table, &directory)?;
            adopted += self.rewrite_all_big(table, &directory)?;
        }
        Ok(adopted)
    }

    fn rewrite_all_big(&self, table: &Arc<Table>, directory: &Path) -> Result<usize, EngineError> {
        let disk = &self.options().disk;
        let sources = list_big_tables(&**disk, directory)?;
        if sources.is_empty() {
            return Ok(0);
        }
        let store = self.store(table)?;
        disk.create_dir_all(&store.directory)?;
        let _no_truncation = lock(&store.flushing);
        let position = self.log().position();
        let position = CommitLogPosition { segment: position.segment, offset: position.offset };
        for source in &sources {
            check_key_types(&**disk, source, table)?;
            let target = Descriptor::new(&store.directory, self.files().new_id());
            if let Some(written) = rewrite_big(disk, source, table, &target, self.host_id(), position)? {
                let opened = self.files().open(&written, table)?;
                let _no_snapshot = lock(&store.files);
                store.replace_sstables(&[], vec![opened]);
            }
        }
        Ok(sources.len())
    }

    /// Writes a data directory that Cassandra 5.0 starts from: the user's tables and `system_schema`, everything flushed
    /// first. Returns how many SSTables it has. Blocks on the disk.
    pub fn export(&self, data: &Path) -> Result<usize, EngineError> {
        self.flush_all()?;
        let disk = &self.options().disk;
        let schema = self.schema();
        let mut exported = 0;
        let wanted = |name: &str| name == "system_schema" || !is_system_keyspace(name);
        for keyspace in schema.keyspaces.values().filter(|keyspace| wanted(&keyspace.name)) {
            for table in keyspace.tables.values() {
                let store = self.store(table)?;
                let name = format!("{}-{}", table.name, table.id.0.simple());
                let directory = data.join(&*keyspace.name).join(name);
                disk.create_dir_all(&directory)?;
                let _no_deletion = lock(&store.files);
                store.check_files()?;
                for sstable in &store.view().sstables {
                    let source = sstable.descriptor();
                    let target = Descriptor::new(&directory, source.id.clone());
                    TableCopy::new(disk, source, &target)?.finish_for_cassandra()?;
                    exported += 1;
                }
            }
        }
        Ok(exported)
    }
}
