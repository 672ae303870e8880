//! What one statement may take: work in a turn, time, and memory.
//!
//! Work is counted in steps: a row, a deletion or a partition that is looked at is at least one. Where the thread may
//! not be blocked, a statement that has used up the steps of its turn fails with [`Cause::WouldWait`] and is carried
//! out again on the blocking pool, as one that would have to wait for a device. At regular intervals the statement
//! checks its time limit and whether its client still waits, so that an abandoned scan ends soon. Nothing here looks at
//! how much other statements take.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::error::failures;
use crate::execution::Execution;
use crate::{Cause, Consistency, ErrorKind, FailureReason, QueryError};

/// The steps of a turn on a thread that may not be blocked: a few milliseconds.
pub(crate) const TURN_STEPS_MAX: u64 = 10_000;

/// The number of steps between two checks of the time limit and the client.
pub(crate) const STEPS_PER_LOOK: u64 = 256;

/// The bytes of rows that cost as much as a step (a power of two).
const BYTES_PER_STEP: usize = 512;

/// The expressions, or columns of a row, that cost as much as a step.
const EXPRESSIONS_PER_STEP: usize = 8;

/// The counts of one statement. The statements of a batch share those of the batch. A statement is carried out by one
/// thread at a time, so that counts need no order among threads.
#[derive(Debug)]
pub(crate) struct Budget {
    /// Since the statement began, or began again on the blocking pool.
    steps: AtomicU64,
    /// The count of steps at which the limits are looked at next.
    next_look: AtomicU64,
    /// Microseconds since the epoch.
    deadline_micros: AtomicI64,
    held_bytes: AtomicU64,
}

impl Budget {
    /// A budget without a deadline, of which nothing is used.
    pub const fn new() -> Budget {
        Budget {
            steps: AtomicU64::new(0),
            next_look: AtomicU64::new(STEPS_PER_LOOK),
            deadline_micros: AtomicI64::new(i64::MAX),
            held_bytes: AtomicU64::new(0),
        }
    }

    /// Begins again with nothing used.
    pub fn restart(&self) {
        self.steps.store(0, Relaxed);
        self.next_look.store(STEPS_PER_LOOK, Relaxed);
        self.deadline_micros.store(i64::MAX, Relaxed);
        self.held_bytes.store(0, Relaxed);
    }
}

/// The steps that the bytes of a row cost, beside the row's own step.
pub(crate) fn steps_of_bytes(bytes: usize) -> u64 {
    (bytes / BYTES_PER_STEP) as u64
}

/// A read failed because of the size of what it read or would answer.
pub(crate) fn read_size_failure(consistency: Consistency) -> ErrorKind {
    let failures = failures(FailureReason::ReadSize);
    ErrorKind::ReadFailure { consistency, received: 0, block_for: 1, failures, data_present: true }
}

/// The steps that the evaluation of `count` expressions costs.
pub(crate) fn steps_of_expressions(count: usize) -> u64 {
    (count / EXPRESSIONS_PER_STEP) as u64
}

impl Execution<'_> {
    /// Counts work that is about to be done.
    ///
    /// # Errors
    ///
    /// [`Cause::WouldWait`] where the turn is used up and the thread may not be blocked; a timeout behind the time
    /// limit, and where nobody waits for the answer any more.
    #[inline]
    pub fn work(&self, steps: u64) -> Result<(), QueryError> {
        let budget = self.budget();
        let done = budget.steps.load(Relaxed).saturating_add(steps);
        budget.steps.store(done, Relaxed);
        if done < budget.next_look.load(Relaxed) {
            return Ok(());
        }
        self.look_at_limits(done)
    }

    #[cold]
    fn look_at_limits(&self, done: u64) -> Result<(), QueryError> {
        self.budget().next_look.store(done.saturating_add(STEPS_PER_LOOK), Relaxed);
        if done > TURN_STEPS_MAX && !self.turn.may_block {
            return Err(QueryError::failed(Cause::WouldWait, "The statement needs more than its turn"));
        }
        let is_over = self.processor.now_micros() >= self.budget().deadline_micros.load(Relaxed);
        if is_over || self.is_late() || self.is_cancelled() {
            let consistency = self.options.consistency;
            let kind = ErrorKind::ReadTimeout { consistency, received: 0, block_for: 1, data_present: false };
            return Err(QueryError::new(kind, "Operation timed out - received only 0 responses."));
        }
        Ok(())
    }

    /// Sets the time that the statement may take from its beginning.
    pub fn limit_time(&self, limit: Duration) {
        let limit_micros = i64::try_from(limit.as_micros()).unwrap_or(i64::MAX);
        self.budget().deadline_micros.store(self.now_micros.saturating_add(limit_micros), Relaxed);
    }

    /// Counts memory that the statement holds until it ends or gives it back with [`Execution::release`]: rows to be
    /// sorted, values of groups, combinations of INs. An error where that is more than one statement may hold.
    pub fn charge(&self, bytes: usize) -> Result<(), QueryError> {
        let held = self.budget().held_bytes.load(Relaxed).saturating_add(bytes as u64);
        self.budget().held_bytes.store(held, Relaxed);
        self.check_room(0)
    }

    /// Takes back what was counted by [`Execution::charge`].
    pub fn release(&self, bytes: usize) {
        let held = self.budget().held_bytes.load(Relaxed);
        debug_assert!(held >= bytes as u64, "released {bytes} of {held}");
        self.budget().held_bytes.store(held.saturating_sub(bytes as u64), Relaxed);
    }

    /// How many bytes of the answer the statement may hold beside what is charged.
    pub fn room_bytes(&self) -> usize {
        let max = self.processor.options().statement_memory_max_bytes;
        usize::try_from(max.saturating_sub(self.budget().held_bytes.load(Relaxed))).unwrap_or(usize::MAX)
    }

    /// Refuses an answer of this size if it and the bytes charged so far are more than one statement may hold.
    pub fn check_room(&self, answer_bytes: usize) -> Result<(), QueryError> {
        let max = self.processor.options().statement_memory_max_bytes;
        let held = self.budget().held_bytes.load(Relaxed);
        if held.saturating_add(answer_bytes as u64) <= max {
            return Ok(());
        }
        let message = format!("The statement would hold more than {max} bytes of rows (see statement_memory_limit)");
        Err(QueryError::new(read_size_failure(self.options.consistency), message))
    }
}
