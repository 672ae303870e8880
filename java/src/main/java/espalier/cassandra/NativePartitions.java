package espalier.cassandra;

import java.util.NoSuchElementException;

import org.apache.cassandra.db.DataRange;
import org.apache.cassandra.db.DecoratedKey;
import org.apache.cassandra.db.PartitionPosition;
import org.apache.cassandra.db.filter.ColumnFilter;
import org.apache.cassandra.db.partitions.AbstractUnfilteredPartitionIterator;
import org.apache.cassandra.db.rows.UnfilteredRowIterator;
import org.apache.cassandra.dht.AbstractBounds;
import org.apache.cassandra.schema.TableMetadata;

/** The partitions of a range read. Their keys come in pages, and each partition is read when it is asked for. */
final class NativePartitions extends AbstractUnfilteredPartitionIterator
{
    private final NativeSource memtable;
    private final TableMetadata table;
    private final ColumnFilter columns;
    private final DataRange range;
    private final KeyIterator keys;

    NativePartitions(NativeSource memtable, ColumnFilter columns, DataRange range)
    {
        this.memtable = memtable;
        this.table = memtable.metadata();
        this.columns = columns;
        this.range = range;
        AbstractBounds<PartitionPosition> bounds = range.keyRange();
        this.keys = new KeyIterator(memtable, bounds.left, bounds.inclusiveLeft(), bounds.right, bounds.inclusiveRight());
    }

    @Override
    public TableMetadata metadata()
    {
        return table;
    }

    @Override
    public boolean hasNext()
    {
        return keys.hasNext();
    }

    @Override
    public UnfilteredRowIterator next()
    {
        if (!hasNext())
            throw new NoSuchElementException();
        DecoratedKey key = keys.next();
        return range.clusteringIndexFilter(key).getUnfilteredRowIterator(columns, new NativePartition(memtable, key));
    }

    @Override
    public void close()
    {
        keys.close();
    }
}
