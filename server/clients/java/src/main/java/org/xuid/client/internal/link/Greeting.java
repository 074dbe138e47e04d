package org.xuid.client.internal.link;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CancellationException;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import org.xuid.client.ServerInfo;
import org.xuid.client.XuidException;
import org.xuid.client.internal.base.Settings;
import org.xuid.client.internal.base.Time;
import org.xuid.client.internal.base.Worker;

/** The first connection: all servers are greeted at once, and their clusters compared. */
final class Greeting {
    /**
     * How long the other servers may still take to answer when the first connection stands. A later one is checked when
     * it is first used.
     */
    private static final long STRAGGLERS = Time.ms(1_000);

    /** How one dial ended. */
    private static final class Outcome {
        final int index;
        final Dial.Greeted greeted;
        final XuidException failure;

        Outcome(int index, Dial.Greeted greeted, XuidException failure) {
            this.index = index;
            this.greeted = greeted;
            this.failure = failure;
        }
    }

    private final List<String> servers;
    private final Settings options;
    private final Away away;
    private final long begin = Time.now();
    private final LinkedBlockingQueue<Outcome> outcomes = new LinkedBlockingQueue<>();
    private final AtomicBoolean isOver = new AtomicBoolean();
    private Outcome best;
    private XuidException failure;

    private Greeting(List<String> servers, Settings options, Away away) {
        this.servers = servers;
        this.options = options;
        this.away = away;
    }

    /**
     * The connection to the first server of the list that answers; the others are closed. Those that did not answer in time
     * are noted.
     */
    static Dial.Greeted greetAll(
            List<String> servers, Settings options, ScheduledExecutorService timer, Away away) {
        Greeting greeting = new Greeting(servers, options, away);
        try {
            greeting.dialAll(timer);
            return greeting.choose();
        } finally {
            greeting.isOver.set(true);
            greeting.dropLate();
        }
    }

    /** Two clusters can issue the same ids. */
    static void checkSameCluster(ServerInfo known, ServerInfo found) {
        if (!found.cluster().equals(known.cluster())) {
            String text = found.address() + " is of cluster " + found.cluster() + ", and " + known.address() + " of "
                    + known.cluster() + ": two clusters can issue the same id, so give only servers of one";
            throw new XuidException.WrongCluster(
                    found.address(), found.cluster(), known.cluster(), text, null);
        }
    }

    private void dialAll(ScheduledExecutorService timer) {
        for (int i = 0; i < servers.size(); i++) {
            int index = i;
            new Worker("xuid-dial", () -> {
                try {
                    outcomes.add(new Outcome(index, Dial.greet(servers.get(index), options, timer), null));
                } catch (XuidException failed) {
                    outcomes.add(new Outcome(index, null, failed));
                } catch (Throwable broken) {
                    outcomes.add(new Outcome(index, null, Failures.unreachable(servers.get(index), broken)));
                }
                dropLate();
            }).start();
        }
    }

    private Dial.Greeted choose() {
        long end = Time.now() + Time.nanos(options.connectTimeout) + STRAGGLERS;
        List<String> late = new ArrayList<>(servers);
        boolean isChosen = false;
        try {
            for (int left = servers.size(); left > 0; left--) {
                Outcome outcome = outcomes.poll(end - Time.now(), TimeUnit.NANOSECONDS);
                if (outcome == null) {
                    break;
                }
                if (outcome.greeted != null && best == null) {
                    end = Math.min(end, Time.now() + STRAGGLERS);
                }
                late.remove(servers.get(outcome.index));
                take(outcome);
            }
            late.forEach(this::note);
            if (best == null) {
                throw failure != null ? failure.again() : Failures.still(servers.get(0), options.connectTimeout);
            }
            isChosen = true;
            return best.greeted;
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
            throw new CancellationException("interrupted while connecting");
        } finally {
            if (!isChosen && best != null) {
                best.greeted.close();
            }
        }
    }

    private void take(Outcome outcome) {
        if (outcome.greeted == null) {
            note(servers.get(outcome.index));
            // What will not pass by waiting says more than "not reached".
            failure = failure != null && !failure.isRetryable() ? failure : outcome.failure;
            return;
        }
        if (best == null) {
            best = outcome;
            return;
        }
        Outcome worse = outcome.index < best.index ? best : outcome;
        ServerInfo known = best.greeted.server;
        best = outcome.index < best.index ? outcome : best;
        worse.greeted.close();
        checkSameCluster(known, outcome.greeted.server);
    }

    private void note(String server) {
        away.note(server, begin, Time.now());
    }

    /** Closes what came too late to be chosen: by the thread that dialed, or by the one that chose. */
    private void dropLate() {
        while (isOver.get()) {
            Outcome late = outcomes.poll();
            if (late == null) {
                return;
            }
            if (late.greeted != null) {
                late.greeted.close();
            }
        }
    }
}
