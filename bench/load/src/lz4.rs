//! The processor time that LZ4 alone needs for a file in chunks, as SSTables have them.

use std::fs;

/// The number of passes, of which only the last is measured.
const PASSES: usize = 3;

/// The thread's nanoseconds for compressing and for decompressing a file, as `COMPRESSING<tab>DECOMPRESSING`.
pub fn measure(file: &str, chunk_length: &str) -> Result<String, String> {
    let chunk_length: usize = chunk_length.parse().map_err(|_| format!("a chunk of {chunk_length} bytes"))?;
    let data = fs::read(file).map_err(|error| format!("{file}: {error}"))?;
    let mut table = lz4_flex::block::CompressTable::default();
    let mut packed = vec![0; lz4_flex::block::get_maximum_output_size(chunk_length)];
    let mut plain = vec![0; chunk_length];
    let mut stored = Vec::with_capacity(data.len());
    let mut ends = Vec::new();
    let (mut compressing, mut decompressing) = (0, 0);
    for _ in 0..PASSES {
        stored.clear();
        ends.clear();
        let before = thread_nanos()?;
        for chunk in data.chunks(chunk_length.max(1)) {
            let length = lz4_flex::block::compress_into_with_table(chunk, &mut packed, &mut table)
                .map_err(|error| error.to_string())?;
            stored.extend_from_slice(&packed[..length]);
            ends.push(stored.len());
        }
        let between = thread_nanos()?;
        let (mut start, mut length) = (0, 0);
        for end in &ends {
            length += lz4_flex::block::decompress_into(&stored[start..*end], &mut plain)
                .map_err(|error| error.to_string())?;
            start = *end;
        }
        (compressing, decompressing) = (between - before, thread_nanos()? - between);
        if length != data.len() {
            return Err(format!("{} bytes came back as {length}", data.len()));
        }
    }
    Ok(format!("{compressing}\t{decompressing}"))
}

/// The processor time of this thread.
fn thread_nanos() -> Result<u64, String> {
    let stat = fs::read_to_string("/proc/thread-self/schedstat").map_err(|error| error.to_string())?;
    let nanos = stat.split_whitespace().next().and_then(|nanos| nanos.parse().ok());
    nanos.ok_or_else(|| format!("schedstat says {stat:?}"))
}
