//! Finishing the blocks of device writes: padding and block headers.

use std::ops::Range;

use blockio::{BLOCK_SIZE, FilledBatch};

use crate::LogError;
use crate::format::{
    BLOCK_HEADER_SIZE, BLOCK_PAYLOAD_SIZE, BlockHeader, NO_RECORD_STARTS, RecordHead, advance, record_start,
    write_block_header,
};
use crate::record_starts::RecordStarts;

const BLOCK: u64 = BLOCK_SIZE as u64;

/// The ring positions of a batch's records, in order, for a batch in which each record begins a block.
pub(crate) fn find_records(batch: &FilledBatch) -> Result<Vec<Range<u64>>, LogError> {
    let mut records = Vec::new();
    let mut at = batch.start();
    while at < batch.filled() {
        let start = record_start(at.next_multiple_of(BLOCK));
        let head = RecordHead::decode(&head_at(batch, start));
        let head = head.map_err(|fault| LogError::Closed(format!("a record was damaged in memory: {fault}").into()))?;
        at = advance(start, head.record_size());
        debug_assert!(at <= batch.filled(), "the batch holds whole records");
        records.push(start..at);
    }
    Ok(records)
}

/// The bytes of a record's head, which may lie across two blocks.
fn head_at(batch: &FilledBatch, start: u64) -> [u8; RecordHead::SIZE] {
    let mut head = [0; RecordHead::SIZE];
    let block = start / BLOCK * BLOCK;
    let bytes = batch.blocks(block..block + BLOCK);
    let in_first = bytes.get((start - block) as usize..).unwrap_or_default();
    let n = in_first.len().min(head.len());
    head[..n].copy_from_slice(&in_first[..n]);
    if n < head.len() {
        let bytes = batch.blocks(block + BLOCK..block + 2 * BLOCK);
        let rest = RecordHead::SIZE - n;
        debug_assert!(rest <= BLOCK as usize - BLOCK_HEADER_SIZE, "a head lies in two blocks at most");
        head[n..].copy_from_slice(&bytes[BLOCK_HEADER_SIZE..BLOCK_HEADER_SIZE + rest]);
    }
    head
}

/// The contents of one device write, and the header fields that its blocks share.
#[derive(Clone, Debug)]
pub(crate) struct FrameHead {
    /// The seed of the log's checksums.
    pub seed: u32,
    /// The code of the sync mode.
    pub mode: u8,
    /// The id of the segment's use.
    pub segment_id: i64,
    /// The ring position where the segment begins.
    pub base: u64,
    /// The frame's blocks, as ring positions.
    pub run: Range<u64>,
    /// The ring position after the last record, or the end of `run` if that is further on.
    pub filled: u64,
    /// The end of the durable log when the frame was issued: a segment id and a count of its blocks; (0, 0) if nothing
    /// was durable.
    pub horizon: (i64, u32),
}

impl FrameHead {
    /// The head of a write of these blocks, whose last record ends at `filled`.
    pub fn of(&self, run: Range<u64>, filled: u64) -> FrameHead {
        FrameHead { run, filled, ..self.clone() }
    }

    /// Pads the last block and writes the headers of all blocks.
    pub fn finish(&self, batch: &mut FilledBatch, record_starts: &RecordStarts) {
        if self.filled < self.run.end {
            batch.bytes_mut(self.filled..self.run.end).fill(0);
        }
        let blocks = (self.run.end - self.run.start) / BLOCK;
        debug_assert!(blocks > 0 && blocks <= u64::from(u16::MAX), "headers count the blocks of a frame in 16 bits");
        debug_assert!(self.base <= self.run.start && self.run.end - self.base <= i32::MAX as u64, "in its segment");
        debug_assert!(self.run.start < self.filled, "a frame has records");
        for place in 0..blocks {
            let block = self.run.start + place * BLOCK;
            let payload = block + BLOCK_HEADER_SIZE as u64;
            debug_assert!(payload <= self.filled.min(block + BLOCK), "records reach every block of the frame");
            let header = BlockHeader {
                mode: self.mode,
                used: (self.filled.min(block + BLOCK) - payload) as u16,
                segment_id: self.segment_id,
                index: ((block - self.base) / BLOCK) as u32,
                frame_index: place as u16,
                frame_blocks: blocks as u16,
                horizon_segment: self.horizon.0,
                horizon_blocks: self.horizon.1,
                first_record: record_starts.take(block),
            };
            debug_assert!(usize::from(header.used) <= BLOCK_PAYLOAD_SIZE, "{} bytes in a block", header.used);
            debug_assert!(
                header.first_record == NO_RECORD_STARTS || header.first_record < header.used,
                "a record starts in the used part of its block",
            );
            write_block_header(&header, self.seed, batch.bytes_mut(block..block + BLOCK));
        }
    }
}
