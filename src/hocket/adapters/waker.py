"""Wakes whoever waits in `select`, from any thread and from signal handlers.

Linux has eventfd for that: one descriptor and one number. Elsewhere it is a pipe to oneself.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from threading import RLock
from typing import Protocol

TAKEN_AT_ONCE = 65536  # what a pipe holds, at most
FORKED_SECONDS = 1.0


class Waker(Protocol):
    descriptor: int  # readable since `wake`, until `clear`

    def wake(self) -> None: ...
    def clear(self) -> None: ...
    def close(self) -> None: ...


def new_waker() -> Waker:
    return EventFd() if hasattr(os, "eventfd") else Pipe()


class _Waker:
    """Lets nobody wake what is closed: its descriptor may be another one's by then.

    Who wakes has looked before, without a lock, whether somebody sleeps; that one may have woken
    since, and be gone. The lock is reentrant: a signal handler may wake while its thread does.
    """

    def __init__(self, write: Callable[[], object], *descriptors: int) -> None:
        self._write = write
        self._descriptors = descriptors
        self._lock = RLock()
        self._closed = False

    def wake(self) -> None:
        with self._lock:
            if not self._closed:
                self._write()

    def close(self) -> None:
        # In a forked child a thread may hold it that is not there: it is not waited for.
        held = self._lock.acquire(timeout=FORKED_SECONDS)
        try:
            if not self._closed:
                self._closed = True
                for each in self._descriptors:
                    os.close(each)
        finally:
            if held:
                self._lock.release()


class EventFd(_Waker):
    def __init__(self) -> None:
        flags = getattr(os, "EFD_NONBLOCK") | getattr(os, "EFD_CLOEXEC")  # noqa: B009
        self.descriptor: int = getattr(os, "eventfd")(0, flags)  # noqa: B009 - some lack it
        self.clear = partial(getattr(os, "eventfd_read"), self.descriptor)  # noqa: B009
        write = getattr(os, "eventfd_write")  # noqa: B009
        super().__init__(partial(write, self.descriptor, 1), self.descriptor)


class Pipe(_Waker):
    def __init__(self) -> None:
        self.descriptor, end = os.pipe()  # neither is inherited by other programs
        os.set_blocking(self.descriptor, False)
        os.set_blocking(end, False)
        super().__init__(partial(_write_unless_full, end), self.descriptor, end)

    def clear(self) -> None:
        os.read(self.descriptor, TAKEN_AT_ONCE)


def _write_unless_full(descriptor: int) -> None:
    with suppress(BlockingIOError):  # it is full, and so it is readable
        os.write(descriptor, b"!")
