"""The bytes of one connection between two processes: who writes them, and who reads them.

Rule 1: any thread may write, one at a time, and none ever waits for the network or for another
        writer: who finds somebody writing leaves its bytes to him, who looks again when he is done.
Rule 2: one thread reads at a time: the loop's, or one that waits for what is to come (a *leader*).
        The loop also writes what a full socket did not take, and ends the connection.
Rule 3: nothing here knows what the frames mean. `Carrier` says what is to be sent, and is fed.

A message is written by the thread that sends it, so that it needs no other thread to leave. But a
thread that sends many in a row is quicker if they leave together. So a connection that was written
to a moment ago is *corked*: messages gather, until there are enough of them or the loop's thread
comes, which is told of the first.

A thread that waits for a message reads itself. Two threads of one Python process cannot run at the
same time, and to hand a message from one to the other costs more than the message's whole way over
the loopback. The connection stays with such threads until none has read for `LEAD_US`.

Nothing that the other side has said is lost by how a connection ends. A side that has said all
*lingers*: it sends the end of its bytes and throws away what still comes until the other side has
ended too, because a socket that is closed with unread bytes takes back what it has sent. And a side
that cannot write any more first hears what has come.
"""

from __future__ import annotations

import logging
import select
from collections.abc import Callable
from contextlib import suppress
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, Protocol

from hocket.adapters.loop import READ, WRITE, Loop
from hocket.adapters.tls import reason_of
from hocket.adapters.transport import Transport
from hocket.adapters.waker import new_waker
from hocket.errors import ProtocolError
from hocket.timers import Timer

if TYPE_CHECKING:
    from collections.abc import Sequence

    Part = bytes | bytearray | memoryview

log = logging.getLogger("hocket")

# A connection that was written to so lately is corked: two sends of an exchange are further apart,
# those of a burst closer.
CORK_SECONDS = 20e-6
CORKED_MESSAGES_MAX = 256  # so many leave together, at the latest
LEAD_US = 10_000
LINGER_US = 2_000_000  # how long a side that has said all waits for the other to end
LAST_WORDS_US = 10_000_000  # how long what is said last may take to leave
HUNG_UP = "the other process has hung up"
READ_BYTES = 256 << 10
COPIED_BELOW_BYTES = 32 << 10
AHEAD_BYTES = 4 << 10  # of what follows a large message are read with it
READS_PER_TURN = 16
READS_PER_LEAD = 4  # if each fills what it reads into: to begin to wait again costs more
READS_AT_THE_END_MAX = 1024  # turns of reading what came before a connection broke
_NOWHERE = memoryview(bytearray(16 << 10))  # bytes that are thrown away are received here
GATHERED_BELOW_BYTES = 4 << 10  # to copy so few bytes costs less than one more part of a write


class ThreadWaker:
    """Wakes one thread that waits for a socket; it is a waiter of `local.waiting`, too."""

    def __init__(self) -> None:
        self._waker = new_waker()
        self.buffer = memoryview(bytearray(READ_BYTES))
        self._asleep = False
        self.woken = False  # since it was last set to False

    def wake(self) -> bool:
        self.woken = True  # rule 2 of `local.waiting`: change first, and then look
        if self._asleep:
            self._waker.wake()
        return True

    def new_poll(self, descriptor: int) -> select.poll:
        poll = select.poll()
        poll.register(self._waker.descriptor, select.POLLIN)
        poll.register(descriptor, select.POLLIN)
        return poll

    def sleep(self, poll: select.poll, descriptor: int, seconds: float | None) -> bool:
        """Sleep until the descriptor is readable, or `wake` is called; whether it is readable."""
        self._asleep = True
        late = False
        try:
            if self.woken:
                return False
            ready = poll.poll(None if seconds is None else seconds * 1000)
            found = [each for each, _ in ready]
            late = self._waker.descriptor in found  # it may have been meant for an earlier sleep
            return descriptor in found
        finally:
            self._asleep = False
            if self.woken or late:
                with suppress(BlockingIOError):
                    self._waker.clear()

    def close(self) -> None:
        self._waker.close()


class NamesLoop(Loop):
    """The loop of a manager: it also has the wakers of threads that read themselves."""

    def __init__(self) -> None:
        super().__init__()
        self.buffer = memoryview(bytearray(READ_BYTES))  # what is received is copied out of it
        self._wakers: list[ThreadWaker] = []
        self._is_closed = False

    def borrow_waker(self) -> ThreadWaker:
        try:
            return self._wakers.pop()
        except IndexError:
            return ThreadWaker()

    def return_waker(self, waker: ThreadWaker) -> None:
        self._wakers.append(waker)
        if self._is_closed:
            self._close_wakers()

    def close(self) -> None:
        super().close()
        self._is_closed = True
        self._close_wakers()

    def _close_wakers(self) -> None:
        while self._wakers:
            self._wakers.pop().close()


class Carrier(Protocol):
    """What a connection carries."""

    def waits(self) -> bool:
        """Whether there is something to gather."""

    def gather(self) -> list[Part]:
        """What is to be sent next, in order; empty if there is nothing. One thread at a time."""

    def feed(self, data: bytes | memoryview) -> None:
        """Bytes came; a view is valid during the call only. Raises ProtocolError for nonsense."""

    def target(self) -> memoryview | None:
        """Where the next bytes belong, if they are the rest of something large."""

    def filled(self, count: int) -> None:
        """So many bytes of `target` came."""

    def owed(self) -> None:
        """Nothing was sent for a moment: send what waits for something to travel with."""

    def wake_readers(self) -> None:
        """Have all threads look again that wait for something to come."""

    def lost(self, why: str) -> None:
        """Nothing more will come, and nothing leaves any more. Told once, by the loop."""


class Connection:
    __slots__ = (
        "_closed",
        "_descriptor",
        "_draining",
        "_events",
        "_failed",
        "_filled",
        "_led",
        "_lingering",
        "_lingers",
        "_loop_reads",
        "_no_more_leaders",
        "_poll",
        "_reading",
        "_rest",
        "_transport",
        "_watching",
        "_writing",
        "bytes_received",
        "bytes_sent",
        "carrier",
        "corked",
        "flushed_at",
        "looks_soon",
        "loop",
        "on_closed",
    )  # fmt: skip

    def __init__(self, loop: NamesLoop, transport: Transport, carrier: Carrier) -> None:
        self.loop = loop
        self.carrier = carrier
        self.corked = False
        self.flushed_at = 0.0
        self.bytes_sent = 0
        self.bytes_received = 0
        self.on_closed: Callable[[Connection], None] = lambda _connection: None
        self._transport = transport
        self._descriptor = transport.fileno()
        self._writing = Lock()
        self._rest: list[memoryview] = []  # what a full socket did not take
        self._reading = Lock()
        self._watching = Lock()  # which events the loop is told of
        self._filled = False  # the last read filled its buffer: there is more
        self._poll: tuple[ThreadWaker, select.poll] | None = None  # of the last leader
        self._loop_reads = False  # the loop's thread is reading now
        self._led = False  # the loop is not told of bytes that come: leaders read
        self._no_more_leaders = False
        self.looks_soon = False  # the loop will look whether there are leaders still
        self._events = 0
        self._closed = False
        self._draining = False  # to be closed when all is sent
        self._lingers = False  # all is sent, and the other side has not ended yet
        self._lingering: Timer | None = None  # until it has waited for long enough, for either
        self._failed = ""

    # --- for any thread --------------------------------------------------------------------------

    def push(self) -> None:
        """There is something to send, and the connection was not corked when it came."""
        if monotonic() - self.flushed_at < CORK_SECONDS:
            self.corked = True
            self.loop.post(self.uncork)
        else:
            self.flush()

    def nobody_writes(self) -> Lock:
        """While it is held nothing is gathered: what is on its way is either written or not."""
        return self._writing

    def flush(self) -> None:
        """Write what there is, without waiting."""
        waits = self.carrier.waits
        while not self._rest and waits():
            if not self._writing.acquire(blocking=False):
                return
            try:
                more = not (self._closed or self._lingers or self._failed) and self._write()
            finally:
                self._writing.release()
            if not more:
                return

    def uncork(self) -> None:
        self.corked = False
        self.flush()

    def _write(self) -> bool:
        """Write once; whether to look again. The lock is held."""
        if self._rest:
            return False  # the loop writes it, and then the others
        parts = self.carrier.gather()
        if not parts:
            return True  # somebody else has written it
        try:
            if len(parts) == 1:
                (part,) = parts
                sent = self._transport.send_one(part)
                self.bytes_sent += sent
                if sent < len(part):
                    self._rest = [memoryview(part)[sent:]]
            else:
                views = [memoryview(part) for part in parts]
                sent = self._transport.send(views)
                self.bytes_sent += sent
                self._rest = _rest(views, sent)
        except OSError as error:
            self._failed = reason_of(error) or "the connection broke"
            self.loop.post(self._fail)
            return False
        self.flushed_at = monotonic()
        if self._rest:
            self.loop.post(self._watch)
            return False
        return True

    # --- leaders ---------------------------------------------------------------------------------

    def lead(self) -> bool:
        """Have this thread read from now on, until `leave`; False if another one does."""
        if not self._reading.acquire(blocking=False):
            return False
        if self._no_more_leaders:
            self._reading.release()
            return False
        if not self._led:
            self._led = True
            self._watch()
        return True

    def leave(self) -> None:
        self._reading.release()
        if not self.looks_soon:
            self.looks_soon = True
            self.loop.post(self._look_soon)

    def read_as_leader(self, waker: ThreadWaker, seconds: float | None) -> None:
        """Wait until something comes, or somebody calls `waker.wake`, and read it."""
        # After a read that filled its buffer there is more, and no need to ask.
        if not self._filled and not self._transport.unread:
            poll = self._poll
            if poll is None or poll[0] is not waker:
                poll = self._poll = (waker, waker.new_poll(self._descriptor))
            if not waker.sleep(poll[1], self._descriptor, seconds):
                return
        why = self._read_some(READS_PER_LEAD, waker.buffer)
        if why:
            self._no_more_leaders = True
            self.loop.post(lambda: self.fail(why))

    @property
    def may_lead(self) -> bool:
        return not self._no_more_leaders

    def _look_soon(self) -> None:
        self.loop.after(LEAD_US, self._look)

    def _look(self) -> None:
        self.looks_soon = False
        if self._closed:
            return
        self.carrier.owed()
        if self._reading.acquire(blocking=False):  # else somebody waits there
            self._led = False
            self._reading.release()
            self._watch()
            self._read_on()  # what TLS holds already is announced by nobody

    def read_alone(self) -> None:
        """From now on the loop alone reads. On the loop's thread."""
        if not self._no_more_leaders:
            self._no_more_leaders = True
            self.carrier.wake_readers()
        if not self._loop_reads:
            with self._reading:
                self._led = False
            if self._transport.unread:
                self.loop.post(self._read_on)
        self._watch()

    # --- the loop --------------------------------------------------------------------------------

    def start(self, begun: bytes = b"") -> None:
        """Begin to read and to write; `begun` has come already."""
        self._watch()
        self.flush()
        try:
            if begun:
                self.carrier.feed(begun)
        except ProtocolError as error:
            self.fail(f"the other process speaks nonsense: {error}")
        if self._transport.unread:
            self.loop.post(self._read_on)

    @property
    def closed(self) -> bool:
        return self._closed

    def close_when_sent(self) -> None:
        """The last frame was given to be sent. On the loop's thread."""
        if not (self._draining or self._closed):
            self._lingering = self.loop.after(LAST_WORDS_US, self.close)
        self._draining = True
        self.flush()
        self._watch()
        self._close_if_sent()

    def _close_if_sent(self) -> None:
        if not self._draining or self._closed or self._lingers:
            return
        self.read_alone()
        waits = self.carrier.waits
        try:
            with self._writing:  # nobody else writes, so what waits now nobody else would write
                while not (self._rest or self._failed) and waits():
                    self._write()
                if self._rest or self._failed:
                    return  # the loop comes back to it
                self._lingers = True
                self._transport.end_sending()
        except OSError:  # the other side is gone
            self.close()
            return
        if self._lingering is not None:
            self._lingering.cancel()
        self._lingering = self.loop.after(LINGER_US, self.close)
        self._throw_away()

    def _throw_away(self) -> None:
        """What comes after all was said: until the other side has ended, too."""
        try:
            for _ in range(READS_PER_TURN):
                if not self._transport.recv_into(_NOWHERE):
                    self.close()
                    return
        except BlockingIOError:
            return
        except OSError:
            self.close()

    def close(self) -> None:
        if self._closed:
            return
        self.read_alone()
        if self._lingering is not None:
            self._lingering.cancel()
        with self._writing, self._watching:
            self._closed = True
            if self._events:
                self.loop.unregister(self._descriptor)
                self._events = 0
            self._transport.close()
        self.on_closed(self)

    def forked(self) -> None:
        self._closed = True
        self._transport.forked()

    def _fail(self) -> None:
        """Nothing can be written any more: hear what the other side has said before that."""
        if not (self._closed or self._lingers):
            self.read_alone()
            for _ in range(READS_AT_THE_END_MAX):
                before = self.bytes_received
                self._read()
                if self._closed or self._lingers or self.bytes_received == before:
                    break
        self.fail(self._failed)

    def fail(self, why: str) -> None:
        """The connection is of no use any more."""
        if not self._closed:
            self.close()
            self.carrier.lost(why)

    def _ready(self, events: int) -> None:
        if events & WRITE and self._rest:
            self._write_rest()
        if events & READ and not self._closed:
            self._read()

    def _write_rest(self) -> None:
        with self._writing:
            if self._closed:
                return
            try:
                sent = self._transport.send(self._rest)
                self.bytes_sent += sent
                self._rest = _rest(self._rest, sent)
            except OSError as error:
                self._failed = reason_of(error) or "the connection broke"
        if self._failed:
            self._fail()
        elif not self._rest:
            self.flush()
            self._watch()
            self._close_if_sent()

    def _read(self) -> None:
        if self._lingers:
            self._throw_away()
            return
        if not self._reading.acquire(blocking=False):
            return  # a leader does
        self._loop_reads = True
        try:
            why = self._read_some(READS_PER_TURN, self.loop.buffer)
        finally:
            self._loop_reads = False
            self._reading.release()
        if why:
            self.fail(why)

    def _read_some(self, times: int, buffer: memoryview) -> str:
        """Read so often, at most. Returns why there will be no more; empty if there may be."""
        try:
            for _ in range(times):
                carrier = self.carrier
                target = carrier.target()
                if target is not None:
                    # The beginning of what comes next is read with the rest of this: else each
                    # message of a stream of large ones would cost another call, or a copy.
                    room = len(target)
                    count = self._receive_into_both(target, buffer[:AHEAD_BYTES])
                    if not count:
                        return HUNG_UP
                    self.bytes_received += count
                    self._filled = count == room + AHEAD_BYTES
                    if count <= room:
                        carrier.filled(count)
                    else:
                        carrier.filled(room)
                        carrier.feed(bytes(buffer[: count - room]))
                    if not self._filled and self._transport.short_is_all:
                        return ""
                else:
                    count = self._receive_into(buffer)
                    if not count:
                        return HUNG_UP
                    self.bytes_received += count
                    self._filled = count == len(buffer)
                    # Small pieces are cut from bytes in a third of the time; large ones are copied
                    # once, into the message.
                    part = buffer[:count]
                    carrier.feed(bytes(part) if count < COPIED_BELOW_BYTES else part)
                    if not self._filled and self._transport.short_is_all:
                        return ""
                if self._closed or self._lingers:
                    return ""
            if self._transport.unread and self.loop.is_own_thread():  # no readiness announces it
                self.loop.post(self._read_on)
        except BlockingIOError:
            self._filled = False
        except OSError as error:
            return reason_of(error) or "the connection broke"
        except ProtocolError as error:
            log.warning("another process broke the protocol of names: %s", error)
            return f"the other process speaks nonsense: {error}"
        return ""

    def _read_on(self) -> None:
        if not self._closed and self._transport.unread:
            self._read()

    def _receive_into(self, target: memoryview) -> int:
        if self._transport.short_is_all:
            return self._transport.recv_into(target)
        try:
            with self._writing:  # OpenSSL's state is one for both directions
                return self._transport.recv_into(target)
        finally:
            self.flush()  # a writer that found the lock taken has left its bytes to us

    def _receive_into_both(self, target: memoryview, ahead: memoryview) -> int:
        if self._transport.short_is_all:
            return self._transport.recv_into_both(target, ahead)
        return self._receive_into(target)

    def _watch(self) -> None:
        """Tell the loop what to wait for. Any thread may call it."""
        with self._watching:
            if self._closed:
                return
            wanted = (0 if self._led else READ) | (WRITE if self._rest else 0)
            if wanted == self._events:
                return
            if not self._events:
                self.loop.register(self._descriptor, wanted, self._ready)
            elif not wanted:
                self.loop.unregister(self._descriptor)
            else:
                self.loop.modify(self._descriptor, wanted, self._ready)
            self._events = wanted


def _rest(views: Sequence[memoryview], sent: int) -> list[memoryview]:
    """What is left of `views` after the first `sent` bytes."""
    for at, view in enumerate(views):
        if sent < len(view):
            return [view[sent:], *views[at + 1 :]]
        sent -= len(view)
    return []
