"""A ring of bytes between one writer and one reader.

Rule 1: bytes flow without a lock; only an ending takes `endings`, because both sides must agree on
        what came first: the last write, the last read, or the end.
Rule 2: a byte whose write returned is read, or nobody reads any more.
Rule 3: a byte whose write raised is never read.

Theory: there are two counters, `_written` (changed by the writer alone) and `_taken` (by the reader
alone). Their difference is what waits; a counter modulo the capacity is an index into the ring.
Each side copies first and moves its counter last, so the other side never sees bytes that are not
there yet. Both counters only grow, but for `retract` and `untake`, which settle how many bytes of a
write or a read count that was under way when the ring was closed.

`put` and `take` move bytes and do nothing else. `try_write` and `try_read` also look at the end and
wake the other side; what waits calls them again and again, by the rules of `waiting`.
"""

from __future__ import annotations

from functools import partial
from mmap import mmap
from threading import RLock
from typing import TYPE_CHECKING

from hocket.deadline import Deadline
from hocket.errors import Closed, HocketError, OutOfRange, WouldBlock
from hocket.local.aio import wait_async
from hocket.local.checks import check_at_least, readable_span, whole_number, writable_span
from hocket.local.waiting import Waiters, wait

if TYPE_CHECKING:
    from typing_extensions import Buffer


MAPPED_FROM_BYTES = 1 << 17  # from this size on a ring is mapped memory: see `allocate`

AT_ONCE = 0  # compared by identity: `False == 0`, and False is not a number of seconds

# Reentrant: a finalizer or a signal handler may end another one while we hold it.
endings = RLock()  # one for all rings: held for a few steps, once or twice in a ring's life


class CircularBuffer:
    """A FIFO of at most `capacity` bytes, for one writing and one reading thread at a time.

    `write` takes what fits and `read` gives what is there; both return at once with the count,
    0 when full or empty. With a timeout they wait until they can move at least one byte: for so
    many seconds, after which they raise Timeout, or for as long as it takes with `timeout=None`.
    `push` and `pull` do the same for single bytes; without a timeout they raise WouldBlock.

    After `close` nothing is written any more. What is there can still be read; then reading raises
    Closed, too. The memory is allocated at the first write.
    """

    __slots__ = (
        "_storage",
        "_taken",
        "_written",
        "capacity",
        "closed",
        "drained",
        "readers",
        "writers",
    )

    def __init__(self, capacity: int) -> None:
        check_at_least(capacity, 1, "capacity")
        self.capacity = capacity
        self._storage: memoryview | None = None
        # Invariant: 0 <= written - taken <= capacity.
        self._written = 0  # bytes ever written; the writer's
        self._taken = 0  # bytes ever taken; the reader's
        self.readers = Waiters()
        self.writers = Waiters()
        self.closed = False  # the fast path looks at this alone
        self.drained = False  # closed, and nothing will be read any more

    def __len__(self) -> int:
        return self._written - self._taken

    def empty(self) -> bool:
        return self._written == self._taken

    def full(self) -> bool:
        return self._written - self._taken == self.capacity

    def write(
        self,
        buffer: Buffer,
        offset: int = 0,
        length: int | None = None,
        *,
        timeout: float | None = 0,
    ) -> int:
        """Take what fits of `buffer` and return how much. Raises Closed; Timeout if it waits."""
        view = readable_span(buffer, offset, length)
        deadline = _until(timeout)
        size = len(view)
        count = self.try_write(view, size) if size else 0
        if count is None and deadline is not None:
            return wait(partial(self.try_write, view, size), self.writers, deadline, "write")
        return count or 0

    async def write_async(
        self,
        buffer: Buffer,
        offset: int = 0,
        length: int | None = None,
        *,
        timeout: float | None = None,
    ) -> int:
        """`write` for a coroutine, which waits unless told otherwise."""
        view = readable_span(buffer, offset, length)
        deadline = _until(timeout)
        size = len(view)
        count = self.try_write(view, size) if size else 0
        if count is None and deadline is not None:
            attempt = partial(self.try_write, view, size)
            return await wait_async(attempt, self.writers, deadline, "write")
        return count or 0

    def read(
        self,
        buffer: Buffer,
        offset: int = 0,
        length: int | None = None,
        *,
        timeout: float | None = 0,
    ) -> int:
        """Give what is there and return how much. Raises Closed; Timeout if it waits."""
        view = writable_span(buffer, offset, length)
        deadline = _until(timeout)
        size = len(view)
        count = self.try_read(view, size) if size else 0
        if count is None and deadline is not None:
            return wait(partial(self.try_read, view, size), self.readers, deadline, "read")
        return count or 0

    async def read_async(
        self,
        buffer: Buffer,
        offset: int = 0,
        length: int | None = None,
        *,
        timeout: float | None = None,
    ) -> int:
        """`read` for a coroutine, which waits unless told otherwise."""
        view = writable_span(buffer, offset, length)
        deadline = _until(timeout)
        size = len(view)
        count = self.try_read(view, size) if size else 0
        if count is None and deadline is not None:
            attempt = partial(self.try_read, view, size)
            return await wait_async(attempt, self.readers, deadline, "read")
        return count or 0

    def push(self, byte: int, *, timeout: float | None = 0) -> None:
        """Write one byte. Raises WouldBlock, or Timeout if it waits; Closed."""
        if not self.write(_one_byte(byte), timeout=timeout):
            raise self._is_full()

    async def push_async(self, byte: int, *, timeout: float | None = None) -> None:
        """`push` for a coroutine, which waits unless told otherwise."""
        if not await self.write_async(_one_byte(byte), timeout=timeout):
            raise self._is_full()

    def pull(self, *, timeout: float | None = 0) -> int:
        """Read one byte. Raises WouldBlock, or Timeout if it waits; Closed."""
        target = bytearray(1)
        if not self.read(target, timeout=timeout):
            raise WouldBlock("the buffer is empty")
        return target[0]

    async def pull_async(self, *, timeout: float | None = None) -> int:
        """`pull` for a coroutine, which waits unless told otherwise."""
        target = bytearray(1)
        if not await self.read_async(target, timeout=timeout):
            raise WouldBlock("the buffer is empty")
        return target[0]

    def close(self) -> None:
        """Write nothing more, from any thread, any number of times; calls that wait are woken."""
        with endings:
            self.closed = True
        self.wake_both()

    def wake_both(self) -> None:
        """The ring was closed: who waits has to look at that."""
        self.readers.wake_all()
        self.writers.wake_all()

    # --- one attempt ---------------------------------------------------------------------------

    def try_write(self, data: bytes | memoryview, size: int) -> int | None:
        """How many bytes were taken, None when there is no room."""
        if self.closed:
            raise self.write_refused()
        count = self.put(data, size)
        if count and (self.closed or self.readers):
            return self.after_put(count)
        return count or None

    def try_read(self, target: memoryview, size: int) -> int | None:
        """How many bytes were given, None when there are none yet."""
        if self.closed:
            return self._take_rest(target, size)
        count = self.take(target, size)
        if count and (self.closed or self.writers):
            return self.after_take(count)
        return count or None

    def after_put(self, count: int) -> int:
        """After a `put` if a reader waits or the ring was closed; returns how many bytes count."""
        if self.closed:
            with endings:
                if self.drained:
                    count -= self.retract(count)
            if not count:
                raise self.write_refused()
        self.readers.wake_one()
        return count

    def after_take(self, count: int) -> int:
        """After a `take` if a writer waits or the ring was closed; returns how many bytes count."""
        if self.closed:
            with endings:
                count -= self.untake(count)  # what the writer took back while we copied it
            if not count:
                raise self.read_refused()
        self.writers.wake_one()
        return count

    def _take_rest(self, target: memoryview, size: int) -> int:
        with endings:
            if not self.drained:
                count = self.take(target, size)
                if count:
                    return count
                self.drained = True
        raise self.read_refused()

    def write_refused(self) -> HocketError:
        return Closed("the buffer was closed; nothing is written any more")

    def read_refused(self) -> HocketError:
        return Closed("the buffer was closed, and every byte has been read")

    def _is_full(self) -> WouldBlock:
        return WouldBlock(f"the buffer of {self.capacity} bytes is full")

    # --- moving bytes --------------------------------------------------------------------------

    def put(self, data: bytes | memoryview, size: int) -> int:
        """Take what fits: `data` is bytes or a view of bytes, `size` its length."""
        storage = self._storage
        if storage is None:
            storage = self.storage()
        written = self._written
        capacity = self.capacity
        room = capacity - written + self._taken
        if size > room:
            if room == 0:
                return 0
            data = memoryview(data)[:room]
            size = room
        start = written % capacity
        end = start + size
        if end <= capacity:
            storage[start:end] = data
        else:
            whole = memoryview(data)
            before_the_seam = capacity - start
            storage[start:] = whole[:before_the_seam]
            storage[: end - capacity] = whole[before_the_seam:]
        self._written = written + size
        return size

    def take(self, target: memoryview, size: int) -> int:
        """Give what is there: `target` is a writable view of `size` bytes."""
        taken = self._taken
        capacity = self.capacity
        waiting = self._written - taken
        if size > waiting:
            size = waiting
        if size == 0:
            return 0
        storage = self._storage
        assert storage is not None, "bytes wait, so they were written, so there is memory"
        start = taken % capacity
        end = start + size
        if end <= capacity:
            target[:size] = storage[start:end]
        else:
            before_the_seam = capacity - start
            target[:before_the_seam] = storage[start:]
            target[before_the_seam:size] = storage[: end - capacity]
        self._taken = taken + size
        return size

    def storage(self) -> memoryview:
        """The memory of the ring, allocated when it is first asked for."""
        if self._storage is None:
            self._storage = allocate(self.capacity)
        return self._storage

    def retract(self, count: int) -> int:
        """Take back those of the last `count` bytes written that are still here; how many."""
        back = max(0, min(count, self._written - self._taken))
        self._written -= back
        return back

    def untake(self, count: int) -> int:
        """Undo a `take` of `count` that overlapped a `retract`; how many bytes were not there."""
        over = max(0, min(count, self._taken - self._written))
        self._taken -= over
        return over


def allocate(size: int) -> memoryview:
    """Memory for a ring. Large ones are mapped: pages come as they are touched, and go back."""
    if size >= MAPPED_FROM_BYTES:
        try:
            return memoryview(mmap(-1, size))
        except OSError:  # the kernel allows a process some 65,000 mappings; ordinary memory, then
            pass
    return memoryview(bytearray(size))


def _until(timeout: float | None) -> Deadline | None:
    """Until when to wait; None: not at all."""
    if timeout is AT_ONCE:
        return None
    deadline = Deadline(timeout)  # which checks it, too
    return None if timeout == 0 else deadline


def _one_byte(byte: int) -> bytes:
    if not 0 <= whole_number(byte, "a byte") <= 255:
        raise OutOfRange(f"a byte must be between 0 and 255, not {byte}")
    return bytes((byte,))
