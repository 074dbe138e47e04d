package org.xuid.client.internal.base;

import java.io.IOException;
import java.net.InetAddress;
import java.net.Socket;
import java.time.Duration;
import java.util.List;
import javax.net.ssl.SSLSocket;
import org.xuid.client.internal.wire.Request;

/** What a caller chose, checked: the fields of {@code XuidOptions}, which says what each means. */
public final class Settings implements Cloneable {
    private static final String ANY_CLUSTER = "0".repeat(32);

    /** How TLS begins on a connected socket. */
    public interface Handshake {
        /** Shakes hands; {@code host} is the name that the server must prove, if no other is set. */
        SSLSocket wrap(Socket socket, String host, int port) throws IOException;
    }

    public final List<String> servers;
    public byte[] token = {};
    public String clientName = "xuid-java/0.1.0";
    public String cluster = ANY_CLUSTER;
    /** Null: plain TCP. */
    public Handshake tls;
    public int maxInFlight = 1_024;
    public Duration connectTimeout = Duration.ofSeconds(5);
    public Duration timeout = Duration.ofSeconds(10);
    public Duration retryFor = Duration.ZERO;
    public int reconnectRounds = 6;
    public Duration firstPause = Duration.ofMillis(20);
    public Duration longestPause = Duration.ofSeconds(2);
    public Duration returnAfter = Duration.ofMinutes(3);
    /** A copy shares what is being looked up. */
    public Names names = new Names(InetAddress::getAllByName);

    public Settings(List<String> servers) {
        this.servers = servers;
    }

    /** The same, which no setter reaches any more. */
    public Settings copy() {
        try {
            return (Settings) clone();
        } catch (CloneNotSupportedException never) {
            throw new AssertionError(never);
        }
    }

    public Request hello() {
        byte[] bytes = new byte[16];
        for (int i = 0; i < 16; i++) {
            bytes[i] = (byte) Integer.parseInt(cluster.substring(2 * i, 2 * i + 2), 16);
        }
        return Request.hello(bytes, token, clientName);
    }

    /** Whether a server of that cluster may be used. */
    public boolean allows(String found) {
        return cluster.equals(ANY_CLUSTER) || cluster.equals(found);
    }
}
