"""Links for threads: one socket, which many callers write to, and one thread of its own that reads.

A caller appends its request and writes what the socket takes, without waiting for it: what is left the link's thread
writes. So no caller waits for longer than its own deadline, whatever the server does.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import ssl
import threading
import time
from typing import Any

from .. import wire
from ..errors import ConnectionLost, Timeout, Unreachable, XuidError
from ..options import Options, split
from ..process import tell_of_forks
from ..values import Served
from .conversation import Conversation, Greeting

#: Bytes of one read: a few hundred replies to NEXT, and few reads for a large ARRAY.
_READ_ROOM = 64 * 1_024

#: How long the reading may go on when writing failed, in seconds: the server may have said why before it closed.
_LAST_WORDS = 1.0

#: The longest that one lock or one select waits, in seconds. Python refuses what is beyond the range of its clock.
LONGEST_WAIT = 3_600.0


class Waiter:
    """A thread that waits for a reply."""

    __slots__ = ("_error", "_told", "_value")

    def __init__(self) -> None:
        self._value: Any = None
        self._error: Exception | None = None
        # A bare lock costs a tenth of an Event.
        self._told = threading.Lock()
        self._told.acquire()

    def resolve(self, value: Any) -> None:
        self._value = value
        self._tell()

    def reject(self, error: Exception) -> None:
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
    """A greeted connection."""

    def __init__(self, sock: socket.socket, channel: _Plain | _Tls, conversation: Conversation) -> None:
        self.served = conversation.served
        self._sock = sock
        self._channel = channel
        self._conversation = conversation
        # Reentrant: the collector of cycles ends a client that was dropped in whatever thread it runs.
        self._lock = threading.RLock()
        self._is_writing = False
        #: What the socket did not take yet.
        self._unsent = bytearray()
        #: Writing failed; the end of the last words, and why.
        self._write_failed: tuple[float, OSError] | None = None
        self._is_abandoned = False
        #: Until when the link's thread sleeps, unless something comes.
        self._sleeps_until = 0.0
        self._wakes, self._waker = socket.socketpair()
        for end in (sock, self._wakes, self._waker):
            end.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(sock, selectors.EVENT_READ)
        self._selector.register(self._wakes, selectors.EVENT_READ)
        tell_of_forks(self)
        threading.Thread(target=self._run, name="xuid-link", daemon=True).start()

    @property
    def is_serving(self) -> bool:
        return self._conversation.is_serving

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
        with self._lock:
            entry = self._conversation.begin(request, waiter, begin)
            self._flush()
        try:
            if not waiter.wait(deadline) and not self._lies_there(waiter):
                raise Timeout(self.served.server, deadline - begin)
        except BaseException:
            with self._lock:
                self._conversation.give_up(entry)
            raise
        if self._is_abandoned:
            # A reply that came before the fork is the parent's.
            raise ConnectionLost(self.served.server, "this process was forked")
        return waiter.outcome()

    def retire(self) -> None:
        with self._lock:
            self._conversation.retire(time.monotonic())
            if self._conversation.has_left:
                self._conversation.end(ConnectionLost(self.served.server, "it was left"))
            self._wake()

    def end(self, error: XuidError) -> None:
        """Tells all waiters, and has the socket closed."""
        with self._lock:
            self._conversation.end(error)
            self._wake()

    def after_fork(self) -> None:
        """In a child: the connection is the parent's. Closing the child's copy of the socket sends nothing."""
        self._is_abandoned = True
        self._lock = threading.RLock()
        self._conversation.end(ConnectionLost(self.served.server, "this process was forked"))
        self._close()

    def _lies_there(self, waiter: Waiter) -> bool:
        """A reply that came with its caller's end: a process that was stopped wakes with both, and the reply counts."""
        with self._lock:
            try:
                self._receive()
            except XuidError as error:
                self._conversation.end(error)
            except OSError:
                # The link's thread meets the same.
                pass
            # There may be nothing left to wait for.
            self._wake()
        return waiter.wait(0.0)

    def _wake(self) -> None:
        """Has the link's thread look again. With the lock held."""
        try:
            self._waker.send(b"\0")
        except OSError:
            # It is full, and wakes the thread in any case; or it is closed, and the thread is gone.
            pass

    def _flush(self) -> None:
        """Writes what the socket takes. With the lock held."""
        if self._write_failed or self._is_writing:
            # A signal's handler that came in the middle leaves it to the writer that it interrupted.
            return
        self._is_writing = True
        try:
            self._unsent += self._channel.seal(self._conversation.take_outbox())
            if self._unsent:
                del self._unsent[: self._sock.send(self._unsent)]
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            self._write_failed = (time.monotonic() + _LAST_WORDS, error)
        finally:
            self._is_writing = False
        if self._unsent or self._conversation.look_at < self._sleeps_until:
            self._wake()

    def _receive(self) -> None:
        """Reads what lies in the socket, once. With the lock held."""
        try:
            data = self._sock.recv(_READ_ROOM)
        except (BlockingIOError, InterruptedError):
            return
        if not data:
            raise ConnectionLost(self.served.server)
        opened = self._channel.open(data)
        if opened:
            self._conversation.receive(opened, time.monotonic())

    def _run(self) -> None:
        """The link's thread."""
        try:
            while True:
                with self._lock:
                    if self._conversation.ended:
                        return
                    timeout = self._plan()
                for key, _ in self._selector.select(timeout):
                    if key.fileobj is self._wakes:
                        self._wakes.recv(_READ_ROOM)
                with self._lock:
                    if self._conversation.ended:
                        return
                    self._turn()
        except XuidError as error:
            self._stop(error)
        except (OSError, ValueError) as error:
            self._stop(ConnectionLost(self.served.server, str(error)))
        finally:
            self._stop(ConnectionLost(self.served.server, "its thread ended"))
            self._close()

    def _plan(self) -> float:
        """How long to sleep, and what for."""
        writes = bool(self._unsent) and not self._write_failed
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if writes else 0)
        if self._selector.get_key(self._sock).events != events:
            self._selector.modify(self._sock, events)
        self._sleeps_until = self._conversation.look_at
        if self._write_failed:
            self._sleeps_until = min(self._sleeps_until, self._write_failed[0])
        return max(0.0, min(self._sleeps_until - time.monotonic(), LONGEST_WAIT))

    def _turn(self) -> None:
        # Reading first: what has arrived is received before the silence is judged.
        self._receive()
        if self._conversation.has_left:
            raise ConnectionLost(self.served.server, "it said GOAWAY")
        now = time.monotonic()
        if self._write_failed and now >= self._write_failed[0]:
            raise ConnectionLost(self.served.server, str(self._write_failed[1]))
        if now >= self._conversation.look_at:
            self._conversation.look(now)
        self._flush()

    def _stop(self, error: XuidError) -> None:
        with self._lock:
            self._conversation.end(error)

    def _close(self) -> None:
        with self._lock:
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


def _connect(server: str, deadline: float) -> socket.socket:
    """To the first address of the name that takes it."""
    host, port = split(server)
    addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
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
