//! The public calls of an engine, which delegate to its components, and its statistics.
//!
//! Calls fail with an [`EngineError`]. A call for a table fails with [`EngineError::UnknownTable`] if the table was
//! dropped or created anew, and with [`EngineError::Quarantined`] if it is not served. Where a call reads, the cause
//! may also be the disk or damaged data ([`EngineError::Disk`], [`EngineError::Read`], [`EngineError::SSTable`]); where
//! it writes files, also the disk. A call that writes to the log fails with [`EngineError::ClosedForWrites`] after the
//! log has failed, after a shutdown, and, except for tables of the system, if the engine is read-only. Other errors are
//! documented at their calls.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use commitlog::{BlockWrites, LogHold, LogMetrics, QueueMeans, ReplayReport};
use model::{BoxCursor, Index, KeyRange, Keyspace, Mutation, PartitionKey, ReadRange, RowRef, Schema, Table};
use sstable::PartitionHint;
use types::TokenRanges;
use uuid::Uuid;

use super::Engine;
use crate::compaction::tasks::CompactionStats;
use crate::error::EngineError;
use crate::flush::FlushStats;
use crate::hooks::DiskFailureKind;
use crate::index_stats::{IndexStats, all_index_stats};
use crate::metrics::{TableStats, all_table_stats, stats_of};
use crate::options::EngineOptions;
use crate::quarantine::{Quarantine, QuarantinedTable};
use crate::read::{self, IndexCandidates, IndexedValues, NearestCandidates, RowSelection, Rows};
use crate::recovery::ReplaySummary;
use crate::schema::change::Keyspaces;
use crate::schema_rows::SchemaDamage;
use crate::shared::BorrowedSchema;
use crate::system::SystemWrite;
use crate::transfer::{AdoptedTable, SnapshotInfo};
use crate::turn::Turn;
use crate::write::{CachedCounters, CounterCacheStats, Derive, Derived};

/// Reads.
impl Engine {
    /// The rows of `table` within `range`, from all memtables and SSTables, reconciled and without shadowed data.
    /// Expired cells and tombstones are included, because only the caller knows what *now* is, and because it may merge
    /// the rows with those of other places, which may need every deletion.
    ///
    /// SSTables whose keys, filter and clusterings exclude the range are skipped, and (in reads of one partition) those
    /// that a deletion of the whole partition covers. Blocks on the disk where SSTables are not cached; see
    /// [`Engine::is_in_memory`].
    pub fn read(&self, table: &Arc<Table>, range: &ReadRange) -> Result<BoxCursor<'static>, EngineError> {
        read::read(&self.shared, table, range)
    }

    /// Like [`Engine::read`], for a caller that knows what *now* is (seconds since the epoch), and for which these rows
    /// are the answer. It also skips SSTables in which everything was deleted or expired `gc_grace_seconds` before, if
    /// they shadow nothing that this read finds, and in a read of one row those older than every column of it.
    /// With a `turn` that may not block, the cursor fails where it would have to wait for a device
    /// ([`EngineError::would_wait`]).
    pub fn read_at(
        &self,
        table: &Arc<Table>,
        range: &ReadRange,
        now_seconds: u32,
        turn: Turn<'_>,
    ) -> Result<BoxCursor<'static>, EngineError> {
        read::read_at(&self.shared, table, range, now_seconds, turn)
    }

    /// A few rows of one partition of a table of this schema without static columns. If they are cached and need no
    /// merging, they are passed to `take` until that returns false; otherwise they are in a cursor, as
    /// [`Engine::read_at`] returns it.
    pub fn rows(
        &self,
        schema: &BorrowedSchema,
        table: &Arc<Table>,
        selection: &RowSelection<'_>,
        now_seconds: u32,
        turn: Turn<'_>,
        take: &mut dyn FnMut(RowRef<'_>) -> bool,
    ) -> Result<Rows, EngineError> {
        read::rows(&self.shared, schema.catalog(), table, selection, now_seconds, turn, take)
    }

    /// The keys of rows within `keys` that may have one of some values, by an index of the table. `None` if the index
    /// is not complete yet, or if a range of values has too many rows: then all rows have to be read. On a thread that
    /// may not be blocked, more than a few rows of a range are too many.
    ///
    /// The caller then has to read the rows and check their values: a row may have been changed or deleted, or be
    /// expired. Rows that are written meanwhile may be missing. If a file of the index cannot be read, the call for the
    /// next key fails with [`EngineError::UnreadableIndex`].
    pub fn index_candidates(
        &self,
        table: &Arc<Table>,
        index: &Index,
        values: IndexedValues<'_>,
        keys: &KeyRange,
        turn: Turn<'_>,
    ) -> Result<Option<IndexCandidates>, EngineError> {
        read::candidates(&self.shared, table, index, values, keys, turn)
    }

    /// The keys of rows within `keys` that may have both of two values, by two indexes of the table. `None` unless all
    /// rows are in one memtable, where this costs much less than [`Engine::index_candidates`] of both.
    ///
    /// As there, the caller has to read the rows and check their values.
    pub fn common_candidates(
        &self,
        table: &Arc<Table>,
        sought: [(&Index, IndexedValues<'_>); 2],
        keys: &KeyRange,
    ) -> Result<Option<IndexCandidates>, EngineError> {
        read::common_candidates(&self.shared, table, sought, keys)
    }

    /// The keys of the rows within `keys` whose vectors are the most similar to a given one, by an index of vectors.
    /// About `count` of them will be asked for. `None` if the index is not complete yet: then all rows have to be read.
    ///
    /// As with [`Engine::index_candidates`], the caller has to read the rows and check their vectors, and a file of the
    /// index may turn out to be unreadable. The thread must be one that may be blocked.
    pub fn nearest_candidates(
        &self,
        table: &Arc<Table>,
        index: &Index,
        wanted: &[f32],
        keys: &KeyRange,
        count: usize,
    ) -> Result<Option<NearestCandidates>, EngineError> {
        read::nearest(&self.shared, table, index, wanted, keys, count)
    }

    /// Whether the table's memtables are so large that a partition is rarely in the processor's caches.
    pub fn has_large_memtables(&self, table: &Table) -> bool {
        read::has_large_memtables(&self.shared, table)
    }

    /// Whether reads of the table touch memory only, so that they may run where blocking is not allowed.
    pub fn is_in_memory(&self, table: &Table) -> bool {
        read::is_in_memory(&self.shared, table)
    }

    /// Prefetches the memory of memtables that reads and writes of these partitions will access right after.
    pub fn prefetch(&self, table: &Table, keys: &[&PartitionKey]) {
        read::prefetch(&self.shared, table, keys);
    }

    /// As [`prefetch`](Self::prefetch), for reads only. It also prefetches the cached data of SSTables at these places,
    /// where they probably have the partitions. Waits for no device.
    pub fn prefetch_hinted(&self, table: &Table, keys: &[&PartitionKey], hints: &[PartitionHint]) {
        read::prefetch_hinted(&self.shared, table, keys, hints);
    }
}

/// Writes.
impl Engine {
    /// Writes a mutation. Completes when the mutation is as durable as `commitlog_sync` requires and visible to every
    /// read that starts later. It waits for memory, for room in tables in memory and for room in the log.
    ///
    /// Fails with [`EngineError::MutationTooLarge`] or [`EngineError::InMemoryTableFull`], as the other writes do,
    /// before anything is written.
    ///
    /// The future may be dropped before it completes. The mutation is then written as a whole or not at all; if its
    /// record is in the log already, it is written in the background. The future needs no particular runtime.
    pub async fn write(&self, mutation: &Mutation) -> Result<(), EngineError> {
        self.writes.write(mutation).await
    }

    /// Writes a batch as [`Engine::write`] does. The batch may be larger than a log record; some updates of such a
    /// batch become visible before others. Each single update must fit into a record.
    pub async fn write_batch(self: &Arc<Engine>, mutation: &Mutation) -> Result<(), EngineError> {
        self.writes.write_batch(self, mutation).await
    }

    /// Writes a mutation as [`Engine::write`] does. A mutation larger than a log record is written update by update,
    /// for updates that need not become visible together. Each of them must fit into a record, or nothing is written.
    pub async fn write_parts(&self, mutation: &Mutation) -> Result<(), EngineError> {
        self.writes.write_parts(mutation).await
    }

    /// Executes a write that reads before it writes, under the locks of its partitions. Completes as [`Engine::write`]
    /// does. With `may_block` its reads wait for devices on this thread.
    pub async fn write_derived<D: Derive>(&self, derive: &Arc<D>, may_block: bool) -> Result<D::Answer, D::Error> {
        self.writes.write_derived(derive, may_block).await
    }

    /// Reads and decides as [`Engine::write_derived`] does, but without locks, and writes nothing.
    pub async fn derive_unlocked<D: Derive>(
        &self,
        derive: &Arc<D>,
        may_block: bool,
    ) -> Result<Derived<D::Answer>, D::Error> {
        self.writes.derive_unlocked(derive, may_block).await
    }

    /// The counters of a partition in the counter cache. `None` if there is no such cache, if the table is not served,
    /// or if it has no SSTables: reading a memtable costs less than the cache. Call it under the lock of the partition,
    /// before the partition is read.
    pub fn cached_counters(&self, table: &Table, key: &PartitionKey) -> Option<CachedCounters<'_>> {
        let schema = self.shared.borrow_schema();
        let store = schema.catalog().store(table).ok()?;
        if store.borrow_view().sstables.is_empty() {
            return None;
        }
        self.writes.counters.partition(store, key)
    }

    /// Empties the counter cache.
    pub fn forget_counters(&self) {
        self.writes.counters.clear();
    }

    /// Writes columns of the node's row of `system.local`, durably. Blocks on the log.
    pub fn write_local(&self, values: &[(&str, Option<Vec<u8>>)]) -> Result<(), EngineError> {
        let local = self.shared.find_table("system", "local");
        let mut write = SystemWrite::new(&local, b"local", self.shared.next_timestamp_micros());
        write.row(&[], values);
        self.writes.durably(Mutation::new(vec![write.build()]))
    }

    /// Whether writes wait for the log before memtables take them.
    pub fn writes_wait(&self) -> bool {
        read::writes_wait(&self.shared)
    }

    /// Writes that this thread begins during the lifetime of the returned value go to the log together. The value
    /// collects the positions for which writes wait that are polled with `waker`. Meanwhile this thread begins no call
    /// that may block, because such a call could wait for an append whose wake-up is held back.
    pub fn hold_log(&self, waker: &Waker) -> LogHold {
        self.shared.log().hold_wake_ups(waker)
    }

    /// Microseconds since the epoch, greater than all values that this returned before.
    pub fn next_timestamp_micros(&self) -> i64 {
        self.shared.next_timestamp_micros()
    }

    /// Like [`next_timestamp_micros`](Self::next_timestamp_micros), for a caller that has just read the clock.
    pub fn next_timestamp_from(&self, now: i64) -> i64 {
        self.shared.next_timestamp_from(now)
    }
}

/// Flushes, compactions, and tables in memory.
impl Engine {
    /// Flushes one table. Blocks on the disk.
    pub fn flush(&self, table: &Table) -> Result<(), EngineError> {
        self.flush.flush_and_compact(&self.shared.store(table)?).map(|_| ())
    }

    /// Flushes every table that holds anything. Returns the first failure after all were tried. Blocks on the disk. For
    /// tests.
    #[doc(hidden)]
    pub fn flush_all(&self) -> Result<(), EngineError> {
        let failures = self.flush.flush_each();
        failures.into_iter().next().map_or(Ok(()), |(_, error)| Err(error))
    }

    /// The figures of the flush queue.
    pub fn flush_stats(&self) -> FlushStats {
        self.flush.stats()
    }

    /// The failure of a flush whose table was not flushed since.
    pub fn last_flush_failure(&self) -> Option<EngineError> {
        self.quarantine.flush_failures().any()
    }

    /// Flushes the memtable and merges all SSTables of a table into one, or into as many as its strategy asks for:
    /// unified compaction merges SSTables that do not overlap separately, and splits its output. Merges in flight stop,
    /// and SSTables that are flushed meanwhile may be merged beside it. Blocks until the merge is complete.
    pub fn compact(&self, table: &Table) -> Result<(), EngineError> {
        let store = self.shared.store(table)?;
        self.flush.flush_store(&store)?;
        self.compaction.compact(&store)
    }

    /// Flushes the memtable and removes all partitions outside of `kept` from the table's SSTables. SSTables that have
    /// such partitions are rewritten one after another, each as a whole or not at all, so that after an error or a
    /// crash the remaining ones are unchanged. Other SSTables are rewritten only if an SSTable of which nothing would
    /// be left has records that the log still holds. Rows that are written meanwhile stay.
    ///
    /// Returns whether all such partitions are gone. Some may be left if a truncation, a drop or a shutdown stopped the
    /// merges, or if the log still holds the records of an SSTable that has nothing else. Blocks until the merges are
    /// complete. Fails with [`EngineError::Unsupported`] for a table that lives in memory.
    pub fn clean_up(&self, table: &Table, kept: &TokenRanges) -> Result<bool, EngineError> {
        let store = self.shared.store(table)?;
        if store.resident().is_some() {
            return Err(EngineError::Unsupported(format!("{} lives in memory and is not cleaned up", table.name)));
        }
        self.flush.flush_store(&store)?;
        if kept.is_full() {
            return Ok(true);
        }
        self.compaction.clean_up(&store, kept)
    }

    /// Switches automatic compaction of one table on or off, until the next start.
    pub fn set_autocompaction(&self, table: &Table, enabled: bool) -> Result<(), EngineError> {
        self.compaction.set_automatic(&*self.shared.store(table)?, enabled);
        Ok(())
    }

    /// The figures of running and completed compactions.
    pub fn compaction_stats(&self) -> CompactionStats {
        self.compaction.stats()
    }

    /// The failure of a background compaction whose table was not compacted since.
    pub fn last_compaction_failure(&self) -> Option<EngineError> {
        self.compaction.last_failure()
    }

    /// Frees memory that is not needed at `now_seconds` in tables that live in memory, as a thread does every second.
    /// For tests.
    #[doc(hidden)]
    pub fn purge_resident(&self, now_seconds: u32) {
        self.residents.purge(now_seconds);
    }

    /// The last failure to load a table that lives in memory. Reads of that table use the disk.
    pub fn last_load_failure(&self) -> Option<EngineError> {
        self.residents.last_load_failure()
    }

    /// The tables that are not served, by keyspace and name.
    pub fn quarantined_tables(&self) -> Vec<QuarantinedTable> {
        self.quarantine.tables()
    }

    /// Reports a disk failure of a request. The engine itself reports those of its background work.
    pub fn disk_failed(&self, kind: DiskFailureKind, message: &str) {
        self.shared.disk_failed(kind, message);
    }
}

/// Changes of the schema, and of tables as a whole.
impl Engine {
    /// Changes the schema with `change`, which edits the keyspaces or fails. One change runs at a time. Returns the
    /// result of `change` and the new schema.
    ///
    /// Blocks on the log and on directories. The data of removed tables is deleted. Besides the errors of `change` it
    /// fails with [`EngineError::TableOptions`] or [`EngineError::Unstorable`] if the new schema cannot be used.
    pub fn change_schema<T, E: From<EngineError>>(
        &self,
        change: impl FnOnce(&Schema, &mut Keyspaces) -> Result<T, E>,
    ) -> Result<(T, Arc<Schema>), E> {
        self.tables.change(change)
    }

    /// Deletes all rows of a table. Blocks on the disk. Reads in progress may still see old rows.
    pub fn truncate(&self, table: &Table) -> Result<(), EngineError> {
        self.tables.truncations().truncate(table)
    }

    /// Takes a quarantined table back into service, and returns how many updates its side files had. Blocks on the
    /// disk.
    ///
    /// Fails with the reason if its SSTables or side files cannot be read ([`EngineError::SideFile`]), or the updates
    /// cannot be flushed. The table stays quarantined then. Fails with [`EngineError::Unsupported`] for a table that is
    /// not quarantined.
    pub fn repair_table(&self, keyspace: &str, name: &str) -> Result<u64, EngineError> {
        self.recovery.repair_table(keyspace, name)
    }
}

/// Imports, exports and snapshots.
impl Engine {
    /// Takes over the user keyspaces, the SSTables and the roles of the stopped Cassandra node whose data directories
    /// these are (one of them with its `system_schema`): BTI SSTables unchanged, `big` ones rewritten. The directories
    /// do not change. Blocks on the disk.
    ///
    /// Fails with [`EngineError::Unsupported`] if the node has something that we do not support (a custom index, a
    /// view, a function, a trigger, super columns), or a keyspace exists already. Then, and if an SSTable is damaged,
    /// nothing is taken over. Roles are taken over only if this node has none.
    pub fn adopt(&self, sources: &[PathBuf]) -> Result<Vec<AdoptedTable>, EngineError> {
        self.transfers.adopt(sources)
    }

    /// Imports copies of all SSTables of a directory, ours or Cassandra's (those of the format `big` are rewritten as
    /// BTI). Returns their number. When this returns, reads find them, and so does every later start. The directory
    /// does not change. Blocks on the disk.
    ///
    /// A damaged SSTable, or one that does not fit the table, is an error. Then nothing is imported. A crash leaves
    /// either all of the import or nothing.
    pub fn import(&self, table: &Table, directory: &Path) -> Result<usize, EngineError> {
        self.transfers.import(table, directory)
    }

    /// Loads the SSTables that were put into the table's own directory since the table was opened (the next start would
    /// load them too). Returns their number. They are verified, and replaced with copies that are the table's own.
    ///
    /// A damaged SSTable, or one that does not fit the table, is an error. Then all stay where they are. Blocks on the
    /// disk.
    pub fn refresh(&self, table: &Table) -> Result<usize, EngineError> {
        self.transfers.refresh(table)
    }

    /// Writes a data directory that Cassandra 5.0 can start from: the users' tables and `system_schema`, one after
    /// another, each as it is at that time; writes continue meanwhile. The directory gets its name once it is complete.
    /// Returns the number of its SSTables. Blocks on the disk.
    pub fn export(&self, data: &Path) -> Result<usize, EngineError> {
        self.transfers.export(data)
    }

    /// Links the table's SSTables, memtables flushed first, into `snapshots/<name>` of its directory, with a manifest
    /// and `schema_cql`. Blocks on the disk. Returns the directory, which exists complete or not at all. Fails with
    /// [`EngineError::Unsupported`] if the table has a snapshot of that name.
    pub fn snapshot(&self, table: &Table, name: &str, schema_cql: &str) -> Result<PathBuf, EngineError> {
        self.transfers.snapshot(table, name, schema_cql)
    }

    /// Like [`snapshot`](Self::snapshot), with the first of these names that is free, and with a lifetime, after which
    /// [`clear_expired_snapshots`](Self::clear_expired_snapshots) removes it.
    pub fn snapshot_as_first_of(
        &self,
        table: &Table,
        names: impl IntoIterator<Item = String>,
        schema_cql: &str,
        lifetime: Option<Duration>,
    ) -> Result<PathBuf, EngineError> {
        self.transfers.snapshot_as_first_of(table, names, schema_cql, lifetime)
    }

    /// All snapshots, of dropped tables too, by keyspace, table and name. Blocks on the disk.
    pub fn snapshots(&self) -> Result<Vec<SnapshotInfo>, EngineError> {
        self.transfers.snapshots()
    }

    /// Removes the snapshots of this name, or of any name, of tables in these keyspaces, or in all. Returns their
    /// number. Blocks on the disk.
    pub fn clear_snapshots(&self, keyspaces: &[String], name: Option<&str>) -> Result<usize, EngineError> {
        self.transfers.clear_snapshots(keyspaces, name)
    }

    /// Removes the snapshots whose lifetime is over. Returns their number. Blocks on the disk.
    pub fn clear_expired_snapshots(&self) -> Result<usize, EngineError> {
        self.transfers.clear_expired_snapshots()
    }
}

/// State and statistics.
impl Engine {
    /// The settings.
    pub fn options(&self) -> &EngineOptions {
        self.shared.options()
    }

    /// The current schema.
    pub fn schema(&self) -> Arc<Schema> {
        self.shared.schema()
    }

    /// Like [`Engine::schema`], for the length of a request: reading it writes to no memory that other threads use.
    pub fn borrow_schema(&self) -> BorrowedSchema {
        self.shared.borrow_schema()
    }

    /// The node's id, which its log and its SSTables carry.
    pub fn host_id(&self) -> Uuid {
        self.shared.host_id()
    }

    /// Statistics of one table.
    pub fn table_stats(&self, table: &Table) -> Result<TableStats, EngineError> {
        Ok(stats_of(&*self.shared.store(table)?))
    }

    /// Statistics of every secondary index, by keyspace, table and name.
    pub fn all_index_stats(&self) -> Vec<IndexStats> {
        all_index_stats(&self.shared)
    }

    /// Statistics of every table, by keyspace and name.
    pub fn all_table_stats(&self) -> Vec<TableStats> {
        all_table_stats(&self.shared)
    }

    /// Bytes of SSTables' pages and chunks in memory.
    pub fn cache_bytes(&self) -> u64 {
        self.shared.files().cache_bytes()
    }

    /// Statistics of the counter cache.
    pub fn counter_cache_stats(&self) -> CounterCacheStats {
        self.writes.counters.stats()
    }

    /// Bytes of dropped memtables, which new memtables use before they allocate from the system.
    pub fn spare_memtable_bytes(&self) -> u64 {
        self.shared.spare_pages().bytes() as u64
    }

    /// Bytes that all memtables use.
    pub fn memtable_bytes(&self) -> u64 {
        self.shared.pool().used_bytes()
    }

    /// The log's counters.
    pub fn log_metrics(&self) -> LogMetrics {
        self.shared.log().metrics()
    }

    /// How the log's blocks are written, and by which kind of queue.
    pub fn log_means(&self) -> (BlockWrites, QueueMeans) {
        (self.shared.log().block_writes(), self.shared.log().queue_means().clone())
    }

    /// How long a durable write of one block takes on the log's device. Blocks meanwhile.
    pub fn time_durable_write(&self) -> Result<Duration, EngineError> {
        self.shared.log().time_durable_write().map_err(|error| self.shared.log_failed(error))
    }

    /// The reason why the log takes no more records, if so: it failed, or was shut down.
    pub fn log_closed(&self) -> Option<String> {
        self.shared.log().closed().map(|reason| reason.to_string())
    }

    /// How SSTables are written to the device, as a start found out.
    pub fn sstable_writes(&self) -> &BlockWrites {
        self.shared.sstable_writes()
    }

    /// The counts of what the start replayed.
    pub fn replay_summary(&self) -> ReplaySummary {
        self.start.replayed
    }

    /// The contents of the log when it was opened: records, and with salvage the gaps that were skipped.
    pub fn log_report(&self) -> &ReplayReport {
        &self.start.log_report
    }

    /// The parts of the schema that the start left out, because a salvaged log was incomplete. Their files stay where
    /// they are.
    pub fn schema_damage(&self) -> &[SchemaDamage] {
        &self.start.schema_damage
    }

    /// The damage that the start found besides quarantined tables, and how it was handled.
    pub fn faults(&self) -> Vec<String> {
        self.shared.faults()
    }

    /// The answer to a request to a table whose definition cannot be read; `None` if there is no such table.
    pub fn unreadable_table(schema: &Schema, keyspace: &str, name: &str) -> Option<EngineError> {
        Quarantine::unreadable_table(schema, keyspace, name)
    }

    /// The new paths of files of tables' directories that belonged to no SSTable. The start moved them there.
    pub fn leftovers(&self) -> Vec<PathBuf> {
        self.tables.leftovers()
    }

    /// How long reading and replaying the log took.
    pub fn recovery_time(&self) -> Duration {
        self.start.recovery_time
    }

    /// Replaces the map of keyspaces; for tests of other crates that need a schema without CQL.
    #[doc(hidden)]
    pub fn set_keyspace(&self, keyspace: Keyspace) -> Result<(), EngineError> {
        let name = keyspace.name.clone();
        self.change_schema(|_, keyspaces: &mut Keyspaces| {
            keyspaces.insert(name, Arc::new(keyspace));
            Ok(())
        })
        .map(|_| ())
    }
}
