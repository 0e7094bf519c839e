"""Events, which Raft is told, and effects, which it wants done.

Effects are carried out in the order of the list. Where an effect has a duty that goes beyond that,
it stands at the effect.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from hocket.core.raft.membership import Configuration, Mode
from hocket.core.raft.messages import Beat, BeatAnswer, GroupMessage


class Timer(Enum):
    ELECTION = "election"  # of whoever does not lead: how long a leader may be silent
    QUORUM = "quorum"  # of a leader: by when a majority must have answered
    TRANSFER = "transfer"  # of a leader: by when its successor must have taken over


# --- events ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class Started:
    """The first event of a group's life at this node."""


@dataclass(slots=True)
class Appended:
    """At the leader: its driver has appended entries of the leader's term, up to `last`.

    The driver asks `Raft.takes_entries` first, has carried out all effects before it appends, and
    tells this before any other event of the group: Raft numbers entries of its own behind these.
    """

    last: int


@dataclass(slots=True)
class Flushed:
    """Everything in the log up to this entry is durable.

    With the term that the entry had when its flush began: entries that were cut off meanwhile, and
    replaced, do not become durable by it.
    """

    index: int
    term: int


@dataclass(slots=True)
class Heard:
    sender: str
    message: GroupMessage


@dataclass(slots=True)
class Due:
    """A timer has run out; see `Arm`."""

    timer: Timer


@dataclass(slots=True)
class Stalled:
    """This node itself stood still, so the silence of others means nothing.

    Told before the timers that ran out and the messages that came meanwhile.
    """

    for_us: int


@dataclass(slots=True)
class LinkLost:
    """Nothing comes from this node any more, or a snapshot to it was not sent whole."""

    peer: str
    process_gone: bool = False  # dialled again, it was refused; or it has begun a new life


@dataclass(slots=True)
class Propose:
    """At the leader: change the membership. `voters` None: leave the joint configuration."""

    voters: tuple[str, ...] | None
    learners: tuple[str, ...] = ()
    mode: Mode = Mode.AUTO


@dataclass(slots=True)
class ReadAsked:
    """From which index on may be read, so that all that was committed before now is seen?"""

    token: object  # repeated in the answer; Raft tells reads apart by a number of its own


@dataclass(slots=True)
class Transfer:
    """At the leader: hand the leadership over."""

    to: str


@dataclass(slots=True)
class Compacted:
    """A snapshot behind this committed entry is durable; the entries up to it may be gone."""

    index: int
    configuration: Configuration  # in force behind that entry


Event = (
    Started
    | Appended
    | Flushed
    | Heard
    | Due
    | Stalled
    | LinkLost
    | Propose
    | ReadAsked
    | Transfer
    | Compacted
)

# --- effects --------------------------------------------------------------------------------------


@dataclass(slots=True)
class PersistVote:
    """Make term and vote durable.

    Duty: before anything that stands behind it is done, in this list or in a later list of the
    group. A vote that a crash forgets is given twice.
    """

    term: int
    vote: str  # "": none in this term


@dataclass(slots=True)
class Send:
    """Send this message. It may be lost, doubled and overtaken.

    Duty: of a `Snapshot`, the state behind its entry is sent along, or a newer one, if the message
    then says of which entry; if it cannot be sent whole, Raft is told `LinkLost`.
    """

    to: str
    message: GroupMessage


@dataclass(slots=True)
class SendEntries:
    """Send the entries `first` to `last` of the log, as `Entries`. None if last < first: a probe.

    Duty: all of them, in order; in several messages, if one would be too long. They need not be
    durable here: the leader's own disk counts like everybody else's.
    """

    to: str
    first: int
    last: int
    previous_term: int  # of the entry before `first`
    term: int
    commit: int


@dataclass(slots=True)
class Truncate:
    """Cut the log off, from this entry on.

    Duty: before the `Store` behind it. No entry that is committed is ever cut off. A flush that is
    under way must not be told as one of the entries that come in their place (`Flushed.term`).
    """

    first: int


@dataclass(slots=True)
class Store:
    """Append these entries of the message that was just heard; entries before them are here.

    Duty: as they came, with their terms and indexes; tell `Flushed` when they are durable. Raft
    answers the leader only then.
    """

    first: int
    last: int


@dataclass(slots=True)
class Enter:
    """Append an entry of Raft's own: an empty one, or a configuration.

    Duty: at this index, in this term; Raft counts it as appended already. Tell `Flushed` as usual.
    """

    index: int
    term: int
    configuration: Configuration | None = None


@dataclass(slots=True)
class Committed:
    """All entries up to this one are committed: apply them.

    Duty: what depends on an entry is answered behind this effect only. An applied entry need not be
    durable here; it is durable at a majority.
    """

    index: int


@dataclass(slots=True)
class Configured:
    """This configuration is in force at this node; its entry is committed.

    Duty: index and term are made durable before anything that stands behind this is done, as a vote
    is (`Saved.configured`). A node that forgot which configuration is in force might wait for ever
    for voters that were told to go. Those may be stopped for good when an entry that was appended
    later is committed: then a majority of the voters that stay remembers.
    """

    index: int
    term: int
    configuration: Configuration


@dataclass(slots=True)
class Leads:
    """This node leads.

    Duty: nothing is served until the entry `first`, the empty one of this term, is committed. Only
    then all is applied that earlier leaders have acknowledged.
    """

    term: int
    first: int


@dataclass(slots=True)
class Follows:
    """This node leads no more, or follows another leader than before; "": it knows none.

    Duty: whoever waits for an entry that is not committed is told that it may have happened.
    """

    term: int
    leader: str


@dataclass(slots=True)
class ReadReady:
    """The read may be answered.

    Duty: when everything up to this index is applied here.
    """

    token: object
    index: int


@dataclass(slots=True)
class Refused:
    """What was asked for is not done, and has had no effect."""

    asked: Propose | ReadAsked | Transfer
    reason: str


@dataclass(slots=True)
class Install:
    """Replace log and state by the snapshot that was just heard.

    Duty: wholly and durably before anything else is stored; then tell `Flushed` with its index and
    term. The log goes on behind that entry.
    """

    index: int
    term: int
    configuration: Configuration


@dataclass(slots=True)
class Arm:
    """Tell `Due` after this time. It replaces an earlier `Arm` of the same timer.

    Duty: a chance between 0 and `jitter_us` is added, drawn anew every time; else all campaign at
    the same moment, for ever.
    """

    timer: Timer
    after_us: int
    jitter_us: int = 0


Effect = (
    PersistVote
    | Send
    | SendEntries
    | Truncate
    | Store
    | Enter
    | Committed
    | Configured
    | Leads
    | Follows
    | ReadReady
    | Refused
    | Install
    | Arm
)

# --- of all groups of a node ----------------------------------------------------------------------


@dataclass(slots=True)
class SendToNode:
    """Send this message, of all groups. It may be lost."""

    to: str
    message: Beat | BeatAnswer


@dataclass(slots=True)
class OfGroup:
    """Effects of one group, to be carried out like those of its own `step`."""

    group: int
    effects: list[Effect]
