package org.xuid.client;

import java.time.Duration;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.function.Supplier;
import org.xuid.client.internal.base.Worker;
import org.xuid.client.internal.link.Call;
import org.xuid.client.internal.link.Failures;
import org.xuid.client.internal.link.Fleet;
import org.xuid.client.internal.wire.Frame;
import org.xuid.client.internal.wire.Request;

/**
 * A connection to one of the servers of a cluster, for any number of threads.
 *
 * <pre>{@code
 * try (var client = XuidClient.connect("ids-1:7654,ids-2:7654")) {
 *     long id = client.next();
 *     long[] many = client.array(1_000);
 *     long order = client.sequence("orders").next();
 *     CompletableFuture<Long> later = client.nextAsync();
 * }
 * }</pre>
 *
 * <p>Many requests are in flight on one connection; that is what makes it fast. A client of several servers begins at a
 * random one, goes to the next when that is lost, leaves or cannot serve for a while, and comes back after some minutes.
 * A request whose reply is lost is an error that says so, and is always safe to repeat: its ids are wasted, and no id
 * comes twice.
 *
 * <p>Blocking calls throw {@link XuidException}, and {@link CancellationException} if the thread is interrupted while it
 * waits (its interrupt status stays set). Futures end with a {@link XuidException}; cancelling one ends that call alone.
 *
 * <p>Close a client that is not used any more: its threads, which keep no JVM alive, end with it.
 *
 * <p>What is attached to a future may run on a thread that delivers replies: keep it short, or attach it with a method
 * such as {@link CompletableFuture#thenApplyAsync}. While it waits there, for another future, say, no reply comes. A blocking
 * call there is refused with {@link IllegalStateException}. What follows a failure runs on threads of their own, at most 1,024.
 */
public final class XuidClient implements AutoCloseable {
    /** How long a server may wait for ids where the caller does not say. */
    static final Duration WAIT = Duration.ofMillis(50);

    private final Fleet fleet;
    private final Set<Prefetch> sources;

    private XuidClient(Fleet fleet, Set<Prefetch> sources) {
        this.fleet = fleet;
        this.sources = sources;
    }

    /**
     * Connects to the servers of the variable {@code XUID_SERVER} ({@code 127.0.0.1:7654} where it is not set), with the
     * token of {@code XUID_TOKEN}.
     *
     * @return a connected client
     * @throws XuidException why no server could be reached, or what it refused
     */
    public static XuidClient connect() {
        return connect(XuidOptions.fromEnvironment());
    }

    /**
     * Connects to the first of these servers that answers, in a random order.
     *
     * @param servers addresses {@code host:port} of one cluster, with commas between them
     * @return a connected client
     * @throws XuidException why no server could be reached, or what it refused
     * @throws IllegalArgumentException for a text that is no such list
     */
    public static XuidClient connect(String servers) {
        return connect(new XuidOptions(servers));
    }

    /**
     * Connects. All servers are greeted, and refused together if their clusters differ; one that does not answer now is
     * checked when it is first used. Each is tried once.
     *
     * @param options servers, and how to use them
     * @return a connected client
     * @throws XuidException why no server could be reached, or what it refused; {@link XuidException.WrongCluster}
     */
    public static XuidClient connect(XuidOptions options) {
        Set<Prefetch> sources = ConcurrentHashMap.newKeySet();
        Fleet fleet = Fleet.connect(options.settings.copy(), () -> sources.forEach(Prefetch::voidHeld));
        return new XuidClient(fleet, sources);
    }

    /**
     * One id, as young as the server likes ({@link Order#ANY}). The server decides how long it waits for one.
     *
     * @return a number of 0 to 2^63 - 1 that nobody else has
     */
    public long next() {
        return next(Order.ANY);
    }

    /**
     * One id.
     *
     * @param order which ids will do
     * @return a number of 0 to 2^63 - 1 that nobody else has
     */
    public long next(Order order) {
        return await(() -> nextAsync(order));
    }

    /**
     * As {@link #next()}.
     *
     * @return the id to come
     */
    public CompletableFuture<Long> nextAsync() {
        return nextAsync(Order.ANY);
    }

    /**
     * As {@link #next(Order)}.
     *
     * @param order which ids will do
     * @return the id to come
     */
    public CompletableFuture<Long> nextAsync(Order order) {
        return call(Request.next(order.ordinal()));
    }

    /**
     * Exactly {@code count} ids of {@link Order#ANY}, within 50 ms.
     *
     * @param count 1 to the server's limit, 131,072 by default
     * @return the ids
     */
    public long[] array(int count) {
        return array(count, Order.ANY, WAIT);
    }

    /**
     * Exactly {@code count} ids, or an error after {@code wait}.
     *
     * @param count 1 to the server's limit, 131,072 by default
     * @param order which ids will do
     * @param wait how long the server may wait for them; above 60 s counts as 60 s
     * @return the ids
     */
    public long[] array(int count, Order order, Duration wait) {
        return await(() -> arrayAsync(count, order, wait));
    }

    /**
     * As {@link #array(int, Order, Duration)}.
     *
     * @param count 1 to the server's limit
     * @param order which ids will do
     * @param wait how long the server may wait for them
     * @return the ids to come
     */
    public CompletableFuture<long[]> arrayAsync(int count, Order order, Duration wait) {
        return call(Request.array(count, order.ordinal(), ms(wait)));
    }

    /**
     * Exactly {@code count} ids of {@link Order#ANY} as runs, within 50 ms. The fastest for many ids: a run of thousands
     * is 16 bytes.
     *
     * @param count 1 to the server's limit, 131,072 by default
     * @return runs that add up to the count
     */
    public List<Run> runs(int count) {
        return runs(count, Order.ANY, WAIT);
    }

    /**
     * Exactly {@code count} ids as runs, or an error after {@code wait}.
     *
     * @param count 1 to the server's limit, 131,072 by default
     * @param order which ids will do
     * @param wait how long the server may wait for them; above 60 s counts as 60 s
     * @return runs that add up to the count
     */
    public List<Run> runs(int count, Order order, Duration wait) {
        return await(() -> runsAsync(count, order, wait));
    }

    /**
     * As {@link #runs(int, Order, Duration)}.
     *
     * @param count 1 to the server's limit
     * @param order which ids will do
     * @param wait how long the server may wait for them
     * @return the runs to come
     */
    public CompletableFuture<List<Run>> runsAsync(int count, Order order, Duration wait) {
        return call(Request.runs(count, order.ordinal(), ms(wait)));
    }

    /**
     * The fields of an id, by a call. {@link Layout#parts} does the same without one.
     *
     * @param id 0 to 2^63 - 1
     * @return its time, worker and sequence
     */
    public IdParts decode(long id) {
        return await(() -> call(Request.decode(id)));
    }

    /**
     * What the server is.
     *
     * @return a JSON object
     */
    public String info() {
        return await(() -> call(Request.info()));
    }

    /**
     * What the server counted.
     *
     * @return a JSON object
     */
    public String stats() {
        return await(() -> call(Request.stats()));
    }

    /**
     * What the server knows of where an id came from, and whether it may have been issued.
     *
     * @param id below 2^63
     * @return a JSON object
     */
    public String provenance(long id) {
        return await(() -> call(Request.provenance(id)));
    }

    /** Asks whether the server is there: returns when it has answered. */
    public void ping() {
        await(() -> call(Request.ping(new byte[0])));
    }

    /**
     * The sequence of a name. It need not exist, and nothing is sent.
     *
     * @param name 1 to 128 bytes of UTF-8 without control characters, no space at either end, not beginning with {@code @}
     * @return its numbers
     * @throws IllegalArgumentException for a text that no sequence can be called
     */
    public Sequence sequence(String name) {
        return new Sequence(this, name);
    }

    /**
     * Sequences in the order of the bytes of their names. To read all, ask again after the last name.
     *
     * @param prefix what the names begin with; empty for all
     * @param after only greater names; empty for all
     * @param limit 1 to 1,000
     * @return a JSON array of objects as of {@link Sequence#info}
     */
    public String sequences(String prefix, String after, int limit) {
        return await(() -> call(Request.sequenceList(limit, prefix, after)));
    }

    /**
     * A source of ids that asks for them ahead of need, in the background: for callers that cannot wait for a round trip,
     * and for hot loops.
     *
     * @return a source with the default options; close it when it is done with
     */
    public Prefetch prefetch() {
        return prefetch(new Prefetch.Options());
    }

    /**
     * A source of ids that asks for them ahead of need, in the background.
     *
     * @param options how much is held ahead, and how long
     * @return a source; close it when it is done with
     * @throws XuidException.Closed after {@link #close}
     */
    public Prefetch prefetch(Prefetch.Options options) {
        Prefetch source = new Prefetch(fleet, options, sources::remove);
        sources.add(source);
        if (fleet.isClosed()) {
            // Closing may have missed it.
            source.close();
            throw Failures.closed();
        }
        return source.start();
    }

    /**
     * What the server of the last connection said about itself.
     *
     * @return its address, version, cluster, layout and limits
     */
    public ServerInfo server() {
        return fleet.server();
    }

    /**
     * How the ids of this cluster are made: the time of an id without a call.
     *
     * @return the layout
     */
    public Layout layout() {
        return server().layout();
    }

    /**
     * Whether a connection stands now. The next call makes one if not.
     *
     * @return true if one stands
     */
    public boolean isConnected() {
        return fleet.isConnected();
    }

    /**
     * Says BYE, waits up to a second for the answer, and closes. Calls in flight that are not answered by then end with
     * {@link XuidException.Closed}, a future perhaps a moment after this call, and so do all later ones. Sources made by
     * {@link #prefetch()} are closed, too. Closing twice is no error.
     */
    @Override
    public void close() {
        List.copyOf(sources).forEach(Prefetch::close);
        fleet.close();
        // One that was made between the two found the client open.
        List.copyOf(sources).forEach(Prefetch::close);
    }

    /** Begins a call; T is what {@link Call} makes of a reply to that request. */
    <T> CompletableFuture<T> call(Request request) {
        Call<T> call = new Call<>(request, fleet.options.timeout.toNanos(), fleet.options.retryFor.toNanos());
        fleet.start(call);
        return call;
    }

    /** Makes a call and waits for its end. */
    static <T> T await(Supplier<CompletableFuture<T>> begin) {
        // Before it begins: a refused call must waste no id.
        Worker.checkMayWait();
        CompletableFuture<T> call = begin.get();
        if (call instanceof Call) {
            ((Call<T>) call).isTold();
        }
        try {
            return call.get();
        } catch (InterruptedException interrupted) {
            call.cancel(false);
            Thread.currentThread().interrupt();
            throw new CancellationException("interrupted while waiting for a reply");
        } catch (ExecutionException failed) {
            if (failed.getCause() instanceof XuidException) {
                throw ((XuidException) failed.getCause()).again();
            }
            throw new IllegalStateException(failed.getCause());
        }
    }

    static int ms(Duration wait) {
        if (wait.isNegative()) {
            throw new IllegalArgumentException("the wait is " + wait + ", and 0 to 60 s are allowed");
        }
        long limit = Frame.WAIT_MAX_MS;
        return (int) (wait.compareTo(Duration.ofMillis(limit)) > 0 ? limit : wait.toMillis());
    }
}
