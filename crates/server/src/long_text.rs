//! Requests that take long to read and resolve. They are read and resolved on a thread of a pool. The memory for this
//! is taken from the client's memory before it is used.
//!
//! The cost of a text depends on its parts, not on its length: a long value costs no more than a short one. Each part
//! (of an expression, a list, a JSON document) is next to a punctuation mark, so the marks are counted.

use protocol::{BatchStatement, ErrorKind, ErrorResponse, Request};
use query::{ClientState, Lease};

/// A shorter text takes less than a millisecond, whatever its parts are.
const SHORT_BYTES: usize = 1024;

/// A request with more punctuation marks than this in all its texts takes long.
const MARKS_MAX: usize = 256;

/// A batch with more entries than this takes long.
const BATCH_ENTRIES_MAX: usize = 500;

/// A longer text takes long in any case: its marks are not counted, because counting takes a while too.
const LONG_BYTES: usize = 32 * 1024;

/// The memory that a part takes at most while its statement is parsed and resolved, and that an entry of a batch takes
/// until the batch is complete.
const PART_BYTES: usize = 512;

/// Whether reading and resolving a request takes long.
pub(crate) fn is_long(request: &Request<'_>) -> bool {
    if let Request::Batch(batch) = request
        && batch.queries.len() > BATCH_ENTRIES_MAX
    {
        return true;
    }
    let length: usize = texts(request).map(str::len).sum();
    length > LONG_BYTES || (length > SHORT_BYTES && texts(request).map(mark_count).sum::<usize>() > MARKS_MAX)
}

/// Takes the memory for reading and resolving a request. Fails if other requests have taken it.
pub(crate) fn reserve_memory(request: &Request<'_>, client: &ClientState) -> Result<Option<Lease>, ErrorResponse> {
    let (Some(memory), true) = (&client.memory, is_long(request)) else { return Ok(None) };
    let mut lease = Lease::new(memory.clone());
    let entries = if let Request::Batch(batch) = request { batch.queries.len() } else { 0 };
    let parts: usize = texts(request).map(|text| query::token_count(text).max(mark_count(text))).sum();
    if lease.try_grow((entries + parts) * PART_BYTES) {
        return Ok(Some(lease));
    }
    let message = "The statement is long, and the requests under way take the memory that it needs \
                   (see native_transport_max_request_data_in_flight)";
    Err(ErrorResponse::new(ErrorKind::Overloaded, message))
}

fn mark_count(text: &str) -> usize {
    text.bytes()
        .filter(|byte| matches!(byte, b',' | b':' | b'(' | b'[' | b'{' | b'+' | b'-' | b'*' | b'/' | b'%' | b';'))
        .count()
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
