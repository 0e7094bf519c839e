"""`subprocess.Popen` for programs of this project, without what loading them costs each time.

The process is real: a child of this one with an id, streams and an end of its own. It is forked
from one that has loaded the program already, see `nursery`.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import inspect
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_NURSERY = Path(__file__).with_name("nursery.py")
_PR_SET_CHILD_SUBREAPER = 36
_lock = threading.Lock()

kept: set[int] = set()  # files that the first test opens for all: no leaks


def popen(command: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
    """As `subprocess.Popen(command, **options)`.

    What the nursery cannot do is left to `subprocess`: another program than `python -m`, variables
    that the interpreter looks at when it starts, other streams to inherit.
    """
    environment = options.get("env") or os.environ
    others = {"stdin", "stdout", "stderr", "text", "env", "cwd"}
    if not _module_of(command) or options.keys() - others or not _is_usual(environment):
        return subprocess.Popen(command, **options)
    return _Forked(command, **options)


def run(
    command: Sequence[str], *, timeout: float, text: bool = False, **options: Any
) -> subprocess.CompletedProcess[Any]:
    """As `subprocess.run`, with what it says on both streams unless it is told otherwise."""
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    with popen(command, text=text, **streams) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def _module_of(command: Sequence[str | bytes]) -> tuple[str, list[str]] | None:
    """The module that `python -m` runs, and its arguments."""
    match [os.fsdecode(each) for each in command]:
        case [sys.executable, "-W", "error", "-m", module, *arguments]:
            return module, arguments
        case [sys.executable, "-m", module, *arguments]:
            return module, arguments
    return None


def _is_usual(environment: Mapping[str, str]) -> bool:
    def of_python(variables: Mapping[str, str]) -> dict[str, str]:
        return {
            name: value
            for name, value in variables.items()
            if name.startswith("PYTHON") and name != "PYTHONUNBUFFERED"
        }

    return of_python(environment) == of_python(os.environ)


class _Forked(subprocess.Popen[Any]):
    def _execute_child(self, *given: Any) -> None:  # all that differs between two ways to start
        began = inspect.signature(subprocess.Popen._execute_child)  # type: ignore[attr-defined]
        named = began.bind(self, *given).arguments
        wanted = [named["p2cread"], named["c2pwrite"], named["errwrite"]]
        streams = [own if stream == -1 else stream for own, stream in enumerate(wanted)]
        found = _module_of(named["args"])
        assert found is not None
        asked = {
            "module": found[0],
            "arguments": found[1],
            "environment": dict(named["env"] or os.environ),
            "directory": os.fspath(named["cwd"] or os.getcwd()),
        }
        with _lock:
            self.pid = _fork(asked, streams)
        self._child_created = True
        pipes = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(named[pipe] for pipe in pipes))  # type: ignore[attr-defined]


def _fork(asked: dict[str, Any], streams: list[int]) -> int:
    nursery = _nursery()
    _adopt_orphans(True)  # no longer than needed: other orphans have nobody here who waits for them
    try:
        socket.send_fds(nursery, [json.dumps(asked).encode()], streams)
        pid = int(nursery.recv(100))
        assert nursery.recv(100) == b"forked"
        return pid
    finally:
        _adopt_orphans(False)


def _adopt_orphans(yes: bool) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, int(yes), 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


@functools.cache
def _nursery() -> socket.socket:
    """The one of this process. It lives until this process ends."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    size = 1024 * 1024  # environments are long, and a message goes whole or not at all
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, size)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-W", "error", str(_NURSERY), str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
        )
    kept.add(ours.fileno())

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours
