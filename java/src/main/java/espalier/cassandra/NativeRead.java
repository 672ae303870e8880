package espalier.cassandra;

import java.io.EOFException;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;

import org.apache.cassandra.db.BufferDecoratedKey;
import org.apache.cassandra.db.DecoratedKey;
import org.apache.cassandra.db.DeletionTime;
import org.apache.cassandra.db.filter.ColumnFilter;
import org.apache.cassandra.db.rows.BTreeRow;
import org.apache.cassandra.db.rows.DeserializationHelper;
import org.apache.cassandra.db.rows.EncodingStats;
import org.apache.cassandra.db.rows.Row;
import org.apache.cassandra.db.rows.Rows;
import org.apache.cassandra.db.rows.Unfiltered;
import org.apache.cassandra.db.rows.UnfilteredSerializer;
import org.apache.cassandra.dht.Murmur3Partitioner.LongToken;
import org.apache.cassandra.net.MessagingService;

/**
 * A read of one partition, or of many one after another. Rows are copies, which stay valid when the read has gone on.
 */
final class NativeRead
{
    final TableVersion version;
    final ColumnFilter columns;
    final boolean reversed;
    final EncodingStats stats;
    private final MemtableHandle memtable;
    /** What to leave out of rows; null if nothing. */
    private final ColumnFilter filter;
    private final NativePages pages;
    private DeserializationHelper helper;
    private Row.Builder builder;

    /** {@code beginsSmall}: whether the first pages are small, because the reader may want only a little. */
    NativeRead(NativeSource source, ColumnFilter columns, boolean reversed, boolean beginsSmall)
    {
        this.pages = new NativePages(beginsSmall);
        this.memtable = source.handle();
        this.version = source.version();
        this.stats = source.stats();
        this.columns = columns;
        this.reversed = reversed;
        this.filter = isPart(false) ? columns : null;
    }

    /** Whether a reader is to get only a part of a row, as Cassandra's memtables filter it. */
    private boolean isPart(boolean isStatic)
    {
        return !columns.fetchesAllColumns(isStatic) || !columns.allFetchedColumnsAreQueried();
    }

    /** Reads the first page. Returns false if the request is for one partition, and there is none. */
    boolean begin(Buffers.Output request)
    {
        if (!pages.begin(memtable, version, request))
            return false;
        prepare(columns);
        return true;
    }

    /** Begins to read rows with the values of some columns. */
    private void prepare(ColumnFilter read)
    {
        helper = new DeserializationHelper(version.metadata, MessagingService.VERSION_50, DeserializationHelper.Flag.LOCAL, read);
        builder = BTreeRow.sortedBuilder();
    }

    /** The next partition of a read of many; null at the end. */
    NativeRows nextPartition()
    {
        if (!pages.hasMore())
            return null;
        try
        {
            LongToken token = new LongToken(pages.readLong());
            byte[] key = new byte[pages.readInt()];
            pages.readFully(key);
            return partition(new BufferDecoratedKey(token, ByteBuffer.wrap(key)), false);
        }
        catch (IOException failed)
        {
            throw unchecked(failed);
        }
    }

    /** The partition whose rows are next. If it is the only one of the read, closing it closes the read. */
    NativeRows partition(DecoratedKey key, boolean isOnly)
    {
        try
        {
            DeletionTime deletion = pages.readBoolean() ? DeletionTime.build(pages.readLong(), pages.readLong()) : DeletionTime.LIVE;
            Row staticRow = pages.readBoolean() ? shown(UnfilteredSerializer.serializer.deserializeStaticRow(pages, version.header, helper))
                                                : Rows.EMPTY_STATIC_ROW;
            return new NativeRows(this, key, deletion, staticRow, isOnly);
        }
        catch (IOException failed)
        {
            throw unchecked(failed);
        }
    }

    /** What a reader gets of a static row. */
    private Row shown(Row staticRow)
    {
        if (staticRow.isEmpty() || columns.fetchedColumns().statics.isEmpty())
            return Rows.EMPTY_STATIC_ROW;
        Row shown = isPart(true) ? staticRow.filter(columns, version.metadata) : staticRow;
        return shown != null ? shown : Rows.EMPTY_STATIC_ROW;
    }

    /** The next row or marker of a partition; null at its end. */
    Unfiltered nextUnfiltered()
    {
        try
        {
            while (true)
            {
                Unfiltered next = deserialized();
                if (next == null || filter == null || !next.isRow())
                    return next;
                Row row = ((Row) next).filter(filter, version.metadata);
                if (row != null)
                    return row;
            }
        }
        catch (IOException failed)
        {
            throw unchecked(failed);
        }
    }

    private Unfiltered deserialized() throws IOException
    {
        return UnfilteredSerializer.serializer.deserialize(pages, version.header, helper, builder);
    }

    /** What to throw in place of a failure. Cassandra wraps an error of a page if the page is read within a row. */
    private static RuntimeException unchecked(IOException failed)
    {
        Throwable cause = failed.getCause();
        return cause instanceof IllegalStateException ? (IllegalStateException) cause : new UncheckedIOException(failed);
    }

    /**
     * Passes over what is left of a partition. What is in the page is read without values. If that has no end, native
     * code finds the next partition.
     */
    void passPartition()
    {
        pages.setEndsWithPage(true);
        prepare(ColumnFilter.NONE);
        try
        {
            Unfiltered passed;
            do
                passed = deserialized();
            while (passed != null);
        }
        catch (EOFException endOfPage)
        {
            pages.passPartition();
        }
        catch (IOException failed)
        {
            throw unchecked(failed);
        }
        finally
        {
            pages.setEndsWithPage(false);
            prepare(columns);
        }
    }

    /** May be called more than once. */
    void close()
    {
        pages.close();
    }
}
