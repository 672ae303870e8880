package espalier.cassandra;

import java.nio.ByteBuffer;
import java.util.ArrayDeque;

import io.netty.util.concurrent.FastThreadLocal;
import org.apache.cassandra.io.util.DataOutputBuffer;
import org.apache.cassandra.utils.memory.MemoryUtil;

/** Memory outside of the Java heap for requests and replies, which threads use again. */
final class Buffers
{
    static final int PAGE_BYTES = 64 << 10;
    private static final int REPLY_BYTES = 8 << 10;
    /** What a thread keeps of its output buffer for the next update. */
    private static final int KEPT_BYTES_MAX = 1 << 20;
    /** Pages that a thread keeps for later reads. */
    private static final int KEPT_PAGES_MAX = 4;

    private static final FastThreadLocal<Buffers> OF_THREAD = new FastThreadLocal<Buffers>()
    {
        @Override
        protected Buffers initialValue()
        {
            return new Buffers();
        }
    };

    private final Output output = new Output();
    private final Reply reply = new Reply(ByteBuffer.allocateDirect(REPLY_BYTES));
    private final ArrayDeque<ByteBuffer> pages = new ArrayDeque<>();

    private Buffers()
    {
    }

    /** The thread's output buffer, emptied. It is valid until the thread's next call of this method. */
    static Output output()
    {
        Output output = OF_THREAD.get().output;
        output.reuse();
        return output;
    }

    /** The thread's buffer for short replies, valid until its next call of this method. */
    static Reply reply()
    {
        return OF_THREAD.get().reply;
    }

    static ByteBuffer takePage()
    {
        ByteBuffer page = OF_THREAD.get().pages.pollFirst();
        return page != null ? page : ByteBuffer.allocateDirect(PAGE_BYTES);
    }

    static void givePage(ByteBuffer page)
    {
        ArrayDeque<ByteBuffer> pages = OF_THREAD.get().pages;
        if (pages.size() < KEPT_PAGES_MAX)
            pages.addFirst(page);
    }

    /** A serialized object outside of the Java heap. */
    static final class Output extends DataOutputBuffer
    {
        private Output()
        {
            super(ByteBuffer.allocateDirect(4 << 10));
        }

        private void reuse()
        {
            if (buffer.capacity() > KEPT_BYTES_MAX)
                buffer = ByteBuffer.allocateDirect(4 << 10);
            buffer.clear();
        }

        @Override
        protected void expandToFit(long count)
        {
            long wanted = Math.max(2L * buffer.capacity(), buffer.position() + count);
            ByteBuffer larger = ByteBuffer.allocateDirect(Math.toIntExact(Math.min(wanted, Integer.MAX_VALUE)));
            buffer.flip();
            larger.put(buffer);
            buffer = larger;
        }

        long address()
        {
            return MemoryUtil.getAddress(buffer);
        }

        long length()
        {
            return buffer.position();
        }
    }

    /** A buffer for replies: i64 handle, i32 status, i32 length, content. */
    static final class Reply
    {
        static final int ABSENT = 0;
        static final int TOO_SMALL = 2;
        private static final int FULL = 4;
        private static final int HEAD_BYTES = 16;

        final ByteBuffer buffer;

        Reply(ByteBuffer buffer)
        {
            this.buffer = buffer;
        }

        long address()
        {
            return MemoryUtil.getAddress(buffer);
        }

        long capacity()
        {
            return buffer.capacity();
        }

        long handle()
        {
            return buffer.getLong(0);
        }

        int status()
        {
            return buffer.getInt(8);
        }

        int length()
        {
            return buffer.getInt(12);
        }

        /** The content, as a view of the buffer. */
        ByteBuffer content()
        {
            ByteBuffer content = buffer.duplicate();
            content.limit(HEAD_BYTES + length());
            content.position(HEAD_BYTES);
            return content;
        }

        /** Passes on the result of a call, or throws what the reply says. */
        long check(long result)
        {
            if (result != Native.FAILED)
                return result;
            byte[] bytes = new byte[length()];
            content().get(bytes);
            String text = "EspalierMemtable: " + new String(bytes, java.nio.charset.StandardCharsets.UTF_8);
            throw status() == FULL ? new MemtableFullException(text) : new IllegalStateException(text);
        }
    }
}
