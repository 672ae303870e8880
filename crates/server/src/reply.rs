//! Answers on their way to the encoder.

use crate::handler::{QueryHandler, level};
use crate::prepared::{Md5Id, Prepared};
use protocol::response::{
    ChangeKind, FailureReason, SchemaTarget, write_prepared, write_schema_change, write_set_keyspace, write_void,
};
use protocol::{
    Encoder, ErrorKind, ErrorResponse, Opcode, PreparedMetadata, ResponseHead, ResultColumns, ResultMetadata,
    RowsWriter, SchemaChange, WriteType,
};
use query::{ChangeTarget, ChangeType, QueryError, Response, ResponseBody};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// The answer to one request.
pub(crate) struct Reply<H: QueryHandler> {
    pub(crate) stream: i16,
    pub(crate) tracing_id: Option<[u8; 16]>,
    pub(crate) warnings: Vec<String>,
    pub(crate) answer: Result<Answer<H>, ErrorResponse>,
}

/// What a request that did not fail is answered.
pub(crate) enum Answer<H: QueryHandler> {
    /// The result of a statement.
    Result { response: Response, metadata: MetadataForm<H> },
    /// The result of PREPARE.
    Prepared(Arc<Prepared<H>>),
}

/// How the column metadata goes with rows.
pub(crate) struct MetadataForm<H: QueryHandler> {
    /// The statement whose columns the rows have.
    pub(crate) known: Option<Arc<Prepared<H>>>,
    /// The client has it, or wants none.
    pub(crate) skip: bool,
    /// The client has another; this is the id of the new one (v5).
    pub(crate) changed_id: Option<Md5Id>,
}

impl<H: QueryHandler> MetadataForm<H> {
    /// All of it, as the rows have it, or none.
    pub(crate) fn of_rows(skip: bool) -> MetadataForm<H> {
        MetadataForm { known: None, skip, changed_id: None }
    }
}

impl<H: QueryHandler> Reply<H> {
    /// An answer without tracing and warnings.
    pub(crate) fn new(stream: i16, answer: Result<Answer<H>, ErrorResponse>) -> Reply<H> {
        Reply { stream, tracing_id: None, warnings: Vec::new(), answer }
    }

    /// Writes the envelope.
    pub(crate) fn encode(&self, encoder: &mut Encoder) {
        let version = encoder.version();
        let (opcode, warnings) = match &self.answer {
            Ok(Answer::Result { response, .. }) => (Opcode::Result, &response.warnings),
            Ok(Answer::Prepared(_)) => (Opcode::Result, &self.warnings),
            Err(_) => (Opcode::Error, &self.warnings),
        };
        let head = ResponseHead { stream: self.stream, opcode, tracing_id: self.tracing_id, warnings };
        encoder.envelope(&head, |out| match &self.answer {
            Err(error) => error.write(out, version),
            Ok(Answer::Prepared(prepared)) => {
                let markers = PreparedMetadata { markers: &prepared.markers, partition_key: &prepared.partition_key };
                let result = prepared.result.as_ref();
                let result = result.map(|columns| ResultMetadata { columns, ..ResultMetadata::default() });
                write_prepared(out, version, &prepared.id, &prepared.result_id, &markers, result.as_ref());
            }
            Ok(Answer::Result { response, metadata }) => match &response.body {
                ResponseBody::Void => write_void(out),
                ResponseBody::SetKeyspace(keyspace) => write_set_keyspace(out, keyspace),
                ResponseBody::SchemaChange(change) => write_schema_change(out, &schema_change(change), version),
                ResponseBody::Rows(rows) => {
                    let converted;
                    let columns = match metadata.known.as_ref().and_then(|prepared| prepared.result.as_ref()) {
                        Some(columns) => columns,
                        None => {
                            converted = to_columns(&rows.metadata.columns);
                            &converted
                        }
                    };
                    let metadata = ResultMetadata {
                        columns,
                        paging_state: rows.paging_state.as_deref(),
                        skip: metadata.skip,
                        changed_id: metadata.changed_id.as_ref().map(|id| &id[..]),
                    };
                    let mut writer = RowsWriter::new(out, version, &metadata);
                    writer.encoded_rows(rows.row_count, &rows.cells);
                    writer.finish();
                }
            },
        });
    }
}

/// A column in the protocol's terms.
pub(crate) fn to_protocol(column: &query::ColumnSpec) -> protocol::ColumnSpec {
    protocol::ColumnSpec {
        keyspace: column.keyspace.clone(),
        table: column.table.clone(),
        name: column.name.clone(),
        ty: column.ty.clone(),
    }
}

/// The columns of a result in the protocol's terms.
pub(crate) fn to_columns(columns: &[query::ColumnSpec]) -> ResultColumns {
    ResultColumns::new(columns.iter().map(to_protocol).collect())
}

/// A change of the schema in the protocol's terms.
pub(crate) fn schema_change(change: &query::SchemaChange) -> SchemaChange {
    let name: Arc<str> = change.name.as_deref().unwrap_or_default().into();
    SchemaChange {
        kind: match change.change {
            ChangeType::Created => ChangeKind::Created,
            ChangeType::Updated => ChangeKind::Updated,
            ChangeType::Dropped => ChangeKind::Dropped,
        },
        keyspace: change.keyspace.as_str().into(),
        target: match change.target {
            ChangeTarget::Keyspace => SchemaTarget::Keyspace,
            ChangeTarget::Table => SchemaTarget::Table(name),
            ChangeTarget::Type => SchemaTarget::Type(name),
            ChangeTarget::Function => SchemaTarget::Function(name, change.arguments.clone()),
            ChangeTarget::Aggregate => SchemaTarget::Aggregate(name, change.arguments.clone()),
        },
    }
}

/// An error of the query layer in the protocol's terms.
pub(crate) fn error_response(error: QueryError) -> ErrorResponse {
    use query::ErrorKind as From;
    // The only replica is this node.
    let failures = |reason| vec![(IpAddr::V4(Ipv4Addr::LOCALHOST), failure_reason(reason))];
    let kind = match error.kind {
        From::Server | From::DiskFailure(_) => ErrorKind::Server,
        From::Protocol => ErrorKind::Protocol,
        From::Syntax => ErrorKind::Syntax,
        From::Invalid => ErrorKind::Invalid,
        From::Configuration => ErrorKind::Config,
        From::AlreadyExists { keyspace, table } => ErrorKind::AlreadyExists { keyspace, table },
        From::Unauthorized => ErrorKind::Unauthorized,
        From::Unavailable { consistency, required, alive } => {
            ErrorKind::Unavailable { consistency: level(consistency), required, alive }
        }
        From::Overloaded => ErrorKind::Overloaded,
        From::Truncate => ErrorKind::Truncate,
        From::WriteTimeout { consistency, received, block_for, write_type } => ErrorKind::WriteTimeout {
            consistency: level(consistency),
            received,
            block_for,
            write_type: to_write_type(write_type),
            contentions: 0,
        },
        From::ReadTimeout { consistency, received, block_for, data_present } => {
            ErrorKind::ReadTimeout { consistency: level(consistency), received, block_for, data_present }
        }
        From::ReadFailure { consistency, received, block_for, reason, data_present } => ErrorKind::ReadFailure {
            consistency: level(consistency),
            received,
            block_for,
            failures: failures(reason),
            data_present,
        },
        From::WriteFailure { consistency, received, block_for, reason, write_type } => ErrorKind::WriteFailure {
            consistency: level(consistency),
            received,
            block_for,
            failures: failures(reason),
            write_type: to_write_type(write_type),
        },
        From::FunctionFailure { keyspace, function, argument_types } => {
            ErrorKind::FunctionFailure { keyspace, function, arguments: argument_types }
        }
        From::Unprepared { id } => ErrorKind::Unprepared { id },
        // A kind that is newer than this function.
        _ => ErrorKind::Server,
    };
    ErrorResponse { kind, message: error.message }
}

fn to_write_type(write_type: query::WriteType) -> WriteType {
    match write_type {
        query::WriteType::Simple => WriteType::Simple,
        query::WriteType::Batch => WriteType::Batch,
        query::WriteType::UnloggedBatch => WriteType::UnloggedBatch,
        query::WriteType::Counter => WriteType::Counter,
        query::WriteType::BatchLog => WriteType::BatchLog,
        query::WriteType::Cas => WriteType::Cas,
        query::WriteType::View => WriteType::View,
        query::WriteType::Cdc => WriteType::Cdc,
    }
}

fn failure_reason(reason: query::FailureReason) -> FailureReason {
    match reason {
        query::FailureReason::Unknown => FailureReason::Unknown,
        query::FailureReason::ReadTooManyTombstones => FailureReason::ReadTooManyTombstones,
        query::FailureReason::Timeout => FailureReason::Timeout,
        query::FailureReason::IncompatibleSchema => FailureReason::IncompatibleSchema,
    }
}
