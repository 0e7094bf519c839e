"""What the decider of transactions (`core.transactions.decider`) is told, and what it wants done.

Participants are partitions, known by the number of their group. Messages to and from them may be
lost, late or double, so every answer names what it answers.
"""

from __future__ import annotations

from dataclasses import dataclass

from hocket.core.origin import Origin
from hocket.core.partition.events import Producers
from hocket.core.transactions.participants import LocatedParticipant
from hocket.errors import HocketError
from hocket.model import Participant

# --- events --------------------------------------------------------------------------------------


@dataclass(slots=True)
class Started:
    """The log is replayed; the decider begins its work."""

    now_us: int


@dataclass(slots=True)
class CommitAsked:
    origin: Origin
    transaction: str
    number: int
    participants: tuple[LocatedParticipant, ...]
    now_us: int


@dataclass(slots=True)
class AbortAsked:
    """Somebody asks to drop what these producers have staged for the transaction, and no others."""

    origin: Origin
    transaction: str
    number: int
    producers: tuple[bytes, ...]
    now_us: int


@dataclass(slots=True)
class Verified:
    """A participant answers Verify; `error` says what is wrong with its stage, if anything is."""

    group: int
    transaction: str
    round: int
    error: HocketError | None


@dataclass(slots=True)
class Applied:
    """The transaction is, durably, in the participant's log; or there is no such log any more."""

    group: int
    transaction: str
    number: int


@dataclass(slots=True)
class StageFound:
    """A participant has stages of these producers, and asks what becomes of them.

    `idle` says that nobody has touched them for long.
    """

    group: int
    transaction: str
    number: int
    producers: tuple[bytes, ...]
    idle: bool


@dataclass(slots=True)
class AppliedFound:
    """A participant remembers transactions that it has applied, and asks whether it still must."""

    group: int


@dataclass(slots=True)
class Inherit:
    """The founder's own decider hands over a part of what it knows: see `inheritance`."""

    term: int
    part: int
    body: bytes


@dataclass(slots=True)
class Tick:
    now_us: int


Event = (
    Started | CommitAsked | AbortAsked | Verified | Applied | StageFound | AppliedFound | Inherit
    | Tick
)  # fmt: skip


# --- effects -------------------------------------------------------------------------------------


@dataclass(slots=True)
class AppendDecision:
    """Put an entry behind the decider's log."""

    index: int
    body: bytes


@dataclass(slots=True)
class Verify:
    """Ask a participant whether exactly this is, durably, staged there."""

    group: int
    transaction: str
    number: int
    round: int
    participants: tuple[Participant, ...]


@dataclass(slots=True)
class Apply:
    """Tell a participant that the transaction is committed, and to append what is staged."""

    group: int
    transaction: str
    number: int
    decision: int
    producers: Producers


@dataclass(slots=True)
class Drop:
    """Drop the stages of these producers, and no others; in all groups if `group` is None."""

    group: int | None
    transaction: str
    number: int
    producers: tuple[bytes, ...]


@dataclass(slots=True)
class Forget:
    """Tell a participant that this decision and all before it are history."""

    group: int
    through: int


@dataclass(slots=True)
class Answer:
    """Tell who asked that it is done, or why it is not."""

    origin: Origin
    error: HocketError | None


@dataclass(slots=True)
class Inherited:
    """Tell the founder's own decider that this part is durable here; `whole`: nothing is lacking"""

    term: int
    part: int
    whole: bool


Effect = AppendDecision | Verify | Apply | Drop | Forget | Answer | Inherited
