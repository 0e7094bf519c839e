"""The leak check: nothing that a test started or opened is there after it."""

from __future__ import annotations

import functools
import gc
import os
import threading
import time
from contextlib import suppress
from typing import Any

import hocket.rpc.schema  # Cap'n Proto keeps the schemas' files open from here on
import hocket.wire.node_schema
import hocket.wire.schema  # noqa: F401
from tests.support.processes import forked
from tests.support.threads import pause_after, stack

with suppress(ImportError):  # it starts threads when it is loaded, and keeps them
    import pyarrow  # noqa: F401

_GRACE_SECONDS = 0.02  # most threads that are on their way out have ended by then


class LeakCheck:
    """What there was when it was made: threads, open files, brokers in the process-wide manager.

    `verify()` fails if there is more now. Threads on their way out get a moment. What is held by
    a circle of garbage only is collected, but late: a collection costs more than most tests.
    """

    def __init__(self) -> None:
        self._threads = set(threading.enumerate())
        self._tasks = _os_threads()
        self._files = _open_files()
        self._brokers = {id(broker) for broker in _process_manager().brokers()}

    def verify(self, timeout: float = 10.0) -> None:
        began = time.monotonic()
        while left := self._left():
            waited = time.monotonic() - began
            if waited >= timeout:
                for broker in self._new_brokers():
                    broker.close()  # so that one leak fails one test, not all that follow
                raise AssertionError("left behind: " + "; ".join(left))
            if waited >= _GRACE_SECONDS:
                gc.collect()
            time.sleep(pause_after(waited))

    def _left(self) -> list[str]:
        threads = [t for t in threading.enumerate() if t not in self._threads]
        left = [f"thread {thread.name!r} at\n{stack(thread)}" for thread in threads]
        if not threads:
            left += [f"OS thread {task}" for task in sorted(_os_threads() - self._tasks)]
        left += [f"open file {fd} -> {to}" for fd, to in sorted(_open_files() - self._files)]
        left += [f"broker {broker.name!r}" for broker in self._new_brokers()]
        return left

    def _new_brokers(self) -> list[Any]:
        return [b for b in _process_manager().brokers() if id(b) not in self._brokers]


def _os_threads() -> set[int]:
    return {int(name) for name in os.listdir("/proc/self/task")}


def _open_files() -> set[tuple[int, str]]:
    found = set()
    for name in os.listdir("/proc/self/fd"):
        if int(name) in forked.kept:
            continue
        try:
            found.add((int(name), os.readlink(f"/proc/self/fd/{name}")))
        except OSError:  # the descriptor of this very listing
            continue
    return found


@functools.cache
def _process_manager() -> Any:
    from hocket.local import Broker  # late: `support` itself needs none of the package

    with Broker("tests: which manager is the process-wide one?") as broker:
        return broker.manager
