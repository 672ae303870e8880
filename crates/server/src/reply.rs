//! Answers on their way to the encoder.

use std::sync::Arc;

use protocol::response::{write_prepared, write_schema_change, write_set_keyspace, write_void};
use protocol::{Encoder, ErrorResponse, Opcode, PreparedMetadata, ResponseHead, ResultMetadata, RowsWriter};
use query::{ClientState, Lease, QueryError, Response, ResponseBody};

use crate::handler::QueryHandler;
use crate::limits::FREE_BYTES;
use crate::prepared::{Md5Id, Prepared};

/// The answer to one request.
pub(crate) struct Reply<H: QueryHandler> {
    pub(crate) stream: i16,
    pub(crate) tracing_id: Option<[u8; 16]>,
    pub(crate) warnings: Vec<String>,
    pub(crate) answer: Result<Answer<H>, ErrorResponse>,
    /// The memory of rows that wait to be encoded, of what its client may take.
    pub(crate) memory: Option<Lease>,
}

/// What a request that did not fail is answered.
pub(crate) enum Answer<H: QueryHandler> {
    /// The result of a statement.
    Result { response: Response, metadata: MetadataForm },
    /// The result of PREPARE.
    Prepared(Arc<Prepared<H>>),
}

/// The form in which the columns accompany rows.
pub(crate) struct MetadataForm {
    /// Whether the client has the columns, or wants none.
    pub(crate) skip: bool,
    /// The id of the columns where the client has others (v5).
    pub(crate) changed_id: Option<Md5Id>,
}

impl MetadataForm {
    /// The columns as the rows have them, or none.
    pub(crate) fn of_rows(skip: bool) -> MetadataForm {
        MetadataForm { skip, changed_id: None }
    }
}

impl<H: QueryHandler> Reply<H> {
    /// An answer without tracing and warnings.
    pub(crate) fn new(stream: i16, answer: Result<Answer<H>, ErrorResponse>) -> Reply<H> {
        Reply { stream, tracing_id: None, warnings: Vec::new(), answer, memory: None }
    }

    /// Counts the rows as memory of this client until they are encoded. The statement has taken as much before.
    pub(crate) fn hold(&mut self, client: &ClientState) {
        let Ok(Answer::Result { response: Response { body: ResponseBody::Rows(rows), .. }, .. }) = &self.answer else {
            return;
        };
        if let (Some(memory), true) = (&client.memory, rows.cells.len() > FREE_BYTES) {
            let mut lease = Lease::new(memory.clone());
            lease.grow(rows.cells.len());
            self.memory = Some(lease);
        }
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
                let result = prepared.result.as_deref();
                let result = result.map(|columns| ResultMetadata { columns, ..ResultMetadata::default() });
                write_prepared(out, version, &prepared.id, &prepared.result_id, &markers, result.as_ref());
            }
            Ok(Answer::Result { response, metadata }) => match &response.body {
                ResponseBody::Void => write_void(out),
                ResponseBody::SetKeyspace(keyspace) => write_set_keyspace(out, keyspace),
                ResponseBody::SchemaChange { change, .. } => write_schema_change(out, change, version),
                ResponseBody::Rows(rows) => {
                    let metadata = ResultMetadata {
                        columns: &rows.metadata,
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

/// The ERROR message for an error of the query layer. Its cause stays on this node.
pub(crate) fn error_response(error: QueryError) -> ErrorResponse {
    ErrorResponse { kind: error.kind, message: error.message }
}
