//! The interface of the query layer for servers, and its implementation by [`Processor`].

use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Waker;

use engine::{LogHold, Turn};
use protocol::{QueryOptions, Values};

use super::{Call, Columns, Outcome, Request, Statement, prefetch, unprepared};
use crate::auth;
use crate::execution::{Control, Execution, RequestParts};
use crate::names::find_table;
use crate::prepared::{Plan, Prepared, Work};
use crate::{ClientState, ErrorKind, Login, Processor, QueryError};

/// Checks who clients are. Unless an implementation says otherwise, every client is accepted.
pub trait Authentication {
    /// The class of the authenticator that clients have to satisfy; `None` if every client is accepted.
    fn authenticator(&self) -> Option<&'static str> {
        None
    }

    /// Begins to check a client's message to the authenticator, or its certificate (DER), which TLS has verified. This
    /// must take little time: an implementation leaves the rest to [`log_in`](Self::log_in).
    fn begin_login(&self, token: &[u8], address: Option<SocketAddr>, certificate: Option<&[u8]>) -> LoginStart {
        LoginStart::Done(self.log_in(token, address, certificate))
    }

    /// Checks a login completely. This takes some ten milliseconds of processor time if a password is hashed, or
    /// seconds if the hash of its role has a high cost.
    fn log_in(
        &self,
        _token: &[u8],
        _address: Option<SocketAddr>,
        _certificate: Option<&[u8]>,
    ) -> Result<Login, QueryError> {
        Err(QueryError::new(ErrorKind::BadCredentials, "there is no authenticator"))
    }
}

/// The beginning of a login.
#[derive(Debug)]
pub enum LoginStart {
    /// The login was checked, with this outcome.
    Done(Result<Login, QueryError>),
    /// A password must be hashed: [`Authentication::log_in`] does that. This is a digest of the role's name.
    MustHash([u8; 32]),
}

/// The forms of a statement that a server keeps already, and those that it can keep.
#[derive(Debug)]
pub struct KeptForms<'k, P> {
    /// The form whose names are all qualified. It is the same in every keyspace.
    pub qualified: Option<&'k Arc<Prepared<P>>>,
    /// The form whose unqualified names belong to the keyspace of this request.
    pub in_keyspace: Option<&'k Arc<Prepared<P>>>,
    /// A larger statement is refused.
    pub size_bytes_max: u64,
}

impl<P> KeptForms<'_, P> {
    /// No form is kept, and the statement will not be kept either.
    pub const NOTHING: Self = KeptForms { qualified: None, in_keyspace: None, size_bytes_max: u64::MAX };
}

/// Executes statements. The product has one implementation, [`Processor`]; tests of a server have their own.
pub trait QueryHandler: Authentication + Send + Sync + 'static {
    /// The executable form of a prepared statement.
    type Plan: Send + Sync + 'static;

    /// Prepares a statement. Unqualified names belong to the keyspace that the request `named`, which must exist in any
    /// case, or else to that of the client. Returns the statement that is already `kept` if it is still current.
    fn prepare(
        &self,
        client: &ClientState,
        text: &str,
        named: Option<&str>,
        kept: KeptForms<'_, Self::Plan>,
    ) -> Result<Arc<Prepared<Self::Plan>>, QueryError>;

    /// Begins a request, as `entry.rs` describes. If the request is done, and its answer is rows or an empty result,
    /// the body of that RESULT may be appended to `out`; the outcome says so. Otherwise `out` is unchanged.
    fn begin(self: &Arc<Self>, request: &Request<'_, Self::Plan>, turn: Turn<'_>, out: Option<&mut Vec<u8>>)
    -> Outcome;

    /// Prefetches the memory that these statements will access. They are begun right afterwards. The values of a
    /// statement are requested only if a prefetch pays. This is a hint: statements may be begun without it.
    fn prefetch<'c>(
        &self,
        _coming: impl Iterator<Item = (&'c Prepared<Self::Plan>, impl FnOnce() -> Option<Values<'c>>)>,
    ) {
    }

    /// A batch of wake-ups for what is begun and polled in one turn of a connection, if there is a log.
    fn hold_log(&self, _waker: &Waker) -> Option<LogHold> {
        None
    }
}

impl Authentication for Processor {
    fn authenticator(&self) -> Option<&'static str> {
        self.auth().authenticator()
    }

    fn begin_login(&self, token: &[u8], address: Option<SocketAddr>, certificate: Option<&[u8]>) -> LoginStart {
        let start = self.start_login(token, address.map(|address| address.ip()), certificate);
        if let LoginStart::Done(outcome) = &start {
            self.audit_login(address, outcome.as_ref());
        }
        start
    }

    fn log_in(
        &self,
        token: &[u8],
        address: Option<SocketAddr>,
        certificate: Option<&[u8]>,
    ) -> Result<Login, QueryError> {
        let outcome = self.check_login(token, address.map(|address| address.ip()), certificate);
        self.audit_login(address, outcome.as_ref());
        outcome
    }
}

impl QueryHandler for Processor {
    type Plan = Plan;

    fn prepare(
        &self,
        client: &ClientState,
        text: &str,
        named: Option<&str>,
        kept: KeptForms<'_, Plan>,
    ) -> Result<Arc<Prepared>, QueryError> {
        let prepared = self.prepare_or_find(client, text, named, &kept);
        if let Some(auditor) = self.request_logs().of(client).and_then(|logs| logs.auditor) {
            auditor.prepared(text, client, prepared.as_deref());
        }
        prepared
    }

    fn begin(self: &Arc<Self>, request: &Request<'_>, turn: Turn<'_>, out: Option<&mut Vec<u8>>) -> Outcome {
        if request.options.page_size == Some(0) {
            return Outcome::failed(QueryError::protocol("The page size cannot be 0"));
        }
        let control = Control { turn, deadline: None, cancelled: None };
        match &request.statement {
            Statement::Prepared { statement, client_columns } => {
                let columns = Columns::Prepared(*client_columns);
                self.logged(statement, request, || {
                    self.begin_current(&Call { statement, request, columns, control }, out)
                })
            }
            Statement::Text(text) => match self.prepare_once(text, request) {
                Ok(statement) => {
                    let statement = &Arc::new(statement);
                    self.logged(statement, request, || {
                        self.begin_current(&Call { statement, request, columns: Columns::Asked, control }, out)
                    })
                }
                Err(error) => {
                    if let Some(auditor) = self.request_logs().of(request.client).and_then(|logs| logs.auditor) {
                        auditor.unprepared(text, request.client, &error);
                    }
                    Outcome::failed(error)
                }
            },
            Statement::Batch { kind, entries } => self.begin_batch(*kind, entries, request, control),
            Statement::Unknown { id, before } => {
                let error = unprepared(id);
                if let Some(auditor) = self.request_logs().of(request.client).and_then(|logs| logs.auditor) {
                    auditor.unknown(request, *before, &error);
                }
                Outcome::failed(error)
            }
        }
    }

    fn prefetch<'c>(&self, coming: impl Iterator<Item = (&'c Prepared, impl FnOnce() -> Option<Values<'c>>)>) {
        prefetch::prefetch(self, coming);
    }

    fn hold_log(&self, waker: &Waker) -> Option<LogHold> {
        Some(self.engine().hold_log(waker))
    }
}

impl Processor {
    fn audit_login(&self, address: Option<SocketAddr>, outcome: Result<&Login, &QueryError>) {
        if let Some(auditor) = self.request_logs().active().and_then(|logs| logs.auditor) {
            auditor.login(address, outcome);
        }
    }

    fn prepare_or_find(
        &self,
        client: &ClientState,
        text: &str,
        named: Option<&str>,
        kept: &KeptForms<'_, Plan>,
    ) -> Result<Arc<Prepared>, QueryError> {
        self.check_keyspace(named)?;
        let keyspace = named.or(client.keyspace.as_deref());
        let prepared = match (kept.in_keyspace, keyspace) {
            (Some(in_keyspace), _) => self.prepare_unless_current(client, text, keyspace, Some(in_keyspace)),
            (None, None) => self.prepare_unless_current(client, text, None, kept.qualified),
            // Only an attempt shows whether all names are qualified.
            (None, Some(_)) => self
                .prepare_unless_current(client, text, None, kept.qualified)
                .or_else(|_| self.prepare_unless_current(client, text, keyspace, None)),
        }?;
        prepared.check_size(kept.size_bytes_max)?;
        Ok(prepared)
    }

    fn prepare_unless_current(
        &self,
        client: &ClientState,
        text: &str,
        keyspace: Option<&str>,
        known: Option<&Arc<Prepared>>,
    ) -> Result<Arc<Prepared>, QueryError> {
        let prepared = match known.filter(|known| self.is_current(known)) {
            Some(known) => known.clone(),
            None => {
                let prepared = Processor::prepare(self, text, keyspace)?;
                self.validate(&prepared, client)?;
                prepared
            }
        };
        self.check_forbidden(&prepared.plan, client)?;
        Ok(prepared)
    }

    /// Refuses to prepare a statement about a role or an object that does not exist. As in Cassandra, statements that
    /// change the schema are checked only when they are executed, and so are permissions. One that is prepared already
    /// is not checked again.
    fn validate(&self, prepared: &Prepared, client: &ClientState) -> Result<(), QueryError> {
        let Work::Schema(statement) = &prepared.plan.work else { return Ok(()) };
        let (schema, keyspace) = (self.engine().borrow_schema(), prepared.keyspace.as_deref());
        if let cql::ast::Statement::Truncate(name) = &**statement {
            return find_table(&schema, self.virtual_tables(), name, keyspace).map(|_| ());
        }
        let parts = RequestParts { client, options: &QueryOptions::default(), trace: None };
        let control = Control { turn: Turn::NON_BLOCKING, deadline: None, cancelled: None };
        auth::validate(statement, &Execution::new(self, &schema, parts, &[], keyspace, control))
    }
}
