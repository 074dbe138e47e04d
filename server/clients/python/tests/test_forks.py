"""A child, whoever forks it, and whatever runs in it first: nothing of its parent comes out there. And who draws in the parent
meanwhile."""

import asyncio
import contextlib
import os
import sys
import threading
import time
import unittest
from unittest import mock

from xuid_client import AsyncClient, Client, ConnectionLost, XuidError, process, wire
from xuid_client.link.thread_link import Waiter

from .support.fake import PATIENCE, Stories, until
from .support.handlers import Interrupt
from .support.programs import ran

HOOK = """
import mmap, os, sys
if "refused" in sys.argv:
    # As where no page is wiped.
    class Sandbox(mmap.mmap):
        def madvise(self, advice):
            raise OSError
    mmap.mmap = Sandbox
hooks = []
# As of a package that keeps hooks for others: it is imported before the client.
os.register_at_fork(after_in_child=lambda: [hook() for hook in hooks])
from xuid_client import Client
client = Client(sys.argv[1], token="", timeout=5.0)
read, write = os.pipe()
"""

DRAWS = HOOK + """
ids = client.prefetch(least=1_000)
next(ids)
found = []
hooks.append(lambda: found.extend(next(ids) for _ in range(21)))
if not os.fork():
    os.write(write, b" ".join(b"%d" % number for number in found))
    os._exit(0)
os.close(write)
print(*(next(ids) for _ in range(100)))
print(os.fdopen(read).read())
"""

CALLS = HOOK + """
client.next()
hooks.append(lambda: os.write(write, b"%d" % client.next()))
if not os.fork():
    os._exit(0)
os.close(write)
print(os.fdopen(read).read(), client.next())
"""

GOES_ON = HOOK + """
import time
ids = client.prefetch(least=1_000)
next(ids)
links = []
hooks.append(lambda: (next(ids), links.append(client._fleet._link)))
if not os.fork():
    # So that the refill has nothing to do.
    time.sleep(0.2)
    before = time.process_time()
    time.sleep(0.5)
    is_same = links[0] is not None and client._fleet._link is links[0] and links[0].is_serving
    os.write(write, b"%d %f" % (is_same, time.process_time() - before))
    os._exit(0)
os.close(write)
print(os.fdopen(read).read())
"""

PARENTS = """
import asyncio, os, sys, threading
hooks = {"before": [], "after_in_parent": []}
for name in hooks:
    os.register_at_fork(**{name: lambda name=name: [hook() for hook in hooks[name]]})
from xuid_client import AsyncClient, Client
def fork():
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
"""

PARENTS_DRAW = PARENTS + """
ids = Client(sys.argv[1], token="").prefetch(least=1_000, wait=float("inf"))
next(ids)
for name in hooks:
    hooks[name].append(lambda: print(next(ids), ids.try_next() is not None, flush=True))
fork()
"""

TASKS = PARENTS + """
async def main():
    async with AsyncClient(sys.argv[1], token="") as client:
        ids = client.prefetch(least=1_000, wait=float("inf"))
        print(await ids.next())
        held = asyncio.Event()
        loop, drawn = asyncio.get_running_loop(), threading.Event()
        # The thread that forks waits here for a draw of the loop's.
        hooks["after_in_parent"].append(lambda: (loop.call_soon_threadsafe(held.set), drawn.wait(5)))
        forking = loop.run_in_executor(None, fork)
        await held.wait()
        print(await ids.next())
        drawn.set()
        await forking
asyncio.run(main())
"""

# As uWSGI forks, and whatever else does it past Python: what is registered hears nothing of it.
WORKER = """
import mmap, os, sys, threading
kind = sys.argv[2]
class Sandbox(mmap.mmap):
    def madvise(self, advice):
        # Takes all for hints; takes this one for a hint; refuses it.
        if kind in ("refused", "first") or (kind == "half" and advice < 0):
            raise OSError
if kind in ("ignored", "half", "refused", "first"):
    mmap.mmap = Sandbox
if kind != "first":
    os.register_at_fork = lambda **_: None
from xuid_client import Client
client = Client(sys.argv[1], token="", timeout=5.0)
ids = client.prefetch(least=1_000, wait=5.0)
next(ids)
read, write = os.pipe()
if kind in ("namespace", "first"):
    # Its first process has the number that the one outside may have.
    parent = os.getpid()
    os.getpid = lambda: parent
if not os.fork():
    found = []
    calls = {
        "next": lambda: found.extend(next(ids) for _ in range(20)),
        "try": lambda: found.extend(filter(None, (ids.try_next() for _ in range(20)))),
        "take": lambda: found.extend(ids.take(20)),
        "call": lambda: found.append(client.next()),
        "stands": lambda: os._exit(1) if client.is_connected else found.append(client.next()),
    }
    if kind == "threads":
        threads = [threading.Thread(target=calls["next"]) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    else:
        calls[{"half": "take"}.get(kind, kind if kind in calls else "next")]()
    link = client._fleet._link
    client.next()
    found.append(client.next())
    assert link is None or client._fleet._link is link, "it connects twice"
    os.write(write, b" ".join(b"%d" % number for number in found))
    os._exit(0)
os.close(write)
# Of the piece that the child has a copy of, and of the pool.
print(*(next(ids) for _ in range(50)), *ids.take(50), client.next())
print(os.fdopen(read).read())
"""

# In the middle of a draw, or of a call.
MIDDLE = """
import asyncio, os, sys
kind, child = sys.argv[2], None
os.register_at_fork = lambda **_: None
from xuid_client import AsyncClient, Client, XuidError, wire
read, write = os.pipe()
def forked(found):
    global child
    if child is None:
        child = os.fork()
    return found
def threads():
    client = Client(sys.argv[1], token="", timeout=5.0)
    if kind == "call":
        return client._call(wire.array(20, "any", 0.05), lambda ids: forked(list(ids)))
    ids = client.prefetch(least=20, wait=5.0)
    next(ids)
    while not ids._source._pool.holds(20, 0.0):
        ids.try_next()
    pool = ids._source._pool
    take = pool.take
    pool.take = lambda *args: forked(take(*args))
    return ids.take(20)
async def tasks():
    client = AsyncClient(sys.argv[1], token="", timeout=5.0)
    call = client._fleet.call
    async def calls(request):
        return forked(await call(request))
    client._fleet.call = calls
    return await client.array(20)
try:
    found = asyncio.run(tasks()) if kind == "task" else threads()
except (XuidError, RuntimeError):
    # A loop that goes on in a child may be of no use there.
    assert child == 0 and kind == "task"
    found = []
if not child:
    os.write(write, b" ".join(b"%d" % number for number in found))
    os._exit(0)
os.close(write)
print(*found)
print(os.fdopen(read).read())
os._exit(0)
"""

# A thread of the parent is in the middle of a change, and stays there in a child.
CHANGES = """
import faulthandler, os, sys, threading
os.register_at_fork = lambda **_: None
from xuid_client import Client
client = Client(sys.argv[1], token="", timeout=5.0).connect()
begun, over = threading.Event(), threading.Event()
changing = threading.Thread(target=client._fleet._mutex.under, args=(lambda: (begun.set(), over.wait(10)),))
changing.start()
begun.wait()
child = os.fork()
if not child:
    faulthandler.dump_traceback_later(3, exit=True, file=open(os.devnull, "w"))
    os._exit(0 if next(client.prefetch(wait=5.0)) else 2)
print(os.waitpid(child, 0)[1])
over.set()
"""

# What Python makes up by itself it begins anew in a child of its own only.
HOMES = """
import os, random, sys
os.register_at_fork = lambda **_: None
from xuid_client import Client, process
client = Client([f"127.0.0.1:{port}" for port in range(1, 11)], token="")
begin = random.getstate()
for _ in range(16):
    child = os.fork()
    if not child:
        random.setstate(begin)
        process.settle()
        print(client._fleet._home, flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""

DEEP = """
import os, sys
from xuid_client import Client

class InChild(Exception):
    pass

def deep(left):
    if left:
        return deep(left - 1)
    child = os.fork()
    if not child:
        raise InChild
    os.waitpid(child, 0)

ids = Client(sys.argv[1], token="").prefetch(least=1_000, wait=10)
print(next(ids), flush=True)
sys.setrecursionlimit(200)
for left in range(150, 200):
    try:
        deep(left)
    except RecursionError:
        pass
    except InChild:
        sys.setrecursionlimit(1_000)
        print(next(ids), flush=True)
        os._exit(0)
sys.setrecursionlimit(1_000)
print(next(ids))
"""


class Breaks:
    """A holder of something that fails when it is told of a fork."""

    def after_fork(self):
        raise RuntimeError("of a test")


class Forks(unittest.TestCase):
    def test_a_holder_that_fails_keeps_no_other_one_from_being_told(self):
        told = []

        class Hears:
            def after_fork(self):
                told.append(self)

        holders = [kind() for _ in range(20) for kind in (Hears, Breaks)]
        with mock.patch.object(process, "_holders", holders), contextlib.suppress(RuntimeError):
            process._tell()
        self.assertEqual(len(told), 20)

    def told(self, *holders):
        """As in a child that was not told yet."""
        patches = contextlib.ExitStack()
        for name, value in (("own", process._word()), ("_holders", list(holders)), ("_telling", threading.RLock())):
            patches.enter_context(mock.patch.object(process, name, value))
        return patches

    def test_one_thread_tells_and_the_others_wait_for_it(self):
        told, others = [], []

        class Holder:
            def after_fork(self):
                told.append(bool(process.own[0]))
                if not others:
                    others.append(threading.Thread(target=process.settle))
                    others[0].start()
                    others[0].join(0.05)

        # However busy the machine is.
        with self.told(Holder()), mock.patch.object(process, "_MOMENT", PATIENCE):
            process.settle()
            others[0].join(PATIENCE)
            # Once, and before the word.
            self.assertEqual((told, bool(process.own[0])), ([False], True))

    def test_a_thread_of_a_parent_that_tells_is_waited_for_a_moment(self):
        over, told = threading.Event(), []
        self.addCleanup(over.set)

        class Holder:
            def after_fork(self):
                told.append(self)

        with self.told(Holder()):
            holding = threading.Thread(target=lambda: process._telling.acquire() and over.wait(PATIENCE), daemon=True)
            holding.start()
            until(lambda: not process._telling.acquire(False) or process._telling.release())
            telling = threading.Thread(target=process.settle, daemon=True)
            telling.start()
            telling.join(PATIENCE / 4)
            self.assertEqual(len(told), 1)

    def test_what_keeps_some_from_being_told_has_all_told_at_the_next_look(self):
        for error, is_ones in ((KeyboardInterrupt, False), (MemoryError, False), (MemoryError, True), (RecursionError, True)):
            told = []

            class Holder:
                def after_fork(self, error=error, is_ones=is_ones, told=told):
                    told.append(self)
                    if len(told) == 1 and is_ones:
                        raise error

            holders = [Holder(), Holder()]
            looks = [holders if is_ones else error, holders]
            with self.told(), mock.patch.object(process, "_all_holders", side_effect=looks):
                with self.assertRaises(error):
                    process.settle()
                self.assertFalse(process.own[0])
                process.settle()
                self.assertTrue(process.own[0])
            self.assertLessEqual(set(holders), set(told))

    def test_who_is_interrupted_by_a_handlers_error_is_told_again(self):
        told = []

        class Holder:
            def after_fork(self):
                told.append(self)
                if len(told) == 1:
                    raise Interrupt

        with self.told(Holder()), self.assertRaises(Interrupt):
            process.settle()
        self.assertEqual(len(told), 2)

    def test_where_no_page_is_wiped_the_number_of_the_process_tells(self):
        own = process._Number()
        self.assertFalse(own[0])
        own[0] = True
        self.assertTrue(own[0])
        with mock.patch.object(os, "getpid", lambda: 0):
            self.assertFalse(own[0])

    @unittest.skipUnless(sys.platform == "linux", "there the system wipes it")
    def test_a_child_has_lost_the_word_before_it_is_told(self):
        word = process._word()
        word[0] = True
        child = os.fork()
        if not child:
            os._exit(int(word[0]))
        self.assertEqual((os.waitpid(child, 0)[1], word[0]), (0, 1))
        self.assertNotIsInstance(word, process._Number)

    def test_a_waiter_that_a_thread_of_the_parent_had_told_may_be_told_again(self):
        waiter = Waiter()
        waiter.resolve(1)
        waiter.reject(ConnectionLost("a:1"))
        self.assertTrue(waiter.wait(time.monotonic()))
        with self.assertRaises(ConnectionLost):
            waiter.outcome()


@unittest.skipUnless(hasattr(os, "fork"), "this system does not fork")
class Untold(Stories):
    kind = Client

    def test_a_hook_that_comes_before_a_child_is_told_draws_no_id_of_its_parent(self):
        parents, childs = (line.split() for line in ran(DRAWS, self.mill().address).splitlines())
        self.assertEqual((len(parents), len(childs)), (100, 21))
        self.assertEqual(set(parents) & set(childs), set())

    def test_a_refill_that_is_told_of_a_fork_though_it_lives_ends(self):
        ids = self.client(self.mill().address).prefetch(wait=PATIENCE)
        next(ids)
        gate = ids._source._gate
        until(lambda: gate.is_fed)
        # As where all are told twice, and a draw came in between.
        gate.demand.after_fork()
        until(lambda: not gate.is_fed, "its end")
        self.assertEqual(len({next(ids) for _ in range(2_000)}), 2_000)

    def test_a_child_that_is_forked_at_the_limit_of_recursion_draws_no_id_of_its_parent(self):
        drawn = ran(DEEP, self.mill().address).split()
        self.assertGreater(len(drawn), 20)
        self.assertEqual(len(drawn), len(set(drawn)))

    def test_what_a_hook_has_begun_before_a_child_is_told_goes_on_there_in_peace(self):
        for kind in ("", "refused"):
            is_same, busy = ran(GOES_ON, self.mill().address, kind).split()
            self.assertEqual(is_same, "1", "the child's own connection was closed")
            self.assertLess(float(busy), 0.25)

    def test_a_hook_that_comes_before_a_child_is_told_calls_on_no_connection_of_its_parent(self):
        fake = self.fake()
        running = self.begin(ran, CALLS, fake.address)
        parents = fake.greet()
        parents.answer(1)
        fake.greet().answer(7)
        asked = parents.answer(8)
        self.assertEqual((asked.op, running.result(PATIENCE).split()), (wire.NEXT, ["7", "8"]))

    def test_what_ends_with_another_threads_locals_in_a_child_draws_no_id_of_its_parent(self):
        ids = self.client(self.mill().address).prefetch(least=1_000, wait=0.2)
        next(ids)
        local, begun, over, found = threading.local(), threading.Event(), threading.Event(), []
        self.addCleanup(over.set)

        class Session:
            def __del__(self):
                with contextlib.suppress(XuidError):
                    found.append(ids.try_next())

        def work():
            local.session = Session()
            begun.set()
            over.wait(PATIENCE)

        self.begin(work)
        begun.wait(PATIENCE)
        read, write = os.pipe()
        child = os.fork()
        if not child:
            os.write(write, b" ".join(b"%d" % (number or 0) for number in found))
            os._exit(0)
        os.close(write)
        parents = {next(ids) for _ in range(100)}
        with os.fdopen(read) as pipe:
            childs = [int(number) for number in pipe.read().split()]
        os.waitpid(child, 0)
        self.assertEqual(len(childs), 1)
        self.assertEqual(parents & set(childs), set())

    def test_a_child_in_which_another_threads_client_ends_leaves_its_parents_loop_alone(self):
        address, local, forked, ready = self.mill().address, threading.local(), threading.Event(), threading.Event()
        self.addCleanup(forked.set)

        async def call():
            return await local.client.next()

        def work():
            loop = asyncio.new_event_loop()

            async def make():
                local.client = AsyncClient(address, token="", timeout=PATIENCE / 4)

            loop.run_until_complete(make())
            numbers = [loop.run_until_complete(call())]
            ready.set()
            forked.wait(PATIENCE)
            numbers.append(loop.run_until_complete(call()))
            loop.run_until_complete(local.client.close())
            loop.close()
            return numbers

        working = self.begin(work)
        ready.wait(PATIENCE)
        child = os.fork()
        if not child:
            os._exit(0)
        os.waitpid(child, 0)
        forked.set()
        self.assertEqual(working.result(PATIENCE), [1, 2])


@unittest.skipUnless(sys.platform == "linux", "where uWSGI is")
class Workers(Stories):
    """Forked past Python."""

    kind = Client

    def test_a_worker_has_no_id_of_the_process_that_it_was_forked_from(self):
        for kind in ("next", "try", "take", "call", "stands", "threads", "namespace", "ignored", "half", "refused", "first"):
            parents, workers = (line.split() for line in ran(WORKER, self.mill().address, kind).splitlines())
            self.assertEqual(len(parents), 101, kind)
            self.assertGreaterEqual(len(workers), 160 if kind == "threads" else 1, kind)
            self.assertEqual(len({*parents, *workers}), len(parents) + len(workers), kind)

    def test_a_worker_that_is_forked_in_the_middle_of_a_call_has_no_id_that_its_parent_has(self):
        for kind in ("take", "call", "task"):
            parents, workers = (line.split() for line in ran(MIDDLE, self.mill().address, kind).splitlines())
            self.assertEqual(len(parents), 20, kind)
            self.assertEqual(len(workers), 20 if kind != "task" else len(workers), kind)
            self.assertEqual(set(parents) & set(workers), set(), kind)

    def test_workers_begin_at_servers_of_their_own(self):
        self.assertGreater(len(set(ran(HOMES).split())), 1)

    def test_a_worker_waits_for_no_thread_of_its_parent_where_it_begins_a_prefetch(self):
        self.assertEqual(ran(CHANGES, self.mill().address).split(), ["0"])


@unittest.skipUnless(hasattr(os, "fork"), "this system does not fork")
class Parents(Stories):
    """Who draws in the parent while a thread of it forks."""

    kind = Client

    def test_a_hook_of_the_parent_draws_at_once(self):
        first, second = ran(PARENTS_DRAW, self.mill().address).splitlines()
        self.assertEqual((first.split()[1], second.split()[1]), ("True", "True"))
        self.assertNotEqual(first, second)

    def test_a_task_draws_at_once_while_another_thread_forks(self):
        first, second = ran(TASKS, self.mill().address).split()
        self.assertNotEqual(first, second)
