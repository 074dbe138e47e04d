package org.xuid.client.internal.link;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import org.xuid.client.IdParts;
import org.xuid.client.Run;
import org.xuid.client.XuidException;
import org.xuid.client.internal.base.Time;
import org.xuid.client.internal.wire.Op;
import org.xuid.client.internal.wire.Reply;
import org.xuid.client.internal.wire.Request;

/**
 * One call of a caller, over all attempts. A caller that cancels it, or completes it by itself, ends alone: its request
 * keeps its place among those in flight until its reply comes, and the reply goes to nobody.
 *
 * @param <T> what the caller gets
 */
public class Call<T> extends CompletableFuture<T> {
    /** Threads for what callers attached, one for each that stands still; beyond so many it runs where the call ends. */
    private static final int MOST_CALLBACKS = 1_024;

    private static final Executor CALLBACKS = callbacks();

    public final Request request;
    /** How long a reply may take beyond the request's own wait. */
    public final long patience;
    /** How long attempts may go on; zero: one attempt. */
    public final long retryFor;
    public final long created = Time.now();

    // Of the attempt of now. Written by one thread at a time, each of which got the call through a lock.
    public long begun;
    public long due;
    public long deadline;
    /** How often this attempt had to look for another link. */
    public int moves;
    public Retries retries;
    /** The pauses between looks for another link. */
    public Retries moving;

    private volatile boolean isTold;

    public Call(Request request, long patience, long retryFor) {
        this.request = request;
        this.patience = patience;
        this.retryFor = retryFor;
    }

    /** An attempt begins on a link. */
    public void begin(long now) {
        begun = now;
        due = now + Time.ms(request.waitMs());
        deadline = due + patience;
    }

    /**
     * A step of this call by a thread that serves other calls behind it. No other place knows of the call by now: whatever
     * the step throws, as where memory is used up, the call is told.
     */
    void step(String server, Runnable step) {
        try {
            step.run();
        } catch (Throwable error) {
            broken(server, error);
        }
    }

    /** No other place knows of this call, and an Error came in its way: it is told. */
    public void broken(String server, Throwable error) {
        fail(Failures.broken(server, error));
    }

    /** What is attached to it is the client's own, or a thread that waits: it is told of its end by whoever ends it. */
    public void isTold() {
        isTold = true;
    }

    /**
     * Ends it with an error. The thread that does so serves other calls behind this one, which nothing else would end by then:
     * what a caller attached, and may stand still, runs on another one. So does what may be attached in this moment.
     */
    public void fail(XuidException error) {
        if (isTold) {
            completeExceptionally(error);
            return;
        }
        try {
            CALLBACKS.execute(() -> failHere(error));
        } catch (Throwable none) {
            // No thread is to be had, or too many are.
            completeExceptionally(error);
        }
    }

    /** On a thread of its own, on which nobody else would tell of what comes in between. */
    private void failHere(XuidException error) {
        try {
            completeExceptionally(error);
        } catch (Throwable thrown) {
            completeExceptionally(Failures.broken(error.server(), thrown));
        }
    }

    /** Not the pool that all of the application shares: what waits there may wait for this. */
    private static Executor callbacks() {
        return new ThreadPoolExecutor(
                0, MOST_CALLBACKS, 1, TimeUnit.SECONDS, new SynchronousQueue<>(), Call::callback);
    }

    private static Thread callback(Runnable task) {
        // Of the thread that happens to make it nothing is kept.
        Thread thread = new Thread(null, task, "xuid-callback", 0, false);
        thread.setDaemon(true);
        return thread;
    }

    /** Hands over a reply that was found to fit the request. */
    @SuppressWarnings("unchecked") // The method of the client that made the request names T by its op.
    public void answer(Reply reply) {
        complete((T) value(reply));
    }

    private static Object value(Reply reply) {
        switch (reply.op) {
            case Op.NEXT:
            case Op.SEQ_NEXT:
                return reply.id;
            case Op.ARRAY:
            case Op.SEQ_ARRAY:
                return reply.ids;
            case Op.RUNS:
            case Op.SEQ_RUNS:
                return runs(reply);
            case Op.DECODE:
                return new IdParts(reply.unixMs, reply.worker, reply.sequence);
            case Op.PING:
            case Op.BYE:
                return null;
            default:
                return reply.text;
        }
    }

    private static List<Run> runs(Reply reply) {
        List<Run> runs = new ArrayList<>(reply.firsts.length);
        for (int i = 0; i < reply.firsts.length; i++) {
            runs.add(new Run(reply.firsts[i], reply.counts[i], Integer.toUnsignedLong(reply.strides[i])));
        }
        return List.copyOf(runs);
    }
}
