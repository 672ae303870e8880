package espalier.cassandra;

import java.util.concurrent.ConcurrentHashMap;

import org.apache.cassandra.metrics.MinMaxAvgMetric;
import org.apache.cassandra.metrics.TableMetrics;
import org.apache.cassandra.metrics.TrieMemtableMetricsView;
import org.apache.cassandra.schema.TableMetadata;

/**
 * The metrics of a memtable's shards, under the names of Cassandra's trie memtable. Native code counts writes, and the
 * counts are added to the metrics from time to time.
 */
final class ShardMetrics
{
    /** The metrics are updated each time the memtable has this many more operations. */
    private static final long OPERATIONS = 4096;
    /** By keyspace and table. Cassandra shows the gauges of a table's first view, so all its memtables have it. */
    private static final ConcurrentHashMap<String, TrieMemtableMetricsView> VIEWS = new ConcurrentHashMap<>();

    private final MemtableHandle handle;
    private final TrieMemtableMetricsView view;
    /** What the metrics have of this memtable. Guarded by this object. */
    private MemtableHandle.Shards known = new MemtableHandle.Shards(0, 0, 0, new long[0]);

    ShardMetrics(MemtableHandle handle, TableMetadata table)
    {
        this.handle = handle;
        this.view = VIEWS.computeIfAbsent(table.toString(), name -> new TrieMemtableMetricsView(table.keyspace, table.name));
    }

    /** What ends the metrics of a table after {@code stock} did, which has the same names. */
    static TableMetrics.ReleasableMetric released(TableMetadata table, TableMetrics.ReleasableMetric stock)
    {
        return () -> {
            stock.release();
            VIEWS.remove(table.toString());
        };
    }

    /** Notes a write of {@code added} operations, after which the memtable has {@code operations}. */
    void note(long added, long operations)
    {
        if (operations / OPERATIONS != (operations - added) / OPERATIONS)
            follow();
    }

    /** Adds what is not in the metrics yet. The memtable is not discarded. */
    private synchronized MemtableHandle.Shards follow()
    {
        MemtableHandle.Shards shards = handle.shards();
        long contended = shards.contended - known.contended;
        view.uncontendedPuts.inc(shards.uncontended - known.uncontended);
        view.contendedPuts.inc(contended);
        // Each of them counts as one that waited for their mean time.
        for (long put = 0; put < contended; put++)
            view.contentionTime.addNano((shards.waitedNanos - known.waitedNanos) / contended);
        known = shards;
        return shards;
    }

    /** Adds the rest, and the sizes of the shards. The memtable was flushed or truncated, and is discarded next. */
    void flushed()
    {
        MemtableHandle.Shards shards = follow();
        MinMaxAvgMetric sizes = view.lastFlushShardDataSizes;
        synchronized (sizes)
        {
            sizes.reset();
            for (long bytes : shards.usedBytes)
                sizes.update(bytes);
        }
    }
}
