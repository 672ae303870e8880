//! Resolves and carries out CQL statements.
//!
//! The front door is [`Processor`]: it prepares a text into a [`Prepared`] and carries that out with the values and
//! options of a request ([`QueryOptions`]) into a [`Response`]. Nothing here opens a socket or parses a frame; errors
//! ([`QueryError`]) carry what the protocol needs, and the server chooses codes by their kind.
#![forbid(unsafe_code)]

mod begun;
mod budget;
mod client;
mod consistency;
mod ddl;
mod describe;
mod error;
mod execution;
mod functions;
mod guardrail;
mod modify;
mod names;
mod options;
mod prepared;
mod preparing;
mod processor;
mod response;
mod restrictions;
mod row_view;
mod select;
mod selection;
mod system;
mod terms;
mod trace;

pub use begun::{Begun, BegunModification};
pub use client::ClientState;
pub use describe::snapshot_schema;
pub use engine::{Awaited, Durable, LogHold, to_wait, without_waiting};
pub use error::{Cause, QueryError};
pub use guardrail::{Flags, Guardrail, Guardrails, ReadThresholds};
pub use options::{QueryOptions, Values};
pub use prepared::{Prepared, result_id, statement_id};
pub use processor::{BatchEntry, BatchStatement, Processor, ProcessorOptions};
pub use protocol::{
    ChangeKind, ColumnSpec, Consistency, ErrorKind, FailureReason, ResultColumns, SchemaChange, SchemaTarget, Value,
    WriteType,
};
pub use response::{Response, ResponseBody, Rows};
pub use system::Node;
pub use trace::{TraceEvent, TraceLog};
