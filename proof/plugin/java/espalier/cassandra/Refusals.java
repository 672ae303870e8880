package espalier.cassandra;

import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Consumer;

import org.apache.cassandra.config.Config;
import org.apache.cassandra.config.Config.MemtableAllocationType;
import org.apache.cassandra.config.DatabaseDescriptor;
import org.apache.cassandra.cql3.statements.schema.CreateTableStatement;
import org.apache.cassandra.db.commitlog.CommitLogPosition;
import org.apache.cassandra.db.marshal.UTF8Type;
import org.apache.cassandra.db.memtable.EspalierMemtable;
import org.apache.cassandra.db.memtable.Memtable;
import org.apache.cassandra.db.memtable.StockMemtable;
import org.apache.cassandra.dht.ByteOrderedPartitioner;
import org.apache.cassandra.dht.IPartitioner;
import org.apache.cassandra.dht.LocalPartitioner;
import org.apache.cassandra.dht.Murmur3Partitioner;
import org.apache.cassandra.dht.RandomPartitioner;
import org.apache.cassandra.exceptions.ConfigurationException;
import org.apache.cassandra.schema.TableMetadata;
import org.apache.cassandra.schema.TableMetadataRef;

import espalier.proof.MemtableComparison;

/**
 * CREATE TABLE refuses our memtables where they would wait for ever, and tables that they cannot hold have Cassandra's.
 */
final class Refusals
{
    private static final String TABLE = "CREATE TABLE refused (k int PRIMARY KEY, v int) WITH memtable = 'espalier'";

    private Refusals()
    {
    }

    static void check()
    {
        for (MemtableAllocationType type : MemtableAllocationType.values())
            checkAllocation(type);
        checkPartitioner(Murmur3Partitioner.instance, true);
        checkPartitioner(RandomPartitioner.instance, false);
        checkPartitioner(ByteOrderedPartitioner.instance, false);
        checkPartitioner(new LocalPartitioner(UTF8Type.instance), false);
        Config config = DatabaseDescriptor.getRawConfig();
        checkSetting("transparent_data_encryption_options", isOn -> config.transparent_data_encryption_options.enabled = isOn);
        checkSetting("incremental_backups", isOn -> config.incremental_backups = isOn);
    }

    /** The first table of mode {@code storage} is refused, before an engine is opened. */
    private static void checkSetting(String name, Consumer<Boolean> setting)
    {
        setting.accept(true);
        String refusal = "";
        try
        {
            created(EspalierMemtable.factory(new HashMap<>(Map.of("mode", "storage", "directory", "/nowhere"))),
                    CreateTableStatement.parse(TABLE, "ks").build());
        }
        catch (ConfigurationException refused)
        {
            refusal = refused.getMessage();
        }
        finally
        {
            setting.accept(false);
        }
        if (!refusal.contains("not supported with " + name))
            throw new AssertionError("with " + name + ": '" + refusal + "'");
    }

    private static Memtable created(Memtable.Factory factory, TableMetadata table)
    {
        return factory.create(new AtomicReference<>(CommitLogPosition.NONE), TableMetadataRef.forOfflineTools(table),
                              new MemtableComparison.Owner());
    }

    private static void checkAllocation(MemtableAllocationType type)
    {
        boolean isOffHeap = type == MemtableAllocationType.offheap_buffers || type == MemtableAllocationType.offheap_objects;
        MemtableAllocationType configured = DatabaseDescriptor.getMemtableAllocationType();
        DatabaseDescriptor.getRawConfig().memtable_allocation_type = type;
        String refusal = "";
        try
        {
            if (isOffHeap)
                EspalierMemtable.factory(new HashMap<>(Map.of("mode", "memtable")));
            else
                CreateTableStatement.parse(TABLE, "ks").build();
        }
        catch (ConfigurationException refused)
        {
            refusal = refused.getMessage();
        }
        finally
        {
            DatabaseDescriptor.getRawConfig().memtable_allocation_type = configured;
        }
        if (isOffHeap != refusal.isEmpty() || !isOffHeap && !refusal.endsWith("offheap_objects (or offheap_buffers), not " + type))
            throw new AssertionError("memtable_allocation_type " + type + ": '" + refusal + "'");
    }

    private static void checkPartitioner(IPartitioner partitioner, boolean isCarried)
    {
        TableMetadata table = CreateTableStatement.parse(TABLE, "ks").partitioner(partitioner).build();
        Memtable.Factory factory = EspalierMemtable.factory(new HashMap<>(Map.of("mode", "memtable", "shards", "1")));
        Memtable memtable = created(factory, table);
        if (isCarried ? !(memtable instanceof NativeMemtable) : !(memtable instanceof StockMemtable))
            throw new AssertionError(partitioner.getClass() + ": " + memtable.getClass());
    }
}
