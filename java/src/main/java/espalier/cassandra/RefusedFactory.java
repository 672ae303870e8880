package espalier.cassandra;

import java.util.concurrent.atomic.AtomicReference;

import org.apache.cassandra.db.commitlog.CommitLogPosition;
import org.apache.cassandra.db.memtable.Memtable;
import org.apache.cassandra.exceptions.ConfigurationException;
import org.apache.cassandra.schema.TableMetadataRef;

/**
 * A configuration that cannot be used, of tables that may have rows in the engine. A node with such tables does not
 * start.
 */
final class RefusedFactory implements Memtable.Factory, StorageUser
{
    private final String reason;

    RefusedFactory(String reason)
    {
        this.reason = reason;
    }

    @Override
    public Memtable create(AtomicReference<CommitLogPosition> lowerBound, TableMetadataRef table, Memtable.Owner owner)
    {
        throw new ConfigurationException(table + " cannot be opened with memtable '" + table.get().params.memtable.configurationKey() + "': "
                                         + reason);
    }
}
