//! Resolves and executes CQL statements.
//!
//! The entry point is [`QueryHandler::begin`] of a [`Processor`]: a [`Request`] is done, pending, or must be run on a
//! thread where it may wait. Nothing here opens a socket or parses a frame; requests and answers use the types of the
//! protocol, and errors ([`QueryError`]) carry what the protocol needs.
#![forbid(unsafe_code)]

mod audit;
mod auth;
mod budget;
mod client;
mod consistency;
mod ddl;
mod describe;
mod entry;
mod error;
mod execution;
mod fnv;
mod functions;
mod guardrail;
mod large_rows;
mod list_paths;
mod memory;
mod modify;
mod names;
mod prepared;
mod preparing;
mod processor;
mod request_logs;
mod response;
mod restrictions;
mod row_view;
mod select;
mod selection;
mod system;
mod terms;
mod trace;
mod vector_index;

pub use audit::{AuditFilter, AuditOptions, Category, Choice, OneLine};
pub use auth::{
    AccessOptions, AuthOptions, Authenticator, CidrChecks, Login, cidr_block, stored_cidr_block, without_passwords,
};
pub use client::ClientState;
pub use cql::token_count;
pub use ddl::TABLE_PROPERTIES;
pub use describe::snapshot_schema;
pub use engine::{LogHold, Turn};
pub use entry::{
    Answer, Authentication, BatchEntry, KeptForms, LogQueue, LoginStart, MustBlock, Outcome, Pending, QueryHandler,
    Request, Statement, TimeLimit,
};
pub use error::{Cause, Need, QueryError};
pub use guardrail::{
    CONSISTENCY_LEVELS, DiskUsage, DiskUsageState, Flags, Guardrail, Guardrails, ReadThresholds, ValueGuardrail,
    ValueSet, Violation,
};
pub use large_rows::BackgroundRows;
pub use memory::{Lease, MemoryBudget};
pub use prepared::{Plan, Prepared, result_id, statement_id};
pub use processor::{Processor, ProcessorOptions};
pub use protocol::{
    BatchKind, BatchStatement, ChangeKind, ColumnSpec, Consistency, ErrorKind, FailureReason, MetadataForm,
    QueryOptions, ResponseBody, ResultColumns, Rows, SchemaChange, SchemaTarget, Value, Values, WriteType,
};
pub use request_logs::RequestLog;
pub use response::Response;
pub use system::Node;
pub use trace::{TraceEvent, TraceLog};
