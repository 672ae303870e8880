import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.management.GarbageCollectorMXBean;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;

import org.apache.cassandra.db.ColumnFamilyStore;
import org.apache.cassandra.db.Keyspace;
import org.apache.cassandra.db.memtable.Memtable;
import org.apache.cassandra.io.compress.ICompressor;
import org.apache.cassandra.io.compress.LZ4Compressor;
import org.apache.cassandra.service.CassandraDaemon;
import org.apache.cassandra.service.StorageService;

/**
 * A Cassandra node that is controlled through standard input, as the oracle's, with what benchmarks ask.
 *
 * One command per line, words separated by tabs; one answer line per command, "ok ..." or "error ...": flush KEYSPACE
 * TABLE, compact KEYSPACE TABLE, import KEYSPACE TABLE DIRECTORY, sstables KEYSPACE TABLE, lz4 FILE CHUNK_LENGTH
 * (nanoseconds of the thread to compress and to decompress the file in chunks), memtable KEYSPACE TABLE (bytes on and
 * off heap, flushes so far), gc (milliseconds so far)
 */
public class BenchNode
{
    private static final int CODEC_PASSES = 3;

    public static void main(String[] args) throws Exception
    {
        PrintStream answers = System.out;
        System.setOut(System.err);
        CassandraDaemon.main(args);
        answers.println("ok ready");
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine())
            answers.println(answer(line.split("\t")));
        Runtime.getRuntime().halt(0);
    }

    private static String answer(String[] words)
    {
        try
        {
            return "ok " + carryOut(words);
        }
        catch (Throwable failure)
        {
            return "error " + failure.toString().replace('\n', ' ');
        }
    }

    private static String carryOut(String[] words) throws Exception
    {
        switch (words[0])
        {
            case "flush":
                StorageService.instance.forceKeyspaceFlush(words[1], words[2]);
                return "";
            case "compact":
                StorageService.instance.forceKeyspaceCompaction(false, words[1], words[2]);
                return "";
            case "import":
                return importTables(Keyspace.open(words[1]).getColumnFamilyStore(words[2]), words[3]);
            case "sstables":
                return Keyspace.open(words[1]).getColumnFamilyStore(words[2]).getLiveSSTables().stream()
                               .map(table -> table.getFilename()).collect(Collectors.joining("\t"));
            case "lz4":
                return lz4(Path.of(words[1]), Integer.parseInt(words[2]));
            case "memtable":
                return memtable(Keyspace.open(words[1]).getColumnFamilyStore(words[2]));
            case "gc":
                return String.valueOf(collectionMillis());
            default:
                throw new IllegalArgumentException("unknown command " + Arrays.toString(words));
        }
    }

    private static String memtable(ColumnFamilyStore store)
    {
        Memtable.MemoryUsage usage = Memtable.getMemoryUsage(store.getTracker().getView().getCurrentMemtable());
        return usage.ownsOnHeap + "\t" + usage.ownsOffHeap + "\t" + store.metric.memtableSwitchCount.getCount();
    }

    /** As nodetool import --copy-data --no-verify. */
    private static String importTables(ColumnFamilyStore store, String directory)
    {
        List<String> failed = store.importNewSSTables(Set.of(directory), true, true, false, false, false, false, true);
        if (!failed.isEmpty())
            throw new IllegalStateException("not imported: " + failed);
        return "";
    }

    /** What the codec alone takes: the last of a few passes over the file. */
    private static String lz4(Path file, int chunkLength) throws Exception
    {
        ICompressor codec = LZ4Compressor.create(Map.of());
        byte[] data = Files.readAllBytes(file);
        ByteBuffer plain = ByteBuffer.allocateDirect(chunkLength);
        ByteBuffer packed = ByteBuffer.allocateDirect(codec.initialCompressedBufferLength(chunkLength));
        long compressing = 0, decompressing = 0;
        for (int pass = 0; pass < CODEC_PASSES; pass++)
        {
            compressing = decompressing = 0;
            for (int start = 0; start < data.length; start += chunkLength)
            {
                plain.clear().put(data, start, Math.min(chunkLength, data.length - start)).flip();
                packed.clear();
                long before = ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime();
                codec.compress(plain, packed);
                long between = ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime();
                packed.flip();
                plain.clear();
                codec.uncompress(packed, plain);
                compressing += between - before;
                decompressing += ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime() - between;
            }
        }
        return compressing + "\t" + decompressing;
    }

    private static long collectionMillis()
    {
        return ManagementFactory.getGarbageCollectorMXBeans().stream().mapToLong(GarbageCollectorMXBean::getCollectionTime).sum();
    }
}
