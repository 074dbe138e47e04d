"""What a caller may choose, and what not."""

import os
import unittest
from unittest import mock

import xuid_client
from xuid_client import AsyncClient, Client, Tls, UsageError


class Options(unittest.TestCase):
    def test_what_cannot_be_is_refused_when_the_client_is_made(self):
        wrong = [
            {"servers": []},
            {"servers": ""},
            {"servers": "host:port"},
            {"servers": "host:0"},
            {"servers": "::1"},
            {"servers": "a,b:99999"},
            {"cluster": "12"},
            {"cluster": "zz" * 16},
            {"timeout": 0},
            {"connect_timeout": -1},
            {"retry_for": -1},
            {"max_in_flight": 0},
            {"return_after": 0},
            {"token": "x" * 256},
            {"client_name": "x" * 256},
            {"tls": Tls(ca="/does/not/exist.pem")},
            {"tls": Tls(key="key.pem")},
        ]
        for options in wrong:
            for kind in (Client, AsyncClient):
                with self.subTest(**options), self.assertRaises(UsageError):
                    kind(**options)

    def test_addresses_are_a_list_or_one_text(self):
        for given in ("a:1, [::1]:2 ,c", ["a:1", "[::1]:2", "c", "a:1"]):
            self.assertEqual(Client(given)._fleet.options.servers, ("a:1", "[::1]:2", "c"))
        self.assertEqual([xuid_client.options.split(server) for server in ("[::1]", "c")], [("::1", 7654), ("c", 7654)])

    def test_the_environment_names_servers_and_token_where_nothing_is_said(self):
        with mock.patch.dict(os.environ, {"XUID_SERVER": "ids:1,ids2:2", "XUID_TOKEN": "s3cret"}):
            said = Client()._fleet.options
            self.assertEqual((said.servers, said.token), (("ids:1", "ids2:2"), b"s3cret"))
            self.assertEqual(Client("other:1")._fleet.options.token, b"", "a token is no other server's business")
        for empty in ({}, {"XUID_SERVER": ""}):
            with mock.patch.dict(os.environ, empty, clear=True):
                self.assertEqual(Client()._fleet.options.servers, ("127.0.0.1:7654",))

    def test_nothing_is_known_of_a_server_before_the_first_connection(self):
        with self.assertRaises(UsageError):
            self.fail(Client("a:1").layout)


if __name__ == "__main__":
    unittest.main()
