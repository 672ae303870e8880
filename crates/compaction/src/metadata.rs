//! The metadata of SSTables for strategies, and the merges that strategies choose.

use sstable::{SSTableId, SSTableReader};
use types::Token;

/// The metadata of an SSTable that strategies use.
#[derive(Clone, Debug, PartialEq)]
pub struct TableMetadata {
    /// The id of the SSTable.
    pub id: SSTableId,
    /// Token of its first partition.
    pub first_token: Token,
    /// Token of its last partition.
    pub last_token: Token,
    /// Bytes on disk.
    pub size_bytes: u64,
    /// Share of the token space between its first and last partition.
    pub token_space_coverage: f64,
    /// The least timestamp in it, microseconds.
    pub min_timestamp: i64,
    /// The greatest timestamp in it, microseconds.
    pub max_timestamp: i64,
    /// The greatest local deletion time, seconds; the greatest value if anything in it is neither deleted nor expiring.
    pub max_local_deletion_time: u32,
}

/// Below this share the coverage is meaningless (as for a single partition).
pub(crate) const COVERAGE_MIN: f64 = 1.0 / (1_u64 << 48) as f64;

impl TableMetadata {
    /// The metadata in an open SSTable's statistics.
    pub fn of(reader: &SSTableReader) -> Self {
        let stats = &reader.statistics().stats;
        let (first_token, last_token) = (reader.first_key().token(), reader.last_key().token());
        let reported = stats.token_space_coverage;
        let spanned = (i128::from(last_token.0) - i128::from(first_token.0)) as f64 / 2_f64.powi(64);
        TableMetadata {
            id: reader.descriptor().id.clone(),
            first_token,
            last_token,
            size_bytes: reader.size_on_disk_bytes(),
            token_space_coverage: if reported > 0.0 { reported } else { spanned },
            min_timestamp: stats.min_timestamp,
            max_timestamp: stats.max_timestamp,
            max_local_deletion_time: stats.max_local_deletion_time,
        }
    }

    /// Bytes on disk per whole token space.
    pub fn density(&self) -> f64 {
        let coverage = if self.token_space_coverage < COVERAGE_MIN { 1.0 } else { self.token_space_coverage };
        self.size_bytes as f64 / coverage
    }
}

/// A set of tables to merge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pick {
    /// The ids of the tables.
    pub tables: Vec<SSTableId>,
    /// Level (unified) or window index counted from the newest (time window).
    pub level: usize,
    /// The most of these tables that a read of one partition may have to consult.
    pub overlap: usize,
}
