package org.xuid.client.internal.wire;

import java.util.Map;

/** The statuses of replies. A later server may send a number that has no name here. */
public final class Status {
    /** No window of ticks is held yet. */
    public static final int NOT_READY = 0x8010;
    /** Too few ids within the wait. */
    public static final int OVERLOADED = 0x8011;
    /** The clock is behind what was issued already. */
    public static final int CLOCK_BEHIND = 0x8012;
    /** The window of ticks was lost. */
    public static final int WINDOW_LOST = 0x8013;
    /** The server is going. */
    public static final int SHUTTING_DOWN = 0x8014;
    /** The server failed on this request. */
    public static final int INTERNAL = 0x8015;
    /** The store of the sequences does not answer. */
    public static final int STORE_AWAY = 0x8016;
    /** The store of the sequences may have gone back. */
    public static final int STORE_BEHIND = 0x8017;
    /** The server is of another cluster than HELLO named. */
    public static final int WRONG_CLUSTER = 0x0007;
    /** A count of 0, or above the server's limit. */
    public static final int COUNT = 0x0005;

    private static final Map<Integer, String> NAMES = Map.ofEntries(
            Map.entry(0x0001, "BAD_REQUEST"),
            Map.entry(0x0002, "VERSION"),
            Map.entry(0x0003, "UNKNOWN_OP"),
            Map.entry(0x0004, "TOO_LARGE"),
            Map.entry(COUNT, "COUNT"),
            Map.entry(0x0006, "UNAUTHENTICATED"),
            Map.entry(WRONG_CLUSTER, "WRONG_CLUSTER"),
            Map.entry(0x0008, "EXHAUSTED"),
            Map.entry(0x0009, "NO_SEQUENCE"),
            Map.entry(0x000a, "EXISTS"),
            Map.entry(0x000b, "FORBIDDEN"),
            Map.entry(0x000c, "NO_ORDER"),
            Map.entry(NOT_READY, "NOT_READY"),
            Map.entry(OVERLOADED, "OVERLOADED"),
            Map.entry(CLOCK_BEHIND, "CLOCK_BEHIND"),
            Map.entry(WINDOW_LOST, "WINDOW_LOST"),
            Map.entry(SHUTTING_DOWN, "SHUTTING_DOWN"),
            Map.entry(INTERNAL, "INTERNAL"),
            Map.entry(STORE_AWAY, "STORE_AWAY"),
            Map.entry(STORE_BEHIND, "STORE_BEHIND"),
            Map.entry(0x801a, "RATE"));

    private Status() {}

    /** The name of a status, or its number where it has none here. */
    public static String name(int code) {
        String name = NAMES.get(code);
        return name != null ? name : String.format("status %04x", code);
    }

    /** Whether the same request may be tried again: bit 15. */
    public static boolean isRetryable(int code) {
        return (code & 0x8000) != 0;
    }
}
