package org.xuid.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.xuid.client.FakeServer.Asked;
import org.xuid.client.FakeServer.Peer;
import org.xuid.client.internal.base.Time;
import org.xuid.client.internal.prefetch.Pool;
import org.xuid.client.internal.prefetch.RefillSize;
import org.xuid.client.internal.wire.Op;

/** Ids ahead of need. */
@Timeout(60)
class PrefetchTest {
    /** A client of a server that answers every RUNS with the next numbers. */
    private static final class Mill implements AutoCloseable {
        final FakeServer server = new FakeServer();
        final AtomicLong given = new AtomicLong();
        final AtomicInteger refusal = new AtomicInteger();
        final XuidClient client = server.connect(server.options().backoff(Duration.ofMillis(1), Duration.ofMillis(5)));

        Mill() throws Exception {
            Thread thread = new Thread(() -> {
                try {
                    serve(server.peer());
                } catch (IOException ended) {
                    // The client or the test has closed.
                }
            });
            thread.setDaemon(true);
            thread.start();
        }

        private void serve(Peer peer) throws IOException {
            while (true) {
                Asked asked = peer.ask();
                if (asked.op == Op.BYE) {
                    peer.close();
                    return;
                }
                if (asked.op != Op.RUNS) {
                    throw new IOException("op " + asked.op);
                }
                if (refusal.get() != 0) {
                    peer.refuse(asked, refusal.get(), 0);
                } else {
                    peer.run(asked, given.getAndAdd(asked.count()));
                }
            }
        }

        @Override
        public void close() throws IOException {
            client.close();
            server.close();
        }
    }

    @Test
    void whatever_way_they_are_taken_ids_come_once_and_are_all_accounted_for() throws Exception {
        try (Mill mill = new Mill(); Prefetch source = mill.client.prefetch()) {
            int each = 50_000;
            List<CompletableFuture<long[]>> takers = new ArrayList<>();
            for (int i = 0; i < 8; i++) {
                boolean hasHandle = i % 2 == 0;
                takers.add(new CompletableFuture<>());
                var taker = takers.get(i);
                new Thread(() -> {
                    try (PrefetchedIds own = source.ids()) {
                        long[] ids = new long[each];
                        for (int j = 0; j < each; j++) {
                            ids[j] = hasHandle ? own.next() : source.next();
                        }
                        taker.complete(ids);
                    } catch (RuntimeException failed) {
                        taker.completeExceptionally(failed);
                    }
                }).start();
            }
            long[] all = new long[8 * each];
            for (int i = 0; i < 8; i++) {
                System.arraycopy(Wait.soon(takers.get(i)), 0, all, i * each, each);
            }
            assertEquals(all.length, Arrays.stream(all).distinct().count());
            source.close();
            Wait.until("all replies were taken in", () -> source.stats().received() == mill.given.get());
            Prefetch.Stats stats = source.stats();
            assertEquals(all.length, stats.issued(), stats.toString());
            assertEquals(stats.received(), stats.issued() + stats.wasted(), stats.toString());
            assertEquals(0, stats.held());
        }
    }

    @Test
    void an_error_of_the_thread_that_refills_is_not_the_end_of_the_source() throws Exception {
        try (FakeServer server = new FakeServer();
                XuidClient client = server.connect(server.options().backoff(Duration.ofMillis(1), Duration.ofMillis(5)))) {
            LinkTest.tearNextFrame(client);
            try (Prefetch source = client.prefetch(new Prefetch.Options().wait(Duration.ofSeconds(10)))) {
                var drawn = CompletableFuture.supplyAsync(source::next);
                Peer peer = server.greet();
                peer.run(peer.expect(Op.RUNS), 5);
                assertEquals(5, Wait.soon(drawn));
            }
        }
    }

    @Test
    void what_grew_old_is_wasted_in_the_hand_and_in_the_pool_and_never_comes_out() throws Exception {
        Prefetch.Options options = new Prefetch.Options().ahead(64, 64).maxAge(Duration.ofMillis(100));
        try (Mill mill = new Mill(); Prefetch source = mill.client.prefetch(options); PrefetchedIds ids = source.ids()) {
            long first = ids.next();
            Wait.until("what is held grew old", () -> source.stats().held() == 0 && source.stats().wasted() > 0);
            long received = source.stats().received();
            long next = ids.next();
            assertTrue(first < received && next >= received, first + " " + next + " of " + received);
        }
    }

    @Test
    void a_handle_in_a_hot_loop_is_voided_in_the_middle_of_a_piece() {
        Pool pool = filled(10_000);
        PrefetchedIds ids = new PrefetchedIds(pool);
        for (int i = 0; i < 200; i++) {
            assertEquals(i, ids.tryNext());
        }
        pool.raiseOldest(Time.now());
        assertEquals(-1, ids.tryNext());
        ids.close();
        assertEquals(200, pool.counts().issued);
        Pool.Counts counts = pool.counts();
        assertEquals(counts.received, counts.issued + counts.wasted + counts.held);
    }

    @Test
    void a_handle_that_takes_its_time_looks_at_the_clock_for_each_id() {
        Pool pool = filled(1_000);
        long end = Time.now() + Time.ms(1_000);
        PrefetchedIds ids = new PrefetchedIds(pool);
        for (int i = 0; i < 100; i++) {
            spinUntil(Time.now() + 60_000);
            assertEquals(i, ids.tryNext());
        }
        // No thread raises the oldest time here: the clock alone is what ends it.
        spinUntil(end);
        assertEquals(-1, ids.tryNext());
        Pool.Counts counts = pool.counts();
        assertEquals(100, counts.issued);
        assertEquals(900, counts.wasted);
    }

    private static void spinUntil(long time) {
        while (Time.now() <= time) {
            Thread.onSpinWait();
        }
    }

    /** A pool of so many ids that nothing refills, for a second. */
    private static Pool filled(int count) {
        Pool pool = new Pool(16, 1 << 20, Time.ms(1_000), 0);
        pool.lock.lock();
        pool.ask(count, 0);
        pool.put(count, List.of(new Run(0, count, 1)), Time.now(), System.currentTimeMillis());
        pool.lock.unlock();
        return pool;
    }

    @Test
    void the_end_of_the_client_ends_handles_at_once() throws Exception {
        try (Mill mill = new Mill()) {
            Prefetch source = mill.client.prefetch();
            PrefetchedIds ids = source.ids();
            ids.next();
            source.next();
            mill.client.close();
            assertEquals(-1, ids.tryNext());
            assertThrows(XuidException.Closed.class, ids::next);
            assertThrows(XuidException.Closed.class, source::next);
        }
    }

    @Test
    void a_server_that_shows_another_cluster_voids_what_is_held_before_a_caller_is_told() throws Exception {
        voidsWhatIsHeld(server -> {
            server.cluster = "ff".repeat(16);
            server.greet();
        });
    }

    @Test
    void a_server_that_refuses_for_its_cluster_voids_what_is_held_before_a_caller_is_told() throws Exception {
        voidsWhatIsHeld(server -> {
            Peer peer = server.accept();
            peer.refuse(peer.hello(), 0x0007, 0);
        });
    }

    /** What a server does when it is dialed again. */
    private interface Stranger {
        void answer(FakeServer server) throws IOException;
    }

    private static void voidsWhatIsHeld(Stranger stranger) throws Exception {
        Prefetch.Options options = new Prefetch.Options().ahead(64, 64).maxAge(Duration.ofSeconds(2));
        try (FakeServer server = new FakeServer(); XuidClient client = server.connect(server.options())) {
            Prefetch source = client.prefetch(options);
            PrefetchedIds ids = source.ids();
            server.peer().run(server.peer().expect(Op.RUNS), 1);
            Wait.until("ids are held", () -> source.stats().held() == 64);
            long first = ids.tryNext();
            assertEquals(1, first);
            assertTrue(source.next() > first);
            assertTrue(source.stats().held() > 0, source.stats().toString());
            server.peer().close();
            Wait.until("the end was seen", () -> !client.isConnected());
            // The thread that tells the caller looks by itself: what it finds is what was there before.
            var call = client.nextAsync();
            var held = call.handle((id, error) -> source.stats().held());
            var next = held.thenApply(before -> ids.tryNext());
            stranger.answer(server);
            Wait.failure(XuidException.WrongCluster.class, call);
            assertEquals(0, Wait.soon(held));
            assertEquals(-1, Wait.soon(next));
            ids.close();
            source.close();
            Prefetch.Stats stats = source.stats();
            assertEquals(List.of(64L, 2L, 62L), List.of(stats.received(), stats.issued(), stats.wasted()));
        }
    }

    @Test
    void what_will_not_pass_is_told_at_once_and_tried_again_by_the_next_call() throws Exception {
        Prefetch.Options patient = new Prefetch.Options().wait(Duration.ofMinutes(5));
        try (Mill mill = new Mill()) {
            mill.refusal.set(0x000b);
            Prefetch source = mill.client.prefetch(patient);
            var refused = assertThrows(XuidException.Refused.class, source::next);
            assertEquals("FORBIDDEN", refused.status());
            mill.refusal.set(0);
            assertEquals(0, source.next());
        }
    }

    @Test
    void what_may_pass_is_waited_for() throws Exception {
        try (Mill mill = new Mill()) {
            mill.refusal.set(0x8011);
            Prefetch.Options short_ = new Prefetch.Options().wait(Duration.ofMillis(50));
            try (Prefetch source = mill.client.prefetch(short_)) {
                Wait.until("the first refill failed", () -> source.stats().failedRefills() > 0);
                assertEquals("OVERLOADED", assertThrows(XuidException.Refused.class, source::next).status());
            }
            Prefetch source = mill.client.prefetch(new Prefetch.Options().wait(Duration.ofMinutes(5)));
            var waiting = CompletableFuture.supplyAsync(source::next);
            Wait.until("it failed some times", () -> source.stats().failedRefills() > 3);
            mill.refusal.set(0);
            Wait.soon(waiting);
        }
    }

    @Test
    void options_that_make_no_sense_are_refused() {
        Prefetch.Options options = new Prefetch.Options();
        assertThrows(IllegalArgumentException.class, () -> options.ahead(0, 1));
        assertThrows(IllegalArgumentException.class, () -> options.ahead(2, 1));
        assertThrows(IllegalArgumentException.class, () -> options.maxAge(Duration.ZERO));
        assertThrows(IllegalArgumentException.class, () -> options.maxAge(Duration.ofSeconds(3)));
        assertThrows(IllegalArgumentException.class, () -> options.wait(Duration.ofMillis(-1)));
    }

    @Test
    void the_level_follows_the_use_up_and_down_again_and_never_leaves_its_bounds() {
        RefillSize size = new RefillSize(16, 1 << 20, Time.ms(1_000), 0);
        long now = 0;
        long taken = 0;
        long level = 16;
        for (int i = 0; i < 12; i++) {
            // 50 M ids/s, half of the level at a time.
            taken += level / 2;
            now += level / 2 * 20;
            long next = size.look(now, taken);
            assertTrue(next <= level * 4);
            level = next;
        }
        assertTrue(level > 450_000 && level < 550_000, "10 ms of it: " + level);
        for (int i = 0; i < 3; i++) {
            taken += level / 2;
            now += level / 2 * 1_000_000;
            level = size.look(now, taken);
        }
        assertEquals(16, level);
        size.failed(131_072);
        assertEquals(65_536, size.request());
        size.failed(1);
        assertEquals(16, size.request());
        size.answered(1);
        assertEquals(32, size.request());
        assertEquals(64, size.look(now, Long.MAX_VALUE / 2), "no time at all is not an endless rate");
    }

    @Test
    void a_far_server_is_asked_four_round_trips_ahead() {
        RefillSize size = new RefillSize(16, 1 << 20, Time.ms(1_000), 0);
        size.answered(Time.ms(40));
        size.answered(Time.ms(400));
        long now = 0;
        long taken = 0;
        long level = 16;
        for (int i = 0; i < 12; i++) {
            taken += level / 2;
            now += level / 2 * 1_000;
            level = size.look(now, taken);
        }
        assertTrue(level > 160_000 && level < 190_000, "4 x 45 ms of a million a second: " + level);
    }
}
