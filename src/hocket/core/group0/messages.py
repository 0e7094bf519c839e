"""What nodes say to each other about group 0, beside Raft; it may be lost, late or double."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class WhoLeads:
    """I hear no leader of group 0: who leads it?"""

    request: int
    cluster: str  # the id of the cluster that the asker belongs to


@dataclass(slots=True)
class RootIs:
    """As far as I know, this node leads group 0."""

    request: int
    cluster: str  # the id of the cluster that the sender belongs to
    node: str  # its store; empty: you belong to another cluster than I
    address: str
    term: int


@dataclass(slots=True)
class Forward:
    """A request of a client, handed on. The sender vouches for who the client is, no more."""

    number: int  # never used twice by this node, not even in another life
    user: str
    trusted: bool  # the client is within the sender's own process
    address: str  # where the client comes from, for the audit log
    token_hash: str = field(
        repr=False
    )  # of the token that the sender has made, if one is asked for
    frame: bytes = field(repr=False)  # the client's frame, as clients send it
    term: int = 0  # in which the receiver leads, as the sender knows it


@dataclass(slots=True)
class Forwarded:
    """What has become of a request that was handed on."""

    number: int
    index: int  # the entry that has carried it out, or by which it was refused
    code: str = ""  # of the error; empty: it was carried out
    text: str = ""  # of the error, for people
    may_have_happened: bool = False
    term: int = 0  # that of the Forward


Group0Message = WhoLeads | RootIs | Forward | Forwarded
