//! Appends whose wake-ups are held back. A caller that appends many records in a row passes the same [`LogHold`] to
//! each append. The log's writer is then woken once, after the last append, so that one frame takes all records.
//! Without a hold the first record goes into a frame of its own, and the others wait for that frame.
//!
//! A hold belongs to its caller and is an argument of an append. It changes no other append, neither on this thread nor
//! on any other.

use std::cell::Cell;
use std::sync::Arc;

use crate::lead::lead;
use crate::shared::Shared;
use crate::{Durable, LogPlace};

/// Appends of more bytes than this are not held back any longer, so that the device writes them while more are
/// appended.
const HELD_BYTES_MAX: u64 = 256 << 10;

/// Holds back the wake-ups of the appends that it is passed to, until it is released or dropped. Nobody may wait for
/// one of these appends on the thread that holds it without a call of [`LogHold::release`] or [`LogHold::write`].
#[must_use = "wake-ups are held back while it lives"]
pub struct LogHold {
    shared: Arc<Shared>,
    /// The ring position up to which the appends reach; 0 if there are none.
    reach: Cell<u64>,
    /// The ring position at which the first of these appends begins.
    from: Cell<u64>,
}

impl std::fmt::Debug for LogHold {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("LogHold").field("from", &self.from).field("reach", &self.reach).finish_non_exhaustive()
    }
}

impl LogHold {
    pub(crate) fn new(shared: &Arc<Shared>) -> LogHold {
        LogHold { shared: Arc::clone(shared), reach: Cell::new(0), from: Cell::new(0) }
    }

    /// Notes an append that begins and ends at these ring positions. Returns whether its wake-up is held back, which is
    /// not the case once there are enough bytes for a frame of their own.
    pub(crate) fn holds_back(&self, start: u64, end: u64) -> bool {
        debug_assert!(start < end, "an append has bytes");
        if self.reach.get() == 0 {
            self.from.set(start);
        }
        let holds = end - self.from.get() < HELD_BYTES_MAX;
        self.reach.set(if holds { self.reach.get().max(end) } else { 0 });
        holds
    }

    /// Wakes the log's writer for the appends that were held back so far. Call it before work that may take long.
    pub fn release(&self) {
        let reach = self.reach.take();
        if reach > 0 {
            self.shared.signals.appended(reach);
        }
    }

    /// Writes the appends that were held back so far on this thread if no frame is in flight, or else wakes the log's
    /// writer. For a thread that would sleep now until they are on the device. Returns whether it wrote.
    pub fn write(&self) -> bool {
        let reach = self.reach.take();
        if reach == 0 {
            return false;
        }
        let has_written = lead(&self.shared, reach);
        if !has_written {
            self.shared.signals.appended(reach);
        }
        has_written
    }

    /// Whether everything up to the place is on the device, or never will be.
    pub fn is_settled(&self, place: LogPlace) -> bool {
        self.shared.waiters.horizon() >= place.0 || self.shared.closed().is_some()
    }

    /// Resolves when the place is settled. An error says that it never will be on the device.
    pub fn settled(&self, place: LogPlace) -> Durable {
        Durable::of_record(Arc::clone(&self.shared), place.0)
    }
}

impl Drop for LogHold {
    fn drop(&mut self) {
        self.release();
    }
}
