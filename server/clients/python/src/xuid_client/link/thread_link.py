"""Links for threads: one socket, which many callers write to, and one thread of its own that reads.

A caller writes its request at once where nothing is to be written before it, and else leaves it to the link's thread. It
waits for no lock, and for no longer than its own deadline, whatever the server does.

A signal's handler may run in a caller after any call, for as long as it likes; it may call, and raise. So what must not come
apart, from taking the right to write to giving it back, is one call into C (:meth:`ThreadLink._write`): Python runs handlers
between two lines of its own only. The link's thread, where no handler runs, does the rest.

Invariants

- L1 One at a time writes: the link's thread while it is awake, and one caller at a time while it sleeps.
- L2 The right to write is given back only where all that was begun is written, and the next request may be written by its
  caller. Else the link's thread has it, or takes it over from the caller whose write was cut short.
- L3 No caller has it while code of Python runs in its thread.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import operator
import selectors
import socket
import ssl
import threading
import time
from collections import deque
from typing import Any, Callable

from .. import wire
from ..errors import ConnectionLost, Timeout, Unreachable, XuidError
from ..options import Options, split
from ..process import tell_of_forks
from ..values import Served
from .conversation import Conversation, Entry, Greeting, NotSent

#: Seconds after which a look-up is not joined any more, since it may never end: glibc waits without an end for a DNS server
#: that it asks over TCP, and that is gone behind the handshake. All others end within some 30.
AGAIN = 60.0

#: Bytes of one read: a few hundred replies to NEXT, and few reads for a large ARRAY.
_READ_ROOM = 64 * 1_024

#: How long the reading may go on when writing failed, in seconds: the server may have said why before it closed.
_LAST_WORDS = 1.0

#: How long a caller whose time is over waits for the link's thread to look for its reply, in seconds.
_LAST_LOOK = 1.0

#: How long the link's thread waits for a caller to end its write, in seconds, before it looks again.
_WRITING = 0.05

#: How often in a row at least, however short the timeout: a thread that does not give the interpreter away costs a turn or two.
_MISSES = 20

#: The most requests that callers write by themselves while the link's thread sleeps.
_TICKETS = 1_024

#: Calls what is given to it, from C.
_CALL: Callable[[Any], Any] = functools.partial.__call__

#: The longest that one lock or one select waits, in seconds. Python refuses what is beyond the range of its clock.
LONGEST_WAIT = 3_600.0


class Waiter:
    """A thread that waits for a reply."""

    __slots__ = ("_error", "_told", "_value")

    def __init__(self) -> None:
        self._value: Any = None
        self._error: BaseException | None = None
        # A bare lock costs a tenth of an Event.
        self._told = threading.Lock()
        self._told.acquire()

    def resolve(self, value: Any) -> None:
        self._value = value
        self._tell()

    def reject(self, error: BaseException) -> None:
        self._error = error
        self._tell()

    def _tell(self) -> None:
        # In a forked child the end of the link tells those, too, that a thread of the parent was in the middle of telling.
        with contextlib.suppress(RuntimeError):
            self._told.release()

    def wait(self, deadline: float) -> bool:
        """Whether it was told until then."""
        while True:
            left = deadline - time.monotonic()
            if self._told.acquire(timeout=max(0.0, min(left, LONGEST_WAIT))):
                return True
            if left <= LONGEST_WAIT:
                return False

    def outcome(self) -> Any:
        if self._error:
            raise self._error
        return self._value


class _Written(Entry):
    """A request that its caller may write by itself."""

    __slots__ = ("frame", "sent")

    def __init__(self, request: wire.Request, waiter: Waiter, due: float) -> None:
        super().__init__(request, waiter, due)
        self.frame = b""
        #: What the socket took of the frame, in bytes; nothing: it was not asked, or does not answer yet.
        self.sent: list[int] = []

    @property
    def is_whole(self) -> bool:
        return self.sent == [len(self.frame)]


def _is_of_handler(error: OSError) -> bool:
    """Whether a signal's handler raised it, as a TimeoutError, and not the call into C that it came after: it has a frame."""
    return error.__traceback__ is not None and error.__traceback__.tb_next is not None


class _Plain:
    """TCP as it is."""

    def seal(self, data: bytearray) -> bytearray:
        return data

    def open(self, data: bytes) -> bytes:
        return data


class _Tls:
    """TLS between two buffers. An SSLSocket would not do: one thread may not read it while another one writes."""

    def __init__(self, context: ssl.SSLContext, name: str) -> None:
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_hostname=name)

    def shake_hands(self, data: bytes) -> tuple[bool, bytes]:
        """Whether it is done, and what is to be sent for it."""
        self._in.write(data)
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False, self._out.read()
        return True, self._out.read()

    def seal(self, data: bytearray) -> bytearray:
        if data:
            self._tls.write(data)
        return bytearray(self._out.read())

    def open(self, data: bytes) -> bytes:
        self._in.write(data)
        opened = bytearray()
        try:
            while True:
                part = self._tls.read(_READ_ROOM)
                if not part:
                    break
                opened += part
        except (ssl.SSLWantReadError, ssl.SSLZeroReturnError):
            # A server that closes in order closes the socket, too.
            pass
        return bytes(opened)


class ThreadLink:
    """A greeted connection. Its thread alone holds the conversation; it is told by flags and queues."""

    def __init__(self, sock: socket.socket, channel: _Plain | _Tls, conversation: Conversation) -> None:
        self.served = conversation.served
        self._sock = sock
        self._channel = channel
        self._conversation = conversation
        #: What the link's thread is told: requests that were not begun yet, callers that have it look for their reply, that
        #: it is left, and why it ends.
        self._asked: deque[_Written] = deque()
        self._looks: deque[Waiter] = deque()
        #: Those for whom its thread is looking now.
        self._looking: list[Waiter] = []
        self._is_left = False
        self._ending: XuidError | None = None
        #: Whether the link's thread may sleep, and has to be woken; whether it does nothing any more.
        self._is_asleep = False
        self._is_over = False
        #: The right to write (L1), which the link's thread has at first; whether it has it. No caller waits for it.
        self._writes = threading.Lock()
        self._writes.acquire()
        self._has_writes = True
        #: How often in a row it did not get it.
        self._missed = 0
        #: One for each request that may be written while it sleeps (C3), and those that callers wrote, by their ids.
        self._tickets: deque[bool] = deque()
        self._written: dict[int, _Written] = {}
        #: The last of those that it took over.
        self._last: _Written | None = None
        #: The steps of a caller's write that are always the same.
        self._takes_writes = functools.partial(self._writes.acquire, False)
        self._gives_writes = functools.partial(self._writes.release)
        self._has_no_ticket = functools.partial(operator.not_, self._tickets)
        self._takes_ticket = functools.partial(self._tickets.pop)
        #: Until when the link's thread sleeps, unless something comes.
        self._sleeps_until = 0.0
        #: What the socket did not take yet.
        self._unsent = bytearray()
        #: Writing failed; the end of the last words, and why.
        self._write_failed: tuple[float, OSError] | None = None
        self._is_abandoned = False
        self._wakes, self._waker = socket.socketpair()
        for end in (sock, self._wakes, self._waker):
            end.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(sock, selectors.EVENT_READ)
        self._selector.register(self._wakes, selectors.EVENT_READ)
        tell_of_forks(self)
        threading.Thread(target=self._run, name="xuid-link", daemon=True).start()

    @property
    def is_over(self) -> bool:
        return self._is_over

    @property
    def is_serving(self) -> bool:
        return self._conversation.is_serving and not self._is_left and self._ending is None

    @property
    def was_sent_away(self) -> bool:
        # In a forked child requests are repeated as after GOAWAY: on a connection of its own.
        return self._is_abandoned or self._conversation.was_sent_away

    def is_silent_since(self, time: float) -> bool:
        return self._conversation.is_silent_since(time)

    async def exchange(self, request: wire.Request, deadline: float) -> Any:
        """The reply. Raises :class:`NotSent`, or why there is none."""
        waiter = Waiter()
        begin = time.monotonic()
        entry = _Written(request, waiter, begin + request.wait)
        try:
            if not self._writes.locked():
                self._write(entry)
            if not entry.sent:
                self._asked.append(entry)
            if not entry.is_whole or entry.due + self._conversation.timeout / 2 < self._sleeps_until:
                self._wake()
            if self._is_over and not any(entry.sent):
                # Its thread may have looked for the last time before.
                raise NotSent
            if not waiter.wait(deadline) and not self._lies_there(waiter):
                raise Timeout(self.served.server, deadline - begin)
        finally:
            entry.waiter = None
        if self._is_abandoned:
            # A reply that came before the fork is the parent's.
            raise ConnectionLost(self.served.server, "this process was forked")
        return waiter.outcome()

    def retire(self) -> None:
        self._is_left = True
        self._wake()

    def end(self, error: XuidError) -> None:
        """Has all waiters told, and the socket closed."""
        if self._ending is None:
            self._ending = error
        self._wake()

    def after_fork(self) -> None:
        """In a child: the connection is the parent's. Closing the child's copy of the socket sends nothing."""
        self._is_abandoned = True
        self._stop(ConnectionLost(self.served.server, "this process was forked"))
        self._close()

    def _write(self, entry: _Written) -> None:
        """Writes a request, if the link's thread sleeps and nothing is to be written before it."""
        request_id = self._conversation.new_id()
        entry.frame = wire.frame(entry.request, request_id)
        # In C: takes the right to write, or stops; where there is a ticket takes that, shows the request, since the reply
        # must find it, writes, notes what was sent, and stops if that is not all; gives the right back.
        writes = (
            self._takes_ticket,
            functools.partial(self._written.setdefault, request_id, entry),
            functools.partial(operator.iadd, entry.sent, map(self._sock.send, (entry.frame,))),
            functools.partial(operator.eq, entry.sent, [len(entry.frame)]),
        )
        may_write = (self._has_no_ticket, functools.partial(all, map(_CALL, writes)))
        steps = (self._takes_writes, functools.partial(any, map(_CALL, may_write)), self._gives_writes)
        try:
            all(map(_CALL, steps))
        except OSError as error:
            if entry.sent:
                raise
            # First, before a handler comes (L3): the link's thread takes over, and writes it or meets the same error.
            entry.sent.append(0)
            if _is_of_handler(error):
                raise

    def _lies_there(self, waiter: Waiter) -> bool:
        """A reply that came with its caller's end: a process that was stopped wakes with both, and the reply counts. The
        link's thread reads what lies in the socket."""
        looked = Waiter()
        self._looks.append(looked)
        self._wake()
        if not self._is_over:
            looked.wait(time.monotonic() + _LAST_LOOK)
        return waiter.wait(0.0)

    def _wake(self) -> None:
        """Has the link's thread look at what it is told."""
        if not self._is_asleep:
            # It looks before it sleeps.
            return
        try:
            self._waker.send(b"\0")
        except OSError as error:
            # It is full, and wakes the thread in any case; or it is closed, and the thread is gone.
            if _is_of_handler(error):
                raise

    # The link's thread.

    def _run(self) -> None:
        try:
            while True:
                self._looking = self._sleep()
                if self._ending is not None:
                    raise self._ending
                self._turn()
                for looked in self._looking:
                    looked.resolve(None)
        except XuidError as error:
            self._stop(error)
        except (OSError, ValueError) as error:
            self._stop(ConnectionLost(self.served.server, str(error)))
        finally:
            self._stop(ConnectionLost(self.served.server, "its thread ended"))
            self._close()

    def _sleep(self) -> list[Waiter]:
        """Until something comes, is told, or is to be done; the callers that have it look."""
        writes = self._has_writes and bool(self._unsent) and not self._write_failed
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if writes else 0)
        if self._selector.get_key(self._sock).events != events:
            self._selector.modify(self._sock, events)
        until = self._conversation.look_at
        if self._write_failed:
            until = min(until, self._write_failed[0])
        self._sleeps_until = until
        timeout = max(0.0, min(until - time.monotonic(), LONGEST_WAIT))
        # Before the look at what it is told: what comes after that wakes it.
        self._is_asleep = True
        if not self._has_writes:
            # What is being written is to be noted before it sleeps.
            timeout = 0.0
        elif self._is_clear():
            self._give_writes()
        leaves = self._is_left and self._conversation.is_serving
        if self._asked or self._looks or leaves or self._ending is not None:
            timeout = 0.0
        for key, _ in self._selector.select(timeout):
            if key.fileobj is self._wakes:
                self._wakes.recv(_READ_ROOM)
        self._take_writes()
        self._is_asleep = False
        return [self._looks.popleft() for _ in range(len(self._looks))]

    def _is_clear(self) -> bool:
        """Whether callers may write what comes next (L2)."""
        is_plain = isinstance(self._channel, _Plain)
        return is_plain and self._conversation.room > 0 and not self._unsent and not self._write_failed

    def _give_writes(self) -> None:
        """To callers."""
        room = min(self._conversation.room, _TICKETS)
        self._tickets.extend(itertools.repeat(True, room - len(self._tickets)))
        while len(self._tickets) > room:
            self._tickets.pop()
        self._has_writes = False
        self._writes.release()

    def _take_writes(self) -> None:
        """From callers, if it is not in the middle of a caller's write; what they wrote is taken over in any case."""
        for limit in (0.0, _WRITING):
            if self._has_writes:
                break
            taken = self._writes.acquire(timeout=limit)
            self._note_written()
            # The write of a caller that noted less than all does not go on, and has left it.
            last = self._last
            if not taken and last and last.sent and not last.is_whole:
                # Before what is to be written for the conversation itself.
                self._unsent[:0] = last.frame[sum(last.sent) :]
                taken = True
            self._has_writes = taken
        if self._has_writes:
            self._missed, self._last = 0, None
            return
        self._missed += 1
        if self._missed > max(_MISSES, self._conversation.timeout / _WRITING):
            # Counted, not timed: the process may have been stopped.
            raise ConnectionLost(self.served.server, "a call that wrote to it came to no end")

    def _turn(self) -> None:
        # Reading first: what has arrived is received before the silence is judged.
        self._receive()
        if self._is_left:
            self._conversation.retire(time.monotonic())
        while self._asked and self._has_writes:
            self._conversation.take(self._asked.popleft())
        # A caller that still may write is in flight before the next turn.
        if self._has_writes and self._conversation.has_left:
            raise ConnectionLost(self.served.server, "it was left" if self._is_left else "it said GOAWAY")
        now = time.monotonic()
        if self._write_failed and now >= self._write_failed[0]:
            raise ConnectionLost(self.served.server, str(self._write_failed[1]))
        if now >= self._conversation.look_at:
            self._conversation.look(now)
        self._flush()

    def _note_written(self) -> None:
        """Takes over what callers wrote."""
        for request_id, entry in list(self._written.items()):
            # In a forked child it is found here or there.
            self._conversation.note_sent(entry, request_id)
            del self._written[request_id]
            self._last = entry

    def _receive(self) -> None:
        """Reads what lies in the socket, once."""
        try:
            data = self._sock.recv(_READ_ROOM)
        except (BlockingIOError, InterruptedError):
            return
        if not data:
            raise ConnectionLost(self.served.server)
        # It may hold the reply to what was written since.
        self._note_written()
        opened = self._channel.open(data)
        if opened:
            self._conversation.receive(opened, time.monotonic())

    def _flush(self) -> None:
        """Writes what the socket takes."""
        if self._write_failed:
            return
        self._unsent += self._channel.seal(self._conversation.take_outbox())
        try:
            if self._unsent and self._has_writes:
                del self._unsent[: self._sock.send(self._unsent)]
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            self._write_failed = (time.monotonic() + _LAST_WORDS, error)

    def _stop(self, error: XuidError) -> None:
        """Tells all that wait. The first end counts."""
        # The right to write is given to no caller any more. A child has no other thread that could give it back.
        if not self._has_writes and not self._is_abandoned:
            self._has_writes = self._writes.acquire(timeout=_WRITING)
        self._note_written()
        self._conversation.end(error)
        # Before the last look: a caller that comes after it is told by this.
        self._is_over = True
        self._note_written()
        while self._asked:
            self._conversation.take(self._asked.popleft())
        for looked in [*self._looking, *self._looks]:
            looked.resolve(None)

    def _close(self) -> None:
        for end in (self._selector, self._sock, self._wakes, self._waker):
            end.close()


def dial(server: str, options: Options, limit: float) -> ThreadLink:
    """Connects, and says HELLO, within so many seconds."""
    deadline = time.monotonic() + limit
    try:
        sock = _connect(server, deadline)
    except Exception as error:
        # Also what is no OSError: a name that no host can have is a UnicodeError.
        raise Unreachable(server, str(error)) from error
    try:
        # Without it a small request waits for the acknowledgement of the one before, 40 ms and more.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        channel: _Plain | _Tls = _Plain()
        if options.context:
            channel = _shake_hands(server, sock, options, deadline)
        served, rest = _greet(server, sock, channel, options, deadline)
        conversation = Conversation(served, options, time.monotonic())
        conversation.receive(rest, time.monotonic())
        return ThreadLink(sock, channel, conversation)
    except BaseException as error:
        sock.close()
        if isinstance(error, ssl.SSLError):
            # A server that refuses the client's certificate says so behind the handshake.
            raise Unreachable(server, str(error), False) from error
        if isinstance(error, XuidError) or not isinstance(error, Exception):
            raise
        if isinstance(error, (socket.timeout, TimeoutError)):
            raise Unreachable(server, f"no answer within {limit:.3g} s") from error
        if isinstance(error, OSError):
            raise ConnectionLost(server, str(error)) from error
        # As of a thread that cannot be started.
        raise Unreachable(server, str(error)) from error


def share(deadline: float, addresses: int) -> float:
    """The seconds of the first of so many addresses that are still to be tried: one that is silent must not take them all."""
    return min(max(0.001, (deadline - time.monotonic()) / addresses), LONGEST_WAIT)


class _LookUp:
    """The addresses of a name, on their way."""

    def __init__(self) -> None:
        self.begun = time.monotonic()
        self.is_done = threading.Event()
        self.addresses: Any = None
        #: Until it is done; then there is none, or another one.
        self.failure: Exception | None = OSError("the look-up of its name was interrupted")

    def look_up(self, server: str) -> None:
        try:
            self.addresses = socket.getaddrinfo(*split(server), type=socket.SOCK_STREAM)
            self.failure = None
        except Exception as error:
            self.failure = error


class _LookUps:
    """Those that are under way. A name that is looked up already is waited for, so that no more threads stand there than there are
    names, but for those of look-ups that never end."""

    def __init__(self) -> None:
        self.after_fork()
        tell_of_forks(self)

    def after_fork(self) -> None:
        # The threads are the parent's.
        self._under_way: dict[str, _LookUp] = {}

    def addresses(self, server: str, deadline: float) -> Any:
        look_up = _LookUp()
        under_way = self._under_way
        try:
            # Who sets it looks it up: one call, without a lock that a child could find taken.
            other = under_way.setdefault(server, look_up)
            if other is look_up or look_up.begun - other.begun >= AGAIN:
                under_way[server] = other = look_up
                look_up.look_up(server)
        finally:
            if under_way.get(server) is look_up:
                under_way.pop(server, None)
            look_up.is_done.set()
        if other is not look_up:
            look_up = other
            if not look_up.is_done.wait(min(max(0.0, deadline - time.monotonic()), LONGEST_WAIT)):
                raise socket.timeout("its name is being looked up still")
        if look_up.failure:
            # Each caller has one of its own, with its own way to it.
            raise type(look_up.failure)(*look_up.failure.args)
        return look_up.addresses


_look_ups = _LookUps()


def _connect(server: str, deadline: float) -> socket.socket:
    """To the first address of the name that takes it."""
    addresses = _look_ups.addresses(server, deadline)
    failure = OSError("its name has no address")
    for at, (family, kind, protocol, _, address) in enumerate(addresses):
        sock = None
        try:
            sock = socket.socket(family, kind, protocol)
            sock.settimeout(share(deadline, len(addresses) - at))
            sock.connect(address)
            return sock
        except BaseException as error:
            if sock:
                sock.close()
            if not isinstance(error, OSError):
                raise
            failure = error
    raise failure


def _shake_hands(server: str, sock: socket.socket, options: Options, deadline: float) -> _Tls:
    assert options.context
    tls = _Tls(options.context, options.server_name or split(server)[0])
    received = b""
    while True:
        done, answer = tls.shake_hands(received)
        if answer:
            _before(sock, deadline).sendall(answer)
        if done:
            return tls
        received = _before(sock, deadline).recv(_READ_ROOM)
        if not received:
            raise ConnectionLost(server, "it was closed in the handshake of TLS")


def _greet(
    server: str, sock: socket.socket, channel: _Plain | _Tls, options: Options, deadline: float
) -> tuple[Served, bytes]:
    greeting = Greeting(server, options)
    _before(sock, deadline).sendall(channel.seal(bytearray(greeting.outbox)))
    while True:
        data = _before(sock, deadline).recv(_READ_ROOM)
        if not data:
            raise greeting.end()
        served = greeting.receive(channel.open(data))
        if served:
            return served, greeting.rest()


def _before(sock: socket.socket, deadline: float) -> socket.socket:
    """The socket, whose next call ends until then."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise socket.timeout
    sock.settimeout(min(left, LONGEST_WAIT))
    return sock
