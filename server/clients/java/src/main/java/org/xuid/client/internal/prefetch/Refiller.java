package org.xuid.client.internal.prefetch;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.xuid.client.Order;
import org.xuid.client.Run;
import org.xuid.client.XuidException;
import org.xuid.client.internal.base.Time;
import org.xuid.client.internal.link.Call;
import org.xuid.client.internal.link.Fleet;
import org.xuid.client.internal.link.Retries;
import org.xuid.client.internal.wire.Request;
import org.xuid.client.internal.wire.Status;

/** The thread of a {@code Prefetch}: voids what grows old, and asks for more where callers take. */
public final class Refiller implements Runnable {
    /**
     * How long the server may wait for the ids of a refill: a server that lives on what its clock brings has the
     * largest refill together in 32 ms.
     */
    private static final int WAIT_MS = 50;

    /** Refills in flight at once. */
    private static final int IN_FLIGHT = 8;

    /** How long nothing is asked for after an Error of this thread. */
    private static final long TROUBLE = Time.ms(20);

    /** So many looks within an age. What would grow too old before the next look is voided by this one. */
    private static final int LOOKS = 16;

    private final Pool pool;
    private final Fleet fleet;
    private final RefillSize size;
    private final long tick;
    private final long early;
    private Retries retries;
    private int inFlight;
    private long failures;
    /** Nothing is asked for before. */
    private long resume;
    private long newestAsked = Long.MIN_VALUE / 2;
    private long looked = Time.now();
    private long lookedWallMs = System.currentTimeMillis();

    /** One request for ids. */
    private static final class Refill extends Call<List<Run>> {
        final long failuresBefore;
        long askedWallMs;

        Refill(int count, long patience, long failuresBefore) {
            super(Request.runs(count, Order.ANY.ordinal(), WAIT_MS), patience, 0);
            this.failuresBefore = failuresBefore;
        }

        @Override
        public void begin(long now) {
            super.begin(now);
            askedWallMs = System.currentTimeMillis();
        }
    }

    public Refiller(Pool pool, Fleet fleet) {
        this.pool = pool;
        this.fleet = fleet;
        size = new RefillSize(pool.least, pool.most, pool.maxAge, Time.now());
        retries = new Retries(fleet.options, fleet.servers());
        tick = pool.maxAge / LOOKS;
        // A thread does not wake on the spot.
        early = Math.min(Time.ms(5), pool.maxAge / 32);
    }

    @Override
    public void run() {
        pool.lock.lock();
        try {
            while (!pool.isClosed()) {
                try {
                    turn(Time.now());
                } catch (Throwable error) {
                    // As where memory is used up. The next turn comes all the same.
                    resume = Time.now() + TROUBLE;
                    pool.fail(0, null, false);
                }
            }
        } finally {
            pool.lock.unlock();
            // Whatever ended this thread, callers must not go on with what it no longer looks after.
            pool.close();
        }
    }

    private void turn(long now) {
        age(now);
        List<Refill> refills = now < resume ? List.of() : plan(now);
        if (refills.isEmpty()) {
            pause(now);
            return;
        }
        pool.lock.unlock();
        try {
            // Without an iterator, for which there may be no memory: each of them is counted as in flight.
            for (int at = 0; at < refills.size(); at++) {
                ask(refills.get(at));
            }
        } finally {
            pool.lock.lock();
        }
    }

    /** Raises the oldest time that is good to what is so until the next look. */
    private void age(long now) {
        long wallMs = System.currentTimeMillis();
        long unseenMs = wallMs - lookedWallMs - (now - looked) / 1_000_000;
        boolean slept = unseenMs * 1_000_000 > pool.maxAge / 2;
        looked = now;
        lookedWallMs = wallMs;
        // While the machine was suspended, or after the wall clock leapt, ages are not known: all of it is void.
        pool.raiseOldest(slept ? now : now + tick + early - pool.maxAge);
        pool.dropOld();
    }

    private void pause(long now) {
        long nanos = Long.MAX_VALUE;
        if (newestAsked + pool.maxAge >= now) {
            nanos = tick;
        }
        if (now < resume && pool.isDemanded()) {
            nanos = Math.min(nanos, resume - now);
        }
        try {
            pool.wanted.await(nanos, TimeUnit.NANOSECONDS);
        } catch (InterruptedException stray) {
            // It ends with its source, which says so.
        }
    }

    /** What is missing, if somebody takes. */
    private List<Refill> plan(long now) {
        if (pool.takeGrownOld() > 0) {
            size.wasted();
        }
        List<Refill> refills = new ArrayList<>(IN_FLIGHT);
        if (!pool.isDemanded()) {
            return refills;
        }
        long level = size.look(now, pool.taken());
        long low = (level + 1) / 2;
        long missing = level - pool.ahead();
        long most = Math.max(1, Math.min(fleet.server().maxCount(), Request.COUNT_MAX));
        long patience = Math.min(pool.maxAge, Time.nanos(fleet.options.timeout));
        pool.ask(0, low);
        while (missing > 0 && inFlight < IN_FLIGHT) {
            long count = Math.min(Math.min(missing, size.request()), most);
            missing -= count;
            try {
                refills.add(taken(new Refill((int) count, patience, failures)));
            } catch (Throwable error) {
                if (refills.isEmpty()) {
                    throw error;
                }
                // Those that were counted are asked for.
                return refills;
            }
            pool.ask(count, low);
            inFlight++;
        }
        return refills;
    }

    /** An Error at one is no reason to ask for the others not. */
    private void ask(Refill refill) {
        try {
            fleet.start(refill);
        } catch (Throwable error) {
            refill.broken(fleet.server().address(), error);
        }
    }

    private Refill taken(Refill refill) {
        refill.isTold();
        refill.whenComplete((runs, error) -> {
            pool.lock.lock();
            try {
                inFlight--;
                if (error == null) {
                    takeIn(refill, runs);
                } else {
                    fail(refill, (XuidException) error);
                }
            } finally {
                pool.lock.unlock();
            }
        });
        return refill;
    }

    private void takeIn(Refill refill, List<Run> runs) {
        size.answered(Time.now() - refill.begun);
        newestAsked = Math.max(newestAsked, refill.begun);
        pool.put(refill.request.count(), runs, refill.begun, refill.askedWallMs);
        retries = new Retries(fleet.options, fleet.servers());
    }

    private void fail(Refill refill, XuidException error) {
        boolean isRefused = error instanceof XuidException.Refused;
        // Too many for the server that took the place of another: its limits are known by now.
        boolean isCount = isRefused && ((XuidException.Refused) error).code() == Status.COUNT;
        if (refill.failuresBefore == failures) {
            // The others that were in flight with it failed alike, and are no reason to pause again.
            failures++;
            resume = Time.now() + fleet.pause(retries, error);
        }
        if (isRefused) {
            size.failed(refill.request.count());
        }
        pool.fail(refill.request.count(), error, !error.isRetryable() && !isCount);
    }
}
