package espalier.cassandra;

import java.util.Objects;
import java.util.concurrent.atomic.AtomicReference;

import com.google.common.base.Strings;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import org.apache.cassandra.config.DatabaseDescriptor;
import org.apache.cassandra.db.commitlog.CommitLog;
import org.apache.cassandra.db.commitlog.CommitLogPosition;
import org.apache.cassandra.db.memtable.Memtable;
import org.apache.cassandra.exceptions.ConfigurationException;
import org.apache.cassandra.metrics.TableMetrics;
import org.apache.cassandra.schema.KeyspaceMetadata;
import org.apache.cassandra.schema.Schema;
import org.apache.cassandra.schema.SchemaConstants;
import org.apache.cassandra.schema.TableMetadata;
import org.apache.cassandra.schema.TableMetadataRef;

/** Mode {@code storage}: the rows of tables are in the engine, which has its own log, flushes and compaction. */
final class StorageFactory implements Memtable.Factory, StorageUser
{
    private static final Logger logger = LoggerFactory.getLogger(StorageFactory.class);

    private final StorageSettings settings;
    /** For the tables that the engine does not carry, and for the names of metrics. */
    private final Memtable.Factory stock;
    /** Set by the first table. */
    private volatile StorageEngine engine;

    StorageFactory(StorageSettings settings, Memtable.Factory stock)
    {
        this.settings = settings;
        this.stock = stock;
    }

    @Override
    public Memtable create(AtomicReference<CommitLogPosition> lowerBound, TableMetadataRef reference, Memtable.Owner owner)
    {
        if (this.engine == null)
            refuseSettings();
        StorageEngine engine = StorageEngine.of(settings);
        this.engine = engine;
        TableMetadata table = reference.get();
        StoredMemtable last = engine.memtable(table.id);
        // What the engine has of a table is shown, whatever the table has become.
        String reason = last == null && engine.keeps(table.id) ? null : whyNotCarried(table);
        if (last != null && last.isSwitchedOut())
            reason = "its move out of the mode has not ended; move it in again later";
        if (reason == null)
        {
            try
            {
                // A table leaves a memtable of ours for another one of ours when it is truncated or dropped.
                MemtableHandle handle = engine.open(table, last == null ? StorageEngine.EXISTING_OR_FIRST : StorageEngine.NEXT);
                return new StoredMemtable(lowerBound, reference, owner, handle, engine, false);
            }
            catch (IllegalStateException refused)
            {
                if (last != null || engine.keeps(table.id))
                    throw refused;
                reason = refused.getMessage();
            }
        }
        logger.error("{} is not kept by mode 'storage' and has Cassandra's own memtable: {}", reference, reason);
        // Cassandra writes to the table of an index with the writes of its base table, and never to the log.
        if (!table.isIndex())
            engine.log.need(reference + " has Cassandra's own memtable: " + reason);
        return stock.create(lowerBound, reference, owner);
    }

    /**
     * Throws a {@link ConfigurationException} if Cassandra would do with its own files what it cannot do with the
     * engine's.
     */
    static void refuseSettings()
    {
        String setting = unsupportedSetting();
        if (setting != null)
            throw new ConfigurationException("EspalierMemtable: mode 'storage' is not supported with " + setting);
    }

    private static String unsupportedSetting()
    {
        CommitLog log = CommitLog.instance;
        String archive = !Strings.isNullOrEmpty(log.getArchiveCommand()) ? "archive_command"
                       : !Strings.isNullOrEmpty(log.getRestoreCommand()) ? "restore_command"
                       : log.getRestorePointInTime() != Long.MAX_VALUE ? "restore_point_in_time" : null;
        if (archive != null)
            return archive + " in commitlog_archiving.properties: Cassandra's commit log does not have the rows";
        if (DatabaseDescriptor.getEncryptionContext().isEnabled())
            return "transparent_data_encryption_options: the engine's files are not encrypted";
        if (DatabaseDescriptor.isIncrementalBackupsEnabled())
            return "incremental_backups: Cassandra has no SSTables of the rows";
        return null;
    }

    /** Why a table gets Cassandra's own memtable; null if it does not. */
    private static String whyNotCarried(TableMetadata table)
    {
        if (SchemaConstants.isSystemKeyspace(table.keyspace))
            return "it is a table of Cassandra's own";
        if (table.isView())
            return "it is a materialized view";
        if (table.params.cdc)
            return "it has CDC";
        if (!table.indexes.isEmpty())
            return "it has secondary indexes";
        if (hasViews(table))
            return "it has materialized views";
        return EspalierFactory.whyNotCarried(table);
    }

    private static boolean hasViews(TableMetadata table)
    {
        KeyspaceMetadata keyspace = Schema.instance.getKeyspaceMetadata(table.keyspace);
        return keyspace != null && keyspace.views.forTable(table.id).iterator().hasNext();
    }

    @Override
    public boolean writesShouldSkipCommitLog()
    {
        StorageEngine engine = this.engine;
        return engine != null && engine.log.isSkipped();
    }

    /**
     * Whether Cassandra's log has nothing that only a memtable has. Otherwise a replay would pass over the table, and
     * segments would be given back, while the memtable from before a move into the mode still needs them.
     */
    @Override
    public boolean writesAreDurable()
    {
        return writesShouldSkipCommitLog();
    }

    @Override
    public boolean streamToMemtable()
    {
        return true;
    }

    @Override
    public boolean streamFromMemtable()
    {
        return true;
    }

    @Override
    public TableMetrics.ReleasableMetric createMemtableMetrics(TableMetadataRef table)
    {
        return stock.createMemtableMetrics(table);
    }

    /** All configurations of the mode are one: a table does not move between them. */
    @Override
    public boolean equals(Object other)
    {
        return other instanceof StorageFactory && settings.equals(((StorageFactory) other).settings);
    }

    @Override
    public int hashCode()
    {
        return Objects.hash(StorageFactory.class, settings);
    }
}
