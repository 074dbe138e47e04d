package org.xuid.client.internal.link;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.BooleanSupplier;
import org.xuid.client.ServerInfo;
import org.xuid.client.XuidException;
import org.xuid.client.internal.base.Log;
import org.xuid.client.internal.base.Settings;
import org.xuid.client.internal.base.Time;
import org.xuid.client.internal.base.Worker;

/** The servers of a client, in the order in which they are tried: a random one, of which the first is the first choice. */
final class Servers {
    /** What a dial may take beyond its time, whose end it finds by itself where no stranger stands in its way. */
    private static final long STANDS_STILL = Time.ms(100);

    private final Settings options;
    private final ScheduledExecutorService timer;
    /** Voids what is held ahead of need. */
    private final Runnable onStranger;
    private final List<String> addresses;
    private final Away away = new Away();
    /** Servers whose failure was told, and that were not reached since. */
    private final Set<String> told = ConcurrentHashMap.newKeySet();
    /** The server of the first connection; it made the cluster ours. */
    private volatile ServerInfo pinned;

    private final Dials dials = new Dials();

    // Behind the lock of this object.
    private final Map<String, Long> dialed = new HashMap<>();
    /** Index of the server that is dialed next. It moves before each dial. */
    private int next;

    Servers(Settings options, ScheduledExecutorService timer, Runnable onStranger) {
        this.options = options;
        this.timer = timer;
        this.onStranger = onStranger;
        List<String> shuffled = new ArrayList<>(options.servers);
        Collections.shuffle(shuffled, ThreadLocalRandom.current());
        addresses = List.copyOf(shuffled);
    }

    int size() {
        return addresses.size();
    }

    String first() {
        return addresses.get(0);
    }

    /** The first connection, to any of them. */
    Dial.Greeted greetAny() {
        Dial.Greeted greeted = Greeting.greetAll(addresses, options, timer, away);
        pinned = greeted.server;
        standsWith(greeted.server.address());
        return greeted;
    }

    /** That server is in use, or tried: the one behind it is dialed next. */
    synchronized void standsWith(String server) {
        next = addresses.indexOf(server) + 1;
    }

    /** Whether there is another server, and one that was not dialed for so long and costs no long dial in vain. */
    synchronized boolean hasOther(String server, long pause) {
        long now = Time.now();
        return addresses.stream().anyMatch(other -> !other.equals(server)
                && (!dialed.containsKey(other) || now - dialed.get(other) >= pause)
                && !away.costs(other, now));
    }

    /**
     * Whether there is another server, and one that was not away a moment ago. Who is silent for a moment is not left for
     * one that is not there: all calls would wait for that.
     */
    boolean isOtherThere(String server) {
        long now = Time.now();
        return addresses.stream().anyMatch(other -> !other.equals(server) && !away.isAway(other, now));
    }

    /** A connection to one server, if that is of the cluster. Notes whether it was there: a stranger is not. */
    Dial.Greeted greet(String server) {
        long begin = Time.now();
        Dial.Greeted greeted = null;
        try {
            greeted = greetBeside(server);
            Greeting.checkSameCluster(pinned, greeted.server);
        } catch (XuidException failed) {
            try {
                if (failed instanceof XuidException.WrongCluster) {
                    // Nothing tells which of the two clusters is the one that ids are meant to be of.
                    onStranger.run();
                }
            } finally {
                if (greeted != null) {
                    greeted.close();
                }
                away.note(server, begin, Time.now());
            }
            throw failed;
        }
        away.clear(server);
        told.remove(server);
        return greeted;
    }

    /**
     * The same by a thread of its own, which is left where it stands still beyond its time: a dial asks the application's proxy
     * selector, which may wait for anything.
     */
    private Dial.Greeted greetBeside(String server) {
        CompletableFuture<Dial.Greeted> outcome = new CompletableFuture<>();
        Thread thread = new Worker("xuid-dial", () -> {
            try {
                Dial.Greeted greeted = Dial.greet(server, options, timer);
                if (!outcome.complete(greeted)) {
                    greeted.close();
                }
            } catch (Throwable failed) {
                outcome.completeExceptionally(failed);
            } finally {
                dials.end(server, Thread.currentThread());
            }
        });
        if (!dials.begin(server, thread, Time.now())) {
            throw Failures.unreachable(server, new IOException(Dials.MOST
                    + " connections to it stand still, as in a ProxySelector of the application: no other one is begun"));
        }
        boolean isStarted = false;
        try {
            thread.start();
            isStarted = true;
        } finally {
            if (!isStarted) {
                dials.end(server, thread);
            }
        }
        XuidException over;
        try {
            return outcome.get(Time.nanos(options.connectTimeout) + STANDS_STILL, TimeUnit.NANOSECONDS);
        } catch (ExecutionException failed) {
            throw failed.getCause() instanceof XuidException
                    ? (XuidException) failed.getCause()
                    : Failures.unreachable(server, failed.getCause());
        } catch (TimeoutException late) {
            over = Failures.still(server, options.connectTimeout);
        } catch (InterruptedException closing) {
            over = Failures.closed();
        }
        thread.interrupt();
        if (!outcome.completeExceptionally(over) && !outcome.isCompletedExceptionally()) {
            outcome.join().close();
        }
        throw over;
    }

    /** Tries the servers, each once a round, for as many rounds as allowed. */
    Dial.Greeted greetNext(BooleanSupplier isClosed) {
        Retries backoff = new Retries(options, size());
        for (int round = 1; ; round++) {
            XuidException worthWaiting = null;
            XuidException hopeless = null;
            for (String server : turn()) {
                if (isClosed.getAsBoolean()) {
                    break;
                }
                beginDial(server);
                try {
                    return greet(server);
                } catch (XuidException failed) {
                    if (!isClosed.getAsBoolean()) {
                        logFailure(server, failed);
                    }
                    worthWaiting = failed.isRetryable() ? failed : worthWaiting;
                    hopeless = failed.isRetryable() ? hopeless : failed;
                }
            }
            if (isClosed.getAsBoolean()) {
                throw Failures.closed();
            }
            if (worthWaiting == null || round >= options.reconnectRounds) {
                throw hopeless != null ? hopeless : worthWaiting;
            }
            try {
                TimeUnit.NANOSECONDS.sleep(backoff.jitter());
            } catch (InterruptedException closing) {
                throw Failures.closed();
            }
        }
    }

    /** The servers, from the one after the last tried; those that cost a long dial in vain come last. */
    private synchronized List<String> turn() {
        long now = Time.now();
        List<String> turn = new ArrayList<>();
        List<String> last = new ArrayList<>();
        for (int i = 0; i < size(); i++) {
            String server = addresses.get((next + i) % size());
            (away.costs(server, now) ? last : turn).add(server);
        }
        turn.addAll(last);
        return turn;
    }

    private synchronized void beginDial(String server) {
        standsWith(server);
        dialed.put(server, Time.now());
    }

    /** Once for each time that a server is away: callers may ask for it as often as they like. */
    private void logFailure(String server, XuidException failed) {
        String why = failed.getMessage();
        if (told.add(server)) {
            Log.warn("cannot connect to {0}: {1}", server, why);
        } else {
            Log.debug("still cannot connect to {0}: {1}", server, why);
        }
    }
}
