//! Quarantine: a table that cannot be loaded, replayed or flushed is taken out of service by name, and everything else
//! runs on.
//!
//! A quarantined table answers every read and write with the reason. Its log records move to side files
//! (`side_file.rs`), so that they neither are lost nor keep segments of the log from being used again; until then the
//! log keeps them. A start that finds side files quarantines their table, because without those records its rows would
//! be wrong. Repair (`repair.rs`) and DROP TABLE end a quarantine.

mod flush_failures;
mod side_file;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use commitlog::{LogPosition, Replay};
use memtable::for_each_update;
use model::{KeyRange, Mutation, ReadRange, Table, TableId};
use sstable::SSTableError;
use uuid::Uuid;

use crate::compaction::Compaction;
use crate::error::EngineError;
use crate::hooks::{DiskFailureKind, QuarantineHook};
use crate::lock::lock;
use crate::shared::Shared;
use crate::system::is_system_keyspace;
use crate::table::TableStore;
pub(crate) use flush_failures::{FlushFailures, TRIES};
use side_file::SideFileHead;
pub(crate) use side_file::SideFiles;

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
}

impl Quarantine {
    pub fn new(shared: &Arc<Shared>, compaction: &Arc<Compaction>) -> Quarantine {
        let options = shared.options();
        Quarantine {
            side_files: SideFiles::new(&options.disk, &options.directory),
            flush_failures: FlushFailures::default(),
            shared: Arc::clone(shared),
            compaction: Arc::clone(compaction),
        }
    }

    /// The tables whose last flush failed.
    pub fn flush_failures(&self) -> &FlushFailures {
        &self.flush_failures
    }

    /// Where log records of quarantined tables are.
    pub fn side_files(&self) -> &SideFiles {
        &self.side_files
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
        all.sort_by(|a, b| (&a.keyspace, &a.table).cmp(&(&b.keyspace, &b.table)));
        all
    }

    /// What becomes of a table whose flush failed: quarantined where the fault is its own, or where the disk refused it
    /// several times in a row and it keeps what all others need. Returns the error that the flush ends with.
    pub fn contain(&self, store: &Arc<TableStore>, error: EngineError) -> EngineError {
        let tries = self.flush_failures.note(store.table.load().id, &error);
        let is_refused = DiskFailureKind::of(&error).is_some() && tries >= TRIES;
        let is_to_go = is_of_one_table(&error) || is_refused && self.is_in_the_way(store);
        // Where it cannot be quarantined it stays as it was: the flush is tried again, and so is this.
        if is_to_go && self.quarantine(store, &error).is_ok() { store.refusal() } else { error }
    }

    /// Whether the table's memtables keep segments of a log that is short of them, or memory is short and no other
    /// table holds more of it.
    fn is_in_the_way(&self, store: &TableStore) -> bool {
        let id = store.table.load().id;
        let pins_the_log = self.shared.log().pressure().is_some_and(|pressure| pressure.tables.contains(&id.0));
        let own_bytes = store.used_bytes();
        let is_largest = || self.shared.stores().iter().all(|other| other.used_bytes() <= own_bytes);
        pins_the_log || self.shared.pool().wants_flush() && is_largest()
    }

    /// Takes a table out of service and moves its log records to a side file. Fails, and leaves the table as it is,
    /// where those cannot be written. Tables of the system cannot be quarantined: nothing works without them.
    pub fn quarantine(&self, store: &Arc<TableStore>, reason: &EngineError) -> Result<(), EngineError> {
        let table = store.table.load_full();
        if is_system_keyspace(&table.keyspace) {
            return Err(reason.clone());
        }
        let _no_flush = lock(&store.flushing);
        if !store.is_served() {
            return Ok(());
        }
        store.set_quarantined(reason);
        // Writers look at the state inside their group: whoever enters behind the barrier is refused.
        self.shared.groups().barrier().wait();
        if self.shared.is_replaying() {
            // The log still has everything; it is set aside once the replay is over.
            self.forget_memory(store);
            return Ok(());
        }
        let moved = self.shared.log().sync().map_err(|error| self.shared.log_failed(error));
        if let Err(error) = moved.and_then(|()| self.set_memtables_aside(store, &table, reason)) {
            // The file may have its name already. A later start must not take the table for a quarantined one; where
            // the removal fails too, a truncation removes the file before it acts.
            let _ = self.side_files.remove(table.id);
            store.end_quarantine();
            return Err(error);
        }
        self.forget_memory(store);
        self.flush_failures.forget(table.id);
        self.compaction.note(table.id, None);
        if let Some(QuarantineHook(hook)) = &self.shared.options().on_quarantine {
            hook(&store.refusal());
        }
        self.shared.forget_log(table.id, self.shared.log().position())
    }

    fn forget_memory(&self, store: &Arc<TableStore>) {
        debug_assert!(!store.is_served(), "nobody reads or writes what is forgotten");
        store.view().generations().for_each(|generation| generation.release(self.shared.pool()));
        let active = self.shared.new_generation(&store.table.load_full(), None);
        active.lower(self.shared.log());
        store.forget(active);
    }

    fn head_of(&self, table: &Table, reason: &EngineError) -> SideFileHead {
        let (keyspace, name) = (table.keyspace.to_string(), table.name.to_string());
        SideFileHead { id: table.id, keyspace, table: name, reason: reason.to_string() }
    }

    /// Writes what memtables hold to a side file: the log's records of the table, merged, and what was not logged.
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

    /// After a replay: moves the log's records of quarantined tables, as far as SSTables and truncations do not cover
    /// them, to side files. `replay` is a second reading of the same log.
    pub fn set_replayed_aside(
        &self,
        replay: Replay,
        is_covered: impl Fn(TableId, LogPosition) -> bool,
    ) -> Result<(), EngineError> {
        let stores = self.shared.stores();
        let quarantined = stores.iter().filter_map(|store| {
            let (reason, table) = (store.quarantine_reason()?, store.table.load_full());
            Some((table.id, self.head_of(&table, &reason)))
        });
        let heads: HashMap<TableId, SideFileHead> = quarantined.collect();
        if heads.is_empty() {
            return Ok(());
        }
        let mut files = HashMap::new();
        let mut replay = replay.only(heads.keys().map(|id| id.0).collect());
        let startup = |error: String| EngineError::Startup(error);
        while let Some(record) = replay.next_record().map_err(|error| startup(error.to_string()))? {
            let damaged = |error| startup(format!("commit log record ending at {}: {error}", record.position));
            for update in Mutation::split_record(record.data) {
                let (id, bytes) = update.map_err(damaged)?;
                let Some(head) = heads.get(&id).filter(|_| !is_covered(id, record.position)) else { continue };
                let file = match files.remove(&id) {
                    None => self.side_files.create(head)?,
                    Some(file) => file,
                };
                files.entry(id).or_insert(file).append(bytes)?;
            }
        }
        for (_, file) in files {
            file.finish()?;
        }
        let end = self.shared.log().position();
        heads.keys().try_for_each(|id| self.shared.forget_log(*id, end))
    }

    /// Why a start has to quarantine the table, if records of it were set aside before.
    pub fn set_aside_before(&self, id: TableId) -> Result<Option<EngineError>, EngineError> {
        let Some(path) = self.side_files.of_table(id)?.into_iter().next() else { return Ok(None) };
        let why = match self.side_files.open(&path) {
            Ok((head, _)) => head.reason,
            Err(error) => error.to_string(),
        };
        Ok(Some(EngineError::SetAside { path, reason: why }))
    }

    /// Quarantines the table of an update that could not be read. False if there is none, or it is a system's.
    pub fn quarantine_unreadable(&self, id: Uuid, reason: &EngineError) -> bool {
        let stores = self.shared.stores();
        let store = stores.iter().find(|store| store.table.load().id.0 == id && store.is_served());
        store.is_some_and(|store| self.quarantine_in_group(store, reason))
    }

    /// As [`quarantine`](Self::quarantine) during a replay, for a caller that is in a write group and so cannot wait
    /// for a barrier. What it or others still apply to the memtables goes with them.
    fn quarantine_in_group(&self, store: &Arc<TableStore>, reason: &EngineError) -> bool {
        let may_be = self.shared.is_replaying() && !is_system_keyspace(&store.table.load().keyspace);
        if may_be {
            store.set_quarantined(reason);
        }
        may_be
    }

    /// Gives back the memory of tables that were quarantined during a replay, which is over.
    pub fn forget_unreadable(&self) {
        let stores = self.shared.stores();
        let quarantined = stores.iter().filter(|store| store.quarantine_reason().is_some());
        quarantined.for_each(|store| self.forget_memory(store));
    }
}

/// Whether a failed flush says something of this table alone: its data or options cannot be stored, or what it has
/// stored is damaged.
fn is_of_one_table(error: &EngineError) -> bool {
    match error {
        EngineError::SSTable(error) => !matches!(&**error, SSTableError::Disk(_)),
        EngineError::Read(error) => DiskFailureKind::of_read(error) == Some(DiskFailureKind::Corruption),
        _ => false,
    }
}
