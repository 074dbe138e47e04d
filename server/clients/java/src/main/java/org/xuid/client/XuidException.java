package org.xuid.client;

import java.time.Duration;
import org.xuid.client.wire.Status;

/**
 * What went wrong between a caller and its ids. No id was issued to the caller; if ids were on their way, they are wasted
 * and come to nobody else.
 *
 * <p>A wrong use is another exception: {@link IllegalArgumentException} for an argument that no server would take,
 * {@link IllegalStateException} for a blocking call on a thread of the client's own.
 */
public abstract class XuidException extends RuntimeException {
    private static final long serialVersionUID = 1;

    /** The server that it is about, or null. */
    private final String server;

    private XuidException(String server, String text, Throwable cause) {
        super(text, cause);
        this.server = server;
    }

    /**
     * The server that it is about.
     *
     * @return its address, or null where no server is to blame
     */
    public String server() {
        return server;
    }

    /**
     * Whether the same call may succeed later, or at another server. Repeating it never brings an id twice.
     *
     * @return true if it is worth trying again
     */
    public boolean isRetryable() {
        return false;
    }

    /**
     * When the server says it is worth trying again.
     *
     * @return the pause; zero: the server does not say
     */
    public Duration retryAfter() {
        return Duration.ZERO;
    }

    /** The same for another thread, with a stack trace of that one: one loss can be the end of many calls. */
    abstract XuidException again();

    /** The server answered with an error. */
    public static final class Refused extends XuidException {
        private static final long serialVersionUID = 1;
        /** The status. */
        private final int code;
        /** The server's pause in milliseconds. */
        private final long retryAfterMs;
        /** The server's words. */
        private final String text;

        Refused(String server, int code, long retryAfterMs, String text, Throwable cause) {
            super(server, server + " refused: " + Status.name(code) + ": " + text, cause);
            this.code = code;
            this.retryAfterMs = retryAfterMs;
            this.text = text;
        }

        /**
         * The name of the status, as {@code OVERLOADED}.
         *
         * @return the name, or {@code status 8018} for a number without a name in this version
         */
        public String status() {
            return Status.name(code);
        }

        /**
         * The number of the status. Bit 15 is set if the request may be tried again.
         *
         * @return 16 bits
         */
        public int code() {
            return code;
        }

        /**
         * What the server says about it: what was wrong, the limit, and what to do.
         *
         * @return a text without control characters
         */
        public String text() {
            return text;
        }

        @Override
        public boolean isRetryable() {
            return Status.isRetryable(code);
        }

        @Override
        public Duration retryAfter() {
            return Duration.ofMillis(retryAfterMs);
        }

        @Override
        XuidException again() {
            return new Refused(server(), code, retryAfterMs, text, this);
        }
    }

    /** No reply in time. The call ends alone: its connection and other calls go on. */
    public static final class Timeout extends XuidException {
        private static final long serialVersionUID = 1;

        Timeout(String server, String text, Throwable cause) {
            super(server, text, cause);
        }

        static Timeout noReply(String server, Duration limit) {
            String text = server + " did not answer within " + limit.toMillis()
                    + " ms: ask again, or allow more with XuidOptions.timeout";
            return new Timeout(server, text, null);
        }

        @Override
        public boolean isRetryable() {
            return true;
        }

        @Override
        XuidException again() {
            return new Timeout(server(), getMessage(), this);
        }
    }

    /** The connection ended with the request in flight. */
    public static final class ConnectionLost extends XuidException {
        private static final long serialVersionUID = 1;

        ConnectionLost(String server, Throwable cause) {
            super(server, "the connection to " + server + " ended before its reply: ask again", cause);
        }

        @Override
        public boolean isRetryable() {
            return true;
        }

        @Override
        XuidException again() {
            return new ConnectionLost(server(), this);
        }
    }

    /** No server could be connected to; it is about the last one that was tried. */
    public static final class Unreachable extends XuidException {
        private static final long serialVersionUID = 1;
        /** The failure was one of TLS, which waiting does not help. */
        private final boolean tls;

        private Unreachable(String server, boolean tls, String text, Throwable cause) {
            super(server, text, cause);
            this.tls = tls;
        }

        static Unreachable of(String server, Throwable cause) {
            String text = server + " cannot be reached (" + cause.getMessage()
                    + "): check the address, and that the server runs";
            return new Unreachable(server, false, text, cause);
        }

        static Unreachable byTls(String server, Throwable cause) {
            String text = "no TLS with " + server + " (" + cause.getMessage() + "): check that it speaks TLS, who vouches "
                    + "for it under that name, and what it asks of clients";
            return new Unreachable(server, true, text, cause);
        }

        @Override
        public boolean isRetryable() {
            return !tls;
        }

        @Override
        XuidException again() {
            return new Unreachable(server(), tls, getMessage(), this);
        }
    }

    /** The server does not speak XUID/1 as it should. The connection is ended, and nothing of it is believed. */
    public static final class Protocol extends XuidException {
        private static final long serialVersionUID = 1;

        Protocol(String server, String text, Throwable cause) {
            super(server, text, cause);
        }

        static Protocol of(String server, String breach) {
            String text = server + " does not speak XUID/1 as it should: " + breach
                    + ". Check the address and the versions";
            return new Protocol(server, text, null);
        }

        @Override
        XuidException again() {
            return new Protocol(server(), getMessage(), this);
        }
    }

    /** A server of another cluster, which could issue the same ids. It is not used. */
    public static final class WrongCluster extends XuidException {
        private static final long serialVersionUID = 1;
        /** The cluster of the server, or null. */
        private final String found;
        /** The cluster that it should be of. */
        private final String expected;

        WrongCluster(String server, String found, String expected, String text, Throwable cause) {
            super(server, text, cause);
            this.found = found;
            this.expected = expected;
        }

        /**
         * The cluster of the server that is refused.
         *
         * @return 32 hexadecimal digits, or null where the server refused by itself; the message shows both then
         */
        public String found() {
            return found;
        }

        /**
         * The cluster that all servers must be of.
         *
         * @return 32 hexadecimal digits
         */
        public String expected() {
            return expected;
        }

        @Override
        XuidException again() {
            return new WrongCluster(server(), found, expected, getMessage(), this);
        }
    }

    /** The client, or the source of prefetched ids, was closed. */
    public static final class Closed extends XuidException {
        private static final long serialVersionUID = 1;

        Closed(String text, Throwable cause) {
            super(null, text, cause);
        }

        static Closed client() {
            return new Closed("this client was closed: connect another one", null);
        }

        @Override
        XuidException again() {
            return new Closed(getMessage(), this);
        }
    }
}
