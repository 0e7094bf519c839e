"""A ring of bytes between one writer and one reader.

Theory: there are two counters, `_written` (changed by the writer alone) and `_taken` (by the reader
alone). Their difference is what waits; a counter modulo the capacity is an index into the ring.
Each side copies first and moves its counter last, so the other side never sees bytes that are not
there yet. Both counters only grow, but for `retract` and `untake`, with which `channel` settles how
a stream ended. Nothing here waits; `channel` adds that.
"""

from __future__ import annotations

from mmap import mmap
from typing import TYPE_CHECKING

from hocket.errors import OutOfRange, WouldBlock
from hocket.local.checks import check_at_least, readable_span, whole_number, writable_span

if TYPE_CHECKING:
    from typing_extensions import Buffer


MAPPED_FROM_BYTES = 1 << 17  # from this size on a ring is mapped memory: see `allocate`


class CircularBuffer:
    """A FIFO of at most `capacity` bytes, for one writing and one reading thread at a time.

    `write` takes what fits and `read` gives what is there; both return at once with the count,
    0 when full or empty. The memory is allocated at the first write.
    """

    __slots__ = ("_storage", "_taken", "_written", "capacity")

    def __init__(self, capacity: int) -> None:
        check_at_least(capacity, 1, "capacity")
        self.capacity = capacity
        self._storage: memoryview | None = None
        # Invariant: 0 <= written - taken <= capacity.
        self._written = 0  # bytes ever written; the writer's
        self._taken = 0  # bytes ever taken; the reader's

    def __len__(self) -> int:
        return self._written - self._taken

    def empty(self) -> bool:
        return self._written == self._taken

    def full(self) -> bool:
        return self._written - self._taken == self.capacity

    def write(self, buffer: Buffer, offset: int = 0, length: int | None = None) -> int:
        view = readable_span(buffer, offset, length)
        return self.put(view, len(view))

    def read(self, buffer: Buffer, offset: int = 0, length: int | None = None) -> int:
        view = writable_span(buffer, offset, length)
        return self.take(view, len(view))

    def push(self, byte: int) -> None:
        if not 0 <= whole_number(byte, "a byte") <= 255:
            raise OutOfRange(f"a byte must be between 0 and 255, not {byte}")
        if not self.put(bytes((byte,)), 1):
            raise WouldBlock(f"the buffer of {self.capacity} bytes is full")

    def pull(self) -> int:
        target = bytearray(1)
        if not self.take(memoryview(target), 1):
            raise WouldBlock("the buffer is empty")
        return target[0]

    def put(self, data: bytes | memoryview, size: int) -> int:
        """`write` without the checks: `data` is bytes or a view of bytes, `size` its length."""
        storage = self._storage
        if storage is None:
            storage = self._storage = allocate(self.capacity)
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
        """`read` without the checks: `target` is a writable view of `size` bytes."""
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
