//! Prefetching pieces of a file while the caller processes earlier ones.

use std::fmt;
use std::ops::Range;

use crate::{AlignedBuffer, DiskError, File};

/// A piece of a file to read, and the memory that receives it.
#[derive(Debug)]
pub struct BlockRead {
    /// The memory.
    pub buffer: AlignedBuffer,
    /// The part of the memory to fill. Reads that bypass the page cache are of whole blocks: both ends are multiples of
    /// [`BLOCK_SIZE`](crate::BLOCK_SIZE).
    pub range: Range<usize>,
    /// Its offset in the file, which is a block's start.
    pub offset: u64,
}

impl BlockRead {
    /// The part of the memory to fill.
    pub(crate) fn piece(&mut self) -> &mut [u8] {
        &mut self.buffer[self.range.clone()]
    }
}

/// An asynchronous read, one at a time.
pub trait AsyncBlockRead: fmt::Debug + Send {
    /// Begins a read. The previous one must be finished.
    fn begin(&mut self, read: BlockRead);

    /// Waits for the read that was begun, and returns it with the number of bytes read: fewer than requested only at
    /// the end of the file. `None` if none was begun.
    fn finish(&mut self) -> Result<Option<(BlockRead, usize)>, DiskError>;
}

/// Reads a file piece by piece, each begun before it is needed. This does not bring pages into the page cache: reads
/// bypass it if the file was opened with [`OpenOptions::blocks`](crate::OpenOptions::blocks).
#[derive(Debug)]
pub struct ReadAhead(Box<dyn AsyncBlockRead>);

impl ReadAhead {
    /// A reader of `file`.
    pub fn new(file: Box<dyn File>) -> ReadAhead {
        ReadAhead(file.async_block_read().unwrap_or_else(|| Box::new(DeferredRead { file, begun: None })))
    }

    /// Begins a read. The previous one must be finished.
    pub fn begin(&mut self, read: BlockRead) {
        self.0.begin(read);
    }

    /// Waits for the read that was begun, and returns the number of bytes read: fewer than requested only at the end of
    /// the file. `None` if none was begun.
    pub fn finish(&mut self) -> Result<Option<(BlockRead, usize)>, DiskError> {
        self.0.finish()
    }
}

/// The fallback without asynchronous reads: the read is done when its result is requested.
#[derive(Debug)]
struct DeferredRead {
    file: Box<dyn File>,
    begun: Option<BlockRead>,
}

impl AsyncBlockRead for DeferredRead {
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
