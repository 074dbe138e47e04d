package org.xuid.client.internal.prefetch;

import java.util.ArrayDeque;
import java.util.List;
import java.util.concurrent.CancellationException;
import java.util.concurrent.atomic.AtomicLongArray;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;
import org.xuid.client.Run;
import org.xuid.client.XuidException;
import org.xuid.client.internal.base.Time;

/**
 * What is held for all handles of a {@code Prefetch}, and what is to be said to those that find nothing.
 *
 * <ul>
 *   <li>P1 an id is in one place: in flight, in the pool, in one handle, issued or wasted;
 *   <li>P2 nothing is taken from the pool, and no piece of a run is opened, at {@code maxAge} or later after it was asked
 *       for; what is open in a handle then is voided by {@link #oldest}, which the refiller raises before that;
 *   <li>P3 received = issued + wasted + held by pool and handles;
 *   <li>P4 once it is void, nothing comes out that was asked for before.
 * </ul>
 */
public final class Pool {
    /** What moves into a handle. */
    public static final class Held {
        public long next;
        public int count;
        public final long stride;
        /** When it was asked for, by the clock that ages are measured by, and by the wall's. */
        public final long asked;
        public final long askedWallMs;

        public Held(Run run, long asked, long askedWallMs) {
            next = run.first();
            count = run.count();
            stride = run.stride();
            this.asked = asked;
            this.askedWallMs = askedWallMs;
        }
    }

    /** What was counted; {@code Prefetch.Stats} says what each means. */
    public static final class Counts {
        public long received;
        public long issued;
        public long wasted;
        public long held;
        public long refills;
        public long failedRefills;
        public long waits;
    }

    /** The word has lines of its own: handles read it at every id, and what lies beside is written often. */
    private static final int OLDEST = 16;

    /** A handle takes at least so many ids, if they are there: a lock each is enough for the slowest of users. */
    public static final int LEAST_TAKEN = 8;

    final long least;
    final long most;
    final long maxAge;
    /** How long a caller waits, in nanoseconds. */
    public final long wait;
    public final ReentrantLock lock = new ReentrantLock();
    /** The refiller has something to do. */
    public final Condition wanted = lock.newCondition();
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
    private final Counts counts = new Counts();

    /** What the options of a prefetch say, times in nanoseconds. */
    public Pool(long least, long most, long maxAge, long wait) {
        this.least = least;
        this.most = most;
        this.maxAge = maxAge;
        this.wait = wait;
    }

    /** What was asked for before that time is void. Opaque: no other memory is read by what the word says. */
    public long oldest() {
        return oldest.getOpaque(OLDEST);
    }

    /** It never goes back. */
    public void raiseOldest(long time) {
        oldest.accumulateAndGet(OLDEST, time, Math::max);
    }

    /** Whether what was asked for then may still be handed out. The wall clock also counts a suspension. */
    public boolean isGood(long asked, long askedWallMs, long now) {
        return asked >= oldest() && now - asked < maxAge
                && System.currentTimeMillis() - askedWallMs < maxAge / 1_000_000 + 1;
    }

    /** Takes a run of up to so many ids, or of less, so that something is left for the other handles. Null: nothing. */
    public Held take(long count, long settled, long rest) {
        lock.lock();
        try {
            settle(settled, rest);
            // After the lock: what is young enough is so now.
            long now = Time.now();
            Held run = closed ? null : front(now);
            if (run != null) {
                run = part(run, Math.min(count, Math.max(held / 2, LEAST_TAKEN)));
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
    public void giveBack(Held rest, long settled) {
        lock.lock();
        try {
            boolean isKept = !closed && isGood(rest.asked, rest.askedWallMs, Time.now());
            settle(settled, rest.count);
            if (isKept && rest.count > 0) {
                counts.wasted -= rest.count;
                held += rest.count;
                runs.addFirst(rest);
            }
        } finally {
            lock.unlock();
        }
    }

    /** Waits until something changed since {@code seen}; {@code first}: this caller has only begun to. */
    public void await(long seen, boolean first, long end) {
        lock.lock();
        try {
            if (closed) {
                throw closed();
            }
            if (first) {
                counts.waits++;
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

    public long news() {
        lock.lock();
        try {
            return news;
        } finally {
            lock.unlock();
        }
    }

    /** Drops what is held, in handles too, and what is on its way; it goes on with what is asked for from then on. */
    public void voidHeld() {
        lock.lock();
        try {
            // What was asked for in this very nanosecond may have been so before.
            raiseOldest(Time.now() + 1);
            wasteHeld();
        } finally {
            lock.unlock();
        }
    }

    /** Ends it: nothing is held, nothing comes, and no handle goes on with what it has. */
    public void close() {
        raiseOldest(Long.MAX_VALUE);
        lock.lock();
        try {
            closed = true;
            news++;
            wasteHeld();
            wanted.signal();
            arrived.signalAll();
        } finally {
            lock.unlock();
        }
    }

    /** What was counted so far. */
    public Counts counts() {
        lock.lock();
        try {
            Counts copy = new Counts();
            copy.received = counts.received;
            copy.issued = counts.issued;
            copy.wasted = counts.wasted;
            copy.refills = counts.refills;
            copy.failedRefills = counts.failedRefills;
            copy.waits = counts.waits;
            copy.held = held;
            return copy;
        } finally {
            lock.unlock();
        }
    }

    // From here on for the refiller, behind the lock.

    public boolean isClosed() {
        return closed;
    }

    /** Whether something is to be asked for. */
    public boolean isDemanded() {
        return demand && !stopped && !closed;
    }

    public long ahead() {
        return held + underWay;
    }

    public long taken() {
        return taken;
    }

    public long takeGrownOld() {
        long old = grownOld;
        grownOld = 0;
        return old;
    }

    /** So many more were asked for, which answers the demand; below {@code level} there is another. */
    public void ask(long count, long level) {
        underWay += count;
        low = level;
        demand = false;
    }

    /** Drops what is void. */
    public void dropOld() {
        long before = held;
        runs.removeIf(run -> {
            boolean isOld = run.asked < oldest();
            held -= isOld ? run.count : 0;
            return isOld;
        });
        counts.wasted += before - held;
        grownOld += before - held;
    }

    /** A refill came, asked for with {@code count}. */
    public void put(long count, List<Run> came, long asked, long askedWallMs) {
        underWay -= count;
        failure = null;
        stopped = false;
        counts.refills++;
        counts.received += count;
        // Wasted until it is held: where memory is used up, the rest is.
        counts.wasted += count;
        tell();
        if (closed || asked < oldest()) {
            return;
        }
        for (Run run : came) {
            runs.addLast(new Held(run, asked, askedWallMs));
            held += run.count();
            counts.wasted -= run.count();
        }
    }

    /** A refill failed. {@code stop}: it will not get better by trying. */
    public void fail(long count, XuidException error, boolean stop) {
        underWay -= count;
        failure = error;
        stopped |= stop;
        demand = true;
        counts.failedRefills++;
        tell();
    }

    private void wasteHeld() {
        counts.wasted += held;
        held = 0;
        runs.clear();
    }

    private void tell() {
        news++;
        arrived.signalAll();
        wanted.signal();
    }

    private void settle(long settled, long rest) {
        counts.issued += settled - rest;
        counts.wasted += rest;
    }

    private Held front(long now) {
        while (true) {
            Held run = runs.peekFirst();
            if (run == null || isGood(run.asked, run.askedWallMs, now)) {
                return run;
            }
            runs.pollFirst();
            held -= run.count;
            counts.wasted += run.count;
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
        String text = "no id came within " + wait / 1_000_000
                + " ms: ask again, or allow more with Prefetch.Options.wait";
        return new XuidException.Timeout(null, text, null);
    }
}
