package espalier.cassandra;

import org.apache.cassandra.db.RegularAndStaticColumns;
import org.apache.cassandra.db.SerializationHeader;
import org.apache.cassandra.db.rows.EncodingStats;
import org.apache.cassandra.schema.TableMetadata;

/** A table as it was at some time, and its index among the versions that the native memtable knows. */
final class TableVersion
{
    final TableMetadata metadata;
    final int index;
    /** How the native memtable writes rows under this version. */
    final SerializationHeader header;
    /** Whether rows have all columns of the table, and not only the {@link CarriedColumns}. */
    final boolean isWhole;

    TableVersion(TableMetadata metadata, int index)
    {
        this.metadata = metadata;
        this.index = index;
        RegularAndStaticColumns carried = CarriedColumns.of(metadata);
        this.header = new SerializationHeader(false, metadata, carried, EncodingStats.NO_STATS);
        this.isWhole = carried.size() == metadata.regularAndStaticColumns().size();
    }
}
