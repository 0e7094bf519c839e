from __future__ import annotations

from random import Random

from hocket.client_core.outbox import Outbox, Reply, Wake, WakeUps


def woken(outbox: Outbox) -> list[str]:
    """Carry out what is in the outbox, which must be wake-ups; what was there."""
    found = []
    while outbox.effects:
        effect = outbox.effects.popleft()
        assert isinstance(effect, Wake)
        effect.wake_ups.carry_out()
        found.append("woken")
    return found


def test_wake_ups_are_called_once_in_order_and_not_before_they_are_carried_out():
    outbox = Outbox(Random(0))
    wake_ups, called = WakeUps(outbox), []
    wakes = [lambda n=n: called.append(n) for n in range(4)]
    for wake in wakes:
        wake_ups.add(wake)
    wake_ups.discard(wakes[1])
    wake_ups.discard(wakes[1])
    assert wake_ups
    wake_ups.wake_all()
    assert called == []
    assert woken(outbox) == ["woken"]
    wake_ups.wake_all()
    assert woken(outbox) == []
    assert called == [0, 2, 3]
    assert not wake_ups


def test_one_that_waits_again_while_it_is_woken_waits_for_the_next_time():
    outbox = Outbox(Random(0))
    wake_ups, called = WakeUps(outbox), []

    def wake():
        called.append(len(called))
        wake_ups.add(wake)

    wake_ups.add(wake)
    for times in range(2):
        wake_ups.wake_all()
        woken(outbox)
        assert called == list(range(times + 1))


def test_a_reply_wakes_its_waiter():
    outbox, called = Outbox(Random(0)), []
    reply = Reply(outbox)
    reply.wake_ups.add(lambda: called.append("woken"))
    assert reply.get() is None
    reply.put("here")
    woken(outbox)
    assert (reply.get(), called) == ("here", ["woken"])
