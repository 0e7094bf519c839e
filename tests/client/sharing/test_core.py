"""Subscriptions to shared indexes against a broker that a test plays by hand."""

from __future__ import annotations

import logging

import pytest

from hocket import frames
from hocket.client_core.consuming.attachment import TIDY_US
from hocket.client_core.sharing.core import AGAIN_US
from hocket.client_core.sharing.progress import NOTES_MAX
from hocket.client_core.sharing.window import FIRST
from hocket.errors import (
    Closed,
    Fenced,
    LeaseLost,
    NotAllowed,
    OutOfRange,
    StorageFull,
    UnknownTopic,
    WrongKind,
    WrongType,
)
from hocket.frames import packed
from hocket.model import Start
from tests.support.client.scripted import Answers, placed, stored
from tests.support.client.sharing import LEASE_US, Sharing, numbers, triples
from tests.support.wire.batches import with_fallen_offset, with_false_raw_length, with_foreign_name

# --- opening -------------------------------------------------------------------------------------


def test_it_asks_for_what_was_wanted():
    one = Sharing(
        mode="key_shared", start=Start("latest"), partitions=(2,), hold_retention=True,
        credit_bytes=1000, prefetch=7, lease_us=LEASE_US, max_deliveries=3, failover="fast",
    )  # fmt: skip
    asked = one.asked
    assert (asked.topic, asked.index, asked.mode) == ("t", "i", "key_shared")
    assert (asked.start, asked.hold_retention) == (Start("latest"), True)
    assert (asked.credit_bytes, asked.prefetch, asked.max_deliveries) == (1000, 7, 3)
    assert (asked.failover, asked.held, asked.positions) == ("fast", b"", b"")
    assert len(asked.consumer) == 16
    assert one.core.partitions() == [2]


def test_an_index_without_a_lease_breaks_the_protocol():
    one = Sharing()
    one.stage.lose()
    one.stage.come_back()
    link = one.stage.link
    one.lease_us = 0
    one.opened(2)
    assert link.closed


@pytest.mark.parametrize("call", ["seek", "position", "lag"])
def test_a_shared_index_has_no_place_of_its_own(call):
    core = Sharing().core
    calls = {"seek": (0, 5, Answers()), "position": (0,), "lag": ()}
    with pytest.raises(WrongKind, match=r"index 'i' of topic 't' is shared; .*client\."):
        getattr(core, call)(*calls[call])


# --- handing out ---------------------------------------------------------------------------------


def test_messages_carry_how_often_they_were_delivered():
    one = Sharing()
    one.lease((5, 7, 1), (7, 8, 3), (8, 10, 1))
    assert [(m.offset, m.delivery_count) for m in one.read()] == [
        (5, 1), (6, 1), (7, 3), (8, 1), (9, 1),
    ]  # fmt: skip


@pytest.mark.parametrize("step", [2, 3, 9, 50], ids="one in {}".format)
def test_only_what_is_leased_of_a_batch_is_handed_out(step):
    one = Sharing()
    meant = list(range(0, 200, step))
    keys = [b"k%d" % n for n in range(200)]
    one.lease(*((n, n + 1, 1 + n % 2) for n in meant), base=0, count=200, keys=keys)
    assert [(m.offset, m.value, m.key, m.delivery_count) for m in one.read()] == [
        (n, b"%d" % n, b"k%d" % n, 1 + n % 2) for n in meant
    ]


def test_a_lease_over_several_batches():
    one = Sharing()
    payload = stored(numbers(0, 3), 0) + stored(numbers(3, 5), 3) + stored(numbers(5, 9), 5)
    one.lease((1, 4, 1), (5, 6, 1), (8, 9, 2), payload=payload)
    assert one.offsets() == [1, 2, 3, 5, 8]


def test_a_delivery_may_go_on_in_the_batch_before_without_its_bytes():
    one = Sharing(partitions=(0, 1))
    one.lease((0, 2, 1), base=0, count=100)
    one.lease((0, 1, 1), partition=1)
    one.lease((2, 4, 1), (50, 51, 1), continued=True)
    assert sorted(one.offsets()) == [0, 0, 1, 2, 3, 50]
    one.lease((60, 61, 1), (100, 102, 1), continued=True, payload=stored(numbers(100, 110), 100))
    one.lease((105, 106, 1), continued=True)
    assert one.offsets() == [60, 100, 101, 105]


def test_a_batch_is_forgotten_with_its_link():
    one = Sharing()
    one.lease((0, 2, 1), base=0, count=100)
    one.come_back()
    link = one.stage.link
    one.lease((2, 3, 1), continued=True, handle=2)
    assert link.closed


@pytest.mark.parametrize(
    "runs", [[(5, 6, 1)], [(0, 3, 1)], [(1, 1, 1)], [(1, 2, 1), (0, 1, 1)]], ids=str
)
def test_messages_that_did_not_come_cost_the_link(runs):
    one = Sharing()
    link = one.stage.link
    one.lease(*runs, payload=stored(numbers(0, 2), 0))
    assert link.closed


def test_a_delivery_that_cannot_be_read_costs_the_link():
    one = Sharing()
    link = one.stage.link
    one.lease((0, 1, 1), payload=b"not an entry" * 10)
    assert link.closed


@pytest.mark.parametrize("take", ["next_message", "next_batch"])
def test_a_damaged_batch_is_never_handed_out(take):
    one = Sharing()
    entry = bytearray(stored(numbers(0, 4), 0))
    entry[-12] ^= 1
    one.lease((0, 4, 1), payload=bytes(entry))
    one.lease((4, 6, 1))
    assert getattr(one.core, take)().offset == 4  # those behind it are
    one.stage.advance(TIDY_US)
    (settle,) = one.settles()  # it may have been damaged on its way: once more, a little later
    assert (settle.action, settle.ranges) == ("nack", packed([0, 0, 4]))
    assert settle.duration_us == AGAIN_US


@pytest.mark.parametrize("take", ["next_message", "next_batch"])
@pytest.mark.parametrize("mode", ["shared", "key_shared"])
def test_a_batch_that_nobody_can_open_is_rejected_and_the_others_handed_out(take, mode):
    one = Sharing(mode=mode)
    values = [b"as long as it need be, %d" % number for number in range(300)]
    one.lease((0, 300, 1), payload=placed(with_false_raw_length(values), 0))
    one.lease((300, 302, 1))
    assert getattr(one.core, take)().offset == 300
    one.stage.advance(TIDY_US)
    (settle,) = one.settles()
    assert (settle.action, settle.ranges) == ("reject", packed([0, 0, 300]))
    assert settle.reason.startswith("cannot be read: offsets 0 to 300: ")
    one.stage.reply(frames.Settled(settle.request, packed([0, 0, 300])))
    assert one.core.refused == 0  # the application has said nothing of them


@pytest.mark.parametrize("make", [with_fallen_offset, with_foreign_name])
def test_of_a_batch_only_the_record_that_makes_no_sense_is_rejected(make):
    one = Sharing(prefetch=400)
    entry = make([b"%d" % number for number in range(300)], at=150)
    one.lease((0, 300, 1), payload=placed(entry, 0))
    assert one.offsets() == [*range(150), *range(151, 300)]
    one.stage.advance(TIDY_US)
    (settle,) = one.settles()
    assert (settle.action, settle.ranges) == ("reject", packed([0, 150, 151]))


def test_a_batch_of_columns_holds_nothing_that_cannot_be_read():
    one = Sharing(prefetch=400)
    entry = with_foreign_name([b"%d" % number for number in range(300)], at=150)
    one.lease((0, 300, 1), payload=placed(entry, 0))
    batches = [one.core.next_batch(), one.core.next_batch()]
    assert [(batch.offset, batch.end) for batch in batches] == [(0, 150), (151, 300)]
    assert [len(batch.values()) for batch in batches] == [150, 149]
    assert one.core.next_batch() is None


def test_partitions_take_turns():
    one = Sharing(partitions=(0, 1), prefetch=8)
    one.lease((0, 6, 1))
    one.lease((0, 6, 1), partition=1)
    assert [message.partition for message in one.read()] == [0, 0, 1, 1] * 3


def test_a_new_partition_begins_by_itself():
    one = Sharing()
    one.stage.reply(frames.PartitionsChanged(0, 1, 2))
    one.lease((0, 1, 1), partition=1)
    (message,) = one.read()
    message.ack()
    assert one.told() == [("ack", [(1, 0, 1)])]
    assert one.core.partitions() == [0, 1]


def test_batches_are_runs_of_messages_side_by_side():
    one = Sharing(prefetch=16)
    one.lease((0, 6, 1), (6, 7, 2), (7, 8, 1), (9, 10, 2), base=0, count=10)
    assert one.offsets(1) == [0]
    seen = []
    while (batch := one.core.next_batch()) is not None:
        assert [message.offset for message in batch.messages()] == list(
            range(batch.offset, batch.end)
        )
        assert {message.delivery_count for message in batch.messages()} == {batch.delivery_count}
        seen.append((batch.offset, batch.end, batch.delivery_count))
    assert seen == [(1, 4, 1), (4, 6, 1), (6, 7, 2), (7, 8, 1), (9, 10, 2)]
    one.lease((10, 11, 2), (11, 12, 1), (12, 13, 2))
    assert one.core.inbound.refill(0)  # so that they are taken from what is ready
    assert [one.core.next_batch().offset for _ in range(3)] == [10, 11, 12]


def test_a_batch_of_what_is_left_holds_only_what_no_other_thread_has_drawn():
    one = Sharing()
    one.lease((0, 10, 1))
    one.read(2)
    leases = one.core.inbound
    drawn = list(leases.ready)
    leases._make_ready(drawn[:3] + drawn[4:])  # another has drawn 5 meanwhile
    first, second = one.core.next_batch(), one.core.next_batch()
    assert (first.values(), second.values()) == (numbers(2, 5), numbers(6, 10))


def test_frames_that_make_no_sense_cost_the_link():
    for frame in (frames.Deliver(0, 1, 0, 0, 0), frames.PushAcked(0, 1, 0, 0, b"")):
        one = Sharing()
        link = one.stage.link
        one.stage.reply(frame)
        assert link.closed


def test_wrong_answers_cost_the_link():
    one = Sharing()
    one.lease((0, 1, 1))
    one.read()[0].ack()
    one.stage.advance(TIDY_US)
    (settle,) = one.settles()
    link = one.stage.link
    one.stage.reply(frames.Done(settle.request))
    assert link.closed
    one.stage.link = None
    one.stage.come_back()
    link = one.stage.link
    one.stage.reply(frames.Done(one.stage.take(frames.OpenSubscription).request))
    assert link.closed


# --- credit --------------------------------------------------------------------------------------


def test_bytes_return_with_the_last_of_a_batch_and_messages_as_they_are_settled():
    one = Sharing(prefetch=100)
    size = one.lease((0, 5, 1), (20, 25, 1), base=0, count=40)
    assert one.credits() == (0, 0)
    messages = one.read(9)
    assert one.credits() == (0, 0)
    messages += one.read(1)
    one.stage.advance(LEASE_US // 10)  # nobody is asked when a message is drawn: it is seen later
    assert one.credits() == (size, 0)
    for message in messages[:4]:
        message.ack()
    messages[4].nack()
    messages[5].extend()
    assert one.credits() == (0, 5)
    assert one.credits() == (0, 0)


def test_half_of_the_window_returns_at_once():
    one = Sharing(prefetch=8)
    one.lease((0, 8, 1))
    messages = one.read(8)
    for message in messages[:3]:
        message.ack()
    assert one.stage.kinds() == []
    messages[3].ack()
    assert one.stage.take(frames.Settle).action == "ack"
    assert one.stage.take(frames.Credit).messages == 4
    two = Sharing(credit_bytes=1000)
    size = two.lease((0, 1, 1), payload=stored([bytes(600)], 0))
    two.read()
    assert two.stage.take(frames.Credit).bytes == size


def test_no_more_than_prefetch_are_ever_unsettled():
    one = Sharing(prefetch=4)
    assert one.asked.prefetch == 4
    one.lease((0, 4, 1))
    messages = one.read()
    assert len(messages) == 4
    assert one.credits()[1] == 0
    messages[2].reject()
    one.read()  # it waits: what it has said is told at once
    assert one.stage.kinds() == ["Settle", "Credit"]


def test_the_window_grows_when_the_application_has_to_wait_for_it():
    one = Sharing(prefetch=50)
    assert one.asked.prefetch == FIRST == 16
    one.lease((0, 15, 1))
    one.read()  # it waits, but the broker could send one more
    assert one.credits()[1] == 0
    one.lease((15, 16, 1))
    one.read()
    assert one.stage.take(frames.Credit).messages == 16  # 32 in all
    one.lease((16, 32, 1))
    one.read()
    assert one.stage.take(frames.Credit).messages == 18  # 50, and no more
    one.lease((32, 50, 1))
    one.read()
    one.stage.advance(TIDY_US)
    assert one.credits()[1] == 0


def test_a_continued_batch_costs_its_bytes_once():
    one = Sharing(prefetch=100)
    size = one.lease((0, 1, 1), base=0, count=10)
    one.lease((1, 2, 1), continued=True)
    one.read()
    assert one.credits() == (size, 0)


def test_batches_that_hold_nothing_for_us_are_given_back_at_once():
    one = Sharing(prefetch=100)
    empty = stored(numbers(2, 4), 2)
    payload = stored(numbers(0, 2), 0) + empty + stored(numbers(4, 6), 4)
    one.lease((1, 2, 1), (4, 5, 1), payload=payload)
    assert one.credits() == (len(empty), 0)
    one.core.next_batch()
    one.core.next_batch()
    assert one.credits() == (len(payload) - len(empty), 0)


def test_what_is_dropped_is_given_back():
    one = Sharing(prefetch=100)
    size = one.lease((0, 10, 1))
    more = one.lease((10, 16, 1))
    one.read(3)
    one.move()
    assert one.credits() == (size + more, 16)


def test_after_a_loss_all_of_the_credit_is_new_but_for_what_is_held():
    one = Sharing(prefetch=100, credit_bytes=5000)
    one.lease((0, 10, 1))
    one.read(3)
    asked = one.come_back()
    assert (asked.credit_bytes, asked.prefetch) == (5000, 13)
    assert one.credits() == (0, 0)
    size = one.lease((3, 10, 1), handle=2)
    one.read(7)
    assert one.credits() == (size, 0)


def test_the_window_grows_too_when_what_came_was_settled_and_more_is_waited_for():
    one = Sharing(prefetch=100)
    for start in (0, 8):
        one.lease((start, start + 8, 1))
        for message in one.read(8):
            message.ack()
        one.settles()
    assert one.core._window.granted > 0
    one.read()
    assert one.core._window.size == 2 * FIRST


def test_after_a_loss_with_hands_full_one_more_may_come():
    one = Sharing(prefetch=4)
    one.lease((0, 4, 1))
    one.read()
    assert one.come_back().prefetch == 1


# --- what is said about messages -----------------------------------------------------------------


def test_acks_are_sent_together_as_ranges_and_without_waiting():
    one = Sharing(partitions=(0, 1), window=100)
    one.lease((0, 10, 1))
    one.lease((5, 6, 1), partition=1)
    for message in one.read():
        if message.offset not in (3, 7):
            message.ack()
    assert one.stage.kinds() == []
    assert one.told() == [("ack", [(0, 0, 3), (0, 4, 7), (0, 8, 10), (1, 5, 6)])]
    assert one.told() == []


def test_a_thousand_do_not_wait():
    one = Sharing(prefetch=5000, window=5000)
    one.lease((0, NOTES_MAX + 10, 1))
    messages = one.read()
    one.settles()
    for message in messages[: NOTES_MAX - 1]:
        message.ack()
    assert one.verdicts() == []
    messages[NOTES_MAX - 1].ack()
    assert one.verdicts() == [("ack", [(0, 0, NOTES_MAX)])]


def test_each_verdict_has_a_frame_of_its_own():
    one = Sharing()
    one.lease((0, 8, 1))
    messages = one.read()
    messages[0].nack()
    messages[1].nack(delay="5s")
    messages[2].nack(5)
    messages[3].reject("no such customer")
    messages[4].reject()
    messages[5].reject("no such customer")
    messages[6].ack()
    one.stage.advance(TIDY_US)
    assert [
        (each.action, triples(each.ranges), each.duration_us, each.reason) for each in one.settles()
    ] == [
        ("ack", [(0, 6, 7)], 0, ""),
        ("nack", [(0, 0, 1)], 0, ""),
        ("nack", [(0, 1, 3)], 5_000_000, ""),
        ("reject", [(0, 3, 4), (0, 5, 6)], 0, "no such customer"),
        ("reject", [(0, 4, 5)], 0, ""),
    ]


def test_extensions_do_not_wait():
    one = Sharing()
    one.lease((0, 3, 1))
    messages = one.read()
    messages[0].extend()
    messages[1].extend(90)
    messages[1].extend("2m")
    assert [(each.action, triples(each.ranges), each.duration_us) for each in one.settles()] == [
        ("extend", [(0, 0, 1)], 0),
        ("extend", [(0, 1, 2)], 90_000_000),
        ("extend", [(0, 1, 2)], 120_000_000),
    ]
    messages[0].ack()
    messages[1].nack()
    assert one.told() == [("ack", [(0, 0, 1)]), ("nack", [(0, 1, 2)])]


def test_of_extensions_told_together_the_last_counts():
    one = Sharing()
    one.lease((0, 1, 1))
    (message,) = one.read()
    one.stage.lose()
    for seconds in (30, 60, 30):
        message.extend(seconds)
    one.stage.come_back()
    one.opened(2)
    (told,) = one.settles()
    assert (told.action, told.duration_us) == ("extend", 30_000_000)
    one.answer(told, (0, 0, 1))
    assert one.core.refused == 1


@pytest.mark.parametrize("first", ["ack", "nack", "reject"])
def test_the_first_verdict_counts(first):
    one = Sharing()
    one.lease((0, 1, 1))
    (message,) = one.read()
    getattr(message, first)()
    for call in (message.ack, message.nack, message.reject, message.extend):
        call()
    assert one.told() == [(first, [(0, 0, 1)])]
    for call in (message.ack, message.nack, message.reject, message.extend):
        call()
    assert one.told() == []
    assert one.core.refused == 0


@pytest.mark.parametrize("action", ["ack", "nack", "extend", "reject"])
def test_a_batch_is_settled_whole(action):
    one = Sharing()
    one.lease((0, 7, 2))
    batch = one.core.next_batch()
    getattr(batch, action)()
    assert one.told() == [(action, [(0, 0, 7)])]


def test_a_batch_and_its_messages_are_settled_once():
    one = Sharing()
    one.lease((0, 7, 2))
    batch = one.core.next_batch()
    batch.messages()[2].reject("bad")
    batch.ack()
    batch.messages()[3].nack()
    assert one.told() == [("ack", [(0, 0, 2), (0, 3, 7)]), ("reject", [(0, 2, 3)])]


def test_bad_arguments_are_refused_at_once():
    one = Sharing()
    one.lease((0, 1, 1))
    (message,) = one.read()
    for kind, call, argument in [
        (OutOfRange, message.nack, -1),
        (OutOfRange, message.nack, "soon"),
        (WrongType, message.nack, None),
        (OutOfRange, message.extend, 0),
        (OutOfRange, message.extend, "13h"),
        (WrongType, message.extend, b"30s"),
        (WrongType, message.reject, ValueError("as it is")),
    ]:
        with pytest.raises(kind):
            call(argument)
    assert one.told() == []
    message.reject("x" * 1000)
    one.stage.advance(TIDY_US)
    assert one.settles()[0].reason == "x" * 497 + "..."


def test_a_commit_waits_for_all_that_was_said_before_it():
    one = Sharing()
    one.lease((0, 3, 1))
    first, second, third = one.read()
    first.ack()
    second.nack()
    mark = one.core.acked_so_far()
    ack, nack = one.settles()
    third.ack()
    one.answer(nack)
    assert not one.core.are_committed(mark)
    one.answer(ack)
    assert one.core.are_committed(mark)
    assert not one.core.are_committed(one.core.acked_so_far())


def test_a_commit_raises_for_what_was_refused_since_the_last(caplog):
    one = Sharing(partitions=(0, 1))
    one.lease((0, 10, 1))
    one.lease((0, 10, 1), partition=1)
    for message in one.read():
        message.ack()
    mark = one.core.acked_so_far()
    woken = []
    one.core.commits.add(lambda: woken.append(1))
    (settle,) = one.settles()
    with caplog.at_level(logging.WARNING):
        one.answer(settle, (0, 3, 4), (0, 6, 9), (1, 2, 3))
    assert woken
    with pytest.raises(
        LeaseLost,
        match=r"5 messages of topic 't' .*partition 0, offset 3, 6 to 8; partition 1, offset 2",
    ):
        one.core.are_committed(mark)
    assert one.core.are_committed(one.core.acked_so_far())
    assert one.core.refused == 5
    assert caplog.text == ""  # somebody waited, and was told


def test_without_a_commit_refusals_are_logged_once_in_a_burst(caplog):
    one = Sharing(lease_us=10 * LEASE_US)
    one.lease((0, 6, 1))
    messages = one.read()
    for message in messages[:3]:
        message.ack()
        one.stage.advance(TIDY_US)
        (settle,) = one.settles()
        with caplog.at_level(logging.WARNING):
            one.answer(settle, (0, message.offset, message.offset + 1))
    assert caplog.text.count("lease had ended") == 1
    assert one.core.refused == 3
    one.stage.advance(2_000_000)
    messages[3].nack()
    one.stage.advance(TIDY_US)
    one.answer(one.settles()[0], (0, 3, 4))
    assert caplog.text.count("lease had ended") == 2
    with pytest.raises(LeaseLost, match="4 messages"):
        one.core.are_committed(one.core.acked_so_far())


def test_an_error_names_few_and_counts_all():
    one = Sharing(window=500)
    one.lease((0, 100, 1))
    for message in one.read()[::2]:
        message.ack()
    mark = one.core.acked_so_far()
    one.answer(one.settles()[0], *((0, n, n + 1) for n in range(0, 100, 2)))
    with pytest.raises(LeaseLost, match=r"50 messages .*offset 0, 2, 4, 6, 8 and others"):
        one.core.are_committed(mark)


def test_a_busy_broker_is_told_again():
    one = Sharing()
    one.lease((0, 1, 1))
    one.read()[0].ack()
    mark = one.core.acked_so_far()
    one.stage.reply(frames.Failure(one.settles()[0].request, "busy", "later"))
    assert not one.core.are_committed(mark)
    one.stage.advance(1_000_000)
    one.answer(one.settles()[0])
    assert one.core.are_committed(mark)


def test_a_full_disk_is_raised_and_told_again():
    one = Sharing()
    one.lease((0, 1, 1))
    one.read()[0].ack()
    mark = one.core.acked_so_far()
    one.stage.reply(frames.Failure(one.settles()[0].request, "storageFull", "no room"))
    with pytest.raises(StorageFull):
        one.core.are_committed(mark)
    one.stage.advance(1_000_000)
    one.answer(one.settles()[0])
    assert one.core.are_committed(one.core.acked_so_far())


def test_what_the_broker_will_not_hear_is_raised_by_commit(caplog):
    one = Sharing()
    one.lease((0, 1, 1))
    one.read()[0].ack()
    mark = one.core.acked_so_far()
    with caplog.at_level(logging.WARNING):
        one.stage.reply(frames.Failure(one.settles()[0].request, "notAllowed", "not you"))
    assert "not you" in caplog.text
    for _ in range(2):  # whether somebody waits at that moment or asks later
        with pytest.raises(NotAllowed, match="not you"):
            one.core.are_committed(mark)
        assert one.core.are_committed(one.core.acked_so_far())
        one.lease((0, 1, 1))
        one.read()[0].ack()
        one.stage.advance(TIDY_US)
        one.stage.reply(frames.Failure(one.settles()[0].request, "notAllowed", "not you"))
        mark = one.core.acked_so_far()


# --- leases --------------------------------------------------------------------------------------


def test_leases_of_what_waits_in_the_queue_are_renewed_after_a_third():
    one = Sharing(prefetch=4)  # chunks of one
    one.lease((0, 3, 1))
    one.stage.advance(LEASE_US // 10 * 3)
    assert one.verdicts() == []
    one.stage.advance(LEASE_US // 10)
    (renewal,) = one.settles()
    assert (renewal.action, triples(renewal.ranges), renewal.duration_us) == (
        "extend", [(0, 0, 3)], 0,
    )  # fmt: skip
    one.answer(renewal)
    one.read(1)  # so that it is not taken for idle
    one.stage.advance(LEASE_US // 10 * 4)
    assert one.verdicts() == [("extend", [(0, 1, 3)])]


def test_leases_of_what_is_about_to_be_handed_out_are_renewed_after_a_tenth():
    one = Sharing(prefetch=40)
    one.lease((0, 30, 1))
    one.read(1)  # of a chunk of ten
    one.stage.advance(LEASE_US // 10)
    assert one.verdicts() == [("extend", [(0, 1, 10)])]
    one.read(4)
    one.stage.advance(LEASE_US // 10)
    assert one.verdicts() == [("extend", [(0, 5, 10)])]


def test_what_is_handed_out_late_is_renewed_on_the_way():
    one = Sharing(prefetch=4)
    one.lease((0, 3, 1))
    one.stage.advance(LEASE_US // 10)
    assert one.offsets(1) == [0]
    assert one.verdicts() == []
    one.stage.advance(LEASE_US // 20)
    assert one.offsets(1) == [1]
    assert one.verdicts() == [("extend", [(0, 1, 3)])]
    assert one.offsets(1) == [2]
    assert one.verdicts() == []
    one.lease((3, 4, 1))
    one.stage.advance(LEASE_US // 5)
    assert one.core.next_batch().offset == 3
    assert one.verdicts() == [("extend", [(0, 3, 4)])]


def test_what_was_handed_out_is_never_renewed_by_itself():
    one = Sharing()
    one.lease((0, 30, 1))
    one.read()
    one.stage.advance(3 * LEASE_US)
    assert one.verdicts() == []


def test_what_cannot_be_renewed_is_dropped_and_no_concern_of_the_application():
    one = Sharing(prefetch=40)
    size = one.lease((0, 30, 1))
    assert one.offsets(5) == [0, 1, 2, 3, 4]
    one.stage.advance(LEASE_US // 10 * 4)
    renewals = one.settles()
    assert triples(renewals[-1].ranges) == [(0, 5, 30)]
    one.lease((40, 41, 1))
    one.answer(renewals[-1], (0, 7, 12), (0, 25, 30))
    assert one.offsets() == [5, 6, *range(12, 25), 40]
    assert one.core.are_committed(one.core.acked_so_far())
    assert one.core.refused == 0
    assert one.credits()[0] > size  # all of it, in the end


def test_a_renewal_refused_late_does_not_touch_what_came_since():
    one = Sharing(prefetch=4)
    one.lease((0, 3, 1))
    one.stage.advance(LEASE_US // 10 * 4)
    (renewal,) = one.settles()
    one.lease((1, 2, 2))
    one.answer(renewal, (0, 0, 3))
    assert [(m.offset, m.delivery_count) for m in one.read()] == [(1, 2)]


def test_if_the_application_takes_nothing_for_a_lease_what_waits_is_released():
    one = Sharing(prefetch=40, window=40)
    one.lease((0, 30, 1))
    one.read(1)[0].ack()
    assert one.credits() == (0, 1)
    one.stage.advance(LEASE_US + LEASE_US // 10)
    told = one.verdicts()
    assert told[-1] == ("release", [(0, 1, 30)])
    assert {action for action, _ in told[:-1]} == {"extend"}
    one.stage.advance(3 * LEASE_US)
    assert one.stage.take_all() == []  # no credit either: it would only come back
    assert one.core.next_message() is None
    assert one.stage.take(frames.Credit).messages == 29


def test_an_application_that_waits_is_not_idle():
    one = Sharing()
    one.stage.advance(2 * LEASE_US)
    one.lease((0, 1, 1))
    one.stage.advance(LEASE_US // 2)
    assert [action for action, _ in one.verdicts()] == ["extend"]
    assert one.offsets() == [0]


def test_nothing_is_done_when_nothing_is_leased():
    one = Sharing()
    one.lease((0, 1, 1))
    one.read()[0].ack()
    one.stage.advance(TIDY_US)
    one.answer(one.settles()[0])
    one.stage.advance(LEASE_US)
    one.settles()
    assert one.core._watch_timer is None


# --- leases that have ended ----------------------------------------------------------------------


def test_what_is_said_of_a_former_delivery_is_not_taken_for_the_next():
    one = Sharing()
    one.lease((0, 2, 1))
    old, other = one.read()
    one.lease((0, 1, 2))
    (new,) = one.read()
    old.nack()
    other.ack()
    new.ack()
    one.stage.advance(TIDY_US)
    (settle,) = one.settles()
    assert (settle.action, triples(settle.ranges)) == ("ack", [(0, 0, 2)])
    one.answer(settle)
    assert one.core.refused == 1
    with pytest.raises(LeaseLost, match=r"1 message of topic 't' .*partition 0, offset 0"):
        one.core.are_committed(one.core.acked_so_far())
    old.ack()
    assert one.told() == []
    assert one.core.refused == 1  # it was told once


def test_several_verdicts_in_one_breath_each_find_their_delivery():
    one = Sharing()
    one.lease((0, 1, 1))
    (old,) = one.read()
    one.lease((0, 1, 2))
    (new,) = one.read()
    old.ack()
    new.ack()
    assert one.told() == [("ack", [(0, 0, 1)])]
    assert one.core.refused == 1


def test_extending_what_has_ended_is_refused():
    one = Sharing()
    one.lease((0, 1, 1))
    (old,) = one.read()
    one.lease((0, 1, 2))
    old.extend()
    assert one.verdicts() == []
    assert one.core.refused == 1


def test_a_message_that_waits_is_replaced_by_its_next_delivery():
    one = Sharing(prefetch=8)  # chunks of two
    one.lease((0, 5, 1))
    assert one.offsets(1) == [0]
    one.lease((1, 2, 2), (3, 4, 2), base=0, count=5)
    assert [(m.offset, m.delivery_count) for m in one.read()] == [(2, 1), (4, 1), (1, 2), (3, 2)]


def test_what_was_forgotten_by_the_application_is_not_kept_for_ever():
    one = Sharing()
    one.lease((0, 3, 1))
    forgotten, extended, renewed = one.read()
    extended.extend("1h")
    for _ in range(8):
        renewed.extend()
        one.stage.advance(LEASE_US * 2 // 3)
    assert one.held == {1: 1, 2: 1}
    forgotten.ack()
    one.stage.advance(TIDY_US)
    assert one.core.refused == 1
    one.stage.advance(3 * LEASE_US)
    assert one.held == {1: 1}


def test_what_waits_is_not_taken_for_forgotten():
    one = Sharing(prefetch=8)
    one.lease((0, 6, 1))
    for offset in range(6):
        assert one.offsets(1) == [offset]
        one.stage.advance(LEASE_US * 9 // 10)
        for settle in one.settles():
            one.answer(settle)
    assert one.core.refused == 0


# --- losing the link -----------------------------------------------------------------------------


def test_what_was_handed_out_and_not_settled_stays_ours():
    one = Sharing(partitions=(0, 1))
    one.lease((0, 10, 1))
    one.lease((5, 6, 1), partition=1)
    messages = one.read()
    for message in messages[1:3]:
        message.ack()
    asked = one.come_back(partitions=(0, 1))
    assert asked.consumer == one.asked.consumer
    assert triples(asked.held) == [(0, 0, 10), (1, 5, 6)]  # also what was said and not heard
    assert one.told() == [("ack", [(0, 1, 3)])]
    asked = one.come_back(3, partitions=(0, 1))
    assert triples(asked.held) == [(0, 0, 10), (1, 5, 6)]
    one.answer(one.settles()[0])
    asked = one.come_back(4, partitions=(0, 1))
    assert triples(asked.held) == [(0, 0, 1), (0, 3, 10), (1, 5, 6)]
    messages[0].ack()
    assert one.told() == [("ack", [(0, 0, 1)])]


def test_what_waited_is_dropped():
    one = Sharing(prefetch=8)
    one.lease((0, 6, 1))
    one.lease((6, 7, 1))
    assert one.offsets(1) == [0]
    assert triples(one.come_back().held) == [(0, 0, 1)]
    assert one.read() == []
    one.lease((1, 7, 1), handle=2)
    assert one.offsets() == [1, 2, 3, 4, 5, 6]


def test_what_is_told_again_says_so_and_its_refusal_is_raised():
    one = Sharing()
    one.lease((0, 3, 1))
    first, second, third = one.read()
    first.ack()
    second.reject("no")
    mark = one.core.acked_so_far()
    assert [settle.again for settle in one.settles()] == [False, False]
    one.stage.lose()
    third.ack()  # this one is told for the first time on the next link
    one.stage.come_back()
    one.opened(2)
    ack, reject, news = one.settles()
    assert [(each.action, each.again) for each in (ack, reject, news)] == [
        ("ack", True), ("reject", True), ("ack", False),
    ]  # fmt: skip
    one.answer(ack, (0, 0, 1))  # somebody else has it: the first telling was never heard
    assert not one.core.are_committed(mark)
    one.answer(reject)  # it holds: the first telling was heard, and its answer lost
    with pytest.raises(LeaseLost, match="offset 0"):
        one.core.are_committed(mark)
    assert one.core.refused == 1
    one.answer(news)
    assert one.core.are_committed(one.core.acked_so_far())


def test_a_nack_told_again_may_be_refused_and_an_extension_may_not():
    one = Sharing()
    one.lease((0, 2, 1))
    nacked, extended = one.read()
    nacked.nack(5)
    extended.extend()
    mark = one.core.acked_so_far()
    one.come_back()
    extension, nack = one.settles()
    assert (extension.action, nack.action) == ("extend", "nack")
    one.answer(nack, (0, 0, 1))  # if it was heard the first time, somebody else has it now
    one.answer(extension, (0, 1, 2))
    with pytest.raises(LeaseLost, match=r"1 message .* offset 1"):
        one.core.are_committed(mark)


def test_every_commit_under_way_raises_what_was_refused():
    one = Sharing()
    one.lease((0, 2, 1))
    for message in one.read():
        message.ack()
    marks = [one.core.acked_so_far() for _ in range(2)]  # of two threads
    one.answer(*one.settles(), (0, 0, 1))
    for mark in marks:
        with pytest.raises(LeaseLost):
            one.core.are_committed(mark)
    assert one.core.are_committed(one.core.acked_so_far())


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("lapsed", [False, True])
def test_a_message_that_comes_under_a_count_that_we_have_is_not_handed_out_twice(count, lapsed):
    """A broker that was killed may have forgotten that it had delivered the message."""
    one = Sharing(prefetch=4)
    one.lease((0, 2, count))
    message, other = one.read()
    if lapsed:
        one.stage.advance(2 * LEASE_US)
    other.ack()
    one.come_back()
    size = one.lease((0, 1, count), (2, 3, 1), base=0, count=3, handle=2)
    assert one.offsets() == [2]
    assert one.credits()[0] == size
    one.settles()
    message.ack()
    assert ("ack", [(0, 0, 1)]) in one.told()
    assert 0 not in one.held


def test_a_message_under_the_same_count_that_is_being_acked_is_not_handed_out():
    one = Sharing()
    one.lease((0, 1, 1))
    one.read()[0].ack()
    mark = one.core.acked_so_far()
    one.come_back()
    (ack,) = one.settles()
    one.lease((0, 1, 1), handle=2)  # before the broker has read the ack, which it then accepts
    one.answer(ack)
    assert one.core.are_committed(mark)
    assert one.read() == []
    assert one.told() == [("release", [(0, 0, 1)])]


def test_what_came_again_after_its_nack_is_not_nacked_twice():
    one = Sharing()
    one.lease((0, 4, 1))
    for message in one.read():
        message.nack(1)
    one.stage.advance(TIDY_US)
    one.settles()
    one.lease((0, 1, 2), (2, 3, 2), base=0, count=3)
    one.read(1)
    asked = one.come_back()
    assert triples(asked.held) == [(0, 0, 2), (0, 3, 4)]
    assert one.verdicts() == [("nack", [(0, 1, 2), (0, 3, 4)])]


def test_a_nack_without_delay_comes_true_by_itself():
    one = Sharing()
    one.lease((0, 4, 1))
    messages = one.read()
    messages[0].nack()
    mark = one.core.acked_so_far()
    one.settles()
    messages[1].nack(5)
    one.stage.lose()
    messages[2].nack()  # this one was never told
    one.stage.come_back()
    assert triples(one.opened(2).held) == [(0, 1, 4)]
    assert one.verdicts() == [("nack", [(0, 1, 2)]), ("nack", [(0, 2, 3)])]
    assert one.core.are_committed(mark)


def test_what_is_about_to_be_settled_is_not_handed_out_again():
    one = Sharing()
    one.lease((0, 3, 1))
    ack, nack, reject = one.read()
    ack.ack()
    nack.nack()
    reject.reject()
    one.stage.advance(TIDY_US)
    one.settles()
    one.lease((0, 3, 2))  # their leases had ended, but what was said will meet the new ones
    assert one.told() == [("release", [(0, 0, 1), (0, 2, 3)])]
    assert one.offsets() == [1]


def test_renewals_and_releases_are_not_told_again():
    one = Sharing(prefetch=4)
    one.lease((0, 3, 1))
    one.stage.advance(LEASE_US // 10 * 4)
    assert [action for action, _ in one.verdicts()] == ["extend"]
    one.come_back()
    assert one.told() == []


def test_extensions_asked_for_are_told_again():
    one = Sharing()
    one.lease((0, 1, 1))
    one.read()[0].extend("1h")
    one.settles()
    one.come_back()
    assert one.verdicts() == [("extend", [(0, 0, 1)])]


def test_time_away_is_not_counted_against_what_is_held():
    one = Sharing()
    one.lease((0, 1, 1))
    one.read()
    assert triples(one.come_back().held) == [(0, 0, 1)]
    one.stage.advance(LEASE_US)
    assert one.held == {0: 1}
    one.stage.advance(4 * LEASE_US)
    assert one.held == {}


def test_what_a_lease_had_ended_of_before_the_link_was_lost_is_not_claimed():
    one = Sharing()
    one.lease((0, 2, 1))
    messages = one.read()
    one.stage.advance(LEASE_US - TIDY_US)
    messages[1].extend()
    one.stage.advance(2 * TIDY_US)
    assert triples(one.come_back().held) == [(0, 1, 2)]


def test_partitions_that_came_while_it_was_away_are_read_from_their_beginning():
    one = Sharing(start=Start("latest"))
    assert one.come_back().start == Start("earliest")


# --- going elsewhere -----------------------------------------------------------------------------


def test_an_index_put_elsewhere_voids_what_came_before():
    one = Sharing(partitions=(0, 1), prefetch=8)
    one.lease((0, 6, 1))
    one.lease((0, 2, 1), partition=1)
    old = one.read(2)
    old[1].ack()
    one.move()
    for message in old:
        message.ack()
        message.nack()
        message.extend()
        message.reject()
    assert one.told() == []
    one.lease((0, 2, 1))
    assert sorted((m.partition, m.offset) for m in one.read()) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert one.core.refused == 0
    assert triples(one.come_back(partitions=(0, 1)).held) == [(0, 0, 2), (1, 0, 2)]


def test_what_was_on_its_way_when_the_index_moved_is_not_reported():
    one = Sharing(partitions=(0, 1))
    one.lease((0, 4, 1))
    one.lease((0, 1, 1), partition=1)
    for message in one.read():
        message.ack()
    mark = one.core.acked_so_far()
    (settle,) = one.settles()
    one.move()
    one.answer(settle, (0, 0, 4), (1, 0, 1))
    with pytest.raises(LeaseLost, match=r"1 message .*partition 1, offset 0"):
        one.core.are_committed(mark)


def test_what_waited_for_a_link_when_the_index_moved_is_not_told():
    one = Sharing()
    one.lease((0, 4, 1))
    first, second = one.read(2)
    first.ack()
    mark = one.core.acked_so_far()
    one.stage.reply(frames.Failure(one.settles()[0].request, "busy", "later"))
    second.extend()
    one.settles()
    one.move()
    assert one.core.are_committed(mark) is False  # the extension is still on its way
    one.stage.advance(1_000_000)
    assert one.verdicts() == []


def test_a_batch_may_be_continued_beyond_a_move():
    one = Sharing()
    one.lease((0, 1, 1), base=0, count=10)
    one.move()
    one.lease((3, 4, 1), continued=True)
    assert one.offsets() == [3]


def test_what_retention_removed_is_counted(caplog):
    one = Sharing()
    with caplog.at_level(logging.WARNING):
        one.move(offset=50, lost=50)
        one.move(partition=7, offset=5)
    assert one.core.lost == 50
    assert "removed by retention" in caplog.text


# --- keys ----------------------------------------------------------------------------------------


def keyed(**options):
    """Twelve messages, keys a b c a b c ..., of which the first two were handed out."""
    one = Sharing(mode="key_shared", lease_us=30 * LEASE_US, **options)
    keys = [b"abc"[n % 3 : n % 3 + 1] for n in range(12)]
    one.lease((0, 12, 1), keys=keys)
    return one, one.read(2)


@pytest.mark.parametrize("prefetch", [4, 16, 500], ids="prefetch {}".format)
def test_a_nack_releases_what_waits_of_its_key_behind_it(prefetch):
    one, (message, _) = keyed(prefetch=prefetch)
    one.settles()
    message.nack("5s")
    assert one.verdicts() == [
        ("nack", [(0, 0, 1)]), ("release", [(0, 3, 4), (0, 6, 7), (0, 9, 10)]),
    ]  # fmt: skip
    assert one.offsets() == [2, 4, 5, 7, 8, 10, 11]


def test_what_still_comes_of_a_nacked_key_is_released_until_the_nack_is_answered():
    one, (message, _) = keyed()
    one.settles()
    message.nack()
    nack, release = one.settles()
    one.lease((12, 14, 1), keys=[b"a", b"b"])
    assert one.told() == [("release", [(0, 12, 13)])]
    one.answer(nack)
    one.answer(release)
    one.lease((14, 15, 1), keys=[b"a"])  # sent before the last release was heard
    one.stage.advance(TIDY_US)
    (last,) = one.settles()
    assert (last.action, triples(last.ranges)) == ("release", [(0, 14, 15)])
    one.lease((12, 13, 1), (14, 15, 1), base=12, count=3, keys=[b"a", b"b", b"a"])
    one.lease((15, 16, 1), keys=[b"a"])
    assert one.offsets()[-4:] == [13, 12, 14, 15]


def test_a_nacked_message_that_comes_again_lets_its_key_go_on():
    one, (message, _) = keyed()
    message.nack()
    one.settles()
    one.lease((0, 1, 2), (3, 4, 1), base=0, count=4, keys=[b"a", b"b", b"c", b"a"])
    assert one.told() == []
    assert one.offsets()[-2:] == [0, 3]


def test_a_key_nacked_twice_waits_for_both():
    one = Sharing(mode="key_shared")
    one.lease((0, 3, 1), keys=[b"a"] * 3)
    first, second = one.read(2)
    first.nack()
    second.nack(1)
    settles = one.settles()
    assert [(each.action, triples(each.ranges)) for each in settles] == [
        ("nack", [(0, 0, 1)]), ("release", [(0, 2, 3)]), ("nack", [(0, 1, 2)]),
    ]  # fmt: skip
    one.answer(settles[0])
    one.answer(settles[1])
    one.lease((2, 3, 1), keys=[b"a"])
    one.stage.advance(TIDY_US)
    (release,) = one.settles()
    assert (release.action, triples(release.ranges)) == ("release", [(0, 2, 3)])
    one.answer(settles[2])
    one.lease((2, 3, 1), keys=[b"a"])
    assert one.offsets() == [2]


def test_a_key_waits_for_its_nack_across_a_loss():
    one, (message, _) = keyed()
    message.nack(5)
    one.settles()
    one.come_back()
    assert one.verdicts() == [("nack", [(0, 0, 1)])]
    one.lease((3, 4, 1), keys=[b"a"], handle=2)
    assert one.told() == [("release", [(0, 3, 4)])]


def test_a_nacked_batch_releases_the_keys_of_all_its_messages():
    one = Sharing(mode="key_shared", prefetch=8)
    one.lease((0, 6, 1), keys=[b"a", b"b", b"c", b"a", b"b", b"c"])
    assert one.offsets(1) == [0]
    batch = one.core.next_batch()
    assert (batch.offset, batch.end) == (1, 2)
    one.settles()
    batch.nack()
    assert one.verdicts() == [("nack", [(0, 1, 2)]), ("release", [(0, 4, 5)])]


def test_messages_without_a_key_have_no_order_to_keep():
    one = Sharing(mode="key_shared", lease_us=30 * LEASE_US)
    one.lease((0, 4, 1), keys=[None, b"a", None, None])
    one.lease((4, 6, 1))
    one.read(1)[0].nack()
    assert one.told() == [("nack", [(0, 0, 1)])]
    one.read(1)[0].nack()
    assert one.told() == [("nack", [(0, 1, 2)])]
    assert one.offsets() == [2, 3, 4, 5]


def test_without_key_order_a_nack_leaves_the_others_alone():
    one = Sharing()
    one.lease((0, 4, 1), keys=[b"a"] * 4)
    one.read(1)[0].nack()
    assert one.stage.kinds() == []
    assert one.told() == [("nack", [(0, 0, 1)])]
    assert one.offsets() == [1, 2, 3]


def test_damage_that_a_nack_comes_upon_is_not_handed_out():
    one = Sharing(mode="key_shared", prefetch=4)
    one.lease((0, 1, 1), keys=[b"a"])
    entry = bytearray(stored(numbers(1, 4), 1, keys=[b"a"] * 3))
    entry[-12] ^= 1
    one.lease((1, 4, 1), payload=bytes(entry))
    one.read(1)[0].nack()
    assert one.core.next_message() is None
    one.stage.advance(TIDY_US)
    nack, again = one.settles()
    assert (nack.action, nack.ranges, nack.duration_us) == ("nack", packed([0, 0, 1]), 0)
    assert (again.action, again.ranges) == ("nack", packed([0, 1, 4]))


# --- the end -------------------------------------------------------------------------------------


def test_closing_releases_what_waits_and_settles_the_rest():
    one = Sharing(prefetch=8)
    one.lease((0, 6, 1))
    one.read(1)[0].ack()
    one.core.wind_up()
    acked, released, stop = one.settles()
    assert [triples(each.ranges) for each in (acked, released, stop)] == [
        [(0, 0, 1)], [(0, 1, 6)], [],
    ]  # fmt: skip
    assert (released.action, stop.action) == ("release", "release")
    one.answer(acked)
    mark = one.core.acked_so_far()
    assert not one.core.are_committed(mark)  # something may be on its way still
    one.lease((6, 7, 1))
    one.answer(stop)
    assert one.verdicts() == [("release", [(0, 6, 7)])]
    assert one.core.are_committed(mark)
    answers = Answers()
    one.core.close(answers)
    one.stage.reply(frames.Done(one.stage.take(frames.CloseHandle).request))
    assert len(answers) == 1
    with pytest.raises(Closed):
        one.core.next_message()


def test_closing_without_a_link_has_nobody_to_ask():
    one = Sharing()
    one.stage.lose()
    answers = Answers()
    one.core.close(answers)
    assert len(answers) == 1


def test_ended_by_the_broker():
    one = Sharing()
    one.lease((0, 6, 1))
    (message,) = one.read(1)
    one.stage.reply(frames.HandleEnded(0, 1, "fenced", "another one"))
    for call in (message.ack, one.core.next_message, one.core.next_batch, one.core.acked_so_far):
        with pytest.raises(Fenced, match="another one"):
            call()


def test_a_commit_that_waits_hears_of_the_end():
    one = Sharing()
    one.lease((0, 1, 1))
    one.read()[0].ack()
    mark = one.core.acked_so_far()
    one.stage.reply(frames.HandleEnded(0, 1, "unknownTopic", "deleted"))
    with pytest.raises(UnknownTopic):
        one.core.are_committed(mark)


def test_a_broker_that_is_busy_or_goes_down_is_asked_again():
    one = Sharing()
    one.lease((0, 2, 1))
    one.read(1)[0].ack()
    mark = one.core.acked_so_far()
    (settle,) = one.settles()
    one.stage.reply(frames.HandleEnded(0, 1, "shuttingDown", "soon"))
    one.stage.reply(frames.Failure(settle.request, "unknownHandle", "which one?"))
    one.stage.advance(1_000_000)
    assert triples(one.opened(2).held) == [(0, 0, 1)]
    (settle,) = one.settles()
    assert (settle.handle, triples(settle.ranges)) == (2, [(0, 0, 1)])
    one.answer(settle)
    assert one.core.are_committed(mark)


def test_a_topic_that_is_not_there_ends_it():
    one = Sharing()
    one.stage.lose()
    one.stage.come_back()
    request = one.stage.take(frames.OpenSubscription).request
    one.stage.reply(frames.Failure(request, "unknownTopic", "no"))
    with pytest.raises(UnknownTopic):
        one.core.check_usable()


def test_an_answer_that_comes_after_the_end_is_let_go():
    one = Sharing()
    one.stage.lose()
    one.stage.come_back()
    asked = one.stage.take(frames.OpenSubscription)
    one.core.end(Closed("enough"))
    one.stage.reply(frames.SubscriptionOpened(asked.request, 9, packed([0, 0]), LEASE_US))
    assert one.stage.take(frames.CloseHandle).handle == 9


# --- how far messages were handed out ------------------------------------------------------------


def test_it_is_told_with_the_credit_and_once():
    one = Sharing(prefetch=16, lease_us=100 * LEASE_US)
    assert one.asked.tells
    one.lease((0, 10, 1))
    assert one.tidy() == [], "nothing was handed out yet"
    first, *_ = one.read(3)
    assert one.handed() == [(0, 1, 3)]
    assert one.tidy() == [], "nothing is new"
    first.ack()
    settle, credit = one.tidy()
    assert isinstance(settle, frames.Settle)
    assert (credit.messages, credit.handed) == (1, b"")
    one.read()
    assert one.handed() == [(0, 2, 0)], "nothing waits: what comes next is next"


def test_what_is_taken_without_a_word_is_told_all_the_same():
    one = Sharing(prefetch=100, window=100)
    one.lease((0, 20, 1))
    one.read(1)
    assert one.handed() == [(0, 1, 1)]
    one.tidy()
    one.read(4)  # drawn from what is ready, and nobody is asked
    assert one.handed() == []
    one.stage.advance(LEASE_US // 10)
    credit, *_ = [each for each in one.stage.take_all() if isinstance(each, frames.Credit)]
    assert triples(credit.handed) == [(0, 1, 5)]


def test_the_first_one_told_is_of_the_partition_whose_turn_it_is():
    one = Sharing(partitions=(0, 1), prefetch=8, lease_us=100 * LEASE_US)
    one.lease((0, 4, 1))
    one.lease((0, 4, 1), partition=1)
    one.read(2)  # as many as are made at a time
    assert one.handed() == [(1, 2, 0), (0, 1, 2)]
    one.read(1)
    assert one.handed() == [(1, 2, 1)]
    one.read(1)
    assert one.handed() == [(0, 1, 2), (1, 2, 2)]


def test_deliveries_are_counted_anew_on_each_link():
    one = Sharing(prefetch=16)
    one.lease((0, 4, 1))
    one.lease((4, 8, 1))
    one.read(5)
    assert one.handed()[-1] == (0, 2, 5)
    one.come_back()
    one.lease((5, 8, 1), handle=2)
    one.read(1)
    assert one.handed()[-1] == (0, 1, 6)


def test_what_comes_alone_is_settled_at_once():
    one = Sharing(prefetch=16)
    one.lease((0, 1, 2), alone=True)
    (message,) = one.read()
    message.ack()
    assert one.verdicts() == [("ack", [(0, 0, 1)])]
    one.lease((1, 5, 1))
    for message in one.read(4)[:3]:
        message.ack()
    assert one.verdicts() == [], "together, as ever"
    assert one.told() == [("ack", [(0, 1, 4)])]
