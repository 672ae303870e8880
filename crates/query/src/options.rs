//! What comes with a statement: values, consistency, paging.

use std::fmt;

use crate::TraceLog;

/// How many replicas must answer, with the protocol's numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // The names are Cassandra's.
pub enum Consistency {
    Any = 0,
    #[default]
    One = 1,
    Two = 2,
    Three = 3,
    Quorum = 4,
    All = 5,
    LocalQuorum = 6,
    EachQuorum = 7,
    Serial = 8,
    LocalSerial = 9,
    LocalOne = 10,
    NodeLocal = 11,
}

impl Consistency {
    const ALL: [Consistency; 12] = [
        Consistency::Any,
        Consistency::One,
        Consistency::Two,
        Consistency::Three,
        Consistency::Quorum,
        Consistency::All,
        Consistency::LocalQuorum,
        Consistency::EachQuorum,
        Consistency::Serial,
        Consistency::LocalSerial,
        Consistency::LocalOne,
        Consistency::NodeLocal,
    ];

    /// The level of this protocol number.
    pub fn from_number(number: u16) -> Option<Consistency> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// The protocol's number.
    pub fn number(self) -> u16 {
        self as u16
    }

    /// SERIAL or LOCAL_SERIAL.
    pub fn is_serial(self) -> bool {
        matches!(self, Consistency::Serial | Consistency::LocalSerial)
    }
}

impl fmt::Display for Consistency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Consistency::Any => "ANY",
            Consistency::One => "ONE",
            Consistency::Two => "TWO",
            Consistency::Three => "THREE",
            Consistency::Quorum => "QUORUM",
            Consistency::All => "ALL",
            Consistency::LocalQuorum => "LOCAL_QUORUM",
            Consistency::EachQuorum => "EACH_QUORUM",
            Consistency::Serial => "SERIAL",
            Consistency::LocalSerial => "LOCAL_SERIAL",
            Consistency::LocalOne => "LOCAL_ONE",
            Consistency::NodeLocal => "NODE_LOCAL",
        })
    }
}

/// A value for a bind marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// Null: deletes, or matches nothing.
    Null,
    /// Nothing at all: the statement behaves as if the marker's part were not there.
    Unset,
    /// A serialized value.
    Bytes(&'a [u8]),
}

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
    /// Positional values as they were sent: an i32 length and the bytes of each, one behind the other, which is where `values` point to. Empty
    /// if they came otherwise.
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
        }
    }
}
