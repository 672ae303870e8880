//! Compression of envelope bodies in v3 and v4: chosen in STARTUP, in force from the answer on.
//!
//! LZ4: big-endian uncompressed length, then one block. Snappy: a raw block, which starts with its own length.

use crate::ProtocolError;

/// A compression algorithm for envelope bodies (v3, v4) or segments (v5: LZ4 only).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// LZ4 blocks.
    Lz4,
    /// Raw Snappy blocks.
    Snappy,
}

impl Compression {
    /// The names as SUPPORTED lists them.
    pub const NAMES: [&str; 2] = ["snappy", "lz4"];

    /// Parses STARTUP's COMPRESSION value; case does not matter.
    pub fn from_name(name: &str) -> Result<Compression, ProtocolError> {
        match name.to_lowercase().as_str() {
            "lz4" => Ok(Compression::Lz4),
            "snappy" => Ok(Compression::Snappy),
            other => Err(ProtocolError::new(format!("Unknown compression algorithm: {other}"))),
        }
    }

    /// Appends the compressed form of `body` to `out`.
    pub(crate) fn compress(self, body: &[u8], out: &mut Vec<u8>) {
        match self {
            Compression::Lz4 => {
                out.extend_from_slice(&(body.len() as u32).to_be_bytes());
                lz4_block(body, out);
            }
            Compression::Snappy => {
                let start = out.len();
                out.resize(start + snap::raw::max_compress_len(body.len()), 0);
                let size = snap::raw::Encoder::new()
                    .compress(body, &mut out[start..])
                    .expect("the buffer has snappy's own upper bound and bodies are below 4 GiB");
                out.truncate(start + size);
            }
        }
    }

    /// The body of a compressed envelope; refused when it would be longer than `size_bytes_max`.
    pub(crate) fn decompress(self, body: &[u8], size_bytes_max: usize) -> Result<Vec<u8>, ProtocolError> {
        match self {
            Compression::Lz4 => {
                let (length, block) = body.split_first_chunk::<4>().ok_or_else(|| corrupt("LZ4"))?;
                let size = check_size(u64::from(u32::from_be_bytes(*length)), size_bytes_max)?;
                decompress_lz4(block, size)
            }
            Compression::Snappy => {
                let size = snap::raw::decompress_len(body).map_err(|_| corrupt("Snappy"))?;
                let mut out = vec![0; check_size(size as u64, size_bytes_max)?];
                let size = snap::raw::Decoder::new().decompress(body, &mut out).map_err(|_| corrupt("Snappy"))?;
                out.truncate(size);
                Ok(out)
            }
        }
    }
}

/// Appends one LZ4 block to `out`.
pub(crate) fn lz4_block(input: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + lz4_flex::block::get_maximum_output_size(input.len()), 0);
    let size = lz4_flex::block::compress_into(input, &mut out[start..])
        .expect("the buffer has LZ4's own upper bound of the compressed size");
    out.truncate(start + size);
}

/// Expands one LZ4 block of a known uncompressed size.
pub(crate) fn decompress_lz4(block: &[u8], size: usize) -> Result<Vec<u8>, ProtocolError> {
    if size == 0 {
        // An empty input is one zero token, or nothing at all; both occur in practice.
        return if block.len() <= 1 { Ok(Vec::new()) } else { Err(corrupt("LZ4")) };
    }
    let mut out = vec![0; size];
    match lz4_flex::block::decompress_into(block, &mut out) {
        Ok(written) if written == size => Ok(out),
        _ => Err(corrupt("LZ4")),
    }
}

fn check_size(size: u64, size_bytes_max: usize) -> Result<usize, ProtocolError> {
    usize::try_from(size).ok().filter(|&size| size <= size_bytes_max).ok_or_else(|| {
        ProtocolError::new(format!(
            "Request is too big: length {size} exceeds maximum allowed length {size_bytes_max}."
        ))
    })
}

fn corrupt(algorithm: &str) -> ProtocolError {
    ProtocolError::new(format!("Cannot decompress the body: damaged {algorithm} block"))
}
