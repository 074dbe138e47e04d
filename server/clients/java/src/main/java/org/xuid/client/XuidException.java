package org.xuid.client;

import java.time.Duration;
import org.xuid.client.internal.wire.Status;

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

    /**
     * The same failure with the stack trace of the thread that asks, and this one as its cause. One loss can be the end of
     * many futures, which then share one exception: throw this one instead.
     *
     * @return a new exception
     */
    public abstract XuidException again();

    /** The server answered with an error. */
    public static final class Refused extends XuidException {
        private static final long serialVersionUID = 1;
        /** The status. */
        private final int code;
        /** The server's pause in milliseconds. */
        private final long retryAfterMs;
        /** The server's words. */
        private final String text;

        /**
         * For the client, and for tests of its callers.
         *
         * @param server the server that it is about
         * @param code the status
         * @param retryAfterMs when it is worth trying again, in milliseconds; 0: not said
         * @param text what was found, what is allowed, and what to do
         * @param cause what it follows from, or null
         */
        public Refused(String server, int code, long retryAfterMs, String text, Throwable cause) {
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
        public XuidException again() {
            return new Refused(server(), code, retryAfterMs, text, this);
        }
    }

    /** No reply in time. The call ends alone: its connection and other calls go on. */
    public static final class Timeout extends XuidException {
        private static final long serialVersionUID = 1;

        /**
         * For the client, and for tests of its callers.
         *
         * @param server the server that it is about
         * @param text what was found, what is allowed, and what to do
         * @param cause what it follows from, or null
         */
        public Timeout(String server, String text, Throwable cause) {
            super(server, text, cause);
        }

        @Override
        public boolean isRetryable() {
            return true;
        }

        @Override
        public XuidException again() {
            return new Timeout(server(), getMessage(), this);
        }
    }

    /** The connection ended with the request in flight. */
    public static final class ConnectionLost extends XuidException {
        private static final long serialVersionUID = 1;

        /**
         * For the client, and for tests of its callers.
         *
         * @param server the server that it is about
         * @param cause what it follows from, or null
         */
        public ConnectionLost(String server, Throwable cause) {
            this(server, "the connection to " + server + " ended before its reply" + why(cause) + ": ask again", cause);
        }

        private ConnectionLost(String server, String text, Throwable cause) {
            super(server, text, cause);
        }

        private static String why(Throwable cause) {
            return cause == null || cause.getMessage() == null ? "" : " (" + cause.getMessage() + ")";
        }

        @Override
        public boolean isRetryable() {
            return true;
        }

        @Override
        public XuidException again() {
            return new ConnectionLost(server(), getMessage(), this);
        }
    }

    /** No server could be connected to; it is about the last one that was tried. */
    public static final class Unreachable extends XuidException {
        private static final long serialVersionUID = 1;
        /** The failure was one of TLS, which waiting does not help. */
        private final boolean tls;

        /**
         * For the client, and for tests of its callers.
         *
         * @param server the server that it is about
         * @param tls whether it is a failure of TLS
         * @param text what was found, what is allowed, and what to do
         * @param cause what it follows from, or null
         */
        public Unreachable(String server, boolean tls, String text, Throwable cause) {
            super(server, text, cause);
            this.tls = tls;
        }

        @Override
        public boolean isRetryable() {
            return !tls;
        }

        @Override
        public XuidException again() {
            return new Unreachable(server(), tls, getMessage(), this);
        }
    }

    /** The server does not speak XUID/1 as it should. The connection is ended, and nothing of it is believed. */
    public static final class Protocol extends XuidException {
        private static final long serialVersionUID = 1;

        /**
         * For the client, and for tests of its callers.
         *
         * @param server the server that it is about
         * @param text what was found, what is allowed, and what to do
         * @param cause what it follows from, or null
         */
        public Protocol(String server, String text, Throwable cause) {
            super(server, text, cause);
        }

        @Override
        public XuidException again() {
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

        /**
         * For the client, and for tests of its callers.
         *
         * @param server the server that it is about
         * @param found the cluster of the server, or null
         * @param expected the cluster that it should be of
         * @param text what was found, what is allowed, and what to do
         * @param cause what it follows from, or null
         */
        public WrongCluster(String server, String found, String expected, String text, Throwable cause) {
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
        public XuidException again() {
            return new WrongCluster(server(), found, expected, getMessage(), this);
        }
    }

    /** The client, or the source of prefetched ids, was closed. */
    public static final class Closed extends XuidException {
        private static final long serialVersionUID = 1;

        /**
         * For the client, and for tests of its callers.
         *
         * @param text what was found, what is allowed, and what to do
         * @param cause what it follows from, or null
         */
        public Closed(String text, Throwable cause) {
            super(null, text, cause);
        }

        @Override
        public XuidException again() {
            return new Closed(getMessage(), this);
        }
    }
}
