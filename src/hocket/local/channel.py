"""A full-duplex byte stream between two threads: two `Channel` ends over two circular buffers.

Rule 1: bytes flow without a lock; only an ending takes `_endings`, because both sides must agree on
        what came first: the last write, the last read, or the disconnect.
Rule 2: a byte whose write returned is read by the other side, or the other side had left.
Rule 3: a byte whose write raised is never read.

A stream ends in one of two ways. Its writer leaves: then the reader still reads what is there, and
only then is disconnected. Or its reader leaves: then a write raises. A write or a read during which
the stream was cut settles, inside `_endings`, how many of its bytes count.
"""

from __future__ import annotations

from functools import partial
from threading import RLock
from typing import TYPE_CHECKING

from hocket.deadline import NEVER, Deadline
from hocket.errors import BusyResource, Disconnected, Timeout
from hocket.local.aio import wait_async
from hocket.local.checks import as_bytes_view, check_at_least, readable_span, writable_span
from hocket.local.circular_buffer import CircularBuffer
from hocket.local.waiting import Waiters, wait

if TYPE_CHECKING:
    from typing import Self

    from typing_extensions import Buffer

BUFFER_BYTES = 1 << 20  # each way; 64 KiB writes gain little from more (see benchmarks/results)

FROM_THE_START = 0  # compared by identity: `False == 0`, and False is not an offset

# Reentrant: a finalizer or a signal handler may end another one while we hold it.
_endings = RLock()  # one for all streams: held for a few steps, once or twice in a stream's life


class Stream(CircularBuffer):
    """One direction of a channel: the ring, the waiters at both ends, and how it ended."""

    __slots__ = ("cut", "drained", "reader_gone", "readers", "writer_gone", "writers")

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self.readers = Waiters()
        self.writers = Waiters()
        self.cut = False  # writer_gone or reader_gone; the fast path looks at this alone
        self.writer_gone = False
        self.reader_gone = False
        self.drained = False  # the reader was told that there is no more

    def try_write(self, data: bytes | memoryview, size: int) -> int | None:
        """How many bytes were taken, None when there is no room."""
        if self.cut:
            raise self._write_refused()
        count = self.put(data, size)
        if count and (self.cut or self.readers):
            return self.after_put(count)
        return count or None

    def try_read(self, target: memoryview, size: int) -> int | None:
        """How many bytes were given, None when there are none yet."""
        if self.cut:
            return self._take_rest(target, size)
        count = self.take(target, size)
        if count and (self.cut or self.writers):
            return self.after_take(count)
        return count or None

    def after_put(self, count: int) -> int:
        """After a `put` if a reader waits or the stream was cut; returns how many bytes count."""
        if self.cut:
            with _endings:
                if self.reader_gone or self.drained:
                    count -= self.retract(count)
            if not count:
                raise self._write_refused()
        self.readers.wake_one()
        return count

    def after_take(self, count: int) -> int:
        """After a `take` if a writer waits or the stream was cut; returns how many bytes count."""
        if self.cut:
            with _endings:
                count -= self.untake(count)  # what the writer took back while we copied it
            if not count:
                raise self._read_refused()
        self.writers.wake_one()
        return count

    def leave(self, *, as_writer: bool) -> None:
        with _endings:
            if as_writer:
                self.writer_gone = True
            else:
                self.reader_gone = True
            self.cut = True
        self.readers.wake_all()
        self.writers.wake_all()

    def at_end(self) -> bool:
        """Whether the reader has nothing more to expect; once True, it stays True."""
        if not self.writer_gone:
            return False
        with _endings:
            self.drained = self.drained or self.empty()
            return self.drained

    def _take_rest(self, target: memoryview, size: int) -> int:
        with _endings:
            if not self.reader_gone:
                count = self.take(target, size)
                if count:
                    return count
                self.drained = True
        raise self._read_refused()

    def _write_refused(self) -> Disconnected:
        return Disconnected(
            "this end of the channel was disconnected"
            if self.writer_gone
            else "the other end has disconnected; what is written now would never be read"
        )

    def _read_refused(self) -> Disconnected:
        return Disconnected(
            "this end of the channel was disconnected"
            if self.reader_gone
            else "the other end has disconnected, and every byte it sent has been read"
        )


class Channel:
    """One end of a lossless FIFO byte stream in both directions.

    One thread (or coroutine) may read and one may write at each end at the same time; a second
    reader or writer gets `BusyResource` and harms nobody. `read` and `write` move at least one
    byte, unless asked for none, and wait until they can. Bytes that were written and not yet read
    are lost when their reader disconnects.
    """

    __slots__ = ("__weakref__", "_inbound", "_outbound", "_reading", "_writing")

    def __init__(self, inbound: Stream, outbound: Stream) -> None:
        self._inbound = inbound
        self._outbound = outbound
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
            if not stream.cut:  # `try_write`, but for one call less: small writes feel it
                count = stream.put(data, size)
                if count:
                    return stream.after_put(count) if stream.cut or stream.readers else count
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
            if not stream.cut:  # `try_read`, but for one call less: small reads feel it
                count = stream.take(target, size)
                if count:
                    return stream.after_take(count) if stream.cut or stream.writers else count
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


def _busy(doing: str) -> BusyResource:
    return BusyResource(f"another thread is {doing} at this end of the channel; one at a time")
