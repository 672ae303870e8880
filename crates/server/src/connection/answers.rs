//! Writing answers, and their effects on this and other connections.

use super::Connection;
use crate::in_flight::{Extra, Finished, ReplyTo};
use crate::paths::without_directories;
use crate::turn::Reply;
use protocol::response::write_prepared;
use protocol::{
    DecodeError, ErrorKind, ErrorResponse, Event, Opcode, PreparedMetadata, ResponseHead, ResultMetadata, Version,
};
use query::{QueryHandler, Response, ResponseBody};
use tokio::task::block_in_place;

/// The size of an answer that takes milliseconds to encode.
const LARGE_ANSWER_BYTES: usize = 2 * 1024 * 1024;

impl<H: QueryHandler> Connection<H> {
    pub(super) fn answer_finished(&mut self, finished: Finished<H::Plan>) {
        let Finished { to, size_bytes, reply, memory } = finished;
        self.running_bytes -= size_bytes;
        self.answer(to, reply);
        drop(memory);
    }

    pub(super) fn answer_error(&mut self, stream: i16, error: ErrorResponse) {
        self.answer(ReplyTo { stream, ..ReplyTo::default() }, Reply::Error(error));
    }

    /// Writes a reply, and applies its effects on this and other connections.
    pub(super) fn answer(&mut self, to: ReplyTo, reply: Reply<H::Plan>) {
        let version = self.encoder.version();
        let ReplyTo { stream, extra } = to;
        let Extra { mut warnings, tracing_id } = extra.map(|extra| *extra).unwrap_or_default();
        let response = match reply {
            Reply::Response(Ok(response)) => Ok(response),
            // The warnings of the statement come first. The error's cause is not sent.
            Reply::Response(Err(mut error)) => {
                error.warnings.append(&mut warnings);
                warnings = error.warnings;
                Err(ErrorResponse { kind: error.kind, message: error.message })
            }
            Reply::Error(error) => Err(error),
            Reply::Prepared(id, statement) => {
                self.statements.replaced(&id);
                warnings.extend_from_slice(&statement.warnings);
                let head = ResponseHead { stream, opcode: Opcode::Result, tracing_id, warnings: &warnings };
                let (markers, places) = (&statement.variables, &statement.partition_key_bind_indexes);
                let markers = PreparedMetadata { markers, partition_key: places };
                let result = statement.result_metadata.as_deref();
                let result = result.map(|columns| ResultMetadata { columns, ..ResultMetadata::default() });
                return self.encoder.envelope(&head, |out| {
                    write_prepared(out, version, &id, statement.result_id(), &markers, result.as_ref());
                });
            }
        };
        match response {
            Ok(response) => {
                self.note_response(&response);
                let Response { body, warnings: mut all } = response;
                all.append(&mut warnings);
                let head = ResponseHead { stream, opcode: Opcode::Result, tracing_id, warnings: &all };
                let is_large = matches!(&body, ResponseBody::Rows(rows) if rows.cells.len() > LARGE_ANSWER_BYTES);
                // The rows are freed before the encoder makes segments of them.
                let write = |out: &mut Vec<u8>| {
                    body.write(out, version);
                    drop(body);
                };
                // The cells of a large answer take a while. Another thread serves this thread's other connections
                // meanwhile.
                match is_large {
                    true => block_in_place(|| self.encoder.envelope(&head, write)),
                    false => self.encoder.envelope(&head, write),
                }
            }
            Err(mut error) => {
                self.note_error(&error);
                if error.kind == ErrorKind::Server {
                    error.message = without_directories(&error.message);
                }
                let head = ResponseHead { stream, opcode: Opcode::Error, tracing_id, warnings: &warnings };
                self.encoder.envelope(&head, |out| error.write(out, version));
            }
        }
    }

    pub(super) fn note_response(&mut self, response: &Response) {
        match &response.body {
            ResponseBody::SetKeyspace(keyspace) => self.session.set_keyspace(keyspace.clone()),
            ResponseBody::SchemaChange { change, contained } => {
                for part in contained.iter().chain([change]) {
                    self.shared.events.publish(Event::Schema(part.clone()));
                }
            }
            ResponseBody::Void | ResponseBody::Rows(_) => {}
        }
    }

    pub(super) fn note_error(&self, error: &ErrorResponse) {
        match error {
            ErrorResponse { kind: ErrorKind::WriteTimeout { .. } | ErrorKind::ReadTimeout { .. }, .. } => {
                self.shared.metrics.timeouts.add(1);
            }
            ErrorResponse { kind: ErrorKind::Server, message } => {
                self.shared.notices.failures.log(|left_out| {
                    tracing::error!(client = ?self.session.client.address, %message, "request failed{left_out}");
                });
            }
            _ => {}
        }
    }

    pub(super) fn protocol_error(&mut self, stream: i16, message: String) {
        self.shared.metrics.protocol_errors.add(1);
        tracing::debug!(client = ?self.session.client.address, %message, "protocol error");
        self.answer_error(stream, ErrorResponse::new(ErrorKind::Protocol, message));
    }

    /// Answers an envelope that could not be read. A fatal error ends the connection after the answer.
    pub(super) fn refuse(&mut self, error: DecodeError) {
        self.shared.metrics.protocol_errors.add(1);
        tracing::debug!(client = ?self.session.client.address, message = %error.message, "bad envelope");
        self.closing |= error.fatal;
        if self.agreement.is_some() || self.pending_login.is_some() {
            return self.answer_error(error.stream, error.into());
        }
        match (error.version, Version::from_number(error.version)) {
            (version @ (1 | 2), _) => self.encoder.old_error(version, &error.message),
            (_, Some(version)) => {
                self.encoder.set_version(version);
                self.answer_error(error.stream, error.into());
            }
            (version, None) => self.encoder.foreign_error(version, &error.message),
        }
    }
}
