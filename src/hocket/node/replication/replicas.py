"""All groups of this node that several nodes keep: their beat, their mail, and what befalls nodes.

Rule 1: what all groups have to say to another node in a turn is one message (`mail.RaftMail`).
Rule 2: a node speaks for itself only: who a message is from is what its link says. A message from a
        store that is no member of the group is dropped and counted.
Rule 3: time never goes back here, whatever the clock does.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from hocket.core.raft.events import OfGroup, SendToNode
from hocket.core.raft.group import LONG_AGO, Host
from hocket.core.raft.messages import Beat, CampaignNow
from hocket.core.raft.pulse import Pulse
from hocket.core.raft.settings import RaftSettings
from hocket.core.ring.contact import Contact
from hocket.errors import HocketError
from hocket.log.store import LogStore
from hocket.node.raft_mail import (
    ROWS_MAX,
    Letter,
    Piece,
    RaftBeat,
    RaftBeatAnswer,
    RaftMail,
    ReplicationMessage,
    opened,
    opened_beat,
    packed_beat,
    row_of,
)
from hocket.node.replication.full_disk import FullDisk
from hocket.node.replication.homecoming import Homecoming
from hocket.node.replication.replica import Replica
from hocket.node.running.hooks import OnSent
from hocket.ports import Cancellable, Clock, Links, Timers

log = logging.getLogger("hocket.replication")
MARK_US = 1_000_000  # what a leader has is noted so often, to say who lacks what it had before
SILENT_US = 3_000_000  # six beats: a node that was not heard for so long may have nothing
MAIL_BYTES_MAX = 4 << 20  # of payload; a single message may have more
COMPLAINTS_MAX = 100  # of nodes that say what they may not; each is made once
REASONS_MAX = 1_000  # that are counted by themselves


class Replicas:
    def __init__(
        self,
        me: str,
        life: int,
        store: LogStore,
        *,
        contact: Callable[[], Contact],
        contact_of: Callable[[str], Contact | None],
        clock: Clock,
        timers: Timers,
        links: Links,
        chance: Random,
        settings: RaftSettings | None = None,
    ) -> None:
        self.host = Host(me, life, settings or RaftSettings())
        self.log = store
        self.on_stored: Callable[[int], None] | None = None  # for metrics: how long it took, in us
        self.on_sent: OnSent | None = None  # for traces
        self.refused: Counter[str] = Counter()  # messages that were dropped, by reason
        self.homecoming = Homecoming(self)
        self.full_disk = FullDisk(self, store)
        # By group: a node that leads it, as others say that were asked. What this node has of the
        # log may be too old to have it among the members.
        self.named: dict[int, str] = {}
        self._pulse = Pulse(self.host)
        self._pulse.believes = self._believes
        self._replicas: dict[int, Replica[Any]] = {}
        self._contact = contact
        self._contact_of = contact_of  # of a store id; None: it belongs to the cluster no more
        self._clock = clock
        self._timers = timers
        self._links = links
        self._chance = chance
        self.letters: dict[str, list[Letter]] = {}  # by store id, of this turn
        self.untold: list[Replica[Any]] = []  # they have appended, and Raft does not know yet
        self._complaints: set[tuple[str, str]] = set()
        self._lives: dict[str, int] = {}  # of other nodes, as they spoke last
        self._told_us = 0
        self._set_back_us = 0
        self._beat_timer: Cancellable | None = None
        self._beat_due_us = 0
        self._marked_us = 0
        self._closed = False
        self.changes = 0  # of the set of groups that this node takes part in

    def __contains__(self, group: int) -> bool:
        return group in self._replicas

    def __iter__(self) -> Iterator[Replica[Any]]:
        return iter(self._replicas.values())

    def get(self, group: int) -> Replica[Any] | None:
        return self._replicas.get(group)

    def add(self, replica: Replica[Any]) -> None:
        """Begin to take part in the group."""
        self._replicas[replica.group] = replica
        self.changes += 1
        self._pulse.add(replica.raft)
        replica.start()
        if self._beat_timer is None:
            self._beat_later()

    def remove(self, group: int) -> None:
        replica = self._replicas.pop(group, None)
        if replica is not None:
            self.changes += 1
            replica.close()
            self._pulse.remove(group)
            self.homecoming.homes.pop(group, None)
            self.full_disk.forget(group)

    def close(self) -> None:
        self._closed = True
        if self._beat_timer is not None:
            self._beat_timer.cancel()
        for replica in self._replicas.values():
            replica.close()

    # --- what replicas need (see replica.Surroundings) --------------------------------------------

    def now_us(self) -> int:
        now_us = self._clock.now_us() + self._set_back_us
        if now_us < self._told_us:
            self._set_back_us += self._told_us - now_us
            now_us = self._told_us
        self._told_us = now_us
        return now_us

    def after(self, delay_us: int, jitter_us: int, action: Callable[[], None]) -> Cancellable:
        if jitter_us:
            delay_us += self._chance.randrange(jitter_us)
        return self._timers.after(delay_us, action)

    def post(self, to: str, letter: Letter) -> None:
        self.letters.setdefault(to, []).append(letter)

    def touched(self, replica: Replica[Any]) -> None:
        self.untold.append(replica)

    def stopped(self, replica: Replica[Any]) -> None:
        self._pulse.remove(replica.group)  # else it would go on to beat

    # --- the turn --------------------------------------------------------------------------------

    def end_turn(self) -> None:
        """Tell Raft what was appended, and send what is to be said."""
        if self.untold:
            self._tell_appended()
        if self.full_disk.lacking:
            self.full_disk.hand_over(self.now_us())
        if self.letters:
            self.send_mail()

    def _tell_appended(self) -> None:
        while self.untold:
            self.untold.pop().tell_appended()

    def send_mail(self) -> None:
        if not self.letters:
            return
        letters, self.letters = self.letters, {}
        for to, each in letters.items():
            contact = self._contact_of(to)
            if contact is None:
                continue
            for mail in _mails(each):
                self._links.send(self._contact(), contact, mail)

    def flushed(self, group: int) -> None:
        self._replicas[group].flushed()

    # --- other nodes -----------------------------------------------------------------------------

    def heard(self, sender: Contact, message: ReplicationMessage) -> None:
        is_new = self._lives.get(sender.node) != sender.incarnation
        if is_new and self._contact_of(sender.node) is not None:
            # Whatever was on its way to its former life is lost: a state is not waited for.
            self._lives[sender.node] = sender.incarnation
            self.link_lost(sender.node, process_gone=False)
        try:
            if isinstance(message, RaftMail):
                for letter in opened(message):
                    self._deliver(sender.node, letter)
            else:
                self._heard_beat(sender.node, message)
        except HocketError as error:
            self._refuse(sender.node, str(error))

    def _deliver(self, sender: str, letter: Letter) -> None:
        replica = self._replicas.get(letter.group)
        if replica is None:  # not yet, or no more: that is nothing to warn of
            self._refuse(sender, "it speaks of a group that is not here", logging.DEBUG)
        elif not self._believes(letter.group, sender):
            self._refuse_stranger(sender, letter.group)
        elif not isinstance(letter.message, CampaignNow) or self.full_disk.may_take_over(
            letter.group
        ):
            replica.heard(sender, letter)

    def _believes(self, number: int, sender: str) -> bool:
        """Whether what this node says of the group counts."""
        group = self._replicas[number].raft.group
        return sender in (group.leader, self.named.get(number)) or group.knows(sender)

    def _refuse_stranger(self, sender: str, number: int) -> None:
        # A node that is new, and has yet to ask who leads, has nothing to warn of.
        is_new = not self._replicas[number].raft.group.configuration.members
        level = logging.DEBUG if is_new else logging.WARNING
        self._refuse(sender, f"it is no member of group {number}", level)

    def _heard_beat(self, sender: str, message: RaftBeat | RaftBeatAnswer) -> None:
        beat = opened_beat(message)
        if self.untold:
            self._tell_appended()
        now_us = self.now_us()
        if isinstance(beat, Beat):
            self._carry_out(self._pulse.heard(sender, beat, now_us))
        else:
            self._carry_out(self._pulse.answered(sender, beat, now_us))
        if self._pulse.strange:
            strange, self._pulse.strange = self._pulse.strange, []
            for group in strange:
                self._refuse_stranger(sender, group)

    def _refuse(self, sender: str, why: str, level: int = logging.WARNING) -> None:
        if len(self.refused) < REASONS_MAX or why[:80] in self.refused:
            self.refused[why[:80]] += 1
        else:
            self.refused["for other reasons"] += 1
        if (sender, why) not in self._complaints and len(self._complaints) < COMPLAINTS_MAX:
            self._complaints.add((sender, why))
            log.log(level, "refused what node %s says: %s", sender, why)

    def link_lost(self, node: str, *, process_gone: bool) -> None:
        self._tell_appended()
        if self._replicas:
            self._carry_out(self._pulse.link_lost(node, self.now_us(), process_gone=process_gone))

    def is_silent(self, peer: str) -> bool:
        return self._pulse.is_silent(peer)

    def has_answered_lately(self, peer: str) -> bool:
        """Whether it was heard of within two beats. That a node is dead is known later: it is
        silent after four beats, and given up by the ring after some seconds."""
        return self.now_us() - self._pulse.heard_us(peer) <= 2 * self.host.settings.heartbeat_us

    def stalled(self, for_us: int) -> None:
        self._tell_appended()
        if self._replicas:
            self._carry_out(self._pulse.stalled(for_us, self.now_us()))

    # --- the beat --------------------------------------------------------------------------------

    def _beat_later(self) -> None:
        every_us = self.host.settings.heartbeat_us
        self._beat_due_us = self.now_us() + every_us
        self._beat_timer = self._timers.after(every_us, self._beat)

    def _beat(self) -> None:
        if self._closed:
            return
        self._tell_appended()
        now_us = self.now_us()
        late_us = now_us - self._beat_due_us
        if late_us >= self.host.settings.stall_us_max:
            self.stalled(late_us)
        self._beat_later()
        self._carry_out(self._pulse.beat(now_us))
        self.homecoming.look(now_us)
        self.send_mail()
        if now_us - self._marked_us >= MARK_US:
            self._marked_us = now_us
            for number in self.host.leading:
                self._replicas[number].mark()

    def stored_after(self, us: int) -> None:
        if self.on_stored is not None:
            self.on_stored(us)

    def trace_sent(
        self, group: int, peer: str, entries: bytes | memoryview
    ) -> Callable[[], None] | None:
        return None if self.on_sent is None else self.on_sent(group, peer, entries)

    def is_behind(self, replica: Replica[Any], peer: str) -> bool:
        """Whether a copy is not known to have what its leader, this node, had a moment ago.

        What is on its way is no reason: entries are looked for when they are one to two seconds
        old. A group that is quiet has everything everywhere. Of a node that was never heard of this
        node knows nothing until it has had the time to answer.
        """
        leading = replica.raft.leading
        if leading is None:
            return True
        if peer == self.host.me:
            return replica.raft.group.outline.flushed < replica.marked
        heard_us = self._pulse.heard_us(peer)
        if heard_us == LONG_AGO:
            heard_us = replica.led_us
        is_silent = self.now_us() - heard_us > SILENT_US
        return is_silent or leading.peers[peer].matched < replica.marked

    def _carry_out(self, effects: list[SendToNode | OfGroup]) -> None:
        for effect in effects:
            if isinstance(effect, OfGroup):
                replica = self._replicas.get(effect.group)
                if replica is not None:  # else what came before has deleted its topic
                    replica.carry_out(effect.effects)
            else:
                contact = self._contact_of(effect.to)
                if contact is not None:
                    self._links.send(self._contact(), contact, packed_beat(effect.message))


def _mails(letters: list[Letter]) -> list[RaftMail]:
    """The letters to one node, in as few messages as may be."""
    mails: list[RaftMail] = []
    rows: list[bytes] = []
    pieces: list[Piece] = []
    size = 0
    for letter in letters:
        if rows and (len(rows) == ROWS_MAX or size + len(letter.data) > MAIL_BYTES_MAX):
            mails.append(RaftMail(b"".join(rows), tuple(pieces)))
            rows, pieces, size = [], [], 0
        rows.append(row_of(letter))
        if letter.data:
            pieces.append(Piece(letter.first, letter.end, letter.data))
            size += len(letter.data)
    mails.append(RaftMail(b"".join(rows), tuple(pieces)))
    return mails
