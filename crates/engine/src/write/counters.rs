//! The counter cache: the current values of counters, so that an increment need not read them from the tables.
//!
//! A statement looks its counters up under the locks of their partitions, unless writes that were decided under these
//! locks are not visible yet. It reads the counters that it does not find from the tables, and adds them to the cache.
//! When its write becomes visible, the new totals replace the cached ones. A write that fails changes neither the
//! tables nor the cache. A write does not add counters to the cache, because only a read shows whether a deletion hides
//! a counter.
//!
//! The key of an entry has two epochs, and an entry is only found in the epochs in which it was made:
//!
//! - that of the table's data, which ends when rows are added or removed other than by writes: by a truncation or an
//!   import;
//! - that of the partition's stripe, which ends with each deletion in one of its partitions.
//!
//! An epoch ends after the change is visible, and a statement notes the epochs before it reads. So entries from before
//! the change are never found after it. Entries of past epochs are evicted in time.

use std::sync::atomic::{AtomicU64, Ordering};

use model::{ColumnData, ColumnId, NodeCount, PartitionKey, PartitionUpdate, Row, Table};
use quick_cache::Weighter;
use quick_cache::sync::Cache;

use crate::table::TableStore;

/// With 4,096 stripes a deletion makes few other counters be read again.
const STRIPE_BITS: u32 = 12;
/// The size of an entry beside its key: the pointer, the value and its places in the cache's tables, bytes.
const ENTRY_OVERHEAD_BYTES: u64 = 96;
/// An entry with a short key, for the estimate of their number, bytes.
const ENTRY_BYTES: u64 = 160;

/// The cached state of a counter that no deletion hides.
#[derive(Clone, Copy, Debug)]
struct KnownCounter {
    count: NodeCount,
    /// The timestamp of a cell that no deletion hides, so that none hides newer cells either, microseconds.
    visible_from: i64,
}

#[derive(Clone)]
struct Bytes;

impl Weighter<Box<[u8]>, KnownCounter> for Bytes {
    fn weight(&self, key: &Box<[u8]>, _: &KnownCounter) -> u64 {
        key.len() as u64 + ENTRY_OVERHEAD_BYTES
    }
}

type Entries = Cache<Box<[u8]>, KnownCounter, Bytes>;

/// The counters of all tables.
pub(crate) struct CounterCache {
    /// `None` if its size is 0.
    entries: Option<Entries>,
    /// The epoch of each stripe of partitions.
    stripes: Box<[AtomicU64]>,
    node: [u8; 16],
    requests: AtomicU64,
    hits: AtomicU64,
}

/// Numbers of the counter cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CounterCacheStats {
    /// The number of counters that it holds, including those of past epochs.
    pub entries: u64,
    /// The memory that it takes, bytes.
    pub size_bytes: u64,
    /// The memory that it may take, bytes.
    pub capacity_bytes: u64,
    /// How often a counter was looked up since the start.
    pub requests: u64,
    /// How often it was found.
    pub hits: u64,
}

impl CounterCache {
    /// A cache of this size in bytes for the counts of this node. There is none if the size is 0.
    pub fn new(capacity_bytes: u64, node: [u8; 16]) -> CounterCache {
        let estimated = usize::try_from(capacity_bytes / ENTRY_BYTES).unwrap_or(usize::MAX);
        let entries = (capacity_bytes > 0).then(|| Cache::with_weighter(estimated, capacity_bytes, Bytes));
        let stripes = if entries.is_some() { 1 << STRIPE_BITS } else { 0 };
        CounterCache {
            entries,
            stripes: (0..stripes).map(|_| AtomicU64::new(0)).collect(),
            node,
            requests: AtomicU64::new(0),
            hits: AtomicU64::new(0),
        }
    }

    /// The counters of a partition in the present epochs; `None` if there is no cache.
    pub fn partition(&self, store: &TableStore, key: &PartitionKey) -> Option<CachedCounters<'_>> {
        let entries = self.entries.as_ref()?;
        let bytes = key.bytes();
        let mut start = Vec::with_capacity(32 + bytes.len());
        start.extend_from_slice(&store.epoch.number().to_be_bytes());
        start.extend_from_slice(&self.stripe_of(key).load(Ordering::Acquire).to_be_bytes());
        start.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
        start.extend_from_slice(bytes);
        Some(CachedCounters { cache: self, entries, start_length: start.len(), key: start })
    }

    fn stripe_of(&self, key: &PartitionKey) -> &AtomicU64 {
        const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
        let hash = (key.token().0 as u64).wrapping_mul(ODD);
        &self.stripes[(hash >> (u64::BITS - STRIPE_BITS)) as usize]
    }

    /// Notes a write to a table of counters that is visible now.
    #[cold]
    pub fn note(&self, store: &TableStore, update: &PartitionUpdate) {
        let Some(mut counters) = self.partition(store, update.key()) else { return };
        let table = update.table();
        let deletes = |row: Row<'_>| {
            row.has_deletion()
                || row.columns(table).any(|(_, data)| !matches!(data, ColumnData::Simple(cell) if !cell.is_tombstone()))
        };
        if !update.partition_deletion().is_live()
            || update.range_deletion_count() > 0
            || update.static_row().is_some_and(deletes)
            || update.rows().any(|row| deletes(row.row))
        {
            self.stripe_of(update.key()).fetch_add(1, Ordering::AcqRel);
            return;
        }
        update.static_row().iter().for_each(|row| counters.replace_row(&[], *row, table));
        update.rows().for_each(|row| counters.replace_row(row.clustering, row.row, table));
    }

    /// Removes all entries.
    pub fn clear(&self) {
        self.entries.iter().for_each(Entries::clear);
    }

    /// Its numbers.
    pub fn stats(&self) -> CounterCacheStats {
        let Some(entries) = &self.entries else { return CounterCacheStats::default() };
        CounterCacheStats {
            entries: entries.len() as u64,
            size_bytes: entries.weight(),
            capacity_bytes: entries.capacity(),
            requests: self.requests.load(Ordering::Relaxed),
            hits: self.hits.load(Ordering::Relaxed),
        }
    }
}

/// The counters of one partition in the cache, in the epochs in which this was made.
pub struct CachedCounters<'c> {
    cache: &'c CounterCache,
    entries: &'c Entries,
    /// The epochs and the partition key, then the clustering and the column of the counter that was asked for last.
    key: Vec<u8>,
    start_length: usize,
}

impl CachedCounters<'_> {
    /// The node's total of a counter. Static counters have an empty clustering.
    pub fn get(&mut self, clustering: &[u8], column: ColumnId) -> Option<NodeCount> {
        self.find(clustering, column);
        let found = self.entries.get(&self.key[..]);
        self.cache.requests.fetch_add(1, Ordering::Relaxed);
        self.cache.hits.fetch_add(u64::from(found.is_some()), Ordering::Relaxed);
        found.map(|known| known.count)
    }

    /// Adds a live counter that was read since this was made, with the timestamp of its cell, microseconds. The lock of
    /// the partition must be held.
    pub fn put(&mut self, clustering: &[u8], column: ColumnId, count: NodeCount, timestamp: i64) {
        self.find(clustering, column);
        self.entries.insert(self.key[..].into(), KnownCounter { count, visible_from: timestamp });
    }

    /// Replaces those counters of a written row that are known.
    fn replace_row(&mut self, clustering: &[u8], row: Row<'_>, table: &Table) {
        let columns = table.columns(row.is_static());
        for (index, data) in row.columns(table) {
            let ColumnData::Simple(cell) = data else { continue };
            self.find(clustering, columns.columns[index].id);
            let Some(known) = self.entries.peek(&self.key[..]) else { continue };
            match NodeCount::of(cell.value, self.cache.node).filter(|_| cell.timestamp >= known.visible_from) {
                // It may be evicted by now.
                Some(count) => drop(self.entries.replace(self.key[..].into(), KnownCounter { count, ..known }, true)),
                None => drop(self.entries.remove(&self.key[..])),
            }
        }
    }

    fn find(&mut self, clustering: &[u8], column: ColumnId) {
        self.key.truncate(self.start_length);
        self.key.extend_from_slice(clustering);
        self.key.extend_from_slice(&column.0.to_be_bytes());
    }
}
