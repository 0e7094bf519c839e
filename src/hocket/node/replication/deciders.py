"""The deciders of a cluster that several nodes keep.

A decider begins with one node, which needs no Raft. When the cluster has three nodes, the catalogue
names the stores that are to keep it (`Catalogue.spread_deciders`). Then

1. the node that has it so far begins its log anew, behind its state, as a group of Raft in which it
   has the only vote;
2. the nodes that are named begin to host the group, and believe those who are named;
3. whoever leads the group enters the others as learners, and makes them voters, by a joint change,
   when they have come as far as itself.

So what members a group has is said by its own log; the catalogue says which it should have.
A decider is entered among those of the node (`Deciders`) while this node leads it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from hocket.core.metadata.catalogue import Topic
from hocket.core.raft.events import Propose
from hocket.core.raft.group import Group, Host, Saved
from hocket.core.raft.membership import Configuration, Mode
from hocket.core.transactions.decider import Decider
from hocket.errors import Busy
from hocket.log.model import RecoveredGroup
from hocket.log.settings import GroupSettings
from hocket.model import EntryKind
from hocket.node.replication.replica import Replica
from hocket.node.replication.replicas import Replicas
from hocket.node.replication.saved import Found, found_in, machine_state, wrapped
from hocket.node.running.deciders import Seat
from hocket.node.wiring import Wiring
from hocket.wire.entry import Header

log = logging.getLogger("hocket.replication")
LAG_MAX = 100  # entries that a learner may lack and be made a voter


class Entry(NamedTuple):
    at: int  # its index
    kind: int
    body: bytes


class DeciderMachine:
    """A decider as what the entries of a group change; see `replica.Machine`."""

    def __init__(self, seat: Seat, leadership: DeciderCopies) -> None:
        self.seat = seat
        self._leadership = leadership

    def prepared(self, header: Header, body: memoryview) -> Entry:
        return Entry(header.index, header.kind, bytes(body))

    def apply(self, entry: Entry) -> None:
        if entry.kind == EntryKind.DECISION:
            self.seat.core.replayed(entry.at, entry.body)
        else:
            self.seat.core.go_on_behind(entry.at)

    def committed(self, index: int) -> None:
        self._leadership.on_committed(self.seat.group, index)

    def entered(self, index: int) -> None:
        self.seat.core.entered(index)

    def check(self, state: bytes) -> None:
        """Deciders of all versions understand each other."""

    def serve(self, term: int) -> None:
        self.seat.term = term
        self._leadership.serves(self.seat)

    def stop(self, leader: str) -> None:
        self._leadership.stops(self.seat, leader)
        self._become(*self.snapshot())

    def snapshot(self) -> tuple[int, bytes]:
        index, state = self.seat.core.snapshot()
        return index, json.dumps(state).encode()

    def install(self, index: int, _log_start: int, state: bytes) -> None:
        self._become(index, machine_state(state))

    def hint(self) -> None:
        self._leadership.hint(self.seat)

    def _become(self, index: int, state: bytes) -> None:
        """A new core with this state. What the old one had proposed beyond it is forgotten."""
        self.seat.core = _decider(index, state)


@dataclass(slots=True, eq=False)
class Kept:
    """One of the cluster's deciders, of which this node keeps a copy."""

    seat: Seat
    recovered: RecoveredGroup | None  # until Raft begins; None: its log is new here
    replica: Replica[Entry] | None = None
    is_alone: bool = False  # no other node has had it so far, and this one has it without Raft
    is_installing: bool = False  # its log is about to begin anew
    has_grown: bool = False  # all who are named vote, as far as was seen here


class DeciderCopies:
    def __init__(self, wiring: Wiring) -> None:
        self._wiring = wiring
        self._replicas: Replicas | None = None
        self._kept: dict[int, Kept] = {}
        # Told of what happens to a decider here; see `node.background.transactions`.
        self.on_committed: Callable[[int, int], None] = lambda _group, _index: None
        self.on_served: Callable[[Seat], None] = lambda _seat: None
        self.on_stopped: Callable[[Seat], None] = lambda _seat: None

    def __contains__(self, group: int) -> bool:
        """Whether its log is one of Raft, or about to be."""
        kept = self._kept.get(group)
        return kept is not None and not kept.is_alone

    # --- the beginning ---------------------------------------------------------------------------

    def host(self, topic: Topic, number: int, recovered: RecoveredGroup | None = None) -> None:
        """The catalogue names this node among those that keep the decider."""
        group = topic.groups[number]
        if group in self._kept:
            return
        recovered = recovered or self._wiring.unclaimed.pop(group, None)
        self._wiring.log.configure(group, GroupSettings())
        seat = self._wiring.deciders.get(group)
        if seat is not None:  # it has been here all the time, without Raft
            self._kept[group] = Kept(seat, None, is_alone=True)
            return
        kept = self._kept[group] = Kept(Seat(group, Decider(inherits=True)), recovered)
        self._wiring.catalogue.leaders[group] = ""
        self._wiring.partitions.guards[group] = lambda: self._admit(kept)
        if self._replicas is not None:
            self._begin(kept, self._found(kept), self._replicas)

    def replicate_by(self, replicas: Replicas) -> None:
        """From now on there are links to other nodes."""
        self._replicas = replicas
        for kept in self._kept.values():
            if not kept.is_alone:
                self._begin(kept, self._found(kept), replicas)

    def _found(self, kept: Kept) -> Found:
        """What of the group is in the log here. Those who are named are believed from the start."""
        group = kept.seat.group
        home, *others = self._wiring.catalogue.stores_of_group(group)
        base = Configuration((home,), learners=tuple(sorted(others)))
        if home == self._wiring.catalogue.me:  # so it has begun, without any others
            base = Configuration((home,))
        if kept.recovered is None:
            return Found(Saved(base), 0, b"", [])
        found = found_in(kept.recovered, self._wiring.log.replicated, group, (home,))
        if found.saved.configuration.members == (home,) and not found.saved.changes:
            found.saved.configuration = base
        return found

    def _begin(self, kept: Kept, found: Found, replicas: Replicas) -> None:
        seat = kept.seat
        seat.core = _decider(found.index, found.state)
        machine = DeciderMachine(seat, self)
        replica = Replica(seat.group, machine, replicas, found.saved, found.entries)
        replica.ahead = found.ahead
        kept.has_grown = len(found.saved.configuration.voters) > 1
        seat.copy = kept.replica = replica
        kept.recovered = None
        replicas.add(replica)
        replicas.homecoming.homes[seat.group] = self._wiring.catalogue.stores_of_group(seat.group)[
            0
        ]
        if found.damage:
            replica.stop(found.damage)
        elif found.saved.configuration.all_voters == (self._wiring.catalogue.me,):
            replica.hurry()

    def _begin_anew(self, kept: Kept, replicas: Replicas) -> None:
        """Others are to keep what this node has kept alone: its log begins behind its state.

        Which entries are of which term is not known of a log without Raft, unless it is read again;
        behind the state there are none.
        """
        wiring, seat = self._wiring, kept.seat
        kept.is_alone, kept.is_installing = False, True
        wiring.deciders.leave(seat.group)
        wiring.catalogue.leaders[seat.group] = ""
        wiring.partitions.guards[seat.group] = lambda: self._admit(kept)
        self.on_stopped(seat)
        index, state = DeciderMachine(seat, self).snapshot()
        base = Configuration((wiring.catalogue.me,))
        saved = Saved(base, seat.term, start=index, start_term=seat.term, committed=index)
        found = Found(saved, index, state, [])
        group = Group(Host(wiring.catalogue.me), seat.group, saved)

        def installed() -> None:
            kept.is_installing = False
            self._begin(kept, found, replicas)

        wiring.log.install(seat.group, index, seat.term, wrapped(group, index, state), installed)

    # --- time ------------------------------------------------------------------------------------

    def tick(self) -> None:
        if self._replicas is None:
            return
        for kept in list(self._kept.values()):
            if kept.is_alone and not kept.seat.core.is_writing:
                self._begin_anew(kept, self._replicas)
            elif kept.replica is not None and kept.replica.serves:
                self._look_after_members(kept, kept.replica)

    def _look_after_members(self, kept: Kept, replica: Replica[Entry]) -> None:
        """Propose the members that the catalogue names, if the group has others."""
        group, leading = replica.raft.group, replica.raft.leading
        now = group.configuration
        if leading is None or replica.is_blocked or group.changes or now.is_joint:
            return
        wanted = tuple(sorted(self._wiring.catalogue.stores_of_group(replica.group)))
        if now.voters == wanted and not kept.has_grown:
            kept.has_grown = True
            log.info("group %d is kept by %s from now on", replica.group, ", ".join(wanted))
        if now.voters == wanted or not wanted:
            return
        others = tuple(each for each in wanted if each not in now.voters)
        if any(each not in now.members for each in others):
            replica.tell(Propose(now.voters, others, Mode.SIMPLE))
            return
        assert self._replicas is not None
        last = group.outline.last
        matched = [leading.peers[each].matched for each in others]
        has_all = all(each and each + LAG_MAX > last for each in matched)
        if has_all and all(map(self._replicas.has_answered_lately, others)):
            replica.tell(Propose(wanted, (), Mode.AUTO))

    # --- what the node calls ---------------------------------------------------------------------

    def flushed(self, group: int) -> None:
        if self._replicas is not None and group in self._replicas:
            self._replicas.flushed(group)

    def snapshot(self, group: int) -> tuple[int, bytes]:
        kept = self._kept[group]
        if kept.recovered is not None:
            return kept.recovered.snapshot_index, kept.recovered.snapshot
        index, state = DeciderMachine(kept.seat, self).snapshot()
        if kept.replica is None:
            return index, state
        return index, wrapped(kept.replica.raft.group, index, state, kept.replica.ahead)

    def stop(self, why: str) -> None:
        """Nothing becomes durable here any more: others lead from now on."""
        for kept in self._kept.values():
            if kept.replica is not None and not kept.replica.stopped:
                kept.replica.stop(why)

    def _admit(self, kept: Kept) -> None:
        """Raise why nothing can be decided now."""
        if kept.replica is None or not kept.replica.serves or kept.replica.is_full:
            raise Busy("who decides on this transaction is being agreed on; try again")

    # --- who leads (see DeciderMachine) ----------------------------------------------------------

    def serves(self, seat: Seat) -> None:
        self._wiring.catalogue.leaders[seat.group] = self._wiring.catalogue.me
        self._wiring.deciders.enter(seat)
        self.on_served(seat)

    def stops(self, seat: Seat, leader: str) -> None:
        self._wiring.catalogue.leaders[seat.group] = leader
        self._wiring.deciders.leave(seat.group)
        self.on_stopped(seat)

    def hint(self, seat: Seat) -> None:
        kept = self._kept[seat.group]
        if kept.replica is not None:
            self._wiring.catalogue.leaders[seat.group] = kept.replica.leader
            if kept.replica.stopped:
                self._wiring.catalogue.deaf.add(seat.group)


def _decider(index: int, state: bytes) -> Decider:
    core = Decider(inherits=True)
    if state:
        core.restore(index, json.loads(state))
    core.go_on_behind(index)
    return core
