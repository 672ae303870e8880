package espalier.cassandra;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.ref.Cleaner;
import java.lang.ref.Reference;
import java.nio.ByteBuffer;

import org.apache.cassandra.db.DecoratedKey;
import org.apache.cassandra.db.DeletionTime;
import org.apache.cassandra.db.Slices;
import org.apache.cassandra.db.filter.ColumnFilter;
import org.apache.cassandra.db.rows.AbstractUnfilteredRowIterator;
import org.apache.cassandra.db.rows.BTreeRow;
import org.apache.cassandra.db.rows.DeserializationHelper;
import org.apache.cassandra.db.rows.LazilyInitializedUnfilteredRowIterator;
import org.apache.cassandra.db.rows.Row;
import org.apache.cassandra.db.rows.Rows;
import org.apache.cassandra.db.rows.Unfiltered;
import org.apache.cassandra.db.rows.UnfilteredRowIterator;
import org.apache.cassandra.db.rows.UnfilteredRowIterators;
import org.apache.cassandra.db.rows.UnfilteredSerializer;
import org.apache.cassandra.io.util.DataInputBuffer;
import org.apache.cassandra.net.MessagingService;

/**
 * The rows and markers of a partition, read page by page. A page is a copy, so nothing of the native memtable is held
 * between pages but the place in it.
 */
final class NativeRows extends AbstractUnfilteredRowIterator
{
    private final NativeSource memtable;
    private final TableVersion version;
    private final DeserializationHelper helper;
    private final Row.Builder builder = BTreeRow.sortedBuilder();
    /** What to leave out of rows; null if nothing. */
    private final ColumnFilter filter;
    private final Page page;
    private boolean isClosed;

    private NativeRows(NativeSource memtable, TableVersion version, DeserializationHelper helper, DecoratedKey key, ColumnFilter columns,
                       boolean reversed, Page page, DeletionTime deletion, Row staticRow)
    {
        super(version.metadata, key, deletion, columns.fetchedColumns(), staticRow, reversed, memtable.stats());
        this.memtable = memtable;
        this.version = version;
        this.helper = helper;
        this.filter = isPart(columns, false) ? columns : null;
        this.page = page;
    }

    /** Whether a reader is to get only a part of a row, as Cassandra's memtables filter it. */
    private static boolean isPart(ColumnFilter columns, boolean isStatic)
    {
        return !columns.fetchesAllColumns(isStatic) || !columns.allFetchedColumnsAreQueried();
    }

    private static Row orElse(Row row, Row other)
    {
        return row != null ? row : other;
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
        TableVersion version = memtable.version();
        Page page = new Page();
        boolean isOpen = false;
        try
        {
            if (!page.read(memtable.handle(), version, Requests.partition(key, slices, reversed)))
                return null;
            DeserializationHelper helper = new DeserializationHelper(version.metadata, MessagingService.VERSION_50,
                                                                     DeserializationHelper.Flag.LOCAL, columns);
            DeletionTime deletion = page.in.readBoolean() ? DeletionTime.build(page.in.readLong(), page.in.readLong()) : DeletionTime.LIVE;
            Row staticRow = page.in.readBoolean()
                            ? UnfilteredSerializer.serializer.deserializeStaticRow(page.in, version.header, helper)
                            : Rows.EMPTY_STATIC_ROW;
            if (staticRow.isEmpty() || columns.fetchedColumns().statics.isEmpty())
                staticRow = Rows.EMPTY_STATIC_ROW;
            else if (isPart(columns, true))
                staticRow = orElse(staticRow.filter(columns, version.metadata), Rows.EMPTY_STATIC_ROW);
            if (slices.isEmpty())
                return UnfilteredRowIterators.noRowsIterator(version.metadata, key, staticRow, deletion, reversed);
            NativeRows rows = new NativeRows(memtable, version, helper, key, columns, reversed, page, deletion, staticRow);
            isOpen = true;
            return rows;
        }
        catch (IOException impossible)
        {
            throw new UncheckedIOException(impossible);
        }
        finally
        {
            if (!isOpen)
                page.close();
        }
    }

    @Override
    protected Unfiltered computeNext()
    {
        try
        {
            while (!isClosed)
            {
                Unfiltered next = UnfilteredSerializer.serializer.deserialize(page.in, version.header, helper, builder);
                if (next != null && filter != null && next.isRow())
                {
                    next = ((Row) next).filter(filter, version.metadata);
                    if (next == null)
                        continue;
                }
                if (next != null)
                    return next;
                if (!page.advance())
                    break;
            }
            return endOfData();
        }
        catch (IOException impossible)
        {
            throw new UncheckedIOException(impossible);
        }
    }

    @Override
    public void close()
    {
        isClosed = true;
        page.close();
    }

    /** The part of a read that is in memory, and the handle of the rest. */
    static final class Page
    {
        private static final Cleaner CLEANER = Cleaner.create();

        private Buffers.Reply reply = new Buffers.Reply(Buffers.takePage());
        /** The rest of the read; null while there was none. */
        private Rest rest;
        private DataInputBuffer in;

        /** Reads the first page. Returns false if there is no such partition. */
        boolean read(MemtableHandle memtable, TableVersion version, Buffers.Output request)
        {
            memtable.read(version, request, reply);
            return turned();
        }

        /** Reads the next page. Returns false if there is none. */
        boolean advance()
        {
            if (rest == null || rest.pages == 0)
                return false;
            readMore();
            return turned();
        }

        private void readMore()
        {
            reply.check(Native.more(rest.pages, reply.address(), reply.capacity()));
            // Until the call has returned, nobody else may free the rest.
            Reference.reachabilityFence(this);
        }

        private boolean turned()
        {
            while (true)
            {
                follow(reply.handle());
                switch (reply.status())
                {
                    case Buffers.Reply.ABSENT:
                        return false;
                    case Buffers.Reply.CONTENT:
                        in = new DataInputBuffer(reply.content(), false);
                        return true;
                    default:
                        ByteBuffer larger = ByteBuffer.allocateDirect(reply.length());
                        Buffers.givePage(reply.buffer);
                        reply = new Buffers.Reply(larger);
                        readMore();
                }
            }
        }

        /** Notes the handle of the rest. A reader that never closes its iterator leaves it to the collector. */
        private void follow(long pages)
        {
            if (rest == null && pages != 0)
            {
                rest = new Rest();
                rest.whenUnreachable = CLEANER.register(this, rest);
            }
            if (rest != null)
                rest.pages = pages;
        }

        ByteBuffer content()
        {
            return reply.content();
        }

        /** May be called more than once. */
        void close()
        {
            if (reply == null)
                return;
            if (rest != null)
                rest.whenUnreachable.clean();
            Buffers.givePage(reply.buffer);
            reply = null;
            in = null;
        }
    }

    /** A read that is not at its end, in native code. It keeps the memory of its memtable. */
    private static final class Rest implements Runnable
    {
        /** 0 at the end. */
        private volatile long pages;
        private Cleaner.Cleanable whenUnreachable;

        /** Frees it. It runs once. */
        @Override
        public void run()
        {
            if (pages != 0)
                Native.closePages(pages);
            pages = 0;
        }
    }
}
