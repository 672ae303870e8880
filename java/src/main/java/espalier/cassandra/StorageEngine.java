package espalier.cassandra;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.Collection;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import org.apache.cassandra.concurrent.ScheduledExecutors;
import org.apache.cassandra.exceptions.ConfigurationException;
import org.apache.cassandra.schema.Schema;
import org.apache.cassandra.schema.SchemaChangeListener;
import org.apache.cassandra.schema.TableId;
import org.apache.cassandra.schema.TableMetadata;
import org.apache.cassandra.service.StorageService;

/**
 * The engine of mode {@code storage}: one in a JVM. It is opened when the first table needs it, in the constructor of
 * the table, so a node whose engine cannot be opened does not start.
 */
final class StorageEngine
{
    private static final Logger logger = LoggerFactory.getLogger(StorageEngine.class);
    private static final long CLOSE_MILLIS = 60_000;
    private static final long NOTE_MILLIS = 1000;
    /** Which generation of a table is opened; the numbers are those of {@link Native#openStored}. */
    static final int EXISTING_OR_FIRST = 0, NEXT = 1, EXISTING = 2;

    private static StorageEngine open;

    private final StorageSettings settings;
    private final long store;
    /** The memtables that Cassandra has not discarded, the newest of each table. */
    private final ConcurrentHashMap<TableId, StoredMemtable> memtables = new ConcurrentHashMap<>();
    final LogOfCassandra log = new LogOfCassandra(this::memtables);

    private StorageEngine(StorageSettings settings)
    {
        this.settings = settings;
        Buffers.Output request = settings.request();
        Buffers.Reply reply = Buffers.reply();
        store = reply.check(Native.openStore(request.address(), request.length(), reply.address(), reply.capacity()));
    }

    /** The engine, which is opened if it is not. Throws if it cannot be opened, or has other settings. */
    static synchronized StorageEngine of(StorageSettings settings)
    {
        NativeLibrary.ensureLoaded();
        if (open == null)
        {
            StorageEngine opened = new StorageEngine(settings);
            opened.start();
            open = opened;
        }
        if (!open.settings.equals(settings))
            throw new ConfigurationException("EspalierMemtable: a JVM has one engine, and it was opened with " + open.settings + ", not with "
                                             + settings);
        return open;
    }

    private void start()
    {
        Schema.instance.registerListener(new SchemaChangeListener()
        {
            @Override
            public void onPreAlterTable(TableMetadata before, TableMetadata after)
            {
                log.beforeAlter(before, after);
            }

            @Override
            public void onDropTable(TableMetadata table, boolean dropData)
            {
                if (dropData)
                    dropped(table);
            }
        });
        StorageService.instance.addPostShutdownHook(this::close);
        log.start();
        CleanUp.install(this);
        SizeEstimates.start(this);
        report();
        ScheduledExecutors.optionalTasks.scheduleWithFixedDelay(this::noteRowsOfCassandra, NOTE_MILLIS, NOTE_MILLIS, TimeUnit.MILLISECONDS);
    }

    private void noteRowsOfCassandra()
    {
        // Before that, Cassandra has not opened all its SSTables.
        if (!StorageService.instance.isDaemonSetupCompleted())
            return;
        for (StoredMemtable memtable : memtables.values())
        {
            try
            {
                memtable.noteRowsOfCassandra();
            }
            catch (RuntimeException failure)
            {
                logger.warn("The engine keeps the tombstones of {}", memtable.metadata(), failure);
            }
        }
    }

    /** Logs what the engine has that no table of mode storage will show. */
    private void report()
    {
        for (String line : listing().split("\n"))
        {
            if (line.startsWith("!"))
            {
                logger.error("The engine of EspalierMemtable: {}", line.substring(1));
                continue;
            }
            String[] parts = line.split(" ");
            if (parts.length != 3 || parts[2].equals("0"))
                continue;
            TableMetadata table = Schema.instance.getTableMetadata(TableId.fromUUID(uuid(parts[0])));
            if (table == null)
                logger.warn("{} has rows of a table {} with the id {}, which does not exist", settings.directory, parts[1], parts[0]);
            else if (!(table.params.memtable.factory() instanceof StorageUser))
                logger.error("{} has rows of {}, whose memtable is '{}': a move out of mode storage was interrupted. They are not read. "
                             + "ALTER TABLE {} WITH memtable = a configuration of mode storage brings them back",
                             settings.directory, table, table.params.memtable.configurationKey(), table);
        }
    }

    private static UUID uuid(String digits)
    {
        return new UUID(Long.parseUnsignedLong(digits.substring(0, 16), 16), Long.parseUnsignedLong(digits.substring(16), 16));
    }

    private String listing()
    {
        Buffers.Reply reply = Buffers.reply();
        reply.check(Native.listing(store, reply.address(), reply.capacity()));
        if (reply.status() == Buffers.Reply.TOO_SMALL)
        {
            long rest = reply.handle();
            reply = new Buffers.Reply(ByteBuffer.allocateDirect(reply.length()));
            reply.check(Native.takeChanges(rest, reply.address(), reply.capacity()));
        }
        return StandardCharsets.UTF_8.decode(reply.content()).toString();
    }

    /** Where the engine keeps its files. */
    Path directory()
    {
        return settings.directory;
    }

    /** Whether the engine has a table of that id. */
    boolean keeps(TableId id)
    {
        Buffers.Reply reply = Buffers.reply();
        UUID uuid = id.asUUID();
        return reply.check(Native.keeps(store, uuid.getMostSignificantBits(), uuid.getLeastSignificantBits(), reply.address(),
                                        reply.capacity())) != 0;
    }

    /** Opens a generation of a table; null if the choice is one that may find none. */
    MemtableHandle open(TableMetadata table, int choice)
    {
        return MemtableHandle.openStored(store, table, choice);
    }

    /** The newest memtable of a table that was not discarded; null if there is none. */
    StoredMemtable memtable(TableId id)
    {
        return memtables.get(id);
    }

    /** The newest memtables of all tables that were not discarded. */
    Collection<StoredMemtable> memtables()
    {
        return memtables.values();
    }

    void created(StoredMemtable memtable)
    {
        memtables.put(memtable.metadata().id, memtable);
    }

    void discarded(StoredMemtable memtable)
    {
        memtables.remove(memtable.metadata().id, memtable);
    }

    private void dropped(TableMetadata table)
    {
        memtables.remove(table.id);
        log.dropped(table.id);
        UUID uuid = table.id.asUUID();
        Buffers.Reply reply = Buffers.reply();
        try
        {
            reply.check(Native.removeStored(store, uuid.getMostSignificantBits(), uuid.getLeastSignificantBits(), reply.address(),
                                            reply.capacity()));
        }
        catch (IllegalStateException failure)
        {
            logger.error("The files of {} are left in {}", table, settings.directory, failure);
        }
    }

    private void close()
    {
        Buffers.Reply reply = Buffers.reply();
        try
        {
            reply.check(Native.closeStore(store, CLOSE_MILLIS, reply.address(), reply.capacity()));
        }
        catch (IllegalStateException failure)
        {
            logger.error("The engine in {} keeps records in its log for the next start", settings.directory, failure);
        }
    }
}
