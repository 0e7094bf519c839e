"""A learner's side of group 0: it asks the root for what follows, and keeps what it is told.

Rule 1: entries are stored in order and without a gap, with the index and the term they have at the
        root. What does not follow is dropped; the root sends it again.
Rule 2: an entry is acknowledged when it is durable in the learner's own log, and applied then.
Rule 3: a snapshot that does not lead beyond what is here is never installed.
Rule 4: a snapshot is installed when nothing is on its way to the log, and nothing is stored until
        it is durable.

This is the learner's half of Raft: what is told is committed already, so nothing is ever cut off.
Everything is resumed by one message, `Follow`, which says what is here. It is sent when the root
becomes known, begins a new life, is lost or is silent; with a back-off that doubles, and some
chance, so that not all ask at once. It is sent at once when the root is heard to be back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from hocket.core.group0.events import (
    CaughtUp,
    Effect,
    Event,
    Heard,
    Install,
    Installed,
    Refused,
    RootIs,
    RootLost,
    RootSpoke,
    Send,
    Store,
    Stored,
    Tick,
)
from hocket.core.group0.messages import (
    Entries,
    Follow,
    FollowAgain,
    Followed,
    NotFollowed,
    SnapshotPiece,
)
from hocket.core.group0.settings import Group0Settings
from hocket.core.ring.contact import Contact, seed


@dataclass(slots=True)
class Coming:
    """A snapshot of which some has come."""

    index: int
    term: int
    total: int
    data: bytearray = field(repr=False)

    @property
    def is_whole(self) -> bool:
        return len(self.data) == self.total


class Learner:
    """`index` and `term` are those of the last entry that the own log has."""

    def __init__(
        self, cluster: str, index: int, term: int, settings: Group0Settings | None = None
    ) -> None:
        self.index = index  # of the last entry that went to the log, durable or not
        self.term = term
        self.stored = index  # everything up to this one is durable, and applied
        self.caught_up = False  # once in this life
        self.root: Contact | None = None  # whoever answers as root; None: nobody does now
        self._cluster = cluster
        self._settings = settings or Group0Settings()
        self.address = ""  # where the root is said to be
        self._epoch = 0
        self._request = 0
        self._coming: Coming | None = None
        self._installing: Coming | None = None
        self._goal: int | None = None  # what the root had when it first answered
        self._quiet = 0  # ticks since the root was heard, or asked
        self._wait = 0  # ticks after which it is asked again
        self._backoff = self._settings.retry_ticks_min
        self._refusal = ""

    def step(self, event: Event) -> list[Effect]:
        return self._handlers[type(event)](self, event)

    # --- asking ----------------------------------------------------------------------------------

    def _root_is(self, event: RootIs) -> list[Effect]:
        if (event.address, event.epoch) == (self.address, self._epoch):
            return []
        if event.epoch < self._epoch:
            return []  # an older life of it
        root = self.root
        if root is not None and (root.address, root.incarnation) == (event.address, event.epoch):
            self._epoch = event.epoch
            return []  # this life of it was found before the ring told of it
        self.address, self._epoch = event.address, event.epoch
        self._backoff = self._settings.retry_ticks_min
        return self._ask(0.0)

    def _root_lost(self, _event: RootLost) -> list[Effect]:
        """Ask again soon; at once could be too early for one that begins a new life."""
        self.root = None
        self._wait = min(self._wait, self._quiet + self._settings.retry_ticks_min)
        return []

    def _root_spoke(self, _event: RootSpoke) -> list[Effect]:
        """It need not be waited for any longer. But nobody asks all the time who is refused, or
        whose question may be on its way."""
        is_early = self._quiet < self._settings.retry_ticks_min
        if self.root is not None or is_early or self._refusal or not self.address:
            return []
        self._backoff = self._settings.retry_ticks_min
        return self._ask(0.0)

    def _ask(self, chance: float) -> list[Effect]:
        self.root = None
        self._request += 1
        self._coming = None
        self._quiet = 0
        self._wait = self._backoff + int(self._backoff * chance)
        self._backoff = min(2 * self._backoff, self._settings.retry_ticks_max)
        follow = Follow(self._request, self._cluster, self.index, self.term)
        return [Send(seed(self.address), follow)]

    def _tick(self, event: Tick) -> list[Effect]:
        self._quiet += 1
        if not self.address or self._quiet < self._wait:
            return []
        return self._ask(event.chance)

    # --- what the root says ----------------------------------------------------------------------

    def _heard(self, event: Heard) -> list[Effect]:
        message = event.message
        assert not isinstance(message, Follow | Followed)
        if getattr(message, "request", 0) != self._request:
            return []  # of an older question
        if isinstance(message, NotFollowed):
            return self._not_followed(message)
        if isinstance(message, FollowAgain):
            return self._ask(0.0)
        self.root = event.sender
        self._quiet = 0
        self._wait = self._settings.silent_ticks
        self._backoff = self._settings.retry_ticks_min
        self._refusal = ""
        assert isinstance(message, Entries | SnapshotPiece)
        if self._goal is None:
            self._goal = message.end
        if isinstance(message, SnapshotPiece):
            return [*self._piece(message), *self._look_whether_caught_up()]
        return [*self._entries(message), *self._look_whether_caught_up()]

    def _not_followed(self, message: NotFollowed) -> list[Effect]:
        self._quiet = 0
        self._wait = self._settings.refused_ticks
        if message.text == self._refusal:
            return []
        self._refusal = message.text
        return [Refused(message.text)]

    def _entries(self, message: Entries) -> list[Effect]:
        if self._installing is not None or message.previous_index > self.index:
            return []  # what is between is on its way, or is sent again
        if message.previous_index == self.index and message.previous_term != self.term:
            return []  # what is here does not lead there: a snapshot does
        new = tuple(entry for entry in message.entries if entry.index > self.index)
        if not new:
            return [self._acknowledgement()]
        if any(entry.index != index for index, entry in enumerate(new, self.index + 1)):
            return []  # a root that makes gaps is not believed
        self.index, self.term = new[-1].index, new[-1].term
        return [Store(new)]

    def _piece(self, message: SnapshotPiece) -> list[Effect]:
        if (message.index, message.term) == (self.index, self.term) or message.index < self.index:
            return [self._acknowledgement()]  # it leads nowhere: it is stale
        if self._installing is not None:
            return [self._acknowledgement()]  # so that the root does not take us for dead
        coming = self._coming
        if coming is None or (coming.index, coming.term) != (message.index, message.term):
            coming = Coming(message.index, message.term, message.total, bytearray())
            self._coming = coming
        if message.offset == len(coming.data) <= coming.total - len(message.data):
            coming.data += message.data
        return [self._acknowledgement(), *self._install_if_possible()]

    def _install_if_possible(self) -> list[Effect]:
        coming = self._coming
        if coming is None or not coming.is_whole or self.stored < self.index:
            return []
        self._installing, self._coming = coming, None
        return [Install(coming.index, coming.term, bytes(coming.data))]

    def _acknowledgement(self) -> Send:
        offset = 0 if self._coming is None else len(self._coming.data)
        term = self.term if self.stored == self.index else 0
        assert self.root is not None
        return Send(self.root, Followed(self._request, self.stored, term, offset))

    # --- what has become durable -----------------------------------------------------------------

    def _stored(self, event: Stored) -> list[Effect]:
        self.stored = event.index
        effects: list[Effect] = [] if self.root is None else [self._acknowledgement()]
        return [*effects, *self._install_if_possible(), *self._look_whether_caught_up()]

    def _installed(self, _event: Installed) -> list[Effect]:
        installed, self._installing = self._installing, None
        assert installed is not None
        self.index, self.term, self.stored = installed.index, installed.term, installed.index
        effects: list[Effect] = [] if self.root is None else [self._acknowledgement()]
        return [*effects, *self._look_whether_caught_up()]

    def _look_whether_caught_up(self) -> list[Effect]:
        if self.caught_up or self._goal is None or self.stored < self._goal:
            return []
        self.caught_up = True
        return [CaughtUp()]

    _handlers: ClassVar[dict[type, Callable[[Any, Any], list[Effect]]]] = {
        Heard: _heard,
        Tick: _tick,
        RootIs: _root_is,
        RootLost: _root_lost,
        RootSpoke: _root_spoke,
        Stored: _stored,
        Installed: _installed,
    }
