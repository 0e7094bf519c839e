from __future__ import annotations

import gc
import weakref

import pytest

from hocket import frames
from hocket.client_core.producing.bulk import list_portions
from hocket.client_core.producing.core import ProducerCore
from hocket.client_core.producing.fates import ProducerOptions
from hocket.client_core.producing.outgoing import Positions
from hocket.client_core.producing.records import checked
from hocket.errors import (
    Closed,
    MessageTooLarge,
    StorageFull,
    UnknownPartition,
    UnknownTopic,
    WrongType,
)
from hocket.frames import packed
from hocket.model import Limits, partition_of
from hocket.wire.batch import parse
from tests.support.client.scripted import Stage, stamps_in, values_in

ID, OTHER_ID = b"i" * 16, b"o" * 16


class Producing:
    """A producer on a stage, and what was reported of its batches."""

    def __init__(self, *, partitions: int = 1, limits: Limits | None = None, **options) -> None:
        self.stage = Stage(limits=limits).started()
        self._outcomes: list = []
        self._waiters: list = []
        self.core = ProducerCore(self.stage.session, "t", ProducerOptions(**options), self._settle)
        self.core.open()
        self.opened(partitions=partitions)

    @property
    def outcomes(self) -> list:
        self.stage.carry_out()
        return self._outcomes

    @property
    def waiters(self) -> list:
        self.stage.carry_out()
        return self._waiters

    def _settle(self, batch, outcome) -> None:
        self._outcomes.append(outcome)
        self._waiters += [(number, waiter, outcome) for number, waiter in batch.waiters]

    def opened(self, handle=1, producer_id=ID, epoch=0, partitions=1, sequences=None):
        asked = self.stage.take(frames.OpenProducer)
        self.stage.reply(
            frames.ProducerOpened(
                asked.request, handle, producer_id, epoch, partitions,
                packed(sequences or [0] * partitions),
            )
        )  # fmt: skip
        return asked

    def send(self, value=b"", key=None, headers=None, timestamp=None, partition=None, waiter=None):
        record, size = checked(value, key, headers, timestamp, waiter)
        gathering = self.core.gathering_of(record[1], partition)
        return self.core.offer(gathering, record, size)

    def send_plain(self, *values) -> None:
        for value in values:
            assert self.send(value)

    def pushed(self) -> list[tuple[int, list[bytes], int]]:
        """What was pushed since the last look: partition, values, sequence."""
        found = []
        while self.stage.link.sent and isinstance(self.stage.link.sent[0][0], frames.Push):
            frame, payload = self.stage.take_with_payload(frames.Push)
            ((_, _, sequence),) = stamps_in(payload)
            found.append((frame.partition, values_in(payload), sequence))
        return found

    def ack(self, sequence, *offsets, partition=0, handle=1) -> None:
        self.stage.reply(frames.PushAcked(0, handle, partition, sequence, packed(offsets)))

    def refuse(self, sequence, code, partition=0, handle=1) -> None:
        self.stage.reply(frames.PushRefused(0, handle, partition, sequence, code, f"it is {code}"))

    def linger(self) -> None:
        self.stage.advance(self.core.options.linger_us)


# --- gathering -----------------------------------------------------------------------------------


def test_records_gather_until_the_first_has_waited_for_linger():
    one = Producing(linger_us=2000)
    one.send_plain(b"a")
    one.stage.advance(1000)
    one.send_plain(b"b")
    one.stage.advance(999)
    assert one.pushed() == []
    one.stage.advance(1)
    assert one.pushed() == [(0, [b"a", b"b"], 0)]
    one.send_plain(b"c")
    one.linger()
    assert one.pushed() == [(0, [b"c"], 1)]


def test_a_full_batch_leaves_at_once_and_the_next_waits_its_own_time():
    one = Producing(linger_us=2000, batch_bytes=100)
    one.send_plain(bytes(30), bytes(30))  # 42 bytes each with what it costs
    one.stage.advance(1500)
    one.send_plain(b"next" + bytes(26))
    assert one.pushed() == [(0, [bytes(30), bytes(30)], 0)]
    one.stage.advance(1999)
    assert one.pushed() == []
    one.stage.advance(1)
    assert [values for _, values, _ in one.pushed()] == [[b"next" + bytes(26)]]


def test_the_time_that_encoding_takes_does_not_shorten_the_linger_of_what_follows():
    one = Producing(linger_us=2000, batch_bytes=100)
    one.send_plain(bytes(30), bytes(30))
    one.stage.advance(1500)
    outbox = one.stage.session.outbox

    def encoding_took_a_while() -> None:
        outbox.now_us += 1500

    outbox.tell_time = encoding_took_a_while
    one.send_plain(b"next" + bytes(26))
    assert len(one.pushed()) == 1
    one.stage.advance(3499)  # of which 1500 us have passed already
    assert one.pushed() == []
    one.stage.advance(1)
    assert [values for _, values, _ in one.pushed()] == [[b"next" + bytes(26)]]


def test_without_linger_a_lone_record_waits_for_nothing_and_others_for_its_answer():
    one = Producing(linger_us=0)
    one.send_plain(b"a")
    assert one.pushed() == [(0, [b"a"], 0)]
    one.send_plain(b"b", b"c")
    one.stage.advance(1_000_000)
    assert one.pushed() == []
    one.ack(0, 0)
    assert one.pushed() == [(0, [b"b", b"c"], 1)]
    one.ack(1, 1)
    assert one.pushed() == []
    one.send_plain(b"d")
    assert one.pushed() == [(0, [b"d"], 2)]


def test_empty_values_fill_a_batch_too():
    one = Producing(batch_bytes=120)
    one.send_plain(*[b""] * 11)
    assert [len(values) for _, values, _ in one.pushed()] == [10]


def test_keys_go_where_their_hash_says_and_the_rest_to_a_sticky_partition():
    one = Producing(partitions=4)
    keys = [b"%d" % n for n in range(20)]
    for key in keys:
        one.send(b"of " + key, key=key)
    for n in range(3):
        one.send_plain(b"%d" % n)
    one.linger()
    found = one.pushed()
    for partition, values, _ in found:
        for value in values:
            if value.startswith(b"of "):
                assert partition_of(value[3:], 4) == partition
    (sticky,) = {partition for partition, values, _ in found if b"0" in values}
    assert [v for p, values, _ in found if p == sticky for v in values][-3:] == [b"0", b"1", b"2"]
    assert sum(len(values) for _, values, _ in found) == 23


def test_the_sticky_partition_moves_on_with_each_batch():
    one = Producing(partitions=3)
    used = []
    for n in range(6):
        one.send_plain(b"%d" % n)
        one.linger()
        ((partition, values, _),) = one.pushed()
        assert values == [b"%d" % n]
        used.append(partition)
    assert used[:3] == used[3:]
    assert sorted(used[:3]) == [0, 1, 2]


def test_records_keep_their_order_whatever_they_carry():
    one = Producing()
    one.send_plain(b"0")
    one.send(b"1", key=b"k")
    one.send_plain(b"2")
    one.send(b"3", headers={"h": b"v"}, timestamp=5)
    one.linger()
    _, payload = one.stage.take_with_payload(frames.Push)
    batch = parse(payload)
    assert batch.values() == [b"0", b"1", b"2", b"3"]
    assert batch.keys() == [None, b"k", None, None]
    assert batch.headers()[3] == {"h": b"v"}
    now = one.stage.clock.now_us()
    assert batch.timestamps() == [now, now, now, 5]


def test_a_timestamp_of_zero_is_a_timestamp():
    one = Producing()
    one.send(b"old", timestamp=0)
    one.linger()
    assert parse(one.stage.take_with_payload(frames.Push)[1]).timestamps() == [0]


def test_after_a_batch_with_keys_plain_ones_are_plain_again():
    one = Producing()
    one.send(b"a", key=b"k")
    one.linger()
    one.send_plain(b"b")
    one.linger()
    one.send_plain(b"c")
    one.linger()
    assert [values for _, values, _ in one.pushed()] == [[b"a"], [b"b"], [b"c"]]


@pytest.mark.parametrize(
    ("partition", "error"), [(-1, UnknownPartition), (2, UnknownPartition), ("0", WrongType)]
)
def test_a_partition_that_is_not_there(partition, error):
    one = Producing(partitions=2)
    with pytest.raises(error):
        one.send(b"a", partition=partition)
    one.send(b"b", partition=1)
    one.linger()
    assert one.pushed() == [(1, [b"b"], 0)]


def test_a_message_larger_than_the_broker_takes_is_refused_and_nothing_else_suffers():
    one = Producing(limits=Limits(batch_bytes_max=10_000))
    one.send_plain(b"before")
    with pytest.raises(MessageTooLarge, match="more than the 8976"):
        one.send_plain(bytes(9000))
    one.send_plain(bytes(8000), b"after")
    one.linger()
    assert [[len(v) for v in values] for _, values, _ in one.pushed()] == [[6, 8000, 5]]


def test_the_window_is_waited_for_and_opens_with_acknowledgements():
    one = Producing(batch_bytes=1000, window_bytes=2400)
    woken = []
    taken = 0
    while one.send(bytes(500)):
        taken += 1
    assert taken == 4  # four batches of one are more than 2,400 bytes with their framing
    assert len(one.pushed()) == 4
    one.core.settled.add(lambda: woken.append(True))
    assert not one.send(bytes(500))
    one.ack(0, 0)
    assert woken
    assert one.send(bytes(500))


def test_one_message_larger_than_the_window_passes():
    one = Producing(window_bytes=1)
    assert one.send(bytes(5000))
    one.linger()
    assert len(one.pushed()) == 1


def test_many_at_once_are_cut_into_batches_and_stop_at_the_window():
    one = Producing(batch_bytes=1200, window_bytes=3000)
    (portion,) = list_portions(one.core, [b"%03d" % n + bytes(97) for n in range(100)], None, None)
    end = portion.offer(one.core, 0)
    batches = one.pushed()
    sent = [value[:3] for _, values, _ in batches for value in values]
    assert sent == [b"%03d" % n for n in range(len(sent))]
    assert all(len(values) == 10 for _, values, _ in batches)
    assert len(sent) <= end < 100
    assert portion.offer(one.core, end) is None
    while end < 100:
        one.ack(batches[-1][2], *[0] * len(batches))
        end = portion.offer(one.core, end)
        batches = one.pushed()
        sent += [value[:3] for _, values, _ in batches for value in values]
    one.linger()
    sent += [value[:3] for _, values, _ in one.pushed() for value in values]
    assert sent == [b"%03d" % n for n in range(100)]


def test_many_at_once_are_split_by_key_in_order():
    one = Producing(partitions=3)
    keys = [b"%d" % (n % 7) if n % 5 else None for n in range(50)]
    values = [b"%d" % n for n in range(50)]
    for portion in list_portions(one.core, values, keys, None):
        assert portion.offer(one.core, 0) == portion.count
    one.linger()
    found: dict[int, list[bytes]] = {}
    for partition, values_there, _ in one.pushed():
        found.setdefault(partition, []).extend(values_there)
    assert sorted(v for there in found.values() for v in there) == sorted(values)
    for partition, there in found.items():
        keyed = [int(v) for v in there if keys[int(v)] is not None]
        assert keyed == sorted(keyed)
        assert all(partition_of(keys[n], 3) == partition for n in keyed)


def test_nothing_of_many_is_taken_if_one_is_too_large():
    one = Producing(limits=Limits(batch_bytes_max=5000))
    with pytest.raises(MessageTooLarge):
        list_portions(one.core, [b"a", bytes(6000)], None, None)
    with pytest.raises(MessageTooLarge):
        list_portions(one.core, [b"a", b"b"], [None, bytes(6000)], None)
    assert list_portions(one.core, [], None, None) == []


def test_a_record_can_be_withdrawn_until_it_is_cut():
    one = Producing()
    record, size = checked(b"a", None, None, None, "waiter")
    one.core.offer(None, record, size)
    assert one.core.withdraw(record)
    assert not one.core.withdraw(record)
    one.linger()
    assert one.pushed() == []


# --- acknowledging -------------------------------------------------------------------------------


def test_acknowledgements_are_cumulative_and_carry_positions():
    one = Producing(linger_us=1000)
    for n in range(3):
        one.send(b"%d" % n, waiter=n)
        one.linger()
    one.pushed()
    one.ack(1, 10, 20)
    assert one.outcomes == [Positions("t", 0, 10, 11), Positions("t", 0, 20, 21)]
    one.ack(1, 20)  # once more
    one.ack(2, 10, 20, 30)  # with more than is new
    assert one.outcomes[2:] == [Positions("t", 0, 30, 31)]
    assert [(number, waiter) for number, waiter, _ in one.waiters] == [(0, 0), (0, 1), (0, 2)]
    assert one.core.unacked_bytes == 0


def test_flush_waits_for_what_was_before_it_and_for_nothing_else():
    one = Producing()
    one.send_plain(b"a")
    serial = one.core.cut_all()
    assert one.pushed() == [(0, [b"a"], 0)]
    assert not one.core.is_settled(serial)
    one.send_plain(b"b")
    one.linger()
    one.ack(0, 0)
    assert one.core.is_settled(serial)


# --- refusals ------------------------------------------------------------------------------------


def three_pushed(**options) -> Producing:
    one = Producing(linger_us=1000, **options)
    for n in range(3):
        one.send(b"%d" % n, waiter=n)
        one.linger()
    assert [sequence for _, _, sequence in one.pushed()] == [0, 1, 2]
    return one


def refused_for_want_of_room(one: Producing, sequence: int, us: int) -> None:
    """The disk stays full: every push of this batch is refused, for so long."""
    end = one.stage.clock.ticks + us
    one.refuse(sequence, "storageFull")
    while one.stage.clock.ticks < end:
        one.stage.advance(10_000)
        if one.pushed():
            one.refuse(sequence, "storageFull")


def test_a_disk_that_stays_full_is_said_after_some_seconds_and_of_all_that_waits():
    one = three_pushed()
    one.ack(0, 0)
    refused_for_want_of_room(one, 1, 2_000_000)
    assert len(one.outcomes) == 1  # it may have room again in a moment
    refused_for_want_of_room(one, 1, 4_000_000)
    assert one.stage.take(frames.CloseHandle).handle == 1
    one.opened(handle=2, sequences=[1])  # what has it stored?
    assert [type(each) for each in one.outcomes[1:]] == [StorageFull, StorageFull]
    assert "it is storageFull" in str(one.outcomes[1])
    assert not any(each.may_have_happened for each in one.outcomes[1:])


def test_after_a_full_disk_the_next_record_is_refused_once_and_the_others_are_tried():
    one = three_pushed()
    refused_for_want_of_room(one, 0, 6_000_000)
    one.stage.take(frames.CloseHandle)
    one.opened(handle=2)
    one.stage.take(frames.CloseHandle)
    one.opened(handle=3, producer_id=OTHER_ID)
    with pytest.raises(StorageFull, match="it is storageFull"):
        one.send(b"not taken")
    assert one.core.first_error is None
    one.send(b"taken", waiter=3)
    one.linger()
    assert one.pushed() == [(0, [b"taken"], 0)]
    one.refuse(0, "storageFull", handle=3)  # still full: said at once now
    one.stage.take(frames.CloseHandle)
    one.opened(handle=4, producer_id=OTHER_ID)
    assert isinstance(one.outcomes[-1], StorageFull)


def test_a_full_disk_is_named_when_the_time_to_deliver_runs_out_before():
    one = three_pushed(delivery_us=1_000_000)
    refused_for_want_of_room(one, 0, 1_100_000)
    assert [type(each) for each in one.outcomes] == [StorageFull] * 3
    assert not any(each.may_have_happened for each in one.outcomes)


def test_room_in_time_is_as_if_nothing_had_been():
    one = three_pushed()
    refused_for_want_of_room(one, 0, 2_000_000)
    one.stage.advance(4_000_000)
    assert one.pushed()
    one.ack(2, 0, 1, 2)
    assert one.core.full_disk is None
    assert one.core.first_error is None
    one.send(b"3")


def test_an_ended_producer_is_kept_by_nothing_that_waits_for_its_time():
    one = Producing(linger_us=0)
    one.send(b"a")
    one.ack(0, 0)
    core = weakref.ref(one.core)
    assert one.outcomes
    one.core.end(Closed("the end"))
    one.stage.carry_out()
    del one.core
    gc.collect()
    assert core() is None


def test_a_deleted_topic_ends_it():
    one = three_pushed()
    one.send(b"gathered", waiter="gathered")
    one.stage.reply(frames.HandleEnded(0, 1, "unknownTopic", "it was deleted"))
    assert len(one.waiters) == 4
    assert all(isinstance(outcome, UnknownTopic) for _, _, outcome in one.waiters)
    assert [outcome.may_have_happened for outcome in one.outcomes] == [True, True, True, False]
    with pytest.raises(UnknownTopic):
        one.send_plain(b"more")
    assert one.core.unacked_bytes == 0


# --- links come and go ---------------------------------------------------------------------------


def test_after_a_loss_everything_unacknowledged_is_pushed_again_in_the_same_bytes():
    one = Producing(linger_us=1000)
    first = []
    for n in range(3):
        one.send_plain(b"%d" % n)
        one.linger()
        first.append(one.stage.take_with_payload(frames.Push)[1])
    one.ack(0, 0)
    one.stage.lose()
    one.send_plain(b"while away")
    one.linger()
    one.stage.come_back()
    asked = one.opened(handle=9, sequences=[3])
    assert (asked.producer_id, asked.epoch) == (ID, 0)
    again = [one.stage.take_with_payload(frames.Push) for _ in range(3)]
    assert [payload for _, payload in again[:2]] == first[1:]
    assert stamps_in(again[2][1]) == [(ID, 0, 3)]
    assert {frame.handle for frame, _ in again} == {9}
    one.ack(3, 1, 2, 3, handle=9)
    assert [outcome.start for outcome in one.outcomes] == [0, 1, 2, 3]


# --- the end -------------------------------------------------------------------------------------


def test_what_was_taken_before_closing_is_cut_and_later_ones_are_told():
    one = Producing()
    one.send_plain(b"taken")
    gathering = one.core.sticky
    one.core.stop_taking()
    assert one.pushed() == [(0, [b"taken"], 0)]
    with pytest.raises(Closed):
        one.send_plain(b"late")
    late = bytes(bytearray(b"late"))
    gathering.items.append(late)  # as a thread does that had looked at the room before
    with pytest.raises(Closed):
        one.core.wake_for(gathering, late)
    assert gathering.items == []
    one.core.wake_for(gathering, late)  # one that was cut in time is none of its business
