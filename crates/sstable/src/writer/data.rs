//! Data.db on its way to disk: chunks, checksums, digest.

use blockio::File;

use crate::compression::{ChunkCompressor, CompressionInfo, CompressionParams, Stored};
use crate::error::SSTableError;

/// Stored bytes are handed to the disk in pieces of about this size, a multiple of the unit of CRC.db.
const WRITE_BYTES: usize = 256 * 1024;
/// Unit of CRC.db in tables of ours.
const CHECKSUM_CHUNK_LENGTH: u32 = 4096;

/// Takes uncompressed data and writes Data.db.
pub(super) struct DataOut {
    file: Box<dyn File>,
    /// Data that no chunk was made of yet.
    pub pending: Vec<u8>,
    /// Data position of `pending[0]`.
    pending_position: u64,
    chunk_length: usize,
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

/// What is known when Data.db is complete.
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
        let chunk_length = compression.as_ref().map_or(CHECKSUM_CHUNK_LENGTH, |params| params.chunk_length) as usize;
        let compression = match compression {
            Some(params) => {
                let compressor = ChunkCompressor::new(params.compressor)?;
                Some((params, compressor))
            }
            None => None,
        };
        let pending = if compression.is_some() { 2 * chunk_length } else { WRITE_BYTES + 4 * chunk_length };
        Ok(DataOut {
            file,
            pending: Vec::with_capacity(pending),
            pending_position: 0,
            chunk_length,
            compression,
            offsets: Vec::new(),
            crcs: Vec::new(),
            stored: Stored::default(),
            stored_position: 0,
            digest: Digest::new(),
            compressed_length: 0,
        })
    }

    /// Data position behind everything appended so far.
    pub fn position(&self) -> u64 {
        self.pending_position + self.pending.len() as u64
    }

    /// Bytes of the file so far, without what is pending.
    pub fn stored_length(&self) -> u64 {
        self.stored_position + self.stored.len() as u64
    }

    /// Makes chunks of what is pending, as far as it fills them.
    pub fn settle(&mut self) -> Result<(), SSTableError> {
        let least = if self.compression.is_some() { self.chunk_length } else { WRITE_BYTES };
        if self.pending.len() < least {
            return Ok(());
        }
        let pending = std::mem::take(&mut self.pending);
        let (chunks, rest) = pending.split_at(pending.len() / self.chunk_length * self.chunk_length);
        self.store(chunks)?;
        self.pending_position += chunks.len() as u64;
        let (done, left) = (chunks.len(), rest.len());
        self.pending = pending;
        self.pending.copy_within(done.., 0);
        self.pending.truncate(left);
        Ok(())
    }

    /// Stores whole chunks, or with them the last.
    fn store(&mut self, chunks: &[u8]) -> Result<(), SSTableError> {
        if self.compression.is_some() {
            return chunks.chunks(self.chunk_length).try_for_each(|chunk| self.store_compressed(chunk));
        }
        for chunk in chunks.chunks(self.chunk_length) {
            let crc = crc32fast::hash(chunk);
            self.crcs.push(crc);
            self.digest.append(crc, chunk.len());
        }
        self.file.write_at(chunks, self.stored_position)?;
        self.stored_position += chunks.len() as u64;
        Ok(())
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

    fn write_stored(&mut self) -> Result<(), SSTableError> {
        self.file.write_at(self.stored.as_slice(), self.stored_position)?;
        self.stored_position += self.stored.len() as u64;
        self.stored.truncate(0);
        Ok(())
    }

    /// Writes the last, short chunk and makes the file durable.
    pub fn finish(mut self) -> Result<DataDone, SSTableError> {
        self.settle()?;
        let data_length = self.position();
        let last = std::mem::take(&mut self.pending);
        if !last.is_empty() {
            self.store(&last)?;
        }
        if self.stored.len() > 0 {
            self.write_stored()?;
        }
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

/// The checksum of the whole file.
struct Digest {
    hasher: crc32fast::Hasher,
    /// What each bit of a checksum becomes when as many bytes as a chunk of CRC.db has come behind: the checksum of both parts is that of
    /// the first, so moved, and that of the second together.
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

    /// Goes on with bytes whose checksum is known.
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
