"""A broker in this process, and links to it: no socket, no port, no settings touched."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from hocket.addresses import Address
from hocket.client.connection.link import LinkOwner
from hocket.errors import Closed, HocketError
from hocket.frames import Frame

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from hocket.core.session.session import Caller
    from hocket.node.broker import Broker, LocalLink


def start_broker(path: str | PathLike[str] | None) -> tuple[Broker, Callable[[], None]]:
    """A running broker, and the function that ends it."""
    from hocket.node.broker import Broker  # late: a client of a broker elsewhere needs none of it

    temporary = TemporaryPath() if path is None else None
    try:
        broker = Broker(Path(temporary.name if temporary else path or ""))
        broker.start()
    except BaseException:
        if temporary:
            temporary.remove()
        raise

    def end() -> None:
        try:
            broker.close()
        finally:
            if temporary:
                temporary.remove()

    return broker, end


class TemporaryPath:
    """A temporary directory that is removed when this object is dropped, or at exit.

    A forked child does not remove it: with `tempfile.TemporaryDirectory` it would, while its parent
    still uses the directory.
    """

    def __init__(self) -> None:
        self.name = tempfile.mkdtemp(prefix="hocket-")
        self._owner = os.getpid()
        _temporary[self.name] = self._owner
        weakref.finalize(self, _remove, self.name, self._owner).atexit = False  # see `leave`

    def remove(self) -> None:
        """Also if that was done at exit: a broker that ends after it writes once more."""
        _remove(self.name, self._owner)


_temporary: dict[str, int] = {}  # the directories that are there, with the processes they are of


def leave() -> None:
    """The process ends, and what clients had to deliver is delivered: see `hocket.__init__`."""
    for name, owner in list(_temporary.items()):
        _remove(name, owner)


def _remove(name: str, owner: int) -> None:
    _temporary.pop(name, None)
    if os.getpid() == owner:
        shutil.rmtree(name, ignore_errors=True)


class EmbeddedConnector:
    """Opens links to a broker in this process: see `link.Connector`."""

    target = "the embedded broker"
    addresses: tuple[Address | None, ...] = (None,)
    watched = False  # the broker is there for as long as the process is

    def __init__(self, broker: Broker, caller: Caller | None = None) -> None:
        self._broker = broker
        self._caller = caller  # None: the process itself, which is trusted

    def open(self, _address: Address | None, owner: LinkOwner) -> None:
        link = EmbeddedLink(owner)
        try:
            if self._caller is None:
                link.inner = self._broker.open_link(link.received, link.lost)
            else:
                link.inner = self._broker.open_link(link.received, link.lost, self._caller)
        except Closed as error:
            owner.lost(None, error)
        else:
            owner.opened(link)

    def close(self) -> None:
        """Each link closes itself."""

    def forked(self) -> None:
        """There is nothing here but objects; the broker hears of it by itself."""

    def for_threads(self) -> EmbeddedConnector:
        return self


class EmbeddedLink:
    """A link that hands frames over as objects. Its callbacks run on the broker's thread."""

    inner: LocalLink

    def __init__(self, owner: LinkOwner) -> None:
        self._owner = owner

    def send(self, frame: Frame, payload: Sequence[Buffer] = ()) -> None:
        try:
            self.inner.send(frame, payload)
        except Closed:
            return  # the broker has called `lost`, or is about to

    def flush(self) -> None:
        """Nothing is held back."""

    def close(self) -> None:
        self.inner.close()

    def heard(self) -> int:
        return 0

    def received(self, frame: Frame, payload: memoryview) -> None:
        self._owner.received_outside(self, ((frame, payload),))

    def lost(self, error: HocketError) -> None:
        self._owner.lost_outside(self, error)
