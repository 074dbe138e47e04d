"""What a caller may choose."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterable
from typing import NamedTuple

from . import wire
from .errors import UsageError

DEFAULT_SERVER = "127.0.0.1:7654"
DEFAULT_PORT = 7654


class Tls(NamedTuple):
    """How to talk TLS with the servers. Files are in PEM, and are read when the client is made."""

    #: The file of the CAs that vouch for the servers; None: those that the system trusts.
    ca: str | None = None
    #: The client's own certificate, with its chain, where servers ask for one.
    cert: str | None = None
    #: The key of the certificate; None: it is in the same file.
    key: str | None = None
    #: The name that is in the certificates of the servers; None: each one's address.
    server_name: str | None = None

    def context(self) -> ssl.SSLContext:
        if self.key and not self.cert:
            raise UsageError("Tls.key is given, and Tls.cert is not: give the certificate that the key belongs to")
        try:
            context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=self.ca)
            if self.cert:
                context.load_cert_chain(self.cert, self.key)
        except OSError as wrong:
            files = ", ".join(file for file in (self.ca, self.cert, self.key) if file)
            raise UsageError(f"the files of TLS ({files}) cannot be used: {wrong}") from wrong
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        return context


class Options(NamedTuple):
    """The checked options of a client."""

    servers: tuple[str, ...]
    token: bytes
    #: 32 hexadecimal digits; None: the cluster of the first server that answers.
    cluster: str | None
    context: ssl.SSLContext | None
    server_name: str | None
    client_name: str
    timeout: float
    connect_timeout: float
    retry_for: float
    max_in_flight: int
    return_after: float

    def __repr__(self) -> str:
        # Everything but the token, which is a secret.
        return f"Options(servers={self.servers}, cluster={self.cluster}, client_name={self.client_name!r})"

    def hello(self) -> wire.Request:
        cluster = bytes.fromhex(self.cluster) if self.cluster else wire.ANY_CLUSTER
        return wire.hello(cluster, self.token, self.client_name)


def check(
    servers: str | Iterable[str] | None,
    token: str | bytes | None,
    cluster: str | None,
    tls: Tls | ssl.SSLContext | None,
    client_name: str,
    timeout: float,
    connect_timeout: float,
    retry_for: float,
    max_in_flight: int,
    return_after: float,
) -> Options:
    if servers is None:
        servers = os.environ.get("XUID_SERVER") or DEFAULT_SERVER
        token = os.environ.get("XUID_TOKEN", "") if token is None else token
    above_zero = (("timeout", timeout), ("connect_timeout", connect_timeout), ("return_after", return_after))
    for what, seconds in above_zero:
        if not seconds > 0:
            raise UsageError(f"{what} is {seconds!r}, and more than 0 seconds are allowed")
    if not retry_for >= 0:
        raise UsageError(f"retry_for is {retry_for!r}, and 0 or more seconds are allowed")
    if max_in_flight < 1:
        raise UsageError(f"max_in_flight is {max_in_flight!r}, and 1 or more are allowed")
    secret = token.encode() if isinstance(token, str) else token or b""
    options = Options(
        tuple(_servers(servers)),
        secret,
        None if cluster is None else _cluster(cluster),
        tls.context() if isinstance(tls, Tls) else tls,
        tls.server_name if isinstance(tls, Tls) else None,
        client_name,
        timeout,
        connect_timeout,
        retry_for,
        max_in_flight,
        return_after,
    )
    # Says what is too long.
    options.hello()
    return options


def split(server: str) -> tuple[str, int]:
    """Host and port of ``host:port``, ``host`` or ``[address]:port``."""
    host, colon, port = server.rpartition(":")
    if not colon or server.endswith("]"):
        host, port = server, str(DEFAULT_PORT)
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not bare or (":" in bare and bare is host) or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise UsageError(f"{server!r} is no address of a server: host:port, or [address]:port for IPv6, is one")
    return bare, int(port)


def _servers(servers: str | Iterable[str]) -> list[str]:
    given = servers.split(",") if isinstance(servers, str) else servers
    # Twice the same would count as two that can take each other's place.
    found = list(dict.fromkeys(server.strip() for server in given))
    if not found:
        raise UsageError("servers are none, and one address or more is allowed")
    for server in found:
        split(server)
    return found


def _cluster(cluster: str) -> str:
    try:
        digits = bytes.fromhex(cluster)
    except ValueError:
        digits = b""
    if len(digits) != len(wire.ANY_CLUSTER):
        raise UsageError(f"cluster is {cluster!r}, and 32 hexadecimal digits are allowed")
    return digits.hex()
