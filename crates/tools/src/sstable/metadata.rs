//! The content of Statistics.db and CompressionInfo.db, in the words of `sstablemetadata`.

use std::io::Write;
use std::path::Path;

use blockio::{Disk, OpenOptions};
use serde_json::{Value, json};
use sstable::{
    CommitLogPosition, Component, CompressionInfo, Descriptor, SSTableError, Statistics, StatsMetadata, read_statistics,
};
use types::CqlType;
use types::text::{Separator, format_timestamp};

use super::{SSTableToolError, hex};
use crate::log::Output;

/// Prints the metadata of an SSTable without reading its data.
pub fn metadata(
    disk: &dyn Disk,
    descriptor: &Descriptor,
    output: Output,
    out: &mut dyn Write,
) -> Result<(), SSTableToolError> {
    let statistics = read_statistics(disk, descriptor)?;
    let fields = fields(disk, descriptor, &statistics)?;
    match output {
        Output::Json => {
            let object: serde_json::Map<String, Value> =
                fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
            writeln!(out, "{}", Value::Object(object))?;
        }
        Output::Text => {
            writeln!(out, "SSTable: {descriptor}")?;
            for (name, value) in fields {
                match value {
                    Value::String(text) => writeln!(out, "{name}: {text}")?,
                    Value::Object(entries) => {
                        writeln!(out, "{name}:")?;
                        for (entry, value) in entries {
                            writeln!(out, "   {entry}: {}", value.as_str().map_or(value.to_string(), str::to_owned))?;
                        }
                    }
                    value => writeln!(out, "{name}: {value}")?,
                }
            }
        }
    }
    Ok(())
}

fn fields(
    disk: &dyn Disk,
    descriptor: &Descriptor,
    statistics: &Statistics,
) -> Result<Vec<(&'static str, Value)>, SSTableToolError> {
    let stats = &statistics.stats;
    let header = &statistics.header;
    let sizes = file_lengths(disk, descriptor)?;
    let compression = compression(disk, descriptor)?;
    let (compressor, chunk_length) = match &compression {
        Some(info) => (info.params.compressor.class().to_owned(), json!(info.params.chunk_length)),
        None => ("-".to_owned(), json!("-")),
    };
    let drop_times: serde_json::Map<String, Value> =
        stats.estimated_tombstone_drop_time.bins.iter().map(|(at, count)| (seconds(*at), json!(count))).collect();
    let base = &header.base;
    // Versions before oa have no keys here, and no values that are derived from keys.
    let has_keys = !stats.first_key.is_empty();
    let known = |value: Value| if has_keys { value } else { json!("--") };
    Ok(vec![
        ("Partitioner", json!(statistics.partitioner)),
        ("Bloom Filter FP chance", json!(statistics.bloom_filter_fp_chance)),
        ("Minimum timestamp", json!(stamp(stats.min_timestamp))),
        ("Maximum timestamp", json!(stamp(stats.max_timestamp))),
        ("SSTable min local deletion time", json!(seconds(stats.min_local_deletion_time))),
        ("SSTable max local deletion time", json!(seconds(stats.max_local_deletion_time))),
        ("Compressor", json!(compressor)),
        ("Chunk length", chunk_length),
        ("Compression ratio", json!(stats.compression_ratio)),
        ("TTL min", json!(stats.min_ttl)),
        ("TTL max", json!(stats.max_ttl)),
        ("First key", known(json!(key(header, &stats.first_key)))),
        ("Last key", known(json!(key(header, &stats.last_key)))),
        (
            "Covered clusterings",
            json!(format!("{} to {}", hex(&stats.covered_start.prefix), hex(&stats.covered_end.prefix))),
        ),
        ("Estimated tombstone drop times", Value::Object(drop_times)),
        ("Partition size", percentiles(&stats.estimated_partition_size)),
        ("Cells per partition", percentiles(&stats.estimated_cell_per_partition_count)),
        ("Estimated cardinality", json!(statistics.cardinality.estimate())),
        ("SSTable Level", json!(stats.sstable_level)),
        ("Repaired at", json!(stats.repaired_at)),
        ("Pending repair", json!(stats.pending_repair.map_or("--".to_owned(), |id| id.to_string()))),
        ("Originating host id", json!(stats.originating_host_id.map_or("--".to_owned(), |id| id.to_string()))),
        ("Commit log intervals", json!(intervals(stats))),
        ("totalColumnsSet", json!(stats.total_columns_set)),
        ("totalRows", json!(stats.total_rows)),
        ("Has partition deletions", known(json!(stats.has_partition_level_deletions))),
        ("Token space coverage", known(json!(stats.token_space_coverage))),
        ("EncodingStats minTTL", json!(base.ttl)),
        ("EncodingStats minLocalDeletionTime", json!(seconds(base.local_deletion_time))),
        ("EncodingStats minTimestamp", json!(stamp(base.timestamp))),
        ("KeyType", json!(header.key_class)),
        ("ClusteringTypes", json!(header.clustering_classes)),
        ("StaticColumns", columns(&header.statics)),
        ("RegularColumns", columns(&header.regulars)),
        ("Files", Value::Object(sizes)),
    ])
}

fn columns(columns: &[sstable::HeaderColumn]) -> Value {
    columns.iter().map(|column| (column.name.clone(), Value::String(column.class.clone()))).collect()
}

fn percentiles(histogram: &sstable::EstimatedHistogram) -> Value {
    let at = |share: f64| json!(histogram.percentile(share));
    json!({"50th": at(0.5), "75th": at(0.75), "95th": at(0.95), "98th": at(0.98), "99th": at(0.99),
           "Max": at(1.0), "Mean": histogram.mean().round()})
}

fn intervals(stats: &StatsMetadata) -> String {
    let position =
        |at: &CommitLogPosition| format!("CommitLogPosition(segmentId={}, position={})", at.segment, at.offset);
    let intervals = stats.commit_log_intervals.iter();
    let intervals: Vec<_> = intervals.map(|(start, end)| format!("{}={}", position(start), position(end))).collect();
    intervals.join(", ")
}

/// Lengths of all files that belong to the SSTable, by the last part of their names.
fn file_lengths(disk: &dyn Disk, descriptor: &Descriptor) -> Result<serde_json::Map<String, Value>, SSTableError> {
    let prefix = descriptor.name() + "-";
    let mut lengths = serde_json::Map::new();
    let here = descriptor.dir.as_os_str().is_empty();
    for entry in disk.list(if here { Path::new(".") } else { &descriptor.dir })? {
        if let Some(component) = entry.name.strip_prefix(&prefix).filter(|_| !entry.is_dir) {
            let length = disk.open(&descriptor.dir.join(&entry.name), OpenOptions::read())?.len()?;
            lengths.insert(component.to_owned(), json!(length));
        }
    }
    Ok(lengths)
}

fn compression(disk: &dyn Disk, descriptor: &Descriptor) -> Result<Option<CompressionInfo>, SSTableError> {
    let path = descriptor.path(Component::CompressionInfo);
    if !disk.exists(&path)? {
        return Ok(None);
    }
    let file = disk.open(&path, OpenOptions::read())?;
    let mut bytes = vec![0; usize::try_from(file.len()?).unwrap_or(usize::MAX)];
    file.read_exact_at(&mut bytes, 0)?;
    CompressionInfo::decode(&descriptor.file_name(Component::CompressionInfo), &bytes).map(Some)
}

/// The values of the key as CQL prints them, or its bytes if its type is not known.
fn key(header: &sstable::SerializationHeader, bytes: &[u8]) -> String {
    match header.partition_key_types("Statistics.db") {
        Ok(types) if types.len() == 1 => types[0].to_json(bytes),
        _ => hex(bytes),
    }
}

/// Microseconds, and the date they mean.
fn stamp(micros: i64) -> String {
    if micros == i64::MIN || micros == i64::MAX {
        return micros.to_string();
    }
    format!("{micros} ({})", format_timestamp(micros.div_euclid(1000), Separator::Literal))
}

/// Seconds since the epoch, and the date they mean.
fn seconds(seconds: u32) -> String {
    if seconds == model::NO_DELETION_TIME {
        return "no tombstones".to_owned();
    }
    let date = CqlType::Timestamp.to_json(&(i64::from(seconds) * 1000).to_be_bytes());
    format!("{seconds} ({})", date.trim_matches('"'))
}
