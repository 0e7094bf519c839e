"""The connection of a process to a node of its cluster, by which it registers and finds names.

It comes back by itself, to the same node or another, when it is lost; what was asked and not
answered is then told as lost, and whoever asked may ask again. All of it runs on the loop's thread.
"""

from __future__ import annotations

import logging
import os
import socket
from collections import deque
from collections.abc import Callable
from functools import partial

from hocket import frames
from hocket.adapters.loop import READ, WRITE, Loop
from hocket.adapters.tls import reason_of
from hocket.adapters.transport import Transport, write
from hocket.addresses import DEFAULT_PORT, Address, parse_port, split_address
from hocket.deadline import in_seconds
from hocket.errors import (
    AnotherCluster,
    HocketError,
    NoConnection,
    NotAllowed,
    ProtocolError,
    ReplyLost,
    from_code,
)
from hocket.frames import Frame
from hocket.remote.dialling import Dialling, Tls
from hocket.remote.reach import Reach
from hocket.timers import Timer
from hocket.wire.connection import Connection

log = logging.getLogger("hocket")

Answered = Callable[[Frame | HocketError], None]
PING_US = 2_000_000
SILENCE_US = 10_000_000  # after which a node is given up, although nothing broke
# So long a node may take to welcome us: one that stands still takes connections, too. Each that
# misses it gives the next one twice as long, as the machine may be busy.
WELCOME_SECONDS, WELCOME_SECONDS_MAX = 2.0, 10.0
PAUSE_US, PAUSE_US_MAX = 50_000, 1_000_000  # between two attempts to reach a node


class Conversation:
    """Frames to and from one node, over one transport, from the Hello on."""

    def __init__(
        self,
        loop: Loop,
        transport: Transport,
        reach: Reach,
        *,
        opened: Callable[[frames.Welcome], None],
        heard: Callable[[Frame], None],
        lost: Callable[[HocketError], None],
    ) -> None:
        self._loop = loop
        self.transport = transport
        self._descriptor = transport.fileno()
        self._wire = Connection("client")
        self._unsent: deque[memoryview] = deque()
        self._opened, self._heard, self._lost = opened, heard, lost
        self._events = 0
        self._closed = False
        self._silent = Timer(_nothing)
        self.answers_within(WELCOME_SECONDS_MAX)
        client = reach.name or "hocket.names"
        version = frames.PROTOCOL_VERSION
        self.send(frames.Hello(1, version, version, client, token=reach.token))

    def send(self, frame: Frame) -> None:
        if self._closed:
            return
        self._unsent.extend(map(memoryview, self._wire.send(frame)))
        self._write()

    def answers_within(self, seconds: float) -> None:
        """Give the node up if it says nothing for so long."""
        self._silent.cancel()
        error = NoConnection(f"the node did not answer within {in_seconds(seconds)}")
        self._silent = self._loop.after(int(seconds * 1e6), partial(self._fail, error))

    def hand_over(self) -> tuple[Transport, bytes]:
        """The last frame of this conversation was heard: bytes follow, for somebody else. Some of
        them may have come already."""
        self._stop()
        return self.transport, bytes(self._wire.unread)

    def close(self) -> None:
        if not self._closed:
            self._stop()
            self.transport.close()

    def forked(self) -> None:
        self._closed = True
        self.transport.forked()

    def _stop(self) -> None:
        self._closed = True
        self._silent.cancel()
        if self._events:
            self._loop.unregister(self._descriptor)
            self._events = 0

    def _fail(self, error: HocketError) -> None:
        if not self._closed:
            self.close()
            self._lost(error)

    def _write(self) -> None:
        try:
            write(self.transport, self._unsent)
        except OSError as error:
            self._loop.post(partial(self._fail, NoConnection(reason_of(error))))
            return
        wanted = READ | WRITE if self._unsent else READ
        if wanted != self._events:
            if self._events:
                self._loop.modify(self._descriptor, wanted, self._ready)
            else:
                self._loop.register(self._descriptor, wanted, self._ready)
            self._events = wanted

    def _ready(self, events: int) -> None:
        if events & WRITE:
            self._write()
        if events & READ:
            self._read()

    def _read(self) -> None:
        try:
            while not self._closed:
                buffer = self._wire.get_buffer()
                count = self.transport.recv_into(buffer)
                if not count:
                    self._fail(NoConnection("the node has closed the connection"))
                    return
                for frame, _payload in self._wire.buffer_updated(count):
                    self._take(frame)
                    if self._closed:
                        return
                if self._wire.error is not None:
                    raise self._wire.error
        except BlockingIOError:
            return
        except OSError as error:
            self._fail(NoConnection(reason_of(error)))
        except ProtocolError as error:
            self._fail(error)

    def _take(self, frame: Frame) -> None:
        if isinstance(frame, frames.Welcome):
            self._silent.cancel()
            self._opened(frame)
        elif isinstance(frame, frames.Ping):
            self.send(frames.Done(frame.request))
        elif isinstance(frame, frames.Goodbye):
            self._fail(NoConnection(f"the node is going: {frame.reason}"))
        elif isinstance(frame, frames.Failure) and frame.request in (0, 1):
            self._fail(from_code(frame.code, frame.message))
        else:
            self._heard(frame)


class NodeLink:
    """Asks nodes, one connection after another. `opened` is told of every new one."""

    def __init__(
        self,
        loop: Loop,
        reach: Reach,
        *,
        opened: Callable[[], None],
        wanted: Callable[[frames.PipeWanted], None],
        ended: Callable[[HocketError], None],
    ) -> None:
        """`wanted` is told what nodes ask of us, `ended` that no node will ever have us."""
        self._loop = loop
        self._reach = reach
        self._opened, self._wanted, self._ended = opened, wanted, ended
        self._known: list[Address] = list(reach.addresses)
        self._turn = 0
        self._pause_us = PAUSE_US
        self._welcome_seconds = WELCOME_SECONDS
        self._dialling: Dialling | None = None
        self._talk: Conversation | None = None
        self._asked: dict[int, Answered] = {}
        self._last = 1
        self._heard_us = 0
        self._pinged = False  # a Ping waits for its answer
        self._closed = False
        self.cluster = ""
        self.address: Address | None = None  # of the node that we are connected to
        self.welcome = False  # connected, and known there

    def start(self) -> None:
        if self._closed:
            return
        self.address = address = self._known[self._turn % len(self._known)]
        self._turn += 1
        tls = self._reach.context and Tls(self._reach.context, address.host)
        self._dialling = Dialling(
            self._loop, address, tls or None, self._reach.timeout, self._dialled
        )
        self._dialling.start()

    def close(self) -> None:
        self._closed = True
        self.welcome = False
        if self._dialling is not None:
            self._dialling.cancel()
        if self._talk is not None:
            self._talk.close()
        self._forget_asked(NoConnection("the client was closed"))

    def forked(self) -> None:
        self._closed = True
        if self._talk is not None:
            self._talk.forked()

    def local_host(self) -> str:
        """The address of this machine from which it reaches the node."""
        assert self._talk is not None
        with socket.socket(fileno=os.dup(self._talk.transport.fileno())) as sock:
            return str(sock.getsockname()[0])

    def ask(self, frame: Frame, answered: Answered) -> None:
        """Send a request; `answered` may be called before this returns."""
        if self._talk is None or not self.welcome:
            answered(NoConnection("there is no connection to a node at the moment"))
            return
        self._last += 1
        frame.request = self._last
        self._asked[self._last] = answered
        try:
            self._talk.send(frame)
        except HocketError as error:
            del self._asked[self._last]
            answered(error)

    def _dialled(self, outcome: Transport | OSError) -> None:
        self._dialling = None
        if isinstance(outcome, OSError):
            self._again(NoConnection(f"{self.address}: {reason_of(outcome)}"))
        else:
            self._talk = Conversation(
                self._loop, outcome, self._reach,
                opened=self._welcomed, heard=self._take, lost=self._lost,
            )  # fmt: skip
            self._talk.answers_within(self._welcome_seconds)
            self._welcome_seconds = min(2 * self._welcome_seconds, WELCOME_SECONDS_MAX)

    def _welcomed(self, welcome: frames.Welcome) -> None:
        if self.cluster and welcome.cluster != self.cluster:
            error = AnotherCluster(
                f"{self.address} is in cluster {welcome.cluster}, and this client in {self.cluster}"
            )
            assert self._talk is not None
            self._talk.close()
            self._lost(error)
            return
        self.cluster = welcome.cluster
        self._pause_us, self._welcome_seconds = PAUSE_US, WELCOME_SECONDS
        self.welcome = True
        for each in welcome.nodes:
            if each.address and (address := parse_address(each.address)) not in self._known:
                self._known.append(address)
        self._pinged = False
        talk = self._talk
        assert talk is not None
        self._loop.after(PING_US, partial(self._ping, talk))
        self._opened()

    def _ping(self, talk: Conversation) -> None:
        """Find out that a node is gone although nothing broke."""
        if talk is not self._talk or not self.welcome:
            return
        if self._pinged:
            self._heard_us += PING_US
            if self._heard_us >= SILENCE_US:
                talk.close()
                self._lost(NoConnection(f"{self.address} is silent"))
                return
        else:
            self._pinged, self._heard_us = True, 0
            self.ask(frames.Ping(0), self._ponged)
        self._loop.after(PING_US, partial(self._ping, talk))

    def _ponged(self, _answer: Frame | HocketError) -> None:
        self._pinged = False

    def _take(self, frame: Frame) -> None:
        if isinstance(frame, frames.PipeWanted):
            self._wanted(frame)
            return
        answered = self._asked.pop(frame.request, None)
        if answered is not None:
            if isinstance(frame, frames.Failure):
                error = from_code(frame.code, frame.message)
                error.may_have_happened = frame.may_have_happened
                answered(error)
            else:
                answered(frame)

    def _lost(self, error: HocketError) -> None:
        self._talk = None
        self.welcome = False
        self._forget_asked(ReplyLost(f"the connection to the node was lost: {error}"))
        self._again(error)

    def _forget_asked(self, error: HocketError) -> None:
        asked, self._asked = self._asked, {}
        for answered in asked.values():
            answered(error)

    def _again(self, error: HocketError) -> None:
        if self._closed:
            return
        if isinstance(error, NotAllowed | AnotherCluster):
            self._closed = True
            self._ended(error)
            return
        log.info("names: %s; trying again", error)
        self._loop.after(self._pause_us, self.start)
        self._pause_us = min(2 * self._pause_us, PAUSE_US_MAX)


def _nothing() -> None:
    pass


def parse_address(text: str) -> Address:
    host, port = split_address(text)
    return Address(host, DEFAULT_PORT if port is None else parse_port(port, least=0))
