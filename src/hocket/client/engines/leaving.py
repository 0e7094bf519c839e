"""The end of the process: what clients that nobody closed were given is delivered before it.

Python ends in this order: threads that are no daemons are waited for, then what is registered with
`atexit` is called, last registered first, and then all other threads stop where they are. Our
threads are daemons, so that a forgotten client does not keep a process from ending; `leave`
therefore runs in `atexit`, where they still work. `hocket` registers it when it is imported, which
is before a program can register anything that sends.

Since Python 3.12 no thread can be started any more by then. A blocking client has its own: if it
lost its link, that thread runs the next one (see `connection.tcp`). What an asyncio client has in
hand when its loop is closed needs a new thread; so it is looked after earlier (`rescue`), when the
main thread has ended and others have not.

Not delivered is what a process leaves that ends otherwise: by a signal, by `os._exit`, by a crash.
A forked child has nothing to deliver: its parent does.
"""

from __future__ import annotations

import sys
import threading
import time
from contextlib import suppress
from typing import Protocol
from weakref import WeakSet

LOOK_SECONDS = 0.005  # how often `leave` looks whether all is delivered
EXIT_SECONDS = 10.0  # that it waits for a client, unless the client was told otherwise


class Leaver(Protocol):
    """An engine."""

    exit_seconds: float | None  # None: as long as it takes

    def rescue(self) -> None:
        """The main thread has ended: if nothing drives this any more, have a thread do so."""

    def leave(self) -> bool:
        """Go on delivering; True once there is nothing left that could be."""

    def remains(self) -> list[str]:
        """What could not be delivered, or was aborted, in words."""


_open: WeakSet[Leaver] = WeakSet()  # those of clients that are not closed
_kept: dict[Leaver, None] = {}  # those of them whose client was dropped: nobody else has them


def opened(engine: Leaver) -> None:
    _open.add(engine)


def dropped(engine: Leaver) -> None:
    _kept[engine] = None


def ended(engine: Leaver) -> None:
    _open.discard(engine)
    _kept.pop(engine, None)


def rescue() -> None:
    for engine in _all():
        with suppress(RuntimeError):  # no thread can be started; then `leave` says what is lost
            engine.rescue()


def leave() -> None:
    """Deliver what can be delivered in time, and say what could not be."""
    engines = _all()
    begun = time.monotonic()
    waiting = dict.fromkeys(engines)
    with suppress(KeyboardInterrupt):  # Ctrl-C ends the wait
        while waiting:
            now = time.monotonic()
            for engine in list(waiting):
                seconds = engine.exit_seconds
                if engine.leave() or (seconds is not None and now - begun >= seconds):
                    del waiting[engine]
            if waiting:
                time.sleep(LOOK_SECONDS)
    for engine in engines:
        for line in engine.remains():
            _say(f"hocket: when the process ended, {line}\n")


def _all() -> list[Leaver]:
    while True:
        with suppress(RuntimeError):  # another thread has opened or closed a client just then
            return list(dict.fromkeys([*_open, *_kept]))


def _say(line: str) -> None:
    with suppress(OSError, ValueError, AttributeError):  # nobody listens any more
        sys.stderr.write(line)


# Private, and used by concurrent.futures for the same purpose. Where it is missing, what is left of
# asyncio clients is looked after when `leave` is called.
with suppress(AttributeError, RuntimeError):
    threading._register_atexit(rescue)  # type: ignore[attr-defined]
