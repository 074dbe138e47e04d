package org.xuid.client;

import java.time.Duration;

/**
 * How much is held ahead, how old it may be, and how long a caller waits. Each setter changes the object and returns it;
 * {@link XuidClient#prefetch(PrefetchOptions)} reads it once.
 */
public final class PrefetchOptions {
    private static final Duration OLDEST = Duration.ofSeconds(2);

    int least = 16;
    int most = 1 << 20;
    Duration maxAge = Duration.ofSeconds(1);
    Duration wait = Duration.ofSeconds(1);

    /** The defaults. */
    public PrefetchOptions() {}

    /**
     * How many ids are held ahead: at least the first number, and up to the second as use demands. Too small a least, and
     * the first calls after a pause wait; too large, and a quiet user wastes as many every {@link #maxAge}. Too small a
     * most, and a hot loop waits for round trips; too large costs waste at its end. Defaults to 16 and 1,048,576.
     *
     * @param least 1 or more
     * @param most the least or more
     * @return this
     */
    public PrefetchOptions ahead(int least, int most) {
        if (least < 1 || most < least) {
            throw new IllegalArgumentException("at least " + least + " and at most " + most
                    + " ids ahead: 1 or more, and the least or more, are allowed");
        }
        this.least = least;
        this.most = most;
        return this;
    }

    /**
     * How long after it was asked for an id may still be handed out, besides the age that it has at the server. Older ones
     * are wasted. Too short, and much is; too long, and ids look older than the rows they name. Defaults to 1 s.
     *
     * <p>Not covered is a time in which the process is stopped in the middle of a hot loop: a handle looks at the clock
     * once in up to 1,024 ids there, and a thread of the client's own voids the rest as soon as that thread runs again.
     *
     * @param limit 1 ms to 2 s
     * @return this
     */
    public PrefetchOptions maxAge(Duration limit) {
        if (limit.compareTo(Duration.ofMillis(1)) < 0 || limit.compareTo(OLDEST) > 0) {
            throw new IllegalArgumentException("maxAge is " + limit + ", and 1 ms to 2 s are allowed");
        }
        maxAge = limit;
        return this;
    }

    /**
     * How long a call may wait when nothing is held. Too short, and a fail-over shows as an error; too long, and callers
     * hang when all servers are away. Defaults to 1 s.
     *
     * @param limit a span of up to an hour, or zero
     * @return this
     */
    public PrefetchOptions wait(Duration limit) {
        if (limit.isNegative() || limit.compareTo(Duration.ofHours(1)) > 0) {
            throw new IllegalArgumentException("wait is " + limit + ", and zero to an hour is allowed");
        }
        wait = limit;
        return this;
    }

    PrefetchOptions copy() {
        return new PrefetchOptions().ahead(least, most).maxAge(maxAge).wait(wait);
    }
}
