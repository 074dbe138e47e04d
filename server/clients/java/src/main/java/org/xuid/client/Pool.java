package org.xuid.client;

import java.util.ArrayDeque;
import java.util.List;
import java.util.concurrent.CancellationException;
import java.util.concurrent.atomic.AtomicLongArray;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;

/**
 * What is held for all handles of a {@link Prefetch}, and what is to be said to those that find nothing.
 *
 * <ul>
 *   <li>P1 an id is in one place: in flight, in the pool, in one handle, issued or wasted;
 *   <li>P2 nothing is taken from the pool, and no piece of a run is opened, at {@code maxAge} or later after it was asked
 *       for; what is open in a handle then is voided by {@link #oldest}, which the refiller raises before that;
 *   <li>P3 received = issued + wasted + held by pool and handles.
 * </ul>
 */
final class Pool {
    /** What moves into a handle. */
    static final class Held {
        long next;
        int count;
        final long stride;
        /** When it was asked for, by the clock that ages are measured by, and by the wall's. */
        final long asked;
        final long askedWallMs;

        Held(Run run, long asked, long askedWallMs) {
            next = run.first();
            count = run.count();
            stride = run.stride();
            this.asked = asked;
            this.askedWallMs = askedWallMs;
        }
    }

    /** The word has lines of its own: handles read it at every id, and what lies beside is written often. */
    private static final int OLDEST = 16;

    final PrefetchOptions options;
    final long maxAge;
    final ReentrantLock lock = new ReentrantLock();
    /** The refiller has something to do. */
    final Condition wanted = lock.newCondition();
    private final Condition arrived = lock.newCondition();
    private final AtomicLongArray oldest = new AtomicLongArray(2 * OLDEST);

    // Behind the lock.
    private final ArrayDeque<Held> runs = new ArrayDeque<>();
    private long held;
    /** Ids asked for, and not answered yet. */
    private long underWay;
    private long taken;
    /** With fewer held and under way, a taker demands more. */
    private long low = 1;
    /** Somebody took, and so little is left that it is time for more. An idle source has none, and is not refilled. */
    private boolean demand = true;
    /** Replies and failures that waiting callers were told of. */
    private long news;
    private XuidException failure;
    /** Refilling has stopped until somebody asks again, for the failure will not pass by itself. */
    private boolean stopped;
    private boolean closed;
    private long grownOld;
    private long received;
    private long issued;
    private long wasted;
    private long refills;
    private long failedRefills;
    private long waits;

    Pool(PrefetchOptions options) {
        this.options = options;
        maxAge = Time.nanos(options.maxAge);
    }

    /** What was asked for before that time is void. Opaque: no other memory is read by what the word says. */
    long oldest() {
        return oldest.getOpaque(OLDEST);
    }

    /** It never goes back. */
    void raiseOldest(long time) {
        oldest.accumulateAndGet(OLDEST, time, Math::max);
    }

    /** Whether what was asked for then may still be handed out. The wall clock also counts a suspension. */
    boolean isGood(long asked, long askedWallMs, long now) {
        return asked >= oldest() && now - asked < maxAge
                && System.currentTimeMillis() - askedWallMs < maxAge / 1_000_000 + 1;
    }

    /** Takes a run of up to so many ids, or of less, so that something is left for the other handles. Null: nothing. */
    Held take(long count, long settled, long rest) {
        lock.lock();
        try {
            settle(settled, rest);
            // After the lock: what is young enough is so now.
            long now = Time.now();
            Held run = closed ? null : front(now);
            if (run != null) {
                run = part(run, Math.min(count, Math.max(held / 2, PrefetchedIds.LEAST_TAKEN)));
            }
            if (!demand && !stopped && held + underWay < low) {
                demand = true;
                wanted.signal();
            }
            return run;
        } finally {
            lock.unlock();
        }
    }

    /** Takes back the rest of a handle that ends. */
    void giveBack(Held rest, long settled) {
        lock.lock();
        try {
            boolean isKept = !closed && isGood(rest.asked, rest.askedWallMs, Time.now());
            settle(settled, rest.count);
            if (isKept && rest.count > 0) {
                wasted -= rest.count;
                held += rest.count;
                runs.addFirst(rest);
            }
        } finally {
            lock.unlock();
        }
    }

    /** Waits until something changed since {@code seen}; {@code first}: this caller has only begun to. */
    void await(long seen, boolean first, long end) {
        lock.lock();
        try {
            if (closed) {
                throw closed();
            }
            if (first) {
                waits++;
                stopped = false;
                demand |= held + underWay < low;
                wanted.signal();
            } else if (stopped && failure != null) {
                throw failure.again();
            }
            while (news == seen) {
                long left = end - Time.now();
                if (left <= 0) {
                    throw inVain();
                }
                arrived.awaitNanos(left);
            }
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
            throw new CancellationException("interrupted while waiting for an id");
        } finally {
            lock.unlock();
        }
    }

    long news() {
        lock.lock();
        try {
            return news;
        } finally {
            lock.unlock();
        }
    }

    /** Ends it: nothing is held, nothing comes, and no handle goes on with what it has. */
    void close() {
        raiseOldest(Long.MAX_VALUE);
        lock.lock();
        try {
            closed = true;
            news++;
            wasted += held;
            held = 0;
            runs.clear();
            wanted.signal();
            arrived.signalAll();
        } finally {
            lock.unlock();
        }
    }

    PrefetchStats stats() {
        lock.lock();
        try {
            return new PrefetchStats(received, issued, wasted, held, refills, failedRefills, waits);
        } finally {
            lock.unlock();
        }
    }

    // From here on for the refiller, behind the lock.

    boolean isClosed() {
        return closed;
    }

    /** Whether something is to be asked for. */
    boolean isDemanded() {
        return demand && !stopped && !closed;
    }

    long ahead() {
        return held + underWay;
    }

    long taken() {
        return taken;
    }

    long takeGrownOld() {
        long old = grownOld;
        grownOld = 0;
        return old;
    }

    /** So many more were asked for, which answers the demand; below {@code level} there is another. */
    void ask(long count, long level) {
        underWay += count;
        low = level;
        demand = false;
    }

    /** Drops what is void. */
    void dropOld() {
        long before = held;
        runs.removeIf(run -> {
            boolean isOld = run.asked < oldest();
            held -= isOld ? run.count : 0;
            return isOld;
        });
        wasted += before - held;
        grownOld += before - held;
    }

    /** A refill came, asked for with {@code count}. */
    void put(long count, List<Run> came, long asked, long askedWallMs) {
        underWay -= count;
        failure = null;
        stopped = false;
        refills++;
        received += count;
        if (closed || asked < oldest()) {
            wasted += count;
        } else {
            held += count;
            came.forEach(run -> runs.addLast(new Held(run, asked, askedWallMs)));
        }
        tell();
    }

    /** A refill failed. {@code stop}: it will not get better by trying. */
    void fail(long count, XuidException error, boolean stop) {
        underWay -= count;
        failure = error;
        stopped |= stop;
        demand = true;
        failedRefills++;
        tell();
    }

    private void tell() {
        news++;
        arrived.signalAll();
        wanted.signal();
    }

    private void settle(long settled, long rest) {
        issued += settled - rest;
        wasted += rest;
    }

    private Held front(long now) {
        while (true) {
            Held run = runs.peekFirst();
            if (run == null || isGood(run.asked, run.askedWallMs, now)) {
                return run;
            }
            runs.pollFirst();
            held -= run.count;
            wasted += run.count;
        }
    }

    private Held part(Held run, long count) {
        int part = (int) Math.min(count, run.count);
        held -= part;
        taken += part;
        if (part == run.count) {
            return runs.pollFirst();
        }
        Held front = new Held(new Run(run.next, part, run.stride), run.asked, run.askedWallMs);
        run.next += part * run.stride;
        run.count -= part;
        return front;
    }

    private static XuidException closed() {
        return new XuidException.Closed("this source of ids, or its client, was closed: make another one", null);
    }

    /** After the whole wait. */
    private XuidException inVain() {
        if (failure != null) {
            return failure.again();
        }
        String text = "no id came within " + options.wait.toMillis()
                + " ms: ask again, or allow more with PrefetchOptions.wait";
        return new XuidException.Timeout(null, text, null);
    }
}
