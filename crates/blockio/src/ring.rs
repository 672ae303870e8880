//! A ring of blocks that many threads fill in parallel and one side writes out.
//!
//! A *position* counts bytes since the ring was made and never decreases; its place in memory is the position modulo
//! the capacity. Memory below `released` may be filled again; from there to the tail it is in use:
//!
//! ```text
//!   released           sealed              tail            released + capacity
//!      │ batch 7, filled │ batch 8, being filled │   free          │
//! ```
//!
//! A writer reserves a range with one compare-and-swap on the tail, copies into it without a lock, and marks it done
//! when the reservation drops. The tail word also carries the number of the open *batch*; each batch counts the bytes
//! that are done in it. [`seal`](BlockRing::seal) moves the tail to a block's start and opens the next batch.
//! [`take_sealed`](BlockRing::take_sealed) returns sealed batches in order. Once the count reaches what was reserved,
//! the batch belongs to its taker alone, which finishes it, shares it as [frames](Frame) that are written out, and
//! releases it by dropping the last of them.
//!
//! Invariants on which the unsafe code rests:
//! - reserved ranges are disjoint: each begins at or after the tail and moves the tail to its end;
//! - batches are disjoint whole blocks: a seal leaves the tail at a block's start;
//! - no memory below `released` is in use, and nothing is reserved beyond `released + capacity`;
//! - a batch's counter is used for another batch only after its release;
//! - a batch is finished (`&mut`) before it is shared as frames, and only read from then on; the ring lives as long as
//!   any frame.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::primitive::{AtomicU64, Mutex, MutexGuard, Ordering};
use crate::{AlignedBuffer, AlignedSlice, BLOCK_SIZE};

/// The most batches that are sealed and not yet released.
const BATCHES_MAX: usize = 64;
/// The bits of the tail word that number the batch, more than `BATCHES_MAX` needs. The rest is the position: 2^56 bytes
/// are 20 years at 100 MB/s.
const BATCH_BITS: u32 = 8;
const BATCH_MASK: u64 = (1 << BATCH_BITS) - 1;

/// The ring that the module's text describes.
pub struct BlockRing {
    memory: AlignedBuffer,
    tail: AtomicU64,
    released: AtomicU64,
    done: [AtomicU64; BATCHES_MAX],
    sealed: Mutex<Sealed>,
}

/// State that only sealing and releasing use.
struct Sealed {
    /// Where the open batch begins.
    open_start: u64,
    /// Sealed batches, oldest first.
    outstanding: VecDeque<Outstanding>,
}

struct Outstanding {
    number: u64,
    start: u64,
    /// Where its reservations end.
    filled: u64,
    /// Where the next batch begins.
    end: u64,
    taken: bool,
    released: bool,
}

/// The result of a seal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seal {
    /// There is a batch to take.
    Sealed,
    /// Nothing was reserved since the last seal; the tail moved all the same.
    Empty,
    /// Too many batches wait to be released; nothing changed.
    TooMany,
}

/// The reason why nothing was reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReserveError {
    /// The caller's placement refused the position; the tail must be moved first.
    Refused,
    /// The ring is full until a batch is released.
    Full,
}

impl BlockRing {
    /// A ring of `capacity` bytes, rounded up to whole blocks. Its memory is only touched when it is used.
    pub fn new(capacity: usize) -> BlockRing {
        BlockRing {
            memory: AlignedBuffer::new(capacity),
            tail: AtomicU64::new(0),
            released: AtomicU64::new(0),
            done: std::array::from_fn(|_| AtomicU64::new(0)),
            sealed: Mutex::new(Sealed { open_start: 0, outstanding: VecDeque::with_capacity(BATCHES_MAX) }),
        }
    }

    /// Its size in bytes.
    pub fn capacity(&self) -> u64 {
        self.memory.len() as u64
    }

    /// The position at which the next reservation looks for room.
    pub fn tail(&self) -> u64 {
        self.tail.load(Ordering::Acquire) >> BATCH_BITS
    }

    /// The position below which everything has been released.
    pub fn released(&self) -> u64 {
        self.released.load(Ordering::Acquire)
    }

    /// Reserves the range that `place` chooses for a given position: a non-empty range that begins there or later.
    /// `place` may be called several times.
    pub fn reserve(&self, place: impl Fn(u64) -> Option<Range<u64>>) -> Result<Reservation<'_>, ReserveError> {
        let mut tail = self.tail.load(Ordering::Acquire);
        loop {
            let position = tail >> BATCH_BITS;
            let range = place(position).ok_or(ReserveError::Refused)?;
            assert!(position <= range.start && range.start < range.end, "a placement ahead of the tail");
            if range.end - self.released().min(range.end) > self.capacity() {
                return Err(ReserveError::Full);
            }
            let number = tail & BATCH_MASK;
            match self.tail.compare_exchange_weak(
                tail,
                range.end << BATCH_BITS | number,
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => return Ok(Reservation { ring: self, number, from: position, range }),
                Err(now) => tail = now,
            }
        }
    }

    /// Ends the open batch and moves the tail to the result of `next` for the current tail: a block's start at or
    /// after it. `next` may be called several times; the last call counts.
    pub fn seal(&self, mut next: impl FnMut(u64) -> u64) -> Seal {
        let mut sealed = self.lock();
        if sealed.outstanding.len() >= BATCHES_MAX - 1 {
            return Seal::TooMany;
        }
        let mut tail = self.tail.load(Ordering::Acquire);
        loop {
            let filled = tail >> BATCH_BITS;
            let number = tail & BATCH_MASK;
            let end = next(filled);
            assert!(end >= filled && end.is_multiple_of(BLOCK_SIZE as u64), "a seal at a block's start");
            let start = sealed.open_start;
            let next_number = if filled == start { number } else { (number + 1) & BATCH_MASK };
            let moved = end << BATCH_BITS | next_number;
            if let Err(now) = self.tail.compare_exchange_weak(tail, moved, Ordering::AcqRel, Ordering::Acquire) {
                tail = now;
                continue;
            }
            sealed.open_start = end;
            if filled != start {
                sealed.outstanding.push_back(Outstanding { number, start, filled, end, taken: false, released: false });
                return Seal::Sealed;
            }
            match sealed.outstanding.back_mut() {
                Some(last) => last.end = end,
                None => self.released.store(end, Ordering::Release),
            }
            return Seal::Empty;
        }
    }

    /// The oldest sealed batch that was not taken.
    pub fn take_sealed(self: &Arc<Self>) -> Option<SealedBatch> {
        let mut sealed = self.lock();
        let batch = sealed.outstanding.iter_mut().find(|batch| !batch.taken)?;
        batch.taken = true;
        Some(SealedBatch { ring: Arc::clone(self), number: batch.number, start: batch.start, filled: batch.filled })
    }

    /// Whether something was reserved that is not in a taken batch.
    pub fn has_untaken(&self) -> bool {
        let sealed = self.lock();
        self.tail() != sealed.open_start || sealed.outstanding.iter().any(|batch| !batch.taken)
    }

    fn lock(&self) -> MutexGuard<'_, Sealed> {
        self.sealed.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn release(&self, number: u64) {
        let mut sealed = self.lock();
        self.done_of(number).store(0, Ordering::Relaxed);
        if let Some(batch) = sealed.outstanding.iter_mut().find(|b| b.number == number) {
            batch.released = true;
        }
        while let Some(batch) = sealed.outstanding.pop_front_if(|batch| batch.released) {
            self.released.store(batch.end, Ordering::Release);
        }
    }

    fn done_of(&self, number: u64) -> &AtomicU64 {
        &self.done[number as usize % BATCHES_MAX]
    }

    /// The place in memory of a range of positions.
    ///
    /// # Panics
    /// If the range wraps around the end of the memory.
    fn memory_of(&self, range: &Range<u64>) -> (*mut u8, usize) {
        let offset = (range.start % self.capacity()) as usize;
        let length = (range.end - range.start) as usize;
        assert!(offset + length <= self.memory.len(), "a range that does not wrap around");
        // SAFETY: `offset` lies inside the allocation.
        (unsafe { self.memory.as_ptr().add(offset) }, length)
    }
}

impl fmt::Debug for BlockRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BlockRing(released {}, tail {}, capacity {})", self.released(), self.tail(), self.capacity())
    }
}

/// A range of the ring that its holder fills. Dropping it marks it as filled.
#[derive(Debug)]
pub struct Reservation<'a> {
    ring: &'a BlockRing,
    number: u64,
    /// The tail before; the gap between it and the range counts as part of this reservation.
    from: u64,
    range: Range<u64>,
}

impl Reservation<'_> {
    /// The reserved positions.
    pub fn range(&self) -> Range<u64> {
        self.range.clone()
    }

    /// The memory of a part of the range that does not cross a block's end.
    ///
    /// # Panics
    /// If `part` is not inside the range, or crosses the end of the ring.
    pub fn bytes(&mut self, part: Range<u64>) -> &mut [u8] {
        assert!(
            self.range.start <= part.start && part.start <= part.end && part.end <= self.range.end,
            "inside the reservation"
        );
        let (start, length) = self.ring.memory_of(&part);
        // SAFETY: inside the ring's memory; these positions are reserved by this thread alone, sealers wait for our
        // drop, and `&mut self` keeps a second slice out. The memory was initialised when allocated.
        unsafe { std::slice::from_raw_parts_mut(start, length) }
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        self.ring.done_of(self.number).fetch_add(self.range.end - self.from, Ordering::Release);
    }
}

/// A batch that accepts no more reservations; some may not be filled yet. If it is dropped in this state, its memory is
/// never reused.
#[derive(Debug)]
pub struct SealedBatch {
    ring: Arc<BlockRing>,
    number: u64,
    start: u64,
    filled: u64,
}

impl SealedBatch {
    /// The batch itself, once everything reserved in it is filled.
    pub fn filled(self) -> Result<FilledBatch, SealedBatch> {
        let done = self.ring.done_of(self.number).load(Ordering::Acquire);
        if done == self.filled - self.start { Ok(FilledBatch { batch: self }) } else { Err(self) }
    }

    /// Where its first block begins.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Where its reservations end.
    pub fn end(&self) -> u64 {
        self.filled
    }
}

/// A filled batch: whole blocks that belong to the holder. Dropping it releases the memory, once all earlier batches
/// are dropped too.
#[derive(Debug)]
pub struct FilledBatch {
    batch: SealedBatch,
}

impl FilledBatch {
    /// Where its first block begins.
    pub fn start(&self) -> u64 {
        self.batch.start
    }

    /// Where its reservations end: inside its last block, or at that block's end.
    pub fn filled(&self) -> u64 {
        self.batch.filled
    }

    /// Where its last block ends.
    pub fn end(&self) -> u64 {
        self.batch.filled.next_multiple_of(BLOCK_SIZE as u64)
    }

    /// The longest run of at most `length_max` bytes from `start` on that is contiguous in memory.
    pub fn run(&self, start: u64, length_max: u64) -> Range<u64> {
        let capacity = self.batch.ring.capacity();
        let wrap = start - start % capacity + capacity;
        start..self.end().min(wrap).min(start.saturating_add(length_max))
    }

    /// The memory of a part of the batch, for finishing it.
    ///
    /// # Panics
    ///
    /// If `part` is not inside the batch, or crosses the end of the ring.
    pub fn bytes_mut(&mut self, part: Range<u64>) -> &mut [u8] {
        let (start, length) = self.part(&part);
        // SAFETY: as in `blocks`; `&mut self` keeps other slices out.
        unsafe { std::slice::from_raw_parts_mut(start, length) }
    }

    /// Whole blocks of the batch.
    ///
    /// # Panics
    /// If `part` is not whole blocks inside the batch, or crosses the end of the ring.
    pub fn blocks(&self, part: Range<u64>) -> AlignedSlice<'_> {
        let (start, length) = self.part(&part);
        // SAFETY: inside the ring's memory; every reservation in the batch is dropped (its counter says so, with
        // acquire), later ones lie in other blocks, and the blocks stay ours until we are dropped.
        let bytes = unsafe { std::slice::from_raw_parts(start, length) };
        AlignedSlice::new(bytes).expect("whole blocks")
    }

    /// A part of the batch to be written by itself. The batch's memory is kept while the frame lives.
    ///
    /// # Panics
    ///
    /// As [`blocks`](Self::blocks).
    pub fn frame(self: &Arc<Self>, part: Range<u64>) -> Frame {
        let _whole_blocks = self.blocks(part.clone());
        Frame { batch: Arc::clone(self), range: part }
    }

    fn part(&self, part: &Range<u64>) -> (*mut u8, usize) {
        assert!(self.start() <= part.start && part.start <= part.end && part.end <= self.end(), "inside the batch");
        self.batch.ring.memory_of(part)
    }
}

impl Drop for FilledBatch {
    fn drop(&mut self) {
        self.batch.ring.release(self.batch.number);
    }
}

/// Whole blocks of a filled batch, which neither move nor change while the frame lives.
#[derive(Debug)]
pub struct Frame {
    batch: Arc<FilledBatch>,
    range: Range<u64>,
}

impl Frame {
    /// Its positions.
    pub fn range(&self) -> Range<u64> {
        self.range.clone()
    }

    /// Its memory.
    pub fn blocks(&self) -> AlignedSlice<'_> {
        self.batch.blocks(self.range())
    }
}
