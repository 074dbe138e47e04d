package org.xuid.client;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertDoesNotThrow;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.FilterOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.lang.reflect.Field;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.function.Function;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.xuid.client.FakeServer.Asked;
import org.xuid.client.internal.link.Call;
import org.xuid.client.internal.link.Fleet;
import org.xuid.client.internal.wire.Bytes;
import org.xuid.client.internal.wire.Frame;
import org.xuid.client.internal.wire.Op;
import org.xuid.client.internal.wire.Reply;
import org.xuid.client.internal.wire.Request;

/** One connection to a server that may lie. */
@Timeout(60)
class LinkTest {
    private static final Duration WAIT = Duration.ofMillis(50);

    @Test
    void replies_in_any_order_find_their_requests() throws Exception {
        try (FakeServer server = new FakeServer(); XuidClient client = server.connect(server.options())) {
            List<CompletableFuture<Long>> calls = new ArrayList<>();
            List<Asked> asked = new ArrayList<>();
            for (int i = 0; i < 500; i++) {
                calls.add(client.nextAsync(Order.values()[i % 3]));
            }
            for (int i = 0; i < 500; i++) {
                asked.add(server.peer().expect(Op.NEXT));
                assertEquals((long) i % 3, asked.get(i).fields.get("order"));
            }
            List<Integer> order = new ArrayList<>();
            for (int i = 0; i < 500; i++) {
                order.add(i);
            }
            Collections.reverse(order);
            for (int i : order) {
                server.peer().id(asked.get(i), 1_000 + i);
            }
            for (int i = 0; i < 500; i++) {
                assertEquals(1_000 + i, Wait.soon(calls.get(i)));
            }
        }
    }

    @Test
    void threads_above_the_bound_wait_their_turn_and_each_gets_its_own_id() throws Exception {
        try (FakeServer server = new FakeServer()) {
            server.maxInFlight = 16;
            XuidClient client = server.connect(server.options().maxInFlight(20));
            List<Long> ids = Collections.synchronizedList(new ArrayList<>());
            List<Thread> threads = new ArrayList<>();
            for (int i = 0; i < 64; i++) {
                Thread thread = new Thread(() -> {
                    List<CompletableFuture<Long>> calls = new ArrayList<>();
                    for (int j = 0; j < 20; j++) {
                        calls.add(client.nextAsync());
                    }
                    calls.forEach(call -> ids.add(call.join()));
                });
                thread.start();
                threads.add(thread);
            }
            int total = 64 * 20;
            var asked = new java.util.ArrayDeque<Asked>();
            for (int served = 0; served < total; served++) {
                while (asked.size() < Math.min(16, total - served)) {
                    asked.add(server.peer().expect(Op.NEXT));
                }
                assertFalse(server.peer().hasMore(), "a 17th request is in flight");
                server.peer().id(asked.poll(), served);
            }
            for (Thread thread : threads) {
                thread.join();
            }
            assertEquals(total, ids.stream().distinct().count());
            client.close();
        }
    }

    @Test
    void a_reply_in_pieces_arrives_whole() throws Exception {
        try (FakeServer server = new FakeServer(); XuidClient client = server.connect(server.options())) {
            var call = client.arrayAsync(100_000, Order.FRESH, WAIT);
            Asked asked = server.peer().expect(Op.ARRAY);
            Bytes body = new Bytes().u32(100_000).u32(0);
            long[] ids = new long[100_000];
            for (int i = 0; i < ids.length; i++) {
                ids[i] = i * 7L;
                body.u64(ids[i]);
            }
            Bytes frame = new Bytes().u32(body.length()).u8(Op.ARRAY | 0x80).u8(0).u16(0).u64(asked.id);
            byte[] bytes = frame.raw(body.toArray()).toArray();
            for (int at = 0; at < bytes.length; at += 77_777) {
                server.peer().send(java.util.Arrays.copyOfRange(bytes, at, Math.min(bytes.length, at + 77_777)));
            }
            assertArrayEquals(ids, Wait.soon(call));
        }
    }

    @Test
    void every_lie_of_a_server_ends_the_connection_without_an_id() throws Exception {
        lie(client -> client.nextAsync(), asked -> frame(asked, Op.ARRAY, new Bytes().u32(0).u32(0)));
        lie(client -> client.nextAsync(), asked -> frame(asked, Op.NEXT, new Bytes().u64(Long.MIN_VALUE)));
        lie(client -> client.nextAsync(), asked -> header(Op.NEXT, 128 * 1_024 + 1, asked.id));
        lie(client -> client.nextAsync(), asked -> header(Op.NEXT, 8, asked.id + 1).u64(5));
        lie(client -> client.nextAsync(), asked -> new Bytes().u32(8).u8(Op.NEXT).u8(0).u16(0).u64(asked.id).u64(5));
        lie(client -> client.nextAsync(), asked -> new Bytes().u32(8).u8(0x90).u8(1).u16(0).u64(asked.id).u64(5));
        lie(client -> client.arrayAsync(2, Order.ANY, WAIT),
                asked -> frame(asked, Op.ARRAY, new Bytes().u32(1).u32(0).u64(5)));
        lie(client -> client.arrayAsync(2, Order.ANY, WAIT), asked -> header(Op.ARRAY, 16 + 128 * 1_024 + 1, asked.id));
        lie(client -> client.runsAsync(5, Order.ANY, WAIT),
                asked -> frame(asked, Op.RUNS, new Bytes().u32(5).u32(1).u64(5).u32(4).u32(1)));
        lie(client -> client.runsAsync(5, Order.ANY, WAIT),
                asked -> frame(asked, Op.RUNS, new Bytes().u32(4).u32(1).u64(5).u32(4).u32(1)));
        lie(client -> client.sequence("a").takeAsync(2, Order.ORDERED, WAIT).toCompletableFuture(),
                asked -> frame(asked, Op.SEQ_RUNS,
                        new Bytes().u32(2).u32(2).u64(5).u32(1).u32(1).u64(9).u32(1).u32(1)));
    }

    private static void lie(Function<XuidClient, CompletableFuture<?>> ask, Function<Asked, Bytes> lie)
            throws Exception {
        try (FakeServer server = new FakeServer(); XuidClient client = server.connect(server.options())) {
            var bystander = client.nextAsync();
            server.peer().ask();
            var call = ask.apply(client);
            server.peer().send(lie.apply(server.peer().ask()).toArray());
            for (var each : List.of(bystander, call)) {
                var ended = assertThrows(java.util.concurrent.ExecutionException.class, () -> Wait.soon(each));
                Throwable cause = ended.getCause();
                assertTrue(cause instanceof XuidException.Protocol, String.valueOf(cause));
            }
            server.peer().expectEnd();
        }
    }

    private static Bytes header(int op, int length, long id) {
        return new Bytes().u32(length).u8(op | 0x80).u8(0).u16(0).u64(id);
    }

    private static Bytes frame(Asked asked, int op, Bytes body) {
        return header(op, body.length(), asked.id).raw(body.toArray());
    }

    @Test
    void a_refusal_carries_status_pause_and_text_and_keeps_the_connection() throws Exception {
        try (FakeServer server = new FakeServer(); XuidClient client = server.connect(server.options())) {
            var call = client.nextAsync();
            server.peer().refuse(server.peer().ask(), 0x8011, 250);
            var refused = Wait.failure(XuidException.Refused.class, call);
            assertEquals("OVERLOADED", refused.status());
            assertEquals(0x8011, refused.code());
            assertEquals(Duration.ofMillis(250), refused.retryAfter());
            assertEquals("so it\ufffdis", refused.text());
            assertTrue(refused.isRetryable());
            var again = client.nextAsync();
            server.peer().id(server.peer().ask(), 5);
            assertEquals(5, Wait.soon(again));
        }
    }

    @Test
    void a_server_that_cuts_a_reply_in_the_middle_costs_the_calls_in_flight_and_no_more() throws Exception {
        try (FakeServer server = new FakeServer(); XuidClient client = server.connect(server.options())) {
            var call = client.nextAsync();
            Asked asked = server.peer().ask();
            server.peer().send(header(Op.NEXT, 8, asked.id).u32(1).toArray());
            server.peer().close();
            assertTrue(Wait.failure(XuidException.ConnectionLost.class, call).isRetryable());
            var next = client.nextAsync();
            server.greet();
            server.peer().id(server.peer().ask(), 6);
            assertEquals(6, Wait.soon(next));
        }
    }

    @Test
    void a_call_that_gives_up_ends_alone_and_its_late_reply_goes_to_nobody() throws Exception {
        try (FakeServer server = new FakeServer();
                XuidClient client = server.connect(server.options().timeout(Duration.ofMillis(300)))) {
            var patient = client.arrayAsync(1, Order.ANY, Duration.ofSeconds(30));
            Asked longer = server.peer().expect(Op.ARRAY);
            var call = client.nextAsync();
            Asked asked = server.peer().expect(Op.NEXT);
            Asked ping = server.peer().expect(Op.PING);
            server.peer().reply(ping, ping.fields);
            Wait.failure(XuidException.Timeout.class, call);
            server.peer().id(asked, 7);
            var next = client.nextAsync();
            server.peer().id(server.peer().expect(Op.NEXT), 8);
            assertEquals(8, Wait.soon(next));
            server.peer().reply(longer, Map.of("ids", List.of("9")));
            assertArrayEquals(new long[] {9}, Wait.soon(patient));
        }
    }

    @Test
    void a_silence_ends_the_connection_after_a_ping_that_nobody_answered() throws Exception {
        try (FakeServer server = new FakeServer();
                XuidClient client = server.connect(server.options().timeout(Duration.ofMillis(200)))) {
            var call = client.nextAsync();
            server.peer().expect(Op.NEXT);
            server.peer().expect(Op.PING);
            Wait.failure(XuidException.Timeout.class, call);
            server.peer().expectEnd();
            Wait.until("the link is known to be over", () -> !client.isConnected());
        }
    }

    @Test
    void a_cancelled_call_ends_alone_and_gives_its_room_back_with_its_reply() throws Exception {
        try (FakeServer server = new FakeServer();
                XuidClient client = server.connect(server.options().maxInFlight(1))) {
            var cancelled = client.nextAsync();
            var waiting = client.nextAsync();
            var unsent = client.nextAsync();
            Asked asked = server.peer().ask();
            assertTrue(cancelled.cancel(true) && unsent.cancel(true));
            server.peer().id(asked, 1);
            server.peer().id(server.peer().ask(), 2);
            assertEquals(2, Wait.soon(waiting));
            var last = client.nextAsync();
            server.peer().id(server.peer().ask(), 3);
            assertEquals(3, Wait.soon(last));
            assertTrue(cancelled.isCancelled());
        }
    }

    @Test
    void an_interrupted_thread_stops_waiting_and_stays_interrupted() throws Exception {
        try (FakeServer server = new FakeServer(); XuidClient client = server.connect(server.options())) {
            CompletableFuture<Boolean> outcome = new CompletableFuture<>();
            Thread thread = new Thread(() -> {
                assertThrows(java.util.concurrent.CancellationException.class, client::next);
                outcome.complete(Thread.currentThread().isInterrupted());
            });
            thread.start();
            server.peer().ask();
            thread.interrupt();
            assertTrue(Wait.soon(outcome));
        }
    }

    @Test
    void a_blocking_call_in_a_callback_is_refused_instead_of_waiting_for_ever() throws Exception {
        try (FakeServer server = new FakeServer(); XuidClient client = server.connect(server.options())) {
            CountDownLatch attached = new CountDownLatch(1);
            var call = client.nextAsync();
            var blocked = call.thenApply(id -> client.next());
            var chained = call.thenCompose(id -> client.nextAsync());
            attached.countDown();
            server.peer().id(server.peer().ask(), 1);
            Wait.failure(IllegalStateException.class, blocked);
            server.peer().id(server.peer().ask(), 2);
            assertEquals(2, Wait.soon(chained));
        }
    }

    /** Nothing else ends the others: they are in no list any more. */
    @Test
    void a_callback_that_stands_still_keeps_no_other_call_from_hearing_of_the_end_of_the_connection() throws Exception {
        try (FakeServer server = new FakeServer(); XuidClient client = server.connect(server.options())) {
            CountDownLatch goesOn = new CountDownLatch(1);
            CountDownLatch stands = new CountDownLatch(40);
            for (int call = 0; call < 40; call++) {
                client.nextAsync().whenComplete((id, error) -> {
                    stands.countDown();
                    assertDoesNotThrow(() -> goesOn.await());
                });
                server.peer().expect(Op.NEXT);
            }
            var waiting = CompletableFuture.supplyAsync(client::next);
            server.peer().expect(Op.NEXT);
            var later = client.nextAsync();
            server.peer().expect(Op.NEXT);
            server.peer().close();
            stands.await();
            Wait.failure(XuidException.ConnectionLost.class, waiting);
            Wait.failure(XuidException.ConnectionLost.class, later);
            goesOn.countDown();
        }
    }

    @Test
    void closing_says_bye_and_ends_calls_in_flight_and_all_later_ones() throws Exception {
        try (FakeServer server = new FakeServer()) {
            XuidClient client = server.connect(server.options());
            var call = client.nextAsync();
            server.peer().expect(Op.NEXT);
            var closing = CompletableFuture.runAsync(client::close);
            Asked bye = server.peer().expect(Op.BYE);
            server.peer().send(header(Op.BYE, 0, bye.id).toArray());
            Wait.soon(closing);
            Wait.failure(XuidException.Closed.class, call);
            var closed = assertThrows(XuidException.Closed.class, client::next);
            assertTrue(closed.getMessage().contains("closed"));
            assertThrows(XuidException.Closed.class, client::prefetch);
            assertFalse(client.isConnected());
            client.close();
        }
    }

    @Test
    void every_op_asks_what_the_caller_said_and_returns_what_the_server_did() throws Exception {
        try (FakeServer server = new FakeServer(); XuidClient client = server.connect(server.options())) {
            var decoded = CompletableFuture.supplyAsync(() -> client.decode(1_128_275_363_336_683_521L));
            Asked asked = server.peer().expect(Op.DECODE);
            server.peer().reply(asked, Map.of("unix_ms", "1793155408962", "worker", 32L, "sequence", 1L));
            assertEquals(client.layout().parts(1_128_275_363_336_683_521L), Wait.soon(decoded));
            json(server, Op.INFO, client::info);
            json(server, Op.STATS, client::stats);
            Sequence orders = client.sequence("orders");
            json(server, Op.SEQ_INFO, orders::info);
            Asked list = json(server, Op.SEQ_LIST, () -> client.sequences("o", "oa", 7));
            assertEquals(Map.of("limit", 7L, "prefix", "o", "after", "oa"), list.fields);
            Asked created = json(server, Op.SEQ_CREATE,
                    () -> orders.create(new Sequence.Settings().start(7).increment(3, 1).strict(true).description("a \"b\"")));
            assertEquals("{\"start\":\"7\",\"increment\":\"3\",\"remainder\":\"1\",\"strict\":true,"
                    + "\"description\":\"a \\\"b\\\"\"}", created.fields.get("json"));
            Asked altered = json(server, Op.SEQ_ALTER, () -> orders.alter(new Sequence.Changes().retired()));
            assertEquals("{\"last\":\"retired\"}", altered.fields.get("json"));
            var taken = orders.takeAsync(4, Order.ORDERED, WAIT);
            Asked take = server.peer().expect(Op.SEQ_RUNS);
            assertEquals(true, take.fields.get("contiguous"));
            Map<String, Object> run = Map.of("first", "1", "count", 4L, "stride", 3L);
            server.peer().reply(take, Map.of("count", 4L, "runs", List.of(run)));
            assertArrayEquals(new long[] {1, 4, 7, 10}, Wait.soon(taken).ids().toArray());
            assertEquals(10, Wait.soon(taken).last());
        }
    }

    private static Asked json(FakeServer server, int op, java.util.function.Supplier<String> call) throws Exception {
        var answer = CompletableFuture.supplyAsync(call);
        Asked asked = server.peer().expect(op);
        server.peer().reply(asked, Map.of("json", "{\"op\":" + op + "}"));
        assertEquals("{\"op\":" + op + "}", Wait.soon(answer));
        return asked;
    }

    @Test
    void a_wrong_use_is_told_before_anything_is_sent() throws Exception {
        try (FakeServer server = new FakeServer(); XuidClient client = server.connect(server.options())) {
            assertThrows(IllegalArgumentException.class, () -> client.array(0));
            assertThrows(IllegalArgumentException.class, () -> client.runs(-1));
            assertThrows(IllegalArgumentException.class, () -> client.array(1, Order.ANY, Duration.ofMillis(-1)));
            assertThrows(IllegalArgumentException.class, () -> client.sequence("@any"));
            assertThrows(IllegalArgumentException.class, () -> client.sequence("a").array(1, Order.FRESH, WAIT));
            assertThrows(IllegalArgumentException.class, () -> client.decode(-1));
            for (String servers : new String[] {"", "localhost", "h:1,", "h:70000", "a b:1", "::1:7654"}) {
                assertThrows(IllegalArgumentException.class, () -> new XuidOptions(servers), servers);
            }
            assertThrows(IllegalArgumentException.class, () -> server.options().timeout(Duration.ZERO));
            assertThrows(IllegalArgumentException.class, () -> server.options().cluster("xyz"));
            assertThrows(IllegalArgumentException.class, () -> server.options().token("x".repeat(256)));
            assertEquals(List.of("[::1]:7654", "h:1"), new XuidOptions("[::1]:7654, h:1").settings.servers);
            var next = client.nextAsync();
            server.peer().id(server.peer().expect(Op.NEXT), 1);
            assertEquals(1, Wait.soon(next));
            assertEquals(16, Frame.HEADER);
        }
    }

    /** Takes a part of what is written, and throws. */
    private static final class Torn extends OutputStream {
        private final OutputStream inner;

        Torn(OutputStream inner) {
            this.inner = inner;
        }

        @Override
        public void write(int one) {
            throw new AssertionError();
        }

        @Override
        public void write(byte[] bytes, int from, int length) throws IOException {
            inner.write(bytes, from, length / 2);
            inner.flush();
            throw new StackOverflowError("of a test");
        }
    }

    private static Object inner(Object owner, String... path) throws Exception {
        for (String name : path) {
            Field field = owner.getClass().getDeclaredField(name);
            field.setAccessible(true);
            owner = field.get(owner);
        }
        return owner;
    }

    @Test
    void an_error_in_the_middle_of_a_write_ends_the_connection_for_all_at_once() throws Exception {
        try (FakeServer server = new FakeServer();
                XuidClient client = server.connect(server.options().timeout(Duration.ofMinutes(5)))) {
            CompletableFuture<Long> waiting = client.nextAsync();
            server.peer().expect(Op.NEXT);
            Object outbox = inner(client, "fleet", "link", "outbox");
            Field out = outbox.getClass().getDeclaredField("out");
            out.setAccessible(true);
            out.set(outbox, new Torn((OutputStream) out.get(outbox)));
            assertThrows(StackOverflowError.class, client::next);
            Wait.failure(XuidException.ConnectionLost.class, waiting);
            CompletableFuture<Long> next = client.nextAsync();
            FakeServer.Peer peer = server.greet();
            peer.id(peer.expect(Op.NEXT), 7);
            assertEquals(7, Wait.soon(next));
        }
    }

    /** What is appended to nothing is an error of the client's own. The threads that look for something see none. */
    static void tearNextFrame(XuidClient client) throws Exception {
        Object appended = inner(client, "fleet", "link", "outbox", "appended");
        Field data = appended.getClass().getDeclaredField("data");
        data.setAccessible(true);
        data.set(appended, null);
    }

    @Test
    void an_error_in_the_middle_of_a_frame_ends_the_connection_for_all_at_once() throws Exception {
        try (FakeServer server = new FakeServer();
                XuidClient client = server.connect(server.options().timeout(Duration.ofMinutes(5)))) {
            CompletableFuture<Long> waiting = client.nextAsync();
            server.peer().expect(Op.NEXT);
            tearNextFrame(client);
            assertThrows(NullPointerException.class, client::next);
            Wait.failure(XuidException.ConnectionLost.class, waiting);
            CompletableFuture<Long> next = client.nextAsync();
            FakeServer.Peer peer = server.greet();
            peer.id(peer.expect(Op.NEXT), 7);
            assertEquals(7, Wait.soon(next));
        }
    }

    /** A server that reads nothing holds a write up where TLS has something of its own to say. */
    @Test
    void the_thread_on_which_all_deadlines_depend_writes_nothing() throws Exception {
        try (FakeServer server = new FakeServer();
                XuidClient client = server.connect(server.options().timeout(Duration.ofMillis(600)))) {
            Object outbox = inner(client, "fleet", "link", "outbox");
            Field out = outbox.getClass().getDeclaredField("out");
            out.setAccessible(true);
            var socket = (OutputStream) out.get(outbox);
            Set<String> writers = ConcurrentHashMap.newKeySet();
            out.set(outbox, new FilterOutputStream(socket) {
                @Override
                public void write(byte[] bytes, int from, int count) throws IOException {
                    writers.add(Thread.currentThread().getName());
                    socket.write(bytes, from, count);
                }
            });
            var call = client.nextAsync();
            server.peer().expect(Op.NEXT);
            server.peer().expect(Op.PING);
            Wait.failure(XuidException.class, call);
            assertTrue(writers.stream().noneMatch(name -> name.startsWith("xuid-timer")), writers.toString());
            assertTrue(writers.stream().anyMatch(name -> name.startsWith("xuid-writer")), writers.toString());
        }
    }

    /** What a caller attaches may stand still, and may be attached while the call is told. */
    @Test
    void a_failure_is_told_by_a_thread_on_which_no_other_call_depends() throws Exception {
        Duration patience = Duration.ofMinutes(5);
        var teller = new CompletableFuture<String>();
        Call<Long> call = new Call<>(Request.next(0), patience.toNanos(), 0) {
            @Override
            public boolean completeExceptionally(Throwable failure) {
                teller.complete(Thread.currentThread().getName());
                return super.completeExceptionally(failure);
            }
        };
        try (FakeServer server = new FakeServer();
                XuidClient client = server.connect(server.options().timeout(patience))) {
            ((Fleet) inner(client, "fleet")).start(call);
            server.peer().expect(Op.NEXT);
            server.peer().close();
            // First: who waits for the call is attached to it.
            assertEquals("xuid-callback", Wait.soon(teller));
            Wait.failure(XuidException.ConnectionLost.class, call);
        }
    }

    /** A call that throws once, when it is answered or told of a failure: as where memory is used up. */
    static final class Unlucky extends Call<Long> {
        private boolean hasThrown;

        private Unlucky(Duration patience) {
            super(Request.next(0), patience.toNanos(), 0);
            // By the thread that tells others behind it.
            isTold();
        }

        static Unlucky begin(XuidClient client, Duration patience) throws Exception {
            Unlucky call = new Unlucky(patience);
            ((Fleet) inner(client, "fleet")).start(call);
            return call;
        }

        private void throwOnce() {
            if (!hasThrown) {
                hasThrown = true;
                throw new OutOfMemoryError("of a test");
            }
        }

        @Override
        public void answer(Reply reply) {
            throwOnce();
            super.answer(reply);
        }

        @Override
        public boolean completeExceptionally(Throwable failure) {
            throwOnce();
            return super.completeExceptionally(failure);
        }
    }

    @Test
    void an_error_while_a_reply_is_handed_out_is_told_to_its_caller_and_ends_the_connection() throws Exception {
        Duration patience = Duration.ofMinutes(5);
        try (FakeServer server = new FakeServer();
                XuidClient client = server.connect(server.options().timeout(patience))) {
            Unlucky call = Unlucky.begin(client, patience);
            var other = client.nextAsync();
            server.peer().id(server.peer().expect(Op.NEXT), 1);
            assertTrue(Wait.failure(XuidException.ConnectionLost.class, call).getMessage().contains("of a test"));
            Wait.failure(XuidException.ConnectionLost.class, other);
            var next = client.nextAsync();
            FakeServer.Peer peer = server.greet();
            peer.id(peer.expect(Op.NEXT), 7);
            assertEquals(7, Wait.soon(next));
        }
    }

    /** Behind this one no other failure can be made. */
    static final class NoMemory extends OutOfMemoryError {
        private static final long serialVersionUID = 1;

        @Override
        public String getMessage() {
            throw this;
        }
    }

    @Test
    void a_second_error_while_a_reply_is_handed_out_keeps_no_caller_waiting() throws Exception {
        Duration patience = Duration.ofMinutes(5);
        try (FakeServer server = new FakeServer();
                XuidClient client = server.connect(server.options().timeout(patience))) {
            Call<Long> call = new Call<>(Request.next(0), patience.toNanos(), 0) {
                @Override
                public void answer(Reply reply) {
                    throw new NoMemory();
                }
            };
            ((Fleet) inner(client, "fleet")).start(call);
            server.peer().id(server.peer().expect(Op.NEXT), 1);
            Wait.failure(XuidException.ConnectionLost.class, call);
        }
    }

    @Test
    void an_error_at_the_next_call_in_line_keeps_no_reply_from_its_caller() throws Exception {
        try (FakeServer server = new FakeServer();
                XuidClient client = server.connect(server.options().timeout(Duration.ofMinutes(5)).maxInFlight(1))) {
            var call = client.nextAsync();
            Asked asked = server.peer().expect(Op.NEXT);
            var next = client.nextAsync();
            tearNextFrame(client);
            server.peer().id(asked, 1);
            assertEquals(1, Wait.soon(call));
            Wait.failure(XuidException.ConnectionLost.class, next);
        }
    }

    @Test
    void an_error_at_one_caller_keeps_no_other_from_hearing_of_the_end_of_the_connection() throws Exception {
        Duration patience = Duration.ofMinutes(5);
        try (FakeServer server = new FakeServer();
                XuidClient client = server.connect(server.options().timeout(patience).maxInFlight(2))) {
            Unlucky call = Unlucky.begin(client, patience);
            var other = client.nextAsync();
            var unsent = client.nextAsync();
            server.peer().expect(Op.NEXT);
            server.peer().expect(Op.NEXT);
            server.peer().close();
            Wait.failure(XuidException.ConnectionLost.class, call);
            Wait.failure(XuidException.ConnectionLost.class, other);
            FakeServer.Peer peer = server.greet();
            peer.id(peer.expect(Op.NEXT), 7);
            assertEquals(7, Wait.soon(unsent));
        }
    }

    @Test
    void an_error_when_a_call_is_repeated_is_told_to_its_caller() throws Exception {
        long patience = Duration.ofMinutes(5).toNanos();
        Call<Long> call = new Call<>(Request.next(0), patience, patience) {
            private boolean isRepeated;

            @Override
            public void begin(long now) {
                if (isRepeated) {
                    throw new OutOfMemoryError("of a test");
                }
                isRepeated = true;
                super.begin(now);
            }
        };
        try (FakeServer server = new FakeServer(); XuidClient client = server.connect(server.options())) {
            ((Fleet) inner(client, "fleet")).start(call);
            server.peer().refuse(server.peer().ask(), 0x8011, 1);
            Wait.failure(XuidException.ConnectionLost.class, call);
        }
    }

    @Test
    void an_error_in_saying_bye_keeps_no_call_from_being_told_of_the_close() throws Exception {
        try (FakeServer server = new FakeServer()) {
            XuidClient client = server.connect(server.options().retryFor(Duration.ofMinutes(5)));
            var call = client.nextAsync();
            server.peer().refuse(server.peer().ask(), 0x8011, 30_000);
            Set<?> paused = (Set<?>) inner(client, "fleet", "paused");
            Wait.until("it pauses", () -> paused.contains(call));
            tearNextFrame(client);
            assertThrows(NullPointerException.class, client::close);
            Wait.failure(XuidException.Closed.class, call);
        }
    }

    @Test
    void an_error_at_one_caller_keeps_no_other_from_giving_up_in_its_time() throws Exception {
        Duration patience = Duration.ofMillis(300);
        try (FakeServer server = new FakeServer(); XuidClient client = server.connect(server.options())) {
            Unlucky call = Unlucky.begin(client, patience);
            Call<Long> other = new Call<>(Request.next(0), patience.toNanos(), 0);
            ((Fleet) inner(client, "fleet")).start(other);
            // They give up in the same look.
            call.deadline = other.deadline;
            Wait.failure(XuidException.ConnectionLost.class, call);
            Wait.failure(XuidException.Timeout.class, other);
        }
    }

    @Test
    void an_error_in_the_look_for_calls_that_give_up_ends_the_connection() throws Exception {
        Duration patience = Duration.ofMillis(300);
        try (FakeServer server = new FakeServer();
                XuidClient client = server.connect(server.options().timeout(patience))) {
            Object watch = inner(client, "fleet", "link", "watch");
            Field ping = watch.getClass().getDeclaredField("ping");
            ping.setAccessible(true);
            // What the look sends half way is an error of the client's own.
            ping.set(watch, null);
            var call = client.nextAsync();
            Wait.failure(XuidException.ConnectionLost.class, call);
        }
    }

    @Test
    void an_error_at_the_end_of_a_dial_keeps_no_caller_waiting() throws Exception {
        try (FakeServer server = new FakeServer();
                XuidClient client = server.connect(server.options().timeout(Duration.ofMinutes(5)))) {
            Object fleet = inner(client, "fleet");
            Field parked = fleet.getClass().getDeclaredField("parked");
            parked.setAccessible(true);
            // No memory for a list of those that wait.
            parked.set(fleet, new java.util.ArrayDeque<Call<?>>() {
                private boolean hasThrown;

                @Override
                public Object[] toArray() {
                    if (!isEmpty() && !hasThrown) {
                        hasThrown = true;
                        throw new OutOfMemoryError("of a test");
                    }
                    return super.toArray();
                }
            });
            server.peer().close();
            Wait.until("the end was seen", () -> !client.isConnected());
            var call = client.nextAsync();
            FakeServer.Peer peer = server.greet();
            // It goes on here, or is told: it does not wait for the next dial, which may never come.
            Thread answering = new Thread(() -> {
                try {
                    peer.id(peer.expect(Op.NEXT), 7);
                } catch (IOException ended) {
                    // It was told.
                }
            });
            answering.setDaemon(true);
            answering.start();
            Wait.until("it is told", call::isDone);
        }
    }
}
