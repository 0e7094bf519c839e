"""Bytes cost what they did: without `value=` nothing of it is made, and nothing is asked."""

from __future__ import annotations

import hocket
from hocket.client.faces.blocking.producer import Producer
from hocket.client_core.consuming.message import Message, MessageBatch


def test_without_a_type_the_classes_are_those_of_bytes():
    with hocket.embedded() as client:
        client.create_topic("t")
        with client.producer("t") as producer, client.producer("t", value=bytes) as same:
            assert (type(producer), type(same)) == (Producer, Producer)
            producer.send_many([b"1", b"2"])
        with client.subscribe("t") as plain, client.subscribe("t", value=int) as typed:
            assert type(plain.receive(timeout=10)) is Message
            assert type(plain.receive_batch(timeout=10)) is MessageBatch
            message = typed.receive(timeout=10)
            assert isinstance(message, Message)
            assert message.value == 1


def test_a_message_without_a_type_has_no_room_for_a_decoded_value():
    assert Message.__slots__ == ()
    assert Message.__dictoffset__ == 0
