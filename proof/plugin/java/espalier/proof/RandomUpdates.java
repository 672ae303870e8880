package espalier.proof;

import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Date;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.UUID;

import org.apache.cassandra.cql3.Duration;
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
import org.apache.cassandra.db.marshal.AsciiType;
import org.apache.cassandra.db.marshal.BooleanType;
import org.apache.cassandra.db.marshal.ByteType;
import org.apache.cassandra.db.marshal.BytesType;
import org.apache.cassandra.db.marshal.CounterColumnType;
import org.apache.cassandra.db.marshal.DecimalType;
import org.apache.cassandra.db.marshal.DoubleType;
import org.apache.cassandra.db.marshal.DurationType;
import org.apache.cassandra.db.marshal.FloatType;
import org.apache.cassandra.db.marshal.InetAddressType;
import org.apache.cassandra.db.marshal.Int32Type;
import org.apache.cassandra.db.marshal.IntegerType;
import org.apache.cassandra.db.marshal.ListType;
import org.apache.cassandra.db.marshal.LongType;
import org.apache.cassandra.db.marshal.MapType;
import org.apache.cassandra.db.marshal.SetType;
import org.apache.cassandra.db.marshal.ShortType;
import org.apache.cassandra.db.marshal.SimpleDateType;
import org.apache.cassandra.db.marshal.TimeType;
import org.apache.cassandra.db.marshal.TimeUUIDType;
import org.apache.cassandra.db.marshal.TimestampType;
import org.apache.cassandra.db.marshal.TupleType;
import org.apache.cassandra.db.marshal.UTF8Type;
import org.apache.cassandra.db.marshal.UUIDType;
import org.apache.cassandra.db.marshal.UserType;
import org.apache.cassandra.db.marshal.VectorType;
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
    private static final float[] FLOATS = { -1.5f, -0.0f, 0.0f, 2.25f, Float.NaN };
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
    /**
     * The timestamp of the deletion of the row, or of the column, that is made. An update has nothing that its own
     * deletion deletes.
     */
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
            values[i] = keyValue(table.partitionKeyColumns().get(i).type);
        ByteBuffer key = values.length == 1 ? values[0] : Clustering.make(values).serializeAsPartitionKey();
        return table.partitioner.decorateKey(key);
    }

    private ByteBuffer keyValue(AbstractType<?> type)
    {
        if (type == UTF8Type.instance)
            return ByteBufferUtil.bytes("key" + random.nextInt(KEYS));
        return type == Int32Type.instance ? ByteBufferUtil.bytes(random.nextInt(KEYS)) : value(type);
    }

    /**
     * A value of a cell. That of a user type may be from before its last field was added. Such keys would be equal, in
     * different forms.
     */
    private ByteBuffer cellValue(AbstractType<?> type)
    {
        return type instanceof TupleType && chance(20) ? tuple((TupleType) type, type.subTypes().size() - 1) : valueOrEmpty(type);
    }

    /** A value or, where the type has it, now and then the empty one. */
    private ByteBuffer valueOrEmpty(AbstractType<?> type)
    {
        return type.allowsEmpty() && chance(4) ? ByteBufferUtil.EMPTY_BYTE_BUFFER : value(type);
    }

    ByteBuffer value(AbstractType<?> type)
    {
        type = type.unwrap();
        ByteBuffer value = number(type);
        if (value == null)
            value = time(type);
        if (value == null)
            value = textOrBytes(type);
        if (value == null)
            value = compound(type);
        if (value == null)
            throw new IllegalArgumentException(type.toString());
        return value;
    }

    private ByteBuffer number(AbstractType<?> type)
    {
        if (type == Int32Type.instance)
            return ByteBufferUtil.bytes(random.nextInt(8) - 2);
        if (type == LongType.instance)
            return ByteBufferUtil.bytes((long) random.nextInt(8) - 2);
        if (type == BooleanType.instance)
            return BooleanType.instance.decompose(random.nextBoolean());
        if (type == ByteType.instance)
            return ByteType.instance.decompose((byte) (random.nextInt(5) - 2));
        if (type == ShortType.instance)
            return ShortType.instance.decompose((short) (random.nextInt(5) * 300 - 600));
        if (type == FloatType.instance)
            return FloatType.instance.decompose(FLOATS[random.nextInt(FLOATS.length)]);
        if (type == DoubleType.instance)
            return ByteBufferUtil.bytes(random.nextInt(8) / 4.0 - 1);
        if (type == DecimalType.instance)
            // No two of them are equal: equal clusterings of different forms keep one of them, and which is not said.
            return DecimalType.instance.decompose(new BigDecimal(BigInteger.valueOf(2L * random.nextInt(5) - 3), random.nextInt(3)));
        if (type == IntegerType.instance)
            return IntegerType.instance.decompose(BigInteger.valueOf(random.nextInt(5) * 1_000L - 2_000));
        return null;
    }

    private ByteBuffer time(AbstractType<?> type)
    {
        if (type == SimpleDateType.instance)
            // Days, of which the first one of 1970 is in the middle.
            return ByteBufferUtil.bytes(Integer.MIN_VALUE + random.nextInt(5) - 2);
        if (type == TimeType.instance)
            return TimeType.instance.decompose(random.nextInt(4) * 20_000_000_000_000L);
        if (type == TimestampType.instance)
            return TimestampType.instance.decompose(new Date(random.nextInt(5) * 1_000_000_000L - 2_000_000_000L));
        if (type == DurationType.instance)
            return DurationType.instance.decompose(Duration.newInstance(-random.nextInt(20), -random.nextInt(300), -random.nextInt(3) * 5_000_000_000L));
        if (type == TimeUUIDType.instance)
            return ByteBuffer.allocate(16).putLong(0, 0x1000L + ((long) random.nextInt(3) << 32)).putLong(8, 0x8080808080808080L + random.nextInt(2));
        return null;
    }

    private ByteBuffer textOrBytes(AbstractType<?> type)
    {
        if (type == UTF8Type.instance)
            return ByteBufferUtil.bytes(text());
        if (type == AsciiType.instance)
            return AsciiType.instance.decompose(text());
        if (type == BytesType.instance)
            return ByteBuffer.wrap(blob());
        if (type == UUIDType.instance)
            return UUIDType.instance.decompose(new UUID(0x4000L, 0x8000000000000000L | random.nextInt(6)));
        if (type == InetAddressType.instance)
        {
            ByteBuffer address = ByteBuffer.allocate(chance(50) ? 4 : 16);
            return address.put(address.limit() - 1, (byte) (126 + random.nextInt(4)));
        }
        return null;
    }

    /** A value of a type that has others: frozen, or a vector. */
    private ByteBuffer compound(AbstractType<?> type)
    {
        if (type instanceof ListType)
            return list((ListType<?>) type);
        if (type instanceof SetType)
            return set((SetType<?>) type);
        if (type instanceof MapType)
            return map((MapType<?, ?>) type);
        if (type instanceof TupleType)
            return tuple((TupleType) type, type.subTypes().size());
        return type instanceof VectorType ? vector((VectorType<?>) type) : null;
    }

    private <T> ByteBuffer list(ListType<T> type)
    {
        List<T> list = new ArrayList<>();
        for (int i = random.nextInt(3); i >= 0; i--)
            list.add(composed(type.getElementsType()));
        return type.decompose(list);
    }

    private <T> ByteBuffer set(SetType<T> type)
    {
        Set<T> set = new HashSet<>();
        for (int i = random.nextInt(3); i >= 0; i--)
            set.add(composed(type.getElementsType()));
        return type.decompose(set);
    }

    private <K, V> ByteBuffer map(MapType<K, V> type)
    {
        Map<K, V> map = new HashMap<>();
        for (int i = random.nextInt(3); i >= 0; i--)
            map.put(composed(type.getKeysType()), composed(type.getValuesType()));
        return type.decompose(map);
    }

    private <T> T composed(AbstractType<T> type)
    {
        return type.compose(value(type));
    }

    /** A value of a tuple or a user type, with its first fields. */
    private ByteBuffer tuple(TupleType type, int size)
    {
        ByteBuffer[] fields = new ByteBuffer[size];
        for (int i = 0; i < size; i++)
            fields[i] = chance(20) ? null : value(type.type(i));
        return TupleType.buildValue(fields);
    }

    private ByteBuffer vector(VectorType<?> type)
    {
        List<ByteBuffer> elements = new ArrayList<>();
        for (int i = 0; i < type.dimension; i++)
            elements.add(value(type.elementType));
        return type.decomposeRaw(elements);
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
            values[i] = valueOrEmpty(table.clusteringColumns().get(i).type);
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
     * Deletions of different kinds have different timestamps: of two that are equal, Cassandra's memtable keeps both.
     * Those of one timestamp are equal: of ranges that were deleted at one timestamp and in different seconds,
     * Cassandra's memtable keeps the one that came last.
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
        ByteBuffer value = type == null ? ByteBufferUtil.EMPTY_BYTE_BUFFER : cellValue(type);
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
