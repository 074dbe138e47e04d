"""Stories of calls, told by clients of threads and by clients of tasks, against servers in the hands of the test."""

import asyncio
import contextlib
import itertools
import socket
import threading
import time
import unittest
from unittest import mock

from xuid_client import (
    AsyncClient,
    Client,
    Closed,
    ConnectionLost,
    ProtocolError,
    Refused,
    Timeout,
    Unreachable,
    UsageError,
    XuidError,
    wire,
)
from xuid_client.link.tasks import Tasks
from xuid_client.link.threads import run

from .support import frames
from .support.fake import PATIENCE, Blocking, Stories, until


class Calls:
    """One server."""

    def test_every_call_asks_for_what_it_says_and_returns_what_came(self):
        client, peer = self.pair(self.fake())
        calls = [
            (lambda: client.next("fresh"), {"order": 1}, lambda op, i: frames.number(op, i, 5), 5),
            (
                lambda: client.array(2, "ordered", wait=1),
                {"count": 2, "wait_ms": 1_000, "order": 2},
                lambda op, i: frames.ids(op, i, [8, 9]),
                [8, 9],
            ),
            (
                lambda: client.runs(3),
                {"count": 3, "wait_ms": 50, "order": 0},
                lambda op, i: frames.runs(op, i, [(8, 2, 3), (20, 1, 0)]),
                [(8, 2, 3), (20, 1, 0)],
            ),
            (lambda: client.decode(77), {"id": "77"}, lambda op, i: frames.reply(op, i, bytes(16)), (0, 0, 0)),
            (lambda: client.info(), {}, lambda op, i: frames.reply(op, i, b'{"version":"1"}'), {"version": "1"}),
            (lambda: client.stats(), {}, lambda op, i: frames.reply(op, i, b"{}"), {}),
            (lambda: client.ping(b"there?"), {"bytes": "there?"}, lambda op, i: frames.reply(op, i, b"there?"), None),
            (
                lambda: client.sequences("o", "a", 5),
                {"limit": 5, "prefix": "o", "after": "a"},
                lambda op, i: frames.reply(op, i, b"[]"),
                [],
            ),
        ]
        for call, fields, answer, expected in calls:
            calling = self.begin(call)
            asked = peer.asked()
            self.assertEqual(asked.fields, fields)
            peer.send(answer(asked.op, asked.request_id))
            self.assertEqual(calling.result(PATIENCE), expected)

    def test_a_sequence_asks_by_its_name(self):
        client, peer = self.pair(self.fake())
        orders = client.sequence("orders")
        bulk = {"count": 3, "wait_ms": 50, "order": 2, "name": "orders"}

        def call(make):
            return make() if isinstance(client, Client) else client.in_loop(make())

        def one_run(op, i):
            return frames.runs(op, i, [(10, 3, 4)])

        def described(op, i):
            return frames.reply(op, i, b'{"name":"orders","next":"1"}')

        info = {"name": "orders", "next": "1"}
        calls = [
            (orders.next, {"name": "orders"}, lambda op, i: frames.number(op, i, 5), 5),
            (lambda: orders.array(3), bulk, lambda op, i: frames.ids(op, i, [7, 8, 9]), [7, 8, 9]),
            (lambda: orders.runs(3), {**bulk, "contiguous": False}, one_run, [(10, 3, 4)]),
            (lambda: orders.contiguous(3), {**bulk, "contiguous": True}, one_run, (10, 3, 4)),
            (lambda: orders.array(3, "any"), {**bulk, "order": 0}, lambda op, i: frames.ids(op, i, [1, 2, 3]), [1, 2, 3]),
            (orders.info, {"name": "orders"}, described, info),
            (orders.create, {"name": "orders", "json": ""}, described, info),
            (
                lambda: orders.create({"start": 5}, strict=True),
                {"name": "orders", "json": '{"start":"5","strict":true}'},
                described,
                info,
            ),
            (lambda: orders.alter(last="retired"), {"name": "orders", "json": '{"last":"retired"}'}, described, info),
        ]
        for make, fields, answer, expected in calls:
            calling = self.begin(call, make)
            asked = peer.asked()
            self.assertEqual(asked.fields, fields)
            peer.send(answer(asked.op, asked.request_id))
            self.assertEqual(calling.result(PATIENCE), expected)
        with self.assertRaises(UsageError):
            client.sequence("@any")

    def test_many_callers_share_one_connection_and_replies_come_in_any_order(self):
        fake = self.fake()
        client, peer = self.pair(fake)
        calling = [self.begin(client.next) for _ in range(16)]
        asked = [peer.asks(wire.NEXT) for _ in calling]
        for at, request in enumerate(reversed(asked)):
            peer.send(frames.number(wire.NEXT, request.request_id, 1_000 + at))
        self.assertEqual({call.result(PATIENCE) for call in calling}, set(range(1_000, 1_016)))
        self.assertFalse(fake.has_caller())

    def test_hello_carries_token_name_and_cluster(self):
        fake = self.fake()
        client = self.kind(fake.address, token="s3cret", client_name="billing", cluster=frames.CLUSTER.hex().upper())
        self.addCleanup(client.stop if isinstance(client, Blocking) else client._fleet.end)
        connecting = self.begin(client.connect)
        peer = fake.accept()
        hello = peer.hello()
        self.assertEqual(
            (hello.fields["token"], hello.fields["client"], hello.fields["cluster"]),
            ("s3cret", "billing", frames.CLUSTER.hex()),
        )
        peer.send(frames.welcome(hello.request_id))
        connecting.result(PATIENCE)
        self.assertNotIn("s3cret", repr(client.client if isinstance(client, Blocking) else client))
        self.assertEqual(client.served.cluster, frames.CLUSTER.hex())
        self.assertEqual(client.time_of(1_128_275_363_336_683_521), (1_793_155_408_962, 32, 1))

    def test_a_refusal_is_told_and_the_connection_goes_on(self):
        client, peer = self.pair(self.fake())
        calling = self.begin(client.array, 0)
        asked_count = peer._inbox  # The fake refuses a count of 0 by itself, so the bytes are read by hand.
        while len(asked_count) < wire.HEADER_LEN:
            peer._more()
            asked_count = peer._inbox
        request_id = wire.header(asked_count).request_id
        peer._inbox = b""
        peer.send(frames.error(wire.ARRAY, request_id, 5, text="a count of 0"))
        with self.assertRaises(Refused) as raised:
            calling.result(PATIENCE)
        self.assertEqual((raised.exception.name, raised.exception.retryable), ("COUNT", False))
        calling = self.begin(client.next)
        peer.answer(7)
        self.assertEqual(calling.result(PATIENCE), 7)

    def test_lies_end_the_connection_and_never_an_id(self):
        lies = [
            lambda asked: frames.number(wire.SEQ_NEXT, asked.request_id, 1),
            lambda asked: frames.number(wire.NEXT, asked.request_id + 9, 1),
            lambda asked: frames.number(wire.NEXT, asked.request_id, 1 << 63),
            lambda asked: wire._HEADER.pack(wire.REPLY_ROOM + 1, wire.NEXT | 0x80, 0, 0, asked.request_id),
        ]
        fake = self.fake()
        client, peer = self.pair(fake)
        for lie in lies:
            calling = self.begin(client.next)
            peer.send(lie(peer.asks(wire.NEXT)))
            with self.assertRaises(ProtocolError):
                calling.result(PATIENCE)
            peer.is_closed()
            calling = self.begin(client.next)
            peer = fake.greet()
            peer.answer(3)
            self.assertEqual(calling.result(PATIENCE), 3)

    def test_a_server_that_closes_in_the_middle_of_a_reply_is_a_lost_connection(self):
        client, peer = self.pair(self.fake())
        calling = [self.begin(client.next), self.begin(client.next)]
        asked = [peer.asks(wire.NEXT) for _ in calling]
        peer.send(frames.number(wire.NEXT, asked[0].request_id, 1)[:20])
        peer.close()
        for call in calling:
            with self.assertRaises(ConnectionLost):
                call.result(PATIENCE)

    def test_a_call_that_gives_up_ends_alone(self):
        client, peer = self.pair(self.fake(), timeout=0.3)
        calling = self.begin(client.next)
        late = peer.asks(wire.NEXT)
        ping = peer.asks(wire.PING)
        peer.send(frames.reply(wire.PING, ping.request_id, b""))
        with self.assertRaises(Timeout):
            calling.result(PATIENCE)
        calling = self.begin(client.next)
        asked = peer.asks(wire.NEXT)
        peer.send(frames.number(wire.NEXT, late.request_id, 1) + frames.number(wire.NEXT, asked.request_id, 2))
        self.assertEqual(calling.result(PATIENCE), 2)

    def test_a_link_that_is_silent_to_a_ping_as_well_ends(self):
        client, peer = self.pair(self.fake(), timeout=0.2)
        begin = time.monotonic()
        calling = self.begin(client.array, 5, "any", 0.0)
        peer.asks(wire.ARRAY)
        peer.asks(wire.PING)
        with self.assertRaises(Timeout):
            calling.result(PATIENCE)
        peer.is_closed()
        self.assertGreaterEqual(time.monotonic() - begin, 0.2)

    def test_a_server_that_does_not_answer_hello_is_given_up(self):
        fake = self.fake()
        client = self.client(fake.address, connect_timeout=0.1)
        with self.assertRaises(Unreachable):
            client.connect()

    def test_a_refused_connection_is_unreachable_and_tried_once(self):
        with socket.create_server(("127.0.0.1", 0)) as free:
            address = "{}:{}".format(*free.getsockname())
        client = self.client(address)
        with self.assertRaises(Unreachable) as raised:
            client.connect()
        self.assertIn(address, str(raised.exception))

    def test_a_server_that_speaks_something_else_is_shown(self):
        fake = self.fake()
        client = self.client(fake.address)
        connecting = self.begin(client.connect)
        peer = fake.accept()
        peer.send(b"this port speaks RESP\r\n")
        with self.assertRaises(ProtocolError) as raised:
            connecting.result(PATIENCE)
        self.assertIn("this port speaks RESP", str(raised.exception))

    def test_close_says_goodbye_and_tells_those_that_wait(self):
        client, peer = self.pair(self.fake())
        calling = self.begin(client.next)
        peer.asks(wire.NEXT)
        closing = self.begin(client.close)
        bye = peer.asks(wire.BYE)
        peer.send(frames.reply(wire.BYE, bye.request_id, b""))
        closing.result(PATIENCE)
        with self.assertRaises(Closed):
            calling.result(PATIENCE)
        with self.assertRaises(Closed):
            client.next()
        with self.assertRaises(Closed):
            client.prefetch()
        peer.is_closed()

    def test_more_callers_than_the_bound_wait_their_turn(self):
        client, peer = self.pair(self.fake(), max_in_flight=2)
        calling = [self.begin(client.next) for _ in range(5)]
        asked = [peer.asks(wire.NEXT), peer.asks(wire.NEXT)]
        self.assertTrue(peer.is_quiet(0.05))
        for at in range(5):
            peer.send(frames.number(wire.NEXT, asked.pop(0).request_id, at))
            if at < 3:
                asked.append(peer.asks(wire.NEXT))
        self.assertEqual({call.result(PATIENCE) for call in calling}, set(range(5)))

    def test_requests_that_the_socket_does_not_take_are_written_when_it_does(self):
        # A look at the silence would write as well, but not so soon.
        client, peer = self.pair(self.fake(receives=4_096), timeout=10 * PATIENCE)
        link = client._fleet._link
        if isinstance(client, Client):
            link._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
        text = {"description": "x" * 3_900}

        def create(at):
            made = client.sequence(f"name{at}").create(text)
            return made if isinstance(client, Client) else client.in_loop(made)

        calling = [self.begin(create, at) for at in range(12)]
        if isinstance(client, Client):
            until(lambda: link._unsent, "a socket that is full")
        # No reply wakes the link before all of them are here.
        for asked in [peer.asks(wire.SEQ_CREATE) for _ in calling]:
            peer.send(frames.reply(asked.op, asked.request_id, b"{}"))
        self.assertEqual([call.result(PATIENCE) for call in calling], [{}] * len(calling))


class Retrying:
    def test_bit_15_and_nothing_else_is_tried_again(self):
        client, peer = self.pair(self.fake(), retry_for=PATIENCE)
        calling = self.begin(client.next)
        for status in (0x8011, 0x8012, 0x801A, 0x80FF):
            asked = peer.asks(wire.NEXT)
            peer.send(frames.error(wire.NEXT, asked.request_id, status, 1))
        peer.answer(9)
        self.assertEqual(calling.result(PATIENCE), 9)
        calling = self.begin(client.next)
        asked = peer.asks(wire.NEXT)
        peer.send(frames.error(wire.NEXT, asked.request_id, 0x0008, 1))
        with self.assertRaises(Refused):
            calling.result(PATIENCE)

    def test_a_caller_sees_each_error_where_it_asks_for_no_retries(self):
        client, peer = self.pair(self.fake())
        calling = self.begin(client.next)
        asked = peer.asks(wire.NEXT)
        peer.send(frames.error(wire.NEXT, asked.request_id, 0x8011))
        with self.assertRaises(Refused):
            calling.result(PATIENCE)

    def test_the_servers_pause_is_honoured_and_retries_end_in_time(self):
        client, peer = self.pair(self.fake(), retry_for=PATIENCE)
        begin = time.monotonic()
        calling = self.begin(client.next)
        asked = peer.asks(wire.NEXT)
        peer.send(frames.error(wire.NEXT, asked.request_id, 0x8011, 200))
        asked = peer.asks(wire.NEXT)
        self.assertGreaterEqual(time.monotonic() - begin, 0.2)
        # A pause beyond the time for retries is not begun.
        peer.send(frames.error(wire.NEXT, asked.request_id, 0x8011, 50_000))
        with self.assertRaises(Refused):
            calling.result(PATIENCE / 2)

    def test_a_close_ends_a_pause_between_two_repeats(self):
        client, peer = self.pair(self.fake(), retry_for=120.0)
        ids, others = client.prefetch(), threading.enumerate()

        async def drawn():
            return ids.try_next()

        calling = self.begin(client.next)
        asked = peer.asks(wire.NEXT)
        peer.send(frames.error(wire.NEXT, asked.request_id, 0x8011, 60_000))
        self.begin(client.in_loop, drawn()) if isinstance(client, Blocking) else self.begin(ids.try_next)
        asked = peer.asks(wire.RUNS)
        peer.send(frames.error(wire.RUNS, asked.request_id, 0x8011, 60_000))
        until(lambda: ids._source._pool.failure)
        refills = [thread for thread in threading.enumerate() if thread.name == "xuid-prefetch" and thread not in others]
        # So that both have begun to pause.
        time.sleep(0.1)
        closing = self.begin(client.close)
        bye = peer.asks(wire.BYE)
        peer.send(frames.reply(wire.BYE, bye.request_id, b""))
        closing.result(PATIENCE)
        with self.assertRaises(Closed):
            calling.result(PATIENCE / 4)
        for refill in refills:
            refill.join(PATIENCE / 4)
            self.assertFalse(refill.is_alive())

    def test_a_close_ends_a_pause_and_what_is_held_at_once_though_its_bye_is_answered_late(self):
        client, peer = self.pair(self.fake(), retry_for=120.0)
        ids = client.prefetch()
        calling = self.begin(client.next)
        asked = peer.asks(wire.NEXT)
        peer.send(frames.error(wire.NEXT, asked.request_id, 0x8011, 60_000))
        # So that it has begun to pause.
        time.sleep(0.1)
        closing = self.begin(client.close)
        bye = peer.asks(wire.BYE)
        with self.assertRaises(Closed):
            calling.result(PATIENCE / 4)
        with self.assertRaises(Closed):
            self.begin(client.next).result(PATIENCE / 4)
        self.assertTrue(ids._source._pool.closed)
        self.assertFalse(closing.done())
        peer.send(frames.reply(wire.BYE, bye.request_id, b""))
        closing.result(PATIENCE)

    def test_a_close_ends_the_search_for_a_server_with_the_try_of_now(self):
        fake = self.fake()
        client, peer = self.pair(fake, connect_timeout=0.5, timeout=PATIENCE)
        peer.close()
        until(lambda: not client.is_connected)
        begin = time.monotonic()
        calling = self.begin(client.next)
        fake.accept()
        client.close()
        with self.assertRaises(Closed):
            calling.result(PATIENCE)
        self.assertLess(time.monotonic() - begin, 2.5)

    def test_a_lost_connection_is_worth_a_retry(self):
        fake = self.fake()
        client, peer = self.pair(fake, retry_for=PATIENCE)
        calling = self.begin(client.next)
        peer.asks(wire.NEXT)
        peer.close()
        fake.greet().answer(4)
        self.assertEqual(calling.result(PATIENCE), 4)


class Leaving:
    def test_after_goaway_what_is_in_flight_is_finished_and_the_next_call_goes_elsewhere(self):
        fake = self.fake()
        client, peer = self.pair(fake)
        calling = self.begin(client.next)
        asked = peer.asks(wire.NEXT)
        peer.send(frames.goaway())
        until(lambda: not client.is_connected)
        elsewhere = self.begin(client.next)
        fake.greet().answer(2)
        self.assertEqual(elsewhere.result(PATIENCE), 2)
        peer.send(frames.number(wire.NEXT, asked.request_id, 1))
        self.assertEqual(calling.result(PATIENCE), 1)
        peer.is_closed()

    def test_a_request_that_crossed_goaway_is_repeated_elsewhere_at_once(self):
        fake = self.fake()
        client, peer = self.pair(fake)
        calling = self.begin(client.next)
        peer.asks(wire.NEXT)
        peer.send(frames.goaway())
        peer.close()
        fake.greet().answer(8)
        self.assertEqual(calling.result(PATIENCE), 8)

    def test_what_waits_for_long_is_asked_for_elsewhere_with_its_time_to_dial(self):
        for is_killed in (True, False):
            fake = self.fake()
            client, peer = self.pair(fake, timeout=1.5)
            waiting = self.begin(client.array, 1, wait=60)
            peer.asks(wire.ARRAY)
            if is_killed:
                time.sleep(2.0)
            # Where the server only falls silent, this one is due first, and the silence ends the connection.
            crossing = self.begin(client.next)
            peer.asks(wire.NEXT)
            peer.send(frames.goaway())
            if is_killed:
                peer.close()
            other = fake.greet()
            for _ in range(2 if is_killed else 1):
                asked = other.asked()
                if asked.op == wire.NEXT:
                    other.send(frames.number(wire.NEXT, asked.request_id, 4))
                else:
                    other.send(frames.ids(wire.ARRAY, asked.request_id, [5]))
            self.assertEqual(list(waiting.result(PATIENCE)), [5])
            if is_killed:
                self.assertEqual(crossing.result(PATIENCE), 4)
            else:
                self.assertIsInstance(crossing.exception(PATIENCE), Timeout)

    def test_a_call_with_little_time_left_leaves_those_that_share_its_search_theirs(self):
        fake = self.fake()
        client, peer = self.pair(fake, timeout=2.0)
        oldest = self.begin(client.next)
        peer.asks(wire.NEXT)
        time.sleep(1.7)
        peer.send(frames.goaway())
        peer.close()
        until(lambda: not client.is_connected)
        time.sleep(0.05)
        calling = self.begin(client.next)
        self.assertIsInstance(oldest.exception(PATIENCE), Timeout)
        time.sleep(0.3)
        fake.greet().answer(6)
        self.assertEqual(calling.result(PATIENCE), 6)


class CallsOfThreads(Calls, Stories):
    kind = Client

    def test_a_call_whose_time_ends_as_its_connection_does_is_told_at_once(self):
        client, peer = self.pair(self.fake())
        link = client._fleet._link
        sleep, turn, looks = link._sleep, link._turn, []

        def sleeps():
            looks[:] = sleep()
            return list(looks)

        def ends():
            if not looks:
                return turn()
            raise ConnectionLost("a server", "it ended")

        link._sleep, link._turn = sleeps, ends
        begin = time.monotonic()
        with self.assertRaises(XuidError):
            run(link.exchange(wire.next_id("any"), begin + 0.1))
        self.assertLess(time.monotonic() - begin, 0.6)


class CallsOfTasks(Calls, Stories):
    kind = Blocking

    def test_replies_that_came_while_the_process_was_stopped_beyond_its_times_count(self):
        fake = self.fake()
        client, peer = self.pair(fake, timeout=0.5)

        async def calls():
            selector = asyncio.get_running_loop()._selector
            select = selector.select

            def goes_on(timeout):
                # Of the first look behind a stop, in whose time all others are over, the system tells nothing.
                selector.select = select
                asked = peer.asks(wire.NEXT)
                peer.send(frames.reply(wire.PING, peer.asked().request_id, b""))
                peer.send(frames.number(wire.NEXT, asked.request_id, 5))
                time.sleep(0.6)
                return []

            waits = asyncio.ensure_future(client.client.array(1, wait=30))
            call = asyncio.ensure_future(client.client.next())
            # Half of the time is over, and the server was asked whether it is there.
            await asyncio.sleep(0.35)
            waiting = peer.asks(wire.ARRAY)
            selector.select = goes_on
            number = await call
            peer.send(frames.ids(wire.ARRAY, waiting.request_id, [6]))
            return number, list(await waits)

        self.assertEqual(client.in_loop(calls()), (5, [6]))

    def test_a_time_that_is_over_is_taken_for_over_though_a_little_comes_all_the_time(self):
        client, _ = self.pair(self.fake())

        async def reads():
            link, over = client.client._fleet._link, asyncio.Event()
            begin = time.monotonic()
            link._read_up(over.set)
            while not over.is_set():
                link.data_received(b"")
                await asyncio.sleep(0)
            return time.monotonic() - begin

        self.assertLess(client.in_loop(reads()), 0.5)

    def test_a_time_is_not_over_while_much_comes_in_whatever_pieces_and_is_looked_at_once(self):
        client, _ = self.pair(self.fake())

        async def turns(pieces, size):
            link, over = client.client._fleet._link, []
            # The head of a reply that never ends: what comes behind it is a part of that.
            link._conversation.receive = lambda data, now: None
            link._read_up(lambda: over.append(True))
            for turn in itertools.count():
                if over:
                    return turn
                if turn < 6:
                    for _ in range(pieces):
                        link.data_received(bytes(size))
                await asyncio.sleep(0)

        for pieces, size in ((1, 262_144), (16, 16_384), (1, 65_448)):
            self.assertGreater(client.in_loop(turns(pieces, size)), 6, (pieces, size))

        async def looks():
            link, begun = client.client._fleet._link, []
            link._read_up = begun.append
            # Something is due since long, and other calls are written meanwhile.
            link._conversation.look_at = 0.0
            for _ in range(3):
                link._flush()
                await asyncio.sleep(0.01)
            return len(begun)

        self.assertEqual(client.in_loop(looks()), 1)


class RetryingThreads(Retrying, Stories):
    kind = Client


class RetryingTasks(Retrying, Stories):
    kind = Blocking


class LeavingThreads(Leaving, Stories):
    kind = Client


class LeavingTasks(Leaving, Stories):
    kind = Blocking

    def test_goaway_that_lies_unread_behind_a_time_without_a_word_is_seen_before_two_writes_end_the_connection(self):
        fake = self.fake()
        client, peer = self.pair(fake)
        time.sleep(0.15)

        async def asks_twice():
            loop, calls = asyncio.get_running_loop(), []

            def asks():
                calls.append(asyncio.ensure_future(client.client.next()))

            def leaves():
                peer.send(frames.goaway())
                peer.close()

            # The loop stands while it leaves, between the first call and its write; the second one follows behind that.
            loop.call_soon(lambda: loop.call_soon(leaves))
            asks()
            loop.call_soon(asks)
            while len(calls) < 2:
                await asyncio.sleep(0)
            return await asyncio.gather(*calls)

        calling = self.begin(client.in_loop, asks_twice())
        elsewhere = fake.greet()
        elsewhere.answer(1)
        elsewhere.answer(2)
        self.assertEqual(sorted(calling.result(PATIENCE)), [1, 2])


class Cancelled(Stories):
    kind = Blocking

    def test_a_task_that_is_cancelled_ends_alone(self):
        client, peer = self.pair(self.fake())

        async def cancel():
            first, second = (asyncio.ensure_future(client.client.next()) for _ in range(2))
            loop = asyncio.get_running_loop()
            asked = [await loop.run_in_executor(None, peer.asked) for _ in range(2)]
            first.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await first
            for at, request in enumerate(asked):
                peer.send(frames.number(wire.NEXT, request.request_id, at))
            return first.cancelled(), await second

        self.assertEqual(client.in_loop(cancel()), (True, 1))
        calling = self.begin(client.next)
        peer.answer(5)
        self.assertEqual(calling.result(PATIENCE), 5)

    def test_a_task_that_is_cancelled_while_it_connects_leaves_its_dial_to_the_next_one(self):
        fake = self.fake()
        client = self.client(fake.address)

        async def cancel():
            first = asyncio.ensure_future(client.client.next())
            peer = await asyncio.get_running_loop().run_in_executor(None, fake.accept)
            first.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await first
            return peer

        peer = client.in_loop(cancel())
        calling = self.begin(client.next)
        fake.welcome(peer)
        peer.answer(5)
        self.assertEqual(calling.result(PATIENCE), 5)

    def test_a_dial_that_a_stranger_cancels_is_begun_anew(self):
        fake = self.fake()
        client = self.client(fake.address)

        def serve():
            fake.greet().answer(5)

        async def cancel():
            loop = asyncio.get_running_loop()
            calling = asyncio.ensure_future(client.client.next())
            await loop.run_in_executor(None, fake.accept)
            for task in asyncio.all_tasks() - {asyncio.current_task(), calling}:
                task.cancel()
            await loop.run_in_executor(None, serve)
            return await calling

        self.assertEqual(client.in_loop(cancel()), 5)

    def test_a_task_that_is_cancelled_while_it_connects_leaves_the_dial_to_those_that_wait_for_it(self):
        fake = self.fake()
        client = self.client(fake.address)

        def serve(peer):
            fake.welcome(peer)
            peer.answer(5)

        async def cancel():
            loop = asyncio.get_running_loop()
            first, second = (asyncio.ensure_future(client.client.next()) for _ in range(2))
            peer = await loop.run_in_executor(None, fake.accept)
            first.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await first
            await loop.run_in_executor(None, serve, peer)
            return first.cancelled(), await second

        self.assertEqual(client.in_loop(cancel()), (True, 5))

    def test_tasks_with_less_patience_than_a_dial_takes_get_a_connection_all_the_same(self):
        fake = self.fake()
        client = self.client(fake.address)

        def serve():
            peer = fake.accept()
            hello = peer.hello()
            time.sleep(0.5)
            peer.send(frames.welcome(hello.request_id, fake.cluster))
            peer.answer(5)

        async def call():
            while True:
                with contextlib.suppress(asyncio.TimeoutError):
                    return await asyncio.wait_for(client.client.next(), 0.2)

        serving = self.begin(serve)
        calling = self.begin(lambda: client.in_loop(call()))
        serving.result(PATIENCE)
        self.assertEqual(calling.result(PATIENCE), 5)

    def test_a_cancel_that_comes_as_the_connection_stands_ends_its_task(self):
        fake = self.fake()
        client = self.client(fake.address)
        inner = Tasks._dial

        async def cancel():
            async def dialed(*args):
                link = await inner(*args)
                calling.cancel()
                return link

            with mock.patch.object(Tasks, "_dial", dialed):
                calling = asyncio.ensure_future(client.client.next())
                peer = await asyncio.get_running_loop().run_in_executor(None, fake.greet)
                await asyncio.wait({calling}, timeout=PATIENCE)
            return calling.cancelled(), peer

        was_cancelled, peer = client.in_loop(cancel())
        self.assertTrue(was_cancelled)
        calling = self.begin(client.next)
        peer.answer(5)
        self.assertEqual(calling.result(PATIENCE), 5)

    def test_a_client_goes_on_in_another_event_loop(self):
        mill = self.mill()
        client = AsyncClient(mill.address)

        async def twice():
            return [await client.next(), await client.next()]

        self.assertEqual(asyncio.run(twice()) + asyncio.run(twice()), [1, 2, 3, 4])


if __name__ == "__main__":
    unittest.main()
