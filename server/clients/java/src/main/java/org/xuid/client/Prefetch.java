package org.xuid.client;

import java.time.Duration;
import org.xuid.client.internal.base.Time;
import org.xuid.client.internal.base.Worker;
import org.xuid.client.internal.link.Fleet;
import org.xuid.client.internal.prefetch.Pool;
import org.xuid.client.internal.prefetch.Refiller;

/**
 * A source of ids that are there before they are asked for, made by {@link XuidClient#prefetch()}. Safe for any number
 * of threads.
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
 * <p>The ids are of {@link Order#ANY}, and there is no way to ask for another order: an id that was fetched ahead is
 * not fresh when it is handed out, and two handles that hold different runs cannot keep an order.
 *
 * <p>How many are held follows the use: 16 at first, up to a million in a hot loop; a source that is asked for nothing
 * is not refilled once what was held grew old. No id is handed out later than {@link Options#maxAge} after it was
 * asked for. Closing the source, or its client, wastes what is held, and so does a server that turns out to be of another
 * cluster: what was asked for before is void before any caller is told.
 *
 * <p>An application that is resumed twice from one snapshot of its memory gives out the ids that it held in both
 * copies: close the source before the snapshot is made, and make another one after it.
 */
public final class Prefetch implements AutoCloseable {
    private final Fleet fleet;
    private final Pool pool;
    private final Runnable onClose;
    /** Handles that threads share, each behind its own lock. A power of two of them. */
    private final PrefetchedIds[] shared;

    Prefetch(Fleet fleet, Options options, java.util.function.Consumer<Prefetch> onClose) {
        this.fleet = fleet;
        this.onClose = () -> onClose.accept(this);
        pool = new Pool(
                options.least, options.most, Time.nanos(options.maxAge), Time.nanos(options.wait));
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

    /** Wastes what is held and what is on its way; it goes on with what is asked for from then on. */
    void voidHeld() {
        pool.voidHeld();
    }

    /**
     * An id. If none is held, it waits for one, up to {@link Options#wait}. Any thread may call it.
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
    public Stats stats() {
        return new Stats(pool.counts());
    }

    /** Ends the refilling and all handles. What is held is wasted. Closing twice is no error. */
    @Override
    public void close() {
        onClose.run();
        pool.close();
        for (PrefetchedIds ids : shared) {
            ids.turn.lock();
            try {
                ids.close();
            } finally {
                ids.turn.unlock();
            }
        }
    }

    /** Threads meet at a handle by chance only, and share it then. */
    private PrefetchedIds mine() {
        long mixed = Thread.currentThread().getId() * 0x9e37_79b9_7f4a_7c15L;
        return shared[(int) (mixed >>> 32) & shared.length - 1];
    }

    private static long tryNext(PrefetchedIds ids) {
        // Not its monitor: a virtual thread that waits within one, for the lock of the pool, keeps its carrier.
        ids.turn.lock();
        try {
            return ids.tryNext();
        } finally {
            ids.turn.unlock();
        }
    }

    /** As {@link PrefetchedIds#next}, but it waits without the lock. */
    private long waitForNext(PrefetchedIds ids) {
        Worker.checkMayWait();
        long end = Time.now() + pool.wait;
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

    /**
     * How much is held ahead, how old it may be, and how long a caller waits. Each setter changes the object and
     * returns it; {@link XuidClient#prefetch(Options)} reads it once.
     */
    public static final class Options {
        private static final Duration OLDEST = Duration.ofSeconds(2);

        int least = 16;
        int most = 1 << 20;
        Duration maxAge = Duration.ofSeconds(1);
        Duration wait = Duration.ofSeconds(1);

        /** The defaults. */
        public Options() {}

        /**
         * How many ids are held ahead: at least the first number, and up to the second as use demands. Too small a
         * least, and the first calls after a pause wait; too large, and a quiet user wastes as many every {@link
         * #maxAge}. Too small a most, and a hot loop waits for round trips; too large costs waste at its end. Defaults
         * to 16 and 1,048,576.
         *
         * @param least 1 or more
         * @param most the least or more
         * @return this
         */
        public Options ahead(int least, int most) {
            if (least < 1 || most < least) {
                throw new IllegalArgumentException("at least " + least + " and at most " + most
                        + " ids ahead: 1 or more, and the least or more, are allowed");
            }
            this.least = least;
            this.most = most;
            return this;
        }

        /**
         * How long after it was asked for an id may still be handed out, besides the age that it has at the server.
         * Older ones are wasted. Too short, and much is; too long, and ids look older than the rows they name.
         * Defaults to 1 s.
         *
         * <p>Not covered is a time in which the process is stopped in the middle of a hot loop: a handle looks at the
         * clock once in up to 1,024 ids there, and a thread of the client's own voids the rest as soon as that thread
         * runs again.
         *
         * @param limit 1 ms to 2 s
         * @return this
         */
        public Options maxAge(Duration limit) {
            if (limit.compareTo(Duration.ofMillis(1)) < 0 || limit.compareTo(OLDEST) > 0) {
                throw new IllegalArgumentException("maxAge is " + limit + ", and 1 ms to 2 s are allowed");
            }
            maxAge = limit;
            return this;
        }

        /**
         * How long a call may wait when nothing is held. Too short, and a fail-over shows as an error; too long, and
         * callers hang when all servers are away. Defaults to 1 s.
         *
         * @param limit a span of up to an hour, or zero
         * @return this
         */
        public Options wait(Duration limit) {
            if (limit.isNegative() || limit.compareTo(Duration.ofHours(1)) > 0) {
                throw new IllegalArgumentException("wait is " + limit + ", and zero to an hour is allowed");
            }
            wait = limit;
            return this;
        }
    }

    /**
     * What a {@link Prefetch} counted. A handle settles what it issued when it is done with a run, so {@link #issued}
     * lags by what is in the handles. When no handle is left: {@code received = issued + wasted + held}. Immutable.
     */
    public static final class Stats {
        private final Pool.Counts counts;

        Stats(Pool.Counts counts) {
            this.counts = counts;
        }

        /**
         * Ids that came from servers.
         *
         * @return a count since the source was made
         */
        public long received() {
            return counts.received;
        }

        /**
         * Ids handed out.
         *
         * @return a count since the source was made
         */
        public long issued() {
            return counts.issued;
        }

        /**
         * Ids that grew too old, or were held or on their way when the source was closed or a server turned out to be of
         * another cluster.
         *
         * @return a count since the source was made
         */
        public long wasted() {
            return counts.wasted;
        }

        /**
         * Ids held now, without those in handles.
         *
         * @return a count of now
         */
        public long held() {
            return counts.held;
        }

        /**
         * Refills that brought ids.
         *
         * @return a count since the source was made
         */
        public long refills() {
            return counts.refills;
        }

        /**
         * Refills that failed.
         *
         * @return a count since the source was made
         */
        public long failedRefills() {
            return counts.failedRefills;
        }

        /**
         * Calls that found nothing and had to wait.
         *
         * @return a count since the source was made
         */
        public long waits() {
            return counts.waits;
        }

        @Override
        public String toString() {
            return "received " + received() + ", issued " + issued() + ", wasted " + wasted() + ", held " + held()
                    + ", refills " + refills() + ", failed refills " + failedRefills() + ", waits " + waits();
        }
    }
}
