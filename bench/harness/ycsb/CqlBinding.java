import com.datastax.oss.driver.api.core.CqlSession;
import com.datastax.oss.driver.api.core.DriverException;
import com.datastax.oss.driver.api.core.config.DefaultDriverOption;
import com.datastax.oss.driver.api.core.config.DriverConfigLoader;
import com.datastax.oss.driver.api.core.cql.BoundStatementBuilder;
import com.datastax.oss.driver.api.core.cql.PreparedStatement;
import com.datastax.oss.driver.api.core.cql.Row;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.Vector;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.Collectors;
import site.ycsb.ByteArrayByteIterator;
import site.ycsb.ByteIterator;
import site.ycsb.DB;
import site.ycsb.DBException;
import site.ycsb.Status;

/**
 * YCSB over CQL: table (y_id text PRIMARY KEY, field0 … blob), Java driver 4, native protocol 5, one session for all
 * threads. Properties: cql.host, cql.port, cql.keyspace, cql.connections.
 */
public final class CqlBinding extends DB {
    private static final String KEY = "y_id";
    private static CqlSession session;
    private static int users;
    private static final Map<String, PreparedStatement> prepared = new ConcurrentHashMap<>();

    @Override
    public void init() throws DBException {
        synchronized (CqlBinding.class) {
            if (users++ == 0) {
                session = open();
            }
        }
    }

    private CqlSession open() {
        var properties = getProperties();
        var config = DriverConfigLoader.programmaticBuilder()
            .withString(DefaultDriverOption.PROTOCOL_VERSION, "V5")
            .withDuration(DefaultDriverOption.REQUEST_TIMEOUT, Duration.ofSeconds(20))
            .withInt(DefaultDriverOption.CONNECTION_POOL_LOCAL_SIZE, Integer.parseInt(properties.getProperty("cql.connections", "2")))
            .build();
        var address = new InetSocketAddress(properties.getProperty("cql.host"), Integer.parseInt(properties.getProperty("cql.port")));
        return CqlSession.builder().addContactPoint(address).withLocalDatacenter("datacenter1").withConfigLoader(config)
            .withKeyspace(properties.getProperty("cql.keyspace")).build();
    }

    @Override
    public void cleanup() {
        synchronized (CqlBinding.class) {
            if (--users == 0) {
                session.close();
            }
        }
    }

    private static PreparedStatement prepare(String text) {
        return prepared.computeIfAbsent(text, session::prepare);
    }

    private static String columns(Set<String> fields) {
        return fields == null ? "*" : String.join(", ", fields);
    }

    @Override
    public Status read(String table, String key, Set<String> fields, Map<String, ByteIterator> result) {
        try {
            var statement = prepare("SELECT " + columns(fields) + " FROM " + table + " WHERE " + KEY + " = ?");
            Row row = session.execute(statement.bind(key)).one();
            if (row == null) {
                return Status.NOT_FOUND;
            }
            copy(row, result);
            return Status.OK;
        } catch (DriverException failure) {
            return failed(failure);
        }
    }

    @Override
    public Status scan(String table, String startKey, int count, Set<String> fields, Vector<HashMap<String, ByteIterator>> result) {
        try {
            var statement = prepare("SELECT " + columns(fields) + " FROM " + table + " WHERE token(" + KEY + ") >= token(?) LIMIT ?");
            for (Row row : session.execute(statement.bind(startKey, count))) {
                var fieldsOfRow = new HashMap<String, ByteIterator>();
                copy(row, fieldsOfRow);
                result.add(fieldsOfRow);
            }
            return Status.OK;
        } catch (DriverException failure) {
            return failed(failure);
        }
    }

    private static void copy(Row row, Map<String, ByteIterator> result) {
        var definitions = row.getColumnDefinitions();
        for (int place = 0; place < definitions.size(); place++) {
            String name = definitions.get(place).getName().asInternal();
            ByteBuffer bytes = row.getBytesUnsafe(place);
            if (bytes == null || name.equals(KEY)) {
                continue;
            }
            var value = new byte[bytes.remaining()];
            bytes.get(value);
            result.put(name, new ByteArrayByteIterator(value));
        }
    }

    @Override
    public Status update(String table, String key, Map<String, ByteIterator> values) {
        return write(table, key, values);
    }

    /**
     * INSERT and UPDATE are one thing in CQL; updates are sent as inserts of some columns, as YCSB's own binding has
     * them apart only in text.
     */
    @Override
    public Status insert(String table, String key, Map<String, ByteIterator> values) {
        return write(table, key, values);
    }

    private static Status write(String table, String key, Map<String, ByteIterator> values) {
        try {
            var names = values.keySet().stream().sorted().collect(Collectors.toList());
            var marks = ", ?".repeat(names.size());
            var statement = prepare("INSERT INTO " + table + " (" + KEY + ", " + String.join(", ", names) + ") VALUES (?" + marks + ")");
            BoundStatementBuilder bound = statement.boundStatementBuilder().setString(0, key);
            for (int place = 0; place < names.size(); place++) {
                bound.setByteBuffer(place + 1, ByteBuffer.wrap(values.get(names.get(place)).toArray()));
            }
            session.execute(bound.build());
            return Status.OK;
        } catch (DriverException failure) {
            return failed(failure);
        }
    }

    @Override
    public Status delete(String table, String key) {
        try {
            session.execute(prepare("DELETE FROM " + table + " WHERE " + KEY + " = ?").bind(key));
            return Status.OK;
        } catch (DriverException failure) {
            return failed(failure);
        }
    }

    private static Status failed(DriverException failure) {
        System.err.println(failure);
        return Status.ERROR;
    }
}
