package espalier.cassandra;

import java.util.NavigableSet;

import org.apache.cassandra.db.Clustering;
import org.apache.cassandra.db.DecoratedKey;
import org.apache.cassandra.db.DeletionTime;
import org.apache.cassandra.db.EmptyIterators;
import org.apache.cassandra.db.RegularAndStaticColumns;
import org.apache.cassandra.db.Slice;
import org.apache.cassandra.db.Slices;
import org.apache.cassandra.db.filter.ColumnFilter;
import org.apache.cassandra.db.partitions.Partition;
import org.apache.cassandra.db.rows.EncodingStats;
import org.apache.cassandra.db.rows.Row;
import org.apache.cassandra.db.rows.Unfiltered;
import org.apache.cassandra.db.rows.UnfilteredRowIterator;
import org.apache.cassandra.schema.TableMetadata;

/**
 * A partition of a memtable. It holds its key; everything else is read when it is asked for, or by a read of many
 * partitions.
 */
final class NativePartition implements Partition
{
    private final NativeSource memtable;
    private final DecoratedKey key;
    /**
     * All rows, in a read of many partitions that is in this one; null without such a read, or when they were taken.
     */
    private UnfilteredRowIterator begun;

    NativePartition(NativeSource memtable, DecoratedKey key)
    {
        this.memtable = memtable;
        this.key = key;
    }

    /** The partition that a read is in. All its rows are asked for before the read goes on, or never. */
    NativePartition(NativeSource memtable, UnfilteredRowIterator begun)
    {
        this(memtable, begun.partitionKey());
        this.begun = begun;
    }

    @Override
    public TableMetadata metadata()
    {
        return memtable.metadata();
    }

    @Override
    public DecoratedKey partitionKey()
    {
        return key;
    }

    @Override
    public DeletionTime partitionLevelDeletion()
    {
        if (begun != null)
            return begun.partitionLevelDeletion();
        try (UnfilteredRowIterator rows = unfilteredIterator(all(), Slices.NONE, false))
        {
            return rows.partitionLevelDeletion();
        }
    }

    @Override
    public RegularAndStaticColumns columns()
    {
        return memtable.columns();
    }

    @Override
    public EncodingStats stats()
    {
        return memtable.stats();
    }

    /**
     * Only partitions that were written are listed. Should one have nothing left, its iterator says so, and nothing is
     * flushed.
     */
    @Override
    public boolean isEmpty()
    {
        return false;
    }

    @Override
    public boolean hasRows()
    {
        try (UnfilteredRowIterator rows = unfilteredIterator(all(), Slices.ALL, false))
        {
            while (rows.hasNext())
                if (rows.next().isRow())
                    return true;
            return false;
        }
    }

    @Override
    public Row getRow(Clustering<?> clustering)
    {
        boolean isStatic = clustering == Clustering.STATIC_CLUSTERING;
        Slices slices = isStatic ? Slices.NONE : Slices.with(metadata().comparator, Slice.make(clustering));
        try (UnfilteredRowIterator rows = unfilteredIterator(all(), slices, false))
        {
            if (isStatic)
                return rows.staticRow().isEmpty() ? null : rows.staticRow();
            while (rows.hasNext())
            {
                Unfiltered next = rows.next();
                if (next.isRow())
                    return (Row) next;
            }
            return null;
        }
    }

    private ColumnFilter all()
    {
        return ColumnFilter.selection(columns());
    }

    @Override
    public UnfilteredRowIterator unfilteredIterator()
    {
        UnfilteredRowIterator rows = begun != null ? begun : unfilteredIterator(all(), Slices.ALL, false);
        begun = null;
        return rows;
    }

    @Override
    public UnfilteredRowIterator unfilteredIterator(ColumnFilter columns, Slices slices, boolean reversed)
    {
        UnfilteredRowIterator rows = NativeRows.read(memtable, key, slices, columns, reversed);
        return rows != null ? rows : EmptyIterators.unfilteredRow(metadata(), key, reversed);
    }

    @Override
    public UnfilteredRowIterator unfilteredIterator(ColumnFilter columns, NavigableSet<Clustering<?>> clusterings, boolean reversed)
    {
        Slices.Builder slices = new Slices.Builder(metadata().comparator, clusterings.size());
        for (Clustering<?> clustering : clusterings)
            slices.add(Slice.make(clustering));
        return unfilteredIterator(columns, slices.build(), reversed);
    }
}
