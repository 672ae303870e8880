import java.io.InputStream;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.time.Duration;
import java.util.Arrays;

import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;

import com.datastax.oss.driver.api.core.AllNodesFailedException;
import com.datastax.oss.driver.api.core.CqlSession;
import com.datastax.oss.driver.api.core.CqlSessionBuilder;
import com.datastax.oss.driver.api.core.config.DefaultDriverOption;
import com.datastax.oss.driver.api.core.config.DriverConfigLoader;
import com.datastax.oss.driver.api.core.cql.PreparedStatement;
import com.datastax.oss.driver.api.core.ssl.ProgrammaticSslEngineFactory;

/**
 * Values over TLS, written and read by a client with a certificate or a password. A client without its login is
 * refused.
 */
class TlsScript
{
    private static final char[] PASSWORD = "secret".toCharArray();

    static void run(InetSocketAddress node, String directory, boolean hasCertificate) throws Exception
    {
        Path files = Path.of(directory);
        String password = hasCertificate ? null : "cassandra", wrong = hasCertificate ? null : "wrong";
        try (CqlSession session = connect(node, context(files, hasCertificate), password))
        {
            session.execute("CREATE KEYSPACE IF NOT EXISTS tls_java WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
            session.execute("CREATE TABLE IF NOT EXISTS tls_java.t (k int PRIMARY KEY, v blob)");
            PreparedStatement insert = session.prepare("INSERT INTO tls_java.t (k, v) VALUES (?, ?)");
            PreparedStatement select = session.prepare("SELECT v FROM tls_java.t WHERE k = ?");
            int[] sizes = { 1, 16_384, 4_000_000 };
            for (int key = 0; key < sizes.length; key++)
            {
                byte[] value = new byte[sizes[key]];
                Arrays.fill(value, (byte) (key + 1));
                session.execute(insert.bind(key, ByteBuffer.wrap(value)));
                ByteBuffer got = session.execute(select.bind(key)).one().getByteBuffer("v");
                DriverScript.check("value of " + sizes[key] + " bytes", true, ByteBuffer.wrap(value).equals(got));
            }
        }
        DriverScript.raises("a client without its login", AllNodesFailedException.class, "", () -> connect(node, context(files, false), wrong).close());
        DriverScript.raises("a client without TLS", AllNodesFailedException.class, "", () -> connect(node, null, password).close());
    }

    private static CqlSession connect(InetSocketAddress node, SSLContext context, String password)
    {
        CqlSessionBuilder builder = CqlSession.builder().addContactPoint(node).withLocalDatacenter("datacenter1").withConfigLoader(
            DriverConfigLoader.programmaticBuilder().withDuration(DefaultDriverOption.REQUEST_TIMEOUT, Duration.ofSeconds(30)).build());
        if (context != null)
            builder = builder.withSslEngineFactory(new ProgrammaticSslEngineFactory(context, null, true));
        if (password != null)
            builder = builder.withAuthCredentials("cassandra", password);
        return builder.build();
    }

    private static SSLContext context(Path files, boolean showsCertificate) throws Exception
    {
        KeyStore trusted = KeyStore.getInstance(KeyStore.getDefaultType());
        trusted.load(null, null);
        try (InputStream authority = Files.newInputStream(files.resolve("authority.pem")))
        {
            trusted.setCertificateEntry("authority", CertificateFactory.getInstance("X.509").generateCertificate(authority));
        }
        TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        trust.init(trusted);
        KeyManagerFactory keys = null;
        if (showsCertificate)
        {
            KeyStore own = KeyStore.getInstance("PKCS12");
            try (InputStream client = Files.newInputStream(files.resolve("client.p12")))
            {
                own.load(client, PASSWORD);
            }
            keys = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
            keys.init(own, PASSWORD);
        }
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(keys == null ? null : keys.getKeyManagers(), trust.getTrustManagers(), null);
        return context;
    }
}
