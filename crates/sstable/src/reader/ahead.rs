//! Sequential access to the stored bytes of a file: consecutive pieces, of which the next one may already be
//! prefetched.
//!
//! A piece is read into its own buffer, with some free room in front. What is left of the previous piece, part of a row
//! or chunk that both share, is copied into that room. All held bytes are then contiguous, and pieces are not moved.

use std::mem;
use std::ops::Range;

use blockio::{AlignedBuffer, BLOCK_SIZE, BlockRead, ReadAhead};

use super::DataFile;
use crate::error::{Corruption, SSTableError};

/// The size of a piece that is read when it is needed: any piece read through the page cache, and direct reads at the
/// beginning or after a jump.
const PIECE_BYTES: u64 = 256 * 1024;
/// The size of a direct read once pieces follow one another.
const PIECE_AHEAD_BYTES: u64 = 512 * 1024;
/// The room for what is left of the previous piece; a longer rest is assembled elsewhere.
const ROOM_BYTES: usize = 8 * BLOCK_SIZE;

pub(super) struct Ahead {
    /// Prefetches with reads that bypass the page cache; `None` reads through the page cache.
    reader: Option<ReadAhead>,
    /// The file offset of the piece that is being prefetched.
    begun: Option<u64>,
    /// Whether a piece was used up: the next one is then likely to be needed.
    is_sequential: bool,
    memory: AlignedBuffer,
    /// The part of the buffer that holds bytes of the file.
    held: Range<usize>,
    /// Their file offset.
    start: u64,
    /// A buffer for the next piece.
    spare: Option<AlignedBuffer>,
}

impl Ahead {
    pub fn new(reader: Option<ReadAhead>) -> Self {
        Ahead {
            reader,
            begun: None,
            is_sequential: false,
            memory: AlignedBuffer::new(0),
            held: 0..0,
            start: 0,
            spare: None,
        }
    }

    /// The file offset of the held bytes.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// The file offset of their end.
    pub fn end(&self) -> u64 {
        self.start + self.held.len() as u64
    }

    /// The held bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.memory[self.held.clone()]
    }

    /// Returns `length` bytes at `offset`, which the file has; releases what lies before.
    pub fn range(&mut self, data: &DataFile, offset: u64, length: usize) -> Result<&[u8], SSTableError> {
        self.go_to(offset);
        while self.end() < offset + length as u64 {
            self.more(data, offset)?;
        }
        Ok(&self.bytes()[(offset - self.start) as usize..][..length])
    }

    /// Releases everything but the held bytes from `offset` on.
    pub fn go_to(&mut self, offset: u64) {
        if (self.start..=self.end()).contains(&offset) {
            self.held.start += (offset - self.start) as usize;
            self.start = offset;
        } else {
            self.held = 0..0;
            self.is_sequential = false;
            self.start = offset / BLOCK_SIZE as u64 * BLOCK_SIZE as u64;
        }
    }

    /// Releases what lies before `from`, which is held or comes next, and reads one more piece.
    pub fn more(&mut self, data: &DataFile, from: u64) -> Result<(), SSTableError> {
        let end = self.end();
        let BlockRead { mut buffer, range: piece, .. } = self.next_piece(data, end)?;
        let left_over = end.saturating_sub(from) as usize;
        if left_over <= piece.start {
            let range = piece.start - left_over..piece.start;
            buffer[range].copy_from_slice(&self.memory[self.held.end - left_over..self.held.end]);
            self.held = piece.start - left_over..piece.end;
            self.spare = Some(mem::replace(&mut self.memory, buffer));
        } else {
            self.append(left_over, &buffer[piece]);
            self.spare = Some(buffer);
        }
        // The first piece begins at a block, which may be before the wanted offset.
        self.held.start += from.saturating_sub(end) as usize;
        self.start = from;
        if mem::replace(&mut self.is_sequential, true) && self.end() < data.file_length() {
            self.begin(data, self.end());
        }
        Ok(())
    }

    /// Appends a piece to a long rest, in a buffer that is half free afterwards, so that a row of many pieces is not
    /// moved for each of them.
    fn append(&mut self, left_over: usize, piece: &[u8]) {
        let rest = self.held.end - left_over..self.held.end;
        self.held = rest.clone();
        if rest.end + piece.len() > self.memory.len() {
            let mut larger = AlignedBuffer::new(2 * (left_over + piece.len()));
            larger[..left_over].copy_from_slice(&self.memory[rest]);
            (self.memory, self.held) = (larger, 0..left_over);
        }
        self.memory[self.held.end..][..piece.len()].copy_from_slice(piece);
        self.held.end += piece.len();
    }

    /// The piece at a block's start; its range is the part that the file has.
    fn next_piece(&mut self, data: &DataFile, offset: u64) -> Result<BlockRead, SSTableError> {
        if self.begun.take_if(|begun| *begun != offset).is_some()
            && let Some(reader) = &mut self.reader
            && let Ok(Some((read, _))) = reader.finish()
        {
            self.spare = Some(read.buffer);
        }
        if self.begun.is_none() {
            self.begin(data, offset);
        }
        self.begun = None;
        let Some(reader) = &mut self.reader else { return self.read_piece(data, offset) };
        let Some((mut read, got)) = reader.finish()? else { return self.read_piece(data, offset) };
        let wanted = read.range.len().min((data.file_length() - offset) as usize);
        if got < wanted {
            let name = &data.name;
            let expected = "as many bytes as there were when the table was opened";
            return Err(Corruption::new(name, offset + got as u64, expected, "the end of the file").into());
        }
        read.range.end = read.range.start + wanted;
        Ok(read)
    }

    /// The same through the page cache.
    fn read_piece(&mut self, data: &DataFile, offset: u64) -> Result<BlockRead, SSTableError> {
        let mut read = to_be_read(self.spare.take(), data, offset, PIECE_BYTES);
        read.range.end = read.range.start + PIECE_BYTES.min(data.file_length() - offset) as usize;
        data.read_ahead_at(&mut read.buffer[read.range.clone()], offset)?;
        Ok(read)
    }

    /// Starts to prefetch the piece at a block's start, if the reader can.
    fn begin(&mut self, data: &DataFile, offset: u64) {
        let Some(reader) = &mut self.reader else { return };
        let length = if self.is_sequential { PIECE_AHEAD_BYTES } else { PIECE_BYTES };
        data.count_read(length.min(data.file_length() - offset));
        reader.begin(to_be_read(self.spare.take(), data, offset, length));
        self.begun = Some(offset);
    }
}

/// A read of whole blocks, with room in front. It reuses `spare` unless that is too small or very large because of a
/// long row.
fn to_be_read(spare: Option<AlignedBuffer>, data: &DataFile, offset: u64, length: u64) -> BlockRead {
    let length = length.min(data.file_length().saturating_sub(offset)) as usize;
    let range = ROOM_BYTES..ROOM_BYTES + length.next_multiple_of(BLOCK_SIZE);
    let fits = |spare: &AlignedBuffer| (range.end..=ROOM_BYTES + PIECE_AHEAD_BYTES as usize).contains(&spare.len());
    let buffer = spare.filter(fits).unwrap_or_else(|| AlignedBuffer::new(range.end));
    BlockRead { buffer, range, offset }
}
