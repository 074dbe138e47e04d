"""Stories of calls within TLS."""

import contextlib
import os
import ssl
import subprocess
import tempfile
import unittest

from xuid_client import Client, ConnectionLost, Tls, Unreachable, wire

from .support import frames
from .support.fake import PATIENCE, Blocking, Stories


class Secured:
    """TLS, with certificates that openssl makes."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.cert, cls.key = os.path.join(folder.name, "cert.pem"), os.path.join(folder.name, "key.pem")
        make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=ids.example"]
        make += ["-addext", "subjectAltName=DNS:ids.example", "-keyout", cls.key, "-out", cls.cert]
        try:
            subprocess.run(make, check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError) as wrong:
            raise unittest.SkipTest(f"openssl makes no certificate: {wrong}") from None

    def secured(self, fake, **asks):
        """The other end of the next connection, within TLS."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.cert, self.key)
        if asks:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(self.cert)
        peer = fake.accept()
        with contextlib.suppress(ssl.SSLError, OSError):
            peer.sock = context.wrap_socket(peer.sock, server_side=True)
            peer.sock.settimeout(PATIENCE)
            peer.send(frames.welcome(peer.hello().request_id))
        return peer

    def test_calls_go_through_tls_whatever_their_length(self):
        fake = self.fake()
        tls = Tls(ca=self.cert, cert=self.cert, key=self.key, server_name="ids.example")
        client = self.client(fake.address, tls=tls)
        connecting = self.begin(client.connect)
        peer = self.secured(fake, asks=True)
        connecting.result(PATIENCE)
        calling = self.begin(client.array, 100_000)
        asked = peer.asks(wire.ARRAY)
        peer.send(frames.ids(wire.ARRAY, asked.request_id, list(range(100_000))))
        self.assertEqual(calling.result(PATIENCE), list(range(100_000)))
        calling = self.begin(client.next)
        peer.asks(wire.NEXT)
        peer.close()
        with self.assertRaises(ConnectionLost):
            calling.result(PATIENCE)

    def test_a_server_under_another_name_is_refused_for_good(self):
        fake = self.fake()
        client = self.client(fake.address, tls=Tls(ca=self.cert, server_name="other.example"))
        connecting = self.begin(client.connect)
        self.secured(fake)
        with self.assertRaises(Unreachable) as raised:
            connecting.result(PATIENCE)
        self.assertFalse(raised.exception.retryable)

    def test_a_server_that_asks_for_a_certificate_refuses_a_client_without_one(self):
        fake = self.fake()
        client = self.client(fake.address, tls=Tls(ca=self.cert, server_name="ids.example"))
        connecting = self.begin(client.connect)
        self.secured(fake, asks=True)
        with self.assertRaises((Unreachable, ConnectionLost)):
            connecting.result(PATIENCE)

    def test_a_server_without_tls_is_told_apart(self):
        fake = self.fake()
        client = self.client(fake.address, tls=Tls(ca=self.cert))
        connecting = self.begin(client.connect)
        peer = fake.accept()
        peer.sock.recv(1)
        peer.send(b"\x15\x03\x03\x00\x02\x02\x28")
        with self.assertRaises(Unreachable) as raised:
            connecting.result(PATIENCE)
        self.assertFalse(raised.exception.retryable)


class SecuredThreads(Secured, Stories):
    kind = Client


class SecuredTasks(Secured, Stories):
    kind = Blocking


if __name__ == "__main__":
    unittest.main()
