"""Links over TCP for the asyncio client.

The loop moves the bytes. It receives them into the buffer that the decoded frames then point into.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from hocket.addresses import Address
from hocket.client.connection.address import Target, reason_of
from hocket.client.connection.link import LinkOwner
from hocket.client.connection.strangers import hung_up, not_hocket
from hocket.client.connection.tcp import TcpConnector
from hocket.client.connection.tls import tls_failed
from hocket.deadline import in_seconds
from hocket.errors import HocketError, NoConnection
from hocket.frames import Frame
from hocket.wire.connection import Connection

if TYPE_CHECKING:
    from typing_extensions import Buffer

JOINED_BYTES_MAX = 64 << 10  # smaller buffers are copied into one write; larger go as they are


class AioConnector:
    """Opens links with asyncio: see `link.Connector`."""

    watched = True

    def __init__(self, target: Target, context: ssl.SSLContext | None, timeout: float) -> None:
        self.target = str(target)
        self.addresses: tuple[Address | None, ...] = target.addresses
        self._target = target
        self._context = context
        self._timeout = timeout
        self._tasks: set[asyncio.Task[None]] = set()
        self._links: set[AioLink] = set()

    def open(self, address: Address | None, owner: LinkOwner) -> None:
        assert address is not None
        task = asyncio.get_running_loop().create_task(self._open(address, owner))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _open(self, address: Address, owner: LinkOwner) -> None:
        try:
            async with asyncio.timeout(self._timeout):
                _, link = await asyncio.get_running_loop().create_connection(
                    lambda: AioLink(address, owner),
                    address.host,
                    address.port,
                    ssl=self._context,
                )
        except TimeoutError:
            error = NoConnection(f"{address}: no answer within {in_seconds(self._timeout)}")
            owner.lost(None, error)
        except ssl.SSLError as failed:
            owner.lost(None, tls_failed(address, failed))
        except OSError as failed:
            owner.lost(None, NoConnection(f"{address}: {reason_of(failed)}"))
        else:
            self._links.add(link)
            link.ended.add_done_callback(lambda _ended: self._links.discard(link))
            owner.opened(link)

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        for link in self._links:
            link.close()

    def forked(self) -> None:
        for link in list(self._links):
            link.forked()

    def for_threads(self) -> TcpConnector:
        """The same for an engine with threads, which goes on when the loop is no more."""
        return TcpConnector(self._target, self._context, self._timeout)

    async def wait_closed(self) -> None:
        """Wait until the loop has no task and no transport of this connector left."""
        endings = [link.ended for link in self._links]
        await asyncio.gather(*self._tasks, *endings, return_exceptions=True)


class AioLink(asyncio.BufferedProtocol):
    """One connection on the running loop: see `link.Link`."""

    def __init__(self, address: Address, owner: LinkOwner) -> None:
        self._address = address
        self._owner = owner
        self._wire = Connection("client")
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._unsent: list[Buffer] = []
        self._closing = False
        self._error: HocketError | None = None
        self._heard = 0
        self.ended: asyncio.Future[None] = self._loop.create_future()

    # --- see link.Link ---------------------------------------------------------------------------

    def send(self, frame: Frame, payload: Sequence[Buffer] = ()) -> None:
        try:
            buffers = self._wire.send(frame, payload)
        except HocketError:
            if self._wire.error is None:
                raise
            self._fail(self._wire.error)  # the encoder is broken for good
            return
        if not self._unsent:  # all that is sent in one turn of the loop leaves together
            self._loop.call_soon(self.flush)
        self._unsent += buffers

    def flush(self) -> None:
        buffers, self._unsent = self._unsent, []
        if self._transport is None or self._transport.is_closing() or not buffers:
            return
        small: list[Buffer] = []
        for buffer in buffers:
            if len(buffer) < JOINED_BYTES_MAX:  # type: ignore[arg-type]
                small.append(buffer)
            else:
                self._write(small)
                self._write([buffer])
                small = []
        self._write(small)

    def close(self) -> None:
        if not self._closing:
            self.flush()
            self._closing = True
            if self._transport is not None:
                self._transport.close()
                # What the broker does not take at once it will not miss: we are leaving.
                if self._transport.get_write_buffer_size():
                    self._transport.abort()

    def heard(self) -> int:
        return self._heard

    def forked(self) -> None:
        """See `Connector.forked`. asyncio has no call for it: it would tell its selector, too."""
        self._closing = True
        self._unsent.clear()
        sock = self._transport and self._transport.get_extra_info("socket")
        inner = getattr(sock, "_sock", None)
        if inner is not None:
            inner.close()

    def _write(self, buffers: list[Buffer]) -> None:
        if buffers:
            assert self._transport is not None
            self._transport.write(buffers[0] if len(buffers) == 1 else b"".join(buffers))  # type: ignore[arg-type]

    # --- see asyncio.BufferedProtocol ------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def get_buffer(self, _sizehint: int) -> memoryview:
        return self._wire.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self._heard += 1
        try:
            frames = self._wire.buffer_updated(nbytes)
        except HocketError as error:
            self._fail(error)
            return
        if frames and not self._closing:
            self._owner.received(self, frames)
        if self._wire.error is not None:
            self._fail(self._wire.error)

    def eof_received(self) -> None:
        try:
            self._wire.received_end()
        except HocketError as error:
            self._error = self._error or error

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_result(None)
        if not self._closing:
            self._closing = True
            error = self._error or self._why_lost(exc)
            self._owner.lost(self, not_hocket(self._address, error))

    def _why_lost(self, exc: Exception | None) -> HocketError:
        if isinstance(exc, ssl.SSLError):
            return tls_failed(self._address, exc)
        if exc is None:
            return hung_up(self._address, self._wire)
        return NoConnection(f"{self._address}: {exc}")

    def _fail(self, error: HocketError) -> None:
        self._error = self._error or error
        if self._transport is not None:
            self._transport.abort()
