package org.xuid.client.internal.link;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.TimeUnit;
import org.xuid.client.XuidException;
import org.xuid.client.internal.base.Time;
import org.xuid.client.internal.wire.Request;

/**
 * When the calls of a link give up, and when a silence ends it: when it has lasted {@link Settings#timeout} beyond the
 * time at which a reply was due, and a PING of the link's own was not answered in the second half of that.
 *
 * <p>One look is planned at a time, for the first of these times. Most requests expect a later one and plan nothing. Its
 * lock is the link's.
 */
final class Watch {
    /** A look that is so late finds a process that was stopped: replies may lie in the socket, and come first. */
    private static final long LATE = Time.ms(200);

    /** How long they may take to be read. */
    private static final long GRACE = Time.ms(100);

    private static final long NEVER = Long.MAX_VALUE;

    private final Link link;
    private final ScheduledExecutorService timer;
    private final long timeout;
    private final Request ping = Request.ping(new byte[0]);

    /** When something was received last, and when something besides the reply to a PING of the link's own was. */
    private volatile long heard = Time.now();
    private volatile long answered = heard;

    private long planned = NEVER;
    private ScheduledFuture<?> look;
    private boolean isGrace;
    private boolean isStopped;
    /** When the PING in flight was sent, or NEVER. */
    private long asked = NEVER;

    Watch(Link link, ScheduledExecutorService timer, Duration timeout) {
        this.link = link;
        this.timer = timer;
        this.timeout = Time.nanos(timeout);
    }

    long half() {
        return timeout / 2;
    }

    long timeoutMs() {
        return timeout / 1_000_000;
    }

    void heard() {
        heard = Time.now();
    }

    void wasAnswered() {
        answered = heard;
    }

    long answered() {
        return answered;
    }

    boolean isOwn(Request request) {
        return request == ping;
    }

    /** The PING was answered. Behind the lock. */
    void wasEchoed() {
        asked = NEVER;
    }

    /** Something may be to be done at that time. Behind the lock. */
    void expect(long time) {
        if (time < planned && !isStopped) {
            plan(time);
        }
    }

    /** Behind the lock. */
    void stop() {
        isStopped = true;
        cancel();
    }

    private void plan(long time) {
        cancel();
        look = timer.schedule(this::look, Math.max(0, time - Time.now()), TimeUnit.NANOSECONDS);
        planned = time;
    }

    private void cancel() {
        if (look != null) {
            look.cancel(false);
        }
    }

    private void look() {
        List<Call<?>> expired = List.of();
        boolean isOver;
        try {
            expired = new ArrayList<>();
            isOver = judge(expired);
        } catch (Throwable error) {
            // No other look may be planned, and calls must not wait for one. Where memory is used up, the end may fail
            // as well: then the next call has one planned.
            synchronized (link) {
                planned = NEVER;
            }
            link.end(Failures.broken(link.server.address(), error));
            throw error;
        } finally {
            link.expire(expired);
        }
        if (isOver) {
            // What a server leaves unanswered behind GOAWAY is repeated elsewhere.
            link.end(link.wasSentAway()
                    ? link.lost(null)
                    : Failures.noReply(link.server.address(), Duration.ofNanos(timeout)));
        } else {
            link.flush();
        }
    }

    /** Takes what gives up now, and plans the next look; whether the silence has lasted too long. */
    private boolean judge(List<Call<?>> expired) {
        synchronized (link) {
            long now = Time.now();
            if (isStopped || now < planned) {
                return false;
            }
            if (!isGrace && (now - planned > LATE || link.hasUnread())) {
                isGrace = true;
                plan(now + GRACE);
                return false;
            }
            isGrace = false;
            planned = NEVER;
            link.takeExpired(now, expired);
            long silence = endOfSilence();
            boolean isOver = silence <= now && asked != NEVER;
            if (silence <= now && !isOver) {
                asked = now;
                link.appendPing(ping, now);
                silence = endOfSilence();
            }
            long next = Math.min(silence, link.firstDeadline());
            if (next != NEVER && !isOver) {
                plan(next);
            }
            return isOver;
        }
    }

    /** When the silence has lasted so long that a PING is due or, if one is under way, the end. */
    private long endOfSilence() {
        long firstDue = NEVER;
        for (Pending.Slot slot : link.pending().used()) {
            firstDue = Math.min(firstDue, slot.due);
        }
        if (firstDue == NEVER) {
            return NEVER;
        }
        long since = Math.max(firstDue, heard);
        return asked == NEVER ? since + half() : Math.max(since + timeout, asked + half());
    }
}
