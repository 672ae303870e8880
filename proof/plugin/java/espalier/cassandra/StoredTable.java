package espalier.cassandra;

import java.util.List;

import org.apache.cassandra.db.memtable.Memtable;
import org.apache.cassandra.dht.Murmur3Partitioner;
import org.apache.cassandra.dht.Range;
import org.apache.cassandra.dht.Token;

/** What the proofs do with a table of the engine itself. */
public final class StoredTable
{
    private StoredTable()
    {
    }

    /** Writes the engine's memtable to an SSTable. */
    public static void flush(Memtable memtable)
    {
        Token least = Murmur3Partitioner.instance.getMinimumToken();
        cleanUp(memtable, new Range<>(least, least));
    }

    /** Removes the partitions outside of a range. Returns false if some of them are left. */
    public static boolean cleanUp(Memtable memtable, Range<Token> kept)
    {
        return ((StoredMemtable) memtable).handle().cleanUp(Requests.ranges(List.of(kept)));
    }
}
