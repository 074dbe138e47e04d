"""One connection without its socket: what is to be sent, what is waited for, and when it is over.

Callers of many threads or tasks append requests; replies find their caller by the request's id, in whatever order they
come. The link (:mod:`.thread_link`, :mod:`.tasks`) moves the bytes, tells the time, and allows one thread at a time in here.

Invariants

- C1 A waiter is told one outcome: by a reply, or by the end of the conversation.
- C2 A request id is never used twice, so a late reply meets no other request.
- C3 No more requests are in flight than the bound. Those above wait in line, unsent.
- C4 After GOAWAY and after the end no request is taken; after GOAWAY those in flight are still answered.
- C5 A caller that gives up leaves its request in flight, with the room that it takes. No caller's patience ends the
  connection. Silence does, when it has lasted for ``timeout`` beyond the time at which a reply was due, and a PING of the
  conversation's own was not answered in the second half of that.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from typing import Any, Protocol

from .. import wire
from ..errors import WRONG_CLUSTER, ConnectionLost, ProtocolError, Refused, Timeout, WrongCluster, XuidError
from ..options import Options
from ..values import Served

#: The request id of HELLO. Those of requests are above.
_HELLO_ID = 1

#: How long a connection may live after GOAWAY, in seconds, besides the timeout: the longest wait of a request, and some.
_LEAVING_MAX = wire.WAIT_CAP + 5.0

#: What a server that speaks TLS sends to one that does not.
_TLS_ALERT = b"\x15\x03"

#: How many callers that gave up may stand in line, besides as many as there are others.
_GIVEN_UP_MAX = 64

#: How much of what is no frame is shown.
_SHOWN = 200


class NotSent(Exception):
    """The connection takes no requests any more, and this one was not sent: it goes to another one."""


class Waiter(Protocol):
    """A caller. Each waiter is told once."""

    def resolve(self, value: Any) -> None: ...

    def reject(self, error: Exception) -> None: ...


class Greeting:
    """Preface, HELLO and its reply."""

    def __init__(self, server: str, options: Options) -> None:
        self._server = server
        self._options = options
        self._inbox = bytearray()
        self.outbox = wire.PREFACE + wire.frame(options.hello(), _HELLO_ID)

    def receive(self, data: bytes) -> Served | None:
        """What the server says about itself, as soon as it is there whole."""
        self._inbox += data
        head = wire.header(self._inbox)
        try:
            if head is None:
                # A line of text may be shorter than a header, but it ends.
                if self._inbox.endswith(b"\n"):
                    raise wire.Breach("it answers")
                return None
            wire.check_header(head, None)
            if len(self._inbox) < wire.HEADER_LEN + head.body_len:
                return None
            return self._read(head)
        except wire.Breach as breach:
            raise ProtocolError(self._server, f"{breach}{self._shown()}") from None

    def end(self) -> XuidError:
        """Why a connection that was closed before the reply is of no use."""
        if self._inbox.startswith(_TLS_ALERT):
            return ProtocolError(self._server, "it answers with an alert of TLS, and this client was not told to use it")
        shown = self._shown()
        if shown:
            return ProtocolError(self._server, f"it answers{shown}")
        return ConnectionLost(self._server, "it was closed before HELLO was answered")

    def rest(self) -> bytes:
        """What came behind the reply."""
        return bytes(self._inbox)

    def _read(self, head: wire.Header) -> Served:
        body = bytes(self._inbox[wire.HEADER_LEN : wire.HEADER_LEN + head.body_len])
        if head.op == wire.GOAWAY:
            raise ConnectionLost(self._server, "it says GOAWAY to HELLO")
        if head.status:
            refused = wire.error(head.status, body)
            if refused.status == WRONG_CLUSTER and self._options.cluster:
                raise WrongCluster(self._server, None, self._options.cluster, f"the server says: {refused.text}")
            raise Refused(self._server, *refused)
        answer = wire.reply(wire.Request(wire.HELLO), head, body)
        del self._inbox[: wire.HEADER_LEN + head.body_len]
        served: Served = answer._replace(server=self._server)
        # A server refuses by itself what HELLO expected of it. One that does not is not believed either.
        if self._options.cluster not in (None, served.cluster):
            raise WrongCluster(self._server, served.cluster, str(self._options.cluster), "by the option cluster")
        return served

    def _shown(self) -> str:
        """The text that another kind of server sends."""
        line = bytes(self._inbox[:_SHOWN])
        if not line.isascii() or len(line) < 4 or not all(byte >= 0x20 or byte in b"\r\n\t" for byte in line):
            return ""
        return f": {wire.printable(line.decode()).strip()!r}"


class Entry:
    """A request that is in flight, or waits in line."""

    __slots__ = ("due", "request", "request_id", "waiter")

    def __init__(self, request: wire.Request, waiter: Waiter | None, due: float) -> None:
        self.request = request
        #: None: nobody waits for it any more, or the conversation itself does. A caller that gives up takes it out, in any
        #: thread; what was sent stays in flight (C5).
        self.waiter = waiter
        #: The server may take its time until then, because the request says so.
        self.due = due
        #: 0: it was not sent yet.
        self.request_id = 0

    def resolve(self, value: Any) -> None:
        waiter = self.waiter
        if waiter:
            waiter.resolve(value)

    def reject(self, error: Exception) -> None:
        waiter = self.waiter
        if waiter:
            waiter.reject(error)


class Conversation:
    """A greeted connection. Times are in seconds of one monotonic clock."""

    def __init__(self, served: Served, options: Options, now: float) -> None:
        self.served = served
        self.timeout = options.timeout
        #: Whether requests are taken.
        self.is_serving = True
        #: The server said GOAWAY.
        self.was_sent_away = False
        #: Why it is over.
        self.ended: XuidError | None = None
        #: When :meth:`look` is to be called next.
        self.look_at = math.inf
        self._room = max(1, min(served.max_in_flight, options.max_in_flight))
        self._inbox = bytearray()
        self._outbox = bytearray()
        self._ids = itertools.count(_HELLO_ID + 1)
        self._in_flight: dict[int, Entry] = {}
        self._in_line: deque[Entry] = deque()
        #: How long the line may get before those that gave up are taken out of it.
        self._line_max = _GIVEN_UP_MAX
        #: When something was received last, and when something besides the reply to a PING of our own was.
        self._heard = self._answered = now
        #: The PING that asks whether anybody is there, and since when that is asked.
        self._probe: Entry | None = None
        self._asked: float | None = None
        self._leave_by: float | None = None

    @property
    def has_left(self) -> bool:
        """After GOAWAY, and nothing in flight."""
        return not self.is_serving and not self._in_flight

    def begin(self, request: wire.Request, waiter: Waiter, now: float) -> Entry:
        """Takes a request."""
        if not self.is_serving:
            raise NotSent
        entry = Entry(request, waiter, now + request.wait)
        self.take(entry)
        return entry

    def take(self, entry: Entry) -> None:
        """Takes a request, or tells its caller that it is not sent. One that was given up in line is not sent either."""
        if self.is_serving:
            self._in_line.append(entry)
            if len(self._in_line) > self._line_max:
                self._in_line = deque(waiting for waiting in self._in_line if waiting.waiter)
                # Twice as many, so that a look at all of them is rare.
                self._line_max = 2 * len(self._in_line) + _GIVEN_UP_MAX
            self._send_line()
        else:
            entry.reject(NotSent())

    def new_id(self) -> int:
        """For a request that its caller writes by itself, in any thread (C2)."""
        return next(self._ids)

    @property
    def room(self) -> int:
        """How many requests may be written by their callers (C3)."""
        return 0 if self._in_line or not self.is_serving else max(0, self._room - len(self._in_flight))

    def note_sent(self, entry: Entry, request_id: int) -> None:
        """A request whose caller wrote it by itself."""
        entry.request_id = request_id
        if self.ended:
            entry.reject(self.ended.again())
        else:
            self._add(entry)

    def take_outbox(self) -> bytearray:
        """The bytes to be sent, once."""
        outbox, self._outbox = self._outbox, bytearray()
        return outbox

    @property
    def heard(self) -> float:
        """When something was received last."""
        return self._heard

    def is_silent_since(self, time: float) -> bool:
        """Whether no request was answered after that time: a server that answers nothing but PINGs is silent, too."""
        return self._answered <= time

    def receive(self, data: bytes, now: float) -> None:
        """Hands out every whole reply. An error ends the conversation: the link calls :meth:`end` with it."""
        self._heard = now
        self._inbox += data
        at = 0
        try:
            while True:
                head = wire.header(self._inbox, at)
                if head is None:
                    break
                entry = self._in_flight.get(head.request_id)
                wire.check_header(head, entry.request if entry else None)
                end = at + wire.HEADER_LEN + head.body_len
                if len(self._inbox) < end:
                    break
                body = bytes(self._inbox[at + wire.HEADER_LEN : end])
                at = end
                self._hand_out(head, body, entry, now)
        except wire.Breach as breach:
            raise ProtocolError(self.served.server, str(breach)) from None
        finally:
            del self._inbox[:at]
        if self._inbox:
            self._answered = now
        self._send_line()

    def retire(self, now: float) -> None:
        """Takes no more requests, as after GOAWAY; those in flight are still answered."""
        if not self.is_serving:
            return
        self.is_serving = False
        self._leave_by = now + _LEAVING_MAX + self.timeout
        self.look_at = min(self.look_at, self._leave_by)
        for entry in self._in_line:
            entry.reject(NotSent())
        self._in_line.clear()

    def look(self, now: float) -> None:
        """Judges the silence, after everything that has arrived was received. Raises what ends the conversation."""
        if self._leave_by is not None and now >= self._leave_by:
            raise ConnectionLost(self.served.server, "it did not finish after GOAWAY")
        if self._in_flight and now >= self._end_of_silence():
            if self._asked is not None and self.was_sent_away:
                # It left without an answer: what is in flight is repeated elsewhere.
                raise ConnectionLost(self.served.server, "it said GOAWAY, and nothing more")
            if self._asked is not None:
                raise Timeout(self.served.server, self.timeout)
            self._ask(now)
        self.look_at = min(
            self._end_of_silence() if self._in_flight else math.inf,
            math.inf if self._leave_by is None else self._leave_by,
        )

    def end(self, error: XuidError) -> None:
        """Tells all waiters. The first end counts."""
        if self.ended:
            return
        self.ended = error
        self.is_serving = False
        entries = [*self._in_flight.values(), *self._in_line]
        self._in_flight.clear()
        self._in_line.clear()
        self._outbox.clear()
        for entry in entries:
            entry.reject(error.again() if entry.request_id else NotSent())

    def _send_line(self) -> None:
        """Puts into the outbox what there is room for (C3). The conversation's own PING takes no room."""
        while self._in_line and len(self._in_flight) - (self._probe is not None) < self._room:
            entry = self._in_line.popleft()
            if entry.waiter:
                self._put(entry)

    def _put(self, entry: Entry) -> None:
        entry.request_id = self.new_id()
        self._outbox += wire.frame(entry.request, entry.request_id)
        self._add(entry)

    def _add(self, entry: Entry) -> None:
        self._in_flight[entry.request_id] = entry
        self.look_at = min(self.look_at, entry.due + self.timeout / 2)

    def _hand_out(self, head: wire.Header, body: bytes, entry: Entry | None, now: float) -> None:
        if head.op == wire.GOAWAY:
            self.was_sent_away = True
            self.retire(now)
            return
        if entry is None:
            if head.status:
                # About the connection as a whole.
                raise Refused(self.served.server, *wire.error(head.status, body))
            raise wire.Breach(f"a reply to request {head.request_id}, which is not in flight")
        # Before it is taken out: a breach ends the conversation, and tells this waiter, too.
        answer = wire.reply(entry.request, head, body)
        del self._in_flight[head.request_id]
        if entry is self._probe:
            self._probe = self._asked = None
            return
        self._answered = now
        # Without a waiter the ids are wasted.
        if isinstance(answer, wire.ErrorReply):
            entry.reject(Refused(self.served.server, *answer))
        else:
            entry.resolve(answer)

    def _end_of_silence(self) -> float:
        """When the silence has lasted so long that something is to be done: a PING to be sent, or an end to be made."""
        since = max(self._heard, min(entry.due for entry in self._in_flight.values()))
        if self._asked is None:
            return since + self.timeout / 2
        # A process that was stopped finds its whole timeout over, and nothing asked.
        return max(since + self.timeout, self._asked + self.timeout / 2)

    def _ask(self, now: float) -> None:
        self._asked = now
        # After GOAWAY nothing more is sent, and the silence is judged alone.
        if not self.was_sent_away:
            self._probe = Entry(wire.ping(), None, now)
            self._put(self._probe)
