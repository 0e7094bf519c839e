"""What nodes say to each other about who leads a partition.

The envelope is that of `core.ring.messages`. All of it is hearsay: the leader itself decides.
"""

from __future__ import annotations

from dataclasses import dataclass

from hocket.core.relay.messages import Place
from hocket.core.ring.contact import Contact


@dataclass(slots=True)
class PublishLeader:
    """Said by a leader, now and then, to those who keep the hint."""

    place: Place
    leader: Contact
    term: int


@dataclass(slots=True)
class WhereIs:
    request: int
    place: Place


@dataclass(slots=True)
class LeaderIs:
    request: int
    place: Place
    leader: Contact | None  # None: nobody has said so lately
    term: int = 0  # who asks several nodes believes the newest


LocatorMessage = PublishLeader | WhereIs | LeaderIs
