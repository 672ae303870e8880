//! ERROR bodies: every code with its extra fields, and what older versions get instead.

use std::net::IpAddr;

use super::event::put_reasons;
use crate::message::{Consistency, ErrorKind, ErrorResponse, FailureReason, WriteType};
use crate::wire::writer::{put_int, put_short, put_short_bytes, put_string, put_string_list};
use crate::{DecodeError, Version};

impl ErrorResponse {
    /// Writes the body of an ERROR for a client of this version.
    pub fn write(&self, out: &mut Vec<u8>, version: Version) {
        if let Some(older) = self.downgraded(version) {
            return older.write(out, version);
        }
        put_int(out, self.kind.code());
        put_string(out, &self.message);
        write_fields(&self.kind, out, version);
    }

    /// The replacement for a client whose version does not know the error.
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
            // Cassandra has a separate error only for a compare-and-set timeout that counts contentions.
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

impl From<DecodeError> for ErrorResponse {
    fn from(error: DecodeError) -> ErrorResponse {
        ErrorResponse { kind: error.kind, message: error.message }
    }
}
