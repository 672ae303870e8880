import java.io.PrintStream;
import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.JsonNode;
import org.apache.cassandra.config.DatabaseDescriptor;
import org.apache.cassandra.cql3.Duration;
import org.apache.cassandra.cql3.QueryOptions;
import org.apache.cassandra.db.marshal.AbstractType;
import org.apache.cassandra.db.marshal.DecimalType;
import org.apache.cassandra.db.marshal.TypeParser;
import org.apache.cassandra.transport.ProtocolVersion;
import org.apache.cassandra.utils.ByteBufferUtil;
import org.apache.cassandra.utils.JsonUtils;

/**
 * Asks Cassandra's own classes what they make of texts, JSON values and bytes, and writes the answers as JSON lines.
 * Run with Cassandra's jars on the class path, in UTC: java TypeVectors corpus.txt vectors.json > texts.jsonl
 * where vectors.json is that of the byte-comparable encoding.
 */
public class TypeVectors
{
    static final ObjectMapper mapper = new ObjectMapper();
    static PrintStream out;

    interface Action { Object run() throws Throwable; }

    static void record(String op, String type, String in, Action action) throws Exception
    {
        StringBuilder line = new StringBuilder("{\"op\":\"" + op + "\",\"type\":" + quote(type) + ",\"in\":" + quote(in));
        try
        {
            Object result = action.run();
            line.append(",\"out\":").append(result == null ? "null" : quote(result.toString()));
        }
        catch (Throwable t)
        {
            line.append(",\"error\":").append(t.getMessage() == null ? "null" : quote(t.getMessage()));
            line.append(",\"exception\":").append(quote(t.getClass().getSimpleName()));
        }
        out.println(line.append("}"));
    }

    static String quote(String s) throws Exception { return mapper.writeValueAsString(s); }

    static String hex(ByteBuffer b) { return b == null ? null : ByteBufferUtil.bytesToHex(b); }

    static void values(String type, ByteBuffer value) throws Exception
    {
        AbstractType<?> t = TypeParser.parse(type);
        String in = hex(value);
        boolean[] valid = { true };
        record("validate", type, in, () -> {
            try { t.validate(value.duplicate()); return "ok"; }
            catch (Throwable e) { valid[0] = false; throw e; }
        });
        if (!valid[0])
            return;
        record("literal", type, in, () -> t.toCQLString(value.duplicate()));
        record("json", type, in, () -> t.toJSONString(value.duplicate(), ProtocolVersion.V5));
    }

    static String decimal(String op, BigDecimal a, BigDecimal b)
    {
        DecimalType d = DecimalType.instance;
        switch (op)
        {
            case "add": return d.compose(d.add(a, b)).toString();
            case "substract": return d.compose(d.substract(a, b)).toString();
            case "multiply": return d.compose(d.multiply(a, b)).toString();
            case "divide": return d.compose(d.divide(a, b)).toString();
            case "mod": return d.compose(d.mod(a, b)).toString();
            case "exp": return d.compose(d.exp(a)).toString();
            case "ln": return d.compose(d.log(a)).toString();
            case "log10": return d.compose(d.log10(a)).toString();
            case "round": return d.compose(d.round(a)).toString();
            case "strip": return a.stripTrailingZeros().toString();
            case "plain": return a.toPlainString();
            default: throw new IllegalArgumentException(op);
        }
    }

    public static void main(String[] args) throws Exception
    {
        DatabaseDescriptor.clientInitialization();
        out = new PrintStream(System.out, false, "UTF-8");
        for (String line : Files.readAllLines(Path.of(args[0]), StandardCharsets.UTF_8))
        {
            if (line.isEmpty() || line.startsWith("#"))
                continue;
            String[] parts = line.split("\t", -1);
            String type = parts[1];
            // \\u escapes so that the corpus can hold control characters
            String in = mapper.readValue("\"" + (parts[0].equals("text") ? parts[2] : "") + "\"", String.class);
            AbstractType<?> t = parts[0].equals("decimal") || parts[0].equals("duration") ? null : TypeParser.parse(type);
            switch (parts[0])
            {
                case "text":
                    record("text", type, in, () -> hex(t.fromString(in)));
                    break;
                case "fromjson":
                    record("fromjson", type, parts[2], () -> {
                        Object parsed = JsonUtils.decodeJson(parts[2]);
                        return hex(t.fromJSONObject(parsed).bindAndGet(QueryOptions.DEFAULT));
                    });
                    break;
                case "decimal":
                    String[] operands = parts[2].split(" ");
                    record("decimal", type, parts[2], () -> decimal(type, new BigDecimal(operands[0]), new BigDecimal(operands[1])));
                    break;
                case "class":
                    record("class", type, type, () -> t.asCQL3Type() + "|" + t + "|" + t.isMultiCell() + "|" + t.valueLengthIfFixed());
                    break;
                case "duration":
                    String[] sum = parts[2].split(" ");
                    Duration duration = Duration.from(sum[1]);
                    record("duration", type, parts[2], () -> {
                        long millis = Long.parseLong(sum[0]);
                        return type.equals("add") ? duration.addTo(millis) : duration.substractFrom(millis);
                    });
                    break;
                case "value":
                    values(type, ByteBufferUtil.hexToBytes(parts[2]));
                    break;
                default:
                    throw new IllegalArgumentException(line);
            }
        }
        JsonNode vectors = mapper.readTree(Files.readAllBytes(Path.of(args[1])));
        List<String> types = new ArrayList<>();
        for (JsonNode group : vectors.get("types"))
        {
            if (group.get("reversed").asBoolean())
                continue;
            String type = group.get("class").asText();
            types.add(type);
            for (JsonNode vector : group.get("vectors"))
                values(type, ByteBufferUtil.hexToBytes(vector.get("ser").asText()));
        }
        Random random = new Random(5008);
        for (String type : types)
        {
            for (int i = 0; i < 40; i++)
            {
                byte[] garbage = new byte[random.nextInt(20)];
                random.nextBytes(garbage);
                for (int j = 0; j < garbage.length; j++)
                    if (random.nextInt(3) > 0)
                        garbage[j] = (byte) random.nextInt(5);
                record("validate", type, hex(ByteBuffer.wrap(garbage)), () -> {
                    TypeParser.parse(type).validate(ByteBuffer.wrap(garbage));
                    return "ok";
                });
            }
        }
        out.flush();
    }
}
