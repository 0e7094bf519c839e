"""Subscriptions: what a message and a batch of columns carry, and what two threads draw.

Everything else that a broker or an application can do is in `tests/client/traces/subscription`.
"""

from __future__ import annotations

import pytest

from hocket import frames
from hocket.client_core.consuming.attachment import SubscriptionOptions
from hocket.client_core.consuming.core import SubscriptionCore
from hocket.client_core.consuming.message import Message, MessageBatch
from hocket.client_core.outbox import Send
from hocket.errors import CorruptData
from hocket.frames import packed
from tests.support.client.scripted import Stage, placed, stored
from tests.support.wire.batches import with_fallen_offset, with_false_raw_length


def delivered(payload: bytes, offset: int, end: int) -> SubscriptionCore:
    """A subscription that was opened at `offset` and got this."""
    stage = Stage().started()
    core = SubscriptionCore(
        stage.session, "t", SubscriptionOptions(index="billing"), message=Message,
        batch=MessageBatch, arouse=lambda progress: None,
    )  # fmt: skip
    core.open()
    request = stage.take(frames.OpenSubscription).request
    stage.reply(frames.SubscriptionOpened(request, 1, packed([0, offset])))
    stage.reply(frames.Deliver(0, 1, 0, offset, end), payload)
    return core


def numbers(start, end) -> list[bytes]:
    return [b"%d" % n for n in range(start, end)]


def test_messages_come_with_all_they_carry():
    entry = stored([b"a", b"b"], 5, keys=[b"k", None], headers=[None, {"h": None}],
                   timestamps=[1, 1_000_001])  # fmt: skip
    core = delivered(entry, 5, 7)
    first, second = core.next_message(), core.next_message()
    assert (first.value, first.key, first.headers) == (b"a", b"k", {})
    assert (second.value, second.key, second.headers) == (b"b", None, {"h": None})
    assert (second.topic, second.partition, second.offset) == ("t", 0, 6)
    assert (second.timestamp, second.time.isoformat()) == (
        1_000_001, "1970-01-01T00:00:01.000001+00:00",
    )  # fmt: skip
    assert second.delivery_count == 1


def test_a_batch_of_what_is_left_holds_only_what_no_other_thread_has_drawn():
    core = delivered(stored(numbers(0, 10), 0), 0, 10)
    core.next_message()
    core.next_message()
    ready = list(core.inbound.ready)
    core.inbound.ready = iter(ready[:3] + ready[4:])  # another has drawn 5 meanwhile
    first, second = core.next_batch(), core.next_batch()
    assert (first.values(), second.values()) == (numbers(2, 5), numbers(6, 10))


@pytest.mark.parametrize(
    "read", ["values", "keys", "headers", "timestamps", "messages", "to_arrow"]
)
def test_a_batch_of_columns_that_cannot_be_read_says_how_to_go_on(read):
    values = [b"as long as it need be, %d" % number for number in range(300)]
    batch = delivered(placed(with_false_raw_length(values), 0), 0, 300).next_batch()
    with pytest.raises(CorruptData, match="hocket index skip t billing --partition 0 --offset 0"):
        getattr(batch, read)()


def test_a_batch_of_columns_names_the_record_that_makes_no_sense():
    entry = placed(with_fallen_offset(numbers(0, 300), at=150), 0)
    batch = delivered(entry, 0, 300).next_batch()
    assert batch.timestamps() == [1] * 300
    with pytest.raises(CorruptData, match="offset 150 cannot be read"):
        batch.values()


def test_a_seek_in_the_first_partition_is_none_in_all_of_them():
    """Traces write neither: 0 is the first, and -1 stands for all."""
    core = delivered(stored(numbers(0, 10), 0), 0, 10)
    core.seek(0, 5, lambda answer: None)
    sent = [effect.frame for effect in core.session.outbox.effects if isinstance(effect, Send)]
    assert [(frame.index, frame.partition) for frame in sent] == [("billing", 0)]
