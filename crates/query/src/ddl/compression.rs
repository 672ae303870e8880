//! The option `compression` of tables, with Cassandra's checks and texts.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use crate::QueryError;

const COMPRESSION_PACKAGE: &str = "org.apache.cassandra.io.compress.";

/// The levels of Zstd.
const ZSTD_LEVELS: RangeInclusive<i32> = -131_072..=22;
/// The levels of LZ4's slower kind.
const LZ4_HIGH_LEVELS: RangeInclusive<i32> = 1..=17;

/// The sub-options of a compressor beyond the common ones.
fn compressor_sub_options(compressor: &str) -> Option<&'static [&'static str]> {
    Some(match compressor {
        "LZ4Compressor" => &["lz4_compressor_type", "lz4_high_compressor_level"],
        "ZstdCompressor" => &["compression_level"],
        "SnappyCompressor" | "DeflateCompressor" | "NoopCompressor" => &[],
        _ => return None,
    })
}

/// Checks the values of a compressor's own sub-options.
fn check_compressor(compressor: &str, options: &BTreeMap<String, String>) -> Result<(), QueryError> {
    let fail = |message: String| Err(QueryError::configuration(message));
    if let Some(level) = options.get("compression_level").filter(|_| compressor == "ZstdCompressor") {
        let thrown = match level.parse::<i32>() {
            Ok(level) if ZSTD_LEVELS.contains(&level) => return Ok(()),
            Ok(level) => format!("IllegalArgumentException compression_level={level} is invalid"),
            Err(_) => format!("NumberFormatException For input string: \"{level}\""),
        };
        return fail(format!("ZstdCompressor.create() threw an error: java.lang.{thrown}"));
    }
    if compressor != "LZ4Compressor" {
        return Ok(());
    }
    if let Some(kind) = options.get("lz4_compressor_type").filter(|kind| !["high", "fast"].contains(&kind.as_str())) {
        return fail(format!(
            "Invalid compressor type '{kind}' specified for LZ4 parameter 'lz4_compressor_type'. Valid options are \
             [high, fast]."
        ));
    }
    match options.get("lz4_high_compressor_level") {
        Some(level) if !level.parse().is_ok_and(|level| LZ4_HIGH_LEVELS.contains(&level)) => fail(format!(
            "Invalid value [{level}] for parameter 'lz4_high_compressor_level'. Value must be between 1 and 17."
        )),
        _ => Ok(()),
    }
}

/// The `compression` of a table as it is stored.
pub(super) fn compression(mut options: BTreeMap<String, String>) -> Result<BTreeMap<String, String>, QueryError> {
    let fail = |message: String| Err(QueryError::configuration(message));
    let enabled = options.remove("enabled").is_none_or(|text| text.eq_ignore_ascii_case("true"));
    if !enabled || options.is_empty() {
        if !options.is_empty() {
            return fail("If the 'enabled' option is set to false no other options must be specified".into());
        }
        return Ok([("enabled".to_string(), "false".to_string())].into_iter().collect());
    }
    let Some(class) = options.remove("class") else {
        return fail("Missing sub-option 'class' for the 'compression' option.".into());
    };
    let chunk = options.remove("chunk_length_in_kb").unwrap_or_else(|| "16".into());
    let Ok(kilobytes) = chunk.parse::<i32>() else {
        return fail(format!("Invalid value for chunk_length_in_kb: {chunk}"));
    };
    if kilobytes > i32::MAX / 1024 {
        return fail(format!("Value of chunk_length_in_kb is too large ({kilobytes})"));
    }
    let full = if class.contains('.') { class } else { format!("{COMPRESSION_PACKAGE}{class}") };
    let compressor = full.strip_prefix(COMPRESSION_PACKAGE).unwrap_or_default();
    let Some(known) = compressor_sub_options(compressor) else {
        return fail(format!("Could not create Compression for type {full}"));
    };
    check_compressor(compressor, &options)?;
    let is_known = |name: &str| known.contains(&name) || name == "min_compress_ratio";
    if let Some(unknown) = options.keys().find(|name| !is_known(name)) {
        return fail(format!("Unknown compression options {unknown}"));
    }
    if kilobytes <= 0 {
        return fail("Invalid negative or null chunk_length_in_kb".into());
    }
    if !(kilobytes as u32).is_power_of_two() {
        return fail("chunk_length_in_kb must be a power of 2".into());
    }
    if let Some(ratio) = options.get("min_compress_ratio") {
        let ratio: f64 = ratio
            .parse()
            .map_err(|_| QueryError::configuration(format!("Invalid value {ratio} for min_compress_ratio")))?;
        if ratio < 0.0 {
            return fail("Invalid negative min_compress_ratio".into());
        }
        if ratio != 0.0 && ratio < 1.0 {
            return fail("min_compress_ratio can either be 0 or greater than or equal to 1".into());
        }
    }
    options.insert("class".into(), full);
    options.insert("chunk_length_in_kb".into(), kilobytes.to_string());
    Ok(options)
}
