//! `audit_logging_options` and `full_query_logging_options`: their keys, and which of their values are accepted. The
//! verbs that turn these logs on have the same options.

use super::Config;
use super::units::{boolean, class_name, number, scalar, text};
use crate::request_logs::{Auditing, FileOptions, FullQueryLogging, Kind, RollCycle};
use query::{AuditFilter, Category, Choice};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// The logger that is supported. Cassandra's default is its binary one.
const FILE_LOGGER: &str = "FileAuditLogger";

/// The keys of `audit_logging_options`, without those of files.
pub(super) const AUDIT_KEYS: &[&str] = &[
    "enabled",
    "logger",
    "audit_logs_dir",
    "included_keyspaces",
    "excluded_keyspaces",
    "included_categories",
    "excluded_categories",
    "included_users",
    "excluded_users",
];

/// The keys of `full_query_logging_options`, without those of files.
pub(super) const FULL_QUERY_KEYS: &[&str] = &["log_dir"];

/// The keys of both sections, about files.
pub(super) const FILE_KEYS: &[&str] = &[
    "roll_cycle",
    "block",
    "max_queue_weight",
    "max_log_size",
    "archive_command",
    "allow_nodetool_archive_command",
    "max_archive_retries",
];

pub(super) fn audit_logging_options(config: &mut Config, value: &Value) -> Result<(), String> {
    config.auditing = audit_with(Auditing::default(), section(value)?)?;
    Ok(())
}

pub(super) fn full_query_logging_options(config: &mut Config, value: &Value) -> Result<(), String> {
    config.full_query_logging = full_query_with(FullQueryLogging::default(), section(value)?)?;
    Ok(())
}

fn section(value: &Value) -> Result<&Map<String, Value>, String> {
    value.as_object().ok_or_else(|| format!("expected keys and values, got {value}"))
}

/// The options of a verb as a section. Their names are the keys of the configuration.
fn of_verb(options: &BTreeMap<String, String>) -> Map<String, Value> {
    options.iter().map(|(key, value)| (key.clone(), Value::String(value.clone()))).collect()
}

/// The options of `enableauditlog`, on top of those of the configuration.
pub fn audit_of_verb(configured: Auditing, options: &BTreeMap<String, String>) -> Result<Auditing, String> {
    let mut section = of_verb(options);
    section.entry("logger").or_insert_with(|| Value::String(FILE_LOGGER.to_owned()));
    let mut options = audit_with(Auditing { enabled: true, ..configured }, &section)?;
    let AuditFilter { keyspaces, categories, users } = &mut options.filter;
    if keyspaces.excluded.is_empty() {
        // As in Cassandra, also where the configuration excludes none.
        keyspaces.excluded = AuditFilter::default().keyspaces.excluded;
    }
    for Choice { included, excluded } in [keyspaces, categories, users] {
        // What is excluded is not included, which the answer to `getauditlog` shows.
        included.retain(|name| !excluded.contains(name));
    }
    Ok(options)
}

/// The options of `enablefullquerylog`, on top of those of the configuration.
pub fn full_query_of_verb(
    configured: FullQueryLogging,
    options: &BTreeMap<String, String>,
) -> Result<FullQueryLogging, String> {
    full_query_with(configured, &of_verb(options))
}

fn audit_with(mut options: Auditing, section: &Map<String, Value>) -> Result<Auditing, String> {
    let mut logger = None;
    for (key, value) in section.iter().filter(|(_, value)| !value.is_null()) {
        let applied = if key == "logger" {
            class_name(value).map(|class| logger = Some(class))
        } else {
            apply_audit(&mut options, key, value)
        };
        applied.map_err(|error| format!("{key}: {error}"))?;
    }
    if options.enabled && logger.as_deref() != Some(FILE_LOGGER) {
        let logger = logger.as_deref().unwrap_or("BinAuditLogger");
        return Err(format!("logger: {logger} is not supported; accepted: {FILE_LOGGER}"));
    }
    Ok(options)
}

fn full_query_with(mut options: FullQueryLogging, section: &Map<String, Value>) -> Result<FullQueryLogging, String> {
    for (key, value) in section.iter().filter(|(_, value)| !value.is_null()) {
        let applied = match key.as_str() {
            "log_dir" => directory(value).map(|path| options.directory = path),
            _ => apply_file(&mut options.file, Kind::FullQuery, key, value),
        };
        applied.map_err(|error| format!("{key}: {error}"))?;
    }
    Ok(options)
}

fn apply_audit(options: &mut Auditing, key: &str, value: &Value) -> Result<(), String> {
    let AuditFilter { keyspaces, categories, users } = &mut options.filter;
    let chosen = match key {
        "enabled" => {
            options.enabled = boolean(value)?;
            return Ok(());
        }
        "audit_logs_dir" => {
            options.directory = directory(value)?;
            return Ok(());
        }
        "included_keyspaces" => &mut keyspaces.included,
        "excluded_keyspaces" => &mut keyspaces.excluded,
        "included_categories" => &mut categories.included,
        "excluded_categories" => &mut categories.excluded,
        "included_users" => &mut users.included,
        "excluded_users" => &mut users.excluded,
        _ => return apply_file(&mut options.file, Kind::Audit, key, value),
    };
    // As in Cassandra, an empty text changes nothing.
    if is_blank(value) {
        return Ok(());
    }
    let mut names = names(value)?;
    if key.ends_with("_categories") {
        names = names.iter().map(|name| name.to_uppercase()).collect();
        check_categories(&names)?;
    }
    *chosen = names;
    Ok(())
}

/// Whether a text has no letters.
fn is_blank(value: &Value) -> bool {
    value.as_str().is_some_and(|text| text.trim().is_empty())
}

fn apply_file(options: &mut FileOptions, kind: Kind, key: &str, value: &Value) -> Result<(), String> {
    if !FILE_KEYS.contains(&key) {
        return Err(format!("is no key of {}", kind.option()));
    }
    match key {
        "block" => options.waits = boolean(value)?,
        "max_queue_weight" => options.queue_bytes_max = number(value)?,
        "max_log_size" => options.size_bytes_max = number(value)?,
        "roll_cycle" => options.roll_cycle = roll_cycle(&text(value)?)?,
        "archive_command" if scalar(value).is_none_or(|command| !command.is_empty()) => {
            return Err("is not supported: files that are full are kept, and the oldest are removed".to_owned());
        }
        "allow_nodetool_archive_command" if boolean(value)? => return Err("true is not supported".to_owned()),
        // These are about the command that is not supported.
        _ => {}
    }
    Ok(())
}

/// A directory, which messages and answers show as one line; an empty text stands for none.
fn directory(value: &Value) -> Result<Option<PathBuf>, String> {
    let path = text(value)?;
    match path.contains(char::is_control) {
        true => Err(format!("control characters are not supported in a path, got {path:?}")),
        false => Ok(Some(path).filter(|path| !path.is_empty()).map(PathBuf::from)),
    }
}

/// Names, which are separated by commas and blanks around them.
fn names(value: &Value) -> Result<BTreeSet<String>, String> {
    Ok(text(value)?.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect())
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
        assert!(options.enabled && !options.file.waits);
        assert_eq!(options.directory, Some(PathBuf::from("/a")));
        assert_eq!(options.filter.categories.included, set(&["DDL", "DCL"]));
        assert_eq!(options.filter.keyspaces.excluded, set(&["k"]));
        assert_eq!(options.filter.users.included, set(&["ada"]));
        assert_eq!((options.file.queue_bytes_max, options.file.size_bytes_max), (1000, 2000));
        assert_eq!(options.file.roll_cycle, RollCycle::Daily);
    }

    #[test]
    fn an_empty_list_of_names_in_the_file_is_the_default_and_commas_alone_are_no_name() {
        let excluded = |value: &str| {
            let text = format!("audit_logging_options:\n  excluded_keyspaces: {value}\n");
            load(&text).unwrap().filter.keyspaces.excluded
        };
        assert_eq!(excluded("''"), AuditFilter::default().keyspaces.excluded);
        assert_eq!(excluded("' '"), AuditFilter::default().keyspaces.excluded);
        assert!(excluded("','").is_empty());
        assert_eq!(excluded("' k '"), ["k".to_owned()].into());
    }

    #[test]
    fn unsupported_options_are_refused_by_name() {
        let enabled = |rest: &str| load(&format!("audit_logging_options:\n  enabled: true\n{rest}")).unwrap_err();
        assert!(enabled("").contains("BinAuditLogger is not supported; accepted: FileAuditLogger"));
        let with = |rest: &str| enabled(&format!("  logger: FileAuditLogger\n{rest}"));
        assert!(with("  included_categories: DDL,FOO\n").contains("category FOO not found in QUERY, DML"));
        assert!(with("  roll_cycle: WEEKLY\n").contains("accepted: MINUTELY, HOURLY, DAILY"));
        assert!(with("  archive_command: /bin/mv %path /a\n").contains("archive_command"));
        assert!(
            with("  audit_logs_dir: \"/a\\nb\"\n").contains("audit_logs_dir: control characters are not supported")
        );
        assert!(with("  audit_log_dir: /a\n").contains("is no key of audit_logging_options"));
    }

    #[test]
    fn the_full_query_log_has_a_directory_and_the_same_options_of_files() {
        let load = |text: &str| {
            let mut config = Config::default();
            config.apply_file(text).map(|()| config.full_query_logging)
        };
        assert_eq!(load("full_query_logging_options:\n  log_dir:\n").unwrap(), FullQueryLogging::default());
        let options =
            load("full_query_logging_options:\n  log_dir: /q\n  roll_cycle: MINUTELY\n  block: false\n").unwrap();
        assert_eq!(options.directory, Some(PathBuf::from("/q")));
        assert!(!options.file.waits && options.file.roll_cycle == RollCycle::Minutely);
        let wrong = load("full_query_logging_options:\n  included_users: a\n").unwrap_err();
        assert!(wrong.contains("is no key of full_query_logging_options"), "{wrong}");
    }

    #[test]
    fn verbs_change_the_options_of_the_configuration() {
        let configured = load("audit_logging_options:\n  excluded_users: robot\n  roll_cycle: DAILY\n").unwrap();
        let options = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        let asked = options(&[("included_keyspaces", "a,b"), ("block", "false")]);
        let changed = audit_of_verb(configured.clone(), &asked).unwrap();
        assert!(changed.enabled && !changed.file.waits && changed.file.roll_cycle == RollCycle::Daily);
        assert_eq!(changed.filter.keyspaces.included.len(), 2);
        assert_eq!(changed.filter.users, configured.filter.users);
        // Names are trimmed, categories have any case, and an empty text changes nothing; commas alone are the default.
        let asked = options(&[
            ("excluded_users", " "),
            ("included_users", " ada ,, robot"),
            ("included_categories", "ddl, Dml"),
            ("excluded_keyspaces", ","),
            ("excluded_categories", " , "),
        ]);
        let mut configured = configured;
        configured.filter.categories.excluded = ["DCL".to_owned()].into();
        configured.filter.keyspaces.excluded = ["k".to_owned()].into();
        let changed = audit_of_verb(configured.clone(), &asked).unwrap();
        let set = |names: &[&str]| -> BTreeSet<String> { names.iter().map(|name| (*name).to_owned()).collect() };
        assert_eq!(changed.filter.users, Choice { included: set(&["ada"]), excluded: set(&["robot"]) });
        assert_eq!(changed.filter.categories, Choice { included: set(&["DDL", "DML"]), excluded: set(&[]) });
        assert_eq!(changed.filter.keyspaces, AuditFilter::default().keyspaces);
        configured.filter.keyspaces.excluded = set(&[]);
        let changed = audit_of_verb(configured.clone(), &options(&[])).unwrap();
        assert_eq!(changed.filter.keyspaces, AuditFilter::default().keyspaces);
        let unknown = audit_of_verb(configured.clone(), &options(&[("included_categories", "ddl,foo")])).unwrap_err();
        assert!(unknown.contains("category FOO not found"), "{unknown}");
        let binary = audit_of_verb(configured, &options(&[("logger", "BinAuditLogger")])).unwrap_err();
        assert!(binary.contains("BinAuditLogger is not supported"), "{binary}");
        let path =
            full_query_of_verb(FullQueryLogging::default(), &options(&[("log_dir", "/a\nb\u{1b}")])).unwrap_err();
        assert_eq!(path, "log_dir: control characters are not supported in a path, got \"/a\\nb\\u{1b}\"");
    }
}
