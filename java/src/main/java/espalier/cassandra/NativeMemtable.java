package espalier.cassandra;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Function;

import org.apache.cassandra.db.Clustering;
import org.apache.cassandra.db.ColumnFamilyStore;
import org.apache.cassandra.db.DataRange;
import org.apache.cassandra.db.DecoratedKey;
import org.apache.cassandra.db.DeletionInfo;
import org.apache.cassandra.db.PartitionPosition;
import org.apache.cassandra.db.RangeTombstone;
import org.apache.cassandra.db.RegularAndStaticColumns;
import org.apache.cassandra.db.Slices;
import org.apache.cassandra.db.commitlog.CommitLogPosition;
import org.apache.cassandra.db.filter.ColumnFilter;
import org.apache.cassandra.db.memtable.AbstractAllocatorMemtable;
import org.apache.cassandra.db.memtable.Memtable;
import org.apache.cassandra.db.partitions.PartitionUpdate;
import org.apache.cassandra.db.partitions.UnfilteredPartitionIterator;
import org.apache.cassandra.db.rows.BTreeRow;
import org.apache.cassandra.db.rows.DeserializationHelper;
import org.apache.cassandra.db.rows.EncodingStats;
import org.apache.cassandra.db.rows.Row;
import org.apache.cassandra.db.rows.Rows;
import org.apache.cassandra.db.rows.UnfilteredRowIterator;
import org.apache.cassandra.db.rows.UnfilteredSerializer;
import org.apache.cassandra.index.transactions.UpdateTransaction;
import org.apache.cassandra.io.sstable.SSTableReadsListener;
import org.apache.cassandra.io.util.DataInputBuffer;
import org.apache.cassandra.net.MessagingService;
import org.apache.cassandra.schema.TableMetadata;
import org.apache.cassandra.schema.TableMetadataRef;
import org.apache.cassandra.utils.concurrent.OpOrder;

/**
 * A memtable whose partitions and rows are in the native memtable: this object holds nothing for each of them.
 *
 * A write crosses to native code once, a read once for each page of up to 64 KiB, which has as many partitions as it
 * has room for.
 */
final class NativeMemtable extends AbstractAllocatorMemtable implements NativeSource
{
    /** A memtable this large is flushed. So is one of which a shard is half full. */
    private static final long BYTES_MAX = 2L << 30;

    private final MemtableHandle handle;
    private final ShardMetrics metrics;
    private final AtomicLong usedBytes = new AtomicLong();
    private final AtomicBoolean switchRequested = new AtomicBoolean();
    private volatile boolean isWritten;

    NativeMemtable(AtomicReference<CommitLogPosition> lowerBound, TableMetadataRef table, Memtable.Owner owner, MemtableHandle handle)
    {
        super(lowerBound, table, owner);
        this.handle = handle;
        this.metrics = new ShardMetrics(handle, table.get());
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

    /** The columns that anything was written to. */
    @Override
    public RegularAndStaticColumns columns()
    {
        return columnsCollector.get();
    }

    @Override
    public EncodingStats stats()
    {
        return statsCollector.get();
    }

    @Override
    public long put(PartitionUpdate update, UpdateTransaction indexer, OpOrder.Group writes)
    {
        // Before anything is serialized: a new version of the table is described in the same buffer.
        TableVersion version = handle.versionFor(update, metadata());
        Buffers.Output serialized = Buffers.output();
        serialize(update, serialized);
        Buffers.Reply reply = Buffers.reply();
        boolean isObserved = indexer != UpdateTransaction.NO_OP;
        long written;
        try (TakenMemory taken = TakenMemory.take(allocator.offHeap(), MEMORY_POOL.offHeap, 2 * serialized.length() + 512, writes))
        {
            written = applied(serialized, version, isObserved, reply);
            taken.use(MemtableHandle.grownBytes(written));
        }
        // A flush and an index use the same buffers, so the changes are read first.
        List<Change> changes = isObserved ? changes(reply, version) : List.of();
        note(update, written);
        if (isObserved)
            notifyIndexes(indexer, update, changes);
        // Cassandra records how far apart the timestamps of versions are; this memtable does not say.
        return Long.MAX_VALUE;
    }

    /** Applies an update in the native memtable. */
    private long applied(Buffers.Output serialized, TableVersion version, boolean isObserved, Buffers.Reply reply)
    {
        try
        {
            long written = isObserved ? handle.putObserved(version, serialized, reply) : handle.put(serialized, reply);
            isWritten = true;
            return written;
        }
        catch (MemtableFullException full)
        {
            // The system has no memory, or very many writes came while the memtable was switched. Cassandra's log has
            // this write in the part that the flush makes clean, so no other memtable may take it: it fails, and the
            // next ones find an empty memtable.
            owner.signalFlushRequired(this, ColumnFamilyStore.FlushReason.MEMTABLE_LIMIT);
            throw full;
        }
    }

    private static void serialize(PartitionUpdate update, Buffers.Output out)
    {
        try
        {
            PartitionUpdate.serializer.serialize(update, out, MessagingService.VERSION_50);
        }
        catch (IOException impossible)
        {
            throw new UncheckedIOException(impossible);
        }
    }

    private void note(PartitionUpdate update, long written)
    {
        EncodingStats stats = update.stats();
        updateMin(minTimestamp, stats.minTimestamp);
        updateMin(minLocalDeletionTime, stats.minLocalDeletionTime);
        columnsCollector.update(update.columns());
        statsCollector.update(stats);
        metrics.note(update.operationCount(), currentOperations.addAndGet(update.operationCount()));
        boolean isLarge = usedBytes.addAndGet(MemtableHandle.grownBytes(written)) > BYTES_MAX;
        if ((isLarge || MemtableHandle.isHalfFull(written)) && !switchRequested.getAndSet(true))
            owner.signalFlushRequired(this, ColumnFamilyStore.FlushReason.MEMTABLE_LIMIT);
    }

    /**
     * Notifies the indexes of what an update changed. They may wait for memory of the pool, so the update has given
     * back what it did not need of it.
     */
    private static void notifyIndexes(UpdateTransaction indexer, PartitionUpdate update, List<Change> changes)
    {
        indexer.start();
        try
        {
            DeletionInfo deletions = update.deletionInfo();
            if (!deletions.getPartitionDeletion().isLive())
                indexer.onPartitionDeletion(deletions.getPartitionDeletion());
            Iterator<RangeTombstone> ranges = deletions.rangeIterator(false);
            while (ranges.hasNext())
                indexer.onRangeTombstone(ranges.next());
            Function<Clustering<?>, Row> rows = rowsOf(update);
            for (Change change : changes)
                change.notifyIndexes(rows.apply(change.row.clustering()), indexer);
        }
        finally
        {
            indexer.commit();
        }
    }

    /** The rows that an update has, by their clusterings. {@code getRow} adds what the update deletes beside them. */
    private static Function<Clustering<?>, Row> rowsOf(PartitionUpdate update)
    {
        if (update.deletionInfo().isLive())
            return update::getRow;
        Map<Clustering<?>, Row> rows = new TreeMap<>(update.metadata().comparator);
        for (Row row : update)
            rows.put(row.clustering(), row);
        return clustering -> clustering == Clustering.STATIC_CLUSTERING ? update.staticRow() : rows.get(clustering);
    }

    /** A row that an update changed. */
    private static final class Change
    {
        private static final int IS_NEW = 1;

        private final boolean isNew;
        /** The row as it is now if it is new, or else as it was. */
        private final Row row;

        private Change(int kind, Row row)
        {
            this.isNew = kind == IS_NEW;
            this.row = row;
        }

        /**
         * Rows that only lost what the update deletes are left out: Cassandra's memtables keep them beside the
         * deletion.
         */
        private void notifyIndexes(Row written, UpdateTransaction indexer)
        {
            if (written == null || written.isEmpty())
                return;
            if (isNew)
                indexer.onInserted(written);
            else
                indexer.onUpdated(row, Rows.merge(row, written));
        }
    }

    /** The changed rows that native code has written to the reply, or keeps because the reply is too small. */
    private static List<Change> changes(Buffers.Reply reply, TableVersion version)
    {
        if (reply.status() != Buffers.Reply.TOO_SMALL)
            return changes(reply.content(), version);
        long kept = reply.handle();
        Buffers.Reply larger = new Buffers.Reply(ByteBuffer.allocateDirect(reply.length()));
        larger.check(Native.takeChanges(kept, larger.address(), larger.capacity()));
        return changes(larger.content(), version);
    }

    private static List<Change> changes(ByteBuffer content, TableVersion version)
    {
        List<Change> changes = new ArrayList<>();
        DeserializationHelper helper =
            new DeserializationHelper(version.metadata, MessagingService.VERSION_50, DeserializationHelper.Flag.LOCAL);
        Row.Builder builder = BTreeRow.sortedBuilder();
        try (DataInputBuffer in = new DataInputBuffer(content, false))
        {
            while (in.available() > 0)
            {
                int kind = in.readUnsignedByte();
                boolean isStatic = in.readBoolean();
                Row row = isStatic ? UnfilteredSerializer.serializer.deserializeStaticRow(in, version.header, helper)
                                   : (Row) UnfilteredSerializer.serializer.deserialize(in, version.header, helper, builder);
                changes.add(new Change(kind, row));
            }
        }
        catch (IOException impossible)
        {
            throw new UncheckedIOException(impossible);
        }
        return changes;
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
        long[] counts = handle.countKeys(version(), Requests.keys(from, to));
        return new FlushSet(from, to, counts[0], counts[1]);
    }

    private final class FlushSet extends AbstractFlushablePartitionSet<NativePartition>
    {
        private final PartitionPosition from;
        private final PartitionPosition to;
        private final long count;
        private final long keyBytes;

        private FlushSet(PartitionPosition from, PartitionPosition to, long count, long keyBytes)
        {
            this.from = from;
            this.to = to;
            this.count = count;
            this.keyBytes = keyBytes;
        }

        @Override
        public Memtable memtable()
        {
            return NativeMemtable.this;
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
            return NativePartitions.flushed(NativeMemtable.this, from, to);
        }
    }

    @Override
    public long partitionCount()
    {
        return handle.usage()[0];
    }

    @Override
    public long getLiveDataSize()
    {
        return usedBytes.get();
    }

    @Override
    public boolean isClean()
    {
        return !isWritten;
    }

    @Override
    public void discard()
    {
        metrics.flushed();
        super.discard();
        handle.discard();
    }
}
