//! A prepared statement that this connection has used before, carried out in the call that reads its request: its
//! answer goes straight to the encoder, and nothing that threads share changes on the way but the data.

use crate::Shared;
use crate::handler::QueryHandler;
use crate::in_flight::{InFlight, TimeLimit};
use crate::prepared::{Prepared, RecentStatements};
use crate::session::Session;
use crate::start::{Bound, Started, query_options, written};
use protocol::response::write_void;
use protocol::{Body, Encoder, Header, Opcode, Request, ResponseHead, ResultMetadata, RowsWriter, flags};
use query::{Begun, QueryOptions, Response, ResponseBody, WriteType};

/// A request to carry it out, without a trace.
struct Known<'k, H: QueryHandler> {
    shared: &'k Shared<H>,
    session: &'k Session,
    prepared: &'k Prepared<H>,
    /// Of the result's metadata that the client has.
    client_id: Option<&'k [u8]>,
    options: &'k protocol::QueryOptions<'k>,
    header: &'k Header,
}

/// Carries out a request if it is to carry out such a statement, without a trace, and [`Known::start`] does; whoever
/// calls counts it. `None`, without any effect, for all others, and for what is no request.
pub(crate) fn start_known<H: QueryHandler>(
    shared: &Shared<H>,
    session: &Session,
    statements: &RecentStatements<H>,
    encoder: &mut Encoder,
    (header, body): (&Header, &[u8]),
) -> Option<Started<H>> {
    if header.opcode != Opcode::Execute || header.flags & flags::TRACING != 0 {
        return None;
    }
    let parsed = Body::parse(header, body).ok()?;
    let Request::Execute { id, result_metadata_id, ref options } = parsed.request else { return None };
    let prepared = statements.known(id)?;
    let known = Known { shared, session, prepared, client_id: result_metadata_id, options, header };
    known.start(body.len(), encoder)
}

impl<H: QueryHandler> Known<'_, H> {
    /// Carries it out, or as much of it as need not wait for the log. `None`, without any effect, where it takes more
    /// than that, is wrong, or the client is to be warned.
    fn start(&self, size_bytes: usize, encoder: &mut Encoder) -> Option<Started<H>> {
        let Known { session, prepared, options, header, .. } = self;
        let is_at_home = prepared.keyspace.is_none() || prepared.keyspace == session.client.keyspace;
        if !is_at_home || options.page_size == Some(0) || session.has_warnings() {
            return None;
        }
        let bound = Bound::new(&options.values);
        let query_options = query_options(options, &bound, header.version, None);
        match prepared.is_modification {
            true => self.write(&query_options, size_bytes, encoder),
            false => self.find_rows(&query_options, encoder),
        }
    }

    fn write(&self, options: &QueryOptions<'_>, size_bytes: usize, encoder: &mut Encoder) -> Option<Started<H>> {
        let stream = self.header.stream;
        match self.shared.handler.begin(&self.prepared.statement, &self.session.client, options) {
            None => None,
            Some(Begun::Done(warnings)) if warnings.is_empty() => {
                encoder.envelope(&ResponseHead::new(stream, Opcode::Result), write_void);
                Some(Started::Sent)
            }
            Some(Begun::Done(warnings)) => {
                let response = Response { body: ResponseBody::Void, warnings };
                Some(Started::Answered(written(stream, Ok(response))))
            }
            Some(Begun::Waiting(write)) => {
                let limit = self.shared.options.write_timeout;
                let limit = TimeLimit::write(limit, self.options.consistency, WriteType::Simple);
                Some(Started::Working(InFlight::of_write(stream, size_bytes, limit, write)))
            }
        }
    }

    fn find_rows(&self, options: &QueryOptions<'_>, encoder: &mut Encoder) -> Option<Started<H>> {
        let Known { shared, session, prepared, header, .. } = self;
        let is_changed = self.client_id.is_some_and(|id| id != prepared.result_id);
        let metadata = ResultMetadata {
            columns: prepared.result.as_deref()?,
            paging_state: None,
            skip: options.skip_metadata && !is_changed,
            changed_id: is_changed.then_some(&prepared.result_id[..]),
        };
        let find = |cells: &mut Vec<u8>| shared.handler.find_rows(&prepared.statement, &session.client, options, cells);
        let is_sent = encoder.try_envelope(&ResponseHead::new(header.stream, Opcode::Result), |out| {
            let mut rows = RowsWriter::new(out, header.version, &metadata);
            let is_found = rows.encoded_rows_with(find);
            rows.finish();
            is_found
        });
        is_sent.then_some(Started::Sent)
    }
}
