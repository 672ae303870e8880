//! The logs of requests of a running node: the audit log and the full query log. Verbs turn them on and off.

mod file;
mod files;
mod options;

pub use file::LogFile;
pub use options::{Auditing, FileOptions, FullQueryLogging, Kind, RollCycle};

use query::{AuditFilter, AuditOptions, Processor};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

/// The configuration of the logs.
#[derive(Debug)]
struct Configured {
    auditing: Auditing,
    full_query_logging: FullQueryLogging,
    /// The directory of the audit log where the configuration names none.
    audit_directory: PathBuf,
}

/// The logs that are on, with their options.
#[derive(Debug, Default)]
struct Open {
    /// The choice of requests to which a command that turns the audit log on adds its options, if it is no longer that
    /// of the configuration.
    filter: Option<AuditFilter>,
    audit: Option<OpenAudit>,
    queries: Option<(FullQueryLogging, Arc<LogFile>)>,
    /// The directory of the last full query log, which a reset cleans.
    last_query_directory: Option<PathBuf>,
}

/// The audit log that is on.
#[derive(Debug)]
struct OpenAudit {
    options: Auditing,
    log: Arc<LogFile>,
    /// Whether it was turned on by the configuration.
    is_configured: bool,
}

/// The error of a command while another one opens, changes or closes a log.
const BUSY: &str = "another command changes the logs of requests";

/// The logs of requests of a node.
#[derive(Debug)]
pub struct RequestLogs {
    configured: Configured,
    /// Held by the command that changes the logs, which may wait for their device.
    changes: Mutex<()>,
    /// Held only briefly.
    open: Mutex<Open>,
}

impl RequestLogs {
    /// The logs of a node with this data directory. None is on yet.
    pub fn new(auditing: Auditing, full_query_logging: FullQueryLogging, data: &Path) -> RequestLogs {
        let configured = Configured { auditing, full_query_logging, audit_directory: data.join("audit") };
        RequestLogs { configured, changes: Mutex::default(), open: Mutex::default() }
    }

    /// One command at a time changes the logs.
    fn one_at_a_time(&self) -> Result<MutexGuard<'_, ()>, String> {
        match self.changes.try_lock() {
            Ok(guard) => Ok(guard),
            Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => Err(BUSY.to_owned()),
        }
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens the audit log if the configuration says so, for the options of the processor. The error is ready for the
    /// user.
    pub fn start_audit(&self) -> Result<Option<AuditOptions>, String> {
        if !self.configured.auditing.enabled {
            return Ok(None);
        }
        let _one_at_a_time = self.one_at_a_time()?;
        self.open_audit(self.configured.auditing.clone(), true).map(Some)
    }

    /// Opens the audit log, or changes the one that is on.
    fn open_audit(&self, mut options: Auditing, is_configured: bool) -> Result<AuditOptions, String> {
        let directory = options.directory.get_or_insert_with(|| self.configured.audit_directory.clone());
        let known = self.open().audit.as_ref().map(|open| Arc::clone(&open.log));
        let log = match known {
            Some(log) => log.change(&options.file, directory).map(|()| log)?,
            None => Arc::new(LogFile::open(Kind::Audit, &options.file, directory)?),
        };
        tracing::info!(directory = %directory.display(), "Audit logging is enabled.");
        let audit = AuditOptions { filter: options.filter.clone(), log: log.clone() };
        let mut open = self.open();
        let is_configured = open.audit.as_ref().map_or(is_configured, |open| open.is_configured);
        if is_configured {
            // As in Cassandra, a log that the configuration turned on has its choice in place of the configuration's.
            open.filter = Some(options.filter.clone());
        }
        open.audit = Some(OpenAudit { options: Auditing { enabled: true, ..options }, log, is_configured });
        Ok(audit)
    }

    /// The options of the audit log that is on, or else those of the configuration.
    pub fn auditing(&self) -> Auditing {
        let on = self.open().audit.as_ref().map(|open| open.options.clone());
        on.unwrap_or_else(|| Auditing { enabled: false, ..self.configured_auditing() })
    }

    /// The options of the configuration. The choice of requests is that of the last command that changed it while the
    /// log was on as configured.
    fn configured_auditing(&self) -> Auditing {
        let configured = self.configured.auditing.clone();
        match self.open().filter.clone() {
            Some(filter) => Auditing { filter, ..configured },
            None => configured,
        }
    }

    /// Turns the audit log on, or changes the one that is on. `options` makes the options, on top of those of the
    /// configuration. No entry is lost meanwhile.
    pub fn enable_audit(
        &self,
        options: impl FnOnce(Auditing) -> Result<Auditing, String>,
        processor: &Processor,
    ) -> Result<(), String> {
        let _one_at_a_time = self.one_at_a_time()?;
        let audit = self.open_audit(options(self.configured_auditing())?, false)?;
        processor.set_audit(Some(audit));
        Ok(())
    }

    /// Turns the audit log off.
    pub fn disable_audit(&self, processor: &Processor) -> Result<(), String> {
        let _one_at_a_time = self.one_at_a_time()?;
        let log = self.open().audit.take().map(|open| open.log);
        close(log, || processor.set_audit(None));
        Ok(())
    }

    /// Whether the full query log is on, and its options, or else those of the configuration.
    pub fn full_query_logging(&self) -> (bool, FullQueryLogging) {
        match &self.open().queries {
            Some((options, _)) => (true, options.clone()),
            None => (false, self.configured.full_query_logging.clone()),
        }
    }

    /// Turns the full query log on with these options.
    pub fn enable_query_log(&self, options: FullQueryLogging, processor: &Processor) -> Result<(), String> {
        let _one_at_a_time = self.one_at_a_time()?;
        if self.open().queries.is_some() {
            return Err("Already logging to a full query log".to_owned());
        }
        let Some(directory) = options.directory.clone() else {
            return Err("cassandra.yaml did not set log_dir and not set as parameter".to_owned());
        };
        let log = Arc::new(LogFile::open(Kind::FullQuery, &options.file, &directory)?);
        tracing::info!(directory = %directory.display(), "Full query logging is enabled.");
        processor.set_query_log(Some(log.clone()));
        let mut open = self.open();
        (open.queries, open.last_query_directory) = (Some((options, log)), Some(directory));
        Ok(())
    }

    /// Turns the full query log off.
    pub fn disable_query_log(&self, processor: &Processor) -> Result<(), String> {
        let _one_at_a_time = self.one_at_a_time()?;
        self.close_query_log(processor);
        Ok(())
    }

    fn close_query_log(&self, processor: &Processor) {
        let log = self.open().queries.take().map(|(_, log)| log);
        close(log, || processor.set_query_log(None));
    }

    /// Turns the full query log off, and removes its files: those of the last directory, and of that in the
    /// configuration.
    pub fn reset_query_log(&self, processor: &Processor) -> Result<(), String> {
        let _one_at_a_time = self.one_at_a_time()?;
        self.close_query_log(processor);
        let last = self.open().last_query_directory.take();
        for directory in last.iter().chain(&self.configured.full_query_logging.directory) {
            files::remove_all(Kind::FullQuery, directory)
                .map_err(|error| format!("{}: {error}", directory.display()))?;
        }
        Ok(())
    }

    /// The entries that could not be written, by log.
    pub fn lost(&self) -> Vec<(Kind, u64)> {
        let open = self.open();
        let audit = open.audit.iter().map(|audit| (Kind::Audit, audit.log.lost()));
        let queries = open.queries.iter().map(|(_, log)| (Kind::FullQuery, log.lost()));
        audit.chain(queries).collect()
    }

    /// Writes what is queued. Later entries are lost.
    pub fn close(&self) {
        let mut open = self.open();
        let logs: [Option<Arc<LogFile>>; 2] =
            [open.audit.take().map(|audit| audit.log), open.queries.take().map(|(_, log)| log)];
        drop(open);
        logs.into_iter().flatten().for_each(|log| log.close());
    }
}

/// Writes what is queued for a log, after requests have stopped to enter there.
fn close(log: Option<Arc<LogFile>>, detach: impl FnOnce()) {
    let Some(log) = log else { return };
    detach();
    log.close();
}
