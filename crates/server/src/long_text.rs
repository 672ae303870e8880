//! Statements with long texts: they are read and resolved on a thread of a pool, and the memory that this takes is
//! taken of what their client may hold before it is used.

use protocol::{BatchStatement, ErrorKind, ErrorResponse, Request};
use query::{ClientState, Lease};

/// A text that is longer takes a while.
const LONG_BYTES: usize = 32 * 1024;

/// What a token takes at most while its statement is parsed and resolved.
const TOKEN_BYTES: usize = 512;

/// Whether reading and resolving the texts of a request takes a while.
pub(crate) fn is_long(request: &Request<'_>) -> bool {
    texts(request).map(str::len).sum::<usize>() > LONG_BYTES
}

/// Takes the memory for that. An error where others have taken it.
pub(crate) fn hold(request: &Request<'_>, client: &ClientState) -> Result<Option<Lease>, ErrorResponse> {
    let (Some(memory), true) = (&client.memory, is_long(request)) else { return Ok(None) };
    let mut lease = Lease::new(memory.clone());
    if lease.try_grow(texts(request).map(cql::token_count).sum::<usize>() * TOKEN_BYTES) {
        return Ok(Some(lease));
    }
    let message = "The statement is long, and the requests under way take the memory that it needs \
                   (see native_transport_max_request_data_in_flight)";
    Err(ErrorResponse::new(ErrorKind::Overloaded, message))
}

fn texts<'r>(request: &'r Request<'_>) -> impl Iterator<Item = &'r str> {
    let (one, many) = match request {
        Request::Query { query, .. } | Request::Prepare { query, .. } => (Some(*query), &[][..]),
        Request::Batch(batch) => (None, &batch.queries[..]),
        _ => (None, &[][..]),
    };
    let many = many.iter().filter_map(|query| match query.statement {
        BatchStatement::Text(text) => Some(text),
        BatchStatement::Prepared(_) => None,
    });
    one.into_iter().chain(many)
}
