"""Carries messages between the deciders of transactions and the partitions that take part in them.

Deciders and partitions know each other by messages only. A message to a partition of this node is a
call, one to a partition of another node goes over the link, and may be lost: the decider repeats it
until it is answered. What partitions here say to deciders here is put in an inbox, and read when no
partition is at work (`pump`): the decider's answer may be for that very partition.

A node that is alone decides by itself (`Deciders.own`). In a cluster the deciders are spread over
the nodes, and an id belongs to one of them for ever. What the founder has decided before that is
handed over to them (`core.transactions.inheritance`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from hocket import frames
from hocket.core.partition.events import (
    DropStages,
    ForgetApplied,
    Name,
    StageKey,
    TransactionApplied,
)
from hocket.core.partition.stages import Stage, by_name
from hocket.core.session.session import OpenedProducer, failure
from hocket.core.transactions import events as decisions
from hocket.core.transactions.inheritance import Legacy
from hocket.core.transactions.messages import (
    ApplyStages,
    AskStages,
    DiscardStages,
    ForgetDecisions,
    HandedOver,
    HandOver,
    Outcome,
    Part,
    StagesAre,
    TransactionMessage,
    WhatOfStages,
    WhatToForget,
    counts_of,
    decider_of,
    is_whole,
    joined,
    parted,
    participants_of,
)
from hocket.errors import (
    Busy,
    HocketError,
    NotHere,
    UnknownTopic,
    from_code,
)
from hocket.frames import packed, unpacked
from hocket.model import DECIDERS, MINUTE_US, SECOND_US
from hocket.node.background.roll_forward import CONTROL_BYTES, RollForward
from hocket.node.background.verifying import Verifying
from hocket.node.running.deciders import Seat
from hocket.node.running.partitions import Hosted
from hocket.node.wiring import Wiring

IDLE_CHECKED_EVERY_US = SECOND_US
# A producer that was not connected for this long is asked about, though it is not idle yet: it may
# be left over from a failed attempt at a transaction that was committed meanwhile.
LEFT_OVER_US = MINUTE_US
# What is applied and not forgotten after this long is asked about: the message may be lost.
FORGETTING_US = MINUTE_US
PRODUCER_BYTES = 40  # more than one producer takes in the entry that drops stages
TEXT_MAX = 4000  # characters of an error that are sent to another node


class Others(Protocol):
    """The other nodes of the cluster, by the ids of their stores. Messages may be lost."""

    def send(self, node: str, message: object) -> None: ...
    def tell_all(self, message: object) -> None: ...


class Nobody:
    """The others of a node that is alone."""

    def send(self, _node: str, _message: object) -> None:
        """There is nobody."""

    def tell_all(self, _message: object) -> None:
        """There is nobody."""


class Transactions:
    def __init__(self, wiring: Wiring) -> None:
        self._wiring = wiring
        self._founded = wiring.cluster == wiring.log.store_id  # this cluster; or it is alone
        self._rolling = RollForward(wiring, self._partition_gone)
        self._verifying = Verifying(wiring, founded=self._founded)
        self._deciders = wiring.deciders
        self._legacy: Legacy | None = None
        self._marked = 0  # the entry behind which the legacy is told of; 0: there is none
        self.others: Others = Nobody()
        self.inbox: deque[tuple[Seat, decisions.Event]] = deque()  # see `pump`
        self._idle_at_us = self._forget_at_us = 0
        self._heard: dict[type, Callable[[str, Any], None]] = {
            AskStages: self._asked,
            ApplyStages: self._told_to_apply,
            StagesAre: self._answered,
            DiscardStages: self._told_to_drop,
            ForgetDecisions: self._told_to_forget,
            WhatOfStages: self._asked_about_stages,
            WhatToForget: self._asked_what_to_forget,
            HandOver: self._handed_over,
            HandedOver: self._hand_over_answered,
        }

    # --- who decides -----------------------------------------------------------------------------

    def seat_of(self, transaction: str) -> Seat:
        """The decider of this id. Raises NotHere if it is on another node."""
        group = self._decider_of(transaction)
        seat = self._deciders.get(group)
        if seat is None:
            raise self._decided_elsewhere(group, f"transaction {transaction!r}")
        return seat

    def _decided_elsewhere(self, group: int, what: str) -> NotHere:
        catalogue = self._wiring.catalogue
        topic = catalogue.topics.get(DECIDERS)
        node = ""
        if topic is not None:
            node = catalogue.leaders_of(topic)[topic.groups.index(group)]
        error = NotHere(
            f"node {node} decides on {what}, and not this one; connect to that one",
            node=node,
            address=catalogue.address_of(node),
        )
        if node == catalogue.me:
            error.args = (f"no node is known to decide on {what} now; try again",)
        return error

    def _decider_of(self, transaction: str) -> int:
        topic = self._wiring.catalogue.topics.get(DECIDERS)
        if topic is not None:
            return topic.groups[decider_of(transaction, len(topic.groups))]
        if self._founded:
            return self._deciders.own.group
        raise Busy("this node does not know yet who decides on transactions; try again")

    def refusal(self, transaction: str, number: int, producer_id: bytes) -> HocketError | None:
        """Why this producer can stage nothing more, as far as is known here. Its commit is refused
        in any case."""
        try:
            seat = self._deciders.get(self._decider_of(transaction))
        except Busy as error:
            return error
        return None if seat is None else seat.core.refusal(transaction, number, producer_id)

    def host(self, group: int) -> None:
        """One of the cluster's deciders is here from now on."""
        if group not in self._deciders:
            seat = self._deciders.host(group, self._wiring.unclaimed.pop(group, None))
            self.inbox.append((seat, decisions.Started(self._wiring.clock.now_us())))

    def served(self, seat: Seat) -> None:
        """This node leads one of the cluster's deciders from now on."""
        self.inbox.append((seat, decisions.Started(self._wiring.clock.now_us())))

    def stopped(self, seat: Seat) -> None:
        """This node leads it no more: what is not committed is up to the next one."""
        error = self._decided_elsewhere(seat.group, "the transaction")
        error.may_have_happened = True
        waiting = seat.core.waiting
        for each, event in self.inbox:
            if each is seat and isinstance(event, decisions.CommitAsked | decisions.AbortAsked):
                waiting.append(event.origin)
        self.inbox = deque(each for each in self.inbox if each[0] is not seat)
        for origin in waiting:
            self._answer(decisions.Answer(origin, error))

    def founded(self) -> None:
        """The cluster has deciders of its own: the founder's tells them what it knows.

        It marks its log before. So the next life has a higher term than this one, and nothing is
        told of a decision that a crash undoes.
        """
        if not self._founded or self._marked or DECIDERS not in self._wiring.catalogue.topics:
            return
        own = self._deciders.own
        try:
            self._wiring.partitions.admit_tidying(own.group, CONTROL_BYTES)
        except HocketError:  # it is tried again
            return
        mark = own.core.mark()
        self._carry_out(own, mark)
        self._marked = mark.index

    def _begin_legacy(self) -> None:
        own, heirs = self._deciders.own, self._wiring.catalogue.topics[DECIDERS].groups
        self._legacy = Legacy(own.term, heirs, self._decider_of, own.core.ids, own.core.about)

    # --- time ------------------------------------------------------------------------------------

    def started(self) -> None:
        """Everything is recovered: go on with decided transactions, and ask about the others."""
        now_us = self._wiring.clock.now_us()
        self.inbox.extend((seat, decisions.Started(now_us)) for seat in self._deciders)
        for hosted in self._wiring.partitions:
            self._ask_about(hosted, hosted.core.stages.producers.values(), idle=False)
        self._ask_what_to_forget()
        self.founded()
        self.pump()

    def tick(self, now_us: int) -> None:
        self._rolling.retry()
        for seat in self._deciders:
            if not seat.core.passes(now_us):
                self.inbox.append((seat, decisions.Tick(now_us)))
        if now_us >= self._idle_at_us:
            self._idle_at_us = now_us + IDLE_CHECKED_EVERY_US
            self._ask_about_idle(now_us)
        if now_us >= self._forget_at_us:
            self._forget_at_us = now_us + FORGETTING_US
            self._ask_what_to_forget()
        if self._legacy is not None:
            self._hand_over(self._legacy, now_us)
        else:
            self.founded()
        self.pump()

    def _ask_about_idle(self, now_us: int) -> None:
        waiting = [hosted for hosted in self._wiring.partitions if hosted.core.stages]
        if not waiting:
            return
        connected = {
            StageKey(opened.transaction, opened.number, opened.producer_id)
            for session in self._wiring.sessions.values()
            for opened in session.handles.values()
            if isinstance(opened, OpenedProducer) and opened.transaction
        }
        idle_us = now_us - self._wiring.settings.transaction_timeout_us
        for hosted in waiting:
            stages = hosted.core.stages.idle(max(idle_us, now_us - LEFT_OVER_US))
            left = [stage for stage in stages if stage.key not in connected]
            self._ask_about(hosted, (s for s in left if s.touched_us >= idle_us), idle=False)
            self._ask_about(hosted, (s for s in left if s.touched_us < idle_us), idle=True)

    def _ask_about(self, hosted: Hosted, stages: Iterable[Stage], *, idle: bool) -> None:
        for (transaction, number), producers in by_name(stages).items():
            try:
                group = self._decider_of(transaction)
            except Busy:  # it is asked again
                continue
            seat = self._deciders.get(group)
            if seat is not None:
                found = decisions.StageFound(hosted.group, transaction, number, producers, idle)
                self.inbox.append((seat, found))
            else:
                asked = WhatOfStages(
                    group, hosted.group, transaction, number, joined(producers), idle
                )
                self._send_to(group, asked)

    def _ask_what_to_forget(self) -> None:
        for hosted in self._wiring.partitions:
            for group in hosted.core.stages.deciders if hosted.core.stages.applied else ():
                seat = self._deciders.get(group)
                if seat is not None:
                    self.inbox.append((seat, decisions.AppliedFound(hosted.group)))
                else:
                    self._send_to(group, WhatToForget(group, hosted.group))

    # --- what partitions here say ----------------------------------------------------------------

    def applied(self, hosted: Hosted, effect: TransactionApplied) -> None:
        self._say(effect.decider, hosted.group, *effect.name, "applied")

    def partition_served(self, hosted: Hosted) -> None:
        """This node leads the partition from now on. Its producers may come here now at last."""
        hosted.core.stages.recovered(self._wiring.clock.now_us())
        self._ask_about(hosted, hosted.core.stages.producers.values(), idle=False)

    def partition_stopped(self, hosted: Hosted) -> None:
        """Another node leads it: the decider tells that one what is to be applied."""
        self._rolling.leave(hosted.group)

    def _partition_gone(self, apply: decisions.Apply, decider: int) -> None:
        """The partition was deleted with its topic; for the decider that is as good as applied."""
        self._say(decider, apply.group, apply.transaction, apply.number, "gone")

    def _say(
        self, decider: int, group: int, transaction: str, number: int, outcome: Outcome
    ) -> None:
        seat = self._deciders.get(decider)
        if seat is not None:
            self.inbox.append((seat, decisions.Applied(group, transaction, number)))
        else:
            self._send_to(decider, StagesAre(decider, group, transaction, number, 0, outcome))

    # --- what deciders here say ------------------------------------------------------------------

    def pump(self) -> None:
        """Hand deciders everything that is in the inbox, and carry out what they want."""
        while self.inbox:
            seat, event = self.inbox.popleft()
            admitted = self._admitted(seat, event)
            if admitted is not None:
                for effect in seat.core.step(admitted):
                    self._carry_out(seat, effect)

    def durable(self, group: int, index: int) -> None:
        seat = self._deciders[group]
        for effect in seat.core.durable(index):
            self._carry_out(seat, effect)
        if seat.is_own and self._legacy is None and 0 < self._marked <= index:
            self._begin_legacy()

    def _admitted(self, seat: Seat, event: decisions.Event) -> decisions.Event | None:
        """The event, if there is room for what it may make the decider append; else None.

        An event that is dropped for want of room comes again later.
        """
        room = seat.core.room_for(event)
        if not room:
            return event
        is_verified = isinstance(event, decisions.Verified)
        try:
            if isinstance(event, decisions.AbortAsked | decisions.StageFound):
                self._wiring.partitions.admit_tidying(seat.group, room)
            else:
                self._wiring.partitions.admit(seat.group, room, reserved=not is_verified)
        except HocketError as error:
            if not isinstance(event, decisions.Verified):
                return None
            event.error = event.error or error
        return event

    def _carry_out(self, seat: Seat, effect: decisions.Effect) -> None:
        if isinstance(effect, decisions.AppendDecision):
            self._deciders.append(seat, effect.index, effect.body)
        elif isinstance(effect, decisions.Verify):
            self._verify(seat, effect)
        elif isinstance(effect, decisions.Apply):
            self._apply(seat, effect)
        elif isinstance(effect, decisions.Drop):
            self._drop(seat, effect)
        elif isinstance(effect, decisions.Forget):
            forget = ForgetDecisions(seat.group, effect.group, effect.through)
            if self._wiring.partitions.get(effect.group) is not None:
                self._told_to_forget("", forget)
            else:
                self._send_to(effect.group, forget)
        elif isinstance(effect, decisions.Inherited):
            answer = HandedOver(seat.group, effect.term, effect.part, effect.whole)
            self._to_node(self._wiring.cluster, answer)
        else:
            self._answer(effect)

    def _verify(self, seat: Seat, effect: decisions.Verify) -> None:
        def told(error: HocketError | None) -> None:
            verified = decisions.Verified(effect.group, effect.transaction, effect.round, error)
            self.inbox.append((seat, verified))

        hosted = self._wiring.partitions.get(effect.group)
        if hosted is not None:
            self._verifying.verify(seat.group, hosted, effect, told)
        elif self._wiring.catalogue.is_deleted(effect.group):
            told(UnknownTopic(f"topic {effect.participants[0].topic!r} was deleted"))
        elif seat.is_own:  # it decides on partitions of its own node alone
            told(Busy("the deciders of this cluster are being made; try again"))
        else:
            named = effect.participants
            asked = AskStages(
                seat.group, effect.group, named[0].topic, named[0].partition, effect.transaction,
                effect.number, effect.round, joined(tuple(each.producer_id for each in named)),
                counts_of(named),
            )  # fmt: skip
            self._send_to(effect.group, asked)

    def _apply(self, seat: Seat, effect: decisions.Apply) -> None:
        if self._wiring.partitions.get(effect.group) is not None:
            self._rolling.begin(effect, seat.group)
        elif self._wiring.catalogue.is_deleted(effect.group):
            self._partition_gone(effect, seat.group)
        else:
            producers = tuple(producer_id for producer_id, _ in effect.producers)
            self._send_to(
                effect.group,
                ApplyStages(
                    seat.group, effect.group, effect.transaction, effect.number, effect.decision,
                    joined(producers), packed(batches for _, batches in effect.producers),
                ),
            )  # fmt: skip

    def _drop(self, seat: Seat, effect: decisions.Drop) -> None:
        name, group = (effect.transaction, effect.number), effect.group or 0
        drop = DiscardStages(group, *name, joined(effect.producers))
        if not group or self._wiring.partitions.get(group) is not None:
            self._told_to_drop("", drop)
        else:
            self._send_to(group, drop)
        if not group and not seat.is_own:
            self.others.tell_all(drop)

    def _answer(self, effect: decisions.Answer) -> None:
        connection, _, request = effect.origin
        answer = frames.Done(request) if effect.error is None else failure(request, effect.error)
        self._wiring.network.send(connection, answer)

    # --- what is done to partitions here ---------------------------------------------------------

    def _drop_here(
        self, partitions: Iterable[Hosted], name: Name, producers: tuple[bytes, ...]
    ) -> None:
        for hosted in list(partitions):
            found = hosted.core.stages.droppable(name, producers)
            if found:
                named = tuple(stage.key.producer_id for stage in found)
                self._step(hosted, DropStages(name, named))

    def _step(self, hosted: Hosted, event: DropStages | ForgetApplied) -> None:
        size = CONTROL_BYTES
        if isinstance(event, DropStages):
            size += PRODUCER_BYTES * len(event.producers)
        try:
            self._wiring.partitions.admit_tidying(hosted.group, size)
        except HocketError:  # the decider is asked again some time later
            return
        self._wiring.partitions.step(hosted, event)

    # --- what other nodes say --------------------------------------------------------------------

    def heard(self, node: str, message: TransactionMessage) -> None:
        if self._may_say(node, message):
            self._heard[type(message)](node, message)
            self.pump()

    def _may_say(self, node: str, message: TransactionMessage) -> bool:
        """Whether the node holds the decider or the partition that speaks, as far as is known here.
        What another one says counts for nothing; who has a right to it says it again."""
        catalogue = self._wiring.catalogue
        if isinstance(message, HandOver):
            return node == self._wiring.cluster
        if isinstance(message, StagesAre | WhatOfStages | WhatToForget):
            speaker = message.group
        elif isinstance(message, DiscardStages):
            try:
                speaker = self._decider_of(message.transaction)
            except Busy:
                return False
        else:
            speaker = message.decider
        return node in catalogue.stores_of_group(speaker) or catalogue.is_deleted(speaker)

    def _asked(self, node: str, message: AskStages) -> None:
        if not is_whole(message):
            return
        outcome = self._absence(message.group)
        if outcome is not None:
            self._reply(node, message, message.round, outcome)
            return

        def told(error: HocketError | None) -> None:
            found: Outcome = "verified" if error is None else "refused"
            self._reply(node, message, message.round, found, error)

        asked = decisions.Verify(
            message.group, message.transaction, message.number, message.round,
            participants_of(message),
        )  # fmt: skip
        hosted = self._wiring.partitions[message.group]
        self._verifying.verify(message.decider, hosted, asked, told)

    def _told_to_apply(self, node: str, message: ApplyStages) -> None:
        if not is_whole(message):
            return
        outcome = self._absence(message.group)
        if outcome is not None:
            self._reply(node, message, 0, outcome)
            return
        producers = zip(parted(message.producers), unpacked(message.counts), strict=True)
        apply = decisions.Apply(
            message.group, message.transaction, message.number, message.decision, tuple(producers)
        )
        self._rolling.begin(apply, message.decider)

    def _absence(self, group: int) -> Outcome | None:
        """What is to be said of a partition that is not here; None: it is."""
        if self._wiring.partitions.get(group) is not None:
            return None
        return "gone" if self._wiring.catalogue.is_deleted(group) else "not_mine"

    def _reply(
        self,
        node: str,
        message: AskStages | ApplyStages,
        round_: int,
        outcome: Outcome,
        error: HocketError | None = None,
    ) -> None:
        code, text = ("", "") if error is None else (error.code, str(error)[:TEXT_MAX])
        answer = StagesAre(
            message.decider, message.group, message.transaction, message.number, round_, outcome,
            code, text,
        )  # fmt: skip
        self.others.send(node, answer)

    def _answered(self, _node: str, message: StagesAre) -> None:
        seat = self._deciders.get(message.decider)
        if seat is None or message.outcome == "not_mine":
            return  # whoever leads by then is asked again
        group, transaction = message.group, message.transaction
        if message.round:
            error: HocketError | None = None
            if message.outcome == "refused":
                error = from_code(message.code, message.text)
            elif message.outcome == "gone":
                error = UnknownTopic(f"a topic of transaction {transaction!r} was deleted")
            verified = decisions.Verified(group, transaction, message.round, error)
            self.inbox.append((seat, verified))
        elif message.outcome in ("applied", "gone"):
            self.inbox.append((seat, decisions.Applied(group, transaction, message.number)))

    def _told_to_drop(self, _node: str, message: DiscardStages) -> None:
        name = (message.transaction, message.number)
        hosted = self._wiring.partitions.get(message.group)
        if not message.group:
            self._drop_here(self._wiring.partitions, name, parted(message.producers))
        elif hosted is not None:
            self._drop_here([hosted], name, parted(message.producers))

    def _told_to_forget(self, _node: str, message: ForgetDecisions) -> None:
        hosted = self._wiring.partitions.get(message.group)
        if hosted is not None:
            self._step(hosted, ForgetApplied(message.through, message.decider))

    def _asked_about_stages(self, _node: str, message: WhatOfStages) -> None:
        seat = self._deciders.get(message.decider)
        if seat is not None:
            found = decisions.StageFound(
                message.group, message.transaction, message.number, parted(message.producers),
                message.idle,
            )  # fmt: skip
            self.inbox.append((seat, found))

    def _asked_what_to_forget(self, _node: str, message: WhatToForget) -> None:
        seat = self._deciders.get(message.decider)
        if seat is not None:
            self.inbox.append((seat, decisions.AppliedFound(message.group)))

    # --- one decider follows another -------------------------------------------------------------

    def _hand_over(self, legacy: Legacy, now_us: int) -> None:
        for heir, count, part, body in legacy.due(now_us):
            message = HandOver(heir, legacy.term, count, (Part(part, part + 1, body),))
            if self._deciders.get(heir) is not None:
                self._handed_over(self._wiring.catalogue.me, message)
            else:
                self._send_to(heir, message)

    def _handed_over(self, _node: str, message: HandOver) -> None:
        seat = self._deciders.get(message.decider)
        if seat is not None and not seat.is_own:
            for part in message.parts:
                event = decisions.Inherit(message.term, part.start, part.data)
                self.inbox.append((seat, event))

    def _hand_over_answered(self, _node: str, message: HandedOver) -> None:
        if self._legacy is not None:
            self._legacy.answered(message.decider, message.term, message.part, whole=message.whole)

    # --- the way to other nodes ------------------------------------------------------------------

    def _send_to(self, group: int, message: object) -> None:
        """Send to the node that leads this log, or to all that may. It is sent again, in case that
        nobody does. Who keeps a copy knows the leader first-hand; of others it may be hearsay."""
        catalogue = self._wiring.catalogue
        stores = catalogue.stores_of_group(group)
        known = catalogue.leaders.get(group) if catalogue.me in stores else None
        for node in (known,) if known else stores:
            if node != catalogue.me:
                self.others.send(node, message)

    def _to_node(self, node: str, message: HandedOver) -> None:
        if node == self._wiring.catalogue.me:
            self._heard[type(message)](node, message)
        else:
            self.others.send(node, message)
