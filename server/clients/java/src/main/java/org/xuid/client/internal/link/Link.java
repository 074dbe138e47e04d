package org.xuid.client.internal.link;

import java.io.IOException;
import java.io.OutputStream;
import java.net.Socket;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import org.xuid.client.ServerInfo;
import org.xuid.client.XuidException;
import org.xuid.client.internal.base.Log;
import org.xuid.client.internal.base.Settings;
import org.xuid.client.internal.base.Time;
import org.xuid.client.internal.base.Worker;
import org.xuid.client.internal.wire.BadReply;
import org.xuid.client.internal.wire.Frame;
import org.xuid.client.internal.wire.Reply;
import org.xuid.client.internal.wire.Request;

/**
 * One greeted connection: many callers append requests, one thread reads the replies.
 *
 * <ul>
 *   <li>I1 a call in {@link #pending} gets an outcome: by a reply, by its deadline, or by the end of the link; an Error at
 *       one, as of a memory that is used up, keeps it from none;
 *   <li>I2 requests of callers in flight are {@link #limit} at most; further calls are in {@link #waiting};
 *   <li>I3 after the end, or after GOAWAY, no request is taken; after GOAWAY those in flight are still answered;
 *   <li>I4 a caller that gives up leaves its request in flight, with the room that it takes. No caller's patience ends
 *       the link; {@link Watch a silence} does.
 * </ul>
 */
final class Link {
    /** What becomes of the calls of a link, and of the link. Called without the link's lock. */
    interface Owner {
        /** An attempt failed. */
        void failed(Call<?> call, Link link, XuidException error);

        /** The call was not sent, and looks for another link. */
        void moved(Call<?> call);

        /** Nothing more comes of it. */
        void ended(Link link);
    }

    /** How long reading may go on when writing failed: the server may have said why before it closed. */
    private static final long LAST_WORDS_MS = 1_000;
    /** How long a link may live after GOAWAY, besides the timeout of its calls: the longest wait, and some. */
    private static final long LEAVING_MS = Frame.WAIT_MAX_MS + 5_000;

    private enum State {
        SERVING,
        LEAVING,
        ENDED
    }

    final ServerInfo server;
    private final Owner owner;
    private final Socket socket;
    private final ScheduledExecutorService timer;
    private final Thread reader;
    private final Outbox outbox;
    private final Watch watch;
    private final int limit;

    // Behind the lock of this object.
    private State state = State.SERVING;
    private final Pending pending = new Pending();
    private final ArrayDeque<Call<?>> waiting = new ArrayDeque<>();
    private int inFlight;

    private volatile boolean sentAway;
    private volatile boolean serving = true;

    Link(Dial.Greeted greeted, Settings options, ScheduledExecutorService timer, Owner owner) {
        this.owner = owner;
        this.timer = timer;
        server = greeted.server;
        socket = greeted.socket;
        limit = (int) Math.max(1, Math.min(server.maxInFlight(), options.maxInFlight));
        watch = new Watch(this, timer, options.timeout);
        Inbox inbox = new Inbox(this, watch, greeted);
        reader = new Worker("xuid-reader " + server.address(), () -> {
            try {
                end(inbox.read());
            } finally {
                // After an Error, too, callers are told (I1).
                end(lost(null));
            }
        });
        outbox = new Outbox(this, greeted.out, reader);
    }

    /** Begins to read. */
    void start() {
        outbox.start();
        reader.start();
    }

    /** Whether requests are taken. */
    boolean isServing() {
        return serving;
    }

    /** Whether the server said GOAWAY. */
    boolean wasSentAway() {
        return sentAway;
    }

    /** Sends a request, or lets it wait its turn. False: the link takes none. */
    boolean submit(Call<?> call) {
        synchronized (this) {
            if (state != State.SERVING) {
                return false;
            }
            try {
                call.begin(Time.now());
                if (inFlight < limit) {
                    append(call);
                } else {
                    waiting.add(call);
                }
                watch.expect(Math.min(call.deadline, call.due + watch.half()));
            } catch (Throwable error) {
                outbox.torn = error;
                outbox.wakeWriter();
                throw error;
            }
        }
        outbox.flush();
        return true;
    }

    /** Takes no more requests, as after GOAWAY; those in flight are still answered. */
    void retire() {
        List<Call<?>> unsent;
        boolean isIdle;
        synchronized (this) {
            if (state != State.SERVING) {
                return;
            }
            unsent = new ArrayList<>(waiting);
            state = State.LEAVING;
            serving = false;
            waiting.clear();
            isIdle = pending.size() == 0;
        }
        moveOn(unsent);
        if (isIdle) {
            // No reply will come that could show the reader that it was the last one.
            end(lost(null));
        } else {
            schedule(() -> end(lost(null)), LEAVING_MS + watch.timeoutMs());
        }
    }

    /** Ends the link: calls in flight are told the error. The first end counts. */
    void end(XuidException error) {
        List<Call<?>> calls;
        List<Call<?>> unsent;
        synchronized (this) {
            if (state == State.ENDED) {
                return;
            }
            // The memory first: where there is none, all calls are still in their places.
            List<Pending.Slot> used = pending.used();
            calls = new ArrayList<>(used.size());
            unsent = new ArrayList<>(waiting);
            state = State.ENDED;
            serving = false;
            for (Pending.Slot slot : used) {
                if (slot.call != null) {
                    calls.add(slot.call);
                }
                pending.release(slot);
            }
            waiting.clear();
            watch.stop();
        }
        try {
            Log.debug("the connection to {0} is over: {1}", server.address(), error.getMessage());
            outbox.stop();
            Dial.closeQuietly(socket);
            owner.ended(this);
        } finally {
            // Nothing is made on the way, since memory may be used up: each of them is told.
            for (int at = 0; at < calls.size(); at++) {
                fail(calls.get(at), error);
            }
            moveOn(unsent);
        }
    }

    private void fail(Call<?> call, XuidException error) {
        try {
            owner.failed(call, this, error);
        } catch (Throwable another) {
            call.broken(server.address(), another);
        }
    }

    private void moveOn(List<Call<?>> unsent) {
        for (int at = 0; at < unsent.size(); at++) {
            Call<?> call = unsent.get(at);
            try {
                owner.moved(call);
            } catch (Throwable error) {
                call.broken(server.address(), error);
            }
        }
    }

    /** Writing failed with that. Nothing more is taken, and what was not sent goes elsewhere. */
    void writeFailed(IOException failure) {
        schedule(() -> end(lost(failure)), LAST_WORDS_MS);
        retire();
    }

    /** A PING of the link's own, which takes no room of callers. Behind the lock of this object. */
    void appendPing(Request ping, long now) {
        // After GOAWAY nothing more is sent, and the silence is judged alone.
        if (!sentAway) {
            outbox.append(ping, pending.insert(ping, null, now));
        }
    }

    void flush() {
        outbox.flush();
    }

    /** Behind the replies of one read: what callbacks appended meanwhile. */
    void flushBatch() {
        outbox.flushBatch();
    }

    /** The requests in flight. Behind the lock of this object. */
    Pending pending() {
        return pending;
    }

    /** Takes the calls whose time is over: those that were sent keep their slot (I4). Behind the lock of this object. */
    void takeExpired(long now, List<Call<?>> expired) {
        for (Pending.Slot slot : pending.used()) {
            if (slot.call != null && slot.call.deadline <= now) {
                expired.add(slot.call);
                slot.call = null;
            }
        }
        waiting.removeIf(call -> call.deadline <= now && expired.add(call));
    }

    /** When the first call of those in flight and those that wait gives up. Behind the lock of this object. */
    long firstDeadline() {
        long first = Long.MAX_VALUE;
        for (Pending.Slot slot : pending.used()) {
            first = slot.call == null ? first : Math.min(first, slot.call.deadline);
        }
        for (Call<?> call : waiting) {
            first = Math.min(first, call.deadline);
        }
        return first;
    }

    /** Tells calls that their time is over. */
    void expire(List<Call<?>> expired) {
        for (int at = 0; at < expired.size(); at++) {
            Call<?> call = expired.get(at);
            try {
                long limitMs = (call.deadline - call.begun) / 1_000_000;
                owner.failed(call, this, Failures.noReply(server.address(), java.time.Duration.ofMillis(limitMs)));
            } catch (Throwable error) {
                call.broken(server.address(), error);
            }
        }
    }

    /** Whether no request of a caller was answered after that time. */
    boolean isSilentSince(long time) {
        return watch.answered() <= time;
    }

    /** Whether something lies in the socket that was not read yet. */
    boolean hasUnread() {
        try {
            return socket.getInputStream().available() > 0;
        } catch (IOException ended) {
            return false;
        }
    }

    XuidException lost(Throwable cause) {
        return new XuidException.ConnectionLost(server.address(), cause);
    }

    private void append(Call<?> call) {
        inFlight++;
        outbox.append(call.request, pending.insert(call.request, call, call.due));
    }

    private void schedule(Runnable task, long ms) {
        timer.schedule(task, ms, TimeUnit.MILLISECONDS);
    }

    /** The request of that id while it is in flight, or null. */
    synchronized Request asked(long requestId) {
        Pending.Slot slot = pending.find(requestId);
        return slot == null ? null : slot.request;
    }

    /** One reply: finds its caller. What is thrown ends the link. */
    void handOut(Reply reply, long requestId) throws BadReply {
        if (reply.isGoaway()) {
            Log.debug("told to go away by {0}", server.address());
            sentAway = true;
            retire();
            return;
        }
        Request request;
        Call<?> call;
        synchronized (this) {
            Pending.Slot slot = pending.find(requestId);
            if (slot == null) {
                throw toNobody(reply, requestId);
            }
            request = slot.request;
            call = slot.call;
            // A breach leaves it in flight, so that its caller is told by the end of the link.
            reply.checkFits(request);
            pending.release(slot);
            outbox.answered(request);
            if (watch.isOwn(request)) {
                watch.wasEchoed();
                return;
            }
            watch.wasAnswered();
            inFlight--;
            admit();
        }
        if (call == null) {
            return;
        }
        try {
            if (reply.status == 0) {
                call.answer(reply);
            } else {
                String text = reply.text;
                var refused =
                        new XuidException.Refused(server.address(), reply.status, reply.retryAfterMs, text, null);
                owner.failed(call, this, refused);
            }
        } catch (Throwable error) {
            // It is not in flight any more, so that the end of the link does not tell it.
            call.broken(server.address(), error);
            throw error;
        }
    }

    /** Gives the room of an answered request to calls that wait for some. */
    private void admit() {
        try {
            for (Call<?> next = waiting.peek(); next != null && inFlight < limit; next = waiting.peek()) {
                if (next.isDone()) {
                    waiting.poll();
                } else {
                    long requestId = pending.insert(next.request, next, next.due);
                    waiting.poll();
                    inFlight++;
                    outbox.append(next.request, requestId);
                }
            }
        } catch (Throwable error) {
            // The reader goes on: the answered call is still to be told.
            outbox.torn = error;
            outbox.wakeWriter();
        }
    }

    private BadReply toNobody(Reply reply, long requestId) {
        if (reply.status != 0) {
            // About the connection as a whole.
            throw new XuidException.Refused(server.address(), reply.status, reply.retryAfterMs, reply.text, null);
        }
        return new BadReply(String.format("a reply to request %016x, which is not in flight", requestId));
    }

    /** After GOAWAY, and nothing in flight. */
    synchronized boolean hasLeft() {
        return state == State.LEAVING && pending.size() == 0;
    }
}
