package org.xuid.client.internal.base;

/** What a person may want to know later, by the system's logger of the name {@code org.xuid.client}. */
public final class Log {
    private static final System.Logger LOGGER = System.getLogger("org.xuid.client");

    private Log() {}

    public static void debug(String format, Object... values) {
        say(System.Logger.Level.DEBUG, format, values);
    }

    public static void warn(String format, Object... values) {
        say(System.Logger.Level.WARNING, format, values);
    }

    private static void say(System.Logger.Level level, String format, Object... values) {
        try {
            LOGGER.log(level, format, values);
        } catch (Throwable strangers) {
            // What receives it is a stranger's code: no call may depend on whether that works.
        }
    }
}
