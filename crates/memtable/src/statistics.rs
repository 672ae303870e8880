//! Counts and bounds of the updates applied to a shard: timestamps, deletion times, TTLs and column sets.

use std::sync::atomic::{AtomicI32, AtomicI64, AtomicU32, AtomicU64, Ordering};

use model::{Cell, ColumnData, DeletionTime, Liveness, NO_DELETION_TIME, PartitionUpdate, Row, Table};

use crate::MemtableStatistics;
use crate::apply::only_row;

/// Counts and bounds of one shard; see [`MemtableStatistics`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub partition_count: u64,
    pub update_count: u64,
    timestamp_min: i64,
    local_deletion_time_min: u32,
    /// `i32::MAX` while nothing was applied.
    ttl_min: i32,
    /// See [`MemtableStatistics::column_set_min`].
    column_set_min: [u32; 2],
}

impl Bounds {
    pub const NONE: Bounds = Bounds {
        partition_count: 0,
        update_count: 0,
        timestamp_min: i64::MAX,
        local_deletion_time_min: NO_DELETION_TIME,
        ttl_min: i32::MAX,
        column_set_min: [u32::MAX; 2],
    };

    #[inline]
    pub fn cover_update(&mut self, update: &PartitionUpdate) {
        match only_row(update) {
            Some(row) => self.cover_row(row, update.table()),
            None => self.cover_parts(update),
        }
    }

    fn cover_parts(&mut self, update: &PartitionUpdate) {
        self.cover_deletion(update.partition_deletion());
        let table = update.table();
        update.static_row().into_iter().for_each(|row| self.cover_row(row, table));
        update.rows().for_each(|row| self.cover_row(row.row, table));
        update.range_deletions().for_each(|range| self.cover_deletion(range.deletion));
    }

    pub fn cover_row(&mut self, row: Row<'_>, table: &Table) {
        let written = row.written(table);
        let column_set_min = &mut self.column_set_min[usize::from(written.is_static)];
        *column_set_min = (*column_set_min).min(written.column_set_version);
        if let Some(Liveness { timestamp, ttl, expiration }) = written.only_times {
            return self.cover(timestamp, ttl, expiration);
        }
        self.cover_deletion(row.deletion());
        let liveness = row.liveness();
        if !liveness.is_empty() {
            let Liveness { timestamp, ttl, expiration } = liveness;
            self.cover(timestamp, ttl, expiration);
        }
        let shared = row.shared_times();
        if let Some(Liveness { timestamp, ttl, expiration }) = shared {
            self.cover(timestamp, ttl, expiration);
        }
        let cells = if shared.is_some() { row.written_columns(table).complex() } else { row.written_columns(table) };
        for (_, data) in cells {
            match data {
                ColumnData::Simple(cell) => self.cover_cell(&cell),
                ColumnData::Complex(cells) => {
                    self.cover_deletion(cells.deletion);
                    cells.for_each(|cell| self.cover_cell(&cell));
                }
            }
        }
    }

    fn cover_cell(&mut self, cell: &Cell<'_>) {
        self.cover(cell.timestamp, cell.ttl, cell.local_deletion_time);
    }

    fn cover_deletion(&mut self, deletion: DeletionTime) {
        if !deletion.is_live() {
            self.timestamp_min = self.timestamp_min.min(deletion.marked_for_delete_at);
            self.local_deletion_time_min = self.local_deletion_time_min.min(deletion.local_deletion_time);
        }
    }

    #[inline]
    fn cover(&mut self, timestamp: i64, ttl: i32, local_deletion_time: u32) {
        self.timestamp_min = self.timestamp_min.min(timestamp);
        self.ttl_min = self.ttl_min.min(ttl);
        self.local_deletion_time_min = self.local_deletion_time_min.min(local_deletion_time);
    }

    /// The union of both bounds.
    pub fn and(self, other: Bounds) -> Bounds {
        Bounds {
            partition_count: self.partition_count + other.partition_count,
            update_count: self.update_count + other.update_count,
            timestamp_min: self.timestamp_min.min(other.timestamp_min),
            local_deletion_time_min: self.local_deletion_time_min.min(other.local_deletion_time_min),
            ttl_min: self.ttl_min.min(other.ttl_min),
            column_set_min: [0, 1].map(|kind| self.column_set_min[kind].min(other.column_set_min[kind])),
        }
    }

    pub fn statistics(&self) -> MemtableStatistics {
        debug_assert!(self.partition_count <= self.update_count, "every partition came with an update of its own");
        MemtableStatistics {
            partition_count: self.partition_count,
            update_count: self.update_count,
            timestamp_min: self.timestamp_min,
            local_deletion_time_min: self.local_deletion_time_min,
            ttl_min: if self.ttl_min == i32::MAX { 0 } else { self.ttl_min },
            column_set_min: self.column_set_min,
        }
    }
}

/// Bounds that one thread at a time changes; the callers ensure that by other means. A reader that runs beside it may
/// see parts of several states.
#[derive(Debug)]
pub(crate) struct SharedBounds {
    partition_count: AtomicU64,
    update_count: AtomicU64,
    timestamp_min: AtomicI64,
    local_deletion_time_min: AtomicU32,
    ttl_min: AtomicI32,
    column_set_min: [AtomicU32; 2],
}

impl SharedBounds {
    pub fn new(bounds: Bounds) -> SharedBounds {
        SharedBounds {
            partition_count: AtomicU64::new(bounds.partition_count),
            update_count: AtomicU64::new(bounds.update_count),
            timestamp_min: AtomicI64::new(bounds.timestamp_min),
            local_deletion_time_min: AtomicU32::new(bounds.local_deletion_time_min),
            ttl_min: AtomicI32::new(bounds.ttl_min),
            column_set_min: bounds.column_set_min.map(AtomicU32::new),
        }
    }

    #[inline]
    pub fn load(&self) -> Bounds {
        Bounds {
            partition_count: self.partition_count.load(Ordering::Relaxed),
            update_count: self.update_count.load(Ordering::Relaxed),
            timestamp_min: self.timestamp_min.load(Ordering::Relaxed),
            local_deletion_time_min: self.local_deletion_time_min.load(Ordering::Relaxed),
            ttl_min: self.ttl_min.load(Ordering::Relaxed),
            column_set_min: [0, 1].map(|kind| self.column_set_min[kind].load(Ordering::Relaxed)),
        }
    }

    #[inline]
    pub fn store(&self, bounds: Bounds) {
        self.partition_count.store(bounds.partition_count, Ordering::Relaxed);
        self.update_count.store(bounds.update_count, Ordering::Relaxed);
        self.timestamp_min.store(bounds.timestamp_min, Ordering::Relaxed);
        self.local_deletion_time_min.store(bounds.local_deletion_time_min, Ordering::Relaxed);
        self.ttl_min.store(bounds.ttl_min, Ordering::Relaxed);
        for (shared, min) in self.column_set_min.iter().zip(bounds.column_set_min) {
            shared.store(min, Ordering::Relaxed);
        }
    }
}
