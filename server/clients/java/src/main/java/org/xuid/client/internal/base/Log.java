package org.xuid.client.internal.base;

import java.util.Queue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;

/**
 * What a person may want to know later, by the system's logger of the name {@code org.xuid.client}. Who receives it is a stranger,
 * and may stand still: it is said by a thread that nobody waits for.
 */
public final class Log {
    private static final System.Logger LOGGER = System.getLogger("org.xuid.client");

    /** Beyond these nothing is said until some of them were; the next one says how many are missing. */
    private static final int MOST_UNSAID = 64;

    private static final Queue<Runnable> UNSAID = new LinkedBlockingQueue<>(MOST_UNSAID);

    /** How many were not said since the last one that was added. */
    private static final AtomicLong DROPPED = new AtomicLong();

    /** One thread at a time, so that no more than one stands still. It ends when it has said all. */
    private static final AtomicBoolean IS_SAYING = new AtomicBoolean();

    private Log() {}

    public static void debug(String format, Object... values) {
        add(System.Logger.Level.DEBUG, format, values);
    }

    public static void warn(String format, Object... values) {
        add(System.Logger.Level.WARNING, format, values);
    }

    private static void add(System.Logger.Level level, String format, Object... values) {
        try {
            if (!LOGGER.isLoggable(level)) {
                return;
            }
            long dropped = DROPPED.getAndSet(0);
            if (!UNSAID.offer(() -> say(level, dropped, format, values))) {
                DROPPED.addAndGet(dropped + 1);
            }
            if (IS_SAYING.compareAndSet(false, true)) {
                start();
            }
        } catch (Throwable strangers) {
            // No call may depend on whether that works, nor on the memory for it.
        }
    }

    private static void say(System.Logger.Level level, long dropped, String format, Object... values) {
        if (dropped > 0) {
            LOGGER.log(level, "{0} lines before this one were dropped", Long.toString(dropped));
        }
        LOGGER.log(level, format, values);
    }

    private static void start() {
        boolean isStarted = false;
        try {
            new Worker("xuid-log", Log::sayAll).start();
            isStarted = true;
        } finally {
            if (!isStarted) {
                IS_SAYING.set(false);
            }
        }
    }

    private static void sayAll() {
        do {
            for (Runnable next = UNSAID.poll(); next != null; next = UNSAID.poll()) {
                try {
                    next.run();
                } catch (Throwable strangers) {
                    // The next one may be received.
                }
            }
            IS_SAYING.set(false);
            // One that was added behind the last look.
        } while (!UNSAID.isEmpty() && IS_SAYING.compareAndSet(false, true));
    }
}
