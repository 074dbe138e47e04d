package org.xuid.client.internal.prefetch;

import org.xuid.client.internal.base.Time;

/**
 * How many ids to hold ahead: what was used lately, for as long as it takes to get more. It knows the clock only by what
 * it is told.
 */
public final class RefillSize {
    /** What is held shall last this long, though round trips be shorter: a thread that runs late must not be noticed. */
    private static final long LEAD = Time.ms(10);

    /** Round trips that it shall last. Half of it is used up when more is asked for. */
    private static final long ROUND_TRIPS = 4;

    /** How much the level may grow from one look to the next. One greedy moment must not fetch ids for an hour. */
    private static final long GROWTH = 4;

    private final long least;
    private final long most;
    private final long maxAge;
    private long level;
    /** The shortest lately: what waits in line at a busy server is no reason to ask it for more. */
    private long roundTrip;
    private long looked;
    private long taken;
    /** The most ids of one request, which a server that has not so many lowers. */
    private long request;

    public RefillSize(long least, long most, long maxAge, long now) {
        this.least = least;
        this.most = most;
        this.maxAge = maxAge;
        level = least;
        looked = now;
        request = most;
    }

    /** The level to refill to, where {@code ever} is the number of ids ever taken from the pool. */
    public long look(long now, long ever) {
        // A microsecond at least, so that two looks at once do not make an endless rate.
        long elapsed = Math.max(now - looked, 1_000);
        long lead = Math.min(Math.max(LEAD, roundTrip * ROUND_TRIPS), maxAge / 4);
        double wanted = Math.min((double) (ever - taken) * lead / elapsed + 1, most);
        // A caller that was away for long is a new one; a caller that only pauses between bursts is not.
        long floor = elapsed >= maxAge ? 0 : level / 2;
        long bounded = Math.min(Math.max((long) wanted, floor), level * GROWTH);
        level = Math.min(Math.max(bounded, least), most);
        looked = now;
        taken = ever;
        return level;
    }

    /** The most to ask for at once. */
    public long request() {
        return request;
    }

    /** A refill came after that time. */
    public void answered(long time) {
        // It may get longer, slowly: by an eighth a refill.
        long slower = roundTrip + roundTrip / 8 + 1_000;
        roundTrip = roundTrip == 0 ? time : Math.min(time, slower);
        request = Math.min(request * 2, most);
    }

    /** A refill of so many ids failed: fewer may be had. */
    public void failed(long count) {
        request = Math.max(count / 2, least);
    }

    /** Something grew old in the pool: it was too much. */
    public void wasted() {
        level = Math.max(level / 2, least);
    }
}
