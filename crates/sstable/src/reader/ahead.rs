//! Stored bytes of a file for whoever goes through it: pieces one behind the other, the next perhaps on its way
//! already.
//!
//! A piece is read into memory of its own, behind some room. What is left over of the one before, a row or chunk that
//! both have a part of, is copied into that room, right before the piece: so all that is held stands together, and
//! pieces are not moved.

use std::mem;
use std::ops::Range;

use blockio::{AlignedBuffer, BLOCK_SIZE, BlockRead, ReadAhead};

use super::DataFile;
use crate::error::{Corruption, SSTableError};

/// A piece that is read when it is wanted: through the page cache all are, past it those at the beginning, or wherever
/// it leads on from.
const PIECE_BYTES: u64 = 256 * 1024;
/// One that is read past the page cache once pieces follow one another.
const PIECE_AHEAD_BYTES: u64 = 512 * 1024;
/// For what is left over of the piece before; what is longer is put together elsewhere.
const ROOM_BYTES: usize = 8 * BLOCK_SIZE;

pub(super) struct Ahead {
    /// Reads the file past the page cache, and ahead; otherwise it is read through the page cache.
    reader: Option<ReadAhead>,
    /// Where in the file the piece begins that is on its way.
    begun: Option<u64>,
    /// Whether a piece was used up: the next one probably will be.
    goes_on: bool,
    memory: AlignedBuffer,
    /// What of it holds bytes of the file.
    held: Range<usize>,
    /// Where in the file they lie.
    start: u64,
    /// Memory for the next piece.
    spare: Option<AlignedBuffer>,
}

impl Ahead {
    pub fn new(reader: Option<ReadAhead>) -> Self {
        Ahead { reader, begun: None, goes_on: false, memory: AlignedBuffer::new(0), held: 0..0, start: 0, spare: None }
    }

    /// Where in the file begins what is held.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Where it ends.
    pub fn end(&self) -> u64 {
        self.start + self.held.len() as u64
    }

    /// What is held.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.memory[self.held.clone()]
    }

    /// `length` bytes at `offset`, which the file has; lets go of what lies before.
    pub fn range(&mut self, data: &DataFile, offset: u64, length: usize) -> Result<&[u8], SSTableError> {
        self.go_to(offset);
        while self.end() < offset + length as u64 {
            self.more(data, offset)?;
        }
        Ok(&self.bytes()[(offset - self.start) as usize..][..length])
    }

    /// Lets go of all but what is held from `offset` on.
    pub fn go_to(&mut self, offset: u64) {
        if (self.start..=self.end()).contains(&offset) {
            self.held.start += (offset - self.start) as usize;
            self.start = offset;
        } else {
            self.held = 0..0;
            self.goes_on = false;
            self.start = offset / BLOCK_SIZE as u64 * BLOCK_SIZE as u64;
        }
    }

    /// Lets go of what lies before `from`, which is held or comes next, and has one piece more.
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
        // Before the first piece begins what is wanted, a block does.
        self.held.start += from.saturating_sub(end) as usize;
        self.start = from;
        if mem::replace(&mut self.goes_on, true) && self.end() < data.file_length() {
            self.begin(data, self.end());
        }
        Ok(())
    }

    /// Puts a piece behind a long rest, in memory of which as much again is free: what spans many pieces is not moved
    /// for each of them.
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

    /// The piece at a block's start; its range is what the file has of it.
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

    /// Has the piece at a block's start come, where the reader can.
    fn begin(&mut self, data: &DataFile, offset: u64) {
        let Some(reader) = &mut self.reader else { return };
        let length = if self.goes_on { PIECE_AHEAD_BYTES } else { PIECE_BYTES };
        data.count_read(length.min(data.file_length() - offset));
        reader.begin(to_be_read(self.spare.take(), data, offset, length));
        self.begun = Some(offset);
    }
}

/// A piece of whole blocks, and room before it. `spare` is its memory if it is neither too small nor what a long row
/// left behind.
fn to_be_read(spare: Option<AlignedBuffer>, data: &DataFile, offset: u64, length: u64) -> BlockRead {
    let length = length.min(data.file_length().saturating_sub(offset)) as usize;
    let range = ROOM_BYTES..ROOM_BYTES + length.next_multiple_of(BLOCK_SIZE);
    let fits = |spare: &AlignedBuffer| (range.end..=ROOM_BYTES + PIECE_AHEAD_BYTES as usize).contains(&spare.len());
    let buffer = spare.filter(fits).unwrap_or_else(|| AlignedBuffer::new(range.end));
    BlockRead { buffer, range, offset }
}
