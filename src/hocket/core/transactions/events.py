"""What the decider of transactions (`core.transactions.decider`) is told, and what it says.

Participants are partitions, by the number of their group. What goes to them and comes from them may
be lost, late or double, so every answer names what it answers.
"""

from __future__ import annotations

from dataclasses import dataclass

from hocket.core.origin import Origin
from hocket.core.partition.events import Producers
from hocket.core.transactions.participants import Member
from hocket.errors import HocketError
from hocket.model import Participant

# --- events --------------------------------------------------------------------------------------


@dataclass(slots=True)
class Started:
    """Everything is replayed."""

    now_us: int


@dataclass(slots=True)
class CommitAsked:
    origin: Origin
    transaction: str
    number: int
    members: tuple[Member, ...]
    now_us: int


@dataclass(slots=True)
class AbortAsked:
    """Drop what these producers have staged for it; what others have is not touched."""

    origin: Origin
    transaction: str
    number: int
    producers: tuple[bytes, ...]
    now_us: int


@dataclass(slots=True)
class Verified:
    """A participant has looked; `error` is what is wrong with its stage."""

    group: int
    transaction: str
    attempt: int
    error: HocketError | None


@dataclass(slots=True)
class Applied:
    """What was decided is, durably, in the participant's log; or there is no such log any more."""

    group: int
    transaction: str
    number: int


@dataclass(slots=True)
class StageFound:
    """A participant has stages of these producers, and asks. `idle`: untouched for long."""

    group: int
    transaction: str
    number: int
    producers: tuple[bytes, ...]
    idle: bool


@dataclass(slots=True)
class AppliedFound:
    """A participant knows of transactions that it has applied, and asks whether it still must."""

    group: int


@dataclass(slots=True)
class Tick:
    now_us: int


Event = (
    Started | CommitAsked | AbortAsked | Verified | Applied | StageFound | AppliedFound | Tick
)  # fmt: skip


# --- effects -------------------------------------------------------------------------------------


@dataclass(slots=True)
class AppendDecision:
    index: int
    body: bytes


@dataclass(slots=True)
class Verify:
    group: int
    transaction: str
    number: int
    attempt: int
    participants: tuple[Participant, ...]


@dataclass(slots=True)
class Apply:
    group: int
    transaction: str
    number: int
    decision: int
    producers: Producers


@dataclass(slots=True)
class Drop:
    """The stages of these producers, and of no others. `group` None: wherever there are any."""

    group: int | None
    transaction: str
    number: int
    producers: tuple[bytes, ...]


@dataclass(slots=True)
class Forget:
    group: int
    through: int  # a decision; it and all before it are history


@dataclass(slots=True)
class Answer:
    """None: it is done."""

    origin: Origin
    error: HocketError | None


Effect = AppendDecision | Verify | Apply | Drop | Forget | Answer
