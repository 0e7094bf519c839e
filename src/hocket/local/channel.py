"""A full-duplex byte stream between two threads: two `Channel` ends over two circular buffers.

A stream ends in one of two ways. Its writer leaves: then the reader still reads what is there, and
only then is disconnected. Or its reader leaves: then a write raises. A write or a read during which
the stream ended settles how many of its bytes count (see `circular_buffer`).
"""

from __future__ import annotations

import warnings
from functools import partial
from typing import TYPE_CHECKING

from hocket.deadline import NEVER, Deadline
from hocket.errors import BusyResource, Disconnected, Timeout
from hocket.local.aio import wait_async
from hocket.local.checks import as_bytes_view, check_at_least, readable_span, writable_span
from hocket.local.circular_buffer import CircularBuffer, endings
from hocket.local.waiting import wait

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, Self

    from typing_extensions import Buffer

BUFFER_BYTES = 1 << 20  # each way; 64 KiB writes gain little from more (see benchmarks/results)

LOCAL = "local"  # the way of bytes within a process

FROM_THE_START = 0  # compared by identity: `False == 0`, and False is not an offset


class Stream(CircularBuffer):
    """One direction of a channel: a ring that its writer or its reader may leave."""

    __slots__ = ("reader_gone", "why", "writer_gone")

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self.writer_gone = False
        self.reader_gone = False
        self.why = ""  # why the other end has left, if it is not that it wanted to

    def leave(self, *, as_writer: bool) -> None:
        with endings:
            if as_writer:
                self.writer_gone = True
            else:
                self.reader_gone = self.drained = True
            self.closed = True
        self.wake_both()

    def at_end(self) -> bool:
        """Whether the reader has nothing more to expect; once True, it stays True."""
        if not self.writer_gone:
            return False
        with endings:
            self.drained = self.drained or self.empty()
            return self.drained

    def look(self, most: int) -> memoryview | None:
        """Up to `most` of the bytes that wait, as they lie in the ring; None when there are none.

        They stay there until `skip` says that the reader is done with them.
        """
        if self.closed and (self.drained or self.at_end()):
            raise self.read_refused()
        waiting = self._written - self._taken
        if not waiting:
            return None
        assert self._storage is not None, "bytes wait, so they were written, so there is memory"
        start = self._taken % self.capacity
        return self._storage[start : min(start + min(waiting, most), self.capacity)]

    def put_together(self, parts: Sequence[bytes | bytearray | memoryview], size: int) -> bool:
        """Write all of the parts, `size` bytes, as one; False if there is no room for all."""
        if self.closed:
            raise self.write_refused()
        capacity, written = self.capacity, self._written
        if size > capacity - written + self._taken:
            return False
        storage = self.storage()
        start = written % capacity
        for part in parts:
            end = start + len(part)
            if end <= capacity:
                storage[start:end] = part
            else:
                whole = memoryview(part)
                storage[start:] = whole[: capacity - start]
                end -= capacity
                storage[:end] = whole[capacity - start :]
            start = end
        self._written = written + size
        if self.closed or self.readers:
            self.after_put(size)
        return True

    def skip(self, count: int) -> None:
        """The reader is done with `count` bytes that it has looked at: they make room."""
        self._taken += count
        if self.closed or self.writers:
            self.after_take(count)

    def write_refused(self) -> Disconnected:
        return Disconnected(
            "this end of the channel was disconnected"
            if self.writer_gone
            else self.why
            or "the other end has disconnected; what is written now would never be read"
        )

    def read_refused(self) -> Disconnected:
        return Disconnected(
            "this end of the channel was disconnected"
            if self.reader_gone
            else self.why or "the other end has disconnected, and every byte it sent has been read"
        )


class Channel:
    """One end of a lossless FIFO byte stream in both directions.

    One thread (or coroutine) may read and one may write at each end at the same time; a second
    reader or writer gets `BusyResource` and harms nobody. `read` and `write` move at least one
    byte, unless asked for none, and wait until they can. Bytes that were written and not yet read
    are lost when their reader disconnects.

    An end that is dropped while the other one is connected is disconnected then, so that the other
    does not wait for ever, and a ResourceWarning is given.
    """

    __slots__ = ("__weakref__", "_inbound", "_outbound", "_reading", "_writing", "way")

    def __init__(self, inbound: Stream, outbound: Stream) -> None:
        self._inbound = inbound
        self._outbound = outbound
        # How bytes go: "local" within a process, else "direct" or (by way of a) "node".
        self.way = LOCAL
        # Whoever deletes the one token may read (or write). Deleting is atomic, costs a fifth of a
        # lock, and is no call, so that no signal handler can run between taking the token and the
        # `try` that gives it back.
        self._reading = [None]
        self._writing = [None]

    @classmethod
    def pair(cls, buffer_bytes: int = BUFFER_BYTES) -> tuple[Channel, Channel]:
        """Two joined ends, with a buffer of `buffer_bytes` each way."""
        return join(buffer_bytes, buffer_bytes)

    def write(
        self,
        buffer: Buffer,
        offset: int = 0,
        length: int | None = None,
        *,
        timeout: float | None = None,
    ) -> int:
        """Hand over at least one byte of `buffer` and return how many; wait while there is no room.

        Raises Disconnected when either end has disconnected: the bytes were then not taken.
        """
        data: bytes | memoryview
        if type(buffer) is bytes and length is None and offset is FROM_THE_START:
            data = buffer
        else:
            data = readable_span(buffer, offset, length)
        deadline = NEVER if timeout is None else Deadline(timeout)
        size = len(data)
        if not size:
            return 0
        try:
            del self._writing[0]
        except IndexError:
            raise _busy("writing") from None
        try:
            stream = self._outbound
            if not stream.closed:  # `try_write`, but for one call less: small writes feel it
                count = stream.put(data, size)
                if count:
                    return stream.after_put(count) if stream.closed or stream.readers else count
            return wait(partial(stream.try_write, data, size), stream.writers, deadline, "write")
        finally:
            self._writing.append(None)

    async def write_async(
        self,
        buffer: Buffer,
        offset: int = 0,
        length: int | None = None,
        *,
        timeout: float | None = None,
    ) -> int:
        """`write` for a coroutine."""
        data = readable_span(buffer, offset, length)
        deadline = Deadline(timeout)
        size = len(data)
        if not size:
            return 0
        try:
            del self._writing[0]
        except IndexError:
            raise _busy("writing") from None
        try:
            stream = self._outbound
            return await wait_async(
                partial(stream.try_write, data, size), stream.writers, deadline, "write"
            )
        finally:
            self._writing.append(None)

    def read(
        self,
        buffer: Buffer,
        offset: int = 0,
        length: int | None = None,
        *,
        timeout: float | None = None,
    ) -> int:
        """Fill at least one byte of `buffer` and return how many; wait while there is nothing.

        Raises Disconnected once the other end has disconnected and all it sent has been read, or
        when this end was disconnected.
        """
        if type(buffer) is bytearray and length is None and offset is FROM_THE_START:
            target = memoryview(buffer)
        else:
            target = writable_span(buffer, offset, length)
        deadline = NEVER if timeout is None else Deadline(timeout)
        size = len(target)
        if not size:
            return 0
        try:
            del self._reading[0]
        except IndexError:
            raise _busy("reading") from None
        try:
            stream = self._inbound
            if not stream.closed:  # `try_read`, but for one call less: small reads feel it
                count = stream.take(target, size)
                if count:
                    return stream.after_take(count) if stream.closed or stream.writers else count
            return wait(partial(stream.try_read, target, size), stream.readers, deadline, "read")
        finally:
            self._reading.append(None)

    async def read_async(
        self,
        buffer: Buffer,
        offset: int = 0,
        length: int | None = None,
        *,
        timeout: float | None = None,
    ) -> int:
        """`read` for a coroutine."""
        target = writable_span(buffer, offset, length)
        deadline = Deadline(timeout)
        size = len(target)
        if not size:
            return 0
        try:
            del self._reading[0]
        except IndexError:
            raise _busy("reading") from None
        try:
            stream = self._inbound
            return await wait_async(
                partial(stream.try_read, target, size), stream.readers, deadline, "read"
            )
        finally:
            self._reading.append(None)

    def write_all(self, data: Buffer, *, timeout: float | None = None) -> None:
        """Hand over all of `data`. If an error cuts it short, its `written` says how much went."""
        view = as_bytes_view(data)
        deadline = Deadline(timeout)
        written = 0
        while written < len(view):
            try:
                written += self.write(view[written:], timeout=deadline.remaining())
            except (Disconnected, Timeout) as cut_short:
                cut_short.written = written
                raise

    async def write_all_async(self, data: Buffer, *, timeout: float | None = None) -> None:
        """`write_all` for a coroutine."""
        view = as_bytes_view(data)
        deadline = Deadline(timeout)
        written = 0
        while written < len(view):
            try:
                written += await self.write_async(view[written:], timeout=deadline.remaining())
            except (Disconnected, Timeout) as cut_short:
                cut_short.written = written
                raise

    def read_exactly(self, count: int, *, timeout: float | None = None) -> bytes:
        """The next `count` bytes. If an error cuts it short, its `partial` holds what came."""
        target = bytearray(check_at_least(count, 0, "count"))
        deadline = Deadline(timeout)
        read = 0
        while read < count:
            try:
                read += self.read(target, read, timeout=deadline.remaining())
            except (Disconnected, Timeout) as cut_short:
                cut_short.partial = bytes(target[:read])
                raise
        return bytes(target)

    async def read_exactly_async(self, count: int, *, timeout: float | None = None) -> bytes:
        """`read_exactly` for a coroutine."""
        target = bytearray(check_at_least(count, 0, "count"))
        deadline = Deadline(timeout)
        read = 0
        while read < count:
            try:
                read += await self.read_async(target, read, timeout=deadline.remaining())
            except (Disconnected, Timeout) as cut_short:
                cut_short.partial = bytes(target[:read])
                raise
        return bytes(target)

    def disconnect(self) -> None:
        """Leave at once, from any thread, any number of times.

        Calls that wait at this end raise Disconnected. The other end can still read all that was
        written here, and is disconnected after that.
        """
        self._outbound.leave(as_writer=True)
        self._inbound.leave(as_writer=False)

    @property
    def disconnected(self) -> bool:
        """True once this end has left, or the other end has and all its bytes were read."""
        return self._outbound.writer_gone or self._inbound.at_end()

    def __del__(self, warn: Callable[..., Any] = warnings.warn) -> None:
        if self._outbound.closed:  # either end has left, and nobody waits for this one
            return
        try:
            warn(f"dropped without disconnect: {self!r}", ResourceWarning, source=self)
        finally:
            self.disconnect()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.disconnect()

    def __repr__(self) -> str:
        state = "disconnected" if self.disconnected else "connected"
        return f"<Channel {state}, {len(self._inbound)} bytes to read>"


def join(first_inbound_bytes: int, second_inbound_bytes: int) -> tuple[Channel, Channel]:
    """Two joined ends, each with its own size of inbound buffer."""
    to_first, to_second = Stream(first_inbound_bytes), Stream(second_inbound_bytes)
    return Channel(to_first, to_second), Channel(to_second, to_first)


def inbound_of(channel: Channel) -> Stream:
    """The stream that this end reads, for a reader that looks at bytes where they lie."""
    return channel._inbound


def outbound_of(channel: Channel) -> Stream:
    """The stream that this end writes, for a writer of many parts."""
    return channel._outbound


def _busy(doing: str) -> BusyResource:
    return BusyResource(f"another thread is {doing} at this end of the channel; one at a time")
