package espalier.cassandra;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.Iterator;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import org.apache.cassandra.concurrent.ScheduledExecutors;
import org.apache.cassandra.db.ColumnFamilyStore;
import org.apache.cassandra.db.DataRange;
import org.apache.cassandra.db.DecoratedKey;
import org.apache.cassandra.db.PartitionPosition;
import org.apache.cassandra.db.RegularAndStaticColumns;
import org.apache.cassandra.db.Slices;
import org.apache.cassandra.db.commitlog.CommitLog;
import org.apache.cassandra.db.commitlog.CommitLogPosition;
import org.apache.cassandra.db.filter.ColumnFilter;
import org.apache.cassandra.db.lifecycle.SSTableSet;
import org.apache.cassandra.db.lifecycle.Tracker;
import org.apache.cassandra.db.lifecycle.View;
import org.apache.cassandra.db.memtable.AbstractMemtableWithCommitlog;
import org.apache.cassandra.db.memtable.Memtable;
import org.apache.cassandra.db.partitions.PartitionUpdate;
import org.apache.cassandra.db.partitions.UnfilteredPartitionIterator;
import org.apache.cassandra.db.rows.EncodingStats;
import org.apache.cassandra.db.rows.UnfilteredRowIterator;
import org.apache.cassandra.index.transactions.UpdateTransaction;
import org.apache.cassandra.io.sstable.SSTableReadsListener;
import org.apache.cassandra.io.sstable.format.SSTableReader;
import org.apache.cassandra.locator.TokenMetadata;
import org.apache.cassandra.net.MessagingService;
import org.apache.cassandra.notifications.INotification;
import org.apache.cassandra.notifications.INotificationConsumer;
import org.apache.cassandra.notifications.TruncationNotification;
import org.apache.cassandra.schema.IndexMetadata;
import org.apache.cassandra.schema.TableMetadataRef;
import org.apache.cassandra.service.StorageService;
import org.apache.cassandra.utils.FBUtilities;
import org.apache.cassandra.utils.concurrent.OpOrder;

/**
 * All rows of a table, in the engine: a memtable that is durable and does not end. Cassandra flushes it only when the
 * table leaves the mode, and replaces it by an empty one for TRUNCATE.
 */
final class StoredMemtable extends AbstractMemtableWithCommitlog implements NativeSource, INotificationConsumer
{
    private static final Logger logger = LoggerFactory.getLogger(StoredMemtable.class);
    private static final long DELAY_MILLIS = 1000;

    private final MemtableHandle handle;
    private final Memtable.Owner owner;
    private final StorageEngine engine;
    /** Whether the table has left the mode, and its rows still have to be flushed to Cassandra's SSTables. */
    private final boolean isLeaving;
    /** Whether an earlier process may have written rows of which nothing is known. So it is if they cannot be read. */
    private final boolean hasOlderRows;
    private volatile boolean isWritten;
    /** The least timestamp of rows in Cassandra's SSTables, as the engine has it. Guarded by this object. */
    private long oldestOfCassandra = Long.MIN_VALUE;
    /** The least timestamp of writes since {@link #beforeLogIsEmptied} that may be in Cassandra's log. */
    private final AtomicLong leastLogged = new AtomicLong(Long.MAX_VALUE);
    /** The same of earlier writes. Guarded by this object. */
    private long leastLoggedEarlier = Long.MAX_VALUE;
    private volatile boolean isSwitchedOut;

    StoredMemtable(AtomicReference<CommitLogPosition> lowerBound, TableMetadataRef table, Memtable.Owner owner, MemtableHandle handle,
                   StorageEngine engine, boolean isLeaving)
    {
        super(table, lowerBound);
        this.handle = handle;
        this.owner = owner;
        this.engine = engine;
        this.isLeaving = isLeaving;
        this.hasOlderRows = handle.usage()[0] != 0;
        engine.created(this);
        // The table's constructor adds its indexes after it has made its memtable.
        if (!table.get().indexes.isEmpty())
            ScheduledExecutors.optionalTasks.schedule(this::removeIndexes, DELAY_MILLIS, TimeUnit.MILLISECONDS);
        if (isLeaving)
            ScheduledExecutors.optionalTasks.schedule(this::move, DELAY_MILLIS, TimeUnit.MILLISECONDS);
    }

    /** Has Cassandra flush the rows of a table that has left the mode, once its start has gone that far. */
    private void move()
    {
        if (isSwitchedOut)
            return;
        try
        {
            owner.signalFlushRequired(this, ColumnFamilyStore.FlushReason.SCHEMA_CHANGE);
        }
        catch (RuntimeException notYet)
        {
            logger.debug("{} is not flushed yet", metadata, notYet);
            ScheduledExecutors.optionalTasks.schedule(this::move, DELAY_MILLIS, TimeUnit.MILLISECONDS);
        }
    }

    boolean isSwitchedOut()
    {
        return isSwitchedOut;
    }

    @Override
    public MemtableHandle handle()
    {
        return handle;
    }

    @Override
    public TableVersion version()
    {
        return handle.version(metadata());
    }

    @Override
    public RegularAndStaticColumns columns()
    {
        return metadata().regularAndStaticColumns();
    }

    @Override
    public EncodingStats stats()
    {
        return EncodingStats.NO_STATS;
    }

    @Override
    public long put(PartitionUpdate update, UpdateTransaction indexer, OpOrder.Group writes)
    {
        // A write that is refused may be in the log too. A statement that was prepared before a move into the mode has
        // the old definition of the table.
        if (engine.log.hasWrites() || !LogOfCassandra.isStorage(update.metadata()))
            noteLogged(update.stats().minTimestamp);
        refuse(indexer);
        // Before anything is serialized: a new version of the table is described in the same buffer.
        TableVersion version = handle.versionFor(update, metadata());
        if (!version.isWhole && !version.header.columns().includes(update.columns()))
            return refused(update);
        Buffers.Output serialized = Buffers.output();
        try
        {
            PartitionUpdate.serializer.serialize(update, serialized, MessagingService.VERSION_50);
        }
        catch (IOException impossible)
        {
            throw new UncheckedIOException(impossible);
        }
        isWritten = true;
        updateMin(minTimestamp, update.stats().minTimestamp);
        updateMin(minLocalDeletionTime, update.stats().minLocalDeletionTime);
        handle.put(serialized, Buffers.reply());
        currentOperations.addAndGet(update.operationCount());
        // Cassandra records how far apart the timestamps of versions are; this memtable does not say.
        return Long.MAX_VALUE;
    }

    /** Indexes and views are built from SSTables, which do not have these rows: they would miss rows silently. */
    private void refuse(UpdateTransaction indexer)
    {
        if (isLeaving || isReplay())
            return;
        if (indexer != UpdateTransaction.NO_OP || !metadata().indexes.isEmpty())
            throw refused("secondary indexes");
        if (owner instanceof ColumnFamilyStore && ((ColumnFamilyStore) owner).viewManager.hasViews())
            throw refused("materialized views");
        if (metadata().params.cdc)
            throw refused("CDC");
    }

    /**
     * Whether Cassandra may be replaying its log, which may have writes from before an index, and refused ones. If one
     * of them failed, the node would not start, and the index could not be dropped. Other nodes send writes to a node
     * that gossips, which begins after its replay. An operator may end gossip, but not before the daemon's setup ends.
     */
    private static boolean isReplay()
    {
        return !StorageService.instance.isDaemonSetupCompleted() && !StorageService.instance.isGossipActive();
    }

    /** A replay skips a write that was refused. */
    private long refused(PartitionUpdate update)
    {
        String reason = "EspalierMemtable: " + metadata + " takes no values of custom types, which mode 'storage' does not support: "
                        + update.columns();
        if (!isReplay())
            throw new IllegalStateException(reason);
        logger.warn(reason);
        return Long.MAX_VALUE;
    }

    private IllegalStateException refused(String what)
    {
        return new IllegalStateException("EspalierMemtable: " + metadata + " takes no writes: " + what + " are not supported in mode 'storage'");
    }

    @Override
    public void metadataUpdated()
    {
        removeIndexes();
    }

    /** Without its index, a query that needs it is refused, where the index would have found nothing. */
    private void removeIndexes()
    {
        if (metadata().indexes.isEmpty() || isLeaving || !(owner instanceof ColumnFamilyStore))
            return;
        for (IndexMetadata index : metadata().indexes)
        {
            logger.error("Index {} of {} is not used, because mode 'storage' has no secondary indexes. The table takes no writes until it is "
                         + "dropped", index.name, metadata);
            ((ColumnFamilyStore) owner).indexManager.removeIndex(index.name);
        }
    }

    @Override
    public void localRangesUpdated()
    {
        // Rows of ranges that the node no longer has stay until `nodetool cleanup`: they may be the only copies.
    }

    @Override
    public UnfilteredRowIterator rowIterator(DecoratedKey key, Slices slices, ColumnFilter columns, boolean reversed,
                                             SSTableReadsListener listener)
    {
        return NativeRows.read(this, key, slices, columns, reversed);
    }

    @Override
    public UnfilteredRowIterator rowIterator(DecoratedKey key)
    {
        return NativeRows.readLazily(this, key);
    }

    @Override
    public UnfilteredPartitionIterator partitionIterator(ColumnFilter columns, DataRange range, SSTableReadsListener listener)
    {
        return NativePartitions.read(this, columns, range);
    }

    @Override
    public FlushablePartitionSet<NativePartition> getFlushSet(PartitionPosition from, PartitionPosition to)
    {
        PartitionPosition end = to == null || to.isMinimum() ? null : to;
        long[] counts = handle.countKeys(version(), Requests.keys(from, end));
        // Cassandra flushes a memtable that was switched out. A stream may have begun before that.
        boolean isFlush = !(owner instanceof ColumnFamilyStore)
                          || isSwitchedOut && !TemporarySSTables.isWriting(Thread.currentThread());
        TemporarySSTables written = isFlush ? null : new TemporarySSTables((ColumnFamilyStore) owner);
        return new FlushSet(from, end, counts[0], counts[1], written);
    }

    private final class FlushSet extends AbstractFlushablePartitionSet<NativePartition>
    {
        private final PartitionPosition from;
        private final PartitionPosition to;
        private final long count;
        private final long keyBytes;
        /** Null for a flush. */
        private final TemporarySSTables written;

        private FlushSet(PartitionPosition from, PartitionPosition to, long count, long keyBytes,
                         TemporarySSTables written)
        {
            this.from = from;
            this.to = to;
            this.count = count;
            this.keyBytes = keyBytes;
            this.written = written;
        }

        @Override
        public Memtable memtable()
        {
            return StoredMemtable.this;
        }

        @Override
        public PartitionPosition from()
        {
            return from;
        }

        @Override
        public PartitionPosition to()
        {
            return to;
        }

        /** For a stream the memtable is not switched out, and so has no end in Cassandra's log. */
        @Override
        public LastCommitLogPosition commitLogUpperBound()
        {
            return isSwitchedOut ? super.commitLogUpperBound() : new LastCommitLogPosition(CommitLog.instance.getCurrentPosition());
        }

        @Override
        public RegularAndStaticColumns columns()
        {
            return StoredMemtable.this.columns();
        }

        @Override
        public EncodingStats encodingStats()
        {
            return stats();
        }

        @Override
        public long partitionCount()
        {
            return count;
        }

        @Override
        public long partitionKeysSize()
        {
            return keyBytes;
        }

        /** The inherited method says the opposite. */
        @Override
        public boolean isEmpty()
        {
            return count == 0;
        }

        @Override
        public Iterator<NativePartition> iterator()
        {
            Iterator<NativePartition> partitions = NativePartitions.flushed(StoredMemtable.this, from, to);
            return written == null ? partitions : written.tracked(partitions);
        }
    }

    @Override
    public boolean shouldSwitch(ColumnFamilyStore.FlushReason reason)
    {
        if (isLeaving)
            return true;
        switch (reason)
        {
            case TRUNCATE:
                return true;
            case SCHEMA_CHANGE:
                return !LogOfCassandra.isStorage(metadata());
            case COMMITLOG_DIRTY:
                engine.log.markCleanSoon(metadata().id);
                return false;
            default:
                return false;
        }
    }

    @Override
    public void performSnapshot(String name)
    {
        EngineSnapshot.addTo(name, (ColumnFamilyStore) owner, engine, handle);
    }

    /**
     * Removes the rows of ranges that the node does not have. Returns false if some of them are left: the table is on
     * its way out of the mode, the node's ranges are changing, or the engine could not rewrite all its files.
     */
    boolean cleanUp()
    {
        String keyspace = metadata().keyspace;
        TokenMetadata tokens = StorageService.instance.getTokenMetadata();
        if (isLeaving || isSwitchedOut || !StorageService.instance.isJoined()
            || !tokens.getPendingRanges(keyspace, FBUtilities.getBroadcastAddressAndPort()).isEmpty())
            return false;
        return handle.cleanUp(Requests.ranges(StorageService.instance.getLocalReplicas(keyspace).ranges()));
    }

    /**
     * Lets the engine purge the tombstones that are too old to shadow a row of Cassandra's SSTables, or of its log.
     * While Cassandra has another memtable of the table, nothing more is purged: writes that are under way may bring it
     * rows of any time.
     */
    synchronized void noteRowsOfCassandra()
    {
        Tracker tracker = owner instanceof ColumnFamilyStore ? ((ColumnFamilyStore) owner).getTracker() : null;
        if (tracker == null || isSwitchedOut)
            return;
        View view = tracker.getView();
        long oldest = Math.min(leastLogged.get(), leastLoggedEarlier);
        for (Memtable memtable : view.getAllMemtables())
            if (memtable != this)
                oldest = Long.MIN_VALUE;
        for (SSTableReader sstable : view.select(SSTableSet.CANONICAL))
            oldest = Math.min(oldest, sstable.getMinTimestamp());
        if (oldest == oldestOfCassandra)
            return;
        handle.setOldestOfCassandra(oldest);
        oldestOfCassandra = oldest;
    }

    /** Has the engine keep the tombstones that may shadow a write in Cassandra's log. */
    private void noteLogged(long timestamp)
    {
        if (timestamp >= leastLogged.get())
            return;
        updateMin(leastLogged, timestamp);
        synchronized (this)
        {
            if (timestamp < oldestOfCassandra)
            {
                handle.setOldestOfCassandra(timestamp);
                oldestOfCassandra = timestamp;
            }
        }
    }

    /** Whether writes may be in Cassandra's log. */
    boolean hasLoggedWrites()
    {
        return leastLogged.get() != Long.MAX_VALUE || leastLoggedEarlier() != Long.MAX_VALUE;
    }

    private synchronized long leastLoggedEarlier()
    {
        return leastLoggedEarlier;
    }

    /** From now on, writes that may be in Cassandra's log are noted apart from the earlier ones. */
    synchronized void beforeLogIsEmptied()
    {
        leastLoggedEarlier = Math.min(leastLoggedEarlier, leastLogged.getAndSet(Long.MAX_VALUE));
    }

    /** The earlier writes are no longer in Cassandra's log. */
    synchronized void afterLogIsEmptied()
    {
        leastLoggedEarlier = Long.MAX_VALUE;
    }

    /**
     * Rows of an earlier process may have any timestamp, so that no tombstone is purged which may shadow one of them.
     */
    @Override
    public long getMinTimestamp()
    {
        return hasOlderRows ? Long.MIN_VALUE : super.getMinTimestamp();
    }

    @Override
    public long getMinLocalDeletionTime()
    {
        return hasOlderRows ? 0 : super.getMinLocalDeletionTime();
    }

    @Override
    public long partitionCount()
    {
        return Math.max(0, handle.usage()[0]);
    }

    @Override
    public long getLiveDataSize()
    {
        return handle.usage()[1];
    }

    @Override
    public boolean isClean()
    {
        return !isWritten && !hasOlderRows;
    }

    /** The engine has its own memory, which is no part of Cassandra's pool. */
    @Override
    public void addMemoryUsageTo(MemoryUsage usage)
    {
    }

    @Override
    public void markExtraOnHeapUsed(long additionalSpace, OpOrder.Group writes)
    {
    }

    @Override
    public void markExtraOffHeapUsed(long additionalSpace, OpOrder.Group writes)
    {
    }

    @Override
    public void switchOut(OpOrder.Barrier writeBarrier, AtomicReference<CommitLogPosition> commitLogUpperBound)
    {
        super.switchOut(writeBarrier, commitLogUpperBound);
        isSwitchedOut = true;
        if (owner instanceof ColumnFamilyStore)
            ((ColumnFamilyStore) owner).getTracker().subscribe(this);
    }

    /**
     * Removes the rows when the table is truncated. Cassandra discards the memtable too, but some time after the
     * statement was answered: a start in between would bring the rows back. By now they are in Cassandra's SSTables,
     * for its snapshot, or nobody wants them.
     *
     * Throws, so that the statement fails, if the rows could not be flushed: they would be in no snapshot. Cassandra
     * still reads them, and so does the next start.
     */
    @Override
    public void handleNotification(INotification notification, Object sender)
    {
        if (!(notification instanceof TruncationNotification))
            return;
        ColumnFamilyStore store = (ColumnFamilyStore) owner;
        // If it is the memtable of another statement, its flush may be under way. This waits for it, and flushes
        // nothing.
        if (isRead(store))
            store.forceBlockingFlush(ColumnFamilyStore.FlushReason.USER_FORCED);
        if (isRead(store))
            throw new IllegalStateException("EspalierMemtable: " + metadata + " is not truncated: rows of it could not be flushed earlier, and "
                                            + "would be in no snapshot. Truncate it after the next start");
        store.readOrdering.awaitNewBarrier();
        handle.discard();
    }

    /** Whether Cassandra reads the memtable. */
    private boolean isRead(ColumnFamilyStore store)
    {
        for (Memtable memtable : store.getTracker().getView().getAllMemtables())
            if (memtable == this)
                return true;
        return false;
    }

    /** Removes the rows: Cassandra's SSTables have them, or they were truncated or dropped. */
    @Override
    public void discard()
    {
        super.discard();
        handle.discard();
        engine.discarded(this);
        if (owner instanceof ColumnFamilyStore)
            ((ColumnFamilyStore) owner).getTracker().unsubscribe(this);
    }
}
