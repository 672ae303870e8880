//! `audit_logging_options`: its keys, and which of their values are accepted.

use super::Config;
use super::units::{boolean, class_name, number, scalar, text};
use crate::audit::{Auditing, RollCycle};
use query::{Category, Choice};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// The logger that is supported. Cassandra's default is its binary one.
const FILE_LOGGER: &str = "FileAuditLogger";

pub(super) fn audit_logging_options(config: &mut Config, value: &Value) -> Result<(), String> {
    let section = value.as_object().ok_or_else(|| format!("expected keys and values, got {value}"))?;
    let (mut options, mut logger) = (Auditing::default(), None);
    for (key, value) in section.iter().filter(|(_, value)| !value.is_null()) {
        let applied = if key == "logger" {
            class_name(value).map(|class| logger = Some(class))
        } else {
            apply(&mut options, key, value)
        };
        applied.map_err(|error| format!("{key}: {error}"))?;
    }
    if options.enabled && logger.as_deref() != Some(FILE_LOGGER) {
        let logger = logger.as_deref().unwrap_or("BinAuditLogger");
        return Err(format!("logger: {logger} is not supported; accepted: {FILE_LOGGER}"));
    }
    config.auditing = options;
    Ok(())
}

fn apply(options: &mut Auditing, key: &str, value: &Value) -> Result<(), String> {
    let Choice { included, excluded } = match key {
        "included_keyspaces" | "excluded_keyspaces" => &mut options.filter.keyspaces,
        "included_categories" | "excluded_categories" => &mut options.filter.categories,
        "included_users" | "excluded_users" => &mut options.filter.users,
        _ => return apply_other(options, key, value),
    };
    let names = names(value)?;
    if key.ends_with("_categories") {
        check_categories(&names)?;
    }
    *(if key.starts_with("included") { included } else { excluded }) = names;
    Ok(())
}

fn apply_other(options: &mut Auditing, key: &str, value: &Value) -> Result<(), String> {
    match key {
        "enabled" => options.enabled = boolean(value)?,
        "audit_logs_dir" => options.directory = Some(PathBuf::from(text(value)?)),
        "block" => options.waits = boolean(value)?,
        "max_queue_weight" => options.queue_bytes_max = number(value)?,
        "max_log_size" => options.size_bytes_max = number(value)?,
        "roll_cycle" => options.roll_cycle = roll_cycle(&text(value)?)?,
        "archive_command" if scalar(value).is_none_or(|command| !command.is_empty()) => {
            return Err("is not supported: files that are full are kept, and the oldest are removed".to_owned());
        }
        "allow_nodetool_archive_command" if boolean(value)? => return Err("true is not supported".to_owned()),
        // These are about the command that is not supported.
        "archive_command" | "allow_nodetool_archive_command" | "max_archive_retries" => {}
        _ => return Err("is no key of audit_logging_options".to_owned()),
    }
    Ok(())
}

/// Names, which are separated by commas.
fn names(value: &Value) -> Result<BTreeSet<String>, String> {
    Ok(text(value)?.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect())
}

fn check_categories(names: &BTreeSet<String>) -> Result<(), String> {
    let known = Category::ALL.map(Category::name);
    match names.iter().find(|name| !known.contains(&&***name)) {
        Some(name) => Err(format!("category {name} not found in {}", known.join(", "))),
        None => Ok(()),
    }
}

fn roll_cycle(name: &str) -> Result<RollCycle, String> {
    match name.to_uppercase().as_str() {
        "MINUTELY" => Ok(RollCycle::Minutely),
        "HOURLY" | "FAST_HOURLY" | "LARGE_HOURLY" => Ok(RollCycle::Hourly),
        "DAILY" | "FAST_DAILY" | "LARGE_DAILY" | "XLARGE_DAILY" | "HUGE_DAILY" => Ok(RollCycle::Daily),
        _ => Err(format!("{name} is not supported; accepted: MINUTELY, HOURLY, DAILY")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(text: &str) -> Result<Auditing, String> {
        let mut config = Config::default();
        config.apply_file(text).map(|()| config.auditing)
    }

    #[test]
    fn the_section_of_a_stock_file_is_accepted() {
        let stock = "audit_logging_options:\n  enabled: false\n  logger:\n    - class_name: BinAuditLogger\n";
        assert_eq!(load(stock), Ok(Auditing::default()));
    }

    #[test]
    fn all_keys_of_the_file_logger_are_in_force() {
        let text = "audit_logging_options:\n  enabled: true\n  logger:\n    - class_name: FileAuditLogger\n  \
                    audit_logs_dir: /a\n  included_categories: DDL,DCL\n  excluded_keyspaces: k\n  included_users: ada\n  \
                    roll_cycle: DAILY\n  block: false\n  max_queue_weight: 1000\n  max_log_size: 2000\n  archive_command: ''\n";
        let options = load(text).unwrap();
        let set = |names: &[&str]| -> BTreeSet<String> { names.iter().map(|name| (*name).to_owned()).collect() };
        assert!(options.enabled && !options.waits);
        assert_eq!(options.directory, Some(PathBuf::from("/a")));
        assert_eq!(options.filter.categories.included, set(&["DDL", "DCL"]));
        assert_eq!(options.filter.keyspaces.excluded, set(&["k"]));
        assert_eq!(options.filter.users.included, set(&["ada"]));
        assert_eq!((options.queue_bytes_max, options.size_bytes_max), (1000, 2000));
        assert_eq!(options.roll_cycle, RollCycle::Daily);
    }

    #[test]
    fn what_is_missing_is_refused_by_name() {
        let enabled = |rest: &str| load(&format!("audit_logging_options:\n  enabled: true\n{rest}")).unwrap_err();
        assert!(enabled("").contains("BinAuditLogger is not supported; accepted: FileAuditLogger"));
        let with = |rest: &str| enabled(&format!("  logger: FileAuditLogger\n{rest}"));
        assert!(with("  included_categories: DDL,FOO\n").contains("category FOO not found in QUERY, DML"));
        assert!(with("  roll_cycle: WEEKLY\n").contains("accepted: MINUTELY, HOURLY, DAILY"));
        assert!(with("  archive_command: /bin/mv %path /a\n").contains("archive_command"));
        assert!(with("  audit_log_dir: /a\n").contains("is no key of audit_logging_options"));
    }
}
