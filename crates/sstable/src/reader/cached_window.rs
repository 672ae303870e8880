//! A view of Data.db at one position, using only blocks that the cache has. Nothing here waits for the disk.

use std::hint::black_box;

use super::DataFile;
use crate::cache::{Lent, NotCached};
use crate::error::Decoded;
use crate::input::Input;

/// The lines of a new block that are touched together.
const NEAR_LINES: [usize; 2] = [64, 128];
/// Data that spans more blocks than this is not read here.
const SPILLED_BLOCKS: u64 = 4;

/// A window that borrows blocks from the cache, one at a time.
pub(crate) struct CachedWindow<'d> {
    data: &'d DataFile,
    block: Option<Lent>,
    /// Data position of `block`.
    start: u64,
    /// The buffer for data that spans blocks.
    spill: &'d mut Vec<u8>,
}

impl<'d> CachedWindow<'d> {
    pub fn new(data: &'d DataFile, spill: &'d mut Vec<u8>) -> Self {
        CachedWindow { data, block: None, start: 0, spill }
    }

    /// Decodes something of unknown length at `position`, if the cache has all of it and it spans few blocks.
    #[inline]
    pub fn decode<T>(
        &mut self,
        position: u64,
        mut decode: impl FnMut(&mut Input<'_>) -> Decoded<T>,
    ) -> Result<T, NotCached> {
        let bytes = self.bytes_at(position)?;
        match decode(&mut Input::unnamed(position, bytes)) {
            Err(corruption) if corruption.short => self.decode_spilled(position, &mut decode),
            result => Ok(result?),
        }
    }

    /// The bytes of a data position's block from there on.
    #[inline]
    fn bytes_at(&mut self, position: u64) -> Result<&[u8], NotCached> {
        let is_here = |block: &Lent| position >= self.start && position - self.start < block.len() as u64;
        if !self.block.as_ref().is_some_and(is_here) {
            self.load(position)?;
        }
        let offset = (position - self.start) as usize;
        self.block.as_ref().and_then(|block| block.get(offset..)).ok_or(NotCached)
    }

    fn load(&mut self, position: u64) -> Result<(), NotCached> {
        let index = position / self.data.block_length;
        let block = self.data.peek(index)?;
        self.start = index * self.data.block_length;
        let bytes = block.get((position - self.start) as usize..).ok_or(NotCached)?;
        // Most items are longer than what the processor fetches at once.
        for line in NEAR_LINES {
            black_box(bytes.get(line).copied());
        }
        self.block = Some(block);
        Ok(())
    }

    #[cold]
    fn decode_spilled<T>(
        &mut self,
        position: u64,
        decode: &mut dyn FnMut(&mut Input<'_>) -> Decoded<T>,
    ) -> Result<T, NotCached> {
        let mut spill = std::mem::take(self.spill);
        spill.clear();
        let decoded = self.gather(position, &mut spill, decode);
        *self.spill = spill;
        decoded
    }

    fn gather<T>(
        &mut self,
        position: u64,
        spill: &mut Vec<u8>,
        decode: &mut dyn FnMut(&mut Input<'_>) -> Decoded<T>,
    ) -> Result<T, NotCached> {
        spill.extend_from_slice(self.bytes_at(position)?);
        let first = position / self.data.block_length;
        for index in first + 1..first + SPILLED_BLOCKS {
            spill.extend_from_slice(&self.data.peek(index)?);
            match decode(&mut Input::unnamed(position, spill)) {
                Err(corruption) if corruption.short => {}
                result => return Ok(result?),
            }
        }
        Err(NotCached)
    }
}
