package org.xuid.client.internal.wire;

/** Bytes of a server that are no reply, or not the reply that was asked for. The connection ends with it. */
public final class BadReply extends Exception {
    private static final long serialVersionUID = 1;

    /** A text that says what was found, and what should have been there. */
    public BadReply(String text) {
        super(text, null, false, false);
    }
}
