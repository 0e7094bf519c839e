"""Three to five Raft nodes in a world that loses, doubles and reorders messages, and crashes nodes.

Some messages come again when their sender, or the whole term, is long gone. In some runs a disk
loses the end of its log to damage; then its node keeps to what docs/internals/raft.md says of that.

What must hold is looked at after every step, from outside: from the disks, from what was sent, and
from what was ever committed. The letters are those of the invariants that docs/internals/raft.md
lists. A breach raises `Breach`, with its letter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from itertools import combinations
from random import Random
from typing import Any

from hocket.core.raft import events, messages
from hocket.core.raft.membership import Configuration, Mode
from hocket.core.raft.settings import SECOND, RaftSettings
from tests.support.core.raft_node import Disk, Entry, Envelope, Node, Numbers

IN_FLIGHT_MAX = 40  # messages; of more, the oldest are lost
SENT_MAX = 400  # messages that were sent, of which one may come very late
HEARTBEAT_US = SECOND // 2
HEALING_ROUNDS = 400  # heartbeats; 200 seconds

SETTINGS = RaftSettings(entries_max=3, in_flight_max=2, snapshot_us=4 * SECOND)
# Groups fall quiet as soon as they can.
DROWSY = RaftSettings(entries_max=3, in_flight_max=2, snapshot_us=4 * SECOND, idle_us=0)


class Breach(AssertionError):
    """What must always hold does not."""


class Crashed(Exception):
    """The node has crashed in the middle of what it did."""


def demand(holds: bool, letter: str, what: str) -> None:
    if not holds:
        raise Breach(f"{letter}: {what}")


def has_majority(half: tuple[str, ...], of: Iterable[str]) -> bool:
    return 2 * len(set(half) & set(of)) > len(half)


def halves_of(configuration: Configuration) -> list[tuple[str, ...]]:
    """Not asked of the core: it may be wrong there."""
    return [half for half in (configuration.voters, configuration.outgoing) if half]


def quorums(configuration: Configuration) -> list[set[str]]:
    """All least sets of voters that decide."""
    voters = sorted({*configuration.voters, *configuration.outgoing})
    found: list[set[str]] = []
    for size in range(1, len(voters) + 1):
        for chosen in map(set, combinations(voters, size)):
            if all(has_majority(half, chosen) for half in halves_of(configuration)):
                found.append(chosen)
    return found


def _has(entries: list[Entry], index: int, like: list[Entry]) -> bool:
    return len(entries) >= index and entries[index - 1] == like[index - 1]


class WorldNode(Node):
    """A node whose disk takes its time, and that may crash between two effects."""

    def __init__(self, world: World, name: str, disk: Disk) -> None:
        self.world = world
        self.fuse = -1  # how many more effects are carried out before a crash; -1: no crash
        self.flushing: list[list[Entry]] = []
        self.first = 0  # of its leadership
        super().__init__(name, disk, world.settings, world.numbers, world.post, world.now_us)
        # As far as effects were carried out: in the middle of a list Raft itself is ahead.
        self.committed = self.raft.group.commit
        self.in_force = self.raft.group.configuration

    def _carry_out_one(self, effect: events.Effect, now_us: int) -> None:
        if self.fuse == 0:
            raise Crashed
        self.fuse -= 1
        self.world.look_at(self, effect)
        match effect:
            case events.Send(to, messages.Snapshot() as snapshot):
                self._send_snapshot(to, snapshot)
                return
        super()._carry_out_one(effect, now_us)
        match effect:
            case events.Leads(first=first):
                self.first = first
            case events.Committed(index):
                self.committed = index
            case events.Configured(configuration=configuration):
                self.in_force = configuration
            case events.Install(index, _, configuration):
                self.committed, self.in_force = index, configuration
                self.flushing.clear()
                self.world.look_at_log(self)

    def _send_snapshot(self, to: str, snapshot: messages.Snapshot) -> None:
        """The state that is sent may be a newer one, if the message says so."""
        index = self.committed
        if index % 2:
            snapshot = messages.Snapshot(snapshot.term, index, self.term_of(index), self.in_force)
        self._post(Envelope(self.name, to, snapshot, self.entries[: snapshot.index]))

    @property
    def is_faulty(self) -> bool:
        """Its disk has lost entries that were durable: it must neither vote nor stand."""
        return self.flushed < len(self.world.lost.get(self.name, ()))

    def begin_flush(self) -> None:
        self.flushing.append(list(self.entries))

    def end_flush(self, now_us: int) -> None:
        """What is told is what was flushed; meanwhile it may have been cut off."""
        entries = self.flushing.pop(0)
        self.disk.entries = entries
        self.step(events.Flushed(len(entries), entries[-1].term if entries else 0), now_us)


class World:
    def __init__(self, size: int, voters: int, settings: RaftSettings = SETTINGS) -> None:
        self.names = tuple("abcde"[:size])
        self.settings = settings
        self.numbers = Numbers()
        self.now_us = 0
        self.flight: list[Envelope] = []
        self.sent: list[Envelope] = []  # what was sent lately, and may come again
        self.lost: dict[str, list[Entry]] = {}  # the log of a disk that was damaged, before that
        self.side: frozenset[str] = frozenset()  # who is cut off from the others
        self.seen: Counter[str] = Counter()  # what was looked at: nothing is a failure
        self._leaders: dict[int, str] = {}  # by term
        self._votes: dict[tuple[str, int], str] = {}  # given for good, by voter and term
        self._places: dict[tuple[int, int], tuple[int, int]] = {}  # of entries, by index and term
        self.chosen: list[Entry] = []  # what was ever committed
        self._configurations: list[tuple[int, Configuration]] = []  # that were ever in force
        self._saved: dict[str, tuple[int, str]] = {}
        self._reads: dict[int, tuple[str, int]] = {}  # who asks; the least index for an answer
        configuration = Configuration(self.names[:voters])
        self._configurations.append((0, configuration))
        self.disks = {name: Disk(configuration) for name in self.names}
        self.nodes: dict[str, WorldNode | None] = {}
        for name in self.names:
            self.nodes[name] = WorldNode(self, name, self.disks[name])

    # --- what can happen -------------------------------------------------------------------------

    def node(self, which: int) -> WorldNode | None:
        return self.nodes[self.names[which % len(self.names)]]

    def do(self, action: str, which: int, number: int) -> None:
        """One action at one node; `number` is what else it needs of chance."""
        node = self.node(which)
        if action == "restart":
            if node is None:
                self._restart(which, number)
        elif action in ("deliver", "lose", "double"):
            self._carry(action, number)
        elif action == "calm":
            self._be_calm(number)
        elif action == "late":
            self._come_late(number)
        elif action == "damage":
            self._damage(which, number)
        elif action == "cut":
            self.side = frozenset(name for at, name in enumerate(self.names) if number >> at & 1)
        elif action == "wait":
            self.now_us += HEARTBEAT_US * (1 + number % 5)
        elif node is not None:
            self._try(getattr(self, "_" + action), node, number)
        self.look()

    def _try(self, act: Callable[[WorldNode, int], None], node: WorldNode, number: int) -> None:
        try:
            act(node, number)
        except Crashed:
            self._kill(node)

    def _carry(self, action: str, number: int) -> None:
        if not self.flight:
            return
        at = number % len(self.flight) if number % 3 else 0  # most come in order
        envelope = self.flight[at] if action == "double" else self.flight.pop(at)
        node = self.nodes[envelope.to]
        if action != "lose" and node is not None:
            self._heard(node, envelope)

    def _be_calm(self, number: int) -> None:
        """For a while messages come in order, and disks are quick; else little would be done."""
        for _ in range(1 + number % 16):
            if self.flight:
                to = self.nodes[self.flight[0].to]
                self._carry("deliver", 0)
                if to is not None and self.nodes[to.name] is to:
                    self._try(self._flush, to, 0)

    def _come_late(self, number: int) -> None:
        """A message comes, perhaps for the second time, when it has long been forgotten."""
        if self.sent:
            envelope = self.sent[number % len(self.sent)]
            node = self.nodes[envelope.to]
            if node is not None:
                self._heard(node, envelope)

    def _damage(self, which: int, number: int) -> None:
        """One disk at a time loses the end of its log, and its node begins anew without it."""
        name = self.names[which % len(self.names)]
        if any(len(self.disks[each].entries) < len(log) for each, log in self.lost.items()):
            return
        disk = self.disks[name]
        if disk.start < len(disk.entries):
            self._forget(name)
            self.lost = {name: list(disk.entries)}
            del disk.entries[disk.start + number % (len(disk.entries) - disk.start) :]
            self._restart(which, number)
            self.seen["damage"] += 1

    def _heard(self, node: WorldNode, envelope: Envelope) -> None:
        if node.is_faulty and isinstance(
            envelope.message, (messages.AskVote, messages.CampaignNow)
        ):
            return
        before = node.disk.term, node.disk.vote
        try:
            node.heard(envelope, self.now_us)
        except Crashed:
            self._kill(node)
        self.seen["message"] += 1
        message = envelope.message
        if isinstance(message, messages.AskVote) and message.pre:
            after = node.disk.term, node.disk.vote
            demand(before == after, "L5", f"a pre-vote left a trace at {node.name}")

    def _append(self, node: WorldNode, number: int) -> None:
        if node.raft.takes_entries and node.last < len(self.chosen) + 12:
            node.append(1 + number % 2, self.now_us)

    def _begin_flush(self, node: WorldNode, _number: int) -> None:
        if len(node.flushing) < 3:
            node.begin_flush()

    def _end_flush(self, node: WorldNode, _number: int) -> None:
        if node.flushing:
            node.end_flush(self.now_us)

    def _flush(self, node: WorldNode, number: int) -> None:
        self._begin_flush(node, number)
        while node.flushing:
            node.end_flush(self.now_us)

    def _beat(self, node: WorldNode, _number: int) -> None:
        node.beat(self.now_us)

    def _due(self, node: WorldNode, number: int) -> None:
        timers = [timer for timer, (due_us, _) in node.timers.items() if due_us <= self.now_us]
        if timers:
            self._run_out(node, timers[number % len(timers)])

    def _run_out(self, node: WorldNode, timer: events.Timer) -> None:
        if timer is not events.Timer.ELECTION or not node.is_faulty:
            del node.timers[timer]
            node.step(events.Due(timer), self.now_us)

    def _crash(self, node: WorldNode, number: int) -> None:
        """At once, or in the middle of what it does next."""
        if number % 2:
            self._kill(node)
        else:
            node.fuse = number % 7

    def _kill(self, node: WorldNode) -> None:
        self._forget(node.name)

    def _forget(self, name: str) -> None:
        self.nodes[name] = None
        self._reads = {at: each for at, each in self._reads.items() if each[0] != name}

    def _restart(self, which: int, number: int) -> None:
        name = self.names[which % len(self.names)]
        disk = self.disks[name]
        # What is known to be committed may have been lost: it is no part of what Raft persists.
        disk.committed = min(len(disk.entries), len(self.chosen)) if number % 2 else 0
        while (
            disk.committed and disk.entries[disk.committed - 1] != self.chosen[disk.committed - 1]
        ):
            disk.committed -= 1
        self.nodes[name] = WorldNode(self, name, disk)

    def _change(self, node: WorldNode, number: int) -> None:
        if number % 4 == 0:
            node.step(events.Propose(None), self.now_us)
            return
        chance = Random(number)
        voters = chance.sample(self.names, chance.randint(1, len(self.names)))
        learners = [name for name in self.names if name not in voters and chance.random() < 0.3]
        mode = chance.choice(list(Mode))
        if mode is Mode.SIMPLE and number % 8 != 1:
            now = set(node.raft.group.configuration.voters)
            voters = sorted(now ^ {chance.choice(self.names)})
            learners = [name for name in learners if name not in voters]
        node.step(events.Propose(tuple(voters), tuple(learners), mode), self.now_us)

    def _read(self, node: WorldNode, _number: int) -> None:
        token = self.numbers.take()
        self._reads[token] = node.name, len(self.chosen)
        node.step(events.ReadAsked(token), self.now_us)

    def _transfer(self, node: WorldNode, number: int) -> None:
        node.step(events.Transfer(self.names[number % len(self.names)]), self.now_us)

    def _compact(self, node: WorldNode, _number: int) -> None:
        if node.disk.entries[: node.flushed] == node.entries[: node.flushed]:
            node.compact(self.now_us)

    def _link_lost(self, node: WorldNode, number: int) -> None:
        peer = self.names[number % len(self.names)]
        if peer != node.name:
            gone = self.nodes[peer] is None
            effects = node.pulse.link_lost(peer, self.now_us, process_gone=gone)
            node._of_node(effects, self.now_us)

    def _stall(self, node: WorldNode, number: int) -> None:
        stall_us = HEARTBEAT_US * (number % 4)
        node._of_node(node.pulse.stalled(stall_us, self.now_us), self.now_us)

    def post(self, envelope: Envelope) -> None:
        if (envelope.sender in self.side) != (envelope.to in self.side):
            return
        self.flight.append(envelope)
        self.sent.append(envelope)
        if len(self.sent) > SENT_MAX:
            del self.sent[0]
        if len(self.flight) > IN_FLIGHT_MAX:
            del self.flight[0]

    # --- what must hold, at each effect ----------------------------------------------------------

    def look_at(self, node: WorldNode, effect: events.Effect) -> None:
        match effect:
            case events.PersistVote(term, _):
                demand(term >= node.disk.term, "L5", f"the term of {node.name} goes back")
            case events.Send(to, message):
                self._look_at_message(node, to, message)
            case events.Install(index):
                demand(index >= node.committed, "L3", "a snapshot leads back")
            case events.Truncate(first):
                demand(first > node.committed, "L3", "a committed entry is cut off")
                cut = node.entries[first - 1 : len(self.chosen)]
                demand(cut != self.chosen[first - 1 :] or not cut, "L3", "a chosen entry is cut")
            case events.Committed(index):
                self._look_at_commit(node, index)
            case events.Leads(term, _):
                self._look_at_leader(node, term)
            case events.Enter(configuration=Configuration()):
                demand(node.committed >= node.first, "L6", "a change before the own term's commit")
            case events.Configured(index, _, configuration):
                self._look_at_configuration(index, configuration)
            case events.ReadReady(token, index):
                _, least = self._reads.pop(int(str(token)))
                demand(index >= least, "reads", f"{index} is answered, {least} was committed")
                self.seen["read"] += 1
            case events.Refused(events.ReadAsked(token), _):
                del self._reads[int(str(token))]

    def _look_at_message(self, node: WorldNode, to: str, message: Any) -> None:
        disk = node.disk
        tried = isinstance(message, (messages.AskVote, messages.VoteIs)) and message.pre
        if not tried and not isinstance(message, messages.VoteIs):
            demand(disk.term >= message.term, "L5", f"{node.name} speaks in a term it may forget")
        match message:
            case messages.VoteIs(term, granted=True, pre=False):
                demand((disk.term, disk.vote) == (term, to), "L5", "a vote is sent, and not saved")
                self._vote(node.name, term, to)
            case messages.AskVote(term, pre=False):
                demand((disk.term, disk.vote) == (term, node.name), "L5", "its own vote")
                self._vote(node.name, term, node.name)
            case messages.Accepted(flushed=flushed):
                durable = disk.entries[:flushed] == node.entries[:flushed]
                enough = len(disk.entries) >= flushed
                demand(durable and enough, "L5", f"{node.name} answers for what is not durable")
            case messages.CampaignNow():
                self._look_at_successor(node, to)

    def _vote(self, voter: str, term: int, candidate: str) -> None:
        known = self._votes.setdefault((voter, term), candidate)
        demand(known == candidate, "L1", f"{voter} votes for {known} and {candidate} in {term}")
        self.seen["vote"] += 1

    def _look_at_successor(self, node: WorldNode, to: str) -> None:
        """It may have crashed, or have got entries of a newer leader, since it answered."""
        disk = self.disks[to]
        if disk.term <= node.raft.group.term:
            there = disk.entries[: node.last]
            demand(there == node.entries, "transfer", f"{to} lacks entries of {node.name}")
        self.seen["transfer"] += 1

    def _look_at_commit(self, node: WorldNode, index: int) -> None:
        entries = node.entries
        for at in range(min(index, len(self.chosen))):
            demand(entries[at] == self.chosen[at], "L3", f"{node.name} commits another {at + 1}")
        if index > len(self.chosen):
            self._look_at_choice(node, index)
            self.chosen += entries[len(self.chosen) : index]
            self.seen["commit"] += 1

    def _look_at_choice(self, node: WorldNode, index: int) -> None:
        """Somebody is the first to commit: it leads, and a majority has it on disk."""
        term = node.raft.group.term
        demand(self._leaders.get(term) == node.name, "L3", "a follower commits before its leader")
        demand(node.term_of(index) == term, "L4", "an older term is counted")
        have = [
            name
            for name, disk in self.disks.items()
            if _has(disk.entries, index, node.entries)
            or _has(self.lost.get(name, []), index, node.entries)
        ]
        for half in halves_of(node.in_force):
            demand(has_majority(half, have), "L3", f"{index} is not durable at a majority")

    def _look_at_leader(self, node: WorldNode, term: int) -> None:
        leader = self._leaders.setdefault(term, node.name)
        demand(leader == node.name, "L1", f"{leader} and {node.name} lead in {term}")
        self._vote(node.name, term, node.name)
        behind = node.entries[: len(self.chosen)]
        demand(behind == self.chosen, "L4", f"{node.name} leads without committed entries")
        voters = [voter for (voter, at), to in self._votes.items() if (at, to) == (term, leader)]
        for half in halves_of(node.in_force):
            demand(has_majority(half, voters), "L1", f"{leader} leads {term} without majority")
        self.seen["leader"] += 1

    def _look_at_configuration(self, index: int, configuration: Configuration) -> None:
        known = dict(self._configurations)
        if index in known:
            demand(known[index] == configuration, "L3", f"another configuration at {index}")
            return
        last, before = self._configurations[-1]
        demand(index > last, "L6", "a configuration came into force before its predecessor")
        meet = all(a & b for a in quorums(before) for b in quorums(configuration))
        demand(meet, "L6", f"majorities of {before} and {configuration} do not meet")
        self._configurations.append((index, configuration))
        self.seen["configuration"] += 1

    # --- what must hold, after each step ---------------------------------------------------------

    def look(self) -> None:
        for node in self.nodes.values():
            if node is not None:
                self.look_at_log(node)
                self._look_at_node(node)
        for name, disk in self.disks.items():
            term, vote = self._saved.get(name, (0, ""))
            back = disk.term < term or (disk.term == term and vote not in ("", disk.vote))
            demand(not back, "L5", f"{name} forgets its term or vote")
            self._saved[name] = disk.term, disk.vote

    def look_at_log(self, node: WorldNode) -> None:
        """L2: an index and a term name one entry, and one before it."""
        before = 0
        for index, entry in enumerate(node.entries, 1):
            place = self._places.setdefault((index, entry.term), (entry.number, before))
            demand(place == (entry.number, before), "L2", f"two logs differ before {index}")
            before = entry.number

    def _look_at_node(self, node: WorldNode) -> None:
        group = node.raft.group
        outline = group.outline
        demand(outline.last == node.last, "outline", f"{outline.last} is not {node.last}")
        demand(group.commit <= len(self.chosen), "L3", f"{node.name} has committed too much")
        changes = [at for at, e in enumerate(node.entries, 1) if e.configuration]
        flying = [at for at in changes if at > group.commit]
        demand(len(flying) <= 1, "L6", f"{node.name} knows {len(flying)} changes under way")
        conf = group.configuration
        everybody = (*sorted({*conf.voters, *conf.outgoing}), *conf.learners)
        demand(len(everybody) == len(set(everybody)), "L7", f"one in two places: {conf}")
        if node.leads:
            demand(group.vote == node.name, "L1", "a leader has voted for another")
        self.seen["quiet"] += group.is_quiet

    # --- the end ---------------------------------------------------------------------------------

    def heal(self, chance: Random) -> None:
        """All run, and nothing is lost any more: then one leads, and all that belong agree."""
        self.side = frozenset()
        for which, name in enumerate(self.names):
            node = self.nodes[name]
            if node is None:
                self._restart(which, 0)
            else:
                node.fuse = -1
        for _ in range(HEALING_ROUNDS):
            self._calm_round(chance)
            if self._is_healed():
                self.seen["healed"] += 1
                return
        raise Breach("liveness: nobody leads, somebody does not follow, or waits for an answer")

    def _calm_round(self, chance: Random) -> None:
        self.now_us += HEARTBEAT_US
        for name in self.names:
            node = self.nodes[name]
            if node is None:
                continue
            for timer, (first_us, last_us) in list(node.timers.items()):
                jitter_us = chance.randint(0, last_us - first_us)
                if first_us + jitter_us <= self.now_us:
                    self._run_out(node, timer)
            node.beat(self.now_us)
            self._deliver_all()

    def _deliver_all(self) -> None:
        while self.flight or any(self._is_dirty(node) for node in self.nodes.values()):
            for node in self.nodes.values():
                if node is not None and self._is_dirty(node):
                    self._flush(node, 0)
            if self.flight:
                envelope = self.flight.pop(0)
                node = self.nodes[envelope.to]
                if node is not None:
                    self._heard(node, envelope)
        self.look()

    def lose_the_leader(self, chance: Random) -> None:
        """In a calm world the leader dies without a word: then another one leads."""
        for _ in range(6):
            self._calm_round(chance)
        leader = next(node for node in self.nodes.values() if node is not None and node.leads)
        group = leader.raft.group
        faulty = any(node is not None and node.is_faulty for node in self.nodes.values())
        if faulty or any(len(half) < 3 for half in group.configuration.halves):
            return  # it cannot be done without
        self.seen["lost in quiet"] += group.is_quiet
        self._kill(leader)
        for _ in range(HEALING_ROUNDS):
            self._calm_round(chance)
            alive = [node for node in self.nodes.values() if node is not None]
            if any(node.raft.leading and node.raft.leading.has_committed for node in alive):
                return
        raise Breach("liveness: nobody leads in the place of one who died")

    @staticmethod
    def _is_dirty(node: WorldNode | None) -> bool:
        return node is not None and (bool(node.flushing) or node.flushed < node.last)

    def _is_healed(self) -> bool:
        leaders = [node for node in self.nodes.values() if node is not None and node.leads]
        if not leaders:
            return False
        leader = max(leaders, key=lambda node: node.raft.group.term)
        group = leader.raft.group
        members = [self.nodes[name] for name in group.configuration.members]
        return (
            leader.raft.leading is not None
            and not self._reads
            and leader.raft.leading.has_committed
            and not leader.raft.leading.successor
            and all(
                node is not None
                and node.entries == leader.entries
                and node.raft.group.commit == group.commit == leader.last
                and node.raft.group.configuration == group.configuration
                for node in members
            )
        )
