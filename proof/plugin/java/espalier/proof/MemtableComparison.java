package espalier.proof;

import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeSet;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;

import org.apache.cassandra.config.DatabaseDescriptor;
import org.apache.cassandra.cql3.FieldIdentifier;
import org.apache.cassandra.cql3.statements.schema.CreateTableStatement;
import org.apache.cassandra.db.Clustering;
import org.apache.cassandra.db.ColumnFamilyStore;
import org.apache.cassandra.db.DataRange;
import org.apache.cassandra.db.DecoratedKey;
import org.apache.cassandra.db.Digest;
import org.apache.cassandra.db.PartitionPosition;
import org.apache.cassandra.db.Slices;
import org.apache.cassandra.db.commitlog.CommitLog;
import org.apache.cassandra.db.commitlog.CommitLogPosition;
import org.apache.cassandra.db.filter.ClusteringIndexFilter;
import org.apache.cassandra.db.filter.ClusteringIndexNamesFilter;
import org.apache.cassandra.db.filter.ClusteringIndexSliceFilter;
import org.apache.cassandra.db.filter.ColumnFilter;
import org.apache.cassandra.db.marshal.DurationType;
import org.apache.cassandra.db.marshal.Int32Type;
import org.apache.cassandra.db.marshal.ListType;
import org.apache.cassandra.db.marshal.MapType;
import org.apache.cassandra.db.marshal.UTF8Type;
import org.apache.cassandra.db.marshal.UserType;
import org.apache.cassandra.db.marshal.VectorType;
import org.apache.cassandra.db.memtable.EspalierMemtable;
import org.apache.cassandra.db.memtable.Memtable;
import org.apache.cassandra.db.memtable.ShardBoundaries;
import org.apache.cassandra.db.memtable.TrieMemtable;
import org.apache.cassandra.db.partitions.Partition;
import org.apache.cassandra.db.partitions.PartitionUpdate;
import org.apache.cassandra.db.partitions.UnfilteredPartitionIterator;
import org.apache.cassandra.db.rows.Row;
import org.apache.cassandra.db.rows.Unfiltered;
import org.apache.cassandra.db.rows.UnfilteredRowIterator;
import org.apache.cassandra.db.rows.UnfilteredRowIterators;
import org.apache.cassandra.dht.AbstractBounds;
import org.apache.cassandra.dht.Murmur3Partitioner.LongToken;
import org.apache.cassandra.dht.Range;
import org.apache.cassandra.dht.Token;
import org.apache.cassandra.exceptions.ConfigurationException;
import org.apache.cassandra.index.transactions.UpdateTransaction;
import org.apache.cassandra.io.sstable.SSTableReadsListener;
import org.apache.cassandra.net.MessagingService;
import org.apache.cassandra.schema.ColumnMetadata;
import org.apache.cassandra.schema.TableId;
import org.apache.cassandra.schema.TableMetadata;
import org.apache.cassandra.schema.TableMetadataRef;
import org.apache.cassandra.utils.ByteBufferUtil;
import org.apache.cassandra.utils.concurrent.Future;
import org.apache.cassandra.utils.concurrent.ImmediateFuture;
import org.apache.cassandra.utils.concurrent.OpOrder;

import espalier.cassandra.StoredTable;

/**
 * The same random updates to Cassandra's trie memtable and to ours, in one JVM: every read gives the same digest, and
 * so does everything that would be flushed. Arguments: the first seed, the number of seeds, the number of updates of
 * each. With a directory as the last one, ours are tables of the engine, which flushes and merges them meanwhile. Their
 * deletions and expirations lie ahead, because a merge changes what is over, and Cassandra's memtable does not.
 *
 * Prints "N passed, N failed" last. A case is a seed with a table.
 */
public final class MemtableComparison
{
    private static final String[] TABLES = {
        "CREATE TABLE wide (k int, c1 int, c2 text, s int static, sl list<int> static, v int, w text, b blob, l list<text>, m map<int, text>, "
        + "st set<uuid>, d decimal, PRIMARY KEY (k, c1, c2)) WITH CLUSTERING ORDER BY (c1 DESC, c2 ASC)",
        "CREATE TABLE plain (k text PRIMARY KEY, a bigint, m map<text, int>, f frozen<list<int>>, b blob)",
        "CREATE TABLE counters (k int, c int, n counter, s counter static, PRIMARY KEY (k, c))",
        "CREATE TABLE simple (k1 int, k2 text, c int, v int, w text, PRIMARY KEY ((k1, k2), c))",
        "CREATE TABLE odd (k int, c varint, d decimal, e uuid, v double, w text, PRIMARY KEY (k, c, d, e)) "
        + "WITH CLUSTERING ORDER BY (c ASC, d DESC, e ASC)",
        "CREATE TABLE many (k int, c int, " + columns(80) + ", PRIMARY KEY (k, c))",
        "CREATE TABLE ordered (k1 timeuuid, k2 inet, c1 boolean, c2 timestamp, c3 inet, c4 vector<float, 2>, v int, PRIMARY KEY ((k1, k2), c1, c2, c3, c4)) "
        + "WITH CLUSTERING ORDER BY (c1 ASC, c2 DESC, c3 ASC, c4 DESC)",
        "CREATE TABLE small (k smallint, c1 tinyint, c2 smallint, c3 float, c4 time, c5 timeuuid, v int, PRIMARY KEY (k, c1, c2, c3, c4, c5)) "
        + "WITH CLUSTERING ORDER BY (c1 DESC, c2 ASC, c3 DESC, c4 ASC, c5 DESC)",
    };

    private static final long SECONDS_AHEAD = 100_000;
    /** Of a hundred updates, this many are followed by a flush in the engine. */
    private static final int FLUSHES = 5;

    private static String columns(int count)
    {
        StringBuilder columns = new StringBuilder("v0 int");
        for (int i = 1; i < count; i++)
            columns.append(", v").append(i).append(" int");
        return columns.toString();
    }

    /** What the memtables ask of their table: only how tokens are divided among shards, which is not equally here. */
    public static final class Owner implements Memtable.Owner
    {
        @Override
        public Future<CommitLogPosition> signalFlushRequired(Memtable memtable, ColumnFamilyStore.FlushReason reason)
        {
            return ImmediateFuture.success(CommitLogPosition.NONE);
        }

        @Override
        public Memtable getCurrentMemtable()
        {
            return null;
        }

        @Override
        public Iterable<Memtable> getIndexMemtables()
        {
            return List.of();
        }

        @Override
        public ShardBoundaries localRangeSplits(int shards)
        {
            return shards == 1 ? ShardBoundaries.NONE : new ShardBoundaries(List.of(new LongToken(-1), new LongToken(1L << 61)), 1);
        }
    }

    private final TableMetadataRef table;
    private final RandomUpdates random;
    private final Memtable stock;
    private final Memtable ours;
    /** Where the engine is; null in mode {@code memtable}. */
    private final String directory;
    private final OpOrder order = new OpOrder();
    private final List<PartitionUpdate> history = new ArrayList<>();
    private int reads;

    private MemtableComparison(TableMetadata table, long seed, String directory)
    {
        this.directory = directory;
        this.table = TableMetadataRef.forOfflineTools(directory == null ? table : table.unbuild().id(TableId.generate()).build());
        long seconds = directory == null ? RandomUpdates.PAST : System.currentTimeMillis() / 1000 + SECONDS_AHEAD;
        this.random = new RandomUpdates(seed, seed % 2 == 0, seconds);
        AtomicReference<CommitLogPosition> start = new AtomicReference<>(CommitLogPosition.NONE);
        Memtable.Factory trie = TrieMemtable.factory(new HashMap<>());
        stock = trie.create(start, this.table, new Owner());
        ours = made(this.table);
    }

    /** An empty memtable of ours. */
    private Memtable made(TableMetadataRef table)
    {
        Map<String, String> options = directory == null ? Map.of("mode", "memtable", "shards", "3")
                                                        : Map.of("mode", "storage", "directory", directory, "commitlog_sync", "periodic");
        Memtable.Factory factory = EspalierMemtable.factory(new HashMap<>(options));
        Memtable memtable = factory.create(new AtomicReference<>(CommitLogPosition.NONE), table, new Owner());
        if (memtable instanceof TrieMemtable)
            throw new AssertionError("Cassandra's memtable was made in place of ours");
        return memtable;
    }

    /**
     * What is not supported is refused by name, at a start by the factory or by the first table, and never replaced by
     * a stock memtable.
     */
    private static void refuse(Map<String, String> options, String part)
    {
        TableMetadata table = CreateTableStatement.parse(TABLES[1], "ks").build();
        try
        {
            Map<String, String> given = new HashMap<>(options);
            Memtable.Factory factory = EspalierMemtable.factory(given);
            // Cassandra takes its default memtable if parameters are left.
            check("parameters left of " + options, given.size(), 0);
            factory.create(new AtomicReference<>(CommitLogPosition.NONE), TableMetadataRef.forOfflineTools(table), new Owner());
        }
        catch (ConfigurationException refused)
        {
            check(options + " is refused with '" + part + "'", refused.getMessage().contains(part), true);
            return;
        }
        throw new AssertionError(options + " is not refused");
    }

    private void run(int updates) throws Exception
    {
        check("a new memtable is clean", ours.isClean(), true);
        for (int i = 0; i < updates; i++)
        {
            if (i == updates / 2)
                alter(false);
            if (i == updates * 3 / 4)
                alter(true);
            PartitionUpdate update = random.update(table.get());
            if (update.isEmpty())
                continue;
            history.add(update);
            try (OpOrder.Group group = order.start())
            {
                stock.put(update, UpdateTransaction.NO_OP, group);
                ours.put(update, UpdateTransaction.NO_OP, group);
            }
            if (directory != null && random.chance(FLUSHES))
                StoredTable.flush(ours);
            if (i % 8 == 0)
                compareRead();
            if (i % 20 == 19)
                compareRange();
        }
        compareFlush(ours);
        Memtable again = written(4);
        compareFlush(again);
        if (directory == null)
            compareFigures();
        else
            cleanUp();
        OpOrder.Barrier barrier = order.newBarrier();
        barrier.issue();
        for (Memtable memtable : List.of(stock, ours, again))
            memtable.switchOut(barrier, new AtomicReference<>(CommitLogPosition.NONE));
        // Cassandra's own is not: its count of memory may be below zero then, which fails an assertion of Cassandra's.
        ours.discard();
        again.discard();
        check("memory is given back", Memtable.getMemoryUsage(ours).ownsOffHeap, 0L);
    }

    private void compareFigures()
    {
        check("operations", ours.operationCount(), stock.operationCount());
        check("partitions", ours.partitionCount(), stock.partitionCount());
        check("least timestamp", ours.getMinTimestamp(), stock.getMinTimestamp());
        check("least deletion time", ours.getMinLocalDeletionTime(), stock.getMinLocalDeletionTime());
        check("clean", ours.isClean(), stock.isClean());
        check("memory is counted", Memtable.getMemoryUsage(ours).ownsOffHeap > 0, true);
    }

    /** A clean-up leaves the partitions of a range as they are, and no other ones. */
    private void cleanUp()
    {
        Token first = random.key(table.get()).getToken(), last = table.get().partitioner.getMinimumToken();
        boolean isDone = StoredTable.cleanUp(ours, new Range<>(first, last));
        DataRange kept = new DataRange(AbstractBounds.bounds(first.maxKeyBound(), true, last.minKeyBound(), true),
                                       new ClusteringIndexSliceFilter(Slices.ALL, false));
        int[] counts = compareRange(kept, ColumnFilter.all(table.get()), Integer.MAX_VALUE, false);
        // Without a file that has more, the engine's log still needs the partitions.
        check("a clean-up of all but " + counts[0] + " partitions", isDone || counts[0] == 0, true);
        if (isDone)
            checkCount("partitions after a clean-up", ours.getFlushSet(null, null).partitionCount(), counts[0], counts[1]);
    }

    /** Another memtable of ours, to which threads write the same updates in another order, while this one reads. */
    private Memtable written(int threads) throws Exception
    {
        Memtable memtable = made(table);
        List<PartitionUpdate> updates = new ArrayList<>(history);
        Collections.shuffle(updates, new Random(updates.size()));
        AtomicInteger next = new AtomicInteger();
        AtomicReference<Throwable> failure = new AtomicReference<>();
        List<Thread> writers = new ArrayList<>();
        for (int i = 0; i < threads; i++)
            writers.add(new Thread(() -> {
                try
                {
                    for (int at = next.getAndIncrement(); at < updates.size(); at = next.getAndIncrement())
                        try (OpOrder.Group group = order.start())
                        {
                            memtable.put(updates.get(at), UpdateTransaction.NO_OP, group);
                        }
                }
                catch (Throwable thrown)
                {
                    failure.set(thrown);
                }
            }));
        writers.forEach(Thread::start);
        while (next.get() < updates.size() && failure.get() == null)
        {
            boolean reversed = random.chance(50);
            try (UnfilteredRowIterator rows = memtable.rowIterator(random.key(table.get()), random.slices(table.get()), filter(), reversed,
                                                                   SSTableReadsListener.NOOP_LISTENER))
            {
                if (rows != null)
                    new Content(rows, Integer.MAX_VALUE);
            }
        }
        for (Thread writer : writers)
            writer.join();
        if (failure.get() != null)
            throw new AssertionError("a writer failed", failure.get());
        return memtable;
    }

    /** Drops a column of the table, or adds it again. */
    private void alter(boolean again) throws Exception
    {
        TableMetadata old = table.get();
        if (old.isCounter())
            return;
        ColumnMetadata column = again ? null : old.regularColumns().iterator().next();
        TableMetadata.Builder builder = old.unbuild();
        if (again)
        {
            ColumnMetadata dropped = old.droppedColumns.values().iterator().next().column;
            builder.addColumn(dropped);
        }
        else
        {
            builder.removeRegularOrStaticColumn(column.name);
            builder.recordColumnDrop(column, RandomUpdates.TIMESTAMPS);
            random.advanceTime();
        }
        Method set = TableMetadataRef.class.getDeclaredMethod("set", TableMetadata.class);
        set.setAccessible(true);
        set.invoke(table, builder.build());
        stock.metadataUpdated();
        ours.metadataUpdated();
    }

    private ColumnFilter filter()
    {
        TableMetadata metadata = table.get();
        if (random.chance(50))
            return ColumnFilter.all(metadata);
        ColumnFilter.Builder builder = random.chance(50) ? ColumnFilter.allRegularColumnsBuilder(metadata, false)
                                                         : ColumnFilter.selectionBuilder();
        for (ColumnMetadata column : metadata.regularAndStaticColumns())
            if (random.chance(50))
                builder.add(column);
        return builder.build();
    }

    private void compareRead()
    {
        DecoratedKey key = random.key(table.get());
        Slices slices = random.slices(table.get());
        ColumnFilter filter = filter();
        boolean reversed = random.chance(50);
        SSTableReadsListener listener = SSTableReadsListener.NOOP_LISTENER;
        try (UnfilteredRowIterator one = stock.rowIterator(key, slices, filter, reversed, listener);
             UnfilteredRowIterator other = ours.rowIterator(key, slices, filter, reversed, listener))
        {
            if (one == null || other == null)
                check("presence of " + key, other != null, one != null && !(directory != null && isEmpty(one)));
            else
            {
                check("columns of a read", other.columns(), one.columns());
                compare("read of " + key + " " + slices + " " + filter + " reversed " + reversed, one, other, Integer.MAX_VALUE);
            }
        }
        reads++;
    }

    /** The engine returns no partition for slices in which a file has nothing, by a read of it or of a range. */
    private static boolean isEmpty(UnfilteredRowIterator rows)
    {
        return rows.partitionLevelDeletion().isLive() && rows.staticRow().isEmpty() && !rows.hasNext();
    }

    private void compareRange()
    {
        TableMetadata metadata = table.get();
        ClusteringIndexFilter rows;
        boolean reversed = random.chance(50);
        if (random.chance(70))
        {
            rows = new ClusteringIndexSliceFilter(random.slices(metadata), reversed);
        }
        else
        {
            TreeSet<Clustering<?>> names = new TreeSet<>(metadata.comparator);
            for (int i = 0; i < 3; i++)
                names.add(random.clustering(metadata));
            rows = new ClusteringIndexNamesFilter(names, reversed);
        }
        int partitionsMax = random.chance(10) ? 1 + random.below(3) : Integer.MAX_VALUE;
        compareRange(range(metadata, rows), filter(), partitionsMax, random.chance(40));
    }

    /** A range, which may be the rest of one of which a page of a result ended within a partition. */
    private DataRange range(TableMetadata metadata, ClusteringIndexFilter rows)
    {
        AbstractBounds<PartitionPosition> bounds = bounds(metadata);
        if (!(bounds.left instanceof DecoratedKey) || metadata.clusteringColumns().isEmpty())
            return new DataRange(bounds, rows);
        return new DataRange(bounds, rows).forPaging(bounds, metadata.comparator, random.clustering(metadata), random.chance(50));
    }

    /**
     * Compares a number of partitions at most, perhaps only the first rows of each. Returns the number of partitions,
     * of those that show something and of all that Cassandra lists.
     */
    private int[] compareRange(DataRange range, ColumnFilter filter, int partitionsMax, boolean leavesRows)
    {
        TableMetadata metadata = table.get();
        String what = "range " + range.toString(metadata) + " " + filter;
        int shown = 0, listed = 0;
        SSTableReadsListener listener = SSTableReadsListener.NOOP_LISTENER;
        try (UnfilteredPartitionIterator one = stock.partitionIterator(filter, range, listener);
             UnfilteredPartitionIterator other = ours.partitionIterator(filter, range, listener))
        {
            UnfilteredRowIterator right = nextOf(other);
            for (; listed < partitionsMax && one.hasNext(); listed++)
                try (UnfilteredRowIterator left = one.next())
                {
                    shown += showsNothing(left.partitionKey()) ? 0 : 1;
                    if (isLacked(left.partitionKey(), right == null ? null : right.partitionKey(), isEmpty(left)))
                        continue;
                    compare(what, left, right, leavesRows ? random.below(4) : Integer.MAX_VALUE);
                    if (random.chance(50))
                        right.close();
                    right = listed + 1 < partitionsMax ? nextOf(other) : null;
                }
            check("the end of " + what, right == null || listed == partitionsMax, true);
        }
        reads++;
        return new int[] { shown, listed };
    }

    /**
     * Whether ours lacks a partition, where it has {@code other} instead, or nothing more. It may lack one that shows
     * nothing, if it is a table of the engine: a file that has nothing in the slices is passed over, and a merge
     * removes the cells of a dropped column, and with them perhaps the last of what a partition had. Cassandra's
     * memtable still lists such a partition, and nobody can tell. Reads pass over partitions without content before
     * they are filtered, counted or digested ({@code PurgeFunction.applyToPartition} in {@code
     * ReadCommand.executeLocally}). So do those who write SSTables ({@code SortedTableWriter.append}), for a flush as
     * for the validation and the streams of a repair.
     */
    private boolean isLacked(DecoratedKey key, DecoratedKey other, boolean showsNothing)
    {
        if (key.equals(other))
            return false;
        check("the partition " + key + " may be missing, where ours has " + other, directory != null && showsNothing, true);
        return true;
    }

    /** Whether Cassandra's memtable has a partition without a deletion, a static row, a row or a range tombstone. */
    private boolean showsNothing(DecoratedKey key)
    {
        try (UnfilteredRowIterator rows = stock.rowIterator(key))
        {
            return isEmpty(rows);
        }
    }

    private static UnfilteredRowIterator nextOf(UnfilteredPartitionIterator partitions)
    {
        return partitions.hasNext() ? partitions.next() : null;
    }

    private AbstractBounds<PartitionPosition> bounds(TableMetadata metadata)
    {
        PartitionPosition left = random.chance(20) ? metadata.partitioner.getMinimumToken().minKeyBound() : position(metadata);
        PartitionPosition right = random.chance(20) ? metadata.partitioner.getMinimumToken().minKeyBound() : position(metadata);
        if (!right.isMinimum() && left.compareTo(right) > 0)
        {
            PartitionPosition swapped = left;
            left = right;
            right = swapped;
        }
        boolean includesLeft = random.chance(50), includesRight = random.chance(50);
        if (left.equals(right))
            includesLeft = includesRight = true;
        if (right.isMinimum())
            includesRight = true;
        return AbstractBounds.bounds(left, includesLeft, right, includesRight);
    }

    private PartitionPosition position(TableMetadata metadata)
    {
        DecoratedKey key = random.key(metadata);
        switch (random.below(3))
        {
            case 0:
                return key.getToken().minKeyBound();
            case 1:
                return key.getToken().maxKeyBound();
            default:
                return key;
        }
    }

    private void compareFlush(Memtable ours)
    {
        Memtable.FlushablePartitionSet<?> one = stock.getFlushSet(null, null), other = ours.getFlushSet(null, null);
        compareCounts(one, other);
        // The engine notes neither which columns were written nor statistics of a whole table.
        if (directory == null)
        {
            check("columns to flush", other.columns(), one.columns());
            check("statistics of what is flushed", other.encodingStats(), one.encodingStats());
        }
        check("there is something to flush", other.isEmpty(), false);
        Iterator<? extends Partition> left = one.iterator(), right = other.iterator();
        Partition ourPartition = null;
        while (left.hasNext())
        {
            Partition stockPartition = left.next();
            ourPartition = ourPartition == null && right.hasNext() ? right.next() : ourPartition;
            if (isLacked(stockPartition.partitionKey(), ourPartition == null ? null : ourPartition.partitionKey(),
                         showsNothing(stockPartition.partitionKey())))
                continue;
            check("deletion", ourPartition.partitionLevelDeletion(), stockPartition.partitionLevelDeletion());
            try (UnfilteredRowIterator rows = stockPartition.unfilteredIterator(); UnfilteredRowIterator ourRows = ourPartition.unfilteredIterator())
            {
                compare("flush of " + stockPartition.partitionKey(), rows, ourRows, Integer.MAX_VALUE);
            }
            ourPartition = null;
        }
        check("the end of what is flushed", ourPartition != null || right.hasNext(), false);
    }

    /** The engine may lack partitions that show nothing ({@link #isLacked}), and a merge may end at any time. */
    private void compareCounts(Memtable.FlushablePartitionSet<?> one, Memtable.FlushablePartitionSet<?> other)
    {
        long missing = 0, missingBytes = 0;
        for (Partition partition : one)
            if (directory != null && showsNothing(partition.partitionKey()))
            {
                missing++;
                missingBytes += partition.partitionKey().getKey().remaining();
            }
        checkCount("partitions to flush", other.partitionCount(), one.partitionCount() - missing, one.partitionCount());
        checkCount("bytes of keys to flush", other.partitionKeysSize(), one.partitionKeysSize() - missingBytes, one.partitionKeysSize());
    }

    private static void checkCount(String what, long got, long least, long most)
    {
        if (got < least || got > most)
            throw new AssertionError(what + ": " + got + " in place of " + least + " to " + most);
    }

    private void compare(String what, UnfilteredRowIterator one, UnfilteredRowIterator other, int rowsMax)
    {
        Content stockContent = new Content(one, rowsMax), ourContent = new Content(other, rowsMax);
        if (Arrays.equals(stockContent.digest, ourContent.digest))
            return;
        throw new AssertionError("differs: " + what + "\nCassandra:\n" + stockContent.text + "ours:\n" + ourContent.text);
    }

    /** What an iterator returns, at most a number of rows and markers, once as its digest and once to read. */
    private static final class Content
    {
        private final byte[] digest;
        private final String text;

        private Content(UnfilteredRowIterator rows, int rowsMax)
        {
            StringBuilder text = new StringBuilder();
            TableMetadata metadata = rows.metadata();
            text.append("  deletion ").append(rows.partitionLevelDeletion()).append('\n');
            text.append("  ").append(line(rows.staticRow(), metadata)).append('\n');
            Digest digest = Digest.forReadResponse();
            List<Unfiltered> read = new ArrayList<>();
            while (read.size() < rowsMax && rows.hasNext())
            {
                Unfiltered next = rows.next();
                read.add(next);
                String line = line(next, metadata);
                text.append("  ").append(line.length() > 2000 ? line.substring(0, 2000) : line).append('\n');
            }
            Iterator<Unfiltered> again = read.iterator();
            UnfilteredRowIterators.digest(new Replayed(rows, again), digest, MessagingService.VERSION_50);
            this.digest = digest.digest();
            this.text = text.toString();
        }
    }

    private static String line(Unfiltered next, TableMetadata metadata)
    {
        // Cassandra cannot print a deleted counter.
        if (metadata.isCounter() && next.isRow())
            return ((Row) next).clustering().toString(metadata) + " " + ((Row) next).columnData().size() + " counters";
        return next.isRow() ? ((Row) next).toString(metadata, true) : next.toString(metadata);
    }

    private static final class Replayed extends org.apache.cassandra.db.rows.AbstractUnfilteredRowIterator
    {
        private final Iterator<Unfiltered> rows;

        private Replayed(UnfilteredRowIterator of, Iterator<Unfiltered> rows)
        {
            super(of.metadata(), of.partitionKey(), of.partitionLevelDeletion(), of.metadata().regularAndStaticColumns(), of.staticRow(), of.isReverseOrder(), of.stats());
            this.rows = rows;
        }

        @Override
        protected Unfiltered computeNext()
        {
            return rows.hasNext() ? rows.next() : endOfData();
        }
    }

    private static void check(String what, Object got, Object expected)
    {
        if (!got.equals(expected))
            throw new AssertionError(what + ": " + got + " in place of " + expected);
    }

    /** The tables of the comparison. */
    public static List<TableMetadata> tables()
    {
        List<TableMetadata> tables = new ArrayList<>();
        for (String statement : TABLES)
            tables.add(CreateTableStatement.parse(statement, "ks").build());
        List<FieldIdentifier> names = List.of(FieldIdentifier.forUnquoted("a"), FieldIdentifier.forUnquoted("b"));
        UserType type = new UserType("ks", ByteBufferUtil.bytes("pair"), names, List.of(Int32Type.instance, UTF8Type.instance), true);
        TableMetadata.Builder udt = CreateTableStatement.parse("CREATE TABLE udts (k int, c int, v int, PRIMARY KEY (k, c))", "ks");
        tables.add(udt.addRegularColumn("u", type).addStaticColumn("us", type).build());
        tables.add(types(type.freeze()));
        return tables;
    }

    /** A table with a column of each type that the others lack, and of compound types within each other. */
    private static TableMetadata types(UserType pair)
    {
        List<FieldIdentifier> names = List.of(FieldIdentifier.forUnquoted("p"), FieldIdentifier.forUnquoted("l"), FieldIdentifier.forUnquoted("d"));
        UserType outer = new UserType("ks", ByteBufferUtil.bytes("outer"), names,
                                      List.of(pair, ListType.getInstance(pair, false), DurationType.instance), false);
        TableMetadata.Builder types = CreateTableStatement.parse(
            "CREATE TABLE types (k int, c1 date, c2 frozen<tuple<int, text>>, c3 ascii, bo boolean, ti tinyint, sm smallint, fl float, da date, tm time, "
            + "ts timestamp, tu timeuuid, du duration, ip inet, asc_ ascii, tp tuple<int, text, float>, vf vector<float, 3>, vt vector<text, 2>, "
            + "fm frozen<map<int, frozen<list<text>>>>, fs frozen<set<inet>>, ml map<timeuuid, frozen<list<int>>>, sd set<date>, "
            + "st set<frozen<tuple<float, boolean>>>, lv list<frozen<map<ascii, time>>>, sbo boolean static, sfm frozen<map<text, duration>> static, "
            + "PRIMARY KEY (k, c1, c2, c3)) WITH CLUSTERING ORDER BY (c1 DESC, c2 ASC, c3 DESC)", "ks");
        types.addRegularColumn("fu", outer).addStaticColumn("su", outer);
        types.addRegularColumn("lu", ListType.getInstance(outer, true)).addRegularColumn("mu", MapType.getInstance(pair, outer, true));
        return types.addRegularColumn("vu", VectorType.getInstance(pair, 2)).build();
    }

    public static void main(String[] args) throws Exception
    {
        DatabaseDescriptor.daemonInitialization();
        CommitLog.instance.start();
        long first = Long.parseLong(args[0]);
        int seeds = Integer.parseInt(args[1]), updates = Integer.parseInt(args[2]);
        String directory = args.length > 3 ? args[3] : null;
        int passed = 0, failed = 0, reads = 0;
        refuse(Map.of("mode", "storage"), "mode 'storage' needs a directory");
        refuse(Map.of("mode", "storage", "directory", "here"), "directory must be an absolute path");
        refuse(Map.of("mode", "storage", "directory", "/here", "commitlog_sync", "never"), "commitlog_sync must be batch, periodic or group");
        refuse(Map.of("mode", "storage", "directory", "/here", "file_cache_size", "much"), "Invalid data storage: much");
        refuse(Map.of("mode", "storage", "directory", "/here\0"), "Nul character not allowed");
        refuse(Map.of("mode", "storage", "directory", "/here", "commitlog_sink", "batch"), "unknown parameters [commitlog_sink]");
        refuse(Map.of("mode", "memtable", "directory", "here"), "directory must be an absolute path");
        refuse(Map.of("mode", "disk"), "unknown mode 'disk'");
        refuse(Map.of("shards", "many"), "shards must be a number");
        for (TableMetadata table : tables())
            for (long seed = first; seed < first + seeds; seed++)
            {
                MemtableComparison comparison = null;
                try
                {
                    comparison = new MemtableComparison(table, seed, directory);
                    comparison.run(updates);
                    passed++;
                }
                catch (Throwable failure)
                {
                    failed++;
                    System.out.println("FAILED: table " + table.name + ", seed " + seed);
                    failure.printStackTrace(System.out);
                }
                reads += comparison == null ? 0 : comparison.reads;
            }
        System.out.println(reads + " reads were the same but for the failures above");
        System.out.println(passed + " passed, " + failed + " failed");
        System.out.flush();
        Runtime.getRuntime().halt(failed == 0 ? 0 : 1);
    }
}
