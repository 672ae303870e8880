//! The guardrail `replica_disk_usage`: writes cause a warning, or are refused, when the data takes much of the disk.

use std::sync::atomic::{AtomicU8, Ordering};

use crate::QueryError;
use crate::execution::Execution;

/// How full the disk is, by `data_disk_usage_percentage_warn_threshold` and `..._fail_threshold`. Threads may read and
/// set it at any time.
#[derive(Debug, Default)]
pub struct DiskUsage(AtomicU8);

/// The states, from the emptiest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum DiskUsageState {
    /// Below both thresholds, or unknown.
    Spacious = 0,
    /// Above the threshold that warns.
    Stuffed = 1,
    /// Above the threshold that refuses writes.
    Full = 2,
}

impl DiskUsage {
    /// Sets the state; returns whether it is another one than before.
    pub fn set(&self, state: DiskUsageState) -> bool {
        self.0.swap(state as u8, Ordering::Relaxed) != state as u8
    }

    /// Warns about a write, or refuses it.
    #[inline]
    pub(crate) fn check(&self, execution: &Execution<'_>) -> Result<(), QueryError> {
        match self.0.load(Ordering::Relaxed) {
            0 => Ok(()),
            state => complain(state, execution),
        }
    }
}

#[cold]
fn complain(state: u8, execution: &Execution<'_>) -> Result<(), QueryError> {
    if !execution.is_guarded() {
        return Ok(());
    }
    const NAME: &str = "Guardrail replica_disk_usage violated";
    if state == DiskUsageState::Full as u8 {
        let message = format!("{NAME}: Write request failed because disk usage exceeds failure threshold");
        return Err(QueryError::invalid(message));
    }
    execution.warn(format!("{NAME}: Replica disk usage exceeds warning threshold"));
    Ok(())
}
