package espalier.cassandra;

/**
 * The native methods. All numbers of type long that are called addresses or handles are those of memory outside of the
 * Java heap; a reply is written to the buffer at {@code out}. What callers promise is listed at the top of
 * {@code crates/jni/src/boundary.rs}.
 */
final class Native
{
    /** Must be the version of the native library. */
    static final int VERSION = 7;

    /** The result of a call that failed; the reply has the reason. */
    static final long FAILED = Long.MIN_VALUE;

    private Native()
    {
    }

    static native int version();

    /** The number of memtables, reads and changes that this class has handles of. */
    static native long handles();

    static native long open(long description, long length, long firsts, long firstsLength, long shardBytes, long out, long capacity);

    static native long alter(long memtable, long description, long length, long out, long capacity);

    static native long put(long memtable, long update, long length, long out, long capacity);

    static native long putObserved(long memtable, int version, long update, long length, long out, long capacity);

    static native long takeChanges(long changes, long out, long capacity);

    static native long read(long memtable, int version, long request, long length, long out, long capacity);

    static native long more(long pages, boolean passesPartition, long out, long capacity);

    static native void closePages(long pages);

    static native long countKeys(long memtable, int version, long request, long length, long out, long capacity);

    static native long usage(long memtable, long out, long capacity);

    static native long discard(long memtable, long out, long capacity);

    static native long setOldestOfCassandra(long memtable, long timestamp, long out, long capacity);

    static native long snapshot(long memtable, long request, long length, long out, long capacity);

    static native long cleanUp(long memtable, long request, long length, long out, long capacity);

    static native long openStore(long request, long length, long out, long capacity);

    static native long closeStore(long store, long millis, long out, long capacity);

    static native long openStored(long store, long description, long length, int choice, long out, long capacity);

    static native long listing(long store, long out, long capacity);

    static native long keeps(long store, long high, long low, long out, long capacity);

    static native long removeStored(long store, long high, long low, long out, long capacity);

    static native void free(long memtable);
}
