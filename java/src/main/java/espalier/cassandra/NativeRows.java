package espalier.cassandra;

import org.apache.cassandra.db.DecoratedKey;
import org.apache.cassandra.db.DeletionTime;
import org.apache.cassandra.db.Slices;
import org.apache.cassandra.db.filter.ColumnFilter;
import org.apache.cassandra.db.rows.AbstractUnfilteredRowIterator;
import org.apache.cassandra.db.rows.LazilyInitializedUnfilteredRowIterator;
import org.apache.cassandra.db.rows.Row;
import org.apache.cassandra.db.rows.Unfiltered;
import org.apache.cassandra.db.rows.UnfilteredRowIterator;
import org.apache.cassandra.db.rows.UnfilteredRowIterators;

/** The rows and markers of a partition, of which no more is in memory than a page. */
final class NativeRows extends AbstractUnfilteredRowIterator
{
    private final NativeRead read;
    /** Whether this is the only partition of the read, and closing it closes the read. */
    private final boolean isOnly;
    private boolean isAtEnd;
    private boolean isClosed;
    private boolean isPassed;

    NativeRows(NativeRead read, DecoratedKey key, DeletionTime deletion, Row staticRow, boolean isOnly)
    {
        super(read.version.metadata, key, deletion, read.columns.fetchedColumns(), staticRow, read.reversed, read.stats);
        this.read = read;
        this.isOnly = isOnly;
    }

    /**
     * All rows of a partition; null if there is no such partition. A compaction asks only for that, and does not close
     * what it gets. So nothing is read before it is asked for.
     */
    static UnfilteredRowIterator readLazily(NativeSource memtable, DecoratedKey key)
    {
        TableVersion version = memtable.version();
        if (memtable.handle().countKeys(version, Requests.partition(key, Slices.ALL, false))[0] == 0)
            return null;
        return new LazilyInitializedUnfilteredRowIterator(key)
        {
            @Override
            protected UnfilteredRowIterator initializeIterator()
            {
                return new NativePartition(memtable, key).unfilteredIterator();
            }
        };
    }

    /** The rows within slices; null if there is no such partition. The caller closes them. */
    static UnfilteredRowIterator read(NativeSource memtable, DecoratedKey key, Slices slices, ColumnFilter columns, boolean reversed)
    {
        NativeRead read = new NativeRead(memtable, columns, reversed, false);
        boolean isOpen = false;
        try
        {
            if (!read.begin(Requests.partition(key, slices, reversed)))
                return null;
            NativeRows rows = read.partition(key, true);
            if (slices.isEmpty())
                return UnfilteredRowIterators.noRowsIterator(rows.metadata(), key, rows.staticRow(), rows.partitionLevelDeletion(), reversed);
            isOpen = true;
            return rows;
        }
        finally
        {
            if (!isOpen)
                read.close();
        }
    }

    @Override
    protected Unfiltered computeNext()
    {
        if (isClosed)
            return endOfData();
        if (isPassed)
            throw new IllegalStateException("EspalierMemtable: the read has gone on to a partition after " + partitionKey());
        Unfiltered next = read.nextUnfiltered();
        isAtEnd = next == null;
        return isAtEnd ? endOfData() : next;
    }

    /** The read goes on to the next partition. */
    void pass()
    {
        if (!isAtEnd)
            read.passPartition();
        isPassed = true;
    }

    @Override
    public void close()
    {
        isClosed = true;
        if (isOnly)
            read.close();
    }
}
