package org.xuid.client.internal.link;

import java.io.IOException;
import java.io.InputStream;
import java.util.Arrays;
import org.xuid.client.XuidException;
import org.xuid.client.internal.wire.BadReply;
import org.xuid.client.internal.wire.Frame;
import org.xuid.client.internal.wire.Reply;
import org.xuid.client.internal.wire.Request;

/**
 * The read side of a link, for its reader alone. The buffer grows with what arrives, and not with what a header claims; a
 * reply longer than what was asked for is refused by its header.
 */
final class Inbox {
    /** Room of the first buffer: a few thousand replies to NEXT. */
    private static final int ROOM = 64 * 1_024;

    /** A buffer longer than this is let go when it is empty. */
    private static final int KEEP = 1 << 20;

    private final Link link;
    private final Watch watch;
    private final InputStream in;
    private byte[] buffer;
    private int filled;

    Inbox(Link link, Watch watch, Dial.Greeted greeted) {
        this.link = link;
        this.watch = watch;
        in = greeted.in;
        filled = greeted.rest.length;
        buffer = Arrays.copyOf(greeted.rest, Math.max(ROOM, filled));
    }

    /** Reads and delivers until the connection ends, or nothing is left to wait for after GOAWAY. */
    XuidException read() {
        try {
            do {
                deliver();
                link.flushBatch();
            } while (!link.hasLeft() && fill());
            return link.lost(null);
        } catch (BadReply bad) {
            return Failures.protocol(link.server.address(), bad.getMessage());
        } catch (XuidException about) {
            return about;
        } catch (IOException failed) {
            return link.lost(failed);
        }
    }

    /** False: the server closed. */
    private boolean fill() throws IOException {
        if (filled == buffer.length) {
            buffer = Arrays.copyOf(buffer, filled * 2);
        } else if (filled == 0 && buffer.length > KEEP) {
            buffer = new byte[ROOM];
        }
        int read = in.read(buffer, filled, buffer.length - filled);
        watch.heard();
        filled += Math.max(read, 0);
        return read >= 0;
    }

    /** Hands out every whole reply. */
    private void deliver() throws BadReply {
        int at = 0;
        while (filled - at >= Frame.HEADER) {
            Reply.checkHeader(buffer, at);
            long requestId = Frame.requestId(buffer, at);
            long body = Frame.bodyLength(buffer, at);
            if (!Frame.isShort(body)) {
                // An error is short, whatever it answers.
                Request request = Frame.status(buffer, at) == 0 ? link.asked(requestId) : null;
                Reply.checkLength(body, Frame.longest(request));
            }
            if (filled - at < Frame.HEADER + body) {
                break;
            }
            link.handOut(Reply.parse(buffer, at), requestId);
            at += Frame.HEADER + (int) body;
        }
        filled -= at;
        System.arraycopy(buffer, at, buffer, 0, filled);
        if (filled > 0) {
            // A reply that has begun is no silence.
            watch.wasAnswered();
        }
    }
}
