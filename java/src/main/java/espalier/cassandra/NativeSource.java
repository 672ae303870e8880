package espalier.cassandra;

import org.apache.cassandra.db.RegularAndStaticColumns;
import org.apache.cassandra.db.rows.EncodingStats;
import org.apache.cassandra.schema.TableMetadata;

/** What the native iterators read from: a memtable of either mode. */
interface NativeSource
{
    MemtableHandle handle();

    /** The newest version of the table. */
    TableVersion version();

    TableMetadata metadata();

    /** The columns that anything may have been written to. */
    RegularAndStaticColumns columns();

    EncodingStats stats();
}
