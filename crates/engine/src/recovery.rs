//! Opening what a node left behind.
//!
//! The order: system tables from their SSTables; the log's records of the schema and of truncations; the schema, and
//! with it the user tables' SSTables; then all of the log. A record is replayed unless an SSTable of its table, flushed
//! here, covers its position, or the table was truncated after it. Replay never waits for memory: it flushes what it
//! filled. At the end what truncations and drops left undone is finished.
//!
//! The schema's records come first because its tables are flushed one by one: their SSTables alone may be of different
//! times, so that no schema can be made of them. Column sets are kept for good, so that the last schema reads every
//! record. Truncations come first because their records follow those that they concern.

pub(crate) mod log_host;
mod repair;
mod replay_threads;
mod start;

use std::cell::Cell;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex};

use commitlog::{IntervalSet, LogPosition};
use memtable::MemtableFull;
use model::{Keyspace, Mutation, PartitionUpdate, ReadUpdates, Table, TableId};

use crate::engine::Engine;
use crate::error::EngineError;
use crate::flush::contained;
use crate::lock::lock;
use crate::read;
use crate::schema_rows::{self, SchemaDamage, SchemaRows};
use crate::shared::Catalog;
use crate::system::is_system_keyspace;
use crate::table::TableStore;

pub(crate) use start::Start;

/// What was replayed is little if it is less than this part of what memtables may hold, and belongs to few tables.
const REPLAYED_SHARE: u64 = 64;
/// More tables than this are not few.
const REPLAYED_TABLES: usize = 100;
/// So many records are looked up in memtables together before they are applied,
const RECORDS_TOGETHER: usize = 64;
/// or as many as reach so many bytes.
const BUNCH_SIZE: usize = 64 << 10;

/// What replaying the log came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplaySummary {
    /// Updates that were applied.
    pub replayed: u64,
    /// Updates that SSTables or truncations cover.
    pub covered: u64,
    /// Updates of tables that do not exist any more.
    pub of_dropped_tables: u64,
    /// Records that a salvage left out, or a part of them: of columns that the schema does not know, because the
    /// change that made them is among what was damaged.
    pub unreadable: u64,
}

impl std::ops::Add for ReplaySummary {
    type Output = ReplaySummary;

    fn add(self, other: ReplaySummary) -> ReplaySummary {
        ReplaySummary {
            replayed: self.replayed + other.replayed,
            covered: self.covered + other.covered,
            of_dropped_tables: self.of_dropped_tables + other.of_dropped_tables,
            unreadable: self.unreadable + other.unreadable,
        }
    }
}

/// The state of a recovery.
#[derive(Default)]
pub(crate) struct Recovery {
    pub covered: Covered,
    pub summary: ReplaySummary,
}

/// What of the log each table has in its SSTables already.
#[derive(Default)]
pub(crate) struct Covered {
    by_table: HashMap<TableId, IntervalSet>,
    /// The last segment that an SSTable of ours or a truncation names. They may be older than the log: then it must
    /// never come to such ids, for its records would be taken for theirs.
    last_segment: i64,
    /// Tables of which the log has records, and the schema nothing.
    unknown: Mutex<BTreeSet<TableId>>,
}

impl Covered {
    fn note_unknown(&self, table: TableId) {
        lock(&self.unknown).insert(table);
    }

    /// Tables of which the log has records, and the schema nothing.
    pub fn unknown(&self) -> BTreeSet<TableId> {
        lock(&self.unknown).clone()
    }

    pub fn add(&mut self, table: TableId, intervals: &IntervalSet) {
        let set = self.by_table.entry(table).or_default();
        intervals.intervals().iter().for_each(|interval| set.add(*interval));
    }

    /// An SSTable or a truncation names this place in the log, whether it has any record or not.
    pub fn note(&mut self, position: LogPosition) {
        self.last_segment = self.last_segment.max(position.segment);
    }

    /// The last segment that is named.
    pub fn last_segment(&self) -> i64 {
        self.last_segment
    }

    /// Whether the table has what is logged up to `position`.
    pub fn contains(&self, table: TableId, position: LogPosition) -> bool {
        self.by_table.get(&table).is_some_and(|set| set.contains(position))
    }

    /// Everything up to `position` was truncated.
    pub fn add_truncation(&mut self, table: TableId, position: LogPosition) {
        self.note(position);
        let interval = commitlog::PositionInterval { start: LogPosition::NONE, end: position };
        self.by_table.entry(table).or_default().add(interval);
    }
}

impl Engine {
    /// Applies records, each with its position, to the memtables, as far as no table covers them.
    pub(crate) fn replay_records<'r>(
        &self,
        mut records: impl Iterator<Item = (&'r [u8], LogPosition)>,
        covered: &Covered,
        bunch: &mut Bunch,
    ) -> Result<ReplaySummary, EngineError> {
        let mut summary = ReplaySummary::default();
        let mut is_more = true;
        while is_more {
            let membership = self.shared.groups().enter().that_waits();
            loop {
                is_more = bunch.gather(&mut records);
                summary = summary + bunch.read(self, covered)?;
                self.replay_updates(bunch.updates.updates())?;
                if !is_more || self.shared.pool().wants_flush() {
                    break;
                }
            }
            // A flush waits for the group.
            drop(membership);
            self.flush.flush_largest()?;
        }
        Ok(summary)
    }

    /// Updates of one table that follow each other are looked up and counted together.
    fn replay_updates(&self, updates: &[PartitionUpdate]) -> Result<(), EngineError> {
        for same in updates.chunk_by(|a, b| a.table().id == b.table().id) {
            let Some(first) = same.first() else { continue };
            let store = match self.shared.store(first.table()) {
                // Its records are set aside once the replay is over.
                Err(EngineError::Quarantined { .. }) => continue,
                store => store?,
            };
            let active = store.view().active.clone();
            let keys: Vec<_> = same.iter().map(PartitionUpdate::key).collect();
            active.memtable.prefetch(&keys);
            let mut growth_bytes = 0;
            for update in same {
                match active.apply(update) {
                    Ok(growth) => growth_bytes += growth,
                    Err(MemtableFull) => self.replay_update(&store, update),
                }
            }
            active.account(growth_bytes, self.shared.pool());
        }
        Ok(())
    }

    /// Applies one update, which may fill several memtables.
    pub(crate) fn replay_update(&self, store: &TableStore, update: &PartitionUpdate) {
        loop {
            let active = store.view().active.clone();
            if let Ok(growth_bytes) = active.apply(update) {
                active.account(growth_bytes, self.shared.pool());
                return;
            }
            self.shared.successor(store, &active);
        }
    }

    /// What was replayed into memtables is flushed in the background, and frees its part of the log then: queries need
    /// not wait for it. It is flushed here and now where it is little and of few tables, so that a start mostly leaves
    /// nothing behind; and where the log is short of segments, or memory of room, because the start itself writes. A
    /// flush that fails is no reason not to serve what is in memory and in the log: it is tried again in the
    /// background.
    pub(crate) fn settle_replayed(&self) -> Result<(), EngineError> {
        let is_little = self.shared.pool().used_bytes() < self.shared.options().memtable_space_bytes / REPLAYED_SHARE
            && self.shared.log().replayed_tables().len() <= REPLAYED_TABLES;
        if is_little || self.shared.log().pressure().is_some() || self.shared.pool().wants_flush() {
            let failures = self.flush.flush_each();
            if failures.into_iter().all(|(_, error)| contained(Err(error)).is_ok()) {
                return self.shared.log().discard_replayed().map_err(|error| self.shared.log_failed(error));
            }
        }
        let (end, stores) = (self.shared.log().position(), self.shared.stores());
        for id in self.shared.log().replayed_tables().into_iter().map(TableId) {
            match stores.iter().find(|store| store.table.load().id == id) {
                Some(store) if self.ends_replay(store) => self.flush.request(store),
                _ => self.shared.forget_log(id, end)?,
            }
        }
        Ok(())
    }

    /// Has the flush of the table's newest memtable, which comes after those of all others, cover all that was
    /// replayed; false if nothing of it is in memory.
    pub(super) fn ends_replay(&self, store: &TableStore) -> bool {
        let view = store.view();
        let Some(newest) = view.generations().find(|generation| !generation.memtable.is_empty()) else { return false };
        newest.lower(self.shared.log());
        newest.end_replay();
        true
    }

    /// Reads the user keyspaces out of the system tables. A table whose rows cannot be read is quarantined by name; it
    /// stops a start that is to open nothing damaged, and a salvage leaves it out.
    pub(crate) fn load_keyspaces(&self) -> Result<StoredSchema, EngineError> {
        let rows = |keyspace: &str, table: &str| read::system_rows(&self.shared, keyspace, table);
        let rows = SchemaRows {
            keyspaces: rows("system_schema", schema_rows::KEYSPACES)?,
            tables: rows("system_schema", schema_rows::TABLES)?,
            columns: rows("system_schema", schema_rows::COLUMNS)?,
            dropped_columns: rows("system_schema", schema_rows::DROPPED_COLUMNS)?,
            types: rows("system_schema", schema_rows::TYPES)?,
            layouts: rows("system", schema_rows::LAYOUTS)?,
            is_foreign: false,
        };
        let (mut keyspaces, mut damage) = schema_rows::load_whole(&rows);
        if !self.shared.options().commitlog.salvage {
            schema_rows::add_rowless(&rows, &mut keyspaces, &mut damage);
            if let Some(damage) = damage.first().filter(|_| !self.shared.options().opens_damaged) {
                return Err(EngineError::Startup(damage.to_string()));
            }
            self.quarantine.find_unreadable(schema_rows::unclaimed_ids(&rows), &mut keyspaces)?;
            return Ok(StoredSchema { keyspaces, damage, ..StoredSchema::default() });
        }
        keyspaces.iter_mut().for_each(|keyspace| keyspace.unreadable.clear());
        let lost_keyspaces = schema_rows::without_keyspace(&rows);
        damage.extend(lost_keyspaces.iter().map(|name| SchemaDamage(format!("keyspace {name}: only parts of it"))));
        Ok(StoredSchema { keyspaces, damage, lost_keyspaces })
    }

    /// After a salvage: what is stored of the schema is what was made of it, so that the next start finds no more
    /// damage, and clients are shown what there is. The files of tables that were left out stay.
    pub(crate) fn store_salvaged_schema(&self, stored: &StoredSchema) -> Result<(), EngineError> {
        let schema = self.shared.schema();
        for keyspace in schema.keyspaces.values().filter(|keyspace| !is_system_keyspace(&keyspace.name)) {
            let mut updates = Vec::new();
            schema_rows::store_keyspace(&schema, keyspace, self.shared.next_timestamp_micros(), &mut updates);
            self.writes.durably(Mutation::new(updates))?;
        }
        for name in &stored.lost_keyspaces {
            let (lost, mut updates) = (Keyspace::new(name, Default::default(), true), Vec::new());
            schema_rows::drop_keyspace(&schema, &lost, self.shared.next_timestamp_micros(), &mut updates);
            self.writes.durably(Mutation::new(updates))?;
        }
        Ok(())
    }
}

/// The user keyspaces as they are stored.
#[derive(Default)]
pub(crate) struct StoredSchema {
    pub keyspaces: Vec<Keyspace>,
    /// What cannot be read. A salvage leaves it out, otherwise its tables are quarantined.
    pub damage: Vec<SchemaDamage>,
    /// Of which there are parts, but not themselves.
    lost_keyspaces: BTreeSet<String>,
}

/// What there is to know of a table when its records are read.
#[derive(Clone, Copy)]
struct Known<'s> {
    id: TableId,
    table: Option<&'s Arc<Table>>,
    in_tables: Option<&'s IntervalSet>,
    /// Its records are passed over, and set aside later.
    is_quarantined: bool,
}

impl<'s> Known<'s> {
    fn new(id: TableId, catalog: &'s Catalog, in_tables: &'s Covered) -> Known<'s> {
        let is_quarantined = catalog.any_store(id).is_some_and(|store| store.quarantine_reason().is_some());
        let table = catalog.schema().table_by_id(id);
        if table.is_none() {
            in_tables.note_unknown(id);
        }
        Known { id, table, in_tables: in_tables.by_table.get(&id), is_quarantined }
    }
}

/// Records that are applied together.
#[derive(Default)]
pub(crate) struct Bunch {
    /// Side by side: where they come from they are not, and each alone would be waited for.
    bytes: Vec<u8>,
    /// Where each ends in `bytes`, and its position in the log.
    ends: Vec<(usize, LogPosition)>,
    updates: ReadUpdates,
}

impl Bunch {
    /// Takes the next records; false if there are no more.
    fn gather<'r>(&mut self, records: &mut impl Iterator<Item = (&'r [u8], LogPosition)>) -> bool {
        self.bytes.clear();
        self.ends.clear();
        while self.ends.len() < RECORDS_TOGETHER && self.bytes.len() < BUNCH_SIZE {
            let Some((record, position)) = records.next() else { return false };
            self.bytes.extend_from_slice(record);
            self.ends.push((self.bytes.len(), position));
        }
        true
    }

    /// Reads their updates, as far as no table covers them. A table of which one cannot be read is quarantined; where
    /// the log is salvaged, the record is left out instead.
    fn read(&mut self, engine: &Engine, in_tables: &Covered) -> Result<ReplaySummary, EngineError> {
        let catalog = engine.shared.catalog();
        let (unknown, covered) = (Cell::new(0), Cell::new(0));
        let mut unreadable = 0;
        // Mostly the next is of the same table.
        let last = Cell::new(None);
        self.updates.clear();
        let (mut start, mut index) = (0, 0);
        while let Some((end, position)) = self.ends.get(index) {
            // What is covered is not looked into: a table of that id may have had other columns then.
            let to_replay = |id| {
                let known = last.get().filter(|known: &Known<'_>| known.id == id);
                let known = known.unwrap_or_else(|| Known::new(id, &catalog, in_tables));
                last.set(Some(known));
                let is_covered = known.in_tables.is_some_and(|set| set.contains(*position));
                unknown.update(|count| count + u64::from(known.table.is_none()));
                covered.update(|count| count + u64::from(known.table.is_some() && is_covered));
                known.table.filter(|_| !is_covered && !known.is_quarantined)
            };
            let record = self.bytes.get(start..*end).unwrap_or_default();
            if let Err(error) = self.updates.read_record(record, to_replay) {
                let what = EngineError::Startup(format!("commit log record ending at {position}: {error}"));
                // The last table that was asked for is the one whose update cannot be read.
                let culprit = last.take().filter(|known| !known.is_quarantined).map(|known| known.id.0);
                match culprit {
                    _ if engine.shared.options().commitlog.salvage => unreadable += 1,
                    // The record is read once more without that table; updates that are read twice change nothing.
                    Some(id) if engine.quarantine.quarantine_unreadable(id, &what) => continue,
                    _ => return Err(what),
                }
            }
            (start, index) = (*end, index + 1);
        }
        let replayed = self.updates.updates().len() as u64;
        Ok(ReplaySummary { replayed, covered: covered.get(), of_dropped_tables: unknown.get(), unreadable })
    }
}
