package espalier.cassandra;

import java.nio.ByteBuffer;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.atomic.AtomicReference;

import org.apache.cassandra.cql3.statements.schema.CreateTableStatement;
import org.apache.cassandra.db.Clustering;
import org.apache.cassandra.db.LivenessInfo;
import org.apache.cassandra.db.commitlog.CommitLogPosition;
import org.apache.cassandra.db.memtable.AbstractAllocatorMemtable;
import org.apache.cassandra.db.memtable.EspalierMemtable;
import org.apache.cassandra.db.memtable.Memtable;
import org.apache.cassandra.db.memtable.TrieMemtable;
import org.apache.cassandra.db.partitions.PartitionUpdate;
import org.apache.cassandra.db.rows.BTreeRow;
import org.apache.cassandra.db.rows.BufferCell;
import org.apache.cassandra.db.rows.Row;
import org.apache.cassandra.dht.ByteOrderedPartitioner;
import org.apache.cassandra.dht.IPartitioner;
import org.apache.cassandra.dht.Murmur3Partitioner;
import org.apache.cassandra.index.transactions.UpdateTransaction;
import org.apache.cassandra.schema.TableMetadata;
import org.apache.cassandra.schema.TableMetadataRef;
import org.apache.cassandra.utils.ByteBufferUtil;
import org.apache.cassandra.utils.concurrent.OpOrder;
import org.apache.cassandra.utils.memory.MemtableAllocator;
import org.apache.cassandra.utils.memory.MemtablePool;

import espalier.proof.MemtableComparison;

/**
 * The pool of memtables has no memory left, a flush has begun, and a write that came after it waits. The writes that
 * the flush waits for are applied all the same, to the same partition, because the one that waits holds no lock
 * (CASSANDRA-21019). Once there is memory it is applied too.
 */
final class WritesWithoutMemory
{
    private static final int VALUE_BYTES = 1_000;
    private static final long SECONDS_MAX = 60;
    private static final MemtablePool POOL = AbstractAllocatorMemtable.MEMORY_POOL;

    private final OpOrder order = new OpOrder();
    private final OpOrder.Group beforeFlush = order.start();
    private final OpOrder.Group afterFlush;
    private final TableMetadata table;
    private final Memtable memtable;
    private volatile Throwable failure;

    private WritesWithoutMemory(IPartitioner partitioner)
    {
        table = CreateTableStatement.parse("CREATE TABLE w (k int, c int, v blob, PRIMARY KEY (k, c))", "ks")
                                    .partitioner(partitioner).build();
        memtable = created(EspalierMemtable.factory(new HashMap<>(Map.of("mode", "memtable", "shards", "1"))));
        OpOrder.Barrier flush = order.newBarrier();
        flush.issue();
        afterFlush = order.start();
        flush.markBlocking();
    }

    static void check() throws Exception
    {
        new WritesWithoutMemory(Murmur3Partitioner.instance).checkOrder(POOL.offHeap);
        new WritesWithoutMemory(ByteOrderedPartitioner.instance).checkOrder(POOL.offHeap);
        new WritesWithoutMemory(ByteOrderedPartitioner.instance).checkOrder(POOL.onHeap);
        new WritesWithoutMemory(ByteOrderedPartitioner.instance).checkAccount();
    }

    private Memtable created(Memtable.Factory factory)
    {
        return factory.create(new AtomicReference<>(CommitLogPosition.NONE), TableMetadataRef.forOfflineTools(table),
                              new MemtableComparison.Owner());
    }

    private void checkOrder(MemtablePool.SubPool full) throws Exception
    {
        MemtableAllocator filler = POOL.newAllocator("filler");
        Thread later = writer(1, afterFlush);
        try
        {
            (full == POOL.offHeap ? filler.offHeap() : filler.onHeap()).allocate(full.limit - full.used(), beforeFlush);
            later.start();
            while (later.getState() != Thread.State.WAITING)
                if (!later.isAlive())
                    throw new AssertionError("a write without memory did not wait", failure);
                else
                    Thread.sleep(1);
            Thread earlier = writer(2, beforeFlush);
            earlier.start();
            finish(earlier, "a write that the flush waits for");
            if (memtable.operationCount() != 1)
                throw new AssertionError(memtable.operationCount() + " writes were applied in place of 1");
        }
        finally
        {
            filler.setDiscarding();
            filler.setDiscarded();
        }
        finish(later, "a write that has memory again");
        if (memtable.operationCount() != 2)
            throw new AssertionError(memtable.operationCount() + " writes were applied in place of 2");
        discard(memtable);
    }

    /** What a write took before it was applied is given back: the memtable has as much as Cassandra's own. */
    private void checkAccount()
    {
        Memtable trie = created(TrieMemtable.factory(new HashMap<>(Map.of("shards", "1"))));
        for (int row = 0; row < 100; row++)
        {
            memtable.put(update(row), UpdateTransaction.NO_OP, beforeFlush);
            trie.put(update(row), UpdateTransaction.NO_OP, beforeFlush);
        }
        Memtable.MemoryUsage ours = Memtable.getMemoryUsage(memtable), theirs = Memtable.getMemoryUsage(trie);
        if (ours.ownsOnHeap != theirs.ownsOnHeap || ours.ownsOffHeap != theirs.ownsOffHeap)
            throw new AssertionError("memory: " + ours + " in place of " + theirs);
        discard(memtable);
        discard(trie);
    }

    private void discard(Memtable memtable)
    {
        OpOrder.Barrier barrier = order.newBarrier();
        barrier.issue();
        memtable.switchOut(barrier, new AtomicReference<>(CommitLogPosition.NONE));
        memtable.discard();
    }

    private Thread writer(int row, OpOrder.Group group)
    {
        Thread thread = new Thread(() -> memtable.put(update(row), UpdateTransaction.NO_OP, group));
        thread.setDaemon(true);
        thread.setUncaughtExceptionHandler((of, failed) -> failure = failed);
        return thread;
    }

    private void finish(Thread writer, String what) throws Exception
    {
        writer.join(SECONDS_MAX * 1000);
        if (writer.isAlive())
            throw new AssertionError(what + " waits for " + SECONDS_MAX + " s");
        if (failure != null)
            throw new AssertionError(what, failure);
    }

    private PartitionUpdate update(int row)
    {
        Row.Builder builder = BTreeRow.sortedBuilder();
        builder.newRow(Clustering.make(ByteBufferUtil.bytes(row)));
        builder.addPrimaryKeyLivenessInfo(LivenessInfo.create(1, 1));
        builder.addCell(BufferCell.live(table.getColumn(ByteBufferUtil.bytes("v")), 1, ByteBuffer.allocate(VALUE_BYTES)));
        return PartitionUpdate.singleRowUpdate(table, table.partitioner.decorateKey(ByteBufferUtil.bytes(1)), builder.build());
    }
}
