//! What compaction is doing, for whoever asks, and how fast it may.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use uuid::Uuid;

use crate::store::lock;

/// A merge under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActiveCompaction {
    /// Its own id, time-based: when it began.
    pub id: Uuid,
    /// The keyspace.
    pub keyspace: String,
    /// The table.
    pub table: String,
    /// Where it writes.
    pub target_directory: PathBuf,
    /// SSTables that are merged.
    pub sstables: usize,
    /// Bytes of their data, before compression.
    pub total_bytes: u64,
    /// Bytes written so far, before compression.
    pub written_bytes: u64,
}

/// Compaction in numbers, since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompactionStats {
    /// Merges that strategies call for now beside those under way.
    pub pending: usize,
    /// Merges under way.
    pub active: Vec<ActiveCompaction>,
    /// Merges that came to their end.
    pub completed: u64,
    /// Bytes that they wrote, before compression.
    pub written_bytes: u64,
    /// SSTables that were dropped unread because all in them had expired.
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
    /// Notes a merge until what is returned is dropped.
    pub fn begin(&self, description: ActiveCompaction) -> RunningTask<'_> {
        let task = Arc::new(Task { description, written_bytes: AtomicU64::new(0) });
        lock(&self.active).push(task.clone());
        RunningTask { tasks: self, task }
    }

    /// Notes SSTables that were dropped unread.
    pub fn expired(&self, sstables: usize) {
        self.expired_sstables.fetch_add(sstables as u64, Ordering::Relaxed);
    }

    /// Everything but what is pending.
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

/// A merge under way; dropped when it ends.
pub(crate) struct RunningTask<'t> {
    tasks: &'t CompactionTasks,
    task: Arc<Task>,
}

impl RunningTask<'_> {
    /// Notes how far it is; the bytes since the last time.
    pub fn wrote(&self, bytes: u64) -> u64 {
        bytes.saturating_sub(self.task.written_bytes.swap(bytes, Ordering::Relaxed))
    }

    /// Notes that it came to its end.
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

/// Slows all merges together down to a rate.
pub(crate) struct Throttle {
    /// 0 is no limit.
    bytes_per_second: u64,
    /// When what was taken so far is paid for.
    free_at: Mutex<Option<Instant>>,
}

impl Throttle {
    pub fn new(bytes_per_second: u64) -> Self {
        Throttle { bytes_per_second, free_at: Mutex::new(None) }
    }

    /// Takes bytes at `now`; how long to wait for them.
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
    fn tasks_are_there_while_they_run() {
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
