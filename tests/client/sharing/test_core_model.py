"""Subscriptions to shared indexes against a model of a broker's side, with losses at any step.

Chance decides whether the broker leases or listens, the application takes or settles, time passes,
leases end, or the link breaks. Whatever happens: in the end every message was settled once, nothing
that was acknowledged was leased again, the credit comes out even, a key's messages are handed out
in order, and what was told to be handed out was not handed out after that.
"""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from hocket import frames
from hocket.client_core.consuming.attachment import SubscriptionOptions
from hocket.client_core.consuming.message import Message
from hocket.client_core.sharing.core import SharedCore
from hocket.client_core.sharing.message import SharedBatch, SharedMessage
from hocket.errors import LeaseLost
from hocket.frames import packed
from tests.support.client.scripted import Stage, stored
from tests.support.client.sharing import flat, triples
from tests.support.threads import LONG

SEEDS = range(300 if LONG else 30)
CREDIT, PREFETCH = 3000, 40
LEASE_US, FOR_EVER_US = 2_000_000, 10**12
FREE, LEASED, SETTLED = "free", "leased", "settled"


class Record:
    def __init__(self, key: bytes) -> None:
        self.key = key
        self.state = FREE
        self.deliveries = 0
        self.until_us = 0


class Broker:
    """One consumer's broker: it leases the lowest first, and keeps the order of keys."""

    def __init__(self, random: Random, stage: Stage, *, keyed: bool, lease_us: int) -> None:
        self.random = random
        self.lease_us = lease_us
        self.stage = stage
        self.keyed = keyed
        self.partitions = random.choice([1, 2])
        self.logs = [self._log() for _ in range(self.partitions)]
        self.records: dict[tuple[int, int], Record] = {
            (partition, offset): Record(key)
            for partition, log in enumerate(self.logs)
            for start, keys, _ in log
            for offset, key in enumerate(keys, start)
        }
        self.handle = 0
        self.is_open = False
        self.last: dict[int, int] = {}  # the batch that was sent last, by its start
        self.bytes = self.messages = 0
        self.deliveries = 0  # on this handle
        self.came: dict[tuple[int, int], int] = {}  # the last delivery of each message
        self.told: dict[int, tuple[int, int]] = {}  # by partition: the first message that waits
        self.consumer = b""
        self.answering = 0.9
        self.seen = Counter(dict.fromkeys(["continued", "debts", "refused", "expired"], 0))

    def _log(self) -> list[tuple[int, list[bytes], bytes]]:
        found, offset = [], 0
        for _ in range(12):
            keys = [b"abcde"[n : n + 1] for n in self.random.choices(range(5), k=20)]
            values = [b"%d" % n for n in range(offset, offset + 20)]
            found.append((offset, keys, stored(values, offset, keys=keys)))
            offset += 20
        return found

    def listen(self) -> None:
        link = self.stage.link
        if link is None or not link.sent:
            return
        frame, _ = link.sent.pop(0)
        if isinstance(frame, frames.OpenSubscription):
            self._open(frame)
        elif isinstance(frame, frames.Credit):
            assert frame.handle == self.handle
            self.bytes += frame.bytes
            self.messages += frame.messages
            assert self.bytes <= CREDIT
            assert self.messages <= PREFETCH
            for partition, number, offset in triples(frame.handed):
                assert self.told.get(partition, (1, 0)) <= (number, offset), "it goes forward"
                self.told[partition] = number, offset
                self.seen["told"] += 1
        elif isinstance(frame, frames.Settle):
            assert frame.handle == self.handle
            refused = self._settle(frame)
            if self.random.random() < self.answering:  # else the link breaks before that
                self.stage.reply(frames.Settled(frame.request, flat(refused)))
            else:
                self.lose()
        else:
            assert isinstance(frame, frames.Ping)
            self.stage.reply(frames.Done(frame.request))

    def _open(self, frame: frames.OpenSubscription) -> None:
        assert self.consumer in (b"", frame.consumer)
        self.consumer = frame.consumer
        assert frame.credit_bytes == CREDIT
        assert 1 <= frame.prefetch <= PREFETCH
        assert frame.tells
        self.deliveries, self.came, self.told = 0, {}, {}
        self.bytes, self.messages = CREDIT, frame.prefetch
        held = {(p, n) for p, start, end in triples(frame.held) for n in range(start, end)}
        for place, record in self.records.items():
            if record.state == LEASED and place not in held:
                record.state = FREE
                record.deliveries -= 1
        self.handle += 1
        self.is_open = True
        self.last = {}
        positions = packed(n for partition in range(self.partitions) for n in (partition, 0))
        self.stage.reply(
            frames.SubscriptionOpened(frame.request, self.handle, positions, self.lease_us)
        )

    def _settle(self, frame: frames.Settle) -> list[tuple[int, int, int]]:
        refused = []
        for partition, start, end in triples(frame.ranges):
            for offset in range(start, end):
                record = self.records[partition, offset]
                if frame.again and frame.action in ("ack", "reject") and record.state == SETTLED:
                    self.seen["held already"] += 1
                elif record.state != LEASED:
                    refused.append((partition, offset, offset + 1))
                elif frame.action == "extend":
                    record.until_us = self.stage.clock.ticks + self.lease_us
                elif frame.action in ("ack", "reject"):
                    record.state = SETTLED
                else:
                    record.state = FREE
                    record.deliveries -= frame.action == "release"
        self.seen["refused"] += len(refused)
        return refused

    def expire(self, chance: float = 0.05) -> None:
        """Leases end: some by chance, others since their time is over."""
        for record in self.records.values():
            if record.state == LEASED and (
                self.random.random() < chance or self.stage.clock.ticks > record.until_us
            ):
                record.state = FREE
                # A delivery does not count in which the message was not handed out, as was told.
                record.deliveries -= self.random.random() < 0.5
                self.seen["expired"] += 1

    def lease(self) -> None:
        if self.stage.link is None or not self.is_open or self.bytes <= 0 or self.messages <= 0:
            return
        partition = self.random.randrange(self.partitions)
        most = min(self.messages, self.random.randint(1, 25))
        chosen = self._leasable(partition)[:most]
        if not chosen:
            return
        self.messages -= len(chosen)
        batches = [
            log for log in self.logs[partition] if any(log[0] <= n < log[0] + 20 for n in chosen)
        ]
        continued = self.last.get(partition) == batches[0][0]
        self.last[partition] = batches[-1][0]
        payload = b"".join(entry for _, _, entry in batches[continued:])
        self.bytes -= len(payload)
        self.seen["continued"] += continued
        self.seen["debts"] += self.bytes < 0
        runs = []
        self.deliveries += 1
        for offset in chosen:
            self.came[partition, offset] = self.deliveries
            record = self.records[partition, offset]
            record.state = LEASED
            record.deliveries += 1
            record.until_us = self.stage.clock.ticks + self.lease_us
            runs.append((offset, offset + 1, record.deliveries))
        self.stage.reply(
            frames.Lease(0, self.handle, partition, 240, flat(runs), continued), payload
        )

    def _leasable(self, partition: int) -> list[int]:
        """Free ones, but for some that rest or are with somebody else; a key waits for these."""
        found, waiting = [], set()
        for (each, offset), record in self.records.items():
            if each != partition or record.state != FREE or record.key in waiting:
                continue
            if self.random.random() < 0.1:
                waiting.update([record.key] if self.keyed else [])
            else:
                found.append(offset)
        return found

    def lose(self) -> None:
        self.is_open = False
        self.stage.lose()


class Application:
    def __init__(self, seed: int, *, keyed: bool, expiring: bool) -> None:
        self.random = Random(seed)
        self.stage = Stage(seed=seed).started()
        lease_us = LEASE_US if expiring else FOR_EVER_US
        self.broker = Broker(self.random, self.stage, keyed=keyed, lease_us=lease_us)
        self.expiring = expiring
        self.losses = 0
        self.hands: list[Message] = []  # taken, and not settled
        self.done: set[tuple[int, int]] = set()  # settled for good, as far as it knows
        self.taken: dict[tuple[int, bytes | None], list[int]] = {}  # by partition and key
        self.core = SharedCore(
            self.stage.session, "t",
            SubscriptionOptions(
                index="i", mode="key_shared" if keyed else "shared", credit_bytes=CREDIT,
                prefetch=PREFETCH,
            ),
            message=SharedMessage, batch=SharedBatch, arouse=lambda place: self.core.arouse(place),
        )  # fmt: skip
        self.core.open()

    def step(self) -> None:
        choices = [
            self.broker.listen, self.broker.listen, self.broker.lease, self.broker.lease,
            self.take, self.take, self.take_batch, self.settle, self.settle, self.wait, self.lose,
        ]  # fmt: skip
        if self.expiring:
            choices.append(self.broker.expire)
        self.random.choice(choices)()

    def take(self) -> None:
        for _ in range(self.random.randint(1, 10)):
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
        record = self.broker.records[message.partition, message.offset]
        assert (int(message.value), message.key) == (message.offset, record.key)
        if not self.expiring:
            assert record.state == LEASED
            assert message.delivery_count == record.deliveries
            place = message.partition, message.offset
            told = self.broker.told.get(message.partition, (0, 0))
            assert (self.broker.came[place], message.offset) >= told, "it was told before"
            if self.broker.keyed:
                self._check_order(message)
        elif self.broker.keyed:
            self._check_first_time(message)
        self.hands.append(message)

    def _check_first_time(self, message: Message) -> None:
        """Of two messages of a key the first comes first for the first time."""
        of_key = self.taken.setdefault((message.partition, message.key), [])
        if message.offset not in of_key:
            assert not of_key or message.offset > of_key[-1], (message, of_key[-1])
            of_key.append(message.offset)

    def _check_order(self, message: Message) -> None:
        """Whatever of the key comes before it is settled, or in the application's hands."""
        hands = {(each.partition, each.offset) for each in self.hands}
        for place, record in self.broker.records.items():
            if (
                place[0] == message.partition
                and place[1] < message.offset
                and record.key == message.key
                and place not in hands
            ):
                assert record.state == SETTLED or place in self.done, (place, message)

    def settle(self) -> None:
        self.random.shuffle(self.hands)
        for message in self.hands[: self.random.randint(0, 8)]:
            self._say(
                message, self.random.choice(["ack", "ack", "ack", "nack", "reject", "extend"])
            )

    def _say(self, message: Message, action: str) -> None:
        if action != "extend":
            self.hands.remove(message)
            if action != "nack":
                self.done.add((message.partition, message.offset))
        getattr(message, action)()

    def wait(self) -> None:
        if self.stage.link is None:
            self.stage.come_back()
        else:
            self.stage.advance(self.random.choice([1000, 60_000, 300_000]))

    def lose(self) -> None:
        if self.stage.link is not None and self.random.random() < 0.2:
            self.losses += 1
            self.broker.lose()

    def finish(self) -> None:
        broker = self.broker
        broker.answering = 1
        if self.stage.link is None:
            self.stage.come_back()
        for _ in range(5000):
            broker.listen()
            broker.lease()
            if self.expiring:
                broker.expire(chance=0)
            self.take()
            for message in list(self.hands):
                self._say(message, "ack")
            self.stage.advance(60_000)
            if (
                all(record.state == SETTLED for record in broker.records.values())
                and (broker.bytes, broker.messages) == (CREDIT, self.core._window.size)
                and not self.stage.sent()
            ):
                waiting = [
                    place
                    for place, number in broker.came.items()
                    if (number, place[1]) >= broker.told.get(place[0], (0, 0))
                ]
                assert not waiting, "all of it was handed out or dropped, and told"
                return
        left = [place for place, record in broker.records.items() if record.state != SETTLED]
        raise AssertionError(f"{left} are left, credit {broker.bytes}, {broker.messages}")


def run(seed: int, *, keyed: bool, expiring: bool) -> Application:
    one = Application(seed, keyed=keyed, expiring=expiring)
    for _ in range(400):
        one.step()
    return one


@pytest.mark.parametrize("keyed", [False, True], ids=["shared", "key_shared"])
@pytest.mark.parametrize("seed", SEEDS)
def test_everything_is_settled_once_and_the_credit_comes_out_even(seed, keyed):
    one = run(seed, keyed=keyed, expiring=False)
    one.finish()
    assert one.core.are_committed(one.core.acked_so_far())
    assert one.core.refused == 0


@pytest.mark.parametrize("keyed", [False, True], ids=["shared", "key_shared"])
@pytest.mark.parametrize("seed", SEEDS)
def test_leases_that_end_cost_nothing_but_a_report(seed, keyed):
    one = run(seed, keyed=keyed, expiring=True)
    one.finish()
    try:
        assert one.core.are_committed(one.core.acked_so_far())
    except LeaseLost:
        assert one.core.refused
    assert one.core.are_committed(one.core.acked_so_far())


def test_the_runs_have_losses_debts_and_refusals():
    runs = [run(seed, keyed=False, expiring=True) for seed in SEEDS[:20]]
    assert sum(each.losses for each in runs) > 50
    for what in ("continued", "debts", "refused", "expired", "held already", "told"):
        assert sum(each.broker.seen[what] for each in runs) > 5, what
