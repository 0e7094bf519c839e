"""How connections come in: from processes that dial this one, and through a node."""

from __future__ import annotations

import logging
from collections.abc import Callable

from hocket import frames
from hocket.adapters.loop import READ
from hocket.adapters.tls import TlsTransport
from hocket.adapters.transport import Transport
from hocket.addresses import Address
from hocket.errors import HocketError
from hocket.frames import Frame
from hocket.remote.connection import NamesLoop
from hocket.remote.dialling import Dialling, Tls
from hocket.remote.node_link import Conversation
from hocket.remote.reach import Reach

log = logging.getLogger("hocket")


class Handshake:
    """The TLS handshake of a process that has dialled us."""

    def __init__(
        self, loop: NamesLoop, transport: TlsTransport, done: Callable[[Transport], None]
    ) -> None:
        self._loop = loop
        self._transport = transport
        self._descriptor = transport.fileno()
        self._done = done
        self._timer = loop.after(10_000_000, self._give_up)

    def start(self) -> None:
        self._loop.register(self._descriptor, READ, self._ready)

    def _ready(self, _events: int) -> None:
        try:
            self._transport.handshake()
        except BlockingIOError:
            return
        except OSError as error:
            log.info("names: a TLS handshake failed: %s", error)
            self._give_up()
            return
        self._timer.cancel()
        self._loop.unregister(self._descriptor)
        self._done(self._transport)

    def _give_up(self) -> None:
        self._timer.cancel()
        self._loop.unregister(self._descriptor)
        self._transport.close()


class TakingPipe:
    """Goes to the node to be the other end of a pipe."""

    def __init__(
        self,
        loop: NamesLoop,
        reach: Reach,
        address: Address,
        pipe: bytes,
        done: Callable[[Transport, bytes], None],
    ) -> None:
        self._loop = loop
        self._reach = reach
        self._pipe = pipe
        self._done = done
        self._talk: Conversation | None = None
        tls = reach.context and Tls(reach.context, address.host)
        self._dialling = Dialling(loop, address, tls or None, reach.timeout, self._dialled)

    def start(self) -> None:
        self._dialling.start()

    def _dialled(self, outcome: Transport | OSError) -> None:
        if isinstance(outcome, OSError):
            log.info("names: the node cannot be reached for a pipe: %s", outcome)
            return
        self._talk = Conversation(
            self._loop, outcome, self._reach,
            opened=self._welcomed, heard=self._heard, lost=self._lost,
        )  # fmt: skip

    def _welcomed(self, _welcome: frames.Welcome) -> None:
        assert self._talk is not None
        self._talk.send(frames.TakePipe(2, self._pipe))
        self._talk.answers_within(self._reach.timeout)

    def _heard(self, frame: Frame) -> None:
        assert self._talk is not None
        if isinstance(frame, frames.PipeIs):
            self._done(*self._talk.hand_over())
        else:
            self._talk.close()

    def _lost(self, error: HocketError) -> None:
        log.info("names: a pipe did not come about: %s", error)
