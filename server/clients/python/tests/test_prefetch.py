"""Ids that are asked for ahead of need: how many, how old, and in which process."""

import asyncio
import contextlib
import os
import signal
import struct
import threading
import time
import unittest
from unittest import mock

from xuid_client import (
    AsyncClient,
    Client,
    Closed,
    ConnectionLost,
    Refused,
    Timeout,
    UsageError,
    WrongCluster,
    prefetch,
    process,
    wire,
)
from xuid_client.link import tasks, threads
from xuid_client.pool import AGE_CAP, PIECE, Pool
from xuid_client.values import Run

from .support import frames
from .support.fake import PATIENCE, Blocking, Stories, until


def drain(piece):
    """The ids of a piece."""
    found = []
    with contextlib.suppress(IndexError):
        while True:
            found.append(piece.pop())
    return found


class Pools(unittest.TestCase):
    def filled(self, count, asked=0.0, now=0.0, **options):
        given = {"least": 16, "most": 1 << 20, "max_age": 2.0, **options}
        pool = Pool(**given)
        pool.put([Run(1_000, count, 1)], asked, now)
        return pool

    def test_nothing_leaves_it_at_its_age_or_later(self):
        pool = self.filled(100, asked=10.0, now=10.5)
        piece = pool.open(11.9)
        self.assertEqual((drain(piece), piece.good_until), (list(range(1_000, 1_100)), 12.0))
        pool = self.filled(100, asked=10.0, now=10.5)
        self.assertIsNone(pool.open(12.0))
        self.assertIsNone(self.filled(100, asked=10.0, now=10.5).take(5, 12.0))
        self.assertEqual(pool.held, 0)

    def test_an_id_is_taken_once_in_pieces_and_in_lists(self):
        pool = self.filled(10 * PIECE)
        pool.put([Run(1 << 40, 5, 7)], 0.0, 0.0)
        found = []
        while pool.held:
            found += drain(pool.open(1.0)) if pool.held % 3 else pool.take(min(pool.held, 700), 1.0).ids
        self.assertEqual(found, [*range(1_000, 1_000 + 10 * PIECE), *range(1 << 40, (1 << 40) + 35, 7)])

    def test_a_list_is_whole_or_not_at_all_and_more_is_asked_for(self):
        pool = self.filled(100)
        self.assertIsNone(pool.take(101, 1.0))
        self.assertEqual(pool.held, 100)
        self.assertGreaterEqual(pool.refill(1.0, 131_072) + 100, 101)

    def levels(self, pool, rate, rounds, round_trip=0.001):
        """How many ids are held after each refill of a user who uses so many a second."""
        now, found = 100.0, []
        for _ in range(rounds):
            used = max(1, pool.held // 2 + 1)
            now += used / rate
            while used > 0:
                piece = pool.open(now)
                used = used - len(drain(piece)) if piece else 0
            asked = now
            count = pool.refill(now, 131_072)
            now += round_trip
            if count:
                pool.put([Run(1, count, 1)], asked, now)
            found.append(pool.held)
        return found

    def test_the_level_follows_the_use_up_and_down_again(self):
        pool = Pool(16, 1 << 20, 2.0)
        hot = self.levels(pool, 2e6, 20)
        self.assertLessEqual(hot[0], 64)
        self.assertTrue(60_000 < hot[-1] <= 131_072, hot)
        quiet = self.levels(pool, 10.0, 40)
        self.assertLess(quiet[-1], 1_100, quiet)

    def test_neither_bound_is_ever_left(self):
        pool = Pool(10, 1_000, 2.0)
        for held in self.levels(pool, 1e9, 30):
            self.assertLessEqual(held, 1_000)
        self.assertIsNone(pool.open(1e6))
        self.assertTrue(10 <= pool.refill(1e6, 131_072) <= 1_000)

    def test_one_that_is_not_used_asks_for_nothing(self):
        pool = Pool(16, 1_000, 2.0)
        self.assertEqual(pool.refill(1.0, 131_072), 0)
        self.assertIsNone(pool.open(1.0))
        self.assertEqual(pool.refill(1.0, 131_072), 16)
        pool.put([Run(1, 16, 1)], 1.0, 1.0)
        self.assertEqual([pool.refill(now, 131_072) for now in (1.0, 2.0, 5.0)], [0, 0, 0])

    def test_a_server_that_has_fewer_is_asked_for_fewer(self):
        pool = self.filled(1)
        pool._level = 1_000
        pool.open(0.0)
        count = pool.refill(0.0, 131_072)
        pool.fail(Refused("a:1", 0x8011, 0, ""), count)
        self.assertEqual(pool.refill(0.0, 131_072), count // 2)

    def test_what_is_void_and_what_was_asked_for_before_is_dropped_and_asked_for_anew(self):
        for least in (1, 100):
            pool = self.filled(100, least=least)
            pool.void(1.0)
            self.assertEqual(pool.held, 0)
            self.assertIsNone(pool.open(1.0))
            self.assertGreater(pool.refill(1.0, 131_072), 0)
            for asked in (0.5, 1.0):
                pool.put([Run(5_000, 100, 1)], asked, 1.1)
                self.assertEqual(pool.held, 0)
                self.assertGreater(pool.refill(1.1, 131_072), 0)
            pool.put([Run(9_000, 100, 1)], 1.2, 1.3)
            self.assertEqual(drain(pool.open(1.3)), list(range(9_000, 9_100)))

    def test_what_another_thread_voids_or_closes_in_the_middle_of_a_change_stays_so(self):
        for end in (lambda pool: pool.void(1.0), lambda pool: pool.close()):

            def runs(pool, end=end):
                yield Run(5_000, 10, 1)
                end(pool)
                yield Run(6_000, 10, 1)

            pool = self.filled(100)
            pool.put(runs(pool), 0.5, 1.0)
            self.assertEqual(pool.held, 0)

            class Ids(list):
                """Ids that are looked at in the middle of a take, before the rest is put back."""

                def __len__(self, end=end):
                    end(self.pool)
                    return super().__len__()

            pool = self.filled(100)
            ids = Ids(range(100))
            ids.pool = pool
            pool._runs[0] = pool._runs[0]._replace(ids=ids)
            pool._front(10)
            self.assertEqual(pool.held, 0)

    def test_no_id_is_taken_for_younger_than_it_is_in_whatever_order_they_lie(self):
        pool = self.filled(100, asked=0.0)
        pool.put([Run(5_000, 20, 1)], 0.9, 1.0)
        # As two threads leave it that put back the rests of two runs.
        pool._runs.reverse()
        pool.put([Run(6_000, 200, 1)], 0.9, 1.0)
        self.assertEqual(pool.take(150, 1.0).good_until, 2.0)

    def test_ids_of_a_closed_one_are_dropped(self):
        pool = self.filled(100)
        pool.close()
        pool.put([Run(1, 9, 1)], 0.0, 0.0)
        self.assertIsNone(pool.open(0.0))

    def test_options_out_of_range_are_refused(self):
        for wrong in ((0, 10, 1.0), (11, 10, 1.0), (1, 10, 0.0), (1, 10, AGE_CAP + 0.1), (1, 10, float("nan"))):
            with self.assertRaises(UsageError):
                Pool(*wrong)


class Draws:
    """Stories of either kind."""

    def taken(self, client, ids, call):
        """The outcome of a call of a prefetch."""
        if isinstance(client, Client):
            return call(ids)

        async def called():
            outcome = call(ids)
            return await outcome if asyncio.iscoroutine(outcome) else outcome

        return client.in_loop(called())

    def one(self, client, ids):
        return self.taken(client, ids, next if isinstance(client, Client) else lambda ids: ids.next())

    def test_ids_come_without_a_request_each_and_none_comes_twice(self):
        mill = self.mill()
        client = self.client(mill.address)
        ids = client.prefetch(least=1_000)
        drawn = [self.one(client, ids) for _ in range(5_000)]
        drawn += self.taken(client, ids, lambda ids: ids.take(3_000))
        self.assertEqual(len(set(drawn)), 8_000)
        self.assertLess(mill.answered, 100)

    def test_a_held_id_is_not_handed_out_when_it_is_too_old(self):
        mill = self.mill()
        client = self.client(mill.address)
        ids = client.prefetch(least=1_000, max_age=0.3)
        self.one(client, ids)
        pool = ids._source._pool
        until(lambda: pool.held)
        old, good_until = mill.next, max(held.good_until for held in list(pool._runs))
        until(lambda: process.now() >= good_until)
        self.assertGreaterEqual(self.one(client, ids), old)

    def test_how_many_are_held_is_told_without_those_that_are_too_old(self):
        client, ids, _ = self.filled(self.fake())
        self.assertEqual(self.taken(client, ids, lambda ids: ids.held), 2 * PIECE)
        leap = process.now() + 10.0
        with mock.patch.object(prefetch, "now", lambda: leap):
            self.assertEqual(self.taken(client, ids, lambda ids: ids.held), 0)

    def test_the_age_is_looked_at_after_the_take(self):
        mill = self.mill()
        client = self.client(mill.address)
        ids = client.prefetch(least=1_000, max_age=2.0)
        first = self.one(client, ids)
        until(lambda: ids._source._pool.held)
        # The clock leaps between the take and the look: what was open and what is held is void.
        voided, leap = mill.next, process.now() + 10.0
        with mock.patch.object(prefetch, "now", lambda: leap):
            self.assertGreaterEqual(self.one(client, ids), voided)
        self.assertLess(first, voided)

    def test_the_age_is_looked_at_when_a_list_is_there(self):
        client, ids, peer = self.filled(self.fake())
        pool, clock, leaps = ids._source._pool, prefetch.now, []
        inner = pool.take

        def stopped(*args):
            batch = inner(*args)
            leaps.append(10.0)
            return batch

        with mock.patch.object(pool, "take", stopped), mock.patch.object(prefetch, "now", lambda: clock() + sum(leaps)):
            calling = self.begin(self.taken, client, ids, lambda ids: ids.take(PIECE))
            asked = peer.asks(wire.RUNS)
            leaps.clear()
            with mock.patch.object(pool, "take", inner):
                peer.send(frames.runs(wire.RUNS, asked.request_id, [(1 << 40, asked.fields["count"], 1)]))
                self.assertEqual(calling.result(PATIENCE)[0], 1 << 40)

    def test_what_is_held_is_handed_out_while_the_server_is_away(self):
        mill = self.mill()
        client = self.client(mill.address)
        ids = client.prefetch(least=64, wait=0.1)
        self.one(client, ids)
        mill.close()
        until(lambda: not client.is_connected)
        for _ in range(20):
            self.one(client, ids)
        with self.assertRaises(Exception) as raised:
            for _ in range(1_000):
                self.one(client, ids)
        self.assertTrue(raised.exception.retryable, raised.exception)

    def filled(self, fake, **options):
        """A client with a piece that is opened, with more held, and its server's end."""
        client, peer = self.pair(fake, **options)
        ids = client.prefetch(least=3 * PIECE, wait=PATIENCE)
        calling = self.begin(self.one, client, ids)
        asked = peer.asks(wire.RUNS)
        peer.send(frames.runs(wire.RUNS, asked.request_id, [(1, asked.fields["count"], 1)]))
        self.assertEqual(calling.result(PATIENCE), 1)
        self.assertEqual(self.taken(client, ids, lambda ids: ids.try_next()), 2)
        self.assertGreater(ids._source._pool.held, 0)
        return client, ids, peer

    def test_a_server_of_another_cluster_makes_void_what_is_held_before_a_caller_is_told(self):
        for refuses, options in ((False, {}), (True, {"cluster": frames.CLUSTER.hex()}), (True, {})):
            with self.subTest(refuses=refuses, options=options):
                fake = self.fake()
                client, ids, peer = self.filled(fake, **options)
                peer.close()
                until(lambda client=client: not client.is_connected)
                # Not the refill, which asks for nothing: half of the level is held.
                calling = self.begin(client.next)
                if refuses:
                    stranger = fake.accept()
                    stranger.send(frames.error(wire.HELLO, stranger.hello().request_id, 0x0007))
                else:
                    fake.cluster = bytes([0xEE]) * 16
                    fake.greet()
                with self.assertRaises(WrongCluster if options or not refuses else Refused):
                    calling.result(PATIENCE)
                self.assertEqual(ids._source._pool.held, 0)
                self.assertIsNone(self.taken(client, ids, lambda ids: ids.try_next()))

    def test_what_is_on_its_way_is_void_when_the_first_choice_is_of_another_cluster(self):
        fakes = [self.fake(), self.fake()]
        client = self.client([fake.address for fake in fakes], return_after=0.001)
        connecting = self.begin(client.connect)
        peers = [fake.greet() for fake in fakes]
        connecting.result(PATIENCE)
        inner = client.client._fleet if isinstance(client, Blocking) else client._fleet
        home = [fake.address for fake in fakes].index(client.served.server)
        # Its first choice is the other one, which it goes and looks for at the next call but this one.
        inner._comeback_at = float("inf")
        inner._home = 1 - home
        ids = client.prefetch(wait=PATIENCE)
        waiting = self.begin(self.one, client, ids)
        asked = peers[home].asks(wire.RUNS)
        fakes[1 - home].cluster = bytes([0xEE]) * 16
        inner._comeback_at = 0.0
        pinging = self.begin(client.ping)
        stranger = fakes[1 - home].greet()
        ping = peers[home].asks(wire.PING)
        inner._comeback_at = float("inf")
        peers[home].send(frames.reply(wire.PING, ping.request_id, b""))
        pinging.result(PATIENCE)
        stranger.is_closed()
        until(lambda: ids._source._pool._void_until > 0)
        peers[home].send(frames.runs(wire.RUNS, asked.request_id, [(100, asked.fields["count"], 1)]))
        # The caller waits on, for what is asked for anew.
        again = peers[home].asks(wire.RUNS)
        peers[home].send(frames.runs(wire.RUNS, again.request_id, [(500, again.fields["count"], 1)]))
        self.assertEqual(waiting.result(PATIENCE), 500)

    def test_a_refill_that_looks_for_a_server_gives_up_for_no_other_call(self):
        fake = self.fake()
        client, peer = self.pair(fake)
        ids = client.prefetch(max_age=0.2)
        self.begin(self.one, client, ids)
        peer.asks(wire.RUNS)
        # It leaves without an answer, and the refill looks for another one.
        peer.send(frames.goaway())
        peer.close()
        slow = fake.accept()
        hello = slow.hello()
        calling = self.begin(client.next)
        time.sleep(0.6)
        slow.send(frames.welcome(hello.request_id, fake.cluster))
        asked = slow.asked()
        while asked.op != wire.NEXT:
            asked = slow.asked()
        slow.send(frames.number(wire.NEXT, asked.request_id, 7))
        self.assertEqual(calling.result(PATIENCE), 7)

    def test_a_refusal_that_stays_is_told_at_once_and_the_next_caller_asks_again(self):
        client, peer = self.pair(self.fake())
        ids = client.prefetch(wait=PATIENCE)
        for text in ("first", "second"):
            calling = self.begin(self.one, client, ids)
            asked = peer.asks(wire.RUNS)
            peer.send(frames.error(wire.RUNS, asked.request_id, 0x0008, text=text))
            with self.assertRaises(Refused) as raised:
                calling.result(PATIENCE)
            self.assertEqual(raised.exception.text, text)

    def test_a_caller_waits_no_longer_than_it_is_told_to(self):
        client, peer = self.pair(self.fake())
        ids = client.prefetch(wait=0.1)
        calling = self.begin(self.one, client, ids)
        peer.asks(wire.RUNS)
        with self.assertRaises(Timeout):
            calling.result(PATIENCE)
        self.assertIsNone(self.taken(client, ids, lambda ids: ids.try_next()))

    def test_runs_with_a_stride_are_drawn_as_far_apart_as_they_say(self):
        client, peer = self.pair(self.fake())
        ids = client.prefetch()
        calling = self.begin(self.one, client, ids)
        asked = peer.asks(wire.RUNS)
        self.assertEqual(asked.fields["count"], 16)
        peer.send(frames.runs(wire.RUNS, asked.request_id, [(100, 10, 4_096), (7, 6, 1)]))
        drawn = [calling.result(PATIENCE)] + [self.one(client, ids) for _ in range(15)]
        self.assertEqual(drawn, [*range(100, 100 + 40_960, 4_096), *range(7, 13)])

    def test_a_close_drops_what_is_held(self):
        mill = self.mill()
        for close in ("ids", "client"):
            client = self.client(mill.address)
            ids = client.prefetch(least=100)
            self.one(client, ids)
            if close == "client":
                client.close()
            else:
                self.taken(client, ids, lambda ids: ids.close())
            with self.assertRaises(Closed):
                self.one(client, ids)
            with self.assertRaises(Closed):
                self.taken(client, ids, lambda ids: ids.take(2))

    def test_a_list_longer_than_the_most_is_refused(self):
        client = self.client(self.mill().address)
        for count in (0, 101):
            with self.assertRaises(UsageError):
                self.taken(client, client.prefetch(most=100), lambda ids, count=count: ids.take(count))


class DrawsOfThreads(Draws, Stories):
    kind = Client

    def test_threads_share_one_prefetch_and_none_draws_an_id_twice(self):
        client = self.client(self.mill().address)
        ids = client.prefetch()

        def draw():
            return [next(ids) for _ in range(20_000)] + ids.take(5_000)

        drawing = [self.begin(draw) for _ in range(8)]
        drawn = [number for call in drawing for number in call.result(PATIENCE)]
        self.assertEqual(len(set(drawn)), 8 * 25_000)

    def test_of_two_callers_at_the_end_of_a_piece_one_opens_the_next_and_none_is_wasted(self):
        ids = self.client(self.mill().address).prefetch(least=10 * PIECE)
        next(ids)
        used_up = ids._source.piece
        drain(used_up)
        for _ in range(2):
            threads.run(ids._source._until(lambda gate: ids._source._open_next(used_up, gate), None))
        self.assertEqual(next(ids), 1 + PIECE)

    def test_a_prefetch_keeps_its_client_and_a_dropped_one_ends_its_thread(self):
        ids = Client(self.mill().address, token="").prefetch()
        self.assertGreater(next(ids), 0)
        before = {thread.name for thread in threading.enumerate()}
        self.assertIn("xuid-prefetch", before)
        del ids
        until(lambda: "xuid-prefetch" not in {thread.name for thread in threading.enumerate()})
        until(lambda: "xuid-link" not in {thread.name for thread in threading.enumerate()})


    def test_no_refill_begins_in_a_child_for_those_that_wait_in_the_parent(self):
        gate = threads.Gate()
        self.assertTrue(gate.begin_refill())
        self.assertFalse(gate.begin_refill())
        gate.end_refill()
        # As in the child.
        gate.demand.after_fork()
        self.assertFalse(gate.begin_refill())


class DrawsOfTasks(Draws, Stories):
    kind = Blocking

    def test_a_task_that_is_cancelled_while_it_waits_loses_no_id(self):
        client, peer = self.pair(self.fake())
        ids = client.prefetch()

        async def cancelled():
            waiting = asyncio.ensure_future(ids.next())
            asked = await asyncio.get_running_loop().run_in_executor(None, peer.asked)
            waiting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await waiting
            peer.send(frames.runs(wire.RUNS, asked.request_id, [(50, 16, 1)]))
            return [await ids.next(), await ids.__anext__(), ids.try_next()]

        self.assertEqual(client.in_loop(cancelled()), [50, 51, 52])


@unittest.skipUnless(hasattr(os, "fork"), "this system does not fork")
class Forked(Stories):
    kind = Client

    def in_child(self, work):
        """A child that does that, and the ids that it returns."""
        read, write = os.pipe()
        child = os.fork()
        if not child:
            status = 1
            try:
                os.close(read)
                numbers = work()
                with os.fdopen(write, "wb") as out:
                    out.write(struct.pack(f"<{len(numbers)}Q", *numbers))
                status = 0
            except BaseException as wrong:
                os.write(2, f"child: {wrong!r}\n".encode())
            finally:
                os._exit(status)
        os.close(write)
        self.addCleanup(self.ended, child)
        return os.fdopen(read, "rb")

    def ended(self, child):
        with contextlib.suppress(ChildProcessError):
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)

    def numbers(self, pipe):
        with pipe:
            data = pipe.read()
        return struct.unpack(f"<{len(data) // 8}Q", data)

    def test_eight_children_of_a_filled_prefetch_draw_and_none_draws_an_id_twice(self):
        client = self.client(self.mill().address)
        ids = client.prefetch(least=5_000)
        drawn = [next(ids) for _ in range(100)]
        until(lambda: ids._source._pool.held >= 1_000)
        children = [self.in_child(lambda: [next(ids) for _ in range(1_000)] + ids.take(500)) for _ in range(8)]
        drawn += [next(ids) for _ in range(2_000)]
        for child in children:
            found = self.numbers(child)
            self.assertEqual(len(found), 1_500)
            drawn += found
        self.assertEqual(len(set(drawn)), 100 + 2_000 + 8 * 1_500)

    def test_a_child_of_a_process_whose_threads_draw_is_never_stuck(self):
        client = self.client(self.mill().address)
        ids = client.prefetch()
        over = threading.Event()
        drawn = []

        def draw():
            while not over.is_set():
                drawn.append(next(ids))
                if len(drawn) % 3:
                    client.next()

        drawing = [self.begin(draw) for _ in range(4)]
        found = []
        for _ in range(12):
            found += self.numbers(self.in_child(lambda: [next(ids), client.next(), *ids.take(20)]))
        over.set()
        for call in drawing:
            call.result(PATIENCE)
        self.assertEqual(len(found), 12 * 22)
        self.assertEqual(len(set(found)), len(found))
        self.assertFalse(set(found) & set(drawn))

    def test_a_child_connects_by_itself_and_leaves_the_connection_of_its_parent_alone(self):
        fake = self.fake()
        client, peer = self.pair(fake)
        child = self.in_child(lambda: [client.next()])
        fake.greet().answer(5)
        self.assertEqual(self.numbers(child), (5,))
        calling = self.begin(client.next)
        peer.answer(6)
        self.assertEqual(calling.result(PATIENCE), 6)

    def test_a_reply_that_came_before_a_fork_is_used_in_the_parent_only(self):
        client = self.client(self.mill().address).connect()
        link = client._fleet._link
        read, write = os.pipe()
        inner = link._lies_there

        def forks(waiter):
            # The reply is here, and its caller is about to take it: now a signal's handler forks.
            until(lambda: inner(waiter))
            waiter._told.release()
            self.child = os.fork()
            return inner(waiter)

        self.child = None
        with mock.patch.object(link, "_lies_there", forks):
            # Once more where the reply came before its caller looked for it.
            while self.child is None:
                try:
                    found = threads.run(link.exchange(wire.next_id(), time.monotonic() - 1.0))
                except ConnectionLost:
                    found = 0
        if not self.child:
            os.write(write, struct.pack("<Q", found))
            os._exit(0)
        os.close(write)
        os.waitpid(self.child, 0)
        with os.fdopen(read, "rb") as pipe:
            childs = struct.unpack("<Q", pipe.read())[0]
        self.assertGreater(found, 0)
        self.assertEqual(childs, 0)

    def test_a_task_that_goes_on_in_a_child_has_no_reply_of_its_parent_and_reads_none(self):
        inner = tasks.TaskLink.data_received

        async def story():
            client = AsyncClient(self.mill().address, token="", timeout=PATIENCE / 2)
            await client.connect()
            link, read, write, forked = client._fleet._link, *os.pipe(), []

            def forks(link, data):
                # The reply is here, and its task is about to take it.
                inner(link, data)
                if not forked:
                    forked.append(os.fork())

            calling = asyncio.ensure_future(client.next())
            with mock.patch.object(tasks.TaskLink, "data_received", forks):
                await asyncio.wait({calling})
            if not forked[0]:
                if not calling.exception():
                    os.write(write, b"%d " % calling.result())
                # What comes for the parent now comes to this loop, too.
                end = time.monotonic() + 1.0
                while time.monotonic() < end:
                    await asyncio.sleep(0)
                os._exit(0)
            numbers = [calling.result(), *[await client.next() for _ in range(2_000)]]
            os.close(write)
            with os.fdopen(read) as pipe:
                childs = pipe.read()
            os.waitpid(forked[0], 0)
            return childs, len(set(numbers)), client._fleet._link is link

        self.assertEqual(asyncio.run(story()), ("", 2_001, True))

    def test_a_client_for_tasks_draws_in_a_child_with_a_loop_of_its_own(self):
        mill = self.mill()
        client = AsyncClient(mill.address, token="")
        ids = client.prefetch(least=1_000)

        async def draw():
            return [await ids.next() for _ in range(100)] + [await client.next()]

        drawn = asyncio.run(draw())
        children = [self.in_child(lambda: asyncio.run(draw())) for _ in range(4)]
        drawn += asyncio.run(draw())
        for child in children:
            drawn += self.numbers(child)
        self.assertEqual(len(set(drawn)), 6 * 101)


if __name__ == "__main__":
    unittest.main()
