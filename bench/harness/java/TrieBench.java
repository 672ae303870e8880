import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.util.concurrent.ConcurrentSkipListMap;

import org.apache.cassandra.config.DatabaseDescriptor;
import org.apache.cassandra.db.DecoratedKey;
import org.apache.cassandra.db.PartitionPosition;
import org.apache.cassandra.db.tries.InMemoryTrie;
import org.apache.cassandra.dht.Murmur3Partitioner;
import org.apache.cassandra.io.compress.BufferType;

/**
 * Cassandra's memtable trie and the skip list of its older memtable under the keys of the Rust peers: TrieBench COUNT
 * KIND, KIND trie or skiplist. One line of JSON per figure, in the thread's processor time. The compiler is warmed up
 * first. Answers are checked.
 */
public class TrieBench
{
    private static final int RECURSIVE_KEY_LIMIT = 128;
    private static final int WARMUP_KEYS = 200_000;
    private static final int WARMUP_ROUNDS = 5;
    /** So many gets of a kind, over all keys. */
    private static final long GETS_MAX = 1_000_000;
    private static final long STRIDE = 7_368_787;

    interface OrderedMap
    {
        void insert(DecoratedKey key, Long value) throws Exception;
        Long get(DecoratedKey key);
        long heldBytes();
    }

    public static void main(String[] args) throws Exception
    {
        DatabaseDescriptor.clientInitialization(false);
        int count = Integer.parseInt(args[0]);
        boolean trie = args[1].equals("trie");
        for (int round = 0; round < WARMUP_ROUNDS; round++)
            measure(trie ? new Trie() : new SkipList(), WARMUP_KEYS, null);
        measure(trie ? new Trie() : new SkipList(), count, trie ? "Cassandra InMemoryTrie" : "Cassandra skip list");
    }

    private static void measure(OrderedMap map, long count, String name) throws Exception
    {
        long before = usedHeap(name);
        long start = cpuNanos();
        for (long index = 0; index < count; index++)
            map.insert(key(index), index);
        say(name, "insert, cold memory", (cpuNanos() - start) / (double) count);
        long held = map.heldBytes() >= 0 ? map.heldBytes() : usedHeap(name) - before;
        say(name, "bytes per key without the value", held / (double) count);
        long gets = Math.min(count, GETS_MAX);
        long[] probes = new long[(int) gets];
        for (int index = 0; index < gets; index++)
            probes[index] = Long.remainderUnsigned(mix(index), count);
        start = cpuNanos();
        for (long probe : probes)
            expect(map.get(key(probe)), probe);
        say(name, "get, hit", (cpuNanos() - start) / (double) gets);
        start = cpuNanos();
        for (long index = count; index < count + gets; index++)
            expect(map.get(key(index)), null);
        say(name, "get, miss", (cpuNanos() - start) / (double) gets);
        start = cpuNanos();
        long probe = 0;
        for (long index = 0; index < gets; index++)
            probe = (map.get(key(probe)) + STRIDE) % count;
        say(name, "get, dependent", (cpuNanos() - start) / (double) gets);
    }

    static class Trie implements OrderedMap
    {
        private final InMemoryTrie<Long> trie = new InMemoryTrie<>(BufferType.OFF_HEAP);

        public void insert(DecoratedKey key, Long value) throws Exception
        {
            trie.putSingleton(key, value, (old, update) -> update, key.getKeyLength() < RECURSIVE_KEY_LIMIT);
        }

        public Long get(DecoratedKey key)
        {
            return trie.get(key);
        }

        public long heldBytes()
        {
            return trie.sizeOffHeap();
        }
    }

    static class SkipList implements OrderedMap
    {
        private final ConcurrentSkipListMap<PartitionPosition, Long> map = new ConcurrentSkipListMap<>();

        public void insert(DecoratedKey key, Long value)
        {
            map.put(key, value);
        }

        public Long get(DecoratedKey key)
        {
            return map.get(key);
        }

        public long heldBytes()
        {
            return -1;
        }
    }

    /** The partition of a number: sixteen bytes that look random. */
    static DecoratedKey key(long index)
    {
        long seed = index * 0x9E3779B97F4A7C15L;
        ByteBuffer key = ByteBuffer.allocate(16);
        key.putLong(0, mix(seed)).putLong(8, mix(seed ^ 1));
        return Murmur3Partitioner.instance.decorateKey(key);
    }

    static long mix(long z)
    {
        z = (z ^ (z >>> 30)) * 0xBF58476D1CE4E5B9L;
        z = (z ^ (z >>> 27)) * 0x94D049BB133111EBL;
        return z ^ (z >>> 31);
    }

    private static void expect(Long got, Long wanted)
    {
        if (got == null ? wanted != null : !got.equals(wanted))
            throw new AssertionError("got " + got + ", not " + wanted);
    }

    private static long cpuNanos()
    {
        return ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime();
    }

    private static long usedHeap(String name)
    {
        if (name != null)
            System.gc();
        return Runtime.getRuntime().totalMemory() - Runtime.getRuntime().freeMemory();
    }

    private static void say(String peer, String figure, double value)
    {
        if (peer != null)
            System.out.printf("{\"peer\": \"%s\", \"figure\": \"%s\", \"value\": %.2f}%n", peer, figure, value);
    }
}
