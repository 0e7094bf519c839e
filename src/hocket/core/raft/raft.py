"""One group at one node: it is told events, and answers with the effects that it wants.

Rule 1: the same events give the same effects. Raft is told the time, and the driver draws the
        chance (`Arm.jitter_us`).
Rule 2: a newer term makes a follower of everybody; an older one is answered with the newer, or not
        at all (paper 5.1). Two exceptions: who is bound to a leader lets candidates be
        (dissertation 4.2.3), and a pre-vote changes nobody's term (9.6).
Rule 3: term and vote are durable before anything that follows from them (`PersistVote` is first).
Rule 4: no timer runs for each group while all is well: an election timer that runs out is set anew
        if the leader was heard meanwhile, and a group that is quiet has none.
Rule 5: attributes may be read from anywhere. They change in the file of their own class, or by the
        functions of `following` and `elections`, which `Raft` calls; `Pulse` tells `Raft`.

`Raft` dispatches and changes roles. What a leader does is in `leading`, what a follower does in
`following`, how one becomes the other in `elections`. docs/internals/raft.md tells it beside the
paper.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from hocket.core.raft import elections, following
from hocket.core.raft.elections import Candidacy
from hocket.core.raft.events import (
    Appended,
    Arm,
    Committed,
    Compacted,
    Due,
    Effect,
    Event,
    Flushed,
    Follows,
    Heard,
    LinkLost,
    PersistVote,
    Propose,
    ReadAsked,
    ReadReady,
    Refused,
    Send,
    Stalled,
    Started,
    Timer,
    Transfer,
)
from hocket.core.raft.group import LONG_AGO, NOBODY, Group, Host, Saved
from hocket.core.raft.leading import Leading
from hocket.core.raft.messages import (
    Accepted,
    AskRead,
    AskVote,
    CampaignNow,
    Confirm,
    Confirmed,
    Entries,
    Heartbeat,
    Outdated,
    ReadIs,
    Rejected,
    Snapshot,
    VoteIs,
)
from hocket.core.raft.reading import Forwarded, Read
from hocket.core.raft.roles import Cause, Role

_BY_LEADERS = (Entries, Snapshot, Heartbeat, CampaignNow, Confirm)

NO_LEADER = "no leader is known: try again"
NOT_LEADER = "this node does not lead the group: ask the leader"


class Raft:
    """See the head of the file."""

    __slots__ = ("_candidacy", "_forwarded", "group", "leading")

    def __init__(self, host: Host, group_id: int, saved: Saved) -> None:
        self.group = Group(host, group_id, saved)
        self.leading: Leading | None = None
        self._candidacy: Candidacy | None = None
        self._forwarded: Forwarded | None = None

    @property
    def takes_entries(self) -> bool:
        """Whether entries may be appended here, for `Appended`."""
        return self.leading is not None and not self.leading.successor

    def step(self, event: Event, now_us: int) -> list[Effect]:
        """What is to be done about one event."""
        effects = self._handlers[type(event)](self, event, now_us)
        group = self.group
        if group.is_unsaved:
            group.is_unsaved = False
            effects.insert(0, PersistVote(group.term, group.vote))
        return effects

    def _started(self, _event: Started, _now_us: int) -> list[Effect]:
        group = self.group
        known: list[Effect] = []
        if group.commit > group.outline.start:
            known.append(Committed(group.commit))
        return [*known, self._await_leader()]

    # --- roles -----------------------------------------------------------------------------------

    def _await_leader(self) -> Effect:
        settings = self.group.host.settings
        return Arm(Timer.ELECTION, settings.election_us, settings.election_jitter_us)

    def _follow(self, cause: Cause, term: int, leader: str) -> list[Effect]:
        """Be a follower of this leader, or of none that is known."""
        group = self.group
        effects: list[Effect] = []
        waited = group.role is Role.FOLLOWER
        if self.leading is not None:
            effects += self.leading.drop_reads()
            self.leading = None
            group.host.leading.pop(group.id, None)
        self._candidacy = None
        group.become(cause)
        if term > group.term:
            group.take_term(term)
        effects += self._know_leader(leader)
        if not waited:
            effects.append(self._await_leader())
        return effects

    def _know_leader(self, leader: str) -> list[Effect]:
        group = self.group
        if leader == group.leader:
            return []
        group.leader = leader
        group.heard_us = LONG_AGO
        return [
            Follows(group.term, leader),
            *self._refuse_forwarded("the leader has changed: ask again"),
        ]

    def _step_down_if_over(self, effects: list[Effect]) -> list[Effect]:
        assert self.leading is not None
        if self.leading.over is not None:
            effects += self._follow(self.leading.over, self.group.term, NOBODY)
        return effects

    def _campaign(self, now_us: int, *, handed_over: bool = False) -> list[Effect]:
        group = self.group
        group.become(Cause.CALL if handed_over else Cause.SILENCE)
        effects = self._know_leader(NOBODY)
        effects.append(self._await_leader())
        if handed_over:
            return effects + self._stand(now_us, handed_over=True)
        self._candidacy = Candidacy(group, pre=True)
        if group.host.settings.pre_vote:
            effects += self._candidacy.ask(group)
            return effects + self._count(now_us)
        group.become(Cause.BACKING)
        return effects + self._stand(now_us)

    def _stand(self, now_us: int, *, handed_over: bool = False) -> list[Effect]:
        """Ask for votes in the next term."""
        group = self.group
        group.take_term(group.term + 1)
        group.give_vote(group.host.me)
        self._candidacy = Candidacy(group, pre=False, handed_over=handed_over)
        return self._candidacy.ask(group) + self._count(now_us)

    def _count(self, now_us: int) -> list[Effect]:
        assert self._candidacy is not None
        group = self.group
        won = self._candidacy.outcome(group)
        if won is None:
            return []
        if not won:
            return self._follow(Cause.REFUSAL, group.term, NOBODY)
        if group.role is Role.PRE_CANDIDATE:
            group.become(Cause.BACKING)
            return [self._await_leader(), *self._stand(now_us)]
        group.become(Cause.MAJORITY)
        self._candidacy = None
        group.leader = group.host.me
        self.leading = Leading(group, now_us)
        group.host.leading[group.id] = self.leading
        return self.leading.begin(now_us)

    # --- messages --------------------------------------------------------------------------------

    def _heard(self, event: Heard, now_us: int) -> list[Effect]:
        group = self.group
        sender, message = event.sender, event.message
        effects: list[Effect] = []
        if group.is_quiet:
            effects += self._wake(now_us)
            if sender == group.leader and isinstance(message, AskVote):
                effects += self._know_leader(NOBODY)  # it has begun a new life, and leads no more
        if message.term != group.term:
            proceed, more = self._of_another_term(sender, message, now_us)
            effects += more
            if not proceed:
                return effects
        if self.leading is not None and isinstance(message, _BY_LEADERS):
            return effects  # who leads beside us in our term has not been elected
        return effects + self._readers[type(message)](self, sender, message, now_us)

    def _of_another_term(self, sender: str, message: Any, now_us: int) -> tuple[bool, list[Effect]]:
        """Whether to read on, and what the term alone demands."""
        group = self.group
        term = message.term
        if isinstance(message, AskVote):
            if term < group.term:
                return False, [Send(sender, VoteIs(group.term, term, False, message.pre))]
            if not message.handed_over and group.is_bound(now_us):
                return False, []
            if message.pre:
                return True, []
        elif isinstance(message, VoteIs) and message.pre:
            if message.granted or term < group.term:
                return True, []  # it is of the term that was asked for, or counted as a refusal
        elif isinstance(message, ReadIs):
            return True, []  # it is as true as when it was sent; the term changes nothing
        elif term < group.term:
            if isinstance(message, _BY_LEADERS):
                return False, [Send(sender, Outdated(group.term))]
            return isinstance(message, AskRead), []  # who asks may be of an older term
        leader = sender if isinstance(message, (Entries, Snapshot, Heartbeat)) else NOBODY
        return True, self._follow(Cause.NEWER_TERM, term, leader)

    def _ask_vote(self, sender: str, message: AskVote, _now_us: int) -> list[Effect]:
        for_good, effects = elections.answer(self.group, sender, message)
        if for_good:
            effects.append(self._await_leader())
        return effects

    def _vote_is(self, sender: str, message: VoteIs, now_us: int) -> list[Effect]:
        if self._candidacy is None:
            return []
        self._candidacy.count(sender, message)
        return self._count(now_us)

    def _from_leader(self, sender: str, now_us: int) -> list[Effect]:
        """A leader of this term speaks."""
        group = self.group
        effects: list[Effect] = []
        if group.role is not Role.FOLLOWER:
            effects += self._follow(Cause.LEADER, group.term, sender)
        elif group.leader != sender:
            effects += self._know_leader(sender)
        group.heard_us = now_us
        return effects

    def _entries(self, sender: str, message: Entries, now_us: int) -> list[Effect]:
        effects = self._from_leader(sender, now_us)
        return effects + following.take_entries(self.group, message)

    def _snapshot(self, sender: str, message: Snapshot, now_us: int) -> list[Effect]:
        effects = self._from_leader(sender, now_us)
        return effects + following.take_snapshot(self.group, message)

    def _heartbeat(self, sender: str, message: Heartbeat, now_us: int) -> list[Effect]:
        effects = self._from_leader(sender, now_us)
        return effects + following.commit(self.group, message.commit)

    def _confirm(self, sender: str, message: Confirm, now_us: int) -> list[Effect]:
        effects = self._from_leader(sender, now_us)
        return [*effects, Send(sender, Confirmed(message.term, message.round))]

    def _campaign_now(self, _sender: str, _message: CampaignNow, now_us: int) -> list[Effect]:
        if not self.group.has_vote or self.group.role is not Role.FOLLOWER:
            return []
        return self._campaign(now_us, handed_over=True)

    def _outdated(self, _sender: str, _message: Outdated, _now_us: int) -> list[Effect]:
        return []

    def _accepted(self, sender: str, message: Accepted, now_us: int) -> list[Effect]:
        if self.leading is None:
            return []
        return self._step_down_if_over(self.leading.accepted(sender, message, now_us))

    def _rejected(self, sender: str, message: Rejected, now_us: int) -> list[Effect]:
        return [] if self.leading is None else self.leading.rejected(sender, message, now_us)

    def _confirmed(self, sender: str, message: Confirmed, now_us: int) -> list[Effect]:
        return [] if self.leading is None else self.leading.confirmed(sender, message, now_us)

    def _ask_read(self, sender: str, message: AskRead, now_us: int) -> list[Effect]:
        if self.leading is None:
            return [Send(sender, ReadIs(self.group.term, message.number, None))]
        return self.leading.read(Read(sender, None, message.number), now_us)

    def _read_is(self, _sender: str, message: ReadIs, _now_us: int) -> list[Effect]:
        asked = self._forwarded.take(message.number) if self._forwarded is not None else None
        if asked is None:
            return []
        if message.index is None:
            return [Refused(asked, NO_LEADER)]
        return [ReadReady(asked.token, message.index)]

    # --- the log, and what is asked for here -----------------------------------------------------

    def _appended(self, event: Appended, now_us: int) -> list[Effect]:
        assert self.leading is not None, "only a leader appends entries of its own"
        assert not self.leading.successor, "who hands its leadership over appends no more"
        woken = self._wake(now_us) if self.group.is_quiet else []
        return woken + self.leading.appended(event.last, now_us)

    def _flushed(self, event: Flushed, now_us: int) -> list[Effect]:
        group = self.group
        if not group.flushed(event.index, event.term):
            return []
        if self.leading is not None:
            return self._step_down_if_over(self.leading.flushed(now_us))
        return [following.accept(group)] if group.leader and group.stored else []

    def _compacted(self, event: Compacted, _now_us: int) -> list[Effect]:
        group = self.group
        assert event.index <= group.commit, (event.index, group.commit)
        if event.index > group.outline.start:
            group.outline.forget(event.index)
            group.snapshot_configuration = event.configuration
        return []

    def _propose(self, event: Propose, now_us: int) -> list[Effect]:
        if self.leading is None:
            return [Refused(event, NOT_LEADER)]
        woken = self._wake(now_us) if self.group.is_quiet else []
        return woken + self.leading.propose(event, now_us)

    def _read_asked(self, event: ReadAsked, now_us: int) -> list[Effect]:
        group = self.group
        woken = self._wake(now_us) if group.is_quiet else []
        if self.leading is not None:
            return woken + self.leading.read(Read(NOBODY, event.token), now_us)
        if not group.leader:
            return [*woken, Refused(event, NO_LEADER)]
        if self._forwarded is None:
            self._forwarded = Forwarded(group.host.life)
        question = AskRead(group.term, self._forwarded.add(event))
        return [*woken, Send(group.leader, question)]

    def _refuse_forwarded(self, reason: str) -> list[Effect]:
        dropped = self._forwarded.drop() if self._forwarded is not None else []
        return [Refused(asked, reason) for asked in dropped]

    def _ask_again(self) -> list[Effect]:
        """Reads that were handed on and not answered: the question or the answer may be lost."""
        group, forwarded = self.group, self._forwarded
        if forwarded is None:
            return []
        return [Send(group.leader, AskRead(group.term, each)) for each in forwarded.open()]

    def _transfer(self, event: Transfer, now_us: int) -> list[Effect]:
        if self.leading is None:
            return [Refused(event, NOT_LEADER)]
        woken = self._wake(now_us) if self.group.is_quiet else []
        return woken + self.leading.transfer(event, now_us)

    # --- time and links --------------------------------------------------------------------------

    def _due(self, event: Due, now_us: int) -> list[Effect]:
        if self.group.is_quiet:
            return []
        if event.timer is Timer.ELECTION:
            return [] if self.leading is not None else self._election_due(now_us)
        if self.leading is None:
            return []
        if event.timer is Timer.TRANSFER:
            return self.leading.transfer_due(now_us)
        return self._step_down_if_over(self.leading.quorum_due(now_us))

    def _election_due(self, now_us: int) -> list[Effect]:
        group = self.group
        settings = group.host.settings
        left_us = group.heard_us + settings.election_us - now_us
        if left_us > 0:
            armed = Arm(Timer.ELECTION, left_us, settings.election_jitter_us)
            return [armed, *self._ask_again()]
        if group.has_vote:
            return self._campaign(now_us)
        return [self._await_leader(), *self._refuse_forwarded("the leader is silent: ask again")]

    def _stalled(self, event: Stalled, now_us: int) -> list[Effect]:
        if self.group.is_quiet:
            return []
        if self.leading is not None:
            return self._step_down_if_over(self.leading.stalled(event.for_us, now_us))
        return [self._await_leader()]

    def _link_lost(self, event: LinkLost, now_us: int) -> list[Effect]:
        group = self.group
        if self.leading is not None:
            if event.peer not in self.leading.peers:
                return []
            self.leading.link_lost(event.peer)
            return self._wake(now_us) if group.is_quiet else []
        if event.peer != group.leader:
            return []
        was_quiet, group.is_quiet = group.is_quiet, False
        settings = group.host.settings
        if event.process_gone:
            wait_us = elections.rank(group, event.peer) * settings.stagger_us
            return [*self._know_leader(NOBODY), Arm(Timer.ELECTION, wait_us)]
        # A quiet group has no timer, and it is an election timeout that has passed.
        return [Arm(Timer.ELECTION, 0, settings.election_jitter_us)] if was_quiet else []

    # --- what `Pulse` tells ----------------------------------------------------------------------

    def beat(self, sender: str, term: int, commit: int, now_us: int) -> bool:
        """A heartbeat, if it is as usual and brings nothing new; else tell it as a message."""
        group = self.group
        if group.term != term or group.leader != sender or group.is_quiet or commit > group.commit:
            return False
        group.heard_us = now_us
        return True

    def fall_quiet(self, sender: str, term: int, commit: int) -> bool:
        """The leader has nothing to do; whether this follower agrees."""
        group = self.group
        agrees = (
            group.term == term
            and group.leader == sender
            and group.commit == commit == group.outline.last == group.outline.flushed
            and not (self._forwarded is not None and self._forwarded.open())
        )
        if agrees:
            group.is_quiet = True
        return agrees

    def lead_quietly(self) -> None:
        """All peers have agreed that there is nothing to do."""
        group = self.group
        group.is_quiet = True
        group.host.leading_quietly[group.id] = group.host.leading.pop(group.id)

    def _wake(self, now_us: int) -> list[Effect]:
        group = self.group
        group.is_quiet = False
        if self.leading is not None:
            group.host.leading[group.id] = group.host.leading_quietly.pop(group.id)
            return self.leading.wake(now_us)
        group.heard_us = now_us
        return [self._await_leader()]

    _handlers: ClassVar[dict[type, Callable[[Any, Any, int], list[Effect]]]] = {
        Started: _started,
        Appended: _appended,
        Flushed: _flushed,
        Heard: _heard,
        Due: _due,
        Stalled: _stalled,
        LinkLost: _link_lost,
        Propose: _propose,
        ReadAsked: _read_asked,
        Transfer: _transfer,
        Compacted: _compacted,
    }
    _readers: ClassVar[dict[type, Callable[[Any, str, Any, int], list[Effect]]]] = {
        AskVote: _ask_vote,
        VoteIs: _vote_is,
        Entries: _entries,
        Accepted: _accepted,
        Rejected: _rejected,
        Snapshot: _snapshot,
        Heartbeat: _heartbeat,
        Outdated: _outdated,
        CampaignNow: _campaign_now,
        Confirm: _confirm,
        Confirmed: _confirmed,
        AskRead: _ask_read,
        ReadIs: _read_is,
    }
