//! An engine in a temporary directory, and short functions to write and read.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use blockio::{SimulatedDisk, SystemDisk};
use engine::{Engine, EngineError, EngineOptions, block_on};
use model::{
    Cell, Clusterings, ColumnData, DeletionTime, KeyRange, Keyspace, Liveness, Mutation, PartitionKey,
    PartitionUpdateBuilder, ReadRange, RowBuilder, Slice, Table, TableBuilder, TableId, TableOptions, Unfiltered,
    UnfilteredCursor, push_component,
};
use testkit::TemporaryDirectory;
use types::CqlType;
use uuid::Uuid;

pub fn options(directory: &TemporaryDirectory) -> EngineOptions {
    let mut options = EngineOptions::new(Arc::new(SystemDisk::new()), &directory.0);
    options.commitlog.segment_size_bytes = 256 << 10;
    options.commitlog.total_space_bytes = 4 << 20;
    options
}

/// Between two looks at what other threads do.
pub const PAUSE: Duration = Duration::from_millis(1);

pub fn open(directory: &TemporaryDirectory) -> Arc<Engine> {
    open_with(&options(directory))
}

/// Opens the engine as soon as the threads of an earlier one have released it. These may have a low priority, so that a
/// loop without a pause would keep them from it on a busy machine.
pub fn open_with(options: &EngineOptions) -> Arc<Engine> {
    loop {
        match Engine::open(options.clone()) {
            Err(EngineError::Disk(error)) if error.kind() == blockio::DiskErrorKind::Locked => {
                std::thread::sleep(PAUSE)
            }
            opened => return opened.unwrap(),
        }
    }
}

/// `ks.t (k int, c int, s text static, v text, PRIMARY KEY (k, c))`
pub fn create_table(engine: &Engine) -> Arc<Table> {
    let builder = TableBuilder::new("ks", "t", TableId(Uuid::new_v4())).partition_key("k", CqlType::Int);
    let builder = builder.clustering("c", CqlType::Int, false).static_column("s", CqlType::Text);
    let table = Arc::new(builder.regular("v", CqlType::Text).build());
    let mut keyspace = Keyspace::new("ks", BTreeMap::new(), true);
    keyspace.tables.insert(table.name.clone(), table.clone());
    engine.set_keyspace(keyspace).unwrap();
    engine.schema().table("ks", "t").unwrap().clone()
}

pub fn clustering(value: i32) -> Vec<u8> {
    let mut bytes = Vec::new();
    push_component(Some(&value.to_be_bytes()), &mut bytes);
    bytes
}

pub fn insert(engine: &Engine, table: &Arc<Table>, key: i32, row: i32, value: &str, timestamp: i64) {
    block_on(engine.write(&insertion(table, key, row, value, timestamp))).unwrap();
}

pub fn insertion(table: &Arc<Table>, key: i32, row: i32, value: &str, timestamp: i64) -> Mutation {
    let mut builder = RowBuilder::default();
    builder.start(table.regulars(), false);
    builder.liveness(Liveness::at(timestamp));
    builder.cell(0, &Cell::live(timestamp, value.as_bytes()));
    let mut blob = Vec::new();
    builder.finish(&mut blob);
    let mut update = PartitionUpdateBuilder::new(table.clone(), PartitionKey::new(&key.to_be_bytes()));
    update.row(&clustering(row), &blob);
    Mutation::new(vec![update.build()])
}

/// A row without liveness and cells.
pub fn empty_row(table: &Arc<Table>, key: i32, row: i32) -> Mutation {
    let (mut builder, mut blob) = (RowBuilder::default(), Vec::new());
    builder.start(table.regulars(), false);
    builder.finish(&mut blob);
    let mut update = PartitionUpdateBuilder::new(table.clone(), PartitionKey::new(&key.to_be_bytes()));
    update.row(&clustering(row), &blob);
    Mutation::new(vec![update.build()])
}

/// A row that expired at 100, which is long ago, and replaces older content.
pub fn expired_insertion(table: &Arc<Table>, key: i32, row: i32, timestamp: i64) -> Mutation {
    let mut builder = RowBuilder::default();
    builder.start(table.regulars(), false);
    builder.liveness(Liveness { timestamp, ttl: 10, expiration: 100 });
    builder.cell(0, &Cell::expiring(timestamp, 10, 100, b"expired"));
    let mut blob = Vec::new();
    builder.finish(&mut blob);
    let mut update = PartitionUpdateBuilder::new(table.clone(), PartitionKey::new(&key.to_be_bytes()));
    update.row(&clustering(row), &blob);
    Mutation::new(vec![update.build()])
}

/// The deletion of rows by a range, dated long ago.
pub fn row_deletion(table: &Arc<Table>, key: i32, row: i32, timestamp: i64) -> Mutation {
    let mut update = PartitionUpdateBuilder::new(table.clone(), PartitionKey::new(&key.to_be_bytes()));
    update.delete_range(Slice::prefix(&clustering(row)), DeletionTime::new(timestamp, 1));
    Mutation::new(vec![update.build()])
}

/// The deletion of a partition, dated long ago.
pub fn partition_deletion(table: &Arc<Table>, key: i32, timestamp: i64) -> Mutation {
    let mut update = PartitionUpdateBuilder::new(table.clone(), PartitionKey::new(&key.to_be_bytes()));
    update.delete_partition(DeletionTime::new(timestamp, 1));
    Mutation::new(vec![update.build()])
}

pub fn insert_expired(engine: &Engine, table: &Arc<Table>, key: i32, row: i32, timestamp: i64) {
    block_on(engine.write(&expired_insertion(table, key, row, timestamp))).unwrap();
}

pub fn delete_rows(engine: &Engine, table: &Arc<Table>, key: i32, row: i32, timestamp: i64) {
    block_on(engine.write(&row_deletion(table, key, row, timestamp))).unwrap();
}

pub fn delete_partition(engine: &Engine, table: &Arc<Table>, key: i32, timestamp: i64) {
    block_on(engine.write(&partition_deletion(table, key, timestamp))).unwrap();
}

/// Live rows as (key, row, value), ordered by key and row. At the time of this read, nothing has expired.
pub fn rows(engine: &Engine, table: &Arc<Table>) -> Vec<(i32, i32, String)> {
    rows_at(engine, table, 1000)
}

/// Rows that are live at `now_seconds`, as (key, row, value), in order of key and row.
pub fn rows_at(engine: &Engine, table: &Arc<Table>, now_seconds: u32) -> Vec<(i32, i32, String)> {
    let mut cursor = engine.read(table, &ReadRange::all_rows(KeyRange::all())).unwrap();
    let mut rows = Vec::new();
    while cursor.advance_partition().unwrap() {
        let key = i32::from_be_bytes(cursor.partition().key.bytes().try_into().unwrap());
        while cursor.advance().unwrap() {
            if let Unfiltered::Row(row) = cursor.unfiltered()
                && row.row.is_live(table, now_seconds)
            {
                let position = i32::from_be_bytes(row.clustering[4..8].try_into().unwrap());
                let value = match row.row.columns(table).next() {
                    Some((_, ColumnData::Simple(cell))) => String::from_utf8(cell.value.to_vec()).unwrap(),
                    _ => String::new(),
                };
                rows.push((key, position, value));
            }
        }
    }
    rows.sort();
    rows
}

/// The options of a table that lives in memory.
pub fn memory_only(size_limit_mb: u32) -> TableOptions {
    let class = "org.apache.cassandra.db.compaction.MemoryOnlyStrategy".to_string();
    let compaction = [("class".into(), class), ("size_limit_in_mb".into(), size_limit_mb.to_string())];
    TableOptions { compaction: compaction.into(), ..TableOptions::default() }
}

/// Executes ALTER TABLE … WITH these options.
pub fn set_options(engine: &Engine, table: &Table, options: TableOptions) -> Result<Arc<Table>, EngineError> {
    let altered = Arc::new(table.to_builder().options(options).build());
    let changed = altered.clone();
    engine.change_schema::<_, EngineError>(|_, keyspaces| {
        let keyspace = Arc::make_mut(keyspaces.get_mut(&table.keyspace).unwrap());
        keyspace.tables.insert(changed.name.clone(), changed);
        Ok(())
    })?;
    Ok(altered)
}

/// A node of one memtable shard with a small log, which never merges SSTables by itself.
pub fn small_options(disk: &SimulatedDisk) -> EngineOptions {
    let mut options = EngineOptions::new(Arc::new(disk.clone()), "/node");
    options.commitlog.segment_size_bytes = 256 << 10;
    options.commitlog.total_space_bytes = 8 << 20;
    options.memtable_shards = 1;
    options.concurrent_compactors = 0;
    options.in_memory_rewritten_bytes_max = 0;
    // A test that does not damage files stops if it finds damage.
    options.opens_damaged = false;
    options
}

/// A disk with a stopped node of [`small_options`] that has the empty table of [`create_table`], and nothing in its
/// log. Such a node is made once: each start of one whose log has the schema writes all SSTables of the schema.
pub fn disk_with_table() -> SimulatedDisk {
    static MADE: OnceLock<SimulatedDisk> = OnceLock::new();
    let made = MADE.get_or_init(|| {
        let disk = SimulatedDisk::new();
        let engine = open_with(&small_options(&disk));
        create_table(&engine);
        engine.shutdown().unwrap();
        disk
    });
    made.crash_image(0)
}

/// Sets a cell of a row of keyspace `ks` in `system_schema`, or deletes it.
pub fn set_cell(engine: &Engine, table: &str, clustering: &[&str], column: &str, value: Option<&[u8]>) {
    let table = engine.schema().table("system_schema", table).unwrap().clone();
    let now = engine.next_timestamp_micros();
    let mut path = Vec::new();
    clustering.iter().for_each(|value| push_component(Some(value.as_bytes()), &mut path));
    let mut builder = RowBuilder::default();
    builder.start(table.regulars(), false);
    builder.liveness(Liveness::at(now));
    let cell = value.map_or(Cell::tombstone(now, 1), |value| Cell::live(now, value));
    builder.cell(table.regulars().index_of(column).unwrap(), &cell);
    let mut blob = Vec::new();
    builder.finish(&mut blob);
    let mut update = PartitionUpdateBuilder::new(table, PartitionKey::new(b"ks"));
    update.row(&path, &blob);
    block_on(engine.write(&Mutation::new(vec![update.build()]))).unwrap();
}

/// The tables and columns of the schema.
pub fn columns(engine: &Engine, keyspace: &str) -> BTreeSet<(String, String)> {
    let schema = engine.schema();
    let tables = schema.keyspace(keyspace).into_iter().flat_map(|keyspace| keyspace.tables.values());
    let columns = tables.flat_map(|table| {
        let columns = table.columns_in_select_order().into_iter();
        columns.map(|column| (table.name.to_string(), column.name.to_string()))
    });
    columns.collect()
}

/// The tables and columns in the rows of `system_schema.columns`, which clients see.
pub fn stored_columns(engine: &Engine, keyspace: &str) -> Result<BTreeSet<(String, String)>, EngineError> {
    let columns = engine.schema().table("system_schema", "columns").unwrap().clone();
    let keys = KeyRange::Single(PartitionKey::new(keyspace.as_bytes()));
    let mut cursor = engine.read(&columns, &ReadRange::all_rows(keys))?;
    let mut found = BTreeSet::new();
    while cursor.advance_partition()? {
        while cursor.advance()? {
            if let Unfiltered::Row(row) = cursor.unfiltered()
                && row.row.is_live(&columns, 1000)
            {
                let mut names =
                    Clusterings(row.clustering).map(|name| String::from_utf8(name.unwrap().to_vec()).unwrap());
                found.insert((names.next().unwrap(), names.next().unwrap()));
            }
        }
    }
    Ok(found)
}
