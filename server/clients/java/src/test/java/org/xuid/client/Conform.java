package org.xuid.client;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.function.Supplier;
import org.xuid.client.internal.wire.Vectors;

/**
 * The conformance program: one JSON object a line on stdin asks for something, one a line on stdout answers it, in the
 * order in which they are done. Numbers of 64 bits are strings. At the end of stdin it waits a little for what runs, and
 * closes.
 */
public final class Conform {
    /** What a caller of the program did wrong, or asked for in vain. */
    private static final class Failure extends RuntimeException {
        private static final long serialVersionUID = 1;
        final String kind;

        Failure(String kind, String text) {
            super(text);
            this.kind = kind;
        }
    }

    /** What may block runs here, so that the next line is read meanwhile. */
    private final ExecutorService workers = Executors.newCachedThreadPool(task -> {
        Thread thread = new Thread(task);
        thread.setDaemon(true);
        return thread;
    });
    private final Map<Object, Chain> running = new ConcurrentHashMap<>();
    private final PrintStream out;
    /** Lines without an answer, behind the lock of {@link #out}. */
    private int unanswered;
    private volatile XuidClient client;
    private Prefetch source;

    private Conform(PrintStream out) {
        this.out = out;
    }

    public static void main(String[] arguments) throws Exception {
        Conform program = new Conform(new PrintStream(new java.io.FileOutputStream(java.io.FileDescriptor.out), false,
                StandardCharsets.UTF_8));
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            if (!line.isBlank()) {
                program.begin(Json.object(Json.read(line)));
            }
        }
        program.finish();
        program.close();
        System.exit(0);
    }

    private void finish() throws InterruptedException {
        long end = System.nanoTime() + 10_000_000_000L;
        synchronized (out) {
            for (long left = 10_000; unanswered > 0 && left > 0; left = (end - System.nanoTime()) / 1_000_000) {
                out.wait(left);
            }
        }
    }

    /** The calls of one line, of which so many are in flight at once; they end together. */
    private final class Chain {
        final CompletableFuture<Object> done = new CompletableFuture<>();
        private final List<CompletableFuture<?>> inFlight = new ArrayList<>();
        private final List<Object> results = new ArrayList<>();
        private final Supplier<CompletableFuture<?>> begin;
        private int unsent;
        private int unanswered;

        Chain(int times, int inFlight, Supplier<CompletableFuture<?>> begin) {
            this.begin = begin;
            unsent = times;
            unanswered = times;
            for (int i = 0; i < Math.min(times, inFlight); i++) {
                next();
            }
            if (times == 0) {
                done.complete(results);
            }
        }

        private void next() {
            CompletableFuture<?> call;
            synchronized (this) {
                if (unsent == 0 || done.isDone()) {
                    return;
                }
                unsent--;
                call = begin.get();
                inFlight.add(call);
            }
            call.whenComplete((result, failure) -> {
                boolean isLast;
                synchronized (this) {
                    inFlight.remove(call);
                    results.add(result instanceof Long ? result.toString() : result);
                    isLast = --unanswered == 0;
                }
                if (failure != null) {
                    done.completeExceptionally(failure);
                } else if (isLast) {
                    done.complete(results);
                } else {
                    next();
                }
            });
        }

        void cancel() {
            List<CompletableFuture<?>> calls;
            synchronized (this) {
                unsent = 0;
                calls = List.copyOf(inFlight);
            }
            done.completeExceptionally(new CancellationException("cancelled"));
            calls.forEach(call -> call.cancel(true));
        }
    }

    private void begin(Map<String, Object> line) {
        Object id = line.get("id");
        synchronized (out) {
            unanswered++;
        }
        try {
            Chain chain = chain(line);
            if (chain != null) {
                running.put(id, chain);
                chain.done.whenComplete((results, failure) -> {
                    running.remove(id, chain);
                    answer(id, failure == null ? fields(line, (List<?>) results) : Map.of(), failure);
                });
            } else if (line.get("do").equals("cancel")) {
                Chain other = running.get(line.get("of"));
                if (other != null) {
                    other.cancel();
                }
                answer(id, Map.of(), null);
            } else {
                workers.execute(() -> {
                    try {
                        answer(id, blocking(line), null);
                    } catch (Throwable failure) {
                        answer(id, Map.of(), failure);
                    }
                });
            }
        } catch (RuntimeException failure) {
            answer(id, Map.of(), failure);
        }
    }

    /** What can be cancelled, and waits for nothing on this thread; null: something else. */
    private Chain chain(Map<String, Object> line) {
        int count = number(line, "count", 0);
        int times = number(line, "times", 1);
        int inFlight = number(line, "in_flight", 1);
        Duration wait = Duration.ofMillis(number(line, "wait_ms", 50));
        switch ((String) line.get("do")) {
            case "next":
                return new Chain(times, inFlight, () -> client().nextAsync(order(line, Order.ANY)));
            case "array":
                return new Chain(1, 1, () -> client().arrayAsync(count, order(line, Order.ANY), wait));
            case "runs":
                return new Chain(1, 1, () -> client().runsAsync(count, order(line, Order.ANY), wait));
            case "seq_next":
                return new Chain(times, inFlight, () -> sequence(line).nextAsync());
            case "seq_array":
                return new Chain(1, 1, () -> sequence(line).arrayAsync(count, order(line, Order.ORDERED), wait));
            case "seq_runs":
                boolean isOne = Boolean.TRUE.equals(line.get("contiguous"));
                return new Chain(1, 1, () -> isOne
                        ? sequence(line).takeAsync(count, order(line, Order.ORDERED), wait)
                        : sequence(line).runsAsync(count, order(line, Order.ORDERED), wait));
            default:
                return null;
        }
    }

    private static Map<String, Object> fields(Map<String, Object> line, List<?> results) {
        Object first = results.isEmpty() ? "" : results.get(0);
        if (first instanceof Run) {
            return Map.of("runs", List.of(run((Run) first)));
        }
        if (first instanceof long[]) {
            return Map.of("ids", texts((long[]) first));
        }
        if (first instanceof List) {
            List<Object> runs = new ArrayList<>();
            ((List<?>) first).forEach(each -> runs.add(run((Run) each)));
            return Map.of("runs", runs);
        }
        return Map.of("ids", results);
    }

    private static Map<String, Object> run(Run run) {
        Map<String, Object> fields = new LinkedHashMap<>();
        fields.put("first", Long.toString(run.first()));
        fields.put("count", run.count());
        fields.put("stride", Long.toString(run.stride()));
        return fields;
    }

    private static List<Object> texts(long[] ids) {
        List<Object> texts = new ArrayList<>(ids.length);
        for (long id : ids) {
            texts.add(Long.toString(id));
        }
        return texts;
    }

    private Map<String, Object> blocking(Map<String, Object> line) throws Exception {
        switch ((String) line.get("do")) {
            case "connect":
                return connect(line);
            case "seq_create":
                return Map.of("info", Json.read(sequence(line).create(settings(line))));
            case "seq_alter":
                return Map.of("info", Json.read(sequence(line).alter(settings(line))));
            case "seq_info":
                return Map.of("info", Json.read(sequence(line).info()));
            case "seq_list":
                String prefix = (String) line.getOrDefault("prefix", "");
                String after = (String) line.getOrDefault("after", "");
                return Map.of("list", Json.read(client().sequences(prefix, after, number(line, "limit", 1_000))));
            case "decode":
                return parts(client().decode(Long.parseUnsignedLong((String) line.get("number"))));
            case "time_of":
                return parts(client().layout().parts(Long.parseUnsignedLong((String) line.get("number"))));
            case "info":
                return Map.of("info", Json.read(client().info()));
            case "ping":
                client().ping();
                return Map.of();
            case "prefetch":
                return prefetch(number(line, "times", 1));
            case "prefetch_rate":
                return rate(number(line, "seconds", 1));
            case "vectors":
                return vectors(Path.of((String) line.get("file")));
            case "close":
                close();
                return Map.of();
            case "fork":
                throw new Failure("unsupported", "a JVM cannot fork");
            default:
                throw new Failure("unsupported", "there is no " + line.get("do"));
        }
    }

    private Map<String, Object> connect(Map<String, Object> line) throws Exception {
        List<String> servers = new ArrayList<>();
        ((List<?>) line.get("servers")).forEach(server -> servers.add((String) server));
        XuidOptions options = new XuidOptions(servers)
                .timeout(Duration.ofMillis(number(line, "timeout_ms", 10_000)))
                .connectTimeout(Duration.ofMillis(number(line, "connect_timeout_ms", 5_000)))
                .retryFor(Duration.ofMillis(number(line, "retry_for_ms", 0)))
                .returnAfter(Duration.ofMillis(number(line, "return_after_ms", 180_000)))
                .maxInFlight(number(line, "max_in_flight", 1_024));
        if (line.get("token") != null) {
            options.token((String) line.get("token"));
        }
        if (line.get("cluster") != null) {
            options.cluster((String) line.get("cluster"));
        }
        if (line.get("tls") != null) {
            options.tls(tls(Json.object(line.get("tls"))));
        }
        close();
        client = XuidClient.connect(options);
        ServerInfo server = client.server();
        Layout layout = server.layout();
        Map<String, Object> bits = new LinkedHashMap<>();
        bits.put("epoch_ms", Long.toString(layout.epochMs()));
        bits.put("tick_us", layout.tickUs());
        bits.put("time_bits", layout.timeBits());
        bits.put("worker_bits", layout.workerBits());
        bits.put("sequence_bits", layout.sequenceBits());
        return Map.of("cluster", server.cluster(), "server", server.address(), "layout", bits);
    }

    private static Tls tls(Map<String, Object> fields) throws java.io.IOException {
        Tls tls = Tls.trusting(Path.of((String) fields.get("ca")));
        if (fields.get("cert") != null) {
            tls = tls.showing(Path.of((String) fields.get("cert")), Path.of((String) fields.get("key")));
        }
        return fields.get("server_name") == null ? tls : tls.serverName((String) fields.get("server_name"));
    }

    private synchronized Prefetch source() {
        if (source == null) {
            source = client().prefetch();
        }
        return source;
    }

    private Map<String, Object> prefetch(int times) {
        long[] ids = new long[times];
        Prefetch from = source();
        for (int i = 0; i < times; i++) {
            ids[i] = from.next();
        }
        return Map.of("ids", texts(ids), "held", from.stats().held());
    }

    private Map<String, Object> rate(int seconds) {
        try (PrefetchedIds ids = source().ids()) {
            long span = 1_000_000_000L * seconds;
            return Map.of(
                    "ids_per_second", Long.toString((long) Bench.perSecond(span, ids::next)),
                    "loop_per_second", Long.toString((long) Bench.perSecond(span, Bench.counter())));
        }
    }

    private static Map<String, Object> vectors(Path file) throws java.io.IOException {
        try {
            Vectors counts = Vectors.check(file);
            return Map.of("encoded", counts.encoded, "decoded", counts.decoded, "refused", counts.refused);
        } catch (AssertionError failed) {
            throw new Failure("vectors", failed.getMessage());
        }
    }

    private synchronized void close() {
        source = null;
        if (client != null) {
            client.close();
        }
    }

    private XuidClient client() {
        XuidClient connected = client;
        if (connected == null) {
            throw new Failure("usage", "connect comes first");
        }
        return connected;
    }

    private Sequence sequence(Map<String, Object> line) {
        return client().sequence((String) line.get("name"));
    }

    private static String settings(Map<String, Object> line) {
        return line.get("settings") == null ? "" : Json.write(line.get("settings"));
    }

    private static Map<String, Object> parts(IdParts parts) {
        return Map.of(
                "unix_ms", Long.toString(parts.unixMs()), "worker", parts.worker(), "sequence", parts.sequence());
    }

    private static Order order(Map<String, Object> line, Order usual) {
        Object order = line.get("order");
        return order == null ? usual : Order.valueOf(order.toString().toUpperCase(java.util.Locale.ROOT));
    }

    private static int number(Map<String, Object> line, String key, int usual) {
        Object number = line.get(key);
        long value = number == null ? usual : Long.parseLong(number.toString());
        if (value != (int) value) {
            throw new Failure("usage", key + " is " + value + ", which is no int");
        }
        return (int) value;
    }

    private void answer(Object id, Map<String, Object> fields, Throwable failure) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("id", id);
        line.putAll(fields);
        if (failure != null) {
            line.put("error", error(failure));
        }
        String text = Json.write(line);
        synchronized (out) {
            out.println(text);
            out.flush();
            unanswered--;
            out.notifyAll();
        }
    }

    private static Map<String, Object> error(Throwable failure) {
        Map<String, Object> error = new LinkedHashMap<>();
        Throwable cause = failure instanceof CompletionException ? failure.getCause() : failure;
        error.put("kind", kind(cause));
        if (cause instanceof XuidException.Refused) {
            XuidException.Refused refused = (XuidException.Refused) cause;
            error.put("status", refused.status());
            error.put("code", refused.code());
            error.put("retry_after_ms", refused.retryAfter().toMillis());
            error.put("text", refused.text());
        } else {
            error.put("text", String.valueOf(cause.getMessage()));
        }
        return error;
    }

    private static String kind(Throwable failure) {
        Map<Class<?>, String> kinds = Map.of(
                XuidException.Refused.class, "refused",
                XuidException.Timeout.class, "timeout",
                XuidException.ConnectionLost.class, "lost",
                XuidException.Unreachable.class, "unreachable",
                XuidException.Protocol.class, "protocol",
                XuidException.WrongCluster.class, "wrong_cluster",
                XuidException.Closed.class, "closed",
                CancellationException.class, "cancelled");
        if (failure instanceof Failure) {
            return ((Failure) failure).kind;
        }
        // The rest are arguments that no server would take, files that are not there, and calls out of place.
        return kinds.getOrDefault(failure.getClass(), "usage");
    }
}
