"""What a client says if something answers that is no Hocket broker."""

from __future__ import annotations

from hocket.addresses import Address
from hocket.errors import HocketError, NoConnection, NotHocket
from hocket.wire.connection import Connection
from hocket.wire.strangers import Stranger, language


def not_hocket(address: Address, error: HocketError) -> HocketError:
    """The error of a link, with who is there instead of a broker, if it is about that."""
    if not isinstance(error, Stranger):
        return error
    spoken = language(error.first)
    if spoken == "TLS":
        return NotHocket(f"{address} speaks TLS: use hockets:// instead of hocket://")
    if spoken:
        return NotHocket(f"{address} speaks {spoken}, not Hocket")
    return NotHocket(f"{address} does not speak Hocket; it answered {error.first!r}")


def hung_up(address: Address, wire: Connection) -> NoConnection:
    """The other end has closed the connection."""
    if wire.phase in ("silent", "greeted"):
        return NoConnection(
            f"{address}: the connection was closed without an answer. What is there may be full, "
            "or going down, or no Hocket broker."
        )
    return NoConnection(f"{address}: the broker has closed the connection")
