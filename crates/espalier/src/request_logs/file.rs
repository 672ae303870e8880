//! The audit log or the full query log of a running node.
//!
//! Entries are lines of `audit.log` or `full_query.log`, in the form that Cassandra's logging gives them. A thread of
//! its own writes them, so a request waits only if the queue of entries is full, and only if the options say so
//! (`block`). When the period of `roll_cycle` is over, the file is renamed after that period's beginning (UTC), and the
//! oldest files are removed while all of them are larger than `max_log_size`.
//!
//! An entry that cannot be written is lost, which is logged and counted; the node goes on. Files are not synced, so a
//! power cut may lose the last entries.

use super::files::Files;
use super::options::{FileOptions, Kind};
use query::RequestLog;
use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

/// The least time between two messages about lost entries.
const REPORT_INTERVAL: Duration = Duration::from_secs(60);

/// A log of requests.
#[derive(Debug)]
pub struct LogFile {
    shared: Arc<Shared>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Shared {
    kind: Kind,
    waits: bool,
    queue_bytes_max: u64,
    queue: Mutex<Queue>,
    /// Notified when the queue gets entries, or is closed.
    filled: Condvar,
    /// Notified when the queue was emptied.
    emptied: Condvar,
    lost: AtomicU64,
}

#[derive(Debug, Default)]
struct Queue {
    entries: VecDeque<(SystemTime, String)>,
    bytes: u64,
    is_closed: bool,
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LogFile {
    /// Opens the log in `directory`, which is created if it does not exist. The error is ready for the user.
    pub fn open(kind: Kind, options: &FileOptions, directory: &Path) -> Result<LogFile, String> {
        let failed = |error: std::io::Error| format!("{}: {}: {error}", kind.option(), directory.display());
        let files = Files::open(kind, directory, options.roll_cycle, options.size_bytes_max).map_err(failed)?;
        let shared = Arc::new(Shared {
            kind,
            waits: options.waits,
            queue_bytes_max: options.queue_bytes_max,
            queue: Mutex::default(),
            filled: Condvar::new(),
            emptied: Condvar::new(),
            lost: AtomicU64::new(0),
        });
        let of_writer = Arc::clone(&shared);
        let writer = std::thread::Builder::new().name(kind.thread().to_owned()).spawn(move || write(&of_writer, files));
        Ok(LogFile { shared, writer: Mutex::new(Some(writer.map_err(failed)?)) })
    }

    /// Writes what is queued, and ends the log's thread. Later entries are lost.
    pub fn close(&self) {
        self.shared.queue().is_closed = true;
        self.shared.filled.notify_one();
        if let Some(writer) = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take() {
            // The writer does not panic, and there is nobody to report it to.
            let _ = writer.join();
        }
    }

    /// The number of entries that could not be written, or found no room in the queue.
    pub fn lost(&self) -> u64 {
        self.shared.lost.load(Ordering::Relaxed)
    }
}

impl RequestLog for LogFile {
    fn append(&self, line: String) {
        let (shared, now) = (&*self.shared, SystemTime::now());
        let bytes = line.len() as u64;
        let mut queue = shared.queue();
        while !queue.is_closed && !queue.entries.is_empty() && queue.bytes + bytes > shared.queue_bytes_max {
            if !shared.waits {
                shared.lost.fetch_add(1, Ordering::Relaxed);
                return;
            }
            queue = shared.emptied.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        if queue.is_closed {
            shared.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        queue.bytes += bytes;
        queue.entries.push_back((now, line));
        drop(queue);
        shared.filled.notify_one();
    }
}

/// Writes entries until the queue is closed and empty.
fn write(shared: &Shared, mut files: Files) {
    let mut reports = Reports { kind: shared.kind, last: None, lost_before: 0 };
    loop {
        let mut queue = shared.queue();
        while queue.entries.is_empty() && !queue.is_closed {
            queue = shared.filled.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        if queue.entries.is_empty() {
            return;
        }
        let entries = std::mem::take(&mut queue.entries);
        queue.bytes = 0;
        drop(queue);
        shared.emptied.notify_all();
        let failure = files.append(&entries).err().map(|(lost, error)| {
            shared.lost.fetch_add(lost as u64, Ordering::Relaxed);
            error.to_string()
        });
        reports.report(shared.lost.load(Ordering::Relaxed), failure.as_deref());
    }
}

/// Reports lost entries, but not too often.
struct Reports {
    kind: Kind,
    last: Option<Instant>,
    lost_before: u64,
}

impl Reports {
    fn report(&mut self, lost: u64, failure: Option<&str>) {
        if lost == self.lost_before || self.last.is_some_and(|last| last.elapsed() < REPORT_INTERVAL) {
            return;
        }
        let count = lost - self.lost_before;
        tracing::error!("{count} entries of the {} are lost: {}", self.kind, failure.unwrap_or("its queue was full"));
        (self.last, self.lost_before) = (Some(Instant::now()), lost);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn directory(name: &str) -> PathBuf {
        let directory = std::env::temp_dir().join(format!("espalier-audit-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory);
        directory
    }

    #[test]
    fn entries_are_in_the_file_when_the_log_is_closed() {
        let directory = directory("entries");
        let log = LogFile::open(Kind::Audit, &FileOptions::default(), &directory).unwrap();
        (0..1000).for_each(|number| log.append(format!("user:ada|operation:{number}")));
        log.close();
        let text = std::fs::read_to_string(directory.join("audit.log")).unwrap();
        for (number, line) in text.lines().enumerate() {
            assert!(line.ends_with(&format!(" FileAuditLogger - user:ada|operation:{number}")), "{line}");
        }
        assert_eq!(text.lines().count(), 1000);
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn a_file_that_cannot_be_written_loses_entries_and_counts_them() {
        let directory = directory("full");
        std::fs::create_dir_all(&directory).unwrap();
        // Writes to this device fail as if the disk were full.
        std::os::unix::fs::symlink("/dev/full", directory.join("audit.log")).unwrap();
        let log = LogFile::open(Kind::Audit, &FileOptions::default(), &directory).unwrap();
        (0..10).for_each(|number| log.append(format!("user:ada|operation:{number}")));
        log.close();
        assert_eq!(log.lost(), 10);
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn a_full_queue_drops_entries_where_requests_may_not_wait() {
        let shared = |waits| {
            let queue = Mutex::new(Queue {
                entries: [(SystemTime::now(), "x".repeat(10))].into(),
                bytes: 10,
                is_closed: false,
            });
            let (filled, emptied, lost) = (Condvar::new(), Condvar::new(), AtomicU64::new(0));
            Arc::new(Shared { kind: Kind::Audit, waits, queue_bytes_max: 12, queue, filled, emptied, lost })
        };
        let log = LogFile { shared: shared(false), writer: Mutex::default() };
        log.append("too long".to_owned());
        assert_eq!((log.lost(), log.shared.queue().entries.len()), (1, 1));
        log.append("ok".to_owned());
        assert_eq!((log.lost(), log.shared.queue().entries.len()), (1, 2));

        let log = Arc::new(LogFile { shared: shared(true), writer: Mutex::default() });
        let waiting = std::thread::spawn({
            let log = Arc::clone(&log);
            move || log.append("too long".to_owned())
        });
        *log.shared.queue() = Queue::default();
        log.shared.emptied.notify_all();
        waiting.join().unwrap();
        assert_eq!((log.lost(), log.shared.queue().entries.len()), (0, 1));
    }
}
