//! Counters, under Cassandra's names where they mean the same.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A snapshot of the log's counters and gauges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogMetrics {
    /// `CompletedTasks`: records appended.
    pub completed_tasks: u64,
    /// `PendingTasks`: waiters for records that are not yet on the device.
    pub pending_tasks: u64,
    /// `TotalCommitLogSize`: bytes of the segments in use.
    pub total_size_bytes: u64,
    /// `WaitingOnCommit`: waits for the device.
    pub waiting_on_commit: WaitCount,
    /// `WaitingOnFlush`: device writes, and syncs in `periodic`, from issue to completion.
    pub waiting_on_flush: WaitCount,
    /// `WaitingOnSegmentAllocation`: waits for room in memory or in the log.
    pub waiting_on_segment_allocation: WaitCount,
    /// `OverSizedMutations`: records refused because of their size.
    pub over_sized_mutations: u64,
    /// Device writes.
    pub frames: u64,
    /// Bytes in these writes.
    pub written_bytes: u64,
    /// Bytes of padding at the ends of frames, included in `written_bytes`.
    pub padding_bytes: u64,
    /// Syncs of the file (`periodic` mode).
    pub syncs: u64,
}

/// The number of waits and their total duration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitCount {
    /// The number of waits.
    pub count: u64,
    /// Their sum.
    pub total: Duration,
}

/// The live counters.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub completed_tasks: AtomicU64,
    pub allocation_waits: Waits,
    pub flush_waits: Waits,
    pub over_sized_mutations: AtomicU64,
    pub frames: AtomicU64,
    pub written_bytes: AtomicU64,
    pub padding_bytes: AtomicU64,
    pub syncs: AtomicU64,
}

#[derive(Debug, Default)]
pub(crate) struct Waits {
    count: AtomicU64,
    nanos: AtomicU64,
}

impl Waits {
    pub fn add(&self, time: Duration) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.nanos.fetch_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    fn read(&self) -> WaitCount {
        WaitCount {
            count: self.count.load(Ordering::Relaxed),
            total: Duration::from_nanos(self.nanos.load(Ordering::Relaxed)),
        }
    }
}

impl Counters {
    pub fn snapshot(&self, pending_tasks: u64, waiting_on_commit: WaitCount, total_size_bytes: u64) -> LogMetrics {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        LogMetrics {
            completed_tasks: load(&self.completed_tasks),
            pending_tasks,
            total_size_bytes,
            waiting_on_commit,
            waiting_on_flush: self.flush_waits.read(),
            waiting_on_segment_allocation: self.allocation_waits.read(),
            over_sized_mutations: load(&self.over_sized_mutations),
            frames: load(&self.frames),
            written_bytes: load(&self.written_bytes),
            padding_bytes: load(&self.padding_bytes),
            syncs: load(&self.syncs),
        }
    }
}
