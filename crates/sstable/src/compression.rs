//! Chunk compressors and CompressionInfo.db, the table of chunks.

use std::cell::RefCell;
use std::collections::BTreeMap;

use blockio::AlignedBuffer;

use crate::error::{Corruption, Decoded, SSTableError};
use crate::input::Input;

/// How the chunks of Data.db are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compressor {
    /// LZ4 block after a little-endian length.
    Lz4,
    /// Raw Snappy.
    Snappy,
    /// zlib stream.
    Deflate,
    /// One Zstd frame, with the level to compress at.
    Zstd {
        /// The compression level.
        level: i32,
    },
    /// No compression, but still chunks with checksums.
    Noop,
}

/// Zstd's level if the table gives none.
const ZSTD_LEVEL_DEFAULT: i32 = 3;

impl Compressor {
    /// The compressor of a class name, simple or in Cassandra's package.
    pub fn of_class(class: &str, options: &BTreeMap<String, String>) -> Option<Compressor> {
        let simple = class.strip_prefix("org.apache.cassandra.io.compress.").unwrap_or(class);
        Some(match simple {
            "LZ4Compressor" => Compressor::Lz4,
            "SnappyCompressor" => Compressor::Snappy,
            "DeflateCompressor" => Compressor::Deflate,
            "ZstdCompressor" => {
                let level = options.get("compression_level").and_then(|level| level.parse().ok());
                Compressor::Zstd { level: level.unwrap_or(ZSTD_LEVEL_DEFAULT) }
            }
            "NoopCompressor" => Compressor::Noop,
            _ => return None,
        })
    }

    /// The simple class name.
    pub fn class(&self) -> &'static str {
        match self {
            Compressor::Lz4 => "LZ4Compressor",
            Compressor::Snappy => "SnappyCompressor",
            Compressor::Deflate => "DeflateCompressor",
            Compressor::Zstd { .. } => "ZstdCompressor",
            Compressor::Noop => "NoopCompressor",
        }
    }
}

/// How a table wants its Data.db compressed.
#[derive(Clone, Debug, PartialEq)]
pub struct CompressionParams {
    /// The compressor.
    pub compressor: Compressor,
    /// The compressor's options as the table has them; they are copied into CompressionInfo.db.
    pub options: BTreeMap<String, String>,
    /// Uncompressed bytes per chunk, a power of two.
    pub chunk_length: u32,
    /// A chunk that would not become shorter than this is stored uncompressed.
    pub max_compressed_length: u32,
}

/// Cassandra's default chunk, 16 KiB.
const CHUNK_LENGTH_KIB_DEFAULT: u32 = 16;
/// "Always store compressed".
const COMPRESSED_LENGTH_UNLIMITED: u32 = i32::MAX as u32;

impl CompressionParams {
    /// Parses the table option `compression`; `None` means uncompressed.
    pub fn from_options(options: &BTreeMap<String, String>) -> Result<Option<CompressionParams>, SSTableError> {
        let refuse = |what: String| SSTableError::Unsupported { file: "table option compression".into(), what };
        let class = options.get("class").map(String::as_str).unwrap_or_default();
        let enabled = options.get("enabled").is_none_or(|enabled| !enabled.eq_ignore_ascii_case("false"));
        if class.is_empty() || !enabled {
            return Ok(None);
        }
        let own = ["class", "enabled", "chunk_length_in_kb", "min_compress_ratio"];
        let compressor_options: BTreeMap<_, _> = options
            .iter()
            .filter(|entry| !own.contains(&entry.0.as_str()))
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect();
        let compressor =
            Compressor::of_class(class, &compressor_options).ok_or_else(|| refuse(format!("compressor {class}")))?;
        let chunk_kib = match options.get("chunk_length_in_kb") {
            None => CHUNK_LENGTH_KIB_DEFAULT,
            Some(text) => text.parse().map_err(|_| refuse(format!("chunk_length_in_kb {text}")))?,
        };
        let chunk_length = chunk_kib.checked_mul(1024).filter(|length| length.is_power_of_two() && *length < 1 << 30);
        let chunk_length = chunk_length.ok_or_else(|| refuse(format!("chunk_length_in_kb {chunk_kib}")))?;
        let ratio = match options.get("min_compress_ratio") {
            None => 0.0,
            Some(text) => text.parse::<f64>().map_err(|_| refuse(format!("min_compress_ratio {text}")))?,
        };
        let max_compressed_length = match ratio > 0.0 {
            true => (f64::from(chunk_length) / ratio).ceil() as u32,
            false => COMPRESSED_LENGTH_UNLIMITED,
        };
        Ok(Some(CompressionParams { compressor, options: compressor_options, chunk_length, max_compressed_length }))
    }
}

/// Stored bytes to be written to a file, in aligned memory. The free space after them is kept, so that it is not
/// cleared for each chunk.
pub(crate) struct Stored {
    bytes: AlignedBuffer,
    length: usize,
}

impl Stored {
    /// Starts empty, with room for `length` bytes.
    pub fn with_room(length: usize) -> Self {
        Stored { bytes: AlignedBuffer::new(length), length: 0 }
    }

    /// The bytes so far.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// The number of bytes.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Room for `length` more bytes, with arbitrary contents.
    fn room(&mut self, length: usize) -> &mut [u8] {
        let end = self.length + length;
        if self.bytes.len() < end {
            let mut larger = AlignedBuffer::new(end.max(2 * self.bytes.len()));
            larger[..self.length].copy_from_slice(&self.bytes[..self.length]);
            self.bytes = larger;
        }
        &mut self.bytes[self.length..end]
    }

    /// Appends bytes.
    pub fn extend(&mut self, bytes: &[u8]) {
        self.room(bytes.len()).copy_from_slice(bytes);
        self.length += bytes.len();
    }

    /// Appends zeros up to a length.
    pub fn pad(&mut self, length: usize) {
        let missing = length.saturating_sub(self.length);
        self.room(missing).fill(0);
        self.length += missing;
    }

    /// Keeps only the first bytes.
    pub fn truncate(&mut self, length: usize) {
        self.length = self.length.min(length);
    }

    /// Removes the first bytes.
    pub fn remove_first(&mut self, count: usize) {
        self.bytes.copy_within(count..self.length, 0);
        self.length -= count;
    }
}

/// Compresses chunks with one reused context.
pub(crate) struct ChunkCompressor {
    compressor: Compressor,
    lz4: lz4_flex::block::CompressTable,
    snappy: snap::raw::Encoder,
    zstd: Option<zstd::bulk::Compressor<'static>>,
}

impl ChunkCompressor {
    pub fn new(compressor: Compressor) -> Result<Self, SSTableError> {
        let zstd = match compressor {
            Compressor::Zstd { level } => Some(new_zstd(level).map_err(|error| failed(error.to_string()))?),
            _ => None,
        };
        Ok(ChunkCompressor { compressor, lz4: Default::default(), snappy: snap::raw::Encoder::new(), zstd })
    }

    /// Appends the compressed form of `chunk` to `out`.
    pub fn compress(&mut self, chunk: &[u8], out: &mut Stored) -> Result<(), SSTableError> {
        match self.compressor {
            Compressor::Lz4 => {
                out.extend(&(chunk.len() as u32).to_le_bytes());
                let room = out.room(lz4_flex::block::get_maximum_output_size(chunk.len()));
                let length = lz4_flex::block::compress_into_with_table(chunk, room, &mut self.lz4);
                out.length += length.map_err(|e| failed(e.to_string()))?;
            }
            Compressor::Snappy => {
                let room = out.room(snap::raw::max_compress_len(chunk.len()));
                out.length += self.snappy.compress(chunk, room).map_err(|e| failed(e.to_string()))?;
            }
            Compressor::Deflate => {
                let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
                std::io::Write::write_all(&mut encoder, chunk).map_err(|e| failed(e.to_string()))?;
                out.extend(&encoder.finish().map_err(|e| failed(e.to_string()))?);
            }
            Compressor::Zstd { .. } => {
                let room = out.room(zstd::zstd_safe::compress_bound(chunk.len()));
                let zstd = self.zstd.as_mut().expect("a Zstd context is made with a Zstd compressor");
                out.length += zstd.compress_to_buffer(chunk, room).map_err(|e| failed(e.to_string()))?;
            }
            Compressor::Noop => out.extend(chunk),
        }
        Ok(())
    }
}

fn new_zstd(level: i32) -> std::io::Result<zstd::bulk::Compressor<'static>> {
    let mut compressor = zstd::bulk::Compressor::new(level)?;
    compressor.include_checksum(true)?;
    Ok(compressor)
}

fn failed(what: String) -> SSTableError {
    SSTableError::Unwritable { what: format!("a chunk that does not compress: {what}") }
}

impl Compressor {
    /// Decompresses the body of a chunk to exactly `out.len()` bytes. The error describes what was wrong.
    pub(crate) fn decompress(&self, body: &[u8], out: &mut [u8]) -> Result<(), String> {
        let length = match self {
            Compressor::Lz4 => decompress_lz4(body, out)?,
            Compressor::Snappy => snap::raw::Decoder::new().decompress(body, out).map_err(|e| e.to_string())?,
            Compressor::Deflate => decompress_deflate(body, out)?,
            Compressor::Zstd { .. } => decompress_zstd(body, out)?,
            Compressor::Noop => {
                let target = out.get_mut(..body.len()).ok_or_else(|| format!("{} bytes", body.len()))?;
                target.copy_from_slice(body);
                body.len()
            }
        };
        if length == out.len() { Ok(()) } else { Err(format!("a chunk of {length} bytes")) }
    }
}

fn decompress_lz4(body: &[u8], out: &mut [u8]) -> Result<usize, String> {
    let (length, block) = body.split_first_chunk::<4>().ok_or_else(|| format!("{} bytes", body.len()))?;
    let length = u32::from_le_bytes(*length) as usize;
    if length != out.len() {
        return Err(format!("a chunk of {length} bytes"));
    }
    lz4_flex::block::decompress_into(block, out).map_err(|e| e.to_string())
}

thread_local! {
    /// Contexts that are costly to make, one per reading thread.
    static ZSTD: RefCell<Option<zstd::bulk::Decompressor<'static>>> = const { RefCell::new(None) };
    static DEFLATE: RefCell<flate2::Decompress> = RefCell::new(flate2::Decompress::new(true));
}

fn decompress_zstd(body: &[u8], out: &mut [u8]) -> Result<usize, String> {
    ZSTD.with_borrow_mut(|context| {
        let context = match context {
            Some(context) => context,
            None => context.insert(zstd::bulk::Decompressor::new().map_err(|e| e.to_string())?),
        };
        context.decompress_to_buffer(body, out).map_err(|e| e.to_string())
    })
}

fn decompress_deflate(body: &[u8], out: &mut [u8]) -> Result<usize, String> {
    DEFLATE.with_borrow_mut(|context| {
        context.reset(true);
        context.decompress(body, out, flate2::FlushDecompress::Finish).map_err(|e| e.to_string())?;
        Ok(context.total_out() as usize)
    })
}

/// CompressionInfo.db: the place of each chunk of Data.db.
#[derive(Clone, Debug, PartialEq)]
pub struct CompressionInfo {
    /// The compression of chunks.
    pub params: CompressionParams,
    /// Length of the uncompressed data in bytes.
    pub data_length: u64,
    /// File offset of each chunk.
    pub offsets: Vec<u64>,
}

impl CompressionInfo {
    /// Reads CompressionInfo.db.
    pub fn decode(file: &str, bytes: &[u8]) -> Result<CompressionInfo, SSTableError> {
        Self::parse(file, bytes)
    }

    fn parse(file: &str, bytes: &[u8]) -> Result<CompressionInfo, SSTableError> {
        let mut input = Input::new(file, 0, bytes);
        let class = input.utf("compressor class")?;
        let options = read_options(&mut input)?;
        let compressor = Compressor::of_class(class, &options)
            .ok_or_else(|| SSTableError::Unsupported { file: file.into(), what: format!("compressor {class}") })?;
        let chunk_length = match input.i32("chunk length")? {
            length if length > 0 && (length as u32).is_power_of_two() => length as u32,
            other => return Err(input.damaged("a chunk length that is a power of two", other.to_string()).into()),
        };
        let max_compressed_length = match input.i32("maximal compressed length")? {
            length if length >= 0 => length as u32,
            other => return Err(input.damaged("a maximal compressed length", other.to_string()).into()),
        };
        let data_length = match input.i64("data length")? {
            length if length >= 0 => length as u64,
            other => return Err(input.damaged("a data length", other.to_string()).into()),
        };
        let count = u64::from(input.u32("chunk count")?);
        let needed = data_length.div_ceil(u64::from(chunk_length));
        if count < needed || count > needed + 1 {
            return Err(input.damaged("as many chunks as the data length needs", format!("{count} chunks")).into());
        }
        let count = input.checked_count(count, 8, "chunk offsets")?;
        let mut offsets = Vec::with_capacity(count);
        for _ in 0..count {
            let offset = input.i64("chunk offset")?;
            let previous = offsets.last().map_or(0, |last: &u64| last + 4);
            if offset < 0 || (offset as u64) < previous {
                return Err(input.damaged("ascending chunk offsets", offset.to_string()).into());
            }
            offsets.push(offset as u64);
        }
        let params = CompressionParams { compressor, options, chunk_length, max_compressed_length };
        Ok(CompressionInfo { params, data_length, offsets })
    }

    /// The bytes of CompressionInfo.db.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64 + self.offsets.len() * 8);
        push_utf(self.params.compressor.class(), &mut out);
        out.extend_from_slice(&(self.params.options.len() as i32).to_be_bytes());
        for (key, value) in &self.params.options {
            push_utf(key, &mut out);
            push_utf(value, &mut out);
        }
        out.extend_from_slice(&self.params.chunk_length.to_be_bytes());
        out.extend_from_slice(&self.params.max_compressed_length.to_be_bytes());
        out.extend_from_slice(&self.data_length.to_be_bytes());
        out.extend_from_slice(&(self.offsets.len() as i32).to_be_bytes());
        for offset in &self.offsets {
            out.extend_from_slice(&offset.to_be_bytes());
        }
        out
    }

    /// Verifies and decompresses a whole Data.db. For tests.
    #[doc(hidden)]
    pub fn decompress_all(&self, file: &str, stored: &[u8]) -> Result<Vec<u8>, SSTableError> {
        let mut out = Vec::new();
        for index in 0..self.offsets.len() as u64 {
            let (offset, length) = self.chunk_range(file, index, stored.len() as u64)?;
            let chunk = &stored[offset as usize..offset as usize + length];
            let start = out.len();
            out.resize(start + self.chunk_data_length(index), 0);
            self.unpack(file, offset, chunk, true, &mut out[start..])?;
        }
        Ok(out)
    }

    /// The uncompressed length of chunk `index`; zero after the data.
    pub fn chunk_data_length(&self, index: u64) -> usize {
        let chunk_length = u64::from(self.params.chunk_length);
        let start = index.saturating_mul(chunk_length);
        self.data_length.saturating_sub(start).min(chunk_length) as usize
    }

    /// The file range of chunk `index`, including its checksum, in a Data.db of `file_length` bytes.
    pub(crate) fn chunk_range(&self, file: &str, index: u64, file_length: u64) -> Decoded<(u64, usize)> {
        let wrong = |offset| {
            Corruption::new(file, offset, "a chunk of at least 4 bytes in the file", format!("{file_length} bytes"))
        };
        let index = usize::try_from(index).unwrap_or(usize::MAX);
        let start = *self.offsets.get(index).ok_or_else(|| wrong(file_length))?;
        let end = self.offsets.get(index + 1).copied().unwrap_or(file_length);
        let length = end.checked_sub(start).filter(|length| *length >= 4 && end <= file_length);
        // A chunk grows only a little when it does not compress. A longer one is damage, and must not cause a large
        // allocation.
        let limit = u64::from(self.params.chunk_length) * 2 + 4096;
        match length {
            Some(length) if length <= limit => Ok((start, length as usize)),
            _ => Err(wrong(start)),
        }
    }

    /// Checks and decompresses a stored chunk (body and checksum) into `out`, which has the chunk's data length.
    pub(crate) fn unpack(&self, file: &str, offset: u64, stored: &[u8], verify: bool, out: &mut [u8]) -> Decoded<()> {
        let (body, crc) = match stored.split_last_chunk::<4>() {
            Some((body, crc)) => (body, u32::from_be_bytes(*crc)),
            None => {
                return Err(Corruption::new(
                    file,
                    offset,
                    "a chunk with a checksum",
                    format!("{} bytes", stored.len()),
                ));
            }
        };
        if verify {
            let computed = crc32fast::hash(body);
            if computed != crc {
                let (expected, got) = (format!("chunk checksum {crc:08x}"), format!("{computed:08x}"));
                return Err(Corruption::new(file, offset, expected, got));
            }
        }
        if out.is_empty() {
            return Ok(());
        }
        if body.len() >= self.params.max_compressed_length as usize {
            let raw = body.get(..out.len());
            let raw = raw.ok_or_else(|| {
                Corruption::new(file, offset, "a whole uncompressed chunk", format!("{} bytes", body.len()))
            })?;
            out.copy_from_slice(raw);
            return Ok(());
        }
        let length = out.len();
        self.params.compressor.decompress(body, out).map_err(|got| {
            let expected = format!("{} data that decompresses to {length} bytes", self.params.compressor.class());
            Corruption::new(file, offset, expected, got)
        })
    }
}

fn read_options(input: &mut Input<'_>) -> Decoded<BTreeMap<String, String>> {
    let count = input.u32("compressor option count")?;
    let count = input.checked_count(u64::from(count), 4, "compressor options")?;
    let mut options = BTreeMap::new();
    for _ in 0..count {
        let key = input.utf("compressor option")?.to_owned();
        options.insert(key, input.utf("compressor option value")?.to_owned());
    }
    Ok(options)
}

pub(crate) fn push_utf(text: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(&(text.len() as u16).to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Compressor; 5] =
        [Compressor::Lz4, Compressor::Snappy, Compressor::Deflate, Compressor::Zstd { level: 3 }, Compressor::Noop];

    fn info(compressor: Compressor, max_compressed_length: u32) -> CompressionInfo {
        let params =
            CompressionParams { compressor, options: BTreeMap::new(), chunk_length: 4096, max_compressed_length };
        CompressionInfo { params, data_length: 4096, offsets: vec![0] }
    }

    fn stored(compressor: Compressor, chunk: &[u8]) -> Vec<u8> {
        let mut out = Stored::with_room(0);
        ChunkCompressor::new(compressor).unwrap().compress(chunk, &mut out).unwrap();
        let crc = crc32fast::hash(out.as_slice());
        out.extend(&crc.to_be_bytes());
        out.as_slice().to_vec()
    }

    #[test]
    fn every_codec_gives_back_what_it_took_and_refuses_damage() {
        let chunk: Vec<u8> = (0..4096_u32).map(|i| (i * i / 77) as u8).collect();
        for compressor in ALL {
            let info = info(compressor, i32::MAX as u32);
            let stored = stored(compressor, &chunk);
            let mut out = vec![0; chunk.len()];
            info.unpack("Data.db", 0, &stored, true, &mut out).unwrap();
            assert_eq!(out, chunk);
            for at in (0..stored.len()).step_by(7) {
                let mut damaged = stored.clone();
                damaged[at] ^= 4;
                let error = info.unpack("Data.db", 9, &damaged, true, &mut out).unwrap_err();
                assert_eq!(error.offset, 9);
                // Without the checksum any result is possible, but nothing may panic.
                let _ = info.unpack("Data.db", 9, &damaged, false, &mut out);
            }
        }
    }

    #[test]
    fn a_chunk_of_the_maximum_length_is_accepted() {
        let chunk: Vec<u8> = (0..4096_u32).map(|i| (i * 7) as u8).collect();
        let mut raw = chunk.clone();
        let crc = crc32fast::hash(&raw);
        raw.extend_from_slice(&crc.to_be_bytes());
        let mut out = vec![0; 4096];
        info(Compressor::Lz4, 4000).unpack("Data.db", 0, &raw, true, &mut out).unwrap();
        assert_eq!(out, chunk);
    }

    #[test]
    fn chunk_tables_are_read_as_written() {
        let mut info = info(Compressor::Lz4, 3724);
        info.data_length = 9000;
        info.offsets = vec![0, 100, 2000];
        info.params.options.insert("lz4_compressor_type".into(), "high".into());
        let bytes = info.encode();
        assert_eq!(CompressionInfo::decode("CompressionInfo.db", &bytes).unwrap(), info);
        for end in 0..bytes.len() {
            assert!(CompressionInfo::decode("CompressionInfo.db", &bytes[..end]).is_err());
        }
    }
}
