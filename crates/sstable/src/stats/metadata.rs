//! The STATS component: what is known about a table without reading its data.

use crate::clustering::{kind, read_values, write_values};
use crate::descriptor::Version;
use crate::error::{Decoded, SSTableError};
use crate::input::Input;
use crate::stats::header::{push_vbytes, read_classes, write_classes};
use crate::stats::{EstimatedHistogram, TombstoneHistogram};

/// A position in the commit log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CommitLogPosition {
    /// Segment id.
    pub segment: i64,
    /// Offset in the segment, bytes.
    pub offset: i32,
}

impl CommitLogPosition {
    /// "None".
    pub const NONE: CommitLogPosition = CommitLogPosition { segment: -1, offset: 0 };
}

/// One end of the clusterings that a table covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoveredBound {
    /// Number of the bound's kind (0 exclusive end, 1 inclusive start, 6 inclusive end, 7 exclusive start).
    pub kind: u8,
    /// Serialized clustering prefix, as the model has them.
    pub prefix: Vec<u8>,
}

/// Facts about a table, under Cassandra's names.
#[derive(Clone, Debug, PartialEq)]
pub struct StatsMetadata {
    /// Uncompressed bytes per partition.
    pub estimated_partition_size: EstimatedHistogram,
    /// Cells per partition.
    pub estimated_cell_per_partition_count: EstimatedHistogram,
    /// The least timestamp of everything that has one, microseconds.
    pub min_timestamp: i64,
    /// The greatest timestamp, microseconds.
    pub max_timestamp: i64,
    /// The least local deletion time, seconds since the epoch; live data counts as the greatest value.
    pub min_local_deletion_time: u32,
    /// The greatest local deletion time, likewise.
    pub max_local_deletion_time: u32,
    /// The least TTL, seconds; data that does not expire counts as 0.
    pub min_ttl: i32,
    /// The greatest TTL, seconds.
    pub max_ttl: i32,
    /// Compressed bytes per uncompressed byte; -1 if not compressed.
    pub compression_ratio: f64,
    /// The local deletion times of tombstones and expiring data, and how many there are of each.
    pub estimated_tombstone_drop_time: TombstoneHistogram,
    /// Level under LeveledCompactionStrategy.
    pub sstable_level: i32,
    /// Milliseconds, 0 = unrepaired.
    pub repaired_at: i64,
    /// Marshal classes of the clustering columns.
    pub clustering_classes: Vec<String>,
    /// Smallest clustering.
    pub covered_start: CoveredBound,
    /// Greatest clustering.
    pub covered_end: CoveredBound,
    /// Whether counter shards from before Cassandra 2.1 may be inside.
    pub has_legacy_counter_shards: bool,
    /// Sum over rows of the columns that have a cell.
    pub total_columns_set: i64,
    /// Rows, non-empty static rows included.
    pub total_rows: i64,
    /// The part of the commit log that the table covers: (start, end].
    pub commit_log_intervals: Vec<(CommitLogPosition, CommitLogPosition)>,
    /// The node whose commit log that is.
    pub originating_host_id: Option<uuid::Uuid>,
    /// A repair session that has not finished.
    pub pending_repair: Option<uuid::Uuid>,
    /// Whether the replica is transient.
    pub is_transient: bool,
    /// Whether any partition deletion is inside.
    pub has_partition_level_deletions: bool,
    /// Serialized first partition key.
    pub first_key: Vec<u8>,
    /// Serialized last partition key.
    pub last_key: Vec<u8>,
    /// Share of the local token space between the first and last key; NaN = unknown.
    pub token_space_coverage: f64,
}

impl StatsMetadata {
    pub(super) fn read(version: Version, input: &mut Input<'_>) -> Decoded<Self> {
        let is_nb = version == Version::Nb;
        let estimated_partition_size = EstimatedHistogram::read(input)?;
        let estimated_cell_per_partition_count = EstimatedHistogram::read(input)?;
        read_position(input)?;
        let min_timestamp = input.i64("minTimestamp")?;
        let max_timestamp = input.i64("maxTimestamp")?;
        let min_local_deletion_time = read_deletion_time(is_nb, input)?;
        let max_local_deletion_time = read_deletion_time(is_nb, input)?;
        let min_ttl = input.i32("minTTL")?;
        let max_ttl = input.i32("maxTTL")?;
        let compression_ratio = input.f64("compressionRatio")?;
        let estimated_tombstone_drop_time =
            if is_nb { TombstoneHistogram::read_nb(input)? } else { TombstoneHistogram::read(input)? };
        let sstable_level = input.i32("sstableLevel")?;
        let repaired_at = input.i64("repairedAt")?;
        let (clustering_classes, covered_start, covered_end) = read_covered(is_nb, input)?;
        let has_legacy_counter_shards = input.bool("hasLegacyCounterShards")?;
        let total_columns_set = input.i64("totalColumnsSet")?;
        let total_rows = input.i64("totalRows")?;
        read_position(input)?;
        Ok(StatsMetadata {
            estimated_partition_size,
            estimated_cell_per_partition_count,
            min_timestamp,
            max_timestamp,
            min_local_deletion_time,
            max_local_deletion_time,
            min_ttl,
            max_ttl,
            compression_ratio,
            estimated_tombstone_drop_time,
            sstable_level,
            repaired_at,
            clustering_classes,
            covered_start,
            covered_end,
            has_legacy_counter_shards,
            total_columns_set,
            total_rows,
            commit_log_intervals: read_intervals(input)?,
            pending_repair: read_uuid(input)?,
            is_transient: input.bool("isTransient")?,
            originating_host_id: read_uuid(input)?,
            has_partition_level_deletions: is_nb || input.bool("hasPartitionLevelDeletions")?,
            first_key: if is_nb { Vec::new() } else { input.vbytes("firstKey")?.to_vec() },
            last_key: if is_nb { Vec::new() } else { input.vbytes("lastKey")?.to_vec() },
            token_space_coverage: if is_nb { f64::NAN } else { input.f64("tokenSpaceCoverage")? },
        })
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) -> Result<(), SSTableError> {
        let lower =
            self.commit_log_intervals.iter().map(|interval| interval.0).min().unwrap_or(CommitLogPosition::NONE);
        let upper =
            self.commit_log_intervals.iter().map(|interval| interval.1).max().unwrap_or(CommitLogPosition::NONE);
        self.estimated_partition_size.write(out);
        self.estimated_cell_per_partition_count.write(out);
        write_position(upper, out);
        out.extend_from_slice(&self.min_timestamp.to_be_bytes());
        out.extend_from_slice(&self.max_timestamp.to_be_bytes());
        out.extend_from_slice(&self.min_local_deletion_time.to_be_bytes());
        out.extend_from_slice(&self.max_local_deletion_time.to_be_bytes());
        out.extend_from_slice(&self.min_ttl.to_be_bytes());
        out.extend_from_slice(&self.max_ttl.to_be_bytes());
        out.extend_from_slice(&self.compression_ratio.to_be_bytes());
        self.estimated_tombstone_drop_time.write(out);
        out.extend_from_slice(&self.sstable_level.to_be_bytes());
        out.extend_from_slice(&self.repaired_at.to_be_bytes());
        write_classes(&self.clustering_classes, out);
        let fixed_lengths = fixed_lengths(&self.clustering_classes);
        write_bound(&fixed_lengths, &self.covered_start, out)?;
        write_bound(&fixed_lengths, &self.covered_end, out)?;
        out.push(u8::from(self.has_legacy_counter_shards));
        out.extend_from_slice(&self.total_columns_set.to_be_bytes());
        out.extend_from_slice(&self.total_rows.to_be_bytes());
        write_position(lower, out);
        out.extend_from_slice(&(self.commit_log_intervals.len() as i32).to_be_bytes());
        for (start, end) in &self.commit_log_intervals {
            write_position(*start, out);
            write_position(*end, out);
        }
        write_uuid(self.pending_repair, out);
        out.push(u8::from(self.is_transient));
        write_uuid(self.originating_host_id, out);
        out.push(u8::from(self.has_partition_level_deletions));
        push_vbytes(&self.first_key, out);
        push_vbytes(&self.last_key, out);
        out.extend_from_slice(&self.token_space_coverage.to_be_bytes());
        Ok(())
    }
}

/// Reads seconds; before `oa` a signed number whose greatest value means "none".
fn read_deletion_time(is_nb: bool, input: &mut Input<'_>) -> Decoded<u32> {
    let stored = input.u32("local deletion time")?;
    Ok(if is_nb && stored == i32::MAX as u32 { u32::MAX } else { stored })
}

/// Reads the clustering classes and the covered bounds. Before `oa` these were the least and the greatest value of each
/// column, which are skipped because some versions stored them wrong.
fn read_covered(is_nb: bool, input: &mut Input<'_>) -> Decoded<(Vec<String>, CoveredBound, CoveredBound)> {
    if !is_nb {
        let classes = read_classes(input)?;
        let fixed_lengths = fixed_lengths(&classes);
        return Ok((classes, read_bound(&fixed_lengths, input)?, read_bound(&fixed_lengths, input)?));
    }
    for _ in 0..2 {
        let count = input.u32("clustering value count")?;
        for _ in 0..input.checked_count(u64::from(count), 2, "clustering values")? {
            input.short_bytes("clustering value")?;
        }
    }
    let all = |kind| CoveredBound { kind, prefix: Vec::new() };
    Ok((Vec::new(), all(kind::INCL_START_BOUND), all(kind::INCL_END_BOUND)))
}

fn fixed_lengths(classes: &[String]) -> Vec<Option<usize>> {
    let length = |class: &String| match types::MarshalClass::parse(class) {
        Ok(types::MarshalClass::Plain(ty) | types::MarshalClass::Reversed(ty)) => ty.fixed_length(),
        _ => None,
    };
    classes.iter().map(length).collect()
}

fn read_position(input: &mut Input<'_>) -> Decoded<CommitLogPosition> {
    Ok(CommitLogPosition { segment: input.i64("commit log segment")?, offset: input.i32("commit log offset")? })
}

fn write_position(position: CommitLogPosition, out: &mut Vec<u8>) {
    out.extend_from_slice(&position.segment.to_be_bytes());
    out.extend_from_slice(&position.offset.to_be_bytes());
}

fn read_intervals(input: &mut Input<'_>) -> Decoded<Vec<(CommitLogPosition, CommitLogPosition)>> {
    let count = input.u32("commit log interval count")?;
    let count = input.checked_count(u64::from(count), 24, "commit log intervals")?;
    (0..count).map(|_| Ok((read_position(input)?, read_position(input)?))).collect()
}

fn read_uuid(input: &mut Input<'_>) -> Decoded<Option<uuid::Uuid>> {
    if !input.bool("uuid flag")? {
        return Ok(None);
    }
    let high = input.i64("uuid")? as u64;
    Ok(Some(uuid::Uuid::from_u64_pair(high, input.i64("uuid")? as u64)))
}

fn write_uuid(uuid: Option<uuid::Uuid>, out: &mut Vec<u8>) {
    out.push(u8::from(uuid.is_some()));
    if let Some(uuid) = uuid {
        out.extend_from_slice(uuid.as_bytes());
    }
}

fn read_bound(fixed_lengths: &[Option<usize>], input: &mut Input<'_>) -> Decoded<CoveredBound> {
    let number = input.u8("covered clustering kind")?;
    let known = [kind::EXCL_END_BOUND, kind::INCL_START_BOUND, kind::INCL_END_BOUND, kind::EXCL_START_BOUND];
    if !known.contains(&number) {
        return Err(input.damaged("a bound kind 0, 1, 6 or 7", number.to_string()));
    }
    let count = usize::from(input.u16("covered clustering size")?);
    let mut prefix = Vec::new();
    read_values(fixed_lengths, count, input, &mut prefix)?;
    Ok(CoveredBound { kind: number, prefix })
}

fn write_bound(fixed_lengths: &[Option<usize>], bound: &CoveredBound, out: &mut Vec<u8>) -> Result<(), SSTableError> {
    out.push(bound.kind);
    let count = crate::clustering::component_count(&bound.prefix) as u16;
    out.extend_from_slice(&count.to_be_bytes());
    write_values(fixed_lengths, &bound.prefix, out)
}
