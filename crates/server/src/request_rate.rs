//! The limit on the requests a second of all clients together (`native_transport_max_requests_per_second`).
//!
//! Each request takes a slot of time; slots follow each other at equal intervals. Unused slots of the last second may
//! be taken at once, so that clients may send in bursts, as in Cassandra. If the slot of a request lies in the future,
//! the request is refused if its client asked for errors. Otherwise the request is executed, and the client's
//! connection is not read until the time of the slot.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long an unused slot stays available.
const BURST: Duration = Duration::from_secs(1);

/// The slots of a node.
#[derive(Debug)]
pub(crate) struct RequestRate {
    requests_per_second: u32,
    started: Instant,
    /// The first slot that was not taken, in nanoseconds since one burst before the start.
    next_nanos: AtomicU64,
}

impl RequestRate {
    /// Slots for this many requests a second, which is at least one.
    pub(crate) fn new(requests_per_second: u32) -> RequestRate {
        debug_assert!(requests_per_second > 0);
        RequestRate { requests_per_second, started: Instant::now(), next_nanos: AtomicU64::new(0) }
    }

    /// The limit.
    pub(crate) fn requests_per_second(&self) -> u32 {
        self.requests_per_second
    }

    /// Takes the next slot. Returns the time until it, which is usually zero.
    pub(crate) fn reserve(&self) -> Duration {
        self.reserve_at(self.now_nanos(), u64::MAX).unwrap_or(Duration::MAX)
    }

    /// Takes the next slot if its time has come.
    pub(crate) fn try_reserve(&self) -> bool {
        self.reserve_at(self.now_nanos(), 0).is_some()
    }

    fn now_nanos(&self) -> u64 {
        (self.started.elapsed() + BURST).as_nanos() as u64
    }

    /// Takes the next slot if it comes within this many nanoseconds, and returns the time until it.
    fn reserve_at(&self, now_nanos: u64, wait_max_nanos: u64) -> Option<Duration> {
        let interval_nanos = 1_000_000_000 / u64::from(self.requests_per_second);
        let first = |next: u64| next.max(now_nanos.saturating_sub(BURST.as_nanos() as u64));
        let wait_nanos = |next: u64| first(next).saturating_sub(now_nanos);
        let taken = self.next_nanos.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next| {
            (wait_nanos(next) <= wait_max_nanos).then(|| first(next) + interval_nanos)
        });
        taken.ok().map(|next| Duration::from_nanos(wait_nanos(next)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn slots_of_the_last_second_may_be_taken_at_once_and_later_ones_must_be_waited_for() {
        let rate = RequestRate::new(10);
        let now = 5 * SECOND;
        for _ in 0..=10 {
            assert_eq!(rate.reserve_at(now, 0), Some(Duration::ZERO));
        }
        assert_eq!(rate.reserve_at(now, 0), None, "the eleventh slot behind the burst's first has not come");
        assert_eq!(rate.reserve_at(now, u64::MAX), Some(Duration::from_millis(100)));
        assert_eq!(rate.reserve_at(now, u64::MAX), Some(Duration::from_millis(200)));
        assert_eq!(rate.reserve_at(now + SECOND / 5, 0), None, "what others wait for is taken");
        assert_eq!(rate.reserve_at(now + 3 * SECOND / 10, 0), Some(Duration::ZERO));
    }

    #[test]
    fn a_second_has_no_more_slots_than_the_rate_says() {
        let rate = RequestRate::new(1000);
        let mut taken = 0;
        for now_millis in 0..10_000 {
            while rate.reserve_at((2_000 + now_millis) * SECOND / 1000, 0).is_some() {
                taken += 1;
            }
        }
        assert!((10_900..=11_100).contains(&taken), "{taken} in ten seconds and the burst before them");
    }
}
