"""Who has to be told that its process has forked: in the child, where threads and links are not.

A fork copies the objects of a process and its open descriptors, but of its threads only the one
that forked. What lives by other threads (a client, a broker) must not be used in the child, and
must not be waited for: it is told, and refuses. Its descriptors are closed in the child, so that it
is the parent alone who decides when a connection ends or a data directory is free. Closing a copy
says nothing to the other side.
"""

from __future__ import annotations

import os
from typing import NoReturn, Protocol
from weakref import WeakSet

from hocket.errors import WrongProcess


class Forkable(Protocol):
    def forked(self) -> None:
        """This process is a child, and this object a copy. No lock may be taken here: whoever held
        it at the time of the fork is not there to release it."""


_told: WeakSet[Forkable] = WeakSet()


def tell(one: Forkable) -> None:
    """Have `one.forked()` called in every child that this process forks, while `one` lives."""
    _told.add(one)


def refuse(*_arguments: object, **_named: object) -> NoReturn:
    """Takes the place of what cannot be done in a child."""
    raise wrong_process()


def wrong_process() -> WrongProcess:
    return WrongProcess(
        f"this client, or broker, belongs to the process that forked this one (process "
        f"{os.getpid()}): its threads and its connection stayed there. Open a client of your own "
        "in the child"
    )


def _in_child() -> None:
    told = list(_told)
    _told.clear()
    for one in told:
        one.forked()


os.register_at_fork(after_in_child=_in_child)
