package org.xuid.client.internal.link;

import java.util.HashMap;
import java.util.Map;
import org.xuid.client.internal.base.Time;

/** Which servers were not there when they were dialed last, by their addresses. */
final class Away {
    /** So long behind a dial that failed a server counts as away: it may be back since, and nobody looked. */
    private static final long AWAY = Time.ms(30_000);

    /**
     * A server is dialed again before others, or for want of better, when so many times as long as the dial took have
     * passed: what callers wait for one that is silent is a small part of the time. Never later than it counts as away:
     * this process itself may have been stopped while it dialed.
     */
    private static final int TIMES = 6;

    /** A dial that failed. */
    private static final class Failed {
        final long at;
        final long took;

        Failed(long at, long took) {
            this.at = at;
            this.took = took;
        }
    }

    private final Map<String, Failed> failed = new HashMap<>();

    /** A dial that began then has failed. */
    synchronized void note(String server, long begin, long now) {
        failed.put(server, new Failed(now, now - begin));
    }

    /** It is there. */
    synchronized void clear(String server) {
        failed.remove(server);
    }

    /** Whether it was not there a moment ago. */
    synchronized boolean isAway(String server, long now) {
        Failed last = failed.get(server);
        return last != null && now - last.at < AWAY;
    }

    /** Whether it took long to find that out, and that was not long ago compared with it. */
    synchronized boolean costs(String server, long now) {
        Failed last = failed.get(server);
        return last != null && now - last.at < Math.min(AWAY, TIMES * last.took);
    }
}
