package org.xuid.client.internal.link;

import java.net.SocketTimeoutException;
import java.time.Duration;
import org.xuid.client.XuidException;

/** Failures in the words of a person: what was found, what is allowed, what to do. */
public final class Failures {
    /** Made before memory is used up: then no other failure can be made. */
    private static final XuidException NO_MEMORY = new XuidException.ConnectionLost("the server", new OutOfMemoryError());

    private Failures() {}

    /** Makes what is needed where memory is used up. */
    static void prepare() {}

    static XuidException noReply(String server, Duration limit) {
        String text = server + " did not answer within " + limit.toMillis()
                + " ms: ask again, or allow more with XuidOptions.timeout";
        return new XuidException.Timeout(server, text, null);
    }

    static XuidException unreachable(String server, Throwable cause) {
        String text = server + " cannot be reached (" + cause.getMessage()
                + "): check the address, and that the server runs";
        return new XuidException.Unreachable(server, false, text, cause);
    }

    /** A dial stands still where its own time does not reach. */
    static XuidException still(String server, Duration limit) {
        return unreachable(server, new SocketTimeoutException("nothing within " + limit.toMillis() + " ms"));
    }

    static XuidException noTls(String server, Throwable cause) {
        String text = "no TLS with " + server + " (" + cause.getMessage() + "): check that it speaks TLS, who vouches for "
                + "it under that name, and what it asks of clients";
        return new XuidException.Unreachable(server, true, text, cause);
    }

    static XuidException protocol(String server, String breach) {
        String text = server + " does not speak XUID/1 as it should: " + breach
                + ". Check the address and the versions";
        return new XuidException.Protocol(server, text, null);
    }

    /** A dial met an Error. */
    static XuidException undialed(String server, Throwable error) {
        try {
            return unreachable(server, error);
        } catch (Throwable another) {
            return NO_MEMORY;
        }
    }

    /** An Error came in the way of a call, which says nothing of the server. */
    static XuidException broken(String server, Throwable error) {
        try {
            return new XuidException.ConnectionLost(server, error);
        } catch (Throwable another) {
            return NO_MEMORY;
        }
    }

    /** A call of a client that was closed. */
    public static XuidException closed() {
        return new XuidException.Closed("this client was closed: connect another one", null);
    }
}
