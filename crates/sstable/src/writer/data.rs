//! Writing Data.db: chunks, checksums, digest.
//!
//! [`DataOut`] owns the file and the data that is not in it yet. All chunks but the last one are whole, so positions in
//! the data do not depend on when it was stored; the checksums and the digest are of the bytes in the file. It does not
//! know partitions and rows: callers append bytes and read positions.

use blockio::{AlignedBuffer, AlignedSlice, BLOCK_SIZE, Durability, File};

use super::pending::PendingData;
use crate::compression::{ChunkCompressor, CompressionInfo, CompressionParams, Stored};
use crate::error::SSTableError;

/// Stored bytes are written to the disk in pieces of about this size, in whole blocks.
const WRITE_BYTES: usize = 512 * 1024;
/// Room after a piece for the row that completes it.
const ROW_BYTES: usize = 256 * 1024;
/// Unit of CRC.db in tables of ours: a block, so that pieces are whole units and whole blocks.
const CHECKSUM_CHUNK_LENGTH: u32 = BLOCK_SIZE as u32;

/// Takes uncompressed data and writes Data.db.
pub(super) struct DataOut {
    /// Data that is not part of a chunk yet.
    pending: PendingData,
    /// Data position of the first byte that is pending.
    pending_position: u64,
    chunks: Chunks,
}

/// The results when Data.db is complete.
pub(super) struct DataDone {
    pub digest: u32,
    /// Content of CompressionInfo.db.
    pub compression_info: Option<CompressionInfo>,
    /// Content of CRC.db.
    pub checksums: Option<Vec<u8>>,
    pub compression_ratio: f64,
    pub file_length: u64,
}

impl DataOut {
    pub fn new(file: Box<dyn File>, compression: Option<CompressionParams>) -> Result<Self, SSTableError> {
        let chunks = Chunks::new(file, compression)?;
        let pending = PendingData::with_room(chunks.least() + ROW_BYTES);
        Ok(DataOut { pending, pending_position: 0, chunks })
    }

    /// Where data is appended.
    pub fn end(&mut self) -> &mut Vec<u8> {
        self.pending.end()
    }

    /// Data position after everything appended so far.
    pub fn position(&self) -> u64 {
        self.pending_position + self.pending.len() as u64
    }

    /// Stores the whole chunks of the pending data, if they are enough to be stored.
    pub fn store_whole_chunks(&mut self) -> Result<(), SSTableError> {
        if self.pending.len() < self.chunks.least() {
            return Ok(());
        }
        let whole = self.pending.len() / self.chunks.length * self.chunks.length;
        self.chunks.store(&self.pending.as_slice()[..whole])?;
        self.pending_position += whole as u64;
        self.pending.remove_first(whole);
        Ok(())
    }

    /// Writes the last, short chunk and makes the file durable.
    pub fn finish(mut self) -> Result<DataDone, SSTableError> {
        self.store_whole_chunks()?;
        let data_length = self.position();
        if self.pending.len() > 0 {
            self.chunks.store(self.pending.as_slice())?;
        }
        self.chunks.finish(data_length)
    }
}

/// Chunks to be written to the file.
struct Chunks {
    file: Box<dyn File>,
    /// The data length of a whole chunk.
    length: usize,
    compression: Option<(CompressionParams, ChunkCompressor)>,
    offsets: Vec<u64>,
    crcs: Vec<u32>,
    /// Compressed chunks with their checksums.
    stored: Stored,
    /// File offset of the first of them.
    stored_position: u64,
    digest: Digest,
    /// Stored bytes without checksums.
    compressed_length: u64,
}

impl Chunks {
    fn new(file: Box<dyn File>, compression: Option<CompressionParams>) -> Result<Self, SSTableError> {
        let length = compression.as_ref().map_or(CHECKSUM_CHUNK_LENGTH, |params| params.chunk_length) as usize;
        let compression = match compression {
            Some(params) => {
                let compressor = ChunkCompressor::new(params.compressor)?;
                Some((params, compressor))
            }
            None => None,
        };
        // A codec may need somewhat more room than the size of its input. The buffer is cleared, and most SSTables are
        // small, so it starts at a sixteenth of its full size and is doubled when needed.
        let stored = if compression.is_some() { (WRITE_BYTES + 2 * length) / 16 } else { 0 };
        Ok(Chunks {
            file,
            length,
            compression,
            offsets: Vec::new(),
            crcs: Vec::new(),
            stored: Stored::with_room(stored),
            stored_position: 0,
            digest: Digest::new(),
            compressed_length: 0,
        })
    }

    /// The least amount of data that is stored at a time.
    fn least(&self) -> usize {
        if self.compression.is_some() { self.length } else { WRITE_BYTES }
    }

    /// Stores whole chunks, and at the end also the last one.
    fn store(&mut self, chunks: &[u8]) -> Result<(), SSTableError> {
        if self.compression.is_some() {
            return chunks.chunks(self.length).try_for_each(|chunk| self.store_compressed(chunk));
        }
        for chunk in chunks.chunks(self.length) {
            let crc = crc32fast::hash(chunk);
            self.crcs.push(crc);
            self.digest.append(crc, chunk.len());
        }
        let (blocks, rest) = chunks.split_at(whole_blocks(chunks.len()));
        write_blocks(&*self.file, blocks, self.stored_position)?;
        self.stored_position += blocks.len() as u64;
        self.write_rest(rest)
    }

    fn store_compressed(&mut self, chunk: &[u8]) -> Result<(), SSTableError> {
        let Some((params, compressor)) = &mut self.compression else { return Ok(()) };
        let start = self.stored.len();
        self.offsets.push(self.stored_position + start as u64);
        compressor.compress(chunk, &mut self.stored)?;
        let max_compressed_length = params.max_compressed_length as usize;
        if self.stored.len() - start >= max_compressed_length {
            self.stored.truncate(start);
            self.stored.extend(chunk);
            self.stored.pad(start + max_compressed_length);
        }
        let body = &self.stored.as_slice()[start..];
        self.compressed_length += body.len() as u64;
        let crc = crc32fast::hash(body);
        self.stored.extend(&crc.to_be_bytes());
        self.digest.update(&self.stored.as_slice()[start..]);
        if self.stored.len() >= WRITE_BYTES {
            self.write_stored()?;
        }
        Ok(())
    }

    /// Writes what is stored, except the block in which it ends.
    fn write_stored(&mut self) -> Result<(), SSTableError> {
        let blocks = whole_blocks(self.stored.len());
        write_blocks(&*self.file, &self.stored.as_slice()[..blocks], self.stored_position)?;
        self.stored_position += blocks as u64;
        self.stored.remove_first(blocks);
        Ok(())
    }

    /// Writes the end of the file, less than a block, through the page cache. A whole block would have to be truncated
    /// again, for which the kernel reads it.
    fn write_rest(&mut self, bytes: &[u8]) -> Result<(), SSTableError> {
        if !bytes.is_empty() {
            self.file.write_at(bytes, self.stored_position)?;
            self.stored_position += bytes.len() as u64;
        }
        Ok(())
    }

    /// Writes the rest and makes the file durable.
    fn finish(mut self, data_length: u64) -> Result<DataDone, SSTableError> {
        self.write_stored()?;
        let rest = self.stored.as_slice().to_vec();
        self.write_rest(&rest)?;
        self.file.sync_data()?;
        let (mut compression_info, mut checksums, mut compression_ratio) = (None, None, -1.0);
        match self.compression {
            Some((params, _)) => {
                compression_ratio = self.compressed_length as f64 / data_length as f64;
                compression_info = Some(CompressionInfo { params, data_length, offsets: self.offsets });
            }
            None => {
                let mut bytes = CHECKSUM_CHUNK_LENGTH.to_be_bytes().to_vec();
                bytes.extend(self.crcs.iter().flat_map(|crc| crc.to_be_bytes()));
                checksums = Some(bytes);
            }
        }
        let digest = self.digest.finalize();
        Ok(DataDone { digest, compression_info, checksums, compression_ratio, file_length: self.stored_position })
    }
}

/// The largest multiple of the block size up to `length`.
fn whole_blocks(length: usize) -> usize {
    length / BLOCK_SIZE * BLOCK_SIZE
}

/// Writes whole blocks, bypassing the page cache if the file was opened so.
fn write_blocks(file: &dyn File, bytes: &[u8], position: u64) -> Result<(), SSTableError> {
    match AlignedSlice::new(bytes) {
        Some(blocks) if blocks.is_empty() => Ok(()),
        Some(blocks) => Ok(file.write_blocks(blocks, position, Durability::AtNextSync)?),
        // The data does not start at a block: a row was larger than the room for it, and the buffer was moved.
        None => {
            let mut aligned = AlignedBuffer::new(WRITE_BYTES);
            for (position, piece) in (position..).step_by(WRITE_BYTES).zip(bytes.chunks(WRITE_BYTES)) {
                aligned[..piece.len()].copy_from_slice(piece);
                file.write_blocks(aligned.blocks(0..piece.len()), position, Durability::AtNextSync)?;
            }
            Ok(())
        }
    }
}

/// The checksum of the whole file.
struct Digest {
    hasher: crc32fast::Hasher,
    /// For each bit of a checksum, its contribution after as many more bytes as a chunk of CRC.db has. The checksum of
    /// two parts is the XOR of these contributions, for the bits of the first part's checksum, and the checksum of the
    /// second part.
    moved: [u32; 32],
}

impl Digest {
    fn new() -> Self {
        let move_bit = |bit: usize| {
            let mut first = crc32fast::Hasher::new_with_initial_len(1 << bit, 0);
            first.combine(&crc32fast::Hasher::new_with_initial_len(0, u64::from(CHECKSUM_CHUNK_LENGTH)));
            first.finalize()
        };
        Digest { hasher: crc32fast::Hasher::new(), moved: std::array::from_fn(move_bit) }
    }

    fn update(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
    }

    /// Appends bytes whose checksum is known.
    fn append(&mut self, crc: u32, length: usize) {
        if length != CHECKSUM_CHUNK_LENGTH as usize {
            self.hasher.combine(&crc32fast::Hasher::new_with_initial_len(crc, length as u64));
            return;
        }
        let before = self.hasher.clone().finalize();
        let moved = self.moved.iter().enumerate().filter(|(bit, _)| before >> bit & 1 == 1);
        self.hasher = crc32fast::Hasher::new_with_initial(moved.fold(crc, |moved, (_, of_bit)| moved ^ of_bit));
    }

    fn finalize(self) -> u32 {
        self.hasher.finalize()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_of_chunks_is_that_of_their_bytes() {
        let bytes: Vec<u8> = (0..40_000_u32).map(|i| (i * i / 7) as u8).collect();
        for length in [0, 1, 4095, 4096, 4097, 8192, 40_000] {
            let mut digest = Digest::new();
            for chunk in bytes[..length].chunks(CHECKSUM_CHUNK_LENGTH as usize) {
                digest.append(crc32fast::hash(chunk), chunk.len());
            }
            assert_eq!(digest.finalize(), crc32fast::hash(&bytes[..length]), "{length} bytes");
        }
    }
}
