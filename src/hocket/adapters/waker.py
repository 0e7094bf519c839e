"""Wakes whoever waits in `select`, from any thread and from signal handlers.

Linux has eventfd for that: one descriptor and one number. Elsewhere it is a pipe to oneself.
"""

from __future__ import annotations

import os
from contextlib import suppress
from functools import partial
from typing import Protocol

TAKEN_AT_ONCE = 65536  # what a pipe holds, at most


class Waker(Protocol):
    descriptor: int  # readable since `wake`, until `clear`

    def wake(self) -> None: ...
    def clear(self) -> None: ...
    def close(self) -> None: ...


def new_waker() -> Waker:
    return EventFd() if hasattr(os, "eventfd") else Pipe()


class EventFd:
    def __init__(self) -> None:
        flags = getattr(os, "EFD_NONBLOCK") | getattr(os, "EFD_CLOEXEC")  # noqa: B009
        self.descriptor: int = getattr(os, "eventfd")(0, flags)  # noqa: B009 - some lack it
        self.wake = partial(getattr(os, "eventfd_write"), self.descriptor, 1)  # noqa: B009
        self.clear = partial(getattr(os, "eventfd_read"), self.descriptor)  # noqa: B009

    def close(self) -> None:
        os.close(self.descriptor)


class Pipe:
    def __init__(self) -> None:
        self.descriptor, self._end = os.pipe()  # neither is inherited by other programs
        os.set_blocking(self.descriptor, False)
        os.set_blocking(self._end, False)

    def wake(self) -> None:
        with suppress(BlockingIOError):  # it is full, and so it is readable
            os.write(self._end, b"!")

    def clear(self) -> None:
        os.read(self.descriptor, TAKEN_AT_ONCE)

    def close(self) -> None:
        os.close(self.descriptor)
        os.close(self._end)
