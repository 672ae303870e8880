//! Errors: the code that a client acts on, and the fields that the protocol sends in addition to the text.

use std::net::IpAddr;
use std::sync::Arc;

use super::Consistency;
use crate::ProtocolError;

/// An ERROR message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorResponse {
    /// The code and its fields.
    pub kind: ErrorKind,
    /// The text.
    pub message: String,
}

/// The code of an error, with the fields that follow its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// 0x0000: something unexpected.
    Server,
    /// 0x000A: the client broke the protocol.
    Protocol,
    /// 0x0100: wrong credentials.
    BadCredentials,
    /// 0x1000: not enough live replicas.
    Unavailable {
        /// The requested level.
        consistency: Consistency,
        /// Replicas it needs.
        required: i32,
        /// Replicas alive.
        alive: i32,
    },
    /// 0x1001: the node is overloaded.
    Overloaded,
    /// 0x1002: not ready yet.
    Bootstrapping,
    /// 0x1003: TRUNCATE failed.
    Truncate,
    /// 0x1100: replicas did not acknowledge a write in time.
    WriteTimeout {
        /// The requested level.
        consistency: Consistency,
        /// Answers received.
        received: i32,
        /// Answers needed.
        block_for: i32,
        /// The kind of write.
        write_type: WriteType,
        /// Contention of a compare-and-set write.
        contentions: u16,
    },
    /// 0x1200: replicas did not answer a read in time.
    ReadTimeout {
        /// The requested level.
        consistency: Consistency,
        /// Answers.
        received: i32,
        /// Answers needed.
        block_for: i32,
        /// Whether the replica that was to return data was among them.
        data_present: bool,
    },
    /// 0x1300: a replica failed on a read.
    ReadFailure {
        /// The requested level.
        consistency: Consistency,
        /// Answers.
        received: i32,
        /// Answers needed.
        block_for: i32,
        /// The failed replicas, and why.
        failures: Vec<(IpAddr, FailureReason)>,
        /// Whether the replica that was to return data answered.
        data_present: bool,
    },
    /// 0x1400: a user's function failed.
    FunctionFailure {
        /// Its keyspace.
        keyspace: Arc<str>,
        /// Its name.
        function: Arc<str>,
        /// CQL names of its argument types.
        arguments: Vec<String>,
    },
    /// 0x1500: a replica failed on a write.
    WriteFailure {
        /// The requested level.
        consistency: Consistency,
        /// Answers.
        received: i32,
        /// Answers needed.
        block_for: i32,
        /// The failed replicas, and why.
        failures: Vec<(IpAddr, FailureReason)>,
        /// The kind of write.
        write_type: WriteType,
    },
    /// 0x1600: no room for change data.
    CdcWriteFailure,
    /// 0x1700: the outcome of a compare-and-set write is unknown.
    CasWriteUnknown {
        /// The requested level.
        consistency: Consistency,
        /// Answers.
        received: i32,
        /// Answers needed.
        block_for: i32,
    },
    /// 0x2000: the statement does not parse.
    Syntax,
    /// 0x2100: the user lacks permission.
    Unauthorized,
    /// 0x2200: the statement is invalid.
    Invalid,
    /// 0x2300: an option's value is invalid.
    Config,
    /// 0x2400: a keyspace, table or view of that name exists.
    AlreadyExists {
        /// Its keyspace.
        keyspace: String,
        /// Its name; empty when it is the keyspace.
        table: String,
    },
    /// 0x2500: the id is unknown.
    Unprepared {
        /// The id.
        id: Vec<u8>,
    },
}

/// The kind of a failed write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

impl WriteType {
    /// The name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            WriteType::Simple => "SIMPLE",
            WriteType::Batch => "BATCH",
            WriteType::UnloggedBatch => "UNLOGGED_BATCH",
            WriteType::Counter => "COUNTER",
            WriteType::BatchLog => "BATCH_LOG",
            WriteType::Cas => "CAS",
            WriteType::View => "VIEW",
            WriteType::Cdc => "CDC",
        }
    }
}

/// The reason why a replica failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureReason {
    Unknown = 0,
    ReadTooManyTombstones = 1,
    Timeout = 2,
    IncompatibleSchema = 3,
    ReadSize = 4,
    NodeDown = 5,
    IndexNotAvailable = 6,
    ReadTooManyIndexes = 7,
}

impl ErrorKind {
    /// The code on the wire.
    pub fn code(&self) -> i32 {
        match self {
            ErrorKind::Server => 0x0000,
            ErrorKind::Protocol => 0x000A,
            ErrorKind::BadCredentials => 0x0100,
            ErrorKind::Unavailable { .. } => 0x1000,
            ErrorKind::Overloaded => 0x1001,
            ErrorKind::Bootstrapping => 0x1002,
            ErrorKind::Truncate => 0x1003,
            ErrorKind::WriteTimeout { .. } => 0x1100,
            ErrorKind::ReadTimeout { .. } => 0x1200,
            ErrorKind::ReadFailure { .. } => 0x1300,
            ErrorKind::FunctionFailure { .. } => 0x1400,
            ErrorKind::WriteFailure { .. } => 0x1500,
            ErrorKind::CdcWriteFailure => 0x1600,
            ErrorKind::CasWriteUnknown { .. } => 0x1700,
            ErrorKind::Syntax => 0x2000,
            ErrorKind::Unauthorized => 0x2100,
            ErrorKind::Invalid => 0x2200,
            ErrorKind::Config => 0x2300,
            ErrorKind::AlreadyExists { .. } => 0x2400,
            ErrorKind::Unprepared { .. } => 0x2500,
        }
    }

    /// The name that Cassandra prints when it includes an error in another.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            ErrorKind::FunctionFailure { .. } => "FUNCTION_FAILURE",
            _ => "CDC_WRITE_FAILURE",
        }
    }
}

impl ErrorResponse {
    /// An error of this kind and text.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> ErrorResponse {
        ErrorResponse { kind, message: message.into() }
    }

    /// 0x2500 with Cassandra's text.
    pub fn unprepared(id: &[u8]) -> ErrorResponse {
        let hex: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
        let message = format!(
            "Prepared query with ID {hex} not found (either the query was not prepared on this host (maybe the host has \
             been restarted?) or you have prepared too many queries and it has been evicted from the internal cache)"
        );
        ErrorResponse { kind: ErrorKind::Unprepared { id: id.to_vec() }, message }
    }
}

impl From<ProtocolError> for ErrorResponse {
    fn from(error: ProtocolError) -> ErrorResponse {
        ErrorResponse { kind: ErrorKind::Protocol, message: error.message }
    }
}
