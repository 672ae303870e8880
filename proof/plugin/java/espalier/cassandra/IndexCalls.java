package espalier.cassandra;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Random;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.Collectors;

import org.apache.cassandra.cql3.statements.schema.CreateTableStatement;
import org.apache.cassandra.db.DecoratedKey;
import org.apache.cassandra.db.DeletionTime;
import org.apache.cassandra.db.RangeTombstone;
import org.apache.cassandra.db.commitlog.CommitLogPosition;
import org.apache.cassandra.db.memtable.EspalierMemtable;
import org.apache.cassandra.db.memtable.Memtable;
import org.apache.cassandra.db.memtable.TrieMemtable;
import org.apache.cassandra.db.partitions.PartitionUpdate;
import org.apache.cassandra.db.rows.Row;
import org.apache.cassandra.db.rows.Rows;
import org.apache.cassandra.db.rows.Unfiltered;
import org.apache.cassandra.db.rows.UnfilteredRowIterator;
import org.apache.cassandra.index.transactions.UpdateTransaction;
import org.apache.cassandra.schema.TableMetadata;
import org.apache.cassandra.schema.TableMetadataRef;
import org.apache.cassandra.utils.concurrent.OpOrder;

import espalier.proof.MemtableComparison;

/**
 * The calls that memtables make to the indexes of a table. Ours and Cassandra's trie memtable get the same updates.
 * Without deletions both make the same calls. With deletions ours passes on the same ones, before the rows, and makes a
 * call for every row that an update changed. Cassandra's memtable keeps rows beside what deletes them, and makes calls
 * for those too.
 *
 * While an index is called, another thread writes to the partition: no lock is held.
 */
final class IndexCalls
{
    private static final int SEEDS = 4, UPDATES = 300, PARTITIONS = 2, CLUSTERINGS = 5, TIMESTAMPS = 40;
    /** So long that the changes of a write with it do not fit into the buffer for short replies. */
    private static final int LONG_TEXT = 9_000;
    private static final List<String> ORDER = List.of("start", "partition deletion", "range tombstone", "row", "commit");

    private final TableMetadata table =
        CreateTableStatement.parse("CREATE TABLE i (k int, c int, s text static, v int, w text, PRIMARY KEY (k, c))", "ks").build();
    private final Memtable stock = made(TrieMemtable.factory(new HashMap<>()));
    private final Memtable ours = made(EspalierMemtable.factory(new HashMap<>(Map.of("mode", "memtable", "shards", "1"))));
    private final OpOrder order = new OpOrder();
    private final Random random;
    private final boolean hasDeletions;

    private IndexCalls(long seed, boolean hasDeletions)
    {
        this.random = new Random(seed);
        this.hasDeletions = hasDeletions;
    }

    /** Fails if an index got other calls, or in another order. */
    static void check() throws Exception
    {
        for (long seed = 1; seed <= SEEDS; seed++)
        {
            new IndexCalls(seed, false).run();
            new IndexCalls(seed, true).run();
        }
    }

    private Memtable made(Memtable.Factory factory)
    {
        return factory.create(new AtomicReference<>(CommitLogPosition.NONE), TableMetadataRef.forOfflineTools(table),
                              new MemtableComparison.Owner());
    }

    /** A call of an index. What it is about is at most two rows, or a deletion. */
    private static final class Call
    {
        final String kind;
        final boolean isUpdate;
        final List<Object> about;

        Call(String kind, boolean isUpdate, Object... about)
        {
            this.kind = kind;
            this.isUpdate = isUpdate;
            this.about = List.of(about);
        }

        boolean changesNothing()
        {
            return isUpdate && about.get(0).equals(about.get(1));
        }

        @Override
        public boolean equals(Object other)
        {
            Call call = (Call) other;
            return kind.equals(call.kind) && isUpdate == call.isUpdate && about.equals(call.about);
        }

        @Override
        public int hashCode()
        {
            return Objects.hash(kind, isUpdate, about);
        }

        @Override
        public String toString()
        {
            return kind + (isUpdate ? " updated " : " ") + about;
        }
    }

    /** An index that remembers its calls. */
    private static final class Index implements UpdateTransaction
    {
        final List<Call> calls = new ArrayList<>();
        /** What is done during the first call for a row; null for nothing. */
        private Runnable meanwhile;

        Index(Runnable meanwhile)
        {
            this.meanwhile = meanwhile;
        }

        @Override
        public void start()
        {
            calls.add(new Call("start", false));
        }

        @Override
        public void onPartitionDeletion(DeletionTime deletion)
        {
            calls.add(new Call("partition deletion", false, deletion));
        }

        @Override
        public void onRangeTombstone(RangeTombstone tombstone)
        {
            calls.add(new Call("range tombstone", false, tombstone));
        }

        @Override
        public void onInserted(Row row)
        {
            note(new Call("row", false, row));
        }

        @Override
        public void onUpdated(Row before, Row after)
        {
            note(new Call("row", true, before, after));
        }

        private void note(Call call)
        {
            calls.add(call);
            if (meanwhile != null)
                meanwhile.run();
            meanwhile = null;
        }

        @Override
        public void commit()
        {
            calls.add(new Call("commit", false));
        }

        /** The calls of a kind, without those that changed nothing: ours does not make them. */
        List<Call> of(String kind)
        {
            return calls.stream().filter(call -> call.kind.equals(kind) && !call.changesNothing()).collect(Collectors.toList());
        }
    }

    private void run()
    {
        for (int i = 0; i < UPDATES; i++)
        {
            PartitionUpdate update = update();
            if (update.isEmpty())
                continue;
            Map<String, Row> before = rows(update.partitionKey());
            Index told = written(ours, update, i == UPDATES / 2 ? () -> writeMeanwhile(update.partitionKey()) : null);
            Index toldByStock = written(stock, update, null);
            checkOrder(told);
            for (String kind : ORDER)
                if (!hasDeletions || !kind.equals("row"))
                    check(kind, told.of(kind), toldByStock.of(kind));
            checkRows(update, told, before);
        }
    }

    private PartitionUpdate update()
    {
        PartitionUpdate.SimpleBuilder update = PartitionUpdate.simpleBuilder(table, random.nextInt(PARTITIONS));
        long timestamp = 1 + random.nextInt(TIMESTAMPS);
        update.timestamp(timestamp);
        int deletion = hasDeletions ? random.nextInt(6) : -1;
        if (deletion == 0)
            update.delete();
        if (deletion < 2 && deletion >= 0)
            update.addRangeTombstone().start(random.nextInt(CLUSTERINGS)).inclStart().end(CLUSTERINGS).exclEnd();
        // An update has nothing that its own deletions delete.
        update.timestamp(timestamp + 1);
        if (random.nextInt(3) == 0)
            update.row().add("s", text());
        for (int c = 0; c < CLUSTERINGS; c++)
            if (random.nextInt(3) == 0)
                addRow(update.row(c));
        return update.build();
    }

    private void addRow(Row.SimpleBuilder row)
    {
        if (hasDeletions && random.nextInt(5) == 0)
        {
            row.noPrimaryKeyLivenessInfo().delete();
            return;
        }
        row.add("v", random.nextInt(5));
        if (random.nextBoolean())
            row.add("w", text());
    }

    private String text()
    {
        return "t".repeat(random.nextInt(10) == 0 ? LONG_TEXT : random.nextInt(4));
    }

    private Index written(Memtable memtable, PartitionUpdate update, Runnable meanwhile)
    {
        Index index = new Index(meanwhile);
        try (OpOrder.Group group = order.start())
        {
            memtable.put(update, index, group);
        }
        return index;
    }

    /** Waits for ever if the memtable has locked the partition. */
    private void writeMeanwhile(DecoratedKey key)
    {
        PartitionUpdate.SimpleBuilder update = PartitionUpdate.simpleBuilder(table, key).timestamp(1);
        update.row(CLUSTERINGS).add("v", 1);
        Thread writer = new Thread(() -> written(ours, update.build(), null));
        writer.start();
        try
        {
            writer.join();
        }
        catch (InterruptedException interrupted)
        {
            throw new IllegalStateException(interrupted);
        }
    }

    /** The rows that our memtable has, by their clusterings. */
    private Map<String, Row> rows(DecoratedKey key)
    {
        try (UnfilteredRowIterator partition = ours.rowIterator(key))
        {
            return partition == null ? Map.of() : rows(partition);
        }
    }

    private Map<String, Row> rows(UnfilteredRowIterator partition)
    {
        Map<String, Row> rows = new HashMap<>();
        if (!partition.staticRow().isEmpty())
            rows.put(nameOf(partition.staticRow()), partition.staticRow());
        while (partition.hasNext())
        {
            Unfiltered next = partition.next();
            if (next.isRow())
                rows.put(nameOf((Row) next), (Row) next);
        }
        return rows;
    }

    private String nameOf(Row row)
    {
        return row.clustering().toString(table);
    }

    private static void checkOrder(Index told)
    {
        List<Integer> places = told.calls.stream().map(call -> ORDER.indexOf(call.kind)).collect(Collectors.toList());
        check("the order of calls", places, places.stream().sorted().collect(Collectors.toList()));
    }

    /** What was written and changed a row was told, with the row as it was written or as it is after a merge. */
    private void checkRows(PartitionUpdate update, Index told, Map<String, Row> before)
    {
        Map<String, Row> after = rows(update.partitionKey());
        Map<String, Row> written;
        try (UnfilteredRowIterator rows = update.unfilteredIterator())
        {
            written = rows(rows);
        }
        Map<String, Call> calls = new HashMap<>();
        for (Call call : told.of("row"))
            calls.put(nameOf((Row) call.about.get(0)), call);
        for (Map.Entry<String, Row> entry : written.entrySet())
        {
            Row row = entry.getValue(), was = before.get(entry.getKey());
            Call call = calls.remove(entry.getKey());
            Row now = after.get(entry.getKey());
            // An index gets no call for what a row loses by a deletion alone, nor for cells that a deletion hides.
            boolean isNewer = row.deletion().isLive() && (was == null || !Rows.merge(was, row).equals(was));
            boolean isChanged = isNewer && now != null && !now.equals(was);
            if (call == null && isChanged)
                throw new AssertionError(row.toString(table) + " was not told");
            if (call != null)
                check("the row", call.about.get(call.isUpdate ? 1 : 0), call.isUpdate ? Rows.merge((Row) call.about.get(0), row) : row);
        }
        check("rows that were not written", calls.keySet(), Map.of().keySet());
    }

    private static void check(String what, Object got, Object expected)
    {
        if (!got.equals(expected))
            throw new AssertionError(what + ": " + got + " in place of " + expected);
    }
}
