//! Statistics of the checks of addresses: their results and times, with Cassandra's names.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::Processor;

/// The number of times that are kept for percentiles.
const TIMES_MAX: usize = 1024;

/// The groups that are counted. There may be more if an operator makes and deletes many.
const GROUPS_MAX: usize = 10_000;

/// The name under which addresses in no group are counted.
const NO_GROUP: &str = "Undefined";

/// Times of one kind, nanoseconds. A new time replaces the oldest one.
#[derive(Debug, Default)]
struct Times {
    nanos: Vec<u64>,
    next: usize,
}

impl Times {
    fn add(&mut self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        if self.nanos.len() < TIMES_MAX {
            self.nanos.push(nanos);
        } else {
            self.nanos[self.next] = nanos;
            self.next = (self.next + 1) % TIMES_MAX;
        }
    }

    /// The 50th, 95th, 99th and 99.9th percentile and the largest, nanoseconds.
    fn percentiles(&self) -> [f64; 5] {
        let mut sorted = self.nanos.clone();
        sorted.sort_unstable();
        [0.5, 0.95, 0.99, 0.999, 1.0].map(|part| {
            let place = (sorted.len() as f64 * part).ceil() as usize;
            sorted.get(place.saturating_sub(1)).map_or(0.0, |nanos| *nanos as f64)
        })
    }
}

#[derive(Debug, Default)]
struct Numbers {
    accepted: BTreeMap<String, u64>,
    rejected: BTreeMap<String, u64>,
    reloads: u64,
    checks: Times,
    reload_times: Times,
    lookups: Times,
}

/// The numbers since the start of the node.
#[derive(Debug, Default)]
pub(super) struct CidrStats(Mutex<Numbers>);

impl CidrStats {
    fn numbers(&self) -> MutexGuard<'_, Numbers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a check that began at `begun` and found these groups at `found`.
    pub fn checked(&self, groups: &BTreeSet<&str>, is_accepted: bool, begun: Instant, found: Instant) {
        let mut numbers = self.numbers();
        numbers.lookups.add(found.duration_since(begun));
        numbers.checks.add(begun.elapsed());
        let counts = if is_accepted { &mut numbers.accepted } else { &mut numbers.rejected };
        let names = groups.iter().copied().chain(groups.is_empty().then_some(NO_GROUP));
        for name in names {
            if let Some(count) = counts.get_mut(name) {
                *count += 1;
            } else if counts.len() < GROUPS_MAX {
                counts.insert(name.to_owned(), 1);
            }
        }
    }

    /// Notes that the groups were read.
    pub fn reloaded(&self, begun: Instant) {
        let mut numbers = self.numbers();
        numbers.reloads += 1;
        numbers.reload_times.add(begun.elapsed());
    }
}

impl Processor {
    /// The number of accesses by group of addresses, and how often the groups were read, by Cassandra's names.
    pub fn cidr_counts(&self) -> Vec<(String, u64)> {
        let numbers = self.auth().cidr_stats.numbers();
        let named = |outcome: &'static str| {
            move |(group, count): (&String, &u64)| {
                (format!("Number of CIDR accesses {outcome} from CIDR group - {group}"), *count)
            }
        };
        let accesses = numbers.accepted.iter().map(named("accepted"));
        let accesses = accesses.chain(numbers.rejected.iter().map(named("rejected")));
        accesses.chain([("CIDR groups cache reload count".to_owned(), numbers.reloads)]).collect()
    }

    /// The 50th, 95th, 99th and 99.9th percentile and the largest of the last times of checks, of reading the groups,
    /// and of finding an address in them, nanoseconds, by Cassandra's names.
    pub fn cidr_latencies(&self) -> [(&'static str, [f64; 5]); 3] {
        let numbers = self.auth().cidr_stats.numbers();
        [
            ("CIDR checks latency (ns)", numbers.checks.percentiles()),
            ("CIDR groups cache reload latency (ns)", numbers.reload_times.percentiles()),
            ("Lookup IP in CIDR groups cache latency (ns)", numbers.lookups.percentiles()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_last_times() {
        let mut times = Times::default();
        assert_eq!(times.percentiles(), [0.0; 5]);
        times.add(Duration::from_nanos(7));
        assert_eq!(times.percentiles(), [7.0; 5]);
        (1..=1000).for_each(|nanos| times.add(Duration::from_nanos(nanos)));
        assert_eq!(times.percentiles(), [500.0, 950.0, 990.0, 999.0, 1000.0]);
        (0..TIMES_MAX).for_each(|_| times.add(Duration::from_nanos(3)));
        assert_eq!(times.percentiles(), [3.0; 5]);
    }

    #[test]
    fn accesses_are_counted_by_group_and_memory_is_bounded() {
        let (stats, now) = (CidrStats::default(), Instant::now());
        stats.checked(&BTreeSet::from(["a", "b"]), true, now, now);
        stats.checked(&BTreeSet::from(["a"]), true, now, now);
        stats.checked(&BTreeSet::new(), false, now, now);
        let numbers = stats.numbers();
        assert_eq!((numbers.accepted["a"], numbers.accepted["b"], numbers.rejected[NO_GROUP]), (2, 1, 1));
        drop(numbers);
        for number in 0..2 * GROUPS_MAX {
            stats.checked(&BTreeSet::from([&*number.to_string()]), false, now, now);
        }
        assert_eq!(stats.numbers().rejected.len(), GROUPS_MAX);
    }
}
