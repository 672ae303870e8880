package espalier.cassandra;

import org.apache.cassandra.config.DatabaseDescriptor;
import org.apache.cassandra.utils.concurrent.OpOrder;
import org.apache.cassandra.utils.memory.MemtableAllocator.SubAllocator;
import org.apache.cassandra.utils.memory.MemtablePool.SubPool;

/**
 * Memory of the pool that a write takes before it is applied, and thus before it holds any lock. A writer that waits
 * for memory therefore keeps no other one waiting. It belongs to the thread that took it.
 */
public final class TakenMemory implements AutoCloseable
{
    private final SubAllocator allocator;
    private final OpOrder.Group writes;
    private final long takenBytes;
    /** What the write has used in the end. */
    private long usedBytes;

    private TakenMemory(SubAllocator allocator, OpOrder.Group writes, long takenBytes)
    {
        this.allocator = allocator;
        this.writes = writes;
        this.takenBytes = takenBytes;
    }

    /**
     * Takes this number of bytes, and waits for them unless a flush waits for this write.
     *
     * A large write takes less than it needs: only what the pool has beyond the part at which it begins to flush. If a
     * write waits, less than that is free, so a flush has begun or other writes are under way, and either frees memory.
     * A write that took more could wait for ever in a pool that is nearly empty.
     */
    public static TakenMemory take(SubAllocator allocator, SubPool pool, long bytes, OpOrder.Group writes)
    {
        long bytesMax = pool.limit - (long) (pool.limit * DatabaseDescriptor.getMemtableCleanupThreshold());
        long taken = Math.min(bytes, bytesMax);
        allocator.allocate(taken, writes);
        return new TakenMemory(allocator, writes, taken);
    }

    /** Records how many bytes the write has used. It is none if this is not called. */
    public void use(long bytes)
    {
        usedBytes = bytes;
    }

    /** Gives back what was not used, or takes what was used beyond it. */
    @Override
    public void close()
    {
        allocator.adjust(usedBytes - takenBytes, writes);
    }
}
