package org.xuid.client.internal.link;

import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import org.xuid.client.internal.base.Time;

/**
 * The dials that are under way, by server. One that was left where it stands still, in code of the application that may
 * never go on, has a thread for good: a server has few of those at once, and takes no other server along. Beyond them
 * another one is tried now and then, after pauses that double: what held them up may be over.
 */
final class Dials {
    /** Two that are under way, and two that stand still. */
    static final int MOST = 4;

    static final long FIRST_PAUSE = Time.ms(30_000);
    static final long LONGEST_PAUSE = Time.ms(3_600_000);

    private static final class OfServer {
        final Set<Thread> begun = new HashSet<>();
        Thread last;
        long pause = FIRST_PAUSE;
        long next;
    }

    private final Map<String, OfServer> servers = new HashMap<>();

    /** Whether one more of that server may begin; then it counts until its {@link #end}. */
    synchronized boolean begin(String server, Thread dial, long now) {
        OfServer dials = servers.computeIfAbsent(server, none -> new OfServer());
        if (dials.begun.size() < MOST) {
            dials.pause = FIRST_PAUSE;
        } else if (dials.begun.contains(dials.last)) {
            // One that has ended since says that none would stand still now.
            if (now - dials.next < 0) {
                return false;
            }
            dials.pause = Math.min(2 * dials.pause, LONGEST_PAUSE);
        }
        dials.next = now + dials.pause;
        dials.last = dial;
        return dials.begun.add(dial);
    }

    synchronized void end(String server, Thread dial) {
        servers.get(server).begun.remove(dial);
    }
}
