package org.xuid.client;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** Against the server itself, where XUID_BIN names its binary. */
@Timeout(120)
class RealServerTest {
    @TempDir
    Path folder;

    @Test
    void ids_of_every_kind_of_call_and_thread_are_all_different() throws Exception {
        try (RealServer server = new RealServer(folder); XuidClient client = XuidClient.connect(server.address)) {
            var seen = ConcurrentHashMap.<Long>newKeySet();
            List<Thread> threads = new ArrayList<>();
            List<Throwable> failures = new ArrayList<>();
            Prefetch source = client.prefetch();
            for (int i = 0; i < 64; i++) {
                Thread thread = new Thread(() -> {
                    for (int j = 0; j < 50; j++) {
                        add(seen, client.next(Order.values()[j % 3]));
                        for (long id : client.array(20)) {
                            add(seen, id);
                        }
                        client.runs(100).forEach(run -> run.ids().forEach(id -> add(seen, id)));
                        add(seen, source.next());
                    }
                });
                thread.setUncaughtExceptionHandler((ended, failure) -> {
                    synchronized (failures) {
                        failures.add(failure);
                    }
                });
                threads.add(thread);
                thread.start();
            }
            for (Thread thread : threads) {
                thread.join();
            }
            assertEquals(List.of(), failures);
            assertEquals(64 * 50 * 122, seen.size());
            long id = client.next();
            assertEquals(client.decode(id), client.layout().parts(id));
            assertTrue(Math.abs(client.decode(id).unixMs() - System.currentTimeMillis()) < 3_600_000);
            client.ping();
            assertTrue(Json.object(Json.read(client.info())).get("cluster").equals(client.server().cluster()));
            assertTrue(client.stats().startsWith("{"));
        }
    }

    private static void add(java.util.Set<Long> seen, long id) {
        assertTrue(seen.add(id), () -> id + " came twice");
    }

    @Test
    void numbers_of_a_sequence_are_one_two_three() throws Exception {
        try (RealServer server = new RealServer(folder); XuidClient client = XuidClient.connect(server.address)) {
            Sequence orders = client.sequence("orders");
            assertEquals("NO_SEQUENCE", assertThrows(XuidException.Refused.class, orders::next).status());
            orders.create(new Sequence.Settings().description("orders of the \"shop\""));
            assertArrayEquals(new long[] {1, 2, 3}, new long[] {orders.next(), orders.next(), orders.next()});
            assertArrayEquals(new long[] {4, 5, 6}, orders.array(3));
            assertEquals(new Run(7, 100, 1), orders.take(100));
            assertThrows(XuidException.Refused.class, () -> orders.create(new Sequence.Settings().increment(2, 1)));
            client.sequence("odd").create(new Sequence.Settings().increment(2, 1));
            Run odd = client.sequence("odd").take(3);
            assertArrayEquals(new long[] {1, 3, 5}, odd.ids().toArray());
            List<?> list = (List<?>) Json.read(client.sequences("", "", 10));
            assertEquals("odd", Json.object(list.get(0)).get("name"));
            assertEquals("ready", Json.object(Json.read(orders.info())).get("state"));
            orders.alter(new Sequence.Changes().step(5).retired());
        }
    }

    @Test
    void a_server_that_is_killed_under_load_costs_a_caller_with_retries_nothing_but_time() throws Exception {
        Path other = folder.resolve("second");
        java.nio.file.Files.createDirectories(other);
        try (RealServer first = new RealServer(folder);
                XuidClient one = XuidClient.connect(first.address)) {
            // Two servers of one folder are of one cluster.
            try (RealServer second = new RealServer(folder)) {
                var options = new XuidOptions(first.address + "," + second.address).retryFor(Duration.ofSeconds(10));
                try (XuidClient client = XuidClient.connect(options)) {
                    assertEquals(one.server().cluster(), client.server().cluster());
                    var seen = ConcurrentHashMap.<Long>newKeySet();
                    CompletableFuture<Void> load = CompletableFuture.runAsync(() -> {
                        for (int i = 0; i < 20_000; i++) {
                            add(seen, client.next());
                        }
                    });
                    Wait.until("some ids came", () -> seen.size() > 1_000);
                    (client.server().address().equals(first.address) ? first : second).kill();
                    load.get();
                    assertEquals(20_000, seen.size());
                }
            }
        }
    }
}
