"""What ends with the interpreter, what a caller's own time is, and what holds besides."""

import asyncio
import contextlib
import os
import signal
import threading
import time
import unittest

from xuid_client import Client, Closed, ConnectionLost, Timeout, process, wire
from xuid_client.pool import PIECE
from xuid_client.values import Run

from .support import frames
from .support.fake import PATIENCE, Blocking, Mill, Stories, until
from .support.handlers import handled_at, handles
from .support.programs import ran

GENERATOR = """
import sys
from xuid_client import Client
def numbers():
    with Client(sys.argv[1], token="", timeout=float("inf")) as client:
        yield from client.prefetch()
ids = numbers()
print(next(ids))
"""

OBJECT = """
import sys
from xuid_client import Client, Closed
class Service:
    def __init__(self):
        self.client = Client(sys.argv[1], token="")
        self.ids = self.client.prefetch()
    def __del__(self):
        for call in (self.ids.try_next, self.client.next, self.client.connect):
            try:
                call()
            except Closed:
                print("closed")
        self.client.close()
service = Service()
"""


class Finals(Stories):
    """The interpreter ends; no thread of it is left but one."""

    kind = Client

    def test_a_program_ends_at_once_that_leaves_a_generator_with_a_client(self):
        self.assertEqual(ran(GENERATOR, self.mill().address).split(), ["1"])

    def test_a_program_ends_at_once_whose_objects_call_at_its_end(self):
        self.assertEqual(ran(OBJECT, self.mill().address).split(), ["closed"] * 3)


class Guards(Stories):
    """What holds besides."""

    kind = Client

    def test_a_piece_that_is_opened_while_it_is_closed_is_dropped_as_well(self):
        ids = self.client(self.mill().address).prefetch(least=3 * PIECE)
        next(ids)
        until(lambda: ids._source._pool.held > PIECE)
        inner, found = ids._source._pool.close, []

        def close():
            # As by another thread.
            found.append(next(ids))
            inner()

        ids._source._pool.close = close
        ids.close()
        del ids._source._pool.close
        self.assertEqual(len(found), 1)
        with self.assertRaises(Closed):
            next(ids)

    @unittest.skipUnless(hasattr(os, "fork"), "this system does not fork")
    def test_what_is_closed_is_closed_in_a_child(self):
        ids = self.client(self.mill().address).prefetch()
        next(ids)
        ids.close()
        child = os.fork()
        if not child:
            status = 1
            with contextlib.suppress(BaseException):
                try:
                    next(ids)
                except Closed:
                    status = 0
            os._exit(status)
        self.assertEqual(os.waitpid(child, 0)[1], 0)

    @unittest.skipUnless(hasattr(os, "fork"), "this system does not fork")
    def test_a_child_that_a_handler_forks_while_its_thread_connects_is_told_at_once(self):
        fake, children = self.fake(), []
        client = self.client(fake.address, timeout=PATIENCE, connect_timeout=PATIENCE)

        def handler(*_):
            if not children:
                children.append(os.fork())

        handles(self, handler)

        def serve():
            peer = fake.accept()
            hello = peer.hello()
            while not children:
                signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)
                time.sleep(0.02)
            peer.send(frames.welcome(hello.request_id, fake.cluster))
            peer.answer(7)

        serving, begin = self.begin(serve), time.monotonic()
        try:
            found = client.next()
        except ConnectionLost:
            found = None
        if children == [0]:
            os._exit(0 if found is None and time.monotonic() - begin < PATIENCE / 4 else 1)
        serving.result(PATIENCE)
        ended = (0, 0)
        while ended == (0, 0) and time.monotonic() < begin + PATIENCE / 2:
            ended = os.waitpid(children[0], os.WNOHANG)
            time.sleep(0.01)
        if ended == (0, 0):
            os.kill(children[0], signal.SIGKILL)
            os.waitpid(children[0], 0)
        self.assertEqual((found, ended), (7, (children[0], 0)))


class Slowly(Mill):
    """One id after the other."""

    def _reply(self, asked):
        if asked.op == wire.RUNS:
            time.sleep(0.025)
        return super()._reply(asked)


class Times:
    def one(self, client, ids):
        async def draw():
            return await ids.next()

        return next(ids) if isinstance(client, Client) else client.in_loop(draw())

    def test_a_caller_waits_no_longer_than_it_is_told_to_though_others_are_served(self):
        mill = Slowly()
        self.addCleanup(mill.close)
        client = self.client(mill.address)
        client.connect()
        ids = client.prefetch(least=1, most=1, wait=0.2)

        def draw():
            begin = time.monotonic()
            with contextlib.suppress(Timeout):
                self.one(client, ids)
            return time.monotonic() - begin

        drawing = [self.begin(draw) for _ in range(30)]
        self.assertLess(max(call.result(PATIENCE) for call in drawing), 0.5)


class TimesOfThreads(Times, Stories):
    kind = Client

    def test_who_meets_another_ones_take_is_told_when_what_that_left_is_enough(self):
        ids = self.client(self.mill().address).connect().prefetch(wait=PATIENCE)
        pool = ids._source._pool
        inner, rests = pool.refill, threading.Event()

        def resting(*args):
            rests.clear()
            count = inner(*args)
            if not count:
                rests.set()
            return count

        pool.refill = resting
        next(ids)
        # Nothing is on its way that would be enough by itself.
        until(lambda: not pool.wants() and rests.is_set())
        with contextlib.suppress(IndexError):
            while True:
                ids._source.piece.pop()
        stands, goes = threading.Event(), threading.Event()

        class Ids(list):
            """Are looked at in the middle of a take, before the rest is put back."""

            def __len__(self):
                stands.set()
                goes.wait(PATIENCE)
                return super().__len__()

        def refill(*args):
            # The one that stands in the middle goes on before this looks.
            goes.set()
            drawing.result(PATIENCE)
            return inner(*args)

        pool._runs.clear()
        now = process.now()
        pool.put([Run(1 << 40, 3 * PIECE, 1)], now, now)
        pool._runs[0] = pool._runs[0]._replace(ids=Ids(range(1 << 40, (1 << 40) + 3 * PIECE)))
        drawing = self.begin(next, ids)
        stands.wait(PATIENCE)
        pool.refill = refill
        begin = time.monotonic()
        self.assertGreaterEqual(next(ids), 1 << 40)
        self.assertLess(time.monotonic() - begin, PATIENCE / 4)

    def test_whatever_a_handler_raises_ends_the_call_that_it_came_in(self):
        class Over(RuntimeError):
            pass

        def handler():
            raise Over

        ids = self.client(self.mill().address).prefetch(least=1_000)
        place, ran = 0, True
        while ran:
            place += 1
            ids.take(20)
            try:
                _, ran = handled_at(place, handler, lambda: ids.take(20))
                self.assertFalse(ran, place)
            except Over:
                pass
        self.assertGreater(place, 10)


class TimesOfTasks(Times, Stories):
    kind = Blocking

    def test_a_refill_that_is_cancelled_before_its_first_step_is_begun_again(self):
        client = self.client(self.mill().address)
        ids = client.prefetch(wait=1.0)

        async def cancelled():
            ids.try_next()
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()
            return [await ids.next() for _ in range(100)]

        self.assertEqual(len(set(client.in_loop(cancelled()))), 100)


if __name__ == "__main__":
    unittest.main()
