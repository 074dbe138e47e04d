"""What no error of the client's own is: threads that cannot be had, names that no host has, tasks that others cancel, forks
and handlers of signals in the middle of anything. No client may be dead, or hand out what is another one's, after one."""

import asyncio
import concurrent.futures
import contextlib
import functools
import math
import os
import pathlib
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
import unittest
from unittest import mock

from xuid_client import AsyncClient, Client, Closed, ConnectionLost, Timeout, Unreachable, XuidError, process, wire
from xuid_client.link import thread_link, threads
from xuid_client.link.mutex import Mutex
from xuid_client.link.thread_link import Waiter

from .support import frames
from .support.fake import PATIENCE, Blocking, Stories, until
from .test_conversation import Talk


class Breaks:
    """A holder of something that fails when it is told of a fork."""

    def after_fork(self):
        raise RuntimeError("of a test")


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


class Forks(unittest.TestCase):
    def test_a_holder_that_fails_keeps_no_other_one_from_being_told(self):
        told = []

        class Hears:
            def after_fork(self):
                told.append(self)

        holders = [kind() for _ in range(20) for kind in (Hears, Breaks)]
        with mock.patch.object(process, "_holders", holders), contextlib.suppress(RuntimeError):
            process._in_child()
        process._free_signals()
        self.assertEqual(len(told), 20)

    def test_a_waiter_that_a_thread_of_the_parent_had_told_may_be_told_again(self):
        waiter = Waiter()
        waiter.resolve(1)
        waiter.reject(ConnectionLost("a:1"))
        self.assertTrue(waiter.wait(time.monotonic()))
        with self.assertRaises(ConnectionLost):
            waiter.outcome()


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
        over = threading.Event()
        self.addCleanup(over.set)

        def looks_up(*_, **__):
            over.wait(PATIENCE)
            return []

        with mock.patch.object(socket, "getaddrinfo", looks_up):
            begin = time.monotonic()
            for _ in range(2):
                with self.assertRaises(Unreachable):
                    client.next()
            self.assertLess(time.monotonic() - begin, PATIENCE / 2)

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

    def test_a_refill_that_a_stranger_cancels_is_begun_again(self):
        client = self.client(self.mill().address)
        ids = client.prefetch(wait=PATIENCE)

        async def cancelled():
            await ids.next()
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()
            return [await ids.next() for _ in range(10_000)]

        self.assertEqual(len(set(client.in_loop(cancelled()))), 10_000)


class Interrupt(TimeoutError):
    """Of a signal's handler. It may land after any call into C, and where a function of Python begins. It is an OSError, as
    that of many an alarm."""


def handled_at(place, handler, call):
    """What a call returns, with a handler run at that place of it as if a signal came there; and whether there was one."""
    seen, ran = 0, False

    def look(_, event, __):
        nonlocal seen, ran
        if event in ("call", "c_return"):
            seen += 1
            if seen == place:
                sys.setprofile(None)
                ran = True
                handler()

    sys.setprofile(look)
    try:
        found = call()
    except XuidError:
        found = None
    finally:
        sys.setprofile(None)
    return found, ran


def interrupted_at(place, call):
    """Whether the call had so many places where a handler may raise, and was interrupted at the last of them."""

    def handler():
        raise Interrupt

    try:
        handled_at(place, handler, call)
    except Interrupt:
        return True
    return False


class Interrupted(Stories):
    """Whatever the exception meets, it ends that call alone."""

    kind = Client

    def each_place(self, call, after):
        """Interrupts the call everywhere, one place after the other; how many there were."""
        place = 1
        while interrupted_at(place, call):
            with self.subTest(place=place):
                after()
            place += 1
        return place - 1

    def neighbours(self, call):
        """What another thread gets meanwhile."""
        return self.begin(call).result(PATIENCE)

    def test_a_call_ends_alone(self):
        client = self.client(self.mill().address).connect()
        link, numbers = client._fleet._link, []
        places = self.each_place(client.next, lambda: numbers.append(self.neighbours(client.next)))
        self.assertGreater(places, 30)
        self.assertIs(client._fleet._link, link)
        self.assertEqual(len(set(numbers)), len(numbers))
        # Nothing that was not sent is waited for.
        client.ping()
        self.assertEqual(link._conversation._in_flight, {})

    def test_a_call_that_connects_leaves_the_next_one_to_connect(self):
        mill = self.mill()
        made = []

        def call():
            made.append(self.client(mill.address))
            made[-1].next()

        places = self.each_place(call, lambda: self.assertTrue(not made or self.neighbours(made[-1].next)))
        self.assertGreater(places, 100)

    def test_a_prefetch_goes_on(self):
        for draw in (lambda ids: next(ids), lambda ids: ids.take(40), lambda ids: ids.try_next(), lambda ids: ids.held):
            for least in (1, 100):
                client = self.client(self.mill().address)
                ids = client.prefetch(least=least, wait=PATIENCE)
                drawn = []

                def after(client=client, ids=ids, drawn=drawn):
                    drawn.extend([*self.neighbours(lambda: ids.take(30)), self.neighbours(lambda: next(ids))])
                    pool = ids._source._pool
                    until(lambda: pool.held == sum(len(run.ids) for run in list(pool._runs)))

                # What is held differs from time to time, and so do the places.
                for _ in range(3):
                    self.assertGreater(self.each_place(lambda draw=draw, ids=ids: draw(ids), after), 1)
                after()
                self.assertEqual(len(set(drawn)), len(drawn))
                refills = [thread for thread in threading.enumerate() if thread.name == "xuid-prefetch"]
                client.close()
                for thread in refills:
                    thread.join(PATIENCE)
                    self.assertFalse(thread.is_alive())

    def test_a_write_that_never_ends_costs_the_connection_and_no_call(self):
        client = self.client(self.mill().address, timeout=0.5, retry_for=PATIENCE).connect()
        # As where memory ends in the middle of it.
        self.assertTrue(client._fleet._link._writes.acquire(timeout=PATIENCE))
        self.assertGreater(self.neighbours(client.next), 0)


class Slow:
    """A socket whose writes take their time, or only a part. The rest is the socket's own."""

    def __init__(self, sock, send):
        self.sock, self.send = sock, send

    def __getattr__(self, name):
        return getattr(self.sock, name)


class Writes(Stories):
    """What may come in the middle of a caller's write."""

    kind = Client

    def neighbours(self, call):
        return self.begin(call).result(PATIENCE)

    def connected(self, **options):
        """A client whose callers write."""
        client = self.client(self.mill().address, **options)
        client.next()
        until(lambda: not client._fleet._link._writes.locked())
        return client

    def test_a_handler_anywhere_in_a_call_holds_up_no_other_call_and_may_call_itself(self):
        client = self.connected()
        link, place, ran, numbers = client._fleet._link, 0, True, []

        def handler():
            begin = time.monotonic()
            numbers.extend([self.neighbours(client.next), client.next(), self.neighbours(client.next)])
            self.assertLess(time.monotonic() - begin, 0.9)

        while ran:
            place += 1
            with self.subTest(place=place):
                number, ran = handled_at(place, handler, client.next)
                numbers.append(number)
        self.assertGreater(place, 30)
        self.assertEqual(len(set(numbers) - {None}), 4 * (place - 1) + 1)
        self.assertIs(client._fleet._link, link)

    def test_a_write_that_takes_long_ends_no_call(self):
        client = self.connected()
        link, begun = client._fleet._link, threading.Event()
        sock = link._sock

        def send(data):
            # As where another thread holds the interpreter, before this one gets it back.
            sent = sock.send(data)
            begun.set()
            time.sleep(1.5)
            return sent

        link._sock = Slow(sock, send)
        numbers = [self.begin(client.next)]
        begun.wait(PATIENCE)
        link._sock = sock
        numbers += [self.begin(client.next) for _ in range(8)]
        self.assertEqual(len({number.result(PATIENCE) for number in numbers}), 9)
        self.assertIs(client._fleet._link, link)

    def test_a_write_that_is_cut_short_is_gone_on_with_before_any_other(self):
        client = self.connected()
        link = client._fleet._link
        sock, turns = link._sock, iter(range(1 << 30))

        def send(data):
            turn = next(turns) % 3
            if turn == 2:
                raise BlockingIOError
            return sock.send(data[: len(data) // (turn + 1) or 1])

        link._sock = Slow(sock, send)
        for _ in range(50):
            numbers = [self.begin(client.next) for _ in range(8)] + [self.begin(client.ping, b"12345") for _ in range(2)]
            self.assertTrue(all(number.result(PATIENCE) is not False for number in numbers))
        self.assertIs(client._fleet._link, link)

    def test_a_handler_that_comes_where_a_write_met_a_full_socket_holds_up_no_other_call(self):
        for raises in (False, True):
            client = self.connected()
            link, numbers = client._fleet._link, []
            sock, fulls = link._sock, iter([True])

            def send(data, sock=sock, fulls=fulls):
                if next(fulls, False):
                    raise BlockingIOError
                return sock.send(data)

            def looks(_, client=client, numbers=numbers, raises=raises):
                # Where a function begins: a handler may come.
                numbers.append(self.begin(client.next).result(PATIENCE / 4))
                if raises:
                    raise Interrupt
                return False

            link._sock = Slow(sock, send)
            with mock.patch.object(thread_link, "_is_of_handler", looks), contextlib.suppress(Interrupt):
                numbers.append(client.next())
            numbers.append(self.neighbours(client.next))
            self.assertEqual(len(set(numbers)), 2 if raises else 3)
            self.assertIs(client._fleet._link, link)

    def test_a_write_that_takes_long_ends_no_connection_however_short_the_timeout(self):
        client = self.connected(timeout=0.2, retry_for=PATIENCE)
        link = client._fleet._link
        sock = link._sock

        def send(data):
            # As where another thread holds the interpreter.
            sent = sock.send(data)
            time.sleep(0.6)
            return sent

        link._sock = Slow(sock, send)
        self.assertGreater(threads.run(link.exchange(wire.next_id(), time.monotonic() + PATIENCE)), 0)
        link._sock = sock
        self.assertGreater(client.next(), 0)
        self.assertIs(client._fleet._link, link)

    def test_no_more_than_the_bound_are_in_flight_whoever_writes(self):
        fake = self.fake()
        client, peer = self.pair(fake, max_in_flight=3)
        calls = [self.begin(client.next) for _ in range(12)]
        for number in range(4):
            asked = [peer.asks(wire.NEXT) for _ in range(3)]
            self.assertTrue(peer.is_quiet(0.05))
            for at, one in enumerate(asked):
                peer.send(frames.number(wire.NEXT, one.request_id, 10 * number + at + 1))
        self.assertEqual(len({call.result(PATIENCE) for call in calls}), 12)


class GoneOn(Stories):
    """What a handler interrupted goes on behind what the handler did."""

    kind = Client

    #: What draws. Behind their ends the ids are the caller's own.
    calls = (
        lambda _, ids: ids.__next__,
        lambda _, ids: ids.try_next,
        lambda _, ids: functools.partial(ids.take, 20),
        lambda client, _: functools.partial(client.array, 20),
    )

    def at_the_end_of_a_piece(self, client, **options):
        """A prefetch that opens a piece at its next id, and holds some."""
        ids = client.prefetch(**{"wait": 0.5, **options})
        next(ids)
        until(lambda: ids._source._pool.held)
        with contextlib.suppress(IndexError):
            while True:
                ids._source.piece.pop()
        return ids

    @unittest.skipUnless(hasattr(os, "fork"), "this system does not fork")
    def test_a_child_that_a_handler_forks_anywhere_has_no_id_of_its_parent(self):
        for call in self.calls:
            client = self.client(self.mill().address).connect()
            parents, children, place, ran = set(), [], 0, True
            while ran:
                place += 1
                ids = self.at_the_end_of_a_piece(client, least=100)
                read, write = os.pipe()
                child = None

                def handler():
                    nonlocal child
                    child = os.fork()

                found, ran = handled_at(place, handler, call(client, ids))
                found = found if isinstance(found, list) else [found or 0]
                if child == 0:
                    with contextlib.suppress(XuidError):
                        found = [*found, *(next(ids) for _ in range(150))]
                    os.write(write, b"".join(b"%d " % number for number in found))
                    os._exit(0)
                parents.update(found, (next(ids) for _ in range(150)))
                os.close(write)
                with os.fdopen(read) as pipe:
                    children.extend(int(number) for number in pipe.read().split())
                if child:
                    os.waitpid(child, 0)
                ids.close()
            self.assertGreater(place, 3)
            self.assertGreater(len(children), 100)
            self.assertEqual(parents & set(children) - {0}, set())

    def test_a_handler_anywhere_in_a_draw_holds_up_no_other_draw_and_may_draw_itself(self):
        for call in self.calls:
            client, numbers, place, ran = self.client(self.mill().address).connect(), [], 0, True
            while ran:
                place += 1
                ids = self.at_the_end_of_a_piece(client, least=100, wait=PATIENCE)

                def handler(ids=ids, numbers=numbers):
                    for draw in (ids.__next__, functools.partial(ids.take, 30)):
                        begin = time.monotonic()
                        for found in (self.begin(draw).result(PATIENCE / 4), draw(), self.begin(draw).result(PATIENCE / 4)):
                            numbers.extend(found if isinstance(found, list) else [found])
                        self.assertLess(time.monotonic() - begin, 0.9)

                found, ran = handled_at(place, handler, call(client, ids))
                numbers.extend(found if isinstance(found, list) else [found] if found else [])
                ids.close()
            self.assertGreater(place, 3)
            self.assertEqual(len(set(numbers)), len(numbers))

    def test_a_handler_that_closes_anywhere_leaves_no_id_behind_it(self):
        for call in self.calls:
            place, ran = 0, True
            while ran:
                place += 1
                client = self.client(self.mill().address).connect()
                ids = self.at_the_end_of_a_piece(client, least=100)
                _, ran = handled_at(place, ids.close, call(client, ids))
                for _ in range(3 if ran else 0):
                    with self.subTest(place=place), self.assertRaises(Closed):
                        next(ids)
                client._fleet.end()


@unittest.skipUnless(hasattr(signal, "SIGUSR1"), "this system has no such signals")
class Handlers(Stories):
    kind = Client

    def test_a_handler_that_calls_while_its_thread_connects_shares_the_connection(self):
        fake = self.fake()
        client, numbers, begun = self.client(fake.address, timeout=PATIENCE), [], threading.Event()

        def handler(*_):
            begun.set()
            with contextlib.suppress(Timeout):
                numbers.append(client.next())

        before = signal.signal(signal.SIGUSR1, handler)
        self.addCleanup(signal.signal, signal.SIGUSR1, before)

        def serve():
            peer = fake.accept()
            hello = peer.hello()
            os.kill(os.getpid(), signal.SIGUSR1)
            begun.wait(PATIENCE)
            peer.send(frames.welcome(hello.request_id, fake.cluster))
            for number in (1, 2):
                asked = peer.asks(wire.NEXT)
                peer.send(frames.number(wire.NEXT, asked.request_id, number))

        serving = self.begin(serve)
        numbers.append(client.next())
        serving.result(PATIENCE)
        self.assertEqual(sorted(numbers), [1, 2])

    def test_a_thread_that_forks_handles_no_signal_until_all_are_told_and_then_as_before(self):
        ran = []

        def handler(*_):
            ran.append(len(ran))
            raise Interrupt

        before = signal.signal(signal.SIGUSR1, handler)
        self.addCleanup(signal.signal, signal.SIGUSR1, before)
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        # Not every embedding says before a fork that it will.
        for at, hold in enumerate((process._hold_signals, process._in_child)):
            with mock.patch.object(process, "_holders", []):
                hold()
            signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)
            self.assertEqual(len(ran), at)
            with self.assertRaises(Interrupt):
                process._free_signals()
            process._free_signals()
            self.assertEqual(len(ran), at + 1)
            self.assertEqual((signal.pthread_sigmask(signal.SIG_BLOCK, ()), process._forking.blocked), (mask, None))

    @unittest.skipUnless(hasattr(os, "fork"), "this system does not fork")
    def test_a_signal_that_comes_before_a_child_is_told_of_its_fork_finds_nothing_of_its_parent(self):
        parent = os.getpid()

        class Holders(list):
            """Before any of them is told, a signal comes."""

            add = list.append

            def __iter__(self):
                if os.getpid() != parent:
                    os.kill(os.getpid(), signal.SIGUSR1)
                return super().__iter__()

        for raises in (False, True):
            client = self.client(self.mill().address)
            ids, found = client.prefetch(least=1_000), []
            drawn = [next(ids)]
            until(lambda ids=ids: ids._source._pool.held)

            def handler(*_, raises=raises, ids=ids, found=found):
                if raises:
                    raise Interrupt
                found.append(next(ids))

            before = signal.signal(signal.SIGUSR1, handler)
            self.addCleanup(signal.signal, signal.SIGUSR1, before)
            mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
            read, write = os.pipe()
            with contextlib.ExitStack() as patches:
                patches.enter_context(mock.patch.object(process, "_holders", Holders(process._holders)))
                patches.enter_context(mock.patch.object(process, "_hold_signals"))
                patches.enter_context(mock.patch.object(sys, "unraisablehook"))
                child = os.fork()
            if not child:
                with contextlib.suppress(XuidError):
                    found += [next(ids) for _ in range(100)]
                if signal.pthread_sigmask(signal.SIG_BLOCK, ()) == mask:
                    os.write(write, b"".join(b"%d " % number for number in found))
                os._exit(0)
            os.close(write)
            self.assertEqual(signal.pthread_sigmask(signal.SIG_BLOCK, ()), mask)
            drawn += [next(ids) for _ in range(1_000)]
            with os.fdopen(read) as pipe:
                children = {int(number) for number in pipe.read().split()}
            os.waitpid(child, 0)
            self.assertEqual(len(children), 100 if raises else 101)
            self.assertEqual(children & set(drawn), set())

    @unittest.skipUnless(hasattr(os, "fork"), "this system does not fork")
    def test_a_child_waits_for_no_thread_of_its_parent(self):
        for is_held in (True, False):
            mutex, news, begun, forked, children = Mutex(), threads.News(), threading.Event(), threading.Event(), []

            def handler(*_, children=children, forked=forked):
                if not children:
                    children.append(os.fork())
                    if children[0]:
                        forked.set()

            def hold(begun=begun, forked=forked):
                begun.set()
                # Sent again: one that comes before the main thread sleeps does not wake it.
                while not forked.wait(0.1):
                    signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)

            def tell(news=news, hold=hold):
                hold()
                news.tell()

            before = signal.signal(signal.SIGUSR1, handler)
            self.addCleanup(signal.signal, signal.SIGUSR1, before)
            # Either another thread has the lock, or there is no news.
            holding = self.begin(mutex.under, hold) if is_held else self.begin(tell)
            begun.wait(PATIENCE)
            begin = time.monotonic()
            try:
                if is_held:
                    mutex.under(int)
                else:
                    threads.run(news.wait(news.last, PATIENCE))
            finally:
                if children == [0]:
                    os._exit(0 if time.monotonic() - begin < PATIENCE / 4 else 1)
            holding.result(PATIENCE)
            ended = (0, 0)
            while ended == (0, 0) and time.monotonic() < begin + PATIENCE:
                ended = os.waitpid(children[0], os.WNOHANG)
                time.sleep(0.002)
            if ended == (0, 0):
                os.kill(children[0], signal.SIGKILL)
                os.waitpid(children[0], 0)
            self.assertEqual(ended, (children[0], 0))


del Talk

if __name__ == "__main__":
    unittest.main()
