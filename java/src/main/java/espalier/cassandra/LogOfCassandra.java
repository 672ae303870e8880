package espalier.cassandra;

import java.util.HashSet;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import org.apache.cassandra.concurrent.ScheduledExecutors;
import org.apache.cassandra.db.ColumnFamilyStore;
import org.apache.cassandra.db.Keyspace;
import org.apache.cassandra.db.commitlog.CommitLog;
import org.apache.cassandra.db.commitlog.CommitLogPosition;
import org.apache.cassandra.db.memtable.Memtable;
import org.apache.cassandra.schema.KeyspaceMetadata;
import org.apache.cassandra.schema.Schema;
import org.apache.cassandra.schema.TableId;
import org.apache.cassandra.schema.TableMetadata;
import org.apache.cassandra.service.StorageService;

/**
 * Whether Cassandra's commit log may be skipped by writes to tables of mode {@code storage}.
 *
 * Cassandra asks the factory of the table that a write was made with. That is not always the factory of the memtable
 * that takes the write:
 *
 * <ul>
 * <li>While a table moves into the mode, writes with its new definition go to its old memtable until that is switched.
 * They have to be in Cassandra's log.
 * <li>After a table has moved out of the mode, prepared statements still write with its old definition, because
 * Cassandra does not prepare them again for such a change.
 * </ul>
 *
 * So no table skips the log before every table of the mode was seen to have memtables of ours only, and none does from
 * the moment at which a move begins. After a move out, or when a table could not be carried, none does until the next
 * start. What is in both logs is harmless: the engine has it too, and a replay changes nothing.
 */
final class LogOfCassandra
{
    private static final Logger logger = LoggerFactory.getLogger(LogOfCassandra.class);
    private static final long INTERVAL_MILLIS = 500;

    /** Read by every write. */
    private volatile boolean isSkipped;
    /** Whether it stays in use until the next start. Guarded by this object. */
    private boolean isNeeded;
    /** Tables that move into the mode. Guarded by this object. */
    private final Set<TableId> moving = new HashSet<>();

    boolean isSkipped()
    {
        return isSkipped;
    }

    void start()
    {
        ScheduledExecutors.optionalTasks.scheduleWithFixedDelay(this::settle, INTERVAL_MILLIS, INTERVAL_MILLIS, TimeUnit.MILLISECONDS);
    }

    /** From now on until the next start, writes go to Cassandra's log too. */
    synchronized void need(String reason)
    {
        isSkipped = false;
        if (isNeeded)
            return;
        isNeeded = true;
        logger.warn("Writes to tables of mode 'storage' go to Cassandra's commit log too until the next start: {}", reason);
    }

    /** Called before any write can see the new definition of a table. */
    synchronized void beforeAlter(TableMetadata before, TableMetadata after)
    {
        boolean was = isStorage(before), will = isStorage(after);
        if (was && !will)
            need(before + " moves out of the mode");
        if (!was && will)
        {
            isSkipped = false;
            moving.add(after.id);
        }
    }

    static boolean isStorage(TableMetadata table)
    {
        return table.params.memtable.factory() instanceof StorageFactory;
    }

    /** Lets the log be skipped once every memtable of every table of the mode is ours. */
    private void settle()
    {
        // Cassandra replays its log before that, and passes over tables whose writes it takes for durable.
        if (isSkipped || !StorageService.instance.isDaemonSetupCompleted())
            return;
        try
        {
            markClean(skipIfSettled(this::settled));
        }
        catch (RuntimeException failure)
        {
            logger.warn("Cassandra's commit log stays in use", failure);
        }
    }

    /**
     * Lets the log be skipped unless it is needed, or {@code tables} gives null. Returns the tables that skip it from
     * now on. All is done under the lock: a table that begins to move out meanwhile needs the log, and this must not
     * take that back.
     */
    synchronized Set<TableId> skipIfSettled(Supplier<Set<TableId>> tables)
    {
        Set<TableId> seen = isNeeded ? null : tables.get();
        if (seen == null)
            return Set.of();
        moving.clear();
        isSkipped = true;
        return seen;
    }

    /** The tables of the mode; null if one of them may have a memtable of another kind. */
    private Set<TableId> settled()
    {
        Set<TableId> tables = new HashSet<>();
        for (KeyspaceMetadata keyspace : Schema.instance.distributedKeyspaces())
            for (TableMetadata table : keyspace.tablesAndViews())
                if (isStorage(table))
                {
                    ColumnFamilyStore store = Schema.instance.getColumnFamilyStoreInstance(table.id);
                    if (store == null)
                        return null;
                    for (Memtable memtable : store.getTracker().getView().getAllMemtables())
                        if (!(memtable instanceof StoredMemtable))
                            return null;
                    tables.add(table.id);
                }
        return tables.containsAll(moving) ? tables : null;
    }

    /** Gives back the segments of Cassandra's log that only have writes which the engine has too. */
    void markCleanSoon(TableId table)
    {
        ScheduledExecutors.optionalTasks.execute(() -> markClean(Set.of(table)));
    }

    private static void markClean(Set<TableId> tables)
    {
        if (tables.isEmpty())
            return;
        // A write takes its place in the log first. Those that have one are in the engine behind the barrier.
        CommitLogPosition position = CommitLog.instance.getCurrentPosition();
        Keyspace.writeOrder.awaitNewBarrier();
        for (TableId table : tables)
            CommitLog.instance.discardCompletedSegments(table, CommitLogPosition.NONE, position);
    }
}
