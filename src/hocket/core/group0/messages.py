"""What root and learners say to each other about group 0. Any message may be lost, late or double.

`request` is the number of the learner's `Follow` under which a message stands. A message of an
older one counts for nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Entry:
    """A committed entry, as it stands in the root's log; its body is opaque here."""

    term: int
    kind: int
    index: int
    body: bytes


@dataclass(slots=True)
class Follow:
    """I have everything up to `index`, whose entry is of `term`: tell me what follows."""

    request: int
    cluster: str  # the id of the cluster that the learner belongs to
    index: int
    term: int


@dataclass(slots=True)
class Entries:
    """The entries behind `previous_index`. None: I am there, and have nothing new."""

    request: int
    previous_index: int
    previous_term: int
    entries: tuple[Entry, ...]
    end: int  # the last entry that the root has committed


@dataclass(slots=True)
class SnapshotPiece:
    """A part of the state behind the entry `index`: what you have does not lead there."""

    request: int
    index: int
    term: int
    offset: int
    total: int  # bytes of the whole snapshot
    data: bytes
    end: int  # the last entry that the root has committed


@dataclass(slots=True)
class Followed:
    """Everything up to `index` is durable here, and `offset` bytes of the snapshot have come."""

    request: int
    index: int
    term: int  # of that entry; 0 while others are on their way to the log
    offset: int = 0


@dataclass(slots=True)
class FollowAgain:
    """I do not know that you follow me, having begun a new life, say."""

    request: int


@dataclass(slots=True)
class NotFollowed:
    """You cannot follow me, and it would not help to ask again soon."""

    request: int
    text: str  # why, for people


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


@dataclass(slots=True)
class Forwarded:
    """What has become of a request that was handed on."""

    number: int
    index: int  # the entry that has carried it out, or by which it was refused
    code: str = ""  # of the error; empty: it was carried out
    text: str = ""  # of the error, for people
    may_have_happened: bool = False


Group0Message = (
    Follow | Entries | SnapshotPiece | Followed | FollowAgain | NotFollowed | Forward | Forwarded
)
