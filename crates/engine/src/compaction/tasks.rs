//! The state of compaction, for reports, and its throttle.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use uuid::Uuid;

use crate::lock::lock;

/// A merge in flight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActiveCompaction {
    /// The merge's own id. It is time-based and contains the time at which the merge began.
    pub id: Uuid,
    /// The keyspace.
    pub keyspace: String,
    /// The table.
    pub table: String,
    /// The directory of its output.
    pub target_directory: PathBuf,
    /// The number of SSTables that are merged.
    pub sstables: usize,
    /// The bytes of their data, before compression.
    pub total_bytes: u64,
    /// Bytes written so far, before compression.
    pub written_bytes: u64,
}

/// Statistics of compaction since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompactionStats {
    /// Merges that strategies ask for now, in addition to those in flight.
    pub pending: usize,
    /// Merges in flight.
    pub active: Vec<ActiveCompaction>,
    /// Completed merges.
    pub completed: u64,
    /// Bytes that completed merges wrote, before compression.
    pub written_bytes: u64,
    /// SSTables that were dropped without reading them, because all their data had expired.
    pub expired_sstables: u64,
}

/// The merges of an engine.
#[derive(Default)]
pub(crate) struct CompactionTasks {
    active: Mutex<Vec<Arc<Task>>>,
    completed: AtomicU64,
    written_bytes: AtomicU64,
    expired_sstables: AtomicU64,
}

struct Task {
    description: ActiveCompaction,
    written_bytes: AtomicU64,
}

impl CompactionTasks {
    /// Lists a merge until the returned value is dropped.
    pub fn begin(&self, description: ActiveCompaction) -> RunningTask<'_> {
        let task = Arc::new(Task { description, written_bytes: AtomicU64::new(0) });
        lock(&self.active).push(task.clone());
        RunningTask { tasks: self, task }
    }

    /// Counts SSTables that were dropped without reading them.
    pub fn expired(&self, sstables: usize) {
        self.expired_sstables.fetch_add(sstables as u64, Ordering::Relaxed);
    }

    /// All figures except the pending merges.
    pub fn stats(&self) -> CompactionStats {
        let active = lock(&self.active);
        let describe = |task: &Arc<Task>| ActiveCompaction {
            written_bytes: task.written_bytes.load(Ordering::Relaxed),
            ..task.description.clone()
        };
        CompactionStats {
            pending: 0,
            active: active.iter().map(describe).collect(),
            completed: self.completed.load(Ordering::Relaxed),
            written_bytes: self.written_bytes.load(Ordering::Relaxed),
            expired_sstables: self.expired_sstables.load(Ordering::Relaxed),
        }
    }
}

/// A merge in flight. It is dropped when the merge ends.
pub(crate) struct RunningTask<'t> {
    tasks: &'t CompactionTasks,
    task: Arc<Task>,
}

impl RunningTask<'_> {
    /// Records the progress. Returns the bytes since the last call.
    pub fn wrote(&self, bytes: u64) -> u64 {
        bytes.saturating_sub(self.task.written_bytes.swap(bytes, Ordering::Relaxed))
    }

    /// Records that the merge is complete.
    pub fn complete(self) {
        self.tasks.completed.fetch_add(1, Ordering::Relaxed);
        self.tasks.written_bytes.fetch_add(self.task.written_bytes.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

impl Drop for RunningTask<'_> {
    fn drop(&mut self) {
        lock(&self.tasks.active).retain(|task| !Arc::ptr_eq(task, &self.task));
    }
}

/// Limits the rate of all merges together.
pub(crate) struct Throttle {
    /// 0 means no limit.
    bytes_per_second: u64,
    /// The time at which the bytes taken so far are used up.
    free_at: Mutex<Option<Instant>>,
}

impl Throttle {
    pub fn new(bytes_per_second: u64) -> Self {
        Throttle { bytes_per_second, free_at: Mutex::new(None) }
    }

    /// Takes bytes at `now`. Returns how long to wait for them.
    pub fn take(&self, bytes: u64, now: Instant) -> Duration {
        if self.bytes_per_second == 0 || bytes == 0 {
            return Duration::ZERO;
        }
        let mut free_at = lock(&self.free_at);
        let begin = free_at.unwrap_or(now).max(now);
        let end = begin + Duration::from_secs_f64(bytes as f64 / self.bytes_per_second as f64);
        *free_at = Some(end);
        end - now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_throttle_spreads_bytes_of_all_takers_over_time() {
        let throttle = Throttle::new(1000);
        let now = Instant::now();
        assert_eq!(throttle.take(500, now), Duration::from_millis(500));
        assert_eq!(throttle.take(250, now), Duration::from_millis(750));
        let later = now + Duration::from_secs(2);
        assert_eq!(throttle.take(100, later), Duration::from_millis(100), "idle time is not saved up");
        assert_eq!(Throttle::new(0).take(1 << 40, now), Duration::ZERO);
    }

    #[test]
    fn tasks_are_listed_while_they_run() {
        let tasks = CompactionTasks::default();
        let description = ActiveCompaction { sstables: 2, total_bytes: 100, ..tasks_description() };
        let task = tasks.begin(description);
        assert_eq!((task.wrote(40), task.wrote(60)), (40, 20));
        assert_eq!(tasks.stats().active[0].written_bytes, 60);
        task.complete();
        let abandoned = tasks.begin(tasks_description());
        drop(abandoned);
        let stats = tasks.stats();
        assert_eq!((stats.active.len(), stats.completed, stats.written_bytes), (0, 1, 60));
    }

    fn tasks_description() -> ActiveCompaction {
        ActiveCompaction {
            id: Uuid::nil(),
            keyspace: "ks".into(),
            table: "u".into(),
            target_directory: PathBuf::new(),
            sstables: 1,
            total_bytes: 1,
            written_bytes: 0,
        }
    }
}
