//! The options of a statement in a request.

use super::EncodedValues;
use crate::message::{QueryOptions, Values};
use crate::wire::reader::Reader;
use crate::{Consistency, ProtocolError, Version};

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
        let values = match has(bits::VALUES) {
            true => Values::Encoded(EncodedValues::read(reader, version, has(bits::NAMES))?),
            false => Values::NONE,
        };
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
