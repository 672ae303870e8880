//! Keys of the audit log and of the full query log: what is entered, and into which files.

use super::*;
use crate::request_logs::RequestLogs;
use std::path::Path;

/// The entries that two statements leave in a log: one about `ks`, and one about `system`.
const STATEMENTS: [&str; 2] = ["INSERT INTO ks.t (k, c) VALUES (1, 1)", "SELECT role FROM system_auth.roles"];

/// The directory of the test's logs, which is removed before and afterwards. Cases run one after another.
fn directory() -> PathBuf {
    std::env::temp_dir().join(format!("espalier-options-{}", std::process::id()))
}

/// The names of the files below a directory, and all that they have.
fn files(directory: &Path) -> String {
    let Ok(entries) = std::fs::read_dir(directory) else { return String::new() };
    let mut all: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    all.sort();
    let shown = all.iter().map(|path| match path.is_dir() {
        true => format!("{}/\n{}", path.file_name().unwrap().display(), files(path)),
        false => format!("{}\n{}", path.file_name().unwrap().display(), std::fs::read_to_string(path).unwrap()),
    });
    shown.collect()
}

/// Writes a log, and says which of the statements it has, as `insert` and `select`, and in which directory.
fn entered(parts: &Parts, starts: impl Fn(&RequestLogs, &Processor) -> Result<(), String>) -> String {
    let directory = directory();
    let _ = std::fs::remove_dir_all(&directory);
    let Config { auditing, full_query_logging, .. } = &parts.config;
    let logs = RequestLogs::new(auditing.clone(), full_query_logging.clone(), &directory);
    let processor = parts.processor();
    SETUP.iter().for_each(|statement| drop(answer(&processor, statement)));
    if let Err(error) = starts(&logs, &processor) {
        return error;
    }
    STATEMENTS.iter().for_each(|statement| drop(answer(&processor, statement)));
    logs.close();
    let files = files(&directory);
    let _ = std::fs::remove_dir_all(&directory);
    let place = files.lines().next().unwrap_or("no file").to_owned();
    let names = [("INSERT", " insert"), ("SELECT", " select")];
    place + &names.into_iter().filter_map(|(word, name)| files.contains(word).then_some(name)).collect::<String>()
}

fn audited(parts: &Parts) -> String {
    entered(parts, |logs, processor| {
        processor.set_audit(logs.start_audit()?);
        Ok(())
    })
}

fn logged(parts: &Parts) -> String {
    entered(parts, |logs, processor| logs.enable_query_log(parts.config.full_query_logging.clone(), processor))
}

/// The value that `getauditlog` prints for a key.
macro_rules! audit_option {
    ($key:literal, $value:literal) => {
        Case::value(
            concat!("audit_logging_options.", $key),
            $value,
            |parts| of_key(&parts.config.auditing.shown(), $key),
            $value,
        )
    };
}

/// The value that `getfullquerylog` prints for a key.
macro_rules! query_option {
    ($key:literal, $value:literal) => {
        Case::value(
            concat!("full_query_logging_options.", $key),
            $value,
            |parts| of_key(&parts.config.full_query_logging.shown(false), $key),
            $value,
        )
    };
}

fn of_key(shown: &str, key: &str) -> String {
    let line = shown.lines().find(|line| line.split_whitespace().next() == Some(key));
    line.and_then(|line| line.split_whitespace().nth(1)).unwrap_or_default().to_owned()
}

const FILE_LOGGER: &[(&str, &str)] = &[("audit_logging_options.logger", "FileAuditLogger")];
const ON: &[(&str, &str)] =
    &[("audit_logging_options.enabled", "true"), ("audit_logging_options.logger", "FileAuditLogger")];

pub(super) const CASES: &[Case] = &[
    Case::value("audit_logging_options.enabled", "true", audited, "audit/ insert select").with(FILE_LOGGER),
    // Without the second key, the logger does not matter.
    Case::refused("audit_logging_options.logger", "BinAuditLogger, enabled: true", "BinAuditLogger is not supported"),
    Case::value("audit_logging_options.excluded_keyspaces", "ks", audited, "audit/ select").with(ON),
    Case::value("audit_logging_options.included_keyspaces", "ks", audited, "audit/ insert").with(ON),
    Case::value("audit_logging_options.included_categories", "DML", audited, "audit/ insert").with(ON),
    Case::value("audit_logging_options.excluded_categories", "DML", audited, "audit/ select").with(ON),
    Case::value("audit_logging_options.included_users", "ada", audited, "audit/").with(ON),
    Case::value("audit_logging_options.excluded_users", "anonymous", audited, "audit/").with(ON),
    Case::value(
        "audit_logging_options.audit_logs_dir",
        "/proc/none",
        |parts| audited(parts).contains("/proc/none").to_string(),
        "true",
    )
    .with(ON),
    audit_option!("roll_cycle", "DAILY"),
    audit_option!("block", "false"),
    audit_option!("max_queue_weight", "7"),
    audit_option!("max_log_size", "7"),
    Case::refused("audit_logging_options.archive_command", "/bin/mv", "is not supported").with(ON),
    Case::refused("audit_logging_options.allow_nodetool_archive_command", "true", "true is not supported").with(ON),
    Case::value(
        "full_query_logging_options.log_dir",
        "/proc/none",
        |parts| logged(parts).contains("/proc/none").to_string(),
        "true",
    ),
    query_option!("roll_cycle", "DAILY"),
    query_option!("block", "false"),
    query_option!("max_queue_weight", "7"),
    query_option!("max_log_size", "7"),
    Case::refused("full_query_logging_options.archive_command", "/bin/mv", "is not supported"),
    Case::refused("full_query_logging_options.allow_nodetool_archive_command", "true", "true is not supported"),
];
