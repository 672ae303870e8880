//! Collecting Statistics.db while a table is written.

use std::cmp::Ordering;

use model::{Cell, ClusteringComparator, DeletionTime, Liveness, NO_DELETION_TIME, TTL_NONE};

use super::histogram::{CELL_COUNT_BUCKETS, PARTITION_SIZE_BUCKETS};
use super::tombstones::TombstoneHistogramBuilder;
use super::{Cardinality, CoveredBound, EstimatedHistogram, StatsMetadata};
use crate::clustering::kind;

/// A clustering prefix and its weight: -1 before everything with it, 0 the row itself, 1 after.
pub(crate) type Position = (Vec<u8>, i8);

/// The facts collected so far.
#[derive(Debug)]
pub(crate) struct StatsCollector {
    partition_size: EstimatedHistogram,
    cell_count: EstimatedHistogram,
    /// The bucket of the previous partition's size.
    last_size_bucket: usize,
    last_cells_bucket: usize,
    timestamps: Option<(i64, i64)>,
    deletion_times: Option<(u32, u32)>,
    ttls: Option<(i32, i32)>,
    tombstones: TombstoneHistogramBuilder,
    cardinality: Cardinality,
    has_partition_level_deletions: bool,
    total_columns_set: i64,
    total_rows: i64,
    cells_in_partition: i64,
    /// Whether there was a row that never expires.
    has_plain_rows: bool,
    covered: Option<(Position, Position)>,
    first_key: Option<Vec<u8>>,
    last_key: Vec<u8>,
}

impl StatsCollector {
    pub fn new() -> Self {
        StatsCollector {
            partition_size: EstimatedHistogram::new(PARTITION_SIZE_BUCKETS),
            cell_count: EstimatedHistogram::new(CELL_COUNT_BUCKETS),
            last_size_bucket: 0,
            last_cells_bucket: 0,
            timestamps: None,
            deletion_times: None,
            ttls: None,
            tombstones: TombstoneHistogramBuilder::default(),
            cardinality: Cardinality::default(),
            has_partition_level_deletions: false,
            total_columns_set: 0,
            total_rows: 0,
            cells_in_partition: 0,
            has_plain_rows: false,
            covered: None,
            first_key: None,
            last_key: Vec::new(),
        }
    }

    fn timestamp(&mut self, timestamp: i64) {
        let (min, max) = self.timestamps.get_or_insert((timestamp, timestamp));
        *min = (*min).min(timestamp);
        *max = (*max).max(timestamp);
    }

    fn deletion_time(&mut self, time: u32) {
        let (min, max) = self.deletion_times.get_or_insert((time, time));
        *min = (*min).min(time);
        *max = (*max).max(time);
        if time != NO_DELETION_TIME {
            self.tombstones.add(time);
        }
    }

    fn ttl(&mut self, ttl: i32) {
        let (min, max) = self.ttls.get_or_insert((ttl, ttl));
        *min = (*min).min(ttl);
        *max = (*max).max(ttl);
    }

    pub fn begin_partition(&mut self, key: &[u8], deletion: DeletionTime) {
        self.cells_in_partition = 0;
        self.cardinality.add(key);
        self.first_key.get_or_insert_with(|| key.to_vec());
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        self.has_partition_level_deletions |= !deletion.is_live();
        self.deletion(deletion);
    }

    pub fn deletion(&mut self, deletion: DeletionTime) {
        if !deletion.is_live() {
            self.timestamp(deletion.marked_for_delete_at);
            self.deletion_time(deletion.local_deletion_time);
        }
    }

    pub fn liveness(&mut self, liveness: &Liveness) {
        if !liveness.is_empty() {
            self.timestamp(liveness.timestamp);
            self.ttl(liveness.ttl);
            self.deletion_time(liveness.expiration);
        }
    }

    pub fn cell(&mut self, cell: &Cell<'_>) {
        self.cells_in_partition += 1;
        self.timestamp(cell.timestamp);
        self.ttl(cell.ttl);
        self.deletion_time(cell.local_deletion_time);
    }

    /// Adds a row with this many cells that never expires and whose cells all have its timestamp.
    pub fn plain_row(&mut self, timestamp: i64, cells: usize) {
        self.timestamp(timestamp);
        // All such rows have the same TTL and deletion, which are recorded once, at the end.
        self.has_plain_rows = true;
        self.cells_in_partition += cells as i64;
        self.row(cells);
    }

    /// Adds a row (a static one only if it is not empty) with this many columns that have a cell.
    pub fn row(&mut self, columns_set: usize) {
        self.total_rows += 1;
        self.total_columns_set += columns_set as i64;
    }

    /// Ends a partition of `size` bytes whose first and last unfiltered have these positions.
    pub fn end_partition(
        &mut self,
        size: u64,
        ends: Option<(&Position, &Position)>,
        comparator: &ClusteringComparator,
    ) {
        self.partition_size.add(i64::try_from(size).unwrap_or(i64::MAX), &mut self.last_size_bucket);
        self.cell_count.add(self.cells_in_partition, &mut self.last_cells_bucket);
        let Some((first, last)) = ends else { return };
        let Some((start, end)) = &mut self.covered else {
            self.covered = Some((first.clone(), last.clone()));
            return;
        };
        if compare(comparator, first, start) == Ordering::Less {
            start.clone_from(first);
        }
        if compare(comparator, last, end) == Ordering::Greater {
            end.clone_from(last);
        }
    }

    /// The finished statistics. What the data does not determine stays at "none" for the caller to fill in.
    pub fn finish(mut self, clustering_classes: Vec<String>) -> (StatsMetadata, Cardinality) {
        if self.has_plain_rows {
            self.ttl(TTL_NONE);
            self.deletion_time(NO_DELETION_TIME);
        }
        let (min_timestamp, max_timestamp) = self.timestamps.unwrap_or((i64::MIN, i64::MAX));
        let (min_local_deletion_time, max_local_deletion_time) =
            self.deletion_times.unwrap_or((NO_DELETION_TIME, NO_DELETION_TIME));
        let (min_ttl, max_ttl) = self.ttls.unwrap_or((0, 0));
        let (covered_start, covered_end) = covered_bounds(self.covered);
        let stats = StatsMetadata {
            estimated_partition_size: self.partition_size,
            estimated_cell_per_partition_count: self.cell_count,
            min_timestamp,
            max_timestamp,
            min_local_deletion_time,
            max_local_deletion_time,
            min_ttl,
            max_ttl,
            compression_ratio: -1.0,
            estimated_tombstone_drop_time: self.tombstones.finish(),
            sstable_level: 0,
            repaired_at: 0,
            clustering_classes,
            covered_start,
            covered_end,
            has_legacy_counter_shards: false,
            total_columns_set: self.total_columns_set,
            total_rows: self.total_rows,
            commit_log_intervals: Vec::new(),
            originating_host_id: None,
            pending_repair: None,
            is_transient: false,
            has_partition_level_deletions: self.has_partition_level_deletions,
            first_key: self.first_key.unwrap_or_default(),
            last_key: self.last_key,
            token_space_coverage: f64::NAN,
        };
        (stats, self.cardinality)
    }
}

fn compare(comparator: &ClusteringComparator, left: &Position, right: &Position) -> Ordering {
    comparator.compare_positions(&left.0, left.1, &right.0, right.1)
}

/// The bounds around all rows and markers; an empty slice if there are none.
fn covered_bounds(covered: Option<(Position, Position)>) -> (CoveredBound, CoveredBound) {
    match covered {
        None => (
            CoveredBound { kind: kind::EXCL_START_BOUND, prefix: Vec::new() },
            CoveredBound { kind: kind::EXCL_END_BOUND, prefix: Vec::new() },
        ),
        Some(((start, start_weight), (end, end_weight))) => (
            CoveredBound {
                kind: if start_weight > 0 { kind::EXCL_START_BOUND } else { kind::INCL_START_BOUND },
                prefix: start,
            },
            CoveredBound {
                kind: if end_weight < 0 { kind::EXCL_END_BOUND } else { kind::INCL_END_BOUND },
                prefix: end,
            },
        ),
    }
}
