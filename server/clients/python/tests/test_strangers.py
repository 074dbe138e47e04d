"""What no error of the client's own is: threads that cannot be had, names that no host has, tasks that others cancel. No client may be
dead after one."""

import asyncio
import concurrent.futures
import contextlib
import math
import os
import pathlib
import pickle
import socket
import subprocess
import sys
import threading
import time
import unittest
from unittest import mock

from xuid_client import AsyncClient, Client, ConnectionLost, Timeout, Unreachable, XuidError, process
from xuid_client.link import tasks, thread_link

from .support import frames
from .support.fake import PATIENCE, Blocking, Stories, until
from .test_conversation import Talk
from .test_forks import Breaks


def without_thread(name):
    """No thread of that name can be started."""
    start = threading.Thread.start

    def refused(thread):
        if thread.name == name:
            raise RuntimeError("can't start new thread")
        start(thread)

    return mock.patch.object(threading.Thread, "start", refused)


class Errors(unittest.TestCase):
    def test_an_error_for_another_caller_or_process_says_the_same(self):
        for error in (Unreachable("a:1", "no CA", False), Timeout("a:1", 2.0, "wait"), ConnectionLost("a:1", "gone")):
            for copy in (error.again(), pickle.loads(pickle.dumps(error))):
                with self.subTest(repr(error)):
                    self.assertEqual((str(copy), copy.retryable), (str(error), error.retryable))


class Goaway(Talk):
    def test_a_silence_after_goaway_is_a_server_that_left(self):
        talk = self.begin_talk(timeout=10.0)
        caller, _, _ = self.ask(talk, now=100.0)
        talk.receive(frames.goaway(), 101.0)
        with self.assertRaises(ConnectionLost):
            for now in (106.0, 111.0, 116.0):
                talk.look(now)
        self.assertEqual(caller.told, [])


class Addresses:
    """Names and addresses."""

    def test_a_name_that_no_host_can_have_is_an_error_of_this_server_alone(self):
        mill = self.mill()
        with self.assertRaises(Unreachable) as raised:
            self.client("bad..name:1").next()
        self.assertIn("bad..name:1", str(raised.exception))
        for _ in range(4):
            self.assertGreater(self.client(["bad..name:1", mill.address]).next(), 0)

    def test_a_silent_address_of_a_name_leaves_time_for_the_next_one(self):
        mill = self.mill()
        with contextlib.ExitStack() as ends:
            full = ends.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
            # What fills its backlog; the next one is not answered.
            for _ in range(4):
                waiting = ends.enter_context(socket.socket())
                waiting.setblocking(False)
                waiting.connect_ex(full.getsockname())
            host, port = mill.address.split(":")
            addresses = [
                (socket.AF_INET, socket.SOCK_STREAM, 6, "", address) for address in (full.getsockname(), (host, int(port)))
            ]
            client = self.client("ids.test:1", connect_timeout=2.0)
            with mock.patch.object(socket, "getaddrinfo", lambda *_, **__: addresses):
                begin = time.monotonic()
                self.assertGreater(client.next(), 0)
            self.assertGreater(time.monotonic() - begin, 0.9, "the first address was silent")

    def test_a_name_is_looked_up_again_for_each_connection(self):
        fakes = [self.fake(), self.fake()]
        left, inner = list(fakes), socket.getaddrinfo

        def looks_up(host, *others, **named):
            if host != "ids.test":
                # Of a thread that another test left.
                return inner(host, *others, **named)
            host, port = left.pop(0).address.split(":")
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, int(port)))]

        client = self.client("ids.test:1")
        with mock.patch.object(socket, "getaddrinfo", looks_up):
            for fake in fakes:
                calling = self.begin(client.next)
                peer = fake.greet()
                peer.answer(1)
                self.assertEqual(calling.result(PATIENCE), 1)
                peer.close()
                until(lambda: not client.is_connected)

    def test_waits_without_an_end_are_allowed(self):
        client = self.client(self.mill().address, connect_timeout=math.inf, timeout=math.inf, retry_for=math.inf)
        self.assertGreater(client.next(), 0)
        ids = client.prefetch(wait=math.inf)
        draw = ids.next if isinstance(client, Blocking) else ids.__next__
        found = client.in_loop(draw()) if isinstance(client, Blocking) else draw()
        self.assertGreater(found, 0)


class AddressesOfThreads(Addresses, Stories):
    kind = Client

    def test_a_name_that_is_looked_up_for_long_ends_no_call_later_than_it_may(self):
        client = self.client("ids.test:1", timeout=0.1, connect_timeout=0.1)
        over, asked = threading.Event(), []
        self.addCleanup(over.set)

        def looks_up(*_, **__):
            asked.append(None)
            over.wait(PATIENCE)
            return []

        with mock.patch.object(socket, "getaddrinfo", looks_up):
            begin = time.monotonic()
            for _ in range(3):
                with self.assertRaises(Unreachable):
                    client.next()
            self.assertLess(time.monotonic() - begin, PATIENCE / 2)
            # Those that come later wait for the first, and take no thread that may never end.
            self.assertEqual(len(asked), 1)
            with mock.patch.object(thread_link, "AGAIN", 0.0):
                with self.assertRaises(Unreachable):
                    client.next()
            self.assertEqual(len(asked), 2)

    def test_a_prefetch_that_got_no_thread_asks_for_one_again(self):
        ids = self.client(self.mill().address).prefetch()
        with without_thread("xuid-prefetch"):
            with self.assertRaises(RuntimeError):
                next(ids)
        self.assertGreater(next(ids), 0)

    def test_a_connection_that_got_no_thread_is_an_error_of_the_server(self):
        client = self.client(self.mill().address)
        with without_thread("xuid-link"):
            with self.assertRaises(Unreachable):
                client.next()
        self.assertGreater(client.next(), 0)

    def test_a_refill_that_met_no_error_of_the_clients_is_begun_again(self):
        client = self.client(self.mill().address)
        ids = client.prefetch(wait=PATIENCE)
        with mock.patch.object(client._fleet, "link", side_effect=MemoryError), mock.patch.object(threading, "excepthook"):
            waiting = self.begin(next, ids)
            time.sleep(0.1)
        self.assertGreater(waiting.result(PATIENCE), 0)

    def test_a_child_holds_nothing_of_its_parent_whatever_fails_beside(self):
        client = self.client(self.mill().address)
        ids = client.prefetch(least=1_000)
        held = next(ids)
        broken = [Breaks() for _ in range(50)]
        for holder in broken:
            process.tell_of_forks(holder)
        read, write = os.pipe()
        child = os.fork()
        if not child:
            os.close(2)
            os.write(write, b"%d" % len(ids._source.piece.pop.__self__))
            os._exit(0)
        os.close(write)
        os.waitpid(child, 0)
        with os.fdopen(read) as pipe:
            self.assertEqual(pipe.read(), "0")
        self.assertEqual(next(ids), held + 1)
        del broken


class Ends(unittest.TestCase):
    def test_a_program_ends_though_a_thread_is_stopped_with_a_lock_of_its_client(self):
        program = """
import threading, time, xuid_client
client = xuid_client.Client("127.0.0.1:1")
mutex, lock = client._fleet._mutex, threading.Lock()
lock.acquire()
threading.Thread(target=mutex.under, args=(lock.acquire,), daemon=True).start()
while mutex._acquire(False):
    mutex._release()
    time.sleep(0.001)
"""
        folder = pathlib.Path(process.__file__).parents[1]
        subprocess.run([sys.executable, "-c", program], cwd=folder, timeout=PATIENCE, check=True)


class AddressesOfTasks(Addresses, Stories):
    kind = Blocking

    def test_a_name_that_is_looked_up_for_long_takes_no_thread_of_the_programs_and_holds_up_no_end(self):
        over, asked, inner = threading.Event(), [], socket.getaddrinfo
        self.addCleanup(over.set)

        def looks_up(host, *others, **named):
            if host != "ids.test":
                # Of a thread that another test left.
                return inner(host, *others, **named)
            asked.append(host)
            over.wait(PATIENCE)
            raise OSError("of a test")

        async def program():
            loop = asyncio.get_running_loop()
            loop.set_default_executor(concurrent.futures.ThreadPoolExecutor(1))
            client = AsyncClient("ids.test:1", token="", timeout=0.1, connect_timeout=0.1)
            for _ in range(3):
                with self.assertRaises(XuidError):
                    await client.next()
            await client.close()
            return await asyncio.wait_for(loop.run_in_executor(None, int), PATIENCE / 4)

        with mock.patch.object(socket, "getaddrinfo", looks_up):
            self.assertEqual(self.begin(asyncio.run, program()).result(PATIENCE / 2), 0)
        self.assertEqual(len(asked), 1)

    def test_a_name_whose_look_up_never_ends_is_looked_up_again(self):
        over, asked, inner = threading.Event(), [], socket.getaddrinfo
        self.addCleanup(over.set)
        host, port = self.mill().address.split(":")

        def looks_up(name, *others, **named):
            if name != "ids.test":
                # Of a thread that another test left.
                return inner(name, *others, **named)
            asked.append(name)
            if len(asked) == 1:
                over.wait(PATIENCE)
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, int(port)))]

        client = self.client("ids.test:1", connect_timeout=1.0)
        with mock.patch.object(socket, "getaddrinfo", looks_up), mock.patch.object(tasks, "AGAIN", 0.5):
            with self.assertRaises(Unreachable):
                client.next()
            self.assertGreater(client.next(), 0)

    def test_a_refill_that_a_stranger_cancels_is_begun_again(self):
        client = self.client(self.mill().address)
        ids = client.prefetch(wait=PATIENCE)

        async def cancelled():
            await ids.next()
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()
            return [await ids.next() for _ in range(10_000)]

        self.assertEqual(len(set(client.in_loop(cancelled()))), 10_000)
