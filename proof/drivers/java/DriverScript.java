import java.math.BigDecimal;
import java.math.BigInteger;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalTime;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

import com.datastax.oss.driver.api.core.AllNodesFailedException;
import com.datastax.oss.driver.api.core.ConsistencyLevel;
import com.datastax.oss.driver.api.core.CqlSession;
import com.datastax.oss.driver.api.core.config.DefaultDriverOption;
import com.datastax.oss.driver.api.core.config.DriverConfigLoader;
import com.datastax.oss.driver.api.core.config.ProgrammaticDriverConfigLoaderBuilder;
import com.datastax.oss.driver.api.core.cql.AsyncResultSet;
import com.datastax.oss.driver.api.core.cql.BatchStatement;
import com.datastax.oss.driver.api.core.cql.DefaultBatchType;
import com.datastax.oss.driver.api.core.cql.PreparedStatement;
import com.datastax.oss.driver.api.core.cql.QueryTrace;
import com.datastax.oss.driver.api.core.cql.ResultSet;
import com.datastax.oss.driver.api.core.cql.Row;
import com.datastax.oss.driver.api.core.cql.SimpleStatement;
import com.datastax.oss.driver.api.core.data.CqlDuration;
import com.datastax.oss.driver.api.core.data.CqlVector;
import com.datastax.oss.driver.api.core.data.TupleValue;
import com.datastax.oss.driver.api.core.data.UdtValue;
import com.datastax.oss.driver.api.core.metadata.schema.KeyspaceMetadata;
import com.datastax.oss.driver.api.core.metadata.schema.SchemaChangeListenerBase;
import com.datastax.oss.driver.api.core.metadata.schema.TableMetadata;
import com.datastax.oss.driver.api.core.servererrors.AlreadyExistsException;
import com.datastax.oss.driver.api.core.servererrors.InvalidConfigurationInQueryException;
import com.datastax.oss.driver.api.core.servererrors.InvalidQueryException;
import com.datastax.oss.driver.api.core.servererrors.SyntaxError;
import com.datastax.oss.driver.api.core.type.DataTypes;
import com.datastax.oss.driver.api.core.type.TupleType;
import com.datastax.oss.driver.api.core.type.UserDefinedType;
import com.datastax.oss.driver.api.core.type.codec.registry.CodecRegistry;
import com.datastax.oss.driver.api.core.type.reflect.GenericType;

/** The Java driver's script: DriverScript HOST PORT, or DriverScript HOST PORT tls DIRECTORY LOGIN. */
public class DriverScript
{
    private static final String KEYSPACE = "java_script";
    private static int passed, failed;
    private static String where = "";

    public static void main(String[] arguments)
    {
        InetSocketAddress node = new InetSocketAddress(arguments[0], Integer.parseInt(arguments[1]));
        if (arguments.length > 3)
        {
            where = "tls";
            part("tls", () -> TlsScript.run(node, arguments[3], arguments[4].equals("certificate")));
            end();
        }
        String[][] combinations = { { null, "none" }, { "V5", "lz4" }, { "V4", "lz4" }, { "V4", "snappy" }, { "V3", "none" } };
        for (String[] combination : combinations)
            script(node, combination[0], combination[1]);
        end();
    }

    private static void end()
    {
        System.out.println(passed + " passed, " + failed + " failed");
        System.exit(failed == 0 ? 0 : 1);
    }

    private static void script(InetSocketAddress node, String version, String compression)
    {
        where = (version == null ? "negotiated" : version) + " " + compression;
        CountDownLatch announced = new CountDownLatch(1);
        try (CqlSession session = connect(node, version, compression, announced))
        {
            check("protocol", version == null ? "V5" : version, session.getContext().getProtocolVersion().name());
            session.execute("DROP KEYSPACE IF EXISTS " + KEYSPACE);
            session.execute("CREATE KEYSPACE " + KEYSPACE + " WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
            session.execute("USE " + KEYSPACE);
            part("scalars", () -> scalars(session));
            part("collections", () -> collections(session));
            part("statements", () -> statements(session, version));
            part("conditions", () -> conditions(session));
            part("counters", () -> counters(session));
            part("paging", () -> paging(session));
            part("indexes", () -> indexes(session));
            part("metadata", () -> metadata(session, announced));
            part("bad statements", () -> badStatements(session));
            part("concurrency", () -> concurrency(session));
            // The keyspace of the last part is left: the proof that what is accepted survives reads it.
        }
        catch (Exception failure)
        {
            fail("script", failure.toString());
        }
    }

    private static CqlSession connect(InetSocketAddress node, String version, String compression, CountDownLatch announced)
    {
        ProgrammaticDriverConfigLoaderBuilder options = DriverConfigLoader.programmaticBuilder()
            .withDuration(DefaultDriverOption.REQUEST_TIMEOUT, Duration.ofSeconds(30))
            .withDuration(DefaultDriverOption.METADATA_SCHEMA_REQUEST_TIMEOUT, Duration.ofSeconds(30))
            .withDuration(DefaultDriverOption.METADATA_SCHEMA_WINDOW, Duration.ofMillis(50))
            // A Cassandra on a busy machine writes its trace later than the driver's five looks.
            .withInt(DefaultDriverOption.REQUEST_TRACE_ATTEMPTS, 1_000)
            .withString(DefaultDriverOption.PROTOCOL_COMPRESSION, compression);
        if (version != null)
            options = options.withString(DefaultDriverOption.PROTOCOL_VERSION, version);
        return CqlSession.builder().addContactPoint(node).withLocalDatacenter("datacenter1").withConfigLoader(options.build())
            .withSchemaChangeListener(new SchemaChangeListenerBase()
            {
                @Override
                public void onTableCreated(TableMetadata table)
                {
                    if (table.getName().asInternal().equals("announced"))
                        announced.countDown();
                }
            }).build();
    }

    private static void scalars(CqlSession session) throws Exception
    {
        Map<String, Object> values = new LinkedHashMap<>();
        values.put("ascii", "plain");
        values.put("bigint", Long.MIN_VALUE);
        values.put("blob", ByteBuffer.wrap(new byte[] { 0, -1 }));
        values.put("boolean", true);
        values.put("date", LocalDate.of(2024, 2, 29));
        values.put("decimal", new BigDecimal("-12345678901234567890.123"));
        values.put("double", 2.5);
        values.put("duration", CqlDuration.newInstance(14, 3, 14_400_000_000_000L));
        values.put("float", -0.5f);
        values.put("inet", InetAddress.getByName("2001:db8::1"));
        values.put("int", Integer.MIN_VALUE);
        values.put("smallint", Short.MIN_VALUE);
        values.put("text", "Grüße €𝄞");
        values.put("time", LocalTime.of(12, 34, 56, 789_012_345));
        values.put("timestamp", Instant.ofEpochMilli(1_709_209_815_123L));
        values.put("timeuuid", UUID.fromString("50554d6e-29bb-11e5-b345-feff819cdc9f"));
        values.put("tinyint", Byte.MIN_VALUE);
        values.put("uuid", UUID.fromString("f47ac10b-58cc-4372-a567-0e02b2c3d479"));
        values.put("varint", BigInteger.TEN.pow(40).negate());
        if (session.getContext().getProtocolVersion().getCode() == 3)      // which has no codes for these types
            values.keySet().removeAll(Set.of("date", "duration", "smallint", "time", "tinyint"));
        StringBuilder columns = new StringBuilder();
        StringBuilder markers = new StringBuilder("?");
        for (String type : values.keySet())
        {
            columns.append(", c_").append(type).append(' ').append(type);
            markers.append(", ?");
        }
        session.execute("CREATE TABLE scalars (k int PRIMARY KEY" + columns + ")");
        PreparedStatement insert = session.prepare("INSERT INTO scalars (k, c_" + String.join(", c_", values.keySet()) + ") VALUES (" + markers + ")");
        List<Object> row = new ArrayList<>(List.of(1));
        row.addAll(values.values());
        session.execute(insert.bind(row.toArray()));
        Object[] nulls = new Object[row.size()];
        nulls[0] = 2;
        session.execute(insert.bind(nulls));
        PreparedStatement select = session.prepare("SELECT * FROM scalars WHERE k = ?");
        Row read = session.execute(select.bind(1)).one();
        Row empty = session.execute(select.bind(2)).one();
        for (Map.Entry<String, Object> column : values.entrySet())
        {
            check(column.getKey(), column.getValue(), read.getObject("c_" + column.getKey()));
            check(column.getKey() + " null", null, empty.getObject("c_" + column.getKey()));
        }
    }

    private static void collections(CqlSession session)
    {
        session.execute("CREATE TYPE address (street text, zip int)");
        session.execute("CREATE TABLE collections (k int PRIMARY KEY, l list<int>, s set<text>, m map<text, int>, fl frozen<list<text>>, "
                        + "n map<int, frozen<list<frozen<set<int>>>>>, tp tuple<int, text>, ve vector<float, 3>, u address, us frozen<list<frozen<address>>>)");
        UserDefinedType addressType = session.getMetadata().getKeyspace(KEYSPACE).get().getUserDefinedType("address").get();
        TupleType tupleType = DataTypes.tupleOf(DataTypes.INT, DataTypes.TEXT);
        UdtValue main = addressType.newValue("Main St", 12345);
        UdtValue noZip = addressType.newValue().setString("street", "B").setToNull("zip");
        TupleValue tuple = tupleType.newValue(7, "seven");
        CqlVector<Float> vector = CqlVector.newInstance(1.5f, -2.0f, 0.25f);
        PreparedStatement insert = session.prepare("INSERT INTO collections (k, l, s, m, fl, n, tp, ve, u, us) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)");
        session.execute(insert.bind(1, List.of(3, 1), Set.of("a", "b"), Map.of("one", 1, "two", 2), List.of("x", "y"),
                                    Map.of(5, List.of(Set.of(1, 2))), tuple, vector, main, List.of(main, noZip)));
        Row row = session.execute("SELECT * FROM collections WHERE k = 1").one();
        check("list", List.of(3, 1), row.getList("l", Integer.class));
        check("set", Set.of("a", "b"), row.getSet("s", String.class));
        check("map", Map.of("one", 1, "two", 2), row.getMap("m", String.class, Integer.class));
        check("frozen list", List.of("x", "y"), row.getList("fl", String.class));
        check("nested", Map.of(5, List.of(Set.of(1, 2))), row.get("n", GenericType.mapOf(GenericType.INTEGER, GenericType.listOf(GenericType.setOf(GenericType.INTEGER)))));
        check("tuple", tuple.getFormattedContents(), row.getTupleValue("tp").getFormattedContents());
        check("vector", vector, row.getVector("ve", Float.class));
        check("user type", main, row.getUdtValue("u"));
        check("user types", List.of(main, noZip), row.getList("us", UdtValue.class));
        session.execute("UPDATE collections SET l = l + [9], s = s - {'a'}, m['three'] = 3, u.zip = 1 WHERE k = 1");
        row = session.execute("SELECT l, s, m, u.zip FROM collections WHERE k = 1").one();
        check("list append", List.of(3, 1, 9), row.getList(0, Integer.class));
        check("set remove", Set.of("b"), row.getSet(1, String.class));
        check("map put", Map.of("one", 1, "two", 2, "three", 3), row.getMap(2, String.class, Integer.class));
        check("field", 1, row.getInt(3));
        session.execute("CREATE TABLE generic (k int PRIMARY KEY, v text)");
        check("codec registry", true, CodecRegistry.DEFAULT != null && session.execute("SELECT * FROM generic").one() == null);
    }

    private static void statements(CqlSession session, String version) throws Exception
    {
        session.execute("CREATE TABLE wide (p int, c int, s text static, v text, PRIMARY KEY (p, c)) WITH CLUSTERING ORDER BY (c DESC)");
        session.execute(SimpleStatement.newInstance("INSERT INTO wide (p, c, s, v) VALUES (?, ?, ?, ?)", 1, 1, "static", "one"));
        session.execute(SimpleStatement.newInstance("INSERT INTO wide (p, c, v) VALUES (:p, :c, :v)", Map.of("p", 1, "c", 2, "v", "two")));
        PreparedStatement insert = session.prepare("INSERT INTO wide (p, c, s, v) VALUES (?, ?, ?, ?)");
        if (!"V3".equals(version))
            session.execute(insert.boundStatementBuilder().setInt("p", 1).setInt("c", 2).build()); // s and v stay unset
        session.execute(BatchStatement.newInstance(DefaultBatchType.LOGGED, insert.bind(1, 4, "static", "four"),
                                                   SimpleStatement.newInstance("DELETE FROM wide WHERE p = 1 AND c = 1")));
        List<String> rows = new ArrayList<>();
        for (Row row : session.execute("SELECT c, s, v FROM wide WHERE p = 1"))
            rows.add(row.getInt("c") + row.getString("s") + row.getString("v"));
        check("rows", List.of("4staticfour", "2statictwo"), rows);
        check("writetime", 1234L, session.execute(SimpleStatement.newInstance("UPDATE wide SET v = 'x' WHERE p = 2 AND c = 2").setQueryTimestamp(1234))
            .getExecutionInfo().getErrors().isEmpty() ? session.execute("SELECT writetime(v) FROM wide WHERE p = 2").one().getLong(0) : -1L);
        QueryTrace trace = session.execute(SimpleStatement.newInstance("SELECT * FROM wide").setTracing(true)).getExecutionInfo().getQueryTrace();
        check("trace", true, trace.getDurationMicros() > 0 && !trace.getEvents().isEmpty());
        List<String> warnings = session.execute("SELECT count(*) FROM wide").getExecutionInfo().getWarnings();
        if (!"V3".equals(version))
            check("warnings", List.of("Aggregation query used without partition key"), warnings);
    }

    private static void conditions(CqlSession session)
    {
        session.execute("CREATE TABLE jobs (n int PRIMARY KEY, owner text)");
        PreparedStatement insert = session.prepare("INSERT INTO jobs (n, owner) VALUES (?, ?) IF NOT EXISTS");
        check("applied", true, session.execute(insert.bind(1, "ada")).wasApplied());
        ResultSet refused = session.execute(insert.bind(1, "bob"));
        check("not applied", false, refused.wasApplied());
        Row row = refused.one();
        check("refused", "false 1 ada", row.getBoolean("[applied]") + " " + row.getInt("n") + " " + row.getString("owner"));
        PreparedStatement update = session.prepare("UPDATE jobs SET owner = ? WHERE n = 1 IF owner = ?");
        check("another owner", "ada", session.execute(update.bind("bob", "eve")).one().getString("owner"));
        check("the owner", true, session.execute(update.bind("bob", "ada")).wasApplied());
        BatchStatement batch = BatchStatement.newInstance(DefaultBatchType.LOGGED, update.bind("cid", "bob"));
        check("batch", true, session.execute(batch).wasApplied());
        check("batch again", false, session.execute(batch).wasApplied());
        SimpleStatement read = SimpleStatement.newInstance("SELECT owner FROM jobs WHERE n = 1")
            .setConsistencyLevel(com.datastax.oss.driver.api.core.DefaultConsistencyLevel.SERIAL);
        check("serial read", "cid", session.execute(read).one().getString("owner"));
    }

    private static void counters(CqlSession session)
    {
        session.execute("CREATE TABLE hits (page text, day int, n counter, total counter static, PRIMARY KEY (page, day))");
        PreparedStatement add = session.prepare("UPDATE hits SET n = n + ? WHERE page = 'home' AND day = ?");
        List<java.util.concurrent.CompletionStage<?>> increments = new ArrayList<>();
        for (int i = 0; i < 60; i++)
            increments.add(session.executeAsync(add.bind(2L, i % 3)));
        increments.forEach(increment -> increment.toCompletableFuture().join());
        // Of increments of a static counter at the same time, Cassandra loses some.
        for (int i = 0; i < 60; i++)
            session.execute("UPDATE hits SET total = total + 1 WHERE page = 'home'");
        session.execute(BatchStatement.newInstance(DefaultBatchType.COUNTER,
            session.prepare("UPDATE hits SET n -= ? WHERE page = 'home' AND day = 0").bind(50L)));
        Row row = session.execute("SELECT n, total FROM hits WHERE page = 'home' AND day = 0").one();
        check("sums", "-10 60", row.getLong("n") + " " + row.getLong("total"));
    }

    private static void paging(CqlSession session)
    {
        session.execute("CREATE TABLE pages (p int, c int, PRIMARY KEY (p, c))");
        PreparedStatement insert = session.prepare("INSERT INTO pages (p, c) VALUES (?, ?)");
        for (int p = 0; p < 5; p++)
            for (int c = 0; c < 11; c++)
                session.execute(insert.bind(p, c));
        SimpleStatement statement = SimpleStatement.newInstance("SELECT p, c FROM pages").setPageSize(4);
        ResultSet result = session.execute(statement);
        check("first page", 4, result.getAvailableWithoutFetching());
        check("all rows", 55, result.all().size());
        ByteBuffer state = session.execute(statement).getExecutionInfo().getPagingState();
        Row fifth = session.execute("SELECT p, c FROM pages").all().get(4);
        Row resumed = session.execute(statement.setPagingState(state)).one();
        check("resumed page", fifth.getFormattedContents(), resumed.getFormattedContents());
        List<Integer> reversed = new ArrayList<>();
        for (Row row : session.execute(session.prepare("SELECT c FROM pages WHERE p = ? ORDER BY c DESC").bind(3).setPageSize(3)))
            reversed.add(row.getInt(0));
        check("reversed, prepared", Arrays.asList(10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0), reversed);
    }

    private static void indexes(CqlSession session)
    {
        session.execute("CREATE TABLE animals (n int PRIMARY KEY, kind text, age int, place vector<float, 2>)");
        session.execute("CREATE INDEX by_age ON animals (age) USING 'sai'");
        session.execute("CREATE INDEX by_kind ON animals (kind) USING 'sai'");
        session.execute("CREATE INDEX by_place ON animals (place) USING 'sai' WITH OPTIONS = {'similarity_function': 'euclidean'}");
        PreparedStatement insert = session.prepare("INSERT INTO animals (n, kind, age, place) VALUES (?, ?, ?, ?)");
        for (int n = 0; n < 40; n++)
            session.execute(insert.bind(n, n % 3 == 0 ? "owl" : "fox", n, CqlVector.newInstance((float) n, 0f)));
        PreparedStatement byKind = session.prepare("SELECT n FROM animals WHERE kind = ?");
        check("equality, in pages", "[0, 3, 6, 9, 12, 15, 18, 21, 24, 27, 30, 33, 36, 39]", sorted(session.execute(byKind.bind("owl").setPageSize(5))));
        PreparedStatement both = session.prepare("SELECT n FROM animals WHERE kind = ? AND age > ? AND age <= ?");
        check("two columns", "[9, 12, 15]", sorted(session.execute(both.bind("owl", 6, 15))));
        PreparedStatement nearest = session.prepare("SELECT n FROM animals ORDER BY place ANN OF ? LIMIT 3");
        List<Integer> found = new ArrayList<>();
        session.execute(nearest.bind(CqlVector.newInstance(7.25f, 0f))).forEach(row -> found.add(row.getInt(0)));
        check("nearest vectors", Arrays.asList(7, 8, 6), found);
        TableMetadata table = session.refreshSchema().getKeyspace(KEYSPACE).get().getTable("animals").get();
        check("metadata", 3, table.getIndexes().size());
        check("kind", "CUSTOM sai", table.getIndex("by_place").get().getKind() + " " + table.getIndex("by_place").get().getClassName().get());
        check("describe", true, table.describeWithChildren(true).contains("by_place"));
        session.execute("DROP INDEX by_age");
        check("dropped", false, session.refreshSchema().getKeyspace(KEYSPACE).get().getTable("animals").get().getIndex("by_age").isPresent());
    }

    private static String sorted(ResultSet rows)
    {
        List<Integer> numbers = new ArrayList<>();
        rows.forEach(row -> numbers.add(row.getInt(0)));
        java.util.Collections.sort(numbers);
        return numbers.toString();
    }

    private static void metadata(CqlSession session, CountDownLatch announced) throws Exception
    {
        session.execute("CREATE TABLE announced (a int, b text, c timeuuid, d text static, \"E f\" int, PRIMARY KEY ((a, b), c)) "
                        + "WITH CLUSTERING ORDER BY (c DESC) AND comment = 'described' AND gc_grace_seconds = 1000");
        check("schema event", true, announced.await(20, TimeUnit.SECONDS));
        KeyspaceMetadata keyspace = session.refreshSchema().getKeyspace(KEYSPACE).get();
        TableMetadata table = keyspace.getTable("announced").get();
        check("partition key", "[a, b]", names(table.getPartitionKey()));
        check("clustering", "DESC", table.getClusteringColumns().values().iterator().next().name());
        check("columns", 5, table.getColumns().size());
        check("static", true, table.getColumn("d").get().isStatic());
        check("describe", true, table.describe(true).contains("CREATE TABLE") && keyspace.describeWithChildren(true).contains("address"));
        session.execute("ALTER TABLE announced ADD added list<int>");
        check("altered", true, session.refreshSchema().getKeyspace(KEYSPACE).get().getTable("announced").get().getColumn("added").isPresent());
        check("token map", true, session.getMetadata().getTokenMap().isPresent());
        check("nodes", 1, session.getMetadata().getNodes().size());
        check("schema agreement", true, session.checkSchemaAgreement());
    }

    private static String names(List<com.datastax.oss.driver.api.core.metadata.schema.ColumnMetadata> columns)
    {
        List<String> names = new ArrayList<>();
        columns.forEach(column -> names.add(column.getName().asInternal()));
        return names.toString();
    }

    private static void badStatements(CqlSession session)
    {
        session.execute("CREATE TABLE errors (k int PRIMARY KEY, v int)");
        raises("syntax", SyntaxError.class, "line 1:0 no viable alternative at input 'SELEC'", () -> session.execute("SELEC 1"));
        raises("unknown table", InvalidQueryException.class, "table nosuch does not exist", () -> session.execute("SELECT * FROM nosuch"));
        raises("filtering", InvalidQueryException.class, "ALLOW FILTERING", () -> session.execute("SELECT * FROM errors WHERE v = 1"));
        raises("existing table", AlreadyExistsException.class, "already exists", () -> session.execute("CREATE TABLE errors (k int PRIMARY KEY)"));
        raises("configuration", InvalidConfigurationInQueryException.class, "NoSuch",
               () -> session.execute("CREATE KEYSPACE x WITH replication = {'class': 'NoSuch'}"));
        raises("prepare", InvalidQueryException.class, "nosuch", () -> session.prepare("SELECT * FROM nosuch WHERE k = ?"));
        raises("unavailable", AllNodesFailedException.class, "UnavailableException: Not enough replicas available for query at consistency TWO", () -> session.execute(
            SimpleStatement.newInstance("SELECT * FROM errors WHERE k = 1").setConsistencyLevel(ConsistencyLevel.TWO)));
        check("the session goes on", null, session.execute("SELECT * FROM errors").one());
    }

    private static void concurrency(CqlSession session) throws Exception
    {
        session.execute("CREATE TABLE many (k int PRIMARY KEY, v text)");
        PreparedStatement insert = session.prepare("INSERT INTO many (k, v) VALUES (?, ?)");
        PreparedStatement select = session.prepare("SELECT v FROM many WHERE k = ?");
        List<CompletionStage<AsyncResultSet>> stages = new ArrayList<>();
        for (int k = 0; k < 1000; k++)
        {
            int key = k;
            stages.add(session.executeAsync(insert.bind(key, "value " + key)).thenCompose(done -> session.executeAsync(select.bind(key))));
        }
        int right = 0;
        for (int k = 0; k < 1000; k++)
            if (stages.get(k).toCompletableFuture().get().one().getString(0).equals("value " + k))
                right++;
        check("1000 in flight", 1000, right);
        // A prepared SELECT * sees a column added later (in v5 through the new result metadata id).
        PreparedStatement star = session.prepare("SELECT * FROM many WHERE k = ?");
        session.execute(star.bind(1));
        session.execute("ALTER TABLE many ADD w int");
        session.execute("UPDATE many SET w = 5 WHERE k = 1");
        if (session.getContext().getProtocolVersion().getCode() >= 5)
            check("result metadata changes", 5, session.execute(star.bind(1)).one().getInt("w"));
    }

    interface Part
    {
        void run() throws Exception;
    }

    private static void part(String name, Part part)
    {
        try
        {
            part.run();
        }
        catch (Exception failure)
        {
            StackTraceElement[] trace = failure.getStackTrace();
            fail(name, failure + Arrays.stream(trace).filter(at -> at.getClassName().startsWith("DriverScript")).map(at -> " at line " + at.getLineNumber()).findFirst().orElse(""));
        }
    }

    static void raises(String name, Class<? extends Exception> expected, String text, Part part)
    {
        try
        {
            part.run();
            fail(name, "no exception");
        }
        catch (Exception raised)
        {
            if (expected.isInstance(raised) && raised.getMessage().contains(text))
                passed++;
            else
                fail(name, raised + " instead of " + expected.getSimpleName() + " with " + text);
        }
    }

    static void check(String name, Object expected, Object got)
    {
        if (expected == null ? got == null : expected.equals(got))
            passed++;
        else
            fail(name, "got " + got + ", expected " + expected);
    }

    private static void fail(String name, String detail)
    {
        failed++;
        System.out.println("java driver " + where + ": FAIL " + name + ": " + detail);
    }
}
