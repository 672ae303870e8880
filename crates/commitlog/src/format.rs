//! The bytes of the log, as FORMAT.md lays them out. Big-endian throughout. Nothing here does I/O.

mod block;
mod bookkeeping;
mod checksum;
mod geometry;
mod record;
mod superblock;

pub use block::{
    BLOCK_HEADER_SIZE, BLOCK_PAYLOAD_SIZE, BlockHeader, BlockState, NO_RECORD_STARTS, classify_block,
    write_block_header,
};
pub use bookkeeping::{BookkeepingEntry, DURABLE_BLOCKS_MAX, EntryFault, SegmentState, tables_checksum};
pub(crate) use checksum::{checksum_before, seed_of};
pub use geometry::{Geometry, advance, record_start};
pub use record::{RECORD_OVERHEAD, RecordFault, RecordHead, TABLE_ID_SIZE, body_crc};
pub use superblock::{FORMAT_VERSION, FORMAT_VERSION_MIN, Superblock, SuperblockFault};

/// Returns `N` bytes of a larger slice, zero-filled where the slice ends early. Decoders check lengths first.
fn array<const N: usize>(bytes: &[u8], offset: usize) -> [u8; N] {
    let mut out = [0; N];
    if let Some(source) = bytes.get(offset..).and_then(|rest| rest.get(..N)) {
        out.copy_from_slice(source);
    }
    out
}

/// Writes `value` at `offset`. Encoders make their buffers large enough.
fn put(bytes: &mut [u8], offset: usize, value: &[u8]) {
    bytes[offset..offset + value.len()].copy_from_slice(value);
}
