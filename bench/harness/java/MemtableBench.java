import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.concurrent.atomic.AtomicReference;

import org.apache.cassandra.config.DatabaseDescriptor;
import org.apache.cassandra.db.Clustering;
import org.apache.cassandra.db.ColumnFamilyStore;
import org.apache.cassandra.db.LivenessInfo;
import org.apache.cassandra.db.Slices;
import org.apache.cassandra.db.commitlog.CommitLog;
import org.apache.cassandra.db.commitlog.CommitLogPosition;
import org.apache.cassandra.db.filter.ColumnFilter;
import org.apache.cassandra.db.marshal.BytesType;
import org.apache.cassandra.db.memtable.Memtable;
import org.apache.cassandra.db.memtable.ShardBoundaries;
import org.apache.cassandra.db.memtable.SkipListMemtable;
import org.apache.cassandra.db.memtable.TrieMemtable;
import org.apache.cassandra.db.partitions.PartitionUpdate;
import org.apache.cassandra.db.rows.BTreeRow;
import org.apache.cassandra.db.rows.BufferCell;
import org.apache.cassandra.db.rows.Row;
import org.apache.cassandra.db.rows.UnfilteredRowIterator;
import org.apache.cassandra.dht.Murmur3Partitioner;
import org.apache.cassandra.index.transactions.UpdateTransaction;
import org.apache.cassandra.io.sstable.SSTableReadsListener;
import org.apache.cassandra.schema.ColumnMetadata;
import org.apache.cassandra.schema.TableMetadata;
import org.apache.cassandra.schema.TableMetadataRef;
import org.apache.cassandra.utils.btree.BTree;
import org.apache.cassandra.utils.concurrent.Future;
import org.apache.cassandra.utils.concurrent.ImmediateFuture;
import org.apache.cassandra.utils.concurrent.OpOrder;

/**
 * Cassandra's memtables in process, by the interface that its storage engine uses: MemtableBench COUNT KIND, KIND trie
 * or skiplist. So many partitions of one row with a value of 100 bytes; updates are made beforehand. One line of JSON
 * per figure, in the thread's processor time. The compiler is warmed up first. Answers are checked.
 */
public class MemtableBench
{
    private static final int WARMUP_ROWS = 100_000;
    private static final int WARMUP_ROUNDS = 5;
    private static final int BATCH = 1000;
    private static final int VALUE_BYTES = 100;

    private static final TableMetadata TABLE = TableMetadata.builder("bench", "rows")
                                                            .partitioner(Murmur3Partitioner.instance)
                                                            .addPartitionKeyColumn("p", BytesType.instance)
                                                            .addRegularColumn("v", BytesType.instance)
                                                            .build();
    private static final ColumnMetadata VALUE = TABLE.getColumn(ByteBuffer.wrap("v".getBytes()));

    /** The table that a memtable belongs to. */
    static class Owner implements Memtable.Owner
    {
        public Future<CommitLogPosition> signalFlushRequired(Memtable memtable, ColumnFamilyStore.FlushReason reason)
        {
            System.err.println("the memtable wants to be flushed: " + reason);
            System.exit(3);
            return ImmediateFuture.success(CommitLogPosition.NONE);
        }

        public Memtable getCurrentMemtable()
        {
            return null;
        }

        public Iterable<Memtable> getIndexMemtables()
        {
            return Collections.emptyList();
        }

        public ShardBoundaries localRangeSplits(int shards)
        {
            return ShardBoundaries.NONE;
        }
    }

    public static void main(String[] args) throws Exception
    {
        DatabaseDescriptor.daemonInitialization();
        DatabaseDescriptor.createAllDirectories();
        // A new memtable asks for the log's position.
        CommitLog.instance.start();
        int count = Integer.parseInt(args[0]);
        boolean trie = args[1].equals("trie");
        for (int round = 0; round < WARMUP_ROUNDS; round++)
            measure(trie, WARMUP_ROWS, null);
        measure(trie, count, trie ? "Cassandra TrieMemtable" : "Cassandra SkipListMemtable");
        System.exit(0);
    }

    private static void measure(boolean trie, long count, String name)
    {
        Memtable.Factory factory = trie ? TrieMemtable.factory(new HashMap<>()) : SkipListMemtable.FACTORY;
        Memtable memtable = factory.create(new AtomicReference<>(CommitLogPosition.NONE), TableMetadataRef.forOfflineTools(TABLE), new Owner());
        OpOrder order = new OpOrder();
        long nanos = 0;
        for (long first = 0; first < count; first += BATCH)
        {
            List<PartitionUpdate> updates = new ArrayList<>();
            for (long index = first; index < Math.min(count, first + BATCH); index++)
                updates.add(update(index));
            long start = cpuNanos();
            for (PartitionUpdate update : updates)
                try (OpOrder.Group group = order.start())
                {
                    memtable.put(update, UpdateTransaction.NO_OP, group);
                }
            nanos += cpuNanos() - start;
        }
        say(name, "memtable: put", nanos / (double) count);
        Memtable.MemoryUsage usage = Memtable.getMemoryUsage(memtable);
        say(name, "memtable: rows per GiB", count * (double) (1 << 30) / (usage.ownsOnHeap + usage.ownsOffHeap));
        ColumnFilter columns = ColumnFilter.all(TABLE);
        long start = cpuNanos();
        for (long index = 0; index < count; index++)
        {
            long probe = Long.remainderUnsigned(TrieBench.mix(index), count);
            try (UnfilteredRowIterator rows = memtable.rowIterator(TrieBench.key(probe), Slices.ALL, columns, false, SSTableReadsListener.NOOP_LISTENER))
            {
                expect(((Row) rows.next()).getCell(VALUE).buffer().getLong(0), probe);
            }
        }
        say(name, "memtable: whole-row read", (cpuNanos() - start) / (double) count);
        memtable.discard();
    }

    private static PartitionUpdate update(long index)
    {
        ByteBuffer value = ByteBuffer.allocate(VALUE_BYTES);
        value.putLong(0, index);
        Object[] cells = BTree.singleton(BufferCell.live(VALUE, 5, value));
        Row row = BTreeRow.create(Clustering.EMPTY, LivenessInfo.create(5, 0), Row.Deletion.LIVE, cells);
        return PartitionUpdate.singleRowUpdate(TABLE, TrieBench.key(index), row);
    }

    private static void expect(long got, long wanted)
    {
        if (got != wanted)
            throw new AssertionError("got " + got + ", not " + wanted);
    }

    private static long cpuNanos()
    {
        return ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime();
    }

    private static void say(String peer, String figure, double value)
    {
        if (peer != null)
            System.out.printf("{\"peer\": \"%s\", \"figure\": \"%s\", \"value\": %.2f}%n", peer, figure, value);
    }
}
