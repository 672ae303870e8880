//! The options of a log.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use blockio::{BLOCK_SIZE, DiskError};
use uuid::Uuid;

use crate::LogError;
use crate::file::FILE_NAME;
use crate::format::Geometry;

/// When records reach the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncMode {
    /// Within `period`; no caller waits. Records reach the operating system within 10 ms.
    Periodic {
        /// `commitlog_sync_period`.
        period: Duration,
    },
    /// Before they are acknowledged. A record that finds the device idle is written at once; records that arrive
    /// meanwhile go with the next write.
    Batch,
    /// Before they are acknowledged; the first record waits `window` for others to share its write.
    Group {
        /// `commitlog_sync_group_window`.
        window: Duration,
    },
    /// Before they are acknowledged, and each record by itself: in blocks and a device write of its own, with many
    /// writes in flight, in any order.
    Each,
}

impl SyncMode {
    /// The mode's code in a block's header.
    pub(crate) fn code(self) -> u8 {
        match self {
            SyncMode::Periodic { .. } => 0,
            SyncMode::Batch => 1,
            SyncMode::Group { .. } => 2,
            SyncMode::Each => 3,
        }
    }
}

/// Returns milliseconds since the epoch, by the node's clock.
pub type Clock = Arc<dyn Fn() -> i64 + Send + Sync>;

/// Receives the reason why the log accepts no more records.
pub type FailureHook = Arc<dyn Fn(&str) + Send + Sync>;

/// Receives the host id of a new log before any of it is made.
pub type NewLogHook = Arc<dyn Fn(Uuid) -> Result<(), DiskError> + Send + Sync>;

/// The options of a log.
#[derive(Clone)]
pub struct LogOptions {
    /// `commitlog_directory`. The log locks it while it is open.
    pub directory: PathBuf,
    /// `commitlog_device`: a block device, or a file of fixed size that was written to its end. It then holds the log
    /// in place of a file in the directory, and is locked likewise. It must hold a log already or begin with 8 KiB of
    /// zeros; anything else is refused.
    pub device: Option<PathBuf>,
    /// `commitlog_segment_size`, in bytes: a multiple of 4096. It applies to a new log, and to a log that is opened
    /// with nothing in it.
    pub segment_size_bytes: u32,
    /// `commitlog_total_space`, in bytes: the most space that the log takes, at least two segments. It applies when the
    /// segment size does.
    pub total_space_bytes: u64,
    /// `commitlog_sync` and its window.
    pub sync: SyncMode,
    /// The node's id. A log of another node is refused. `None` accepts the id of the log that is there, or makes one
    /// for a new log.
    pub host_id: Option<Uuid>,
    /// Stores the host id that a new log gets; if storing fails, the log is not made.
    pub on_new_log: Option<NewLogHook>,
    /// The id of a new log; `None` for a random one.
    pub log_id: Option<Uuid>,
    /// How long [`CommitLog::append`](crate::CommitLog::append) waits for room.
    pub append_timeout: Duration,
    /// Replay the sound parts of a damaged log, keep a copy of the rest, and report the gaps.
    pub salvage: bool,
    /// The tables whose records a start must read before it replays any ([`Replay::preview`](crate::Replay::preview)).
    /// A segment's bookkeeping says whether it has none of them.
    pub preview_tables: Vec<Uuid>,
    /// The source of segment ids; a clock that steps back does no harm.
    pub clock: Clock,
    /// Called from any thread, without a lock, when [`CommitLog::pressure`](crate::CommitLog::pressure) starts to name
    /// tables. It must return soon.
    pub on_pressure: Option<Arc<dyn Fn() + Send + Sync>>,
    /// Called from any thread when the disk has failed, or [`CommitLog::fail`](crate::CommitLog::fail) was called, and
    /// the log accepts no more records for that reason (`commit_failure_policy` decides what follows). Called at most
    /// once.
    pub on_failure: Option<FailureHook>,
}

impl LogOptions {
    /// Cassandra's defaults, in `batch` mode.
    pub fn new(directory: impl Into<PathBuf>) -> LogOptions {
        LogOptions {
            directory: directory.into(),
            device: None,
            segment_size_bytes: 32 << 20,
            total_space_bytes: 8 << 30,
            sync: SyncMode::Batch,
            host_id: None,
            on_new_log: None,
            log_id: None,
            append_timeout: Duration::from_secs(2),
            salvage: false,
            preview_tables: Vec::new(),
            clock: Arc::new(system_clock),
            on_pressure: None,
            on_failure: None,
        }
    }

    /// The path of the log.
    pub fn log_path(&self) -> PathBuf {
        self.device.clone().unwrap_or_else(|| self.directory.join(FILE_NAME))
    }

    /// The layout that the options ask for, on a device of that many bytes if the log is on one.
    pub(crate) fn geometry(&self, device_size_bytes: Option<u64>) -> Result<Geometry, LogError> {
        let invalid = |reason: String| Err(LogError::InvalidOptions(reason));
        let size = self.segment_size_bytes;
        if !size.is_multiple_of(BLOCK_SIZE as u32) || size < 4 * BLOCK_SIZE as u32 || size > 1 << 30 {
            return invalid(format!(
                "commitlog_segment_size of {size} bytes: it must be a multiple of 4096 from 16 KiB to 1 GiB"
            ));
        }
        let mut segments = self.total_space_bytes / u64::from(size);
        if !(2..=1 << 20).contains(&segments) {
            return invalid(format!(
                "commitlog_total_space of {} bytes holds {segments} segments: 2 to 1048576",
                self.total_space_bytes
            ));
        }
        if let Some(device_size_bytes) = device_size_bytes {
            let room = device_size_bytes.saturating_sub(Geometry::bookkeeping_start());
            segments = segments.min(room / (u64::from(size) + BLOCK_SIZE as u64));
            if segments < 2 {
                return invalid(format!(
                    "commitlog_device of {device_size_bytes} bytes holds {segments} segments of {size} bytes: at least 2"
                ));
            }
        }
        debug_assert!(segments >= 2 && u64::from(size) * segments <= self.total_space_bytes, "the limit holds");
        Ok(Geometry { segment_size_bytes: size, segments: segments as u32 })
    }
}

fn system_clock() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

impl fmt::Debug for LogOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogOptions")
            .field("directory", &self.directory)
            .field("segment_size_bytes", &self.segment_size_bytes)
            .field("total_space_bytes", &self.total_space_bytes)
            .field("sync", &self.sync)
            .field("salvage", &self.salvage)
            .finish_non_exhaustive()
    }
}
