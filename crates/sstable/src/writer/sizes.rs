//! Partitions and collections that are larger than they should be: reported while an SSTable is written.
//!
//! As in Cassandra, a report has no other consequence: the data is written. Nothing is counted unless the options ask
//! for it.

use std::fmt;
use std::sync::Arc;

use model::{ColumnData, ComplexCells, Marker, PartitionHead, PartitionKey, Row, Table, Unfiltered};
use types::identifier::Quoted;

use crate::descriptor::{Component, Descriptor};

/// The bytes that Cassandra counts for a collection besides its cells: the time of its deletion.
const COLLECTION_BYTES: u64 = 12;
/// The bytes that Cassandra counts for a cell besides its path and value: timestamp, TTL and time of deletion.
const CELL_BYTES: u64 = 20;

/// The kind of an excessive size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeKind {
    /// The bytes of a partition in Data.db, before compression.
    PartitionBytes,
    /// The tombstones of a partition: deletions, deleted and expired cells, expired rows.
    PartitionTombstones,
    /// The bytes of the live cells of a collection.
    CollectionBytes,
    /// The live cells of a collection.
    CollectionItems,
}

/// The greatest values that are not reported, for each kind; `u64::MAX` for those that never are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeLimits {
    /// [`SizeKind::PartitionBytes`].
    pub partition_bytes: u64,
    /// [`SizeKind::PartitionTombstones`].
    pub partition_tombstones: u64,
    /// [`SizeKind::CollectionBytes`].
    pub collection_bytes: u64,
    /// [`SizeKind::CollectionItems`].
    pub collection_items: u64,
}

impl Default for SizeLimits {
    /// No value is reported.
    fn default() -> Self {
        let [partition_bytes, partition_tombstones, collection_bytes, collection_items] = [u64::MAX; 4];
        SizeLimits { partition_bytes, partition_tombstones, collection_bytes, collection_items }
    }
}

impl SizeLimits {
    /// The limits for partitions alone.
    pub fn without_collections(self) -> Self {
        SizeLimits { collection_bytes: u64::MAX, collection_items: u64::MAX, ..self }
    }

    fn of(&self, kind: SizeKind) -> u64 {
        match kind {
            SizeKind::PartitionBytes => self.partition_bytes,
            SizeKind::PartitionTombstones => self.partition_tombstones,
            SizeKind::CollectionBytes => self.collection_bytes,
            SizeKind::CollectionItems => self.collection_items,
        }
    }

    fn watch_collections(&self) -> bool {
        self.collection_bytes < u64::MAX || self.collection_items < u64::MAX
    }
}

/// A value above its limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Oversize {
    /// The kind of the size.
    pub kind: SizeKind,
    /// The value.
    pub value: u64,
    /// The partition or collection, in the words of Cassandra's messages.
    pub what: String,
}

/// Receives the values above their limits, on the thread that writes. It must not block.
#[derive(Clone)]
pub struct SizeHook(pub Arc<dyn Fn(&Oversize) + Send + Sync>);

impl fmt::Debug for SizeHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SizeHook")
    }
}

/// The sizes to report, and their receiver.
#[derive(Clone, Debug)]
pub struct SizeWatch {
    /// The limits.
    pub limits: SizeLimits,
    /// The time at which cells may have expired, seconds since the epoch.
    pub now_seconds: u32,
    /// Receives the reports.
    pub hook: SizeHook,
}

/// Measures what is written.
#[derive(Debug)]
pub(super) struct Sizes {
    watch: SizeWatch,
    /// Of the open partition.
    tombstones: u64,
}

impl Sizes {
    pub fn new(watch: SizeWatch) -> Self {
        Sizes { watch, tombstones: 0 }
    }

    pub fn begin_partition(&mut self, table: &Table, head: &PartitionHead<'_>) {
        self.tombstones = u64::from(!head.deletion.is_live());
        if let Some(row) = head.static_row {
            self.row(table, head.key, &[], row);
        }
    }

    pub fn add(&mut self, table: &Table, key: &PartitionKey, unfiltered: &Unfiltered<'_>) {
        match unfiltered {
            Unfiltered::Row(row) => self.row(table, key, row.clustering, row.row),
            Unfiltered::Marker(Marker { before, after, .. }) => {
                self.tombstones += u64::from(!before.is_live()) + u64::from(!after.is_live());
            }
        }
    }

    fn row(&mut self, table: &Table, key: &PartitionKey, clustering: &[u8], row: Row<'_>) {
        let now = self.watch.now_seconds;
        let (liveness, deletion) = (row.liveness(), row.deletion());
        self.tombstones += u64::from(!liveness.is_empty() && !liveness.is_live(now)) + u64::from(!deletion.is_live());
        for (index, data) in row.kept_columns(table) {
            match data {
                ColumnData::Simple(cell) => self.tombstones += u64::from(!cell.is_live(now)),
                ColumnData::Complex(cells) => {
                    let (bytes, live) = self.complex(cells);
                    let column = table.columns(row.is_static()).columns.get(index);
                    if live > 0
                        && self.watch.limits.watch_collections()
                        && let Some(column) = column.filter(|column| column.ty.is_collection())
                    {
                        let what = || {
                            let key = table.primary_key_literal(key, clustering);
                            format!("{} in row {key} in table {}", column.name, full_name(table))
                        };
                        self.judge(SizeKind::CollectionBytes, bytes, what);
                        self.judge(SizeKind::CollectionItems, live, what);
                    }
                }
            }
        }
    }

    /// Counts the tombstones of a column. Returns the bytes and the number of its live cells.
    fn complex(&mut self, cells: ComplexCells<'_>) -> (u64, u64) {
        self.tombstones += u64::from(!cells.deletion.is_live());
        let (mut bytes, mut live) = (COLLECTION_BYTES, 0);
        for cell in cells {
            if cell.is_live(self.watch.now_seconds) {
                bytes += CELL_BYTES + cell.path.len() as u64 + cell.value.len() as u64;
                live += 1;
            } else {
                self.tombstones += 1;
            }
        }
        (bytes, live)
    }

    /// Ends a partition of `bytes` bytes.
    pub fn end_partition(&mut self, table: &Table, key: &PartitionKey, bytes: u64, descriptor: &Descriptor) {
        let what = || {
            let file = descriptor.path(Component::Data);
            format!("{}.{}:{} on sstable {}", table.keyspace, table.name, table.key_text(key), file.display())
        };
        self.judge(SizeKind::PartitionBytes, bytes, what);
        self.judge(SizeKind::PartitionTombstones, self.tombstones, what);
    }

    fn judge(&self, kind: SizeKind, value: u64, what: impl Fn() -> String) {
        if value > self.watch.limits.of(kind) {
            (self.watch.hook.0)(&Oversize { kind, value, what: what() });
        }
    }
}

/// The name of a table as Cassandra shows it.
fn full_name(table: &Table) -> String {
    format!("{}.{}", Quoted(&table.keyspace), Quoted(&table.name))
}
