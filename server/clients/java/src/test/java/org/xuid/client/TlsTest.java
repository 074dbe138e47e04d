package org.xuid.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.util.Base64;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.net.InetAddress;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLServerSocket;
import javax.net.ssl.TrustManagerFactory;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.xuid.client.FakeServer.Asked;
import org.xuid.client.FakeServer.Peer;
import org.xuid.client.internal.wire.Op;

/** TLS, with certificates that the JDK's keytool makes. */
@Timeout(120)
class TlsTest {
    @TempDir
    static Path folder;

    @BeforeAll
    static void make_certificates() throws Exception {
        pair("server", "RSA");
        pair("client", "EC");
    }

    /** A key and a certificate that vouches for itself, as NAME.p12, NAME.pem and NAME-key.pem. */
    private static void pair(String name, String algorithm) throws Exception {
        Path store = folder.resolve(name + ".p12");
        keytool("-genkeypair", "-keystore", store.toString(), "-alias", "a", "-keyalg", algorithm,
                "-dname", "CN=" + name, "-ext", "SAN=DNS:ids.example.org,IP:127.0.0.1");
        KeyStore keys = load(store);
        pem(folder.resolve(name + ".pem"), "CERTIFICATE", keys.getCertificate("a").getEncoded());
        pem(folder.resolve(name + "-key.pem"), "PRIVATE KEY", keys.getKey("a", "secret".toCharArray()).getEncoded());
    }

    private static void keytool(String... arguments) throws Exception {
        var command = new java.util.ArrayList<>(java.util.List.of(
                Path.of(System.getProperty("java.home"), "bin", "keytool").toString(), "-storepass", "secret"));
        command.addAll(java.util.List.of(arguments));
        Process process = new ProcessBuilder(command).redirectErrorStream(true).start();
        process.getInputStream().transferTo(System.err);
        assertEquals(0, process.waitFor());
    }

    private static KeyStore load(Path store) throws Exception {
        KeyStore keys = KeyStore.getInstance("PKCS12");
        try (InputStream in = Files.newInputStream(store)) {
            keys.load(in, "secret".toCharArray());
        }
        return keys;
    }

    private static void pem(Path file, String kind, byte[] der) throws IOException {
        String lines = Base64.getMimeEncoder(64, new byte[] {'\n'}).encodeToString(der);
        Files.writeString(file, "-----BEGIN " + kind + "-----\n" + lines + "\n-----END " + kind + "-----\n");
    }

    private static SSLServerSocket listen(boolean asksForCertificate) throws Exception {
        KeyManagerFactory keys = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
        keys.init(load(folder.resolve("server.p12")), "secret".toCharArray());
        TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        KeyStore roots = KeyStore.getInstance("PKCS12");
        roots.load(null, null);
        roots.setCertificateEntry("client", load(folder.resolve("client.p12")).getCertificate("a"));
        trust.init(roots);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(keys.getKeyManagers(), trust.getTrustManagers(), null);
        var listener = (SSLServerSocket) context.getServerSocketFactory()
                .createServerSocket(0, 50, InetAddress.getLoopbackAddress());
        listener.setNeedClientAuth(asksForCertificate);
        return listener;
    }

    private static CompletableFuture<XuidClient> connecting(SSLServerSocket listener, Tls tls) {
        var options = new XuidOptions("127.0.0.1:" + listener.getLocalPort()).tls(tls);
        return CompletableFuture.supplyAsync(() -> XuidClient.connect(options));
    }

    @Test
    void a_client_that_trusts_the_ca_and_shows_its_own_certificate_is_served() throws Exception {
        Tls tls = Tls.trusting(folder.resolve("server.pem"))
                .showing(folder.resolve("client.pem"), folder.resolve("client-key.pem"))
                .serverName("ids.example.org");
        try (SSLServerSocket listener = listen(true); FakeServer words = new FakeServer()) {
            var connecting = connecting(listener, tls);
            try (Peer peer = new Peer(listener.accept())) {
                peer.reply(peer.hello(), words.welcome());
                XuidClient client = connecting.get(10, TimeUnit.SECONDS);
                var calls = new java.util.ArrayList<CompletableFuture<Long>>();
                for (int i = 0; i < 300; i++) {
                    calls.add(client.nextAsync());
                }
                for (int i = 0; i < 300; i++) {
                    Asked asked = peer.expect(Op.NEXT);
                    peer.id(asked, i);
                }
                for (int i = 0; i < 300; i++) {
                    assertEquals(i, Wait.soon(calls.get(i)));
                }
                var closing = CompletableFuture.runAsync(client::close);
                peer.expect(Op.BYE);
                peer.close();
                Wait.soon(closing);
            }
        }
    }

    @Test
    void a_server_for_which_nobody_vouches_is_an_error_that_waiting_does_not_help() throws Exception {
        try (SSLServerSocket listener = listen(false)) {
            refused(listener, Tls.trusting(folder.resolve("client.pem")));
            refused(listener, Tls.trusting(folder.resolve("server.pem")).serverName("other.example.org"));
        }
    }

    private static void refused(SSLServerSocket listener, Tls tls) throws Exception {
        var connecting = connecting(listener, tls);
        try (Peer peer = new Peer(listener.accept())) {
            assertThrows(IOException.class, peer::hello);
        }
        assertFalse(Wait.failure(XuidException.Unreachable.class, connecting).isRetryable());
    }

    @Test
    void files_that_do_not_hold_what_they_should_are_told() throws Exception {
        Path key = folder.resolve("client-key.pem");
        Path certificate = folder.resolve("client.pem");
        assertThrows(IOException.class, () -> Tls.trusting(folder.resolve("absent.pem")));
        assertThrows(IllegalArgumentException.class, () -> Tls.trusting(key));
        Tls tls = Tls.trusting(certificate);
        assertThrows(IllegalArgumentException.class, () -> tls.showing(certificate, certificate));
        assertThrows(IllegalArgumentException.class, () -> tls.showing(certificate, folder.resolve("server-key.pem")));
    }

    @Test
    void a_real_server_that_asks_for_a_certificate_serves_only_who_shows_one() throws Exception {
        Path home = Files.createDirectories(folder.resolve("strict"));
        try (RealServer server = new RealServer(home, "--tls-cert", folder.resolve("server.pem").toString(), "--tls-key",
                folder.resolve("server-key.pem").toString(), "--tls-client-ca",
                folder.resolve("client.pem").toString())) {
            Tls tls = Tls.trusting(folder.resolve("server.pem"));
            var options = new XuidOptions(server.address);
            var refused = assertThrows(XuidException.class, () -> XuidClient.connect(options.tls(tls)));
            assertFalse(refused.isRetryable(), refused.toString());
            Tls shown = tls.showing(folder.resolve("client.pem"), folder.resolve("client-key.pem"));
            try (XuidClient client = XuidClient.connect(options.tls(shown))) {
                client.next();
            }
        }
    }

    @Test
    void a_real_server_within_tls_serves_and_asks_for_the_token() throws Exception {
        Path tokens = folder.resolve("tokens.toml");
        Files.writeString(tokens, "[token.test]\nsecrets = [\"s3cret-s3cret-s3cret\"]\n");
        Path home = Files.createDirectories(folder.resolve("home"));
        try (RealServer server = new RealServer(home, "--tls-cert", folder.resolve("server.pem").toString(), "--tls-key",
                folder.resolve("server-key.pem").toString(), "--tokens", tokens.toString())) {
            Tls tls = Tls.trusting(folder.resolve("server.pem"));
            var options = new XuidOptions(server.address).tls(tls);
            assertEquals("UNAUTHENTICATED",
                    assertThrows(XuidException.Refused.class, () -> XuidClient.connect(options)).status());
            try (XuidClient client = XuidClient.connect(options.token("s3cret-s3cret-s3cret"))) {
                assertEquals(1_000, java.util.Arrays.stream(client.array(1_000)).distinct().count());
            }
        }
    }
}
