package org.xuid.client.internal.base;

import java.net.InetAddress;
import java.net.UnknownHostException;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * Looks names up, each in a thread of its own: the system does it in its own time, and cannot be interrupted. A name that
 * is being looked up is waited for, and not looked up again, so that no more threads stand there than there are names.
 */
public final class Names {
    /** What knows the addresses of a name. */
    public interface Resolver {
        InetAddress[] addresses(String host) throws UnknownHostException;
    }

    private final Resolver resolver;
    private final Map<String, CompletableFuture<InetAddress[]>> underWay = new ConcurrentHashMap<>();

    public Names(Resolver resolver) {
        this.resolver = resolver;
    }

    /** The addresses of a name, within that time. */
    public InetAddress[] addresses(String host, long nanos)
            throws UnknownHostException, TimeoutException, InterruptedException {
        var found = underWay.computeIfAbsent(host, name -> CompletableFuture.supplyAsync(
                () -> lookUp(name), task -> new Worker("xuid-lookup " + name, task).start()));
        try {
            return found.get(nanos, TimeUnit.NANOSECONDS);
        } catch (ExecutionException failed) {
            if (failed.getCause() instanceof UnknownHostException) {
                throw new UnknownHostException("there is no host of that name");
            }
            throw new IllegalStateException(failed.getCause().getMessage(), failed.getCause());
        }
    }

    private InetAddress[] lookUp(String host) {
        try {
            return resolver.addresses(host);
        } catch (UnknownHostException unknown) {
            throw new CompletionException(unknown);
        } finally {
            underWay.remove(host);
        }
    }
}
