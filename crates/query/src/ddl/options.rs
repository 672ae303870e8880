//! The options of tables: parsing, checks, and their stored form.

use std::borrow::Cow;
use std::collections::BTreeMap;

use compaction::UnifiedOptions;
use cql::ast::{Properties, PropertyValue};
use model::TableOptions;
use types::float_text;
use uuid::Uuid;

use super::compression::compression;
use super::properties::{boolean, double, integer, map, text};
use crate::execution::Execution;
use crate::guardrail::TABLE_PROPERTIES_KIND;
use crate::modify::TTL_MAX;
use crate::{QueryError, ValueSet};

/// The properties that CREATE TABLE and ALTER TABLE know.
pub const TABLE_PROPERTIES: &[&str] = &[
    "additional_write_policy",
    "allow_auto_snapshot",
    "bloom_filter_fp_chance",
    "caching",
    "cdc",
    "comment",
    "compaction",
    "compression",
    "crc_check_chance",
    "dclocal_read_repair_chance",
    "default_time_to_live",
    "extensions",
    "gc_grace_seconds",
    "id",
    "incremental_backups",
    "max_index_interval",
    "memtable",
    "memtable_flush_period_in_ms",
    "min_index_interval",
    "read_repair",
    "read_repair_chance",
    "speculative_retry",
];

/// Options of Cassandra before 4.0, which published examples still use. They are checked and not kept.
const READ_REPAIR_CHANCES: [&str; 2] = ["dclocal_read_repair_chance", "read_repair_chance"];
/// The meaning of `caching` in Cassandra before 2.1: its keys and rows.
const OLD_CACHING: [(&str, [&str; 2]); 4] = [
    ("ALL", ["ALL", "ALL"]),
    ("KEYS_ONLY", ["ALL", "NONE"]),
    ("ROWS_ONLY", ["NONE", "ALL"]),
    (NO_CACHING, ["NONE"; 2]),
];
/// A value that only tables in memory have.
const NO_CACHING: &str = "NONE";

/// The smallest chance that a Bloom filter of the largest size has.
const BLOOM_FILTER_FP_CHANCE_MIN: f64 = 6.71e-5;
/// The default of a table with leveled compaction.
const LEVELED_BLOOM_FILTER_FP_CHANCE: f64 = 0.1;

/// The properties of a statement about a table, without those that the guardrail `table_properties` ignores.
pub(super) fn guarded<'p>(
    properties: &'p Properties,
    execution: &Execution<'_>,
) -> Result<Cow<'p, Properties>, QueryError> {
    let guardrail = &execution.processor.options().guardrails.table_properties;
    if !guardrail.is_set() {
        return Ok(Cow::Borrowed(properties));
    }
    let names = properties.entries.iter().map(|(name, _)| name.as_str());
    // Properties that do not exist are refused elsewhere.
    let provided = ValueSet::of(TABLE_PROPERTIES, names.filter(|name| TABLE_PROPERTIES.contains(name)));
    let ignored = guardrail.check(&TABLE_PROPERTIES_KIND, provided.unwrap_or_default(), execution)?;
    let mut kept = properties.clone();
    kept.entries.retain(|(name, _)| !ignored.contains(TABLE_PROPERTIES, name.as_str()));
    Ok(Cow::Owned(kept))
}

/// Refuses options that do not exist.
pub(super) fn check_known(properties: &Properties) -> Result<(), QueryError> {
    super::properties::check_known(properties, TABLE_PROPERTIES)
}

/// The id that a statement gives the table.
pub(super) fn table_id(properties: &Properties) -> Result<Option<Uuid>, QueryError> {
    let parse = |text: &str| Uuid::parse_str(text).map_err(|_| QueryError::configuration("Invalid table id"));
    text(properties, "id")?.map(parse).transpose()
}

/// The options of a new table. A default that depends on another option uses that option's value.
pub(super) fn parse_new(properties: &Properties, execution: &Execution<'_>) -> Result<TableOptions, QueryError> {
    let mut options = parse(properties, TableOptions::default(), execution)?;
    let leveled = options.compaction.get("class").is_some_and(|class| class.ends_with("LeveledCompactionStrategy"));
    if leveled && properties.get("bloom_filter_fp_chance").is_none() {
        options.bloom_filter_fp_chance = LEVELED_BLOOM_FILTER_FP_CHANCE;
    }
    Ok(options)
}

/// The options after a statement has changed the old ones.
pub(super) fn parse(
    properties: &Properties,
    before: TableOptions,
    execution: &Execution<'_>,
) -> Result<TableOptions, QueryError> {
    let string = |name: &str, before: String| -> Result<String, QueryError> {
        Ok(text(properties, name)?.map_or(before, str::to_string))
    };
    let number =
        |name: &str, before: i32| -> Result<i32, QueryError> { Ok(integer(properties, name)?.unwrap_or(before)) };
    let fraction =
        |name: &str, before: f64| -> Result<f64, QueryError> { Ok(double(properties, name)?.unwrap_or(before)) };
    let flag =
        |name: &str, before: bool| -> Result<bool, QueryError> { Ok(boolean(properties, name)?.unwrap_or(before)) };
    let retry = |name: &str, before: String| -> Result<String, QueryError> {
        text(properties, name)?.map_or(Ok(before), speculative_retry)
    };
    let options = TableOptions {
        additional_write_policy: retry("additional_write_policy", before.additional_write_policy)?,
        bloom_filter_fp_chance: fraction("bloom_filter_fp_chance", before.bloom_filter_fp_chance)?,
        caching: caching_of(properties, &before.compaction, execution)?.map_or(Ok(before.caching), caching)?,
        comment: string("comment", before.comment)?,
        compaction: map(properties, "compaction")?.map_or(Ok(before.compaction), compaction)?,
        compression: map(properties, "compression")?.map_or(Ok(before.compression), compression)?,
        memtable: text(properties, "memtable")?.map_or(Ok(before.memtable), |name| memtable(name, execution))?,
        default_time_to_live: number("default_time_to_live", before.default_time_to_live)?,
        gc_grace_seconds: number("gc_grace_seconds", before.gc_grace_seconds)?,
        max_index_interval: number("max_index_interval", before.max_index_interval)?,
        memtable_flush_period_in_ms: number("memtable_flush_period_in_ms", before.memtable_flush_period_in_ms)?,
        min_index_interval: number("min_index_interval", before.min_index_interval)?,
        speculative_retry: retry("speculative_retry", before.speculative_retry)?,
        crc_check_chance: fraction("crc_check_chance", before.crc_check_chance)?,
        cdc: flag("cdc", before.cdc)?,
        read_repair: text(properties, "read_repair")?.map_or(Ok(before.read_repair), read_repair)?,
        allow_auto_snapshot: flag("allow_auto_snapshot", before.allow_auto_snapshot)?,
        incremental_backups: flag("incremental_backups", before.incremental_backups)?,
        extensions: before.extensions,
    };
    // DESCRIBE prints this option, empty, for every table.
    if super::properties::map(properties, "extensions")?.is_some_and(|extensions| !extensions.is_empty()) {
        return Err(QueryError::not_supported("the table option 'extensions'"));
    }
    if options.cdc {
        execution.warn("cdc is stored but has no effect: this node writes no change-data-capture log");
    }
    take_read_repair_chances(properties, execution)?;
    validate(&options)?;
    if super::properties::map(properties, "compaction")?.is_some() {
        warn_of_compaction(&options, execution);
    }
    Ok(options)
}

/// Warns if a strategy is replaced by another, and about options without effect.
fn warn_of_compaction(options: &TableOptions, execution: &Execution<'_>) {
    let class = options.compaction.get("class").map_or("", String::as_str).trim_start_matches(COMPACTION_PACKAGE);
    let set = |name: &str, default: &'static str| options.compaction.get(name).map_or(default, String::as_str);
    let equivalent = match class {
        "SizeTieredCompactionStrategy" => Some(format!(
            "scaling_parameters T{}, base_shard_count 1, max_sstables_to_compact {}",
            set("min_threshold", "4"),
            set("max_threshold", "32")
        )),
        "LeveledCompactionStrategy" => Some(format!(
            "scaling_parameters L{}, target_sstable_size {}MiB, {}sstable_growth 0",
            if set("fanout_size", "10") == "1" { "2" } else { set("fanout_size", "10") },
            set("sstable_size_in_mb", "160"),
            min_sstable_size_of_leveled(&options.compaction)
        )),
        _ => None,
    };
    if let Some(equivalent) = equivalent {
        execution.warn(format!("{class} is carried out as UnifiedCompactionStrategy with {equivalent}"));
    }
    let without_effect =
        compaction::Definition::named(class).map(|strategy| strategy.without_effect(&options.compaction));
    if let Some(names) = without_effect.filter(|names| !names.is_empty()) {
        execution.warn(format!(
            "compaction sub-options that are stored but have no effect on this node: {}",
            names.join(", ")
        ));
    }
}

/// The `min_sstable_size` of leveled compaction in its unified form, if it differs from unified compaction's default.
fn min_sstable_size_of_leveled(options: &BTreeMap<String, String>) -> String {
    let default = UnifiedOptions::default().min_sstable_size;
    let carried_out = UnifiedOptions::like_leveled(options).map_or(default, |unified| unified.min_sstable_size);
    match carried_out == default {
        true => String::new(),
        false => format!("min_sstable_size {}KiB, ", carried_out >> 10),
    }
}

fn validate(options: &TableOptions) -> Result<(), QueryError> {
    let fail = |message: String| Err(QueryError::configuration(message));
    let chance = options.bloom_filter_fp_chance;
    if !(chance > BLOOM_FILTER_FP_CHANCE_MIN && chance <= 1.0) {
        return fail(format!(
            "bloom_filter_fp_chance must be larger than 6.71E-5 and less than or equal to 1.0 (got {})",
            float_text::double(chance)
        ));
    }
    if !(0.0..=1.0).contains(&options.crc_check_chance) {
        return fail(format!(
            "crc_check_chance must be larger than or equal to 0 and smaller than or equal to 1.0 (got {})",
            float_text::double(options.crc_check_chance)
        ));
    }
    let at_least = |name: &str, value: i32, least: i32| match value >= least {
        true => Ok(()),
        false => fail(format!("{name} must be greater than or equal to {least} (got {value})")),
    };
    at_least("default_time_to_live", options.default_time_to_live, 0)?;
    if options.default_time_to_live > TTL_MAX {
        let ttl = options.default_time_to_live;
        return fail(format!("default_time_to_live must be less than or equal to {TTL_MAX} (got {ttl})"));
    }
    at_least("gc_grace_seconds", options.gc_grace_seconds, 0)?;
    at_least("min_index_interval", options.min_index_interval, 1)?;
    let (least, most) = (options.min_index_interval, options.max_index_interval);
    if most < least {
        return fail(format!(
            "max_index_interval must be greater than or equal to min_index_interval ({least}) (got {most})"
        ));
    }
    at_least("memtable_flush_period_in_ms", options.memtable_flush_period_in_ms, 0)
}

/// A name under `memtable: configurations:` of the node's configuration.
fn memtable(name: &str, execution: &Execution<'_>) -> Result<String, QueryError> {
    match execution.processor.engine().options().memtable_configurations.get(name) {
        Some(Ok(_)) => Ok(name.to_string()),
        Some(Err(why)) => Err(QueryError::configuration(why.clone())),
        None if name == "default" => Ok(name.to_string()),
        None => Err(QueryError::configuration(format!("Memtable configuration \"{name}\" not found."))),
    }
}

fn read_repair(text: &str) -> Result<String, QueryError> {
    let upper = text.to_uppercase();
    match upper.as_str() {
        "BLOCKING" | "NONE" => Ok(upper),
        _ => Err(QueryError::server(format!(
            "java.lang.IllegalArgumentException: No enum constant org.apache.cassandra.service.reads.repair.ReadRepairStrategy.{upper}"
        ))),
    }
}

/// `ALWAYS`, `NEVER`, `99p`, `50ms`, `MIN(99p,50ms)`, `MAX(...)` and their older spellings, in stored form. As in
/// Cassandra, errors of `additional_write_policy` name this option too.
fn speculative_retry(text: &str) -> Result<String, QueryError> {
    let invalid = || QueryError::configuration(format!("Invalid value {text} for option 'speculative_retry'"));
    let upper = text.to_uppercase();
    for hybrid in ["MIN", "MAX"] {
        if let Some(inside) = upper.strip_prefix(hybrid).and_then(|rest| rest.strip_prefix('(')) {
            let parts: Vec<&str> = inside.strip_suffix(')').ok_or_else(invalid)?.split(',').map(str::trim).collect();
            let [first, second] = parts.as_slice() else { return Err(invalid()) };
            let parts = [simple_retry(first).ok_or_else(invalid)?, simple_retry(second).ok_or_else(invalid)?];
            let [first, second] = parts.each_ref().map(|part| if part.ends_with('p') { "PERCENTILE" } else { "FIXED" });
            if first == second {
                return Err(QueryError::configuration(format!(
                    "Invalid value {text} for option 'speculative_retry': MIN()/MAX() arguments should be of different \
                     types, but both are of type {first}"
                )));
            }
            return Ok(format!("{hybrid}({})", parts.join(",")));
        }
    }
    match upper.as_str() {
        "ALWAYS" => Ok(upper),
        "NEVER" | "NONE" => Ok("NEVER".into()),
        _ => simple_retry(&upper).ok_or_else(|| match percentile(&upper) {
            Some(_) => QueryError::configuration(format!(
                "Invalid value {text} for PERCENTILE option 'speculative_retry': must be between (0.0 and 100.0)"
            )),
            None => invalid(),
        }),
    }
}

/// The number in the text of a percentile, which may be out of range; `None` if the text is not a percentile.
fn percentile(upper: &str) -> Option<f64> {
    plain_number(upper.strip_suffix("PERCENTILE").or_else(|| upper.strip_suffix('P'))?)
}

/// A number of digits and points only.
fn plain_number(text: &str) -> Option<f64> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    text.parse().ok().filter(|_| is_plain)
}

fn simple_retry(upper: &str) -> Option<String> {
    if let Some(milliseconds) = upper.strip_suffix("MS") {
        let milliseconds = plain_number(milliseconds)?;
        return Some(format!("{}ms", milliseconds as i64));
    }
    let percentile = percentile(upper).filter(|value| *value > 0.0 && *value < 100.0)?;
    let rounded = (percentile * 10_000.0).round() / 10_000.0;
    Some(format!("{rounded}p"))
}

/// Accepts the old read repair chances, which have no meaning on one node.
fn take_read_repair_chances(properties: &Properties, execution: &Execution<'_>) -> Result<(), QueryError> {
    for name in READ_REPAIR_CHANCES {
        let Some(chance) = double(properties, name)? else { continue };
        if !(0.0..=1.0).contains(&chance) {
            return Err(QueryError::configuration(format!(
                "{name} must be larger than or equal to 0 and smaller than or equal to 1.0 (got {})",
                float_text::double(chance)
            )));
        }
        execution.warn(format!("{name} is an option of Cassandra before 4.0: it is accepted and has no effect"));
    }
    Ok(())
}

/// The `caching` of a statement: a map, or one word as in Cassandra before 2.1. A table in memory may say 'NONE', as in
/// DataStax Enterprise.
fn caching_of(
    properties: &Properties,
    compaction_before: &BTreeMap<String, String>,
    execution: &Execution<'_>,
) -> Result<Option<BTreeMap<String, String>>, QueryError> {
    let Some(PropertyValue::Text(text)) = properties.get("caching") else { return map(properties, "caching") };
    let old = OLD_CACHING.iter().find(|(name, _)| text.eq_ignore_ascii_case(name));
    let Some((name, [keys, rows])) = old else { return map(properties, "caching") };
    let compaction = map(properties, "compaction")?;
    let class = compaction.as_ref().unwrap_or(compaction_before).get("class");
    let is_memory_only = class.is_some_and(|class| class.trim_start_matches(COMPACTION_PACKAGE) == MEMORY_ONLY);
    if *name == NO_CACHING && !is_memory_only {
        return map(properties, "caching");
    }
    if *name != NO_CACHING {
        execution.warn(format!(
            "caching = '{name}' is the form of Cassandra before 2.1; it is taken as {{'keys': '{keys}', 'rows_per_partition': '{rows}'}}"
        ));
    }
    let caching = [("keys", keys), ("rows_per_partition", rows)];
    Ok(Some(caching.map(|(name, value)| (name.to_string(), value.to_string())).into()))
}

fn caching(options: BTreeMap<String, String>) -> Result<BTreeMap<String, String>, QueryError> {
    let fail = |message: String| Err(QueryError::configuration(message));
    let unknown: Vec<&str> =
        options.keys().map(String::as_str).filter(|key| !["keys", "rows_per_partition"].contains(key)).collect();
    if !unknown.is_empty() {
        let unknown = unknown.join(", ");
        return fail(format!(
            "Invalid caching sub-options [{unknown}]: only 'keys' and 'rows_per_partition' are allowed"
        ));
    }
    let value = |name: &str, default: &str| options.get(name).map_or(default.to_string(), |text| text.to_uppercase());
    let (keys, rows) = (value("keys", "ALL"), value("rows_per_partition", "NONE"));
    if !["ALL", "NONE"].contains(&keys.as_str()) {
        let given = options.get("keys").cloned().unwrap_or_default();
        return fail(format!(
            "Invalid value '{given}' for caching sub-option 'keys': only 'ALL' and 'NONE' are allowed"
        ));
    }
    if !["ALL", "NONE"].contains(&rows.as_str()) && rows.parse::<u32>().is_err() {
        let given = options.get("rows_per_partition").cloned().unwrap_or_default();
        return fail(format!(
            "Invalid value '{given}' for caching sub-option 'rows_per_partition': only 'ALL', 'NONE', and integer values are allowed"
        ));
    }
    Ok([("keys".to_string(), keys), ("rows_per_partition".to_string(), rows)].into_iter().collect())
}

const COMPACTION_PACKAGE: &str = "org.apache.cassandra.db.compaction.";
/// The strategy of tables in memory, which Cassandra does not have.
const MEMORY_ONLY: &str = "MemoryOnlyStrategy";

fn compaction(mut options: BTreeMap<String, String>) -> Result<BTreeMap<String, String>, QueryError> {
    let fail = |message: String| Err(QueryError::configuration(message));
    let Some(class) = options.remove("class") else {
        return fail("Missing sub-option 'class' for the 'compaction' option".into());
    };
    let full = if class.contains('.') { class } else { format!("{COMPACTION_PACKAGE}{class}") };
    let Some(definition) = full.strip_prefix(COMPACTION_PACKAGE).and_then(compaction::Definition::named) else {
        return fail(format!("Unable to find compaction strategy class '{full}'"));
    };
    if definition.has_thresholds {
        options.entry("min_threshold".into()).or_insert_with(|| "4".into());
        options.entry("max_threshold".into()).or_insert_with(|| "32".into());
    }
    let invalid = |error: compaction::OptionError| QueryError::configuration(error.to_string());
    definition.check(&options).map_err(invalid)?;
    options.insert("class".into(), full);
    // Options that Cassandra accepts and we cannot execute are refused here, before a compaction fails.
    compaction::Strategy::from_options(&options).map_err(invalid)?;
    compaction::TombstoneOptions::from_options(&options).map_err(invalid)?;
    Ok(options)
}
