package org.xuid.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.xuid.client.FakeServer.Asked;
import org.xuid.client.FakeServer.Peer;
import org.xuid.client.internal.base.Names;
import org.xuid.client.internal.wire.Op;

/** Connecting, leaving and coming back. */
@Timeout(60)
class FleetTest {
    /** Two servers, of which the client has chosen one. */
    private static final class Two implements AutoCloseable {
        final FakeServer a = new FakeServer();
        final FakeServer b = new FakeServer();
        final XuidClient client;
        final FakeServer chosen;
        final FakeServer other;

        Two(java.util.function.UnaryOperator<XuidOptions> set) throws Exception {
            XuidOptions options = set.apply(new XuidOptions(a.address() + "," + b.address()));
            var connecting = CompletableFuture.supplyAsync(() -> XuidClient.connect(options));
            a.greet();
            b.greet();
            client = Wait.soon(connecting);
            chosen = client.server().address().equals(a.address()) ? a : b;
            other = chosen == a ? b : a;
        }

        @Override
        public void close() throws IOException {
            a.close();
            b.close();
            client.close();
        }
    }

    private static CompletableFuture<XuidClient> connecting(XuidOptions options) {
        return CompletableFuture.supplyAsync(() -> XuidClient.connect(options));
    }

    private static <E extends XuidException> E refusal(Class<E> kind, CompletableFuture<XuidClient> connecting) {
        return Wait.failure(kind, connecting);
    }

    @Test
    void the_first_server_is_a_random_one() throws Exception {
        boolean[] seen = new boolean[2];
        for (int i = 0; i < 64 && !(seen[0] && seen[1]); i++) {
            try (Two two = new Two(options -> options)) {
                seen[two.chosen == two.a ? 0 : 1] = true;
            }
        }
        assertTrue(seen[0] && seen[1]);
    }

    @Test
    void servers_of_two_clusters_are_refused_with_both_ids_shown() throws Exception {
        try (FakeServer a = new FakeServer(); FakeServer b = new FakeServer()) {
            b.cluster = "ff".repeat(16);
            var connecting = connecting(new XuidOptions(List.of(a.address(), b.address())));
            a.greet();
            b.greet();
            var refused = refusal(XuidException.WrongCluster.class, connecting);
            assertTrue(refused.getMessage().contains(a.cluster) && refused.getMessage().contains(b.cluster));
            assertFalse(refused.isRetryable());
        }
    }

    @Test
    void a_server_of_another_cluster_than_the_pinned_one_is_not_believed() throws Exception {
        try (FakeServer server = new FakeServer()) {
            var connecting = connecting(server.options().cluster("FF".repeat(16)).token("s3cret"));
            Peer peer = server.accept();
            Asked hello = peer.hello();
            assertEquals("ff".repeat(16), hello.fields.get("cluster"));
            assertEquals("s3cret", hello.fields.get("token"));
            peer.reply(hello, server.welcome());
            var refused = refusal(XuidException.WrongCluster.class, connecting);
            assertEquals(server.cluster, refused.found());
            assertEquals("ff".repeat(16), refused.expected());
            peer.expectEnd();
        }
    }

    @Test
    void a_refused_hello_is_the_callers() throws Exception {
        try (FakeServer server = new FakeServer()) {
            var connecting = connecting(server.options());
            Peer peer = server.accept();
            peer.refuse(peer.hello(), 0x0006, 0);
            assertEquals("UNAUTHENTICATED", refusal(XuidException.Refused.class, connecting).status());
            var other = connecting(server.options());
            peer = server.accept();
            peer.refuse(peer.hello(), 0x0007, 0);
            refusal(XuidException.WrongCluster.class, other);
        }
    }

    @Test
    void a_port_that_speaks_something_else_or_nothing_is_an_error_that_shows_it() throws Exception {
        try (FakeServer server = new FakeServer()) {
            var connecting = connecting(server.options());
            server.accept().send("220 mail.example.org ESMTP ready\r\n".getBytes());
            String text = refusal(XuidException.Protocol.class, connecting).getMessage();
            assertTrue(text.contains("220 mail.example.org ESMTP ready"), text);
            var silent = connecting(server.options().connectTimeout(Duration.ofMillis(100)));
            server.accept();
            var late = refusal(XuidException.Unreachable.class, silent);
            assertTrue(late.getMessage().contains("100 ms") && late.isRetryable(), late.getMessage());
        }
        String nobody;
        try (ServerSocket free = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            nobody = "127.0.0.1:" + free.getLocalPort();
        }
        var refused = assertThrows(XuidException.Unreachable.class, () -> XuidClient.connect(nobody));
        assertEquals(nobody, refused.server());
    }

    @Test
    void one_server_that_answers_is_enough() throws Exception {
        try (FakeServer server = new FakeServer(); ServerSocket silent = new ServerSocket(0)) {
            String other = "127.0.0.1:" + silent.getLocalPort();
            var connecting = connecting(new XuidOptions(List.of(other, server.address())));
            server.greet();
            try (XuidClient client = Wait.soon(connecting)) {
                assertEquals(server.address(), client.server().address());
            }
        }
    }

    @Test
    void after_goaway_what_is_in_flight_is_finished_and_the_rest_goes_elsewhere() throws Exception {
        try (Two two = new Two(options -> options)) {
            var before = two.client.nextAsync();
            Asked asked = two.chosen.peer().expect(Op.NEXT);
            Peer old = two.chosen.peer();
            old.goaway();
            Wait.until("the goaway was read", () -> !two.client.isConnected());
            var after = two.client.nextAsync();
            two.other.greet();
            two.other.peer().id(two.other.peer().expect(Op.NEXT), 2);
            assertEquals(2, Wait.soon(after));
            old.id(asked, 1);
            assertEquals(1, Wait.soon(before));
            old.expectEnd();
        }
    }

    @Test
    void what_waits_at_a_server_that_said_goaway_and_vanished_is_asked_for_elsewhere() throws Exception {
        try (FakeServer server = new FakeServer();
                XuidClient client = server.connect(server.options().timeout(Duration.ofMillis(300)))) {
            var runs = client.runsAsync(1, Order.ANY, Duration.ofMinutes(1));
            var next = client.nextAsync();
            Peer old = server.peer();
            old.expect(Op.RUNS);
            old.expect(Op.NEXT);
            old.goaway();
            Peer other = server.greet();
            other.run(other.expect(Op.RUNS), 7);
            assertEquals(7, Wait.soon(runs).get(0).first());
            Wait.failure(XuidException.Timeout.class, next);
        }
    }

    @Test
    void a_request_that_crosses_a_goaway_unanswered_is_repeated_at_once_without_retries() throws Exception {
        try (Two two = new Two(options -> options)) {
            var call = two.client.nextAsync();
            two.chosen.peer().expect(Op.NEXT);
            two.chosen.peer().goaway();
            two.chosen.peer().close();
            two.other.greet();
            two.other.peer().id(two.other.peer().expect(Op.NEXT), 2);
            assertEquals(2, Wait.soon(call));
        }
    }

    @Test
    void a_server_that_always_leaves_without_an_answer_is_an_error_after_the_rounds_allowed() throws Exception {
        try (FakeServer server = new FakeServer();
                XuidClient client = server.connect(server.options().reconnectRounds(2))) {
            var call = client.nextAsync();
            for (int i = 0; i < 3; i++) {
                server.peer().expect(Op.NEXT);
                server.peer().goaway();
                server.peer().close();
                if (i < 2) {
                    server.greet();
                }
            }
            Wait.failure(XuidException.ConnectionLost.class, call);
        }
    }

    @Test
    void without_retries_the_caller_sees_the_refusal_and_the_next_call_goes_elsewhere() throws Exception {
        try (Two two = new Two(options -> options)) {
            var call = two.client.nextAsync();
            two.chosen.peer().refuse(two.chosen.peer().ask(), 0x8010, 0);
            assertEquals("NOT_READY", Wait.failure(XuidException.Refused.class, call).status());
            var next = two.client.nextAsync();
            two.other.greet();
            two.other.peer().id(two.other.peer().ask(), 3);
            assertEquals(3, Wait.soon(next));
        }
    }

    @Test
    void with_retries_allowed_a_call_goes_on_exactly_where_bit_15_is_set() throws Exception {
        try (Two two = new Two(options -> options.retryFor(Duration.ofSeconds(10)))) {
            var call = two.client.nextAsync();
            two.chosen.peer().refuse(two.chosen.peer().ask(), 0x8016, 60_000);
            two.other.greet();
            two.other.peer().refuse(two.other.peer().ask(), 0x8011, 5);
            two.other.peer().id(two.other.peer().ask(), 4);
            assertEquals(4, Wait.soon(call));
            var hopeless = two.client.nextAsync();
            two.other.peer().refuse(two.other.peer().ask(), 0x0009, 0);
            assertEquals("NO_SEQUENCE", Wait.failure(XuidException.Refused.class, hopeless).status());
        }
    }

    @Test
    void a_pause_beyond_the_time_for_retries_ends_them() throws Exception {
        try (FakeServer server = new FakeServer();
                XuidClient client = server.connect(server.options().retryFor(Duration.ofSeconds(1)))) {
            var call = client.nextAsync();
            server.peer().refuse(server.peer().ask(), 0x8011, 5_000);
            assertEquals("OVERLOADED", Wait.failure(XuidException.Refused.class, call).status());
        }
    }

    @Test
    void a_server_that_became_another_cluster_is_refused_when_it_is_needed() throws Exception {
        try (FakeServer server = new FakeServer(); XuidClient client = server.connect(server.options())) {
            server.peer().close();
            Wait.until("the end was seen", () -> !client.isConnected());
            server.cluster = "ff".repeat(16);
            var call = client.nextAsync();
            server.greet();
            var refused = Wait.failure(XuidException.WrongCluster.class, call);
            assertTrue(refused.getMessage().contains(FakeServer.CLUSTER));
        }
    }

    @Test
    void many_callers_share_one_failed_dial() throws Exception {
        try (FakeServer server = new FakeServer();
                XuidClient client = server.connect(server.options().reconnectRounds(1))) {
            server.peer().close();
            Wait.until("the end was seen", () -> !client.isConnected());
            List<CompletableFuture<Long>> calls = new ArrayList<>();
            for (int i = 0; i < 100; i++) {
                calls.add(client.nextAsync());
            }
            server.accept().close();
            for (var call : calls) {
                Wait.failure(XuidException.ConnectionLost.class, call);
            }
            assertFalse(server.hasCaller(1), "another dial");
            var next = client.nextAsync();
            server.greet();
            server.peer().id(server.peer().ask(), 1);
            assertEquals(1, Wait.soon(next));
        }
    }

    @Test
    void an_error_at_one_caller_keeps_no_other_from_hearing_how_a_dial_ended() throws Exception {
        try (FakeServer server = new FakeServer();
                XuidClient client = server.connect(server.options().reconnectRounds(1))) {
            server.peer().close();
            Wait.until("the end was seen", () -> !client.isConnected());
            var unlucky = LinkTest.Unlucky.begin(client, Duration.ofMinutes(5));
            var call = client.nextAsync();
            server.accept().close();
            Wait.failure(XuidException.ConnectionLost.class, unlucky);
            Wait.failure(XuidException.ConnectionLost.class, call);
        }
    }

    @Test
    void a_name_that_is_looked_up_for_long_costs_a_call_no_more_than_the_time_of_its_dials() throws Exception {
        CompletableFuture<Void> answers = new CompletableFuture<>();
        AtomicInteger lookups = new AtomicInteger();
        try (FakeServer server = new FakeServer()) {
            XuidOptions options = server.options().connectTimeout(Duration.ofSeconds(1)).reconnectRounds(2);
            options.settings.names = new Names(host -> {
                if (lookups.incrementAndGet() == 2) {
                    answers.join();
                }
                return InetAddress.getAllByName(host);
            });
            try (XuidClient client = server.connect(options)) {
                server.peer().close();
                Wait.until("the end was seen", () -> !client.isConnected());
                var late = Wait.failure(XuidException.Unreachable.class, client.nextAsync());
                assertTrue(late.getMessage().contains("1000 ms") && late.isRetryable(), late.getMessage());
                assertEquals(2, lookups.get(), "the second dial waits for the lookup of the first one");
                answers.complete(null);
                Wait.until("the lookup is over", () -> !hasThread("xuid-lookup"));
                var next = client.nextAsync();
                server.greet();
                server.peer().id(server.peer().ask(), 1);
                assertEquals(1, Wait.soon(next));
            }
        }
    }

    private static boolean hasThread(String name) {
        return Thread.getAllStackTraces().keySet().stream().anyMatch(thread -> thread.getName().startsWith(name));
    }

    @Test
    void a_server_that_stays_away_is_an_error_that_names_it() throws Exception {
        FakeServer server = new FakeServer();
        try (XuidClient client = server.connect(server.options().reconnectRounds(2))) {
            server.close();
            Wait.until("the end was seen", () -> !client.isConnected());
            var failed = assertThrows(XuidException.Unreachable.class, client::next);
            assertTrue(failed.getMessage().contains(server.address()));
            assertTrue(failed.isRetryable());
        }
    }

    @Test
    void a_silent_server_is_left_for_the_next_one() throws Exception {
        try (Two two = new Two(options -> options.timeout(Duration.ofMillis(200)))) {
            var call = two.client.nextAsync();
            two.chosen.peer().expect(Op.NEXT);
            Wait.failure(XuidException.Timeout.class, call);
            var next = two.client.nextAsync();
            two.other.greet();
            two.other.peer().id(two.other.peer().ask(), 9);
            assertEquals(9, Wait.soon(next));
        }
    }

    @Test
    void a_server_that_is_silent_for_a_moment_is_not_left_for_one_that_was_not_there() throws Exception {
        Prefetch.Options hasty = new Prefetch.Options().maxAge(Duration.ofMillis(100)).wait(Duration.ofSeconds(10));
        try (Two two = new Two(options -> options)) {
            // Nobody is there when it loses its server, and looks for another one.
            two.other.close();
            two.chosen.peer().close();
            Wait.until("the end was seen", () -> !two.client.isConnected());
            var back = two.client.nextAsync();
            Peer peer = two.chosen.greet();
            peer.id(peer.ask(), 6);
            assertEquals(6, Wait.soon(back));
            try (Prefetch source = two.client.prefetch(hasty)) {
                CompletableFuture.supplyAsync(source::next);
                Wait.until("refills were given up", () -> source.stats().failedRefills() >= 3);
                var call = two.client.nextAsync();
                Asked asked = peer.ask();
                while (asked.op != Op.NEXT) {
                    asked = peer.ask();
                }
                peer.id(asked, 7);
                assertEquals(7, Wait.soon(call));
            }
        }
    }

    /** Whether a client keeps its server, which is silent until a refill is given up. */
    private static boolean staysInSilence(XuidClient client) {
        Prefetch.Options hasty = new Prefetch.Options().maxAge(Duration.ofMillis(100)).wait(Duration.ofSeconds(10));
        try (Prefetch source = client.prefetch(hasty)) {
            CompletableFuture.supplyAsync(source::next);
            Wait.until("a refill was given up", () -> source.stats().failedRefills() >= 1);
            return client.isConnected();
        }
    }

    @Test
    void a_server_that_did_not_answer_at_the_connect_is_gone_to_for_no_silence_and_no_refusal() throws Exception {
        try (FakeServer a = new FakeServer(); FakeServer b = new FakeServer()) {
            var connecting = connecting(new XuidOptions(List.of(a.address(), b.address())));
            a.greet();
            b.accept();
            try (XuidClient client = Wait.soon(connecting)) {
                var call = client.nextAsync();
                a.peer().refuse(a.peer().ask(), 0x8010, 0);
                Wait.failure(XuidException.Refused.class, call);
                assertTrue(client.isConnected());
                assertTrue(staysInSilence(client));
                assertFalse(b.hasCaller(50));
            }
        }
    }

    @Test
    void no_refusal_leads_again_soon_to_a_server_that_was_silent_for_long() throws Exception {
        try (Two two = new Two(options -> options.connectTimeout(Duration.ofSeconds(1)))) {
            var number = two.client.nextAsync();
            two.chosen.peer().refuse(two.chosen.peer().ask(), 0x8016, 1_000);
            Wait.failure(XuidException.Refused.class, number);
            assertFalse(two.client.isConnected(), "it is left once");
            // The other one takes the connection, and says nothing.
            var next = two.client.nextAsync();
            Peer peer = two.chosen.greet();
            peer.id(peer.ask(), 1);
            assertEquals(1, Wait.soon(next));
            number = two.client.nextAsync();
            peer.refuse(peer.ask(), 0x8016, 1_000);
            Wait.failure(XuidException.Refused.class, number);
            assertTrue(two.client.isConnected(), "and not again at once");
        }
    }

    @Test
    void a_server_that_a_return_trip_found_away_is_left_for_when_it_was_there_again() throws Exception {
        try (Two two = new Two(options -> options.returnAfter(Duration.ofMillis(300)))) {
            loseChosen(two, 1);
            two.chosen.accept().close();
            // The next trip is planned when the end of the one before was noted.
            Peer trip = two.chosen.accept();
            assertTrue(staysInSilence(two.client));
            trip.reply(trip.hello(), two.chosen.welcome());
            Wait.until("it is back", () -> two.client.server().address().equals(two.chosen.address()));
            loseChosen(two, 2);
            assertFalse(staysInSilence(two.client));
        }
    }

    @Test
    void a_first_choice_that_came_back_as_another_cluster_is_left_for_in_no_silence() throws Exception {
        try (Two two = new Two(options -> options.returnAfter(Duration.ofMillis(300)))) {
            loseChosen(two, 1);
            two.chosen.cluster = "ff".repeat(16);
            two.chosen.greet().expectEnd();
            two.chosen.accept();
            assertTrue(staysInSilence(two.client));
        }
    }

    /** The client goes to the other one, which answers it with that id. */
    private static void loseChosen(Two two, long id) throws Exception {
        two.chosen.peer().close();
        Wait.until("the end was seen", () -> !two.client.isConnected());
        var call = two.client.nextAsync();
        Peer peer = two.other.greet();
        peer.id(peer.ask(), id);
        assertEquals(id, Wait.soon(call));
    }

    @Test
    void a_client_that_had_to_leave_its_first_choice_comes_back_to_it() throws Exception {
        try (Two two = new Two(options -> options.returnAfter(Duration.ofMillis(300)))) {
            two.chosen.peer().close();
            Wait.until("the end was seen", () -> !two.client.isConnected());
            var call = two.client.nextAsync();
            two.other.greet();
            Asked open = two.other.peer().ask();
            two.chosen.greet();
            Wait.until("it is back", () -> two.client.server().address().equals(two.chosen.address()));
            two.other.peer().id(open, 1);
            assertEquals(1, Wait.soon(call));
            two.other.peer().expectEnd();
            var next = two.client.nextAsync();
            two.chosen.peer().id(two.chosen.peer().ask(), 2);
            assertEquals(2, Wait.soon(next));
        }
    }

    @Test
    void closing_ends_calls_that_pause_between_attempts() throws Exception {
        try (FakeServer server = new FakeServer()) {
            XuidClient client = server.connect(server.options().retryFor(Duration.ofMinutes(5)));
            var call = client.nextAsync();
            server.peer().refuse(server.peer().ask(), 0x8011, 30_000);
            // The refusal was handed out before the reply behind it.
            var next = client.nextAsync();
            server.peer().id(server.peer().ask(), 1);
            Wait.soon(next);
            server.peer().close();
            client.close();
            Wait.failure(XuidException.Closed.class, call);
        }
    }

    @Test
    void closing_ends_calls_in_flight_on_a_server_that_was_left() throws Exception {
        try (Two two = new Two(options -> options.timeout(Duration.ofSeconds(2)))) {
            var left = two.client.nextAsync();
            two.chosen.peer().expect(Op.NEXT);
            two.chosen.peer().goaway();
            Wait.until("the goaway was read", () -> !two.client.isConnected());
            var next = two.client.nextAsync();
            two.other.greet();
            two.other.peer().id(two.other.peer().ask(), 1);
            Wait.soon(next);
            two.other.peer().close();
            two.client.close();
            Wait.failure(XuidException.Closed.class, left);
            two.chosen.peer().expectEnd();
        }
    }

    @Test
    void closing_ends_calls_that_wait_for_a_connection() throws Exception {
        try (FakeServer server = new FakeServer()) {
            XuidClient client = server.connect(server.options());
            server.peer().close();
            Wait.until("the end was seen", () -> !client.isConnected());
            var call = client.nextAsync();
            server.accept();
            client.close();
            Wait.failure(XuidException.Closed.class, call);
        }
    }

    @Test
    void a_prefetch_goes_on_at_another_server_without_an_error() throws Exception {
        try (Two two = new Two(options -> options); Prefetch source = two.client.prefetch()) {
            var first = CompletableFuture.supplyAsync(source::next);
            two.chosen.peer().run(two.chosen.peer().expect(Op.RUNS), 100);
            assertEquals(100, Wait.soon(first));
            two.chosen.peer().goaway();
            two.chosen.peer().close();
            var ids = CompletableFuture.supplyAsync(() -> {
                long last = 0;
                for (int i = 0; i < 100; i++) {
                    last = source.next();
                }
                return last;
            });
            Peer peer = two.other.greet();
            Thread mill = new Thread(() -> {
                try {
                    for (long next = 1_000; ; ) {
                        Asked asked = peer.expect(Op.RUNS);
                        peer.run(asked, next);
                        next += asked.count();
                    }
                } catch (IOException ended) {
                    // The test is over.
                }
            });
            mill.setDaemon(true);
            mill.start();
            assertTrue(Wait.soon(ids) >= 1_000);
        }
    }

    @Test
    void a_first_choice_of_another_cluster_voids_the_refill_that_is_on_its_way() throws Exception {
        Prefetch.Options patient = new Prefetch.Options()
                .ahead(64, 64).maxAge(Duration.ofSeconds(2)).wait(Duration.ofSeconds(10));
        try (Two two = new Two(options -> options.returnAfter(Duration.ofMillis(300)))) {
            two.chosen.peer().close();
            Wait.until("the end was seen", () -> !two.client.isConnected());
            Prefetch source = two.client.prefetch(patient);
            Peer peer = two.other.greet();
            Asked open = peer.expect(Op.RUNS);
            var waiting = CompletableFuture.supplyAsync(source::next);
            two.chosen.cluster = "ff".repeat(16);
            two.chosen.greet();
            // It is closed when what was asked for is void.
            two.chosen.peer().expectEnd();
            peer.run(open, 1);
            peer.run(peer.expect(Op.RUNS), 1_000);
            assertEquals(1_000, Wait.soon(waiting));
            assertEquals(64, source.stats().wasted());
        }
    }

    @Test
    void a_failure_of_connecting_shows_where_the_caller_stood() {
        var failed = assertThrows(XuidException.class, () -> XuidClient.connect("127.0.0.1:1"));
        boolean isMine = List.of(failed.getStackTrace()).stream()
                .anyMatch(frame -> frame.getClassName().equals(FleetTest.class.getName()));
        assertTrue(isMine, String.valueOf(failed));
    }
}
