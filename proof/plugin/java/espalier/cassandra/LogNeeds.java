package espalier.cassandra;

import java.util.List;
import java.util.function.BooleanSupplier;

/**
 * A table moves out of mode {@code storage} at the moment at which Cassandra's log was about to be skipped: the log
 * stays in use, or writes to the table's next memtable would be in no log.
 */
final class LogNeeds
{
    private LogNeeds()
    {
    }

    /** Fails if the log is skipped. */
    static void check() throws Exception
    {
        if (!staysInUse(true) || !staysInUse(false))
            throw new AssertionError("Cassandra's log is skipped while a table moves out");
    }

    /** The move begins before another thread tries to skip the log, or while that thread waits for the lock. */
    private static boolean staysInUse(boolean isBefore) throws Exception
    {
        LogOfCassandra log = new LogOfCassandra(List::of);
        BooleanSupplier allSettled = () -> true;
        Thread settling = new Thread(() -> log.skipIfSettled(allSettled));
        synchronized (log)
        {
            if (isBefore)
                log.need("a table moves out");
            settling.start();
            while (settling.getState() != Thread.State.BLOCKED && settling.isAlive())
                Thread.onSpinWait();
            if (!isBefore)
                log.need("a table moves out");
        }
        settling.join();
        LogOfCassandra other = new LogOfCassandra(List::of);
        other.skipIfSettled(allSettled);
        return !log.isSkipped() && other.isSkipped();
    }
}
