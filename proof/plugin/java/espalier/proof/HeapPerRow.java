package espalier.proof;

import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.atomic.AtomicReference;

import org.apache.cassandra.config.DatabaseDescriptor;
import org.apache.cassandra.cql3.statements.schema.CreateTableStatement;
import org.apache.cassandra.db.Clustering;
import org.apache.cassandra.db.commitlog.CommitLog;
import org.apache.cassandra.db.commitlog.CommitLogPosition;
import org.apache.cassandra.db.memtable.EspalierMemtable;
import org.apache.cassandra.db.memtable.Memtable;
import org.apache.cassandra.db.memtable.SkipListMemtable;
import org.apache.cassandra.db.memtable.TrieMemtable;
import org.apache.cassandra.db.partitions.PartitionUpdate;
import org.apache.cassandra.db.rows.BTreeRow;
import org.apache.cassandra.db.rows.BufferCell;
import org.apache.cassandra.db.rows.Row;
import org.apache.cassandra.db.LivenessInfo;
import org.apache.cassandra.index.transactions.UpdateTransaction;
import org.apache.cassandra.schema.ColumnMetadata;
import org.apache.cassandra.schema.TableMetadata;
import org.apache.cassandra.schema.TableMetadataRef;
import org.apache.cassandra.utils.ByteBufferUtil;
import org.apache.cassandra.utils.concurrent.OpOrder;

/**
 * Heap and other memory per buffered row of three kinds of memtables, for the allocation type of the configuration: after a full collection,
 * with the memtable minus without it. Arguments: the number of rows, and the rows of each partition. A row has five columns: a bigint,
 * an int, and three texts of 8, 20 and 30 bytes.
 */
public final class HeapPerRow
{
    public static void main(String[] args) throws Exception
    {
        DatabaseDescriptor.daemonInitialization();
        CommitLog.instance.start();
        int rows = Integer.parseInt(args[0]), perPartition = Integer.parseInt(args[1]);
        TableMetadata table = CreateTableStatement.parse("CREATE TABLE t (k bigint, c int, a bigint, b int, d text, e text, f text, "
                                                         + "PRIMARY KEY (k, c))", "ks").build();
        Memtable.Factory trie = TrieMemtable.factory(new HashMap<>());
        measure("skip list", SkipListMemtable.FACTORY, table, rows, perPartition);
        measure("trie", trie, table, rows, perPartition);
        try
        {
            Memtable.Factory ours = EspalierMemtable.factory(new HashMap<>(Map.of("mode", "memtable")));
            measure("ours", ours, table, rows, perPartition);
        }
        catch (org.apache.cassandra.exceptions.ConfigurationException refused)
        {
            System.out.println("ours: " + refused.getMessage());
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static void measure(String name, Memtable.Factory factory, TableMetadata table, int rows, int perPartition)
    {
        fill(factory, table, 2_000, perPartition);
        long before = heap();
        Memtable memtable = fill(factory, table, rows, perPartition);
        long heap = heap() - before;
        Memtable.MemoryUsage usage = Memtable.getMemoryUsage(memtable);
        System.out.printf("%s, %s, %d rows, %d of a partition: %.1f bytes of heap for each row, %.1f outside of it; counted: %.1f and %.1f%n", name,
                          DatabaseDescriptor.getMemtableAllocationType(), rows, perPartition, (double) heap / rows,
                          (double) usage.ownsOffHeap / rows, (double) usage.ownsOnHeap / rows, (double) usage.ownsOffHeap / rows);
        if (memtable.isClean())
            throw new AssertionError("nothing was written");
    }

    private static long heap()
    {
        for (int i = 0; i < 3; i++)
            System.gc();
        return ManagementFactory.getMemoryMXBean().getHeapMemoryUsage().getUsed();
    }

    private static Memtable fill(Memtable.Factory factory, TableMetadata table, int rows, int perPartition)
    {
        Memtable memtable = factory.create(new AtomicReference<>(CommitLogPosition.NONE), TableMetadataRef.forOfflineTools(table),
                                           new MemtableComparison.Owner());
        OpOrder order = new OpOrder();
        for (int i = 0; i < rows; i++)
        {
            ByteBuffer key = ByteBufferUtil.bytes(7_919L * (i / perPartition));
            PartitionUpdate update = PartitionUpdate.singleRowUpdate(table, table.partitioner.decorateKey(key), row(table, i, i % perPartition));
            try (OpOrder.Group group = order.start())
            {
                memtable.put(update, UpdateTransaction.NO_OP, group);
            }
        }
        return memtable;
    }

    private static Row row(TableMetadata table, int number, int clustering)
    {
        long timestamp = 1_700_000_000_000_000L + number;
        Row.Builder row = BTreeRow.sortedBuilder();
        row.newRow(Clustering.make(ByteBufferUtil.bytes(clustering)));
        row.addPrimaryKeyLivenessInfo(LivenessInfo.create(timestamp, timestamp / 1_000_000));
        for (ColumnMetadata column : table.regularColumns())
            row.addCell(BufferCell.live(column, timestamp, value(column.name.toString(), number)));
        return row.build();
    }

    private static ByteBuffer value(String column, int number)
    {
        switch (column)
        {
            case "a":
                return ByteBufferUtil.bytes((long) number);
            case "b":
                return ByteBufferUtil.bytes(number);
            default:
                return ByteBufferUtil.bytes(("0123456789".repeat(3) + number).substring(0, column.equals("d") ? 8 : column.equals("e") ? 20 : 30));
        }
    }
}
