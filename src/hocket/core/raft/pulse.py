"""The beat of a node: the heartbeats of all its groups, one message to each peer.

Rule 1: what a beat costs a group is one line. Whatever needs more (a newer term, entries that are
        missing, reads that wait) is told to the group itself, as an event or a message.
Rule 2: a beat goes to every peer of a group that this node leads, also if it has no line: groups
        that are quiet live by it. A peer that is silent for the least election timeout wakes the
        quiet groups that it leads, and those that this node leads with it.
Rule 3: a beat of a later life than before says that the leader's process was gone. Lives count
        upwards, so a beat of an earlier one is merely late, and says nothing.
Rule 4: who agrees to be quiet agrees to what the beat said when it was sent.
Rule 5: a node has a say in the groups for which the driver believes it (`believes`), whatever its
        beats name; of others the driver is told (`strange`).

A group falls quiet when it has had nothing to do for some time and every member has everything,
committed. The leader says so in its beats; when all have agreed, it beats no more for that group.
Anything that happens to the group wakes it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import chain

from hocket.core.raft.events import Effect, Event, Heard, LinkLost, OfGroup, SendToNode, Stalled
from hocket.core.raft.group import LONG_AGO, Host
from hocket.core.raft.leading import Leading
from hocket.core.raft.messages import Beat, BeatAnswer, Heartbeat, Line, Outdated
from hocket.core.raft.raft import Raft

REMEMBERED = 8  # beats to a peer whose answers are still understood


@dataclass(slots=True)
class Neighbour:
    """What is known of another node, for all groups."""

    life: int | None = None  # of its last beat
    heard_us: int = LONG_AGO
    is_silent: bool = False
    # Beats to it, and when they were sent.
    sent: deque[tuple[Beat, int]] = field(default_factory=lambda: deque(maxlen=REMEMBERED))


class Pulse:
    """See the head of the file. The driver calls `beat` every `heartbeat_us`."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.groups: dict[int, Raft] = {}
        # Whether a node may speak for a group: by group, and node. Raft itself believes everybody,
        # for whoever leads may have become a member while this node was cut off.
        self.believes: Callable[[int, str], bool] = lambda _group, _sender: True
        self._neighbours: dict[str, Neighbour] = {}
        self._sequence = 0
        # Groups that a node has spoken of and is no member of, since the driver has looked here.
        self.strange: list[int] = []

    def add(self, raft: Raft) -> None:
        self.groups[raft.group.id] = raft

    def remove(self, group_id: int) -> None:
        """The node hosts this group no more, or takes no part in it any more."""
        self.groups.pop(group_id, None)
        self.host.leading.pop(group_id, None)
        self.host.leading_quietly.pop(group_id, None)

    # --- the own beat ----------------------------------------------------------------------------

    def beat(self, now_us: int) -> list[SendToNode | OfGroup]:
        idle_before_us = now_us - self.host.settings.idle_us
        bundles: dict[tuple[str, ...], list[Line]] = {}  # groups with the same peers
        idle: dict[tuple[str, ...], list[Line]] = {}
        leading: Leading
        for leading in self.host.leading.values():
            group = leading.group
            names = leading.names
            line = (group.id, group.term, group.commit)
            if leading.active_us <= idle_before_us and leading.wants_quiet(idle_before_us):
                idle.setdefault(names, []).append(line)
            elif names in bundles:
                bundles[names].append(line)
            else:
                bundles[names] = [line]
        lines: dict[str, list[Line]] = {}
        quiet: dict[str, list[Line]] = {}
        for leading in self.host.leading_quietly.values():
            for peer in leading.names:
                lines[peer] = []
        _deal(bundles, lines)
        if idle:
            _deal(idle, quiet)
        self._sequence += 1
        sends: list[SendToNode | OfGroup] = []
        for peer in sorted({*lines, *quiet}):
            beat = Beat(self.host.life, self._sequence, lines.get(peer, []), quiet.get(peer, []))
            self._neighbour(peer).sent.append((beat, now_us))
            sends.append(SendToNode(peer, beat))
        return sends + self._look_for_silence(now_us)

    def answered(self, sender: str, answer: BeatAnswer, now_us: int) -> list[SendToNode | OfGroup]:
        """All groups of that beat are well, but for those that are named."""
        neighbour = self._neighbour(sender)
        neighbour.heard_us = now_us
        neighbour.is_silent = False
        found = self._sent_to(neighbour, answer)
        if found is None:
            return []
        beat, sent_us = found
        apart = dict(answer.apart)
        effects: list[SendToNode | OfGroup] = []
        leadings: dict[int, Leading] = self.host.leading
        for number, term, _ in chain(beat.lines, beat.quiet):
            leading = leadings.get(number)
            if leading is None or leading.group.term != term or number in apart:
                continue
            progress = leading.peers.get(sender)
            if progress is None:
                continue
            progress.heard_us = now_us
            if progress.matched != leading.group.outline.last or leading.reads.is_waiting:
                self._add(effects, number, leading.beat_answered(progress, now_us))
        for number in answer.behind:
            leading = leadings.get(number)
            if leading is not None and number not in apart:
                self._add(effects, number, leading.is_behind(sender, now_us))
        for number, term in answer.apart:
            if term and number in self.groups and self._has_a_say(sender, self.groups[number]):
                self._tell(effects, number, Heard(sender, Outdated(term)), now_us)
        if beat.quiet:
            awake = {*apart, *answer.awake}
            agreed = [line for line in beat.quiet if line[0] not in awake]
            self._fall_quiet(sender, agreed, sent_us, now_us)
        return effects

    def _sent_to(self, neighbour: Neighbour, answer: BeatAnswer) -> tuple[Beat, int] | None:
        if answer.life != self.host.life:
            return None
        for each in reversed(neighbour.sent):  # most answers are to the last one
            if each[0].sequence == answer.sequence:
                return each
        return None

    def _fall_quiet(self, sender: str, agreed: list[Line], sent_us: int, now_us: int) -> None:
        idle_before_us = now_us - self.host.settings.idle_us
        for number, _, _ in agreed:
            leading: Leading | None = self.host.leading.get(number)
            if leading is None or sender not in leading.peers:
                continue
            if leading.active_us >= sent_us:
                continue  # something has happened since; the next beat asks again
            leading.peers[sender].agreed_us = leading.active_us
            if leading.wants_quiet(idle_before_us) and leading.all_agree:
                self.groups[number].lead_quietly()

    # --- beats of others -------------------------------------------------------------------------

    def heard(self, sender: str, beat: Beat, now_us: int) -> list[SendToNode | OfGroup]:
        neighbour = self._neighbour(sender)
        known = neighbour.life
        if known is not None and beat.life < known:
            return []
        neighbour.heard_us = now_us
        neighbour.is_silent = False
        effects: list[SendToNode | OfGroup] = []
        if known not in (None, beat.life):
            effects += self.link_lost(sender, now_us, process_gone=True)
        neighbour.life = beat.life
        answer = BeatAnswer(beat.life, beat.sequence, [], [], [])
        groups = self.groups
        for number, term, commit in beat.lines:
            raft = groups.get(number)
            if raft is None or not raft.beat(sender, term, commit, now_us):
                self._look_closer(effects, answer, sender, (number, term, commit), now_us)
        for number, term, commit in beat.quiet:
            raft = groups.get(number)
            if raft is None or not raft.fall_quiet(sender, term, commit):
                answer.awake.append(number)
                self._look_closer(effects, answer, sender, (number, term, commit), now_us)
        return [*effects, SendToNode(sender, answer)]

    def _look_closer(
        self,
        effects: list[SendToNode | OfGroup],
        answer: BeatAnswer,
        sender: str,
        line: Line,
        now_us: int,
    ) -> None:
        """A line that brings something new, or that is wrong here."""
        number, term, commit = line
        raft = self.groups.get(number)
        if raft is None or not self._has_a_say(sender, raft):
            answer.apart.append((number, 0))
        elif raft.group.term > term:
            answer.apart.append((number, raft.group.term))
        else:
            self._tell(effects, number, Heard(sender, Heartbeat(term, commit)), now_us)
            if raft.group.commit < commit:
                answer.behind.append(number)

    def _has_a_say(self, sender: str, raft: Raft) -> bool:
        if self.believes(raft.group.id, sender):
            return True
        self.strange.append(raft.group.id)
        return False

    # --- silence ---------------------------------------------------------------------------------

    def link_lost(
        self, peer: str, now_us: int, *, process_gone: bool = False
    ) -> list[SendToNode | OfGroup]:
        """Tell all groups; it concerns those that follow this peer, or are led here with it."""
        effects: list[SendToNode | OfGroup] = []
        for number in self.groups:
            self._tell(effects, number, LinkLost(peer, process_gone), now_us)
        return effects

    def stalled(self, for_us: int, now_us: int) -> list[SendToNode | OfGroup]:
        """This node stood still: nobody was silent, and all groups are told."""
        for neighbour in self._neighbours.values():
            if neighbour.heard_us != LONG_AGO:
                neighbour.heard_us = now_us
        effects: list[SendToNode | OfGroup] = []
        for number in self.groups:
            self._tell(effects, number, Stalled(for_us), now_us)
        return effects

    def is_silent(self, peer: str) -> bool:
        """Whether nothing was heard of it for the least election timeout, or ever."""
        neighbour = self._neighbour(peer)
        return neighbour.is_silent or neighbour.heard_us == LONG_AGO

    def _look_for_silence(self, now_us: int) -> list[SendToNode | OfGroup]:
        effects: list[SendToNode | OfGroup] = []
        since_us = now_us - self.host.settings.election_us
        for peer, neighbour in self._neighbours.items():
            if LONG_AGO < neighbour.heard_us < since_us and not neighbour.is_silent:
                neighbour.is_silent = True
                effects += self.link_lost(peer, now_us)
        return effects

    def heard_us(self, peer: str) -> int:
        """When the node was last heard of, by its beats and answers to beats; LONG_AGO: never."""
        known = self._neighbours.get(peer)
        return LONG_AGO if known is None else known.heard_us

    # --- small things ----------------------------------------------------------------------------

    def _neighbour(self, peer: str) -> Neighbour:
        known = self._neighbours.get(peer)
        if known is None:
            known = self._neighbours[peer] = Neighbour()
        return known

    def _tell(
        self, effects: list[SendToNode | OfGroup], number: int, event: Event, now_us: int
    ) -> None:
        self._add(effects, number, self.groups[number].step(event, now_us))

    @staticmethod
    def _add(effects: list[SendToNode | OfGroup], number: int, more: list[Effect]) -> None:
        if more:
            effects.append(OfGroup(number, more))


def _deal(bundles: dict[tuple[str, ...], list[Line]], lines: dict[str, list[Line]]) -> None:
    """The lines of groups with the same peers, to each of them."""
    for names, bundle in bundles.items():
        for peer in names:
            lines.setdefault(peer, []).extend(bundle)
