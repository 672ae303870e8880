package espalier.cassandra;

import java.util.Collection;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import java.util.function.Supplier;
import java.util.stream.Collectors;

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
 * start.
 *
 * A start replays what is in both logs, which would bring back a row whose tombstone the engine has purged. So each
 * memtable knows the least timestamp of its writes that may be in Cassandra's log, and nothing newer is purged. The
 * files with such writes are given back once the log is skipped, and every hour if some of them come later: by
 * prepared statements from before a move into the mode, or because the log stays in use.
 */
final class LogOfCassandra
{
    private static final Logger logger = LoggerFactory.getLogger(LogOfCassandra.class);
    private static final long INTERVAL_MILLIS = 500;
    /** Each attempt to empty the log flushes Cassandra's tables and begins a file. */
    private static final long EMPTIED_NANOS = TimeUnit.HOURS.toNanos(1);

    private final Supplier<Collection<StoredMemtable>> memtables;
    /** Read by every write. */
    private volatile boolean isSkipped;
    /** Whether writes may go to the log: it is in use, or some that found it so have not ended. Read by every write. */
    private volatile boolean hasWrites = true;
    /** Whether it stays in use until the next start. Guarded by this object. */
    private boolean isNeeded;
    /** Tables that move into the mode. Guarded by this object. */
    private final Set<TableId> moving = new HashSet<>();
    /** When it was last tried to empty the log. Only {@link #settle} uses it. */
    private long lastAttemptNanos = System.nanoTime();

    /** The log for the newest memtables of the engine's tables. */
    LogOfCassandra(Supplier<Collection<StoredMemtable>> memtables)
    {
        this.memtables = memtables;
    }

    boolean isSkipped()
    {
        return isSkipped;
    }

    /** Whether a write that is under way may be in the log. */
    boolean hasWrites()
    {
        return hasWrites;
    }

    void start()
    {
        ScheduledExecutors.optionalTasks.scheduleWithFixedDelay(this::settle, INTERVAL_MILLIS, INTERVAL_MILLIS, TimeUnit.MILLISECONDS);
    }

    /** From now on until the next start, writes go to Cassandra's log too. */
    synchronized void need(String reason)
    {
        use();
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
            use();
            moving.add(after.id);
        }
    }

    /** From now on all writes go to the log too. */
    private void use()
    {
        hasWrites = true;
        isSkipped = false;
    }

    /** A table that is dropped does not arrive in the mode. */
    synchronized void dropped(TableId table)
    {
        moving.remove(table);
    }

    static boolean isStorage(TableMetadata table)
    {
        return table.params.memtable.factory() instanceof StorageFactory;
    }

    /** Lets the log be skipped once every memtable of every table of the mode is ours. Empties it when that is due. */
    private void settle()
    {
        // Cassandra replays its log before that, and skips tables whose writes it considers durable.
        if (!StorageService.instance.isDaemonSetupCompleted())
            return;
        try
        {
            boolean isSkippedNow = !isSkipped && skipIfSettled(this::isSettled);
            if (isSkippedNow || isEmptyingDue())
                empty();
        }
        catch (RuntimeException failure)
        {
            logger.warn("Cassandra's commit log keeps writes to tables of mode 'storage'", failure);
        }
    }

    private boolean isEmptyingDue()
    {
        return System.nanoTime() - lastAttemptNanos >= EMPTIED_NANOS && memtables.get().stream().anyMatch(StoredMemtable::hasLoggedWrites);
    }

    /**
     * Lets the log be skipped if it is not needed and all memtables are ours. Returns whether it is skipped from now
     * on. All is done under the lock: a table that begins to move out meanwhile needs the log, and this must not take
     * that back.
     */
    synchronized boolean skipIfSettled(BooleanSupplier isSettled)
    {
        if (isNeeded || !isSettled.getAsBoolean())
            return false;
        moving.clear();
        isSkipped = true;
        return true;
    }

    /**
     * Gives back the files of the log that have writes to tables of the mode. Cassandra flushes its own tables for
     * that, as it does for DROP TABLE. If one cannot be flushed, its files stay, and this is repeated later.
     */
    private void empty()
    {
        lastAttemptNanos = System.nanoTime();
        // A write that found the log in use may not have its place there yet.
        Keyspace.writeOrder.awaitNewBarrier();
        afterLastWrite();
        List<StoredMemtable> emptied = List.copyOf(memtables.get());
        emptied.forEach(StoredMemtable::beforeLogIsEmptied);
        Set<String> files = Set.copyOf(CommitLog.instance.getActiveSegmentNames());
        CommitLog.instance.forceRecycleAllSegments();
        markClean(emptied.stream().map(memtable -> memtable.metadata().id).collect(Collectors.toList()), CommitLog.instance.getCurrentPosition());
        if (!Collections.disjoint(files, CommitLog.instance.getActiveSegmentNames()))
            return;
        emptied.forEach(StoredMemtable::afterLogIsEmptied);
    }

    /** Called when all writes of the time before the log was skipped have ended; it may be in use again. */
    private synchronized void afterLastWrite()
    {
        if (isSkipped)
            hasWrites = false;
    }

    /** Whether all memtables of all tables of the mode are ours, and those that move into it are among them. */
    private boolean isSettled()
    {
        Set<TableId> tables = new HashSet<>();
        for (KeyspaceMetadata keyspace : Schema.instance.distributedKeyspaces())
            for (TableMetadata table : keyspace.tablesAndViews())
                if (isStorage(table))
                {
                    if (!hasOurMemtablesOnly(table.id))
                        return false;
                    tables.add(table.id);
                }
        return tables.containsAll(moving);
    }

    private static boolean hasOurMemtablesOnly(TableId table)
    {
        ColumnFamilyStore store = Schema.instance.getColumnFamilyStoreInstance(table);
        if (store == null)
            return false;
        for (Memtable memtable : store.getTracker().getView().getAllMemtables())
            if (!(memtable instanceof StoredMemtable))
                return false;
        return true;
    }

    /** Gives back the segments of Cassandra's log that only have writes from before now which the engine has too. */
    void markCleanSoon(TableId table)
    {
        CommitLogPosition position = CommitLog.instance.getCurrentPosition();
        ScheduledExecutors.optionalTasks.execute(() -> markClean(List.of(table), position));
    }

    private static void markClean(Collection<TableId> tables, CommitLogPosition position)
    {
        // A write takes its place in the log first. Those that have one are in the engine behind the barrier, unless
        // the table had another memtable, which has to be flushed.
        Keyspace.writeOrder.awaitNewBarrier();
        for (TableId table : tables)
            if (hasOurMemtablesOnly(table))
                CommitLog.instance.discardCompletedSegments(table, CommitLogPosition.NONE, position);
    }
}
