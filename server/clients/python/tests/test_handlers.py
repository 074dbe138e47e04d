"""Handlers of signals in the middle of anything: they draw, call, raise, close or fork. No client may be dead after one, nor hold up
another thread, nor hand out what is another one's."""

import contextlib
import functools
import os
import signal
import sys
import threading
import time
import unittest
from unittest import mock

from xuid_client import AsyncClient, Client, Closed, Timeout, XuidError, process, wire
from xuid_client.link import thread_link, threads
from xuid_client.link.mutex import Mutex

from .support import frames
from .support.fake import PATIENCE, Stories, until
from .support.handlers import Interrupt, handled_at, handles, interrupted_at
from .test_conversation import Talk


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

    @unittest.skipUnless(hasattr(os, "fork"), "this system does not fork")
    def test_a_prefetch_in_whose_making_a_handler_forks_goes_on_in_both(self):
        client, place, ran, ended = self.client(self.mill().address).connect(), 0, True, []
        while ran:
            place, child = place + 1, None

            def handler():
                nonlocal child
                child = os.fork()

            ids, ran = handled_at(place, handler, lambda: client.prefetch(wait=PATIENCE / 20))
            if child == 0:
                status = 1
                with contextlib.suppress(XuidError):
                    status = 0 if next(ids) else 1
                os._exit(status)
            if child:
                ended.append(os.waitpid(child, 0)[1])
            self.assertGreater(next(ids), 0)
            ids.close()
        self.assertGreater(place, 10)
        self.assertEqual(set(ended), {0})

    @unittest.skipUnless(hasattr(os, "fork"), "this system does not fork")
    def test_a_child_that_a_handler_forks_in_a_first_call_pauses_between_its_repeats(self):
        place, ran, ended = 0, True, []
        while ran:
            place, child = place + 1, None
            client = self.client("127.0.0.1:1", connect_timeout=0.1)

            def handler():
                nonlocal child
                child = os.fork()

            # No further than it takes to begin: it is not connected.
            _, ran = handled_at(place, handler, client._fleet.current_port)
            if child == 0:
                begin = time.monotonic()
                threads.run(client._fleet.current_port().sleep(0.05))
                os._exit(time.monotonic() < begin + 0.05)
            if child:
                ended.append(os.waitpid(child, 0)[1])
        self.assertGreater(place, 5)
        self.assertEqual(set(ended), {0})

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

        handles(self, handler)

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

    def test_a_child_handles_no_signal_while_all_are_told_and_then_as_before(self):
        ran = []

        def handler(*_):
            ran.append(len(ran))
            raise Interrupt

        handles(self, handler)
        mask, test = signal.pthread_sigmask(signal.SIG_BLOCK, ()), self

        class Holder:
            def after_fork(self):
                signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)
                test.assertEqual(ran, [])

        with mock.patch.object(process, "_holders", [Holder() for _ in range(3)]), self.assertRaises(Interrupt):
            process._tell()
        self.assertEqual((ran, signal.pthread_sigmask(signal.SIG_BLOCK, ())), ([0], mask))

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

            handles(self, handler)
            mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
            read, write = os.pipe()
            with contextlib.ExitStack() as patches:
                patches.enter_context(mock.patch.object(process, "_holders", Holders(process._holders)))
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
    def test_a_child_that_a_handler_forks_while_a_reply_becomes_a_list_has_none_of_it(self):
        parent, children = os.getpid(), []

        def handler(*_):
            if not children:
                children.append(os.fork())

        handles(self, handler)

        async def call(_):
            # A reply that a signal comes with, as it is looked through.
            return map(os.kill, [parent], [signal.SIGUSR1]) if os.getpid() == parent else [7]

        for kind in (Client, AsyncClient):
            client = kind("127.0.0.1:1", token="")
            client._fleet.call = call
            for asks in (client.array, client.runs, client.sequence("a").array, client.sequence("a").runs):
                children.clear()
                found = asks(1)
                found = found if kind is Client else threads.run(found)
                if children == [0]:
                    os._exit(found != [7])
                self.assertEqual((found, os.waitpid(children[0], 0)[1]), ([None], 0))

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

            handles(self, handler)
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
