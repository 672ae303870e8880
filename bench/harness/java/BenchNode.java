import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.management.GarbageCollectorMXBean;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;

import org.apache.cassandra.db.ColumnFamilyStore;
import org.apache.cassandra.db.Keyspace;
import org.apache.cassandra.db.memtable.Memtable;
import org.apache.cassandra.service.CassandraDaemon;
import org.apache.cassandra.service.StorageService;

/**
 * A Cassandra node that is steered through standard input, as the oracle's, with what benchmarks ask.
 *
 * One command per line, words separated by tabs; one answer line per command, "ok ..." or "error ...":
 * flush KEYSPACE TABLE, compact KEYSPACE TABLE, memtable KEYSPACE TABLE (bytes on and off heap, flushes so far), gc (milliseconds so far)
 */
public class BenchNode
{
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

    private static long collectionMillis()
    {
        return ManagementFactory.getGarbageCollectorMXBeans().stream().mapToLong(GarbageCollectorMXBean::getCollectionTime).sum();
    }
}
