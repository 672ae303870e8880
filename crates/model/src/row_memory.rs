//! Memory for copies of large rows.
//!
//! A source of rows copies each row before its reader sees it, and a merge holds a row of each source. Rows of many
//! megabytes therefore count before they are copied: a source that was given a [`LargeRowLimit`] asks it first.

use std::sync::Arc;

use crate::ReadError;

/// Smaller rows are copied without asking: no more are copied at a time than there are threads and sources.
const LARGE_ROW_BYTES: usize = 256 << 10;

/// Memory that readers share.
pub trait RowMemory: Send + Sync + std::fmt::Debug {
    /// Takes this many bytes. Returns false, and takes none, if there are too few.
    fn take(&self, bytes: usize) -> bool;

    /// Gives back bytes that were taken.
    fn give_back(&self, bytes: usize);
}

/// Whether a source may copy large rows.
#[derive(Clone, Debug, Default)]
pub enum LargeRowLimit {
    /// All rows may be copied.
    #[default]
    None,
    /// No large row may be copied, because the thread has other work that would wait meanwhile. The source fails with
    /// [`ReadError::LargeRow`].
    NoLargeRows,
    /// Large rows may be copied if this has memory for the copies. Otherwise the source fails with
    /// [`ReadError::NoRoom`].
    Memory(Arc<dyn RowMemory>),
}

/// The memory that the buffers of one source have taken. It is given back with the source.
#[derive(Debug, Default)]
pub struct RowReservation {
    limit: LargeRowLimit,
    taken_bytes: usize,
}

impl RowReservation {
    /// Sets the limit, before any memory is taken.
    pub fn set_limit(&mut self, limit: LargeRowLimit) {
        debug_assert_eq!(self.taken_bytes, 0, "a source has one limit");
        self.limit = limit;
    }

    /// Whether a row of this size needs [`RowReservation::take`].
    #[inline]
    pub fn is_large(row_bytes: usize) -> bool {
        row_bytes > LARGE_ROW_BYTES
    }

    /// Takes memory for copies of this many bytes together, unless the buffers are that large already.
    ///
    /// # Errors
    ///
    /// [`ReadError::NoRoom`] if there is too little memory, and [`ReadError::LargeRow`] if there are to be no copies.
    #[cold]
    pub fn take(&mut self, bytes: usize) -> Result<(), ReadError> {
        let missing = bytes.saturating_sub(self.taken_bytes);
        match &self.limit {
            LargeRowLimit::None => {}
            LargeRowLimit::NoLargeRows => return Err(ReadError::LargeRow),
            LargeRowLimit::Memory(_) if missing == 0 => {}
            LargeRowLimit::Memory(memory) => {
                if !memory.take(missing) {
                    return Err(ReadError::NoRoom);
                }
                self.taken_bytes = bytes;
            }
        }
        Ok(())
    }

    /// Gives back all but this many bytes: the other copies were freed.
    #[cold]
    pub fn keep(&mut self, bytes: usize) {
        if let LargeRowLimit::Memory(memory) = &self.limit
            && bytes < self.taken_bytes
        {
            memory.give_back(self.taken_bytes - bytes);
            self.taken_bytes = bytes;
        }
    }
}

impl Drop for RowReservation {
    fn drop(&mut self) {
        if let LargeRowLimit::Memory(memory) = &self.limit
            && self.taken_bytes > 0
        {
            memory.give_back(self.taken_bytes);
        }
    }
}
