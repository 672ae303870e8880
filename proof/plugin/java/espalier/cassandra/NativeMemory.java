package espalier.cassandra;

import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.atomic.AtomicReference;

import org.apache.cassandra.cql3.statements.schema.CreateTableStatement;
import org.apache.cassandra.db.DataRange;
import org.apache.cassandra.db.DecoratedKey;
import org.apache.cassandra.db.LivenessInfo;
import org.apache.cassandra.db.Slices;
import org.apache.cassandra.db.commitlog.CommitLogPosition;
import org.apache.cassandra.db.filter.ColumnFilter;
import org.apache.cassandra.db.memtable.EspalierMemtable;
import org.apache.cassandra.db.memtable.Memtable;
import org.apache.cassandra.db.Clustering;
import org.apache.cassandra.db.partitions.PartitionUpdate;
import org.apache.cassandra.db.rows.BTreeRow;
import org.apache.cassandra.db.rows.BufferCell;
import org.apache.cassandra.db.rows.Row;
import org.apache.cassandra.db.rows.UnfilteredRowIterator;
import org.apache.cassandra.index.transactions.UpdateTransaction;
import org.apache.cassandra.io.sstable.SSTableReadsListener;
import org.apache.cassandra.schema.ColumnMetadata;
import org.apache.cassandra.schema.TableMetadata;
import org.apache.cassandra.schema.TableMetadataRef;
import org.apache.cassandra.utils.ByteBufferUtil;
import org.apache.cassandra.utils.concurrent.OpOrder;

import espalier.proof.MemtableComparison;

/**
 * Memtables of 16 MiB each are written, read by iterators that nobody closes, and discarded, one after another. Neither
 * the handles of native objects nor the memory of the process grow with their number.
 */
final class NativeMemory
{
    private static final int MEMTABLES = 24, ROWS = 4000, VALUE_BYTES = 4000, QUESTIONS = 100;
    private static final long GROWTH_BYTES_MAX = 160L << 20;

    private NativeMemory()
    {
    }

    /** Fails if memory is lost. */
    static void check() throws Exception
    {
        TableMetadata table = CreateTableStatement.parse("CREATE TABLE m (k int, c int, v blob, PRIMARY KEY (k, c))", "ks").build();
        for (int i = 0; i < 4; i++)
            fill(table);
        collect(0);
        long before = residentBytes();
        for (int i = 0; i < MEMTABLES; i++)
            fill(table);
        collect(0);
        long growth = residentBytes() - before;
        System.out.println("after " + MEMTABLES + " memtables of 16 MiB the process has " + (growth >> 20) + " MiB more");
        if (growth > GROWTH_BYTES_MAX)
            throw new AssertionError("discarded memtables keep " + growth + " bytes");
    }

    private static void fill(TableMetadata table)
    {
        OpOrder order = new OpOrder();
        Memtable.Factory factory = EspalierMemtable.factory(new HashMap<>(Map.of("mode", "memtable", "shards", "1")));
        Memtable memtable = factory.create(new AtomicReference<>(CommitLogPosition.NONE), TableMetadataRef.forOfflineTools(table),
                                           new MemtableComparison.Owner());
        DecoratedKey key = table.partitioner.decorateKey(ByteBufferUtil.bytes(1));
        ColumnMetadata column = table.getColumn(ByteBufferUtil.bytes("v"));
        for (int i = 0; i < ROWS; i++)
            try (OpOrder.Group group = order.start())
            {
                Row.Builder row = BTreeRow.sortedBuilder();
                row.newRow(Clustering.make(ByteBufferUtil.bytes(i)));
                row.addPrimaryKeyLivenessInfo(LivenessInfo.create(1, 1));
                row.addCell(BufferCell.live(column, 1, ByteBuffer.allocate(VALUE_BYTES)));
                memtable.put(PartitionUpdate.singleRowUpdate(table, key, row.build()), UpdateTransaction.NO_OP, group);
            }
        // These have more pages than the one that was read, and nobody closes them.
        ColumnFilter all = ColumnFilter.all(table);
        memtable.rowIterator(key, Slices.ALL, all, false, SSTableReadsListener.NOOP_LISTENER).next();
        memtable.partitionIterator(all, DataRange.allData(table.partitioner), SSTableReadsListener.NOOP_LISTENER).next().next();
        memtable.getFlushSet(null, null).iterator().next();
        askForPartitions(memtable, table, key);
        OpOrder.Barrier barrier = order.newBarrier();
        barrier.issue();
        memtable.switchOut(barrier, new AtomicReference<>(CommitLogPosition.NONE));
        memtable.discard();
    }

    /** A compaction asks whether a memtable has a partition by an iterator, which it does not close. */
    private static void askForPartitions(Memtable memtable, TableMetadata table, DecoratedKey key)
    {
        long handles = Native.handles();
        for (int i = 0; i < QUESTIONS; i++)
            if (memtable.rowIterator(key) == null || memtable.rowIterator(table.partitioner.decorateKey(ByteBufferUtil.bytes(2))) != null)
                throw new AssertionError("the memtable has the partition 1 only");
        // The collector may have run.
        if (Native.handles() > handles)
            throw new AssertionError(QUESTIONS + " questions left " + (Native.handles() - handles) + " reads");
        try (UnfilteredRowIterator rows = memtable.rowIterator(key))
        {
            int count = 0;
            for (; rows.hasNext(); rows.next())
                count++;
            if (count != ROWS)
                throw new AssertionError(count + " rows in place of " + ROWS);
        }
    }

    /** Waits until the collector has found what nobody reaches. */
    private static void collect(long handles) throws Exception
    {
        for (int i = 0; i < 200 && Native.handles() > handles; i++)
        {
            System.gc();
            Thread.sleep(20);
        }
        if (Native.handles() > handles)
            throw new AssertionError(Native.handles() + " native objects are left in place of " + handles);
    }

    private static long residentBytes() throws Exception
    {
        return Long.parseLong(Files.readString(Path.of("/proc/self/statm")).split(" ")[1]) * 4096;
    }
}
