"""Programs of their own, in an interpreter of their own."""

import pathlib
import subprocess
import sys

from xuid_client import process

from .fake import PATIENCE


def ran(program, *arguments):
    folder = pathlib.Path(process.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, *arguments],
        cwd=folder, timeout=PATIENCE / 2, check=True, stdout=subprocess.PIPE, universal_newlines=True,
    )
    return done.stdout
