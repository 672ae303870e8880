//! The commit log: the whole file, and the records in blocks whose checksums are right.

use std::path::Path;

use blockio::{BLOCK_SIZE, Disk, OpenOptions, SimulatedDisk};
use commitlog::{BLOCK_HEADER_SIZE, BLOCK_PAYLOAD_SIZE, FILE_NAME, LogInspector, RecordCursor, SegmentImage, Step};
use uuid::Uuid;

const SEGMENT_ID: i64 = 1000;
const SEGMENT_BYTES: u32 = 16 * BLOCK_SIZE as u32;

/// A commit log's file: superblocks, bookkeeping, blocks, records.
pub fn file(bytes: &[u8]) {
    let disk = SimulatedDisk::new();
    let directory = Path::new("/log");
    let written = disk.create_dir_all(directory).and_then(|()| {
        let file = disk.open(&directory.join(FILE_NAME), OpenOptions::create())?;
        file.write_at(bytes, 0)
    });
    written.expect("a disk in memory has no faults");
    let Ok(inspector) = LogInspector::open(&disk, &directory.join(FILE_NAME)) else { return };
    let _ = inspector.damage();
    // The size of the file bounds bookkeeping, and the size of each segment bounds its image.
    for segment in inspector.segments().take(64).flatten() {
        let _ = segment.walk(|_| Ok::<(), ()>(()));
    }
}

/// The payloads of consecutive blocks, put into blocks with right checksums. The first byte says where the first record
/// of the first block starts.
pub fn records(bytes: &[u8]) {
    let Some((first, payload)) = bytes.split_first() else { return };
    let log_id = Uuid::nil();
    let mut image = Vec::new();
    let chunks: Vec<&[u8]> = payload.chunks(BLOCK_PAYLOAD_SIZE).take(16).collect();
    for (index, chunk) in chunks.iter().enumerate() {
        let start = if index == 0 { u16::from(*first) } else { u16::MAX };
        image.extend(block(log_id, index as u32, chunks.len() as u16, start, chunk));
    }
    let image = SegmentImage::new(log_id, SEGMENT_ID, &image, SEGMENT_BYTES);
    let mut scratch = Vec::new();
    for horizon in [0, image.horizon_of(SEGMENT_ID)] {
        for run in image.judge(horizon).runs {
            let mut cursor = RecordCursor::new(&image, run);
            while !matches!(cursor.next(&image, &mut scratch), Step::End) {}
        }
    }
}

/// A block with right checksums, as commitlog's FORMAT.md describes it.
fn block(log_id: Uuid, index: u32, blocks: u16, first_record: u16, payload: &[u8]) -> Vec<u8> {
    let mut block = vec![0; 4];
    block.extend([1, 1]);
    block.extend((payload.len() as u16).to_be_bytes());
    block.extend(SEGMENT_ID.to_be_bytes());
    block.extend(index.to_be_bytes());
    block.extend((index as u16).to_be_bytes());
    block.extend(blocks.to_be_bytes());
    block.extend([0; 12]);
    block.extend(first_record.to_be_bytes());
    block.resize(BLOCK_HEADER_SIZE, 0);
    block.extend(payload);
    block.resize(BLOCK_SIZE, 0);
    let mut crc = crc32fast::Hasher::new_with_initial(crc32fast::hash(log_id.as_bytes()));
    crc.update(&block[4..]);
    block[..4].copy_from_slice(&crc.finalize().to_be_bytes());
    block
}
