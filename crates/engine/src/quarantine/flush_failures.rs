//! The failed flushes of each table: the number of consecutive failures, and the time of the next attempt.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use model::TableId;

use crate::error::EngineError;
use crate::lock::lock;

/// The number of consecutive failures after which a table cannot be flushed. With the delays between them, the attempts
/// take about a second, and a short fault of a device or a network ends before that.
pub(crate) const TRIES: u32 = 4;
const FIRST_DELAY: Duration = Duration::from_millis(50);
const DELAY_FACTOR: u32 = 4;
const LONGEST_DELAY: Duration = Duration::from_secs(1);

/// The tables whose last flush failed.
#[derive(Default)]
pub(crate) struct FlushFailures(Mutex<HashMap<TableId, FlushFailure>>);

struct FlushFailure {
    error: EngineError,
    tries: u32,
}

impl FlushFailures {
    /// Records a failed flush. Returns the number of consecutive failures.
    pub fn note(&self, table: TableId, error: &EngineError) -> u32 {
        let mut failures = lock(&self.0);
        let tries = failures.get(&table).map_or(1, |before| before.tries.saturating_add(1));
        failures.insert(table, FlushFailure { error: error.clone(), tries });
        tries
    }

    /// Removes the table: it was flushed or truncated, or it is gone.
    pub fn forget(&self, table: TableId) {
        lock(&self.0).remove(&table);
    }

    /// The delay before the next attempt, if the last one failed.
    pub fn delay(&self, table: TableId) -> Option<Duration> {
        lock(&self.0).get(&table).map(|failure| delay_after(failure.tries))
    }

    /// The reason why the last flush of some table failed.
    pub fn any(&self) -> Option<EngineError> {
        lock(&self.0).values().next().map(|failure| failure.error.clone())
    }
}

/// The delay after this number of consecutive failures, at least one.
fn delay_after(tries: u32) -> Duration {
    let factor = DELAY_FACTOR.saturating_pow(tries.saturating_sub(1).min(TRIES));
    (FIRST_DELAY * factor).min(LONGEST_DELAY)
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[test]
    fn consecutive_failures_are_counted_and_the_delay_grows_up_to_a_limit() {
        let (failures, table) = (FlushFailures::default(), TableId(Uuid::nil()));
        let error = EngineError::Unsupported("no".into());
        assert_eq!(failures.delay(table), None);
        let delays: Vec<_> = (1..=6)
            .map(|tries| {
                assert_eq!(failures.note(table, &error), tries);
                failures.delay(table).unwrap().as_millis()
            })
            .collect();
        assert_eq!(delays, [50, 200, 800, 1000, 1000, 1000]);
        assert!(failures.any().is_some());
        failures.forget(table);
        assert!(failures.any().is_none() && failures.delay(table).is_none());
        assert_eq!(failures.note(table, &error), 1);
        assert_eq!(delay_after(u32::MAX), LONGEST_DELAY);
    }
}
