import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;

import org.apache.cassandra.audit.AuditLogManager;
import org.apache.cassandra.audit.AuditLogOptions;
import org.apache.cassandra.db.ColumnFamilyStore;
import org.apache.cassandra.db.Keyspace;
import org.apache.cassandra.io.sstable.format.SSTableReader;
import org.apache.cassandra.service.CassandraDaemon;
import org.apache.cassandra.service.StorageService;

/**
 * A Cassandra node that is steered through standard input instead of JMX: no second JVM per nodetool verb,
 * and the node ends when its parent does (end of input).
 *
 * One command per line, words separated by tabs; one answer line per command on standard output, "ok ..." or
 * "error ...". Everything else Cassandra prints goes to standard error.
 *
 * flush [KEYSPACE [TABLE]], compact KEYSPACE [TABLE], import KEYSPACE TABLE DIRECTORY, verify KEYSPACE TABLE,
 * sstables KEYSPACE TABLE, enable_audit_log [NAME=VALUE ...], disable_audit_log, audit_options, stop, and the commands
 * of RingCommands
 */
public class OracleNode
{
    public static void main(String[] args) throws Exception
    {
        PrintStream answers = System.out;
        System.setOut(System.err);
        CassandraDaemon.main(args);
        answers.println("ok ready");
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine())
        {
            String[] words = line.split("\t");
            if (words[0].equals("stop"))
                break;
            answers.println(answer(words));
        }
        Runtime.getRuntime().halt(0);
    }

    private static String answer(String[] words)
    {
        try
        {
            return "ok " + execute(words);
        }
        catch (Throwable failure)
        {
            failure.printStackTrace();
            return "error " + failure.toString().replace('\n', ' ');
        }
    }

    private static String execute(String[] words) throws Exception
    {
        String[] tables = words.length > 2 ? new String[] { words[2] } : new String[0];
        switch (words[0])
        {
            case "flush":
                flush(words, tables);
                return "";
            case "compact":
                StorageService.instance.forceKeyspaceCompaction(false, words[1], tables);
                return "";
            case "drain":
                StorageService.instance.drain();
                return "";
            case "import":
                return importTables(store(words), words[3]);
            case "verify":
                return verify(words[1], words[2]);
            case "take_snapshot":
                StorageService.instance.takeSnapshot(words[3], java.util.Map.of(), words[1] + "." + words[2]);
                return "";
            case "sstables":
                return sstables(store(words));
            case "enable_audit_log":
                enableAuditLog(words);
                return "";
            case "disable_audit_log":
                StorageService.instance.disableAuditLog();
                return "";
            case "audit_options":
                return auditOptions();
            default:
                return RingCommands.execute(words);
        }
    }

    /** As nodetool enableauditlog: what is not named is null. */
    private static void enableAuditLog(String[] words) throws Exception
    {
        Map<String, String> options = new HashMap<>();
        for (String word : Arrays.copyOfRange(words, 1, words.length))
            options.put(word.substring(0, word.indexOf('=')), word.substring(word.indexOf('=') + 1));
        StorageService.instance.enableAuditLog(options.get("logger"), Map.of(),
                                               options.get("included_keyspaces"), options.get("excluded_keyspaces"),
                                               options.get("included_categories"), options.get("excluded_categories"),
                                               options.get("included_users"), options.get("excluded_users"),
                                               Integer.MIN_VALUE, null, null, Long.MIN_VALUE, Integer.MIN_VALUE, null);
    }

    /** The filter that nodetool getauditlog prints. */
    private static String auditOptions()
    {
        AuditLogOptions options = AuditLogManager.instance.getAuditLogOptions();
        return String.join("\t",
                           "enabled=" + StorageService.instance.isAuditLogEnabled(),
                           "included_keyspaces=" + options.included_keyspaces,
                           "excluded_keyspaces=" + options.excluded_keyspaces,
                           "included_categories=" + options.included_categories,
                           "excluded_categories=" + options.excluded_categories,
                           "included_users=" + options.included_users,
                           "excluded_users=" + options.excluded_users);
    }

    private static void flush(String[] words, String[] tables) throws Exception
    {
        if (words.length > 1)
            StorageService.instance.forceKeyspaceFlush(words[1], tables);
        else
            for (String keyspace : StorageService.instance.getNonLocalStrategyKeyspaces())
                StorageService.instance.forceKeyspaceFlush(keyspace);
    }

    private static ColumnFamilyStore store(String[] words)
    {
        return Keyspace.open(words[1]).getColumnFamilyStore(words[2]);
    }

    /** As nodetool import --extended-verify --copy-data. */
    private static String importTables(ColumnFamilyStore store, String directory)
    {
        List<String> failed = store.importNewSSTables(Set.of(directory), true, true, true, true, true, true, true);
        if (!failed.isEmpty())
            throw new IllegalStateException("not imported: " + failed);
        return String.valueOf(store.getLiveSSTables().size());
    }

    /** As nodetool verify --extended-verify --check-version --check-tokens. */
    private static String verify(String keyspace, String table) throws Exception
    {
        int status = StorageService.instance.verify(true, true, false, false, true, false, keyspace, table);
        if (status != 0)
            throw new IllegalStateException("verify returned status " + status);
        return "";
    }

    private static String sstables(ColumnFamilyStore store)
    {
        StringBuilder names = new StringBuilder();
        for (SSTableReader table : store.getLiveSSTables())
            names.append(names.length() == 0 ? "" : "\t").append(table.getFilename());
        return names.toString();
    }
}
