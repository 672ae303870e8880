//! The class of a statement. It decides the time limit, and whether the statement goes to the blocking pool.

use protocol::{BatchKind, WriteType};

use super::Work;
use crate::Need;

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
            Work::Derived(modification) if modification.is_conditional() => Class::Write(WriteType::Cas),
            Work::Derived(modification) if modification.is_counter() => Class::Write(WriteType::Counter),
            Work::Modification(_) | Work::Derived(_) => Class::Write(WriteType::Simple),
            Work::Batch(batch) if batch.is_conditional() => Class::Write(WriteType::Cas),
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

    /// The reason for which a statement of this class goes to a blocking pool, if it does: it may run for long, or it
    /// may wait for other requests of its connection. For example, DROP TABLE waits for the writes to the table.
    pub fn need(self) -> Option<Need> {
        match self {
            Class::Scan | Class::Describe => Some(Need::Processor),
            Class::Truncate | Class::Schema => Some(Need::Requests),
            Class::Read | Class::Write(_) | Class::Session => None,
        }
    }
}
