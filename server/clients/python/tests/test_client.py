"""Stories of calls, told by clients of threads and by clients of tasks, against servers in the hands of the test."""

import asyncio
import contextlib
import os
import socket
import ssl
import subprocess
import tempfile
import time
import unittest
from unittest import mock

import xuid_client
from xuid_client import (
    AsyncClient,
    Client,
    Closed,
    ConnectionLost,
    ProtocolError,
    Refused,
    Timeout,
    Tls,
    Unreachable,
    UsageError,
    WrongCluster,
    fleet,
    wire,
)

from . import frames
from .fake import PATIENCE, Blocking, Stories, until

OTHER = bytes([0xEE]) * 16


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


class Several:
    """Several servers."""

    def both(self, **options):
        """A client of two servers, and where it is connected first."""
        fakes = [self.fake(), self.fake()]
        client = self.client([fake.address for fake in fakes], **options)
        connecting = self.begin(client.connect)
        peers = [fake.greet() for fake in fakes]
        connecting.result(PATIENCE)
        home = [fake.address for fake in fakes].index(client.served.server)
        return client, fakes, peers, home

    def test_servers_of_two_clusters_are_refused_and_both_are_shown(self):
        mills = [self.mill(), self.mill(cluster=OTHER)]
        client = self.client([mill.address for mill in mills])
        with self.assertRaises(WrongCluster) as raised:
            client.next()
        for cluster in (frames.CLUSTER, OTHER):
            self.assertIn(cluster.hex(), str(raised.exception))
        self.assertEqual([mill.answered for mill in mills], [0, 0])

    def test_a_server_of_another_cluster_than_the_option_says_is_refused(self):
        mill = self.mill(cluster=OTHER)
        client = self.client(mill.address, cluster=frames.CLUSTER.hex())
        with self.assertRaises(WrongCluster) as raised:
            client.next()
        self.assertIn(OTHER.hex(), str(raised.exception))
        self.assertIn(frames.CLUSTER.hex(), str(raised.exception))

    def test_a_server_that_changed_its_cluster_is_refused_after_a_loss(self):
        fake = self.fake()
        client, peer = self.pair(fake)
        peer.close()
        until(lambda: not client.is_connected)
        fake.cluster = OTHER
        calling = self.begin(client.next)
        fake.greet()
        with self.assertRaises(WrongCluster):
            calling.result(PATIENCE)

    def test_a_lost_server_is_left_for_the_other_one(self):
        client, fakes, peers, home = self.both(retry_for=PATIENCE)
        calling = self.begin(client.next)
        peers[home].asks(wire.NEXT)
        fakes[home].close()
        peers[home].close()
        fakes[1 - home].greet().answer(6)
        self.assertEqual(calling.result(PATIENCE), 6)

    def test_one_of_two_servers_is_enough_to_begin_with(self):
        mill = self.mill()
        with socket.create_server(("127.0.0.1", 0)) as free:
            gone = "{}:{}".format(*free.getsockname())
        for _ in range(4):
            client = self.client([gone, mill.address])
            self.assertGreater(client.next(), 0)

    def test_a_server_that_lacks_something_of_its_own_is_left_and_its_calls_in_flight_are_finished(self):
        for status in (0x8010, 0x8013, 0x8014, 0x8015, 0x8016, 0x8017):
            client, fakes, peers, home = self.both()
            slow, calling = self.begin(client.array, 5), self.begin(client.next)
            asked = {request.op: request for request in (peers[home].asked(), peers[home].asked())}
            peers[home].send(frames.error(wire.NEXT, asked[wire.NEXT].request_id, status))
            with self.assertRaises(Refused):
                calling.result(PATIENCE)
            elsewhere = self.begin(client.next)
            fakes[1 - home].greet().answer(6)
            self.assertEqual(elsewhere.result(PATIENCE), 6)
            peers[home].send(frames.ids(wire.ARRAY, asked[wire.ARRAY].request_id, [1, 2, 3, 4, 5]))
            self.assertEqual(slow.result(PATIENCE), [1, 2, 3, 4, 5])

    def test_a_busy_server_is_stayed_with(self):
        client, fakes, peers, home = self.both()
        calling = self.begin(client.next)
        asked = peers[home].asks(wire.NEXT)
        peers[home].send(frames.error(wire.NEXT, asked.request_id, 0x8011))
        with self.assertRaises(Refused):
            calling.result(PATIENCE)
        calling = self.begin(client.next)
        peers[home].answer(3)
        self.assertEqual(calling.result(PATIENCE), 3)

    def test_a_silent_server_is_left_for_the_other_one(self):
        client, fakes, peers, home = self.both(timeout=0.2)
        calling = self.begin(client.next)
        peers[home].asks(wire.NEXT)
        with self.assertRaises(Timeout):
            calling.result(PATIENCE)
        calling = self.begin(client.next)
        fakes[1 - home].greet().answer(3)
        self.assertEqual(calling.result(PATIENCE), 3)

    def test_clients_spread_over_the_servers(self):
        mills = [self.mill(), self.mill()]
        for _ in range(40):
            client = self.client([mill.address for mill in mills])
            client.next()
            if all(mill.answered for mill in mills):
                return
        self.fail("40 clients began at the same server")

    def test_a_client_comes_back_to_its_first_choice_and_finishes_on_the_other_one(self):
        with mock.patch.object(fleet, "COMEBACK", 0.05):
            client, fakes, peers, home = self.both(retry_for=PATIENCE)
            peers[home].close()
            until(lambda: not client.is_connected)
            slow = self.begin(client.next)
            away = fakes[1 - home].greet()
            asked = away.asks(wire.NEXT)
            back = None
            while back is None:
                # Each call may be the one that goes and looks.
                calling = self.begin(client.ping)
                ping = away.asks(wire.PING)
                away.send(frames.reply(wire.PING, ping.request_id, b""))
                calling.result(PATIENCE)
                fakes[home]._listener.settimeout(0.05)
                with contextlib.suppress(socket.timeout):
                    back = fakes[home].greet()
            until(lambda: client.served.server == fakes[home].address)
            calling = self.begin(client.next)
            back.answer(11)
            self.assertEqual(calling.result(PATIENCE), 11)
            away.send(frames.number(wire.NEXT, asked.request_id, 10))
            self.assertEqual(slow.result(PATIENCE), 10)
            away.is_closed()


class Secured:
    """TLS, with certificates that openssl makes."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.cert, cls.key = os.path.join(folder.name, "cert.pem"), os.path.join(folder.name, "key.pem")
        make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=ids.example"]
        make += ["-addext", "subjectAltName=DNS:ids.example", "-keyout", cls.key, "-out", cls.cert]
        try:
            subprocess.run(make, check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError) as wrong:
            raise unittest.SkipTest(f"openssl makes no certificate: {wrong}") from None

    def secured(self, fake, **asks):
        """The other end of the next connection, within TLS."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.cert, self.key)
        if asks:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(self.cert)
        peer = fake.accept()
        with contextlib.suppress(ssl.SSLError, OSError):
            peer.sock = context.wrap_socket(peer.sock, server_side=True)
            peer.sock.settimeout(PATIENCE)
            peer.send(frames.welcome(peer.hello().request_id))
        return peer

    def test_calls_go_through_tls_whatever_their_length(self):
        fake = self.fake()
        tls = Tls(ca=self.cert, cert=self.cert, key=self.key, server_name="ids.example")
        client = self.client(fake.address, tls=tls)
        connecting = self.begin(client.connect)
        peer = self.secured(fake, asks=True)
        connecting.result(PATIENCE)
        calling = self.begin(client.array, 100_000)
        asked = peer.asks(wire.ARRAY)
        peer.send(frames.ids(wire.ARRAY, asked.request_id, list(range(100_000))))
        self.assertEqual(calling.result(PATIENCE), list(range(100_000)))
        calling = self.begin(client.next)
        peer.asks(wire.NEXT)
        peer.close()
        with self.assertRaises(ConnectionLost):
            calling.result(PATIENCE)

    def test_a_server_under_another_name_is_refused_for_good(self):
        fake = self.fake()
        client = self.client(fake.address, tls=Tls(ca=self.cert, server_name="other.example"))
        connecting = self.begin(client.connect)
        self.secured(fake)
        with self.assertRaises(Unreachable) as raised:
            connecting.result(PATIENCE)
        self.assertFalse(raised.exception.retryable)

    def test_a_server_that_asks_for_a_certificate_refuses_a_client_without_one(self):
        fake = self.fake()
        client = self.client(fake.address, tls=Tls(ca=self.cert, server_name="ids.example"))
        connecting = self.begin(client.connect)
        self.secured(fake, asks=True)
        with self.assertRaises((Unreachable, ConnectionLost)):
            connecting.result(PATIENCE)

    def test_a_server_without_tls_is_told_apart(self):
        fake = self.fake()
        client = self.client(fake.address, tls=Tls(ca=self.cert))
        connecting = self.begin(client.connect)
        peer = fake.accept()
        peer.sock.recv(1)
        peer.send(b"\x15\x03\x03\x00\x02\x02\x28")
        with self.assertRaises(Unreachable) as raised:
            connecting.result(PATIENCE)
        self.assertFalse(raised.exception.retryable)


class CallsOfThreads(Calls, Stories):
    kind = Client


class CallsOfTasks(Calls, Stories):
    kind = Blocking


class RetryingThreads(Retrying, Stories):
    kind = Client


class RetryingTasks(Retrying, Stories):
    kind = Blocking


class LeavingThreads(Leaving, Stories):
    kind = Client


class LeavingTasks(Leaving, Stories):
    kind = Blocking


class SeveralForThreads(Several, Stories):
    kind = Client


class SeveralForTasks(Several, Stories):
    kind = Blocking


class SecuredThreads(Secured, Stories):
    kind = Client


class SecuredTasks(Secured, Stories):
    kind = Blocking


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

    def test_a_task_that_is_cancelled_while_it_connects_leaves_the_next_one_to_connect(self):
        fake = self.fake()
        client = self.client(fake.address)

        async def cancel():
            first = asyncio.ensure_future(client.client.next())
            peer = await asyncio.get_running_loop().run_in_executor(None, fake.accept)
            first.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await first
            return peer

        client.in_loop(cancel()).is_closed()
        calling = self.begin(client.next)
        fake.greet().answer(5)
        self.assertEqual(calling.result(PATIENCE), 5)

    def test_a_client_goes_on_in_another_event_loop(self):
        mill = self.mill()
        client = AsyncClient(mill.address)

        async def twice():
            return [await client.next(), await client.next()]

        self.assertEqual(asyncio.run(twice()) + asyncio.run(twice()), [1, 2, 3, 4])


class Options(unittest.TestCase):
    def test_what_cannot_be_is_refused_when_the_client_is_made(self):
        wrong = [
            {"servers": []},
            {"servers": ""},
            {"servers": "host:port"},
            {"servers": "host:0"},
            {"servers": "::1"},
            {"servers": "a,b:99999"},
            {"cluster": "12"},
            {"cluster": "zz" * 16},
            {"timeout": 0},
            {"connect_timeout": -1},
            {"retry_for": -1},
            {"max_in_flight": 0},
            {"token": "x" * 256},
            {"client_name": "x" * 256},
            {"tls": Tls(ca="/does/not/exist.pem")},
            {"tls": Tls(key="key.pem")},
        ]
        for options in wrong:
            for kind in (Client, AsyncClient):
                with self.subTest(**options), self.assertRaises(UsageError):
                    kind(**options)

    def test_addresses_are_a_list_or_one_text(self):
        for given in ("a:1, [::1]:2 ,c", ["a:1", "[::1]:2", "c", "a:1"]):
            self.assertEqual(Client(given)._fleet.options.servers, ("a:1", "[::1]:2", "c"))
        self.assertEqual([xuid_client.options.split(server) for server in ("[::1]", "c")], [("::1", 7654), ("c", 7654)])

    def test_the_environment_names_servers_and_token_where_nothing_is_said(self):
        with mock.patch.dict(os.environ, {"XUID_SERVER": "ids:1,ids2:2", "XUID_TOKEN": "s3cret"}):
            said = Client()._fleet.options
            self.assertEqual((said.servers, said.token), (("ids:1", "ids2:2"), b"s3cret"))
            self.assertEqual(Client("other:1")._fleet.options.token, b"", "a token is no other server's business")
        with mock.patch.dict(os.environ, clear=True):
            self.assertEqual(Client()._fleet.options.servers, ("127.0.0.1:7654",))

    def test_nothing_is_known_of_a_server_before_the_first_connection(self):
        with self.assertRaises(UsageError):
            self.fail(Client("a:1").layout)


if __name__ == "__main__":
    unittest.main()
