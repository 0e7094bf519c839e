"""Subscriptions to shared indexes: what needs many messages, two threads, or values of any type.

Everything else that a broker or an application can do is in `tests/client/traces/shared`.
"""

from __future__ import annotations

import pytest

from hocket import frames
from hocket.client_core.consuming.attachment import TIDY_US
from hocket.client_core.sharing.progress import NOTES_MAX
from hocket.errors import LeaseLost, OutOfRange, WrongType
from tests.support.client.sharing import LEASE_US, Sharing, numbers, triples


@pytest.mark.parametrize("step", [2, 3, 9, 50], ids="one in {}".format)
def test_only_what_is_leased_of_a_batch_is_handed_out(step):
    one = Sharing()
    meant = list(range(0, 200, step))
    keys = [b"k%d" % n for n in range(200)]
    one.lease(*((n, n + 1, 1 + n % 2) for n in meant), base=0, count=200, keys=keys)
    assert [(m.offset, m.value, m.key, m.delivery_count) for m in one.read()] == [
        (n, b"%d" % n, b"k%d" % n, 1 + n % 2) for n in meant
    ]


def test_a_batch_of_what_is_left_holds_only_what_no_other_thread_has_drawn():
    one = Sharing()
    one.lease((0, 10, 1))
    one.read(2)
    leases = one.core.inbound
    drawn = list(leases.ready)
    leases._make_ready(drawn[:3] + drawn[4:])  # another has drawn 5 meanwhile
    first, second = one.core.next_batch(), one.core.next_batch()
    assert (first.values(), second.values()) == (numbers(2, 5), numbers(6, 10))


def test_thousands_do_not_wait():
    one = Sharing(prefetch=3 * NOTES_MAX, window=3 * NOTES_MAX)
    one.lease((0, NOTES_MAX + 10, 1))
    messages = one.read()
    one.settles()
    for message in messages[: NOTES_MAX - 1]:
        message.ack()
    assert one.verdicts() == []
    messages[NOTES_MAX - 1].ack()
    assert one.verdicts() == [("ack", [(0, 0, NOTES_MAX)])]


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


def test_an_extension_that_its_ack_has_overtaken_is_no_lost_lease():
    one = Sharing()
    one.lease((0, 2, 1))
    first, second = one.read()
    one.settles()
    first.extend()
    second.extend()
    first.ack()
    mark = one.core.acked_so_far()
    *extensions, ack = one.settles()
    assert ack.action == "ack"
    one.answer(ack)
    for extension in extensions:
        one.stage.reply(frames.Settled(extension.request, extension.ranges))
    with pytest.raises(LeaseLost, match=r"1 message .* offset 1\)"):  # which is held still
        one.core.are_committed(mark)


def renewals(one: Sharing) -> list[frames.Settle]:
    return [each for each in one.settles() if each.action == "extend"]


def claimed(one: Sharing) -> list[tuple[int, int, int]]:
    one.stage.lose()
    one.stage.come_back()
    return triples(one.stage.take(frames.OpenSubscription).held)


def test_what_could_not_be_renewed_is_given_back_and_not_handed_out():
    one = Sharing(prefetch=4)
    one.lease((0, 4, 1))
    assert one.read(1)[0].offset == 0
    for _ in range(8):
        one.stage.advance(LEASE_US // 10)
    asked = renewals(one)
    assert asked
    one.stage.advance(LEASE_US // 10)
    assert ("release", [(0, 1, 4)]) in one.told()
    assert one.read() == []
    for each in asked:  # too late
        one.answer(each)
    assert one.read() == []


@pytest.mark.parametrize("is_answered", [True, False])
def test_a_renewal_counts_when_it_is_answered_and_from_when_it_was_sent(is_answered):
    one = Sharing(prefetch=8)
    one.lease((0, 2, 1))
    one.lease((2, 4, 1), base=2)
    assert [each.offset for each in one.read(1)] == [0]
    for _ in range(5):
        one.stage.advance(LEASE_US // 10)
    asked = renewals(one)
    one.stage.advance(LEASE_US // 10)
    if is_answered:
        for each in asked:
            one.answer(each)
    assert [each.offset for each in one.read(3)] == [1, 2, 3]
    one.stage.advance(LEASE_US // 2)  # 1.1 leases after they came, 0.6 after the renewal
    assert claimed(one) == ([(0, 1, 4)] if is_answered else [])
