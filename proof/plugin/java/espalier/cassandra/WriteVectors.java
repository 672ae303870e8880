package espalier.cassandra;

import java.io.DataOutputStream;
import java.io.FileOutputStream;
import java.util.HashMap;
import java.util.List;
import java.util.concurrent.atomic.AtomicReference;

import espalier.proof.MemtableComparison;
import espalier.proof.RandomUpdates;
import org.apache.cassandra.config.DatabaseDescriptor;
import org.apache.cassandra.db.SerializationHeader;
import org.apache.cassandra.db.Slices;
import org.apache.cassandra.db.commitlog.CommitLog;
import org.apache.cassandra.db.commitlog.CommitLogPosition;
import org.apache.cassandra.db.filter.ColumnFilter;
import org.apache.cassandra.db.memtable.Memtable;
import org.apache.cassandra.db.memtable.TrieMemtable;
import org.apache.cassandra.db.partitions.PartitionUpdate;
import org.apache.cassandra.db.rows.EncodingStats;
import org.apache.cassandra.db.rows.SerializationHelper;
import org.apache.cassandra.db.rows.UnfilteredRowIterator;
import org.apache.cassandra.db.rows.UnfilteredSerializer;
import org.apache.cassandra.index.transactions.UpdateTransaction;
import org.apache.cassandra.io.sstable.SSTableReadsListener;
import org.apache.cassandra.io.util.DataOutputBuffer;
import org.apache.cassandra.net.MessagingService;
import org.apache.cassandra.schema.TableMetadata;
import org.apache.cassandra.schema.TableMetadataRef;
import org.apache.cassandra.utils.concurrent.OpOrder;

/**
 * Writes crates/jni/tests/vectors/updates.bin: for random updates, the description of the table, the update as
 * Cassandra serializes it, the request that reads its partition, and the page that Cassandra's trie memtable would give
 * if it were written in our form. Each part has a u32 length. Arguments: the file, the updates of each table.
 */
public final class WriteVectors
{
    public static void main(String[] args) throws Exception
    {
        DatabaseDescriptor.daemonInitialization();
        CommitLog.instance.start();
        try (DataOutputStream file = new DataOutputStream(new FileOutputStream(args[0])))
        {
            for (TableMetadata table : MemtableComparison.tables())
                for (int seed = 0; seed < Integer.parseInt(args[1]); seed++)
                    write(table, new RandomUpdates(seed, false), file);
        }
        Runtime.getRuntime().halt(0);
    }

    private static void write(TableMetadata table, RandomUpdates random, DataOutputStream file) throws Exception
    {
        PartitionUpdate update = random.update(table);
        if (update.isEmpty())
            return;
        push(Requests.table(table).toByteArray(), file);
        DataOutputBuffer serialized = new DataOutputBuffer();
        PartitionUpdate.serializer.serialize(update, serialized, MessagingService.VERSION_50);
        push(serialized.toByteArray(), file);
        push(Requests.partition(update.partitionKey(), Slices.ALL, false).toByteArray(), file);
        push(page(table, update), file);
    }

    private static void push(byte[] part, DataOutputStream file) throws Exception
    {
        file.writeInt(part.length);
        file.write(part);
    }

    private static byte[] page(TableMetadata table, PartitionUpdate update) throws Exception
    {
        Memtable.Factory stock = TrieMemtable.factory(new HashMap<>());
        Memtable memtable = stock.create(new AtomicReference<>(CommitLogPosition.NONE), TableMetadataRef.forOfflineTools(table),
                                         new MemtableComparison.Owner());
        try (OpOrder.Group group = new OpOrder().start())
        {
            memtable.put(update, UpdateTransaction.NO_OP, group);
        }
        DataOutputBuffer out = new DataOutputBuffer();
        SerializationHelper helper =
            new SerializationHelper(new SerializationHeader(false, table, table.regularAndStaticColumns(), EncodingStats.NO_STATS));
        UnfilteredSerializer serializer = UnfilteredSerializer.serializer;
        try (UnfilteredRowIterator rows = memtable.rowIterator(update.partitionKey(), Slices.ALL, ColumnFilter.all(table), false,
                                                               SSTableReadsListener.NOOP_LISTENER))
        {
            out.writeBoolean(!rows.partitionLevelDeletion().isLive());
            if (!rows.partitionLevelDeletion().isLive())
            {
                out.writeLong(rows.partitionLevelDeletion().markedForDeleteAt());
                out.writeLong(rows.partitionLevelDeletion().localDeletionTime());
            }
            out.writeBoolean(!rows.staticRow().isEmpty());
            if (!rows.staticRow().isEmpty())
                serializer.serializeStaticRow(rows.staticRow(), helper, out, MessagingService.VERSION_50);
            while (rows.hasNext())
                serializer.serialize(rows.next(), helper, out, MessagingService.VERSION_50);
        }
        serializer.writeEndOfPartition(out);
        return out.toByteArray();
    }
}
