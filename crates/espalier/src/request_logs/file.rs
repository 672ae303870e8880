//! The audit log or the full query log of a running node.
//!
//! Entries are lines of `audit.log` or `full_query.log`, in the form that Cassandra's logging gives them. A thread of
//! its own writes them, so a request waits only if the queue of entries is full, and only if the options say so
//! (`block`). When the period of `roll_cycle` is over, the file is renamed after that period's beginning (UTC), and the
//! oldest files are removed while all of them are larger than `max_log_size`.
//!
//! An entry that cannot be written is lost, which is logged and counted; requests are served as before. A file that was
//! moved or removed is created again. Files are not synced, so a power cut may lose the last entries.

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
    queue: Mutex<Queue>,
    /// Notified when the queue gets entries, or is closed.
    filled: Condvar,
    /// Notified when the queue was emptied.
    emptied: Condvar,
    lost: AtomicU64,
}

type Entries = VecDeque<(SystemTime, String)>;

#[derive(Debug, Default)]
struct Queue {
    /// Whether requests wait while the queue is full.
    waits: bool,
    bytes_max: u64,
    entries: Entries,
    bytes: u64,
    /// The files for the entries from this index on.
    next: Option<(usize, Files)>,
    is_closed: bool,
}

impl Queue {
    fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.next.is_none()
    }

    /// Takes all entries. Returns those for the current files, and, if the files were changed, the new files with their
    /// entries.
    fn take(&mut self) -> (Entries, Option<(Files, Entries)>) {
        self.bytes = 0;
        let mut entries = std::mem::take(&mut self.entries);
        let next = self.next.take().map(|(place, files)| (files, entries.split_off(place)));
        (entries, next)
    }
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LogFile {
    /// Opens the log in `directory`, which is created if it does not exist. The error is ready for the user.
    pub fn open(kind: Kind, options: &FileOptions, directory: &Path) -> Result<LogFile, String> {
        let files = open_files(kind, options, directory)?;
        let queue = Queue { waits: options.waits, bytes_max: options.queue_bytes_max, ..Queue::default() };
        let (filled, emptied, lost) = (Condvar::new(), Condvar::new(), AtomicU64::new(0));
        let shared = Arc::new(Shared { kind, queue: Mutex::new(queue), filled, emptied, lost });
        let of_writer = Arc::clone(&shared);
        let writer = std::thread::Builder::new().name(kind.thread().to_owned()).spawn(move || write(&of_writer, files));
        Ok(LogFile { shared, writer: Mutex::new(Some(writer.map_err(|error| failed(kind, directory, error))?)) })
    }

    /// Continues the log in another directory or with other options. All entries before this one are written as
    /// before, and none is lost. After an error nothing has changed.
    pub fn change(&self, options: &FileOptions, directory: &Path) -> Result<(), String> {
        let files = open_files(self.shared.kind, options, directory)?;
        let mut queue = self.shared.queue();
        let place = queue.entries.len();
        (queue.waits, queue.bytes_max, queue.next) = (options.waits, options.queue_bytes_max, Some((place, files)));
        drop(queue);
        self.shared.filled.notify_one();
        self.shared.emptied.notify_all();
        Ok(())
    }

    /// Writes what is queued, and ends the log's thread. Later entries are lost.
    pub fn close(&self) {
        self.shared.queue().is_closed = true;
        self.shared.filled.notify_one();
        if let Some(writer) = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take() {
            // The writer does not panic, and no caller could receive an error here.
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
        while !queue.is_closed && !queue.entries.is_empty() && queue.bytes + bytes > queue.bytes_max {
            if !queue.waits {
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

fn open_files(kind: Kind, options: &FileOptions, directory: &Path) -> Result<Files, String> {
    let files = Files::open(kind, directory, options.roll_cycle, options.size_bytes_max);
    files.map_err(|error| failed(kind, directory, error))
}

fn failed(kind: Kind, directory: &Path, error: std::io::Error) -> String {
    format!("{}: {}: {error}", kind.option(), directory.display())
}

/// Writes entries until the queue is closed and empty.
fn write(shared: &Shared, mut files: Files) {
    let mut reports = Reports::new(shared.kind);
    loop {
        let mut queue = shared.queue();
        while queue.is_empty() && !queue.is_closed {
            queue = match reports.due_in() {
                None => shared.filled.wait(queue).unwrap_or_else(PoisonError::into_inner),
                Some(time) if time.is_zero() => break,
                Some(time) => shared.filled.wait_timeout(queue, time).unwrap_or_else(PoisonError::into_inner).0,
            };
        }
        let is_end = queue.is_empty() && queue.is_closed;
        let (entries, next) = queue.take();
        drop(queue);
        shared.emptied.notify_all();
        let mut append = |files: &mut Files, are_other: bool, entries: &Entries| {
            // This log may have written to the same file since the other files were opened.
            let refreshed = if are_other { files.refresh_state() } else { Ok(()) };
            let refreshed = refreshed.map_err(|error| (entries.len(), error));
            if let Err((lost, error)) = refreshed.and_then(|()| files.append(entries)) {
                shared.lost.fetch_add(lost as u64, Ordering::Relaxed);
                reports.failure = Some(error.to_string());
            }
        };
        append(&mut files, false, &entries);
        if let Some((others, later)) = next {
            files = others;
            append(&mut files, true, &later);
        }
        reports.report(shared.lost.load(Ordering::Relaxed), is_end);
        if is_end {
            return;
        }
    }
}

/// Reports lost entries, but not too often.
struct Reports {
    kind: Kind,
    last: Option<Instant>,
    lost: u64,
    /// The lost entries that were reported.
    reported: u64,
    /// The last error since the last report.
    failure: Option<String>,
}

impl Reports {
    fn new(kind: Kind) -> Reports {
        Reports { kind, last: None, lost: 0, reported: 0, failure: None }
    }

    /// The time until the next report, if there is something to report.
    fn due_in(&self) -> Option<Duration> {
        let since = self.last.map_or(REPORT_INTERVAL, |last| last.elapsed());
        (self.lost > self.reported).then(|| REPORT_INTERVAL.saturating_sub(since))
    }

    /// Takes note of all entries that are lost so far, and reports them if it is time, or the log ends.
    fn report(&mut self, lost: u64, is_end: bool) {
        self.lost = lost;
        match self.due_in() {
            Some(time) if time.is_zero() || is_end => {}
            _ => return,
        }
        let (count, reason) = (lost - self.reported, self.failure.take());
        let entries = if count == 1 { "entry" } else { "entries" };
        let reason = reason.as_deref().unwrap_or("its queue was full");
        tracing::error!("{count} {entries} of the {} lost: {reason}", self.kind);
        (self.last, self.reported) = (Some(Instant::now()), lost);
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
        let log = LogFile::open(Kind::Audit, &FileOptions::default(), &directory).unwrap();
        std::fs::remove_dir_all(&directory).unwrap();
        std::fs::write(&directory, "in its place").unwrap();
        (0..10).for_each(|number| log.append(format!("user:ada|operation:{number}")));
        log.close();
        assert_eq!(log.lost(), 10);
        std::fs::remove_file(&directory).unwrap();
    }

    #[test]
    fn all_lost_entries_are_reported_at_most_once_in_a_while_and_at_the_end() {
        let mut reports = Reports::new(Kind::Audit);
        let reported = |reports: &mut Reports, lost, is_end| {
            reports.report(lost, is_end);
            reports.reported
        };
        assert_eq!((reported(&mut reports, 0, false), reports.due_in()), (0, None));
        assert_eq!((reported(&mut reports, 1, false), reports.due_in()), (1, None));
        assert_eq!(reported(&mut reports, 5, false), 1);
        assert!(reports.due_in().is_some_and(|time| time > Duration::from_secs(50)));
        reports.last = Instant::now().checked_sub(REPORT_INTERVAL);
        assert_eq!(reports.due_in(), Some(Duration::ZERO));
        assert_eq!(reported(&mut reports, 5, false), 5);
        assert_eq!(reported(&mut reports, 9, false), 5);
        assert_eq!(reported(&mut reports, 9, true), 9);
    }

    #[test]
    fn a_change_of_the_options_loses_no_entry_and_keeps_their_order() {
        let [first, second] = ["change-first", "change-second"].map(directory);
        let log = Arc::new(LogFile::open(Kind::Audit, &FileOptions::default(), &first).unwrap());
        let writing = std::thread::spawn({
            let log = Arc::clone(&log);
            move || (0..20_000).for_each(|number| log.append(number.to_string()))
        });
        for number in 0..20 {
            let directory = if number % 2 == 0 { &second } else { &first };
            log.change(&FileOptions { queue_bytes_max: 1000, ..FileOptions::default() }, directory).unwrap();
            std::thread::yield_now();
        }
        std::fs::write(first.join("file"), "").unwrap();
        log.change(&FileOptions::default(), &first.join("file")).unwrap_err();
        writing.join().unwrap();
        log.close();
        let mut numbers: Vec<u32> = Vec::new();
        for directory in [&first, &second] {
            let text = std::fs::read_to_string(directory.join("audit.log")).unwrap();
            let of_file: Vec<u32> =
                text.lines().map(|line| line.rsplit(' ').next().unwrap().parse().unwrap()).collect();
            assert!(of_file.is_sorted());
            numbers.extend(of_file);
        }
        numbers.sort_unstable();
        assert_eq!((numbers, log.lost()), ((0..20_000).collect(), 0));
        [first, second].iter().for_each(|directory| std::fs::remove_dir_all(directory).unwrap());
    }

    #[test]
    fn a_full_queue_drops_entries_where_requests_may_not_wait() {
        let shared = |waits| {
            let entries = [(SystemTime::now(), "x".repeat(10))].into();
            let queue = Mutex::new(Queue { waits, bytes_max: 12, entries, bytes: 10, ..Queue::default() });
            let (filled, emptied, lost) = (Condvar::new(), Condvar::new(), AtomicU64::new(0));
            Arc::new(Shared { kind: Kind::Audit, queue, filled, emptied, lost })
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
        *log.shared.queue() = Queue { bytes_max: 12, ..Queue::default() };
        log.shared.emptied.notify_all();
        waiting.join().unwrap();
        assert_eq!((log.lost(), log.shared.queue().entries.len()), (0, 1));
    }
}
