package org.xuid.client;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.LongAdder;
import java.util.function.LongSupplier;

/**
 * How fast it is, against the server that XUID_SERVER names: requests in flight on one connection, by callbacks and by
 * blocking threads, and prefetched ids beside a loop over a counter. Each figure is the better of two rounds, after one
 * to warm up. The first argument is the seconds of a round, 2 by default.
 */
public final class Bench {
    private static volatile long sink;

    private Bench() {}

    public static void main(String[] arguments) throws Exception {
        int seconds = arguments.length > 0 ? Integer.parseInt(arguments[0]) : 2;
        try (XuidClient client = XuidClient.connect()) {
            for (int inFlight : new int[] {1, 16, 100, 1_000}) {
                print("NEXT, " + inFlight + " in flight", best(() -> pipelined(client, inFlight, seconds)));
            }
            for (int threads : new int[] {1, 16, 64}) {
                print("NEXT, " + threads + " blocking threads", best(() -> blocking(threads, seconds, client::next)));
            }
            try (Prefetch source = client.prefetch(); PrefetchedIds ids = source.ids()) {
                print("prefetched, one handle", best(() -> perSecond(seconds, ids::next)));
                print("prefetched, shared, 1 thread", best(() -> perSecond(seconds, source::next)));
                print("prefetched, shared, 2 threads", best(() -> blocking(2, seconds, source::next)));
                print("a loop over a counter", best(() -> perSecond(seconds, counter())));
                System.out.println(source.stats());
            }
        }
    }

    static LongSupplier counter() {
        long[] count = new long[1];
        return () -> count[0]++;
    }

    /** Draws a second, on one thread. */
    static long perSecond(int seconds, LongSupplier draw) {
        long begin = System.nanoTime();
        long end = begin + seconds * 1_000_000_000L;
        long drawn = 0;
        long sum = 0;
        while (System.nanoTime() < end) {
            for (int i = 0; i < 10_000; i++) {
                sum += draw.getAsLong();
            }
            drawn += 10_000;
        }
        sink = sum;
        return (long) (drawn * 1e9 / (System.nanoTime() - begin));
    }

    private static long blocking(int threads, int seconds, LongSupplier draw) {
        LongAdder drawn = new LongAdder();
        AtomicBoolean isOver = new AtomicBoolean();
        List<Thread> all = new ArrayList<>();
        long begin = System.nanoTime();
        for (int i = 0; i < threads; i++) {
            Thread thread = new Thread(() -> {
                long mine = 0;
                while (!isOver.get()) {
                    sink = draw.getAsLong();
                    mine++;
                }
                drawn.add(mine);
            });
            thread.start();
            all.add(thread);
        }
        try {
            Thread.sleep(seconds * 1_000L);
            isOver.set(true);
            for (Thread thread : all) {
                thread.join();
            }
        } catch (InterruptedException interrupted) {
            throw new IllegalStateException(interrupted);
        }
        return (long) (drawn.sum() * 1e9 / (System.nanoTime() - begin));
    }

    /** Chains of calls, each of which begins the next one in its callback. */
    private static long pipelined(XuidClient client, int inFlight, int seconds) {
        long begin = System.nanoTime();
        long end = begin + seconds * 1_000_000_000L;
        LongAdder drawn = new LongAdder();
        List<CompletableFuture<Void>> chains = new ArrayList<>();
        for (int i = 0; i < inFlight; i++) {
            chains.add(new CompletableFuture<>());
            next(client, end, drawn, chains.get(i));
        }
        chains.forEach(CompletableFuture::join);
        return (long) (drawn.sum() * 1e9 / (System.nanoTime() - begin));
    }

    private static void next(XuidClient client, long end, LongAdder drawn, CompletableFuture<Void> done) {
        client.nextAsync().whenComplete((id, failure) -> {
            if (failure != null) {
                done.completeExceptionally(failure);
            } else if (System.nanoTime() > end) {
                done.complete(null);
            } else {
                drawn.increment();
                next(client, end, drawn, done);
            }
        });
    }

    private static long best(LongSupplier round) {
        round.getAsLong();
        return Math.max(round.getAsLong(), round.getAsLong());
    }

    private static void print(String what, long perSecond) {
        System.out.printf("%-32s %,15d /s%n", what, perSecond);
    }
}
