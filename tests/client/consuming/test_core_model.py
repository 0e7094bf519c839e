"""Subscriptions against a model of a broker's side, with losses at any step.

Chance decides whether the broker delivers, the application reads or acknowledges, time passes, or
the link breaks. Whatever happens: each message once, in order, and the credit comes out even.
"""

from __future__ import annotations

from random import Random

import pytest

from hocket import frames
from hocket.client_core.consuming.attachment import SubscriptionOptions
from hocket.client_core.consuming.core import SubscriptionCore
from hocket.client_core.consuming.message import Message, MessageBatch
from hocket.frames import packed
from tests.support.client.scripted import Stage, pairs, stored
from tests.support.threads import LONG

SEEDS = range(400 if LONG else 20)
CREDIT = 3000


class Delivering:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.stage = Stage(seed=seed).started()
        self.partitions = self.random.choice([1, 3])
        self.logs = [self._log() for _ in range(self.partitions)]
        self.index = dict.fromkeys(range(self.partitions), 0)  # what is committed
        self.next: dict[int, int] = {}  # what is to be delivered on this handle
        self.handle = 0
        self.credit = 0
        self.debts = 0  # how often a batch was larger than the credit left
        self.losses = 0
        self.read: dict[int, list[Message]] = {n: [] for n in range(self.partitions)}
        self.unacked: list[Message] = []
        self.core = SubscriptionCore(
            self.stage.session, "t", SubscriptionOptions(index="i", credit_bytes=CREDIT),
            message=Message, batch=MessageBatch, arouse=lambda progress: self.core.arouse(progress),
        )  # fmt: skip
        self.core.open()

    def _log(self) -> list[tuple[int, int, bytes]]:
        """Batches: start, end, entry."""
        found, offset = [], 0
        for _ in range(30):
            count = self.random.randint(1, 40)
            values = [b"%d" % n for n in range(offset, offset + count)]
            found.append((offset, offset + count, stored(values, offset)))
            offset += count
        return found

    def step(self) -> None:
        self.random.choice(
            [self.listen, self.listen, self.deliver, self.deliver, self.take, self.take,
             self.take_batch, self.ack, self.wait, self.lose]
        )()  # fmt: skip

    def listen(self) -> None:
        link = self.stage.link
        if link is None or not link.sent:
            return
        frame, _ = link.sent.pop(0)
        if isinstance(frame, frames.OpenSubscription):
            self.handle += 1
            positions = self.index | pairs(frame.positions)
            self.next = dict(positions)
            self.credit = frame.credit_bytes
            flat = packed(n for pair in positions.items() for n in pair)
            self.stage.reply(frames.SubscriptionOpened(frame.request, self.handle, flat))
        elif isinstance(frame, frames.Credit):
            assert frame.handle == self.handle
            self.credit += frame.bytes
            assert self.credit <= CREDIT
        elif isinstance(frame, frames.Commit):
            assert frame.handle == self.handle
            for partition, offset in pairs(frame.positions).items():
                assert self.index[partition] <= offset <= len(self.read[partition])
                self.index[partition] = offset
            self.stage.reply(frames.Done(frame.request))
        else:
            assert isinstance(frame, frames.Ping)
            self.stage.reply(frames.Done(frame.request))

    def deliver(self) -> None:
        if self.stage.link is None or self.credit <= 0 or not self.next:
            return
        partition = self.random.choice(list(self.next))
        first = self.next[partition]
        log = self.logs[partition]
        chosen = [batch for batch in log if batch[1] > first][: self.random.randint(1, 3)]
        if chosen:
            payload = b"".join(entry for _, _, entry in chosen)
            self.next[partition] = chosen[-1][1]
            self.credit -= len(payload)
            self.debts += self.credit < 0
            self.stage.reply(frames.Deliver(0, self.handle, partition, first, log[-1][1]), payload)

    def take(self) -> None:
        for _ in range(self.random.randint(1, 30)):
            message = self.core.next_message()
            if message is None:
                return
            self._note(message)

    def take_batch(self) -> None:
        batch = self.core.next_batch()
        if batch is not None:
            for message in batch.messages():
                self._note(message)

    def _note(self, message: Message) -> None:
        self.read[message.partition].append(message)
        self.unacked.append(message)

    def ack(self) -> None:
        for message in self.unacked[: self.random.randint(0, 20)]:
            message.ack()
        del self.unacked[:20]

    def wait(self) -> None:
        if self.stage.link is None:
            self.stage.come_back()
        else:
            self.stage.advance(self.random.choice([1000, 60_000]))

    def lose(self) -> None:
        if self.stage.link is not None and self.random.random() < 0.3:
            self.losses += 1
            self.next = {}
            self.stage.lose()

    def settle(self) -> None:
        ends = {n: log[-1][1] for n, log in enumerate(self.logs)}
        for _ in range(3000):
            if self.stage.link is None:
                self.stage.come_back()
            self.listen()
            self.deliver()
            self.take()
            self.stage.advance(60_000)
            read = {n: len(messages) for n, messages in self.read.items()}
            if read == ends and self.credit == CREDIT and not self.stage.link.sent:
                return
        raise AssertionError(f"{read} of {ends} were read, the credit is {self.credit}")


@pytest.mark.parametrize("seed", SEEDS)
def test_each_message_once_in_order_and_the_credit_comes_out_even(seed):
    one = Delivering(seed)
    for _ in range(400):
        one.step()
    one.settle()
    for messages in one.read.values():
        assert [message.offset for message in messages] == list(range(len(messages)))
        assert [int(message.value) for message in messages] == list(range(len(messages)))
    for messages in one.read.values():
        messages[-1].ack()
    acked = one.core.acked_so_far()
    while not one.core.are_committed(acked):
        one.listen()
    assert one.index == {n: len(messages) for n, messages in one.read.items()}


def test_the_runs_have_losses_and_debts():
    runs = [Delivering(seed) for seed in SEEDS[:20]]
    for run in runs:
        for _ in range(400):
            run.step()
    assert sum(run.losses for run in runs) > 100
    assert sum(run.debts for run in runs) > 50
