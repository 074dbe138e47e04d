package org.xuid.client;

import java.io.DataInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.LongAdder;
import java.util.function.IntSupplier;
import java.util.function.LongSupplier;

/**
 * How fast the client is, beside what bounds it, against the server that XUID_SERVER names, which needs land to spare. Each
 * figure takes so many seconds as the first argument says, 2 by default. {@code server/clients/bench} runs those of all
 * clients in turn.
 */
public final class Bench {
    private static final int IN_FLIGHT = 100;

    /** Turns between two looks at the clock. */
    private static final int TURNS = 10_000;

    /** What is not counted: the compiler takes a second. */
    private static final long WARM_UP = 1_500_000_000L;

    private static volatile long sink;

    private Bench() {}

    public static void main(String[] arguments) throws Exception {
        long span = (long) (1e9 * (arguments.length > 0 ? Double.parseDouble(arguments[0]) : 2));
        try (XuidClient client = XuidClient.connect()) {
            print("a loop over a counter", perSecond(span, counter()));
            try (Prefetch source = client.prefetch(); PrefetchedIds ids = source.ids()) {
                print("prefetched, one by one", perSecond(span, ids::next));
            }
            print("a raw echo, 100 in flight", echo(client.server().address(), span));
            print("NEXT, 100 in flight", pipelined(client, span));
        }
    }

    static LongSupplier counter() {
        long[] count = new long[1];
        return () -> count[0]++;
    }

    /** Draws a second, on one thread. */
    static double perSecond(long span, LongSupplier draw) {
        return countPerSecond(span, () -> {
            long sum = 0;
            for (int i = 0; i < TURNS; i++) {
                sum += draw.getAsLong();
            }
            sink = sum;
            return TURNS;
        });
    }

    /** Of what {@code some} counts. */
    private static double countPerSecond(long span, IntSupplier some) {
        for (long warm = System.nanoTime(); System.nanoTime() - warm < WARM_UP; ) {
            some.getAsInt();
        }
        long begin = System.nanoTime();
        long done = 0;
        while (System.nanoTime() - begin < span) {
            done += some.getAsInt();
        }
        return done * 1e9 / (System.nanoTime() - begin);
    }

    private static byte[] frame(int op, byte[] body) {
        ByteBuffer bytes = ByteBuffer.allocate(16 + body.length).order(ByteOrder.LITTLE_ENDIAN);
        return bytes.putInt(body.length).put((byte) op).position(16).put(body).array();
    }

    /**
     * Frames that come back as they were sent: written and counted by a bare socket, and not looked at. With the eight bytes of its
     * body a frame is as long as the reply that brings an id.
     */
    private static double echo(String address, long span) throws IOException {
        int colon = address.lastIndexOf(':');
        try (Socket socket = new Socket(address.substring(0, colon), Integer.parseInt(address.substring(colon + 1)))) {
            socket.setTcpNoDelay(true);
            OutputStream out = socket.getOutputStream();
            DataInputStream in = new DataInputStream(socket.getInputStream());
            byte[] hello = new byte[26];
            hello[0] = hello[2] = 1;
            out.write("\u0089XUID\r\n\u001a".getBytes(StandardCharsets.ISO_8859_1));
            out.write(frame(1, hello));
            int length = Integer.reverseBytes(in.readInt());
            in.readFully(new byte[12 + length]);

            byte[] ping = frame(2, new byte[8]);
            byte[] many = new byte[IN_FLIGHT * ping.length];
            for (int i = 0; i < IN_FLIGHT; i++) {
                System.arraycopy(ping, 0, many, i * ping.length, ping.length);
            }
            out.write(many);
            return countPerSecond(span, new Echo(in, out, many, ping.length));
        }
    }

    private static final class Echo implements IntSupplier {
        private final InputStream in;
        private final OutputStream out;
        private final byte[] many;
        private final byte[] found;
        private final int length;
        private int part;

        Echo(InputStream in, OutputStream out, byte[] many, int length) {
            this.in = in;
            this.out = out;
            this.many = many;
            this.found = new byte[many.length];
            this.length = length;
        }

        /** Reads what is there, and writes as many frames as were whole. */
        @Override
        public int getAsInt() {
            try {
                part += in.read(found);
                int done = part / length;
                part %= length;
                out.write(many, 0, done * length);
                return done;
            } catch (IOException lost) {
                throw new UncheckedIOException(lost);
            }
        }
    }

    /** Chains of calls, each of which begins the next one in its callback. */
    private static double pipelined(XuidClient client, long span) {
        long begin = System.nanoTime() + WARM_UP;
        LongAdder done = new LongAdder();
        List<CompletableFuture<Void>> chains = new ArrayList<>();
        for (int i = 0; i < IN_FLIGHT; i++) {
            chains.add(new CompletableFuture<>());
            next(client, begin, span, done, chains.get(i));
        }
        chains.forEach(CompletableFuture::join);
        return done.sum() * 1e9 / (System.nanoTime() - begin);
    }

    private static void next(XuidClient client, long begin, long span, LongAdder done, CompletableFuture<Void> ended) {
        client.nextAsync().whenComplete((id, failure) -> {
            long after = System.nanoTime() - begin;
            if (failure != null) {
                ended.completeExceptionally(failure);
            } else if (after > span) {
                ended.complete(null);
            } else {
                if (after > 0) {
                    done.increment();
                }
                next(client, begin, span, done, ended);
            }
        });
    }

    private static void print(String what, double perSecond) {
        System.out.printf(java.util.Locale.ROOT, "%-28s%16.0f /s%n", what, perSecond);
    }
}
