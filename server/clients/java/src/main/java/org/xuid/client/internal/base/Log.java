package org.xuid.client.internal.base;

/** What a person may want to know later, by the system's logger of the name {@code org.xuid.client}. */
public final class Log {
    private static final System.Logger LOGGER = System.getLogger("org.xuid.client");

    private Log() {}

    public static void debug(String format, Object... values) {
        LOGGER.log(System.Logger.Level.DEBUG, format, values);
    }

    public static void warn(String format, Object... values) {
        LOGGER.log(System.Logger.Level.WARNING, format, values);
    }
}
