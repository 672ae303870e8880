package espalier.cassandra;

import java.lang.ref.Cleaner;
import java.lang.ref.Reference;
import java.nio.ByteBuffer;

import org.apache.cassandra.io.util.RebufferingInputStream;

/**
 * The bytes of a read, page by page ({@code crates/jni/src/pages.rs}). A page is a copy, so nothing of the native
 * memtable is held between pages but the place in it.
 */
final class NativePages extends RebufferingInputStream
{
    private static final Cleaner CLEANER = Cleaner.create();
    /**
     * The size of a small page, and how many times as large each further one is, until they are as large as a buffer.
     * A reader of a range that wants few rows has little copied for it; one that wants many crosses to native code two
     * times more.
     */
    private static final int SMALL_PAGE_BYTES = 4 << 10, GROWTH = 4;
    private static final ByteBuffer NOTHING = ByteBuffer.allocate(0);

    /** Null once this is closed. */
    private Buffers.Reply reply = new Buffers.Reply(Buffers.takePage());
    private int pageBytes;
    /** The rest of the read; null while there was none. */
    private Rest rest;
    private boolean endsWithPage;

    /** The first page is small if the reader may want only a little of the read. */
    NativePages(boolean beginsSmall)
    {
        super(NOTHING);
        pageBytes = beginsSmall ? SMALL_PAGE_BYTES : Buffers.PAGE_BYTES;
    }

    /** Reads the first page. Returns false if there is no such partition. */
    boolean begin(MemtableHandle memtable, TableVersion version, Buffers.Output request)
    {
        memtable.read(version, request, reply, pageBytes);
        turned();
        return reply.status() != Buffers.Reply.ABSENT;
    }

    /** Whether there is more to read. */
    boolean hasMore()
    {
        while (!buffer.hasRemaining())
            if (!turn(false))
                return false;
        return true;
    }

    /** Whether this stream ends with the page, so that {@link #passPartition} can leave out what follows it. */
    void setEndsWithPage(boolean endsWithPage)
    {
        this.endsWithPage = endsWithPage;
    }

    /** Goes on after the partition in which the page ended. */
    void passPartition()
    {
        turn(true);
    }

    @Override
    protected void reBuffer()
    {
        if (!endsWithPage)
            turn(false);
    }

    /** Reads the next page. Returns false if there is none. */
    private boolean turn(boolean passesPartition)
    {
        if (rest == null || rest.pages == 0)
            return false;
        pageBytes = passesPartition ? SMALL_PAGE_BYTES : Math.min(GROWTH * pageBytes, Buffers.PAGE_BYTES);
        reply.check(Native.more(rest.pages, passesPartition, reply.address(), pageBytes));
        // Until the call has returned, nobody else may free the rest.
        Reference.reachabilityFence(this);
        turned();
        return true;
    }

    /**
     * Notes the page and the handle of the rest. A reader that never closes its iterator leaves that to the collector.
     */
    private void turned()
    {
        buffer = reply.content();
        long pages = reply.handle();
        if (rest == null && pages != 0)
        {
            rest = new Rest();
            rest.whenUnreachable = CLEANER.register(this, rest);
        }
        if (rest != null)
            rest.pages = pages;
    }

    /** May be called more than once. */
    @Override
    public void close()
    {
        if (reply == null)
            return;
        if (rest != null)
            rest.whenUnreachable.clean();
        buffer = NOTHING;
        Buffers.givePage(reply.buffer);
        reply = null;
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
