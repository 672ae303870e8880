package espalier.cassandra;

import java.util.ArrayList;
import java.util.Collection;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Set;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import org.apache.cassandra.concurrent.ScheduledExecutors;
import org.apache.cassandra.db.ColumnFamilyStore;
import org.apache.cassandra.db.DecoratedKey;
import org.apache.cassandra.db.Directories;
import org.apache.cassandra.db.compaction.OperationType;
import org.apache.cassandra.db.lifecycle.LifecycleTransaction;
import org.apache.cassandra.dht.AbstractBounds;
import org.apache.cassandra.dht.Token;
import org.apache.cassandra.io.sstable.Descriptor;
import org.apache.cassandra.io.sstable.SSTable;
import org.apache.cassandra.io.sstable.format.SSTableFormat.Components;
import org.apache.cassandra.io.sstable.format.SSTableReader;

import static java.util.concurrent.TimeUnit.MILLISECONDS;

/**
 * The SSTables that Cassandra writes from a memtable of mode {@code storage} to stream its rows, or to validate them
 * for a repair.
 *
 * Cassandra neither tracks nor deletes them ({@code ColumnFamilyStore.writeAndAddMemtableRanges}), so the next start
 * would open them as SSTables of the table: rows that were truncated since, or deleted by tombstones that are purged
 * since, would come back. Here, each one is a new file of a transaction of Cassandra's that is never committed. Its
 * files are deleted when the last reader of it is closed. If the process ends before, the next start deletes them
 * before it opens the table.
 *
 * The thread that writes an SSTable asks the memtable for its partitions once the SSTable's files exist. An SSTable is
 * one of these if its files did not exist when that thread asked for the flush set, it is in no transaction, and it is
 * not complete.
 */
final class TemporarySSTables
{
    private static final Logger logger = LoggerFactory.getLogger(TemporarySSTables.class);
    private static final long INTERVAL_MILLIS = 1000;
    private static final String WRITING_METHOD = "writeAndAddMemtableRanges";

    /** The threads that may be writing. Guarded by the class. */
    private static final Set<Thread> writing = new HashSet<>();
    /** Those that are being written, or whose readers are still being made. Guarded by the class. */
    private static final Set<Unfinished> unfinished = new HashSet<>();
    /** Those that could not be opened. Without a reference, their transactions would end. Guarded by the class. */
    private static final Set<Unfinished> failed = new HashSet<>();
    private static boolean isScheduled;

    private final ColumnFamilyStore store;
    private final Set<Descriptor> older;

    /** Called by a thread that is about to write SSTables of a table. */
    TemporarySSTables(ColumnFamilyStore store)
    {
        this.store = store;
        this.older = listed();
        synchronized (TemporarySSTables.class)
        {
            writing.add(Thread.currentThread());
            schedule();
        }
    }

    /** The partitions that are written. The Unified Compaction Strategy begins more SSTables while they are. */
    <P> Iterator<P> tracked(Iterator<P> partitions)
    {
        track();
        return new Iterator<P>()
        {
            @Override
            public boolean hasNext()
            {
                boolean hasNext = partitions.hasNext();
                if (!hasNext)
                    track();
                return hasNext;
            }

            @Override
            public P next()
            {
                return partitions.next();
            }
        };
    }

    private void track()
    {
        synchronized (TemporarySSTables.class)
        {
            Set<Descriptor> found = incomplete();
            // A list of a directory may have a new file, and not the log of its transaction, which is older.
            if (!found.isEmpty())
                found.retainAll(incomplete());
            for (Descriptor descriptor : found)
                unfinished.add(new Unfinished(store, descriptor));
        }
    }

    private Set<Descriptor> incomplete()
    {
        Set<Descriptor> found = listed();
        found.removeAll(older);
        found.removeIf(descriptor -> descriptor.fileFor(Components.STATS).exists());
        return found;
    }

    /** The SSTables in the table's directories that are not new in a transaction. */
    private Set<Descriptor> listed()
    {
        Directories.SSTableLister lister = store.getDirectories().sstableLister(Directories.OnTxnErr.IGNORE);
        return new HashSet<>(lister.skipTemporary(true).list().keySet());
    }

    private static synchronized void schedule()
    {
        if (isScheduled || (writing.isEmpty() && unfinished.isEmpty()))
            return;
        isScheduled = true;
        ScheduledExecutors.optionalTasks.schedule(TemporarySSTables::finish, INTERVAL_MILLIS, MILLISECONDS);
    }

    private static void finish()
    {
        List<Unfinished> finished = new ArrayList<>();
        synchronized (TemporarySSTables.class)
        {
            isScheduled = false;
            writing.removeIf(thread -> !isWriting(thread));
            for (Unfinished sstable : unfinished)
                if (sstable.isLeftBy(writing))
                    finished.add(sstable);
            unfinished.removeAll(finished);
            schedule();
        }
        finished.forEach(Unfinished::finish);
    }

    /** Until the method returns, Cassandra has not opened the SSTables that it writes. */
    static boolean isWriting(Thread thread)
    {
        for (StackTraceElement frame : thread.getStackTrace())
            if (frame.getMethodName().equals(WRITING_METHOD))
                return true;
        return false;
    }

    /** An SSTable that is being written, with its transaction. */
    private static final class Unfinished extends SSTable
    {
        private final ColumnFamilyStore store;
        private final LifecycleTransaction transaction = LifecycleTransaction.offline(OperationType.STREAM);
        /** One of them writes it. */
        private final Set<Thread> writers = new HashSet<>(writing);

        private Unfinished(ColumnFamilyStore store, Descriptor descriptor)
        {
            super(Builder.of(descriptor, store), store);
            this.store = store;
            transaction.trackNew(this);
        }

        private boolean isLeftBy(Collection<Thread> stillWriting)
        {
            writers.retainAll(stillWriting);
            return writers.isEmpty();
        }

        /** Has the files deleted once Cassandra's readers are closed. All readers of an SSTable share the mark. */
        private void finish()
        {
            // Without these it was not completed, so nobody reads it.
            if (!descriptor.fileFor(Components.STATS).exists())
            {
                transaction.close();
                return;
            }
            try
            {
                SSTableReader reader = SSTableReader.openNoValidation(store, descriptor, metadata);
                reader.markObsolete(transaction::close);
                reader.selfRef().release();
            }
            catch (RuntimeException failure)
            {
                logger.warn("{}, which was written for a stream or a repair, is deleted at the next start", descriptor,
                            failure);
                synchronized (TemporarySSTables.class)
                {
                    failed.add(this);
                }
            }
        }

        @Override
        public DecoratedKey getFirst()
        {
            throw new UnsupportedOperationException();
        }

        @Override
        public DecoratedKey getLast()
        {
            throw new UnsupportedOperationException();
        }

        @Override
        public AbstractBounds<Token> getBounds()
        {
            throw new UnsupportedOperationException();
        }

        private static final class Builder extends SSTable.Builder<Unfinished, Builder>
        {
            private Builder(Descriptor descriptor)
            {
                super(descriptor);
            }

            private static Builder of(Descriptor descriptor, ColumnFamilyStore store)
            {
                Builder builder = new Builder(descriptor).setTableMetadataRef(store.metadata);
                return builder.setComponents(Set.of(Components.DATA));
            }
        }
    }
}
