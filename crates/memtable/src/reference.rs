//! The simplest memtable there is: a map under a lock. What the clever ones are compared with.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use bytecomp::{ClusteringColumnType, encode_serialized_clustering, separator};
use model::{
    BoxCursor, ClusteringBound, DeletionTime, Marker, PartitionHead, PartitionKey, PartitionUpdate, RangeDeletion,
    ReadError, ReadRange, Row, RowMerger, RowObserver, RowRef, Side, Table, Unfiltered, UnfilteredCursor,
};

use crate::{Memtable, MemtableFull, MemtableStatistics, MemtableUse};

/// A memtable of plain maps; every read copies whole partitions.
pub struct ReferenceMemtable {
    table: RwLock<Arc<Table>>,
    partitions: RwLock<BTreeMap<PartitionKey, Partition>>,
}

#[derive(Clone)]
struct Partition {
    deletion: DeletionTime,
    static_row: Vec<u8>,
    /// Serialized clustering and row by byte-comparable clustering.
    rows: BTreeMap<Vec<u8>, (Vec<u8>, Vec<u8>)>,
    ranges: Vec<RangeDeletion>,
}

impl ReferenceMemtable {
    /// An empty memtable of `table`.
    pub fn new(table: &Arc<Table>) -> Self {
        ReferenceMemtable { table: RwLock::new(table.clone()), partitions: RwLock::default() }
    }

    fn read(&self) -> RwLockReadGuard<'_, BTreeMap<PartitionKey, Partition>> {
        self.partitions.read().unwrap_or_else(PoisonError::into_inner)
    }
}

fn columns(table: &Table) -> Vec<ClusteringColumnType> {
    let columns = table.comparator().columns().iter();
    columns.map(|(ty, reversed)| ClusteringColumnType { cql_type: ty.clone(), reversed: *reversed }).collect()
}

fn encode(columns: &[ClusteringColumnType], prefix: &[u8], terminator: u8) -> Vec<u8> {
    let mut encoded = Vec::new();
    encode_serialized_clustering(columns, prefix, terminator, &mut encoded);
    encoded
}

fn encode_bound(columns: &[ClusteringColumnType], bound: &ClusteringBound) -> Vec<u8> {
    let terminator =
        if bound.side == Side::Before { separator::LT_NEXT_COMPONENT } else { separator::GT_NEXT_COMPONENT };
    encode(columns, &bound.prefix, terminator)
}

impl Memtable for ReferenceMemtable {
    fn apply(&self, update: &PartitionUpdate, observer: Option<&mut dyn RowObserver>) -> Result<(), MemtableFull> {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner).clone();
        let columns = columns(&table);
        let mut merger = RowMerger::default();
        let mut merge = |old: &[u8], new: Row<'_>| {
            let mut merged = Vec::new();
            let versions = [Row::new(old), new];
            let versions = if old.is_empty() { &versions[1..] } else { &versions[..] };
            merger.merge(&table, versions, DeletionTime::LIVE, &mut merged);
            merged
        };
        let mut partitions = self.partitions.write().unwrap_or_else(PoisonError::into_inner);
        let partition = partitions.entry(update.key().clone()).or_insert_with(|| Partition {
            deletion: DeletionTime::LIVE,
            static_row: Vec::new(),
            rows: BTreeMap::new(),
            ranges: Vec::new(),
        });
        let mut observer = observer;
        partition.deletion = partition.deletion.max(update.partition_deletion());
        if let Some(row) = update.static_row() {
            partition.static_row = merge(&partition.static_row, row);
        }
        for row in update.rows() {
            let place = encode(&columns, row.clustering, separator::TERMINATOR);
            let old = partition.rows.get(&place).map(|(_, blob)| blob.clone()).unwrap_or_default();
            let merged = merge(&old, row.row);
            if let Some(observer) = &mut observer {
                let before = if old.is_empty() { None } else { Some(Row::new(&old)) };
                observer.row_changed(&table, update.key(), row.clustering, before, Some(Row::new(&merged)));
            }
            partition.rows.insert(place, (row.clustering.to_vec(), merged));
        }
        partition.ranges.extend(update.range_deletions());
        Ok(())
    }

    fn cursor(self: Arc<Self>, table: &Arc<Table>, range: &ReadRange) -> BoxCursor<'static> {
        let keys = self.read().keys().filter(|key| range.keys.contains(key)).cloned().collect();
        Box::new(ReferenceCursor {
            memtable: self,
            table: table.clone(),
            range: range.clone(),
            keys,
            next_key: 0,
            partition: None,
            static_row: Vec::new(),
            items: Vec::new(),
            next_item: 0,
        })
    }

    fn table_altered(&self, table: &Arc<Table>) {
        *self.table.write().unwrap_or_else(PoisonError::into_inner) = table.clone();
    }

    fn statistics(&self) -> MemtableStatistics {
        let count = self.read().len() as u64;
        MemtableStatistics {
            partition_count: count,
            update_count: count,
            timestamp_min: 0,
            local_deletion_time_min: 0,
            ttl_min: 0,
        }
    }

    fn memory(&self) -> MemtableUse {
        let row =
            |(place, (clustering, blob)): (&Vec<u8>, &(Vec<u8>, Vec<u8>))| place.len() + clustering.len() + blob.len();
        let used = self.read().values().map(|p| 64 + p.rows.iter().map(row).sum::<usize>()).sum::<usize>() as u64;
        MemtableUse { used_bytes: used, reusable_bytes: 0, committed_bytes: used }
    }

    fn is_empty(&self) -> bool {
        self.read().is_empty()
    }
}

enum Item {
    Row(Vec<u8>, Vec<u8>),
    Marker(ClusteringBound, DeletionTime, DeletionTime),
}

struct ReferenceCursor {
    memtable: Arc<ReferenceMemtable>,
    table: Arc<Table>,
    range: ReadRange,
    keys: Vec<PartitionKey>,
    next_key: usize,
    partition: Option<(PartitionKey, DeletionTime)>,
    static_row: Vec<u8>,
    items: Vec<Item>,
    next_item: usize,
}

impl ReferenceCursor {
    fn load(&mut self, key: PartitionKey) {
        let partition = self.memtable.read().get(&key).cloned();
        let Some(partition) = partition else { return };
        let writer = self.memtable.table.read().unwrap_or_else(PoisonError::into_inner).clone();
        let mut merger = RowMerger::default();
        let mut live = |blob: &[u8], deletion: DeletionTime, out: &mut Vec<u8>| {
            let mut merged = Vec::new();
            if blob.is_empty() || !merger.merge(&writer, &[Row::new(blob)], deletion, &mut merged) {
                return false;
            }
            merger.translate(Row::new(&merged), &writer, &self.table, out)
        };
        self.static_row.clear();
        live(&partition.static_row, partition.deletion, &mut self.static_row);
        let columns = columns(&self.table);
        let mut placed: Vec<(Vec<u8>, Item)> = Vec::new();
        let ranges: Vec<(Vec<u8>, Vec<u8>, &RangeDeletion)> = partition
            .ranges
            .iter()
            .map(|range| (encode_bound(&columns, &range.slice.start), encode_bound(&columns, &range.slice.end), range))
            .collect();
        let covering = |from: &[u8], to: &[u8]| {
            let within = ranges.iter().filter(|(start, end, _)| start.as_slice() <= from && to <= end.as_slice());
            let newest = within.fold(DeletionTime::LIVE, |newest, (.., range)| newest.max(range.deletion));
            if newest.supersedes(&partition.deletion) { newest } else { DeletionTime::LIVE }
        };
        for slice in self.range.slices.as_slice() {
            let (start, end) = (encode_bound(&columns, &slice.start), encode_bound(&columns, &slice.end));
            let mut points: BTreeMap<Vec<u8>, &ClusteringBound> = BTreeMap::new();
            points.insert(start.clone(), &slice.start);
            points.insert(end.clone(), &slice.end);
            for (range_start, range_end, range) in &ranges {
                for (place, bound) in [(range_start, &range.slice.start), (range_end, &range.slice.end)] {
                    if *place > start && *place < end {
                        points.insert(place.clone(), bound);
                    }
                }
            }
            let places: Vec<_> = points.keys().cloned().collect();
            let mut open = DeletionTime::LIVE;
            for (index, (place, bound)) in points.iter().enumerate() {
                let next = places.get(index + 1).map_or(DeletionTime::LIVE, |next| covering(place, next));
                if next != open {
                    placed.push((place.clone(), Item::Marker((*bound).clone(), open, next)));
                    open = next;
                }
            }
            for (place, (clustering, blob)) in partition.rows.range(start..end) {
                let mut row = Vec::new();
                if live(blob, partition.deletion.max(covering(place, place)), &mut row) {
                    placed.push((place.clone(), Item::Row(clustering.clone(), row)));
                }
            }
        }
        placed.sort_by(|(left, _), (right, _)| left.cmp(right));
        self.items = placed.into_iter().map(|(_, item)| item).collect();
        if self.range.reversed {
            self.items.reverse();
        }
        self.next_item = 0;
        self.partition = Some((key, partition.deletion));
    }
}

impl UnfilteredCursor for ReferenceCursor {
    fn table(&self) -> &Arc<Table> {
        &self.table
    }

    fn advance_partition(&mut self) -> Result<bool, ReadError> {
        self.partition = None;
        while let Some(key) = self.keys.get(self.next_key).cloned() {
            self.next_key += 1;
            self.load(key);
            if self.partition.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn partition(&self) -> PartitionHead<'_> {
        let (key, deletion) = self.partition.as_ref().expect("partition() follows advance_partition() == true");
        let static_row = if self.static_row.is_empty() { None } else { Some(Row::new(&self.static_row)) };
        PartitionHead { key, deletion: *deletion, static_row }
    }

    fn advance(&mut self) -> Result<bool, ReadError> {
        self.next_item += 1;
        Ok(self.next_item <= self.items.len())
    }

    fn unfiltered(&self) -> Unfiltered<'_> {
        match &self.items[self.next_item - 1] {
            Item::Row(clustering, blob) => Unfiltered::Row(RowRef { clustering, row: Row::new(blob) }),
            Item::Marker(bound, before, after) => {
                Unfiltered::Marker(Marker { prefix: &bound.prefix, side: bound.side, before: *before, after: *after })
            }
        }
    }
}
