package espalier.cassandra;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicReference;

import org.apache.cassandra.cql3.statements.schema.CreateTableStatement;
import org.apache.cassandra.db.Clustering;
import org.apache.cassandra.db.ColumnFamilyStore;
import org.apache.cassandra.db.DecoratedKey;
import org.apache.cassandra.db.LivenessInfo;
import org.apache.cassandra.db.commitlog.CommitLogPosition;
import org.apache.cassandra.db.memtable.Memtable;
import org.apache.cassandra.db.memtable.ShardBoundaries;
import org.apache.cassandra.db.partitions.PartitionUpdate;
import org.apache.cassandra.db.rows.BTreeRow;
import org.apache.cassandra.db.rows.BufferCell;
import org.apache.cassandra.db.rows.Row;
import org.apache.cassandra.db.rows.UnfilteredRowIterator;
import org.apache.cassandra.index.transactions.UpdateTransaction;
import org.apache.cassandra.metrics.CassandraMetricsRegistry;
import org.apache.cassandra.metrics.TrieMemtableMetricsView;
import org.apache.cassandra.schema.ColumnMetadata;
import org.apache.cassandra.schema.TableMetadata;
import org.apache.cassandra.schema.TableMetadataRef;
import org.apache.cassandra.utils.ByteBufferUtil;
import org.apache.cassandra.utils.concurrent.Future;
import org.apache.cassandra.utils.concurrent.ImmediateFuture;
import org.apache.cassandra.utils.concurrent.OpOrder;

/**
 * A memtable with small shards asks for its flush when one of them is half full, and takes more writes then. When it
 * has no room at all, a write fails, has no effect, and asks for a flush too.
 */
final class FullMemtables
{
    private static final int VALUE_BYTES = 2_000;
    private static final long SHARD_BYTES = 1 << 20;

    private final TableMetadata table = CreateTableStatement.parse("CREATE TABLE f (k int, c int, v blob, PRIMARY KEY (k, c))", "ks").build();
    private final DecoratedKey key = table.partitioner.decorateKey(ByteBufferUtil.bytes(1));
    private final List<ColumnFamilyStore.FlushReason> asked = new ArrayList<>();
    private final OpOrder order = new OpOrder();
    private final NativeMemtable memtable;

    private FullMemtables(long shardBytes)
    {
        memtable = new NativeMemtable(new AtomicReference<>(CommitLogPosition.NONE), TableMetadataRef.forOfflineTools(table), new Owner(),
                                      MemtableHandle.open(table, ShardBoundaries.NONE, shardBytes));
    }

    static void check()
    {
        new FullMemtables(SHARD_BYTES).fill();
        new FullMemtables(1).refuse();
    }

    private final class Owner implements Memtable.Owner
    {
        @Override
        public Future<CommitLogPosition> signalFlushRequired(Memtable of, ColumnFamilyStore.FlushReason reason)
        {
            asked.add(reason);
            return ImmediateFuture.success(CommitLogPosition.NONE);
        }

        @Override
        public Memtable getCurrentMemtable()
        {
            return memtable;
        }

        @Override
        public Iterable<Memtable> getIndexMemtables()
        {
            return List.of();
        }

        @Override
        public ShardBoundaries localRangeSplits(int shards)
        {
            return ShardBoundaries.NONE;
        }
    }

    private void fill()
    {
        int rowsAtHalf = 0, rows = 0;
        while (isTaken(rows))
        {
            rows++;
            if (rowsAtHalf == 0 && !asked.isEmpty())
                rowsAtHalf = rows;
        }
        if (rowsAtHalf == 0 || rowsAtHalf * 3 < rows || rowsAtHalf * 3 > rows * 2)
            throw new AssertionError("a flush was asked for after " + rowsAtHalf + " of " + rows + " rows");
        // Once at half, and then by the write that had no room.
        if (!asked.equals(List.of(ColumnFamilyStore.FlushReason.MEMTABLE_LIMIT, ColumnFamilyStore.FlushReason.MEMTABLE_LIMIT)))
            throw new AssertionError(asked + " were asked for");
        if (rowsRead() != rows)
            throw new AssertionError(rowsRead() + " rows in place of " + rows);
        discard();
        long largest = largestShardBytes();
        if (largest < (long) rows * VALUE_BYTES)
            throw new AssertionError("metrics: a shard with " + rows + " rows has " + largest + " bytes");
        TrieMemtableMetricsView metrics = new TrieMemtableMetricsView(table.keyspace, table.name);
        long puts = metrics.uncontendedPuts.getCount();
        // The one that was refused may count.
        if (puts < rows || puts > rows + 1 || metrics.contendedPuts.getCount() != 0)
            throw new AssertionError("metrics: " + puts + " writes in place of " + rows);
    }

    private void refuse()
    {
        if (isTaken(0) || !memtable.isClean() || memtable.partitionCount() != 0)
            throw new AssertionError("a write was taken without room for it");
        if (asked.size() != 1)
            throw new AssertionError(asked + " were asked for");
        if (Memtable.getMemoryUsage(memtable).ownsOffHeap != 0)
            throw new AssertionError("a refused write keeps memory of the pool");
        discard();
        if (largestShardBytes() >= VALUE_BYTES)
            throw new AssertionError("metrics: an empty shard has " + largestShardBytes() + " bytes");
    }

    /** What Cassandra shows of the last flush. */
    private long largestShardBytes()
    {
        String end = "Shard sizes during last flushMax." + table.keyspace + "." + table.name;
        return CassandraMetricsRegistry.Metrics.getGauges((name, metric) -> name.endsWith(end)).values().stream()
                                               .mapToLong(gauge -> (Long) gauge.getValue()).sum();
    }

    private void discard()
    {
        OpOrder.Barrier barrier = order.newBarrier();
        barrier.issue();
        memtable.switchOut(barrier, new AtomicReference<>(CommitLogPosition.NONE));
        memtable.discard();
    }

    private boolean isTaken(int clustering)
    {
        ColumnMetadata column = table.getColumn(ByteBufferUtil.bytes("v"));
        Row.Builder row = BTreeRow.sortedBuilder();
        row.newRow(Clustering.make(ByteBufferUtil.bytes(clustering)));
        row.addPrimaryKeyLivenessInfo(LivenessInfo.create(1, 1));
        row.addCell(BufferCell.live(column, 1, ByteBuffer.allocate(VALUE_BYTES)));
        try (OpOrder.Group group = order.start())
        {
            memtable.put(PartitionUpdate.singleRowUpdate(table, key, row.build()), UpdateTransaction.NO_OP, group);
            return true;
        }
        catch (MemtableFullException full)
        {
            return false;
        }
    }

    private int rowsRead()
    {
        int rows = 0;
        try (UnfilteredRowIterator partition = memtable.rowIterator(key))
        {
            for (; partition.hasNext(); partition.next())
                rows++;
        }
        return rows;
    }
}
