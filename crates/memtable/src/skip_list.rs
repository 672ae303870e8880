//! The memtable over skip lists: partitions by key, each of them an immutable version that is replaced as a whole.
//!
//! It corresponds to Cassandra's `SkipListMemtable` and `ShardedSkipListMemtable`, and to the baseline of *Trie
//! Memtables in Cassandra*. Writers of different partitions do not contend; those of one partition take turns. Readers
//! take a version and need no lock.

mod cursor;
mod partition;
mod version;

use std::ops::Bound;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Instant;

use arc_swap::ArcSwap;
use crossbeam_skiplist::SkipMap;
use model::{BoxCursor, PartitionKey, PartitionUpdate, ReadRange, RowMerger, RowObserver, Table};
use types::Token;

use crate::layout::Layout;
use crate::puts::PutCounters;
use crate::shard::{is_newer, note_newest};
use crate::sharding::shard_of;
use crate::statistics::Bounds;
use crate::{Memtable, MemtableFull, MemtableStatistics, MemtableUse, PutCounts};
use cursor::SkipListCursor;
use partition::Partition;
use version::{Change, Version};

/// A memtable of skip lists. It is never full.
pub struct SkipListMemtable {
    layout: Layout,
    shards: Box<[Shard]>,
}

/// A skip list of partitions, and the writers that may use it at the same time.
struct Shard {
    partitions: SkipMap<PartitionKey, Arc<Partition>>,
    /// The newest schema seen, under which rows are merged.
    table: ArcSwap<Table>,
    used_bytes: AtomicI64,
    puts: PutCounters,
    /// One for each thread that may write at the same time.
    writers: Box<[Mutex<ShardWriter>]>,
    /// Where the next thread looks for a free writer.
    turn: AtomicUsize,
}

/// A writer's private buffers.
struct ShardWriter {
    merger: RowMerger,
    bounds: Bounds,
}

impl SkipListMemtable {
    /// An empty memtable of one list, to which twice as many threads as there are cores may write at once.
    pub fn new(table: &Arc<Table>) -> SkipListMemtable {
        SkipListMemtable::sharded(table, 1, false)
    }

    /// An empty memtable of `shard_count` lists (at least one), each of an equal part of the tokens; with
    /// `serialize_writes` one thread at a time writes to a list.
    pub fn sharded(table: &Arc<Table>, shard_count: usize, serialize_writes: bool) -> SkipListMemtable {
        let cores = || std::thread::available_parallelism().map_or(2, |cores| cores.get());
        let writer_count = if serialize_writes { 1 } else { 2 * cores() };
        let shards = (0..shard_count.max(1)).map(|_| Shard::new(table, writer_count)).collect();
        SkipListMemtable { layout: Layout::new(table), shards }
    }

    fn shard_of(&self, token: Token) -> &Shard {
        &self.shards[shard_of(token, self.shards.len())]
    }

    /// The newest schema that anything here may have been written under, or `known` if that is newer.
    fn newest(&self, known: &Arc<Table>) -> Arc<Table> {
        let tables = self.shards.iter().map(|shard| shard.table.load_full());
        tables.fold(known.clone(), |newest, table| if is_newer(&table, &newest) { table } else { newest })
    }

    fn partition(&self, key: &PartitionKey) -> Option<(PartitionKey, Arc<Version>)> {
        let entry = self.shard_of(key.token()).partitions.get(key)?;
        Some((entry.key().clone(), entry.value().version()?))
    }

    /// The first partition after (or at) a bound.
    fn partition_after(&self, bound: Bound<&PartitionKey>) -> Option<(PartitionKey, Arc<Version>)> {
        let first = match bound {
            Bound::Included(key) | Bound::Excluded(key) => shard_of(key.token(), self.shards.len()),
            Bound::Unbounded => 0,
        };
        self.shards[first..].iter().find_map(|shard| {
            let mut entries = shard.partitions.range::<PartitionKey, _>((bound, Bound::Unbounded));
            // A partition whose first update is in progress has no version yet.
            entries.find_map(|entry| Some((entry.key().clone(), entry.value().version()?)))
        })
    }
}

impl Shard {
    fn new(table: &Arc<Table>, writer_count: usize) -> Shard {
        let writer = || Mutex::new(ShardWriter { merger: RowMerger::of_all_written(), bounds: Bounds::NONE });
        debug_assert!(writer_count > 0, "a shard has a writer");
        Shard {
            partitions: SkipMap::new(),
            table: ArcSwap::new(table.clone()),
            used_bytes: AtomicI64::new(0),
            puts: PutCounters::default(),
            writers: (0..writer_count).map(|_| writer()).collect(),
            turn: AtomicUsize::new(0),
        }
    }

    fn apply(&self, layout: &Layout, update: &PartitionUpdate, observer: Option<&mut dyn RowObserver>) -> i64 {
        let mut waited = None;
        let mut writer = self.writer(&mut waited);
        let ShardWriter { merger, bounds } = &mut *writer;
        note_newest(&self.table, update.table());
        let entry = self.partitions.get_or_insert_with(update.key().clone(), || Arc::new(Partition::new()));
        let partition = entry.value().begin(&mut waited);
        // Load this after the partition's turn was taken: its rows may be written under a schema that arrived while
        // this thread waited.
        let table = self.table.load_full();
        let old = partition.version();
        let mut change = Change::new(&table, layout.newest(), update, merger, observer);
        let new = change.apply(old.as_deref());
        debug_assert!(new.bytes() > 0, "a partition has a size");
        let old_bytes = old.as_ref().map_or(0, |old| old.bytes() as i64);
        let growth_bytes = new.bytes() as i64 - old_bytes;
        partition.publish(new);
        drop(partition);
        self.used_bytes.fetch_add(growth_bytes, Ordering::Relaxed);
        bounds.update_count += 1;
        bounds.partition_count += u64::from(old.is_none());
        bounds.cover_update(update);
        debug_assert!(bounds.partition_count <= bounds.update_count, "every partition came with an update of its own");
        match waited {
            None => self.puts.uncontended(),
            Some(since) => self.puts.contended(since.elapsed()),
        }
        growth_bytes
    }

    /// Any free writer. If there is none, `waited` is set to the start of the wait.
    fn writer(&self, waited: &mut Option<Instant>) -> MutexGuard<'_, ShardWriter> {
        let count = self.writers.len();
        let first = if count == 1 { 0 } else { self.turn.fetch_add(1, Ordering::Relaxed) };
        for offset in 0..count {
            match self.writers[(first + offset) % count].try_lock() {
                Ok(writer) => return writer,
                Err(TryLockError::Poisoned(poisoned)) => return poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => {}
            }
        }
        *waited = Some(Instant::now());
        lock(&self.writers[first % count])
    }

    fn bounds(&self) -> Bounds {
        self.writers.iter().fold(Bounds::NONE, |bounds, writer| bounds.and(lock(writer).bounds))
    }
}

impl Memtable for SkipListMemtable {
    fn apply(&self, update: &PartitionUpdate, observer: Option<&mut dyn RowObserver>) -> Result<i64, MemtableFull> {
        Ok(self.shard_of(update.key().token()).apply(&self.layout, update, observer))
    }

    fn cursor(self: Arc<Self>, table: &Arc<Table>, range: &ReadRange) -> BoxCursor<'static> {
        Box::new(SkipListCursor::new(self, table, range))
    }

    fn table_altered(&self, table: &Arc<Table>) {
        self.layout.follow(table);
        self.shards.iter().for_each(|shard| note_newest(&shard.table, table));
    }

    fn statistics(&self) -> MemtableStatistics {
        self.shards.iter().fold(Bounds::NONE, |bounds, shard| bounds.and(shard.bounds())).statistics()
    }

    /// The memory in use; only the allocator knows how much is committed for it.
    fn memory(&self) -> MemtableUse {
        let used: i64 = self.shards.iter().map(|shard| shard.used_bytes.load(Ordering::Relaxed)).sum();
        let used_bytes = used.max(0) as u64;
        MemtableUse { used_bytes, reusable_bytes: 0, committed_bytes: used_bytes }
    }

    fn is_empty(&self) -> bool {
        self.shards.iter().all(|shard| shard.partitions.is_empty())
    }

    fn puts(&self) -> Vec<PutCounts> {
        self.shards.iter().map(|shard| shard.puts.counts()).collect()
    }
}

/// An observer's panic leaves the guarded data as it was before the update, so a poisoned lock can be used.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
