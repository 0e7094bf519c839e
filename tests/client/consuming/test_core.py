from __future__ import annotations

import logging

import pytest

from hocket import frames
from hocket.client_core.consuming.attachment import TIDY_US, SubscriptionOptions
from hocket.client_core.consuming.core import SubscriptionCore
from hocket.client_core.consuming.message import Message, MessageBatch
from hocket.errors import (
    BusyResource,
    Closed,
    CorruptData,
    Fenced,
    OutOfRange,
    UnknownPartition,
    UnknownTopic,
    WrongKind,
)
from hocket.frames import packed, unpacked
from hocket.model import Start
from tests.support.client.scripted import Answers, Stage, pairs, placed, stored
from tests.support.wire.batches import with_fallen_offset, with_false_raw_length, with_foreign_name


class Reading:
    """A subscription on a stage."""

    def __init__(self, positions=((0, 0),), index="index", **options) -> None:
        self.stage = Stage().started()
        self.core = SubscriptionCore(
            self.stage.session, "t", SubscriptionOptions(index=index, **options),
            message=Message, batch=MessageBatch, arouse=self._arouse,
        )  # fmt: skip
        self.core.open()
        self.asked = self.opened(positions)

    def _arouse(self, progress) -> None:
        self.core.arouse(progress)

    def opened(self, positions, handle=1):
        asked = self.stage.take(frames.OpenSubscription)
        numbers = [number for pair in positions for number in pair]
        self.stage.reply(frames.SubscriptionOpened(asked.request, handle, packed(numbers)))
        return asked

    def deliver(self, values, offset=0, partition=0, handle=1, first=None, end=None) -> int:
        """A batch whose first record stands at `offset`; the message meant first is `first`."""
        entry = stored(values, offset)
        self.deliver_entries(
            entry, offset if first is None else first, offset + len(values) if end is None else end,
            partition, handle,
        )  # fmt: skip
        return len(entry)

    def deliver_entries(self, payload, first, end, partition=0, handle=1) -> None:
        self.stage.reply(frames.Deliver(0, handle, partition, first, end), payload)

    def read(self, count=None) -> list[Message]:
        found = []
        while count is None or len(found) < count:
            message = self.core.next_message()
            if message is None:
                break
            found.append(message)
        return found

    def values(self, count=None) -> list[bytes]:
        return [message.value for message in self.read(count)]

    def tidy(self) -> list[frames.Frame]:
        self.stage.advance(TIDY_US)
        return self.stage.take_all()

    def done(self, frame) -> None:
        self.stage.reply(frames.Done(frame.request))


def numbers(start, end) -> list[bytes]:
    return [b"%d" % n for n in range(start, end)]


# --- opening -------------------------------------------------------------------------------------


def test_it_asks_for_what_was_wanted():
    one = Reading(
        ((2, 7),),
        index="i",
        start=Start("offset", 5),
        partitions=(2,),
        hold_retention=True,
        credit_bytes=1000,
    )
    asked = one.asked
    assert (asked.topic, asked.index, asked.mode) == ("t", "i", "own")
    assert (asked.start, asked.partitions) == (Start("offset", 5), packed([2]))
    assert (asked.hold_retention, asked.credit_bytes) == (True, 1000)
    assert asked.positions == b""
    assert one.core.inbound.position(2) == 7


def test_a_topic_that_is_not_there_ends_it():
    stage = Stage().started()
    core = SubscriptionCore(
        stage.session, "t", SubscriptionOptions(), message=Message, batch=MessageBatch,
        arouse=lambda progress: None,
    )  # fmt: skip
    core.open()
    stage.reply(frames.Failure(stage.take(frames.OpenSubscription).request, "unknownTopic", "no"))
    with pytest.raises(UnknownTopic):
        core.check_usable()


def test_a_busy_broker_is_asked_again():
    stage = Stage().started()
    core = SubscriptionCore(
        stage.session, "t", SubscriptionOptions(), message=Message, batch=MessageBatch,
        arouse=lambda progress: None,
    )  # fmt: skip
    core.open()
    stage.reply(frames.Failure(stage.take(frames.OpenSubscription).request, "busy", "later"))
    assert not core.is_open
    stage.advance(100_000)
    assert stage.kinds() == ["OpenSubscription"]


# --- handing out ---------------------------------------------------------------------------------


def test_messages_come_in_order_with_all_they_carry():
    one = Reading()
    entry = stored([b"a", b"b"], 5, keys=[b"k", None], headers=[None, {"h": None}],
                   timestamps=[1, 1_000_001])  # fmt: skip
    one.core.inbound.replace(one.core.inbound.progress_in(0), 5)
    one.deliver_entries(entry, 5, 7)
    first, second = one.read()
    assert (first.value, first.key, first.headers) == (b"a", b"k", {})
    assert (second.value, second.key, second.headers) == (b"b", None, {"h": None})
    assert (second.topic, second.partition, second.offset) == ("t", 0, 6)
    assert (second.timestamp, second.time.isoformat()) == (
        1_000_001, "1970-01-01T00:00:01.000001+00:00",
    )  # fmt: skip
    assert second.delivery_count == 1


def test_what_a_batch_holds_before_the_place_is_skipped():
    one = Reading(((0, 3),))
    one.deliver(numbers(0, 6), offset=0, first=3)
    assert one.values() == numbers(3, 6)


def test_partitions_take_turns_and_keep_their_order():
    one = Reading(((0, 0), (1, 0)))
    for batch in range(3):
        for partition in (0, 1):
            one.deliver([b"%d/%d" % (partition, batch)], offset=batch, partition=partition)
    assert one.values() == [b"0/0", b"1/0", b"0/1", b"1/1", b"0/2", b"1/2"]


def test_a_long_batch_does_not_starve_the_other_partition():
    one = Reading(((0, 0), (1, 0)))
    one.deliver(numbers(0, 2000))
    one.deliver([b"other"], partition=1)
    assert b"other" in one.values(600)
    rest = one.values()
    assert rest == numbers(599, 2000)


def test_several_batches_in_one_delivery():
    one = Reading()
    one.deliver_entries(stored(numbers(0, 2), 0) + stored(numbers(2, 5), 2), 0, 5)
    assert one.values() == numbers(0, 5)


def test_a_new_partition_begins_by_itself():
    one = Reading()
    one.stage.reply(frames.PartitionsChanged(0, 1, 2))
    one.deliver([b"new"], partition=1)
    assert one.values() == [b"new"]


def test_position_and_lag_follow_what_is_handed_out():
    one = Reading()
    one.deliver(numbers(0, 10), end=100)
    assert one.core.inbound.lag() == 100
    one.read(4)
    assert one.core.inbound.position(0) == 4
    assert one.core.inbound.lag() == 96
    with pytest.raises(UnknownPartition):
        one.core.inbound.position(5)


def test_batches_and_messages_may_be_mixed():
    one = Reading()
    one.deliver(numbers(0, 1000))
    one.deliver(numbers(1000, 1003), offset=1000)
    assert one.values(2) == numbers(0, 2)
    rest_of_chunk = one.core.next_batch()
    assert (rest_of_chunk.offset, rest_of_chunk.end) == (2, 512)
    assert rest_of_chunk.values() == numbers(2, 512)
    rest_of_batch = one.core.next_batch()
    assert rest_of_batch.values() == numbers(512, 1000)
    assert one.values(1) == [b"1000"]
    last = one.core.next_batch()
    assert (last.offset, last.count, last.partition, last.topic) == (1001, 2, 0, "t")
    assert [message.offset for message in last.messages()] == [1001, 1002]
    assert one.core.next_batch() is None


def test_a_batch_of_what_is_left_holds_only_what_no_other_thread_has_drawn():
    one = Reading()
    one.deliver(numbers(0, 10))
    one.read(2)
    ready = list(one.core.inbound.ready)
    one.core.inbound.ready = iter(ready[:3] + ready[4:])  # another has drawn 5 meanwhile
    first, second = one.core.next_batch(), one.core.next_batch()
    assert (first.values(), second.values()) == (numbers(2, 5), numbers(6, 10))


def test_a_gap_that_nobody_announced_costs_the_link_and_is_asked_for_again():
    one = Reading()
    one.deliver(numbers(0, 2))
    link = one.stage.link
    one.deliver(numbers(5, 6), offset=5)
    assert link.closed
    one.stage.link = None
    one.stage.come_back()
    asked = one.opened(((0, 2),), handle=2)
    assert pairs(asked.positions) == {0: 2}
    one.deliver(numbers(2, 6), offset=2, handle=2)
    assert one.values() == numbers(0, 6)


def test_a_delivery_that_cannot_be_read_costs_the_link():
    one = Reading()
    link = one.stage.link
    one.deliver_entries(b"not an entry" * 10, 0, 1)
    assert link.closed


def test_a_damaged_batch_is_never_handed_out():
    one = Reading()
    one.deliver(numbers(0, 2))
    entry = bytearray(stored(numbers(2, 4), 2))
    entry[-12] ^= 1
    one.deliver_entries(bytes(entry), 2, 4)
    assert one.values(2) == numbers(0, 2)
    for _ in range(2):
        with pytest.raises(CorruptData):
            one.core.next_message()


@pytest.mark.parametrize("index", ["billing", ""])
def test_what_cannot_be_read_is_named_with_its_place_and_the_way_past_it(index):
    one = Reading(index=index)
    one.deliver(numbers(0, 2))
    values = [b"as long as it need be, %d" % number for number in range(300)]
    one.deliver_entries(placed(with_false_raw_length(values), 2), 2, 302)
    assert one.values(2) == numbers(0, 2)
    for _ in range(2):
        with pytest.raises(CorruptData, match="topic 't', partition 0: offsets 2 to 301") as raised:
            one.core.next_message()
        error = raised.value
        assert (error.topic, error.partition, error.start, error.end) == ("t", 0, 2, 302)
        if index:
            assert "client.skip('t', 'billing', partition=0, offset=2)" in str(error)
            assert "hocket index skip t billing --partition 0 --offset 2" in str(error)
        else:
            assert "subscribe from offset 302" in str(error)


@pytest.mark.parametrize("make", [with_fallen_offset, with_foreign_name])
def test_of_a_batch_all_is_handed_out_up_to_the_record_that_makes_no_sense(make):
    one = Reading()
    entry = make(numbers(0, 700), at=600)
    one.deliver_entries(placed(entry, 0), 0, 700)
    assert one.values(600) == numbers(0, 600)
    with pytest.raises(CorruptData, match="offset 600 cannot be read") as raised:
        one.core.next_message()
    assert (raised.value.start, raised.value.end) == (600, 601)


@pytest.mark.parametrize(
    "read", ["values", "keys", "headers", "timestamps", "messages", "to_arrow"]
)
def test_a_batch_of_columns_that_cannot_be_read_says_the_same(read):
    one = Reading(index="billing")
    values = [b"as long as it need be, %d" % number for number in range(300)]
    one.deliver_entries(placed(with_false_raw_length(values), 0), 0, 300)
    batch = one.core.next_batch()
    with pytest.raises(CorruptData, match="hocket index skip t billing --partition 0 --offset 0"):
        getattr(batch, read)()


def test_a_batch_of_columns_names_the_record_that_makes_no_sense():
    one = Reading()
    one.deliver_entries(placed(with_fallen_offset(numbers(0, 300), at=150), 0), 0, 300)
    batch = one.core.next_batch()
    assert batch.timestamps() == [1] * 300
    with pytest.raises(CorruptData, match="offset 150 cannot be read"):
        batch.values()


def stopped(one: Reading) -> None:
    """The broker cannot read on from offset 5, and two of what came before are acknowledged."""
    one.deliver(numbers(0, 5))
    for message in one.read(2):
        message.ack()
    one.stage.reply(frames.HandleEnded(0, 1, "corruptData", "5 to 9", True, 0, 5, 10))


def damaged(one: Reading) -> None:
    """The same, but what the broker sent cannot be read."""
    one.deliver(numbers(0, 5))
    for message in one.read(2):
        message.ack()
    entry = bytearray(stored(numbers(5, 10), 5))
    entry[-12] ^= 1
    one.deliver_entries(bytes(entry), 5, 10)


@pytest.mark.parametrize("meet", [stopped, damaged])
def test_after_damage_what_was_acked_is_committed(meet):
    one = Reading()
    meet(one)
    rest = one.read(3)
    with pytest.raises(CorruptData):
        one.core.next_message()
    assert one.core.commits_only
    rest[-1].ack()
    acked = one.core.acked_so_far()
    commit = one.stage.take(frames.Commit)
    assert pairs(commit.positions) == {0: 5}
    assert not one.core.are_committed(acked)
    one.stage.reply(frames.Done(commit.request))
    assert one.core.are_committed(acked)
    answers = Answers()
    one.core.close(answers)
    assert one.stage.take(frames.CloseHandle).handle == 1
    with pytest.raises(Closed):
        one.core.next_message()


@pytest.mark.parametrize("meet", [stopped, damaged])
def test_after_damage_acks_are_sent_without_a_word_and_deliveries_are_dropped(meet):
    one = Reading()
    meet(one)
    one.read(3)[-1].ack()
    with pytest.raises(CorruptData):
        one.core.next_message()
    one.deliver(numbers(10, 12), offset=10)
    one.stage.advance(TIDY_US)
    assert pairs(one.stage.take(frames.Commit).positions) == {0: 5}
    with pytest.raises(CorruptData):
        one.core.next_message()


@pytest.mark.parametrize("meet", [stopped, damaged])
def test_if_the_link_is_lost_after_damage_it_opens_again_to_commit_and_for_nothing_else(meet):
    one = Reading()
    meet(one)
    one.read(3)[-1].ack()
    with pytest.raises(CorruptData):
        one.core.next_message()
    one.stage.lose()
    one.stage.come_back()
    asked = one.stage.take(frames.OpenSubscription)
    assert asked.credit_bytes == 0
    one.stage.reply(frames.SubscriptionOpened(asked.request, 2, asked.positions))
    one.stage.advance(TIDY_US)
    commit = one.stage.take(frames.Commit)
    assert (commit.handle, pairs(commit.positions)) == (2, {0: 5})
    with pytest.raises(CorruptData):
        one.core.next_message()


def test_fenced_after_damage_it_lets_go():
    one = Reading()
    stopped(one)
    one.read(3)[-1].ack()
    acked = one.core.acked_so_far()
    one.stage.take(frames.Commit)
    one.stage.reply(frames.HandleEnded(0, 1, "fenced", "another consumer"))
    assert not one.core.commits_only
    with pytest.raises(Fenced):
        one.core.are_committed(acked)


def test_a_commit_that_is_refused_after_damage_is_reported():
    one = Reading()
    stopped(one)
    acked = one.core.acked_so_far()
    commit = one.stage.take(frames.Commit)
    one.stage.reply(frames.Failure(commit.request, "outOfRange", "not there"))
    with pytest.raises(OutOfRange):
        one.core.are_committed(acked)


def test_partitions_that_came_while_it_was_away_are_read_from_their_beginning():
    one = Reading(index="", start=Start("latest"))
    assert one.asked.start == Start("latest")
    one.stage.lose()
    one.stage.come_back()
    asked = one.opened(((0, 0), (1, 0)), handle=2)
    assert asked.start == Start("earliest")
    one.deliver([b"new"], partition=1, handle=2)
    assert one.values() == [b"new"]


# --- credit --------------------------------------------------------------------------------------


def test_credit_returns_when_the_last_message_of_a_batch_is_handed_out():
    one = Reading(credit_bytes=1 << 20)
    size = one.deliver(numbers(0, 600))
    one.read(599)
    assert one.tidy() == []
    assert len(one.read()) == 1  # it asks for one more, so the last was dealt with
    (credit,) = [f for f in one.tidy() if isinstance(f, frames.Credit)]
    assert (credit.handle, credit.bytes) == (1, size)
    assert one.tidy() == []


def test_much_credit_returns_at_once_and_little_ones_together():
    one = Reading(credit_bytes=1000)
    size = one.deliver([bytes(600)])
    one.read()
    assert one.stage.take(frames.Credit).bytes == size
    sizes = [one.deliver([b"x"], offset=n) for n in range(1, 4)]
    one.read()
    assert one.stage.sent() == []
    (credit,) = one.tidy()
    assert credit.bytes == sum(sizes)


def test_credit_returns_for_what_is_dropped_unread():
    one = Reading(credit_bytes=1 << 20)
    size = one.deliver(numbers(0, 10))
    one.stage.reply(frames.Moved(0, 1, 0, 50, 0))
    (credit,) = one.tidy()
    assert credit.bytes == size


def test_after_a_loss_the_new_credit_is_what_is_not_held():
    one = Reading(credit_bytes=10_000)
    held = one.deliver(numbers(0, 5))
    handed = one.deliver(numbers(5, 9), offset=5)
    one.read(5)
    one.stage.lose()
    one.stage.come_back()
    asked = one.opened(((0, 9),), handle=2)
    assert asked.credit_bytes == 10_000 - handed
    one.read()
    (credit,) = [f for f in one.tidy() if isinstance(f, frames.Credit)]
    assert credit.bytes == handed
    assert held > 0


# --- acks ----------------------------------------------------------------------------------------


def test_acks_are_sent_together_and_without_waiting():
    one = Reading(((0, 0), (1, 0)))
    one.deliver(numbers(0, 100))
    one.deliver(numbers(0, 100), partition=1)
    for message in one.read():
        message.ack()
    commits = [f for f in one.tidy() if isinstance(f, frames.Commit)]
    assert [pairs(commit.positions) for commit in commits] == [{0: 100, 1: 100}]
    assert one.tidy() == []


def test_acks_are_cumulative_and_never_go_back():
    one = Reading()
    one.deliver(numbers(0, 10))
    messages = one.read()
    messages[7].ack()
    messages[2].ack()
    (commit,) = [f for f in one.tidy() if isinstance(f, frames.Commit)]
    assert pairs(commit.positions) == {0: 8}
    messages[3].ack()
    assert one.tidy() == []


def test_a_commit_waits_for_the_acks_before_it():
    one = Reading()
    one.deliver(numbers(0, 10))
    messages = one.read()
    messages[4].ack()
    target = one.core.acked_so_far()
    commit = one.stage.take(frames.Commit)
    assert not one.core.are_committed(target)
    messages[9].ack()
    one.done(commit)
    assert one.core.are_committed(target)
    assert not one.core.are_committed(one.core.acked_so_far())


def test_acks_that_were_not_confirmed_are_sent_again_after_a_loss():
    one = Reading()
    one.deliver(numbers(0, 10))
    one.read()[4].ack()
    target = one.core.acked_so_far()
    one.stage.take(frames.Commit)
    one.stage.lose()
    assert not one.core.are_committed(target)
    one.stage.come_back()
    one.opened(((0, 10),), handle=2)
    (commit,) = [f for f in one.tidy() if isinstance(f, frames.Commit)]
    assert (commit.handle, pairs(commit.positions)) == (2, {0: 5})
    one.done(commit)
    assert one.core.are_committed(target)


def test_refused_acks_are_raised_by_commit(caplog):
    one = Reading()
    one.deliver(numbers(0, 1))
    one.read()[0].ack()
    target = one.core.acked_so_far()
    with caplog.at_level(logging.WARNING):
        one.stage.reply(
            frames.Failure(one.stage.take(frames.Commit).request, "outOfRange", "too far")
        )
    with pytest.raises(OutOfRange, match="too far"):
        one.core.are_committed(target)
    assert "too far" in caplog.text


def test_a_busy_broker_gets_the_acks_again():
    one = Reading()
    one.deliver(numbers(0, 1))
    one.read()[0].ack()
    target = one.core.acked_so_far()
    one.stage.reply(frames.Failure(one.stage.take(frames.Commit).request, "busy", "later"))
    (commit,) = [f for f in one.tidy() if isinstance(f, frames.Commit)]
    one.done(commit)
    assert one.core.are_committed(target)


def test_a_batch_is_acknowledged_whole():
    one = Reading()
    one.deliver(numbers(0, 10))
    one.core.next_batch().ack()
    (commit,) = [f for f in one.tidy() if isinstance(f, frames.Commit)]
    assert pairs(commit.positions) == {0: 10}


def test_without_an_index_there_is_nothing_to_acknowledge():
    one = Reading(index="")
    one.deliver(numbers(0, 1))
    (message,) = one.read()
    for call in (message.ack, one.core.check_has_index):
        with pytest.raises(WrongKind, match="no index"):
            call()


def test_what_only_a_shared_index_can_do():
    one = Reading()
    one.deliver(numbers(0, 1))
    (message,) = one.read()
    for call in (message.nack, message.extend, message.reject):
        with pytest.raises(WrongKind, match="shared"):
            call()


# --- going elsewhere -----------------------------------------------------------------------------


def test_moved_by_a_seek_from_elsewhere_drops_what_is_stale():
    one = Reading(((0, 0), (1, 0)))
    one.deliver(numbers(0, 10))
    one.deliver([b"other"], partition=1)
    one.read(3)
    one.stage.reply(frames.Moved(0, 1, 0, 7, 0))
    one.deliver(numbers(7, 10), offset=7)
    assert sorted(one.values()) == sorted([*numbers(7, 10), b"other"])
    assert one.core.lost == 0


def test_acks_of_messages_from_before_a_seek_are_void():
    one = Reading()
    one.deliver(numbers(0, 10))
    old = one.read()[8]
    one.stage.reply(frames.Moved(0, 1, 0, 2, 0))
    old.ack()
    assert [f for f in one.tidy() if isinstance(f, frames.Commit)] == []
    one.deliver(numbers(2, 10), offset=2)
    one.read()[0].ack()
    (commit,) = [f for f in one.tidy() if isinstance(f, frames.Commit)]
    assert pairs(commit.positions) == {0: 3}


def test_a_gap_left_by_retention_is_counted_and_said_and_what_came_before_is_kept(caplog):
    one = Reading()
    one.deliver(numbers(0, 3))
    with caplog.at_level(logging.WARNING):
        one.stage.reply(frames.Moved(0, 1, 0, 10, 7))
    assert caplog.text.count("7 messages before offset 10") == 1
    one.deliver(numbers(10, 12), offset=10)
    assert one.values() == numbers(0, 3) + numbers(10, 12)
    assert one.core.lost == 7
    assert one.core.inbound.position(0) == 12


def test_the_position_jumps_over_a_gap():
    one = Reading()
    one.stage.reply(frames.Moved(0, 1, 0, 10, 10))
    assert one.core.inbound.position(0) == 10


def test_a_seek_of_its_own_drops_everything_until_the_broker_has_moved():
    one = Reading()
    one.deliver(numbers(0, 10))
    one.read(3)
    answers = Answers()
    one.core.seek(0, 5, answers)
    assert one.values() == []
    seek = one.stage.take(frames.SeekIndex)
    assert (seek.topic, seek.index, seek.partition) == ("t", "index", 0)
    assert seek.start == Start("offset", 5)
    one.deliver(numbers(10, 12), offset=10)  # it was on its way
    one.stage.reply(frames.Moved(0, 1, 0, 5, 0))
    one.stage.reply(frames.Offsets(seek.request, packed([5])))
    assert len(answers) == 1
    one.deliver(numbers(5, 12), offset=5)
    assert one.values() == numbers(5, 12)


def test_a_seek_that_is_refused_leaves_it_where_it_was():
    one = Reading()
    one.deliver(numbers(0, 10))
    one.read(3)
    answers = Answers()
    one.core.seek(0, 500, answers)
    with pytest.raises(BusyResource):
        one.core.seek(0, 1, Answers())
    seek = one.stage.take(frames.SeekIndex)
    one.stage.reply(frames.Failure(seek.request, "outOfRange", "beyond the end"))
    assert isinstance(answers[0], OutOfRange)
    one.stage.take(frames.CloseHandle)
    asked = one.opened(((0, 3),), handle=2)
    assert pairs(asked.positions) == {0: 3}
    one.deliver(numbers(0, 10), first=3, handle=2)
    assert one.values() == numbers(3, 10)


def test_without_an_index_a_seek_opens_it_anew():
    one = Reading(((0, 0), (1, 0)), index="")
    one.deliver(numbers(0, 10))
    one.deliver([b"other"], partition=1)
    answers = Answers()
    one.core.seek(0, 4, answers)
    one.stage.take(frames.CloseHandle)
    asked = one.opened(((0, 4), (1, 1)), handle=2)
    assert pairs(asked.positions) == {0: 4, 1: 1}
    assert len(answers) == 1
    one.deliver(numbers(0, 10), first=4, handle=2)
    assert one.values() == [b"other", *numbers(4, 10)]


def test_and_if_the_broker_refuses_it_stays():
    one = Reading(index="")
    answers = Answers()
    one.core.seek(0, 400, answers)
    one.stage.take(frames.CloseHandle)
    asked = one.stage.take(frames.OpenSubscription)
    one.stage.reply(frames.Failure(asked.request, "outOfRange", "beyond the end"))
    assert isinstance(answers[0], OutOfRange)
    assert pairs(one.opened(((0, 0),), handle=3).positions) == {0: 0}
    one.core.check_usable()


def test_a_seek_survives_the_loss_of_the_link():
    one = Reading()
    one.deliver(numbers(0, 10))
    one.read(3)
    answers = Answers()
    one.core.seek(0, 7, answers)
    one.stage.lose()
    one.stage.come_back()
    seek = one.stage.take(frames.SeekIndex)
    assert pairs(one.opened(((0, 7),), handle=2).positions) == {0: 7}
    one.stage.reply(frames.Offsets(seek.request, packed([7])))
    assert len(answers) == 1
    one.deliver(numbers(7, 10), offset=7, handle=2)
    assert one.values() == numbers(7, 10)


# --- the end -------------------------------------------------------------------------------------


def test_fenced_by_another_consumer_it_ends_at_once():
    one = Reading()
    one.deliver(numbers(0, 5))
    one.read(1)
    one.stage.reply(frames.HandleEnded(0, 1, "fenced", "another consumer"))
    for _ in range(2):
        with pytest.raises(Fenced):
            one.core.next_message()


def test_before_damage_at_the_broker_what_is_good_is_handed_out():
    one = Reading()
    one.deliver(numbers(0, 5))
    one.stage.reply(frames.HandleEnded(0, 1, "corruptData", "offsets 5 to 9"))
    assert one.values(5) == numbers(0, 5)
    with pytest.raises(CorruptData):
        one.core.next_message()


def test_a_handle_ended_for_the_moment_is_opened_again_where_it_was():
    one = Reading()
    one.deliver(numbers(0, 5))
    one.read(2)
    one.stage.reply(frames.HandleEnded(0, 1, "shuttingDown", "moving"))
    one.stage.advance(100_000)
    assert pairs(one.opened(((0, 5),), handle=2).positions) == {0: 5}
    one.deliver(numbers(5, 6), offset=5, handle=2)
    assert one.values() == numbers(2, 6)


def test_closing_lets_go_at_the_broker_and_wakes_who_waits():
    one = Reading()
    one.deliver(numbers(0, 5))
    woken, answers = [], Answers()
    one.core.deliveries.add(lambda: woken.append(True))
    one.core.close(answers)
    close = one.stage.take(frames.CloseHandle)
    assert woken
    assert not answers
    one.done(close)
    assert len(answers) == 1
    with pytest.raises(Closed):
        one.core.next_message()
    assert one.tidy() == []


def test_closing_without_a_link_has_nobody_to_ask():
    one = Reading()
    one.stage.lose()
    answers = Answers()
    one.core.close(answers)
    assert len(answers) == 1


def test_opened_elsewhere_than_asked_breaks_the_protocol():
    one = Reading()
    one.stage.lose()
    one.stage.come_back()
    link = one.stage.link
    one.opened(((0, 9),), handle=2)
    assert link.closed


def test_frames_that_make_no_sense_cost_the_link():
    one = Reading()
    link = one.stage.link
    one.stage.reply(frames.PushAcked(0, 1, 0, 0, b""))
    assert link.closed


def test_a_partition_that_was_added_may_be_moved_before_anything_came_from_it():
    one = Reading()
    link = one.stage.link
    one.stage.reply(frames.Moved(0, 1, 9, 5, 0))
    assert not link.closed


# --- a broker that lost what it kept in memory ---------------------------------------------------


def test_after_a_crash_that_lost_records_it_goes_on_where_the_broker_now_ends():
    one = Reading()
    one.deliver([b"0", b"1", b"2", b"3"])
    first = one.read(2)
    one.stage.lose()
    one.stage.come_back()
    asked = one.opened([(0, 1)], handle=2)  # 1, 2 and 3 are lost
    assert asked.resumes
    assert unpacked(asked.positions) == [0, 4]
    assert one.core.position(0) == 1
    one.deliver([b"other"], offset=1, handle=2)
    assert one.values() == [b"other"]  # 2 and 3 are not handed out: these are other records now
    first[1].ack()  # of a record that is lost: it comes to nothing
    assert not [frame for frame in one.tidy() if isinstance(frame, frames.Commit)]


def test_it_says_whether_the_index_may_be_made_and_hears_that_it_was():
    one = Reading(create=False)
    assert (one.asked.must_exist, one.asked.resumes) == (True, False)
    assert one.core.new_indexes() == []
    other = Reading.__new__(Reading)
    other.stage = Stage().started()
    other.core = SubscriptionCore(
        other.stage.session, "t", SubscriptionOptions(index="new"),
        message=Message, batch=MessageBatch, arouse=other._arouse,
    )  # fmt: skip
    other.core.open()
    asked = other.stage.take(frames.OpenSubscription)
    assert not asked.must_exist
    answer = frames.SubscriptionOpened(asked.request, 1, packed([0, 0]), index_is_new=True)
    other.stage.reply(answer)
    assert other.core.new_indexes() == ["t"]
