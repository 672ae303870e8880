package espalier.cassandra;

import java.util.HashSet;
import java.util.Set;

import org.apache.cassandra.cql3.CQL3Type;
import org.apache.cassandra.db.RegularAndStaticColumns;
import org.apache.cassandra.db.marshal.AbstractType;
import org.apache.cassandra.db.marshal.CollectionType;
import org.apache.cassandra.db.marshal.DateType;
import org.apache.cassandra.db.marshal.TupleType;
import org.apache.cassandra.db.marshal.UserType;
import org.apache.cassandra.db.marshal.VectorType;
import org.apache.cassandra.schema.ColumnMetadata;
import org.apache.cassandra.schema.TableMetadata;

/**
 * The columns that native code can hold: those of CQL's types, and not those of a class of Cassandra's.
 *
 * A new memtable holds all columns of its table, or is not ours. But ALTER TABLE may add a column of a class to a table
 * whose rows are in native code already. They stay readable without that column.
 */
final class CarriedColumns
{
    private static final Set<AbstractType<?>> NATIVE = new HashSet<>();

    static
    {
        for (CQL3Type.Native type : CQL3Type.Native.values())
            NATIVE.add(type.getType());
        // The class of a timestamp before 2.0.
        NATIVE.add(DateType.instance);
    }

    private CarriedColumns()
    {
    }

    /** The static and regular columns of a table that native code can hold. */
    static RegularAndStaticColumns of(TableMetadata table)
    {
        RegularAndStaticColumns carried = table.regularAndStaticColumns();
        for (ColumnMetadata column : table.regularAndStaticColumns())
            if (!isCarried(column.type))
                carried = carried.without(column);
        return carried;
    }

    /** A user type stays a part of its table when it gets a field of a class, so it is not looked into. */
    private static boolean isCarried(AbstractType<?> type)
    {
        if (type instanceof UserType)
            return true;
        if (!(type instanceof CollectionType) && !(type instanceof TupleType) && !(type instanceof VectorType))
            return NATIVE.contains(type);
        for (AbstractType<?> part : type.subTypes())
            if (!isCarried(part))
                return false;
        return true;
    }
}
