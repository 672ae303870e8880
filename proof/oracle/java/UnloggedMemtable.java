package espalier.oracle;

import java.util.Map;
import java.util.concurrent.atomic.AtomicReference;

import org.apache.cassandra.db.commitlog.CommitLogPosition;
import org.apache.cassandra.db.memtable.Memtable;
import org.apache.cassandra.db.memtable.TrieMemtable;
import org.apache.cassandra.metrics.TableMetrics;
import org.apache.cassandra.schema.TableMetadataRef;

/**
 * Cassandra's trie memtable, of which nothing is written to the commit log. With a log, DROP TABLE flushes every table
 * of the node that has something in a segment, for the segments to be recycled: a run of many schemas does little else.
 */
public final class UnloggedMemtable
{
    public static Memtable.Factory factory(Map<String, String> options)
    {
        return new Factory(TrieMemtable.factory(options));
    }

    private static final class Factory implements Memtable.Factory
    {
        private final Memtable.Factory trie;

        private Factory(Memtable.Factory trie)
        {
            this.trie = trie;
        }

        @Override
        public Memtable create(AtomicReference<CommitLogPosition> lowerBound, TableMetadataRef metadata, Memtable.Owner owner)
        {
            return trie.create(lowerBound, metadata, owner);
        }

        @Override
        public TableMetrics.ReleasableMetric createMemtableMetrics(TableMetadataRef metadata)
        {
            return trie.createMemtableMetrics(metadata);
        }

        @Override
        public boolean writesShouldSkipCommitLog()
        {
            return true;
        }

        @Override
        public boolean equals(Object other)
        {
            return other instanceof Factory && trie.equals(((Factory) other).trie);
        }

        @Override
        public int hashCode()
        {
            return trie.hashCode();
        }
    }
}
