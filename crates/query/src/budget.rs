//! The limits of one statement: work in a turn, time, and memory.
//!
//! Work is counted in steps: each row, deletion or partition that is examined is at least one. Where the thread may not
//! be blocked, a statement that has used up the steps of its turn fails with [`Cause::TurnIsOver`] and is retried on
//! the blocking pool, like one that would have to wait for a device. At regular intervals the statement checks its time
//! limit and whether its client still waits, so that an abandoned scan ends soon.
//!
//! Memory is the number of bytes that the statement holds. A first part is free. Beyond it the statement takes memory
//! from the budgets of the node and of the client's address ([`crate::MemoryBudget`]).

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use model::RowMemory;

use crate::error::failures;
use crate::execution::Execution;
use crate::large_rows::LargeRows;
use crate::{Cause, Consistency, ErrorKind, FailureReason, Lease, QueryError};

/// The steps of a turn on a thread that may not be blocked: about a millisecond. Clients of the same thread wait for
/// one turn of each client before them.
pub(crate) const TURN_STEPS_MAX: u64 = 2_500;

/// The bytes that a statement may hold without taking them from its client's memory. No more statements run at a time
/// than there are threads, so that the free parts together stay small.
const FREE_BYTES: u64 = 256 << 10;

/// The memory for an answer, as a multiple of its bytes: it grows in a vector that doubles, and is copied to be sent.
const ANSWER_COPIES: u64 = 2;

/// The bytes of an answer that need no memory beyond the statement's free part.
pub(crate) const FREE_ANSWER_BYTES: usize = (FREE_BYTES / ANSWER_COPIES) as usize;

/// The amount by which a statement takes more memory at a time, bytes.
const GRANTED_STEP_BYTES: u64 = 256 << 10;

/// The number of steps between two checks of the time limit and the client.
pub(crate) const STEPS_PER_CHECK: u64 = 256;

/// The bytes of rows that cost as much as a step (a power of two).
const BYTES_PER_STEP: usize = 512;

/// The expressions, or columns of a row, that cost as much as a step.
const EXPRESSIONS_PER_STEP: usize = 8;

/// The counters of one statement. The statements of a batch share those of the batch. One thread at a time executes a
/// statement, so relaxed memory ordering is enough.
#[derive(Debug)]
pub(crate) struct Budget {
    /// Since the statement began, or was restarted on the blocking pool.
    steps: AtomicU64,
    /// The count of steps at which the limits are checked next.
    next_check: AtomicU64,
    /// Microseconds since the epoch.
    deadline_micros: AtomicI64,
    held_bytes: AtomicU64,
    /// The bytes it may hold before it has to take more from the budgets.
    granted_bytes: AtomicU64,
    lease: Mutex<Option<Lease>>,
    /// For copies of large rows; made where the statement may block.
    large_rows: OnceLock<LargeRowsOf>,
}

/// The memory for copies of large rows, as the engine sees it and as the statement does.
#[derive(Debug)]
struct LargeRowsOf {
    memory: Arc<dyn RowMemory>,
    own: Arc<LargeRows>,
}

impl Budget {
    /// A budget without a deadline, of which nothing is used.
    pub const fn new() -> Budget {
        Budget {
            steps: AtomicU64::new(0),
            next_check: AtomicU64::new(STEPS_PER_CHECK),
            deadline_micros: AtomicI64::new(i64::MAX),
            held_bytes: AtomicU64::new(0),
            granted_bytes: AtomicU64::new(FREE_BYTES),
            lease: Mutex::new(None),
            large_rows: OnceLock::new(),
        }
    }

    /// Resets the counters for a restart of the statement.
    pub fn restart(&self) {
        self.steps.store(0, Relaxed);
        self.next_check.store(STEPS_PER_CHECK, Relaxed);
        self.deadline_micros.store(i64::MAX, Relaxed);
        self.held_bytes.store(0, Relaxed);
        self.granted_bytes.store(FREE_BYTES, Relaxed);
        *self.lease.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// The steps that the bytes of a row cost, beside the row's own step.
pub(crate) fn steps_of_bytes(bytes: usize) -> u64 {
    (bytes / BYTES_PER_STEP) as u64
}

/// The error of a read that read too many bytes or whose answer would be too large.
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
    /// [`Cause::TurnIsOver`] if the turn is used up and the thread may not be blocked; a timeout if the time limit has
    /// passed, or if nobody waits for the answer any more.
    #[inline]
    pub fn work(&self, steps: u64) -> Result<(), QueryError> {
        let budget = self.budget();
        let done = budget.steps.load(Relaxed).saturating_add(steps);
        budget.steps.store(done, Relaxed);
        if done < budget.next_check.load(Relaxed) {
            return Ok(());
        }
        self.check_limits(done)
    }

    /// Requires a thread that may be blocked, for work that does not end within a turn.
    ///
    /// # Errors
    ///
    /// [`Cause::TurnIsOver`] on any other thread.
    pub fn need_processor(&self) -> Result<(), QueryError> {
        match self.may_block {
            true => Ok(()),
            false => Err(QueryError::failed(Cause::TurnIsOver, "The statement needs more than its turn")),
        }
    }

    #[cold]
    fn check_limits(&self, done: u64) -> Result<(), QueryError> {
        self.budget().next_check.store(done.saturating_add(STEPS_PER_CHECK), Relaxed);
        self.is_large.iter().for_each(|is_large| is_large.store(true, Relaxed));
        if self.exceeds_turn() && !self.may_block {
            return Err(QueryError::failed(Cause::TurnIsOver, "The statement needs more than its turn"));
        }
        let is_over = self.processor.now_micros() >= self.budget().deadline_micros.load(Relaxed);
        if is_over || self.is_late() || self.is_cancelled() {
            let consistency = self.options.consistency;
            let kind = ErrorKind::ReadTimeout { consistency, received: 0, block_for: 1, data_present: false };
            return Err(QueryError::new(kind, "Operation timed out - received only 0 responses."));
        }
        Ok(())
    }

    /// The memory that the statement's reads take for copies of large rows, on a thread that may block. `None` if the
    /// client's memory is not limited.
    pub fn large_rows(&self) -> Option<&Arc<dyn RowMemory>> {
        let memory = self.client.memory.as_ref()?;
        let large_rows = self.budget().large_rows.get_or_init(|| {
            let own = Arc::new(LargeRows::new(memory.clone()));
            LargeRowsOf { memory: own.clone(), own }
        });
        Some(&large_rows.memory)
    }

    /// Sets the time that the statement may take from its beginning.
    pub fn limit_time(&self, limit: Duration) {
        let limit_micros = i64::try_from(limit.as_micros()).unwrap_or(i64::MAX);
        self.budget().deadline_micros.store(self.now_micros.saturating_add(limit_micros), Relaxed);
    }

    /// Whether the statement has done more work than a turn allows.
    pub fn exceeds_turn(&self) -> bool {
        self.budget().steps.load(Relaxed) > TURN_STEPS_MAX
    }

    /// Counts memory that the statement holds until it ends or gives it back with [`Execution::release`]: rows to be
    /// sorted, values of groups, combinations of INs. Fails if that is more than one statement may hold.
    pub fn charge(&self, bytes: usize) -> Result<(), QueryError> {
        let held = self.budget().held_bytes.load(Relaxed).saturating_add(bytes as u64);
        self.budget().held_bytes.store(held, Relaxed);
        self.check_room(0)
    }

    /// Subtracts bytes that [`Execution::charge`] counted.
    pub fn release(&self, bytes: usize) {
        let held = self.budget().held_bytes.load(Relaxed);
        debug_assert!(held >= bytes as u64, "released {bytes} of {held}");
        self.budget().held_bytes.store(held.saturating_sub(bytes as u64), Relaxed);
    }

    /// How many bytes of the answer the statement may hold beside the bytes charged so far. A larger answer has to pass
    /// [`Execution::check_room`], which takes more memory if there is some.
    pub fn room_bytes(&self) -> usize {
        let held = self.budget().held_bytes.load(Relaxed);
        let max = self.processor.options().statement_memory_max_bytes.saturating_sub(held);
        let granted = self.budget().granted_bytes.load(Relaxed).saturating_sub(held) / ANSWER_COPIES;
        usize::try_from(max.min(granted)).unwrap_or(usize::MAX)
    }

    /// Raises the statement's memory to this size, from the budgets of the node and of the client's address. Fails if
    /// others have taken too much of them.
    #[cold]
    fn take_memory(&self, bytes: u64) -> Result<(), QueryError> {
        let budget = self.budget();
        let Some(memory) = &self.client.memory else {
            budget.granted_bytes.store(u64::MAX, Relaxed);
            return Ok(());
        };
        let bytes = bytes.next_multiple_of(GRANTED_STEP_BYTES);
        let mut lease = budget.lease.lock().unwrap_or_else(PoisonError::into_inner);
        let lease = lease.get_or_insert_with(|| Lease::new(memory.clone()));
        let bytes_needed = usize::try_from(bytes).unwrap_or(usize::MAX);
        // An answer from a large row is as large as the row, which could otherwise be read and never be sent.
        let large_rows = budget.large_rows.get().map(|rows| &rows.own).filter(|rows| rows.taken_bytes() > 0);
        let has_grown = lease.try_grow(bytes_needed)
            || large_rows.is_some_and(|rows| lease.grow_or_overdraw(bytes_needed, rows.name(), rows.taken_bytes()));
        if !has_grown {
            return Err(QueryError::no_memory());
        }
        budget.granted_bytes.store(bytes, Relaxed);
        Ok(())
    }

    /// Refuses an answer of this size if it and the bytes charged so far are more than one statement may hold.
    pub fn check_room(&self, answer_bytes: usize) -> Result<(), QueryError> {
        let max = self.processor.options().statement_memory_max_bytes;
        let held = self.budget().held_bytes.load(Relaxed);
        let needed = held.saturating_add((answer_bytes as u64).saturating_mul(ANSWER_COPIES));
        let is_below_max = held.saturating_add(answer_bytes as u64) <= max;
        if is_below_max && needed <= self.budget().granted_bytes.load(Relaxed) {
            return Ok(());
        }
        if is_below_max {
            return self.take_memory(needed);
        }
        let message = format!("The statement would hold more than {max} bytes of rows (see statement_memory_limit)");
        Err(QueryError::new(read_size_failure(self.options.consistency), message))
    }
}
