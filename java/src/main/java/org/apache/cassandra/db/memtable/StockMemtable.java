package org.apache.cassandra.db.memtable;

import java.util.concurrent.atomic.AtomicReference;

import espalier.cassandra.TakenMemory;

import org.apache.cassandra.db.commitlog.CommitLogPosition;
import org.apache.cassandra.db.partitions.PartitionUpdate;
import org.apache.cassandra.index.transactions.UpdateTransaction;
import org.apache.cassandra.metrics.TableMetrics;
import org.apache.cassandra.schema.TableMetadataRef;
import org.apache.cassandra.utils.concurrent.OpOrder;

/**
 * Cassandra's trie memtable, for tables that the native memtable does not carry, such as those of legacy indexes. A
 * write waits for memory before it takes the lock of a shard.
 *
 * Cassandra's own class waits while it holds that lock. A flush waits for the writes that began before it, so if one
 * of these needs the same lock, all writes of the node stop (CASSANDRA-21019). The class is in this package because
 * the constructor of {@link TrieMemtable} is visible here only.
 */
public final class StockMemtable extends TrieMemtable
{
    /** Writes of this group never wait for memory: they take it beyond the limit. */
    private static final OpOrder.Group WITHOUT_WAITING = groupWithoutWaiting();

    private StockMemtable(AtomicReference<CommitLogPosition> lowerBound, TableMetadataRef table, Memtable.Owner owner, int shards)
    {
        super(lowerBound, table, owner, shards);
    }

    /** Makes such memtables with that number of shards. Their metrics are those of Cassandra's trie memtables. */
    public static Memtable.Factory factory(int shards)
    {
        Memtable.Factory trie = new TrieMemtable.Factory(shards);
        return new Memtable.Factory()
        {
            @Override
            public Memtable create(AtomicReference<CommitLogPosition> lowerBound, TableMetadataRef table, Memtable.Owner owner)
            {
                return new StockMemtable(lowerBound, table, owner, shards);
            }

            @Override
            public TableMetrics.ReleasableMetric createMemtableMetrics(TableMetadataRef table)
            {
                return trie.createMemtableMetrics(table);
            }
        };
    }

    private static OpOrder.Group groupWithoutWaiting()
    {
        OpOrder order = new OpOrder();
        OpOrder.Group group = order.start();
        OpOrder.Barrier barrier = order.newBarrier();
        barrier.issue();
        barrier.markBlocking();
        return group;
    }

    /**
     * Waits until about as much memory is free as the update takes, on the heap and outside. The write then takes
     * exactly what it needs, and what was kept for it is given back.
     */
    @Override
    public long put(PartitionUpdate update, UpdateTransaction indexer, OpOrder.Group writes)
    {
        try (TakenMemory outside = TakenMemory.take(allocator.offHeap(), MEMORY_POOL.offHeap, update.dataSize(), writes);
             TakenMemory heap = TakenMemory.take(allocator.onHeap(), MEMORY_POOL.onHeap, update.unsharedHeapSize(), writes))
        {
            return super.put(update, indexer, WITHOUT_WAITING);
        }
    }
}
