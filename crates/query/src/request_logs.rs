//! The logs of requests: the audit log, and the full query log. Both can be turned on and off while the node runs.
//!
//! A request checks one flag. Further costs arise only while a log is on.

mod query_log;
mod watch;

use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use crate::audit::{AuditOptions, Auditor};
use crate::entry::{BatchEntry, Parts};
use crate::prepared::Prepared;
use crate::{ClientState, Request};

pub(crate) use watch::Watch;

/// The place where the lines of a log are kept.
pub trait RequestLog: fmt::Debug + Send + Sync {
    /// Adds a line, which has no line break. This may wait if the log's options say so.
    fn append(&self, line: String);
}

/// The logs that are on.
#[derive(Clone, Debug, Default)]
pub(crate) struct Logs {
    pub auditor: Option<Arc<Auditor>>,
    /// The full query log.
    queries: Option<Arc<dyn RequestLog>>,
}

/// The logs of a node's requests.
#[derive(Debug)]
pub(crate) struct RequestLogs {
    /// The address and the port of the node, which each entry of the audit log names.
    host: SocketAddr,
    is_any_on: AtomicBool,
    logs: RwLock<Logs>,
}

impl RequestLogs {
    pub fn new(audit: Option<AuditOptions>, queries: Option<Arc<dyn RequestLog>>, host: SocketAddr) -> RequestLogs {
        let logs = RequestLogs { host, is_any_on: AtomicBool::new(false), logs: RwLock::default() };
        logs.set_audit(audit);
        logs.set_queries(queries);
        logs
    }

    /// Turns the audit log on with these options, or off.
    pub fn set_audit(&self, options: Option<AuditOptions>) {
        self.change(|logs| logs.auditor = options.map(|options| Arc::new(Auditor::new(options, self.host))));
    }

    /// Turns the full query log on, or off.
    pub fn set_queries(&self, log: Option<Arc<dyn RequestLog>>) {
        self.change(|logs| logs.queries = log);
    }

    fn change(&self, change: impl FnOnce(&mut Logs)) {
        let mut logs = self.logs.write().unwrap_or_else(PoisonError::into_inner);
        change(&mut logs);
        self.is_any_on.store(logs.auditor.is_some() || logs.queries.is_some(), Ordering::Release);
    }

    /// The logs that are on, if there are any.
    #[inline]
    pub fn active(&self) -> Option<Logs> {
        if self.is_any_on.load(Ordering::Relaxed) { Some(self.copy()) } else { None }
    }

    /// The logs that are on, if there are any and this client's requests belong there. The node's own do not.
    #[inline]
    pub fn of(&self, client: &ClientState) -> Option<Logs> {
        if self.is_any_on.load(Ordering::Relaxed) && client.address.is_some() { Some(self.copy()) } else { None }
    }

    #[cold]
    fn copy(&self) -> Logs {
        self.logs.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Logs {
    /// Watches the execution of a statement, which is about to begin.
    #[cold]
    pub fn of_statement(self, statement: &Prepared, request: &Request<'_>) -> Watch {
        let audited = self.auditor.map(|auditor| auditor.of_statement(statement, request));
        let logged = self.queries.map(|log| (log, query_log::of_statement(&statement.text, request)));
        Watch::new(audited, logged)
    }

    /// Watches the execution of a BATCH.
    #[cold]
    pub fn of_batch(self, parts: &Parts, entries: &[BatchEntry<'_>], request: &Request<'_>) -> Watch {
        let consistency = request.options.consistency;
        let audited = self.auditor.map(|auditor| auditor.of_batch(parts, consistency, request.client));
        let logged = self.queries.map(|log| (log, query_log::of_batch(parts, entries, request)));
        Watch::new(audited, logged)
    }
}
