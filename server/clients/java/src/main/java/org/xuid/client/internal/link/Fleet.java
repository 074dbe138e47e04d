package org.xuid.client.internal.link;

import java.util.ArrayDeque;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import org.xuid.client.ServerInfo;
import org.xuid.client.XuidException;
import org.xuid.client.internal.base.Log;
import org.xuid.client.internal.base.Settings;
import org.xuid.client.internal.base.Time;
import org.xuid.client.internal.base.Worker;
import org.xuid.client.internal.wire.Request;
import org.xuid.client.internal.wire.Status;

/**
 * The calls of a client and the link that takes them: one at a time, dialed on demand by a thread that ends with the dial.
 *
 * <ul>
 *   <li>I1 every link is of the cluster of the first one ({@link Servers#greet});
 *   <li>I2 one dial at a time, whatever the number of callers; those that waited for it share its outcome;
 *   <li>I3 a call that was started is in one place: a link, {@link #parked}, {@link #paused}, or it is done; an Error on the
 *       way from one to another ends that call ({@link Call#step}), and no other one;
 *   <li>I4 when a server turns out to be of another cluster, what is held of before is void before any caller is told.
 * </ul>
 */
public final class Fleet implements Link.Owner {
    /**
     * After a refusal a server is left for another one that was not dialed for so long, or for as long as the refusal
     * says to wait, up to the most, and that costs no long dial in vain. Else, where all servers refuse, a caller that
     * asks for what none of them has would take the others along from server to server.
     */
    private static final long LEAST_STAY = Time.ms(1_000);
    private static final long MOST_STAY = Time.ms(10_000);

    /** A clock that is behind by less than this is waited for. */
    private static final long CLOCK_PATIENCE_MS = 100;

    public final Settings options;
    public final ScheduledThreadPoolExecutor timer;
    private final Servers servers;
    private final Set<Call<?>> paused = ConcurrentHashMap.newKeySet();
    /** All that did not end: besides the one in use, those that were left with calls in flight. */
    private final Set<Link> links = ConcurrentHashMap.newKeySet();

    private volatile Link link;
    private volatile boolean closed;

    // Behind the lock of this object.
    private final ArrayDeque<Call<?>> parked = new ArrayDeque<>();
    private Thread dialer;
    private boolean isReturning;

    private Fleet(Settings options, Runnable onStranger) {
        Failures.prepare();
        this.options = options;
        timer = new ScheduledThreadPoolExecutor(1, task -> new Worker("xuid-timer", task));
        timer.setRemoveOnCancelPolicy(true);
        // What is planned while the client closes has nothing left to do.
        timer.setRejectedExecutionHandler(new ThreadPoolExecutor.DiscardPolicy());
        servers = new Servers(options, timer, onStranger);
    }

    /**
     * Greets all servers, and keeps the first of a random order that answers. {@code onStranger} voids what is held ahead
     * of need: the thread that dials runs it when a later server turns out to be of another cluster (I4).
     */
    public static Fleet connect(Settings options, Runnable onStranger) {
        Fleet fleet = new Fleet(options, onStranger);
        boolean isConnected = false;
        try {
            fleet.link = fleet.start(fleet.servers.greetAny());
            fleet.returnLater();
            isConnected = true;
            return fleet;
        } finally {
            if (!isConnected) {
                fleet.timer.shutdownNow();
            }
        }
    }

    /** What the server of the last link said about itself. */
    public ServerInfo server() {
        return link.server;
    }

    public boolean isConnected() {
        return !closed && link.isServing();
    }

    public boolean isClosed() {
        return closed;
    }

    public int servers() {
        return servers.size();
    }

    /** Begins an attempt: on the link, or on the next one. */
    public void start(Call<?> call) {
        while (!call.isDone()) {
            Link current = link;
            if (!closed && current.submit(call)) {
                return;
            }
            synchronized (this) {
                if (!closed && link == current) {
                    parked.add(call);
                    dial();
                    return;
                }
            }
            if (closed) {
                call.fail(Failures.closed());
                return;
            }
        }
    }

    @Override
    public void moved(Call<?> call) {
        call.moves++;
        if (call.moves > options.reconnectRounds) {
            retryOrFail(call, new XuidException.ConnectionLost(server().address(), null));
        } else if (call.moves == 1) {
            start(call);
        } else {
            // A server that always leaves without an answer must not be asked in a tight loop.
            if (call.moving == null) {
                call.moving = new Retries(options, servers());
            }
            startAfter(call, call.moving.jitter());
        }
    }

    @Override
    public void failed(Call<?> call, Link from, XuidException error) {
        if (call.isDone()) {
            return;
        }
        if (error instanceof XuidException.ConnectionLost && from.wasSentAway()) {
            Log.debug("{0} left without an answer: asking elsewhere", from.server.address());
            moved(call);
            return;
        }
        if (error instanceof XuidException.Timeout && from.isSilentSince(call.begun)
                && servers.isOtherThere(from.server.address())) {
            Log.debug("{0} is silent: leaving for another server", from.server.address());
            from.retire();
        }
        if (leadsElsewhere(error)) {
            leave(from, error);
        }
        retryOrFail(call, error);
    }

    @Override
    public void ended(Link link) {
        links.remove(link);
    }

    /** How long the caller of these retries waits after a failure. */
    public long pause(Retries retries, XuidException error) {
        return retries.pause(error, leadsElsewhere(error) && !staysAfter(error));
    }

    /** Ends what is on no link, says BYE, waits a little for the answer, and ends the rest. */
    public void close() {
        // First: where memory is used up, nothing was begun.
        XuidException over = Failures.closed();
        Link last;
        synchronized (this) {
            if (closed) {
                return;
            }
            closed = true;
            last = link;
            if (dialer != null) {
                dialer.interrupt();
            }
        }
        try {
            releaseParked(Integer.MAX_VALUE, over);
            // One by one: what begins to pause meanwhile is either found here or finds that it is still there.
            for (Call<?> call : paused) {
                paused.remove(call);
                goOn(call, over);
            }
            sayBye(last);
        } finally {
            // Without the timer nothing else would end what is in flight on those that were left.
            links.forEach(each -> each.end(over));
            timer.shutdownNow();
        }
    }

    private void sayBye(Link last) {
        long patience = Math.min(Time.nanos(options.timeout), Time.ms(1_000));
        Call<Void> bye = new Call<>(Request.bye(), patience, 0);
        if (last.submit(bye) && !(Thread.currentThread() instanceof Worker)) {
            try {
                bye.get(patience, TimeUnit.NANOSECONDS);
            } catch (InterruptedException interrupted) {
                Thread.currentThread().interrupt();
            } catch (java.util.concurrent.ExecutionException | java.util.concurrent.TimeoutException unanswered) {
                // The answer changes nothing.
            }
        }
    }

    private void retryOrFail(Call<?> call, XuidException error) {
        if (call.retryFor == 0 || !error.isRetryable()) {
            call.fail(error);
            return;
        }
        if (call.retries == null) {
            call.retries = new Retries(options, servers());
        }
        long pause = pause(call.retries, error);
        if (Time.now() - call.created + pause > call.retryFor) {
            call.fail(error);
            return;
        }
        call.moves = 0;
        startAfter(call, pause);
    }

    private void startAfter(Call<?> call, long pause) {
        if (pause == 0) {
            start(call);
            return;
        }
        paused.add(call);
        timer.schedule(() -> {
            if (paused.remove(call)) {
                call.step(server().address(), () -> start(call));
            }
        }, pause, TimeUnit.NANOSECONDS);
        // Closing took the calls that it found, and drops what is planned.
        if (closed && paused.remove(call)) {
            call.fail(Failures.closed());
        }
    }

    /** A server has refused with what may take it long: leaves it, if another one was not dialed of late, nor in vain. */
    private void leave(Link from, XuidException error) {
        long asked = error.retryAfter().toMillis() * 1_000_000;
        long pause = Math.max(LEAST_STAY, Math.min(asked, MOST_STAY));
        if (servers.hasOther(from.server.address(), pause)) {
            from.retire();
        }
    }

    /** Whether the server that this is an error of is still the one in use. */
    private boolean staysAfter(XuidException error) {
        Link current = link;
        return error instanceof XuidException.Refused && current.isServing()
                && current.server.address().equals(error.server());
    }

    /**
     * Whether another server, if there is one, is the next to be asked: the connection is gone, or what the server lacks
     * is its own and may take long. A server that is merely busy, or waits for its clock, is stayed with: all its clients
     * moving on would only carry the load to the next one.
     */
    private static boolean leadsElsewhere(XuidException error) {
        if (!(error instanceof XuidException.Refused)) {
            return error instanceof XuidException.ConnectionLost;
        }
        switch (((XuidException.Refused) error).code()) {
            case Status.NOT_READY:
            case Status.WINDOW_LOST:
            case Status.SHUTTING_DOWN:
            case Status.INTERNAL:
            case Status.STORE_AWAY:
            case Status.STORE_BEHIND:
                return true;
            case Status.CLOCK_BEHIND:
                return error.retryAfter().toMillis() > CLOCK_PATIENCE_MS;
            default:
                return false;
        }
    }

    /** Behind the lock. */
    private void dial() {
        if (dialer == null) {
            Thread thread = new Worker("xuid-dial", this::runDial);
            try {
                thread.start();
            } catch (OutOfMemoryError noThread) {
                // All that wait are told, and by another thread: others may depend on this one.
                timer.execute(() -> failParked(Failures.unreachable(server().address(), noThread)));
                return;
            }
            // After its start: one that was not started is nobody to wait for.
            dialer = thread;
        }
    }

    private void runDial() {
        Link found = null;
        XuidException failure = null;
        try {
            found = start(servers.greetNext(() -> closed));
        } catch (XuidException failed) {
            failure = failed;
        } catch (Throwable broken) {
            // Whatever it is, those that wait are told, and the next call dials again.
            failure = Failures.undialed(server().address(), broken);
        }
        Link replaced = null;
        int waiting;
        synchronized (this) {
            dialer = null;
            if (found != null && !closed) {
                replaced = link;
                link = found;
            }
            waiting = parked.size();
        }
        try {
            if (replaced != null) {
                // It was over when this dial began, unless the first choice was found again meanwhile.
                replaced.retire();
                returnLater();
            } else if (found != null) {
                found.end(Failures.closed());
            }
        } finally {
            releaseParked(waiting, failure);
        }
    }

    /**
     * The first so many that waited for a dial go on; behind them are those that wait for the next one. Each leaves its
     * place when its turn comes: where memory is used up there is none for a list of them.
     */
    private void releaseParked(int count, XuidException failure) {
        for (int left = count; left > 0; left--) {
            Call<?> call;
            synchronized (this) {
                call = parked.poll();
            }
            if (call == null) {
                return;
            }
            goOn(call, failure);
        }
    }

    /** What waited goes on, with a failure or with none: null. */
    private void goOn(Call<?> call, XuidException failure) {
        try {
            if (failure == null) {
                start(call);
            } else {
                retryOrFail(call, failure);
            }
        } catch (Throwable error) {
            call.broken(server().address(), error);
        }
    }

    /** No thread was to be had to dial. */
    private void failParked(XuidException failure) {
        int waiting;
        synchronized (this) {
            // What waits for a dial that was begun meanwhile is told by that.
            waiting = dialer == null ? parked.size() : 0;
        }
        releaseParked(waiting, failure);
    }

    private Link start(Dial.Greeted greeted) {
        Link started = new Link(greeted, options, timer, this);
        links.add(started);
        try {
            started.start();
        } catch (OutOfMemoryError noThread) {
            XuidException failure = Failures.unreachable(greeted.server.address(), noThread);
            started.end(failure);
            throw failure;
        }
        return started;
    }

    /** Plans a look at the first choice where that is not in use, so that clients spread again after a fail-over. */
    private synchronized void returnLater() {
        if (isReturning || link.server.address().equals(servers.first())) {
            return;
        }
        isReturning = true;
        long pause = Time.nanos(options.returnAfter);
        long random = ThreadLocalRandom.current().nextLong(pause / 4 + 1);
        timer.schedule(this::beginReturn, pause + random, TimeUnit.NANOSECONDS);
    }

    private void beginReturn() {
        synchronized (this) {
            isReturning = false;
        }
        try {
            new Worker("xuid-return", this::goBack).start();
        } catch (OutOfMemoryError noThread) {
            returnLater();
        }
    }

    /** Moves new requests to the first choice, if that answers; what is in flight is finished where it is. */
    private void goBack() {
        String first = servers.first();
        Link before = link;
        if (closed || before.server.address().equals(first)) {
            return;
        }
        try {
            Link back = start(servers.greet(first));
            boolean isUsed;
            synchronized (this) {
                isUsed = !closed && link == before;
                if (isUsed) {
                    link = back;
                    servers.standsWith(first);
                }
            }
            if (isUsed) {
                Log.debug("back at {0}", first);
                before.retire();
            } else {
                back.end(Failures.closed());
            }
        } catch (Throwable failed) {
            Log.debug("cannot go back to {0}: {1}", first, failed.getMessage());
            returnLater();
        }
    }
}
