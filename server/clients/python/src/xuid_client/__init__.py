"""Client of XUID servers: 64-bit ids that are never issued twice, and the numbers of named sequences.

    threads ------> Client        tasks -----> AsyncClient
                      |                         |               link:
                      |  threads, thread_link   |  tasks          sockets, waiting
                      +----------> Fleet <------+
                                     |                            the servers, one at a time; attempts, fail-over
                                   Conversation
                                     |                            requests in flight, replies, silence; no socket
                                   wire                         frames

    Prefetch, AsyncPrefetch: ids without a round trip, asked for ahead of need
"""

from .aio import AsyncClient, AsyncSequence
from .client import Client, Sequence
from .errors import (
    Closed,
    ConnectionLost,
    ProtocolError,
    Refused,
    Timeout,
    Unreachable,
    UsageError,
    WrongCluster,
    XuidError,
)
from .options import Tls
from .prefetch import AsyncPrefetch, Prefetch
from .values import Decoded, Layout, Run, Served

__version__ = "0.1.0"

__all__ = [
    "AsyncClient",
    "AsyncPrefetch",
    "AsyncSequence",
    "Client",
    "Closed",
    "ConnectionLost",
    "Decoded",
    "Layout",
    "Prefetch",
    "ProtocolError",
    "Refused",
    "Run",
    "Sequence",
    "Served",
    "Timeout",
    "Tls",
    "Unreachable",
    "UsageError",
    "WrongCluster",
    "XuidError",
]
