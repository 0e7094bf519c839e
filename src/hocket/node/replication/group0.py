"""Group 0 at this node: the log of the metadata (topics, access, nodes), which every node has.

A node that is alone keeps it by itself: there is no Raft, and what is durable is committed. The
nodes of a cluster keep it as a group of Raft, some as voters, the others as learners. Whoever leads
that group is the *root*: it alone decides on changes.

Rule 1: what is not committed has no effect. A node that starts again knows what its last snapshot
        knows, and learns from the root which of the entries behind it are committed. Only one whose
        vote is the only one knows it by itself.
Rule 2: nothing is proposed while Raft has an entry of its own to append first; such requests wait.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from hocket.core.group0.forwards import away
from hocket.core.metadata.metadata import GROUP
from hocket.core.raft.group import Group, Host, Saved
from hocket.core.raft.membership import Configuration
from hocket.errors import Busy
from hocket.log.model import RecoveredGroup
from hocket.node import recovery
from hocket.node.raft_mail import MEMBERSHIP
from hocket.node.replication.metadata_machine import Entry, MetadataMachine
from hocket.node.replication.replica import Replica
from hocket.node.replication.replicas import Replicas
from hocket.node.replication.saved import (
    Found,
    configuration_in,
    found_in,
    is_wrapped,
    new_group,
    wrapped,
)
from hocket.node.wiring import Wiring

log = logging.getLogger("hocket.replication")
HELD_MAX = 1_000  # requests that wait because Raft has something to append


class Office(Protocol):
    """What follows from leading group 0, or not, in a cluster (`node.cluster.group0`)."""

    def begins(self, term: int) -> None: ...
    def ends(self) -> None: ...
    def changed(self) -> None:
        """Another node leads than before, or none."""


class NoOffice:
    def begins(self, term: int) -> None: ...
    def ends(self) -> None: ...
    def changed(self) -> None: ...


@dataclass(slots=True)
class Recovered:
    """What of the group was found in the data directory, until Raft begins."""

    found: Found
    is_lone: bool = False  # this node is the only voter
    own: RecoveredGroup = field(default_factory=RecoveredGroup)
    installs: bool = False  # the log is about to begin anew, behind entries that are lost


class Group0:
    def __init__(self, wiring: Wiring, *, alone: bool) -> None:
        self.alone = alone
        self.replica: Replica[Entry] | None = None
        self.office: Office = NoOffice()
        # Told what committed entries have changed, and what a state has that another node sent.
        self.took_effect: Callable[[list[tuple[int, Any]]], None] = lambda _changes: None
        self.replaced: Callable[[list[tuple[int, Any]]], None] = lambda _changes: None
        self.refuse: Callable[[list[Any]], None] = lambda _waiting: None
        self._wiring = wiring
        self._recovered: Recovered | None = None
        self._held: list[Callable[[], None]] = []
        if not alone:
            wiring.partitions.guards[GROUP] = self._admit
            wiring.on_metadata = self._appended

    @property
    def leads(self) -> bool:
        """Whether this node decides on changes of the metadata now."""
        return self.alone or (self.replica is not None and self.replica.serves)

    @property
    def is_lone(self) -> bool:
        """It is the only one that votes, so that it leads without asking anybody."""
        if self.replica is not None:
            configuration = self.replica.raft.group.configuration
            return configuration.all_voters == (self._wiring.log.store_id,)
        return self.alone or (self._recovered is not None and self._recovered.is_lone)

    @property
    def term(self) -> int:
        return 0 if self.replica is None else self.replica.raft.group.term

    @property
    def leader(self) -> str:
        """The store id of who leads; empty: nobody is known to, or was heard lately."""
        replica = self.replica
        if replica is None or replica.stopped or not replica.hears_leader:
            return ""
        return replica.leader

    # --- the beginning ---------------------------------------------------------------------------

    def recover(self, own: RecoveredGroup | None) -> None:
        """Bring the metadata to the state that is known to be committed."""
        wiring = self._wiring
        if self.alone:
            if own is not None:
                recovery.recover_metadata(wiring, own)
            return
        me, founder = wiring.log.store_id, wiring.cluster
        voters = [founder] if me == founder else []
        if own is None:
            self._recovered = Recovered(new_group(voters), is_lone=bool(voters))
            return
        if _is_lone(own, me, voters):
            recovery.recover_metadata(wiring, own)
            if not wiring.metadata_is_whole:
                self._begin_anew(own, me)
                return
            found = found_in(own, wiring.log.replicated, GROUP, voters)
            self._recovered = Recovered(found, True, own)
            self._know_all(found)
            return
        found = found_in(own, wiring.log.replicated, GROUP, voters)
        if own.losses:
            # The operator had to accept it, or the store would not have been opened. But others
            # count on what this node has said to have; it does not vote until it has it again.
            wiring.log.replicated.owe(GROUP, own.next_index - 1)
        wiring.metadata.restore(found.index, found.state)
        self._recovered = Recovered(found, False, own)
        if not own.state.term:  # of a version in which only committed entries were told
            for header, body in found.entries:
                wiring.metadata.replayed(header.kind, header.index, bytes(body))
            self._know_all(found)
        for header, body in found.entries:
            wiring.metadata.in_doubt(header.kind, header.index, bytes(body))

    def _know_all(self, found: Found) -> None:
        found.entries = []
        found.saved.committed = self._wiring.metadata.applied_index

    def _begin_anew(self, own: RecoveredGroup, me: str) -> None:
        """Entries are lost, as the operator has accepted, and others may have them.

        They need this node's state in the place of what they have. So the log goes on one entry
        later, behind one that nobody has.
        """
        wiring = self._wiring
        base, _changes = _configuration(own, [me])
        index = wiring.metadata.indexes.last + 1
        term = max(own.term, own.state.term) + 1
        wiring.metadata.lost(index + 1)
        saved = Saved(base, term, start=index, start_term=term, committed=index)
        self._recovered = Recovered(Found(saved, index, b"", []), True, own, installs=True)

    def begin(self, replicas: Replicas, term_min: int) -> None:
        """There are links to other nodes: take part in the group."""
        recovered = self._recovered
        assert recovered is not None
        if recovered.is_lone:
            # Counting alone gives a node that was put back from an older copy the term of the life
            # that the copy lacks, and others would take its entries for those that they have.
            saved = recovered.found.saved
            if term_min - 1 > saved.term:
                saved.term, saved.vote = term_min - 1, ""
        if recovered.installs:
            saved = recovered.found.saved
            group = Group(Host(self._wiring.log.store_id), GROUP, saved)
            index, state = self._wiring.metadata.snapshot()
            self._wiring.log.install(
                GROUP, index, saved.start_term, wrapped(group, index, state),
                lambda: self._begin(replicas, recovered),
            )  # fmt: skip
        else:
            self._begin(replicas, recovered)

    def _begin(self, replicas: Replicas, recovered: Recovered) -> None:
        machine = MetadataMachine(
            self._wiring.metadata,
            took_effect=lambda changes: self.took_effect(changes),
            replaced=lambda changes: self.replaced(changes),
            leadership=self,
        )
        found = recovered.found
        replica = self.replica = Replica(GROUP, machine, replicas, found.saved, found.entries)
        self._recovered = None
        replica.ahead = found.ahead
        replica.on_free = self._release
        replica.tells_commits = True
        replicas.add(replica)
        if found.damage:
            replica.stop(found.damage)
        elif replica.raft.group.has_vote:
            replica.hurry()

    # --- what the log calls ----------------------------------------------------------------------

    def durable(self, index: int) -> None:
        if self.alone:
            self.took_effect(self._wiring.metadata.durable(index))
        elif self.replica is not None:
            self.replica.flushed()

    def stop(self, why: str) -> None:
        """Nothing becomes durable here any more: others decide from now on."""
        if self.replica is not None and not self.replica.stopped:
            self.replica.stop(why)

    def snapshot(self) -> tuple[int, bytes]:
        if self.replica is not None:
            index, state = self._wiring.metadata.snapshot()
            return index, wrapped(self.replica.raft.group, index, state, self.replica.ahead)
        if self._recovered is not None and is_wrapped(self._recovered.own.snapshot):
            return self._recovered.own.snapshot_index, self._recovered.own.snapshot
        return self._wiring.metadata.snapshot()

    # --- changes ---------------------------------------------------------------------------------

    def _admit(self) -> None:
        """Raise why no change can be proposed now."""
        if not self.leads:
            raise away(may_have_happened=False)
        assert self.replica is not None
        if self.replica.is_full:
            raise Busy("too many changes of topics, users and nodes wait; try again")

    def _appended(self, index: int) -> None:
        assert self.replica is not None
        self.replica.appended(index)

    @property
    def holds(self) -> bool:
        """Whether requests for changes wait, for a moment."""
        replica = self.replica
        return (
            replica is not None
            and replica.serves
            and replica.is_blocked
            and len(self._held) < HELD_MAX
        )

    def hold(self, again: Callable[[], None]) -> None:
        self._held.append(again)

    def _release(self) -> None:
        held, self._held = self._held, []
        for again in held:
            again()

    def read(self, answered: Callable[[bool], None]) -> None:
        """Call `answered` when this node has all that was committed before now; False: it cannot
        be known now."""
        if self.alone:
            answered(True)
        elif self.replica is None or not self.replica.hears_leader:
            answered(False)
        else:
            self.replica.read(answered)

    # --- leading (see metadata_machine.Leadership) -----------------------------------------------

    def begins(self, term: int) -> None:
        # A node alone is always the root, and whoever starts one need not know what a root is.
        is_alone = self.replica is None or len(self.replica.raft.group.configuration.members) == 1
        say = log.debug if is_alone else log.info
        say("this node is the root of the cluster, in term %d", term)
        self._wiring.metadata_term = term
        self.office.begins(term)

    def ceases(self, waiting: list[Any]) -> None:
        log.info("this node is the root of the cluster no more")
        self.office.ends()
        self.refuse(waiting)
        self._release()

    def hint(self) -> None:
        self.office.changed()


def _configuration(own: RecoveredGroup, voters: list[str]) -> tuple[Configuration, bool]:
    """The configuration of the snapshot, and whether the log has others behind it."""
    base = new_group(voters).saved.configuration
    if is_wrapped(own.snapshot):
        base = configuration_in(own.snapshot)
    return base, any(header.kind == MEMBERSHIP for header, _body in own.entries)


def _is_lone(own: RecoveredGroup, me: str, voters: list[str]) -> bool:
    base, changes = _configuration(own, voters)
    return base.all_voters == (me,) and not changes
