"""What a leader does: replicate, commit, change the membership, confirm reads, hand over.

Rule 1: an entry is committed when a majority of each half has flushed it, the leader counted like
        all others, and it is of the leader's own term; then everything before it is (paper 5.4.2).
Rule 2: no change of the membership before the leader has committed an entry of its term, none while
        another is under way, none during a transfer.
Rule 3: peers are walked in the order of their ids, so that the same events give the same effects.
Rule 4: a leader never cuts its own log.

`over` says why this leadership has ended; `Raft` then makes a follower of this node.
"""

from __future__ import annotations

from hocket.core.raft import quorum
from hocket.core.raft.events import (
    Arm,
    Effect,
    Enter,
    Leads,
    Propose,
    ReadAsked,
    ReadReady,
    Refused,
    Send,
    SendEntries,
    Timer,
    Transfer,
)
from hocket.core.raft.group import NOBODY, Group
from hocket.core.raft.membership import Configuration
from hocket.core.raft.messages import (
    Accepted,
    CampaignNow,
    Confirm,
    Confirmed,
    Heartbeat,
    ReadIs,
    Rejected,
    Snapshot,
)
from hocket.core.raft.progress import Pace, Progress
from hocket.core.raft.reading import Read, Reads
from hocket.core.raft.roles import Cause

NOT_YET = "the leader has not committed an entry of its own term yet: try again"
HANDING_OVER = "the leadership is being handed over: ask the next leader"
CHANGING = "another change of the membership is under way: wait until it is in force"
NOT_A_VOTER = "{} is no voter of the group: name one of its voters"


class Leading:
    """The leadership of one term."""

    __slots__ = (
        "_halves",
        "_since_us",
        "active_us",
        "first",
        "group",
        "names",
        "others",
        "over",
        "own",
        "peers",
        "reads",
        "successor",
    )

    def __init__(self, group: Group, now_us: int) -> None:
        self.group = group
        self.first = group.outline.last + 1  # the empty entry: what follows is of our term
        self.own = Progress(group.host.me, self.first)
        self.own.matched = group.outline.flushed
        self.peers: dict[str, Progress] = {}  # all members but this node, in the order of their ids
        self.names: tuple[str, ...] = ()  # the same
        self.others: tuple[Progress, ...] = ()  # the same
        self._halves: list[list[Progress]] = []
        self.reads = Reads()
        self.successor = NOBODY  # to whom the leadership is being handed over
        self.active_us = now_us  # when there was last something to do
        self.over: Cause | None = None
        self._since_us = now_us  # since when answers count for the next check of the quorum
        self._know(group.configuration)

    def begin(self, now_us: int) -> list[Effect]:
        group = self.group
        effects: list[Effect] = [Leads(group.term, self.first)]
        self._enter(None, effects, now_us)
        effects.append(Arm(Timer.QUORUM, group.host.settings.election_us))
        return effects

    def _know(self, configuration: Configuration) -> None:
        following = self.group.outline.last + 1
        me, known = self.group.host.me, self.peers
        self.peers = {
            peer: known.get(peer) or Progress(peer, following)
            for peer in configuration.members
            if peer != me
        }
        self.names = tuple(self.peers)
        self.others = tuple(self.peers.values())
        everybody = {**self.peers, me: self.own}
        self._halves = [[everybody[peer] for peer in half] for half in configuration.halves]

    @property
    def has_committed(self) -> bool:
        """Whether an entry of this term is committed."""
        return self.group.commit >= self.first

    # --- entries ---------------------------------------------------------------------------------

    def appended(self, last: int, now_us: int) -> list[Effect]:
        group = self.group
        assert last > group.outline.last, (last, group.outline.last)
        group.outline.add(last, group.term)
        self.active_us = now_us
        effects: list[Effect] = []
        for progress in self.others:
            self._send(progress, effects, now_us)
        return effects

    def _enter(
        self, configuration: Configuration | None, effects: list[Effect], now_us: int
    ) -> None:
        group = self.group
        index = group.outline.last + 1
        if configuration is not None:
            group.changes += ((index, configuration),)
        effects.append(Enter(index, group.term, configuration))
        effects += self.appended(index, now_us)

    def _send(self, progress: Progress, effects: list[Effect], now_us: int) -> None:
        """Send what there is, as far as may be in flight."""
        group = self.group
        outline, settings = group.outline, group.host.settings
        if progress.pace is Pace.INSTALLING:
            return
        if progress.next <= outline.start:
            self._send_snapshot(progress, effects, now_us)
            return
        if progress.pace is Pace.PROBING:
            if not progress.waits:
                self._send_run(progress, effects)
            return
        while progress.next <= outline.last and len(progress.in_flight) < settings.in_flight_max:
            self._send_run(progress, effects)

    def _send_run(self, progress: Progress, effects: list[Effect]) -> None:
        group = self.group
        outline, first = group.outline, progress.next
        last = min(outline.last, first + group.host.settings.entries_max - 1)
        before = outline.term_of(first - 1) if first <= self.first else group.term
        effects.append(SendEntries(progress.peer, first, last, before, group.term, group.commit))
        progress.sent(last)

    def _probe(self, progress: Progress, effects: list[Effect], now_us: int) -> None:
        """Ask whether what was sent has come, without sending it again."""
        group = self.group
        if progress.next <= group.outline.start:  # it is gone meanwhile, and cannot be asked about
            self._send_snapshot(progress, effects, now_us)
            return
        first, last = progress.next, progress.next - 1
        term = group.outline.term_of(last)
        effects.append(SendEntries(progress.peer, first, last, term, group.term, group.commit))

    def _send_snapshot(self, progress: Progress, effects: list[Effect], now_us: int) -> None:
        group = self.group
        index = group.outline.start
        progress.install(index, now_us)
        snapshot = Snapshot(
            group.term, index, group.outline.term_of(index), group.snapshot_configuration
        )
        effects.append(Send(progress.peer, snapshot))

    # --- what peers say --------------------------------------------------------------------------

    def accepted(self, sender: str, message: Accepted, now_us: int) -> list[Effect]:
        progress = self.peers.get(sender)
        effects: list[Effect] = []
        if progress is None:
            return effects
        progress.heard_us = now_us
        if progress.accepted(message.stored, message.flushed):
            if progress.matched > self.group.commit:
                self._advance(effects, now_us)
            if self.over is not None:
                return effects
            if sender == self.successor:
                self._call_successor(effects)
        if progress.next <= self.group.outline.last:
            self._send(progress, effects, now_us)
        return effects

    def rejected(self, sender: str, message: Rejected, now_us: int) -> list[Effect]:
        progress = self.peers.get(sender)
        effects: list[Effect] = []
        if progress is None:
            return effects
        progress.heard_us = now_us
        if progress.pace is Pace.INSTALLING and not self._is_overdue(progress, now_us):
            return effects  # the snapshot is on its way
        # Where the logs may agree, by terms. Lower each time, so that this comes to an end; at or
        # below our first entry there is no telling, and a snapshot is sent.
        agreed = self.group.outline.last_before(message.last, message.last_term)
        following = min(agreed + 1, message.last + 1, message.previous)
        if progress.rejected(message.previous, following):
            self._send(progress, effects, now_us)
        return effects

    def _is_overdue(self, progress: Progress, now_us: int) -> bool:
        return now_us >= progress.sent_us + self.group.host.settings.snapshot_us

    def beat_answered(self, progress: Progress, now_us: int) -> list[Effect]:
        """It has answered a heartbeat, though entries or reads are open: were messages lost?"""
        effects: list[Effect] = []
        if self.reads.is_waiting:
            effects.append(Send(progress.peer, Confirm(self.group.term, self.reads.round)))
        if progress.pace is Pace.PROBING:
            progress.waits = False
            self._send(progress, effects, now_us)
        elif progress.pace is Pace.INSTALLING and progress.next <= self.group.outline.start:
            if self._is_overdue(progress, now_us):  # and of no use any more: there is a newer one
                self._send_snapshot(progress, effects, now_us)
        elif progress.matched == progress.answered < self.group.outline.last:
            self._probe(progress, effects, now_us)  # nothing has come since the heartbeat before
        progress.answered = progress.matched
        return effects

    def is_behind(self, peer: str, now_us: int) -> list[Effect]:
        """It cannot commit what we have: if it has everything, it has begun a new life since."""
        effects: list[Effect] = []
        progress = self.peers.get(peer)
        if progress is not None and progress.matched == self.group.outline.last:
            progress.probe(progress.matched + 1)  # it may have lost what was durable there
            self._send(progress, effects, now_us)
        return effects

    def link_lost(self, peer: str) -> None:
        """What is under way to it may be lost; the next entry or heartbeat asks for it."""
        progress = self.peers.get(peer)
        if progress is not None:
            progress.probe(progress.matched + 1)

    # --- commit ----------------------------------------------------------------------------------

    def flushed(self, now_us: int) -> list[Effect]:
        self.own.matched = self.group.outline.flushed
        effects: list[Effect] = []
        self._advance(effects, now_us)
        return effects

    def _advance(self, effects: list[Effect], now_us: int) -> None:
        """Commit what a majority of each half has flushed, if it is of this term."""
        group = self.group
        while True:
            index = min(
                quorum.reached([progress.matched for progress in half]) for half in self._halves
            )
            if index <= group.commit or index < self.first:
                break
            if group.commit_through(index, effects):
                self._reconfigure(effects, now_us)
                if self.over is not None:
                    return
                self._answer_reads(effects)  # fewer may be a majority now
            for read in self.reads.take_early():
                self.reads.take(read, group.commit)
            self._confirm(effects)
        self._leave_by_itself(effects, now_us)

    # --- membership ------------------------------------------------------------------------------

    def propose(self, asked: Propose, now_us: int) -> list[Effect]:
        configuration = self.group.configuration
        following: Configuration | str
        if self.successor:
            following = HANDING_OVER
        elif not self.has_committed:
            following = NOT_YET
        elif self.group.changes:
            following = CHANGING
        elif asked.voters is None:
            following = configuration.left()
        else:
            following = configuration.changed(asked.voters, asked.learners, asked.mode)
        if isinstance(following, str):
            return [Refused(asked, following)]
        effects: list[Effect] = []
        self._enter(following, effects, now_us)
        return effects

    def _reconfigure(self, effects: list[Effect], now_us: int) -> None:
        """Another configuration is in force."""
        group, before = self.group, self.peers
        self._know(group.configuration)
        gone = [peer for peer in before if peer not in self.peers]
        if not group.has_vote:
            # Whoever has the entry learns that it is committed: from nobody else for some time.
            effects += self._say_heartbeat((*self.peers, *gone))
            self.over = Cause.NO_VOTE
            return
        effects += self._say_heartbeat(gone)  # they learn that they may go
        if self.successor and not group.configuration.has_vote(self.successor):
            self.successor = NOBODY
        for peer, progress in self.peers.items():
            if peer not in before:
                self._send(progress, effects, now_us)

    def _say_heartbeat(self, peers: tuple[str, ...] | list[str]) -> list[Effect]:
        return [Send(peer, Heartbeat(self.group.term, self.group.commit)) for peer in peers]

    def _leave_by_itself(self, effects: list[Effect], now_us: int) -> None:
        """Leave a joint configuration that is in force, if that is to be done unasked."""
        configuration = self.group.configuration
        if not configuration.leaves_by_itself or self.group.changes or self.successor:
            return
        if self.has_committed:
            following = configuration.left()
            assert isinstance(following, Configuration)
            self._enter(following, effects, now_us)

    # --- reads -----------------------------------------------------------------------------------

    def read(self, read: Read, now_us: int) -> list[Effect]:
        self.active_us = now_us
        effects: list[Effect] = []
        if not self.has_committed:
            self.reads.postpone(read)
        else:
            self.reads.take(read, self.group.commit)
            self._confirm(effects)
        return effects

    def _confirm(self, effects: list[Effect]) -> None:
        """Begin a round of confirmations, if reads wait and none is under way."""
        while self.reads.begin():
            self.own.confirmed = self.reads.round
            question = Confirm(self.group.term, self.reads.round)
            me = self.group.host.me
            effects += (
                Send(voter, question)
                for voter in self.group.configuration.all_voters
                if voter != me
            )
            self._answer_reads(effects)  # alone, one is a majority

    def confirmed(self, sender: str, message: Confirmed, now_us: int) -> list[Effect]:
        progress = self.peers.get(sender)
        effects: list[Effect] = []
        if progress is None:
            return effects
        progress.heard_us = now_us
        if message.round > progress.confirmed:
            progress.confirmed = message.round
            self._answer_reads(effects)
            self._confirm(effects)
        return effects

    def _answer_reads(self, effects: list[Effect]) -> None:
        confirmed = min(
            quorum.reached([progress.confirmed for progress in half]) for half in self._halves
        )
        if confirmed < self.reads.round:
            return
        term = self.group.term
        for read in self.reads.confirmed():
            if read.asker:
                effects.append(Send(read.asker, ReadIs(term, read.number, read.index)))
            else:
                effects.append(ReadReady(read.token, read.index))

    def drop_reads(self) -> list[Effect]:
        """This leadership is over: who asked, asks elsewhere."""
        term = self.group.term
        return [
            Send(read.asker, ReadIs(term, read.number, None))
            if read.asker
            else Refused(ReadAsked(read.token), "this node leads no more: ask again")
            for read in self.reads.drop()
        ]

    # --- handing over ----------------------------------------------------------------------------

    def transfer(self, asked: Transfer, now_us: int) -> list[Effect]:
        """Bring the successor up to date, then have it campaign at once (dissertation 3.10)."""
        to = asked.to
        if to == self.group.host.me or to == self.successor:
            return []
        if not self.group.configuration.has_vote(to):
            return [Refused(asked, NOT_A_VOTER.format(to))]
        self.successor = to
        self.active_us = now_us
        effects: list[Effect] = [Arm(Timer.TRANSFER, self.group.host.settings.election_us)]
        self._call_successor(effects)
        return effects

    def _call_successor(self, effects: list[Effect]) -> None:
        """Not before all that we have is durable there: else it could not win."""
        if self.peers[self.successor].matched == self.group.outline.last:
            effects.append(Send(self.successor, CampaignNow(self.group.term)))

    def transfer_due(self, now_us: int) -> list[Effect]:
        """The successor has not taken over in time: go on as before."""
        self.successor = NOBODY
        effects: list[Effect] = []
        self._leave_by_itself(effects, now_us)
        return effects

    # --- time ------------------------------------------------------------------------------------

    def quorum_due(self, now_us: int) -> list[Effect]:
        """Step down if no majority of each half has answered since the last time."""
        settings = self.group.host.settings
        heard = {peer: True for peer, each in self.peers.items() if each.heard_us >= self._since_us}
        heard[self.group.host.me] = True
        self._since_us = now_us
        if settings.check_quorum and not quorum.outcome(self.group.configuration.halves, heard):
            self.over = Cause.NO_QUORUM
            return []
        return [Arm(Timer.QUORUM, settings.election_us)]

    def stalled(self, for_us: int, now_us: int) -> list[Effect]:
        """Answers that have not been read yet count; after too long another may lead, if there is
        another voter."""
        group, settings = self.group, self.group.host.settings
        if for_us >= settings.stall_us_max and group.configuration.all_voters != (group.host.me,):
            self.over = Cause.STALL
            return []
        self._since_us = now_us
        return [Arm(Timer.QUORUM, settings.election_us)]

    def wake(self, now_us: int) -> list[Effect]:
        """Beat again; what was heard of others while the group was quiet says nothing."""
        self.active_us = self._since_us = now_us
        return [Arm(Timer.QUORUM, self.group.host.settings.election_us)]

    def wants_quiet(self, idle_before_us: int) -> bool:
        """Whether there is nothing to do, and has not been for some time."""
        last = self.group.outline.last
        return (
            self.active_us <= idle_before_us
            and self.group.commit == last
            and not self.reads.is_waiting
            and not self.successor
            and all(progress.matched == last for progress in self.others)
        )

    @property
    def all_agree(self) -> bool:
        """Whether all peers have agreed to be quiet since there was last something to do."""
        return all(progress.agreed_us == self.active_us for progress in self.others)
