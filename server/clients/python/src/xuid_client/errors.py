"""What can go wrong between a caller and its ids.

    XuidError
      Refused          a server answered with an error
      Timeout          no reply in time                            (also a TimeoutError)
      ConnectionLost   the connection ended before the reply       (also a ConnectionError)
      Unreachable      no connection, or no TLS, with a server     (also a ConnectionError)
      ProtocolError    the server is not what it should be
      WrongCluster     servers of two clusters, which could issue the same ids
      Closed           the client, or its prefetch, was closed
      UsageError       an argument that no server would take       (also a ValueError)

The fields of an error are its ``args``: so it can be pickled, and one loss can end many requests with an error each.
"""

from __future__ import annotations

#: A server's refusal of a HELLO that expects another cluster.
WRONG_CLUSTER = 0x0007

STATUS_NAMES = {
    0x0001: "BAD_REQUEST",
    0x0002: "VERSION",
    0x0003: "UNKNOWN_OP",
    0x0004: "TOO_LARGE",
    0x0005: "COUNT",
    0x0006: "UNAUTHENTICATED",
    WRONG_CLUSTER: "WRONG_CLUSTER",
    0x0008: "EXHAUSTED",
    0x0009: "NO_SEQUENCE",
    0x000A: "EXISTS",
    0x000B: "FORBIDDEN",
    0x000C: "NO_ORDER",
    0x8010: "NOT_READY",
    0x8011: "OVERLOADED",
    0x8012: "CLOCK_BEHIND",
    0x8013: "WINDOW_LOST",
    0x8014: "SHUTTING_DOWN",
    0x8015: "INTERNAL",
    0x8016: "STORE_AWAY",
    0x8017: "STORE_BEHIND",
    0x801A: "RATE",
}

#: The bit of a status that says that the same request may be tried again.
RETRYABLE_BIT = 0x8000


class XuidError(Exception):
    """The base of all errors of this package."""

    #: Whether the same call may succeed later, or at another server. Repeating it never brings an id twice.
    retryable = False
    #: When the server says it is worth trying again, in milliseconds; 0: it does not say.
    retry_after_ms = 0

    def again(self) -> XuidError:
        """The same error for another caller, with a traceback of its own."""
        copy = type(self)(*self.args)
        copy.__cause__ = self.__cause__
        return copy


class Refused(XuidError):
    """The server answered with an error."""

    def __init__(self, server: str, status: int, retry_after_ms: int, text: str):
        super().__init__(server, status, retry_after_ms, text)
        self.server = server
        #: The number on the wire, as 0x8011.
        self.status = status
        self.retry_after_ms = retry_after_ms
        #: What the server says about it: what was wrong, the limit, what to do.
        self.text = text

    @property
    def name(self) -> str:
        """The status as a word, as OVERLOADED; its four hexadecimal digits where a later server sends a new one."""
        return STATUS_NAMES.get(self.status, f"{self.status:04x}")

    @property
    def retryable(self) -> bool:  # type: ignore[override]
        return bool(self.status & RETRYABLE_BIT)

    def __str__(self) -> str:
        return f"{self.server} refused: {self.name}: {self.text}"


class Timeout(XuidError, TimeoutError):
    """No reply in time. Other calls on the connection go on."""

    retryable = True

    def __init__(self, server: str, limit: float, option: str = "timeout"):
        super().__init__(server, limit, option)
        # An OSError keeps two.
        self.args = (server, limit, option)
        self.server = server
        #: How long the call had, in seconds.
        self.limit = limit
        #: What allows more.
        self.option = option

    def __str__(self) -> str:
        return f"{self.server} did not answer within {self.limit:.3g} s: ask again, or allow more with {self.option}="


class ConnectionLost(XuidError, ConnectionError):
    """The connection ended with the request in flight. Ids that were on their way are wasted, and come to no caller."""

    retryable = True

    def __init__(self, server: str, reason: str = "it was closed"):
        super().__init__(server, reason)
        self.server = server
        self.reason = reason

    def __str__(self) -> str:
        return f"the connection to {self.server} ended before its reply ({self.reason}): ask again"


class Unreachable(XuidError, ConnectionError):
    """A server could not be connected to, or there is no TLS with it."""

    def __init__(self, server: str, reason: str, retryable: bool = True):
        super().__init__(server, reason, retryable)
        # An OSError keeps two.
        self.args = (server, reason, retryable)
        self.server = server
        self.reason = reason
        #: False: what the TLS handshake said stays so.
        self.retryable = retryable

    def __str__(self) -> str:
        if self.retryable:
            return f"{self.server} cannot be reached ({self.reason}): check the address, and that the server runs"
        return (
            f"no TLS with {self.server} ({self.reason}): check that it speaks TLS, which CA signed its certificate under "
            "that name, and what it asks of clients"
        )


class ProtocolError(XuidError):
    """The server does not speak XUID/1 as it should. Its connection was ended, and none of its ids was used."""

    def __init__(self, server: str, found: str):
        super().__init__(server, found)
        self.server = server
        self.found = found

    def __str__(self) -> str:
        return f"{self.server} does not speak XUID/1 as it should: {self.found}: check the address and the versions"


class WrongCluster(XuidError):
    """A server of another cluster: two clusters can issue the same ids."""

    def __init__(self, server: str, found: str | None, expected: str, by: str):
        super().__init__(server, found, expected, by)
        self.server = server
        #: Its cluster, 32 hexadecimal digits; None where the server refused, and tells it in ``by`` only.
        self.found = found
        #: The cluster that was expected.
        self.expected = expected
        #: What expected it: the option, another server, or the server's own text.
        self.by = by

    def __str__(self) -> str:
        found = "another cluster" if self.found is None else f"cluster {self.found}"
        return (
            f"{self.server} is of {found}, and {self.expected} is expected ({self.by}): two clusters can issue the same "
            "id, so give only servers of one"
        )


class Closed(XuidError):
    """The client, or the prefetch, was closed."""

    def __str__(self) -> str:
        return "this client was closed: make another one"


class UsageError(XuidError, ValueError):
    """An option, or an argument, that no server would take."""
