package espalier.cassandra;

import java.io.IOException;
import java.nio.file.DirectoryIteratorException;
import java.nio.file.DirectoryNotEmptyException;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.UUID;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import org.apache.cassandra.db.ColumnFamilyStore;
import org.apache.cassandra.db.Directories;
import org.apache.cassandra.io.FSError;
import org.apache.cassandra.io.util.File;
import org.apache.cassandra.schema.TableId;

/**
 * The files that the engine has of a table, in Cassandra's snapshot of the table.
 *
 * Cassandra lists, removes and expires what is in its own directories. A sequential repair, and one that is parallel
 * among data centers only, takes a snapshot for each range, which is removed in the same way.
 */
final class EngineSnapshot
{
    private static final Logger logger = LoggerFactory.getLogger(EngineSnapshot.class);
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
     *
     * Throws an {@link IllegalStateException} if a disk is full or fails. None of the files is in the snapshot then.
     */
    static void addTo(String name, ColumnFamilyStore store, StorageEngine engine, MemtableHandle handle)
    {
        String own = UNFINISHED + UUID.randomUUID();
        try
        {
            handle.snapshot(Requests.snapshot(own, ""));
            Path taken = find(engine.directory(), store.metadata().id, own);
            if (taken == null)
                throw new NoSuchFileException(own);
            move(taken, Directories.getSnapshotDirectory(placeFor(taken, store.getDirectories()), name).toPath());
        }
        catch (IOException | IllegalStateException | FSError failure)
        {
            throw new IllegalStateException("EspalierMemtable: the snapshot " + name + " of " + store.metadata() + " was not taken: "
                                            + reason(failure), failure);
        }
        finally
        {
            // They would keep the engine's files on the disk.
            remove(engine.directory(), store.metadata().id, own);
            remove(engine.directory(), store.metadata().id, UNFINISHED + own);
        }
    }

    /** {@code nodetool} shows the message of an exception, and not those of its causes. */
    private static String reason(Throwable failure)
    {
        if (failure instanceof FSError)
            return failure + ": " + failure.getCause();
        return failure instanceof IllegalStateException ? failure.getMessage() : failure.toString();
    }

    /**
     * The directory of a snapshot of the engine: {@code data/t<id>_<generation>/<table>/snapshots/<name>}; null if
     * there is none.
     */
    private static Path find(Path engine, TableId id, String name) throws IOException
    {
        String keyspaces = "t" + id.asUUID().toString().replace("-", "") + "_*";
        for (Path generation : listed(engine.resolve("data"), keyspaces))
            for (Path table : listed(generation, "*"))
            {
                Path snapshot = table.resolve("snapshots").resolve(name);
                if (Files.isDirectory(snapshot))
                    return snapshot;
            }
        return null;
    }

    private static List<Path> listed(Path directory, String names) throws IOException
    {
        List<Path> found = new ArrayList<>();
        try (DirectoryStream<Path> entries = Files.newDirectoryStream(directory, names))
        {
            entries.forEach(found::add);
        }
        catch (DirectoryIteratorException failure)
        {
            throw failure.getCause();
        }
        return found;
    }

    /** Removes a snapshot of the engine if it is there. */
    private static void remove(Path engine, TableId id, String name)
    {
        try
        {
            Path left = find(engine, id, name);
            if (left != null)
                new File(left).deleteRecursive();
        }
        catch (IOException | FSError failure)
        {
            logger.warn("{} in {} is left until the engine's next start", name, engine, failure);
        }
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

    /** Moves all files of the engine's SSTables, or none. */
    private static void move(Path taken, Path snapshot) throws IOException
    {
        List<Path> moved = new ArrayList<>();
        try
        {
            for (Path file : listed(taken, "*" + FORMAT + "*"))
            {
                Path place = snapshot.resolve(file.getFileName());
                // A repair takes a snapshot under the same name for each of its ranges.
                if (Files.exists(place))
                    continue;
                Files.move(file, place);
                moved.add(place);
            }
        }
        catch (IOException failure)
        {
            undo(moved, snapshot, failure);
            throw failure;
        }
    }

    /** Removes files from a snapshot, and its directory if it is empty then. */
    private static void undo(List<Path> moved, Path snapshot, IOException failure)
    {
        try
        {
            for (Path file : moved)
                Files.delete(file);
            Files.delete(snapshot);
        }
        catch (DirectoryNotEmptyException ofAnotherRange)
        {
            // It stays.
        }
        catch (IOException left)
        {
            failure.addSuppressed(left);
        }
    }
}
