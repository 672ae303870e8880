//! The engine of mode `storage`: one for all tables of a JVM.
//!
//! Each table of Cassandra's has an engine keyspace of its own, so that its user types are its own too. The name of the
//! keyspace has Cassandra's id of the table and a generation: `t<id>_<generation>`. TRUNCATE begins the next
//! generation, and the one before it is removed when Cassandra discards its memtable. When a table is opened, only its
//! newest generation counts.

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
use crate::table::{Place, id_and_name, stored_table_of};

/// Which generation of a table is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Choice {
    /// The newest one, or the first one if there is none.
    NewestOrFirst,
    /// The one after the newest.
    Next,
    /// The newest one, if there is any.
    Newest,
}

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
pub(crate) type Kept = (String, Arc<Table>);

fn prefix(id: TableId) -> String {
    format!("t{}_", id.0.simple())
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

/// The keyspace that has only a table.
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

    /// Opens a generation of the table of a description, as the table is now. Older generations are removed unless the
    /// opened one is the next. `None` if there is none to open.
    pub(crate) fn table(&self, description: &[u8], choice: Choice) -> Result<Option<Kept>, String> {
        let (id, ..) = id_and_name(description).map_err(|error| error.to_string())?;
        let change = |old: &Schema, keyspaces: &mut Keyspaces| -> Result<Option<(String, TableId)>, ChangeError> {
            let known = generations(keyspaces, id);
            let newest = known.last().copied();
            let (generation, older) = match (choice, newest) {
                (Choice::Newest, None) => return Ok(None),
                (Choice::Next, _) => (newest.unwrap_or(0) + 1, None),
                (_, None) => (1, None),
                (_, Some(newest)) => (newest, Some(newest)),
            };
            let name = format!("{}{generation}", prefix(id));
            let older = older.map(|_| only_table(old, &name)).transpose()?;
            let place = Place { keyspace: &name, id: older.map_or_else(|| TableId(Uuid::new_v4()), |table| table.id) };
            let table = stored_table_of(description, place, older.map(Arc::as_ref))
                .map_err(|error| ChangeError(error.to_string()))?;
            let table_id = table.id;
            if older.is_none_or(|older| **older != table) {
                keyspaces.insert(name.as_str().into(), Arc::new(keyspace_of(&name, table)));
            }
            if choice != Choice::Next {
                for generation in known.into_iter().filter(|known| *known != generation) {
                    keyspaces.remove(format!("{}{generation}", prefix(id)).as_str());
                }
            }
            Ok(Some((name, table_id)))
        };
        let (opened, schema) = self.engine.change_schema(change).map_err(|error| error.0)?;
        let Some((name, table_id)) = opened else { return Ok(None) };
        let table = schema.table_by_id(table_id).ok_or("a table that was opened exists")?;
        Ok(Some((name, table.clone())))
    }

    /// Changes a table that the engine keeps to a description. Returns the new version.
    pub(crate) fn alter(&self, name: &str, description: &[u8]) -> Result<Arc<Table>, String> {
        let change = |old: &Schema, keyspaces: &mut Keyspaces| -> Result<TableId, ChangeError> {
            let older = only_table(old, name)?;
            let place = Place { keyspace: name, id: older.id };
            let table =
                stored_table_of(description, place, Some(older)).map_err(|error| ChangeError(error.to_string()))?;
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
