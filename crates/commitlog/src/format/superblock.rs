//! The superblock identifies the log. There are two copies, each inside one 512-byte sector.

use blockio::BLOCK_SIZE;
use uuid::Uuid;

use super::{Geometry, array, put};

/// The version of this format.
pub const FORMAT_VERSION: u32 = 2;
/// The oldest version that can be read. Opening such a log upgrades it to this version.
pub const FORMAT_VERSION_MIN: u32 = 1;

const MAGIC: [u8; 8] = *b"ESPALLOG";
const SIZE: usize = 64;

const _: () = assert!(SIZE <= 512, "a superblock is in one sector, which is written whole or not at all");
const _: () = assert!(FORMAT_VERSION_MIN <= FORMAT_VERSION);

/// The identity and layout of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// The layout.
    pub geometry: Geometry,
    /// A new random id for each log. It seeds the checksum of every other block, so that blocks of an earlier log are
    /// never accepted as ours.
    pub log_id: Uuid,
    /// The node that owns the log.
    pub host_id: Uuid,
}

/// What is wrong with a superblock copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SuperblockFault {
    /// The magic is missing: this is no log of ours, or it is damaged.
    Magic([u8; 8]),
    /// The superblock is sound, but has another format version.
    Version(u32),
    /// The checksum does not match.
    Checksum {
        /// As computed.
        expected: u32,
        /// As stored.
        got: u32,
    },
    /// The superblock is sound, but its numbers make no sense.
    Geometry(Geometry),
}

impl Superblock {
    /// Encodes one copy as a block.
    pub fn encode(&self, block: &mut [u8]) {
        block.fill(0);
        debug_assert!(block.len() >= SIZE && self.geometry.segments > 0);
        debug_assert!(self.geometry.segment_size_bytes.is_multiple_of(BLOCK_SIZE as u32), "segments are whole blocks");
        put(block, 0, &MAGIC);
        put(block, 8, &FORMAT_VERSION.to_be_bytes());
        put(block, 12, &(BLOCK_SIZE as u32).to_be_bytes());
        put(block, 16, &self.geometry.segment_size_bytes.to_be_bytes());
        put(block, 20, &self.geometry.segments.to_be_bytes());
        put(block, 24, self.log_id.as_bytes());
        put(block, 40, self.host_id.as_bytes());
        let crc = crc32fast::hash(&block[..SIZE - 4]);
        put(block, SIZE - 4, &crc.to_be_bytes());
    }

    /// Whether a sound copy has an older version.
    pub fn is_old(block: &[u8]) -> bool {
        u32::from_be_bytes(array(block, 8)) < FORMAT_VERSION
    }

    /// Decodes one copy.
    pub fn decode(block: &[u8]) -> Result<Superblock, SuperblockFault> {
        let magic = array(block, 0);
        if magic != MAGIC {
            return Err(SuperblockFault::Magic(magic));
        }
        let expected = crc32fast::hash(block.get(..SIZE - 4).unwrap_or_default());
        let got = u32::from_be_bytes(array(block, SIZE - 4));
        if expected != got {
            return Err(SuperblockFault::Checksum { expected, got });
        }
        let version = u32::from_be_bytes(array(block, 8));
        if !(FORMAT_VERSION_MIN..=FORMAT_VERSION).contains(&version) {
            return Err(SuperblockFault::Version(version));
        }
        let block_size = u32::from_be_bytes(array(block, 12));
        let geometry = Geometry {
            segment_size_bytes: u32::from_be_bytes(array(block, 16)),
            segments: u32::from_be_bytes(array(block, 20)),
        };
        let sizes_fit = geometry.segment_size_bytes.is_multiple_of(BLOCK_SIZE as u32)
            && geometry.segment_size_bytes <= i32::MAX as u32;
        if block_size != BLOCK_SIZE as u32 || !sizes_fit || geometry.segment_size_bytes == 0 || geometry.segments == 0 {
            return Err(SuperblockFault::Geometry(geometry));
        }
        let uuid = |offset| Uuid::from_bytes(array(block, offset));
        Ok(Superblock { geometry, log_id: uuid(24), host_id: uuid(40) })
    }
}

impl std::fmt::Display for SuperblockFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SuperblockFault::Magic(got) => write!(f, "magic {}", got.escape_ascii()),
            SuperblockFault::Version(version) => write!(f, "format version {version}"),
            SuperblockFault::Checksum { expected, got } => {
                write!(f, "checksum {got:08x} over bytes of checksum {expected:08x}")
            }
            SuperblockFault::Geometry(g) => write!(f, "{} segments of {} bytes", g.segments, g.segment_size_bytes),
        }
    }
}
