//! Writing in the place of the writer's thread. A thread that has appended, and would now sleep until that is on the
//! device, writes it itself where nothing is under way: nobody has to be woken for it, and what it copied is in its own
//! processor's cache.
//!
//! What it writes is a frame under way like any other. Others append meanwhile, and wake the writer for what is worth a
//! frame beside it; what others leave at the end the writer is woken for. It does the plain case alone: `batch`, in
//! blocks that were prewritten. A segment's border is such a case, and so is the next segment's preparation: were the
//! writer woken for it, it would write a part of what this thread appends, and from then on two halves of its writes
//! would take turns, in twice as many frames.

use std::sync::Arc;
use std::thread;

use blockio::{BLOCK_SIZE, DiskError, Durability};

use crate::SyncMode;
use crate::course::{Course, Placed};
use crate::primitive::Frame;
use crate::shared::Shared;
use crate::writer::{FRAME_SIZE_MAX, OVERLAP_SIZE, has_untaken, wait_filled};

const BLOCK: u64 = BLOCK_SIZE as u64;

/// Nobody may wait for a frame whose writer is gone.
struct FailOnPanic<'a>(&'a Shared);

impl Drop for FailOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.fail("one of its writers failed");
        }
    }
}

/// A frame under way, and what is to be done behind it.
struct Begun {
    frame: Frame,
    offset: u64,
    /// The next segment is to be prepared, which nobody else was asked for.
    asks_for_segment: bool,
}

/// Writes what was appended if nothing is under way, and goes on until all up to `reach` is on the device: what lies in
/// the next segment is another frame. Answers whether it wrote; if not, the caller has the writer woken.
pub(crate) fn lead(shared: &Shared, reach: u64) -> bool {
    if shared.sync != SyncMode::Batch {
        return false;
    }
    let _guard = FailOnPanic(shared);
    // Else the writer is awake, or somebody else does what we would.
    let Some(mut begun) = shared.try_course().and_then(|mut course| begin(shared, &mut course)) else { return false };
    loop {
        let result = shared.file.file().write_blocks(begun.frame.blocks(), begun.offset, Durability::Durable);
        let Begun { frame, offset, asks_for_segment } = begun;
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

fn begin(shared: &Shared, course: &mut Course) -> Option<Begun> {
    if !course.is_writer_idle || course.under_way() > 0 || course.left.is_some() {
        return None;
    }
    shared.tail.ring.seal(|tail| tail.next_multiple_of(BLOCK));
    let batch = shared.tail.ring.take_sealed()?;
    if !is_plain(shared, course, batch.start(), batch.end()) {
        course.left = Some(batch);
        return None;
    }
    let batch = wait_filled(batch);
    if shared.closed().is_some() {
        return None;
    }
    let mut placed = Placed::new(shared, batch).inspect_err(|error| shared.fail(&error.to_string())).ok()?;
    let (run, filled) = (placed.batch.start()..placed.batch.end(), placed.batch.filled());
    course.taken = run.end;
    let head = course.frame_head(shared, &placed).of(run.clone(), filled);
    head.finish(&mut placed.batch, &shared.record_starts);
    let offset = course.begin(shared, &placed, run.clone(), filled);
    let asks_for_segment = course.asks_for_segment(shared, &placed);
    let wake_at = run.end + OVERLAP_SIZE;
    shared.signals.sleep_on(wake_at, || shared.tail.ring.tail() >= wake_at);
    Some(Begun { frame: Arc::new(placed.batch).frame(run), offset, asks_for_segment })
}

/// Whether the writer's thread would do no more with the batch than write it.
fn is_plain(shared: &Shared, course: &Course, start: u64, filled: u64) -> bool {
    let (size, segment_size) = (filled - start, shared.segment_size());
    let number = start / segment_size;
    let Some(segment) = shared.recent_segment(number) else { return false };
    let geometry = shared.file.geometry();
    let end = geometry.segment_offset(segment.slot) + (filled - number * segment_size).next_multiple_of(BLOCK);
    size <= FRAME_SIZE_MAX - BLOCK
        && filled <= (number + 1) * segment_size
        && !course.prewriting.is_due(end, geometry.segment_offset(segment.slot + 1))
}

/// Takes in the end of a frame. Answers the next one, if something up to `reach` is left that is to be written here; of
/// other things the writer is told.
fn end(shared: &Shared, offset: u64, result: Result<(), DiskError>, reach: u64) -> Option<Begun> {
    let mut course = shared.course();
    match result {
        Ok(()) => {
            course.ended(shared, offset);
            course.advance(shared);
        }
        Err(error) => {
            course.has_failed = true;
            shared.fail(&error.to_string());
        }
    }
    if !course.is_writer_idle || course.has_failed {
        shared.signals.wake();
        return None;
    }
    let is_reached = shared.waiters.horizon() >= reach;
    let next = if is_reached { None } else { begin(shared, &mut course) };
    if next.is_none() {
        shared.signals.sleep_on(0, || has_untaken(shared, &course));
    }
    next
}
