package org.xuid.client.internal.link;

import java.util.concurrent.ThreadLocalRandom;
import org.xuid.client.XuidException;
import org.xuid.client.internal.base.Settings;
import org.xuid.client.internal.base.Time;

/** When one caller tries again after a failure: at once where another server is next, else after a pause. */
public final class Retries {
    /** The longest that a server's word is believed: a wrong number would stop a client for weeks. */
    private static final long LONGEST_WORD = Time.ms(60_000);

    private final long longest;
    private final int others;
    private long next;
    /** Of the other servers, how many may still be gone to without a pause. */
    private int left;

    public Retries(Settings options, int servers) {
        longest = Time.nanos(options.longestPause);
        next = Math.min(Time.nanos(options.firstPause), longest);
        others = servers - 1;
        left = others;
    }

    /**
     * How long to wait before the next attempt; {@code moves}: at another server. What a server says about itself does
     * not hold for another one, so a failure that leads elsewhere costs no pause until all of them failed.
     */
    public long pause(XuidException error, boolean moves) {
        if (moves && left > 0) {
            left--;
            return 0;
        }
        left = others;
        // The server's word, and a random part on top, so that not all clients come back at once.
        return jitter() + Math.min(error.retryAfter().toMillis() * 1_000_000, LONGEST_WORD);
    }

    /** A random part of a span that doubles with each call. */
    public long jitter() {
        long full = next;
        next = Math.min(full * 2, longest);
        return full == 0 ? 0 : ThreadLocalRandom.current().nextLong(full) + 1;
    }
}
