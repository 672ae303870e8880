//! The options of a statement: consistency, values, paging and others.

use super::Values;
use crate::wire::reader::Reader;
use crate::{Consistency, ProtocolError, Version};

/// The options of QUERY, EXECUTE and BATCH.
#[derive(Clone, Copy, Debug)]
pub struct QueryOptions<'a> {
    /// Consistency level.
    pub consistency: Consistency,
    /// Bound values.
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
    /// The time for deciding expiry, in seconds (v5, for tests).
    pub now_in_seconds: Option<i32>,
}

mod bits {
    pub(super) const VALUES: u32 = 0x01;
    pub(super) const SKIP_METADATA: u32 = 0x02;
    pub(super) const PAGE_SIZE: u32 = 0x04;
    pub(super) const PAGING_STATE: u32 = 0x08;
    pub(super) const SERIAL_CONSISTENCY: u32 = 0x10;
    pub(super) const TIMESTAMP: u32 = 0x20;
    pub(super) const NAMES: u32 = 0x40;
    pub(super) const KEYSPACE: u32 = 0x80;
    pub(super) const NOW_IN_SECONDS: u32 = 0x100;
}

impl<'a> QueryOptions<'a> {
    pub(crate) fn read(reader: &mut Reader<'a>, version: Version) -> Result<QueryOptions<'a>, ProtocolError> {
        let consistency = reader.consistency()?;
        let flags = if version >= Version::V5 { reader.int()? as u32 } else { u32::from(reader.byte()?) };
        let has = |bit| flags & bit != 0;
        let values = if has(bits::VALUES) { Values::read(reader, version, has(bits::NAMES))? } else { Values::NONE };
        Ok(QueryOptions {
            consistency,
            values,
            skip_metadata: has(bits::SKIP_METADATA),
            page_size: has(bits::PAGE_SIZE).then(|| reader.int()).transpose()?,
            paging_state: if has(bits::PAGING_STATE) { reader.bytes()? } else { None },
            serial_consistency: if has(bits::SERIAL_CONSISTENCY) { reader.consistency()? } else { Consistency::Serial },
            timestamp: has(bits::TIMESTAMP).then(|| read_timestamp(reader)).transpose()?,
            keyspace: has(bits::KEYSPACE).then(|| reader.string()).transpose()?,
            now_in_seconds: has(bits::NOW_IN_SECONDS).then(|| reader.int()).transpose()?,
        })
    }
}

/// The smallest timestamp means "none" inside Cassandra, so no client may send it.
fn read_timestamp(reader: &mut Reader<'_>) -> Result<i64, ProtocolError> {
    match reader.long()? {
        i64::MIN => Err(ProtocolError::new(format!(
            "Out of bound timestamp, must be in [{}, {}] (got {})",
            i64::MIN + 1,
            i64::MAX,
            i64::MIN
        ))),
        timestamp => Ok(timestamp),
    }
}
