package espalier.proof;

import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.atomic.AtomicReference;

import javax.management.JMException;
import javax.management.ObjectName;

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
 * Heap and other memory per buffered row of three kinds of memtables, for the allocation type of the configuration:
 * after a full collection, with the memtable minus without it, and the classes of objects with the largest differences.
 * Arguments: the number of rows, and the rows of each partition. A row has five columns: a bigint, an int, and three
 * texts of 8, 20 and 30 bytes.
 */
public final class HeapPerRow
{
    private static final int CLASSES = 12;

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
        Map<String, Long> classesBefore = classes();
        long before = heap();
        Memtable memtable = fill(factory, table, rows, perPartition);
        long heap = heap() - before;
        Memtable.MemoryUsage usage = Memtable.getMemoryUsage(memtable);
        System.out.printf("%s, %s, %d rows, %d of a partition: %.1f bytes of heap for each row, %.1f outside of it; counted: %.1f and %.1f%n", name,
                          DatabaseDescriptor.getMemtableAllocationType(), rows, perPartition, (double) heap / rows,
                          (double) usage.ownsOffHeap / rows, (double) usage.ownsOnHeap / rows, (double) usage.ownsOffHeap / rows);
        printLargest(name, classesBefore, classes(), rows);
        if (memtable.isClean())
            throw new AssertionError("nothing was written");
    }

    private static void printLargest(String name, Map<String, Long> before, Map<String, Long> after, int rows)
    {
        after.replaceAll((type, bytes) -> bytes - before.getOrDefault(type, 0L));
        after.entrySet().stream().sorted(Map.Entry.<String, Long>comparingByValue().reversed()).limit(CLASSES)
             .filter(type -> type.getValue() >= rows)
             .forEach(type -> System.out.printf("  %s, %s: %.1f bytes of a row%n", name, type.getKey(), (double) type.getValue() / rows));
    }

    /**
     * The bytes of all live objects by class, as {@code jcmd GC.class_histogram} prints them after a full collection.
     */
    private static Map<String, Long> classes()
    {
        Map<String, Long> bytes = new HashMap<>();
        for (String line : histogram().split("\n"))
        {
            String[] words = line.trim().split(" +");
            if (words.length >= 4 && words[0].endsWith(":"))
                bytes.merge(words[3], Long.parseLong(words[2]), Long::sum);
        }
        return bytes;
    }

    private static String histogram()
    {
        try
        {
            return (String) ManagementFactory.getPlatformMBeanServer()
                                             .invoke(new ObjectName("com.sun.management:type=DiagnosticCommand"), "gcClassHistogram",
                                                     new Object[] { new String[0] }, new String[] { String[].class.getName() });
        }
        catch (JMException impossible)
        {
            throw new IllegalStateException(impossible);
        }
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
