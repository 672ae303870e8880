//! The engine of mode `storage`: one for all tables of a JVM.
//!
//! Each table of Cassandra's has an engine keyspace of its own, so that its user types are its own too. The name of the
//! keyspace has Cassandra's id of the table and a generation: `t<id>_<generation>`. TRUNCATE begins the next
//! generation. The one before it is removed when Cassandra has its rows in SSTables, or does not want them, and before
//! the statement is answered. So if a start finds several generations, a TRUNCATE has not been answered or has failed.
//! The table has the rows of all of them then, as Cassandra's own table has.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use blockio::SystemDisk;
use commitlog::SyncMode;
use engine::{Engine, EngineError, EngineOptions, HostRows, Keyspaces};
use model::{Keyspace, Schema, Table, TableId};
use types::{CqlType, UserType};
use uuid::Uuid;

use crate::request::Request;
use crate::table::{EngineTableId, id_and_name, stored_table_of};

/// Which generation of a table is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Choice {
    /// The one that exists, or the first one if there is none. If several exist, they become one.
    ExistingOrFirst,
    /// The one after the newest.
    Next,
    /// The one that exists, if there is any. If several exist, they become one.
    Existing,
}

/// The snapshot by which the rows of a generation get into another one.
const MERGED: &str = "merged";

/// The engine, and the tables of Cassandra's that it keeps.
pub struct Store {
    engine: Arc<Engine>,
    rows_of_cassandra: Arc<RowsOfCassandra>,
}

/// The least timestamps of the rows that Cassandra has beside the engine's, by the engine's tables. Such rows are in
/// SSTables and memtables from before a table moved into the engine, and in SSTables that an operator imported. A table
/// without an entry may have rows of any time.
#[derive(Default, Debug)]
struct RowsOfCassandra(Mutex<HashMap<TableId, i64>>);

impl RowsOfCassandra {
    fn entries(&self) -> MutexGuard<'_, HashMap<TableId, i64>> {
        // A number is written whole, so a panic elsewhere leaves nothing half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HostRows for RowsOfCassandra {
    fn oldest_timestamp(&self, table: TableId) -> i64 {
        self.entries().get(&table).copied().unwrap_or(i64::MIN)
    }
}

/// A table and the name of the keyspace in which the engine keeps it.
pub(crate) type StoredTable = (String, Arc<Table>);

fn prefix(id: TableId) -> String {
    format!("t{}_", id.0.simple())
}

fn generation_name(id: TableId, generation: u64) -> String {
    format!("{}{generation}", prefix(id))
}

/// The generations of a table, ascending.
fn generations(keyspaces: &Keyspaces, id: TableId) -> Vec<u64> {
    let prefix = prefix(id);
    let names = keyspaces.keys().filter_map(|name| name.strip_prefix(&*prefix));
    let mut generations: Vec<u64> = names.filter_map(|generation| generation.parse().ok()).collect();
    generations.sort_unstable();
    generations
}

/// The user types of a table's columns by name.
fn user_types(table: &Table) -> BTreeMap<Arc<str>, Arc<UserType>> {
    let found = RefCell::new(BTreeMap::new());
    for column in table.columns_in_select_order() {
        column.ty.any(&|ty| {
            if let CqlType::Udt { definition, .. } = ty {
                found.borrow_mut().insert(definition.name.clone(), definition.clone());
            }
            false
        });
    }
    found.into_inner()
}

/// A keyspace with this table only, and with the user types of its columns.
fn keyspace_of(name: &str, table: Table) -> Keyspace {
    let class = "org.apache.cassandra.locator.LocalStrategy".to_owned();
    let mut keyspace = Keyspace::new(name, BTreeMap::from([("class".to_owned(), class)]), true);
    keyspace.types = user_types(&table);
    keyspace.tables.insert(table.name.clone(), Arc::new(table));
    keyspace
}

fn sync_mode(name: &str, millis: u64) -> Result<SyncMode, String> {
    let time = Duration::from_millis(millis);
    match name {
        "batch" => Ok(SyncMode::Batch),
        "periodic" => Ok(SyncMode::Periodic { period: time }),
        "group" => Ok(SyncMode::Group { window: time }),
        _ => Err(format!("unknown commitlog_sync '{name}'")),
    }
}

impl Store {
    /// Opens the engine in a directory, which is created if it is missing, and replays its log.
    ///
    /// ```text
    /// request := text directory, text commitlog_sync, i64 its time in milliseconds, i64 memory for memtables in bytes,
    ///            i64 memory for pages of SSTables in bytes
    /// ```
    ///
    /// Fails if the directory is in use, its content is damaged, or the request is.
    pub fn open(request: &[u8]) -> Result<Store, String> {
        let mut request = Request::new(request);
        let invalid = |error: crate::request::RequestError| error.to_string();
        let directory = request.text("a directory").map_err(invalid)?.to_owned();
        let sync = request.text("commitlog_sync").map_err(invalid)?;
        let millis = request.i64("a time").map_err(invalid)?;
        let memory_bytes = request.i64("a size").map_err(invalid)?;
        let cache_bytes = request.i64("a size").map_err(invalid)?;
        request.end().map_err(invalid)?;
        let mut options = EngineOptions::new(Arc::new(SystemDisk::new()), &directory);
        options.commitlog.sync = sync_mode(sync, u64::try_from(millis).unwrap_or(0))?;
        options.memtable_space_bytes = u64::try_from(memory_bytes).unwrap_or(0).max(1 << 20);
        options.cache_bytes = u64::try_from(cache_bytes).unwrap_or(0);
        let rows_of_cassandra = Arc::new(RowsOfCassandra::default());
        options.host_rows = Some(rows_of_cassandra.clone());
        let engine = Engine::open(options).map_err(|error| format!("{directory}: {error}"))?;
        Ok(Store { engine, rows_of_cassandra })
    }

    /// The engine.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Flushes everything and closes the log; later writes are refused. What cannot be flushed within the time stays in
    /// the log.
    pub fn close(&self, time: Duration) -> Result<(), String> {
        self.engine.shutdown_within(time).map(|_| ()).map_err(|error| error.to_string())
    }

    /// Opens a generation of the table of a description, as the table is now. Several generations become one unless the
    /// opened one is the next; that reads and writes the rows of all but the oldest. `None` if there is none to open.
    pub(crate) fn table(&self, description: &[u8], choice: Choice) -> Result<Option<StoredTable>, String> {
        let (id, ..) = id_and_name(description).map_err(|error| error.to_string())?;
        let change = |old: &Schema, keyspaces: &mut Keyspaces| -> Result<Option<(String, TableId)>, ChangeError> {
            let known = generations(keyspaces, id);
            let (generation, kept) = match (choice, &known[..]) {
                (Choice::Existing, []) => return Ok(None),
                (Choice::Next, _) => (known.last().map_or(1, |newest| newest + 1), None),
                (_, []) => (1, None),
                // Newer ones only have what was written during a truncation, so they are the smaller ones to copy.
                (_, [oldest, ..]) => (*oldest, Some(oldest)),
            };
            let name = generation_name(id, generation);
            let kept = kept.map(|_| only_table(old, &name)).transpose()?;
            let stored =
                EngineTableId { keyspace: &name, id: kept.map_or_else(|| TableId(Uuid::new_v4()), |table| table.id) };
            let table = stored_table_of(description, stored, kept.map(Arc::as_ref))
                .map_err(|error| ChangeError(error.to_string()))?;
            let table_id = table.id;
            if kept.is_none_or(|kept| **kept != table) {
                keyspaces.insert(name.as_str().into(), Arc::new(keyspace_of(&name, table)));
            }
            Ok(Some((name, table_id)))
        };
        let (opened, schema) = self.engine.change_schema(change).map_err(|error| error.0)?;
        let Some((name, table_id)) = opened else { return Ok(None) };
        let table = schema.table_by_id(table_id).ok_or("a table that was opened exists")?;
        if choice != Choice::Next {
            self.merge_newer(id, &schema, table)
                .map_err(|error| format!("rows of an unfinished TRUNCATE could not be added to {name}: {error}"))?;
        }
        Ok(Some((name, table.clone())))
    }

    /// Adds the rows of a table's newer generations to the oldest one, and removes those. If that fails or the process
    /// ends before, they are there as before, and rows that were added already are added again.
    fn merge_newer(&self, id: TableId, schema: &Schema, oldest: &Table) -> Result<(), String> {
        let newer: Vec<String> =
            generations(&schema.keyspaces, id).into_iter().skip(1).map(|newer| generation_name(id, newer)).collect();
        for name in &newer {
            self.add_rows(name, only_table(schema, name).map_err(|error| error.0)?, oldest)
                .map_err(|error| format!("{name}: {error}"))?;
        }
        match newer[..] {
            [] => Ok(()),
            _ => self.change(|keyspaces| newer.iter().for_each(|name| drop(keyspaces.remove(name.as_str())))),
        }
    }

    /// Adds the rows of the only table of a keyspace to another table.
    fn add_rows(&self, keyspace: &str, from: &Table, to: &Table) -> Result<(), EngineError> {
        let keyspace = [keyspace.to_owned()];
        // A start that did not end may have left one.
        self.engine.clear_snapshots(&keyspace, Some(MERGED))?;
        let files = self.engine.snapshot(from, MERGED, "")?;
        self.engine.import(to, &files)?;
        // Otherwise its directory would outlive the keyspace.
        self.engine.clear_snapshots(&keyspace, Some(MERGED)).map(drop)
    }

    /// Changes a table that the engine keeps to a description. Returns the new version.
    pub(crate) fn alter(&self, name: &str, description: &[u8]) -> Result<Arc<Table>, String> {
        let change = |old: &Schema, keyspaces: &mut Keyspaces| -> Result<TableId, ChangeError> {
            let older = only_table(old, name)?;
            let stored = EngineTableId { keyspace: name, id: older.id };
            let table =
                stored_table_of(description, stored, Some(older)).map_err(|error| ChangeError(error.to_string()))?;
            if **older != table {
                keyspaces.insert(name.into(), Arc::new(keyspace_of(name, table)));
            }
            Ok(older.id)
        };
        let (id, schema) = self.engine.change_schema(change).map_err(|error| error.0)?;
        schema.table_by_id(id).cloned().ok_or_else(|| "a table that was altered exists".to_owned())
    }

    /// Notes the least timestamp of the rows that Cassandra has of a table itself, microseconds; `i64::MAX` if it has
    /// none. Tombstones that are older may be purged.
    pub(crate) fn set_oldest_of_cassandra(&self, table: TableId, timestamp_micros: i64) {
        self.rows_of_cassandra.entries().insert(table, timestamp_micros);
    }

    /// Removes one generation of a table with its data; nothing if it is gone already.
    pub(crate) fn remove(&self, name: &str) -> Result<(), String> {
        self.change(|keyspaces| drop(keyspaces.remove(name)))
    }

    /// Whether there is a generation of a table of Cassandra's, readable or not.
    pub fn keeps(&self, id: [u8; 16]) -> bool {
        !generations(&self.engine.schema().keyspaces, TableId(Uuid::from_bytes(id))).is_empty()
    }

    /// Removes all generations of a table of Cassandra's with their data.
    pub fn remove_all(&self, id: [u8; 16]) -> Result<(), String> {
        let prefix = prefix(TableId(Uuid::from_bytes(id)));
        self.change(|keyspaces| keyspaces.retain(|name, _| !name.starts_with(&*prefix)))
    }

    fn change(&self, change: impl FnOnce(&mut Keyspaces)) -> Result<(), String> {
        let change = |_: &Schema, keyspaces: &mut Keyspaces| -> Result<(), ChangeError> {
            change(keyspaces);
            Ok(())
        };
        let ((), schema) = self.engine.change_schema(change).map_err(|error| error.0)?;
        self.rows_of_cassandra.entries().retain(|table, _| schema.table_by_id(*table).is_some());
        Ok(())
    }

    /// What is kept, one line each: Cassandra's id of the table, its name, and an upper bound of its partitions. Then
    /// what the start found damaged, each in a line that begins with `!`.
    pub fn listing(&self) -> String {
        let mut lines = String::new();
        for stats in self.engine.all_table_stats() {
            let Some((id, _)) = stats.keyspace.strip_prefix('t').and_then(|name| name.split_once('_')) else {
                continue;
            };
            if Uuid::parse_str(id).is_ok() {
                let partitions = stats.sstable_partition_count + stats.memtable_partition_count;
                let _ = writeln!(lines, "{id} {} {partitions}", stats.table);
            }
        }
        for table in self.engine.quarantined_tables() {
            let _ = writeln!(lines, "!table {}.{} is quarantined: {}", table.keyspace, table.table, table.reason);
        }
        for fault in self.engine.faults() {
            let _ = writeln!(lines, "!{fault}");
        }
        lines
    }
}

fn only_table<'s>(schema: &'s Schema, name: &str) -> Result<&'s Arc<Table>, ChangeError> {
    let keyspace = schema.keyspace(name).ok_or_else(|| ChangeError(format!("there is no generation {name}")))?;
    keyspace.tables.values().next().ok_or_else(|| {
        let reason = keyspace.unreadable.values().next().map_or("it has no table", |table| &*table.reason);
        ChangeError(format!("generation {name} cannot be read: {reason}"))
    })
}

/// Why a change of the schema was not made.
struct ChangeError(String);

impl From<EngineError> for ChangeError {
    fn from(error: EngineError) -> ChangeError {
        ChangeError(error.to_string())
    }
}
