"""What the broker needs of the world: time, a network, a disk, and threads for slow work.

The node and the log know only these protocols. `Clock`, `Executor`, `File` and `Disk` are real in
`adapters`, `Network` is real in `node.door`, and all of them are simulated in `sim`. `Timers` and
`Links` are for the nodes of a cluster (`node.cluster`): real in `adapters.loop` and `node.links`.

Everything here is called on the node's own thread, and calls back there. That is the whole of the
broker's thread safety: one thread touches state, other threads only carry bytes.
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
        """Queue a frame. A frame to a connection that is gone is dropped."""

    def close(self, connection: int) -> None:
        """Close the connection after everything queued for it has been sent."""

    def pause(self) -> None:
        """Take no more frames from any connection until `resume`: there is enough to do."""

    def resume(self) -> None: ...


class Cancellable(Protocol):
    def cancel(self) -> None: ...


class Timers(Protocol):
    def after(self, delay_us: int, action: Callable[[], None]) -> Cancellable:
        """Call `action` once, `delay_us` from now, unless it is cancelled before."""


class Links(Protocol):
    """The way to the other nodes of a cluster."""

    def send(self, sender: Contact, to: Contact, message: object) -> None:
        """Send `message` to `to.address`, with the sender and `to.incarnation`.

        This never waits. The message may be lost, and then nobody is told.
        """


class Executor(Protocol):
    """Runs slow jobs (reads, writes, syncs) on named workers.

    A worker does one job at a time, in the order in which its jobs were submitted.
    """

    def submit(
        self,
        worker: str,
        job: Callable[[], T],
        done: Callable[[T | BaseException], None],
        *,
        brief: bool = False,
    ) -> None:
        """Have `worker` run `job`; then call `done` here with the result, or with what it raised.

        A `brief` job may be run here and now, where that is cheaper than carrying it to another
        thread and back. `submit` itself never calls `done`.
        """

    def drain(self) -> None:
        """Return when every job has run and every `done` was called; for closing down only."""


class File(Protocol):
    """An open file. Errors are OSError, as the system raises them."""

    def write(self, buffers: Sequence[Buffer], position: int, *, sync: bool = False) -> None:
        """Write all of `buffers` at `position`; with `sync` the data is durable on return."""

    def read(self, length: int, position: int) -> bytes:
        """`length` bytes from `position`; fewer only at the end of the file."""

    def sync(self) -> None: ...

    def truncate(self, length: int) -> None: ...

    def size(self) -> int: ...

    def drop_cache(self, position: int, length: int) -> None:
        """The next read of this range should come from the disk, not from the page cache."""

    def close(self) -> None: ...


class Disk(Protocol):
    """One directory tree, named by relative paths with '/'."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing. Without `create`, a missing file is FileNotFoundError."""

    def exists(self, path: str) -> bool: ...

    def list(self, path: str) -> list[str]:
        """The names in a directory, sorted; none if the directory is not there."""

    def make_directory(self, path: str) -> None:
        """Make the directory and its parents where they are missing. Durable on return."""

    def rename(self, old: str, new: str) -> None:
        """Rename atomically, replacing `new`. Durable after `sync_directory`."""

    def remove(self, path: str) -> None: ...

    def remove_tree(self, path: str) -> None: ...

    def sync_directory(self, path: str) -> None:
        """Names that were created, renamed or removed in the directory are durable on return."""

    def free_bytes(self) -> int: ...

    def lock(self) -> None:
        """Keep the tree for this process, until the process ends or `unlock`.

        Raises DataDirectoryInUse.
        """

    def unlock(self) -> None: ...
