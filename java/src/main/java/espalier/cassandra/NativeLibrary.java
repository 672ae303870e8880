package espalier.cassandra;

import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Loads the native library once: the file that the property {@code espalier.library} names, or else the library on
 * {@code java.library.path}, or else the one in the jar, which is copied to a temporary file for that.
 */
final class NativeLibrary
{
    private static final Logger logger = LoggerFactory.getLogger(NativeLibrary.class);
    private static final String NAME = "espalier_jni";

    private NativeLibrary()
    {
    }

    private static final class Loaded
    {
        static
        {
            load();
            if (Native.version() != Native.VERSION)
                throw new UnsatisfiedLinkError("the native library of EspalierMemtable has version " + Native.version() + ", and the jar "
                                               + Native.VERSION);
        }

        private static void touch()
        {
        }
    }

    /** Throws an {@link UnsatisfiedLinkError} if there is no library for this machine. */
    static void ensureLoaded()
    {
        Loaded.touch();
    }

    private static void load()
    {
        String file = System.getProperty("espalier.library");
        if (file != null)
        {
            System.load(Path.of(file).toAbsolutePath().toString());
            return;
        }
        try
        {
            System.loadLibrary(NAME);
        }
        catch (UnsatisfiedLinkError notOnThePath)
        {
            logger.debug("{} is not on java.library.path", NAME);
            loadFromJar();
        }
    }

    private static void loadFromJar()
    {
        String resource = "/linux/" + architecture() + "/lib" + NAME + ".so";
        try (InputStream library = NativeLibrary.class.getResourceAsStream(resource))
        {
            if (library == null)
                throw new UnsatisfiedLinkError("the jar of EspalierMemtable has no native library for this machine: " + resource);
            Path copy = Files.createTempFile("lib" + NAME, ".so");
            try
            {
                Files.copy(library, copy, StandardCopyOption.REPLACE_EXISTING);
                System.load(copy.toString());
            }
            finally
            {
                Files.deleteIfExists(copy);
            }
        }
        catch (IOException failure)
        {
            throw new UnsatisfiedLinkError("the native library of EspalierMemtable cannot be copied to a temporary file: " + failure);
        }
    }

    private static String architecture()
    {
        String name = System.getProperty("os.arch");
        return name.equals("x86_64") ? "amd64" : name;
    }
}
