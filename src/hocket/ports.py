"""What the broker needs of the world: time, a network, a disk, and somebody to do slow work.

Each is real in `adapters` and simulated in `sim`; the node and the log know only these. Everything
here is called on the node's own thread, and calls back there. That is the whole of the broker's
thread safety: state is touched by one thread; other threads only carry bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from hocket.core.ring.contact import Contact
from hocket.frames import Frame

if TYPE_CHECKING:
    from typing_extensions import Buffer

T = TypeVar("T")


class Clock(Protocol):
    def now_us(self) -> int:
        """Wall time: microseconds since the epoch. It may jump, back as well."""


class SteadyClock(Clock, Protocol):
    """A clock that can also measure how long something takes."""

    def ticks_us(self) -> int:
        """Monotonic time: microseconds since some moment. It never goes back."""


class Network(Protocol):
    """The connections of a node, by number; numbers are never reused."""

    def send(self, connection: int, frame: Frame, payload: Sequence[Buffer] = ()) -> None:
        """Queue a frame. One to a connection that is gone is dropped."""

    def close(self, connection: int) -> None:
        """After what is queued has been sent."""

    def pause(self) -> None:
        """Take no more frames from anybody until `resume`: there is enough to do."""

    def resume(self) -> None: ...


class Cancellable(Protocol):
    def cancel(self) -> None: ...


class Timers(Protocol):
    def after(self, delay_us: int, action: Callable[[], None]) -> Cancellable:
        """Call `action` once, so much later, unless it is cancelled before."""


class Links(Protocol):
    """The way to the other nodes of a cluster."""

    def send(self, sender: Contact, to: Contact, message: object) -> None:
        """Never waits. It goes to `to.address`, with the sender and `to.incarnation`; it may be
        lost, and then nobody is told."""


class Executor(Protocol):
    """Runs slow jobs (reads, writes, syncs), in lanes: one at a time per lane, in order."""

    def submit(
        self,
        lane: str,
        job: Callable[[], T],
        done: Callable[[T | BaseException], None],
        *,
        brief: bool = False,
    ) -> None:
        """Run `job` elsewhere; then call `done` here with its result, or what it raised.

        A `brief` one may be run here and now, where that is cheaper than having it carried to
        another thread and back. `done` is never called from within.
        """

    def drain(self) -> None:
        """Return when every job has run and every `done` was called; for closing down only."""


class File(Protocol):
    """An open file. Errors are OSError, as the system raises them."""

    def write(self, buffers: Sequence[Buffer], position: int, *, sync: bool = False) -> None:
        """All of it, at `position`; with `sync` it is durable on return (data, not metadata)."""

    def read(self, length: int, position: int) -> bytes:
        """Fewer bytes only at the end of the file."""

    def sync(self) -> None: ...

    def truncate(self, length: int) -> None: ...

    def size(self) -> int: ...

    def drop_cache(self, position: int, length: int) -> None:
        """What is read again from here should come from the disk, not from the page cache."""

    def close(self) -> None: ...


class Disk(Protocol):
    """One directory tree, named by relative paths with '/'."""

    def open(self, path: str, *, create: bool = False) -> File:
        """For reading and writing. Without `create`, FileNotFoundError if it is not there."""

    def exists(self, path: str) -> bool: ...

    def list(self, path: str) -> list[str]:
        """Names in a directory, sorted; empty if it is not there."""

    def make_directory(self, path: str) -> None:
        """With its parents; nothing happens if it is there. Durable on return."""

    def rename(self, old: str, new: str) -> None:
        """Atomically, replacing `new`. Durable after `sync_directory`."""

    def remove(self, path: str) -> None: ...

    def remove_tree(self, path: str) -> None: ...

    def sync_directory(self, path: str) -> None:
        """Names created, renamed or removed in it so far are durable on return."""

    def free_bytes(self) -> int: ...

    def lock(self) -> None:
        """For this process alone, until it ends or `unlock`. Raises DataDirectoryInUse."""

    def unlock(self) -> None: ...
