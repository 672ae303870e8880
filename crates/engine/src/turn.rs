//! The permissions of a call, such as blocking its thread. They are an argument, not a state of the thread. The batch
//! of wake-ups that a call's appends to the log join is not among them: it is a state of the thread ([`LogHold`]).
//!
//! [`LogHold`]: commitlog::LogHold

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use model::{LargeRowLimit, RowMemory};

use crate::unsettled::Unsettled;

/// The permissions that the caller of a read or a write gives.
///
/// A thread that serves many connections passes one that does not block; a thread of the blocking pool, a tool or a
/// test passes [`Turn::BLOCKING`].
#[derive(Clone, Copy, Debug)]
pub struct Turn<'t> {
    /// Whether the call may wait on its thread: for a device, for memory, for room in the log, for a lock that is held
    /// that long. Where it may not, a read that would have to wait fails with
    /// [`WouldWait`](blockio::DiskErrorKind::WouldWait) and has no effect, and a write answers that it is pending.
    pub may_block: bool,
    /// Set by a statement that does far more work than one of a row, so that the caller checks the time.
    pub is_large: Option<&'t AtomicBool>,
    /// The memory from which cursors copy large rows. `None` means no limit, except that a call that may not block
    /// fails where it would copy a large row ([`ReadError::LargeRow`](model::ReadError::LargeRow)).
    pub row_memory: Option<&'t Arc<dyn RowMemory>>,
    /// Updates of writes in flight that reads include in addition to visible data, for a write that reads first.
    pub unsettled: Option<&'t Arc<Unsettled>>,
}

impl Turn<'_> {
    /// Whether cursors of this call may copy large rows.
    pub(crate) fn large_rows(&self) -> LargeRowLimit {
        match self.row_memory {
            Some(memory) => LargeRowLimit::Memory(memory.clone()),
            None if self.may_block => LargeRowLimit::None,
            None => LargeRowLimit::NoLargeRows,
        }
    }
}

impl Turn<'static> {
    /// The call may wait on its thread.
    pub const BLOCKING: Turn<'static> = Turn { may_block: true, is_large: None, row_memory: None, unsettled: None };
    /// The call may not wait on its thread.
    pub const NON_BLOCKING: Turn<'static> =
        Turn { may_block: false, is_large: None, row_memory: None, unsettled: None };
}
