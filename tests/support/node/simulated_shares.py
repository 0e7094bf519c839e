"""Workers that share an index in the simulated world, and what must never happen to them.

The office keeps the diary of all workers. Times are the workers' own: a lease is taken to end a
margin before it could be over at the broker, so that what is called a violation is one.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from hocket import frames
from hocket.core.sharing.leases import GRACE_US
from hocket.frames import packed, unpacked
from hocket.model import Mode, Start
from hocket.wire import batch as batches
from tests.support.node.simulated import SECOND, TOPIC, Client, Producer, World

LEASE_US = SECOND
MARGIN_US = 200_000
Place = tuple[int, int]  # partition and offset


class KeyedProducer(Producer):
    """Every batch is of a few keys."""

    KEYS = [b"ann", b"bob", b"cyd", b"dot", None]

    def keys_of(self, partition: int, sequence: int) -> list[bytes | None]:
        values = self.sent[partition][sequence]
        return [self.KEYS[(sequence + n * n) % len(self.KEYS)] for n in range(len(values))]

    def _push(self, partition: int, sequence: int) -> None:
        if (partition, sequence) not in self.entries:
            self.entries[partition, sequence] = batches.encode(
                self.sent[partition][sequence],
                keys=self.keys_of(partition, sequence),
                timestamps=self.world.clock.now_us(),
                producer_id=self.producer_id,
                sequence=sequence,
            )
        self.send(frames.Push(0, self.handle, partition), self.entries[partition, sequence])


@dataclass
class Held:
    worker: Worker
    until_us: int
    key: bytes | None


@dataclass
class Office:
    """What is known of every message, from what the workers were told."""

    mode: Mode
    max_deliveries: int
    held: dict[Place, Held] = field(default_factory=dict)
    values: dict[Place, bytes] = field(default_factory=dict)
    keys: dict[Place, bytes | None] = field(default_factory=dict)
    acked: Counter[Place] = field(default_factory=Counter)  # or rejected, and not refused so far
    done: set[Place] = field(default_factory=set)  # and were told that it is durable
    last_lease_us: int = 0
    looked: Counter[str] = field(default_factory=Counter)

    @property
    def given_up(self) -> set[Place]:
        return set(+self.acked)

    def lease(self, worker: Worker, place: Place, count: int, key: bytes | None, now: int) -> None:
        assert place not in self.done, f"{place} was done, durably, and came again"
        assert 1 <= count <= self.max_deliveries, f"{place}: delivery {count}"
        other = self.held.get(place)
        if other is not None and other.worker is not worker:
            assert now >= other.until_us, f"{place} is with {other.worker.name} still"
            self.looked["passed on"] += 1
        if self.mode == "key_shared" and key is not None:
            self._check_order(worker, place, key, now)
        self.keys[place] = key
        self.held[place] = Held(worker, now + LEASE_US - MARGIN_US, key)
        self.last_lease_us = now
        self.looked["leased"] += 1
        self.looked["again"] += count > 1

    def _check_order(self, worker: Worker, place: Place, key: bytes, now: int) -> None:
        for (partition, offset), held in self.held.items():
            if partition == place[0] and held.key == key and held.worker is not worker:
                alive = now < held.until_us and not self.acked[partition, offset]
                assert not alive, f"{key!r} is with {held.worker.name} at {offset}, not {place}"
        self.looked["ordered"] += 1


class Worker(Client):
    """Takes messages, and does one thing or another with them."""

    def __init__(self, world: World, name: str, office: Office, *, patience: float = 0.1) -> None:
        self.name = name
        self.office = office
        self.random = world.scheduler.random(f"worker {name}")
        self.identity = name.encode().ljust(16, b".")
        self.patience = patience  # how often it just lets a message lie
        self.handle = 0
        self.mine: dict[Place, None] = {}  # leased and not settled
        self.kept: dict[int, memoryview] = {}  # the last batch, per partition
        self.refused = 0
        self.quits = False
        self.leases = 0  # how many came on this link
        self.waiting: list[tuple[Place, int]] = []  # not looked at yet, with its Lease's number
        super().__init__(world)

    def begin(self) -> None:
        if self.quits:
            return
        self.ask(
            frames.OpenSubscription,
            self._opened,
            topic=TOPIC,
            index="workers",
            mode=self.office.mode,
            start=Start("earliest"),
            credit_bytes=3000,
            consumer=self.identity,
            prefetch=6,
            lease_us=LEASE_US,
            max_deliveries=self.office.max_deliveries,
            held=packed(n for p, o in self._held() for n in (p, o, o + 1)),
            tells=True,
        )

    def _held(self) -> list[Place]:
        """What is ours for certain: the lease is not over, by our own clock."""
        now = self.world.scheduler.now_us()
        mine = ((place, self.office.held[place]) for place in self.mine)
        return [place for place, held in mine if held.worker is self and now < held.until_us]

    def _opened(self, answer: frames.Frame) -> None:
        if isinstance(answer, frames.Failure):
            assert answer.code == "unknownTopic", answer
            self.world.scheduler.after(10_000, self.begin)
            return
        assert isinstance(answer, frames.SubscriptionOpened)
        assert answer.lease_us == LEASE_US
        self.handle = answer.handle
        self.kept.clear()
        self.leases, self.waiting = 0, []

    def told(self, frame: frames.Frame, payload: memoryview) -> None:
        if not isinstance(frame, frames.Lease):
            super().told(frame, payload)
            return
        ranges = unpacked(frame.ranges)
        records = self._records(frame, payload)
        messages = 0
        self.leases += 1
        for start, end, count in zip(ranges[::3], ranges[1::3], ranges[2::3], strict=True):
            for offset in range(start, end):
                key, value = records[offset]
                place = frame.partition, offset
                assert self.office.values.setdefault(place, value) == value
                self.office.lease(self, place, count, key, self.world.scheduler.now_us())
                self.mine[place] = None
                self.waiting.append((place, self.leases))
                messages += 1
                delay = self.random.randrange(100, 60_000)
                self.world.scheduler.after(delay, lambda place=place: self._work(place))
        assert messages
        self.office.looked["alone"] += frame.alone
        assert messages == 1 or not frame.alone
        self.send(frames.Credit(0, self.handle, len(payload), messages, self._handed()))

    def _records(
        self, frame: frames.Lease, payload: memoryview
    ) -> dict[int, tuple[bytes | None, bytes]]:
        entries = [
            payload[at : at + header.size] for at, header in batches.iterate_entries(payload)
        ]
        if frame.continued:
            entries.insert(0, self.kept[frame.partition])
        self.kept[frame.partition] = entries[-1]
        records = {}
        for entry in entries:
            batch = batches.parse(entry)
            pairs = zip(batch.keys(), batch.values(), strict=True)
            records |= dict(enumerate(pairs, batch.base_offset))
        return records

    def _handed(self) -> bytes:
        """What it has not looked at yet waits; the first of each partition is named."""
        firsts = {p: (p, lease, offset) for (p, offset), lease in reversed(self.waiting)}
        return packed(number for first in reversed(firsts.values()) for number in first)

    def _work(self, place: Place) -> None:
        if place not in self.mine or not self.handle:
            return
        self._look_at(place)
        chance = self.random.random()
        if chance < self.patience:  # it is forgotten, and its lease will end
            if chance < self.patience / 2:
                self.world.scheduler.after(LEASE_US + MARGIN_US, lambda: self._too_late(place))
            return
        if chance < self.patience + 0.1:
            self._settle("nack", place, duration_us=self.random.choice([0, 50_000, 300_000]))
        elif chance < self.patience + 0.15:
            self._settle("extend", place)
        elif chance < self.patience + 0.18:
            self._settle("reject", place, reason="I do not like it")
        elif chance < self.patience + 0.22:
            self._settle("release", place)
        else:
            self._settle("ack", place)

    def _look_at(self, place: Place) -> None:
        """It looks at messages in order, whatever it does with each."""
        at = next((i for i, (each, _) in enumerate(self.waiting) if each == place), -1)
        if at >= 0:
            del self.waiting[: at + 1]
            self.send(frames.Credit(0, self.handle, 0, 0, self._handed()))

    def _too_late(self, place: Place) -> None:
        if place in self.mine and self.handle:
            self._settle("ack", place)

    def _settle(self, action: str, place: Place, **more: object) -> None:
        partition, offset = place
        ends = action in ("ack", "reject")
        if action != "extend":
            self.mine.pop(place, None)
            if self.office.held[place].worker is self:
                # From here on the broker may give it to somebody else.
                self.office.held[place].until_us = 0
        if ends:
            self.office.acked[place] += 1

        def settled(answer: frames.Frame) -> None:
            assert isinstance(answer, frames.Settled), answer
            if answer.refused:
                assert unpacked(answer.refused) == [partition, offset, offset + 1]
                self.refused += 1
                self.office.looked["refused"] += 1
                self.mine.pop(place, None)
                self.office.acked[place] -= ends
            elif ends:
                self.office.done.add(place)
            elif action == "extend":
                until = self.world.scheduler.now_us() + LEASE_US - MARGIN_US
                held = self.office.held[place]
                if held.worker is self and held.until_us:
                    held.until_us = max(held.until_us, until - MARGIN_US)
                self.world.scheduler.after(50_000, lambda: self._work(place))

        ranges = packed([partition, offset, offset + 1])
        self.office.looked[action] += 1
        self.ask(frames.Settle, settled, handle=self.handle, action=action, ranges=ranges, **more)

    def quit(self) -> None:
        """For good, and without a word."""
        self.quits = True
        if self.connection is not None:
            self.world.network.cut(self.connection)

    def lost(self) -> None:
        self.handle = 0
        now = self.world.scheduler.now_us()
        for held in self.office.held.values():
            if held.worker is self:
                held.until_us = min(held.until_us, now + GRACE_US - MARGIN_US)
        super().lost()


class Mortal(Worker):
    """Acks what it gets, and dies at a poisoned message, for good; another one takes its place."""

    POISONED = 5  # the offset of the message in each partition that nobody survives

    def _work(self, place: Place) -> None:
        if place not in self.mine or not self.handle:
            return
        if place[1] != self.POISONED:
            self._look_at(place)
            self._settle("ack", place)
            return
        self.office.looked["died"] += 1
        self.quit()
        self.mine.clear()
        number = self.office.looked["died"]
        self.world.scheduler.after(
            10_000, lambda: Mortal(self.world, f"heir {number}", self.office)
        )


class Undertaker(Client):
    """Reads the dead letters, through no index."""

    def __init__(self, world: World) -> None:
        self.handle = 0
        self.found: dict[int, tuple[Place, bytes]] = {}  # by offset
        super().__init__(world)

    def begin(self) -> None:
        self.ask(frames.OpenSubscription, self._opened, topic=TOPIC + ".dlq", credit_bytes=1 << 20)

    def _opened(self, answer: frames.Frame) -> None:
        if isinstance(answer, frames.Failure):
            assert answer.code == "unknownTopic", answer
            self.world.scheduler.after(100_000, self.begin)
            return
        assert isinstance(answer, frames.SubscriptionOpened)
        self.handle = answer.handle

    def told(self, frame: frames.Frame, payload: memoryview) -> None:
        if not isinstance(frame, frames.Deliver):
            super().told(frame, payload)
            return
        for position, _ in batches.iterate_entries(payload):
            batch = batches.parse(payload, position)
            rows = zip(batch.values(), batch.headers(), strict=True)
            for offset, (value, headers) in enumerate(rows, batch.base_offset):
                assert headers["hocket-dlq-topic"] == TOPIC.encode()
                assert headers["hocket-dlq-index"] == b"workers"
                place = (
                    int(headers["hocket-dlq-partition"] or b""),
                    int(headers["hocket-dlq-offset"] or b""),
                )
                self.found[offset] = place, value
        self.send(frames.Credit(0, self.handle, len(payload)))


def check_dead_letters(office: Office, undertaker: Undertaker) -> None:
    places = [place for place, _ in undertaker.found.values()]
    assert len(places) == len(set(places)), "a message is in the dead letters twice"
    for place, value in undertaker.found.values():
        assert office.values[place] == value
        office.looked["dead"] += 1
