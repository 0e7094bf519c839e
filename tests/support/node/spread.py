"""A simulated cluster with a topic on all nodes, transactions over it, and points to kill nodes at.

The points are what deciders and participants say to each other, over links or not, and what clients
are told. `Spread.points` are those that were passed; at `kill_at` the node `victim` loses its
power, and comes back some seconds later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import get_args

from hocket import frames
from hocket.core.partition.stages import crc_of
from hocket.core.transactions import events as decisions
from hocket.core.transactions.messages import TransactionMessage, decider_of
from hocket.frames import packed, unpacked
from hocket.model import DECIDERS, DECISIONS, Participant
from hocket.node.running.partitions import Hosted
from hocket.wire.batch import encode
from hocket.wire.entry import unpack_header
from tests.support.node.cluster import SECOND, Asking, Nodes

MESSAGES = get_args(TransactionMessage)
RECORDS = 10  # each transaction publishes ten times as many as the one before: one digit each


class Spread(Nodes):
    def __init__(
        self, seed: str = "spread", *, kill_at: int | None = None, victim: int = 0,
        down_us: int = 3 * SECOND, topic: str = "t", partitions: int = 6, replication: int = 1,
        segment_bytes: int | None = None, **options: object,
    ) -> None:  # fmt: skip
        self.points: list[str] = []
        self.kill_at = kill_at
        self.victim = victim
        self.down_us = down_us
        self.killed = ""  # the point at which it happened
        self.fars: list[Far] = []
        super().__init__(seed, **options)
        self.topic = topic
        self._watch_links()
        for machine in self.machines:
            self._watch(machine.name)
        if len(self.machines) > 1:
            self.until(self.deciders_are_ready, 20, "the deciders have taken over")
        config = {} if segment_bytes is None else {"segment_bytes_max": segment_bytes}
        Asking(self, 0).create(topic, partitions=partitions, replication=replication, **config)
        self.settle()
        if replication > 1:
            self.until(lambda: self.is_led(topic), 60, "all partitions are led")

    # --- who is where ----------------------------------------------------------------------------

    def homes(self, topic: str) -> list[int]:
        """The number of the machine of each partition, as a node that is up knows it; of one with
        several replicas that of its leader, as long as there is one."""
        up = next(machine.node for machine in self.machines if machine.node is not None)
        known = up.node._wiring.catalogue.topics.get(topic)
        if known is None:
            return [0]
        leading = self._leading()
        return [
            leading.get(group, int(home[1:]))
            for group, home in zip(known.groups, known.homes, strict=True)
        ]

    def _leading(self) -> dict[int, int]:
        """The numbers of the machines that serve a partition now, by its group."""
        return {
            hosted.group: number
            for number, machine in enumerate(self.machines)
            if machine.node is not None
            for hosted in machine.node.node._wiring.partitions
        }

    def is_led(self, topic: str) -> bool:
        """All partitions have a leader, and all nodes that are up know the topic."""
        up = [machine.node for machine in self.machines if machine.node is not None]
        known = [each.node._wiring.catalogue.topics.get(topic) for each in up]
        leading = self._leading()
        return all(each is not None and set(each.groups) <= set(leading) for each in known)

    def one_each(self) -> list[int]:
        """A partition on each node."""
        homes = self.homes(self.topic)
        return [homes.index(number) for number in range(len(self.machines))]

    def decided_at(self, transaction: str) -> int:
        homes = self.deciding()
        return homes[decider_of(transaction, len(homes))]

    def deciding(self) -> list[int]:
        """The number of the machine that leads each decider; where none does, of its home."""
        found = self.homes(DECIDERS)
        for number, machine in enumerate(self.machines):
            for seat in machine.node.node._wiring.deciders if machine.node is not None else ():
                if not seat.is_own:
                    found[seat.group - DECISIONS - 1] = number
        return found

    def id_decided_at(self, number: int, name: str = "job") -> str:
        """Or, if the node leads no decider now, an id whose decider was made there."""
        deciding = self.deciding()
        nodes = deciding if number in deciding else self.homes(DECIDERS)
        return next(
            each
            for each in (f"{name}{n}" for n in range(1000))
            if nodes[decider_of(each, len(nodes))] == number
        )

    def hosted(self, partition: int, topic: str | None = None) -> Hosted:
        topic = topic or self.topic
        node = self.machines[self.homes(topic)[partition]].node
        assert node is not None
        wiring = node.node._wiring
        return wiring.partitions[wiring.catalogue.topics[topic].groups[partition]]

    def deciders_are_ready(self) -> bool:
        seats = [
            seat
            for machine in self.machines
            if machine.node is not None
            for seat in machine.node.node._wiring.deciders
            if not seat.is_own
        ]
        if len(seats) != 8 or not all(seat.core.inheritance.whole for seat in seats):
            return False
        return len(self.machines) < 3 or self.deciders_are_spread()

    def deciders_are_spread(self) -> bool:
        """Three nodes vote in each, and all of them know who leads."""
        copies = [
            kept.replica
            for machine in self.machines
            if machine.node is not None
            for kept in machine.node.node._decider_copies._kept.values()
        ]
        return len(copies) == 24 and all(
            copy is not None
            and copy.leader
            and len(copy.raft.group.configuration.voters) == 3
            and not copy.raft.group.configuration.is_joint
            for copy in copies
        )

    def grow(self, count: int) -> None:
        """So many further nodes join, one after the other."""
        for _ in range(count):
            machine = self.add_machine()
            machine.start([self.root.address])
            self._watch(machine.name)
            self.until(
                lambda node=machine.node: node is not None and node.is_caught_up,
                60,
                "it has joined",
            )

    def is_at_rest(self) -> bool:
        """Nothing is staged, nothing is to be decided, finished or forgotten."""
        for machine in self.machines:
            if machine.node is None or not machine.node.is_caught_up:
                return False  # one that is not does not know yet what it has
            wiring = machine.node.node._wiring
            if any(hosted.core.stages for hosted in wiring.partitions):
                return False
            for seat in wiring.deciders:
                core = seat.core
                if core._unfinished or core._aborts or core._commits or core._owed:
                    return False
        return True

    # --- points ----------------------------------------------------------------------------------

    def _watch_links(self) -> None:
        send = self.links.send

        def sending(sender, to, message):
            if isinstance(message, MESSAGES):
                self.pass_by(f"{type(message).__name__} is sent")
            send(sender, to, message)

        self.links.send = sending  # type: ignore[method-assign]

    def _watch(self, name: str) -> None:
        machine = next(each for each in self.machines if each.name == name)
        assert machine.node is not None
        transactions = machine.node.node.transactions
        carry_out = transactions._carry_out

        def carried_out(seat, effect):
            if not isinstance(effect, decisions.Inherited):
                self.pass_by(f"decider says {type(effect).__name__}")
            carry_out(seat, effect)

        transactions._carry_out = carried_out  # type: ignore[method-assign]

    def pass_by(self, point: str) -> None:
        if self.kill_at is not None and len(self.points) == self.kill_at and not self.killed:
            self.killed = point
            self.scheduler.after(0, self._kill)
        self.points.append(point)

    def _kill(self) -> None:
        machine = self.machines[self.victim]
        self.crash(self.victim)

        def back() -> None:
            self.start(self.victim)
            self._watch(machine.name)

        self.scheduler.after(self.down_us, back)

    def begin_points(self) -> None:
        """From here on, points count."""
        self.points.clear()

    # --- clients ---------------------------------------------------------------------------------

    def patiently(self, number: int, do: Callable[[Asking], frames.Frame | None]) -> frames.Frame:
        """Ask the node until it answers for good: over links that break, while it is down or busy,
        and at another one if it says so."""
        deadline = self.now_us + 60 * SECOND
        while True:
            assert self.now_us < deadline, "no answer within a minute"
            if self.machines[number].node is None:
                self.run(50_000)
                number = (number + 1) % len(self.machines)  # another one may know more
                continue
            answer = None
            with suppress(LinkLost):
                far = Far(self, number)
                self.fars.append(far)
                answer = do(far)
            if answer is None or (isinstance(answer, frames.Failure) and answer.code == "busy"):
                self.run(50_000)
            elif isinstance(answer, frames.Failure) and answer.code == "notHere":
                self.run(50_000 if answer.node in ("", f"n{number}") else 0)
                number = int(answer.node[1:] or number)
            else:
                return answer


class LinkLost(Exception):
    """The node has died before it answered."""


class Far(Asking):
    """A client that notices that its node has died."""

    def answer_to(self, request: int, seconds: int = 40) -> frames.Frame:
        self.nodes.until(
            lambda: request in self._answers or self.is_lost, seconds, f"an answer to {request}"
        )
        if request not in self._answers:
            raise LinkLost
        return self._answers[request]

    def wait(self, condition: Callable[[], bool]) -> None:
        self.nodes.until(lambda: condition() or self.is_lost, 40, "something from a node")
        if not condition():
            raise LinkLost


class Attempt:
    """One transaction of one client: `records` records in a batch in each of some partitions."""

    def __init__(
        self, nodes: Spread, transaction: str, number: int, records: int,
        partitions: Iterable[int], *, serial: int, topic: str | None = None,
    ) -> None:  # fmt: skip
        self.nodes = nodes
        self.topic = topic or nodes.topic
        self.transaction, self.number, self.records = transaction, number, records
        self.producer_id = b"attempt-%08d" % serial
        self.named: dict[int, Participant] = {}
        self.partitions = list(partitions)
        self.outcome = ""

    def stage(self) -> Attempt:
        for partition in self.partitions:
            answer = self.nodes.patiently(
                self.nodes.homes(self.topic)[partition], lambda far, p=partition: self._push(far, p)
            )
            if isinstance(answer, frames.Failure):
                self.outcome = answer.code
                return self
        return self

    def _push(self, far: Far, partition: int) -> frames.Frame | None:
        opened = far.ask(
            frames.OpenProducer, topic=self.topic, producer_id=self.producer_id,
            transaction=self.transaction, number=self.number, partitions=packed([partition]),
        )  # fmt: skip
        if not isinstance(opened, frames.ProducerOpened):
            return opened
        entry = encode(
            [b"x"] * self.records, timestamps=self.nodes.now_us, codec="none",
            producer_id=self.producer_id, sequence=0,
        )  # fmt: skip
        crc = crc_of([unpack_header(entry).body_crc])
        self.named[partition] = Participant(
            self.topic, partition, self.producer_id, 1, self.records, crc
        )
        if unpacked(opened.sequences)[0]:
            return opened
        far.begin(frames.Push, entry, handle=opened.handle, partition=partition)
        far.wait(
            lambda: any(
                isinstance(each, frames.PushAcked | frames.PushRefused | frames.HandleEnded)
                for each in far.told
            )
        )
        if not any(isinstance(each, frames.PushAcked | frames.PushRefused) for each in far.told):
            return None  # another node leads, or will
        refused = [each for each in far.told if isinstance(each, frames.PushRefused)]
        return frames.Failure(0, refused[0].code, refused[0].message) if refused else opened

    def commit(self, at: int | None = None) -> Attempt:
        number = self.nodes.decided_at(self.transaction) if at is None else at
        participants = tuple(self.named.values())
        self._decided(
            number, "committed",
            lambda far: far.ask(
                frames.CommitTransaction, transaction=self.transaction, number=self.number,
                participants=participants,
            ),
        )  # fmt: skip
        return self

    def abort(self, at: int | None = None) -> Attempt:
        number = self.nodes.decided_at(self.transaction) if at is None else at
        self._decided(
            number, "aborted",
            lambda far: far.ask(
                frames.AbortTransaction, transaction=self.transaction, number=self.number,
                producers=(self.producer_id,),
            ),
        )  # fmt: skip
        return self

    def _decided(
        self, number: int, outcome: str, do: Callable[[Asking], frames.Frame | None]
    ) -> None:
        if self.outcome:
            return
        answer = self.nodes.patiently(number, do)
        self.outcome = answer.code if isinstance(answer, frames.Failure) else outcome
