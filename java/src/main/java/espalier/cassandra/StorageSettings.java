package espalier.cassandra;

import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Objects;

import org.apache.cassandra.config.DataStorageSpec;
import org.apache.cassandra.config.DatabaseDescriptor;
import org.apache.cassandra.config.DurationSpec;
import org.apache.cassandra.exceptions.ConfigurationException;

/**
 * The parameters of the engine: {@code directory}, {@code commitlog_sync} with its time, {@code memtable_space},
 * {@code file_cache_size}.
 */
final class StorageSettings
{
    static final String DIRECTORY = "directory";
    private static final String SYNC = "commitlog_sync";
    private static final String PERIOD = "commitlog_sync_period";
    private static final String WINDOW = "commitlog_sync_group_window";
    private static final String SPACE = "memtable_space";
    private static final String CACHE = "file_cache_size";

    final Path directory;
    private final String sync;
    private final long syncMillis;
    private final long memtableBytes;
    private final long cacheBytes;

    private StorageSettings(Path directory, String sync, long syncMillis, long memtableBytes, long cacheBytes)
    {
        this.directory = directory;
        this.sync = sync;
        this.syncMillis = syncMillis;
        this.memtableBytes = memtableBytes;
        this.cacheBytes = cacheBytes;
    }

    /** Removes the parameters of the engine. Null if there is no {@code directory}. */
    static StorageSettings of(Map<String, String> options)
    {
        String directory = options.remove(DIRECTORY);
        if (directory == null)
            return null;
        String sync = Objects.requireNonNullElse(options.remove(SYNC), "batch");
        try
        {
            Path path = Path.of(directory);
            if (!path.isAbsolute())
                throw new ConfigurationException("EspalierMemtable: directory must be an absolute path, not '" + directory + "'");
            refuseDirectoriesOfCassandra(path);
            long memtableBytes = bytes(options.remove(SPACE), "512MiB");
            // The engine has a cache of its own in place of Cassandra's, which is as large by default.
            long cacheBytes = bytes(options.remove(CACHE), DatabaseDescriptor.getFileCacheSizeInMiB() + "MiB");
            return new StorageSettings(path, sync, syncMillis(sync, options), memtableBytes, cacheBytes);
        }
        catch (IllegalArgumentException invalid)
        {
            throw new ConfigurationException("EspalierMemtable: " + invalid.getMessage());
        }
    }

    /** The engine names its directories and files as Cassandra does, and would take Cassandra's for its own. */
    private static void refuseDirectoriesOfCassandra(Path directory)
    {
        // Offline tools open no engine.
        if (!DatabaseDescriptor.isDaemonInitialized())
            return;
        List<String> ofCassandra = new ArrayList<>(Arrays.asList(DatabaseDescriptor.getAllDataFileLocations()));
        ofCassandra.add(DatabaseDescriptor.getCommitLogLocation());
        ofCassandra.add(DatabaseDescriptor.getSavedCachesLocation());
        ofCassandra.add(DatabaseDescriptor.getHintsDirectory().path());
        Path ours = directory.normalize();
        for (String name : ofCassandra)
        {
            Path theirs = Path.of(name).toAbsolutePath().normalize();
            if (theirs.startsWith(ours) || ours.startsWith(theirs))
                throw new ConfigurationException("EspalierMemtable: directory must not contain a directory of Cassandra's or lie in one: '" + directory
                                                 + "' and '" + name + "'");
        }
    }

    private static long bytes(String size, String otherwise)
    {
        return new DataStorageSpec.LongBytesBound(Objects.requireNonNullElse(size, otherwise)).toBytes();
    }

    private static long syncMillis(String sync, Map<String, String> options)
    {
        switch (sync)
        {
            case "batch":
                return 0;
            case "periodic":
                return new DurationSpec.LongMillisecondsBound(Objects.requireNonNullElse(options.remove(PERIOD), "10000ms")).toMilliseconds();
            case "group":
                return new DurationSpec.LongMillisecondsBound(Objects.requireNonNullElse(options.remove(WINDOW), "1000ms")).toMilliseconds();
            default:
                throw new ConfigurationException("EspalierMemtable: commitlog_sync must be batch, periodic or group, not '" + sync + "'");
        }
    }

    /** In the form of {@code Store::open} in {@code crates/jni/src/store.rs}. */
    Buffers.Output request()
    {
        return Requests.engine(directory.toString(), sync, syncMillis, memtableBytes, cacheBytes);
    }

    @Override
    public boolean equals(Object other)
    {
        return other instanceof StorageSettings && toString().equals(other.toString());
    }

    @Override
    public int hashCode()
    {
        return toString().hashCode();
    }

    @Override
    public String toString()
    {
        return "directory " + directory + ", commitlog_sync " + sync + (syncMillis == 0 ? "" : " " + syncMillis + " ms") + ", memtable_space "
               + memtableBytes + ", file_cache_size " + cacheBytes;
    }
}
