"""What is looked at for a moment that comes seldom: each of these looks has a test that fails without it."""

import asyncio
import contextlib
import threading
import time
import unittest
from unittest import mock

from xuid_client import Client, Closed, ConnectionLost, wire
from xuid_client.link import tasks, threads
from xuid_client.link.mutex import Mutex

from .support import frames
from .support.fake import PATIENCE, Blocking, Stories
from .test_conversation import Talk


class Leaves(Talk):
    def test_a_server_that_left_and_always_says_something_is_not_waited_for_without_an_end(self):
        talk = self.begin_talk(timeout=10.0)
        asked = [self.ask(talk, wire.array(1, "any", 60.0))[2][0] for _ in range(100)]
        talk.receive(frames.goaway(), 0.0)
        with self.assertRaises(ConnectionLost) as raised:
            for at, one in enumerate(asked):
                now = 4.0 * at
                talk.receive(frames.ids(wire.ARRAY, one.request_id, [at]), now)
                if now >= talk.look_at:
                    talk.look(now)
        self.assertIn("did not finish", str(raised.exception))


class Closing:
    """A close that meets a dial, or what was closed before a fork."""

    def test_a_connection_that_stands_after_the_close_is_given_up(self):
        fake = self.fake()
        client = self.client(fake.address)
        calling = self.begin(client.next)
        peer = fake.accept()
        hello = peer.hello()
        client.close()
        peer.send(frames.welcome(hello.request_id, fake.cluster))
        with self.assertRaises(Closed):
            calling.result(PATIENCE)
        peer.is_closed()

    def test_a_prefetch_that_was_closed_stays_so_in_a_child(self):
        client = self.client(self.mill().address)
        ids = client.prefetch(wait=0.2)
        draw = (lambda: client.in_loop(ids.next())) if isinstance(client, Blocking) else ids.__next__
        draw()
        ids.close()
        # As in the child.
        ids._source.after_fork()
        with self.assertRaises(Closed):
            draw()

    def test_a_server_that_always_leaves_is_not_asked_without_a_pause(self):
        fake, pauses = self.fake(), []
        client = self.client(fake.address)
        inner = {Client: threads.Threads, Blocking: tasks.Tasks}[type(client)]

        async def sleep(port, seconds):
            pauses.append(seconds)

        def leave():
            for _ in range(7):
                peer = fake.greet()
                peer.asks(wire.NEXT)
                peer.send(frames.goaway())
                peer.close()

        leaving = self.begin(leave)
        with mock.patch.object(inner, "sleep", sleep), self.assertRaises(ConnectionLost):
            client.next()
        leaving.result(PATIENCE)
        # The first time at once, the others after a pause each.
        self.assertEqual(len(pauses), 5)


class ClosingThreads(Closing, Stories):
    kind = Client

    def test_what_a_thread_of_the_parent_had_locked_is_gone_on_without_in_a_child_only(self):
        mutex, held, over = Mutex(), threading.Event(), threading.Event()

        def hold():
            held.set()
            over.wait(PATIENCE)

        holding = self.begin(mutex.under, hold)
        held.wait(PATIENCE)
        waiting = self.begin(mutex.under, int)
        time.sleep(0.3)
        self.assertFalse(waiting.done(), "it is waited for")
        mutex.after_fork()
        self.assertEqual(waiting.result(PATIENCE / 4), 0)
        over.set()
        holding.result(PATIENCE)

    def test_a_caller_that_gave_up_is_not_sent_when_there_is_room(self):
        # So long that a thread of a busy machine has its turn in half of it.
        client, peer = self.pair(self.fake(), max_in_flight=1, timeout=3.0)
        first = self.begin(client.next)
        asked = peer.asks(wire.NEXT)
        second = self.begin(client.ping, b"late")
        ping = peer.asked()
        peer.send(frames.reply(wire.PING, ping.request_id, b""))
        for call in (first, second):
            with contextlib.suppress(TimeoutError):
                call.result(PATIENCE)
        third = self.begin(client.next)
        peer.send(frames.number(wire.NEXT, asked.request_id, 1))
        peer.answer(3)
        self.assertEqual(third.result(PATIENCE), 3)


class ClosingTasks(Closing, Stories):
    kind = Blocking

    def test_a_close_that_is_cancelled_leaves_no_connection(self):
        client, peer = self.pair(self.fake(), timeout=4 * PATIENCE)

        async def cancelled():
            closing = asyncio.ensure_future(client.client.close())
            await asyncio.get_running_loop().run_in_executor(None, peer.asks, wire.BYE)
            closing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await closing

        client.in_loop(cancelled())
        peer.is_closed()

    def test_a_task_that_was_cancelled_in_line_is_not_sent_when_there_is_room(self):
        client, peer = self.pair(self.fake(), max_in_flight=1)

        async def cancelled():
            loop = asyncio.get_running_loop()
            first = asyncio.ensure_future(client.client.next())
            asked = await loop.run_in_executor(None, peer.asked)
            second = asyncio.ensure_future(client.client.ping(b"late"))
            await asyncio.sleep(0.01)
            second.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await second
            third = asyncio.ensure_future(client.client.next())
            peer.send(frames.number(wire.NEXT, asked.request_id, 1))
            await loop.run_in_executor(None, peer.answer, 3)
            return await first, await third

        self.assertEqual(client.in_loop(cancelled()), (1, 3))


del Talk

if __name__ == "__main__":
    unittest.main()
