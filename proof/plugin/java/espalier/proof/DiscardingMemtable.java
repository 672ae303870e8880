package espalier.proof;

import java.util.Collections;
import java.util.Iterator;
import java.util.Map;
import java.util.concurrent.atomic.AtomicReference;

import org.apache.cassandra.db.ColumnFamilyStore;
import org.apache.cassandra.db.DataRange;
import org.apache.cassandra.db.DecoratedKey;
import org.apache.cassandra.db.EmptyIterators;
import org.apache.cassandra.db.PartitionPosition;
import org.apache.cassandra.db.RegularAndStaticColumns;
import org.apache.cassandra.db.Slices;
import org.apache.cassandra.db.commitlog.CommitLogPosition;
import org.apache.cassandra.db.filter.ColumnFilter;
import org.apache.cassandra.db.memtable.AbstractMemtableWithCommitlog;
import org.apache.cassandra.db.memtable.Memtable;
import org.apache.cassandra.db.partitions.Partition;
import org.apache.cassandra.db.partitions.PartitionUpdate;
import org.apache.cassandra.db.partitions.UnfilteredPartitionIterator;
import org.apache.cassandra.db.rows.EncodingStats;
import org.apache.cassandra.db.rows.UnfilteredRowIterator;
import org.apache.cassandra.index.transactions.UpdateTransaction;
import org.apache.cassandra.io.sstable.SSTableReadsListener;
import org.apache.cassandra.schema.TableMetadataRef;
import org.apache.cassandra.utils.concurrent.OpOrder;

/**
 * A memtable that keeps nothing, without a log. What a node spends on a write to it is the least that a write with any
 * memtable can cost.
 */
public final class DiscardingMemtable extends AbstractMemtableWithCommitlog
{
    private DiscardingMemtable(TableMetadataRef table, AtomicReference<CommitLogPosition> lowerBound)
    {
        super(table, lowerBound);
    }

    public static Memtable.Factory factory(Map<String, String> options)
    {
        return FACTORY;
    }

    private static final Memtable.Factory FACTORY = new Memtable.Factory()
    {
        @Override
        public Memtable create(AtomicReference<CommitLogPosition> lowerBound, TableMetadataRef table, Memtable.Owner owner)
        {
            return new DiscardingMemtable(table, lowerBound);
        }

        @Override
        public boolean writesShouldSkipCommitLog()
        {
            return true;
        }
    };

    @Override
    public long put(PartitionUpdate update, UpdateTransaction indexer, OpOrder.Group writes)
    {
        return Long.MAX_VALUE;
    }

    @Override
    public UnfilteredRowIterator rowIterator(DecoratedKey key, Slices slices, ColumnFilter columns, boolean reversed,
                                             SSTableReadsListener listener)
    {
        return null;
    }

    @Override
    public UnfilteredRowIterator rowIterator(DecoratedKey key)
    {
        return null;
    }

    @Override
    public UnfilteredPartitionIterator partitionIterator(ColumnFilter columns, DataRange range, SSTableReadsListener listener)
    {
        return EmptyIterators.unfilteredPartition(metadata());
    }

    @Override
    public FlushablePartitionSet<Partition> getFlushSet(PartitionPosition from, PartitionPosition to)
    {
        return new AbstractFlushablePartitionSet<Partition>()
        {
            @Override
            public Memtable memtable()
            {
                return DiscardingMemtable.this;
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
            public RegularAndStaticColumns columns()
            {
                return DiscardingMemtable.this.columns();
            }

            @Override
            public EncodingStats encodingStats()
            {
                return stats();
            }

            @Override
            public long partitionCount()
            {
                return 0;
            }

            @Override
            public long partitionKeysSize()
            {
                return 0;
            }

            @Override
            public Iterator<Partition> iterator()
            {
                return Collections.emptyIterator();
            }
        };
    }

    public RegularAndStaticColumns columns()
    {
        return RegularAndStaticColumns.NONE;
    }

    public EncodingStats stats()
    {
        return EncodingStats.NO_STATS;
    }

    @Override
    public long partitionCount()
    {
        return 0;
    }

    @Override
    public long getLiveDataSize()
    {
        return 0;
    }

    @Override
    public boolean isClean()
    {
        return true;
    }

    @Override
    public boolean shouldSwitch(ColumnFamilyStore.FlushReason reason)
    {
        return true;
    }

    @Override
    public void performSnapshot(String name)
    {
    }

    @Override
    public void localRangesUpdated()
    {
    }

    @Override
    public void metadataUpdated()
    {
    }

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
}
