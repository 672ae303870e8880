//! The strategies that tables can name, and the checks of their options, with Cassandra's texts in Cassandra's order.

use std::collections::BTreeMap;

use types::float_text;

use crate::MemoryOnlyOptions;
use crate::numbers::{bytes, double, percent, pretty_bytes};
use crate::options::{OptionError, is_scaling_parameter, scaling_parameters};

type Options = BTreeMap<String, String>;
type Checked = Result<(), OptionError>;

/// A compaction strategy as CQL names it.
pub struct Definition {
    /// Its class, without the package.
    pub name: &'static str,
    /// Whether `min_threshold` and `max_threshold` are options of it, with defaults that are stored.
    pub has_thresholds: bool,
    sub_options: &'static [&'static str],
    /// The sub-options without effect here, with the value that has no effect in Cassandra either (`""` if there is
    /// none).
    without_effect: &'static [(&'static str, &'static str)],
    check: fn(&Options) -> Checked,
}

/// Sub-options that every strategy has.
const COMMON: &[&str] = &[
    "enabled",
    "log_all",
    "only_purge_repaired_tombstones",
    "provide_overlapping_tombstones",
    "tombstone_compaction_interval",
    "tombstone_threshold",
    "unchecked_tombstone_compaction",
];
const THRESHOLDS: &[&str] = &["min_threshold", "max_threshold"];
/// The same for every strategy, as in `Definition::without_effect`.
const COMMON_WITHOUT_EFFECT: &[(&str, &str)] = &[("log_all", "false"), ("provide_overlapping_tombstones", "none")];

const DEFINITIONS: &[Definition] = &[
    Definition {
        name: "UnifiedCompactionStrategy",
        has_thresholds: false,
        sub_options: &[
            "base_shard_count",
            "expired_sstable_check_frequency_seconds",
            "flush_size_override",
            "max_sstables_to_compact",
            "min_sstable_size",
            "overlap_inclusion_method",
            "scaling_parameters",
            "sstable_growth",
            "target_sstable_size",
            "unsafe_aggressive_sstable_expiration",
        ],
        without_effect: &[
            ("expired_sstable_check_frequency_seconds", "600"),
            ("overlap_inclusion_method", "transitive"),
        ],
        check: unified,
    },
    Definition {
        name: "TimeWindowCompactionStrategy",
        has_thresholds: true,
        sub_options: &[
            "bucket_high",
            "bucket_low",
            "compaction_window_size",
            "compaction_window_unit",
            "expired_sstable_check_frequency_seconds",
            "min_sstable_size",
            "timestamp_resolution",
            "unsafe_aggressive_sstable_expiration",
        ],
        without_effect: &[("expired_sstable_check_frequency_seconds", "600")],
        check: time_window,
    },
    Definition {
        name: "SizeTieredCompactionStrategy",
        has_thresholds: true,
        sub_options: &["bucket_high", "bucket_low", "min_sstable_size"],
        without_effect: &[("bucket_high", "1.5"), ("bucket_low", "0.5"), ("min_sstable_size", "52428800")],
        check: size_tiered,
    },
    Definition {
        name: "LeveledCompactionStrategy",
        has_thresholds: true,
        sub_options: &[
            "bucket_high",
            "bucket_low",
            "fanout_size",
            "min_sstable_size",
            "single_sstable_uplevel",
            "sstable_size_in_mb",
        ],
        without_effect: &[
            ("bucket_high", "1.5"),
            ("bucket_low", "0.5"),
            ("max_threshold", "32"),
            ("min_sstable_size", "52428800"),
            ("min_threshold", "4"),
            ("single_sstable_uplevel", ""),
        ],
        check: leveled,
    },
    Definition {
        name: "MemoryOnlyStrategy",
        has_thresholds: false,
        sub_options: &["size_limit_in_mb"],
        without_effect: &[],
        check: |options| MemoryOnlyOptions::from_options(options).map(|_| ()),
    },
];

impl Definition {
    /// The strategy of a class, named without its package.
    pub fn named(name: &str) -> Option<&'static Definition> {
        DEFINITIONS.iter().find(|definition| definition.name == name)
    }

    /// Fails where Cassandra does. `class` is not among the options; the thresholds are, if the strategy has any.
    pub fn check(&self, options: &Options) -> Checked {
        overlapping_tombstones(options)?;
        common(options)?;
        (self.check)(options)?;
        let unknown: Vec<&str> = options.keys().map(String::as_str).filter(|name| !self.has(name)).collect();
        if !unknown.is_empty() {
            return fail(format!("Properties specified [{}] are not understood by {}", unknown.join(", "), self.name));
        }
        if self.has_thresholds { thresholds(options) } else { Ok(()) }
    }

    /// The options whose values would have an effect in Cassandra and have none here.
    pub fn without_effect(&self, options: &Options) -> Vec<&'static str> {
        let known = COMMON_WITHOUT_EFFECT.iter().chain(self.without_effect);
        let acts = |(name, inert): &&(&str, &str)| {
            given(options, name).is_some_and(|text| inert.is_empty() || !text.eq_ignore_ascii_case(inert))
        };
        known.filter(acts).map(|(name, _)| *name).collect()
    }

    fn has(&self, name: &str) -> bool {
        self.sub_options.contains(&name)
            || COMMON.contains(&name)
            || (self.has_thresholds && THRESHOLDS.contains(&name))
    }
}

fn fail(message: impl Into<String>) -> Checked {
    Err(OptionError(message.into()))
}

fn given<'a>(options: &'a Options, name: &str) -> Option<&'a str> {
    options.get(name).map(String::as_str)
}

/// Parses an option's number. The error has the text that Cassandra uses for most options.
fn integer<N: std::str::FromStr>(options: &Options, name: &str) -> Result<Option<N>, OptionError> {
    let parse = |text: &str| text.parse().map_err(|_| no_integer(text, name));
    given(options, name).map(parse).transpose()
}

fn no_integer(text: &str, name: &str) -> OptionError {
    OptionError(format!("{text} is not a parsable int (base10) for {name}"))
}

fn is_flag(text: &str) -> bool {
    text.eq_ignore_ascii_case("true") || text.eq_ignore_ascii_case("false")
}

fn flag(options: &Options, name: &str, wrong: impl FnOnce(&str) -> String) -> Checked {
    match given(options, name) {
        Some(text) if !is_flag(text) => fail(wrong(text)),
        _ => Ok(()),
    }
}

fn overlapping_tombstones(options: &Options) -> Checked {
    let Some(text) = given(options, "provide_overlapping_tombstones").map(str::to_uppercase) else { return Ok(()) };
    match text.as_str() {
        "NONE" | "ROW" | "CELL" => Ok(()),
        _ => fail(format!(
            "Invalid value {text} for 'provide_overlapping_tombstones' compaction sub-option - must be one of the following [NONE, ROW, CELL]."
        )),
    }
}

fn common(options: &Options) -> Checked {
    if let Some(text) = given(options, "tombstone_threshold") {
        let threshold = double(text).ok_or_else(|| no_integer(text, "tombstone_threshold"))? as f32;
        if threshold < 0.0 {
            return fail(format!("tombstone_threshold must be greater than 0, but was {threshold:.6}"));
        }
    }
    if let Some(interval) = integer::<i64>(options, "tombstone_compaction_interval")?.filter(|interval| *interval < 0) {
        return fail(format!("tombstone_compaction_interval must be greater than 0, but was {interval}"));
    }
    flag(options, "unchecked_tombstone_compaction", |text| {
        format!("'unchecked_tombstone_compaction' should be either 'true' or 'false', not '{text}'")
    })?;
    flag(options, "log_all", |text| format!("'log_all' should either be 'true' or 'false', not {text}"))?;
    flag(options, "enabled", |text| format!("enabled should either be 'true' or 'false', not {text}"))
}

const MIB: i64 = 1 << 20;
const DEFAULT_TARGET_SSTABLE_SIZE: i64 = 1024 * MIB;

fn unified(options: &Options) -> Checked {
    if let Some(text) = given(options, "scaling_parameters") {
        scaling_parameters(text).try_for_each(scaling_parameter)?;
    }
    let positive = |name: &str, number: i64| match number {
        1.. => Ok(()),
        _ => fail(format!("Invalid configuration, {name} should be positive: {number}")),
    };
    if let Some(count) = integer::<i32>(options, "base_shard_count")? {
        positive("base_shard_count", count.into())?;
    }
    let target_bytes = target_sstable_size(options)?;
    flush_size_override(options)?;
    integer::<i32>(options, "max_sstables_to_compact")?;
    let frequency = "expired_sstable_check_frequency_seconds";
    if let Some(text) = given(options, frequency) {
        let no_long = |_| OptionError(format!("{text} is not a parsable long (base10) for {frequency}"));
        positive(frequency, text.parse().map_err(no_long)?)?;
    }
    let unsafe_expiration = "unsafe_aggressive_sstable_expiration";
    flag(options, unsafe_expiration, |text| {
        format!("{unsafe_expiration} should either be 'true' or 'false', not {text}")
    })?;
    overlap_inclusion_method(options)?;
    min_sstable_size(options, target_bytes)?;
    sstable_growth(options)
}

fn scaling_parameter(text: &str) -> Checked {
    let fanout = text.strip_prefix(['L', 'T']);
    if !is_scaling_parameter(text) {
        return fail(format!("Scaling parameter {text} must match N|L[0-9]+|T[0-9]+|[+-]?[0-9]+"));
    }
    match fanout.map(str::parse::<i32>) {
        Some(Ok(..2)) => fail(format!("Fan factor cannot be lower than 2 in {text}")),
        _ => Ok(()),
    }
}

fn target_sstable_size(options: &Options) -> Result<i64, OptionError> {
    let name = "target_sstable_size";
    let Some(text) = given(options, name) else { return Ok(DEFAULT_TARGET_SSTABLE_SIZE) };
    let size = bytes(text).map_err(|why| OptionError(format!("{name} {text} is not a valid size in bytes: {why}")))?;
    if size >= i64::MAX as f64 {
        return Err(OptionError(format!("{name} {text} is out of range of Long.")));
    }
    if size < MIB as f64 {
        return Err(OptionError(too_small(name, text)));
    }
    Ok(size.ceil() as i64)
}

fn too_small(name: &str, text: &str) -> String {
    format!("{name} {text} is not acceptable, size must be at least {}", pretty_bytes(MIB))
}

fn flush_size_override(options: &Options) -> Checked {
    let name = "flush_size_override";
    let Some(text) = given(options, name) else { return Ok(()) };
    let size = bytes(text).map_err(|why| OptionError(format!("{name} {text} is not a valid size in bytes: {why}")))?;
    if (size as i64) < MIB { fail(too_small(name, text)) } else { Ok(()) }
}

fn overlap_inclusion_method(options: &Options) -> Checked {
    match given(options, "overlap_inclusion_method") {
        Some(text) if !["NONE", "SINGLE", "TRANSITIVE"].contains(&text.to_uppercase().as_str()) => {
            fail(format!("Invalid overlap inclusion method {text}. The valid options are [NONE, SINGLE, TRANSITIVE]."))
        }
        _ => Ok(()),
    }
}

fn min_sstable_size(options: &Options, target_bytes: i64) -> Checked {
    let name = "min_sstable_size";
    let Some(text) = given(options, name) else { return Ok(()) };
    let size = bytes(text).map_err(|_| OptionError(format!("{text} is not a valid size in bytes for {name}")))? as i64;
    if size < 0 {
        return fail(format!("Invalid configuration, {name} should be greater than or equal to 0 (zero)"));
    }
    if size >= (target_bytes as f64 * 0.5_f64.sqrt()).ceil() as i64 {
        return fail(format!(
            "Invalid configuration, {name} ({}) should be less than 70% of the targetSSTableSize ({})",
            pretty_bytes(size),
            pretty_bytes(target_bytes)
        ));
    }
    Ok(())
}

fn sstable_growth(options: &Options) -> Checked {
    let name = "sstable_growth";
    let Some(text) = given(options, name) else { return Ok(()) };
    let growth =
        percent(text).map_err(|why| OptionError(format!("{name} is not a valid number between 0 and 1: {why}")))?;
    if !(0.0..=1.0).contains(&growth) && !growth.is_nan() {
        return fail(format!("{name} {text} must be between 0 and 1"));
    }
    Ok(())
}

fn time_window(options: &Options) -> Checked {
    let one_of = |name: &str, valid: &[&str]| match given(options, name) {
        Some(text) if !valid.contains(&text) => fail(format!("{text} is not valid for {name}")),
        _ => Ok(()),
    };
    one_of("timestamp_resolution", &["SECONDS", "MILLISECONDS", "MICROSECONDS", "NANOSECONDS"])?;
    one_of("compaction_window_unit", &["MINUTES", "HOURS", "DAYS"])?;
    if let Some(size) = integer::<i32>(options, "compaction_window_size")?.filter(|size| *size < 1) {
        return fail(format!("{size} must be greater than 1 for compaction_window_size"));
    }
    let frequency = "expired_sstable_check_frequency_seconds";
    if let Some(seconds) = integer::<i64>(options, frequency)?.filter(|seconds| *seconds < 0) {
        return fail(format!("{frequency} must not be negative, but was {seconds}"));
    }
    let unsafe_expiration = "unsafe_aggressive_sstable_expiration";
    flag(options, unsafe_expiration, |text| format!("{unsafe_expiration} is not 'true' or 'false' ({text})"))?;
    size_tiered(options)
}

fn size_tiered(options: &Options) -> Checked {
    if let Some(size) = integer::<i64>(options, "min_sstable_size")?.filter(|size| *size < 0) {
        return fail(format!("min_sstable_size must be non negative: {size}"));
    }
    let bucket = |name: &str, default: f64| match given(options, name) {
        Some(text) => double(text).ok_or_else(|| OptionError(format!("{text} is not a parsable float for {name}"))),
        None => Ok(default),
    };
    let (low, high) = (bucket("bucket_low", 0.5)?, bucket("bucket_high", 1.5)?);
    if high <= low {
        let (high, low) = (float_text::double(high), float_text::double(low));
        return fail(format!("bucket_high value ({high}) is less than or equal to the bucket_low value ({low})"));
    }
    Ok(())
}

/// The levels of leveled compaction beyond the first.
const LEVELS: usize = 8;

fn leveled(options: &Options) -> Checked {
    let at_least_1 = |name: &str, default: i32| match integer::<i32>(options, name)? {
        Some(number @ ..1) => Err(OptionError(format!("{name} must be larger than 0, but was {number}"))),
        number => Ok(number.unwrap_or(default)),
    };
    let megabytes = at_least_1("sstable_size_in_mb", 1)?;
    let fanout = at_least_1("fanout_size", 10)?;
    let last_level_bytes = product(i64::from(megabytes) * MIB, &[fanout; LEVELS]);
    let most = i64::MAX.to_string();
    if (last_level_bytes.len(), last_level_bytes.as_str()) > (most.len(), most.as_str()) {
        return fail(format!(
            "At most {most} bytes may be in a compaction level; your maxSSTableSize must be absurdly high to compute {last_level_bytes}"
        ));
    }
    size_tiered(options)
}

/// A product that may exceed all integer types, in decimal digits.
fn product(first: i64, factors: &[i32]) -> String {
    let mut digits: Vec<u8> = first.to_string().bytes().rev().map(|digit| digit - b'0').collect();
    for factor in factors {
        let mut carry = 0_u64;
        for digit in &mut digits {
            carry += u64::from(*digit) * factor.unsigned_abs() as u64;
            *digit = (carry % 10) as u8;
            carry /= 10;
        }
        while carry > 0 {
            digits.push((carry % 10) as u8);
            carry /= 10;
        }
    }
    digits.iter().rev().map(|digit| char::from(b'0' + digit)).collect()
}

fn thresholds(options: &Options) -> Checked {
    let threshold = |name: &str| -> Result<i32, OptionError> {
        let text = given(options, name).unwrap_or_default();
        let wrong =
            || OptionError(format!("Invalid value {text} for '{name}' compaction sub-option - must be an integer"));
        let digits = Some(text).filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
        digits.and_then(|digits| digits.parse().ok()).ok_or_else(wrong)
    };
    let (least, most) = (threshold("min_threshold")?, threshold("max_threshold")?);
    if least <= 0 || most <= 0 {
        return fail(
            "Disabling compaction by setting compaction thresholds to 0 has been removed, set the compaction option 'enabled' to false instead.",
        );
    }
    if least < 2 {
        return fail(format!("Min compaction threshold cannot be less than 2 (got {least})"));
    }
    if least > most {
        return fail(format!(
            "Min compaction threshold (got {least}) cannot be greater than max compaction threshold (got {most})"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Strategy, TombstoneOptions};

    const DEFAULT_THRESHOLDS: [(&str, &str); 2] = [("min_threshold", "4"), ("max_threshold", "32")];

    fn options(definition: &Definition, name: &str, value: &str) -> Options {
        let defaults = if definition.has_thresholds { &DEFAULT_THRESHOLDS[..] } else { &[] };
        let pairs = defaults.iter().copied().chain([(name, value)]);
        pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    /// Cassandra 5.0.8's answers; `proof/errors` has more.
    #[test]
    fn cassandras_refusals_have_the_same_text() {
        let refused = |strategy: &str, name: &str, value: &str, message: &str| {
            let definition = Definition::named(strategy).unwrap();
            let error = definition.check(&options(definition, name, value)).unwrap_err();
            assert_eq!(error.0, message, "{strategy} {name} {value}");
        };
        let unified = "UnifiedCompactionStrategy";
        refused(unified, "tombstone_threshold", "-1", "tombstone_threshold must be greater than 0, but was -1.000000");
        refused(unified, "scaling_parameters", "T4,L1", "Fan factor cannot be lower than 2 in L1");
        refused(
            unified,
            "target_sstable_size",
            "0x10MiB",
            "target_sstable_size 0x10MiB is not a valid size in bytes: Unexpected characters between pos 1 and 6 in 0x10MiB",
        );
        refused(
            unified,
            "min_sstable_size",
            "800MiB",
            "Invalid configuration, min_sstable_size (800.000MiB) should be less than 70% of the targetSSTableSize (1.000GiB)",
        );
        refused(unified, "sstable_growth", "%", "sstable_growth is not a valid number between 0 and 1: empty String");
        refused(
            unified,
            "min_threshold",
            "4",
            "Properties specified [min_threshold] are not understood by UnifiedCompactionStrategy",
        );
        refused(
            "SizeTieredCompactionStrategy",
            "bucket_low",
            "2",
            "bucket_high value (1.5) is less than or equal to the bucket_low value (2.0)",
        );
        refused(
            "LeveledCompactionStrategy",
            "fanout_size",
            "60",
            "At most 9223372036854775807 bytes may be in a compaction level; your maxSSTableSize must be absurdly high to compute 176120502681600000000",
        );
        refused(
            "TimeWindowCompactionStrategy",
            "compaction_window_unit",
            "days",
            "days is not valid for compaction_window_unit",
        );
    }

    #[test]
    fn options_that_cassandra_accepts_take_effect() {
        let taken = |strategy: &str, name: &str, value: &str| {
            let definition = Definition::named(strategy).unwrap();
            let mut options = options(definition, name, value);
            definition.check(&options).unwrap();
            TombstoneOptions::from_options(&options).unwrap();
            options.insert("class".into(), strategy.into());
            Strategy::from_options(&options).unwrap()
        };
        let unified = |name, value| match taken("UnifiedCompactionStrategy", name, value) {
            Strategy::Unified(options) => options,
            other => panic!("{other:?}"),
        };
        unified("tombstone_threshold", " 0.5f ");
        assert_eq!(unified("scaling_parameters", "N, T4,").scaling_parameters, [0, 2]);
        assert_eq!(unified("max_sstables_to_compact", "-1").max_sstables_to_compact, usize::MAX);
        assert_eq!(unified("sstable_growth", "5 %").sstable_growth, 0.05);
        assert_eq!(unified("target_sstable_size", "4MB").target_sstable_size, 4_000_000);
        taken("LeveledCompactionStrategy", "fanout_size", "1");
        taken("SizeTieredCompactionStrategy", "min_sstable_size", "0");
        taken("TimeWindowCompactionStrategy", "compaction_window_size", "2147483647");
    }
}
