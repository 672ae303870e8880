package espalier.cassandra;

import java.nio.ByteBuffer;
import java.util.Iterator;
import java.util.NoSuchElementException;

import org.apache.cassandra.db.BufferDecoratedKey;
import org.apache.cassandra.db.DecoratedKey;
import org.apache.cassandra.db.PartitionPosition;
import org.apache.cassandra.dht.Murmur3Partitioner.LongToken;

/** The keys of the partitions between two positions, in order. Closed by itself at its end. */
final class KeyIterator implements Iterator<DecoratedKey>, AutoCloseable
{
    private final NativeSource memtable;
    private final NativeRows.Page page = new NativeRows.Page();
    private ByteBuffer content;

    /** Either position may be null for no limit. */
    KeyIterator(NativeSource memtable, PartitionPosition from, boolean fromInclusive, PartitionPosition to, boolean toInclusive)
    {
        this.memtable = memtable;
        page.read(memtable.handle(), memtable.version(), Requests.keys(from, fromInclusive, to, toInclusive));
        content = page.content();
    }

    @Override
    public boolean hasNext()
    {
        while (content != null && !content.hasRemaining())
        {
            if (page.advance())
                content = page.content();
            else
                close();
        }
        return content != null;
    }

    @Override
    public DecoratedKey next()
    {
        if (!hasNext())
            throw new NoSuchElementException();
        LongToken token = new LongToken(content.getLong());
        byte[] key = new byte[content.getInt()];
        content.get(key);
        return new BufferDecoratedKey(token, ByteBuffer.wrap(key));
    }

    @Override
    public void close()
    {
        content = null;
        page.close();
    }

    /** The partitions of the keys. */
    Iterator<NativePartition> partitions()
    {
        KeyIterator keys = this;
        return new Iterator<NativePartition>()
        {
            @Override
            public boolean hasNext()
            {
                return keys.hasNext();
            }

            @Override
            public NativePartition next()
            {
                return new NativePartition(memtable, keys.next());
            }
        };
    }
}
