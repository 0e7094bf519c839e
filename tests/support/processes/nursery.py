"""Where processes that run Hocket are forked from: it has loaded what they would load.

An interpreter that loads a broker computes for most of a second, and the tests start hundreds. A
process from here runs `python -m MODULE ...` with arguments, environment, directory and standard
streams of its own, and is a child of the process that asked. It has not its own seed of `hash()`.

Rule 1: this process starts no thread, so that what is forked from it is whole.
Rule 2: it talks on one socket, and ends when the other side does.
"""

from __future__ import annotations

import gc
import io
import json
import os
import runpy
import signal
import socket
import sys
from typing import Any

MESSAGE_BYTES_MAX = 256 * 1024
STREAMS = 3


def load() -> None:
    """What brokers and clients load, at once or when they need it."""
    import hocket.adapters.tls
    import hocket.aio
    import hocket.cli.commands.serve
    import hocket.cli.program
    import hocket.node.cluster.member
    import hocket.node.cluster.starting
    import hocket.rpc  # noqa: F401


def fork_on_demand(channel: socket.socket) -> dict[str, Any] | None:
    """Returns in each process that is forked, with what it shall run; at the end with None."""
    while True:
        message, streams, _, _ = socket.recv_fds(channel, MESSAGE_BYTES_MAX, STREAMS)
        if not message:
            return None
        between = os.fork()
        if between == 0:
            forked = os.fork()
            if forked == 0:
                channel.close()
                return begin(json.loads(message), streams)
            channel.send(b"%d" % forked)
            os._exit(0)  # the forked process is given to the one that asked: it is a subreaper
        os.waitpid(between, 0)
        for stream in streams:
            os.close(stream)
        channel.send(b"forked")


def begin(asked: dict[str, Any], streams: list[int]) -> dict[str, Any]:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    for stream in streams:
        os.close(stream)
    os.environ.clear()
    os.environ.update(asked["environment"])
    os.chdir(asked["directory"])
    sys.stdin = io.TextIOWrapper(open(0, "rb", closefd=False), encoding="utf-8")  # noqa: SIM115
    sys.stdout = _writer(1, "strict")
    sys.stderr = _writer(2, "backslashreplace")
    return asked


def _writer(number: int, errors: str) -> io.TextIOWrapper:
    """A standard stream as the interpreter opens it."""
    stream = open(number, "wb", closefd=False)  # noqa: SIM115 - for as long as the process lives
    at_once = number == 2 or stream.isatty() or bool(os.environ.get("PYTHONUNBUFFERED"))
    return io.TextIOWrapper(stream, "utf-8", errors, line_buffering=at_once)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for those who asked
    load()
    gc.collect()
    gc.freeze()
    with socket.socket(fileno=int(sys.argv[1])) as asking:
        task = fork_on_demand(asking)
    if task is not None:
        sys.argv = ["", *task["arguments"]]
        sys.path[0] = task["directory"]
        runpy.run_module(task["module"], run_name="__main__", alter_sys=True)
