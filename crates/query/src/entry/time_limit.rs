//! The time limit of a request, which depends on the class of its statement.

use std::time::Duration;

use protocol::{Consistency, ErrorKind, QueryOptions, WriteType};

use crate::prepared::Class;
use crate::{Processor, QueryError};

/// The time limit of a request, and the error that its client gets when the time is over.
#[derive(Clone, Copy, Debug)]
pub struct TimeLimit {
    duration: Option<Duration>,
    failure: Failure,
}

#[derive(Clone, Copy, Debug)]
enum Failure {
    Read(Consistency),
    Write(Consistency, WriteType),
    Truncate,
    /// There is no limit. The request was cancelled before it began.
    Cancelled,
}

impl TimeLimit {
    /// No time limit.
    pub const NONE: TimeLimit = TimeLimit { duration: None, failure: Failure::Cancelled };

    /// The time limit of a read.
    pub fn read(duration: Duration, consistency: Consistency) -> TimeLimit {
        TimeLimit { duration: Some(duration), failure: Failure::Read(consistency) }
    }

    /// The time limit of a write.
    pub fn write(duration: Duration, consistency: Consistency, write_type: WriteType) -> TimeLimit {
        TimeLimit { duration: Some(duration), failure: Failure::Write(consistency, write_type) }
    }

    /// The time limit of TRUNCATE.
    pub fn truncate(duration: Duration) -> TimeLimit {
        TimeLimit { duration: Some(duration), failure: Failure::Truncate }
    }

    /// The time that the request may take; `None` means no limit.
    pub fn duration(&self) -> Option<Duration> {
        self.duration
    }

    /// The error that the client gets when the time is over.
    pub fn error(&self) -> QueryError {
        let text = "Operation timed out - received only 0 responses.";
        let (received, block_for) = (0, 1);
        match self.failure {
            Failure::Read(consistency) => {
                let kind = ErrorKind::ReadTimeout { consistency, received, block_for, data_present: false };
                QueryError::new(kind, text)
            }
            Failure::Write(consistency, WriteType::Cas) => {
                let write_type = WriteType::Cas;
                let kind = ErrorKind::WriteTimeout { consistency, received, block_for, write_type, contentions: 0 };
                let text = "CAS operation timed out: received 0 of 1 required responses after 0 contention retries";
                QueryError::new(kind, text)
            }
            Failure::Write(consistency, write_type) => {
                let kind = ErrorKind::WriteTimeout { consistency, received, block_for, write_type, contentions: 0 };
                QueryError::new(kind, text)
            }
            Failure::Truncate => QueryError::new(ErrorKind::Truncate, "Truncate timed out - received only 0 responses"),
            Failure::Cancelled => QueryError::server("the request was given up before it began"),
        }
    }
}

impl Processor {
    /// The time limit of a request of this class.
    pub(super) fn time_limit(&self, class: Class, options: &QueryOptions<'_>) -> TimeLimit {
        let (level, limits) = (options.consistency, self.options());
        match class {
            Class::Read => TimeLimit::read(limits.read_timeout, level),
            Class::Scan => TimeLimit::read(limits.range_timeout, level),
            Class::Write(WriteType::Cas) => {
                TimeLimit::write(limits.cas_contention_timeout, options.serial_consistency, WriteType::Cas)
            }
            Class::Write(write_type) => TimeLimit::write(limits.write_timeout, level, write_type),
            Class::Truncate => TimeLimit::truncate(limits.truncate_timeout),
            Class::Schema | Class::Describe | Class::Session => TimeLimit::NONE,
        }
    }
}
