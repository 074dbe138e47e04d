package org.xuid.client;

import java.time.Duration;

/** Points in time as nanoseconds since the class was loaded, which never wrap: zero and above. */
final class Time {
    private static final long BEGIN = System.nanoTime();

    private Time() {}

    static long now() {
        return System.nanoTime() - BEGIN;
    }

    static long ms(long ms) {
        return ms * 1_000_000;
    }

    /** The options bound spans so that this, and the sum with a time, is no overflow. */
    static long nanos(Duration span) {
        return span.toNanos();
    }
}
