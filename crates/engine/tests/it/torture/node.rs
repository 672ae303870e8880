//! An engine on a simulated disk, beside the model of its expected content.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use blockio::{Disk, SimulatedDisk};
use commitlog::SyncMode;
use engine::{Engine, EngineError, EngineOptions, block_on};
use model::{
    BoxCursor, Cell, ClusteringBound, ColumnData, DeletionTime, KeyRange, Keyspace, Liveness, MergeCursor, Mutation,
    PartitionKey, PartitionUpdate, PartitionUpdateBuilder, ReadError, ReadRange, Row, RowBuilder, Side, Slice, Table,
    TableBuilder, TableId, TableOptions, Unfiltered, UnfilteredCursor, push_component,
};
use sstable::{BlockCache, SSTableReader, list_tables};
use types::CqlType;
use uuid::Uuid;

use super::model::{Certainty, Change, Edit, Model, Rows, State, TableState, Update};
use crate::fixture::{clustering, columns, memory_only, open_with, stored_columns};
use testkit::Choices;

pub const KEYSPACE: &str = "ks";
const DIRECTORY: &str = "/node";
const SEGMENT_BYTES: u32 = 256 << 10;
const TABLES: u64 = 3;
const KEYS: u64 = 3;
const ROWS: u64 = 6;
/// The columns that may be added and dropped.
const COLUMNS: [&str; 3] = ["v", "w", "x"];
/// The first timestamps of histories. They grow from there: across zero, or to the ends of the range.
const FIRST_TIMESTAMPS: [i64; 4] = [1000, -50, i64::MIN + 1, i64::MAX - 3000];
/// Deletions of this time may be purged by any compaction.
const LONG_AGO_SECONDS: u32 = 1;
const NOW_SECONDS: u32 = 4_000_000_000;

/// A snapshot and its expected content.
struct Snapshot {
    directory: PathBuf,
    table: Arc<Table>,
    rows: Rows,
}

pub struct Node {
    pub choices: Choices,
    pub disk: SimulatedDisk,
    pub model: Model,
    engine: Option<Arc<Engine>>,
    pub sync: SyncMode,
    /// The time in milliseconds, which changes between lives, sometimes backwards.
    clock: Arc<AtomicI64>,
    segment_bytes: u32,
    /// Whether flushes of tables in memory write all of them.
    rewrites: bool,
    /// A number that grows with every change, and is also the change's timestamp.
    number: i64,
    /// Reads may show a part of a batch, which was refused half-way: the next start finishes it.
    has_half_a_batch: bool,
    /// Whether a batch was written that is several frames of the log.
    pub has_large_batch: bool,
    pub opens_damaged: bool,
    snapshots: Vec<Snapshot>,
    /// All values that were sent.
    pub written: BTreeSet<String>,
    /// The text of the last refusal.
    pub refusal: Option<String>,
}

/// A disk with an engine's system tables and an empty keyspace. It is created once, because that takes longer than a
/// history.
pub fn prepared_disk() -> SimulatedDisk {
    let disk = SimulatedDisk::new();
    let clock = Arc::new(AtomicI64::new(1_000_000));
    let engine = open_with(&options(&disk, SyncMode::Batch, &clock));
    engine.set_keyspace(Keyspace::new(KEYSPACE, BTreeMap::new(), true)).unwrap();
    engine.shutdown().unwrap();
    drop(engine);
    disk
}

fn options(disk: &SimulatedDisk, sync: SyncMode, clock: &Arc<AtomicI64>) -> EngineOptions {
    let mut options = EngineOptions::new(Arc::new(disk.clone()), DIRECTORY);
    options.opens_damaged = false;
    options.commitlog.segment_size_bytes = SEGMENT_BYTES;
    options.commitlog.total_space_bytes = 32 * u64::from(SEGMENT_BYTES);
    options.commitlog.sync = sync;
    let clock = Arc::clone(clock);
    options.commitlog.clock = Arc::new(move || clock.load(Ordering::Relaxed));
    options.memtable_shards = 2;
    options.concurrent_compactors = 0;
    options
}

impl Node {
    pub fn new(seed: u64, prepared: &SimulatedDisk) -> Node {
        let mut choices = Choices(seed);
        let sync = match choices.below(8) {
            0..=1 => SyncMode::Periodic { period: Duration::from_secs(3600) },
            2 => SyncMode::Each,
            3 => SyncMode::Group { window: Duration::from_micros(50) },
            _ => SyncMode::Batch,
        };
        let disk = prepared.crash_image(0);
        let number = if choices.one_in(2) { FIRST_TIMESTAMPS[choices.below(4) as usize] } else { 1000 };
        Node {
            choices,
            disk,
            model: Model::default(),
            engine: None,
            sync,
            clock: Arc::new(AtomicI64::new(1_000_000)),
            segment_bytes: SEGMENT_BYTES,
            rewrites: !seed.is_multiple_of(4),
            number,
            has_half_a_batch: false,
            has_large_batch: false,
            opens_damaged: false,
            snapshots: Vec::new(),
            written: BTreeSet::new(),
            refusal: None,
        }
    }

    pub fn open(&mut self) -> Result<(), EngineError> {
        // An empty log gets the other layout.
        if self.choices.one_in(4) {
            self.segment_bytes = SEGMENT_BYTES * (1 + self.choices.below(2) as u32);
        }
        self.clock.store([0, 10, 1_000_000, 2_000_000][self.choices.below(4) as usize], Ordering::Relaxed);
        self.engine = Some(Engine::open(self.options(&self.disk))?);
        self.has_half_a_batch = false;
        Ok(())
    }

    pub fn options(&self, disk: &SimulatedDisk) -> EngineOptions {
        let mut options = options(disk, self.sync, &self.clock);
        options.commitlog.segment_size_bytes = self.segment_bytes;
        options.opens_damaged = self.opens_damaged;
        if !self.rewrites {
            options.in_memory_rewritten_bytes_max = 0;
        }
        options
    }

    pub fn is_open(&self) -> bool {
        self.engine.is_some()
    }

    /// Cuts the power. The content of the disk then depends on the seed.
    pub fn crash(&mut self) {
        let image = self.disk.crash_image(self.choices.next());
        self.kill();
        self.disk = image;
    }

    /// Kills the process. The next one finds the content of the page cache.
    pub fn die(&mut self) {
        let left = self.disk.after_process_death();
        self.kill();
        self.disk = left;
    }

    /// Ends the process abruptly.
    pub fn kill(&mut self) {
        self.engine = None;
    }

    pub fn engine(&self) -> Arc<Engine> {
        self.engine.clone().expect("the node is open")
    }

    fn tables(&self) -> Vec<Arc<Table>> {
        tables_of(&self.engine())
    }

    pub fn some_table(&mut self) -> Option<Arc<Table>> {
        let tables = self.tables();
        if tables.is_empty() { None } else { Some(tables[self.choices.below(tables.len() as u64) as usize].clone()) }
    }

    /// Records a change and how certain it is that it lasts.
    fn note(&mut self, change: Change, result: &Result<(), EngineError>) {
        self.refusal = result.as_ref().err().map(ToString::to_string).or(self.refusal.take());
        let certainty = match (result, self.sync) {
            (Err(_), _) => Certainty::Refused,
            (Ok(()), SyncMode::Periodic { .. }) => Certainty::Acknowledged,
            (Ok(()), SyncMode::Batch | SyncMode::Group { .. } | SyncMode::Each) => Certainty::Durable,
        };
        self.model.note(change, certainty);
    }

    /// Like `note`, for a change that is durable when it is acknowledged, together with everything before it.
    fn note_durable(&mut self, change: Change, result: &Result<(), EngineError>) {
        self.refusal = result.as_ref().err().map(ToString::to_string).or(self.refusal.take());
        if result.is_ok() {
            self.model.synced();
        }
        self.model.note(change, if result.is_ok() { Certainty::Durable } else { Certainty::Refused });
    }

    /// One random operation.
    pub fn step(&mut self) {
        self.number += 1;
        match self.choices.below(40) {
            0..=1 => self.create(),
            2 => self.drop_table(),
            3 => self.add_column(),
            4 => self.drop_column(),
            5 => self.truncate(),
            6 => self.snapshot(),
            7..=8 => self.compact(),
            9..=13 => self.flush(),
            14 => self.flush_system_table(),
            15 => self.flush_all(),
            16..=17 => self.move_table(),
            18 => self.import(),
            19 => self.write_large(),
            _ => self.write(),
        }
    }

    /// One random operation beside a damaged table. Nothing is snapshotted or imported, because that would copy damage.
    pub fn step_beside_damage(&mut self) {
        self.number += 1;
        match self.choices.below(40) {
            0 => self.create(),
            1 => self.drop_table(),
            2 => self.add_column(),
            3 => self.drop_column(),
            4..=5 => self.truncate(),
            6..=8 => self.compact(),
            9..=14 => self.flush(),
            15 => self.flush_system_table(),
            16 => self.flush_all(),
            17..=18 => self.move_table(),
            19 => self.write_large(),
            _ => self.write(),
        }
    }

    /// In `periodic` mode, makes all that was acknowledged durable, by a change of the schema.
    pub fn make_durable(&mut self) {
        if matches!(self.sync, SyncMode::Periodic { .. }) {
            self.number += 1;
            let number = self.number.to_string();
            let changed = self.change_table(|keyspace| _ = keyspace.replication.insert("number".to_owned(), number));
            self.note_durable(Change::SetOptions, &changed);
        }
    }

    /// The directories of the snapshots.
    pub fn snapshots(&self) -> impl Iterator<Item = &PathBuf> {
        self.snapshots.iter().map(|snapshot| &snapshot.directory)
    }

    pub fn write(&mut self) {
        let tables = self.tables();
        if tables.is_empty() {
            return self.create();
        }
        let mut updates: Vec<Update> = Vec::new();
        let mut mutation = Vec::new();
        let length = if self.choices.one_in(8) { self.choices.below(4_000) } else { self.choices.below(60) };
        for _ in 0..1 + self.choices.below(3) {
            let table = tables[self.choices.below(tables.len() as u64) as usize].clone();
            let key = self.choices.below(KEYS) as i32;
            if updates.iter().any(|update| update.table == table.id.0 && update.key == key) {
                continue;
            }
            let edit = self.edit(&table, length as usize);
            self.written.extend(edit.values().into_iter().cloned());
            mutation.push(self.update(&table, key, &edit));
            updates.push(Update { table: table.id.0, key, edit });
        }
        let result = block_on(self.engine().write(&Mutation::new(mutation)));
        self.note(Change::Write(updates), &result);
    }

    /// A batch that is larger than a record of the log may be.
    fn write_large(&mut self) {
        let Some(table) = self.some_table() else { return };
        let length = self.segment_bytes as usize / 5;
        let (mut updates, mut mutation) = (Vec::new(), Vec::new());
        for key in 0..KEYS as i32 {
            let edit = Edit::Static(super::model::value_of(self.number.wrapping_mul(8) + i64::from(key), length));
            self.written.extend(edit.values().into_iter().cloned());
            mutation.push(self.update(&table, key, &edit));
            updates.push(Update { table: table.id.0, key, edit });
        }
        let result = block_on(self.engine().write_batch(&Mutation::new(mutation)));
        self.has_large_batch = true;
        self.has_half_a_batch |= result.is_err();
        self.note(Change::Write(updates), &result);
    }

    /// For one life the definition of a table cannot be read: all others are as they should be, and so is it once its
    /// definition can be read again and it is repaired. Nothing must be uncertain.
    pub fn lose_definition(&mut self) {
        let Some(table) = self.some_table() else { return };
        self.set_type_of_static(&table, "no_such_type");
        self.die();
        self.opens_damaged = true;
        self.open().unwrap();
        self.opens_damaged = false;
        let engine = self.engine();
        // In `periodic` mode the process took the change with it.
        if Engine::unreadable_table(&engine.schema(), KEYSPACE, &table.name).is_some() {
            let found = read_all(&engine).unwrap();
            self.model.check_all_but(&found, Some(&table.name)).unwrap();
            self.set_type_of_static(&table, "text");
            // In `periodic` mode a power cut could take this row and leave the one before it.
            engine.flush(engine.schema().table("system_schema", "columns").unwrap()).unwrap();
            engine.repair_table(KEYSPACE, &table.name).unwrap();
        }
        assert!(engine.quarantined_tables().is_empty() && engine.faults().is_empty());
    }

    fn set_type_of_static(&self, table: &Table, name: &str) {
        let engine = self.engine();
        let columns = engine.schema().table("system_schema", "columns").unwrap().clone();
        let timestamp = engine.next_timestamp_micros();
        let mut builder = RowBuilder::default();
        builder.start(columns.regulars(), false);
        builder.liveness(Liveness::at(timestamp));
        builder.cell(columns.regulars().index_of("type").unwrap(), &Cell::live(timestamp, name.as_bytes()));
        let mut blob = Vec::new();
        builder.finish(&mut blob);
        let mut path = Vec::new();
        [&*table.name, "s"].iter().for_each(|value| push_component(Some(value.as_bytes()), &mut path));
        let mut update = PartitionUpdateBuilder::new(columns, PartitionKey::new(KEYSPACE.as_bytes()));
        update.row(&path, &blob);
        block_on(engine.write(&Mutation::new(vec![update.build()]))).unwrap();
    }

    fn edit(&mut self, table: &Table, length: usize) -> Edit {
        let row = self.choices.below(ROWS) as i32;
        let number = self.number;
        let value = |choices: &mut Choices| {
            super::model::value_of(number.wrapping_mul(8).wrapping_add(choices.below(8) as i64), length)
        };
        match self.choices.below(20) {
            // Statements refuse those with negative timestamps.
            0 if number >= 0 => Edit::DeletePartition,
            1..=2 => Edit::DeleteRange(row, row + self.choices.below(3) as i32),
            3..=4 => Edit::DeleteRow(row),
            5..=6 => Edit::Static(value(&mut self.choices)),
            _ => {
                let rows = (0..1 + self.choices.below(3)).map(|i| {
                    let columns = table.regulars().shown().map(|column| column.name.to_string());
                    let mut values = Vec::new();
                    for column in columns {
                        if !self.choices.one_in(3) {
                            values.push((column, value(&mut self.choices)));
                        }
                    }
                    ((row + i as i32) % ROWS as i32, values)
                });
                Edit::Rows(rows.collect())
            }
        }
    }

    fn update(&mut self, table: &Arc<Table>, key: i32, edit: &Edit) -> PartitionUpdate {
        let timestamp = self.number;
        let deleted_at = if self.choices.one_in(2) { LONG_AGO_SECONDS } else { NOW_SECONDS };
        let deletion = DeletionTime::new(timestamp, deleted_at);
        let mut update = PartitionUpdateBuilder::new(table.clone(), PartitionKey::new(&key.to_be_bytes()));
        match edit {
            Edit::Rows(rows) => {
                for (row, values) in rows {
                    update.row(&clustering(*row), &row_blob(table, values, timestamp));
                }
            }
            Edit::Static(value) => update.static_row(&static_blob(table, value, timestamp)),
            Edit::DeleteRow(row) => {
                let mut builder = RowBuilder::default();
                builder.start(table.regulars(), false);
                builder.deletion(deletion);
                let mut blob = Vec::new();
                builder.finish(&mut blob);
                update.row(&clustering(*row), &blob);
            }
            Edit::DeleteRange(from, to) => {
                let start = ClusteringBound::new(clustering(*from), Side::Before);
                let end = ClusteringBound::new(clustering(*to), Side::After);
                update.delete_range(Slice { start, end }, deletion);
            }
            Edit::DeletePartition => update.delete_partition(deletion),
        }
        update.build()
    }

    fn change_table(&mut self, change: impl FnOnce(&mut Keyspace)) -> Result<(), EngineError> {
        let changed = self.engine().change_schema::<_, EngineError>(|_, keyspaces| {
            change(Arc::make_mut(keyspaces.get_mut(KEYSPACE).expect("the keyspace is never dropped")));
            Ok(())
        });
        changed.map(|_| ())
    }

    fn create(&mut self) {
        let name = super::model::table_name(self.choices.below(TABLES));
        let id = Uuid::from_u128(u128::from(self.choices.next()) << 64 | u128::from(self.choices.next()));
        let builder = TableBuilder::new(KEYSPACE, &name, TableId(id)).partition_key("k", CqlType::Int);
        let builder = builder.clustering("c", CqlType::Int, false).static_column("s", CqlType::Text);
        let options = if self.choices.one_in(3) { memory_only(64) } else { TableOptions::default() };
        let table = Arc::new(builder.regular("v", CqlType::Text).options(options).build());
        let created = table.clone();
        let result = self.change_table(|keyspace| {
            keyspace.tables.insert(created.name.clone(), created);
        });
        self.note_durable(Change::Create(name, id, BTreeSet::from(["v".to_owned()])), &result);
    }

    fn drop_table(&mut self) {
        let Some(table) = self.some_table() else { return };
        let result = self.change_table(|keyspace| {
            keyspace.tables.remove(&table.name);
        });
        self.note_durable(Change::Drop(table.name.to_string()), &result);
    }

    fn alter(&mut self, altered: Table, change: Change) {
        let result = self.change_table(|keyspace| {
            keyspace.tables.insert(altered.name.clone(), Arc::new(altered));
        });
        self.note_durable(change, &result);
    }

    fn add_column(&mut self) {
        let Some(table) = self.some_table() else { return };
        let column = COLUMNS[self.choices.below(COLUMNS.len() as u64) as usize];
        if table.column(column).is_none() {
            let altered = table.to_builder().regular(column, CqlType::Text).build();
            self.alter(altered, Change::AddColumn(table.id.0, column.to_owned()));
        }
    }

    fn drop_column(&mut self) {
        let Some(table) = self.some_table() else { return };
        let columns: Vec<_> = table.regulars().shown().collect();
        if columns.is_empty() {
            return;
        }
        let column = columns[self.choices.below(columns.len() as u64) as usize].name.to_string();
        let altered = table.to_builder().drop_column(&column, CqlType::Text, self.number).build();
        self.alter(altered, Change::DropColumn(table.id.0, column));
    }

    /// Moves a table into memory, or out of it.
    fn move_table(&mut self) {
        let Some(table) = self.some_table() else { return };
        let is_in_memory = table.options == memory_only(64);
        let options = if is_in_memory { TableOptions::default() } else { memory_only(64) };
        self.alter(table.to_builder().options(options).build(), Change::SetOptions);
    }

    fn truncate(&mut self) {
        let Some(table) = self.some_table() else { return };
        let result = self.engine().truncate(&table);
        self.note_durable(Change::Truncate(table.id.0), &result);
    }

    fn flush(&mut self) {
        if let Some(table) = self.some_table() {
            // The result does not show whether there was anything to flush, and so whether the log became durable.
            let _ = self.engine().flush(&table);
        }
    }

    /// System tables are flushed at any time, independently of each other.
    fn flush_system_table(&mut self) {
        let schema = self.engine().schema();
        let mut tables: Vec<_> = schema.keyspaces["system_schema"].tables.values().cloned().collect();
        tables.extend(["local", "table_layouts"].map(|name| schema.table("system", name).unwrap().clone()));
        // An error has an effect only if something is lost.
        let _ = self.engine().flush(&tables[self.choices.below(tables.len() as u64) as usize]);
    }

    fn flush_all(&mut self) {
        let _ = self.engine().flush_all();
    }

    fn compact(&mut self) {
        if let Some(table) = self.some_table() {
            let _ = self.engine().compact(&table);
        }
    }

    fn snapshot(&mut self) {
        let Some(table) = self.some_table() else { return };
        if self.model.refused() > 0 {
            return;
        }
        let rows = self.model.acknowledged()[&*table.name].rows.clone();
        if let Ok(directory) = self.engine().snapshot(&table, &format!("snapshot{}", self.number), "") {
            self.snapshots.push(Snapshot { directory, table, rows });
        }
    }

    /// Exports a table's rows, empties the table, and imports the rows as foreign SSTables.
    fn import(&mut self) {
        let Some(table) = self.some_table() else { return };
        if self.model.refused() > 0 {
            return;
        }
        let rows = self.model.acknowledged()[&*table.name].rows.clone();
        let Ok(directory) = self.engine().snapshot(&table, &format!("import{}", self.number), "") else { return };
        let truncated = self.engine().truncate(&table);
        self.note_durable(Change::Truncate(table.id.0), &truncated);
        if truncated.is_ok() {
            let result = self.engine().import(&table, &directory).map(|_| ());
            self.note_durable(Change::Import(table.id.0, rows), &result);
        }
    }

    /// Stops and starts the node as an operator does. Afterwards nothing is uncertain, and the next start replays
    /// nothing.
    pub fn restart(&mut self) -> Result<(), EngineError> {
        self.engine().shutdown()?;
        self.model.synced();
        self.kill();
        self.open()?;
        assert_eq!(self.engine().replay_summary(), Default::default(), "a clean stop leaves nothing to replay");
        Ok(())
    }

    /// The state that reads see.
    pub fn read(&self) -> Result<State, EngineError> {
        read_all(&self.engine())
    }

    /// Whether reads show all of what a batch has written, or nothing of it.
    pub fn shows_whole_batches(&self) -> bool {
        !self.has_half_a_batch
    }

    /// Checks that clients see the columns of the schema.
    pub fn check_columns(&self) -> Result<(), EngineError> {
        let engine = self.engine();
        assert_eq!(
            stored_columns(&engine, KEYSPACE)?,
            columns(&engine, KEYSPACE),
            "what is shown is what the schema is"
        );
        Ok(())
    }

    /// Checks the content of acknowledged snapshots. Those that were taken before a crash are durable.
    pub fn check_snapshots(&self) -> Result<(), String> {
        for snapshot in &self.snapshots {
            let found = self.rows_of_snapshot(snapshot).map_err(|error| error.to_string())?;
            if found != snapshot.rows {
                return Err(format!("snapshot {} does not hold what it should", snapshot.directory.display()));
            }
        }
        Ok(())
    }

    fn rows_of_snapshot(&self, snapshot: &Snapshot) -> Result<Rows, Box<dyn std::error::Error>> {
        let cache = BlockCache::new(1 << 20);
        let range = ReadRange::all_rows(KeyRange::all());
        let mut sources: Vec<BoxCursor<'static>> = Vec::new();
        for descriptor in list_tables(&self.disk, &snapshot.directory)? {
            let reader = Arc::new(SSTableReader::open(&self.disk, &descriptor, &snapshot.table, &cache)?);
            sources.push(Box::new(reader.cursor(&range)?));
        }
        if !self.disk.exists(Path::new(&snapshot.directory.join("manifest.json")))? {
            return Err("no manifest".into());
        }
        Ok(rows_of(Box::new(MergeCursor::new(&snapshot.table, false, sources)))?)
    }
}

pub fn tables_of(engine: &Engine) -> Vec<Arc<Table>> {
    engine.schema().keyspace(KEYSPACE).map_or(Vec::new(), |ks| ks.tables.values().cloned().collect())
}

/// The content of all tables.
pub fn read_all(engine: &Engine) -> Result<State, EngineError> {
    let mut state = State::new();
    for table in tables_of(engine) {
        state.insert(table.name.to_string(), read_table(engine, &table)?);
    }
    Ok(state)
}

pub fn read_table(engine: &Engine, table: &Arc<Table>) -> Result<TableState, EngineError> {
    let cursor = engine.read(table, &ReadRange::all_rows(KeyRange::all()))?;
    let columns = table.regulars().shown().map(|column| column.name.to_string()).collect();
    Ok(TableState { id: table.id.0, columns, rows: rows_of(cursor)? })
}

fn row_blob(table: &Table, values: &[(String, String)], timestamp: i64) -> Vec<u8> {
    let mut builder = RowBuilder::default();
    builder.start(table.regulars(), false);
    builder.liveness(Liveness::at(timestamp));
    let mut cells: Vec<(usize, &String)> =
        values.iter().map(|(column, value)| (table.regulars().index_of(column).unwrap(), value)).collect();
    cells.sort();
    for (index, value) in cells {
        builder.cell(index, &Cell::live(timestamp, value.as_bytes()));
    }
    let mut blob = Vec::new();
    builder.finish(&mut blob);
    blob
}

fn static_blob(table: &Table, value: &str, timestamp: i64) -> Vec<u8> {
    let mut builder = RowBuilder::default();
    builder.start(table.statics(), true);
    builder.cell(0, &Cell::live(timestamp, value.as_bytes()));
    let mut blob = Vec::new();
    builder.finish(&mut blob);
    blob
}

fn rows_of(mut cursor: BoxCursor<'_>) -> Result<Rows, ReadError> {
    let table = cursor.table().clone();
    let mut rows = Rows::new();
    while cursor.advance_partition()? {
        let head = cursor.partition();
        let key = i32::from_be_bytes(head.key.bytes().try_into().unwrap());
        let statics = head.static_row.map_or(BTreeMap::new(), |row| values_of(&table, row));
        if !statics.is_empty() {
            rows.insert((key, None), statics);
        }
        while cursor.advance()? {
            if let Unfiltered::Row(row) = cursor.unfiltered()
                && row.row.is_live(&table, NOW_SECONDS)
            {
                let position = i32::from_be_bytes(row.clustering[4..8].try_into().unwrap());
                rows.insert((key, Some(position)), values_of(&table, row.row));
            }
        }
    }
    Ok(rows)
}

fn values_of(table: &Table, row: Row<'_>) -> BTreeMap<String, String> {
    let columns = &table.columns(row.is_static()).columns;
    let mut values = BTreeMap::new();
    for (index, data) in row.columns(table) {
        if let ColumnData::Simple(cell) = data
            && cell.is_live(NOW_SECONDS)
        {
            values.insert(columns[index].name.to_string(), String::from_utf8(cell.value.to_vec()).unwrap());
        }
    }
    values
}
