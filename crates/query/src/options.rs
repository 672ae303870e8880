//! The parts of a request besides its statement: values, consistency, paging.

use std::sync::atomic::AtomicBool;

use protocol::{Consistency, Value};

use crate::TraceLog;

/// The values of a request.
#[derive(Clone, Copy, Debug)]
pub enum Values<'a> {
    /// Values by number of the marker.
    Positional(&'a [Value<'a>]),
    /// Values by name of the marker.
    Named(&'a [(&'a str, Value<'a>)]),
}

impl Values<'_> {
    /// The number of values.
    pub fn len(&self) -> usize {
        match self {
            Values::Positional(values) => values.len(),
            Values::Named(values) => values.len(),
        }
    }

    /// Whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// All parts of a request besides its statement.
#[derive(Clone, Debug)]
pub struct QueryOptions<'a> {
    /// The consistency of reads and unconditional writes.
    pub consistency: Consistency,
    /// The consistency of the agreement phase of conditional writes.
    pub serial_consistency: Consistency,
    /// The values of the bind markers.
    pub values: Values<'a>,
    /// Positional values as they were sent, which `values` refers to: for each an i32 length and its bytes, without
    /// gaps. Empty if they were sent in another form.
    pub value_bytes: &'a [u8],
    /// Rows per page. If it is `None` or not positive, all rows are returned at once.
    pub page_size: Option<i32>,
    /// The paging state of an earlier page, after which the read continues.
    pub paging_state: Option<&'a [u8]>,
    /// The default timestamp of writes, microseconds.
    pub timestamp: Option<i64>,
    /// The time with which TTLs are compared, in seconds since the epoch. Tests of drivers set it.
    pub now_in_seconds: Option<i32>,
    /// The keyspace of this request only (v5).
    pub keyspace: Option<&'a str>,
    /// The protocol version, 3 to 5.
    pub protocol_version: u8,
    /// Whether the client already knows the result's columns.
    pub skip_metadata: bool,
    /// The log of events, if the request is traced.
    pub trace: Option<&'a TraceLog>,
    /// Set when nobody waits for the answer any more, because the client has left or got a timeout. A read then ends
    /// soon.
    pub cancelled: Option<&'a AtomicBool>,
}

impl QueryOptions<'_> {
    /// Adds an event to the trace, if the request is traced.
    pub(crate) fn note(&self, activity: impl FnOnce() -> String) {
        if let Some(trace) = self.trace {
            trace.note(activity());
        }
    }
}

impl Default for QueryOptions<'_> {
    fn default() -> Self {
        QueryOptions {
            consistency: Consistency::One,
            serial_consistency: Consistency::Serial,
            values: Values::Positional(&[]),
            value_bytes: &[],
            page_size: None,
            paging_state: None,
            timestamp: None,
            now_in_seconds: None,
            keyspace: None,
            protocol_version: 5,
            skip_metadata: false,
            trace: None,
            cancelled: None,
        }
    }
}
