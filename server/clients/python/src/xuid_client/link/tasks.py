"""Links for tasks of asyncio: a protocol on the event loop that the client is used in."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import time
from collections.abc import Coroutine
from typing import Any, Callable, TypeVar

from .. import wire
from ..errors import Closed, ConnectionLost, Timeout, Unreachable, XuidError
from ..options import Options, split
from ..process import tell_of_forks
from ..values import Served
from .conversation import Conversation, Greeting
from .fleet import STRAGGLERS
from .thread_link import AGAIN, share
from .threads import start

T = TypeVar("T")


#: How long a call whose time is over, or a verdict, waits for what still comes, in seconds.
_LAST_LOOK = 1.0

#: Behind so many bytes in one turn of the loop more may lie in the socket.
_MUCH = 32_768

#: Behind so many seconds without a word a connection may be over. A server that says GOAWAY leaves more time than that.
_QUIET = 0.1


class Waiter:
    """A task that waits for a reply."""

    __slots__ = ("future",)

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.future: asyncio.Future[Any] = loop.create_future()

    def resolve(self, value: Any) -> None:
        if not self.future.done():
            self.future.set_result(value)

    def reject(self, error: Exception) -> None:
        if not self.future.done():
            self.future.set_exception(error)
            # It counts as seen: the task may have been cancelled meanwhile.
            self.future.exception()


class TaskLink(asyncio.Protocol):
    """A connection, which :meth:`greet` makes ready."""

    served: Served
    _conversation: Conversation

    def __init__(self, server: str, options: Options, loop: asyncio.AbstractEventLoop) -> None:
        self._server = server
        self._options = options
        self._loop = loop
        #: What the transport uses.
        self.sock: socket.socket | None = None
        self._transport: asyncio.Transport | None = None
        self._greeting: Greeting | None = Greeting(server, options)
        self._greeted = Waiter(loop)
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._is_flushing = False
        self._is_abandoned = False
        #: How much came.
        self._received = 0
        tell_of_forks(self)

    async def greet(self) -> None:
        """Waits for the reply to HELLO."""
        await self._greeted.future

    @property
    def is_over(self) -> bool:
        return self._conversation.ended is not None

    @property
    def is_serving(self) -> bool:
        return self._conversation.is_serving

    @property
    def was_sent_away(self) -> bool:
        return self._conversation.was_sent_away

    def is_silent_since(self, time: float) -> bool:
        return self._conversation.is_silent_since(time)

    async def exchange(self, request: wire.Request, deadline: float) -> Any:
        """The reply. Raises :class:`NotSent`, or why there is none. A task that is cancelled ends alone."""
        waiter = Waiter(self._loop)
        begin = time.monotonic()
        entry = self._conversation.begin(request, waiter, begin)
        self._flush_soon()
        late = self._loop.call_later(max(0.0, deadline - begin), self._is_late, waiter, deadline - begin)
        try:
            return await waiter.future
        finally:
            late.cancel()
            entry.waiter = None

    def retire(self) -> None:
        self._conversation.retire(time.monotonic())
        if self._conversation.has_left:
            self.end(ConnectionLost(self._server, "it was left"))
        else:
            self._set_timer()

    def end(self, error: XuidError) -> None:
        """Tells all waiters, and closes."""
        if self._greeting:
            self._greeted.reject(error)
        else:
            self._conversation.end(error)
        if self._timer:
            self._timer.cancel()
        # The loop may be over, and with it the connection.
        if self._transport and not self._loop.is_closed():
            self._transport.abort()

    def after_fork(self) -> None:
        """In a child: the connection and the loop are the parent's. The loop is left alone. Closing the child's copy of the
        socket sends nothing, and a task that goes on in that loop reads nothing of the parent's."""
        self._transport = self._timer = None
        if self.sock:
            self.sock.close()

    # What the loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) and self._greeting
        self._transport = transport
        transport.write(self._greeting.outbox)

    def data_received(self, data: bytes) -> None:
        self._received += len(data)
        try:
            if self._greeting:
                served = self._greeting.receive(data)
                if not served:
                    return
                data, self.served = self._greeting.rest(), served
                self._conversation = Conversation(served, self._options, time.monotonic())
                self._greeting = None
                self._greeted.resolve(None)
            self._conversation.receive(data, time.monotonic())
            if self._conversation.has_left:
                raise ConnectionLost(self._server, "it said GOAWAY")
        except XuidError as error:
            self.end(error)
            return
        self._flush_soon()

    def connection_lost(self, wrong: Exception | None) -> None:
        if isinstance(wrong, ssl.SSLError) and self._greeting:
            # A server that refuses the client's certificate says so behind the handshake.
            self.end(Unreachable(self._server, str(wrong), False))
        elif self._greeting:
            self.end(self._greeting.end())
        else:
            self.end(ConnectionLost(self._server, str(wrong) if wrong else "it was closed"))

    # Writing, and the clock.

    def _flush_soon(self) -> None:
        """One write for all requests of one turn of the loop."""
        if self._is_flushing:
            return
        self._is_flushing = True
        if self._greeting or time.monotonic() - self._conversation.heard < _QUIET:
            self._loop.call_soon(self._flush)
        else:
            # The loop looks into the socket before: a GOAWAY may lie there, and the end of the connection behind it. A write
            # into that would be answered by a reset, and the next one would fail before anything was read.
            self._loop.call_soon(self._loop.call_soon, self._flush)

    def _flush(self) -> None:
        self._is_flushing = False
        outbox = self._conversation.take_outbox()
        if outbox and self._transport and not self._transport.is_closing():
            self._transport.write(bytes(outbox))
        self._set_timer()

    def _set_timer(self) -> None:
        """A timer that stands and is due before is left as it is: it looks, and is set again."""
        look_at = self._conversation.look_at
        if self._conversation.ended or look_at == float("inf") or (self._timer and self._timer_at <= look_at):
            return
        if self._timer:
            self._timer.cancel()
        self._timer_at = look_at
        self._timer = self._loop.call_later(max(0.0, look_at - time.monotonic()), self._look)

    def _look(self) -> None:
        # The timer stays until it is judged: no other look is begun meanwhile.
        self._read_up(self._judge)

    def _judge(self) -> None:
        self._timer = None
        if self._conversation.ended:
            return
        now = time.monotonic()
        try:
            if now >= self._conversation.look_at:
                self._conversation.look(now)
        except XuidError as error:
            self.end(error)
            return
        self._flush()

    def _is_late(self, waiter: Waiter, limit: float) -> None:
        self._read_up(lambda: waiter.reject(Timeout(self._server, limit)))

    def _read_up(self, then: Callable[[], None]) -> None:
        """Does that when all was read that lies in the socket: a turn of the loop has passed that brought little. A process that
        was stopped finds its times over before it has read anything."""
        begin, received = time.monotonic(), self._received

        def look() -> None:
            nonlocal received
            is_little = self._received - received < _MUCH
            if is_little or self._conversation.ended or time.monotonic() - begin >= _LAST_LOOK:
                then()
            else:
                received = self._received
                self._loop.call_soon(self._loop.call_soon, look)

        self._loop.call_soon(self._loop.call_soon, look)


class Tasks:
    """What waits, for the tasks of one event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        #: The dial that is under way. It belongs to no task: those that wait for it may go.
        self._search: asyncio.Task[Any] | None = None
        #: The loop itself holds tasks by weak references only.
        self._tasks: set[asyncio.Task[None]] = set()
        #: Names that are being looked up, and since when.
        self._lookups: dict[str, tuple[asyncio.Future[Any], float]] = {}
        self._closing = News()
        self._is_open = self._closing.last

    def is_current(self) -> bool:
        return asyncio.get_running_loop() is self._loop

    async def in_turn(self, servers: str, work: Callable[[], Coroutine[Any, Any, T]], limit: float) -> T:
        begin = time.monotonic()
        while True:
            search = self._search
            if search is None or search.done():
                search = self._search = self._loop.create_task(work())
                # Where all that waited are gone, nobody asks how it ended.
                search.add_done_callback(lambda done: done.cancelled() or done.exception())
            # Cancelled is who waits, and alone. A stranger may cancel any task of the loop: then another search is begun.
            await asyncio.wait({search}, timeout=max(0.0, limit - time.monotonic()))
            if not search.done():
                raise Timeout(servers, max(0.0, limit - begin))
            if not search.cancelled():
                break
        error = search.exception()
        # One for each: what is raised keeps the frames of its caller.
        failure = error.again() if isinstance(error, XuidError) else error
        if failure is not None:
            raise failure
        return search.result()  # type: ignore[no-any-return]

    async def dial(self, server: str, options: Options, limit: float) -> TaskLink:
        try:
            return await _within(limit, self._dial(server, options, time.monotonic() + limit), _end)
        except asyncio.TimeoutError as error:
            if isinstance(error, XuidError):
                raise
            raise Unreachable(server, f"no answer within {limit:.3g} s") from None

    async def dial_all(self, options: Options, limit: float) -> dict[str, TaskLink | XuidError]:
        dials = {asyncio.ensure_future(self.dial(server, options, limit)): server for server in options.servers}
        found: dict[str, TaskLink | XuidError] = {}
        waiting = set(dials)
        deadline = time.monotonic() + limit + STRAGGLERS
        try:
            while waiting:
                left = max(0.0, deadline - time.monotonic())
                done, waiting = await asyncio.wait(waiting, timeout=left, return_when=asyncio.FIRST_COMPLETED)
                if not done:
                    break
                for dial in done:
                    try:
                        found[dials[dial]] = dial.result()
                        deadline = min(deadline, time.monotonic() + STRAGGLERS)
                    except XuidError as error:
                        found[dials[dial]] = error
            return found
        except BaseException:
            for outcome in found.values():
                if isinstance(outcome, TaskLink):
                    outcome.end(Closed())
            raise
        finally:
            for dial in waiting:
                # A cancel may come in the turn in which a dial is done.
                if dial.done() and not dial.cancelled() and not dial.exception():
                    dial.result().end(Closed())
                dial.cancel()

    async def sleep(self, seconds: float) -> None:
        await self._closing.wait(self._is_open, seconds)

    def wake(self) -> None:
        self._closing.tell()

    def spawn(self, coroutine: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _dial(self, server: str, options: Options, deadline: float) -> TaskLink:
        link = TaskLink(server, options, self._loop)
        name = (options.server_name or split(server)[0]) if options.context else None
        try:
            sock = link.sock = await self._connect(server, deadline)
            try:
                await self._loop.create_connection(lambda: link, sock=sock, ssl=options.context, server_hostname=name)
            except BaseException:
                sock.close()
                raise
            await link.greet()
        except ssl.SSLError as error:
            raise Unreachable(server, str(error), False) from error
        except XuidError:
            raise
        except Exception as error:
            # Also what is no OSError: a name that no host can have is a UnicodeError.
            raise Unreachable(server, str(error)) from error
        except BaseException:
            # Cancelled: the connection that stands meanwhile is of no use.
            link.end(Closed())
            raise
        return link

    async def _look_up(self, server: str) -> Any:
        """The addresses of a name. Not by the loop's own threads: those are the program's, which waits for them at its end, and a
        name may be looked up for long. One that is looked up already is waited for, so that no more threads stand there than
        there are names, but for those of look-ups that never end."""
        now, under_way = time.monotonic(), self._lookups.get(server)
        if under_way and now - under_way[1] < AGAIN:
            found = under_way[0]
        else:
            found = self._loop.create_future()
            # Nobody may ask it any more.
            found.add_done_callback(lambda found: found.cancelled() or found.exception())
            start("xuid-lookup", self._find, server, found)
            self._lookups[server] = found, now
        return await asyncio.shield(found)

    def _find(self, server: str, found: asyncio.Future[Any]) -> None:
        addresses: Any = None
        failure: Exception | None = None
        try:
            addresses = socket.getaddrinfo(*split(server), type=socket.SOCK_STREAM)
        except Exception as error:
            failure = error
        # The loop may be over.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._note_found, server, found, addresses, failure)

    def _note_found(self, server: str, found: asyncio.Future[Any], addresses: Any, failure: Exception | None) -> None:
        under_way = self._lookups.get(server)
        if under_way and under_way[0] is found:
            del self._lookups[server]
        if found.done():
            return
        if failure:
            found.set_exception(failure)
        else:
            found.set_result(addresses)

    async def _connect(self, server: str, deadline: float) -> socket.socket:
        """To the first address of the name that takes it, each in its share of the time (:func:`.thread_link.share`)."""
        addresses = await self._look_up(server)
        failure: Exception = OSError("its name has no address")
        for at, (family, kind, protocol, _, address) in enumerate(addresses):
            sock = None
            try:
                sock = socket.socket(family, kind, protocol)
                sock.setblocking(False)
                limit = share(deadline, len(addresses) - at)
                await _within(limit, self._loop.sock_connect(sock, address))
                return sock
            except BaseException as error:
                if sock:
                    sock.close()
                if not isinstance(error, (OSError, asyncio.TimeoutError)):
                    raise
                failure = error
        raise failure


async def _within(limit: float, work: Coroutine[Any, Any, T], drop: Callable[[T], None] | None = None) -> T:
    """What it returns within so many seconds. As asyncio.wait_for, which before Python 3.12 loses a cancel that comes as
    the work ends; here what it returned is dropped then."""
    task = asyncio.ensure_future(work)
    # Nobody asks it any more where it was cancelled.
    task.add_done_callback(lambda task: task.cancelled() or task.exception())
    try:
        await asyncio.wait({task}, timeout=limit)
    except BaseException:
        if task.done() and drop and not task.cancelled() and not task.exception():
            drop(task.result())
        task.cancel()
        raise
    if not task.done():
        task.cancel()
        raise asyncio.TimeoutError
    return task.result()


def _end(link: TaskLink) -> None:
    link.end(Closed())


class News:
    """What tasks wait for. They change nothing between two awaits, so there is nothing to lock."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiters: set[asyncio.Future[None]] = set()
        #: Another object with each news.
        self.last = object()

    async def wait(self, seen: object, limit: float | None = None) -> None:
        """Until there is news behind those, or so many seconds are over."""
        if self.last is not seen:
            return
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._waiters.add(waiter)
        try:
            await asyncio.wait({waiter}, timeout=limit)
        finally:
            self._waiters.discard(waiter)

    def tell(self) -> None:
        self.last = object()
        for waiter in self._waiters:
            # A loop that is over may have left some behind.
            if not waiter.done() and not self._loop.is_closed():
                waiter.set_result(None)


class Gate:
    """As :class:`.threads.Gate`."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.news, self.demand = News(), News()
        #: The refill that was begun last, and whether one runs.
        self._refill: asyncio.Task[None] | None = None
        self._has_refill = False

    def is_current(self) -> bool:
        return asyncio.get_running_loop() is self._loop

    def under(self, act: Callable[..., T], *args: Any) -> T:
        return act(*args)

    @property
    def is_fed(self) -> bool:
        """Whether a refill was begun and is not over. One that is cancelled before its first step never runs."""
        return self._refill is not None and not self._refill.done()

    def feed(self, spawn: Callable[[], asyncio.Task[None]]) -> None:
        self._refill = spawn()
        # Those that wait have another one begun.
        self._refill.add_done_callback(lambda _: self.news.tell())

    def begin_refill(self) -> bool:
        had, self._has_refill = self._has_refill, True
        return not had

    def end_refill(self) -> None:
        self._refill, self._has_refill = None, False
        self.news.tell()
