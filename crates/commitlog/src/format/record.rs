//! A record: head with its own checksum, table ids, data, checksum of both.
//!
//! ```text
//! 0  u32  data size
//! 4  u16  tables
//! 6  u16  zero
//! 8  u32  CRC of bytes 0..8
//! 12      16 bytes per table: its id
//!         data
//!    u32  CRC of table ids and data
//! ```

use uuid::Uuid;

use super::checksum::empty_checksum;
use super::{array, put};

/// Bytes of a record besides table ids and data.
pub const RECORD_OVERHEAD: usize = RecordHead::SIZE + 4;
/// Bytes of a table id.
pub const TABLE_ID_SIZE: usize = 16;

const _: () = assert!(size_of::<Uuid>() == TABLE_ID_SIZE && RecordHead::SIZE == 12);

/// The head of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHead {
    /// Bytes of data.
    pub data_size: u32,
    /// The number of tables that the record touches.
    pub tables: u16,
}

/// What is wrong with a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordFault {
    /// The head's checksum does not match.
    Head {
        /// As computed.
        expected: u32,
        /// As stored.
        got: u32,
    },
    /// The checksum of tables and data does not match.
    Body {
        /// As computed.
        expected: u32,
        /// As stored.
        got: u32,
    },
    /// The sound blocks that hold the record end before it does, at a place where a record must end.
    Cut {
        /// How many bytes of it should follow.
        expected: u64,
        /// How many bytes do.
        got: u64,
    },
}

impl RecordHead {
    /// Bytes of a head.
    pub const SIZE: usize = 12;

    /// The head's bytes.
    pub fn encode(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        put(&mut bytes, 0, &self.data_size.to_be_bytes());
        put(&mut bytes, 4, &self.tables.to_be_bytes());
        let crc = head_crc(&bytes);
        put(&mut bytes, 8, &crc.to_be_bytes());
        bytes
    }

    /// Decodes a head and checks it.
    pub fn decode(bytes: &[u8; Self::SIZE]) -> Result<RecordHead, RecordFault> {
        let expected = head_crc(bytes);
        let got = u32::from_be_bytes(array(bytes, 8));
        if expected != got {
            return Err(RecordFault::Head { expected, got });
        }
        Ok(RecordHead { data_size: u32::from_be_bytes(array(bytes, 0)), tables: u16::from_be_bytes(array(bytes, 4)) })
    }

    /// Bytes of the whole record.
    pub fn record_size(&self) -> u64 {
        RECORD_OVERHEAD as u64 + u64::from(self.tables) * TABLE_ID_SIZE as u64 + u64::from(self.data_size)
    }
}

/// The checksum of a head's other fields.
fn head_crc(head: &[u8; RecordHead::SIZE]) -> u32 {
    let mut hasher = empty_checksum();
    hasher.update(&head[..8]);
    hasher.finalize()
}

/// The checksum of table ids and data.
pub fn body_crc(tables: &[Uuid], data: &[u8]) -> u32 {
    let mut hasher = empty_checksum();
    for table in tables {
        hasher.update(table.as_bytes());
    }
    hasher.update(data);
    hasher.finalize()
}

impl std::fmt::Display for RecordFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            RecordFault::Head { expected, got } => {
                write!(f, "head checksum {got:08x} over bytes of checksum {expected:08x}")
            }
            RecordFault::Body { expected, got } => {
                write!(f, "data checksum {got:08x} over bytes of checksum {expected:08x}")
            }
            RecordFault::Cut { expected, got } => write!(f, "{got} of {expected} bytes"),
        }
    }
}
