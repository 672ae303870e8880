//! Data.db as a sequence of uncompressed blocks, each verified when it is read.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use blockio::{DiskError, File, ReadAhead};

use super::ahead::Ahead;
use crate::cache::{self, BlockCache, Lent, NotCached};
use crate::cached_file::CachedFile;
use crate::compression::CompressionInfo;
use crate::error::{Corruption, SSTableError};
use crate::input::Input;

/// Block of an uncompressed table that has no CRC.db.
const PLAIN_BLOCK_LENGTH: u64 = 16 * 1024;
/// How much a sequential reader verifies at a time: it is still in the processor's caches when it is decoded.
const VERIFIED_BYTES: u64 = 64 * 1024;
/// A sequential reader that has this much data in front of it releases what lies behind before it reads more.
const SEQUENTIAL_BYTES: usize = 64 * 1024;
/// A sequential reader allocates exactly the size of a larger row, and frees it after the row.
const LARGE_BYTES: usize = 256 * 1024;

/// Checksums of an uncompressed Data.db.
#[derive(Debug)]
pub(crate) struct Checksums {
    pub chunk_length: u64,
    pub crcs: Vec<u32>,
}

impl Checksums {
    /// Reads CRC.db.
    pub fn decode(file: &str, bytes: &[u8]) -> Result<Self, SSTableError> {
        let mut input = Input::new(file, 0, bytes);
        let chunk_length = match input.i32("chunk size")? {
            length @ 1.. => length as u64,
            other => return Err(input.damaged("a chunk size above zero", other.to_string()).into()),
        };
        if !input.remaining().is_multiple_of(4) {
            return Err(input.damaged("whole checksums", format!("{} bytes", input.remaining())).into());
        }
        let mut crcs = Vec::with_capacity(input.remaining() / 4);
        while !input.is_empty() {
            crcs.push(input.u32("checksum")?);
        }
        Ok(Checksums { chunk_length, crcs })
    }
}

#[derive(Debug)]
pub(crate) enum Layout {
    Compressed(CompressionInfo),
    Plain(Option<Checksums>),
}

/// An open Data.db.
#[derive(Debug)]
pub(crate) struct DataFile {
    pub name: String,
    file: Box<dyn File>,
    file_length: u64,
    /// Length of the uncompressed data.
    pub length: u64,
    layout: Layout,
    pub block_length: u64,
    blocks: CachedFile,
    /// Waypoints in the cache, by data positions.
    waypoints: CachedFile,
    /// The share of blocks whose checksum is verified, in 1/65536.
    verified_share: AtomicU64,
    blocks_read: AtomicU64,
    bytes_read: AtomicU64,
}

impl DataFile {
    pub fn new(
        name: String,
        file: Box<dyn File>,
        layout: Layout,
        crc_check_chance: f64,
        cache: BlockCache,
    ) -> Result<Self, SSTableError> {
        let file_length = file.len()?;
        let (length, block_length) = match &layout {
            Layout::Compressed(info) => (info.data_length, u64::from(info.params.chunk_length)),
            Layout::Plain(Some(checksums)) => (file_length, checksums.chunk_length),
            Layout::Plain(None) => (file_length, PLAIN_BLOCK_LENGTH),
        };
        if let Layout::Plain(Some(checksums)) = &layout
            && (checksums.crcs.len() as u64) < length.div_ceil(block_length)
        {
            let expected = format!("a file of {} checksummed chunks", checksums.crcs.len());
            return Err(Corruption::new(&name, 0, expected, format!("{length} bytes")).into());
        }
        Ok(DataFile {
            name,
            file,
            file_length,
            length,
            layout,
            block_length,
            blocks: CachedFile::new(cache.clone()),
            waypoints: CachedFile::new(cache),
            verified_share: AtomicU64::new(verified_share(crc_check_chance)),
            blocks_read: AtomicU64::new(0),
            bytes_read: AtomicU64::new(0),
        })
    }

    /// The unique number of the open file.
    pub fn number(&self) -> u64 {
        self.blocks.number()
    }

    pub fn file_length(&self) -> u64 {
        self.file_length
    }

    pub fn compression(&self) -> Option<&CompressionInfo> {
        match &self.layout {
            Layout::Compressed(info) => Some(info),
            Layout::Plain(_) => None,
        }
    }

    /// The bytes held in memory outside of the cache: chunk offsets or checksums.
    pub fn metadata_bytes(&self) -> usize {
        match &self.layout {
            Layout::Compressed(info) => info.offsets.capacity() * size_of::<u64>(),
            Layout::Plain(checksums) => checksums.as_ref().map_or(0, |sums| sums.crcs.capacity() * size_of::<u32>()),
        }
    }

    pub fn file(&self) -> &dyn File {
        &*self.file
    }

    /// Bytes read from the file since it was opened.
    pub fn bytes_read(&self) -> u64 {
        self.bytes_read.load(Ordering::Relaxed)
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64, may_block: bool) -> Result<(), SSTableError> {
        self.count_read(buffer.len() as u64);
        match may_block {
            true => self.file.read_exact_at(buffer, offset)?,
            false => self.file.read_exact_at_nowait(buffer, offset)?,
        }
        Ok(())
    }

    /// Reads bytes for a reader that continues from there.
    pub fn read_ahead_at(&self, buffer: &mut [u8], offset: u64) -> Result<(), SSTableError> {
        self.count_read(buffer.len() as u64);
        Ok(self.file.read_exact_once_at(buffer, offset)?)
    }

    /// Counts bytes that were read from the file.
    pub fn count_read(&self, bytes: u64) {
        self.bytes_read.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Sets the share of blocks whose checksum is verified from now on.
    pub fn set_crc_check_chance(&self, chance: f64) {
        self.verified_share.store(verified_share(chance), Ordering::Relaxed);
    }

    /// Whether the checksums of the next read are verified.
    fn verify_next(&self) -> bool {
        let share = self.verified_share.load(Ordering::Relaxed);
        if share >= 65_536 {
            return true;
        }
        let read = self.blocks_read.fetch_add(1, Ordering::Relaxed);
        (read.wrapping_add(1).wrapping_mul(share)) >> 16 != read.wrapping_mul(share) >> 16
    }

    /// Uncompressed length of a block.
    fn block_data_length(&self, index: u64) -> usize {
        self.length.saturating_sub(index.saturating_mul(self.block_length)).min(self.block_length) as usize
    }

    /// The file offset and length of a stored block.
    fn stored_range(&self, index: u64) -> Result<(u64, usize), SSTableError> {
        match &self.layout {
            Layout::Compressed(info) => Ok(info.chunk_range(&self.name, index, self.file_length)?),
            Layout::Plain(_) => Ok((index * self.block_length, self.block_data_length(index))),
        }
    }

    /// Verifies a block of an uncompressed file.
    fn verify_plain(&self, index: u64, block: &[u8]) -> Result<(), SSTableError> {
        let Layout::Plain(Some(checksums)) = &self.layout else { return Ok(()) };
        let Some(crc) = checksums.crcs.get(index as usize) else { return Ok(()) };
        let computed = crc32fast::hash(block);
        if computed == *crc {
            return Ok(());
        }
        let (expected, got) = (format!("chunk checksum {crc:08x}"), format!("{computed:08x}"));
        Err(Corruption::new(&self.name, index * self.block_length, expected, got).into())
    }

    /// How much of the data from the start of a block on is sound, if that block is.
    fn sound_length(&self, index: u64, data: &[u8]) -> Result<usize, SSTableError> {
        if !self.verify_next() {
            return Ok(data.len());
        }
        let mut sound = 0;
        for (index, block) in (index..).zip(data.chunks(self.block_length as usize)) {
            match self.verify_plain(index, block) {
                Ok(()) => sound += block.len(),
                Err(error) if sound == 0 => return Err(error),
                // The reader gets the error when it reads this block.
                Err(_) => break,
            }
        }
        Ok(sound)
    }

    /// The waypoints stored for a data position.
    pub fn waypoints(&self, position: u64) -> Option<cache::Block> {
        self.waypoints.latest(position)
    }

    /// Stores waypoints in the cache, replacing those of the same data position.
    pub fn keep_waypoints(&self, position: u64, waypoints: Vec<u8>) {
        self.waypoints.put(position, waypoints.into_boxed_slice());
    }

    /// The cache's share of the file.
    pub fn cached_blocks(&self) -> &CachedFile {
        &self.blocks
    }

    /// A block that the cache has.
    #[inline]
    pub fn peek(&self, index: u64) -> Result<Lent, NotCached> {
        self.blocks.peek(index).ok_or(NotCached)
    }

    /// A block through the cache.
    fn cached(&self, index: u64, may_block: bool) -> Result<cache::Block, SSTableError> {
        let load = || {
            let (offset, length) = self.stored_range(index)?;
            let mut stored = vec![0; length];
            self.read_exact_at(&mut stored, offset, may_block)?;
            let block = match &self.layout {
                Layout::Compressed(info) => {
                    let mut block = vec![0; self.block_data_length(index)];
                    info.unpack(&self.name, offset, &stored, self.verify_next(), &mut block)?;
                    block
                }
                Layout::Plain(_) => {
                    if self.verify_next() {
                        self.verify_plain(index, &stored)?;
                    }
                    stored
                }
            };
            Ok(block.into_boxed_slice())
        };
        let would_wait = || DiskError::would_wait(self.file.path(), None).into();
        self.blocks.get(index, may_block, load, would_wait)
    }
}

/// Converts a chance from 0 to 1 to 1/65536.
fn verified_share(chance: f64) -> u64 {
    (chance.clamp(0.0, 1.0) * 65_536.0) as u64
}

/// How a cursor reads blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadMode {
    /// Through the shared cache: for requests.
    Cached {
        /// Whether a read may wait for the device. Where it may not, one that would have to fails with
        /// [`WouldWait`](blockio::DiskErrorKind::WouldWait).
        may_block: bool,
    },
    /// With prefetching and bypassing the cache: for compaction, verification and dumps.
    Sequential,
}

impl ReadMode {
    /// Whether reads may wait for the device.
    pub fn may_block(self) -> bool {
        self != ReadMode::Cached { may_block: false }
    }
}

enum Block {
    /// One block, of the cache.
    Shared(cache::Block),
    /// The data of a sequential reader of a compressed file.
    Own(Own),
    /// A sequential reader's data in an uncompressed file: this many of the prefetched bytes are verified.
    Verified(usize),
}

/// Consecutive blocks, the first of which may lack its beginning, so that what spans them is contiguous.
#[derive(Default)]
struct Own {
    /// Verified data, and free room.
    bytes: Vec<u8>,
    /// The length of the data.
    ready: usize,
}

impl Own {
    /// Room for `length` bytes after the data.
    fn room(&mut self, length: usize) -> &mut [u8] {
        let end = self.ready + length;
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        &mut self.bytes[self.ready..end]
    }

    /// Makes room for a large row, for which the buffer would otherwise be doubled several times. If there is not
    /// enough memory, the length may be wrong: the buffer then grows as far as there is data.
    #[cold]
    fn reserve(&mut self, bytes: usize) {
        self.bytes.truncate(self.ready);
        let _ = self.bytes.try_reserve_exact(bytes.saturating_sub(self.ready));
    }

    /// Removes the first bytes, and frees the memory that a large row took.
    fn cut(&mut self, count: usize) {
        self.bytes.copy_within(count..self.ready, 0);
        self.ready -= count;
        if self.bytes.len() > LARGE_BYTES {
            self.bytes.truncate(self.ready);
            self.bytes.shrink_to(SEQUENTIAL_BYTES);
        }
    }
}

/// A view of the data at one position, which a cursor moves.
pub(crate) struct DataWindow {
    data: Arc<DataFile>,
    mode: ReadMode,
    block: Block,
    /// The index of a shared `block`; `u64::MAX` before the first.
    block_index: u64,
    /// Data position of `block`.
    block_start: u64,
    /// Bytes that span shared blocks, and their position.
    spill: Vec<u8>,
    spill_start: u64,
    /// The prefetched bytes of a sequential reader.
    ahead: Option<Ahead>,
}

impl DataWindow {
    pub fn new(data: Arc<DataFile>, mode: ReadMode) -> Self {
        let block = match data.layout {
            Layout::Plain(_) if mode == ReadMode::Sequential => Block::Verified(0),
            _ => Block::Own(Own::default()),
        };
        DataWindow {
            data,
            mode,
            block,
            block_index: u64::MAX,
            block_start: 0,
            spill: Vec::new(),
            spill_start: 0,
            ahead: (mode == ReadMode::Sequential).then(|| Ahead::new(None)),
        }
    }

    /// Makes a sequential reader that has read nothing yet use `reader`.
    pub fn read_by(&mut self, reader: ReadAhead) {
        self.ahead = Some(Ahead::new(Some(reader)));
    }

    pub fn data(&self) -> &DataFile {
        &self.data
    }

    /// Whether reads may wait for the device.
    pub fn may_block(&self) -> bool {
        self.mode.may_block()
    }

    pub fn is_cached(&self) -> bool {
        self.mode != ReadMode::Sequential
    }

    fn block(&self) -> &[u8] {
        match &self.block {
            Block::Shared(block) => block,
            Block::Own(own) => &own.bytes[..own.ready],
            Block::Verified(length) => self.ahead.as_ref().map_or(&[], |ahead| &ahead.bytes()[..*length]),
        }
    }

    fn load(&mut self, index: u64) -> Result<(), SSTableError> {
        if index == self.block_index {
            return Ok(());
        }
        self.block = Block::Shared(self.data.cached(index, self.mode.may_block())?);
        self.block_index = index;
        self.block_start = index * self.data.block_length;
        Ok(())
    }

    /// Makes at least `least` bytes from `position` on, which the file has, available to a sequential reader. Returns
    /// the offset there.
    fn extend(&mut self, position: u64, least: usize) -> Result<usize, SSTableError> {
        match self.data.layout {
            Layout::Compressed(_) => self.extend_chunks(position, least),
            Layout::Plain(_) => self.extend_verified(position, least),
        }
    }

    fn extend_chunks(&mut self, position: u64, least: usize) -> Result<usize, SSTableError> {
        let Self { data, block: Block::Own(own), block_start, ahead: Some(ahead), .. } = self else { return Ok(0) };
        let block_length = data.block_length;
        let end = *block_start + own.ready as u64;
        if !(*block_start..end).contains(&position) {
            own.ready = 0;
            *block_start = position / block_length * block_length;
        } else if own.ready >= SEQUENTIAL_BYTES {
            own.cut((position - *block_start) as usize);
            *block_start = position;
        }
        let offset = (position - *block_start) as usize;
        if offset + least > LARGE_BYTES {
            own.reserve((offset + least).saturating_add(block_length as usize));
        }
        while own.ready < offset + least {
            // The data continues after what is requested, so everything up to here was whole blocks.
            append_chunk(data, (*block_start + own.ready as u64) / block_length, ahead, own)?;
        }
        Ok(offset)
    }

    fn extend_verified(&mut self, position: u64, least: usize) -> Result<usize, SSTableError> {
        let Self { data, block: Block::Verified(verified), block_start, ahead: Some(ahead), .. } = self else {
            return Ok(0);
        };
        let block_length = data.block_length;
        let mut end = *block_start + *verified as u64;
        if !(*block_start..=end).contains(&position) {
            end = position / block_length * block_length;
            *verified = 0;
            ahead.go_to(end);
        }
        while end < position + least as u64 {
            // The data continues after what is requested, so everything up to here was whole blocks.
            let wanted = (end + VERIFIED_BYTES.next_multiple_of(block_length)).min(data.length);
            let whole = ahead.end().min(wanted);
            let whole = if whole == data.length { whole } else { whole / block_length * block_length };
            if whole <= end {
                ahead.more(data, position.min(end))?;
            } else {
                let unverified = &ahead.bytes()[(end - ahead.start()) as usize..(whole - ahead.start()) as usize];
                end += data.sound_length(end / block_length, unverified)? as u64;
            }
            (*block_start, *verified) = (ahead.start(), (end - ahead.start()) as usize);
        }
        Ok((position - *block_start) as usize)
    }

    /// Makes at least `least` bytes from `position` on available, unless the data ends before.
    fn prepare(&mut self, position: u64, least: usize) -> Result<WindowOffset, SSTableError> {
        // They are nearly always in the current block, which needs no division.
        if let Some(offset) = position.checked_sub(self.block_start)
            && offset + least as u64 <= self.block().len() as u64
        {
            return Ok(WindowOffset::Block(offset as usize));
        }
        if position >= self.data.length {
            return Ok(WindowOffset::End);
        }
        let least = (least as u64).min(self.data.length - position) as usize;
        if self.mode == ReadMode::Sequential {
            return Ok(WindowOffset::Block(self.extend(position, least)?));
        }
        if let Some(offset) = position.checked_sub(self.spill_start)
            && offset + least as u64 <= self.spill.len() as u64
        {
            return Ok(WindowOffset::Spill(offset as usize));
        }
        let index = position / self.data.block_length;
        let offset = (position % self.data.block_length) as usize;
        self.load(index)?;
        if self.block().len() < offset + least {
            self.gather(position, index, offset, least)?;
            return Ok(WindowOffset::Spill(0));
        }
        Ok(WindowOffset::Block(offset))
    }

    fn view(&self, place: WindowOffset) -> &[u8] {
        let (bytes, offset) = match place {
            WindowOffset::Block(offset) => (self.block(), offset),
            WindowOffset::Spill(offset) => (self.spill.as_slice(), offset),
            WindowOffset::End => (&[][..], 0),
        };
        bytes.get(offset..).unwrap_or_default()
    }

    /// Collects the bytes of several blocks.
    fn gather(&mut self, position: u64, mut index: u64, offset: usize, least: usize) -> Result<(), SSTableError> {
        let mut spill = std::mem::take(&mut self.spill);
        spill.clear();
        // As for a sequential reader, without memory for that length the buffer grows with the data.
        let _ = spill.try_reserve_exact(least.saturating_add(self.block().len()));
        spill.extend_from_slice(self.block().get(offset..).unwrap_or_default());
        while spill.len() < least {
            index += 1;
            self.load(index)?;
            if self.block().is_empty() {
                break;
            }
            spill.extend_from_slice(self.block());
        }
        self.spill = spill;
        self.spill_start = position;
        Ok(())
    }

    /// Frees the bytes of a large row that was decoded and ends at this data position.
    #[cold]
    pub fn free_row(&mut self, end: u64) {
        self.spill = Vec::new();
        let Block::Own(own) = &mut self.block else { return };
        if let Some(decoded) = end.checked_sub(self.block_start)
            && decoded <= own.ready as u64
        {
            own.cut(decoded as usize);
            self.block_start = end;
        }
    }

    /// Decodes something of unknown length at `position`, retrying with more bytes while it runs out of them.
    pub fn decode<T>(
        &mut self,
        position: u64,
        mut decode: impl FnMut(&mut Input<'_>) -> Result<T, Box<Corruption>>,
    ) -> Result<T, SSTableError> {
        let mut least = 1;
        loop {
            let place = self.prepare(position, least)?;
            let bytes = self.view(place);
            match decode(&mut Input::new(&self.data.name, position, bytes)) {
                Err(corruption) if corruption.short && position + (bytes.len() as u64) < self.data.length => {
                    least = bytes.len() + 1;
                }
                result => return Ok(result?),
            }
        }
    }

    /// The available bytes from a data position on, perhaps none.
    #[inline]
    pub fn buffered(&self, position: u64) -> &[u8] {
        let offset = position.checked_sub(self.block_start).and_then(|offset| usize::try_from(offset).ok());
        offset.and_then(|offset| self.block().get(offset..)).unwrap_or_default()
    }

    /// Bytes that were decoded last, or a part of them.
    pub fn held(&self, position: u64, length: usize) -> &[u8] {
        let part = |start: u64| -> Option<Range<usize>> {
            let offset = usize::try_from(position.checked_sub(start)?).ok()?;
            Some(offset..offset.checked_add(length)?)
        };
        let of_block = part(self.block_start).and_then(|range| self.block().get(range));
        let of_spill = || part(self.spill_start).and_then(|range| self.spill.get(range));
        of_block.or_else(of_spill).unwrap_or_default()
    }

    /// Decodes something of known length at `position`.
    pub fn decode_sized<T>(
        &mut self,
        position: u64,
        length: usize,
        decode: impl FnOnce(&mut Input<'_>) -> Result<T, Box<Corruption>>,
    ) -> Result<T, SSTableError> {
        let place = self.prepare(position, length)?;
        let name = &self.data.name;
        let short = || Corruption::new(name, position, format!("a row body of {length} bytes"), "the end of the data");
        let body = self.view(place).get(..length).ok_or_else(short)?;
        Ok(decode(&mut Input::new(name, position, body))?)
    }
}

/// Appends the data of a compressed chunk.
fn append_chunk(data: &DataFile, index: u64, ahead: &mut Ahead, own: &mut Own) -> Result<(), SSTableError> {
    let Layout::Compressed(info) = &data.layout else { return Ok(()) };
    let (offset, length) = data.stored_range(index)?;
    let stored = ahead.range(data, offset, length)?;
    let data_length = data.block_data_length(index);
    info.unpack(&data.name, offset, stored, data.verify_next(), own.room(data_length))?;
    own.ready += data_length;
    Ok(())
}

/// The place of bytes in a window.
#[derive(Clone, Copy)]
enum WindowOffset {
    /// At an offset of the block.
    Block(usize),
    /// At an offset of the bytes that span blocks.
    Spill(usize),
    /// Behind the data.
    End,
}
