"""A real server, on any free port: the binary that the environment variable XUID_BIN names."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
import threading
import unittest

from .fake import PATIENCE

BINARY = os.environ.get("XUID_BIN")

#: A server is needed for these.
needed = unittest.skipUnless(BINARY, "XUID_BIN names no server")


class Server:
    """A process with a folder of its own. ``folder`` and ``address`` of one that has ended make its successor."""

    def __init__(self, *options: str, folder: str | None = None, address: str = "127.0.0.1:0") -> None:
        self._own = None if folder else tempfile.TemporaryDirectory()
        self.folder = folder or self._own.name
        command = [BINARY, "serve", "--listen", address, "--admin", "off", "--data-dir", self.folder]
        command += ["--sequences", "registry", *options]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        # A banner that does not come ends with the process.
        timer = threading.Timer(PATIENCE, self._process.kill)
        timer.start()
        line = self._process.stdout.readline()
        timer.cancel()
        found = re.search(r"listening on (\S+?),", line)
        if not found:
            self.stop()
            raise AssertionError(f"the server did not start: {line!r}")
        self.address = found.group(1)

    def stop(self, how: int = signal.SIGTERM) -> None:
        """Ends it, and waits for that."""
        self._process.send_signal(how)
        self._process.communicate(timeout=PATIENCE)

    def close(self) -> None:
        if self._process.poll() is None:
            self.stop(signal.SIGKILL)
        self._process.stdout.close()
        if self._own:
            self._own.cleanup()
