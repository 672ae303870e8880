//! The `compaction` option of a table, read as Cassandra reads it.

use std::collections::BTreeMap;
use std::fmt;

use crate::numbers::{bytes, double, percent};

/// An option that is not valid. The text is for the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionError(pub String);

impl fmt::Display for OptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for OptionError {}

type Options = BTreeMap<String, String>;

/// Options of UnifiedCompactionStrategy.
#[derive(Clone, Debug, PartialEq)]
pub struct UnifiedOptions {
    /// Scaling parameter per level, the last one for all further levels: -8 is `L10`, 0 is `N`, 2 is `T4`.
    pub scaling_parameters: Vec<i32>,
    /// Bytes an SSTable should have.
    pub target_sstable_size: u64,
    /// Output is not split into SSTables smaller than this, bytes.
    pub min_sstable_size: u64,
    /// Shards at low densities.
    pub base_shard_count: u32,
    /// How much of the growth in density goes into larger SSTables rather than more of them, 0 to 1.
    pub sstable_growth: f64,
    /// The most overlapping tables in one merge.
    pub max_sstables_to_compact: usize,
    /// The assumed size of a flush, whatever its real size, bytes.
    pub flush_size_override: Option<u64>,
    /// Drop expired tables even if they overlap others.
    pub unsafe_aggressive_sstable_expiration: bool,
}

const MIB: u64 = 1 << 20;

impl Default for UnifiedOptions {
    fn default() -> Self {
        UnifiedOptions {
            scaling_parameters: vec![2],
            target_sstable_size: 1024 * MIB,
            min_sstable_size: 100 * MIB,
            base_shard_count: 4,
            sstable_growth: 1.0 / 3.0,
            max_sstables_to_compact: usize::MAX,
            flush_size_override: None,
            unsafe_aggressive_sstable_expiration: false,
        }
    }
}

impl UnifiedOptions {
    /// Reads the options of a table.
    pub fn from_options(options: &Options) -> Result<Self, OptionError> {
        let default = UnifiedOptions::default();
        let read = UnifiedOptions {
            scaling_parameters: match options.get("scaling_parameters") {
                Some(text) => scaling_parameters(text).map(scaling_parameter).collect::<Result<_, _>>()?,
                None => default.scaling_parameters,
            },
            target_sstable_size: size(options, "target_sstable_size", default.target_sstable_size)?,
            min_sstable_size: size(options, "min_sstable_size", default.min_sstable_size)?,
            base_shard_count: number(options, "base_shard_count", default.base_shard_count)?.max(1),
            sstable_growth: growth(options, default.sstable_growth)?,
            max_sstables_to_compact: match number::<i32>(options, "max_sstables_to_compact", 0)? {
                ..=0 => usize::MAX,
                most => most as usize,
            },
            flush_size_override: Some(size(options, "flush_size_override", 0)?).filter(|bytes| *bytes > 0),
            unsafe_aggressive_sstable_expiration: flag(options, "unsafe_aggressive_sstable_expiration"),
        };
        if read.target_sstable_size < MIB {
            return Err(OptionError(format!("target_sstable_size {} must be at least 1MiB", read.target_sstable_size)));
        }
        Ok(read)
    }

    /// Size-tiered compaction as unified: tiers of `min_threshold` tables, with at most `max_threshold` in a merge.
    pub fn like_size_tiered(options: &Options) -> Result<Self, OptionError> {
        let threshold: i32 = number(options, "min_threshold", 4)?;
        let scaling_parameters = vec![threshold.max(2) - 2];
        let max_sstables_to_compact = number(options, "max_threshold", 32)?;
        Ok(UnifiedOptions {
            scaling_parameters,
            base_shard_count: 1,
            max_sstables_to_compact,
            ..UnifiedOptions::default()
        })
    }

    /// Leveled compaction as unified: each level is `fanout_size` times as large as the previous one.
    pub fn like_leveled(options: &Options) -> Result<Self, OptionError> {
        let fanout: i32 = number(options, "fanout_size", 10)?;
        let target_sstable_size = number::<u64>(options, "sstable_size_in_mb", 160)?.max(1) * MIB;
        let mut min_sstable_size = UnifiedOptions::default().min_sstable_size;
        // It has to be less than 70 % of the target.
        if min_sstable_size * 10 >= target_sstable_size * 7 {
            min_sstable_size = target_sstable_size / 2;
        }
        let scaling_parameters = vec![2 - fanout.max(2)];
        Ok(UnifiedOptions {
            scaling_parameters,
            target_sstable_size,
            min_sstable_size,
            sstable_growth: 0.0,
            ..UnifiedOptions::default()
        })
    }

    fn scaling_parameter(&self, level: usize) -> i32 {
        self.scaling_parameters.get(level).or(self.scaling_parameters.last()).copied().unwrap_or(2)
    }

    /// How many times larger a level is than the previous one.
    pub fn fanout(&self, level: usize) -> u32 {
        2 + self.scaling_parameter(level).unsigned_abs()
    }

    /// How many overlapping tables of a level cause a merge.
    pub fn threshold(&self, level: usize) -> usize {
        match self.scaling_parameter(level) {
            leveled @ ..0 => {
                debug_assert!(leveled < 0);
                2
            }
            tiered => 2 + tiered as usize,
        }
    }
}

/// The parts of `scaling_parameters`, without the empty ones at the end.
pub(crate) fn scaling_parameters(text: &str) -> impl Iterator<Item = &str> {
    let end = text.trim_end_matches(',').len();
    text[..if text.is_empty() { 0 } else { end.max(1) }].split(',').map(str::trim)
}

/// Whether a text has one of the forms of scaling parameters.
pub(crate) fn is_scaling_parameter(text: &str) -> bool {
    let digits = text.strip_prefix(['L', 'T', '+', '-']).unwrap_or(text);
    text == "N" || (!digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()))
}

/// `T4`, `L10`, `N`, or a number.
fn scaling_parameter(text: &str) -> Result<i32, OptionError> {
    let wrong = || OptionError(format!("Scaling parameter {text} must match N, L[2+], T[2+], or [-]number"));
    let of_fanout = |digits: &str| digits.parse::<i32>().ok().filter(|fanout| (2..1 << 20).contains(fanout));
    match text.split_at_checked(1).filter(|_| is_scaling_parameter(text)) {
        Some(("N", _)) => Ok(0),
        Some(("L", digits)) => of_fanout(digits).map(|fanout| 2 - fanout).ok_or_else(wrong),
        Some(("T", digits)) => of_fanout(digits).map(|fanout| fanout - 2).ok_or_else(wrong),
        _ => text.parse::<i32>().ok().filter(|number| number.abs() < 1 << 20).ok_or_else(wrong),
    }
}

fn growth(options: &Options, default: f64) -> Result<f64, OptionError> {
    let Some(text) = options.get("sstable_growth") else { return Ok(default) };
    let wrong = || OptionError(format!("sstable_growth {text} must be between 0 and 1"));
    percent(text).ok().filter(|value| (0.0..=1.0).contains(value)).ok_or_else(wrong)
}

/// A size in bytes, with its unit.
fn size(options: &Options, name: &str, default: u64) -> Result<u64, OptionError> {
    let Some(text) = options.get(name) else { return Ok(default) };
    let wrong = || OptionError(format!("{name} {text} is not a valid size"));
    bytes(text).ok().filter(|size| (0.0..i64::MAX as f64).contains(size)).map(|size| size as u64).ok_or_else(wrong)
}

fn number<N: std::str::FromStr>(options: &Options, name: &str, default: N) -> Result<N, OptionError> {
    match options.get(name) {
        None => Ok(default),
        Some(text) => text.parse().map_err(|_| OptionError(format!("{name} {text} is not a parsable number"))),
    }
}

pub(crate) fn flag(options: &Options, name: &str) -> bool {
    options.get(name).is_some_and(|text| text.eq_ignore_ascii_case("true"))
}

/// When a table is compacted alone because of its tombstones.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TombstoneOptions {
    /// Whether this is enabled at all. For a TimeWindowCompactionStrategy, whose tables are dropped when everything in
    /// them has expired, it is only if one of these options is set.
    pub enabled: bool,
    /// The share of a table's cells that must be droppable.
    pub threshold: f64,
    /// How old a table must be, seconds.
    pub interval_seconds: u64,
    /// Whether to try tables whose tombstones other tables may need.
    pub unchecked: bool,
}

impl TombstoneOptions {
    /// Reads the options of a table.
    pub fn from_options(options: &Options) -> Result<Self, OptionError> {
        let is_set = |name: &&str| options.get(*name).is_some_and(|text| text != "false");
        let waits_to_expire = options.get("class").is_some_and(|class| class.ends_with("TimeWindowCompactionStrategy"));
        Ok(TombstoneOptions {
            enabled: !waits_to_expire || TOMBSTONE_OPTIONS.iter().any(is_set),
            threshold: float(options, "tombstone_threshold", 0.2)?,
            interval_seconds: number(options, "tombstone_compaction_interval", 86_400)?,
            unchecked: flag(options, "unchecked_tombstone_compaction"),
        })
    }
}

const TOMBSTONE_OPTIONS: [&str; 3] =
    ["unchecked_tombstone_compaction", "tombstone_compaction_interval", "tombstone_threshold"];

fn float(options: &Options, name: &str, default: f64) -> Result<f64, OptionError> {
    let Some(text) = options.get(name) else { return Ok(default) };
    double(text).ok_or_else(|| OptionError(format!("{name} {text} is not a parsable number")))
}

/// When tables count as similar in size, and when they are merged.
#[derive(Clone, Debug, PartialEq)]
pub struct SizeTieredOptions {
    /// The number of similar tables that causes a merge.
    pub min_threshold: usize,
    /// The most tables in one merge.
    pub max_threshold: usize,
    /// A table is similar to others if it is larger than this part of their mean size,
    pub bucket_low: f64,
    /// and smaller than this many times the mean;
    pub bucket_high: f64,
    /// or if it and the mean are both smaller than this, bytes.
    pub min_sstable_size: u64,
}

impl SizeTieredOptions {
    /// Reads the options of a table.
    pub fn from_options(options: &Options) -> Result<Self, OptionError> {
        Ok(SizeTieredOptions {
            min_threshold: number(options, "min_threshold", 4_usize)?.max(2),
            max_threshold: number(options, "max_threshold", 32_usize)?.max(2),
            bucket_low: float(options, "bucket_low", 0.5)?,
            bucket_high: float(options, "bucket_high", 1.5)?,
            min_sstable_size: number(options, "min_sstable_size", 50 * MIB)?,
        })
    }
}

/// Options of TimeWindowCompactionStrategy.
#[derive(Clone, Debug, PartialEq)]
pub struct TimeWindowOptions {
    /// Length of a window, microseconds.
    pub window_micros: i64,
    /// How many microseconds one unit of the tables' timestamps is.
    pub timestamp_resolution_micros: f64,
    /// How the current window is merged; the limit on the tables of a merge applies to all windows.
    pub size_tiered: SizeTieredOptions,
    /// Drop expired tables even if they overlap others.
    pub unsafe_aggressive_sstable_expiration: bool,
}

impl TimeWindowOptions {
    /// Reads the options of a table.
    pub fn from_options(options: &Options) -> Result<Self, OptionError> {
        let unit = options.get("compaction_window_unit").map(String::as_str).unwrap_or("DAYS");
        let seconds = match unit {
            "MINUTES" => 60,
            "HOURS" => 3600,
            "DAYS" => 86_400,
            other => return Err(OptionError(format!("{other} is not valid for compaction_window_unit"))),
        };
        let size: i32 = number(options, "compaction_window_size", 1)?;
        if size < 1 {
            return Err(OptionError(format!("{size} must be greater than 1 for compaction_window_size")));
        }
        let resolution = options.get("timestamp_resolution").map(String::as_str).unwrap_or("MICROSECONDS");
        let timestamp_resolution_micros = match resolution {
            "NANOSECONDS" => 0.001,
            "MICROSECONDS" => 1.0,
            "MILLISECONDS" => 1000.0,
            "SECONDS" => 1e6,
            other => return Err(OptionError(format!("timestamp_resolution {other} is not valid"))),
        };
        Ok(TimeWindowOptions {
            window_micros: i64::from(size).saturating_mul(seconds * 1_000_000),
            timestamp_resolution_micros,
            size_tiered: SizeTieredOptions::from_options(options)?,
            unsafe_aggressive_sstable_expiration: flag(options, "unsafe_aggressive_sstable_expiration"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Strategy;

    fn options(pairs: &[(&str, &str)]) -> Options {
        pairs.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect()
    }

    #[test]
    fn scaling_parameters_are_read_in_every_form() {
        let read = UnifiedOptions::from_options(&options(&[("scaling_parameters", "T8, L10,N, -3,2")])).unwrap();
        assert_eq!(read.scaling_parameters, [6, -8, 0, -3, 2]);
        assert_eq!((0..6).map(|level| read.fanout(level)).collect::<Vec<_>>(), [8, 10, 2, 5, 4, 4]);
        assert_eq!((0..6).map(|level| read.threshold(level)).collect::<Vec<_>>(), [8, 2, 2, 2, 4, 4]);
        for wrong in ["", "T1", "L", "X3", "T-4"] {
            assert!(UnifiedOptions::from_options(&options(&[("scaling_parameters", wrong)])).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes_have_units() {
        let read = UnifiedOptions::from_options(&options(&[
            ("target_sstable_size", "1.5GiB"),
            ("min_sstable_size", "0B"),
            ("sstable_growth", "33%"),
        ]));
        let read = read.unwrap();
        assert_eq!((read.target_sstable_size, read.min_sstable_size, read.sstable_growth), (3 << 29, 0, 0.33));
        assert!(UnifiedOptions::from_options(&options(&[("target_sstable_size", "4 potatoes")])).is_err());
    }

    /// The equivalent unified options of a definition of another strategy.
    fn as_unified(pairs: &[(&str, &str)]) -> UnifiedOptions {
        match Strategy::from_options(&options(pairs)).unwrap() {
            Strategy::Unified(unified) => unified,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn size_tiered_becomes_tiers_of_min_threshold_tables() {
        const CLASS: (&str, &str) = ("class", "SizeTieredCompactionStrategy");
        let unified = as_unified(&[CLASS]);
        // As `UnifiedCompactionStrategy` with these.
        const ONE_SHARD: (&str, &str) = ("base_shard_count", "1");
        let same = [("scaling_parameters", "T4"), ONE_SHARD, ("max_sstables_to_compact", "32")];
        assert_eq!(unified, as_unified(&same));
        let eight = as_unified(&[CLASS, ("min_threshold", "8"), ("max_threshold", "64")]);
        let same = [("scaling_parameters", "T8"), ONE_SHARD, ("max_sstables_to_compact", "64")];
        assert_eq!(eight, as_unified(&same));
        assert_eq!((eight.fanout(5), eight.threshold(5)), (8, 8));
        assert_eq!(as_unified(&[CLASS, ("min_threshold", "1")]).threshold(0), 2);
        assert!(Strategy::from_options(&options(&[CLASS, ("min_threshold", "few")])).is_err());
    }

    #[test]
    fn leveled_becomes_levels_of_tables_of_one_size() {
        const CLASS: (&str, &str) = ("class", "org.apache.cassandra.db.compaction.LeveledCompactionStrategy");
        let unified = as_unified(&[CLASS]);
        let same = [("scaling_parameters", "L10"), ("target_sstable_size", "160MiB"), ("sstable_growth", "0")];
        assert_eq!(unified, as_unified(&same));
        assert_eq!((unified.fanout(3), unified.threshold(3)), (10, 2));
        let small = as_unified(&[CLASS, ("fanout_size", "4"), ("sstable_size_in_mb", "20")]);
        let same = [
            ("scaling_parameters", "L4"),
            ("target_sstable_size", "20MiB"),
            ("min_sstable_size", "10MiB"),
            ("sstable_growth", "0"),
        ];
        assert_eq!(small, as_unified(&same));
        // Writing it in this way is accepted.
        let definition = crate::Definition::named("UnifiedCompactionStrategy").unwrap();
        for megabytes in ["1", "20", "142", "143", "160"] {
            let leveled = as_unified(&[CLASS, ("sstable_size_in_mb", megabytes)]);
            let size = |bytes: u64| format!("{bytes}B");
            let (target, least) = (size(leveled.target_sstable_size), size(leveled.min_sstable_size));
            let same = [("target_sstable_size", target.as_str()), ("min_sstable_size", least.as_str())];
            definition.check(&options(&same)).unwrap();
        }
        // However much data there is, an SSTable has about that size.
        let count = crate::shard_count(&small, (20 * 64 * MIB) as f64);
        assert_eq!(count, 64);
        assert!(Strategy::from_options(&options(&[CLASS, ("fanout_size", "")])).is_err());
    }
}
