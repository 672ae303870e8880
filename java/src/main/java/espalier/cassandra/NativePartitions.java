package espalier.cassandra;

import java.util.Iterator;
import java.util.NoSuchElementException;
import java.util.function.Supplier;

import com.google.common.collect.Iterators;

import org.apache.cassandra.db.BufferDecoratedKey;
import org.apache.cassandra.db.DataRange;
import org.apache.cassandra.db.DecoratedKey;
import org.apache.cassandra.db.PartitionPosition;
import org.apache.cassandra.db.Slices;
import org.apache.cassandra.db.filter.ClusteringIndexFilter;
import org.apache.cassandra.db.filter.ColumnFilter;
import org.apache.cassandra.db.partitions.AbstractUnfilteredPartitionIterator;
import org.apache.cassandra.db.rows.UnfilteredRowIterator;
import org.apache.cassandra.dht.AbstractBounds;
import org.apache.cassandra.dht.Murmur3Partitioner.LongToken;
import org.apache.cassandra.schema.TableMetadata;
import org.apache.cassandra.utils.ByteBufferUtil;

/**
 * The partitions of a range, many to a page. As with Cassandra's SSTables, a partition is read before the next one is
 * asked for, or not at all. The iterator closes itself at its end.
 */
final class NativePartitions extends AbstractUnfilteredPartitionIterator
{
    /** No partition has an empty key. */
    private static final DecoratedKey NO_KEY = new BufferDecoratedKey(new LongToken(0), ByteBufferUtil.EMPTY_BYTE_BUFFER);

    private final NativeRead read;
    /** Writes the request for all partitions but one that is read alone; null once it was made. */
    private Supplier<Buffers.Output> request;
    /** The partition that the read is in; null before the first one. */
    private NativeRows current;
    /** What {@link #next} returns; null while that is not known. */
    private UnfilteredRowIterator next;
    private boolean isClosed;

    private NativePartitions(NativeRead read, Supplier<Buffers.Output> request)
    {
        this.read = read;
        this.request = request;
    }

    /** The rows of a range read. */
    static NativePartitions read(NativeSource memtable, ColumnFilter columns, DataRange range)
    {
        AbstractBounds<PartitionPosition> bounds = range.keyRange();
        ClusteringIndexFilter filter = range.clusteringIndexFilter(NO_KEY);
        Slices slices = filter.getSlices(memtable.metadata());
        boolean reversed = filter.isReversed();
        // A page of a query's result may end within a partition, of which the next one has other slices than of the
        // rest.
        boolean isWithin = range.isPaging() && bounds.inclusiveLeft() && bounds.left instanceof DecoratedKey;
        boolean includesLeft = bounds.inclusiveLeft() && !isWithin;
        NativeRead read = new NativeRead(memtable, columns, reversed, true);
        NativePartitions partitions = new NativePartitions(read, () -> Requests.range(
            bounds.left, includesLeft, bounds.right, bounds.inclusiveRight(), slices, reversed));
        if (isWithin)
        {
            DecoratedKey first = (DecoratedKey) bounds.left;
            Slices rest = range.clusteringIndexFilter(first).getSlices(memtable.metadata());
            partitions.next = NativeRows.read(memtable, first, rest, columns, reversed);
        }
        return partitions;
    }

    /** All partitions from a position up to another one, which is excluded. Either may be null for no limit. */
    static Iterator<NativePartition> flushed(NativeSource memtable, PartitionPosition from, PartitionPosition to)
    {
        ColumnFilter columns = ColumnFilter.selection(memtable.columns());
        NativePartitions partitions = new NativePartitions(new NativeRead(memtable, columns, false, false),
                                                           () -> Requests.range(from, true, to, false, Slices.ALL, false));
        return Iterators.transform(partitions, rows -> new NativePartition(memtable, rows));
    }

    @Override
    public TableMetadata metadata()
    {
        return read.version.metadata;
    }

    @Override
    public boolean hasNext()
    {
        if (next == null && !isClosed)
            next = advance();
        return next != null;
    }

    private UnfilteredRowIterator advance()
    {
        boolean isAtEnd = true;
        try
        {
            if (request != null)
                read.begin(request.get());
            else if (current != null)
                current.pass();
            request = null;
            current = read.nextPartition();
            isAtEnd = current == null;
            return current;
        }
        finally
        {
            // A read that failed is closed too, because the bytes that it has are of no use.
            if (isAtEnd)
                close();
        }
    }

    @Override
    public UnfilteredRowIterator next()
    {
        if (!hasNext())
            throw new NoSuchElementException();
        UnfilteredRowIterator partition = next;
        next = null;
        return partition;
    }

    @Override
    public void close()
    {
        isClosed = true;
        if (next != null)
            next.close();
        next = null;
        read.close();
    }
}
