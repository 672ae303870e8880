package espalier.cassandra;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.atomic.AtomicReference;

import com.google.common.base.Throwables;

import org.apache.cassandra.db.DataRange;
import org.apache.cassandra.db.DecoratedKey;
import org.apache.cassandra.db.Slices;
import org.apache.cassandra.db.commitlog.CommitLogPosition;
import org.apache.cassandra.db.filter.ColumnFilter;
import org.apache.cassandra.db.memtable.EspalierMemtable;
import org.apache.cassandra.db.memtable.Memtable;
import org.apache.cassandra.db.partitions.PartitionUpdate;
import org.apache.cassandra.db.partitions.UnfilteredPartitionIterator;
import org.apache.cassandra.db.rows.UnfilteredRowIterator;
import org.apache.cassandra.io.sstable.SSTableReadsListener;
import org.apache.cassandra.io.util.DataOutputBuffer;
import org.apache.cassandra.net.MessagingService;
import org.apache.cassandra.schema.TableMetadata;
import org.apache.cassandra.schema.TableMetadataRef;
import org.apache.cassandra.serializers.MarshalException;

import espalier.proof.MemtableComparison;
import espalier.proof.RandomUpdates;

/**
 * Damaged updates and requests cross to native code. One that is cut throws an exception and leaves the memtable as it
 * was. One with a flipped bit does so too, or is another update, whose rows Java can read.
 */
final class NativeBoundary
{
    private static final int UPDATES = 3;
    /** Longer updates have large values, in which a flipped bit is another value. */
    private static final int UPDATE_BYTES_MAX = 3_000;

    private final TableMetadata table;
    private final Random random;
    private final PartitionUpdate update;
    private final byte[] serialized;
    private final NativeMemtable memtable;
    private final TableVersion version;
    private final byte[] content;
    private int refused, taken;

    private NativeBoundary(TableMetadata table, PartitionUpdate update, Random random) throws IOException
    {
        this.table = table;
        this.random = random;
        this.update = update;
        this.serialized = serialized(update);
        this.memtable = made();
        this.version = memtable.version();
        put(memtable, serialized);
        this.content = content();
    }

    /** Fails if a damaged update or request does what it should not. */
    static void check() throws Exception
    {
        int refused = 0, taken = 0;
        for (TableMetadata table : MemtableComparison.tables())
            for (int seed = 0; seed < UPDATES; seed++)
            {
                NativeBoundary boundary = of(table, seed);
                boundary.cut();
                boundary.flip();
                boundary.damageRequests();
                refused += boundary.refused;
                taken += boundary.taken;
            }
        System.out.println(refused + " damaged updates were refused, and " + taken + " were other ones");
        if (refused == 0 || taken == 0)
            throw new AssertionError("either kind of damage is expected");
    }

    private static NativeBoundary of(TableMetadata table, int seed) throws IOException
    {
        RandomUpdates updates = new RandomUpdates(seed, false);
        PartitionUpdate update = updates.update(table);
        while (update.isEmpty() || serialized(update).length > UPDATE_BYTES_MAX)
            update = updates.update(table);
        return new NativeBoundary(table, update, new Random(seed));
    }

    private NativeMemtable made()
    {
        Memtable.Factory factory = EspalierMemtable.factory(new HashMap<>(Map.of("mode", "memtable", "shards", "1")));
        return (NativeMemtable) factory.create(new AtomicReference<>(CommitLogPosition.NONE), TableMetadataRef.forOfflineTools(table),
                                               new MemtableComparison.Owner());
    }

    private static byte[] serialized(PartitionUpdate update) throws IOException
    {
        try (DataOutputBuffer out = new DataOutputBuffer())
        {
            PartitionUpdate.serializer.serialize(update, out, MessagingService.VERSION_50);
            return out.toByteArray();
        }
    }

    private static Buffers.Output crossing(byte[] bytes, int length) throws IOException
    {
        Buffers.Output out = Buffers.output();
        out.write(bytes, 0, length);
        return out;
    }

    private static void put(NativeMemtable memtable, byte[] update) throws IOException
    {
        memtable.handle().put(crossing(update, update.length), Buffers.reply());
    }

    private byte[] content() throws IOException
    {
        return read(Requests.partition(update.partitionKey(), Slices.ALL, false));
    }

    /** What a request is answered with. */
    private byte[] read(Buffers.Output request) throws IOException
    {
        NativePages pages = new NativePages(true);
        try
        {
            pages.begin(memtable.handle(), version, request);
            return pages.readAllBytes();
        }
        finally
        {
            pages.close();
        }
    }

    private void cut() throws IOException
    {
        for (int length = 0; length < serialized.length; length++)
            if (isTaken(memtable, Arrays.copyOf(serialized, length)))
                throw new AssertionError(table.name + ": " + length + " of " + serialized.length + " bytes of an update were taken");
        checkContent();
    }

    private void flip() throws IOException
    {
        for (int at = 0; at < serialized.length; at++)
        {
            byte[] damaged = serialized.clone();
            damaged[at] ^= 1 << random.nextInt(8);
            NativeMemtable other = made();
            if (isTaken(other, damaged))
                readAll(other);
            else if (other.handle().usage()[0] != 0)
                throw new AssertionError(table.name + ": a refused update left something");
            other.handle().discard();
        }
        checkContent();
    }

    private boolean isTaken(NativeMemtable memtable, byte[] damaged) throws IOException
    {
        try
        {
            put(memtable, damaged);
            taken++;
            return true;
        }
        catch (IllegalStateException refusal)
        {
            if (!refusal.getMessage().startsWith("EspalierMemtable: ") || refusal.getMessage().contains("panic"))
                throw new AssertionError(table.name + ": not refused as it should be", refusal);
            refused++;
            return false;
        }
    }

    private void checkContent() throws IOException
    {
        if (!Arrays.equals(content(), content))
            throw new AssertionError(table.name + ": damaged updates changed the memtable");
    }

    /**
     * Java reads whatever native code took, or says that a value is none of its type, as it does of Cassandra's
     * memtables.
     */
    private void readAll(NativeMemtable memtable)
    {
        try (UnfilteredPartitionIterator partitions = memtable.partitionIterator(ColumnFilter.all(table), DataRange.allData(table.partitioner),
                                                                                 SSTableReadsListener.NOOP_LISTENER))
        {
            while (partitions.hasNext())
                try (UnfilteredRowIterator rows = partitions.next())
                {
                    while (rows.hasNext())
                        rows.next();
                }
        }
        catch (UncheckedIOException unreadable)
        {
            Throwable reason = Throwables.getRootCause(unreadable);
            // Cassandra reads counters, and compares tuples in paths of cells, without looking whether they are whole.
            if (!(reason instanceof MarshalException) && !(reason instanceof IndexOutOfBoundsException))
                throw unreadable;
        }
    }

    /** A damaged request reads other partitions, or throws. */
    private void damageRequests() throws IOException
    {
        DecoratedKey key = update.partitionKey();
        damage(Requests.partition(key, Slices.ALL, false).toByteArray());
        damage(Requests.range(key, true, key.getToken().maxKeyBound(), true, Slices.ALL, true).toByteArray());
        checkContent();
    }

    private void damage(byte[] request) throws IOException
    {
        for (int length = 0; length < request.length; length++)
            if (isAnswered(request, length))
                throw new AssertionError(table.name + ": " + length + " of " + request.length + " bytes of a request were answered");
        for (int at = 0; at < request.length; at++)
        {
            byte[] damaged = request.clone();
            damaged[at] ^= 1 << random.nextInt(8);
            isAnswered(damaged, damaged.length);
        }
    }

    private boolean isAnswered(byte[] request, int length) throws IOException
    {
        try
        {
            read(crossing(request, length));
            return true;
        }
        catch (IllegalStateException refusal)
        {
            if (refusal.getMessage().contains("panic"))
                throw new AssertionError(table.name + ": a request panics", refusal);
            return false;
        }
    }
}
