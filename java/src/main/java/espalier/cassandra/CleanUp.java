package espalier.cassandra;

import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.Arrays;
import java.util.Set;
import java.util.concurrent.TimeUnit;

import javax.management.StandardEmitterMBean;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import org.apache.cassandra.concurrent.ScheduledExecutors;
import org.apache.cassandra.service.StorageService;
import org.apache.cassandra.service.StorageServiceMBean;
import org.apache.cassandra.utils.MBeanWrapper;

/**
 * {@code nodetool cleanup} of tables in the engine. Cassandra's clean-up rewrites its own SSTables, and has no hook for
 * a memtable. So the management bean of {@link StorageService} is replaced by one that hands all calls on, and lets the
 * engine clean up after Cassandra did. Only an operator's call removes rows: after a change of the ring the old
 * replicas may have the only copies.
 */
final class CleanUp implements InvocationHandler
{
    private static final Logger logger = LoggerFactory.getLogger(CleanUp.class);
    private static final String BEAN = "org.apache.cassandra.db:type=StorageService";
    private static final String CLEAN_UP = "forceKeyspaceCleanup";
    private static final long DELAY_MILLIS = 200;
    /** The statuses of CompactionManager.AllSSTableOpStatus, which {@code nodetool} knows. */
    private static final int SUCCESSFUL = 0, ABORTED = 1;

    private final StorageService service;
    private final StorageEngine engine;

    private CleanUp(StorageService service, StorageEngine engine)
    {
        this.service = service;
        this.engine = engine;
    }

    /**
     * Puts the bean in place of Cassandra's, as soon as there is one: a start registers it after it has opened the
     * tables, and fails if another one is there. Those who listen to its notifications at this moment have to listen
     * again.
     */
    static void install(StorageEngine engine)
    {
        if (!MBeanWrapper.instance.isRegistered(BEAN))
        {
            ScheduledExecutors.optionalTasks.schedule(() -> install(engine), DELAY_MILLIS, TimeUnit.MILLISECONDS);
            return;
        }
        StorageService service = StorageService.instance;
        StorageServiceMBean proxy = proxy(service, engine);
        StandardEmitterMBean bean = new StandardEmitterMBean(proxy, StorageServiceMBean.class, service);
        MBeanWrapper.instance.unregisterMBean(BEAN);
        MBeanWrapper.instance.registerMBean(bean, BEAN);
    }

    private static StorageServiceMBean proxy(StorageService service, StorageEngine engine)
    {
        return (StorageServiceMBean) Proxy.newProxyInstance(CleanUp.class.getClassLoader(), new Class<?>[] { StorageServiceMBean.class },
                                                            new CleanUp(service, engine));
    }

    @Override
    public Object invoke(Object proxy, Method method, Object[] arguments) throws Throwable
    {
        Object answer;
        try
        {
            answer = method.invoke(service, arguments);
        }
        catch (InvocationTargetException thrown)
        {
            throw thrown.getCause();
        }
        if (!method.getName().equals(CLEAN_UP))
            return answer;
        // Of both overloads, the last two arguments are the keyspace and the names of tables.
        String keyspace = (String) arguments[arguments.length - 2];
        String[] tables = (String[]) arguments[arguments.length - 1];
        int ours = cleanUp(keyspace, tables == null ? Set.of() : Set.copyOf(Arrays.asList(tables)));
        return (Integer) answer == SUCCESSFUL ? ours : answer;
    }

    /** Cleans up the tables of a keyspace, all of them if none are named. Returns the status. */
    private int cleanUp(String keyspace, Set<String> tables)
    {
        int status = SUCCESSFUL;
        for (StoredMemtable memtable : engine.memtables())
        {
            if (!memtable.metadata().keyspace.equals(keyspace) || !tables.isEmpty() && !tables.contains(memtable.metadata().name))
                continue;
            if (!isCleanedUp(memtable))
                status = ABORTED;
        }
        return status;
    }

    private static boolean isCleanedUp(StoredMemtable memtable)
    {
        try
        {
            if (memtable.cleanUp())
                return true;
            logger.warn("The engine still has rows of {} that are not this node's; run nodetool cleanup again later", memtable.metadata());
        }
        catch (IllegalStateException failure)
        {
            logger.error("The engine could not remove all rows of {} that are not this node's", memtable.metadata(), failure);
        }
        return false;
    }
}
