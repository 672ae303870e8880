//! The parts of a request besides its statement: consistency, values, paging and others.

use super::{Consistency, Values};

/// The options of QUERY, EXECUTE and BATCH.
#[derive(Clone, Copy, Debug)]
pub struct QueryOptions<'a> {
    /// Consistency level of reads and of unconditional writes.
    pub consistency: Consistency,
    /// Values of the bind markers.
    pub values: Values<'a>,
    /// The client needs no column metadata in the answer.
    pub skip_metadata: bool,
    /// Rows per page as sent. Zero is refused when the statement is executed; negative means no paging.
    pub page_size: Option<i32>,
    /// Where the previous page ended: this node's own bytes from its answer.
    pub paging_state: Option<&'a [u8]>,
    /// Consistency level of the condition's paxos round.
    pub serial_consistency: Consistency,
    /// Default timestamp of the writes, in microseconds.
    pub timestamp: Option<i64>,
    /// Keyspace for unqualified names (v5), instead of the connection's.
    pub keyspace: Option<&'a str>,
    /// The time for deciding expiry, in seconds since the epoch (v5, for tests).
    pub now_in_seconds: Option<i32>,
}

impl Default for QueryOptions<'_> {
    fn default() -> Self {
        QueryOptions {
            consistency: Consistency::One,
            values: Values::NONE,
            skip_metadata: false,
            page_size: None,
            paging_state: None,
            serial_consistency: Consistency::Serial,
            timestamp: None,
            keyspace: None,
            now_in_seconds: None,
        }
    }
}
