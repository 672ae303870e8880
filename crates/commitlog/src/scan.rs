//! Judging a segment's bytes and walking its records. This does no I/O: callers pass in the segment's bytes, so that
//! tests, tools and fuzzers use the same code as recovery.

use std::ops::Range;

use blockio::{AlignedBuffer, BLOCK_SIZE};
use uuid::Uuid;

use crate::{BookkeepingEntry, Superblock};

use crate::decision::{BlockKind, Decision, HorizonSide, Order, decide};
use crate::format::{
    BLOCK_HEADER_SIZE, BLOCK_PAYLOAD_SIZE, BlockHeader, BlockState, NO_RECORD_STARTS, RecordFault, RecordHead,
    TABLE_ID_SIZE, classify_block, seed_of,
};

/// The code of the sync mode whose frames are acknowledged independently. Blocks of modes with lower codes were
/// acknowledged in order.
const UNORDERED_MODE: u8 = 3;

/// A segment as it was found: its bytes and the state of each block.
#[derive(Debug)]
pub struct SegmentImage {
    id: i64,
    memory: AlignedBuffer,
    /// How many bytes of the buffer belong to the segment.
    length: usize,
    states: Vec<BlockState>,
    blocks: u32,
}

/// Recovery's decision about a segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Runs of sound blocks to replay, in order.
    pub runs: Vec<Run>,
    /// The damaged blocks, as runs of neighbours.
    pub damaged: Vec<Range<u32>>,
}

impl Verdict {
    /// The number of sound blocks from the segment's first up to the first gap.
    pub fn sound_blocks(&self) -> u32 {
        self.runs.first().filter(|run| run.blocks.start == 0).map_or(0, |run| run.blocks.end)
    }
}

/// A run of sound blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Their indices.
    pub blocks: Range<u32>,
    /// A record may begin before the run, in blocks that are damaged or were never acknowledged; its rest is skipped.
    pub after_damage: bool,
    /// A record may be cut at the run's end: it was never acknowledged, or its rest is in the damage after the run.
    pub may_be_cut: bool,
}

impl SegmentImage {
    /// Classifies a segment's bytes as use `id` of the log `log_id`. Bytes missing at the end count as blank.
    pub fn new(log_id: Uuid, id: i64, bytes: &[u8], segment_size_bytes: u32) -> SegmentImage {
        let mut memory = AlignedBuffer::new(bytes.len());
        memory[..bytes.len()].copy_from_slice(bytes);
        SegmentImage::in_memory(log_id, id, memory, bytes.len(), segment_size_bytes)
    }

    /// Like `new`, for the first `length` bytes of a buffer that was read.
    pub(crate) fn in_memory(
        log_id: Uuid,
        id: i64,
        memory: AlignedBuffer,
        length: usize,
        segment_size_bytes: u32,
    ) -> SegmentImage {
        let seed = seed_of(log_id);
        assert!(length <= memory.len(), "the segment's bytes are in the buffer");
        let blocks = segment_size_bytes / BLOCK_SIZE as u32;
        let states = (0..blocks)
            .zip(memory[..length].chunks_exact(BLOCK_SIZE))
            .map(|(index, block)| classify_block(block, seed, id, index));
        SegmentImage { id, states: states.collect(), memory, length, blocks }
    }

    /// Returns the buffer for reuse.
    pub(crate) fn into_memory(self) -> AlignedBuffer {
        self.memory
    }

    /// The id of the use.
    pub fn id(&self) -> i64 {
        self.id
    }

    /// The state of a block.
    pub fn state(&self, block: u32) -> BlockState {
        self.states.get(block as usize).copied().unwrap_or(BlockState::Blank)
    }

    /// The number of blocks that the segment has room for.
    pub fn blocks(&self) -> u32 {
        self.blocks
    }

    /// The segment's bytes, as found.
    pub fn bytes(&self) -> &[u8] {
        &self.memory[..self.length]
    }

    /// The greatest number of blocks of segment `id` that a sound block of this segment says are durable.
    pub fn horizon_of(&self, id: i64) -> u32 {
        let claims = self.live().filter(|header| header.horizon_segment == id).map(|header| header.horizon_blocks);
        claims.max().unwrap_or(0)
    }

    /// The greatest id among the sound blocks of earlier uses.
    pub fn greatest_stale_id(&self) -> Option<i64> {
        let ids = self.states.iter().filter_map(|state| match state {
            BlockState::Stale(header) => Some(header.segment_id),
            _ => None,
        });
        ids.max()
    }

    /// The first sound block of a sync mode that this build does not know.
    pub fn unknown_mode(&self) -> Option<u8> {
        self.live().map(|header| header.mode).find(|mode| *mode > UNORDERED_MODE)
    }

    /// The order in which its blocks were acknowledged. A segment is written in one mode only.
    pub fn order(&self) -> Order {
        let unordered = self.live().any(|header| header.mode == UNORDERED_MODE);
        if unordered { Order::Unordered } else { Order::Ordered }
    }

    fn live(&self) -> impl Iterator<Item = &BlockHeader> {
        self.states.iter().filter_map(|state| match state {
            BlockState::Live(header) => Some(header),
            _ => None,
        })
    }

    /// Decides which blocks are replayed and which are damaged. `horizon_blocks` is the greatest number of this
    /// segment's blocks that a sound block says are durable ([`SegmentImage::horizon_of`]), whether that block is in
    /// this segment or in another one. The verdict continues after damage up to that horizon; a caller that does not
    /// salvage stops at the first damage.
    pub fn judge(&self, horizon_blocks: u32) -> Verdict {
        let order = self.order();
        let mut verdict = Verdict::default();
        let mut after_damage = false;
        let mut start = 0;
        for block in 0..=self.blocks {
            let decision = if block == self.blocks { Decision::End } else { self.decide(block, horizon_blocks, order) };
            if decision == Decision::Take {
                continue;
            }
            debug_assert!(start <= block, "decisions are taken in order of blocks");
            if start < block {
                let may_be_cut = block < self.blocks;
                verdict.runs.push(Run { blocks: start..block, after_damage, may_be_cut });
            }
            if decision == Decision::End {
                break;
            }
            match verdict.damaged.last_mut() {
                _ if decision == Decision::Skip => {}
                Some(range) if range.end == block => range.end += 1,
                _ => verdict.damaged.push(block..block + 1),
            }
            after_damage = true;
            start = block + 1;
        }
        debug_assert!(verdict.runs.is_sorted_by(|a, b| a.blocks.end < b.blocks.start), "runs are apart, and in order");
        debug_assert!(verdict.damaged.is_sorted_by(|a, b| a.end < b.start), "damaged runs are apart, and in order");
        debug_assert!(
            verdict.runs.iter().all(|run| run.blocks.start < run.blocks.end && run.blocks.end <= self.blocks)
        );
        verdict
    }

    fn decide(&self, block: u32, horizon_blocks: u32, order: Order) -> Decision {
        let side = if block < horizon_blocks { HorizonSide::BelowHorizon } else { HorizonSide::AboveHorizon };
        decide(BlockKind::from(&self.state(block)), side, order)
    }

    fn header(&self, block: u32) -> Option<&BlockHeader> {
        match self.states.get(block as usize) {
            Some(BlockState::Live(header)) => Some(header),
            _ => None,
        }
    }

    /// The used payload of a sound block.
    fn payload(&self, block: u32) -> &[u8] {
        let used = self.header(block).map_or(0, |header| usize::from(header.used).min(BLOCK_PAYLOAD_SIZE));
        debug_assert!(used <= BLOCK_PAYLOAD_SIZE);
        let start = block as usize * BLOCK_SIZE + BLOCK_HEADER_SIZE;
        self.bytes().get(start..start + used).unwrap_or_default()
    }
}

/// Walks the records of a run.
#[derive(Debug)]
pub struct RecordCursor {
    run: Run,
    block: u32,
    /// The offset in the block's payload.
    offset: usize,
}

/// The location of a record in its segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordLocation {
    /// The byte offset of its head in the segment.
    pub start: u32,
    /// The byte offset after its last byte, which is the offset of its position.
    pub end: u32,
    /// The number of tables it touches. Their ids begin the scratch buffer.
    pub tables: u16,
}

/// One step of the walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A sound record; its table ids and data are in the scratch buffer.
    Record(RecordLocation),
    /// There are no more records.
    End,
    /// The run ends within a record that begins at this byte offset of the segment; it was never acknowledged.
    Cut(u32),
    /// A damaged record at this byte offset, in sound blocks. The cursor is after the record, if its end is known.
    Fault(u32, RecordFault),
}

/// The reason why the next bytes could not be read.
enum Short {
    /// The run has ended.
    RunEnds,
    /// The frame has ended; a record never continues in the next frame.
    FrameEnds,
}

impl RecordCursor {
    /// A cursor at the run's first record.
    pub fn new(image: &SegmentImage, run: Run) -> RecordCursor {
        debug_assert!(run.blocks.start <= run.blocks.end && run.blocks.end <= image.blocks());
        let mut cursor = RecordCursor { block: run.blocks.start, offset: 0, run };
        if cursor.run.after_damage {
            cursor.seek_record(image, cursor.run.blocks.start);
        }
        cursor
    }

    /// Moves to the first record that starts in `block` or after it.
    fn seek_record(&mut self, image: &SegmentImage, block: u32) {
        self.block = block;
        self.offset = 0;
        while self.block < self.run.blocks.end {
            match image.header(self.block) {
                Some(header) if header.first_record != NO_RECORD_STARTS => {
                    self.offset = usize::from(header.first_record);
                    return;
                }
                _ => self.block += 1,
            }
        }
    }

    /// Returns the next record. Its table ids and data replace the contents of `scratch`.
    pub fn next(&mut self, image: &SegmentImage, scratch: &mut Vec<u8>) -> Step {
        self.next_of(None, image, scratch)
    }

    /// Returns the next record that touches one of the wanted tables, or simply the next one if `wanted` is `None`. The
    /// data of other records is not checked.
    pub fn next_of(&mut self, wanted: Option<&[Uuid]>, image: &SegmentImage, scratch: &mut Vec<u8>) -> Step {
        loop {
            self.skip_used_up(image);
            if self.block >= self.run.blocks.end {
                return Step::End;
            }
            if let Some(step) = self.step(wanted, image, scratch) {
                return step;
            }
        }
    }

    /// Returns `None` if it skipped a record that is not wanted.
    fn step(&mut self, wanted: Option<&[Uuid]>, image: &SegmentImage, scratch: &mut Vec<u8>) -> Option<Step> {
        let start = self.position();
        let first_block = self.block;
        let step = match self.read(wanted, image, scratch) {
            Ok(Ok(Some(tables))) => Step::Record(RecordLocation { start, end: self.position(), tables }),
            Ok(Ok(None)) => return None,
            Ok(Err(fault)) => {
                // A sound head says where the next record begins.
                if !matches!(fault, RecordFault::Body { .. }) {
                    self.seek_record(image, first_block + 1);
                }
                Step::Fault(start, fault)
            }
            Err((Short::RunEnds, _)) if self.run.may_be_cut => {
                self.block = self.run.blocks.end;
                Step::Cut(start)
            }
            Err((_, fault)) => {
                self.seek_record(image, first_block + 1);
                Step::Fault(start, fault)
            }
        };
        Some(step)
    }

    /// Returns the number of tables, or `None` for a record that is not wanted.
    fn read(
        &mut self,
        wanted: Option<&[Uuid]>,
        image: &SegmentImage,
        scratch: &mut Vec<u8>,
    ) -> Result<Result<Option<u16>, RecordFault>, (Short, RecordFault)> {
        scratch.clear();
        if let Some((head, record)) = self.in_one_block(image) {
            self.offset += record.len();
            return Ok(read_whole(wanted, head, record, scratch));
        }
        self.take(image, RecordHead::SIZE, scratch)?;
        let mut bytes = [0; RecordHead::SIZE];
        bytes.copy_from_slice(scratch);
        let head = match RecordHead::decode(&bytes) {
            Ok(head) => head,
            Err(fault) => return Ok(Err(fault)),
        };
        scratch.clear();
        let ids = usize::from(head.tables) * TABLE_ID_SIZE;
        let body = ids + head.data_size as usize;
        self.take(image, ids, scratch)?;
        if !is_wanted(wanted, scratch) {
            self.pass_over(image, head.data_size as usize + 4, |_| {})?;
            return Ok(Ok(None));
        }
        self.take(image, head.data_size as usize, scratch)?;
        let expected = crc32fast::hash(scratch);
        self.take(image, 4, scratch)?;
        let got = scratch.iter().skip(body).fold(0, |crc, byte| crc << 8 | u32::from(*byte));
        scratch.truncate(body);
        Ok(if expected == got { Ok(Some(head.tables)) } else { Err(RecordFault::Body { expected, got }) })
    }

    /// The head and all bytes of a record that lies in one block, as most do, if the head is sound.
    fn in_one_block<'i>(&self, image: &'i SegmentImage) -> Option<(RecordHead, &'i [u8])> {
        let rest = image.payload(self.block).get(self.offset..)?;
        let head = RecordHead::decode(rest.first_chunk()?).ok()?;
        Some((head, rest.get(..usize::try_from(head.record_size()).ok()?)?))
    }

    /// Appends the next `count` bytes of the stream to `out`.
    fn take(&mut self, image: &SegmentImage, count: usize, out: &mut Vec<u8>) -> Result<(), (Short, RecordFault)> {
        self.pass_over(image, count, |bytes| out.extend_from_slice(bytes))
    }

    /// Steps over the next `count` bytes of the stream.
    fn pass_over(
        &mut self,
        image: &SegmentImage,
        count: usize,
        mut met: impl FnMut(&[u8]),
    ) -> Result<(), (Short, RecordFault)> {
        let mut left = count;
        while left > 0 {
            let cut = |short| (short, RecordFault::Cut { expected: count as u64, got: (count - left) as u64 });
            if self.block >= self.run.blocks.end {
                return Err(cut(Short::RunEnds));
            }
            let payload = image.payload(self.block);
            let rest = payload.get(self.offset..).unwrap_or_default();
            if rest.is_empty() {
                if payload.len() < BLOCK_PAYLOAD_SIZE {
                    return Err(cut(Short::FrameEnds));
                }
                self.block += 1;
                self.offset = 0;
                continue;
            }
            let n = left.min(rest.len());
            debug_assert!(0 < n && n <= left, "every step moves on");
            met(rest.get(..n).unwrap_or_default());
            self.offset += n;
            left -= n;
        }
        debug_assert!(self.block < self.run.blocks.end || count == 0, "the cursor reads within the run");
        Ok(())
    }

    /// Steps over the ends of blocks, padded or full.
    fn skip_used_up(&mut self, image: &SegmentImage) {
        while self.block < self.run.blocks.end && self.offset >= image.payload(self.block).len() {
            self.block += 1;
            self.offset = 0;
        }
    }

    /// The byte offset in the segment. After the last byte of a block it is the block's end.
    fn position(&self) -> u32 {
        let position = u64::from(self.block) * BLOCK_SIZE as u64 + (BLOCK_HEADER_SIZE + self.offset) as u64;
        u32::try_from(position).unwrap_or(u32::MAX)
    }
}

/// Like [`RecordCursor::read`], for a record whose bytes are in one piece.
fn read_whole(
    wanted: Option<&[Uuid]>,
    head: RecordHead,
    record: &[u8],
    scratch: &mut Vec<u8>,
) -> Result<Option<u16>, RecordFault> {
    let (body, crc) = record.get(RecordHead::SIZE..).and_then(|rest| rest.split_last_chunk()).unwrap_or((&[], &[0; 4]));
    if !is_wanted(wanted, body.get(..usize::from(head.tables) * TABLE_ID_SIZE).unwrap_or_default()) {
        return Ok(None);
    }
    let (expected, got) = (crc32fast::hash(body), u32::from_be_bytes(*crc));
    scratch.extend_from_slice(body);
    if expected == got { Ok(Some(head.tables)) } else { Err(RecordFault::Body { expected, got }) }
}

/// Whether one of the tables' ids is wanted; all are if `wanted` is `None`.
fn is_wanted(wanted: Option<&[Uuid]>, ids: &[u8]) -> bool {
    wanted.is_none_or(|wanted| ids.chunks_exact(TABLE_ID_SIZE).any(|id| wanted.iter().any(|w| w.as_bytes() == id)))
}

/// Decodes a log file in memory, damaged or not, as salvage would, and returns how many sound records it has. For tools
/// and fuzzers: it terminates without a panic, whatever the bytes are.
pub fn count_records(file: &[u8]) -> u64 {
    let copies = file.chunks_exact(BLOCK_SIZE).take(2).find_map(|block| Superblock::decode(block).ok());
    let Some(superblock) = copies else { return 0 };
    let seed = seed_of(superblock.log_id);
    let geometry = superblock.geometry;
    let mut records = 0;
    for slot in 0..geometry.segments {
        let block =
            |offset: u64| usize::try_from(offset).ok().and_then(|offset| file.get(offset..)).unwrap_or_default();
        let Some(entry) = block(geometry.bookkeeping_offset(slot)).get(..BLOCK_SIZE) else { break };
        let Ok(entry) = BookkeepingEntry::decode(entry, seed, slot) else { continue };
        let bytes = block(geometry.segment_offset(slot));
        let bytes = bytes.get(..geometry.segment_size_bytes as usize).unwrap_or(bytes);
        let image = SegmentImage::new(superblock.log_id, entry.id, bytes, geometry.segment_size_bytes);
        let horizon = image.horizon_of(entry.id).max(entry.durable_blocks);
        records += image.judge(horizon).runs.into_iter().map(|run| count_in_run(&image, run)).sum::<u64>();
    }
    records
}

fn count_in_run(image: &SegmentImage, run: Run) -> u64 {
    let mut cursor = RecordCursor::new(image, run);
    let mut scratch = Vec::new();
    let mut records = 0;
    loop {
        match cursor.next(image, &mut scratch) {
            Step::Record(_) => records += 1,
            Step::End => return records,
            Step::Cut(_) | Step::Fault(..) => {}
        }
    }
}

#[cfg(test)]
mod tests;
