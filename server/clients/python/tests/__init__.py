"""Tests of the client: ``python3 -m unittest`` in the folder above. Those against a real server start the binary that the
environment variable XUID_BIN names."""

import pathlib
import sys

# So that they run without an installation, too.
sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "src"))
