//! The class of a statement. It decides the time limit, and whether the statement goes to the blocking pool.

use std::time::Duration;

use cql::ast::BatchKind;
use protocol::{Consistency, ErrorKind, QueryOptions, WriteType};

use crate::prepared::Work;
use crate::{Processor, QueryError};

/// The class of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// A read of given partitions.
    Read,
    /// A read of a range of partitions.
    Scan,
    Write(WriteType),
    Truncate,
    /// A change of the schema.
    Schema,
    /// A description of the schema.
    Describe,
    /// A change of the connection's state.
    Session,
}

impl Class {
    pub fn of(work: &Work) -> Class {
        match work {
            Work::Select(select) if select.is_scan() => Class::Scan,
            Work::Select(_) => Class::Read,
            Work::Modification(_) => Class::Write(WriteType::Simple),
            Work::Batch(batch) => Class::of_batch(batch.kind()),
            Work::Truncate(_) => Class::Truncate,
            Work::Schema(_) => Class::Schema,
            Work::Describe(_) => Class::Describe,
            Work::Use(_) => Class::Session,
        }
    }

    pub fn of_batch(kind: BatchKind) -> Class {
        Class::Write(match kind {
            BatchKind::Logged => WriteType::Batch,
            BatchKind::Unlogged => WriteType::UnloggedBatch,
            BatchKind::Counter => WriteType::Counter,
        })
    }

    /// Whether a statement of this class goes to the blocking pool: it may run for long, or it may wait for other
    /// requests of its connection. For example, DROP TABLE waits for the writes to the table.
    pub fn must_block(self) -> bool {
        match self {
            Class::Scan | Class::Truncate | Class::Schema | Class::Describe => true,
            Class::Read | Class::Write(_) | Class::Session => false,
        }
    }
}

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
            Class::Write(write_type) => TimeLimit::write(limits.write_timeout, level, write_type),
            Class::Truncate => TimeLimit::truncate(limits.truncate_timeout),
            Class::Schema | Class::Describe | Class::Session => TimeLimit::NONE,
        }
    }
}
