"""Stories of calls to several servers of one cluster, or of two."""

import asyncio
import contextlib
import queue
import socket
import threading
import time
import unittest
from unittest import mock

from xuid_client import Client, Closed, ConnectionLost, Refused, Timeout, WrongCluster, XuidError, wire
from xuid_client.link import away, tasks

from .support import frames
from .support.fake import PATIENCE, Blocking, Stories, until
from .test_conversation import options

OTHER = bytes([0xEE]) * 16


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

    def test_a_close_ends_what_is_in_flight_on_a_server_that_was_left(self):
        client, fakes, peers, home = self.both()
        slow, calling = self.begin(client.array, 5, "any", 30.0), self.begin(client.next)
        asked = {request.op: request for request in (peers[home].asked(), peers[home].asked())}
        peers[home].send(frames.error(wire.NEXT, asked[wire.NEXT].request_id, 0x8010))
        with self.assertRaises(Refused):
            calling.result(PATIENCE)
        elsewhere = self.begin(client.next)
        away = fakes[1 - home].greet()
        away.answer(6)
        elsewhere.result(PATIENCE)
        closing = self.begin(client.close)
        bye = away.asks(wire.BYE)
        away.send(frames.reply(wire.BYE, bye.request_id, b""))
        closing.result(PATIENCE)
        with self.assertRaises(Closed):
            slow.result(PATIENCE / 2)
        peers[home].is_closed()

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

    def test_a_server_is_not_left_for_a_call_that_came_to_it_with_little_time_left(self):
        client, fakes, peers, home = self.both(timeout=2.0)
        calling = self.begin(client.next)
        peers[home].asks(wire.NEXT)
        time.sleep(1.7)
        peers[home].send(frames.goaway())
        peers[home].close()
        other = fakes[1 - home].greet()
        other.asks(wire.NEXT)
        self.assertIsInstance(calling.exception(PATIENCE), Timeout)
        self.assertTrue(client.is_connected)
        calling = self.begin(client.next)
        other.answer(6)
        self.assertEqual(calling.result(PATIENCE), 6)

    def test_a_connect_of_a_client_that_was_connected_passes_a_silent_server_and_so_do_those_that_share_its_search(self):
        client, fakes, peers, home = self.both(connect_timeout=0.5)
        peers[home].close()
        until(lambda: not client.is_connected)
        connecting = self.begin(client.connect)
        fakes[1 - home].accept()
        calling = self.begin(client.next)
        fakes[home].greet().answer(6)
        connecting.result(PATIENCE)
        self.assertEqual(calling.result(PATIENCE), 6)

    def test_a_server_that_is_silent_for_a_moment_is_not_left_for_one_that_was_not_there(self):
        client, fakes, peers, home = self.both(timeout=PATIENCE)
        # Nobody is there when it loses its server, and looks for another one.
        fakes[1 - home].close()
        peers[home].close()
        until(lambda: not client.is_connected)
        calling = self.begin(client.next)
        peer = fakes[home].greet()
        peer.answer(6)
        self.assertEqual(calling.result(PATIENCE), 6)
        ids = client.prefetch(max_age=0.1, wait=PATIENCE)
        self.begin(lambda: client.in_loop(ids.next()) if isinstance(client, Blocking) else next(ids))
        for _ in range(3):
            # Refills are given up.
            peer.asks(wire.RUNS)
        calling = self.begin(client.next)
        asked = peer.asked()
        while asked.op != wire.NEXT:
            asked = peer.asked()
        peer.send(frames.number(asked.op, asked.request_id, 7))
        self.assertEqual(calling.result(PATIENCE), 7)

    def refuses(self, client, peer, retry_after_ms=0):
        """A call is refused over this connection."""
        calling = self.begin(client.next)
        peer.send(frames.error(wire.NEXT, peer.asks(wire.NEXT).request_id, 0x8010, retry_after_ms))
        with self.assertRaises(Refused):
            calling.result(PATIENCE)

    def test_a_server_that_did_not_answer_at_the_connect_is_gone_to_for_no_silence_and_no_refusal(self):
        fakes = [self.fake(), self.fake()]
        client = self.client([fake.address for fake in fakes], timeout=PATIENCE)
        connecting = self.begin(client.connect)
        # The other one takes the connection, and says nothing.
        peer = fakes[0].greet()
        fakes[1].accept()
        connecting.result(PATIENCE)
        self.refuses(client, peer)
        self.assertTrue(client.is_connected)
        ids = client.prefetch(max_age=0.1, wait=PATIENCE)
        self.begin(lambda: client.in_loop(ids.next()) if isinstance(client, Blocking) else next(ids))
        for _ in range(3):
            # Refills are given up.
            peer.asks(wire.RUNS)
        self.assertTrue(client.is_connected)
        self.assertFalse(fakes[1].has_caller())

    def test_no_refusal_leads_again_soon_to_a_server_that_was_silent_for_long(self):
        client, fakes, peers, home = self.both(connect_timeout=1.0)
        self.refuses(client, peers[home], 1_000)
        until(lambda: not client.is_connected, "it is left once")
        calling = self.begin(client.next)
        silent = fakes[1 - home].accept()
        peer = fakes[home].greet()
        peer.answer(1)
        self.assertEqual(calling.result(PATIENCE), 1)
        silent.close()
        self.refuses(client, peer, 1_000)
        self.assertTrue(client.is_connected, "and not again at once")

    def test_a_dial_that_was_given_less_than_the_time_to_connect_tells_nothing_of_its_server(self):
        client, fakes, peers, home = self.both(timeout=0.3)
        fakes[home].close()
        peers[home].close()
        until(lambda: not client.is_connected)
        calling = self.begin(client.next)
        fakes[1 - home].accept()
        with self.assertRaises(XuidError):
            calling.result(PATIENCE)
        fleet = (client.client if isinstance(client, Blocking) else client)._fleet
        self.assertFalse(fleet._away.is_away(fakes[1 - home].address, time.monotonic()))

    def test_a_return_trip_in_vain_leaves_the_turn_to_the_others(self):
        client, fakes, peers, home = self.both(retry_for=PATIENCE, return_after=0.03)
        calling = self.begin(client.next)
        peers[home].asks(wire.NEXT)
        peers[home].close()
        other = fakes[1 - home].greet()
        other.answer(6)
        self.assertEqual(calling.result(PATIENCE), 6)
        fleet = (client.client if isinstance(client, Blocking) else client)._fleet
        turn = fleet._next
        time.sleep(0.05)
        calling = self.begin(client.next)
        other.answer(7)
        self.assertEqual(calling.result(PATIENCE), 7)
        # It is tried, and takes the connection.
        trip = fakes[home].accept()
        self.assertEqual(fleet._next, turn)
        trip.close()
        until(lambda: fleet._away.is_away(fakes[home].address, time.monotonic()), "it is noted")
        self.assertEqual(fleet._next, turn)

    def test_a_server_that_answers_others_is_not_left_for_a_call_that_it_does_not_answer(self):
        client, fakes, peers, home = self.both(timeout=0.6)
        late = self.begin(client.next)
        peers[home].asks(wire.NEXT)
        calling = self.begin(client.next)
        peers[home].answer(2)
        self.assertEqual(calling.result(PATIENCE), 2)
        ping = peers[home].asked()
        peers[home].send(frames.reply(wire.PING, ping.request_id, b""))
        with self.assertRaises(Timeout):
            late.result(PATIENCE)
        calling = self.begin(client.next)
        peers[home].answer(3)
        self.assertEqual(calling.result(PATIENCE), 3)

    def test_a_server_is_not_left_while_a_long_reply_comes(self):
        client, fakes, peers, home = self.both(timeout=0.6)
        late = self.begin(client.array, 5)
        asked = peers[home].asks(wire.ARRAY)
        reply = frames.ids(wire.ARRAY, asked.request_id, [1, 2, 3, 4, 5])
        for part in (reply[:30], reply[30:40]):
            peers[home].send(part)
            time.sleep(0.3)
        with self.assertRaises(Timeout):
            late.result(PATIENCE)
        peers[home].send(reply[40:])
        calling = self.begin(client.next)
        peers[home].answer(3)
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
        client, fakes, peers, home = self.both(retry_for=PATIENCE, return_after=0.03)
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


class Slow:
    """A queue whose writers go on when the test says so."""

    def __init__(self, inner, goes_on):
        self._queue, self._goes_on = inner, goes_on
        self.get, self.get_nowait, self.empty = self._queue.get, self._queue.get_nowait, self._queue.empty

    def put(self, item):
        self._queue.put(item)
        self._goes_on.wait(PATIENCE)


class SeveralForThreads(Several, Stories):
    kind = Client

    def test_a_dial_that_ends_late_leaves_the_connection_in_use_alone(self):
        client = self.client([self.mill().address, self.mill().address])
        goes_on, others = threading.Event(), threading.enumerate()
        with mock.patch.object(queue, "SimpleQueue", lambda make=queue.SimpleQueue: Slow(make(), goes_on)):
            client.connect()
        link = client._fleet._link
        dials = [thread for thread in threading.enumerate() if thread.name == "xuid-dial" and thread not in others]
        self.assertEqual(len(dials), 2)
        goes_on.set()
        for thread in dials:
            thread.join(PATIENCE)
        self.assertGreater(client.next(), 0)
        self.assertIs(client._fleet._link, link)


    def test_a_server_whose_name_is_looked_up_for_long_is_passed_for_another_one(self):
        mill, over, inner = self.mill(), threading.Event(), socket.getaddrinfo
        self.addCleanup(over.set)
        client = self.client(["ids.test:1", mill.address], connect_timeout=0.2, timeout=4.0)

        def looks_up(host, *args, **named):
            if host == "ids.test":
                over.wait(PATIENCE)
            return inner("127.0.0.1" if host == "ids.test" else host, *args, **named)

        with mock.patch.object(socket, "getaddrinfo", looks_up):
            client.connect()
            # As after a loss, where the turn is the other one's.
            client._fleet._link.end(ConnectionLost("a:1"))
            until(lambda: not client.is_connected)
            client._fleet._next = 0
            client._fleet._away.clear("ids.test:1")
            self.assertGreater(client.next(), 0)


class WhoIsAway(unittest.TestCase):
    """By the clock of the test."""

    def noted(self, took):
        found = away.Away()
        with mock.patch.object(time, "monotonic", return_value=took):
            found.note("a:1", 0.0)
        return found

    def test_a_server_is_away_until_it_is_there_or_nobody_looked_for_long(self):
        found = self.noted(1.0)
        self.assertTrue(found.is_away("a:1", 30.9))
        self.assertFalse(found.is_away("a:1", 31.0) or found.is_away("b:1", 1.0))
        found.clear("a:1")
        self.assertFalse(found.is_away("a:1", 1.0) or found.costs("a:1", 1.0))

    def test_one_that_is_silent_is_dialed_less_often_than_one_that_refuses_at_once(self):
        self.assertFalse(self.noted(0.001).costs("a:1", 0.1))
        for took in (5.0, 100.0):
            silent = self.noted(took)
            self.assertTrue(silent.costs("a:1", took + 29.9), took)
            self.assertFalse(silent.costs("a:1", took + 30.0), took)


class SeveralForTasks(Several, Stories):
    kind = Blocking

    def test_a_cancel_in_the_turn_in_which_dials_are_done_leaves_no_connection(self):
        async def cancelled(turns):
            port, links, goes_on = tasks.Tasks(), [], asyncio.Event()

            async def dial(server, options, _):
                await goes_on.wait()
                links.append(tasks.TaskLink(server, options, asyncio.get_running_loop()))
                return links[-1]

            port.dial = dial
            dialing = asyncio.ensure_future(port.dial_all(options(), 5.0))
            await asyncio.sleep(0.01)
            goes_on.set()
            for _ in range(turns):
                await asyncio.sleep(0)
            dialing.cancel()
            if not (await asyncio.gather(dialing, return_exceptions=True))[0]:
                return []
            return [link for link in links if not link._greeted.future.done()] if dialing.cancelled() else []

        for turns in range(5):
            self.assertEqual(asyncio.run(cancelled(turns)), [], turns)


if __name__ == "__main__":
    unittest.main()
