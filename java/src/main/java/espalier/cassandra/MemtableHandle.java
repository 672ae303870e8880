package espalier.cassandra;

import java.lang.ref.Cleaner;
import java.lang.ref.Reference;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.Collections;
import java.util.IdentityHashMap;
import java.util.Set;

import org.apache.cassandra.db.memtable.ShardBoundaries;
import org.apache.cassandra.db.partitions.PartitionUpdate;
import org.apache.cassandra.dht.Murmur3Partitioner.LongToken;
import org.apache.cassandra.schema.TableMetadata;
import org.apache.cassandra.utils.memory.MemoryUtil;

/** A native memtable, which is freed when nobody can reach this object any more. */
final class MemtableHandle
{
    private static final Cleaner CLEANER = Cleaner.create();
    /** The most bytes of the structure, and of the contents, of a shard; 0 for the largest. Proofs make them small. */
    private static final long SHARD_BYTES = Long.getLong("espalier.shard_bytes", 0);

    private final long memtable;
    private volatile TableVersion newest;
    private byte[] description;
    /** Older objects for the table than that of {@code newest}; a thread may still see them for a while. */
    private final Set<TableMetadata> superseded = Collections.newSetFromMap(new IdentityHashMap<>());

    private MemtableHandle(long memtable, TableMetadata table, byte[] description)
    {
        this.memtable = memtable;
        this.description = description;
        this.newest = new TableVersion(table, 0);
        // What frees it must not refer to this object.
        CLEANER.register(this, () -> Native.free(memtable));
    }

    /**
     * A memtable whose shards divide the tokens at boundaries of Cassandra's. Throws an {@link IllegalStateException}
     * if the native memtable does not carry the table.
     */
    static MemtableHandle open(TableMetadata table, ShardBoundaries boundaries)
    {
        return open(table, boundaries, SHARD_BYTES);
    }

    static MemtableHandle open(TableMetadata table, ShardBoundaries boundaries, long shardBytes)
    {
        Buffers.Output description = Requests.table(table);
        ByteBuffer firsts = firstTokens(boundaries);
        Buffers.Reply reply = Buffers.reply();
        long memtable = Native.open(description.address(), description.length(), MemoryUtil.getAddress(firsts), firsts.position(),
                                    shardBytes, reply.address(), reply.capacity());
        Reference.reachabilityFence(firsts);
        return new MemtableHandle(reply.check(memtable), table, description.toByteArray());
    }

    /** The first token of each shard but the first one, and of each only once: a shard may have no tokens. */
    static ByteBuffer firstTokens(ShardBoundaries boundaries)
    {
        ByteBuffer firsts = ByteBuffer.allocateDirect((boundaries.shardCount() - 1) * Long.BYTES);
        for (int shard = 1; shard < boundaries.shardCount(); shard++)
        {
            long first = firstToken(boundaries, shard);
            if (firsts.position() == 0 || firsts.getLong(firsts.position() - Long.BYTES) != first)
                firsts.putLong(first);
        }
        return firsts;
    }

    /** The least token that is in a shard or behind it. Cassandra only says which shard a token is in. */
    private static long firstToken(ShardBoundaries boundaries, int shard)
    {
        long least = Long.MIN_VALUE, most = Long.MAX_VALUE;
        while (least < most)
        {
            long middle = least + ((most - least) >>> 1);
            if (boundaries.getShardForToken(new LongToken(middle)) < shard)
                least = middle + 1;
            else
                most = middle;
        }
        return least;
    }

    /**
     * A table of the engine; null if the choice is one that may find none. Throws if the engine cannot keep the table.
     */
    static MemtableHandle openStored(long store, TableMetadata table, int choice)
    {
        Buffers.Output description = Requests.table(table);
        Buffers.Reply reply = Buffers.reply();
        long memtable = reply.check(Native.openStored(store, description.address(), description.length(), choice, reply.address(),
                                                      reply.capacity()));
        return memtable == 0 ? null : new MemtableHandle(memtable, table, description.toByteArray());
    }

    /** The newest version of the table, which is {@code table} or one that replaced it. */
    TableVersion version(TableMetadata table)
    {
        TableVersion version = newest;
        return version.metadata == table ? version : follow(table);
    }

    /** The version for an update: it may have columns that the reference to the table does not show yet. */
    TableVersion versionFor(PartitionUpdate update, TableMetadata current)
    {
        TableVersion version = version(current);
        TableMetadata table = update.metadata();
        if (version.metadata != table && !version.metadata.regularAndStaticColumns().includes(update.columns())
            && table.regularAndStaticColumns().includes(version.metadata.regularAndStaticColumns()))
            return version(table);
        return version;
    }

    private synchronized TableVersion follow(TableMetadata table)
    {
        TableVersion version = newest;
        if (version.metadata == table || superseded.contains(table))
            return version;
        Buffers.Output altered = Requests.table(table);
        byte[] bytes = altered.toByteArray();
        int index = version.index;
        if (!Arrays.equals(bytes, description))
        {
            Buffers.Reply reply = Buffers.reply();
            long result = Native.alter(memtable, altered.address(), altered.length(), reply.address(), reply.capacity());
            index = (int) reply.check(result);
            description = bytes;
        }
        superseded.add(version.metadata);
        newest = new TableVersion(table, index);
        return newest;
    }

    /**
     * Applies a serialized update. Returns how the memory grew, for {@link #grownBytes} and {@link #isHalfFull}. Throws
     * a {@link MemtableFullException} if there is no room.
     */
    long put(Buffers.Output update, Buffers.Reply reply)
    {
        long written = Native.put(memtable, update.address(), update.length(), reply.address(), reply.capacity());
        Reference.reachabilityFence(this);
        return reply.check(written);
    }

    /** Like {@link #put}; the reply has the rows that changed, under a version of the table. */
    long putObserved(TableVersion version, Buffers.Output update, Buffers.Reply reply)
    {
        long written = Native.putObserved(memtable, version.index, update.address(), update.length(), reply.address(), reply.capacity());
        Reference.reachabilityFence(this);
        return reply.check(written);
    }

    /** By how many bytes the memory grew, from the result of a write. */
    static long grownBytes(long written)
    {
        return written >> 1;
    }

    /**
     * Whether the memtable should be flushed, from the result of a write: the rest of a shard is for the writes until
     * then.
     */
    static boolean isHalfFull(long written)
    {
        return (written & 1) != 0;
    }

    /** Writes the first page of a read to the reply, which has at most {@code bytesMax} bytes then. */
    void read(TableVersion version, Buffers.Output request, Buffers.Reply reply, long bytesMax)
    {
        long result = Native.read(memtable, version.index, request.address(), request.length(), reply.address(), bytesMax);
        Reference.reachabilityFence(this);
        reply.check(result);
    }

    /** The number of keys that a request selects, and their bytes. */
    long[] countKeys(TableVersion version, Buffers.Output request)
    {
        Buffers.Reply reply = Buffers.reply();
        long result = Native.countKeys(memtable, version.index, request.address(), request.length(), reply.address(), reply.capacity());
        Reference.reachabilityFence(this);
        reply.check(result);
        return new long[] { reply.content().getLong(), reply.content().getLong(24) };
    }

    /** The number of partitions, and the bytes in use. */
    long[] usage()
    {
        Buffers.Reply reply = Buffers.reply();
        long result = Native.usage(memtable, reply.address(), reply.capacity());
        Reference.reachabilityFence(this);
        reply.check(result);
        return new long[] { reply.content().getLong(), reply.content().getLong(24) };
    }

    /** The shards of a memtable, for metrics. */
    static final class Shards
    {
        /** How many writes found no other writer of their shard, how many did, and how long these waited. */
        final long uncontended, contended, waitedNanos;
        /** The bytes in use of each shard. */
        final long[] usedBytes;

        Shards(long uncontended, long contended, long waitedNanos, long[] usedBytes)
        {
            this.uncontended = uncontended;
            this.contended = contended;
            this.waitedNanos = waitedNanos;
            this.usedBytes = usedBytes;
        }
    }

    /** The shards of a memtable that is not discarded and not of the engine. */
    Shards shards()
    {
        Buffers.Reply reply = Buffers.reply();
        long result = Native.usage(memtable, reply.address(), reply.capacity());
        Reference.reachabilityFence(this);
        reply.check(result);
        ByteBuffer content = reply.content();
        for (int number = 0; number < 4; number++)
            content.getLong();
        long uncontended = content.getLong(), contended = content.getLong(), waitedNanos = content.getLong();
        long[] usedBytes = new long[content.remaining() / Long.BYTES];
        content.asLongBuffer().get(usedBytes);
        return new Shards(uncontended, contended, waitedNanos, usedBytes);
    }

    /**
     * Notes the least timestamp of the rows that Cassandra has of a table of the engine itself; {@link Long#MAX_VALUE}
     * if it has none.
     */
    void setOldestOfCassandra(long timestamp)
    {
        Buffers.Reply reply = Buffers.reply();
        long result = Native.setOldestOfCassandra(memtable, timestamp, reply.address(), reply.capacity());
        Reference.reachabilityFence(this);
        reply.check(result);
    }

    /** Takes a snapshot of a table of the engine. */
    void snapshot(Buffers.Output request)
    {
        Buffers.Reply reply = Buffers.reply();
        long result = Native.snapshot(memtable, request.address(), request.length(), reply.address(), reply.capacity());
        Reference.reachabilityFence(this);
        reply.check(result);
    }

    /** Removes the partitions outside of ranges from a table of the engine. Returns whether all of them are gone. */
    boolean cleanUp(Buffers.Output ranges)
    {
        Buffers.Reply reply = Buffers.reply();
        long result = Native.cleanUp(memtable, ranges.address(), ranges.length(), reply.address(), reply.capacity());
        Reference.reachabilityFence(this);
        return reply.check(result) != 0;
    }

    /** Frees the content as soon as the reads that have begun end. */
    void discard()
    {
        Buffers.Reply reply = Buffers.reply();
        long result = Native.discard(memtable, reply.address(), reply.capacity());
        Reference.reachabilityFence(this);
        reply.check(result);
    }
}
