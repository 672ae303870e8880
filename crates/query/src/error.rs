//! The errors of statements.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use protocol::{ErrorKind, FailureReason};

/// The part of the node that failed, which clients do not see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The statement is at fault, or nothing in particular.
    Statement,
    /// The disk failed.
    Disk(engine::DiskFailureKind),
    /// A read would have to wait for a device on a thread where waiting is not allowed. The statement is retried on a
    /// thread where it is, and no client sees this error.
    WouldWait,
    /// The statement needs more processor time than one turn, on a thread where it may not have that. It is retried
    /// like after [`Cause::WouldWait`].
    TurnIsOver,
    /// A file of a secondary index cannot be read, and is no longer used. The page is read again without it, and no
    /// client sees this error.
    UnreadableIndex,
}

/// The reason why a request needs another thread than a connection's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Need {
    /// To wait for a device.
    Device,
    /// More processor time than one turn.
    Processor,
    /// To wait for other requests, as a change of the schema waits for the writes to its table.
    Requests,
}

/// The error of a statement that was refused or failed. The message is for the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryError {
    /// The error's code and fields in the protocol.
    pub kind: ErrorKind,
    /// The part of the node that failed.
    pub cause: Cause,
    /// The text, which is Cassandra's if Cassandra has one.
    pub message: String,
    /// The warnings for the client that were added before the statement failed.
    pub warnings: Vec<String>,
}

impl QueryError {
    /// An error of any kind.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        QueryError { kind, cause: Cause::Statement, message: message.into(), warnings: Vec::new() }
    }

    /// The statement is invalid.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, message)
    }

    /// The text is not CQL.
    pub fn syntax(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Syntax, message)
    }

    /// An option has a bad value.
    pub fn configuration(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Config, message)
    }

    /// The client may not do this.
    pub fn unauthorized(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unauthorized, message)
    }

    /// An unexpected failure.
    pub fn server(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Server, message)
    }

    /// An unexpected failure with this cause.
    pub fn failed(cause: Cause, message: impl Into<String>) -> Self {
        QueryError { cause, ..Self::server(message) }
    }

    /// The reason why the statement must be retried on another thread, if it must.
    pub fn need(&self) -> Option<Need> {
        match self.cause {
            Cause::WouldWait => Some(Need::Device),
            Cause::TurnIsOver => Some(Need::Processor),
            Cause::Statement | Cause::Disk(_) | Cause::UnreadableIndex => None,
        }
    }

    /// The statement needs memory that others have.
    pub(crate) fn no_memory() -> Self {
        let message = "The requests under way take all memory that they may (see \
                       native_transport_max_request_data_in_flight)";
        QueryError::new(ErrorKind::Overloaded, message)
    }

    /// The request is malformed.
    pub fn protocol(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Protocol, message)
    }

    /// A feature that this server does not have, by name.
    pub fn not_supported(what: impl fmt::Display) -> Self {
        Self::invalid(format!("{what} is not supported yet"))
    }
}

impl fmt::Display for QueryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for QueryError {}

impl From<cql::SyntaxError> for QueryError {
    fn from(error: cql::SyntaxError) -> Self {
        QueryError::syntax(error.message)
    }
}

impl From<types::MarshalError> for QueryError {
    fn from(error: types::MarshalError) -> Self {
        QueryError::invalid(error.message())
    }
}

impl From<model::ReadError> for QueryError {
    /// For damage and I/O errors, the failed replica is this node.
    fn from(error: model::ReadError) -> Self {
        match error {
            model::ReadError::NoRoom => return QueryError::no_memory(),
            model::ReadError::LargeRow => return QueryError::failed(Cause::TurnIsOver, error.to_string()),
            _ => {}
        }
        let cause = match engine::DiskFailureKind::of_read(&error) {
            _ if error.would_wait() => Cause::WouldWait,
            failure => failure.map_or(Cause::Statement, Cause::Disk),
        };
        QueryError::failed(cause, error.to_string())
    }
}

impl From<engine::EngineError> for QueryError {
    fn from(error: engine::EngineError) -> Self {
        use engine::EngineError;
        let message = error.to_string();
        match error {
            EngineError::UnknownTable(_)
            | EngineError::MutationTooLarge { .. }
            | EngineError::InMemoryTableFull { .. }
            | EngineError::Unstorable(_) => QueryError::invalid(message),
            EngineError::TableOptions(_) => QueryError::configuration(message),
            EngineError::Read(error) if matches!(*error, model::ReadError::NoRoom) => QueryError::no_memory(),
            EngineError::Read(error) if matches!(*error, model::ReadError::LargeRow) => {
                QueryError::failed(Cause::TurnIsOver, message)
            }
            error if error.would_wait() => QueryError::failed(Cause::WouldWait, message),
            EngineError::UnreadableIndex(_) => QueryError::failed(Cause::UnreadableIndex, message),
            error => {
                let cause = engine::DiskFailureKind::of(&error).map_or(Cause::Statement, Cause::Disk);
                QueryError::failed(cause, message)
            }
        }
    }
}

/// The replicas that failed a request for this reason. There is only this node.
pub(crate) fn failures(reason: FailureReason) -> Vec<(IpAddr, FailureReason)> {
    vec![(IpAddr::V4(Ipv4Addr::LOCALHOST), reason)]
}
