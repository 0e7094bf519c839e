"""The port under bad manners: whatever one connection does, the others and the broker go on."""

from __future__ import annotations

import random
import socket
import struct

import pytest

import hocket
from hocket import frames
from hocket.model import Limits
from hocket.node.settings import NodeSettings
from hocket.wire import batch as batches
from tests.support.node.running import RawConnection, Speaker, listening
from tests.support.threads import until


@pytest.fixture
def address(tmp_path):
    with listening(tmp_path / "data") as where:
        yield where


def url_of(address: tuple[str, int]) -> str:
    return f"hocket://{address[0]}:{address[1]}"


def test_garbage_costs_its_own_connection_and_nothing_else(address):
    chance = random.Random("garbage")
    with Speaker(address) as healthy:
        healthy.greet()
        for _ in range(60):
            with RawConnection(address) as hostile:
                hostile.send(chance.randbytes(chance.randrange(1, 300)))
                hostile.socket.shutdown(socket.SHUT_WR)
                while not hostile.at_end():  # it may be told why first
                    pass
        healthy.say(frames.Ping(2))
        assert healthy.hear() == frames.Done(2)


def test_whoever_is_refused_hears_why_even_while_it_is_still_sending(address):
    for _ in range(10):
        with RawConnection(address) as hostile:
            hostile.send(b"x" * 1_000_000)
            header, _ = hostile.receive()
            assert b"before the Welcome" in header
            assert hostile.at_end()


def test_whoever_is_refused_and_does_not_hang_up_is_let_go_in_time(tmp_path):
    settings = NodeSettings(hello_timeout_us=200_000)
    with (
        listening(tmp_path / "data", settings) as address,
        RawConnection(address) as hostile,
    ):
        hostile.send(b"x" * 100)
        hostile.receive()
        assert hostile.at_end()

        def is_gone() -> bool:
            try:
                hostile.send(b"x")
            except ConnectionError:
                return True
            return False

        assert not is_gone()
        until(is_gone)


def test_a_frame_that_is_announced_and_never_comes_does_not_hold_up_anybody(address):
    with RawConnection(address) as silent, Speaker(address) as healthy:
        silent.send(struct.pack("<IIQ", 64, 0, 0))
        healthy.greet()


def test_connections_that_never_say_hello_do_not_keep_the_broker_from_closing(tmp_path):
    with listening(tmp_path / "data") as address:
        silent = [RawConnection(address) for _ in range(5)]
        with Speaker(address) as healthy:
            healthy.greet()
    for connection in silent:
        header, _ = connection.receive()  # why
        assert b"shuttingDown" in header
        assert connection.at_end()
        connection.socket.close()


def test_a_damaged_batch_is_refused_and_nothing_of_it_stored(address):
    with hocket.connect(url_of(address)) as client, Speaker(address) as speaker:
        client.create_topic("t")
        speaker.greet()
        entry = bytearray(batches.encode([b"whole"], timestamps=1))
        entry[-9] ^= 1
        speaker.say(frames.Publish(2, "t", 0), bytes(entry))
        answer = speaker.hear()
        assert isinstance(answer, frames.Failure)
        assert answer.code == "protocol"
        assert speaker.at_end()
        assert client.describe("t").partitions[0].end == 0


def test_a_batch_of_another_producer_is_refused(address):
    with hocket.connect(url_of(address)) as client, Speaker(address) as speaker:
        client.create_topic("t")
        speaker.greet()
        speaker.say(frames.OpenProducer(2, "t"))
        opened = speaker.hear()
        assert isinstance(opened, frames.ProducerOpened)
        forged = batches.encode([b"x"], timestamps=1, producer_id=b"somebody else 16")
        speaker.say(frames.Push(0, opened.handle, 0), forged)
        assert isinstance(speaker.hear(), frames.Failure)
        assert client.describe("t").partitions[0].end == 0


def test_a_consumer_that_does_not_read_holds_up_nobody_else(address):
    with hocket.connect(url_of(address)) as client, Speaker(address) as lazy:
        client.create_topic("t")
        lazy.greet()
        lazy.say(frames.OpenSubscription(2, "t", credit_bytes=64 << 20))
        with client.producer("t") as producer:
            producer.send_many([bytes(100_000)] * 300)  # far more than the socket takes
        with client.subscribe("t") as messages:
            for _ in range(300):
                messages.receive(timeout=30)


def test_what_a_consumer_gave_no_credit_for_is_not_sent(address):
    with hocket.connect(url_of(address)) as client, Speaker(address) as speaker:
        client.create_topic("t")
        client.publish("t", b"waiting")
        speaker.greet()
        speaker.say(frames.OpenSubscription(2, "t"))
        opened = speaker.hear()
        assert isinstance(opened, frames.SubscriptionOpened)
        speaker.say(frames.Ping(3))
        assert speaker.hear() == frames.Done(3)  # and no Deliver before it
        speaker.say(frames.Credit(0, opened.handle, 1))
        assert isinstance(speaker.hear(), frames.Deliver)


def test_more_connections_than_allowed_are_refused_and_room_is_used_again(tmp_path):
    settings = NodeSettings(limits=Limits(connections_max=3))
    with listening(tmp_path / "data", settings) as address:
        held = [Speaker(address).greet() for _ in range(3)]
        with RawConnection(address) as one_too_many:
            assert one_too_many.at_end()
        held.pop().socket.close()

        def room() -> bool:
            try:
                with Speaker(address) as again:
                    again.greet()
            except (AssertionError, ConnectionError):
                return False
            return True

        until(room)
        for speaker in held:
            speaker.socket.close()


def test_a_thousand_connections_at_once_are_all_served(address):
    speakers = [Speaker(address) for _ in range(1000)]
    try:
        for speaker in speakers:
            speaker.say(frames.Hello(1))
        for speaker in speakers:
            assert isinstance(speaker.hear(), frames.Welcome)
        for number, speaker in enumerate(speakers, start=2):
            speaker.say(frames.Ping(number))
        for number, speaker in enumerate(speakers, start=2):
            assert speaker.hear() == frames.Done(number)
    finally:
        for speaker in speakers:
            speaker.socket.close()
