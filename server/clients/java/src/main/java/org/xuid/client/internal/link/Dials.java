package org.xuid.client.internal.link;

import java.util.HashMap;
import java.util.Map;
import org.xuid.client.internal.base.Time;

/**
 * The dials that are under way, by server. One that was left where it stands still, in code of the application that may
 * never go on, has a thread for good: a server has few of those at once, and takes no other server along. After some
 * minutes one counts no more: what held it up may be over for the next one.
 */
final class Dials {
    /** Two that are under way, and two that stand still. */
    static final int MOST = 4;

    static final long COUNTS_FOR = Time.ms(600_000);

    private final Map<String, Map<Thread, Long>> begun = new HashMap<>();

    /** Whether one more of that server may begin; then it counts until its {@link #end}. */
    synchronized boolean begin(String server, Thread dial, long now) {
        Map<Thread, Long> ofServer = begun.computeIfAbsent(server, none -> new HashMap<>());
        ofServer.values().removeIf(since -> now - since >= COUNTS_FOR);
        if (ofServer.size() >= MOST) {
            return false;
        }
        ofServer.put(dial, now);
        return true;
    }

    synchronized void end(String server, Thread dial) {
        begun.get(server).remove(dial);
    }
}
