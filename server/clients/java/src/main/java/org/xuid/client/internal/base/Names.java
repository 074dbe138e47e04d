package org.xuid.client.internal.base;

import java.net.InetAddress;
import java.net.UnknownHostException;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * Looks names up, each in a thread of its own: the system does it in its own time, and cannot be interrupted. A name that
 * is being looked up is waited for, and not looked up again before that has taken very long. No more than two threads stand
 * there for a name.
 *
 * <p>{@link InetAddress} of OpenJDK asks for a name once at a time, too: there the second one may wait for the first.
 */
public final class Names {
    /** What knows the addresses of a name. */
    public interface Resolver {
        InetAddress[] addresses(String host) throws UnknownHostException;
    }

    /**
     * A look-up that takes longer is not joined, since it may never end: glibc waits without an end for a DNS server that
     * it asks over TCP, and that is gone behind the handshake. All others end within some 30 s.
     */
    private static final long AGAIN = Time.ms(60_000);

    private final Resolver resolver;
    private final long again;
    private final Map<String, LookUp> underWay = new ConcurrentHashMap<>();

    /** A name that is being looked up. */
    private final class LookUp implements Runnable {
        final CompletableFuture<InetAddress[]> found = new CompletableFuture<>();
        final String host;
        final boolean isSecond;
        final long begun = Time.now();

        LookUp(String host, boolean isSecond) {
            this.host = host;
            this.isSecond = isSecond;
        }

        @Override
        public void run() {
            InetAddress[] addresses = null;
            Throwable failure = null;
            try {
                addresses = resolver.addresses(host);
            } catch (Throwable failed) {
                failure = failed;
            }
            // Before those that wait are told: what they ask for next is asked anew.
            underWay.remove(host, this);
            if (failure == null) {
                found.complete(addresses);
            } else {
                found.completeExceptionally(failure);
            }
        }
    }

    public Names(Resolver resolver) {
        this(resolver, AGAIN);
    }

    /** For tests, with another time in the place of {@link #AGAIN}. */
    Names(Resolver resolver, long again) {
        this.resolver = resolver;
        this.again = again;
    }

    /** The addresses of a name, within that time. */
    public InetAddress[] addresses(String host, long nanos)
            throws UnknownHostException, TimeoutException, InterruptedException {
        LookUp lookUp = underWay.compute(host, this::joinOrBegin);
        try {
            return lookUp.found.get(nanos, TimeUnit.NANOSECONDS);
        } catch (ExecutionException failed) {
            if (failed.getCause() instanceof UnknownHostException) {
                throw new UnknownHostException("there is no host of that name");
            }
            throw new IllegalStateException(failed.getCause().getMessage(), failed.getCause());
        }
    }

    private LookUp joinOrBegin(String host, LookUp known) {
        if (known != null && (known.isSecond || Time.now() - known.begun < again)) {
            return known;
        }
        LookUp begun = new LookUp(host, known != null);
        new Worker("xuid-lookup " + host, begun).start();
        return begun;
    }
}
