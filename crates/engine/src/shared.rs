//! The state that all components of the engine share: the schema with its tables' stores, the log, the write groups,
//! memory, files, the clock and the settings.
//!
//! It starts nothing by itself: threads, flushes, merges and writes belong to the components, which hold it by an
//! `Arc`. It is thread-safe.

mod groups;

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use blockio::{BlockWrites, DirectoryLock};
use commitlog::{CommitLog, LogError, LogPosition, PositionInterval};
use memtable::{AddressSpace, SkipListMemtable, SparePages};
use model::{PartitionUpdate, Schema, Table, TableId};
use sstable::{SizeLimits, SizeWatch};
use uuid::Uuid;

use crate::error::EngineError;
use crate::files::TableFiles;
use crate::hooks::{DiskFailureKind, IndexBuildNotice};
use crate::lock::lock;
use crate::options::EngineOptions;
use crate::system::is_system_keyspace;
use crate::table::by_table_id::ByTableId;
use crate::table::in_memory::Resident;
use crate::table::indexes::MemtableIndexes;
use crate::table::{Generation, MemtablePool, TableStore, View};

#[cfg(test)]
pub(crate) use groups::Barrier;
pub(crate) use groups::{Membership, WriteGroups};

/// The state that all components share.
pub(crate) struct Shared {
    options: EngineOptions,
    catalog: ArcSwap<Catalog>,
    groups: WriteGroups,
    pool: MemtablePool,
    spare_pages: Arc<SparePages>,
    address_space: Arc<AddressSpace>,
    files: TableFiles,
    log: CommitLog,
    shut_down: AtomicBool,
    /// True until the log was read to its end.
    replaying: AtomicBool,
    last_timestamp_micros: AtomicI64,
    faults: Mutex<Vec<String>>,
    /// See [`note_flushed_by_replay`](Shared::note_flushed_by_replay).
    flushed_by_replay: Mutex<HashSet<TableId>>,
    /// Excludes other processes.
    _directory: DirectoryLock,
}

/// Tables' stores.
pub(crate) type Stores = HashMap<TableId, Arc<TableStore>, ByTableId>;

/// The schema and the data that belongs to it.
pub(crate) struct Catalog {
    schema: Arc<Schema>,
    stores: Stores,
}

impl Catalog {
    /// The store of a table. Fails if it is quarantined or gone, even if another table has its id.
    pub fn store(&self, table: &Table) -> Result<&Arc<TableStore>, EngineError> {
        let store = self.stores.get(&table.id).filter(|store| store.incarnation == table.incarnation());
        match store {
            Some(store) if store.is_served() => Ok(store),
            Some(store) => Err(store.refusal()),
            None => Err(EngineError::UnknownTable(table.name.to_string())),
        }
    }

    /// The store of a table id, served or not.
    pub fn any_store(&self, id: TableId) -> Option<&Arc<TableStore>> {
        self.stores.get(&id)
    }

    /// The schema.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// The stores of its tables, served or not.
    pub fn stores(&self) -> &Stores {
        &self.stores
    }
}

/// The schema as it was when this was made.
pub struct BorrowedSchema(arc_swap::Guard<Arc<Catalog>>);

impl std::ops::Deref for BorrowedSchema {
    type Target = Schema;

    fn deref(&self) -> &Schema {
        &self.0.schema
    }
}

impl BorrowedSchema {
    pub(crate) fn catalog(&self) -> &Catalog {
        &self.0
    }
}

impl Shared {
    /// Creates the state with an empty catalog of this schema.
    pub fn new(
        options: EngineOptions,
        schema: Schema,
        files: TableFiles,
        log: CommitLog,
        directory: DirectoryLock,
    ) -> Shared {
        let catalog = Catalog { schema: Arc::new(schema), stores: Stores::default() };
        Shared {
            catalog: ArcSwap::from_pointee(catalog),
            groups: WriteGroups::new(),
            pool: MemtablePool::new(options.memtable_space_bytes, options.memtable_cleanup_threshold),
            spare_pages: Arc::new(SparePages::new(options.memtable_space_bytes as usize)),
            address_space: Arc::default(),
            files,
            log,
            shut_down: AtomicBool::new(false),
            replaying: AtomicBool::new(true),
            last_timestamp_micros: AtomicI64::new(0),
            faults: Mutex::default(),
            flushed_by_replay: Mutex::default(),
            _directory: directory,
            options,
        }
    }

    /// The damage that the start found besides quarantined tables, and how it was handled.
    pub fn faults(&self) -> Vec<String> {
        lock(&self.faults).clone()
    }

    /// Notes such damage.
    pub fn note_fault(&self, fault: String) {
        lock(&self.faults).push(fault);
    }

    /// Makes a schema with the stores of its tables the current one. Returns the previous one.
    pub fn publish(&self, schema: &Arc<Schema>, stores: Stores) -> Arc<Catalog> {
        self.catalog.swap(Arc::new(Catalog { schema: schema.clone(), stores }))
    }

    /// Notes that the log was read to its end.
    pub fn end_replay(&self) {
        self.replaying.store(false, Ordering::Release);
    }

    /// Refuses writes from now on.
    pub fn begin_shutdown(&self) {
        self.shut_down.store(true, Ordering::Release);
    }

    /// Makes later timestamps greater than this one, microseconds.
    pub fn note_timestamp(&self, micros: i64) {
        self.last_timestamp_micros.fetch_max(micros, Ordering::Relaxed);
    }

    /// An empty memtable.
    pub fn new_generation(&self, table: &Arc<Table>, resident: Option<Arc<Resident>>) -> Arc<Generation> {
        let memtable = if is_system_keyspace(&table.keyspace) {
            memtable::open_small(table)
        } else {
            let configuration = self.options.memtable_configuration(&table.options.memtable);
            configuration.open(table, self.options.memtable_shards, &self.address_space, &self.spare_pages)
        };
        Generation::new(memtable, resident, self.new_indexes(table), self.now_millis())
    }

    fn new_indexes(&self, table: &Table) -> Option<Box<MemtableIndexes>> {
        MemtableIndexes::of(table, self.options.memtable_shards)
    }

    /// An empty memtable that reserves no address space.
    pub fn new_skip_list(&self, table: &Arc<Table>, resident: Option<Arc<Resident>>) -> Arc<Generation> {
        let memtable = Arc::new(SkipListMemtable::new(table));
        Generation::new(memtable, resident, self.new_indexes(table), self.now_millis())
    }

    /// The memory of dropped memtables.
    pub fn spare_pages(&self) -> &SparePages {
        &self.spare_pages
    }

    /// The current schema.
    pub fn schema(&self) -> Arc<Schema> {
        self.catalog.load().schema.clone()
    }

    /// Like [`Engine::schema`], for the length of a request: reading it writes to no memory that other threads use.
    pub fn borrow_schema(&self) -> BorrowedSchema {
        BorrowedSchema(self.catalog.load())
    }

    pub fn catalog(&self) -> arc_swap::Guard<Arc<Catalog>> {
        self.catalog.load()
    }

    /// The node's id, which its log and its SSTables carry.
    pub fn host_id(&self) -> Uuid {
        self.log.host_id()
    }

    /// How SSTables are written to the device, as a start found out.
    pub fn sstable_writes(&self) -> &BlockWrites {
        self.files.writes()
    }

    /// The settings.
    pub fn options(&self) -> &EngineOptions {
        &self.options
    }

    /// Microseconds since the epoch, greater than all values that this returned before.
    pub fn next_timestamp_micros(&self) -> i64 {
        self.next_timestamp_from(micros_since_epoch())
    }

    /// Like [`next_timestamp_micros`](Self::next_timestamp_micros), for a caller that has just read the clock.
    pub fn next_timestamp_from(&self, now: i64) -> i64 {
        let last = self.last_timestamp_micros.fetch_max(now, Ordering::Relaxed);
        if last < now { now } else { self.last_timestamp_micros.fetch_add(1, Ordering::Relaxed) + 1 }
    }

    pub fn now_millis(&self) -> i64 {
        micros_since_epoch() / 1000
    }

    pub fn now_seconds(&self) -> u32 {
        (micros_since_epoch() / 1_000_000) as u32
    }

    /// Whether the log is still being read.
    pub fn is_replaying(&self) -> bool {
        self.replaying.load(Ordering::Acquire)
    }

    pub fn store(&self, table: &Table) -> Result<Arc<TableStore>, EngineError> {
        self.catalog.load().store(table).cloned()
    }

    pub fn stores(&self) -> Vec<Arc<TableStore>> {
        self.catalog.load().stores.values().cloned().collect()
    }

    pub fn log(&self) -> &CommitLog {
        &self.log
    }

    pub fn groups(&self) -> &WriteGroups {
        &self.groups
    }

    pub fn pool(&self) -> &MemtablePool {
        &self.pool
    }

    pub fn files(&self) -> &TableFiles {
        &self.files
    }

    pub fn log_failed(&self, error: LogError) -> EngineError {
        EngineError::ClosedForWrites(error.to_string())
    }

    /// The error of a write of these updates that the log does not take.
    pub fn not_appended(&self, updates: &[PartitionUpdate], error: LogError) -> EngineError {
        match error {
            LogError::TooLarge { size_bytes, max_bytes } => EngineError::too_large(updates, size_bytes, max_bytes),
            error => self.log_failed(error),
        }
    }

    pub fn find_table(&self, keyspace: &str, name: &str) -> Arc<Table> {
        self.schema().table(keyspace, name).expect("system tables are part of every schema").clone()
    }

    /// Fails if the node was started read-only.
    pub fn check_writable(&self) -> Result<(), EngineError> {
        match self.options.read_only {
            true => Err(EngineError::ClosedForWrites("it was started with --read-only".into())),
            false => Ok(()),
        }
    }

    /// Fails after a shutdown began.
    pub fn check_running(&self) -> Result<(), EngineError> {
        match self.shut_down.load(Ordering::Acquire) {
            true => Err(EngineError::ClosedForWrites("it was shut down".into())),
            false => Ok(()),
        }
    }

    /// Freezes the active memtable and returns its successor. Writes into the frozen memtable may continue until a
    /// barrier is passed: see [`crate::write`].
    pub fn retire_active(&self, store: &TableStore) -> Arc<Generation> {
        store.retire(self.log(), |table| self.new_generation(table, store.resident()))
    }

    /// The generation that replaces a full one.
    ///
    /// An empty memtable is full if the system refuses it address space, or if a single write is too large for it.
    /// Another memtable of its kind would be full too, so a skip list follows, which reserves nothing: the record is in
    /// the log already and must be applied.
    pub fn successor(&self, store: &TableStore, full: &Arc<Generation>) -> Arc<Generation> {
        let resident = full.resident.clone();
        let is_refused = full.memtable.is_empty();
        store.successor(full, self.log(), |table| match is_refused {
            true => self.new_skip_list(table, resident),
            false => self.new_generation(table, resident),
        })
    }

    /// The sizes that are reported of a table's new SSTables. As in Cassandra, collections of system tables are not
    /// reported.
    pub fn size_watch(&self, table: &Table) -> Option<SizeWatch> {
        let EngineOptions { size_limits, size_hook, .. } = self.options();
        let limits = if is_system_keyspace(&table.keyspace) { size_limits.without_collections() } else { *size_limits };
        let hook = size_hook.clone().filter(|_| limits != SizeLimits::default())?;
        Some(SizeWatch { limits, now_seconds: self.now_seconds(), hook })
    }

    /// Tells the log that the table needs no records up to `position`.
    pub fn forget_log(&self, table: TableId, position: LogPosition) -> Result<(), EngineError> {
        let interval = PositionInterval { start: LogPosition::NONE, end: position };
        self.log().flushed(table.0, interval).map_err(|error| self.log_failed(error))
    }

    /// Reports a disk failure of a request. The engine itself reports those of its background work.
    pub fn disk_failed(&self, kind: DiskFailureKind, message: &str) {
        if let Some(hook) = &self.options().on_disk_failure {
            (hook.0)(kind, message);
        }
    }

    /// Reports the error if it is a failure of the disk.
    pub fn report_failure(&self, error: &EngineError) {
        if let Some(kind) = DiskFailureKind::of(error) {
            self.disk_failed(kind, &error.to_string());
        }
    }

    /// Reports a step of the building of indexes.
    pub fn report_index_build(&self, notice: &IndexBuildNotice) {
        if let Some(notices) = &self.options().index_build_notices {
            (notices.0)(notice);
        }
    }

    /// Reports that an index of the table cannot be built now.
    pub fn report_index_failure(&self, table: &Table, error: &EngineError) {
        let text = format!("an index of {}.{} cannot be built: {error}", table.keyspace, table.name);
        self.disk_failed(DiskFailureKind::Index, &text);
    }

    /// The least timestamp of a table's rows that the host keeps outside of the engine, microseconds; `i64::MAX` if it
    /// keeps none.
    pub fn oldest_of_host(&self, table: model::TableId) -> i64 {
        self.options().host_rows.as_ref().map_or(i64::MAX, |rows| rows.oldest_timestamp(table))
    }

    /// Whether SSTables of the table may hold rows whose records are still in the log and that no SSTable covers. Such
    /// SSTables were flushed from full memtables, or during a replay. The next start replays such rows, so that the
    /// deletions that shadow them must stay, even if they were merged with the rows. Call this before a merge begins:
    /// later writes are not among its inputs.
    pub fn has_uncovered(&self, table: model::TableId, view: &View) -> bool {
        view.has_uncovered()
            || self.log().replayed_tables().contains(&table.0)
            || lock(&self.flushed_by_replay).contains(&table) && self.log().has_replayed_segments()
    }

    /// Notes a table whose replayed records are all in SSTables. These may not cover the records, because nothing is
    /// left to flush that would cover them. As long as another table needs these records' segments, the next start
    /// replays them again.
    pub fn note_flushed_by_replay(&self, table: TableId) {
        lock(&self.flushed_by_replay).insert(table);
    }

    /// Whether the log is so short of room that only flushes make some.
    pub fn is_log_full(&self) -> bool {
        self.log.pressure().is_some_and(|pressure| pressure.free_segments == 0)
    }

    /// The directory of a table.
    pub fn directory_of(&self, keyspace: &str, table: &str, id: TableId) -> PathBuf {
        let name = format!("{table}-{}", id.0.simple());
        self.options.directory.join("data").join(keyspace).join(name)
    }
}

fn micros_since_epoch() -> i64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    elapsed.as_micros() as i64
}
