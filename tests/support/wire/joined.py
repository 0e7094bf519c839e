"""Two Connections joined with no network between them, and what the tests of both share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from hocket.frames import Frame, Hello, Welcome
from hocket.model import Limits
from hocket.wire.connection import Connection

if TYPE_CHECKING:
    from typing_extensions import Buffer


def sent(connection: Connection, frame: Frame, payload: Sequence[Buffer] = ()) -> bytes:
    """What `send` wants to be written, in one piece."""
    return b"".join(connection.send(frame, payload))


def opened(limits: Limits | None = None) -> tuple[Connection, Connection]:
    """A client and a server after Hello and Welcome."""
    limits = limits or Limits()
    client, server = Connection("client"), Connection("server", limits)
    server.receive(sent(client, Hello(1)))
    client.receive(sent(server, Welcome(1, 1, "node", "software", (), limits)))
    return client, server


def received(connection: Connection, pieces: Iterable[Buffer]) -> list[tuple[Frame, bytes]]:
    """The frames of a stream that arrives in these pieces, their payloads copied."""
    return [
        (frame, bytes(payload)) for piece in pieces for frame, payload in connection.receive(piece)
    ]
