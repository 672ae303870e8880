//! Data.db on its way to disk: chunks, checksums, digest.

use blockio::File;

use crate::compression::{ChunkCompressor, CompressionInfo, CompressionParams};
use crate::error::SSTableError;

/// Stored bytes are handed to the disk in pieces of about this size.
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
    stored: Vec<u8>,
    /// File offset of `stored[0]`.
    stored_position: u64,
    digest: crc32fast::Hasher,
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
        Ok(DataOut {
            file,
            pending: Vec::with_capacity(2 * chunk_length),
            pending_position: 0,
            chunk_length,
            compression,
            offsets: Vec::new(),
            crcs: Vec::new(),
            stored: Vec::with_capacity(WRITE_BYTES + chunk_length),
            stored_position: 0,
            digest: crc32fast::Hasher::new(),
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
        if self.pending.len() < self.chunk_length {
            return Ok(());
        }
        let pending = std::mem::take(&mut self.pending);
        let (chunks, rest) = pending.split_at(pending.len() / self.chunk_length * self.chunk_length);
        for chunk in chunks.chunks(self.chunk_length) {
            self.store(chunk)?;
        }
        self.pending_position += chunks.len() as u64;
        let (done, left) = (chunks.len(), rest.len());
        self.pending = pending;
        self.pending.copy_within(done.., 0);
        self.pending.truncate(left);
        Ok(())
    }

    fn store(&mut self, chunk: &[u8]) -> Result<(), SSTableError> {
        let start = self.stored.len();
        match &mut self.compression {
            None => {
                self.stored.extend_from_slice(chunk);
                self.crcs.push(crc32fast::hash(chunk));
            }
            Some((params, compressor)) => {
                self.offsets.push(self.stored_position + start as u64);
                compressor.compress(chunk, &mut self.stored)?;
                if self.stored.len() - start >= params.max_compressed_length as usize {
                    self.stored.truncate(start);
                    self.stored.extend_from_slice(chunk);
                    let padded = (params.max_compressed_length as usize).max(chunk.len());
                    self.stored.resize(start + padded, 0);
                }
                let body = &self.stored[start..];
                self.compressed_length += body.len() as u64;
                let crc = crc32fast::hash(body);
                self.stored.extend_from_slice(&crc.to_be_bytes());
            }
        }
        self.digest.update(&self.stored[start..]);
        if self.stored.len() >= WRITE_BYTES {
            self.write_stored()?;
        }
        Ok(())
    }

    fn write_stored(&mut self) -> Result<(), SSTableError> {
        self.file.write_at(&self.stored, self.stored_position)?;
        self.stored_position += self.stored.len() as u64;
        self.stored.clear();
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
        self.write_stored()?;
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
