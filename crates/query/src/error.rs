//! Why a statement was refused or failed: one variant per error of the native protocol.

use std::fmt;

use crate::Consistency;

/// The kind of an error, with what the protocol sends besides the message.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// An unexpected failure.
    Server,
    /// This node's disk failed the statement.
    DiskFailure(engine::DiskFailureKind),
    /// A read would have to wait for a device where that is not allowed: the statement is carried out again where it is, and no client sees this.
    WouldWait,
    /// The request itself is malformed (a paging state, a number of a level).
    Protocol,
    /// The text is no CQL.
    Syntax,
    /// The statement is valid CQL and may not be carried out.
    Invalid,
    /// An option of a keyspace or table has a bad value.
    Configuration,
    /// The keyspace or table is there already.
    AlreadyExists {
        /// The keyspace.
        keyspace: String,
        /// The table; empty for a keyspace.
        table: String,
    },
    /// The client may not do this.
    Unauthorized,
    /// Too few replicas are alive.
    Unavailable {
        /// The level asked for.
        consistency: Consistency,
        /// Replicas it needs.
        required: i32,
        /// Replicas there are.
        alive: i32,
    },
    /// The node has more to do than it can.
    Overloaded,
    /// TRUNCATE failed.
    Truncate,
    /// Not enough replicas acknowledged a write in time.
    WriteTimeout {
        /// The level asked for.
        consistency: Consistency,
        /// Replicas that answered.
        received: i32,
        /// Replicas it waited for.
        block_for: i32,
        /// The kind of write.
        write_type: WriteType,
    },
    /// Not enough replicas answered a read in time.
    ReadTimeout {
        /// The level asked for.
        consistency: Consistency,
        /// Replicas that answered.
        received: i32,
        /// Replicas it waited for.
        block_for: i32,
        /// Whether the replica asked for data answered.
        data_present: bool,
    },
    /// Replicas failed a read.
    ReadFailure {
        /// The level asked for.
        consistency: Consistency,
        /// Replicas that answered.
        received: i32,
        /// Replicas it waited for.
        block_for: i32,
        /// Why this node failed it.
        reason: FailureReason,
        /// Whether the replica asked for data answered.
        data_present: bool,
    },
    /// Replicas failed a write.
    WriteFailure {
        /// The level asked for.
        consistency: Consistency,
        /// Replicas that answered.
        received: i32,
        /// Replicas it waited for.
        block_for: i32,
        /// Why this node failed it.
        reason: FailureReason,
        /// The kind of write.
        write_type: WriteType,
    },
    /// A function failed on its arguments.
    FunctionFailure {
        /// Keyspace of the function.
        keyspace: String,
        /// Its name.
        function: String,
        /// Its argument types in CQL.
        argument_types: Vec<String>,
    },
    /// No statement is prepared under this id.
    Unprepared {
        /// The id.
        id: Vec<u8>,
    },
}

/// The kind of write that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // The names are Cassandra's.
pub enum WriteType {
    Simple,
    Batch,
    UnloggedBatch,
    Counter,
    BatchLog,
    Cas,
    View,
    Cdc,
}

/// Why a replica failed, with the protocol's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // The names are Cassandra's.
pub enum FailureReason {
    Unknown = 0,
    ReadTooManyTombstones = 1,
    Timeout = 2,
    IncompatibleSchema = 3,
}

/// Why a statement was refused or failed. The message is what the client sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryError {
    /// The kind, which decides the protocol's code.
    pub kind: ErrorKind,
    /// The text, Cassandra's where it has one.
    pub message: String,
    /// What the client was to be warned of before the statement failed.
    pub warnings: Vec<String>,
}

impl QueryError {
    /// An error of any kind.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        QueryError { kind, message: message.into(), warnings: Vec::new() }
    }

    /// The statement may not be carried out.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, message)
    }

    /// The text is no CQL.
    pub fn syntax(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Syntax, message)
    }

    /// An option has a bad value.
    pub fn configuration(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Configuration, message)
    }

    /// The client may not do this.
    pub fn unauthorized(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unauthorized, message)
    }

    /// An unexpected failure.
    pub fn server(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Server, message)
    }

    /// The request is malformed.
    pub fn protocol(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Protocol, message)
    }

    /// Something that this server does not do, named.
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
    /// Damage and I/O errors: the replica (this node) failed.
    fn from(error: model::ReadError) -> Self {
        let kind = match engine::DiskFailureKind::of_read(&error) {
            _ if error.would_wait() => ErrorKind::WouldWait,
            failure => failure.map_or(ErrorKind::Server, ErrorKind::DiskFailure),
        };
        QueryError::new(kind, error.to_string())
    }
}

impl From<engine::EngineError> for QueryError {
    fn from(error: engine::EngineError) -> Self {
        use engine::EngineError;
        let message = error.to_string();
        match error {
            EngineError::UnknownTable(_)
            | EngineError::MutationTooLarge { .. }
            | EngineError::InMemoryTableFull { .. } => QueryError::invalid(message),
            EngineError::InMemorySpace(_) => QueryError::configuration(message),
            error if error.would_wait() => QueryError::new(ErrorKind::WouldWait, message),
            error => {
                let kind = engine::DiskFailureKind::of(&error).map_or(ErrorKind::Server, ErrorKind::DiskFailure);
                QueryError::new(kind, message)
            }
        }
    }
}
