package org.xuid.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.net.Proxy;
import java.net.ProxySelector;
import java.net.SocketAddress;
import java.net.URI;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.logging.Handler;
import java.util.logging.Level;
import java.util.logging.LogRecord;
import java.util.logging.Logger;
import java.util.logging.SimpleFormatter;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.xuid.client.internal.base.Log;
import org.xuid.client.internal.base.Settings;
import org.xuid.client.internal.link.Call;
import org.xuid.client.internal.link.Fleet;
import org.xuid.client.internal.wire.Request;

/** Errors where no exception of the client's own is expected: no client may be dead after one. */
@Timeout(60)
class StrangersTest {
    @Test
    void an_error_of_the_thread_that_dials_is_told_and_the_next_call_dials_again() throws Exception {
        try (FakeServer server = new FakeServer()) {
            Settings settings = new Settings(List.of(server.address()));
            var connecting = CompletableFuture.supplyAsync(() -> Fleet.connect(settings, StrangersTest::breakDown));
            server.greet();
            Fleet fleet = Wait.soon(connecting);
            server.peer().close();
            Wait.until("the end was seen", () -> !fleet.isConnected());
            server.cluster = "ff".repeat(16);
            var call = new Call<Long>(Request.next(0), 10_000_000_000L, 0);
            fleet.start(call);
            server.greet();
            var told = Wait.failure(XuidException.Unreachable.class, call);
            assertTrue(told.getCause() instanceof StackOverflowError, String.valueOf(told));
            server.peer().expectEnd();
            server.cluster = FakeServer.CLUSTER;
            var next = new Call<Long>(Request.next(0), 10_000_000_000L, 0);
            fleet.start(next);
            server.greet();
            server.peer().id(server.peer().ask(), 1);
            assertEquals(1, Wait.soon(next));
            fleet.close();
        }
    }

    @Test
    void an_error_on_the_way_back_to_the_first_choice_is_not_the_last_try() throws Exception {
        try (FakeServer a = new FakeServer(); FakeServer b = new FakeServer()) {
            Settings settings = new Settings(List.of(a.address(), b.address()));
            settings.returnAfter = Duration.ofMillis(300);
            var connecting = CompletableFuture.supplyAsync(() -> Fleet.connect(settings, StrangersTest::breakDown));
            a.greet();
            b.greet();
            Fleet fleet = Wait.soon(connecting);
            FakeServer chosen = fleet.server().address().equals(a.address()) ? a : b;
            FakeServer other = chosen == a ? b : a;
            chosen.peer().close();
            Wait.until("the end was seen", () -> !fleet.isConnected());
            chosen.cluster = "ff".repeat(16);
            fleet.start(new Call<Long>(Request.next(0), 10_000_000_000L, 0));
            other.greet();
            chosen.greet();
            chosen.peer().expectEnd();
            chosen.cluster = FakeServer.CLUSTER;
            chosen.greet();
            Wait.until("it is back", () -> fleet.server().address().equals(chosen.address()));
            fleet.close();
        }
    }

    private static void breakDown() {
        throw new StackOverflowError("of a test");
    }

    @Test
    void a_logger_that_throws_is_nobodys_but_its_own() throws Exception {
        var broken = new Handler() {
            volatile int said;

            @Override
            public void publish(LogRecord record) {
                said++;
                throw new IllegalStateException("of a test");
            }

            @Override
            public void flush() {}

            @Override
            public void close() {}
        };
        Logger logger = Logger.getLogger("org.xuid.client");
        logger.setLevel(Level.ALL);
        logger.addHandler(broken);
        try (FakeServer server = new FakeServer(); XuidClient client = server.connect(server.options())) {
            var call = client.nextAsync();
            server.peer().ask();
            // The link says that it is over before it tells its calls.
            server.peer().close();
            Wait.failure(XuidException.ConnectionLost.class, call);
            var next = client.nextAsync();
            server.accept().close();
            server.greet();
            server.peer().id(server.peer().ask(), 1);
            assertEquals(1, Wait.soon(next));
            Wait.until("both were said", () -> broken.said >= 2);
        } finally {
            logger.removeHandler(broken);
            logger.setLevel(null);
        }
    }

    @Test
    void a_logger_that_stands_still_holds_up_no_dial_and_no_call() throws Exception {
        var goesOn = new CountDownLatch(1);
        var still = new Handler() {
            @Override
            public void publish(LogRecord record) {
                try {
                    goesOn.await();
                } catch (InterruptedException closing) {
                    Thread.currentThread().interrupt();
                }
            }

            @Override
            public void flush() {}

            @Override
            public void close() {}
        };
        Logger logger = Logger.getLogger("org.xuid.client");
        logger.setLevel(Level.ALL);
        logger.addHandler(still);
        try (FakeServer server = new FakeServer(); XuidClient client = server.connect(server.options())) {
            var inFlight = client.nextAsync();
            server.peer().ask();
            server.peer().close();
            Wait.failure(XuidException.ConnectionLost.class, inFlight);
            Wait.until("the end was seen", () -> !client.isConnected());
            var call = client.nextAsync();
            server.accept().close();
            server.greet();
            server.peer().id(server.peer().ask(), 1);
            assertEquals(1, Wait.soon(call));
        } finally {
            goesOn.countDown();
            logger.removeHandler(still);
            logger.setLevel(null);
        }
    }

    @Test
    void how_many_lines_a_logger_that_stands_still_did_not_get_is_said_with_the_next_one() {
        var goesOn = new CountDownLatch(1);
        List<String> said = Collections.synchronizedList(new ArrayList<>());
        var still = new Handler() {
            @Override
            public void publish(LogRecord record) {
                String line = new SimpleFormatter().formatMessage(record);
                said.add(line);
                try {
                    if (line.equals("the first one")) {
                        goesOn.await();
                    }
                } catch (InterruptedException closing) {
                    Thread.currentThread().interrupt();
                }
            }

            @Override
            public void flush() {}

            @Override
            public void close() {}
        };
        Logger logger = Logger.getLogger("org.xuid.client");
        logger.setLevel(Level.ALL);
        logger.addHandler(still);
        try {
            Log.debug("the first one");
            Wait.until("it stands still", () -> said.contains("the first one"));
            // 64 are kept.
            for (int line = 0; line < 67; line++) {
                Log.debug("line {0}", line);
            }
            goesOn.countDown();
            Wait.until("it goes on", () -> said.contains("line 1"));
            Log.debug("the last one");
            Wait.until("all was said", () -> said.contains("the last one"));
            String[] told = said.get(said.indexOf("the last one") - 1).split(" ", 2);
            assertEquals("lines before this one were dropped", told[1]);
            // Clients of other tests may have said something, too.
            assertTrue(Integer.parseInt(told[0]) >= 3, told[0]);
        } finally {
            goesOn.countDown();
            logger.removeHandler(still);
            logger.setLevel(null);
        }
    }

    /** Stands where it is asked for one of these servers, until it goes on. */
    private static final class Still extends ProxySelector {
        final CountDownLatch goesOn = new CountDownLatch(1);
        final AtomicInteger asked = new AtomicInteger();
        private final List<String> servers;

        Still(String... servers) {
            this.servers = List.of(servers);
        }

        @Override
        public List<Proxy> select(URI uri) {
            if (servers.contains(uri.getAuthority())) {
                asked.incrementAndGet();
                boolean isOver = false;
                while (!isOver) {
                    try {
                        goesOn.await();
                        isOver = true;
                    } catch (InterruptedException unheard) {
                        // As in a read of a socket.
                    }
                }
            }
            return List.of(Proxy.NO_PROXY);
        }

        @Override
        public void connectFailed(URI uri, SocketAddress address, IOException error) {}
    }

    @Test
    void a_proxy_selector_that_stands_still_keeps_no_call_beyond_its_time() throws Exception {
        ProxySelector usual = ProxySelector.getDefault();
        try (FakeServer server = new FakeServer()) {
            var still = new Still(server.address());
            XuidOptions options = server.options().connectTimeout(Duration.ofMillis(200)).reconnectRounds(1);
            try (XuidClient client = server.connect(options)) {
                ProxySelector.setDefault(still);
                server.peer().close();
                Wait.until("the end was seen", () -> !client.isConnected());
                for (int dial = 0; dial < 6; dial++) {
                    Wait.failure(XuidException.Unreachable.class, client.nextAsync());
                }
                assertEquals(4, still.asked.get(), "each leaves a thread");
                still.goesOn.countDown();
                Wait.until("what was left has ended", () -> Thread.getAllStackTraces().keySet().stream()
                        .noneMatch(thread -> thread.getName().equals("xuid-dial")));
                var call = client.nextAsync();
                // Those that were left connect no more.
                server.greet();
                server.peer().id(server.peer().ask(), 1);
                assertEquals(1, Wait.soon(call));
            } finally {
                still.goesOn.countDown();
            }
        } finally {
            ProxySelector.setDefault(usual);
        }
    }

    /** The client looks whether its first choice is back, and leaves a thread there each time. */
    @Test
    void a_server_at_which_dials_stand_still_keeps_none_from_another_one() throws Exception {
        ProxySelector usual = ProxySelector.getDefault();
        try (FakeServer a = new FakeServer(); FakeServer b = new FakeServer()) {
            Settings settings = new Settings(List.of(a.address(), b.address()));
            settings.returnAfter = Duration.ofMillis(20);
            settings.connectTimeout = Duration.ofMillis(200);
            var connecting = CompletableFuture.supplyAsync(() -> Fleet.connect(settings, () -> {}));
            a.greet();
            b.greet();
            Fleet fleet = Wait.soon(connecting);
            FakeServer chosen = fleet.server().address().equals(a.address()) ? a : b;
            FakeServer other = chosen == a ? b : a;
            var still = new Still(chosen.address());
            ProxySelector.setDefault(still);
            try {
                for (int lost = 0; lost < 2; lost++) {
                    FakeServer serving = lost == 0 ? chosen : other;
                    serving.peer().close();
                    Wait.until("the end was seen", () -> !fleet.isConnected());
                    var call = new Call<Long>(Request.next(0), 10_000_000_000L, 0);
                    fleet.start(call);
                    other.greet();
                    other.peer().id(other.peer().ask(), 1);
                    assertEquals(1, Wait.soon(call));
                    Wait.until("as many stand still as may", () -> still.asked.get() >= 4);
                }
                assertEquals(4, still.asked.get());
                fleet.close();
            } finally {
                still.goesOn.countDown();
            }
        } finally {
            ProxySelector.setDefault(usual);
        }
    }
}
