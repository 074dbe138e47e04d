package org.xuid.client;

import java.io.Closeable;
import java.io.DataInputStream;
import java.io.EOFException;
import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import org.xuid.client.internal.wire.Bytes;
import org.xuid.client.internal.wire.Frame;
import org.xuid.client.internal.wire.Op;
import org.xuid.client.internal.wire.ServerSide;

/** A server whose every word a test decides. Waits are bounded: what does not come within 10 s fails the test. */
final class FakeServer implements Closeable {
    static final String CLUSTER = "101112131415161718191a1b1c1d1e1f";
    static final int PATIENCE_MS = 10_000;

    private final ServerSocket listener;
    private final List<Peer> peers = new ArrayList<>();
    String cluster = CLUSTER;
    int maxInFlight = 1_024;

    FakeServer() throws IOException {
        listener = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
        listener.setSoTimeout(PATIENCE_MS);
    }

    String address() {
        return "127.0.0.1:" + listener.getLocalPort();
    }

    /** The next connection, before its preface was read. */
    Peer accept() throws IOException {
        Peer peer = new Peer(listener.accept());
        peers.add(peer);
        return peer;
    }

    /** The next connection, greeted. */
    Peer greet() throws IOException {
        Peer peer = accept();
        Asked hello = peer.hello();
        peer.reply(hello, welcome());
        return peer;
    }

    Map<String, Object> welcome() {
        Map<String, Object> fields = new LinkedHashMap<>();
        fields.put("version", 1L);
        fields.put("features", 0L);
        fields.put("cluster", cluster);
        fields.put("epoch_ms", "1524153600000");
        fields.put("tick_us", 1_000L);
        fields.put("time_bits", 41L);
        fields.put("worker_bits", 10L);
        fields.put("sequence_bits", 12L);
        fields.put("face", 0L);
        fields.put("max_body", 4_096L);
        fields.put("max_count", 131_072L);
        fields.put("max_in_flight", (long) maxInFlight);
        fields.put("idle_ms", 300_000L);
        fields.put("server", "fake");
        return fields;
    }

    /** A client of this server, connected, and the server's end of it. */
    XuidClient connect(XuidOptions options) throws Exception {
        CompletableFuture<XuidClient> client = CompletableFuture.supplyAsync(() -> XuidClient.connect(options));
        greet();
        return client.get();
    }

    XuidOptions options() {
        return new XuidOptions(address());
    }

    /** The connection that was accepted last. */
    Peer peer() {
        return peers.get(peers.size() - 1);
    }

    /** Whether a connection comes within that time. */
    boolean hasCaller(int ms) throws IOException {
        listener.setSoTimeout(ms);
        try {
            accept();
            return true;
        } catch (java.net.SocketTimeoutException nobody) {
            return false;
        } finally {
            listener.setSoTimeout(PATIENCE_MS);
        }
    }

    @Override
    public void close() throws IOException {
        listener.close();
        for (Peer peer : peers) {
            peer.close();
        }
    }

    /** One request. */
    static final class Asked {
        final int op;
        final long id;
        final Map<String, Object> fields;

        Asked(int op, long id, Map<String, Object> fields) {
            this.op = op;
            this.id = id;
            this.fields = fields;
        }

        int count() {
            return (int) (long) (Long) fields.get("count");
        }
    }

    /** The server's end of one connection. */
    static final class Peer implements Closeable {
        private final Socket socket;
        private final DataInputStream in;
        private boolean isServing;

        Peer(Socket socket) throws IOException {
            this.socket = socket;
            socket.setTcpNoDelay(true);
            socket.setSoTimeout(PATIENCE_MS);
            in = new DataInputStream(socket.getInputStream());
        }

        Asked hello() throws IOException {
            byte[] preface = in.readNBytes(8);
            if (!Arrays.equals(preface, Frame.preface())) {
                throw new IOException("no preface");
            }
            Asked hello = ask();
            if (hello.op != Op.HELLO) {
                throw new IOException("no HELLO");
            }
            isServing = true;
            return hello;
        }

        /** The next request, which must be one that a server takes. */
        Asked ask() throws IOException {
            byte[] header = in.readNBytes(Frame.HEADER);
            if (header.length < Frame.HEADER) {
                throw new EOFException("the client closed");
            }
            byte[] frame = Arrays.copyOf(header, Frame.HEADER + (int) Frame.bodyLength(header, 0));
            in.readFully(frame, Frame.HEADER, frame.length - Frame.HEADER);
            try {
                Map<String, Object> fields = ServerSide.request(frame, isServing);
                return new Asked(Frame.op(frame, 0), Frame.requestId(frame, 0), fields);
            } catch (ServerSide.Refusal refusal) {
                throw new IOException(refusal);
            }
        }

        /** The next request, which must be of that op; a PING of the client's own before it is answered. */
        Asked expect(int op) throws IOException {
            Asked asked = ask();
            while (asked.op == Op.PING && op != Op.PING) {
                reply(asked, asked.fields);
                asked = ask();
            }
            if (asked.op != op) {
                throw new IOException(String.format("op %02x was asked for, and not %02x", asked.op, op));
            }
            return asked;
        }

        void reply(Asked asked, Map<String, Object> fields) throws IOException {
            send(ServerSide.reply(asked.op | Op.REPLY_BIT, 0, asked.id, fields));
        }

        /** Answers NEXT. */
        void id(Asked asked, long id) throws IOException {
            reply(asked, Map.of("id", Long.toString(id)));
        }

        /** Answers RUNS in one run. */
        void run(Asked asked, long first) throws IOException {
            long count = asked.count();
            Map<String, Object> run = Map.of("first", Long.toString(first), "count", count, "stride", 1L);
            reply(asked, Map.of("count", count, "runs", List.of(run)));
        }

        void refuse(Asked asked, int status, long retryAfterMs) throws IOException {
            Map<String, Object> fields = Map.of("retry_after_ms", retryAfterMs, "text", "so it\nis");
            send(ServerSide.reply(asked.op | Op.REPLY_BIT, status, asked.id, fields));
        }

        void goaway() throws IOException {
            send(ServerSide.frame(Op.GOAWAY, 0, 0, new byte[0]));
        }

        void raw(Asked asked, int op, Bytes body) throws IOException {
            send(ServerSide.frame(op | Op.REPLY_BIT, 0, asked.id, body.toArray()));
        }

        void send(byte[] bytes) throws IOException {
            socket.getOutputStream().write(bytes);
        }

        /** Whether something came that was not read yet. */
        boolean hasMore() throws IOException {
            return in.available() > 0;
        }

        /** Waits for the end of the connection. */
        void expectEnd() throws IOException {
            try {
                int more = in.read();
                if (more >= 0) {
                    throw new IOException("the client said more");
                }
            } catch (java.net.SocketException reset) {
                // An end, too.
            }
        }

        @Override
        public void close() throws IOException {
            socket.close();
        }
    }
}
