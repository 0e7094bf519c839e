"""What tests of topics with several replicas ask of simulated nodes."""

from __future__ import annotations

from collections.abc import Iterable

from hocket import frames
from hocket.frames import packed, unpacked
from hocket.wire import batch as batches
from tests.support.node.cluster import SECOND, Asking, Nodes


def leader_of(nodes: Nodes, topic: str = "orders", partition: int = 0) -> int:
    """The number of the machine that serves the partition."""

    def serving() -> list[int]:
        return [
            number
            for number, machine in enumerate(nodes.machines)
            if machine.node is not None
            and not machine.stalled
            and any(
                (each.topic, each.partition) == (topic, partition)
                for each in machine.node.partition_ids()
            )
        ]

    nodes.until(lambda: len(serving()) == 1, 20, "one node leads")
    return serving()[0]


class Sharing(Asking):
    """A consumer of a shared index at one node, which keeps what it is leased."""

    def __init__(self, nodes: Nodes, number: int, identity: int = 1) -> None:
        super().__init__(nodes, number)
        self.identity = bytes(15) + bytes((identity,))
        self.handle = 0
        self.leased: list[tuple[int, int]] = []  # (offset, deliveries), in order

    def received(self, frame: frames.Frame, payload: memoryview) -> None:
        super().received(frame, payload)
        if isinstance(frame, frames.Lease):
            numbers = unpacked(frame.ranges)
            for at in range(0, len(numbers), 3):
                start, end, deliveries = numbers[at : at + 3]
                self.leased += [(offset, deliveries) for offset in range(start, end)]

    def open(self, *, held: Iterable[int] = (), **more: object) -> frames.Frame:
        fields: dict[str, object] = {
            "topic": "orders", "index": "i", "mode": "shared", "prefetch": 10,
            "credit_bytes": 1 << 20, "lease_us": 5 * SECOND,
        }  # fmt: skip
        claimed = packed(n for offset in held for n in (0, offset, offset + 1))
        opened = self.ask(
            frames.OpenSubscription, consumer=self.identity, held=claimed, **(fields | more)
        )
        if isinstance(opened, frames.SubscriptionOpened):
            self.handle = opened.handle
        return opened

    def settle(self, action: str, *offsets: int, **more: object) -> frames.Frame:
        return self.answer_to(self.begin_settling(action, *offsets, **more))

    def begin_settling(self, action: str, *offsets: int, **more: object) -> int:
        ranges = packed(n for offset in offsets for n in (0, offset, offset + 1))
        return self.begin(frames.Settle, handle=self.handle, action=action, ranges=ranges, **more)

    @property
    def offsets(self) -> list[int]:
        return [offset for offset, _ in self.leased]

    def work(self, count: int, seconds: int = 40) -> list[int]:
        """Ack each of so many messages as soon as it comes; what a dead one had comes alone."""
        done: list[int] = []
        while len(done) < count:
            self.until_leased(len(done) + 1, seconds)
            new = self.offsets[len(done) :]
            settled = self.settle("ack", *new)
            assert isinstance(settled, frames.Settled), settled
            assert not settled.refused
            done += new
        return done

    def until_leased(self, count: int, seconds: int = 20) -> list[int]:
        self.nodes.until(lambda: len(self.leased) >= count, seconds, f"{count} messages are leased")
        return self.offsets


def publish(nodes: Nodes, count: int, topic: str = "orders", keys: int = 0) -> None:
    """At the leader of partition 0; with `keys`, message n has the key n % keys."""
    values = [b"%d" % number for number in range(count)]
    names = [b"%d" % (number % keys) for number in range(count)] if keys else None
    record = batches.encode(values, timestamps=5, keys=names)
    client = Asking(nodes, leader_of(nodes, topic))
    answer = client.ask(frames.Publish, record, topic=topic, partition=0)
    assert isinstance(answer, frames.Published), answer
