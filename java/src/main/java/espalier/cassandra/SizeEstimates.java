package espalier.cassandra;

import java.math.BigInteger;
import java.util.Collection;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import org.apache.cassandra.concurrent.ScheduledExecutors;
import org.apache.cassandra.db.ColumnFamilyStore;
import org.apache.cassandra.db.SystemKeyspace;
import org.apache.cassandra.dht.Murmur3Partitioner.LongToken;
import org.apache.cassandra.dht.Range;
import org.apache.cassandra.dht.Token;
import org.apache.cassandra.service.StorageService;
import org.apache.cassandra.utils.Pair;

/**
 * The rows of {@code system.size_estimates} and {@code system.table_estimates} for tables of the engine, by which
 * drivers divide a table. Cassandra's recorder counts what is in its SSTables, so for these tables it writes zeros.
 * They are replaced some seconds later.
 */
final class SizeEstimates
{
    private static final Logger logger = LoggerFactory.getLogger(SizeEstimates.class);
    private static final long RECORD_SECONDS_MAX = 30;
    /** The seconds between two runs of Cassandra's recorder, as Cassandra reads them. */
    private static final long RECORD_SECONDS = Math.min(RECORD_SECONDS_MAX, Integer.getInteger("cassandra.size_recorder_interval", 300));
    private static final BigInteger ALL_TOKENS = BigInteger.ONE.shiftLeft(64);

    private SizeEstimates()
    {
    }

    static void start(StorageEngine engine)
    {
        ScheduledExecutors.optionalTasks.scheduleWithFixedDelay(() -> record(engine), RECORD_SECONDS, RECORD_SECONDS, TimeUnit.SECONDS);
    }

    private static void record(StorageEngine engine)
    {
        if (!StorageService.instance.isDaemonSetupCompleted() || !StorageService.instance.isJoined())
            return;
        for (StoredMemtable memtable : engine.memtables())
            if (!memtable.isSwitchedOut())
                try
                {
                    record(memtable);
                }
                catch (RuntimeException failure)
                {
                    logger.warn("The size of {} is not estimated", memtable.metadata(), failure);
                }
    }

    private static void record(StoredMemtable memtable)
    {
        String keyspace = memtable.metadata().keyspace;
        String table = memtable.metadata().name;
        long partitions = memtable.partitionCount();
        long meanBytes = partitions == 0 ? 0 : memtable.getLiveDataSize() / partitions;
        double tokens = width(StorageService.instance.getLocalReplicas(keyspace).ranges());
        double partitionsPerToken = tokens == 0 ? 0 : partitions / tokens;
        Map<Range<Token>, Pair<Long, Long>> primary =
            estimates(memtable, StorageService.instance.getPrimaryRanges(keyspace), partitionsPerToken, meanBytes);
        Map<Range<Token>, Pair<Long, Long>> local =
            estimates(memtable, StorageService.instance.getLocalPrimaryRange(), partitionsPerToken, meanBytes);
        SystemKeyspace.updateSizeEstimates(keyspace, table, primary);
        SystemKeyspace.updateTableEstimates(keyspace, table, SystemKeyspace.TABLE_ESTIMATES_TYPE_PRIMARY, primary);
        SystemKeyspace.updateTableEstimates(keyspace, table, SystemKeyspace.TABLE_ESTIMATES_TYPE_LOCAL_PRIMARY, local);
    }

    /**
     * For each range the number of partitions, and their mean size in bytes. The engine's are spread evenly over the
     * node's tokens.
     */
    private static Map<Range<Token>, Pair<Long, Long>> estimates(StoredMemtable memtable, Collection<Range<Token>> ranges,
                                                                  double partitionsPerToken, long meanBytes)
    {
        Map<Range<Token>, Pair<Long, Long>> estimates = new HashMap<>();
        for (Range<Token> wrapped : ranges)
            for (Range<Token> range : wrapped.unwrap())
            {
                // A table that moved into the engine has SSTables of Cassandra's too.
                ColumnFamilyStore cassandra = ColumnFamilyStore.getIfExists(memtable.metadata().id);
                long ofCassandra = cassandra == null ? 0 : cassandra.estimatedKeysForRange(range);
                long ofEngine = (long) Math.ceil(partitionsPerToken * width(range));
                estimates.put(range, Pair.create(ofCassandra + ofEngine, meanBytes));
            }
        return estimates;
    }

    private static double width(Iterable<Range<Token>> ranges)
    {
        double sum = 0;
        for (Range<Token> range : ranges)
            sum += width(range);
        return sum;
    }

    /** The number of tokens in a range, of which all have 64 bits. */
    private static double width(Range<Token> range)
    {
        BigInteger width = BigInteger.valueOf(((LongToken) range.right).token).subtract(BigInteger.valueOf(((LongToken) range.left).token));
        return (width.signum() > 0 ? width : width.add(ALL_TOKENS)).doubleValue();
    }
}
