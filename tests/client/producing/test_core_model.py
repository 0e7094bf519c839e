"""Producers against a model broker, with faults at any step: nothing lost, nothing twice, in order.

The network between the two is two queues. At every step chance decides what happens next: a record
is sent, a frame arrives on either side, time passes, the link breaks with whatever was under way,
or the broker refuses for a while.
"""

from __future__ import annotations

from collections import deque
from random import Random

import pytest

from hocket import frames
from hocket.client_core.producing.core import ProducerCore
from hocket.client_core.producing.fates import ProducerOptions
from hocket.client_core.producing.publishing import PublishCore
from hocket.client_core.producing.records import checked
from hocket.errors import HocketError, StorageFull
from hocket.model import Limits, Position, partition_of
from tests.support.client.scripted import ModelBroker, Stage
from tests.support.threads import LONG

SEEDS = range(400 if LONG else 20)
STEPS = 600


class Storm:
    def __init__(self, seed: int, core_class) -> None:
        self.random = Random(seed)
        self.partitions = self.random.choice([1, 1, 3])
        self.broker = ModelBroker(self.partitions)
        limits = Limits(in_flight_max=self.random.choice([1, 2, 5]))
        self.stage = Stage(limits=limits, seed=seed).started()
        self.outcomes: dict[bytes, object] = {}
        self.core = core_class(
            self.stage.session,
            "t",
            ProducerOptions(
                linger_us=self.random.choice([0, 1000]),
                batch_bytes=100,
                window_bytes=1000,
                delivery_us=10**12,  # nothing is given up, however long the links are down
            ),
            self._settle,
        )
        self.core.open()
        self.answers: deque = deque()
        self.sent: list[tuple[bytes, bytes | None]] = []
        self.losses = self.refusals = 0

    def _settle(self, batch, outcome) -> None:
        for number, waiter in batch.waiters:
            name = waiter.name
            assert name not in self.outcomes, f"{name} was reported twice"
            known = isinstance(outcome, HocketError)
            self.outcomes[name] = outcome if known else outcome.position(number)

    # --- steps -----------------------------------------------------------------------------------

    def step(self) -> None:
        self.random.choice(
            [self.send, self.send, self.to_broker, self.to_broker, self.to_client, self.to_client,
             self.to_client, self.wait, self.lose, self.turn_moody]
        )()  # fmt: skip

    def send(self) -> None:
        if not self.core.is_open:
            return
        value = b"%d" % len(self.sent)
        key = self.random.choice([None, b"a", b"b", b"c"])
        record, size = checked(value, key, None, None, Named(value))
        try:
            taken = self.core.offer(self.core.gathering_of(key, None), record, size)
        except StorageFull:  # earlier records were refused: this one is not taken
            return
        if taken:
            self.sent.append((value, key))

    def to_broker(self) -> None:
        link = self.stage.link
        if link is not None and link.sent:
            frame, payload = link.sent.pop(0)
            self.answers.extend(self.broker.answer(frame, payload))

    def to_client(self) -> None:
        if self.stage.link is not None and self.answers:
            self.stage.reply(self.answers.popleft())

    def wait(self) -> None:
        if self.stage.link is None:
            self.stage.come_back()
        else:
            self.stage.advance(self.random.choice([500, 30_000, 400_000]))

    def lose(self) -> None:
        if self.stage.link is not None and self.random.random() < 0.15:
            self.losses += 1
            # What we had sent may have arrived or not; what the broker answered has not.
            arrived = self.random.randint(0, len(self.stage.link.sent))
            for frame, payload in self.stage.link.sent[:arrived]:
                self.broker.answer(frame, payload)
            self.answers.clear()
            self.stage.lose()

    def turn_moody(self) -> None:
        self.broker.refuse = self.random.choice([None, None, "busy", "storageFull"])
        self.refusals += self.broker.refuse is not None

    def settle(self) -> None:
        """Faults stop; everything has to be delivered."""
        self.broker.refuse = None
        for _ in range(2000):
            if self.core.is_open:
                self.core.cut_all()
            if self.stage.link is None:
                self.stage.come_back()
            self.to_broker()
            self.to_client()
            self.stage.advance(100_000)
            if len(self.outcomes) == len(self.sent) and not self.core.unacked_bytes:
                return
        raise AssertionError(f"{len(self.outcomes)} of {len(self.sent)} were reported")

    # --- checks ----------------------------------------------------------------------------------

    def check(self) -> None:
        stored = [value for log in self.broker.logs for value in log.values]
        # What is reported as refused by a full disk is not stored, unless a link broke meanwhile.
        refused = {value: o for value, o in self.outcomes.items() if isinstance(o, StorageFull)}
        unsure = {value for value, error in refused.items() if error.may_have_happened}
        assert sorted({*stored} - unsure) == sorted({v for v, _ in self.sent} - refused.keys())
        assert len(stored) == len({*stored})
        for number, log in enumerate(self.broker.logs):
            keyed = [int(v) for v in log.values if self.sent[int(v)][1] is not None]
            assert keyed == sorted(keyed)
            for n in keyed:
                assert partition_of(self.sent[n][1], self.partitions) == number
        for value, outcome in self.outcomes.items():
            if value in refused:
                continue
            assert isinstance(outcome, Position), (value, outcome)
            assert self.broker.logs[outcome.partition].values[outcome.offset] == value


class Named:
    expires_us = 10**15

    def __init__(self, name: bytes) -> None:
        self.name = name


@pytest.mark.parametrize("core_class", [ProducerCore, PublishCore])
@pytest.mark.parametrize("seed", SEEDS)
def test_each_record_is_stored_once_in_order_whatever_happens(core_class, seed):
    storm = Storm(seed, core_class)
    for _ in range(STEPS):
        storm.step()
    storm.settle()
    storm.check()
    assert storm.sent
    if len(storm.broker.logs) == 1:
        stored = {*storm.broker.logs[0].values}
        assert storm.broker.logs[0].values == [v for v, _ in storm.sent if v in stored]


def test_the_storms_have_losses_and_refusals():
    """What the storms above are made of: without faults they would show nothing."""
    storms = [Storm(seed, ProducerCore) for seed in SEEDS[:20]]
    for storm in storms:
        for _ in range(STEPS):
            storm.step()
    assert sum(storm.losses for storm in storms) > 50
    assert sum(storm.refusals for storm in storms) > 50
    assert sum(storm.broker.pushes for storm in storms) > 500


class Fatal(Storm):
    """A broker that now and then refuses a batch for good."""

    def turn_moody(self) -> None:
        self.broker.refuse = self.random.choice([None, None, None, "busy", "corruptData"])


@pytest.mark.parametrize("core_class", [ProducerCore, PublishCore])
@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_reported_as_failed_for_certain_is_not_stored_and_the_rest_is_once(
    core_class, seed
):
    storm = Fatal(seed, core_class)
    for _ in range(STEPS):
        storm.step()
    storm.settle()
    stored = [value for log in storm.broker.logs for value in log.values]
    assert len(set(stored)) == len(stored), "something was stored twice"
    for value, outcome in storm.outcomes.items():
        if isinstance(outcome, Position):
            assert storm.broker.logs[outcome.partition].values[outcome.offset] == value
        elif not outcome.may_have_happened:
            assert value not in stored
    for log in storm.broker.logs:
        keyed = [int(v) for v in log.values if storm.sent[int(v)][1] is not None]
        assert keyed == sorted(keyed)


def test_the_model_refuses_gaps():
    """Or the order in the storms above would hold whatever the producer did."""
    stage = Stage().started()
    core = ProducerCore(stage.session, "t", ProducerOptions(linger_us=0), lambda *_: None)
    core.open()
    broker = ModelBroker()
    (opened,) = broker.answer(stage.take(frames.OpenProducer), b"")
    stage.reply(opened)
    core.offer(None, *checked(b"first", None, None, None, None))
    first = stage.take_with_payload(frames.Push)
    (acked,) = broker.answer(*first)
    stage.reply(acked)
    core.offer(None, *checked(b"second", None, None, None, None))
    second = stage.take_with_payload(frames.Push)
    fresh = ModelBroker()
    (refused,) = fresh.answer(*second)
    assert isinstance(refused, frames.PushRefused)
    assert fresh.logs[0].values == []
