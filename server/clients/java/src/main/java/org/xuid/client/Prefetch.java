package org.xuid.client;

/**
 * A source of ids that are there before they are asked for, made by {@link XuidClient#prefetch()}. Safe for any number of
 * threads.
 *
 * <pre>{@code
 * try (var source = client.prefetch(); var ids = source.ids()) {
 *     for (Order order : orders) {
 *         order.setId(ids.next());
 *     }
 * }
 * }</pre>
 *
 * <p>The fastest way is {@link #ids}, a handle for each thread; {@link #next} may be called by all threads.
 *
 * <p>The ids are of {@link Order#ANY}, and there is no way to ask for another order: an id that was fetched ahead is not
 * fresh when it is handed out, and two handles that hold different runs cannot keep an order.
 *
 * <p>How many are held follows the use: 16 at first, up to a million in a hot loop; a source that is asked for nothing is
 * not refilled once what was held grew old. No id is handed out later than {@link PrefetchOptions#maxAge} after it was
 * asked for. Closing the source, or its client, wastes what is held.
 *
 * <p>An application that is resumed twice from one snapshot of its memory gives out the ids that it held in both copies:
 * close the source before the snapshot is made, and make another one after it.
 */
public final class Prefetch implements AutoCloseable {
    private final Fleet fleet;
    private final Pool pool;
    private final Runnable onClose;
    /** Handles that threads share, each behind its own lock. A power of two of them. */
    private final PrefetchedIds[] shared;

    Prefetch(Fleet fleet, PrefetchOptions options, java.util.function.Consumer<Prefetch> onClose) {
        this.fleet = fleet;
        this.onClose = () -> onClose.accept(this);
        pool = new Pool(options.copy());
        int stripes = Integer.highestOneBit(4 * Runtime.getRuntime().availableProcessors() - 1);
        shared = new PrefetchedIds[Math.min(stripes, 64)];
        for (int i = 0; i < shared.length; i++) {
            shared[i] = new PrefetchedIds(pool);
        }
    }

    Prefetch start() {
        new Worker("xuid-prefetch", new Refiller(pool, fleet)).start();
        return this;
    }

    /**
     * An id. If none is held, it waits for one, up to {@link PrefetchOptions#wait}. Any thread may call it.
     *
     * @return a number of 0 to 2^63 - 1 that nobody else has
     * @throws XuidException as {@link PrefetchedIds#next}
     */
    public long next() {
        PrefetchedIds ids = mine();
        long id = tryNext(ids);
        return id >= 0 ? id : waitForNext(ids);
    }

    /**
     * A handle of its own for one thread at a time. Any number may be made; they share what is held.
     *
     * @return a new handle
     */
    public PrefetchedIds ids() {
        return new PrefetchedIds(pool);
    }

    /**
     * What was counted so far.
     *
     * @return the counts of now
     */
    public PrefetchStats stats() {
        return pool.stats();
    }

    /** Ends the refilling and all handles. What is held is wasted. Closing twice is no error. */
    @Override
    public void close() {
        onClose.run();
        pool.close();
        for (PrefetchedIds ids : shared) {
            synchronized (ids) {
                ids.close();
            }
        }
    }

    /** Threads meet at a handle by chance only, and share it then. */
    private PrefetchedIds mine() {
        long mixed = Thread.currentThread().getId() * 0x9e37_79b9_7f4a_7c15L;
        return shared[(int) (mixed >>> 32) & shared.length - 1];
    }

    private static long tryNext(PrefetchedIds ids) {
        synchronized (ids) {
            return ids.tryNext();
        }
    }

    /** As {@link PrefetchedIds#next}, but it waits without the lock. */
    private long waitForNext(PrefetchedIds ids) {
        Worker.checkMayWait();
        long end = Time.now() + Time.nanos(pool.options.wait);
        boolean isFirst = true;
        while (true) {
            long seen = pool.news();
            long id = tryNext(ids);
            if (id >= 0) {
                return id;
            }
            pool.await(seen, isFirst, end);
            isFirst = false;
        }
    }
}
