//! Writing in place of the writer thread. A thread that appended records, and would otherwise sleep until they are on
//! the device, writes them itself if no frame is in flight. No other thread has to be woken, and the copied bytes are
//! still in its own processor's cache.
//!
//! This write is a frame in flight like any other. Other threads may append meanwhile. They wake the writer if their
//! appends are worth a frame of their own; the writer also gets the appends that are left at the end. Only the simple
//! case is handled here: `batch` mode, and blocks that are prewritten. Crossing a segment border and preparing the
//! next segment count as simple too. If the writer were woken for these, it would write part of this thread's appends,
//! and from then on two halves of the writes would alternate in twice as many frames.

use std::sync::Arc;
use std::thread;

use blockio::{BLOCK_SIZE, DiskError, Durability};

use crate::SyncMode;
use crate::primitive::Frame;
use crate::progress::{LocatedBatch, Progress};
use crate::shared::Shared;
use crate::writer::{FRAME_SIZE_MAX, OVERLAP_SIZE, has_untaken, wait_filled};

const BLOCK: u64 = BLOCK_SIZE as u64;

/// Closes the log on a panic, so that no thread waits for a frame whose writer is gone.
struct FailOnPanic<'a>(&'a Shared);

impl Drop for FailOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.fail("one of its writers failed");
        }
    }
}

/// A frame in flight, and what has to be done once it completes.
struct LedFrame {
    frame: Frame,
    offset: u64,
    /// The next segment has to be prepared, and no other thread was asked to.
    asks_for_segment: bool,
}

/// Writes what was appended if nothing is in flight, and continues until everything up to `reach` is on the device;
/// what lies in the next segment is another frame. Returns whether it wrote. If it did not, the caller has to wake the
/// writer.
pub(crate) fn lead(shared: &Shared, reach: u64) -> bool {
    if shared.sync != SyncMode::Batch {
        return false;
    }
    let _guard = FailOnPanic(shared);
    // Otherwise the writer is awake, or another thread is already leading.
    let Some(mut begun) = shared.try_progress().and_then(|mut progress| begin(shared, &mut progress)) else {
        return false;
    };
    loop {
        let result = shared.file.file().write_blocks(begun.frame.blocks(), begun.offset, Durability::Durable);
        let LedFrame { frame, offset, asks_for_segment } = begun;
        drop(frame);
        let next = end(shared, offset, result, reach);
        if let (true, Err(error)) = (asks_for_segment, shared.make_room()) {
            shared.fail(&error.to_string());
        }
        match next {
            Some(next) => begun = next,
            None => return true,
        }
    }
}

fn begin(shared: &Shared, progress: &mut Progress) -> Option<LedFrame> {
    if !progress.is_writer_idle || progress.in_flight() > 0 || progress.left.is_some() {
        return None;
    }
    shared.tail.ring.seal(|tail| tail.next_multiple_of(BLOCK));
    let batch = shared.tail.ring.take_sealed()?;
    if !is_plain(shared, progress, batch.start(), batch.end()) {
        progress.left = Some(batch);
        return None;
    }
    let batch = wait_filled(batch);
    if shared.closed().is_some() {
        return None;
    }
    let mut located = LocatedBatch::new(shared, batch).inspect_err(|error| shared.fail(&error.to_string())).ok()?;
    let (run, filled) = (located.batch.start()..located.batch.end(), located.batch.filled());
    debug_assert!(progress.taken <= run.start && progress.in_flight() == 0, "the only frame in flight, in order");
    progress.taken = run.end;
    let head = progress.frame_head(shared, &located).of(run.clone(), filled);
    head.finish(&mut located.batch, &shared.record_starts);
    let offset = progress.begin(shared, &located, run.clone(), filled);
    let asks_for_segment = progress.asks_for_segment(shared, &located);
    let wake_at = run.end + OVERLAP_SIZE;
    shared.signals.sleep_on(wake_at, || shared.tail.ring.tail() >= wake_at);
    Some(LedFrame { frame: Arc::new(located.batch).frame(run), offset, asks_for_segment })
}

/// Whether the writer thread would only write this batch and do nothing else with it.
fn is_plain(shared: &Shared, progress: &Progress, start: u64, filled: u64) -> bool {
    let (size, segment_size) = (filled - start, shared.segment_size());
    debug_assert!(size > 0, "a sealed batch has records");
    let number = start / segment_size;
    let Some(segment) = shared.recent_segment(number) else { return false };
    let geometry = shared.file.geometry();
    let end = geometry.segment_offset(segment.slot) + (filled - number * segment_size).next_multiple_of(BLOCK);
    size <= FRAME_SIZE_MAX - BLOCK
        && filled <= (number + 1) * segment_size
        && !progress.prewriting.is_due(end, geometry.segment_offset(segment.slot + 1))
}

/// Records that a frame is complete. Returns the next frame if something up to `reach` is left to be written here. The
/// writer is woken for anything else.
fn end(shared: &Shared, offset: u64, result: Result<(), DiskError>, reach: u64) -> Option<LedFrame> {
    let mut progress = shared.progress();
    match result {
        Ok(()) => {
            progress.ended(shared, offset);
            progress.advance(shared);
        }
        Err(error) => {
            progress.has_failed = true;
            shared.fail(&error.to_string());
        }
    }
    if !progress.is_writer_idle || progress.has_failed {
        shared.signals.wake();
        return None;
    }
    let is_reached = shared.waiters.horizon() >= reach;
    let next = if is_reached { None } else { begin(shared, &mut progress) };
    if next.is_none() {
        shared.signals.sleep_on(0, || has_untaken(shared, &progress));
    }
    next
}
