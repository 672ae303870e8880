//! ERROR bodies: every code with its extra fields, and what older versions get instead.

use super::event::put_reasons;
use crate::writer::{put_int, put_short, put_short_bytes, put_string, put_string_list};
use crate::{Consistency, DecodeError, ProtocolError, Version};
use std::net::IpAddr;

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
        /// Level asked for.
        consistency: Consistency,
        /// Replicas it needs.
        required: i32,
        /// Replicas alive.
        alive: i32,
    },
    /// 0x1001: too much to do.
    Overloaded,
    /// 0x1002: not ready yet.
    Bootstrapping,
    /// 0x1003: TRUNCATE failed.
    Truncate,
    /// 0x1100: replicas did not acknowledge a write in time.
    WriteTimeout {
        /// Level asked for.
        consistency: Consistency,
        /// Answers.
        received: i32,
        /// Answers needed.
        block_for: i32,
        /// What kind of write.
        write_type: WriteType,
        /// Contention of a compare-and-set write.
        contentions: u16,
    },
    /// 0x1200: replicas did not answer a read in time.
    ReadTimeout {
        /// Level asked for.
        consistency: Consistency,
        /// Answers.
        received: i32,
        /// Answers needed.
        block_for: i32,
        /// Whether the replica asked for data was among them.
        data_present: bool,
    },
    /// 0x1300: a replica failed on a read.
    ReadFailure {
        /// Level asked for.
        consistency: Consistency,
        /// Answers.
        received: i32,
        /// Answers needed.
        block_for: i32,
        /// Who failed, and why.
        failures: Vec<(IpAddr, FailureReason)>,
        /// Whether the replica asked for data answered.
        data_present: bool,
    },
    /// 0x1400: a user's function failed.
    FunctionFailure {
        /// Its keyspace.
        keyspace: String,
        /// Its name.
        function: String,
        /// CQL names of its argument types.
        arguments: Vec<String>,
    },
    /// 0x1500: a replica failed on a write.
    WriteFailure {
        /// Level asked for.
        consistency: Consistency,
        /// Answers.
        received: i32,
        /// Answers needed.
        block_for: i32,
        /// Who failed, and why.
        failures: Vec<(IpAddr, FailureReason)>,
        /// What kind of write.
        write_type: WriteType,
    },
    /// 0x1600: no room for change data.
    CdcWriteFailure,
    /// 0x1700: the outcome of a compare-and-set write is unknown.
    CasWriteUnknown {
        /// Level asked for.
        consistency: Consistency,
        /// Answers.
        received: i32,
        /// Answers needed.
        block_for: i32,
    },
    /// 0x2000: the statement does not parse.
    Syntax,
    /// 0x2100: not allowed.
    Unauthorized,
    /// 0x2200: the statement makes no sense.
    Invalid,
    /// 0x2300: an option's value makes no sense.
    Config,
    /// 0x2400: a keyspace, table or view of that name exists.
    AlreadyExists {
        /// Its keyspace.
        keyspace: String,
        /// Its name; empty when it is the keyspace.
        table: String,
    },
    /// 0x2500: the id is not known (any more).
    Unprepared {
        /// The id.
        id: Vec<u8>,
    },
}

/// What kind of write failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
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

/// Why a replica failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
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

    /// The name that Cassandra prints when it folds an error into another.
    fn name(&self) -> &'static str {
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

    /// Writes the body of an ERROR for a client of this version.
    pub fn write(&self, out: &mut Vec<u8>, version: Version) {
        if let Some(older) = self.downgraded(version) {
            return older.write(out, version);
        }
        put_int(out, self.kind.code());
        put_string(out, &self.message);
        write_fields(&self.kind, out, version);
    }

    /// What a client gets whose version does not know the error.
    fn downgraded(&self, version: Version) -> Option<ErrorResponse> {
        let timeout = |received: i32| format!("Operation timed out - received only {received} responses.");
        let cas_timeout = |consistency, received, block_for| {
            let write_type = WriteType::Cas;
            let kind = ErrorKind::WriteTimeout { consistency, received, block_for, write_type, contentions: 0 };
            ErrorResponse { kind, message: timeout(received) }
        };
        match &self.kind {
            ErrorKind::ReadFailure { consistency, received, block_for, data_present, .. } if version < Version::V4 => {
                let (consistency, received, block_for) = (*consistency, *received, *block_for);
                let data_present = *data_present;
                let kind = ErrorKind::ReadTimeout { consistency, received, block_for, data_present };
                Some(ErrorResponse { kind, message: timeout(received) })
            }
            ErrorKind::WriteFailure { consistency, received, block_for, write_type, .. } if version < Version::V4 => {
                let (consistency, received, block_for) = (*consistency, *received, *block_for);
                let write_type = *write_type;
                let kind = ErrorKind::WriteTimeout { consistency, received, block_for, write_type, contentions: 0 };
                Some(ErrorResponse { kind, message: timeout(received) })
            }
            ErrorKind::FunctionFailure { .. } | ErrorKind::CdcWriteFailure if version < Version::V4 => {
                let message = format!("ERROR {}: {}", self.kind.name(), self.message);
                Some(ErrorResponse { kind: ErrorKind::Invalid, message })
            }
            ErrorKind::CasWriteUnknown { consistency, received, block_for } if version < Version::V5 => {
                Some(cas_timeout(*consistency, *received, *block_for))
            }
            // Only a compare-and-set timeout that counts contentions is a different error to Cassandra.
            ErrorKind::WriteTimeout {
                consistency,
                received,
                block_for,
                write_type: WriteType::Cas,
                contentions: 1..,
            } if version < Version::V5 => Some(cas_timeout(*consistency, *received, *block_for)),
            _ => None,
        }
    }
}

fn write_fields(kind: &ErrorKind, out: &mut Vec<u8>, version: Version) {
    match kind {
        ErrorKind::Unavailable { consistency, required, alive } => {
            put_counts(out, *consistency, *required, *alive);
        }
        ErrorKind::WriteTimeout { consistency, received, block_for, write_type, contentions } => {
            put_counts(out, *consistency, *received, *block_for);
            put_string(out, write_type.name());
            if version >= Version::V5 && *write_type == WriteType::Cas {
                put_short(out, *contentions);
            }
        }
        ErrorKind::ReadTimeout { consistency, received, block_for, data_present } => {
            put_counts(out, *consistency, *received, *block_for);
            out.push(u8::from(*data_present));
        }
        ErrorKind::ReadFailure { consistency, received, block_for, failures, data_present } => {
            put_counts(out, *consistency, *received, *block_for);
            put_failures(out, failures, version);
            out.push(u8::from(*data_present));
        }
        ErrorKind::WriteFailure { consistency, received, block_for, failures, write_type } => {
            put_counts(out, *consistency, *received, *block_for);
            put_failures(out, failures, version);
            put_string(out, write_type.name());
        }
        ErrorKind::FunctionFailure { keyspace, function, arguments } => {
            put_string(out, keyspace);
            put_string(out, function);
            put_string_list(out, arguments);
        }
        ErrorKind::CasWriteUnknown { consistency, received, block_for } => {
            put_counts(out, *consistency, *received, *block_for);
        }
        ErrorKind::AlreadyExists { keyspace, table } => {
            put_string(out, keyspace);
            put_string(out, table);
        }
        ErrorKind::Unprepared { id } => put_short_bytes(out, id),
        ErrorKind::Server
        | ErrorKind::Protocol
        | ErrorKind::BadCredentials
        | ErrorKind::Overloaded
        | ErrorKind::Bootstrapping
        | ErrorKind::Truncate
        | ErrorKind::CdcWriteFailure
        | ErrorKind::Syntax
        | ErrorKind::Unauthorized
        | ErrorKind::Invalid
        | ErrorKind::Config => {}
    }
}

fn put_counts(out: &mut Vec<u8>, consistency: Consistency, first: i32, second: i32) {
    put_short(out, consistency.number());
    put_int(out, first);
    put_int(out, second);
}

fn put_failures(out: &mut Vec<u8>, failures: &[(IpAddr, FailureReason)], version: Version) {
    if version < Version::V5 {
        return put_int(out, failures.len() as i32);
    }
    let reasons: Vec<_> = failures.iter().map(|(address, reason)| (*address, *reason as u16)).collect();
    put_reasons(out, &reasons);
}

impl From<ProtocolError> for ErrorResponse {
    fn from(error: ProtocolError) -> ErrorResponse {
        ErrorResponse { kind: ErrorKind::Protocol, message: error.message }
    }
}

impl From<DecodeError> for ErrorResponse {
    fn from(error: DecodeError) -> ErrorResponse {
        ErrorResponse { kind: error.kind, message: error.message }
    }
}
