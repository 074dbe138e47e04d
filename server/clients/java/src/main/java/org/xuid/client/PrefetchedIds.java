package org.xuid.client;

import java.util.concurrent.locks.ReentrantLock;
import java.util.function.LongSupplier;
import org.xuid.client.internal.base.Time;
import org.xuid.client.internal.base.Worker;
import org.xuid.client.internal.prefetch.Pool;

/**
 * Prefetched ids for one thread at a time: a handle made by {@link Prefetch#ids}.
 *
 * <p>In a hot loop an id costs two comparisons and one load of a word that is rarely written: no lock and no clock. The
 * clock is looked at each 1,024 ids, and at each id if a caller takes its time. The next run costs a lock.
 *
 * <p>Close it when its thread is done: the rest of its run goes back to the source.
 */
public final class PrefetchedIds implements LongSupplier, AutoCloseable {
    /** A handle takes at most so many at once: some milliseconds of a hot loop. */
    private static final int MOST_TAKEN = 1 << 16;

    /** A run that was used up within this time is followed by one of up to twice as many ids. */
    private static final long QUICK_RUN = Time.ms(5);

    /** The longest piece that is opened between two looks at the clock, and how long a piece may last to grow. */
    private static final int LONGEST_PIECE = 1_024;
    private static final long QUICK_PIECE = 50_000;

    private static final long NONE = -1;

    /** Held by whoever uses one that threads share. */
    final ReentrantLock turn = new ReentrantLock();

    private final Pool pool;
    private final long wait;

    // The run in hand: `open` ids from `next` on come out without a look at the clock, then `closed` more.
    private long next;
    private int open;
    private int closed;
    private long stride;
    private long asked;
    private long askedWallMs;

    /** How many ids the run had. */
    private long had;
    private long takenAt;
    private int want = Pool.LEAST_TAKEN;
    private int piece;
    private long pieceBegun;

    PrefetchedIds(Pool pool) {
        this.pool = pool;
        wait = pool.wait;
    }

    /**
     * An id if one is held, without waiting. None asks for more in the background.
     *
     * @return an id, or -1: none is held
     */
    public long tryNext() {
        long id = hit();
        return id != NONE ? id : openOrTake();
    }

    /**
     * An id. If none is held, it waits for one, up to {@link Prefetch.Options#wait}.
     *
     * @return a number of 0 to 2^63 - 1 that nobody else has
     * @throws XuidException what the last refill failed with: at once if it is not retryable (the next call tries again),
     *     else after the wait; refilling goes on in the background. {@link XuidException.Closed} after the source was
     *     closed
     */
    public long next() {
        long id = hit();
        return id != NONE ? id : waitForNext();
    }

    /**
     * The same as {@link #next}.
     *
     * @return an id
     */
    @Override
    public long getAsLong() {
        return next();
    }

    /** Gives the rest of its run back. It may be used again, and takes another run then. */
    @Override
    public void close() {
        Pool.Held rest = new Pool.Held(new Run(next, open + closed, stride), asked, askedWallMs);
        long settled = had;
        drop();
        pool.giveBack(rest, settled);
    }

    private long hit() {
        if (open == 0 || asked < pool.oldest()) {
            return NONE;
        }
        open--;
        long id = next;
        next = id + stride;
        return id;
    }

    private long openOrTake() {
        long now = Time.now();
        // An open piece that was voided is not opened again.
        if (open == 0 && closed > 0 && pool.isGood(asked, askedWallMs, now)) {
            openPiece(now);
            long id = hit();
            if (id != NONE) {
                return id;
            }
        }
        want = now - takenAt <= QUICK_RUN ? Math.min(want * 2, MOST_TAKEN) : Math.max(want / 2, Pool.LEAST_TAKEN);
        long settled = had;
        long rest = (long) open + closed;
        drop();
        while (true) {
            Pool.Held run = pool.take(want, settled, rest);
            if (run == null) {
                return NONE;
            }
            next = run.next;
            closed = run.count;
            stride = run.stride;
            asked = run.asked;
            askedWallMs = run.askedWallMs;
            had = run.count;
            takenAt = now;
            openPiece(now);
            long id = hit();
            if (id != NONE) {
                return id;
            }
            // Voided between the lock and here: there is less in the pool each time.
            settled = had;
            rest = had;
            drop();
        }
    }

    private void drop() {
        open = 0;
        closed = 0;
        had = 0;
    }

    /** A caller that takes ids in a hot loop gets long pieces, any other pieces of one id. */
    private void openPiece(long now) {
        boolean isQuick = now - pieceBegun <= QUICK_PIECE;
        piece = isQuick ? Math.max(1, Math.min(piece * 2, LONGEST_PIECE)) : 1;
        pieceBegun = now;
        int opened = Math.min(piece, closed);
        open += opened;
        closed -= opened;
    }

    private long waitForNext() {
        long id = openOrTake();
        if (id != NONE) {
            return id;
        }
        Worker.checkMayWait();
        long end = Time.now() + wait;
        boolean isFirst = true;
        while (true) {
            // Before the look, so that what comes between the two is not missed.
            long seen = pool.news();
            id = openOrTake();
            if (id != NONE) {
                return id;
            }
            pool.await(seen, isFirst, end);
            isFirst = false;
        }
    }
}
