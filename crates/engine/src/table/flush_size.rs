//! The size of a table's flushes on the disk, which is the unit of unified compaction's levels.

use std::sync::Mutex;

use crate::lock::lock;

/// The weight of the last flush in the mean, which is Cassandra's.
const WEIGHT: f64 = 0.0046;
/// If the mean differs from the size in use by more than this fraction, it replaces that size.
const DIFFERENCE_MAX: f64 = 0.5;
const MIB: u64 = 1 << 20;

/// The moving mean of a table's flushes since the start. Thread-safe.
#[derive(Default)]
pub(crate) struct FlushSize {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    mean_bytes: Option<f64>,
    /// The size by which levels are measured. It stays as long as it fits, so that SSTables do not change their levels
    /// with every flush.
    in_use_bytes: u64,
}

impl FlushSize {
    /// Adds the bytes of another flush.
    pub fn note(&self, bytes: u64) {
        let mut state = lock(&self.state);
        let bytes = bytes as f64;
        let mean = state.mean_bytes.map_or(bytes, |mean| mean + (bytes - mean) * WEIGHT);
        state.mean_bytes = Some(mean);
        let in_use = state.in_use_bytes as f64;
        if state.in_use_bytes == 0 || (1.0 - in_use / mean).abs() > DIFFERENCE_MAX {
            state.in_use_bytes = (mean as u64).div_ceil(MIB) * MIB;
        }
    }

    /// The size in whole MiB, as bytes; 0 before the first flush.
    pub fn bytes(&self) -> u64 {
        lock(&self.state).in_use_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_follow_the_size_of_flushes_and_stay_while_it_fits() {
        let size = FlushSize::default();
        assert_eq!(size.bytes(), 0);
        size.note(5 * MIB + 1);
        assert_eq!(size.bytes(), 6 * MIB);
        // One flush of another size has no effect,
        size.note(1);
        size.note(60 * MIB);
        assert_eq!(size.bytes(), 6 * MIB);
        // and many have one.
        (0..1000).for_each(|_| size.note(60 * MIB));
        assert!(size.bytes() > 12 * MIB, "{}", size.bytes());
        (0..3000).for_each(|_| size.note(3 * MIB));
        assert!((3 * MIB..=6 * MIB).contains(&size.bytes()), "{}", size.bytes());
    }
}
