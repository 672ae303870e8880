package espalier.cassandra;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.atomic.AtomicReference;

import org.apache.cassandra.config.DatabaseDescriptor;
import org.apache.cassandra.cql3.statements.schema.CreateTableStatement;
import org.apache.cassandra.db.Clustering;
import org.apache.cassandra.db.DataRange;
import org.apache.cassandra.db.LivenessInfo;
import org.apache.cassandra.db.Mutation;
import org.apache.cassandra.db.Slice;
import org.apache.cassandra.db.Slices;
import org.apache.cassandra.db.commitlog.CommitLog;
import org.apache.cassandra.db.commitlog.CommitLogPosition;
import org.apache.cassandra.db.filter.ColumnFilter;
import org.apache.cassandra.db.memtable.EspalierMemtable;
import org.apache.cassandra.db.memtable.Memtable;
import org.apache.cassandra.db.memtable.SkipListMemtable;
import org.apache.cassandra.db.memtable.TrieMemtable;
import org.apache.cassandra.db.partitions.PartitionUpdate;
import org.apache.cassandra.db.partitions.UnfilteredPartitionIterator;
import org.apache.cassandra.db.rows.BTreeRow;
import org.apache.cassandra.db.rows.BufferCell;
import org.apache.cassandra.db.rows.Row;
import org.apache.cassandra.db.rows.UnfilteredRowIterator;
import org.apache.cassandra.index.transactions.UpdateTransaction;
import org.apache.cassandra.io.sstable.SSTableReadsListener;
import org.apache.cassandra.net.MessagingService;
import org.apache.cassandra.schema.ColumnMetadata;
import org.apache.cassandra.schema.TableId;
import org.apache.cassandra.schema.TableMetadata;
import org.apache.cassandra.schema.TableMetadataRef;
import org.apache.cassandra.utils.concurrent.OpOrder;

import espalier.proof.DiscardingMemtable;
import espalier.proof.MemtableComparison;

/**
 * Processor time of a small write, of a read of one row, and of a partition of one row in a range read: Cassandra's
 * memtables and log, ours, our engine, and the parts of a crossing. There is no node and no request, so these are the
 * figures that a memtable can change. Arguments: the directory of the engine, its {@code commitlog_sync}, the number of
 * rounds, the operations of a round, and optionally a number of threads. With threads, it measures writes of many
 * threads that wait for the log.
 *
 * A line for each subject: microseconds of the calling thread, and of the whole process (with collections, flushes and
 * the log), medians of the second half of the rounds, and the least and greatest of those of the process. Rounds are
 * interleaved.
 */
public final class CrossingCosts
{
    private static final int VALUE_BYTES = 100;
    private static final TableMetadata TABLE = table();
    private static final com.sun.management.OperatingSystemMXBean PROCESS =
        (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();

    private final OpOrder order = new OpOrder();
    private final Map<String, String> storage;
    private final int operations;
    private final Map<String, List<double[]>> times = new LinkedHashMap<>();
    private int written;

    private CrossingCosts(Map<String, String> storage, int operations)
    {
        this.storage = storage;
        this.operations = operations;
    }

    private static TableMetadata table()
    {
        DatabaseDescriptor.daemonInitialization();
        return CreateTableStatement.parse("CREATE TABLE kv (key blob PRIMARY KEY, value blob)", "ks").id(TableId.generate()).build();
    }

    public static void main(String[] args) throws Exception
    {
        CommitLog.instance.start();
        Map<String, String> storage = Map.of("mode", "storage", "directory", args[0], "commitlog_sync", args[1]);
        CrossingCosts costs = new CrossingCosts(storage, Integer.parseInt(args[3]));
        int rounds = Integer.parseInt(args[2]);
        if (args.length > 4)
            costs.durable(rounds, Integer.parseInt(args[4]));
        else
            costs.run(rounds);
        costs.report();
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private void run(int rounds)
    {
        Memtable stored = made(EspalierMemtable.factory(new HashMap<>(storage)));
        Memtable discarding = made(DiscardingMemtable.factory(Map.of()));
        Memtable.Factory trie = TrieMemtable.factory(new HashMap<>());
        Memtable.Factory ours = EspalierMemtable.factory(new HashMap<>(Map.of("mode", "memtable")));
        for (int round = 0; round < rounds; round++)
        {
            List<PartitionUpdate> updates = updates();
            measured("write: discarded", updates, update -> put(discarding, update));
            measured("write: serialized", updates, CrossingCosts::serialize);
            measured("write: an empty native call", updates, update -> Native.version());
            measured("write: Cassandra's log", updates, update -> CommitLog.instance.add(new Mutation(update)));
            fresh("skip list", SkipListMemtable.FACTORY, updates);
            fresh("trie", trie, updates);
            fresh("mode memtable", ours, updates);
            measured("write: mode storage with its log", updates, update -> put(stored, update));
            reads("mode storage", stored, updates);
        }
    }

    /** Writes to a new memtable and reads from it. */
    private void fresh(String name, Memtable.Factory factory, List<PartitionUpdate> updates)
    {
        Memtable memtable = made(factory);
        measured("write: " + name, updates, update -> put(memtable, update));
        reads(name, memtable, updates);
        OpOrder.Barrier barrier = order.newBarrier();
        memtable.switchOut(barrier, new AtomicReference<>(CommitLogPosition.NONE));
        barrier.issue();
        barrier.await();
        memtable.discard();
    }

    private void reads(String name, Memtable memtable, List<PartitionUpdate> updates)
    {
        List<PartitionUpdate> shuffled = new ArrayList<>(updates);
        Collections.shuffle(shuffled, new Random(written));
        Slices slices = Slices.with(TABLE.comparator, Slice.make(Clustering.EMPTY));
        ColumnFilter columns = ColumnFilter.selection(TABLE, TABLE.regularAndStaticColumns(), false);
        measured("read: " + name, shuffled, update -> {
            try (UnfilteredRowIterator rows =
                     memtable.rowIterator(update.partitionKey(), slices, columns, false, SSTableReadsListener.NOOP_LISTENER))
            {
                if (!rows.hasNext() || rows.next() == null || rows.hasNext())
                    throw new AssertionError(name + " lost a row");
            }
        });
        // The time of a partition of a range, of as many as were written.
        DataRange range = DataRange.allData(TABLE.partitioner);
        try (UnfilteredPartitionIterator partitions = memtable.partitionIterator(columns, range, SSTableReadsListener.NOOP_LISTENER))
        {
            measured("range: " + name, updates, update -> {
                // Cassandra's trie memtable moves to the next partition only when it is asked whether there is one.
                if (!partitions.hasNext())
                    throw new AssertionError(name + " lost a partition of a range");
                try (UnfilteredRowIterator rows = partitions.next())
                {
                    if (!rows.hasNext() || rows.next() == null || rows.hasNext())
                        throw new AssertionError(name + " lost a row of a range");
                }
            });
        }
    }

    /** Threads that write and wait until it is durable: Cassandra's log with its trie memtable, and our engine. */
    private void durable(int rounds, int threads) throws InterruptedException
    {
        Memtable stored = made(EspalierMemtable.factory(new HashMap<>(storage)));
        for (int round = 0; round < rounds; round++)
        {
            List<PartitionUpdate> updates = updates();
            Memtable memtable = made(TrieMemtable.factory(new HashMap<>()));
            together("durable: Cassandra's log and trie", updates, threads, update -> {
                CommitLog.instance.add(new Mutation(update));
                put(memtable, update);
            });
            together("durable: mode storage", updates, threads, update -> put(stored, update));
        }
    }

    private interface Operation
    {
        void on(PartitionUpdate update);
    }

    private void measured(String name, List<PartitionUpdate> updates, Operation operation)
    {
        long process = PROCESS.getProcessCpuTime(), thread = ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime();
        for (PartitionUpdate update : updates)
            operation.on(update);
        note(name, ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime() - thread, PROCESS.getProcessCpuTime() - process);
    }

    private void together(String name, List<PartitionUpdate> updates, int count, Operation operation) throws InterruptedException
    {
        List<Thread> threads = new ArrayList<>();
        long process = PROCESS.getProcessCpuTime(), start = System.nanoTime();
        for (int i = 0; i < count; i++)
        {
            List<PartitionUpdate> part = updates.subList(updates.size() * i / count, updates.size() * (i + 1) / count);
            threads.add(new Thread(() -> part.forEach(operation::on)));
        }
        threads.forEach(Thread::start);
        for (Thread thread : threads)
            thread.join();
        // In place of the thread's time, the time that passed.
        note(name, System.nanoTime() - start, PROCESS.getProcessCpuTime() - process);
    }

    private void note(String name, long threadNanos, long processNanos)
    {
        times.computeIfAbsent(name, unused -> new ArrayList<>())
             .add(new double[] { threadNanos / 1e3 / operations, processNanos / 1e3 / operations });
    }

    private void report()
    {
        times.forEach((name, all) -> {
            List<double[]> warm = all.subList(all.size() / 2, all.size());
            double[] thread = sorted(warm, 0), process = sorted(warm, 1);
            System.out.printf("%-40s %7.2f %7.2f (%.2f-%.2f)%n", name, thread[thread.length / 2], process[process.length / 2], process[0],
                              process[process.length - 1]);
        });
    }

    private static double[] sorted(List<double[]> rounds, int which)
    {
        double[] sorted = rounds.stream().mapToDouble(round -> round[which]).toArray();
        Arrays.sort(sorted);
        return sorted;
    }

    private static Memtable made(Memtable.Factory factory)
    {
        return factory.create(new AtomicReference<>(CommitLogPosition.NONE), TableMetadataRef.forOfflineTools(TABLE), new MemtableComparison.Owner());
    }

    private void put(Memtable memtable, PartitionUpdate update)
    {
        try (OpOrder.Group group = order.start())
        {
            memtable.put(update, UpdateTransaction.NO_OP, group);
        }
    }

    private static void serialize(PartitionUpdate update)
    {
        try
        {
            PartitionUpdate.serializer.serialize(update, Buffers.output(), MessagingService.VERSION_50);
        }
        catch (IOException impossible)
        {
            throw new UncheckedIOException(impossible);
        }
    }

    /** Updates of new partitions, in the order of their hashes, which is none. */
    private List<PartitionUpdate> updates()
    {
        List<PartitionUpdate> updates = new ArrayList<>(operations);
        ColumnMetadata column = TABLE.regularColumns().iterator().next();
        for (int i = 0; i < operations; i++, written++)
        {
            ByteBuffer key = ByteBuffer.allocate(16);
            key.putLong(0, written);
            long timestamp = 1_700_000_000_000_000L + written;
            Row.Builder row = BTreeRow.sortedBuilder();
            row.newRow(Clustering.EMPTY);
            row.addPrimaryKeyLivenessInfo(LivenessInfo.create(timestamp, timestamp / 1_000_000));
            row.addCell(BufferCell.live(column, timestamp, ByteBuffer.allocate(VALUE_BYTES)));
            updates.add(PartitionUpdate.singleRowUpdate(TABLE, TABLE.partitioner.decorateKey(key), row.build()));
        }
        return updates;
    }
}
