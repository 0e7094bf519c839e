"""How a process proves to another one that the cluster lets it call a broker there.

The owner of a name makes a random key and gives it to the cluster when it registers the name. A
node that allows somebody to call the name makes a *ticket*: it says who that is and until when. The
ticket's *secret* is its HMAC by the key; the node tells the caller alone. The owner makes the same
secret of the ticket that it is shown. Caller and owner then prove to each other that they know it,
over numbers which both have drawn for this one call. So nothing that travels between them is of any
use to somebody who listens, or who has taken the owner's place.
"""

from __future__ import annotations

import hmac
import json
from typing import NamedTuple

from hocket.errors import NotAllowed

KEY_BYTES = 32
LEASE_BYTES = 16
NONCE_BYTES = 16
LIFE_US = 60_000_000
SKEW_US = 60_000_000  # how far the clocks of a node and of an owner may differ


class Issued(NamedTuple):
    ticket: bytes
    secret: bytes


def issue(key: bytes, name: str, user: str, now_us: int) -> Issued:
    ticket = json.dumps({"name": name, "user": user, "until": now_us + LIFE_US}).encode()
    return Issued(ticket, _mac(key, ticket))


def read(key: bytes, name: str, ticket: bytes, now_us: int) -> tuple[str, bytes]:
    """The user that a ticket names, and its secret. Raises NotAllowed.

    Only who knows the secret has the ticket from a node: see `proof`.
    """
    try:
        fields = json.loads(ticket)
        found, user, until = fields["name"], fields["user"], fields["until"]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise NotAllowed("the ticket cannot be read") from None
    if found != name:
        raise NotAllowed(f"the ticket is not for {name!r}")
    if not isinstance(user, str) or not isinstance(until, int):
        raise NotAllowed("the ticket cannot be read")
    if now_us > until + SKEW_US:
        raise NotAllowed(
            "the ticket has run out; if it is a new one, look at the clocks of the two machines"
        )
    return user, _mac(key, ticket)


def proof(secret: bytes, side: str, owners_nonce: bytes, callers_nonce: bytes) -> bytes:
    """`side` is "caller" or "owner"."""
    return _mac(secret, side.encode() + b"\0" + owners_nonce + callers_nonce)


def same(one: bytes, other: bytes) -> bool:
    """Whether they are equal, in a time that does not tell where they differ."""
    return hmac.compare_digest(one, other)


def _mac(key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, "sha256")
