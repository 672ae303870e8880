import java.io.PrintWriter;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.stream.Collectors;

import org.apache.cassandra.cql3.QueryProcessor;
import org.apache.cassandra.db.ColumnFamilyStore;
import org.apache.cassandra.db.Keyspace;
import org.apache.cassandra.db.PartitionPosition;
import org.apache.cassandra.db.PartitionRangeReadCommand;
import org.apache.cassandra.db.ReadExecutionController;
import org.apache.cassandra.db.partitions.PartitionIterator;
import org.apache.cassandra.db.partitions.UnfilteredPartitionIterator;
import org.apache.cassandra.db.partitions.UnfilteredPartitionIterators;
import org.apache.cassandra.db.rows.Row;
import org.apache.cassandra.db.rows.RowIterator;
import org.apache.cassandra.db.rows.Unfiltered;
import org.apache.cassandra.db.rows.UnfilteredRowIterator;
import org.apache.cassandra.dht.Range;
import org.apache.cassandra.dht.Token;
import org.apache.cassandra.gms.Gossiper;
import org.apache.cassandra.hints.HintsService;
import org.apache.cassandra.io.sstable.format.SSTableReader;
import org.apache.cassandra.schema.Schema;
import org.apache.cassandra.schema.TableMetadata;
import org.apache.cassandra.service.ActiveRepairService;
import org.apache.cassandra.service.ActiveRepairService.ParentRepairStatus;
import org.apache.cassandra.service.StorageProxy;
import org.apache.cassandra.service.StorageService;
import org.apache.cassandra.utils.FBUtilities;
import org.apache.cassandra.utils.concurrent.Refs;

/**
 * What a node of a ring does on command, and what it alone has:
 *
 * live, schema, hints, handoff on|off, repair KEYSPACE full|incremental, cleanup KEYSPACE, decommission,
 * local STATEMENT, dump KEYSPACE TABLE FILE, write_ranges KEYSPACE TABLE, release_ranges
 */
final class RingCommands
{
    private static final long POLL_MILLIS = 200;
    /** What `write_ranges` wrote, in use until `release_ranges`. */
    private static final Refs<SSTableReader> written = new Refs<>();

    private RingCommands()
    {
    }

    static String execute(String[] words) throws Exception
    {
        switch (words[0])
        {
            case "live":
                return Gossiper.instance.getLiveTokenOwners().stream().map(owner -> owner.getAddress().getHostAddress())
                                        .collect(Collectors.joining(","));
            case "schema":
                return Schema.instance.getVersion().toString();
            case "hints":
                return String.valueOf(hints());
            case "handoff":
                StorageProxy.instance.setHintedHandoffEnabled(words[1].equals("on"));
                return "";
            case "repair":
                repair(words[1], words[2].equals("incremental"));
                return "";
            case "cleanup":
                return String.valueOf(StorageService.instance.forceKeyspaceCleanup(words[1]));
            case "decommission":
                StorageService.instance.decommission(false);
                return "";
            case "local":
                // A statement that this node carries out on its own data, whatever its replicas have.
                QueryProcessor.executeInternal(words[1]);
                return "";
            case "dump":
                return String.valueOf(dump(Keyspace.open(words[1]).getColumnFamilyStore(words[2]), Path.of(words[3])));
            case "write_ranges":
                return writeRanges(Keyspace.open(words[1]).getColumnFamilyStore(words[2]));
            case "release_ranges":
                written.release();
                return "";
            default:
                throw new IllegalArgumentException("unknown command " + Arrays.toString(words));
        }
    }

    /** The number of nodes for which this one has hints. */
    private static int hints()
    {
        List<UUID> hosts = StorageService.instance.getEndpointToHostId().values().stream().map(UUID::fromString)
                                                  .collect(Collectors.toList());
        HintsService.instance.flushAndFsyncBlockingly(hosts);
        return HintsService.instance.getPendingHintsInfo().size();
    }

    private static void repair(String keyspace, boolean isIncremental) throws InterruptedException
    {
        Map<String, String> options = Map.of("incremental", String.valueOf(isIncremental), "parallelism", "parallel");
        int number = StorageService.instance.repairAsync(keyspace, options);
        List<String> status = null;
        // The status comes some time after the number.
        while (status == null || status.isEmpty() || status.get(0).equals(ParentRepairStatus.IN_PROGRESS.name()))
        {
            Thread.sleep(POLL_MILLIS);
            status = number == 0 ? List.of("NOTHING TO DO") : StorageService.instance.getParentRepairStatus(number);
        }
        if (!status.get(0).equals(ParentRepairStatus.COMPLETED.name()))
            throw new IllegalStateException("repair of " + keyspace + ": " + status);
    }

    /**
     * Writes the rows of a durable memtable to SSTables, as for a stream or a repair. Returns the names of the files.
     */
    private static String writeRanges(ColumnFamilyStore store)
    {
        Token least = store.getPartitioner().getMinimumToken();
        Range<PartitionPosition> all = Range.makeRowRange(new Range<>(least, least));
        store.writeAndAddMemtableRanges(ActiveRepairService.NO_PENDING_REPAIR, () -> List.of(all), written);
        StringBuilder names = new StringBuilder();
        for (SSTableReader sstable : written)
            names.append(names.length() == 0 ? "" : "\t").append(sstable.getFilename());
        return names.toString();
    }

    /**
     * Writes all that this node itself has of a table, tombstones too. Each line has the partition's key, the addresses
     * of its replicas, and the partition's deletion, its static row, a row or a range tombstone. Returns the number of
     * partitions.
     *
     * Of a view only the live rows are written: which tombstones it has depends on the order of its table's changes.
     */
    private static long dump(ColumnFamilyStore store, Path file) throws Exception
    {
        TableMetadata table = store.metadata();
        long now = FBUtilities.nowInSeconds();
        PartitionRangeReadCommand all = PartitionRangeReadCommand.allDataRead(table, now);
        long count = 0;
        try (PrintWriter out = new PrintWriter(Files.newBufferedWriter(file));
             ReadExecutionController controller = all.executionController();
             UnfilteredPartitionIterator partitions = all.executeLocally(controller))
        {
            PartitionIterator live = table.isView() ? UnfilteredPartitionIterators.filter(partitions, now) : null;
            while (live != null && live.hasNext())
                try (RowIterator partition = live.next())
                {
                    String start = start(table, partition.partitionKey().getKey());
                    while (partition.hasNext())
                        out.println(start + line(table, partition.next()));
                    count++;
                }
            while (live == null && partitions.hasNext())
                try (UnfilteredRowIterator partition = partitions.next())
                {
                    dump(table, partition, out);
                    count++;
                }
        }
        return count;
    }

    private static void dump(TableMetadata table, UnfilteredRowIterator partition, PrintWriter out)
    {
        String start = start(table, partition.partitionKey().getKey());
        out.println(start + partition.partitionLevelDeletion());
        if (!partition.staticRow().isEmpty())
            out.println(start + line(table, partition.staticRow()));
        while (partition.hasNext())
            out.println(start + line(table, partition.next()));
    }

    private static String start(TableMetadata table, ByteBuffer key)
    {
        String replicas = StorageService.instance.getNaturalEndpoints(table.keyspace, key).stream()
                                                 .map(address -> address.getHostAddress()).sorted()
                                                 .collect(Collectors.joining(","));
        return table.partitionKeyType.getString(key) + "\t" + replicas + "\t";
    }

    private static String line(TableMetadata table, Unfiltered unfiltered)
    {
        // A row without clustering columns has one of two texts for them, in memory or read from a file.
        boolean hasClustering = unfiltered.clustering().size() > 0;
        String text = unfiltered instanceof Row ? ((Row) unfiltered).toString(table, hasClustering, true)
                                                : unfiltered.toString(table, true);
        return text.replace("\\", "\\\\").replace("\n", "\\n");
    }
}
