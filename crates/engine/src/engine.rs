//! The engine itself: its components, and opening and closing it.
//!
//! An engine is a set of components over one [`Shared`]: compaction, quarantine, flush, resident tables, writes,
//! indexing, tables as a whole, recovery, and transfers of files. Each component uses only components earlier in this
//! list, and none uses the engine. `engine/calls.rs` has the public calls, which delegate to the components.

mod calls;
mod pending_write;

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

pub use pending_write::PendingWrite;

/// Durable tables in one directory.
///
/// Thread-safe. Calls that may block on the disk say so. Dropping an engine without [`Engine::shutdown`] is like a
/// crash: the next start replays the log.
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
    /// Held while the engine closes.
    closing: Mutex<()>,
}

impl Engine {
    /// Opens the tables under `options.directory`, creating what is missing, and replays the log.
    ///
    /// Fails if another process has the directory open, or with the place of the damage if stored data is damaged.
    pub fn open(mut options: EngineOptions) -> Result<Arc<Engine>, EngineError> {
        if options.read_only {
            options.disk = Arc::new(OverlayDisk::new(options.disk));
            options.concurrent_compactors = 0;
            // A read-only start serves whatever can be read.
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

    /// Creates the components and replays the log. None of their threads runs yet.
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

    /// Flushes everything and closes the log: the next start has nothing to replay. A table that cannot be flushed does
    /// not prevent the flushes of others; the error names all such tables. Writes are refused from now on; those under
    /// way are waited for, including abandoned ones. Blocks on the disk.
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

    /// Closes the engine. Returns the number of tables that were not flushed for lack of time.
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
        // Building an index may take long, and other processes cannot lock the directory before it ends.
        self.indexing.stop();
    }
}

/// Locks the directory and opens the log.
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

/// The tables that determine how records are replayed: those of the schema, and those with truncations and drops.
fn tables_to_preview(system: &Keyspaces) -> Vec<Uuid> {
    let tables = system.values().flat_map(|keyspace| keyspace.tables.values());
    tables.filter(|table| is_indispensable(table)).map(|table| table.id.0).collect()
}

/// The message about a table that a drain could not flush.
fn not_drained((store, error): &(Arc<TableStore>, EngineError)) -> String {
    let table = store.table.load();
    match error {
        EngineError::Quarantined { .. } => error.to_string(),
        error => format!("Table {}.{} keeps its records in the commit log: {error}", table.keyspace, table.name),
    }
}
