package org.xuid.client.internal.base;

import java.time.Duration;

/** Points in time as nanoseconds since the class was loaded, which never wrap: zero and above. */
public final class Time {
    private static final long BEGIN = System.nanoTime();

    private Time() {}

    public static long now() {
        return System.nanoTime() - BEGIN;
    }

    public static long ms(long ms) {
        return ms * 1_000_000;
    }

    /** The options bound spans so that this, and the sum with a time, is no overflow. */
    public static long nanos(Duration span) {
        return span.toNanos();
    }
}
