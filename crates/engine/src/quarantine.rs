//! Quarantine: a table that cannot be loaded, replayed or flushed is taken out of service, and all others stay in
//! service.
//!
//! Every read and write of a quarantined table fails with the reason. Its log records move to side files
//! (`side_file.rs`), so that they are not lost and the log can reuse its segments; until then the log keeps them. A
//! start that finds side files quarantines their table, because without those records its rows would be wrong. Repair
//! (`recovery/repair.rs`) and DROP TABLE end a quarantine.

mod flush_failures;
mod indispensable;
mod side_file;
#[cfg(test)]
mod tests;
mod unreadable;

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

use commitlog::{LogPosition, Replay};
use memtable::for_each_update;
use model::{KeyRange, Mutation, PartitionUpdate, ReadRange, Table, TableId};
use sstable::SSTableError;
use uuid::Uuid;

use crate::compaction::Compaction;
use crate::error::EngineError;
use crate::hooks::{DiskFailureKind, QuarantineHook};
use crate::lock::lock;
use crate::shared::Shared;
use crate::table::TableStore;
pub(crate) use flush_failures::{FlushFailures, TRIES};
pub(crate) use indispensable::{is_indispensable, refusal};
pub(crate) use side_file::SideFiles;
use side_file::{SideFileHead, SideFileWriter};

/// A table that is not served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuarantinedTable {
    /// The keyspace.
    pub keyspace: String,
    /// The table.
    pub table: String,
    /// Why.
    pub reason: String,
    /// Where its log records are, if it had any.
    pub side_files: Vec<PathBuf>,
}

/// Takes tables out of service.
pub(crate) struct Quarantine {
    shared: Arc<Shared>,
    compaction: Arc<Compaction>,
    flush_failures: FlushFailures,
    side_files: SideFiles,
    /// Held while the side files of quarantined tables grow, or are applied or removed.
    moving: Mutex<()>,
    /// Held while side files are written, and from the start of a quarantine until it is complete or undone. So two
    /// writers do not take the same name, and a part of a large batch is set aside only for a table that stays
    /// quarantined: an undone quarantine removes the table's side files. No member of a write group takes it.
    writing: Mutex<()>,
}

impl Quarantine {
    pub fn new(shared: &Arc<Shared>, compaction: &Arc<Compaction>) -> Quarantine {
        let options = shared.options();
        Quarantine {
            side_files: SideFiles::new(&options.disk, &options.directory),
            flush_failures: FlushFailures::default(),
            moving: Mutex::default(),
            writing: Mutex::default(),
            shared: Arc::clone(shared),
            compaction: Arc::clone(compaction),
        }
    }

    /// The tables whose last flush failed.
    pub fn flush_failures(&self) -> &FlushFailures {
        &self.flush_failures
    }

    /// The files with log records of quarantined tables.
    pub fn side_files(&self) -> &SideFiles {
        &self.side_files
    }

    /// Held while the side files of quarantined tables grow, or are applied or removed.
    pub fn moving(&self) -> &Mutex<()> {
        &self.moving
    }

    /// The tables that are not served, by keyspace and name.
    pub fn tables(&self) -> Vec<QuarantinedTable> {
        let quarantined = |store: &Arc<TableStore>| {
            let (reason, table) = (store.quarantine_reason()?, store.table.load());
            let (keyspace, name) = (table.keyspace.to_string(), table.name.to_string());
            let side_files = self.side_files.of_table(table.id).unwrap_or_default();
            Some(QuarantinedTable { keyspace, table: name, reason: reason.to_string(), side_files })
        };
        let mut all: Vec<_> = self.shared.stores().iter().filter_map(quarantined).collect();
        all.extend(self.unreadable_tables());
        all.sort_by(|a, b| (&a.keyspace, &a.table).cmp(&(&b.keyspace, &b.table)));
        all
    }

    /// Handles a failed flush: the table is quarantined if the failure is specific to it, or if the disk refused its
    /// flush several times in a row and it occupies log space or memory that all others need. Returns the error of the
    /// flush.
    pub fn contain(&self, store: &Arc<TableStore>, error: EngineError) -> EngineError {
        let tries = self.flush_failures.note(store.table.load().id, &error);
        let is_refused = DiskFailureKind::of(&error).is_some() && tries >= TRIES;
        let is_to_go = is_of_one_table(&error) || is_refused && self.blocks_others(store);
        // A table that cannot be quarantined stays as it was: the flush is retried, and then this.
        if is_to_go && self.quarantine(store, &error).is_ok() { store.refusal() } else { error }
    }

    /// Whether the table's memtables keep segments of a log that is short of them, or memory is short and no other
    /// table holds more of it.
    fn blocks_others(&self, store: &TableStore) -> bool {
        let id = store.table.load().id;
        let pins_the_log = self.shared.log().pressure().is_some_and(|pressure| pressure.tables.contains(&id.0));
        let own_bytes = store.used_bytes();
        let is_largest = || self.shared.stores().iter().all(|other| other.used_bytes() <= own_bytes);
        pins_the_log || self.shared.pool().wants_flush() && is_largest()
    }

    /// Takes a table out of service and moves its log records to a side file. Fails, and leaves the table as it is, if
    /// those cannot be written. Indispensable tables cannot be quarantined.
    pub fn quarantine(&self, store: &Arc<TableStore>, reason: &EngineError) -> Result<(), EngineError> {
        let table = store.table.load_full();
        if is_indispensable(&table) {
            return Err(reason.clone());
        }
        let _no_flush = lock(&store.flushing);
        if !store.is_served() {
            return Ok(());
        }
        let one_writer = lock(&self.writing);
        store.set_quarantined(reason);
        // Writers check the state inside their group: those that enter after the barrier are refused.
        self.shared.groups().barrier().wait();
        if self.shared.is_replaying() {
            // The log still has all records; they are set aside once the replay is over.
            self.forget_memory(store);
            return Ok(());
        }
        let moved = self.shared.log().sync().map_err(|error| self.shared.log_failed(error));
        if let Err(error) = moved.and_then(|()| self.set_memtables_aside(store, &table, reason)) {
            // The file may have its name already. A later start must not take the table for a quarantined one; if the
            // removal fails too, a truncation removes the file before it acts.
            let _ = self.side_files.remove(table.id);
            store.end_quarantine();
            return Err(error);
        }
        drop(one_writer);
        self.forget_memory(store);
        self.flush_failures.forget(table.id);
        self.compaction.note(table.id, None);
        if let Some(QuarantineHook(hook)) = &self.shared.options().on_quarantine {
            hook(&store.refusal());
        }
        self.shared.forget_log(table.id, self.shared.log().position())
    }

    fn forget_memory(&self, store: &Arc<TableStore>) {
        debug_assert!(!store.is_served(), "a forgotten table is not read or written");
        store.view().generations().for_each(|generation| generation.release(self.shared.pool()));
        let active = self.shared.new_generation(&store.table.load_full(), None);
        active.lower(self.shared.log());
        store.forget(active);
    }

    fn head_of(&self, table: &Table, reason: &EngineError) -> SideFileHead {
        let (keyspace, name) = (table.keyspace.to_string(), table.name.to_string());
        SideFileHead { id: table.id, keyspace, table: name, reason: reason.to_string() }
    }

    /// Writes the content of memtables to a side file: the log's records of the table, merged, and unlogged writes. The
    /// caller holds `writing`.
    fn set_memtables_aside(
        &self,
        store: &Arc<TableStore>,
        table: &Arc<Table>,
        reason: &EngineError,
    ) -> Result<(), EngineError> {
        let view = store.view();
        if view.generations().all(|generation| generation.memtable.is_empty()) {
            return Ok(());
        }
        let mut file = self.side_files.create(&self.head_of(table, reason))?;
        for generation in view.generations() {
            let mut cursor = generation.memtable.clone().cursor(table, &ReadRange::all_rows(KeyRange::all()));
            for_each_update(&mut *cursor, table, |update| file.append(update.as_bytes()))?;
        }
        file.finish().map(|_| ())
    }

    /// After a replay: moves the log's records of quarantined tables to side files, except those that SSTables and
    /// truncations cover. `replay` is a second reading of the same log. `unknown` are tables with records in the log
    /// that the schema does not have.
    pub fn set_replayed_aside(
        &self,
        replay: Replay,
        unknown: BTreeSet<TableId>,
        is_covered: impl Fn(TableId, LogPosition) -> bool,
    ) -> Result<(), EngineError> {
        let unknown = self.heads_of_unknown(unknown)?;
        let mut aside = self.set_aside();
        unknown.into_iter().for_each(|head| _ = aside.heads.entry(head.id).or_insert(head));
        if aside.heads.is_empty() {
            return Ok(());
        }
        let mut replay = replay.only(aside.heads.keys().map(|id| id.0).collect());
        let startup = |error: String| EngineError::Startup(error);
        while let Some(record) = replay.next_record().map_err(|error| startup(error.to_string()))? {
            let damaged = |error| startup(format!("commit log record ending at {}: {error}", record.position));
            for update in Mutation::split_record(record.data) {
                let (id, bytes) = update.map_err(damaged)?;
                if !is_covered(id, record.position) {
                    aside.append(id, bytes)?;
                }
            }
        }
        let end = self.shared.log().position();
        aside.finish()?.into_iter().try_for_each(|id| self.shared.forget_log(id, end))
    }

    /// Writes the updates of quarantined tables in a record of a kept batch to side files, durably.
    pub fn set_batch_aside(&self, record: &[u8], is_gone: impl Fn(TableId) -> bool) -> Result<(), EngineError> {
        let mut aside = self.set_aside();
        for update in Mutation::split_record(record) {
            let (id, bytes) = update.map_err(|error| EngineError::Startup(error.to_string()))?;
            if !is_gone(id) {
                aside.append(id, bytes)?;
            }
        }
        aside.finish().map(|_| ())
    }

    /// Writes an update of a quarantined table to a side file, durably. Returns false, and does nothing, if the table
    /// is served or gone. Waits for repairs and for drops of quarantined tables.
    pub fn set_part_aside(&self, update: &PartitionUpdate) -> Result<bool, EngineError> {
        let _no_repair = lock(&self.moving);
        let mut aside = self.set_aside();
        let is_quarantined = aside.heads.contains_key(&update.table().id);
        if is_quarantined {
            aside.append(update.table().id, update.as_bytes())?;
        }
        aside.finish().map(|_| is_quarantined)
    }

    fn set_aside(&self) -> SetAside<'_> {
        // First, so that no quarantine is half-way.
        let one_writer = lock(&self.writing);
        let stores = self.shared.stores();
        let quarantined = stores.iter().filter_map(|store| {
            let (reason, table) = (store.quarantine_reason()?, store.table.load_full());
            Some((table.id, self.head_of(&table, &reason)))
        });
        let heads = quarantined.chain(self.heads_of_unreadable()).collect();
        SetAside { side_files: &self.side_files, heads, files: HashMap::new(), _one_writer: one_writer }
    }

    /// The reason why a start has to quarantine the table, if records of it were set aside before.
    pub fn set_aside_before(&self, id: TableId) -> Result<Option<EngineError>, EngineError> {
        let Some(path) = self.side_files.of_table(id)?.into_iter().next() else { return Ok(None) };
        let why = match self.side_files.open(&path) {
            Ok((head, _)) => head.reason,
            Err(error) => error.to_string(),
        };
        Ok(Some(EngineError::SetAside { path, reason: why }))
    }

    /// Quarantines the table of an update that could not be read. Returns false if there is none, or it is
    /// indispensable.
    pub fn quarantine_unreadable(&self, id: Uuid, reason: &EngineError) -> bool {
        let stores = self.shared.stores();
        let store = stores.iter().find(|store| store.table.load().id.0 == id && store.is_served());
        store.is_some_and(|store| self.quarantine_in_group(store, reason))
    }

    /// Like [`quarantine`](Self::quarantine) during a replay, for a caller that is in a write group and so cannot wait
    /// for a barrier. Whatever is still applied to the memtables is discarded with them.
    fn quarantine_in_group(&self, store: &Arc<TableStore>, reason: &EngineError) -> bool {
        let may_be = self.shared.is_replaying() && !is_indispensable(&store.table.load());
        if may_be {
            store.set_quarantined(reason);
        }
        may_be
    }

    /// Frees the memory of tables that were quarantined during a replay, which is over.
    pub fn forget_unreadable(&self) {
        let stores = self.shared.stores();
        let quarantined = stores.iter().filter(|store| store.quarantine_reason().is_some());
        quarantined.for_each(|store| self.forget_memory(store));
    }
}

/// Side files that are being written, of all tables that are quarantined.
struct SetAside<'e> {
    side_files: &'e SideFiles,
    heads: HashMap<TableId, SideFileHead>,
    files: HashMap<TableId, SideFileWriter>,
    _one_writer: MutexGuard<'e, ()>,
}

impl SetAside<'_> {
    /// Adds an update, if its table is quarantined.
    fn append(&mut self, id: TableId, update: &[u8]) -> Result<(), EngineError> {
        let Some(head) = self.heads.get(&id) else { return Ok(()) };
        match self.files.entry(id) {
            Entry::Occupied(file) => file.into_mut().append(update),
            Entry::Vacant(place) => place.insert(self.side_files.create(head)?).append(update),
        }
    }

    /// Makes the added updates durable. Returns the quarantined tables.
    fn finish(self) -> Result<Vec<TableId>, EngineError> {
        for (_, file) in self.files {
            file.finish()?;
        }
        Ok(self.heads.into_keys().collect())
    }
}

/// Whether the cause of a failed flush is this table alone: its data or options cannot be stored, or its stored data is
/// damaged.
fn is_of_one_table(error: &EngineError) -> bool {
    match error {
        EngineError::SSTable(error) => !matches!(&**error, SSTableError::Disk(_)),
        EngineError::Read(error) => DiskFailureKind::of_read(error) == Some(DiskFailureKind::Corruption),
        _ => false,
    }
}
