package org.xuid.client.internal.link;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.net.UnknownHostException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import javax.net.ssl.SSLException;
import javax.net.ssl.SSLSocket;
import org.xuid.client.Layout;
import org.xuid.client.ServerInfo;
import org.xuid.client.XuidException;
import org.xuid.client.internal.base.Settings;
import org.xuid.client.internal.base.Time;
import org.xuid.client.internal.wire.BadReply;
import org.xuid.client.internal.wire.Bytes;
import org.xuid.client.internal.wire.Frame;
import org.xuid.client.internal.wire.Hello;
import org.xuid.client.internal.wire.Op;
import org.xuid.client.internal.wire.Reply;
import org.xuid.client.internal.wire.Status;

/** From an address to a greeted connection, within {@link Settings#connectTimeout}. */
final class Dial {
    /** The request id of HELLO; those of {@link Pending} are above. */
    private static final long HELLO_ID = 1;

    /** A connection that said HELLO and was answered. */
    static final class Greeted {
        final ServerInfo server;
        /** What ends the connection at once, and waits for nothing. */
        final Socket socket;
        final InputStream in;
        final OutputStream out;
        /** What was received behind the answer. */
        final byte[] rest;

        private Greeted(ServerInfo server, Socket socket, InputStream in, OutputStream out, byte[] rest) {
            this.server = server;
            this.socket = socket;
            this.in = in;
            this.out = out;
            this.rest = rest;
        }

        void close() {
            closeQuietly(socket);
        }
    }

    private final String server;
    private final Settings options;
    private volatile Socket socket = new Socket();
    private volatile boolean isLate;
    private byte[] inbox = new byte[1_024];
    private int received;

    private Dial(String server, Settings options) {
        this.server = server;
        this.options = options;
    }

    /** Connects and says HELLO. */
    static Greeted greet(String server, Settings options, ScheduledExecutorService timer) throws XuidException {
        return new Dial(server, options).greet(timer);
    }

    static void closeQuietly(Socket socket) {
        try {
            socket.close();
        } catch (IOException ended) {
            // It is over either way.
        }
    }

    private Greeted greet(ScheduledExecutorService timer) {
        long end = Time.now() + Time.nanos(options.connectTimeout);
        // The end of the time closes the socket, whatever step of the greeting waits on it.
        ScheduledFuture<?> late = timer.schedule(this::giveUp, options.connectTimeout.toNanos(), TimeUnit.NANOSECONDS);
        boolean isGreeted = false;
        try {
            connect(end);
            Greeted greeted = options.tls == null ? hello(socket) : hello(secured());
            isGreeted = late.cancel(false);
            if (!isGreeted) {
                throw timedOut();
            }
            return greeted;
        } catch (XuidException known) {
            throw known;
        } catch (RuntimeException unfit) {
            // As of a name that TLS does not take. The thread that dials must tell it to those that wait.
            throw Failures.unreachable(server, unfit);
        } finally {
            late.cancel(false);
            if (!isGreeted) {
                closeQuietly(socket);
            }
        }
    }

    private void giveUp() {
        isLate = true;
        closeQuietly(socket);
    }

    private String host() {
        String host = server.substring(0, server.lastIndexOf(':'));
        return host.startsWith("[") ? host.substring(1, host.length() - 1) : host;
    }

    private int port() {
        return Integer.parseInt(server.substring(server.lastIndexOf(':') + 1));
    }

    /** Tries the addresses of the name in turn, each for its share of the time: one that is silent must not take it all. */
    private void connect(long end) {
        IOException failure = null;
        try {
            InetAddress[] addresses = options.names.addresses(host(), end - Time.now());
            for (int at = 0; at < addresses.length; at++) {
                long left = Math.max(1, Math.min((end - Time.now()) / 1_000_000, Integer.MAX_VALUE));
                int share = (int) Math.max(1, left / (addresses.length - at));
                try {
                    socket.connect(new InetSocketAddress(addresses[at], port()), share);
                    // Without it a small request waits for the acknowledgement of the one before, 40 ms and more.
                    socket.setTcpNoDelay(true);
                    // For a client that is closed meanwhile, whose timer ends nothing any more.
                    socket.setSoTimeout((int) left);
                    return;
                } catch (IOException failed) {
                    failure = failed;
                    closeQuietly(socket);
                    if (isLate) {
                        break;
                    }
                    socket = new Socket();
                }
            }
        } catch (UnknownHostException unknown) {
            failure = unknown;
        } catch (TimeoutException late) {
            long limit = options.connectTimeout.toMillis();
            throw Failures.unreachable(
                    server, new SocketTimeoutException("its name was not looked up within " + limit + " ms"));
        } catch (InterruptedException closing) {
            throw Failures.closed();
        }
        throw unreachable(failure);
    }

    private SSLSocket secured() {
        try {
            return options.tls.wrap(socket, host(), port());
        } catch (SSLException refused) {
            throw isLate ? timedOut() : Failures.noTls(server, refused);
        } catch (IOException failed) {
            throw unreachable(failed);
        }
    }

    private Greeted hello(Socket stream) {
        try {
            InputStream in = stream.getInputStream();
            OutputStream out = stream.getOutputStream();
            Bytes hello = new Bytes().raw(Frame.preface());
            options.hello().encode(hello, HELLO_ID);
            out.write(hello.data(), 0, hello.length());
            out.flush();
            int consumed = readReply(in);
            ServerInfo info = check(Reply.parse(inbox, 0));
            socket.setSoTimeout(0);
            return new Greeted(info, socket, in, out, Arrays.copyOfRange(inbox, consumed, received));
        } catch (SSLException refused) {
            // A server that refuses the client's certificate says so behind the handshake.
            throw isLate ? timedOut() : Failures.noTls(server, refused);
        } catch (IOException failed) {
            boolean isOver = isLate || failed instanceof SocketTimeoutException;
            throw isOver ? timedOut() : new XuidException.ConnectionLost(server, failed);
        } catch (BadReply bad) {
            throw Failures.protocol(server, bad.getMessage() + lineOfText());
        }
    }

    /** Reads until the first frame is whole, and returns its length. */
    private int readReply(InputStream in) throws IOException, BadReply {
        while (true) {
            if (received >= Frame.HEADER) {
                Reply.checkHeader(inbox, 0);
                long body = Frame.bodyLength(inbox, 0);
                Reply.checkLength(body, Frame.longest(null));
                if (received >= Frame.HEADER + body) {
                    return Frame.HEADER + (int) body;
                }
            }
            if (received == inbox.length) {
                inbox = Arrays.copyOf(inbox, received * 2);
            }
            int read = in.read(inbox, received, inbox.length - received);
            if (read < 0) {
                throw new IOException("it was closed before HELLO was answered" + lineOfText());
            }
            received += read;
        }
    }

    private ServerInfo check(Reply reply) throws BadReply {
        if (reply.isGoaway()) {
            throw new XuidException.ConnectionLost(server, null);
        }
        if (reply.status == Status.WRONG_CLUSTER) {
            String text = server + " refused: " + Status.name(reply.status) + ": " + reply.text;
            throw new XuidException.WrongCluster(server, null, options.cluster, text, null);
        }
        if (reply.status != 0) {
            throw new XuidException.Refused(server, reply.status, reply.retryAfterMs, reply.text, null);
        }
        if (reply.op != Op.HELLO) {
            throw new BadReply(String.format("HELLO was answered with op %02x", reply.op));
        }
        Hello hello = reply.hello;
        if (hello.version != 1) {
            throw new BadReply("version " + hello.version + " was picked, and only version 1 was offered");
        }
        int bits = hello.timeBits + hello.workerBits + hello.sequenceBits;
        if (bits < 40 || bits > 63) {
            throw new BadReply("the bits of its ids do not add up to 40 to 63");
        }
        if (hello.face > 2) {
            throw new BadReply("its ids have face " + hello.face + ", and this client knows 0 to 2");
        }
        // A server refuses by itself what HELLO expected of it. One that does not is not believed either.
        if (!options.allows(hello.cluster)) {
            String text = server + " is of cluster " + hello.cluster + ", and XuidOptions.cluster asks for "
                    + options.cluster + ": check the address";
            throw new XuidException.WrongCluster(server, hello.cluster, options.cluster, text, null);
        }
        Layout layout =
                new Layout(hello.epochMs, hello.tickUs, hello.timeBits, hello.workerBits, hello.sequenceBits, hello.face);
        return new ServerInfo(server, hello.server, hello.cluster, layout, hello.maxCount, hello.maxInFlight);
    }

    /** What a port that speaks something else said, which may be a line for people. */
    private String lineOfText() {
        int end = 0;
        while (end < received && end < 200 && inbox[end] >= ' ' && inbox[end] < 0x7f) {
            end++;
        }
        return end < 4 ? "" : " (it says: " + new String(inbox, 0, end, StandardCharsets.US_ASCII) + ")";
    }

    private XuidException unreachable(IOException failed) {
        return isLate ? timedOut() : Failures.unreachable(server, failed);
    }

    private XuidException timedOut() {
        long limit = options.connectTimeout.toMillis();
        return Failures.unreachable(
                server, new SocketTimeoutException("no answer to HELLO within " + limit + " ms"));
    }
}
