//! The engine itself: what it consists of, opening and closing.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use blockio::OverlayDisk;
use commitlog::{BlockWrites, CommitLog, LogError, LogHold, LogMetrics, QueueMeans, Replay, ReplayReport};
use memtable::{AddressSpace, SkipListMemtable, SparePages};
use model::{Keyspace, Mutation, PartitionUpdate, Schema, Table, TableId};
use sstable::SSTableReader;
use uuid::Uuid;

use crate::compaction::Compactor;
use crate::error::EngineError;
use crate::files::{Opened, TableFiles, keep_found_names};
use crate::flush::background::Flusher;
use crate::flush::failures::FlushFailures;
use crate::in_memory::{Purger, Resident, memory_only};
use crate::lock::lock;
use crate::options::EngineOptions;
use crate::quarantine::SideFiles;
use crate::recovery::log_host::LogHost;
use crate::recovery::{Bunch, Covered, Recovery, ReplaySummary};
use crate::schema::change::Keyspaces;
use crate::schema::schema_rows::{self, SchemaDamage};
use crate::system::{is_local_system_keyspace, is_system_keyspace, system_keyspaces};
use crate::table::by_table_id::ByTableId;
use crate::table::{Generation, TableStore};
use crate::write::{Finisher, MemtablePool, WriteGroups};

/// Tables that keep what is written to them.
///
/// Thread-safe; everything that may block on the disk says so. Dropping it without [`Engine::shutdown`] is what a crash
/// is: the next start replays the log.
pub struct Engine {
    options: EngineOptions,
    catalog: ArcSwap<Catalog>,
    schema_lock: Mutex<()>,
    groups: WriteGroups,
    pool: MemtablePool,
    spare_pages: Arc<SparePages>,
    address_space: Arc<AddressSpace>,
    files: TableFiles,
    log: CommitLog,
    flusher: Flusher,
    compactor: Compactor,
    finisher: Finisher,
    purger: Purger,
    shut_down: AtomicBool,
    /// Until the log was read to its end.
    replaying: AtomicBool,
    side_files: SideFiles,
    drops_unfinished: AtomicBool,
    tables_dropped: AtomicU64,
    last_timestamp_micros: AtomicI64,
    replayed: ReplaySummary,
    log_report: ReplayReport,
    schema_damage: Vec<SchemaDamage>,
    recovery_time: Duration,
    flush_failures: FlushFailures,
    compaction_failures: Mutex<HashMap<TableId, EngineError>>,
    load_failure: Mutex<Option<EngineError>>,
    leftovers: Mutex<Vec<PathBuf>>,
    _directory: blockio::DirectoryLock,
}

/// Tables' stores.
pub(crate) type Stores = HashMap<TableId, Arc<TableStore>, ByTableId>;

/// The schema and the data that belongs to it.
pub(crate) struct Catalog {
    schema: Arc<Schema>,
    stores: Stores,
}

impl Catalog {
    /// The store of a table; fails if it is quarantined or gone, also where another was made under its id.
    pub fn store(&self, table: &Table) -> Result<&Arc<TableStore>, EngineError> {
        let store = self.stores.get(&table.id).filter(|store| store.incarnation == table.incarnation());
        match store {
            Some(store) if store.is_served() => Ok(store),
            Some(store) => Err(store.refusal()),
            None => Err(EngineError::UnknownTable(table.name.to_string())),
        }
    }

    /// The store that a table id has, served or not.
    pub fn any_store(&self, id: TableId) -> Option<&Arc<TableStore>> {
        self.stores.get(&id)
    }

    /// The schema.
    pub fn schema(&self) -> &Schema {
        &self.schema
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

impl Engine {
    /// Opens the tables under `options.directory`, creating what is not there, and replays the log.
    ///
    /// Fails if another process has the directory open, or with the place of the damage if stored data is damaged.
    pub fn open(mut options: EngineOptions) -> Result<Arc<Engine>, EngineError> {
        if options.read_only {
            options.disk = Arc::new(OverlayDisk::new(options.disk));
            options.concurrent_compactors = 0;
        }
        let disk = options.disk.clone();
        let flusher = Flusher::new(options.memtable_flush_writers);
        let data = options.directory.join("data");
        disk.create_dir_all(&options.directory)?;
        let directory = disk.lock_dir(&options.directory)?;
        keep_found_names(&*disk, &options.directory, &data)?;
        let host = LogHost::new(&disk, &options.directory);
        let keyspaces = system_keyspaces();
        let mut log_options = options.commitlog.clone();
        log_options.preview_tables = tables_to_preview(&keyspaces);
        log_options.on_pressure = Some(flusher.pressure_hook());
        host.claim(&mut log_options, disk.exists(&data)?)?;
        let (log, replay) =
            CommitLog::open(disk.clone(), log_options).map_err(|error| EngineError::Startup(error.to_string()))?;
        host.took(&log)?;
        // Only now: whoever was refused a log was not here.
        disk.create_dir_all(&data)?;
        let files = TableFiles::new(&options, log.host_id());
        let mut engine = Engine {
            catalog: ArcSwap::from_pointee(Catalog {
                schema: Arc::new(Schema::new(Uuid::nil(), keyspaces)),
                stores: Stores::default(),
            }),
            schema_lock: Mutex::new(()),
            groups: WriteGroups::new(),
            pool: MemtablePool::new(options.memtable_space_bytes, options.memtable_cleanup_threshold),
            address_space: Arc::default(),
            spare_pages: Arc::new(SparePages::new(options.memtable_space_bytes as usize)),
            files,
            log,
            flusher,
            compactor: Compactor::new(
                options.concurrent_compactors,
                options.compaction_throughput_bytes,
                options.compaction_look_every,
            ),
            finisher: Finisher::new(),
            purger: Purger::new(),
            shut_down: AtomicBool::new(false),
            replaying: AtomicBool::new(true),
            side_files: SideFiles::new(&disk, &options.directory),
            drops_unfinished: AtomicBool::new(true),
            tables_dropped: AtomicU64::new(0),
            last_timestamp_micros: AtomicI64::new(0),
            replayed: ReplaySummary::default(),
            log_report: ReplayReport::default(),
            schema_damage: Vec::new(),
            recovery_time: Duration::ZERO,
            flush_failures: FlushFailures::default(),
            compaction_failures: Mutex::new(HashMap::new()),
            load_failure: Mutex::new(None),
            leftovers: Mutex::new(Vec::new()),
            _directory: directory,
            options,
        };
        engine.recover(replay)?;
        let engine = Arc::new(engine);
        engine.flusher.start(&engine)?;
        engine.compactor.start(&engine)?;
        engine.finisher.start(&engine)?;
        engine.purger.start(&engine)?;
        engine.finish_batches()?;
        Ok(engine)
    }

    fn recover(&mut self, mut replay: Replay) -> Result<(), EngineError> {
        let started = Instant::now();
        let startup = |error: LogError| EngineError::Startup(error.to_string());
        let mut recovery = Recovery::default();
        self.side_files.remove_unfinished()?;
        self.open_stores(&self.schema())?;
        self.cover(&mut recovery.covered)?;
        let mut preview = replay.preview();
        let mut bunch = Bunch::default();
        while let Some(record) = preview.next_record().map_err(startup)? {
            self.replay_records([(record.data, record.position)].into_iter(), &recovery.covered, &mut bunch)?;
        }
        let stored = self.load_keyspaces()?;
        self.open_schema(&stored.keyspaces)?;
        if !stored.damage.is_empty() {
            // Records of what is left out are passed over.
            replay.keep_copies();
        }
        self.remove_truncated()?;
        self.cover(&mut recovery.covered)?;
        // Before anything is appended.
        self.log.raise_segment_ids(recovery.covered.last_segment()).map_err(startup)?;
        self.settle_in_memory();
        let second_reading = replay.again();
        self.replay_all(&mut replay, &mut recovery)?;
        self.replaying.store(false, Ordering::Release);
        self.forget_unreadable();
        self.set_replayed_aside(second_reading, &recovery.covered)?;
        self.replayed = recovery.summary;
        self.log_report = replay.report().clone();
        self.recovery_time = started.elapsed();
        self.settle_replayed()?;
        self.go_on_from_stored_timestamps()?;
        self.store_system_schema(&stored.keyspaces)?;
        if self.options.commitlog.salvage && !(self.log_report.gaps.is_empty() && stored.damage.is_empty()) {
            self.store_salvaged_schema(&stored)?;
        }
        self.schema_damage = stored.damage;
        // What cannot be deleted of dropped tables is tried again at the next change of the schema, or start.
        self.finish_drops().unwrap_or_else(|error| self.tell_failure(&error));
        self.finish_truncations()?;
        // While the log holds records from before, a start has to know what of them was truncated.
        if self.log.replayed_tables().is_empty() { self.forget_truncations() } else { Ok(()) }
    }

    /// Writes the system keyspaces into `system_schema`, where drivers look for them, unless they are there.
    fn store_system_schema(&self, stored: &[Keyspace]) -> Result<(), EngineError> {
        let missing = |keyspace: &&Arc<Keyspace>| {
            is_system_keyspace(&keyspace.name) && !stored.iter().any(|stored| *stored == ***keyspace)
        };
        let schema = self.schema();
        let missing: Keyspaces = schema
            .keyspaces
            .values()
            .filter(missing)
            .map(|keyspace| (keyspace.name.clone(), keyspace.clone()))
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        let mut updates = Vec::new();
        for keyspace in missing.values() {
            schema_rows::store_keyspace(&schema, keyspace, self.next_timestamp_micros(), &mut updates);
        }
        self.write_durably(Mutation::new(updates))
    }

    /// Opens the tables of the stored schema.
    fn open_schema(&self, stored: &[Keyspace]) -> Result<(), EngineError> {
        let mut keyspaces = system_keyspaces();
        for stored in stored {
            match keyspaces.get_mut(&stored.name).map(Arc::make_mut) {
                None => {
                    keyspaces.insert(stored.name.clone(), Arc::new(stored.clone()));
                }
                // The tables of system keyspaces are those of this version; how they are replicated is the user's.
                Some(defined) if !is_local_system_keyspace(&defined.name) => {
                    defined.replication = stored.replication.clone();
                    defined.durable_writes = stored.durable_writes;
                }
                Some(_) => {}
            }
        }
        let schema = Arc::new(Schema::new(self.stored_schema_version()?, keyspaces));
        self.open_stores(&schema).map(|_| ())
    }

    /// Notes what of the log the SSTables have, and the truncations.
    fn cover(&self, covered: &mut Covered) -> Result<(), EngineError> {
        for (id, store) in &self.catalog.load().stores {
            for sstable in &store.view().sstables {
                covered.add(*id, &self.files.intervals(sstable));
                self.written_up_to(sstable).into_iter().for_each(|end| covered.note(end));
            }
        }
        for (id, position) in self.truncations()? {
            covered.add_truncation(id, position);
        }
        Ok(())
    }

    /// Gives every table of `schema` a store and makes it the current schema; returns the stores of tables that are
    /// gone.
    pub(crate) fn open_stores(&self, schema: &Arc<Schema>) -> Result<Vec<Arc<TableStore>>, EngineError> {
        let stores = self.stores_for(schema)?;
        Ok(self.publish(schema, stores))
    }

    /// A store for every table of `schema`: its own, or one of the SSTables in its directory. Nobody sees it yet.
    pub(crate) fn stores_for(&self, schema: &Schema) -> Result<Stores, EngineError> {
        let old = self.catalog.load();
        let mut stores = Stores::with_capacity_and_hasher(old.stores.len(), ByTableId::default());
        for table in schema.keyspaces.values().flat_map(|keyspace| keyspace.tables.values()) {
            let store = match old.stores.get(&table.id) {
                Some(store) => store.clone(),
                None => self.open_store(table)?,
            };
            stores.insert(table.id, store);
        }
        Ok(stores)
    }

    /// Makes `schema` the current one, with the stores of its tables; returns those of tables that are gone.
    pub(crate) fn publish(&self, schema: &Arc<Schema>, stores: Stores) -> Vec<Arc<TableStore>> {
        for keyspace in schema.keyspaces.values() {
            for table in keyspace.tables.values() {
                let Some(store) = stores.get(&table.id) else { continue };
                let before = store.table.load_full();
                store.alter(table);
                if before.options.compaction != table.options.compaction {
                    self.request_compaction(store);
                }
                if before.options.memtable != table.options.memtable {
                    // Its next memtable is of the new kind.
                    self.request_flush(store);
                }
                store.limit.set(memory_only(table).map(|options| options.size_limit_bytes));
                store.durable_writes.store(Self::is_durable(schema, &keyspace.name), Ordering::Relaxed);
            }
        }
        let old = self.catalog.swap(Arc::new(Catalog { schema: schema.clone(), stores: stores.clone() }));
        let removed = old.stores.iter().filter(|(id, _)| !stores.contains_key(id)).map(|(_, store)| store.clone());
        removed.collect()
    }

    /// The store of a table of the schema; quarantined where its SSTables cannot be opened, or log records of it were
    /// set aside.
    fn open_store(&self, table: &Arc<Table>) -> Result<Arc<TableStore>, EngineError> {
        if is_system_keyspace(&table.keyspace) {
            return self.open_files(table);
        }
        let (store, reason) = match self.open_files(table) {
            Ok(store) => (store, self.set_aside_before(table.id)?),
            // A table that is being made is refused instead.
            Err(failure) if self.options.opens_damaged && self.is_replaying() => {
                (self.new_store(table, Vec::new()), Some(failure))
            }
            Err(failure) => return Err(failure),
        };
        reason.iter().for_each(|reason| store.set_quarantined(reason));
        Ok(store)
    }

    /// A store of the SSTables in the table's directory, which nobody else knows of.
    pub(crate) fn open_files(&self, table: &Arc<Table>) -> Result<Arc<TableStore>, EngineError> {
        let Opened { sstables, failures, leftovers } = self.files.open_all(&self.table_directory(table), table)?;
        lock(&self.leftovers).extend(leftovers);
        failures.iter().for_each(|failure| self.tell_failure(failure));
        match failures.into_iter().next() {
            Some(failure) => Err(failure),
            None => Ok(self.new_store(table, sstables)),
        }
    }

    fn new_store(&self, table: &Arc<Table>, sstables: Vec<Arc<SSTableReader>>) -> Arc<TableStore> {
        let held_bytes = sstables.iter().map(|sstable| sstable.data_length_bytes()).sum();
        let resident = self.new_resident(table, held_bytes);
        resident.iter().filter(|_| sstables.is_empty()).for_each(|resident| resident.set_complete());
        let active = self.new_generation(table, resident);
        active.lower(&self.log);
        Arc::new(TableStore::new(table.clone(), self.table_directory(table), active, sstables))
    }

    fn table_directory(&self, table: &Table) -> PathBuf {
        self.directory_of(&table.keyspace, &table.name, table.id)
    }

    pub(crate) fn directory_of(&self, keyspace: &str, table: &str, id: TableId) -> PathBuf {
        let name = format!("{table}-{}", id.0.simple());
        self.options.directory.join("data").join(keyspace).join(name)
    }

    /// An empty memtable.
    pub(crate) fn new_generation(&self, table: &Arc<Table>, resident: Option<Arc<Resident>>) -> Arc<Generation> {
        let memtable = if is_system_keyspace(&table.keyspace) {
            memtable::open_small(table)
        } else {
            let configuration = self.options.memtable_configuration(&table.options.memtable);
            configuration.open(table, self.options.memtable_shards, &self.address_space, &self.spare_pages)
        };
        Generation::new(memtable, resident, self.now_millis())
    }

    /// An empty memtable that reserves no address space.
    pub(crate) fn new_skip_list(&self, table: &Arc<Table>, resident: Option<Arc<Resident>>) -> Arc<Generation> {
        Generation::new(Arc::new(SkipListMemtable::new(table)), resident, self.now_millis())
    }

    /// Memory that dropped memtables left.
    pub(crate) fn spare_pages(&self) -> &SparePages {
        &self.spare_pages
    }

    /// The schema now.
    pub fn schema(&self) -> Arc<Schema> {
        self.catalog.load().schema.clone()
    }

    /// As [`Engine::schema`], for the length of a request: to look at it writes to no memory that other threads use.
    pub fn borrow_schema(&self) -> BorrowedSchema {
        BorrowedSchema(self.catalog.load())
    }

    pub(crate) fn catalog(&self) -> arc_swap::Guard<Arc<Catalog>> {
        self.catalog.load()
    }

    /// The node's id, which its log and its SSTables carry.
    pub fn host_id(&self) -> Uuid {
        self.log.host_id()
    }

    /// What the start replayed.
    pub fn replay_summary(&self) -> ReplaySummary {
        self.replayed
    }

    /// What the log held when it was opened: records, and with salvage the gaps that were got over.
    pub fn log_report(&self) -> &ReplayReport {
        &self.log_report
    }

    /// What of the schema the start left out, because a salvaged log had a part of it only. Its files stay where they
    /// are.
    pub fn schema_damage(&self) -> &[SchemaDamage] {
        &self.schema_damage
    }

    /// Files of tables' directories that belong to no SSTable, and where the start put them.
    pub fn leftovers(&self) -> Vec<PathBuf> {
        lock(&self.leftovers).clone()
    }

    /// How long reading and replaying the log took.
    pub fn recovery_time(&self) -> Duration {
        self.recovery_time
    }

    /// A hold for writes that go to the log together: see [`Turn::log_hold`](crate::Turn).
    pub fn hold_log(&self) -> LogHold {
        self.log.hold_wake_ups()
    }

    /// The log's counters.
    pub fn log_metrics(&self) -> LogMetrics {
        self.log.metrics()
    }

    /// How the log reaches the device.
    pub fn log_means(&self) -> (BlockWrites, QueueMeans) {
        (self.log.block_writes(), self.log.queue_means().clone())
    }

    /// How long a durable write of one block takes on the log's device. Blocks meanwhile.
    pub fn time_durable_write(&self) -> Result<Duration, EngineError> {
        self.log.time_durable_write().map_err(|error| self.log_failed(error))
    }

    /// How SSTables are written to the device, as a start found out.
    pub fn sstable_writes(&self) -> &BlockWrites {
        self.files.writes()
    }

    /// Why the log takes no more records, if so: it failed, or was shut down.
    pub fn log_closed(&self) -> Option<String> {
        self.log.closed().map(|reason| reason.to_string())
    }

    /// The settings.
    pub fn options(&self) -> &EngineOptions {
        &self.options
    }

    /// Microseconds since the epoch, later than all that this returned before.
    pub fn next_timestamp_micros(&self) -> i64 {
        self.next_timestamp_from(micros_since_epoch())
    }

    /// As [`next_timestamp_micros`](Self::next_timestamp_micros), for who has just looked at the clock.
    pub fn next_timestamp_from(&self, now: i64) -> i64 {
        let last = self.last_timestamp_micros.fetch_max(now, Ordering::Relaxed);
        if last < now { now } else { self.last_timestamp_micros.fetch_add(1, Ordering::Relaxed) + 1 }
    }

    /// A clock that was set back must not make changes of the schema, or truncations, older than those they change.
    fn go_on_from_stored_timestamps(&self) -> Result<(), EngineError> {
        // What was replayed may be in memory only. Each of them writes the node's row as well.
        let newest = crate::system::newest_timestamp(self.read_local()?)?;
        self.last_timestamp_micros.fetch_max(newest, Ordering::Relaxed);
        for store in self.stores() {
            if is_local_system_keyspace(&store.table.load().keyspace) {
                let view = store.view();
                let newest = view.sstables.iter().map(|sstable| sstable.statistics().stats.max_timestamp);
                // An SSTable that has no timestamps at all says the greatest there is.
                let newest = newest.filter(|newest| *newest < i64::MAX).max().unwrap_or(0);
                self.last_timestamp_micros.fetch_max(newest, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    pub(crate) fn now_millis(&self) -> i64 {
        micros_since_epoch() / 1000
    }

    pub(crate) fn now_seconds(&self) -> u32 {
        (micros_since_epoch() / 1_000_000) as u32
    }

    /// Whether the log is still being read.
    pub(crate) fn is_replaying(&self) -> bool {
        self.replaying.load(Ordering::Acquire)
    }

    /// Where log records of quarantined tables are.
    pub(crate) fn side_files(&self) -> &SideFiles {
        &self.side_files
    }

    pub(crate) fn store(&self, table: &Table) -> Result<Arc<TableStore>, EngineError> {
        self.catalog.load().store(table).cloned()
    }

    pub(crate) fn stores(&self) -> Vec<Arc<TableStore>> {
        self.catalog.load().stores.values().cloned().collect()
    }

    pub(crate) fn log(&self) -> &CommitLog {
        &self.log
    }

    pub(crate) fn groups(&self) -> &WriteGroups {
        &self.groups
    }

    pub(crate) fn pool(&self) -> &MemtablePool {
        &self.pool
    }

    pub(crate) fn files(&self) -> &TableFiles {
        &self.files
    }

    pub(crate) fn flusher(&self) -> &Flusher {
        &self.flusher
    }

    pub(crate) fn finisher(&self) -> &Finisher {
        &self.finisher
    }

    pub(crate) fn compactor(&self) -> &Compactor {
        &self.compactor
    }

    /// Whether tables were dropped whose files may still be there; not known at start.
    pub(crate) fn drops_unfinished(&self) -> &AtomicBool {
        &self.drops_unfinished
    }

    /// How many tables were dropped since the start. Changes with the schema's lock held.
    pub(crate) fn tables_dropped(&self) -> &AtomicU64 {
        &self.tables_dropped
    }

    pub(crate) fn schema_lock(&self) -> &Mutex<()> {
        &self.schema_lock
    }

    pub(crate) fn log_failed(&self, error: LogError) -> EngineError {
        EngineError::ClosedForWrites(error.to_string())
    }

    /// What becomes of a write of these updates that the log does not take.
    pub(crate) fn not_appended(&self, updates: &[PartitionUpdate], error: LogError) -> EngineError {
        match error {
            LogError::TooLarge { size_bytes, max_bytes } => EngineError::too_large(updates, size_bytes, max_bytes),
            error => self.log_failed(error),
        }
    }

    /// The tables whose last flush failed.
    pub(crate) fn flush_failures(&self) -> &FlushFailures {
        &self.flush_failures
    }

    /// Keeps the last failure of a compaction until that table is compacted, or has nothing to compact any more.
    pub(crate) fn note_compaction(&self, table: TableId, failure: Option<EngineError>) {
        note(&self.compaction_failures, table, failure);
    }

    /// Why a compaction in the background failed whose table was not compacted since.
    pub fn last_compaction_failure(&self) -> Option<EngineError> {
        lock(&self.compaction_failures).values().next().cloned()
    }

    /// Why a flush failed whose table was not flushed since.
    pub fn last_flush_failure(&self) -> Option<EngineError> {
        self.flush_failures.any()
    }

    pub(crate) fn load_failure(&self) -> &Mutex<Option<EngineError>> {
        &self.load_failure
    }

    pub(crate) fn find_table(&self, keyspace: &str, name: &str) -> Arc<Table> {
        self.schema().table(keyspace, name).expect("system tables are part of every schema").clone()
    }

    /// The node's row of `system.local`.
    pub(crate) fn local_row(&self) -> Result<Option<crate::system::SystemRow>, EngineError> {
        let rows = crate::system::read_rows(self.read_local()?, self.now_seconds())?;
        Ok(rows.into_iter().next())
    }

    fn read_local(&self) -> Result<model::BoxCursor<'static>, EngineError> {
        let key = model::KeyRange::Single(model::PartitionKey::new(b"local"));
        self.read(&self.find_table("system", "local"), &model::ReadRange::all_rows(key))
    }

    fn stored_schema_version(&self) -> Result<Uuid, EngineError> {
        Ok(self.local_row()?.and_then(|row| row.uuid("schema_version")).unwrap_or_else(Uuid::new_v4))
    }

    /// Writes columns of the node's row of `system.local`, durably. Blocks on the log.
    pub fn write_local(&self, values: &[(&str, Option<Vec<u8>>)]) -> Result<(), EngineError> {
        let local = self.find_table("system", "local");
        let mut write = crate::system::SystemWrite::new(&local, b"local", self.next_timestamp_micros());
        write.row(&[], values);
        self.write_durably(Mutation::new(vec![write.build()]))
    }

    /// Flushes everything and closes the log: the next start has nothing to replay. A table that cannot be flushed
    /// keeps none of the others from it; the error names all of those. Writes are refused from now on; those under
    /// way are waited for, also where nobody waits for them any more. Blocks on the disk.
    pub fn shutdown(&self) -> Result<(), EngineError> {
        self.shut_down.store(true, Ordering::Release);
        self.groups.barrier().wait();
        self.finisher.stop();
        self.purger.stop();
        self.compactor.stop();
        self.flusher.stop();
        let failures = self.flush_each();
        self.log.shutdown().map_err(|error| self.log_failed(error))?;
        if failures.is_empty() {
            Ok(())
        } else {
            Err(EngineError::NotDrained(failures.iter().map(not_drained).collect()))
        }
    }

    /// Fails if the node was started to read only.
    pub(crate) fn check_writable(&self) -> Result<(), EngineError> {
        match self.options.read_only {
            true => Err(EngineError::ClosedForWrites("it was started with --read-only".into())),
            false => Ok(()),
        }
    }

    /// Fails after a shutdown began.
    pub(crate) fn check_running(&self) -> Result<(), EngineError> {
        match self.shut_down.load(Ordering::Acquire) {
            true => Err(EngineError::ClosedForWrites("it was shut down".into())),
            false => Ok(()),
        }
    }

    /// Replaces the map of keyspaces; for tests of other crates that need a schema without CQL.
    #[doc(hidden)]
    pub fn set_keyspace(&self, keyspace: Keyspace) -> Result<(), EngineError> {
        let name = keyspace.name.clone();
        self.change_schema(|_, keyspaces: &mut Keyspaces| {
            keyspaces.insert(name, Arc::new(keyspace));
            Ok(())
        })
        .map(|_| ())
    }
}

/// The tables that say how records are replayed: those of the schema, and those that know of truncations and drops.
fn tables_to_preview(system: &Keyspaces) -> Vec<Uuid> {
    let decides = |table: &Table| match &*table.keyspace {
        "system_schema" => true,
        "system" => [schema_rows::LAYOUTS, "local"].contains(&&*table.name),
        _ => false,
    };
    let tables = system.values().flat_map(|keyspace| keyspace.tables.values());
    tables.filter(|table| decides(table)).map(|table| table.id.0).collect()
}

/// What a drain says of a table that it could not flush.
fn not_drained((store, error): &(Arc<TableStore>, EngineError)) -> String {
    let table = store.table.load();
    match error {
        EngineError::Quarantined { .. } => error.to_string(),
        error => format!("Table {}.{} keeps its records in the commit log: {error}", table.keyspace, table.name),
    }
}

/// Keeps a failure, or forgets that of the table.
fn note(failures: &Mutex<HashMap<TableId, EngineError>>, table: TableId, failure: Option<EngineError>) {
    let mut failures = lock(failures);
    match failure {
        Some(failure) => failures.insert(table, failure),
        None => failures.remove(&table),
    };
}

fn micros_since_epoch() -> i64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    elapsed.as_micros() as i64
}
