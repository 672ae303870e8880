//! The engine itself: what it consists of, opening and closing.
//!
//! An engine is a set of rooms over one [`Shared`]: compaction, quarantine, flush, resident tables, writes, indexing,
//! tables as a whole, recovery, and transfers of files. Each of them knows those before it and none behind it, and none
//! knows the engine. `engine/doors.rs` has the calls that lead into the rooms.

mod begun;
mod doors;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use blockio::OverlayDisk;
use commitlog::{CommitLog, Replay};
use model::Schema;
use uuid::Uuid;

use crate::compaction::Compaction;
use crate::error::EngineError;
use crate::files::{TableFiles, keep_found_names};
use crate::flush::{Flush, FlushQueue};
use crate::indexing::Indexing;
use crate::lock::lock;
use crate::options::EngineOptions;
use crate::quarantine::{Quarantine, is_indispensable, refusal};
use crate::recovery::log_host::LogHost;
use crate::recovery::{Recovery, Start};
use crate::residents::Residents;
use crate::schema::Tables;
use crate::schema::change::Keyspaces;
use crate::shared::Shared;
use crate::system::system_keyspaces;
use crate::table::TableStore;
use crate::transfer::Transfers;
use crate::write::Writes;

pub use begun::BegunWrite;

/// Tables that keep what is written to them.
///
/// Thread-safe; everything that may block on the disk says so. Dropping it without [`Engine::shutdown`] is what a crash
/// is: the next start replays the log.
pub struct Engine {
    pub(crate) shared: Arc<Shared>,
    compaction: Arc<Compaction>,
    quarantine: Arc<Quarantine>,
    flush: Arc<Flush>,
    residents: Arc<Residents>,
    pub(crate) writes: Arc<Writes>,
    indexing: Arc<Indexing>,
    tables: Arc<Tables>,
    recovery: Recovery,
    transfers: Transfers,
    start: Start,
    /// Held while it closes.
    closing: Mutex<()>,
}

impl Engine {
    /// Opens the tables under `options.directory`, creating what is not there, and replays the log.
    ///
    /// Fails if another process has the directory open, or with the place of the damage if stored data is damaged.
    pub fn open(mut options: EngineOptions) -> Result<Arc<Engine>, EngineError> {
        if options.read_only {
            options.disk = Arc::new(OverlayDisk::new(options.disk));
            options.concurrent_compactors = 0;
            // Who asks for it wants to see what there is.
            options.opens_damaged = true;
        }
        let queue = Arc::new(FlushQueue::default());
        let (shared, replay) = open_shared(options, &queue)?;
        let engine = Engine::over(Arc::new(shared), queue, replay)?;
        engine.flush.start()?;
        engine.compaction.start()?;
        engine.writes.start()?;
        engine.residents.start()?;
        engine.indexing.start()?;
        engine.writes.finish_batches(&engine.tables.truncations().last()?)?;
        Ok(Arc::new(engine))
    }

    /// The rooms, with what the log brought back; no thread runs yet.
    fn over(shared: Arc<Shared>, queue: Arc<FlushQueue>, replay: Replay) -> Result<Engine, EngineError> {
        let compaction = Arc::new(Compaction::new(&shared));
        let quarantine = Arc::new(Quarantine::new(&shared, &compaction));
        let flush = Arc::new(Flush::new(&shared, &compaction, &quarantine, queue));
        let residents = Arc::new(Residents::new(&shared, &flush));
        let writes = Arc::new(Writes::new(&shared, &flush, &quarantine));
        let indexing = Arc::new(Indexing::new(&shared, &flush, &writes));
        let tables = Arc::new(Tables::new(&shared, &compaction, &quarantine, &flush, &residents, &writes));
        let recovery = Recovery::new(&shared, &compaction, &quarantine, &flush, &residents, &writes, &tables);
        let transfers = Transfers::new(&shared, &compaction, &flush, &residents, &writes, &tables);
        let start = recovery.run(replay).map_err(refusal)?;
        let closing = Mutex::default();
        Ok(Engine {
            shared,
            compaction,
            quarantine,
            flush,
            residents,
            writes,
            indexing,
            tables,
            recovery,
            transfers,
            start,
            closing,
        })
    }

    /// Flushes everything and closes the log: the next start has nothing to replay. A table that cannot be flushed
    /// keeps none of the others from it; the error names all of those. Writes are refused from now on; those under
    /// way are waited for, also where nobody waits for them any more. Blocks on the disk.
    pub fn shutdown(&self) -> Result<(), EngineError> {
        match self.close()? {
            0 => Ok(()),
            tables => {
                Err(EngineError::NotDrained(vec![format!("{tables} tables keep their records in the commit log")]))
            }
        }
    }

    /// Like [`Engine::shutdown`], but gives up flushes after this time, also those of a `shutdown` under way. Returns
    /// the number of tables that keep their records in the log, for the next start to replay. A table whose writes
    /// are not logged is flushed in any case.
    pub fn shutdown_within(&self, time: Duration) -> Result<usize, EngineError> {
        self.flush.end_at(Instant::now() + time);
        self.close()
    }

    /// Closes the engine; the number of tables that no time was left for.
    fn close(&self) -> Result<usize, EngineError> {
        let _one_at_a_time = lock(&self.closing);
        self.shared.begin_shutdown();
        self.shared.groups().barrier().wait();
        self.writes.stop();
        self.residents.stop();
        self.indexing.stop();
        self.compaction.stop();
        self.flush.stop();
        let failures = self.flush.flush_each();
        self.shared.log().shutdown().map_err(|error| self.shared.log_failed(error))?;
        let (left, failures): (Vec<_>, Vec<_>) =
            failures.into_iter().partition(|(_, error)| matches!(error, EngineError::OutOfTime));
        if failures.is_empty() {
            Ok(left.len())
        } else {
            Err(EngineError::NotDrained(failures.iter().map(not_drained).collect()))
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // An index may take long to build, and no other process gets the directory before that ends.
        self.indexing.stop();
    }
}

/// Takes the directory and opens the log.
fn open_shared(options: EngineOptions, queue: &Arc<FlushQueue>) -> Result<(Shared, Replay), EngineError> {
    let disk = options.disk.clone();
    let data = options.directory.join("data");
    disk.create_dir_all(&options.directory)?;
    let directory = disk.lock_dir(&options.directory)?;
    keep_found_names(&*disk, &options.directory, &data)?;
    let host = LogHost::new(&disk, &options.directory);
    let keyspaces = system_keyspaces();
    let mut log_options = options.commitlog.clone();
    log_options.preview_tables = tables_to_preview(&keyspaces);
    log_options.on_pressure = Some(queue.pressure_hook());
    host.claim(&mut log_options, disk.exists(&data)?)?;
    let (log, replay) =
        CommitLog::open(disk.clone(), log_options).map_err(|error| EngineError::Startup(error.to_string()))?;
    host.took(&log)?;
    // This comes after the log is opened, so that a refused start leaves no data directory.
    disk.create_dir_all(&data)?;
    let files = TableFiles::new(&options, log.host_id());
    Ok((Shared::new(options, Schema::new(Uuid::nil(), keyspaces), files, log, directory), replay))
}

/// The tables that say how records are replayed: those of the schema, and those that know of truncations and drops.
fn tables_to_preview(system: &Keyspaces) -> Vec<Uuid> {
    let tables = system.values().flat_map(|keyspace| keyspace.tables.values());
    tables.filter(|table| is_indispensable(table)).map(|table| table.id.0).collect()
}

/// What a drain says of a table that it could not flush.
fn not_drained((store, error): &(Arc<TableStore>, EngineError)) -> String {
    let table = store.table.load();
    match error {
        EngineError::Quarantined { .. } => error.to_string(),
        error => format!("Table {}.{} keeps its records in the commit log: {error}", table.keyspace, table.name),
    }
}
