package espalier.cassandra;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.UUID;

import org.apache.cassandra.db.ColumnFamilyStore;
import org.apache.cassandra.db.Directories;
import org.apache.cassandra.io.util.File;
import org.apache.cassandra.schema.TableId;

/**
 * The files that the engine has of a table, in Cassandra's snapshot of the table.
 *
 * Cassandra lists, removes and expires what is in its own directories. That is also how the snapshots go which a repair
 * takes that is sequential, or parallel among data centers only: one for each range.
 */
final class EngineSnapshot
{
    /** The engine's next start removes a snapshot whose name begins with this. */
    private static final String UNFINISHED = ".";
    /** The names of all files of the engine's SSTables have this. A snapshot of the engine has two other files. */
    private static final String FORMAT = "-bti-";
    /** The attribute of a file that tells file systems apart. */
    private static final String DEVICE = "unix:dev";

    private EngineSnapshot()
    {
    }

    /**
     * Flushes a table of the engine and puts its files into Cassandra's snapshot of that name, which need not exist.
     * They are links to the engine's files, or copies where its directory is on another file system than Cassandra's.
     */
    static void addTo(String name, ColumnFamilyStore store, StorageEngine engine, MemtableHandle handle)
    {
        String own = UNFINISHED + UUID.randomUUID();
        handle.snapshot(Requests.snapshot(own, ""));
        try
        {
            Path taken = find(engine.directory(), store.metadata().id, own);
            move(taken, Directories.getSnapshotDirectory(placeFor(taken, store.getDirectories()), name).toPath());
        }
        catch (IOException failure)
        {
            throw new UncheckedIOException("EspalierMemtable: the snapshot " + name + " of " + store.metadata() + " is not complete", failure);
        }
    }

    /** The directory of a snapshot of the engine: {@code data/t<id>_<generation>/<table>/snapshots/<name>}. */
    private static Path find(Path engine, TableId id, String name) throws IOException
    {
        String keyspaces = "t" + id.asUUID().toString().replace("-", "") + "_*";
        try (DirectoryStream<Path> generations = Files.newDirectoryStream(engine.resolve("data"), keyspaces))
        {
            for (Path generation : generations)
                try (DirectoryStream<Path> tables = Files.newDirectoryStream(generation))
                {
                    for (Path table : tables)
                    {
                        Path snapshot = table.resolve("snapshots").resolve(name);
                        if (Files.isDirectory(snapshot))
                            return snapshot;
                    }
                }
        }
        throw new NoSuchFileException(name);
    }

    /** A directory of the table, where there is one on the file system of the engine: nothing is copied then. */
    private static File placeFor(Path taken, Directories directories) throws IOException
    {
        Object ofEngine = Files.getAttribute(taken, DEVICE);
        for (File directory : directories.getCFDirectories())
            if (Files.getAttribute(directory.toPath(), DEVICE).equals(ofEngine))
                return directory;
        return directories.getDirectoryForNewSSTables();
    }

    private static void move(Path taken, Path snapshot) throws IOException
    {
        try (DirectoryStream<Path> files = Files.newDirectoryStream(taken))
        {
            for (Path file : files)
            {
                Path place = snapshot.resolve(file.getFileName());
                // A repair takes a snapshot under the same name for each of its ranges.
                if (file.getFileName().toString().contains(FORMAT) && !Files.exists(place))
                    Files.move(file, place);
                else
                    Files.delete(file);
            }
        }
        Files.delete(taken);
    }
}
