"""What runs in a child before it is told, what ends with the interpreter, and what a caller's own time is."""

import asyncio
import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import unittest.mock

from xuid_client import AsyncClient, Client, Closed, ConnectionLost, Timeout, XuidError, process, wire
from xuid_client.pool import EMPTY, PIECE
from xuid_client.values import Run

from .support import frames
from .support.fake import PATIENCE, Blocking, Mill, Stories, until
from .test_strangers import handled_at

HOOK = """
import os, sys
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
import _thread, asyncio, os, sys, threading, time
hooks = {"before": [], "after_in_parent": []}
for name in hooks:
    os.register_at_fork(**{name: lambda name=name: [hook() for hook in hooks[name]]})
if sys.argv[2:] == ["raises"]:
    # A handler's exception that comes at the very begin of the next hook of Python, which is the client's.
    import logging
    os.register_at_fork(after_in_parent=_thread.interrupt_main)
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

RAISES = PARENTS + """
ids = Client(sys.argv[1], token="").prefetch(least=1_000, wait=2.0)
next(ids)
sys.unraisablehook = lambda *_: None
fork()
print(next(ids))
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

# As uWSGI forks: what is registered hears nothing of it. And as its module of decorators, which wants a master, keeps hooks.
EMBEDDED = """
import os, sys, time, types
called = []
kind = sys.argv[2]
uwsgi = sys.modules["uwsgi"] = types.SimpleNamespace(
    masterpid=lambda: int(kind != "none"), post_fork_hook=lambda: called.append(1), spooler="a stranger's"
)
if kind == "none":
    sys.modules["uwsgidecorators"] = None
else:
    open(os.path.join(sys.argv[3], "uwsgidecorators.py"), "w").write('''
import uwsgi
postfork_chain = []
def postfork_chain_hook():
    for f in postfork_chain:
        f()
def postfork(f):
    postfork_chain.append(f)
uwsgi.spooler = "the module's"
uwsgi.post_fork_hook = postfork_chain_hook
''')
    sys.path.insert(0, sys.argv[3])
found = []
def early():
    # Of a module that was imported before the client: it draws, and fails.
    found.extend(ids.take(20))
    raise RuntimeError
if kind == "early":
    import uwsgidecorators
    uwsgidecorators.postfork(early)
register = os.register_at_fork
if kind != "twice":
    os.register_at_fork = lambda **_: None
from xuid_client import Client
os.register_at_fork = register
client = Client(sys.argv[1], token="")
ids = client.prefetch(least=1_000)
next(ids)
"""

WORKER = EMBEDDED + """
read, write = os.pipe()
if kind == "namespace":
    # Its first process has the number that the one outside may have.
    parent = os.getpid()
    os.getpid = lambda: parent
if not os.fork():
    try:
        uwsgi.post_fork_hook()
    except RuntimeError:
        pass
    if kind == "early":
        assert found
    else:
        assert called == [1] and uwsgi.spooler == "a stranger's"
    os.write(write, b" ".join(b"%d" % number for number in [*found, *ids.take(20), client.next()]))
    os._exit(0)
os.close(write)
print(*ids.take(100))
print(os.fdopen(read).read())
"""

ALONE = EMBEDDED + """
# Without a master process the first worker is the process that loaded the program.
uwsgi.post_fork_hook()
assert called == [1]
print(next(ids))
before = time.process_time()
time.sleep(0.5)
print(time.process_time() - before)
"""

TWICE = EMBEDDED + """
read, write = os.pipe()
if not os.fork():
    # As where uWSGI calls what is registered, too (py-call-osafterfork), and that draws.
    next(ids)
    link = client._fleet._link
    uwsgi.post_fork_hook()
    # So that the refill has nothing to do.
    time.sleep(0.2)
    before = time.process_time()
    time.sleep(0.5)
    is_same = client._fleet._link is link and link.is_serving
    os.write(write, b"%d %f" % (is_same, time.process_time() - before))
    os._exit(0)
os.close(write)
print(os.fdopen(read).read())
"""

STRANGER = """
import xuid_client
client = xuid_client.Client("127.0.0.1:1", token="")
print("once")
"""

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


DEEP = """
import contextlib, os, sys
from xuid_client import Client
client = Client(sys.argv[1], token="")

def deep(left):
    if left:
        return deep(left - 1)
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)

sys.setrecursionlimit(200)
for left in range(150, 200):
    with contextlib.suppress(RecursionError):
        deep(left)
sys.setrecursionlimit(1_000)
print(client.next())
"""


def ran(program, *arguments):
    folder = pathlib.Path(process.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, *arguments],
        cwd=folder, timeout=PATIENCE / 2, check=True, stdout=subprocess.PIPE, universal_newlines=True,
    )
    return done.stdout


@unittest.skipUnless(hasattr(os, "fork"), "this system does not fork")
class Untold(Stories):
    kind = Client

    def test_a_hook_that_comes_before_a_child_is_told_draws_no_id_of_its_parent(self):
        parents, childs = (line.split() for line in ran(DRAWS, self.mill().address).splitlines())
        self.assertEqual((len(parents), len(childs)), (100, 21))
        self.assertEqual(set(parents) & set(childs), set())

    def test_a_fork_at_the_limit_of_recursion_ends(self):
        self.assertGreater(int(ran(DEEP, self.mill().address)), 0)

    def test_what_a_hook_has_begun_before_a_child_is_told_goes_on_there_in_peace(self):
        is_same, busy = ran(GOES_ON, self.mill().address).split()
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
    kind = Client

    def worker(self, program, kind):
        with tempfile.TemporaryDirectory() as folder:
            return ran(program, self.mill().address, kind, folder).splitlines()

    def test_a_worker_of_uwsgi_has_no_id_of_the_process_that_it_was_forked_from(self):
        for kind in ("decorators", "none", "early", "namespace"):
            parents, workers = (line.split() for line in self.worker(WORKER, kind))
            self.assertEqual((len(parents), len(workers)), (100, 41 if kind == "early" else 21), kind)
            self.assertEqual(set(parents) & set(workers), set(), kind)

    def test_the_process_that_loaded_the_program_goes_on_in_peace_as_a_worker(self):
        drawn, busy = self.worker(ALONE, "none")
        self.assertGreater(int(drawn), 1)
        self.assertLess(float(busy), 0.25)

    def test_what_a_worker_has_begun_before_it_is_told_once_more_goes_on_in_peace(self):
        is_same, busy = self.worker(TWICE, "twice")[0].split()
        self.assertEqual(is_same, "1", "the worker's own connection was closed")
        self.assertLess(float(busy), 0.25)

    def test_a_strangers_module_of_the_name_of_uwsgis_is_not_imported(self):
        with tempfile.TemporaryDirectory() as folder:
            program = os.path.join(folder, "uwsgi.py")
            pathlib.Path(program).write_text(STRANGER)
            sources = str(pathlib.Path(process.__file__).parents[1])
            done = subprocess.run(
                [sys.executable, program], env={**os.environ, "PYTHONPATH": sources}, timeout=PATIENCE / 2,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True,
            )
        self.assertEqual((done.returncode, done.stdout.split()), (0, ["once"]), done.stderr)


@unittest.skipUnless(hasattr(os, "fork"), "this system does not fork")
class Parents(Stories):
    """Who draws in the parent while a thread of it forks."""

    kind = Client

    def test_a_hook_of_the_parent_draws_at_once(self):
        first, second = ran(PARENTS_DRAW, self.mill().address).splitlines()
        self.assertEqual((first.split()[1], second.split()[1]), ("True", "True"))
        self.assertNotEqual(first, second)

    def test_a_handler_that_raises_where_a_parent_is_told_of_its_fork_ends_no_prefetch(self):
        self.assertGreater(int(ran(RAISES, self.mill().address, "raises")), 1)

    def test_a_task_draws_at_once_while_another_thread_forks(self):
        first, second = ran(TASKS, self.mill().address).split()
        self.assertNotEqual(first, second)

    def test_nothing_is_opened_again_while_another_thread_forks_yet(self):
        ids = self.client(self.mill().address).prefetch(least=1_000)
        next(ids)
        source, is_forking = ids._source, [True]
        with unittest.mock.patch("xuid_client.prefetch.is_forking", lambda: is_forking[0]):
            source.before_fork()
            source.forked()
            self.assertIs(source.piece, EMPTY)
            is_forking[0] = False
            source.forked()
            self.assertIsNot(source.piece, EMPTY)
            self.assertEqual(next(ids), 2)


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

        before = signal.signal(signal.SIGUSR1, handler)
        self.addCleanup(signal.signal, signal.SIGUSR1, before)

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
        next(ids)
        pool = ids._source._pool
        until(lambda: not pool.wants())
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

        inner = pool.refill

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
