"""A program of a few lines in a process of its own, as a user would write it."""

from __future__ import annotations

import subprocess
import sys
from textwrap import dedent

SCRIPT_SECONDS = 60


def run_script(text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """What it printed, and how it ended. It finds `arguments` in `sys.argv[1:]`."""
    return subprocess.run(
        # Python 3.12 and later warn of every fork of a process that has threads.
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", dedent(text), *arguments],
        capture_output=True,
        text=True,
        timeout=SCRIPT_SECONDS,
    )
