//! The audit log: the requests of clients and their outcomes.
//!
//! Each answered request is one entry: a statement, a PREPARE, or a login. A BATCH has an entry for itself and one for
//! each of its statements. The types, categories and lines are those of Cassandra's `FileAuditLogger`
//! (`audit_logging_options`). Passwords are never part of an entry. A request whose answer nobody waits for any more,
//! because its time limit passed or its connection closed, is logged as a failure.
//!
//! This module decides what is entered. Its owner supplies the place where entries are kept ([`RequestLog`]). See
//! record 31 of `docs/decisions`.

mod audited;
mod entry;
mod filter;
mod subject;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use uuid::Uuid;

use crate::entry::{BatchEntry, Parts, modification};
use crate::prepared::Prepared;
use crate::{BatchStatement, ClientState, Consistency, Login, QueryError, Request, RequestLog, Statement};

pub(crate) use audited::Audited;
pub use entry::OneLine;
use entry::{Entry, mentions_password};
pub use filter::{AuditFilter, Choice};
pub use subject::Category;
use subject::{EntryType, Subject};

/// The options of the audit log.
#[derive(Clone, Debug)]
pub struct AuditOptions {
    /// The requests that are entered.
    pub filter: AuditFilter,
    /// The place where entries are kept.
    pub log: Arc<dyn RequestLog>,
}

/// The name of a client that has not logged in, as in Cassandra.
const ANONYMOUS: &str = "anonymous";

/// The operation of a request whose prepared statement is not known, as in Cassandra.
const NO_STATEMENT: &str = "null";

/// Makes entries, and appends those that the filter admits.
#[derive(Debug)]
pub(crate) struct Auditor {
    options: AuditOptions,
    /// The address and the port of the node, which each entry names.
    host: SocketAddr,
}

impl Auditor {
    pub fn new(options: AuditOptions, host: SocketAddr) -> Auditor {
        Auditor { options, host }
    }

    /// Watches the execution of a statement, which is about to begin. As in Cassandra, the failure of a statement that
    /// was not prepared before has no scope.
    pub fn of_statement(self: &Arc<Self>, statement: &Prepared, request: &Request<'_>) -> Audited {
        let begun = self.entry(request.client, Arc::clone(&statement.text));
        let done = begun.with_subject(Subject::of_plan(&statement.plan, statement.keyspace.as_deref()));
        match request.statement {
            Statement::Prepared { .. } => {
                Audited::new(self, vec![done.clone()], done).or_forgotten(begun.with_operation(NO_STATEMENT.into()))
            }
            Statement::Text(_) | Statement::Batch { .. } | Statement::Unknown { .. } => {
                Audited::new(self, vec![done], begun)
            }
        }
    }

    /// Watches the execution of a BATCH.
    pub fn of_batch(self: &Arc<Self>, parts: &Parts, consistency: Consistency, client: &ClientState) -> Audited {
        let batch = Uuid::new_v4();
        let text = format!("BatchId:[{batch}] - BATCH of [{}] statements", parts.len());
        let modifications = parts.iter().filter_map(|(statement, _)| modification(statement).ok());
        let subject = Subject::batch(modifications);
        let batch_entry = self.entry(client, text.into()).with_subject(subject).in_batch(batch);
        let statements = parts.iter().map(|(statement, _)| {
            let subject = Subject::of_plan(&statement.plan, statement.keyspace.as_deref());
            self.entry(client, Arc::clone(&statement.text)).with_subject(subject).in_batch(batch)
        });
        let done = std::iter::once(batch_entry).chain(statements).collect();
        Audited::new(self, done, self.entry(client, failed_batch(parts.len(), consistency)))
    }

    /// Enters a PREPARE.
    pub fn prepared(&self, text: &str, client: &ClientState, outcome: Result<&Prepared, &QueryError>) {
        let entry = self.entry(client, text.into());
        self.append(&match outcome {
            Ok(statement) => {
                let subject = Subject::of_plan(&statement.plan, statement.keyspace.as_deref());
                entry.in_keyspace(None).with_subject(Subject { entry_type: EntryType::PREPARE, ..subject })
            }
            Err(error) => entry.failed(error),
        });
    }

    /// Enters a statement that could not be prepared.
    pub fn unprepared(&self, text: &str, client: &ClientState, error: &QueryError) {
        self.append(&self.entry(client, text.into()).failed(error));
    }

    /// Enters a request whose prepared statement the server does not have. As in Cassandra, the entry names no
    /// statement. If it is a BATCH, `before` is the number of its statements before that one.
    pub fn unknown(&self, request: &Request<'_>, before: Option<usize>, error: &QueryError) {
        let of_batch = |count| failed_batch(count, request.options.consistency);
        self.append(&self.entry(request.client, before.map_or(NO_STATEMENT.into(), of_batch)).failed(error));
    }

    /// Enters a BATCH of which only `count` statements could be prepared.
    pub fn unprepared_batch(
        &self,
        entries: &[BatchEntry<'_>],
        count: usize,
        request: &Request<'_>,
        error: &QueryError,
    ) {
        let is_secret = entries.iter().any(|entry| match &entry.statement {
            BatchStatement::Text(text) => mentions_password(text),
            BatchStatement::Prepared(statement) => mentions_password(&statement.text),
        });
        let entry = self.entry(request.client, failed_batch(count, request.options.consistency));
        self.append(&entry.failed_with(error, is_secret));
    }

    /// Enters a login.
    pub fn login(&self, address: Option<SocketAddr>, outcome: Result<&Login, &QueryError>) {
        let user = outcome.ok().map(|login| Arc::clone(&login.user));
        let text = if outcome.is_ok() { "LOGIN SUCCESSFUL" } else { "LOGIN FAILURE" };
        let entry = Entry::new(user, self.host, address, now_millis(), text.into());
        self.append(&match outcome {
            Ok(_) => entry.with_type(EntryType::LOGIN_SUCCESS),
            Err(error) => entry.failed(error).with_type(EntryType::LOGIN_ERROR),
        });
    }

    /// An entry for a request that begins now.
    fn entry(&self, client: &ClientState, operation: Arc<str>) -> Entry {
        let user = client.user.clone().unwrap_or_else(|| ANONYMOUS.into());
        let entry = Entry::new(Some(user), self.host, client.address, now_millis(), operation);
        entry.in_keyspace(client.keyspace.clone())
    }

    fn append(&self, entry: &Entry) {
        if self.options.filter.admits(entry) {
            self.options.log.append(entry.to_string());
        }
    }
}

/// The operation of a BATCH that failed.
fn failed_batch(count: usize, consistency: Consistency) -> Arc<str> {
    format!("BATCH of {count} statements at consistency {consistency}").into()
}

/// Milliseconds since the epoch.
fn now_millis() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
