package espalier.cassandra;

import java.util.Map;
import java.util.Objects;
import java.util.concurrent.atomic.AtomicReference;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import org.apache.cassandra.config.Config.MemtableAllocationType;
import org.apache.cassandra.config.DatabaseDescriptor;
import org.apache.cassandra.db.commitlog.CommitLogPosition;
import org.apache.cassandra.db.memtable.Memtable;
import org.apache.cassandra.db.memtable.StockMemtable;
import org.apache.cassandra.dht.Murmur3Partitioner;
import org.apache.cassandra.exceptions.ConfigurationException;
import org.apache.cassandra.metrics.TableMetrics;
import org.apache.cassandra.schema.TableMetadata;
import org.apache.cassandra.schema.TableMetadataRef;
import org.apache.cassandra.service.StorageService;
import org.apache.cassandra.utils.FBUtilities;

/**
 * Makes memtables for the tables whose {@code memtable} option names a configuration of EspalierMemtable.
 *
 * Parameters: {@code mode} ({@code memtable} or {@code storage}), {@code shards} (by default the number of processors),
 * and those of {@link StorageSettings}. Mode {@code memtable} with a {@code directory} takes over what mode
 * {@code storage} kept there of its tables.
 */
public final class EspalierFactory implements Memtable.Factory, StorageUser
{
    private static final Logger logger = LoggerFactory.getLogger(EspalierFactory.class);
    private static final String MODE = "mode";
    private static final String MEMTABLE = "memtable";
    private static final String SHARDS = "shards";
    private static final int SHARDS_MAX = 1024;

    private final int shards;
    /** For the tables that the native memtable does not carry, and for the names of metrics. */
    private final Memtable.Factory stock;

    /** Where mode {@code storage} kept tables that left it; null if nowhere. */
    private final StorageSettings settings;

    private EspalierFactory(int shards, Memtable.Factory stock, StorageSettings settings)
    {
        this.shards = shards;
        this.stock = stock;
        this.settings = settings;
    }

    /**
     * Throws a {@link ConfigurationException} for what is not supported, which refuses the statement that names the
     * configuration.
     *
     * At a start, Cassandra would log that and give the tables its default memtable, and what the engine has of them
     * would not be read. So the factory then refuses to make memtables, and the node does not start. Tables of mode
     * {@code memtable} lose nothing, and start.
     */
    public static Memtable.Factory of(Map<String, String> options)
    {
        String mode = options.get(MODE);
        boolean mayHaveRows = options.containsKey(StorageSettings.DIRECTORY) || (mode != null && !mode.equals(MEMTABLE));
        try
        {
            return made(options);
        }
        catch (ConfigurationException refused)
        {
            if (!mayHaveRows || !DatabaseDescriptor.isDaemonInitialized() || StorageService.instance.isDaemonSetupCompleted())
                throw refused;
            options.clear();
            return new RefusedFactory(refused.getMessage());
        }
    }

    private static Memtable.Factory made(Map<String, String> options)
    {
        String mode = options.remove(MODE);
        boolean isStorage = "storage".equals(mode);
        if (mode != null && !isStorage && !mode.equals(MEMTABLE))
            throw new ConfigurationException("EspalierMemtable: unknown mode '" + mode + "'; there are 'memtable' and 'storage'");
        StorageSettings settings = StorageSettings.of(options);
        if (isStorage && settings == null)
            throw new ConfigurationException("EspalierMemtable: mode 'storage' needs a directory");
        // Offline tools read schemas too, and have no memtables.
        if (!isStorage && DatabaseDescriptor.isDaemonInitialized())
            requireMemoryOutsideOfTheHeap(DatabaseDescriptor.getMemtableAllocationType());
        int shards = shards(options.remove(SHARDS));
        if (!options.isEmpty())
            throw new ConfigurationException("EspalierMemtable: unknown parameters " + options.keySet());
        if (settings != null)
            requireEngine(settings, isStorage);
        Memtable.Factory stock = StockMemtable.factory(shards);
        return isStorage ? new StorageFactory(settings, stock) : new EspalierFactory(shards, stock, settings);
    }

    /**
     * A statement is refused before it changes the schema, where the engine of its table cannot be opened, or has other
     * settings.
     */
    private static void requireEngine(StorageSettings settings, boolean isStorage)
    {
        if (!DatabaseDescriptor.isDaemonInitialized() || !StorageService.instance.isDaemonSetupCompleted())
            return;
        if (isStorage)
            StorageFactory.refuseSettings();
        try
        {
            StorageEngine.of(settings);
        }
        catch (IllegalStateException refused)
        {
            throw new ConfigurationException(refused.getMessage(), refused);
        }
    }

    private static int shards(String option)
    {
        if (option == null)
            return FBUtilities.getAvailableProcessors();
        try
        {
            int shards = Integer.parseInt(option);
            if (shards >= 1 && shards <= SHARDS_MAX)
                return shards;
        }
        catch (NumberFormatException notANumber)
        {
            logger.debug("shards: {}", option);
        }
        throw new ConfigurationException("EspalierMemtable: shards must be a number from 1 to " + SHARDS_MAX + ", not '" + option + "'");
    }

    /** With the other types the limit of memory outside of the heap is 0, and every write would wait for ever. */
    private static void requireMemoryOutsideOfTheHeap(MemtableAllocationType type)
    {
        if (type != MemtableAllocationType.offheap_buffers && type != MemtableAllocationType.offheap_objects)
            throw new ConfigurationException("EspalierMemtable needs memtable_allocation_type: offheap_objects (or offheap_buffers), not "
                                             + type);
    }

    @Override
    public Memtable create(AtomicReference<CommitLogPosition> lowerBound, TableMetadataRef table, Memtable.Owner owner)
    {
        Memtable leaving = settings == null ? null : leaving(lowerBound, table, owner);
        if (leaving != null)
            return leaving;
        String reason = whyNotCarried(table.get());
        if (reason == null)
        {
            NativeLibrary.ensureLoaded();
            try
            {
                MemtableHandle handle = MemtableHandle.open(table.get(), owner.localRangeSplits(shards));
                return new NativeMemtable(lowerBound, table, owner, handle);
            }
            catch (IllegalStateException refused)
            {
                reason = refused.getMessage();
            }
        }
        logger.info("{} has Cassandra's own trie memtable: {}", table, reason);
        return stock.create(lowerBound, table, owner);
    }

    /**
     * The memtable of a table that left mode {@code storage} in an earlier process and was not flushed; null if there
     * is none.
     */
    private Memtable leaving(AtomicReference<CommitLogPosition> lowerBound, TableMetadataRef table, Memtable.Owner owner)
    {
        StorageEngine engine = StorageEngine.of(settings);
        if (engine.memtable(table.get().id) != null)
            return null;
        MemtableHandle handle = engine.open(table.get(), StorageEngine.EXISTING);
        return handle == null ? null : new StoredMemtable(lowerBound, table, owner, handle, engine, true);
    }

    /** Why a table gets Cassandra's own memtable; null if it does not. */
    static String whyNotCarried(TableMetadata table)
    {
        if (!(table.partitioner instanceof Murmur3Partitioner))
            return "its partitioner is " + table.partitioner.getClass().getSimpleName();
        if (table.isCompactTable())
            return "it has COMPACT STORAGE";
        if (CarriedColumns.of(table).size() != table.regularAndStaticColumns().size())
            return "it has a column of a custom type";
        return null;
    }

    @Override
    public TableMetrics.ReleasableMetric createMemtableMetrics(TableMetadataRef table)
    {
        return ShardMetrics.released(table.get(), stock.createMemtableMetrics(table));
    }

    @Override
    public boolean equals(Object other)
    {
        return other instanceof EspalierFactory && shards == ((EspalierFactory) other).shards
               && Objects.equals(settings, ((EspalierFactory) other).settings);
    }

    @Override
    public int hashCode()
    {
        return Objects.hash(EspalierFactory.class, shards, settings);
    }
}
