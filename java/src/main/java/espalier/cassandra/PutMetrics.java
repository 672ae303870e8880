package espalier.cassandra;

import org.apache.cassandra.metrics.TrieMemtableMetricsView;

/**
 * The metrics of the writes to a memtable, under the names of Cassandra's trie memtable. Native code counts, and the metrics follow from time to
 * time. The sizes of shards during a flush are not among them.
 */
final class PutMetrics
{
    /** After so many operations the metrics follow. */
    private static final long OPERATIONS = 4096;

    private final MemtableHandle handle;
    private final TrieMemtableMetricsView view;
    /** What the metrics have of this memtable. Guarded by this object. */
    private MemtableHandle.Puts known = new MemtableHandle.Puts(0, 0, 0);

    PutMetrics(MemtableHandle handle, String keyspace, String table)
    {
        this.handle = handle;
        this.view = new TrieMemtableMetricsView(keyspace, table);
    }

    /** Notes a write after which the memtable has so many operations. */
    void note(long added, long operations)
    {
        if (operations / OPERATIONS != (operations - added) / OPERATIONS)
            follow();
    }

    /** Adds what is not in the metrics yet. The memtable is not discarded. */
    synchronized void follow()
    {
        MemtableHandle.Puts puts = handle.puts();
        long contended = puts.contended - known.contended;
        view.uncontendedPuts.inc(puts.uncontended - known.uncontended);
        view.contendedPuts.inc(contended);
        // Each of them counts as one that waited for their mean time.
        for (long put = 0; put < contended; put++)
            view.contentionTime.addNano((puts.waitedNanos - known.waitedNanos) / contended);
        known = puts;
    }
}
