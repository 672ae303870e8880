import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.security.Permission;
import java.util.Arrays;

/**
 * Runs Cassandra's standalone tools one after another in one JVM, because the start of a JVM costs more than most of
 * their work.
 *
 * A line on standard input is the tool's class and its arguments, separated by tabs. The answer is a line with the
 * tool's status and the sizes of its standard output and standard error in bytes, and then these bytes.
 */
public class Tools
{
    public static void main(String[] args) throws Exception
    {
        PrintStream answers = System.out;
        ExitStatus exit = new ExitStatus();
        System.setSecurityManager(exit);
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine())
        {
            String[] words = line.split("\t");
            ByteArrayOutputStream output = new ByteArrayOutputStream(), errors = new ByteArrayOutputStream();
            System.setOut(new PrintStream(output, true));
            System.setErr(new PrintStream(errors, true));
            int status = run(exit, words[0], Arrays.copyOfRange(words, 1, words.length));
            System.out.flush();
            System.err.flush();
            answers.println(status + " " + output.size() + " " + errors.size());
            output.writeTo(answers);
            errors.writeTo(answers);
            answers.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    /**
     * Runs a tool. Returns the status with which it wants to end the JVM first; a later one follows from catching the
     * first.
     */
    private static int run(ExitStatus exit, String tool, String[] arguments)
    {
        exit.status = null;
        Throwable failure = null;
        try
        {
            Class.forName(tool).getMethod("main", String[].class).invoke(null, (Object) arguments);
        }
        catch (InvocationTargetException thrown)
        {
            failure = thrown.getCause();
        }
        catch (ReflectiveOperationException thrown)
        {
            failure = thrown;
        }
        if (exit.status != null)
            return exit.status;
        if (failure != null)
            failure.printStackTrace();
        return failure == null ? 0 : 1;
    }

    /** Keeps the JVM alive when a tool ends it, and remembers the status. */
    private static class ExitStatus extends SecurityManager
    {
        private Integer status;

        @Override
        public void checkExit(int status)
        {
            if (this.status == null)
                this.status = status;
            throw new SecurityException("the tool has ended");
        }

        @Override
        public void checkPermission(Permission permission)
        {
        }

        @Override
        public void checkPermission(Permission permission, Object context)
        {
        }
    }
}
