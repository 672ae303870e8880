//! What comes with a statement: values, consistency, paging.

use std::sync::atomic::AtomicBool;

use protocol::{Consistency, Value};

use crate::TraceLog;

/// The values of a request.
#[derive(Clone, Copy, Debug)]
pub enum Values<'a> {
    /// By number of the marker.
    Positional(&'a [Value<'a>]),
    /// By name of the marker.
    Named(&'a [(&'a str, Value<'a>)]),
}

impl Values<'_> {
    /// How many values there are.
    pub fn len(&self) -> usize {
        match self {
            Values::Positional(values) => values.len(),
            Values::Named(values) => values.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Everything a request says besides its statement.
#[derive(Clone, Debug)]
pub struct QueryOptions<'a> {
    /// Of reads and unconditional writes.
    pub consistency: Consistency,
    /// Of the agreement phase of conditional writes.
    pub serial_consistency: Consistency,
    /// The values of the bind markers.
    pub values: Values<'a>,
    /// Positional values as they were sent: an i32 length and the bytes of each, one behind the other, which is where
    /// `values` point to. Empty if they came otherwise.
    pub value_bytes: &'a [u8],
    /// Rows per page; `None` or not positive: all rows at once.
    pub page_size: Option<i32>,
    /// Where to go on, as an earlier page said.
    pub paging_state: Option<&'a [u8]>,
    /// Default timestamp of writes, microseconds.
    pub timestamp: Option<i64>,
    /// The time that TTLs are measured against, seconds since the epoch; for tests of drivers.
    pub now_in_seconds: Option<i32>,
    /// Keyspace of this one request (v5).
    pub keyspace: Option<&'a str>,
    /// 3 to 5.
    pub protocol_version: u8,
    /// Whether the client knows the result's columns already.
    pub skip_metadata: bool,
    /// Where to note what happens, if the request is traced.
    pub trace: Option<&'a TraceLog>,
    /// Set once nobody waits for the answer any more: the client is gone, or was answered with a timeout. A read ends
    /// soon then.
    pub cancelled: Option<&'a AtomicBool>,
}

impl QueryOptions<'_> {
    /// Notes what happens now, if the request is traced.
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
