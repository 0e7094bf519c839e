"""Drives the two sides of group 0: the root tells what it commits, every other node follows.

This carries out what the cores in `core.group0` want: it appends to the node's log, installs
snapshots, and sends. Messages for a former life of this node are dropped: they answer questions
that this life has not asked.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

from hocket.core.group0 import events
from hocket.core.group0.forwards import Forwards
from hocket.core.group0.leader import Leader
from hocket.core.group0.learner import Learner
from hocket.core.group0.messages import Entry, Forward, Forwarded, NotFollowed
from hocket.core.group0.settings import Group0Settings
from hocket.core.ring.contact import Contact
from hocket.errors import HocketError
from hocket.node.node import Node
from hocket.ports import Links

log = logging.getLogger("hocket.node")


class Telling:
    """The root's side."""

    def __init__(
        self, node: Node, *, me: Callable[[], Contact], links: Links, settings: Group0Settings
    ) -> None:
        self.caught_up = True
        self.on_caught_up: list[Callable[[], None]] = []
        self._node = node
        self._me = me
        self._links = links
        recovered = node.metadata_log
        self.core = Leader(node.cluster, recovered.before, recovered.entries, settings)
        self._appended: deque[Entry] = deque()  # not committed yet
        node.on_metadata_appended(self._append)
        node.on_metadata_durable = self._durable
        node.taking_over.begin(partial(_send, links, me))
        if not recovered.is_whole:
            node.mark_metadata()  # whoever has more than we have needs all of it anew

    def heard(self, sender: Contact, message: Any) -> None:
        if isinstance(message, Forward):
            self._node.taking_over.heard(sender, message)
        elif isinstance(message, events.FOR_THE_ROOT):
            self._step(events.Heard(sender, message))

    def tick(self) -> None:
        self._step(events.Tick())

    def link_lost(self, contact: Contact) -> None:
        """Whoever is behind it asks again."""

    def spoke(self, contact: Contact) -> None:
        """It asks by itself if it wants to follow."""

    def renewed(self) -> None:
        """Whoever follows hears of the new life with the next message."""

    def _append(self, term: int, kind: int, index: int, body: bytes) -> None:
        self._appended.append(Entry(term, int(kind), index, body))

    def _durable(self, index: int) -> None:
        committed = []
        while self._appended and self._appended[0].index <= index:
            committed.append(self._appended.popleft())
        self._step(events.Committed(tuple(committed)))

    def _step(self, event: events.Event) -> None:
        for effect in self.core.step(event):
            if isinstance(effect, events.Send):
                _send(self._links, self._me, effect.to, effect.message)
            else:
                assert isinstance(effect, events.TakeSnapshot)
                index, data = self._node.metadata_snapshot()
                assert index == self.core.end, (index, self.core.end)
                self._step(events.SnapshotIs(data))


class Following:
    """The side of every other node."""

    def __init__(
        self,
        node: Node,
        *,
        life: int,
        me: Callable[[], Contact],
        root: Callable[[], tuple[str, int]],
        links: Links,
        chance: Random,
        settings: Group0Settings,
    ) -> None:
        """`root()` is where the ring says that the root is, and in which of its lives."""
        self.on_caught_up: list[Callable[[], None]] = []
        self._node = node
        self._me = me
        self._root = root
        self._links = links
        self._chance = chance
        index, term = node.metadata_log.end
        if not node.metadata_log.is_whole:
            term = 0  # no entry has this term: what is here is replaced
        self.core = Learner(node.cluster, index, term, settings)
        node.on_metadata_durable = self._durable
        send = partial(_send, links, me)
        node.handing_on.begin(
            Forwards(life, settings), lambda: (self.core.root, self.core.address), send
        )
        self._carry_out: dict[type, Callable[[Any], None]] = {
            events.Send: lambda effect: _send(links, me, effect.to, effect.message),
            events.Store: self._store,
            events.Install: self._install,
            events.CaughtUp: self._caught_up,
            events.Refused: self._refused,
        }

    @property
    def caught_up(self) -> bool:
        return self.core.caught_up

    def heard(self, sender: Contact, message: Any) -> None:
        # The founder is the root, and nobody else decides what the metadata is. A refusal is taken
        # from anybody: it changes nothing, and may say that this node is in the wrong cluster.
        if sender.node != self._node.cluster and not isinstance(message, NotFollowed):
            return
        if isinstance(message, Forwarded):
            self._node.handing_on.heard(message)
        elif isinstance(message, events.FOR_LEARNERS):
            self._step(events.Heard(sender, message))

    def tick(self) -> None:
        address, epoch = self._root()
        if address:
            self._step(events.RootIs(address, epoch))
        self._step(events.Tick(self._chance.random()))
        self._node.handing_on.tick()

    def link_lost(self, contact: Contact) -> None:
        if contact.address == self.core.address:
            self._step(events.RootLost())

    def spoke(self, contact: Contact) -> None:
        """A node said something about the ring."""
        if self.core.root is None and contact.node == self._node.cluster:
            self._step(events.RootSpoke())

    def renewed(self) -> None:
        """What the root sends goes to a life of this node that is over."""
        self._step(events.RootLost())

    def _durable(self, index: int) -> None:
        self._node.handing_on.applied(index)
        self._step(events.Stored(index))

    def _step(self, event: events.Event) -> None:
        for effect in self.core.step(event):
            self._carry_out[type(effect)](effect)

    def _store(self, effect: events.Store) -> None:
        try:
            self._node.follow_metadata(effect.entries)
        except HocketError as error:
            self._refused(events.Refused(str(error)))
            self._carry_out[events.Store] = lambda _effect: None  # until a newer version is here

    def _install(self, effect: events.Install) -> None:
        try:
            self._node.install_metadata(effect.index, effect.term, effect.data, self._installed)
        except HocketError as error:
            self._refused(events.Refused(str(error)))

    def _installed(self) -> None:
        self._step(events.Installed())

    def _caught_up(self, _effect: events.CaughtUp) -> None:
        for tell in self.on_caught_up:
            tell()

    def _refused(self, effect: events.Refused) -> None:
        log.error("this node cannot follow the cluster's metadata: %s", effect.reason)


def _send(links: Links, me: Callable[[], Contact], to: Contact, message: object) -> None:
    links.send(me(), to, message)
