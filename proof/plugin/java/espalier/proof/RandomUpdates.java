package espalier.proof;

import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.UUID;

import org.apache.cassandra.db.BufferClusteringBound;
import org.apache.cassandra.db.Clustering;
import org.apache.cassandra.db.ClusteringBound;
import org.apache.cassandra.db.ClusteringPrefix;
import org.apache.cassandra.db.DecoratedKey;
import org.apache.cassandra.db.DeletionTime;
import org.apache.cassandra.db.LivenessInfo;
import org.apache.cassandra.db.RangeTombstone;
import org.apache.cassandra.db.Slice;
import org.apache.cassandra.db.Slices;
import org.apache.cassandra.db.context.CounterContext;
import org.apache.cassandra.db.marshal.AbstractType;
import org.apache.cassandra.db.marshal.BytesType;
import org.apache.cassandra.db.marshal.CounterColumnType;
import org.apache.cassandra.db.marshal.DecimalType;
import org.apache.cassandra.db.marshal.DoubleType;
import org.apache.cassandra.db.marshal.Int32Type;
import org.apache.cassandra.db.marshal.IntegerType;
import org.apache.cassandra.db.marshal.ListType;
import org.apache.cassandra.db.marshal.LongType;
import org.apache.cassandra.db.marshal.MapType;
import org.apache.cassandra.db.marshal.SetType;
import org.apache.cassandra.db.marshal.UTF8Type;
import org.apache.cassandra.db.marshal.UUIDType;
import org.apache.cassandra.db.marshal.UserType;
import org.apache.cassandra.db.partitions.PartitionUpdate;
import org.apache.cassandra.db.rows.BTreeRow;
import org.apache.cassandra.db.rows.BufferCell;
import org.apache.cassandra.db.rows.Cell;
import org.apache.cassandra.db.rows.CellPath;
import org.apache.cassandra.db.rows.Row;
import org.apache.cassandra.schema.ColumnMetadata;
import org.apache.cassandra.schema.TableMetadata;
import org.apache.cassandra.utils.ByteBufferUtil;
import org.apache.cassandra.utils.CounterId;

/** Random updates and reads of a table, in which the same keys, times and values meet often. */
public final class RandomUpdates
{
    private static final int KEYS = 12;
    private static final int OF_PARTITION = 0, OF_RANGE = 1, OF_ROW = 2, OF_COLUMN = 3, KINDS = 4;
    /** A time in the past, seconds: what was deleted or expires then may be purged. */
    static final long PAST = 1_700_000_000L;

    /** Timestamps are greater than their base by 1 to this number. */
    static final int TIMESTAMPS = 60 + KINDS;

    private final Random random;
    private final boolean largeValues;
    /** The time of deletions and expiring writes. */
    private final long seconds;
    private long timestampBase;
    /** The timestamp of the deletion of the row, or of the column, that is made. An update has nothing that its own deletion deletes. */
    private long rowDeletion;

    public RandomUpdates(long seed, boolean largeValues)
    {
        this(seed, largeValues, PAST);
    }

    RandomUpdates(long seed, boolean largeValues, long seconds)
    {
        this.random = new Random(seed);
        this.largeValues = largeValues;
        this.seconds = seconds;
    }

    /** Makes all timestamps from now on greater than those before. */
    void advanceTime()
    {
        timestampBase += TIMESTAMPS;
    }

    boolean chance(int percent)
    {
        return random.nextInt(100) < percent;
    }

    int below(int bound)
    {
        return random.nextInt(bound);
    }

    private long timestamp()
    {
        return Math.max(timestampBase + 1 + random.nextInt(TIMESTAMPS - KINDS), rowDeletion + 1);
    }

    DecoratedKey key(TableMetadata table)
    {
        ByteBuffer[] values = new ByteBuffer[table.partitionKeyColumns().size()];
        for (int i = 0; i < values.length; i++)
            values[i] = table.partitionKeyColumns().get(i).type == UTF8Type.instance
                        ? ByteBufferUtil.bytes("key" + random.nextInt(KEYS)) : ByteBufferUtil.bytes(random.nextInt(KEYS));
        ByteBuffer key = values.length == 1 ? values[0] : Clustering.make(values).serializeAsPartitionKey();
        return table.partitioner.decorateKey(key);
    }

    ByteBuffer value(AbstractType<?> type)
    {
        type = type.unwrap();
        if (type == Int32Type.instance)
            return ByteBufferUtil.bytes(random.nextInt(8) - 2);
        if (type == LongType.instance)
            return ByteBufferUtil.bytes((long) random.nextInt(8) - 2);
        if (type == UTF8Type.instance)
            return ByteBufferUtil.bytes(text());
        if (type == BytesType.instance)
            return ByteBuffer.wrap(blob());
        if (type == DoubleType.instance)
            return ByteBufferUtil.bytes(random.nextInt(8) / 4.0 - 1);
        if (type == DecimalType.instance)
            // No two of them are equal: equal clusterings of different forms keep one of them, and which is not said.
            return DecimalType.instance.decompose(new BigDecimal(BigInteger.valueOf(2L * random.nextInt(5) - 3), random.nextInt(3)));
        if (type == IntegerType.instance)
            return IntegerType.instance.decompose(BigInteger.valueOf(random.nextInt(5) * 1_000L - 2_000));
        if (type == UUIDType.instance)
            return UUIDType.instance.decompose(new UUID(0x4000L, 0x8000000000000000L | random.nextInt(6)));
        if (type instanceof ListType)
            return frozen((ListType<?>) type);
        throw new IllegalArgumentException(type.toString());
    }

    @SuppressWarnings("unchecked")
    private <T> ByteBuffer frozen(ListType<T> type)
    {
        AbstractType<T> elements = type.getElementsType();
        List<T> list = new ArrayList<>();
        for (int i = random.nextInt(3); i >= 0; i--)
            list.add(elements.compose(value(elements)));
        return type.decompose(list);
    }

    private String text()
    {
        return chance(10) ? "" : "t" + random.nextInt(6);
    }

    private byte[] blob()
    {
        byte[] blob = new byte[largeValues && chance(5) ? random.nextInt(170_000) : random.nextInt(20)];
        random.nextBytes(blob);
        return blob;
    }

    Clustering<?> clustering(TableMetadata table)
    {
        ByteBuffer[] values = new ByteBuffer[table.clusteringColumns().size()];
        for (int i = 0; i < values.length; i++)
            values[i] = value(table.clusteringColumns().get(i).type);
        return values.length == 0 ? Clustering.EMPTY : Clustering.make(values);
    }

    public PartitionUpdate update(TableMetadata table)
    {
        PartitionUpdate.Builder update = new PartitionUpdate.Builder(table, key(table), table.regularAndStaticColumns(), 4);
        // What a counter has after a deletion depends in Cassandra on what was flushed before: see docs/differences.md.
        boolean deletes = !table.isCounter();
        if (deletes && chance(3))
            update.addPartitionDeletion(deletion(OF_PARTITION));
        if (table.hasStaticColumns() && chance(20))
            update.add(row(table, true));
        if (deletes && chance(15) && !table.clusteringColumns().isEmpty())
            for (int i = random.nextInt(2); i >= 0; i--)
                update.add(new RangeTombstone(slice(table), deletion(OF_RANGE)));
        for (int i = random.nextInt(table.clusteringColumns().isEmpty() ? 2 : 5); i > 0; i--)
            update.add(row(table, false));
        return update.build();
    }

    /**
     * Deletions of different kinds have different timestamps: of two that are equal, Cassandra's memtable keeps both. Those of one timestamp
     * are equal: of ranges that were deleted at one timestamp and in different seconds, Cassandra's memtable keeps the one that came last.
     */
    private DeletionTime deletion(int kind)
    {
        long timestamp = timestamp();
        timestamp += KINDS + kind - timestamp % KINDS;
        return DeletionTime.build(timestamp, seconds + timestamp % 7);
    }

    private Row row(TableMetadata table, boolean isStatic)
    {
        Row.Builder row = BTreeRow.unsortedBuilder();
        row.newRow(isStatic ? Clustering.STATIC_CLUSTERING : clustering(table));
        boolean isCounter = table.isCounter();
        rowDeletion = 0;
        if (!isStatic && !isCounter && chance(10))
        {
            DeletionTime deletion = deletion(OF_ROW);
            row.addRowDeletion(Row.Deletion.regular(deletion));
            rowDeletion = deletion.markedForDeleteAt();
        }
        if (!isStatic && !isCounter && chance(50))
            row.addPrimaryKeyLivenessInfo(liveness());
        boolean sharesTimes = chance(50);
        long timestamp = timestamp();
        int share = chance(40) ? 100 : 30;
        for (ColumnMetadata column : isStatic ? table.staticColumns() : table.regularColumns())
        {
            if (!chance(share))
                continue;
            if (column.isComplex())
                addComplex(row, column);
            else
                row.addCell(cell(column, sharesTimes ? timestamp : timestamp(), null, column.type, sharesTimes));
        }
        rowDeletion = 0;
        return row.build();
    }

    private LivenessInfo liveness()
    {
        if (chance(3))
            return LivenessInfo.withExpirationTime(timestamp(), LivenessInfo.EXPIRED_LIVENESS_TTL, seconds + random.nextInt(4));
        return chance(25) ? LivenessInfo.withExpirationTime(timestamp(), 100 + random.nextInt(3), seconds + 200 + random.nextInt(3))
                          : LivenessInfo.create(timestamp(), seconds);
    }

    private void addComplex(Row.Builder row, ColumnMetadata column)
    {
        long deletedBefore = rowDeletion;
        if (chance(25))
        {
            DeletionTime deletion = deletion(OF_COLUMN);
            row.addComplexDeletion(column, deletion);
            rowDeletion = deletion.markedForDeleteAt();
        }
        for (int i = random.nextInt(4); i > 0; i--)
        {
            AbstractType<?> type = column.type;
            if (type instanceof ListType)
            {
                UUID position = new UUID(0x1000L + ((long) random.nextInt(6) << 32), 0x8080808080808080L);
                row.addCell(cell(column, timestamp(), path(UUIDType.instance.decompose(position)), ((ListType<?>) type).getElementsType(), false));
            }
            else if (type instanceof SetType)
            {
                ByteBuffer element = value(((SetType<?>) type).getElementsType());
                row.addCell(cell(column, timestamp(), path(element), null, false));
            }
            else if (type instanceof MapType)
            {
                MapType<?, ?> map = (MapType<?, ?>) type;
                row.addCell(cell(column, timestamp(), path(value(map.getKeysType())), map.getValuesType(), false));
            }
            else
            {
                UserType fields = (UserType) type;
                short field = (short) random.nextInt(fields.size());
                row.addCell(cell(column, timestamp(), path(ByteBufferUtil.bytes(field)), fields.fieldType(field), false));
            }
        }
        rowDeletion = deletedBefore;
    }

    private static CellPath path(ByteBuffer bytes)
    {
        return CellPath.create(bytes);
    }

    /** A cell; without a type its value is empty. */
    private Cell<?> cell(ColumnMetadata column, long timestamp, CellPath path, AbstractType<?> type, boolean isLive)
    {
        int kind = isLive ? 2 : random.nextInt(10);
        if (kind == 0)
            return BufferCell.tombstone(column, timestamp, seconds + random.nextInt(4), path);
        if (type instanceof CounterColumnType)
            return BufferCell.live(column, timestamp, counter(), path);
        ByteBuffer value = type == null ? ByteBufferUtil.EMPTY_BYTE_BUFFER : value(type);
        if (kind == 1)
        {
            int ttl = 100 + random.nextInt(3);
            return BufferCell.expiring(column, timestamp, ttl, seconds + random.nextInt(3) + ttl, value, path);
        }
        return BufferCell.live(column, timestamp, value, path);
    }

    private ByteBuffer counter()
    {
        return CounterContext.instance().createGlobal(CounterId.fromInt(random.nextInt(3)), random.nextInt(20), random.nextInt(100));
    }

    /** A slice that is not empty. */
    Slice slice(TableMetadata table)
    {
        while (true)
        {
            Slice slice = chance(20) ? Slice.make(clustering(table)) : Slice.make(bound(table, true), bound(table, false));
            if (!slice.isEmpty(table.comparator))
                return slice;
        }
    }

    private ClusteringBound<?> bound(TableMetadata table, boolean isStart)
    {
        if (chance(10))
            return isStart ? ClusteringBound.BOTTOM : ClusteringBound.TOP;
        ClusteringPrefix.Kind kind = ClusteringBound.boundKind(isStart, chance(50));
        ByteBuffer[] whole = clustering(table).getBufferArray();
        ByteBuffer[] prefix = new ByteBuffer[1 + random.nextInt(whole.length)];
        System.arraycopy(whole, 0, prefix, 0, prefix.length);
        return BufferClusteringBound.create(kind, prefix);
    }

    Slices slices(TableMetadata table)
    {
        if (table.clusteringColumns().isEmpty() || chance(30))
            return Slices.ALL;
        if (chance(5))
            return Slices.NONE;
        Slices.Builder slices = new Slices.Builder(table.comparator);
        for (int i = random.nextInt(3); i >= 0; i--)
            slices.add(slice(table));
        Slices made = slices.build();
        // Of two slices that touch, Cassandra's memtable ends and begins the ranges where they do.
        for (int i = 1; i < made.size(); i++)
            if (table.comparator.compare(made.get(i - 1).end(), made.get(i).start()) == 0)
                return Slices.ALL;
        return made;
    }
}
