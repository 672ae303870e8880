//! Pieces of a file on their way into memory, while whoever wants them is busy with the ones before.

use std::fmt;
use std::ops::Range;

use crate::{AlignedBuffer, DiskError, File};

/// A piece of a file, and where in memory it goes.
#[derive(Debug)]
pub struct BlockRead {
    /// The memory.
    pub buffer: AlignedBuffer,
    /// What of it is filled. Past the page cache go whole blocks: both ends are multiples of
    /// [`BLOCK_SIZE`](crate::BLOCK_SIZE).
    pub range: Range<usize>,
    /// Where it lies in the file: at a block's start.
    pub offset: u64,
}

impl BlockRead {
    /// The memory that is filled.
    pub(crate) fn piece(&mut self) -> &mut [u8] {
        &mut self.buffer[self.range.clone()]
    }
}

/// A read that goes on by itself, one at a time.
pub trait ReadUnderWay: fmt::Debug + Send {
    /// Begins a read. The one before is finished.
    fn begin(&mut self, read: BlockRead);

    /// The read that was begun, once it is done, with the number of bytes that it got: fewer than asked only at the end
    /// of the file. None if none was begun.
    fn finish(&mut self) -> Result<Option<(BlockRead, usize)>, DiskError>;
}

/// Reads a file piece by piece, each begun before it is wanted. What is not in the page cache does not come into it by
/// that: it goes past it if the file was opened with [`OpenOptions::blocks`](crate::OpenOptions::blocks).
#[derive(Debug)]
pub struct ReadAhead(Box<dyn ReadUnderWay>);

impl ReadAhead {
    /// A reader of `file`.
    pub fn new(file: Box<dyn File>) -> ReadAhead {
        ReadAhead(file.read_under_way().unwrap_or_else(|| Box::new(ReadWhenWanted { file, begun: None })))
    }

    /// Begins a read; one that was begun before must be finished.
    pub fn begin(&mut self, read: BlockRead) {
        self.0.begin(read);
    }

    /// Waits for the read that was begun; how many bytes it got: fewer than asked only at the end of the file. None if
    /// none was begun.
    pub fn finish(&mut self) -> Result<Option<(BlockRead, usize)>, DiskError> {
        self.0.finish()
    }
}

/// Without any means to read meanwhile: the read is done by whoever wants to see it done.
#[derive(Debug)]
struct ReadWhenWanted {
    file: Box<dyn File>,
    begun: Option<BlockRead>,
}

impl ReadUnderWay for ReadWhenWanted {
    fn begin(&mut self, read: BlockRead) {
        self.begun = Some(read);
    }

    fn finish(&mut self) -> Result<Option<(BlockRead, usize)>, DiskError> {
        let Some(mut read) = self.begun.take() else { return Ok(None) };
        let offset = read.offset;
        let got = self.file.read_once_at(read.piece(), offset)?;
        Ok(Some((read, got)))
    }
}
