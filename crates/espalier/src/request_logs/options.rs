//! The options of the logs of requests: sections of the configuration, and of the verbs that turn the logs on.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use query::AuditFilter;
use types::text::{Separator, format_timestamp};

/// The kind of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The audit log.
    Audit,
    /// The full query log.
    FullQuery,
}

impl Kind {
    /// The section of the configuration.
    pub fn option(self) -> &'static str {
        match self {
            Kind::Audit => "audit_logging_options",
            Kind::FullQuery => "full_query_logging_options",
        }
    }

    /// The name of the current file.
    pub(super) fn current(self) -> &'static str {
        match self {
            Kind::Audit => "audit.log",
            Kind::FullQuery => "full_query.log",
        }
    }

    /// Other files begin with this, and continue with the beginning of their period.
    pub(super) fn rolled_prefix(self) -> &'static str {
        match self {
            Kind::Audit => "audit-",
            Kind::FullQuery => "full_query-",
        }
    }

    /// The thread that writes.
    pub(super) fn thread(self) -> &'static str {
        match self {
            Kind::Audit => "audit-log",
            Kind::FullQuery => "full-query-log",
        }
    }

    /// The line of an entry, as the pattern of Cassandra's log has it.
    pub(super) fn line(self, time: SystemTime, entry: &str) -> String {
        let millis = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64);
        let time = format_timestamp(millis, Separator::Json);
        let time: String =
            time.chars().take("2026-11-26 11:50:13.166".len()).map(|c| if c == '.' { ',' } else { c }).collect();
        let logger = match self {
            Kind::Audit => "FileAuditLogger",
            Kind::FullQuery => "FullQueryLogger",
        };
        format!("INFO  [{}] {time} {logger} - {entry}\n", self.thread())
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Audit => "audit log",
            Kind::FullQuery => "full query log",
        })
    }
}

/// How often a log begins a new file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RollCycle {
    Minutely,
    #[default]
    Hourly,
    Daily,
}

impl RollCycle {
    /// The name in the configuration.
    fn name(self) -> &'static str {
        match self {
            RollCycle::Minutely => "MINUTELY",
            RollCycle::Hourly => "HOURLY",
            RollCycle::Daily => "DAILY",
        }
    }

    fn seconds(self) -> u64 {
        match self {
            RollCycle::Minutely => 60,
            RollCycle::Hourly => 3600,
            RollCycle::Daily => 86_400,
        }
    }

    /// The beginning of the period of this time, seconds since the epoch.
    pub(super) fn period_start(self, time: SystemTime) -> u64 {
        let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        seconds - seconds % self.seconds()
    }
}

/// How files are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileOptions {
    /// Whether requests wait while the queue is full. Otherwise their entries are dropped.
    pub waits: bool,
    /// The size of the queue, bytes.
    pub queue_bytes_max: u64,
    /// The size of all files, bytes.
    pub size_bytes_max: u64,
    /// How often a new file is begun.
    pub roll_cycle: RollCycle,
}

impl Default for FileOptions {
    fn default() -> FileOptions {
        FileOptions { waits: true, queue_bytes_max: 256 << 20, size_bytes_max: 16 << 30, roll_cycle: RollCycle::Hourly }
    }
}

/// `audit_logging_options`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Auditing {
    /// Whether there is an audit log.
    pub enabled: bool,
    /// The requests that are entered.
    pub filter: AuditFilter,
    /// `audit_logs_dir`; `None` is `audit` within the data directory.
    pub directory: Option<PathBuf>,
    /// How entries are written.
    pub file: FileOptions,
}

/// `full_query_logging_options`. The log is on only while it is asked for (`enablefullquerylog`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FullQueryLogging {
    /// `log_dir`; `None` if there is none.
    pub directory: Option<PathBuf>,
    /// How entries are written.
    pub file: FileOptions,
}

/// Names and values in two columns, as nodetool prints them.
fn table(rows: Vec<(&str, String)>) -> String {
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    rows.iter().map(|(name, value)| format!("{name:width$} {value}\n")).collect()
}

fn path(directory: Option<&PathBuf>) -> String {
    directory.map(|directory| directory.display().to_string()).unwrap_or_default()
}

impl FileOptions {
    fn rows(&self) -> Vec<(&'static str, String)> {
        vec![
            ("archive_command", String::new()),
            ("roll_cycle", self.roll_cycle.name().to_owned()),
            ("block", self.waits.to_string()),
            ("max_log_size", self.size_bytes_max.to_string()),
            ("max_queue_weight", self.queue_bytes_max.to_string()),
            ("max_archive_retries", "10".to_owned()),
        ]
    }
}

impl Auditing {
    /// The answer to `getauditlog`.
    pub fn shown(&self) -> String {
        let names = |names: &BTreeSet<String>| names.iter().cloned().collect::<Vec<_>>().join(",");
        let AuditFilter { keyspaces, categories, users } = &self.filter;
        let mut rows = vec![
            ("enabled", self.enabled.to_string()),
            ("logger", "FileAuditLogger".to_owned()),
            ("audit_logs_dir", path(self.directory.as_ref())),
        ];
        rows.extend(self.file.rows());
        rows.extend([
            ("included_keyspaces", names(&keyspaces.included)),
            ("excluded_keyspaces", names(&keyspaces.excluded)),
            ("included_categories", names(&categories.included)),
            ("excluded_categories", names(&categories.excluded)),
            ("included_users", names(&users.included)),
            ("excluded_users", names(&users.excluded)),
        ]);
        table(rows)
    }
}

impl FullQueryLogging {
    /// The answer to `getfullquerylog`.
    pub fn shown(&self, enabled: bool) -> String {
        let mut rows = vec![("enabled", enabled.to_string()), ("log_dir", path(self.directory.as_ref()))];
        rows.extend(self.file.rows());
        table(rows)
    }
}
