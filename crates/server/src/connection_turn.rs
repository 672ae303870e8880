//! The limit on a connection's work before other connections of its thread get their turn.
//!
//! A turn ends after [`REQUESTS_MAX`] requests, or earlier, when it has taken [`DURATION_MAX`]. Most turns end much
//! sooner, because nothing more has arrived. Reading the clock costs a noticeable part of a small request, so a turn
//! reads it only after it has begun requests of some total weight. A request weighs more if it is long, if it read many
//! rows, or if it was moved to another thread.
//!
//! Requests in flight are part of a turn, too: when many of them can go on at the same moment, those that are left when
//! the turn is over ([`PollTime`]) go on in the next one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The requests of one turn.
const REQUESTS_MAX: usize = 256;

/// The time of one turn, counted from the first check of the clock.
const DURATION_MAX: Duration = Duration::from_millis(2);

/// The weight of the requests between two checks of the clock.
const WEIGHT_PER_CHECK: usize = 8;

/// The bytes of a request, or of the mutation of a write in flight, that weigh as much as a small request.
pub(crate) const BYTES_PER_WEIGHT: usize = 512;

/// The size of a read from the socket after which the clock is checked.
const READ_PER_CHECK_BYTES: usize = 64 * 1024;

/// The weight of a request that did the work of many rows, or may do so each time when it is polled.
pub(crate) const WEIGHT_OF_LARGE: usize = WEIGHT_PER_CHECK;

/// The weight of a request that continues on another thread.
pub(crate) const WEIGHT_OF_MOVED: usize = 4;

/// The weight of a request that did as much as a turn may take before it was moved. It ends the turn.
pub(crate) const WEIGHT_OF_TURN: usize = 1 << 20;

/// One turn of a connection.
#[derive(Debug, Default)]
pub(crate) struct ConnectionTurn {
    requests: usize,
    weight: usize,
    /// The weight at which the clock is checked next.
    next_check: usize,
    first_check: Option<Instant>,
    is_over: bool,
}

impl ConnectionTurn {
    pub(crate) fn begin() -> ConnectionTurn {
        ConnectionTurn { next_check: WEIGHT_PER_CHECK, ..ConnectionTurn::default() }
    }

    /// The requests that were begun in it.
    pub(crate) fn requests(&self) -> usize {
        self.requests
    }

    /// Whether the turn must end.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    /// A request of this size was begun; `weight` is added to the weight of its bytes.
    pub(crate) fn count(&mut self, size_bytes: usize, weight: usize) {
        self.requests += 1;
        self.weight += 1 + weight + size_bytes / BYTES_PER_WEIGHT;
        self.is_over |= self.requests >= REQUESTS_MAX || weight >= WEIGHT_OF_TURN;
        if self.weight >= self.next_check {
            self.check(Instant::now());
        }
    }

    /// A request in flight with work of this weight was polled.
    #[inline]
    pub(crate) fn count_polled(&mut self, weight: usize) {
        self.weight += weight;
        if self.weight >= self.next_check {
            self.check(Instant::now());
        }
    }

    /// Ends the turn.
    pub(crate) fn end(&mut self) {
        self.is_over = true;
    }

    /// Bytes were read from the socket; their copies take time, too.
    pub(crate) fn count_read(&mut self, size_bytes: usize) {
        if size_bytes >= READ_PER_CHECK_BYTES {
            self.check(Instant::now());
        }
    }

    #[cold]
    fn check(&mut self, now: Instant) {
        self.next_check = self.weight + WEIGHT_PER_CHECK;
        let first = *self.first_check.get_or_insert(now);
        self.is_over |= now.duration_since(first) >= DURATION_MAX;
    }
}

/// The time in which a connection polls the requests in flight that were woken. The connection shares it with them,
/// because the set that holds them polls all of them in one call.
#[derive(Debug)]
pub(crate) struct PollTime {
    base: Instant,
    /// The end of the time, nanoseconds after `base`.
    end_nanos: AtomicU64,
}

impl PollTime {
    /// A time that is over.
    pub(crate) fn new() -> Arc<PollTime> {
        Arc::new(PollTime { base: Instant::now(), end_nanos: AtomicU64::new(0) })
    }

    /// Begins a new time, as long as a turn.
    pub(crate) fn begin(&self) {
        self.end_nanos.store(self.now_nanos() + DURATION_MAX.as_nanos() as u64, Ordering::Relaxed);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.now_nanos() >= self.end_nanos.load(Ordering::Relaxed)
    }

    fn now_nanos(&self) -> u64 {
        self.base.elapsed().as_nanos() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_of_small_requests_ends_after_their_number() {
        let mut turn = ConnectionTurn::begin();
        turn.next_check = usize::MAX;
        for _ in 1..REQUESTS_MAX {
            turn.count(30, 0);
        }
        assert!(!turn.is_over());
        turn.count(30, 0);
        assert!(turn.is_over() && turn.requests() == REQUESTS_MAX);
    }

    #[test]
    fn a_request_that_took_a_turn_before_it_was_moved_ends_the_turn() {
        let mut turn = ConnectionTurn::begin();
        turn.count(30, WEIGHT_OF_TURN);
        assert!(turn.is_over());
    }

    #[test]
    fn a_turn_that_took_long_ends_at_the_next_check() {
        let mut turn = ConnectionTurn::begin();
        let start = Instant::now();
        turn.check(start);
        turn.check(start + DURATION_MAX / 2);
        assert!(!turn.is_over());
        turn.check(start + DURATION_MAX);
        assert!(turn.is_over());
    }

    #[test]
    fn large_requests_in_flight_end_the_turn_that_polls_them() {
        let mut turn = ConnectionTurn::begin();
        turn.count_polled(0);
        assert!(turn.first_check.is_none(), "the clock is not read for small ones");
        turn.count_polled(WEIGHT_OF_LARGE);
        let first = turn.first_check.unwrap();
        turn.check(first + DURATION_MAX);
        assert!(turn.is_over());
    }

    #[test]
    fn the_clock_is_checked_sooner_after_long_and_moved_requests() {
        let mut turn = ConnectionTurn::begin();
        turn.count(0, 0);
        assert!(turn.first_check.is_none());
        turn.count(8 * BYTES_PER_WEIGHT, 0);
        assert!(turn.first_check.is_some());
        let mut turn = ConnectionTurn::begin();
        turn.count(0, WEIGHT_OF_MOVED);
        turn.count(0, WEIGHT_OF_MOVED);
        assert!(turn.first_check.is_some());
    }
}
