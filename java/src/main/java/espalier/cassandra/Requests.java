package espalier.cassandra;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Collection;
import java.util.Map;

import org.apache.cassandra.db.ClusteringBound;
import org.apache.cassandra.db.DecoratedKey;
import org.apache.cassandra.db.PartitionPosition;
import org.apache.cassandra.db.RegularAndStaticColumns;
import org.apache.cassandra.db.Slice;
import org.apache.cassandra.db.Slices;
import org.apache.cassandra.dht.Murmur3Partitioner.LongToken;
import org.apache.cassandra.dht.Range;
import org.apache.cassandra.dht.Token;
import org.apache.cassandra.schema.ColumnMetadata;
import org.apache.cassandra.schema.DroppedColumn;
import org.apache.cassandra.schema.TableMetadata;

/** Writes requests in the forms of {@code crates/jni/src/request.rs} and {@code table.rs}. */
final class Requests
{
    private Requests()
    {
    }

    interface Writer
    {
        void write(Buffers.Output out) throws IOException;
    }

    private static Buffers.Output written(Writer writer)
    {
        Buffers.Output out = Buffers.output();
        try
        {
            writer.write(out);
        }
        catch (IOException impossible)
        {
            throw new UncheckedIOException(impossible);
        }
        return out;
    }

    /** A read of a partition. */
    static Buffers.Output partition(DecoratedKey key, Slices slices, boolean reversed)
    {
        return written(out -> {
            out.writeByte(0);
            writeKey(key, out);
            writeRows(slices, reversed, out);
        });
    }

    /** A read of the partitions between two positions, either of which may be null for no limit. */
    static Buffers.Output range(PartitionPosition from, boolean fromInclusive, PartitionPosition to, boolean toInclusive, Slices slices,
                                boolean reversed)
    {
        return written(out -> {
            out.writeByte(1);
            writeBound(from, true, fromInclusive, out);
            writeBound(to, false, toInclusive, out);
            writeRows(slices, reversed, out);
        });
    }

    /** A read of the partitions from a position up to another one, which is excluded, without their rows. */
    static Buffers.Output keys(PartitionPosition from, PartitionPosition to)
    {
        return range(from, true, to, false, Slices.NONE, false);
    }

    private static void writeKey(DecoratedKey key, Buffers.Output out) throws IOException
    {
        out.writeLong(((LongToken) key.getToken()).token);
        writeSized(key.getKey(), out);
    }

    private static void writeBound(PartitionPosition position, boolean isStart, boolean inclusive, Buffers.Output out) throws IOException
    {
        if (position == null || position.isMinimum())
        {
            out.writeShort(0);
        }
        else if (position instanceof DecoratedKey)
        {
            out.writeByte(2);
            out.writeBoolean(inclusive);
            writeKey((DecoratedKey) position, out);
        }
        else
        {
            Token.KeyBound bound = (Token.KeyBound) position;
            out.writeByte(1);
            // Before the keys of its token, or behind them.
            out.writeBoolean(bound.isMinimumBound == isStart);
            out.writeLong(((LongToken) bound.getToken()).token);
        }
    }

    private static void writeRows(Slices slices, boolean reversed, Buffers.Output out) throws IOException
    {
        out.writeBoolean(reversed);
        if (slices == Slices.ALL)
        {
            out.writeInt(-1);
            return;
        }
        out.writeInt(slices.size());
        for (Slice slice : slices)
        {
            writePosition(slice.start(), out);
            writePosition(slice.end(), out);
        }
    }

    private static void writePosition(ClusteringBound<?> bound, Buffers.Output out) throws IOException
    {
        // A start that includes its prefix, and an end that does not, lie before the rows with the prefix.
        out.writeBoolean(bound.isStart() != bound.isInclusive());
        int length = 0;
        for (int i = 0; i < bound.size(); i++)
        {
            ByteBuffer value = bound.bufferAt(i);
            length += 4 + (value == null ? 0 : value.remaining());
        }
        out.writeInt(length);
        for (int i = 0; i < bound.size(); i++)
        {
            ByteBuffer value = bound.bufferAt(i);
            if (value == null)
                out.writeInt(-1);
            else
                writeSized(value, out);
        }
    }

    private static void writeSized(ByteBuffer bytes, Buffers.Output out) throws IOException
    {
        out.writeInt(bytes.remaining());
        out.write(bytes.duplicate());
    }

    private static void writeText(String text, Buffers.Output out) throws IOException
    {
        writeSized(ByteBuffer.wrap(text.getBytes(StandardCharsets.UTF_8)), out);
    }

    private static void writeMap(Map<String, String> map, Buffers.Output out) throws IOException
    {
        out.writeInt(map.size());
        for (Map.Entry<String, String> entry : map.entrySet())
        {
            writeText(entry.getKey(), out);
            writeText(entry.getValue(), out);
        }
    }

    /** The settings of the engine, in the form of {@code store.rs}. */
    static Buffers.Output engine(String directory, String sync, long syncMillis, long memtableBytes, long cacheBytes)
    {
        return written(out -> {
            writeText(directory, out);
            writeText(sync, out);
            out.writeLong(syncMillis);
            out.writeLong(memtableBytes);
            out.writeLong(cacheBytes);
        });
    }

    /** A snapshot of a table of the engine. */
    static Buffers.Output snapshot(String name, String statements)
    {
        return written(out -> {
            writeText(name, out);
            writeText(statements, out);
        });
    }

    /** Ranges of tokens. */
    static Buffers.Output ranges(Collection<Range<Token>> ranges)
    {
        return written(out -> {
            out.writeInt(ranges.size());
            for (Range<Token> range : ranges)
            {
                out.writeLong(((LongToken) range.left).token);
                out.writeLong(((LongToken) range.right).token);
            }
        });
    }

    /** The description of a table, without the columns that native code cannot hold. */
    static Buffers.Output table(TableMetadata table)
    {
        return written(out -> {
            table.id.serialize(out);
            writeText(table.keyspace, out);
            writeText(table.name, out);
            out.writeInt(table.params.gcGraceSeconds);
            out.writeDouble(table.params.bloomFilterFpChance);
            writeMap(table.params.compaction.asMap(), out);
            writeMap(table.params.compression.asMap(), out);
            RegularAndStaticColumns carried = CarriedColumns.of(table);
            out.writeInt(table.partitionKeyColumns().size() + table.clusteringColumns().size() + carried.size());
            writeColumns(0, table.partitionKeyColumns(), out);
            writeColumns(1, table.clusteringColumns(), out);
            writeColumns(2, carried.statics, out);
            writeColumns(3, carried.regulars, out);
            out.writeInt(table.droppedColumns.size());
            for (DroppedColumn dropped : table.droppedColumns.values())
            {
                writeSized(dropped.column.name.bytes, out);
                writeText(dropped.column.type.toString(), out);
                out.writeBoolean(dropped.column.isStatic());
                out.writeLong(dropped.droppedTime);
            }
        });
    }

    private static void writeColumns(int kind, Iterable<ColumnMetadata> columns, Buffers.Output out) throws IOException
    {
        for (ColumnMetadata column : columns)
        {
            out.writeByte(kind);
            writeSized(column.name.bytes, out);
            writeText(column.type.toString(), out);
        }
    }
}
