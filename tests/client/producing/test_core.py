from __future__ import annotations

import pytest

from hocket import frames
from hocket.client_core.producing.bulk import list_portions
from hocket.client_core.producing.core import ProducerCore
from hocket.client_core.producing.delivery import ProducerOptions
from hocket.client_core.producing.outgoing import Positions
from hocket.client_core.producing.records import checked
from hocket.errors import (
    Closed,
    CorruptData,
    Fenced,
    HocketError,
    MessageTooLarge,
    OutcomeUnknown,
    StorageFull,
    Timeout,
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
            assert self.core.offer(None, value, len(value) + 12)

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
    while one.core.offer(None, bytes(500), 512):
        taken += 1
    assert taken == 4  # four batches of one are more than 2,400 bytes with their framing
    assert len(one.pushed()) == 4
    one.core.settled.add(lambda: woken.append(True))
    assert not one.core.offer(None, bytes(500), 512)
    one.ack(0, 0)
    assert woken
    assert one.core.offer(None, bytes(500), 512)


def test_one_message_larger_than_the_window_passes():
    one = Producing(window_bytes=1)
    assert one.core.offer(None, bytes(5000), 5012)
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


def test_only_so_many_batches_are_in_flight():
    one = Producing(limits=Limits(in_flight_max=2), linger_us=1000)
    for n in range(5):
        one.send_plain(b"%d" % n)
        one.linger()
    assert [sequence for _, _, sequence in one.pushed()] == [0, 1]
    one.ack(0, 0)
    assert [sequence for _, _, sequence in one.pushed()] == [2]
    one.ack(2, 1, 2)
    assert [sequence for _, _, sequence in one.pushed()] == [3, 4]


def test_a_batch_refused_after_it_was_stored_is_asked_after_until_its_place_is_known():
    """Pushed again after a loss, the first is refused and the second known: both are stored."""
    one = three_pushed()
    one.stage.lose()
    one.stage.come_back()
    one.opened(handle=2, sequences=[3])
    one.pushed()
    one.refuse(0, "busy", handle=2)
    one.ack(2, 11, 12, handle=2)
    assert [outcome.start for outcome in one.outcomes] == [11, 12]
    one.stage.advance(100_000)
    assert one.pushed() == [(0, [b"0"], 0)]
    one.ack(0, 10, handle=2)
    assert [outcome.start for outcome in one.outcomes] == [11, 12, 10]
    one.send_plain(b"next")
    one.linger()
    assert one.pushed() == [(0, [b"next"], 3)]


def test_a_refusal_proves_nothing_of_what_an_earlier_link_may_have_brought():
    """So it must not be stamped anew, or it could be stored twice."""
    one = Producing(partitions=2, linger_us=1000)
    for partition in (0, 1):
        one.send(b"%d" % partition, partition=partition)
    one.linger()
    one.pushed()
    one.stage.lose()
    one.stage.come_back()
    one.opened(handle=2, partitions=2, sequences=[0, 1])
    one.pushed()
    one.refuse(0, "busy", partition=1, handle=2)
    one.refuse(0, "notAllowed", partition=0, handle=2)
    one.stage.take(frames.CloseHandle)
    one.opened(handle=3, partitions=2, sequences=[0, 1])
    (failed,) = one.outcomes
    assert failed.may_have_happened
    assert one.pushed() == [(1, [b"1"], 0)]  # under the old id
    one.ack(0, 0, partition=1, handle=3)
    one.stage.take(frames.CloseHandle)
    assert one.opened(handle=4, producer_id=OTHER_ID, partitions=2).producer_id == b""


def test_a_batch_whose_place_is_forgotten_is_delivered_nonetheless():
    one = Producing()
    one.send(b"a", waiter="w")
    one.linger()
    one.ack(0, 2**64 - 1)
    assert isinstance(one.outcomes[0], HocketError)
    assert one.core.first_error is None


def test_a_topic_that_grows_has_more_partitions_to_go_to():
    one = Producing(partitions=1)
    one.stage.reply(frames.PartitionsChanged(0, 1, 3))
    one.send(b"a", partition=2)
    one.linger()
    assert one.pushed() == [(2, [b"a"], 0)]


# --- refusals ------------------------------------------------------------------------------------


def three_pushed(**options) -> Producing:
    one = Producing(linger_us=1000, **options)
    for n in range(3):
        one.send(b"%d" % n, waiter=n)
        one.linger()
    assert [sequence for _, _, sequence in one.pushed()] == [0, 1, 2]
    return one


@pytest.mark.parametrize("code", ["busy", "storageFull", "shuttingDown"])
def test_what_is_refused_for_the_moment_is_pushed_again_from_there_in_order(code):
    one = three_pushed()
    one.ack(0, 0)
    one.refuse(1, code)
    one.refuse(2, "sequenceGap")  # it followed the refused one
    assert one.pushed() == []
    one.stage.advance(100_000)
    assert one.pushed() == [(0, [b"1"], 1), (0, [b"2"], 2)]
    one.ack(2, 1, 2)
    assert len(one.outcomes) == 3
    assert one.core.first_error is None


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


def test_refusals_are_answered_with_growing_delays():
    one = Producing()
    one.send_plain(b"a")
    one.linger()
    one.pushed()
    delays = []
    for _ in range(8):
        one.refuse(0, "busy")
        before = one.stage.clock.ticks
        while not one.pushed():
            one.stage.advance(1000)
        delays.append(one.stage.clock.ticks - before)
    assert delays[-1] > 10 * delays[0]


def test_a_gap_means_that_what_came_before_is_missing_too():
    one = three_pushed()
    one.refuse(2, "sequenceGap")
    one.stage.advance(100_000)
    assert [sequence for _, _, sequence in one.pushed()] == [0, 1, 2]


def test_while_it_waits_to_try_again_new_batches_wait_behind():
    one = three_pushed()
    one.refuse(0, "busy")
    one.send_plain(b"3")
    one.linger()
    assert one.pushed() == []
    one.stage.advance(100_000)
    assert [values for _, values, _ in one.pushed()] == [[b"0"], [b"1"], [b"2"], [b"3"]]


def test_what_is_refused_for_good_fails_alone_and_the_rest_goes_on_as_a_new_producer():
    one = three_pushed()
    one.ack(0, 0)
    one.refuse(1, "corruptData")
    one.refuse(2, "sequenceGap")
    assert len(one.outcomes) == 1
    assert one.stage.take(frames.CloseHandle).handle == 1
    assert one.opened(handle=2, sequences=[1]).producer_id == ID  # what has it stored?
    (_, failed) = one.outcomes
    assert isinstance(failed, CorruptData)
    assert not failed.may_have_happened
    assert one.stage.take(frames.CloseHandle).handle == 2
    assert one.opened(handle=3, producer_id=OTHER_ID).producer_id == b""
    frame, payload = one.stage.take_with_payload(frames.Push)
    assert frame.handle == 3
    assert values_in(payload) == [b"2"]
    assert stamps_in(payload) == [(OTHER_ID, 0, 0)]
    one.ack(0, 7, handle=3)
    assert one.outcomes[2] == Positions("t", 0, 7, 8)
    assert isinstance(one.core.first_error, CorruptData)


def test_a_new_producer_is_opened_only_when_the_fate_of_every_batch_is_known():
    one = Producing(partitions=2, linger_us=1000)
    for partition in (0, 1):
        one.send(b"%d" % partition, partition=partition)
    one.linger()
    assert len(one.pushed()) == 2
    one.refuse(0, "notAllowed", partition=0)
    one.stage.take(frames.CloseHandle)
    one.opened(handle=2, partitions=2, sequences=[0, 1])
    assert one.pushed() == [(1, [b"1"], 0)]  # it is stored; where, is still to be learned
    one.send(b"later", partition=0)
    one.linger()
    assert one.stage.sent() == []  # it must not go out under the old id
    one.ack(0, 0, partition=1, handle=2)
    one.stage.take(frames.CloseHandle)
    one.opened(handle=3, producer_id=OTHER_ID, partitions=2)
    assert one.pushed() == [(0, [b"later"], 0)]


def test_a_late_refusal_of_an_earlier_push_does_no_harm():
    """The second was pushed behind a refused one, pushed again, and stored; then this comes."""
    one = three_pushed()
    one.refuse(0, "busy")
    one.stage.advance(100_000)
    assert [sequence for _, _, sequence in one.pushed()] == [0, 1, 2]
    one.refuse(1, "corruptData")
    one.stage.take(frames.CloseHandle)
    one.opened(handle=2, sequences=[3])
    assert [sequence for _, _, sequence in one.pushed()] == [0, 1, 2]
    one.ack(2, 0, 1, 2, handle=2)
    assert [outcome.start for outcome in one.outcomes] == [0, 1, 2]


def test_a_producer_that_the_broker_has_forgotten_begins_anew_and_loses_nothing():
    one = three_pushed()
    one.ack(0, 0)
    one.refuse(1, "unknownProducer")
    one.stage.take(frames.CloseHandle)
    one.opened(handle=2, sequences=[0])
    one.stage.take(frames.CloseHandle)
    one.opened(handle=3, producer_id=OTHER_ID)
    assert one.pushed() == [(0, [b"1"], 0), (0, [b"2"], 1)]
    assert len(one.outcomes) == 1


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


def test_a_fenced_producer_begins_anew_and_says_what_is_in_doubt():
    one = three_pushed()
    one.stage.reply(frames.HandleEnded(0, 1, "fenced", "by another"))
    assert [type(outcome) for outcome in one.outcomes] == [Fenced] * 3
    assert one.opened(handle=2, producer_id=OTHER_ID).producer_id == b""
    one.send_plain(b"next")
    one.linger()
    assert one.pushed() == [(0, [b"next"], 0)]


def test_whose_place_another_batch_has_is_sent_again_under_a_new_id_with_all_behind_it():
    """Somebody else publishes under our id. Nothing is lost, doubled, or in another order."""
    one = three_pushed()
    one.ack(0, 0)
    one.refuse(1, "producerConflict")
    one.refuse(2, "sequenceGap")
    assert one.stage.take(frames.CloseHandle).handle == 1
    assert one.opened(handle=2, producer_id=OTHER_ID).producer_id == b""
    assert one.pushed() == [(0, [b"1"], 0), (0, [b"2"], 1)]
    one.ack(1, 7, 8, handle=2)
    assert one.outcomes == [Positions("t", 0, at, at + 1) for at in (0, 7, 8)]
    assert one.core.first_error is None


def test_it_is_sent_again_once_the_fate_of_what_was_pushed_before_it_is_known():
    one = three_pushed()
    one.refuse(1, "producerConflict")
    one.send_plain(b"later")
    one.linger()
    assert one.stage.sent() == []  # the first one is stored, or not: that decides
    one.ack(0, 0)
    one.stage.take(frames.CloseHandle)
    one.opened(handle=2, producer_id=OTHER_ID)
    assert one.pushed() == [(0, [b"1"], 0), (0, [b"2"], 1), (0, [b"later"], 2)]


def test_that_is_so_also_if_an_earlier_link_may_have_brought_it():
    """It is not stored, whatever came of the first push: another batch is."""
    one = three_pushed()
    one.stage.lose()
    one.stage.come_back()
    one.opened(handle=2, sequences=[2])  # the thief has stored two
    assert [sequence for _, _, sequence in one.pushed()] == [0, 1, 2]
    one.refuse(0, "producerConflict", handle=2)
    one.refuse(1, "sequenceGap", handle=2)
    one.stage.take(frames.CloseHandle)
    one.opened(handle=3, producer_id=OTHER_ID)
    assert one.pushed() == [(0, [b"0"], 0), (0, [b"1"], 1), (0, [b"2"], 2)]
    assert one.outcomes == []


def test_a_link_lost_meanwhile_changes_nothing():
    one = three_pushed()
    one.refuse(1, "producerConflict")
    one.stage.lose()
    one.stage.come_back()
    assert one.opened(handle=2, sequences=[2]).producer_id == ID  # the first is to be asked after
    assert one.pushed() == [(0, [b"0"], 0)]
    one.ack(0, 0, handle=2)
    one.stage.take(frames.CloseHandle)
    one.opened(handle=3, producer_id=OTHER_ID)
    assert one.pushed() == [(0, [b"1"], 0), (0, [b"2"], 1)]


def test_whoever_was_fenced_at_the_first_push_sends_it_again_under_a_new_id():
    one = three_pushed()
    for sequence in range(3):
        one.refuse(sequence, "fenced")
    one.stage.take(frames.CloseHandle)
    assert one.opened(handle=2, producer_id=OTHER_ID).producer_id == b""
    assert one.pushed() == [(0, [b"0"], 0), (0, [b"1"], 1), (0, [b"2"], 2)]
    assert one.outcomes == []


def test_whoever_was_fenced_later_says_what_is_in_doubt_and_goes_on():
    one = three_pushed()
    one.stage.lose()
    one.stage.come_back()
    one.opened(handle=2, sequences=[40])  # so many that the broker has forgotten the first ones
    one.send_plain(b"next")
    one.linger()
    assert [sequence for _, _, sequence in one.pushed()] == [0, 1, 2]
    one.refuse(0, "fenced", handle=2)
    assert [type(outcome) for outcome in one.outcomes] == [Fenced] * 3
    assert all(outcome.may_have_happened for outcome in one.outcomes)
    one.stage.take(frames.CloseHandle)
    one.opened(handle=3, producer_id=OTHER_ID)
    assert one.pushed() == [(0, [b"next"], 0)]


def test_whoever_was_fenced_and_has_nothing_more_to_send_is_idle():
    one = Producing(linger_us=0)
    one.send_plain(b"a")
    one.pushed()
    one.stage.lose()
    one.stage.come_back()
    one.opened(handle=2, sequences=[40])
    one.pushed()
    one.send_plain(b"b")
    one.refuse(0, "fenced", handle=2)
    one.stage.take(frames.CloseHandle)
    one.opened(handle=3, producer_id=OTHER_ID)
    assert one.pushed() == [(0, [b"b"], 0)]


def test_a_handle_ended_for_the_moment_is_opened_again_as_the_same():
    one = three_pushed()
    one.stage.reply(frames.HandleEnded(0, 1, "shuttingDown", "moving"))
    assert one.stage.sent() == []
    one.stage.advance(100_000)
    assert one.opened(handle=2, sequences=[1]).producer_id == ID
    assert [sequence for _, _, sequence in one.pushed()] == [0, 1, 2]


def test_opening_is_tried_again_while_the_broker_is_busy():
    stage = Stage().started()
    core = ProducerCore(stage.session, "t", ProducerOptions(), lambda batch, outcome: None)
    core.open()
    stage.reply(frames.Failure(stage.take(frames.OpenProducer).request, "busy", "later"))
    stage.advance(100_000)
    assert stage.kinds() == ["OpenProducer"]
    stage.reply(frames.Failure(stage.take(frames.OpenProducer).request, "unknownTopic", "none"))
    with pytest.raises(UnknownTopic):
        core.check_usable()


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


def test_a_loss_before_it_is_opened_again_changes_nothing():
    one = three_pushed()
    for _ in range(3):
        one.stage.lose()
        one.stage.come_back()
        one.stage.take(frames.OpenProducer)
    one.stage.lose()
    one.stage.come_back()
    one.opened(handle=9, sequences=[0])
    assert [sequence for _, _, sequence in one.pushed()] == [0, 1, 2]


def test_a_broker_that_lost_what_it_had_acknowledged_gets_a_new_producer():
    """As with a topic that is kept in memory only, after a crash."""
    one = three_pushed()
    one.ack(1, 0, 1)
    one.stage.lose()
    one.stage.come_back()
    one.opened(handle=2, sequences=[0])
    one.stage.take(frames.CloseHandle)
    one.opened(handle=3, producer_id=OTHER_ID)
    assert one.pushed() == [(0, [b"2"], 0)]


def test_the_same_when_nothing_is_in_flight():
    one = three_pushed()
    one.ack(2, 0, 1, 2)
    one.stage.lose()
    one.stage.come_back()
    one.opened(handle=2, sequences=[1])
    one.stage.take(frames.CloseHandle)
    one.opened(handle=3, producer_id=OTHER_ID)
    one.send_plain(b"next")
    one.linger()
    assert one.pushed() == [(0, [b"next"], 0)]


def test_what_cannot_be_delivered_in_time_fails_and_says_whether_it_may_be_stored():
    one = Producing(linger_us=1000, delivery_us=5_000_000)
    one.send_plain(b"pushed")
    one.linger()
    one.stage.lose("pulled the plug")
    one.send_plain(b"never pushed")
    one.linger()
    one.stage.advance(5_000_000)
    pushed, never = one.outcomes
    assert isinstance(pushed, Timeout)
    assert (pushed.may_have_happened, never.may_have_happened) == (True, False)
    assert (type(pushed), type(never)) == (OutcomeUnknown, Timeout)
    assert "pulled the plug" in str(never)
    one.send_plain(b"later")
    one.linger()
    one.stage.welcome()
    asked = one.opened(handle=5, producer_id=OTHER_ID)
    assert asked.producer_id == b""  # its late copies must not be taken for what comes now
    assert one.pushed() == [(0, [b"later"], 0)]


def test_after_a_timeout_the_batches_behind_keep_their_id_until_their_fate_is_known():
    one = Producing(linger_us=1000, delivery_us=5_000_000)
    one.send_plain(b"first")
    one.linger()
    one.stage.advance(3_000_000)
    one.send_plain(b"second")
    one.linger()
    one.pushed()
    one.stage.lose()
    one.stage.advance(1_999_000)  # the first expires, the second does not
    assert len(one.outcomes) == 1
    one.stage.welcome()
    assert one.opened(handle=2, sequences=[2]).producer_id == ID
    assert one.pushed() == [(0, [b"second"], 1)]
    one.ack(1, 1, handle=2)
    one.stage.take(frames.CloseHandle)
    assert one.opened(handle=3, producer_id=OTHER_ID).producer_id == b""


def test_and_if_they_cannot_follow_it_they_are_stamped_anew():
    one = Producing(linger_us=1000, delivery_us=5_000_000)
    one.send_plain(b"first")
    one.linger()
    one.stage.advance(3_000_000)
    one.send_plain(b"second")
    one.linger()
    one.pushed()
    one.stage.lose()
    one.stage.advance(1_999_000)
    one.stage.welcome()
    one.opened(handle=2, sequences=[0])  # neither arrived
    one.stage.take(frames.CloseHandle)
    one.opened(handle=3, producer_id=OTHER_ID)
    assert one.pushed() == [(0, [b"second"], 0)]


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


def test_the_end_fails_what_is_left_and_closes_the_handle():
    one = three_pushed()
    one.core.end(Closed("over"))
    assert [type(outcome) for outcome in one.outcomes] == [Closed] * 3
    assert one.stage.take(frames.CloseHandle).handle == 1
    one.core.end(Closed("again"))
    assert one.stage.sent() == []


def test_one_that_ends_while_it_is_being_opened_is_closed_at_the_broker():
    stage = Stage().started()
    core = ProducerCore(stage.session, "t", ProducerOptions(), lambda batch, outcome: None)
    core.open()
    asked = stage.take(frames.OpenProducer)
    core.end(Closed("changed my mind"))
    stage.reply(frames.ProducerOpened(asked.request, 4, ID, 0, 1, packed([0])))
    assert stage.take(frames.CloseHandle).handle == 4


def test_an_answer_that_makes_no_sense_costs_the_link():
    stage = Stage().started()
    core = ProducerCore(stage.session, "t", ProducerOptions(), lambda batch, outcome: None)
    core.open()
    asked = stage.take(frames.OpenProducer)
    link = stage.link
    stage.reply(frames.ProducerOpened(asked.request, 4, ID, 0, 2, packed([0])))
    assert link.closed


@pytest.mark.parametrize(
    "frame",
    [
        frames.PushAcked(0, 1, 5, 0, b""),
        frames.PushRefused(0, 1, 5, 0, "busy", ""),
        frames.Deliver(0, 1, 0, 0, 0),
    ],
)
def test_a_frame_that_makes_no_sense_costs_the_link(frame):
    one = Producing()
    link = one.stage.link
    one.stage.reply(frame)
    assert link.closed
