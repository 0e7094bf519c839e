from __future__ import annotations

import pytest

from hocket import frames
from hocket.client_core.producing.publishing import Publications
from hocket.client_core.producing.records import checked
from hocket.errors import Busy, NotAllowed, OutcomeUnknown, Timeout, UnknownTopic
from hocket.model import Position
from tests.support.client.scripted import ModelBroker, Stage, stamps_in, values_in


class Publishing:
    def __init__(self, partitions: int = 1) -> None:
        self.stage = Stage().started()
        self.broker = ModelBroker(partitions)
        self.publications = Publications(self.stage.session)
        self.core = self.publications.core("t")
        self.exchange()

    def publish(self, value: bytes, key: bytes | None = None, timeout: float = 30):
        publication = self.publications.new(self.stage.outbox.now_us, timeout)
        record, size = checked(value, key, None, None, publication)
        assert self.core.offer(self.core.gathering_of(key, None), record, size)
        return publication

    def exchange(self) -> int:
        """The broker answers everything there is; returns how many frames that were."""
        count = 0
        while self.stage.link.sent:
            for answer in self.broker.answer(*self.stage.link.sent.pop(0)):
                count += 1
                self.stage.reply(answer)
        return count


def test_a_lone_publish_leaves_at_once():
    one = Publishing()
    publication = one.publish(b"value", b"key")
    frame, payload = one.stage.link.sent[0]
    assert (frame.topic, frame.partition) == ("t", 0)
    assert values_in(payload) == [b"value"]
    one.exchange()
    assert publication.get() == Position("t", 0, 0)


def test_ten_thousand_at_once_are_a_few_frames():
    one = Publishing(partitions=3)
    waiting = [one.publish(b"%d" % n, b"%d" % n) for n in range(10_000)]
    assert one.exchange() == 6  # for each partition the first, and then all the others
    positions = [publication.get() for publication in waiting]
    assert len(set(positions)) == 10_000
    for n, position in enumerate(positions):
        assert one.broker.logs[position.partition].values[position.offset] == b"%d" % n


def test_batches_are_stamped_so_that_a_lost_answer_is_harmless():
    one = Publishing()
    publication = one.publish(b"once")
    frame, payload = one.stage.take_with_payload(frames.Publish)
    one.broker.answer(frame, payload)  # it is stored, and the answer is lost
    one.stage.lose()
    one.stage.come_back()
    one.exchange()
    assert publication.get() == Position("t", 0, 0)
    assert one.broker.logs[0].values == [b"once"]
    ((producer_id, _, sequence),) = stamps_in(payload)
    assert (producer_id, sequence) != (bytes(16), None)


def test_a_busy_broker_is_asked_again():
    one = Publishing()
    one.broker.refuse = "busy"
    publication = one.publish(b"value")
    one.exchange()
    assert publication.get() is None
    one.broker.refuse = None
    one.stage.advance(100_000)
    one.exchange()
    assert publication.get() == Position("t", 0, 0)


def test_what_is_refused_for_good_is_refused_to_those_it_is_about():
    one = Publishing()
    first = one.publish(b"first")
    second = one.publish(b"second")
    one.stage.reply(frames.Failure(one.stage.take(frames.Publish).request, "notAllowed", "not you"))
    one.exchange()
    assert isinstance(first.get(), NotAllowed)
    assert not first.get().may_have_happened
    assert second.get() == Position("t", 0, 0)


def test_it_is_tried_for_as_long_as_somebody_waits():
    one = Publishing()
    short, long = one.publish(b"short", timeout=5), one.publish(b"long", timeout=20)
    one.stage.lose()
    one.stage.advance(6_000_000)
    assert isinstance(short.get(), Timeout)
    assert type(short.get()) is OutcomeUnknown
    assert short.get().may_have_happened
    assert long.get() is None
    one.stage.welcome()
    one.exchange()
    assert isinstance(long.get(), Position)


def test_a_topic_that_is_not_there_is_not_remembered():
    stage = Stage().started()
    publications = Publications(stage.session)
    core = publications.core("nowhere")
    assert publications.core("nowhere") is core
    stage.reply(frames.Failure(stage.take(frames.OpenProducer).request, "unknownTopic", "none"))
    with pytest.raises(UnknownTopic):
        core.check_usable()
    assert publications.core("nowhere") is not core


def test_an_error_raised_in_one_thread_is_not_the_one_raised_in_another():
    one = Publishing()
    one.publish(b"in flight")
    first, second = one.publish(b"a"), one.publish(b"b")
    one.stage.reply(frames.Published(one.stage.take(frames.Publish).request, 0, 0))
    one.stage.reply(frames.Failure(one.stage.take(frames.Publish).request, "tooLarge", "much"))
    one.broker.logs[0].known[one.broker.ids.to_bytes(16, "big")] = [0]
    one.exchange()
    assert first.get() is not second.get()
    assert str(first.get()) == str(second.get()) == "much"


def test_an_answer_of_the_wrong_kind_costs_the_link():
    one = Publishing()
    one.publish(b"value")
    link = one.stage.link
    one.stage.reply(frames.Done(one.stage.take(frames.Publish).request))
    assert link.closed
    assert not isinstance(one.stage.session.last_error, Busy)
