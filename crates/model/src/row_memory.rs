//! Memory for copies of large rows.
//!
//! A source of rows copies each row before its reader sees it, and a merge holds a row of each source. Rows of many
//! megabytes therefore count before they are copied: a source that was given a [`RowMemory`] asks it first.

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

/// The memory that the buffers of one source have taken. It is given back with the source.
#[derive(Debug, Default)]
pub struct RowRoom {
    memory: Option<Arc<dyn RowMemory>>,
    taken_bytes: usize,
}

impl RowRoom {
    /// Asks `memory` from now on.
    pub fn ask(&mut self, memory: &Arc<dyn RowMemory>) {
        debug_assert_eq!(self.taken_bytes, 0, "a source asks one memory");
        self.memory = Some(memory.clone());
    }

    /// Whether a row of this size needs [`RowRoom::take`].
    #[inline]
    pub fn is_large(row_bytes: usize) -> bool {
        row_bytes > LARGE_ROW_BYTES
    }

    /// Whether it has a memory to ask.
    pub fn has_memory(&self) -> bool {
        self.memory.is_some()
    }

    /// Takes room for copies of this many bytes together, unless the buffers are that large already. Without a memory
    /// there is no limit.
    ///
    /// # Errors
    ///
    /// [`ReadError::NoRoom`] if the memory has too little.
    #[cold]
    pub fn take(&mut self, bytes: usize) -> Result<(), ReadError> {
        let missing = bytes.saturating_sub(self.taken_bytes);
        match &self.memory {
            Some(memory) if missing > 0 => {
                if !memory.take(missing) {
                    return Err(ReadError::NoRoom);
                }
                self.taken_bytes = bytes;
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

impl Drop for RowRoom {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take()
            && self.taken_bytes > 0
        {
            memory.give_back(self.taken_bytes);
        }
    }
}
