package org.xuid.client;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.regex.Pattern;
import org.xuid.client.internal.base.Settings;
import org.xuid.client.internal.wire.Request;

/**
 * How a client connects, waits and tries again. Each setter changes the object and returns it;
 * {@link XuidClient#connect(XuidOptions)} keeps a copy.
 *
 * <pre>{@code
 * var options = new XuidOptions("ids-1:7654,ids-2:7654").token("s3cret").retryFor(Duration.ofSeconds(2));
 * try (var client = XuidClient.connect(options)) { .. }
 * }</pre>
 */
public final class XuidOptions {
    private static final Pattern ADDRESS = Pattern.compile("(\\[[^\\[\\]]+\\]|[^:\\[\\]\\s]+):(\\d{1,5})");
    private static final Pattern CLUSTER = Pattern.compile("[0-9a-fA-F]{32}");

    /** Spans above this count as this: some 70 years, so that a sum of two and a time is no overflow. */
    private static final Duration FOREVER = Duration.ofNanos(Long.MAX_VALUE / 4);

    final Settings settings;

    /**
     * The defaults, for these servers.
     *
     * @param servers addresses {@code host:port} of one cluster, with commas between them; an IPv6 address stands in
     *     square brackets
     * @throws IllegalArgumentException for a text that is no such list
     */
    public XuidOptions(String servers) {
        this(Arrays.asList(servers.split(",", -1)));
    }

    /**
     * The defaults, for these servers.
     *
     * @param servers addresses {@code host:port} of one cluster
     * @throws IllegalArgumentException for an empty list, or an address that is none
     */
    public XuidOptions(List<String> servers) {
        if (servers.isEmpty()) {
            throw new IllegalArgumentException("no server is named: give one address host:port, or more");
        }
        String[] checked = new String[servers.size()];
        for (int i = 0; i < checked.length; i++) {
            checked[i] = servers.get(i).trim();
            var match = ADDRESS.matcher(checked[i]);
            if (!match.matches() || Integer.parseInt(match.group(2)) > 65_535) {
                throw new IllegalArgumentException(
                        "'" + checked[i] + "' is no address of a server: write host:port, as in 127.0.0.1:7654");
            }
        }
        settings = new Settings(List.of(checked));
    }

    /**
     * The defaults, with the servers of the variable {@code XUID_SERVER} ({@code 127.0.0.1:7654} where it is not set) and
     * the token of {@code XUID_TOKEN}.
     *
     * @return new options
     * @throws IllegalArgumentException for a variable that is no list of servers
     */
    public static XuidOptions fromEnvironment() {
        String servers = System.getenv("XUID_SERVER");
        String token = System.getenv("XUID_TOKEN");
        boolean isSet = servers != null && !servers.isBlank();
        XuidOptions options = new XuidOptions(isSet ? servers : "127.0.0.1:7654");
        return token == null ? options : options.token(token);
    }

    /**
     * What proves this client's right. Defaults to nothing.
     *
     * @param token a text of at most 255 bytes of UTF-8
     * @return this
     */
    public XuidOptions token(String token) {
        byte[] bytes = token.getBytes(StandardCharsets.UTF_8);
        Request.hello(new byte[16], bytes, "");
        settings.token = bytes;
        return this;
    }

    /**
     * What this client calls itself in the server's logs. Defaults to its name and version.
     *
     * @param name a text of at most 255 bytes of UTF-8
     * @return this
     */
    public XuidOptions clientName(String name) {
        Request.hello(new byte[16], new byte[0], name);
        settings.clientName = name;
        return this;
    }

    /**
     * The cluster that the servers must be of. Worth setting wherever it is known: it turns a wrong address into an error
     * instead of ids of another namespace. Defaults to the cluster of the first server that answers.
     *
     * @param cluster 32 hexadecimal digits; zeros mean any
     * @return this
     */
    public XuidOptions cluster(String cluster) {
        if (!CLUSTER.matcher(cluster).matches()) {
            throw new IllegalArgumentException("'" + cluster + "' is no cluster id: 32 hexadecimal digits are allowed");
        }
        settings.cluster = cluster.toLowerCase(java.util.Locale.ROOT);
        return this;
    }

    /**
     * Talks TLS to all servers. Defaults to plain TCP.
     *
     * @param tls who vouches for the servers, and what this client shows of itself
     * @return this
     */
    public XuidOptions tls(Tls tls) {
        settings.tls = tls::wrap;
        return this;
    }

    /**
     * Requests in flight at once; further calls wait their turn. Too small, and the connection idles between replies;
     * too large only costs memory. The server's own limit holds too. Defaults to 1,024.
     *
     * @param requests 1 or more
     * @return this
     */
    public XuidOptions maxInFlight(int requests) {
        settings.maxInFlight = atLeastOne("maxInFlight", requests);
        return this;
    }

    /**
     * How long connecting and HELLO may take, for each server. Too short, and a busy server is given up; too long, and a
     * dead one is waited for. Defaults to 5 s.
     *
     * @param limit a span above zero
     * @return this
     */
    public XuidOptions connectTimeout(Duration limit) {
        settings.connectTimeout = aboveZero("connectTimeout", limit);
        return this;
    }

    /**
     * How long a reply may take beyond the wait that the request itself allows. A call that gives up ends alone. NEXT has
     * no wait of its own: give it more than the server's {@code --wait}. When nothing at all came for so long, though a
     * reply was due, and a PING sent after half of it was not answered either, the connection ends. Too short, and a
     * pause of the server ends connections; too long, and a server that is gone without a word is waited for. Defaults
     * to 10 s.
     *
     * @param limit a span above zero
     * @return this
     */
    public XuidOptions timeout(Duration limit) {
        settings.timeout = aboveZero("timeout", limit);
        return this;
    }

    /**
     * How long a call goes on trying after errors that are worth it: refusals with a retryable status, lost connections.
     * That never repeats an id. Defaults to zero: the caller sees every error.
     *
     * @param limit a span, or zero
     * @return this
     */
    public XuidOptions retryFor(Duration limit) {
        settings.retryFor = notNegative("retryFor", limit);
        return this;
    }

    /**
     * How often all servers are tried before a call that needs a connection fails. The next call tries again. Only the
     * first connection is tried just once, so that a wrong address is an error at once. Defaults to 6.
     *
     * @param rounds 1 or more
     * @return this
     */
    public XuidOptions reconnectRounds(int rounds) {
        settings.reconnectRounds = atLeastOne("reconnectRounds", rounds);
        return this;
    }

    /**
     * The pause after a failure: a random part of a span that begins with {@code first} and doubles up to
     * {@code longest}. Too short, and a thousand clients meet a restarted server at once. Defaults to 20 ms and 2 s.
     *
     * @param first the first span
     * @param longest the longest span
     * @return this
     */
    public XuidOptions backoff(Duration first, Duration longest) {
        settings.firstPause = notNegative("backoff first", first);
        settings.longestPause = notNegative("backoff longest", longest);
        return this;
    }

    /**
     * How long after a fail-over a client of several servers tries to go back to its first choice, so that the load
     * spreads again. What is in flight is finished where it is. Defaults to 3 minutes, and up to a quarter more at
     * random.
     *
     * @param pause a span above zero
     * @return this
     */
    public XuidOptions returnAfter(Duration pause) {
        settings.returnAfter = aboveZero("returnAfter", pause);
        return this;
    }

    private static int atLeastOne(String name, int number) {
        if (number < 1) {
            throw new IllegalArgumentException(name + " is " + number + ", and 1 or more is allowed");
        }
        return number;
    }

    private static Duration aboveZero(String name, Duration span) {
        if (span.isZero()) {
            throw new IllegalArgumentException(name + " is zero, and a span above zero is allowed");
        }
        return notNegative(name, span);
    }

    private static Duration notNegative(String name, Duration span) {
        if (span.isNegative()) {
            throw new IllegalArgumentException(name + " is " + span + ", which is negative");
        }
        return span.compareTo(FOREVER) > 0 ? FOREVER : span;
    }
}
