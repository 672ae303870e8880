package espalier.cassandra;

/**
 * The native methods. All numbers of type long that are called addresses or handles are those of memory outside of the Java heap; a
 * reply is written to the buffer at {@code out}. What callers promise is listed at the top of {@code crates/jni/src/boundary.rs}.
 */
final class Native
{
    /** Must be the version of the native library. */
    static final int VERSION = 1;

    /** The result of a call that failed; the reply has the reason. */
    static final long FAILED = Long.MIN_VALUE;

    private Native()
    {
    }

    static native int version();

    static native long open(long description, long length, int shards, long out, long capacity);

    static native long alter(long memtable, long description, long length, long out, long capacity);

    static native long put(long memtable, long update, long length, long out, long capacity);

    static native long putObserved(long memtable, int version, long update, long length, long out, long capacity);

    static native long takeChanges(long changes, long out, long capacity);

    static native long read(long memtable, int version, long request, long length, long out, long capacity);

    static native long more(long pages, long out, long capacity);

    static native void closePages(long pages);

    static native long countKeys(long memtable, int version, long request, long length, long out, long capacity);

    static native long usage(long memtable, long out, long capacity);

    static native void discard(long memtable);

    static native void free(long memtable);
}
