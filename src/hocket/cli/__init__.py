"""The command line: `hocket serve`, `hocket topic ...`, `hocket produce`, `hocket consume`, ...

The commands are a thin shell over the public client: whatever a command does with a broker, a
program can do with the same names.
Rule 1: results go to stdout, everything else (progress, logs, errors) to stderr.
Rule 2: an error is one line, says what to do, and its exit code has a meaning (`exits.py`).
Rule 3: what is slow to load is loaded by the command that needs it, so that `hocket --version`
and a shell's completion answer at once.
"""

from __future__ import annotations

import os
import sys


def _occupy_standard_streams() -> None:
    """A stream that is closed (`<&-`) would give its number to the next file that is opened, be it
    one of the store's, and whatever reads or writes that stream would read or write the file."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - for as long as the process lives


def main() -> None:
    """The `hocket` command; ends the process with the exit code."""
    _occupy_standard_streams()
    import logging

    from hocket.cli.program import program

    logging.basicConfig(format="hocket: %(message)s")  # to stderr, warnings and worse
    program.main()
